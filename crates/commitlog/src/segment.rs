//! The segments of one stream: who has them appends, syncs, rotates.
//!
//! There is one [`Segments`] for each stream, and whoever commits owns it: a writer that found the stream idle, or the
//! stream's task. Nothing here knows of queues or completions.
//!
//! A group is *appended*, then perhaps synced, then *acknowledged*: from then on it counts for recovery, and for the
//! length that the next segment's header states of this one. After any failure the segment is given up.
//!
//! A segment whose groups want no sync is synced *ahead*: whenever an eighth of its size has come together since the last
//! time, while appends go on. Else all of it would be left to the sync that closes it, and writers would wait for that.
//! The medium may lose what a failed sync was to write, so after one that ran ahead the segment is given up as well.

use crate::error::LogError;
use crate::format::{self, GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES, RecordRef, SegmentHeader};
use crate::metrics::LogMetrics;
use crate::retention::{Retention, SegmentInfo};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::{Env, PlantedBug};
use stele_storage::{AppendFile, Storage, StorageError};
use stele_types::{SeqNo, TabletId};
use tokio::sync::oneshot;

/// Groups up to this size are copied into one piece and appended without waiting, where the medium can. Copying 256 KiB
/// costs some 20 µs, less than the slices of a vectored write of small records.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

/// Syncs of a segment that run ahead of the closing one, at most: with 32 MiB one for every 4 MiB, some 20 ms of a disk's
/// bandwidth, which is then about what the closing one has left to do.
const SYNCS_AHEAD: u64 = 8;

/// State that a stream's handle and whoever commits share.
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) metrics: LogMetrics,
    /// Closed segments. The open one is added when it is closed.
    pub(crate) retention: Mutex<Retention>,
    /// Bytes in the open segment.
    pub(crate) open_bytes: AtomicU64,
}

/// Gives segment numbers that grow and that no earlier process used.
pub type SegmentNumbers = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The open segment of a stream and what its successor's header must say.
pub(crate) struct Segments {
    pub(crate) env: Env,
    pub(crate) stream: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) next_segment: SegmentNumbers,
    pub(crate) shared: Arc<Shared>,
    pub(crate) open: Option<Open>,
    /// The segment before the open one.
    pub(crate) previous: Previous,
    /// Where groups are put together; at most [`INLINE_BYTES_MAX`].
    pub(crate) frame: Vec<u8>,
}

/// The segment being written.
pub(crate) struct Open {
    number: u64,
    file: Box<dyn AppendFile>,
    info: SegmentInfo,
    /// The tablet of the last record and its newest sequence number, not yet in `info`: mostly the next record is of the
    /// same tablet.
    latest: Option<(TabletId, SeqNo)>,
    /// Everything before this offset is synced.
    synced: u64,
    /// Everything before this offset was acknowledged to somebody.
    acknowledged: u64,
    /// Where the last sync ahead of the closing one began, and its outcome while it is not known.
    ahead_through: u64,
    ahead: Option<oneshot::Receiver<Result<(), StorageError>>>,
}

/// What a segment's header says about the segment before it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Previous {
    number: u64,
    acknowledged: u64,
    synced: u64,
    /// Behind what was acknowledged there may be a group that was refused.
    refused: bool,
}

