//! Predicts recovery's decision on a segment, as if the device could read all of it.
//!
//! Recovery drops the segments behind a gap, up to the first that stands alone. When the device cannot read one of these,
//! recovery makes no decision, so a repair makes it, from the readable bytes. It must not drop synced bytes. If unreadable
//! bytes may state that bytes behind the gap were synced, the gap counts as damage, and the segments behind it stay.

use super::header_of;
use crate::error::LogError;
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::replay::{Gap, KnownLengths, SegmentReader, counts_behind, find_group, gap_without_header, read_header};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use stele_storage::ReadFile;
use stele_storage::past_unreadable::PastUnreadable;
use stele_types::ErrorKind;

/// The decision of recovery on a segment.
pub(super) enum Judgement {
    /// No byte is missing that was known to be synced.
    Sound,
    /// It would be refused.
    Damaged,
    /// It has a gap, and these segments are dropped with it, oldest first: the first that cannot be read as a whole, and all
    /// behind that one. Recovery itself drops those before.
    Takes(Vec<u64>),
}

/// The headers of all segments.
#[derive(Default)]
pub(super) struct Headers {
    /// The segment after each, by the stream and number of that one.
    followers: HashMap<(u32, u64), (SegmentHeader, Arc<PastUnreadable>)>,
    /// Segments whose header the device cannot read, by stream and number.
    unread: BTreeSet<(u32, u64)>,
}

impl Headers {
    /// Adds the header of a segment.
    pub(super) async fn add(&mut self, stream: u32, number: u64, file: &Arc<PastUnreadable>) -> Result<(), LogError> {
        match header_of(&**file, stream, number).await? {
            Some(header) => drop(self.followers.insert((stream, header.previous), (header, file.clone()))),
            // So far only the header was read.
            None if file.unreadable_bytes() > 0 => drop(self.unread.insert((stream, number))),
            None => {}
        }
        Ok(())
    }

    /// The lengths that the next segment states of this one.
    pub(super) fn known_lengths(&self, stream: u32, number: u64) -> Option<KnownLengths> {
        let (header, _) = self.followers.get(&(stream, number))?;
        Some(KnownLengths::stated_by(header))
    }

    /// Reads all bytes of the segment that recovery would read, and decides.
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

    /// Checks the segments that would be dropped for a gap: one of them may prove that it is damage.
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
        // An unread header may follow the last of these segments.
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

/// Whether the unreadable bytes of a segment may state that bytes of it were synced, when no readable byte does. They do not if
/// a group behind all of them states that nothing was synced when it was written.
async fn may_hide_a_sync(file: &PastUnreadable, number: u64) -> Result<bool, LogError> {
    let Some(unread) = file.unreadable().pop() else {
        return Ok(false);
    };
    let from = unread.end.max(SEGMENT_HEADER_BYTES as u64);
    let witness = find_group(file, number, from, |group| group.synced_through() == 0).await?;
    Ok(witness.is_none())
}
