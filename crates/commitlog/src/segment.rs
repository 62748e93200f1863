//! The segments of one stream are appended to, synced, acknowledged and replaced here.
//!
//! Each stream has one [`Segments`], owned by the party that commits: a writer that found the stream idle, or the
//! stream's task. This module knows nothing of queues or completions.
//!
//! A group is *appended*, then perhaps synced, then *acknowledged*. An acknowledged group counts at recovery and in the
//! length that the next segment's header states of this one. After any failure the segment is given up: it is neither
//! written nor synced again.
//!
//! A segment begins in one of two ways:
//! * It *stands alone*: its header is synced before its first group is written. Recovery keeps it even if the
//!   segment before it lost its end. The first segment of a stream stands alone, and so does one that follows a failure or a close.
//! * It *took over*: the segment before it was full, and its header was written without waiting for the device. Then the
//!   full segment is *unsynced* ([`unsynced`]). Recovery keeps a segment that took over only if the one before is whole.
//!
//! Invariant: segments become durable in their order. Before the first synced group of a segment is written, all older
//! segments are synced, and so is the beginning of this one ([`Segments::settle`]). Hence a gap before a segment that took
//! over and holds synced bytes is damage; a gap before any other segment that took over is power loss.

mod next;
mod open;
mod turnover;
mod unsynced;

use crate::error::LogError;
use crate::format::{self, GROUP_HEADER_BYTES, Payload, RECORD_HEADER_BYTES, RecordRef};
use crate::mark::{LogClock, Mark, Marks};
use crate::metrics::LogMetrics;
use crate::retention::Retention;
use bytes::Bytes;
use next::Next;
use open::{Open, Previous};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::{Env, PlantedBug};
use stele_storage::{AppendFile, Storage};
#[cfg(test)]
pub(crate) use unsynced::UNSYNCED_MAX;

/// Groups up to this size are copied into one buffer and appended without waiting, where the storage can do that. Copying
/// 256 KiB costs some 20 µs, less than the slices of a vectored write of small records.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

/// A record up to this size that is a group by itself is appended without waiting and without a copy, where the storage can
/// do that. Applying it takes its writer longer than the append.
const INLINE_RECORD_BYTES_MAX: usize = 2 << 20;

/// A full segment may grow to this many times its size while the file of the next one is being made. With 32 MiB that gives
/// the device the time in which a fast writer fills 32 MiB, some 80 ms. After that writers wait.
const OVERSIZE: u64 = 2;

/// State that a stream's handle shares with the party that commits.
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) metrics: LogMetrics,
    /// Closed segments. The open one is added when it is closed.
    pub(crate) retention: Mutex<Retention>,
    /// Held while unneeded segments are deleted, oldest first. Of two concurrent deletions the second could succeed where the
    /// first failed, and delete the segment that states the end of one that stays.
    pub(crate) deleting: tokio::sync::Mutex<()>,
    /// Readers of segments: while there is one, no segment is deleted.
    pub(crate) readers: AtomicU64,
    /// Closed segments that are not synced, by number. A deletion drops the file here after it deleted the segment. The files
    /// stay open, because the system reports a failed write-back only to a file that was open at that time.
    pub(crate) unsynced: Mutex<BTreeMap<u64, Box<dyn AppendFile>>>,
    /// Bytes in the open segment.
    pub(crate) open_bytes: AtomicU64,
}

impl Shared {
    /// State of a stream whose closed segments are `retention`.
    pub(crate) fn new(storage: Arc<dyn Storage>, metrics: LogMetrics, mut retention: Retention) -> Shared {
        retention.set_may_be_taken(storage.owner_epoch().is_some());
        Shared {
            storage,
            metrics,
            retention: Mutex::new(retention),
            deleting: tokio::sync::Mutex::default(),
            readers: AtomicU64::new(0),
            unsynced: Mutex::default(),
            open_bytes: AtomicU64::new(0),
        }
    }
}

/// Gives segment numbers that grow and that no earlier process used.
pub type SegmentNumbers = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The open segment of a stream and the facts that its successor's header must state.
pub(crate) struct Segments {
    env: Env,
    stream: u32,
    segment_bytes: u64,
    next_segment: SegmentNumbers,
    pub(crate) shared: Arc<Shared>,
    open: Option<Open>,
    /// The segment before the open one.
    previous: Previous,
    /// The file of the next segment, on its way or ready.
    next: Next,
    /// Buffer in which groups are put together; at most [`INLINE_BYTES_MAX`].
    frame: Vec<u8>,
    /// When a failure was logged last.
    told_at: Option<Duration>,
    /// Of a server that archives its log.
    clock: Option<Arc<LogClock>>,
}