impl Segments {
    /// Whether the open segment has its size.
    pub(crate) fn is_full(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.file.reading_cost() >= self.segment_bytes)
    }

    /// Appends a group on the calling thread; `None` when that would have to wait, and then nothing has happened.
    /// `records` must not be empty.
    pub(crate) fn try_append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone,
    ) -> Option<Result<(), LogError>> {
        self.look_ahead();
        if self.is_full() {
            return None;
        }
        let open = self.open.as_mut()?;
        let header = open.header_for(records.clone());
        if GROUP_HEADER_BYTES + header.records_len as usize > INLINE_BYTES_MAX {
            return None;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&header.encode(open.number));
        for record in records {
            self.frame.extend_from_slice(&record.encode_header());
            self.frame.extend_from_slice(record.payload);
        }
        let outcome = open.file.try_append(&self.frame)?;
        Some(outcome.map_err(LogError::from))
    }

    /// Appends a group, into a new segment where there is none open. `payloads` are the payloads of the records.
    pub(crate) async fn append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone + Send,
        payloads: impl Iterator<Item = &'r Bytes> + Send,
    ) -> Result<(), LogError> {
        self.look_ahead();
        if self.open.is_none() {
            self.open = Some(self.open_segment().await?);
        }
        if let Some(outcome) = self.try_append(records.clone()) {
            return outcome;
        }
        let Some(open) = self.open.as_mut() else {
            return Err(LogError::Closed);
        };
        let header = open.header_for(records.clone());
        let heads_len = GROUP_HEADER_BYTES + header.records as usize * RECORD_HEADER_BYTES;
        let mut heads = Vec::with_capacity(heads_len);
        heads.extend_from_slice(&header.encode(open.number));
        records.for_each(|record| heads.extend_from_slice(&record.encode_header()));
        let heads = Bytes::from(heads);
        let mut slices = Vec::with_capacity(1 + 2 * header.records as usize);
        slices.push(heads.slice(..GROUP_HEADER_BYTES));
        let mut at = GROUP_HEADER_BYTES;
        for payload in payloads {
            slices.push(heads.slice(at..at + RECORD_HEADER_BYTES));
            slices.push(payload.clone());
            at += RECORD_HEADER_BYTES;
        }
        open.file.append(&slices).await?;
        Ok(())
    }

    /// Returns when everything appended survives power loss.
    pub(crate) async fn sync(&mut self) -> Result<(), LogError> {
        let Some(open) = self.open.as_mut() else {
            return Err(LogError::Closed);
        };
        if skips_sync(&self.env) {
            return Ok(());
        }
        open.settle_ahead().await?;
        let start = self.env.now();
        open.file.sync().await?;
        open.synced = open.file.len();
        let took = self.env.now() - start;
        self.shared.metrics.sync_seconds.observe(took.as_secs_f64());
        Ok(())
    }

    /// Counts a group that was appended, and synced if anything in it wanted that.
    pub(crate) fn acknowledge<'r>(&mut self, records: impl Iterator<Item = RecordRef<'r>>) {
        let Some(open) = self.open.as_mut() else { return };
        let mut count = 0;
        let mut bytes = GROUP_HEADER_BYTES as u64;
        for record in records {
            open.note(record.tablet, record.last);
            count += 1;
            bytes += record.frame_len() as u64;
        }
        if count == 0 {
            return;
        }
        // The segment's header goes with its first group.
        if open.acknowledged == 0 {
            bytes += format::SEGMENT_HEADER_BYTES as u64;
        }
        open.acknowledged += bytes;
        debug_assert!(open.acknowledged <= open.file.len());
        self.shared.open_bytes.store(open.acknowledged, Ordering::Relaxed);
        let metrics = &self.shared.metrics;
        metrics.retained_bytes.add(bytes as i64);
        metrics.bytes.inc_by(bytes);
        metrics.groups.inc();
        metrics.records.inc_by(count);
        self.sync_ahead();
    }

    /// Begins a sync beside the appends when enough has come together.
    fn sync_ahead(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let begun = open.synced.max(open.ahead_through);
        if open.ahead.is_some() || open.acknowledged - begun.min(open.acknowledged) < self.segment_bytes / SYNCS_AHEAD {
            return;
        }
        open.ahead_through = open.acknowledged;
        let (done, outcome) = oneshot::channel();
        open.ahead = Some(outcome);
        let (storage, path) = (self.shared.storage.clone(), open.info.path.clone());
        self.env.spawn("commit-log-sync", async move {
            let _ = done.send(storage.sync_file(&path).await);
        });
    }

    /// Gives up the segment if a sync that ran ahead has failed.
    fn look_ahead(&mut self) {
        let Some(ahead) = self.open.as_mut().and_then(|open| open.ahead.as_mut()) else {
            return;
        };
        match ahead.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            Ok(Err(error)) => self.refuse(&error.into()),
            // Closed: the runtime is ending.
            Ok(Ok(())) | Err(oneshot::error::TryRecvError::Closed) => {
                if let Some(open) = &mut self.open {
                    open.ahead = None;
                }
            }
        }
    }

    /// Gives up the segment after a failure: it is never written or synced again, and what was not acknowledged in it
    /// stays refused.
    pub(crate) fn refuse(&mut self, error: &LogError) {
        self.shared.metrics.failures.inc();
        tracing::error!(stream = self.stream, %error, "commit log segment given up");
        if let Some(open) = self.open.take() {
            self.retire(open, true);
        }
    }

    /// Ends a healthy segment. Its tail is synced, so that the order in which segments became durable is the order in
    /// which they were written.
    pub(crate) async fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if let Err(error) = open.sync_tail().await {
            tracing::warn!(path = open.info.path, %error, "the tail of a log segment could not be synced");
        }
        self.retire(open, false);
    }

    fn retire(&mut self, mut open: Open, refused: bool) {
        open.settle();
        self.previous = Previous {
            number: open.number,
            acknowledged: open.acknowledged,
            synced: open.synced.min(open.acknowledged),
            refused,
        };
        open.info.len = open.acknowledged;
        open.info.reading_cost = open.file.reading_cost();
        self.shared.open_bytes.store(0, Ordering::Relaxed);
        self.shared.retention.lock().add(open.number, open.info);
    }

    async fn open_segment(&mut self) -> Result<Open, LogError> {
        let number = (self.next_segment)();
        let path = format::segment_path(self.stream, number);
        let mut file = self.shared.storage.create(&path).await?;
        let header = SegmentHeader {
            version: format::VERSION,
            stream: self.stream,
            number,
            previous: self.previous.number,
            previous_len: self.previous.acknowledged,
            previous_synced: self.previous.synced,
        };
        let mut synced = 0;
        let mut begun = file.append(&[header.encode()]).await;
        if begun.is_ok() && self.previous.refused {
            // The header is what keeps the refused from coming back. Should this segment be refused as well, the next
            // one's header will name this one only, so this one must be durable by then.
            begun = file.sync().await;
            synced = file.len();
        }
        if let Err(error) = begun {
            // Nothing was acknowledged in it, so the stub means nothing; a leftover is an empty torn tail.
            let _ = self.shared.storage.delete(&path).await;
            return Err(error.into());
        }
        let info = SegmentInfo {
            path,
            ..SegmentInfo::default()
        };
        Ok(Open {
            number,
            file,
            info,
            latest: None,
            synced,
            acknowledged: 0,
            ahead_through: 0,
            ahead: None,
        })
    }
}

