//! The segment being written, and what it says of the one before.

use super::ahead::{SyncOutcome, settled};
use super::next::Empty;
use crate::error::LogError;
use crate::format::{self, GroupHeader, RecordRef, SegmentHeader};
use crate::retention::SegmentInfo;
use stele_storage::AppendFile;
use stele_types::{SeqNo, TabletId};
use tokio::sync::oneshot;

/// The segment being written.
pub(crate) struct Open {
    pub(super) number: u64,
    pub(super) file: Box<dyn AppendFile>,
    pub(super) info: SegmentInfo,
    /// The tablet of the last record and its newest sequence number, not yet in `info`: mostly the next record is of the
    /// same tablet.
    pub(super) latest: Option<(TabletId, SeqNo)>,
    /// Everything before this offset is synced.
    pub(super) synced: u64,
    /// Everything before this offset was acknowledged to somebody.
    pub(super) acknowledged: u64,
    /// Where the last sync ahead of the closing one began, and its outcome while it is not known.
    pub(super) ahead_through: u64,
    pub(super) ahead: Option<oneshot::Receiver<SyncOutcome>>,
    /// It relieved its predecessor: a reader keeps it only if that one is whole, or if it says that it was synced itself.
    pub(super) relieves: bool,
    /// Its name survives power loss.
    pub(super) named: bool,
    /// A next file could not be made: while this segment is open no other is asked for.
    pub(super) ends_reserve: bool,
}

/// What a segment's header says about the segment before it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Previous {
    pub(super) number: u64,
    pub(super) acknowledged: u64,
    pub(super) synced: u64,
    /// It was given up: behind what was acknowledged there may be a group that was refused, and what was acknowledged may
    /// be gone.
    pub(super) refused: bool,
}

impl Previous {
    pub(super) fn of(open: &Open, refused: bool) -> Previous {
        Previous {
            number: open.number,
            acknowledged: open.acknowledged,
            synced: open.synced.min(open.acknowledged),
            refused,
        }
    }

    pub(super) fn header_of_next(&self, stream: u32, number: u64) -> SegmentHeader {
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
    pub(super) fn new(empty: Empty, follows: u64, relieves: bool) -> Open {
        Open {
            number: empty.number,
            named: empty.named,
            file: empty.file,
            info: SegmentInfo {
                path: empty.path,
                follows,
                ..SegmentInfo::default()
            },
            latest: None,
            synced: 0,
            acknowledged: 0,
            ahead_through: 0,
            ahead: None,
            relieves,
            ends_reserve: false,
        }
    }

    pub(super) fn is_named(&self) -> bool {
        self.named || self.synced > 0
    }

    pub(super) fn header_for<'r>(&self, records: impl Iterator<Item = RecordRef<'r>>) -> GroupHeader {
        let (mut count, mut bytes) = (0, 0);
        for record in records {
            count += 1;
            bytes += record.frame_len();
        }
        let offset = self.file.len();
        // A first group that knows all before it to be synced is the sign of a segment that rests on nothing.
        let known = match self.relieves && offset == format::SEGMENT_HEADER_BYTES as u64 {
            true => self.synced.min(offset - 1),
            false => self.synced,
        };
        GroupHeader {
            records_len: bytes as u32,
            records: count,
            offset,
            unsynced: u32::try_from(offset - known).unwrap_or(u32::MAX),
        }
    }

    /// Syncs what is not synced yet.
    pub(super) async fn sync_tail(&mut self) -> Result<(), LogError> {
        self.settle_ahead().await?;
        if self.synced < self.file.len() {
            self.file.sync().await?;
            self.synced = self.file.len();
        }
        Ok(())
    }

    /// Waits for the sync that runs ahead.
    pub(super) async fn settle_ahead(&mut self) -> Result<(), LogError> {
        settled(&mut self.ahead).await
    }

    pub(super) fn note(&mut self, tablet: TabletId, last: SeqNo) {
        match &mut self.latest {
            Some((same, newest)) if *same == tablet => *newest = last.max(*newest),
            _ => {
                self.settle();
                self.latest = Some((tablet, last));
            }
        }
    }

    pub(super) fn settle(&mut self) {
        if let Some((tablet, newest)) = self.latest.take() {
            self.info.note(tablet, newest);
        }
    }
}
