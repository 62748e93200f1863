//! What recovery would make of a segment, could the device read all of it.
//!
//! A segment that lost its end in a power loss takes along those that relieved it, up to the first that rests on nothing:
//! what was written later is not to be there without what was written before. When the device cannot read one of these,
//! recovery comes to no decision, so a repair makes it, from what can be read. It must not drop what was synced: where
//! that which cannot be read may say that something behind the hole was, the hole counts as damage, and what follows stays.

use super::header_of;
use crate::error::LogError;
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::replay::{Gap, KnownLengths, SegmentReader, counts_behind, find_group, gap_without_header, read_header};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use stele_storage::ReadFile;
use stele_storage::past_unreadable::PastUnreadable;
use stele_types::ErrorKind;

/// What recovery would make of a segment.
pub(super) enum Judgement {
    /// Nothing is missing of it that was known to be synced.
    Sound,
    /// It would be refused.
    Damaged,
    /// Power loss took its end, and it takes these along, oldest first: the first that cannot be read as a whole, and all
    /// behind that one. Those before it recovery drops by itself.
    Takes(Vec<u64>),
}

/// What the headers of all segments say.
#[derive(Default)]
pub(super) struct Headers {
    /// The segment after each, by the stream and number of that one.
    followers: HashMap<(u32, u64), (SegmentHeader, Arc<PastUnreadable>)>,
    /// Segments whose header the device cannot read, by stream and number.
    unread: BTreeSet<(u32, u64)>,
}

impl Headers {
    /// Notes what the header of a segment says.
    pub(super) async fn add(&mut self, stream: u32, number: u64, file: &Arc<PastUnreadable>) -> Result<(), LogError> {
        match header_of(&**file, stream, number).await? {
            Some(header) => drop(self.followers.insert((stream, header.previous), (header, file.clone()))),
            // Nothing else was read of it so far.
            None if file.unreadable_bytes() > 0 => drop(self.unread.insert((stream, number))),
            None => {}
        }
        Ok(())
    }

    /// What the next segment says of this one.
    pub(super) fn known_lengths(&self, stream: u32, number: u64) -> Option<KnownLengths> {
        let (header, _) = self.followers.get(&(stream, number))?;
        Some(KnownLengths::stated_by(header))
    }

    /// Reads all of the segment that recovery would.
    pub(super) async fn judge(
        &self,
        stream: u32,
        number: u64,
        file: &Arc<PastUnreadable>,
    ) -> Result<Judgement, LogError> {
        let judged = async {
            match self.gap_of(stream, number, file).await? {
                Some(gap) => self.behind(&gap, stream, number).await,
                None => Ok(Judgement::Sound),
            }
        };
        match judged.await {
            Err(error @ LogError::Corruption { .. }) if error.kind() == ErrorKind::Corruption => Ok(Judgement::Damaged),
            judged => judged,
        }
    }

    async fn gap_of(&self, stream: u32, number: u64, file: &Arc<PastUnreadable>) -> Result<Option<Gap>, LogError> {
        let known = self.known_lengths(stream, number);
        if read_header(&**file, stream, number).await?.is_some() {
            let mut reader = SegmentReader::new(file.clone(), number, known);
            while reader.next_group().await?.is_some() {}
            return Ok(reader.gap());
        }
        gap_without_header(file.path(), known)
    }

    /// Looks at those that would be dropped for a hole: one of them may say that it is damage.
    async fn behind(&self, gap: &Gap, stream: u32, number: u64) -> Result<Judgement, LogError> {
        let mut last = number;
        let mut taken = Vec::new();
        while let Some((header, file)) = self.followers.get(&(stream, last)) {
            let known = self.known_lengths(stream, header.number);
            if header.number <= last || counts_behind(gap, &**file, header, known).await? {
                return Ok(Judgement::taking(taken));
            }
            last = header.number;
            let is_unread = file.unreadable_bytes() > 0;
            if is_unread && may_hide_a_sync(file, last).await? {
                return Ok(Judgement::Damaged);
            }
            if is_unread || !taken.is_empty() {
                taken.push(last);
            }
        }
        // Which segment such a one follows is not known: it may be the last of these.
        let may_follow = |(of, unread): &(u32, u64)| *of == stream && *unread > last && *unread >> 32 == last >> 32;
        if self.unread.iter().any(may_follow) {
            return Ok(Judgement::Damaged);
        }
        Ok(Judgement::taking(taken))
    }
}

impl Judgement {
    fn taking(taken: Vec<u64>) -> Self {
        if taken.is_empty() {
            Judgement::Sound
        } else {
            Judgement::Takes(taken)
        }
    }
}

/// Whether that which the device cannot read of a segment may say that something in it was synced, when nothing else of it
/// does. Not where a group behind all of that says that nothing was when it was written itself.
async fn may_hide_a_sync(file: &PastUnreadable, number: u64) -> Result<bool, LogError> {
    let Some(unread) = file.unreadable().pop() else {
        return Ok(false);
    };
    let from = unread.end.max(SEGMENT_HEADER_BYTES as u64);
    let witness = find_group(file, number, from, |group| group.synced_through() == 0).await?;
    Ok(witness.is_none())
}
