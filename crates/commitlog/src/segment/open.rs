//! The open segment, and the facts about a closed one that the next header states.

use super::next::Empty;
use crate::error::LogError;
use crate::format::{self, GroupHeader, RecordRef, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::mark::Marks;
use crate::retention::{SegmentInfo, SegmentState};
use stele_storage::AppendFile;
use stele_types::{SeqNo, TabletId};

/// The segment being written. Its header has been appended.
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) file: Box<dyn AppendFile>,
    pub(super) info: SegmentInfo,
    /// The tablet of the last record and its newest sequence number, not yet in `info`: mostly the next record is of the
    /// same tablet.
    latest: Option<(TabletId, SeqNo)>,
    /// Everything before this offset is synced.
    pub(super) synced: u64,
    /// Everything before this offset was acknowledged to a writer.
    pub(super) acknowledged: u64,
    /// Its header was synced before its first group: a reader keeps it even if the one before lost its end.
    stands_alone: bool,
    /// Bytes of marks in the group that was appended last, until it is acknowledged.
    marks: u64,
}

/// The facts about the segment before the open one that a header states.
#[derive(Clone, Copy, Default)]
pub(super) struct Previous {
    pub(super) number: u64,
    acknowledged: u64,
    synced: u64,
}

impl Previous {
    /// A closed segment with this many acknowledged bytes, of which none is synced.
    #[cfg(test)]
    pub(super) fn unsynced(number: u64, acknowledged: u64) -> Previous {
        Previous {
            number,
            acknowledged,
            synced: 0,
        }
    }

    pub(super) fn of(open: &Open) -> Previous {
        assert!(
            open.acknowledged <= open.file.len() && open.synced <= open.file.len(),
            "nothing is acknowledged or synced that was not appended"
        );
        Previous {
            number: open.number,
            acknowledged: open.acknowledged,
            synced: open.synced.min(open.acknowledged),
        }
    }

    /// The whole segment was synced after it was closed.
    pub(super) fn note_synced(&mut self) {
        self.synced = self.acknowledged;
    }

    pub(super) fn header_of_next(&self, stream: u32, number: u64) -> SegmentHeader {
        assert!(number > self.number, "segment numbers grow along a stream");
        SegmentHeader {
            version: format::VERSION,
            stream,
            number,
            previous: self.number,
            previous_len: self.acknowledged,
            previous_synced: self.synced,
        }
    }
}

impl Open {
    /// A segment whose header was synced.
    pub(super) fn standing_alone(empty: Empty, follows: u64) -> Open {
        Open::new(empty, follows, true)
    }

    /// A segment whose header was appended behind a full segment, and is not synced.
    pub(super) fn taking_over(empty: Empty, follows: u64) -> Open {
        Open::new(empty, follows, false)
    }

    fn new(empty: Empty, follows: u64, stands_alone: bool) -> Open {
        assert_eq!(
            empty.file.len(),
            SEGMENT_HEADER_BYTES as u64,
            "a segment begins with its header and nothing else"
        );
        Open {
            number: empty.number,
            synced: if stands_alone { empty.file.len() } else { 0 },
            file: empty.file,
            info: SegmentInfo {
                path: empty.path,
                follows,
                ..SegmentInfo::default()
            },
            latest: None,
            acknowledged: 0,
            stands_alone,
            marks: 0,
        }
    }

    pub(super) fn header_for<'r>(&self, records: impl Iterator<Item = RecordRef<'r>>, marks: &Marks) -> GroupHeader {
        let (mut count, mut bytes) = (marks.count, marks.bytes.len());
        for record in records {
            count += 1;
            bytes += record.frame_len();
        }
        assert!(count > 0, "a group has at least one record");
        assert!(
            u32::try_from(bytes).is_ok(),
            "the records of a group fit its length field"
        );
        let offset = self.file.len();
        assert!(
            self.synced <= offset && self.acknowledged <= offset,
            "groups are appended behind all that is synced or acknowledged"
        );
        // In a first group the distance 0 is reserved for a segment that stands alone.
        let is_first = offset == SEGMENT_HEADER_BYTES as u64;
        let known = if is_first && !self.stands_alone {
            self.synced.min(offset - 1)
        } else {
            self.synced
        };
        GroupHeader {
            records_len: bytes as u32,
            records: count,
            offset,
            unsynced: u32::try_from(offset - known).unwrap_or(u32::MAX),
        }
    }

    /// Checks an append that succeeded: `len` bytes were to be written at `offset`.
    pub(super) fn check_appended(&self, offset: u64, len: u64) {
        assert_eq!(
            self.file.len(),
            offset + len,
            "an append writes exactly the bytes of the group"
        );
    }

    /// Notes the marks of a group that was appended.
    pub(super) fn marks_appended(&mut self, marks: &Marks) {
        assert_eq!(
            self.marks, 0,
            "the marks of a group are acknowledged before the next one is appended"
        );
        self.marks = marks.bytes.len() as u64;
    }

    /// The bytes of marks of the group that is acknowledged now.
    pub(super) fn take_marks(&mut self) -> u64 {
        std::mem::take(&mut self.marks)
    }

    /// Syncs the bytes that are not synced yet.
    pub(super) async fn sync_tail(&mut self) -> Result<(), LogError> {
        if self.synced < self.file.len() {
            self.file.sync().await?;
            self.synced = self.file.len();
        }
        Ok(())
    }

    pub(super) fn note(&mut self, tablet: TabletId, last: SeqNo) {
        match &mut self.latest {
            Some((same, newest)) if *same == tablet => *newest = last.max(*newest),
            _ => {
                self.note_latest();
                self.latest = Some((tablet, last));
            }
        }
    }

    fn note_latest(&mut self) {
        if let Some((tablet, newest)) = self.latest.take() {
            self.info.note(tablet, newest);
        }
    }

    /// The state of the segment when it is given up after a failure.
    pub(super) fn state_given_up(&self) -> SegmentState {
        if self.synced < self.acknowledged {
            SegmentState::NotDurable
        } else {
            SegmentState::GivenUp
        }
    }

    /// Splits the segment, which is written no more, into its description and its file.
    pub(super) fn into_closed(mut self, state: SegmentState) -> (SegmentInfo, Box<dyn AppendFile>) {
        self.note_latest();
        // A segment without groups acknowledges nothing, not even its header.
        let ends_with_acknowledged = self.acknowledged == 0 || self.acknowledged == self.file.len();
        assert!(
            ends_with_acknowledged || matches!(state, SegmentState::GivenUp | SegmentState::NotDurable),
            "only a segment that was given up has refused bytes behind its end"
        );
        self.info.len = self.acknowledged;
        self.info.end = self.acknowledged;
        self.info.reading_cost = self.file.reading_cost();
        self.info.state = state;
        (self.info, self.file)
    }
}