impl Open {
    fn header_for<'r>(&self, records: impl Iterator<Item = RecordRef<'r>>) -> GroupHeader {
        let (mut count, mut bytes) = (0, 0);
        for record in records {
            count += 1;
            bytes += record.frame_len();
        }
        GroupHeader {
            records_len: bytes as u32,
            records: count,
            offset: self.file.len(),
            unsynced: u32::try_from(self.file.len() - self.synced).unwrap_or(u32::MAX),
        }
    }

    /// Syncs what is not synced yet.
    async fn sync_tail(&mut self) -> Result<(), LogError> {
        self.settle_ahead().await?;
        if self.synced < self.file.len() {
            self.file.sync().await?;
            self.synced = self.file.len();
        }
        Ok(())
    }

    /// Waits for the sync that runs ahead.
    async fn settle_ahead(&mut self) -> Result<(), LogError> {
        match self.ahead.take() {
            Some(ahead) => Ok(ahead.await.unwrap_or(Ok(()))?),
            None => Ok(()),
        }
    }

    fn note(&mut self, tablet: TabletId, last: SeqNo) {
        match &mut self.latest {
            Some((same, newest)) if *same == tablet => *newest = last.max(*newest),
            _ => {
                self.settle();
                self.latest = Some((tablet, last));
            }
        }
    }

    fn settle(&mut self) {
        if let Some((tablet, newest)) = self.latest.take() {
            self.info.note(tablet, newest);
        }
    }
}

/// The planted bug of forgetting one sync in a hundred.
fn skips_sync(env: &Env) -> bool {
    env.planted(PlantedBug::SkipFsync) && env.random_below(100) == 0
}