impl Segments {
    pub(crate) fn new(
        env: Env,
        stream: u32,
        segment_bytes: u64,
        next_segment: SegmentNumbers,
        shared: Arc<Shared>,
    ) -> Segments {
        Segments {
            env,
            stream,
            segment_bytes,
            next_segment,
            shared,
            open: None,
            previous: Previous::default(),
            next: Next::default(),
            frame: Vec::new(),
            told_at: None,
            clock: None,
        }
    }

    /// The same of a server that archives its log.
    pub(crate) fn with_clock(mut self, clock: Option<Arc<LogClock>>) -> Segments {
        self.clock = clock;
        self
    }

    /// The marks that begin a group which is written now.
    fn marks(&self) -> Marks {
        match &self.clock {
            Some(clock) => Marks::of(&[Mark::Time { micros: clock.now() }]),
            None => Marks::default(),
        }
    }

    /// Whether a segment is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open segment must be closed before the next group, while writers wait: it is full, and the next one can
    /// not take over now.
    pub(crate) fn must_close(&mut self) -> bool {
        let Some(open) = &self.open else { return false };
        let cost = open.file.reading_cost();
        if cost < self.segment_bytes || self.take_over() {
            return false;
        }
        !self.next.is_coming() || cost >= OVERSIZE * self.segment_bytes
    }

