//! The segments of one stream: who has them appends, syncs, rotates.
//!
//! There is one [`Segments`] for each stream, and whoever commits owns it: a writer that found the stream idle, or the
//! stream's task. Nothing here knows of queues or completions.
//!
//! A group is *appended*, then perhaps synced, then *acknowledged*: from then on it counts for recovery, and for the
//! length that the next segment's header states of this one. After any failure the segment is given up.
//!
//! A full segment is *relieved* by the next one without anybody waiting: the next one's file is made beforehand. The full
//! one is then *unsynced*, and stays so until something must be durable, or too much has come together: where nobody
//! asks for a sync, most of the log is flushed and deleted before it has cost the device anything. Where somebody did lately,
//! the stream syncs *ahead*, a piece at a time while appends go on, so that the next one who asks finds little to do.
//!
//! Power loss may thus take the end of a segment and leave what came after it. So a reader drops a segment that follows a
//! hole, unless it says itself that its beginning was synced. Nothing that must be durable is written into a segment before
//! all before it is whole, and its own beginning durable ([`Segments::settle`]); hence a hole before such a segment is
//! damage, and a hole before any other costs nothing that was promised to survive.
//!
//! The medium may lose what a failed sync was to write, so after one in the background the open segment is given up as well,
//! and the next one begins with a durable header: it rests on nothing.

mod ahead;
mod next;
mod open;
mod turnover;

use crate::error::LogError;
use crate::format::{self, GROUP_HEADER_BYTES, Payload, RECORD_HEADER_BYTES, RecordRef};
use crate::metrics::LogMetrics;
use crate::retention::Retention;
use ahead::{DEMAND_SEGMENTS, SyncOutcome};
use bytes::Bytes;
pub(crate) use next::Next;
use open::Open;
pub(crate) use open::Previous;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::{Env, PlantedBug};
use stele_storage::{AppendFile, Storage};
use tokio::sync::oneshot;

/// Groups up to this size are copied into one piece and appended without waiting, where the medium can. Copying 256 KiB
/// costs some 20 µs, less than the slices of a vectored write of small records.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

/// A record up to this size that is a group by itself is appended without waiting and without a copy, where the medium can.
/// To apply it takes its writer longer than the append.
const INLINE_RECORD_BYTES_MAX: usize = 2 << 20;

/// A segment that has its size may grow to so many times that until what relieves it is ready. With 32 MiB that gives the
/// making of a file, or a sync, the time in which a fast writer fills as much again, some 80 ms; a medium that is slower
/// than that has writers wait for it.
const OVERSIZE: u64 = 2;

/// State that a stream's handle and whoever commits share.
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) metrics: LogMetrics,
    /// Closed segments. The open one is added when it is closed.
    pub(crate) retention: Mutex<Retention>,
    /// Held while unneeded segments are deleted, oldest first. Two at once could each have taken some, and what the second took
    /// would go although the first failed at one before it.
    pub(crate) deleting: tokio::sync::Mutex<()>,
    /// Those who read segments now: none is deleted.
    pub(crate) readers: AtomicU64,
    /// Those of them that were relieved and are not synced, by number. Whoever deletes one drops its file here afterwards.
    /// The files are kept open, or the system might forget that it failed to write something back.
    pub(crate) unsynced: Mutex<BTreeMap<u64, Box<dyn AppendFile>>>,
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
    /// The outcome of syncing the oldest unsynced one in the background, while it is not known.
    pub(crate) tail: Option<oneshot::Receiver<SyncOutcome>>,
    /// Segments begun since something was to be durable.
    pub(crate) since_demand: u32,
    /// Files for the next segments, on their way or ready.
    pub(crate) next: Next,
    /// Where groups are put together; at most [`INLINE_BYTES_MAX`].
    pub(crate) frame: Vec<u8>,
    /// When a failure was logged last.
    pub(crate) told_at: Option<Duration>,
}

impl Segments {
    /// Whether the open segment has its size.
    pub(crate) fn is_full(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.file.reading_cost() >= self.segment_bytes)
    }

    /// Whether the open segment must be closed, and writers wait for that: it has its size, and nothing relieves it.
    pub(crate) fn must_close(&mut self) -> bool {
        if !self.is_full() {
            return false;
        }
        self.probe_ahead();
        let Some(open) = &self.open else { return false };
        let awaited = self.next.is_asked_for() && open.file.reading_cost() < OVERSIZE * self.segment_bytes;
        !self.relieve() && !awaited
    }

    /// Appends a group on the calling thread; `None` when that would have to wait, and then nothing has happened.
    /// `records` must not be empty.
    pub(crate) fn try_append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone,
    ) -> Option<Result<(), LogError>> {
        self.probe_ahead();
        self.append_inline(records)
    }

    fn append_inline<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone,
    ) -> Option<Result<(), LogError>> {
        let open = self.open.as_mut()?;
        let header = open.header_for(records.clone());
        let len = GROUP_HEADER_BYTES + header.records_len as usize;
        let is_apart = len > INLINE_BYTES_MAX;
        if is_apart && (header.records > 1 || len > INLINE_RECORD_BYTES_MAX) {
            return None;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&header.encode(open.number));
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
        Some(outcome.map_err(LogError::from))
    }

    /// Appends a group, into a new segment where there is none open. `payloads` are the payloads of the records.
    pub(crate) async fn append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone + Send,
        payloads: impl Iterator<Item = &'r Payload> + Send,
    ) -> Result<(), LogError> {
        self.probe_ahead();
        if self.open.is_none() {
            self.open = Some(self.open_segment().await?);
        }
        // Without another look: it might give up the segment just when this group is to go into it.
        if let Some(outcome) = self.append_inline(records.clone()) {
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
            slices.extend(payload.pieces().filter(|piece| !piece.is_empty()).cloned());
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

    /// To be called before anything is appended that must be durable: makes all earlier segments whole, and then the
    /// beginning of the open one durable, if it relieved another. That is what a reader takes for the sign of it.
    pub(crate) async fn settle(&mut self) -> Result<(), LogError> {
        self.since_demand = 0;
        self.sync_unsynced().await?;
        match self.open.as_mut().filter(|open| open.relieves && open.synced == 0) {
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
        if self.since_demand < DEMAND_SEGMENTS {
            self.sync_ahead();
        }
        self.prepare();
    }
}

/// The planted bug of forgetting one sync in a hundred.
fn skips_sync(env: &Env) -> bool {
    env.planted(PlantedBug::SkipFsync) && env.random_below(100) == 0
}

#[cfg(test)]
mod tests;