    /// Appends a group on the calling thread; `None` when that would have to wait, and then nothing has happened.
    /// `records` must not be empty.
    pub(crate) fn try_append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone,
    ) -> Option<Result<(), LogError>> {
        let marks = self.marks();
        let open = self.open.as_mut()?;
        let header = open.header_for(records.clone(), &marks);
        let len = GROUP_HEADER_BYTES + header.records_len as usize;
        let is_apart = len > INLINE_BYTES_MAX;
        if is_apart && (header.records > 1 || len > INLINE_RECORD_BYTES_MAX) {
            return None;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&header.encode(open.number));
        self.frame.extend_from_slice(&marks.bytes);
        let mut apart: (&[u8], &[Bytes]) = (&[], &[]);
        for record in records {
            self.frame.extend_from_slice(&record.encode_header());
            if is_apart {
                apart = (record.payload, record.rest);
            } else {
                self.frame.extend_from_slice(record.payload);
                record.rest.iter().for_each(|piece| self.frame.extend_from_slice(piece));
            }
        }
        assert!(
            is_apart || self.frame.len() == len,
            "a frame holds exactly the bytes that its header states"
        );
        let (first, rest) = apart;
        let outcome = if !is_apart {
            open.file.try_append(&[&self.frame])?
        } else if rest.is_empty() {
            open.file.try_append(&[&self.frame, first])?
        } else {
            let own = [&self.frame[..], first].into_iter();
            let pieces: Vec<&[u8]> = own.chain(rest.iter().map(|piece| &piece[..])).collect();
            open.file.try_append(&pieces)?
        };
        if outcome.is_ok() {
            open.check_appended(header.offset, len as u64);
            open.marks_appended(&marks);
        }
        Some(outcome.map_err(LogError::from))
    }

    /// Appends a group, into a new segment where there is none open. `payloads` are the payloads of the records.
    pub(crate) async fn append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone + Send,
        payloads: impl Iterator<Item = &'r Payload> + Send,
    ) -> Result<(), LogError> {
        if self.open.is_none() {
            self.open = Some(self.open_segment().await?);
        }
        if let Some(outcome) = self.try_append(records.clone()) {
            return outcome;
        }
        let marks = self.marks();
        let Some(open) = self.open.as_mut() else {
            return Err(LogError::Closed);
        };
        let header = open.header_for(records.clone(), &marks);
        let heads_len = GROUP_HEADER_BYTES + (header.records - marks.count) as usize * RECORD_HEADER_BYTES;
        let mut heads = Vec::with_capacity(heads_len);
        heads.extend_from_slice(&header.encode(open.number));
        records.for_each(|record| heads.extend_from_slice(&record.encode_header()));
        assert_eq!(heads.len(), heads_len, "every record of a group has one header");
        let heads = Bytes::from(heads);
        let mut slices = Vec::with_capacity(2 + 2 * header.records as usize);
        slices.push(heads.slice(..GROUP_HEADER_BYTES));
        slices.extend(Some(&marks.bytes).filter(|marks| !marks.is_empty()).cloned());
        let mut at = GROUP_HEADER_BYTES;
        for payload in payloads {
            slices.push(heads.slice(at..at + RECORD_HEADER_BYTES));
            slices.extend(payload.pieces().filter(|piece| !piece.is_empty()).cloned());
            at += RECORD_HEADER_BYTES;
        }
        assert_eq!(at, heads_len, "every record of a group has one payload");
        open.file.append(&slices).await?;
        open.check_appended(header.offset, GROUP_HEADER_BYTES as u64 + u64::from(header.records_len));
        open.marks_appended(&marks);
        Ok(())
    }

    /// Appends a group that consists of the time and a mark, syncs and acknowledges it.
    pub(crate) async fn write_mark(&mut self, mark: Mark) -> Result<(), LogError> {
        let outcome = self.try_mark(mark).await;
        match &outcome {
            Ok(()) => self.acknowledge(std::iter::empty()),
            Err(error) => self.refuse(error),
        }
        outcome
    }

    async fn try_mark(&mut self, mark: Mark) -> Result<(), LogError> {
        self.settle().await?;
        if self.open.is_none() {
            self.open = Some(self.open_segment().await?);
        }
        let marks = Marks::of(&[Mark::Time { micros: mark.micros() }, mark]);
        let Some(open) = self.open.as_mut() else {
            return Err(LogError::Closed);
        };
        let header = open.header_for(std::iter::empty(), &marks);
        let head = Bytes::copy_from_slice(&header.encode(open.number));
        open.file.append(&[head, marks.bytes.clone()]).await?;
        open.check_appended(header.offset, GROUP_HEADER_BYTES as u64 + u64::from(header.records_len));
        open.marks_appended(&marks);
        self.sync().await
    }

    /// Returns when everything appended survives power loss. [`Segments::settle`] comes first.
    pub(crate) async fn sync(&mut self) -> Result<(), LogError> {
        let Some(open) = self.open.as_mut() else {
            return Err(LogError::Closed);
        };
        assert!(
            self.shared.unsynced.lock().is_empty(),
            "older segments are synced before a group of this one is"
        );
        if skips_sync(&self.env) {
            return Ok(());
        }
        let start = self.env.now();
        open.file.sync().await?;
        open.synced = open.file.len();
        let took = self.env.now() - start;
        self.shared.metrics.sync_seconds.observe(took.as_secs_f64());
        Ok(())
    }

    /// Whether [`Segments::settle`] has nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.unsynced.lock().is_empty() && self.open.as_ref().is_none_or(|open| open.synced > 0)
    }

    /// Must be called before a group is appended that must be durable. It makes all older segments durable, then the
    /// beginning of the open one if nothing of it is: the group that follows states that, and proves to a reader that the
    /// older segments were durable.
    pub(crate) async fn settle(&mut self) -> Result<(), LogError> {
        self.sync_older().await?;
        match self.open.as_mut().filter(|open| open.synced == 0) {
            Some(open) => open.sync_tail().await,
            None => Ok(()),
        }
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
        let marks = open.take_marks();
        if count == 0 && marks == 0 {
            return;
        }
        bytes += marks;
        // The segment's header counts with its first group.
        if open.acknowledged == 0 {
            bytes += format::SEGMENT_HEADER_BYTES as u64;
        }
        open.acknowledged += bytes;
        assert_eq!(
            open.acknowledged,
            open.file.len(),
            "each group is acknowledged once, in the order of the appends"
        );
        self.shared.open_bytes.store(open.acknowledged, Ordering::Relaxed);
        if self.clock.is_some() {
            let mut retention = self.shared.retention.lock();
            retention.set_open(open.number, &open.info.path, open.acknowledged);
        }
        let metrics = &self.shared.metrics;
        metrics.retained_bytes.add(bytes as i64);
        metrics.bytes.inc_by(bytes);
        metrics.groups.inc();
        metrics.records.inc_by(count);
        self.prepare();
    }
}

/// The planted bug of forgetting one sync in a hundred.
fn skips_sync(env: &Env) -> bool {
    env.planted(PlantedBug::SkipFsync) && env.random_below(100) == 0
}

#[cfg(test)]
mod tests;
