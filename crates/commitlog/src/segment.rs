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

use crate::error::LogError;
use crate::format::{self, GROUP_HEADER_BYTES, GroupHeader, Payload, RECORD_HEADER_BYTES, RecordRef, SegmentHeader};
use crate::metrics::LogMetrics;
use crate::retention::{Retention, SegmentInfo};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::{Env, PlantedBug};
use stele_storage::{AppendFile, Storage, StorageError};
use stele_types::{SeqNo, TabletId};
use tokio::sync::oneshot;

/// Groups up to this size are copied into one piece and appended without waiting, where the medium can. Copying 256 KiB
/// costs some 20 µs, less than the slices of a vectored write of small records.
pub(crate) const INLINE_BYTES_MAX: usize = 256 << 10;

/// A record up to this size that is a group by itself is appended without waiting and without a copy, where the medium can.
/// To apply it takes its writer longer than the append.
const INLINE_RECORD_BYTES_MAX: usize = 2 << 20;

/// Pieces of a segment that is synced ahead: with 32 MiB they are 4 MiB, some 20 ms of a disk's bandwidth, which is then about
/// what the one who asks for a sync finds to do.
const SYNCS_AHEAD: u64 = 8;

/// Segments for which a stream goes on syncing ahead after something was to be durable: half a gigabyte, a second or two of
/// the fastest writes.
const DEMAND_SEGMENTS: u32 = 16;

/// Relieved segments that are not synced, at most; from half as many on the oldest is synced. 256 MiB, a second or two of
/// a disk's bandwidth: what the first who asks for a sync waits for at worst, and about what memtables hold.
const UNSYNCED_MAX: usize = 8;

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
    /// A file for the next segment, on its way or ready.
    pub(crate) next: Next,
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
    ahead: Option<oneshot::Receiver<SyncOutcome>>,
    /// It relieved its predecessor: a reader keeps it only if that one is whole, or if it says that it was synced itself.
    relieves: bool,
    /// Its name survives power loss.
    named: bool,
    /// The next file was asked for.
    asked: bool,
}

/// What a segment's header says about the segment before it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Previous {
    number: u64,
    acknowledged: u64,
    synced: u64,
    /// It was given up: behind what was acknowledged there may be a group that was refused, and what was acknowledged may
    /// be gone.
    refused: bool,
}

/// A file for the next segment.
#[derive(Default)]
pub(crate) enum Next {
    /// Not asked for.
    #[default]
    None,
    /// Being made.
    Coming(oneshot::Receiver<Result<Empty, StorageError>>),
    /// Made.
    Ready(Empty),
}

/// A segment in which nothing is yet.
pub(crate) struct Empty {
    number: u64,
    path: String,
    file: Box<dyn AppendFile>,
    /// Its name survives power loss.
    named: bool,
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
        self.look_ahead();
        let Some(open) = &self.open else { return false };
        let awaited = !matches!(self.next, Next::None) && open.file.reading_cost() < OVERSIZE * self.segment_bytes;
        !self.relieve() && !awaited
    }

    /// Appends a group on the calling thread; `None` when that would have to wait, and then nothing has happened.
    /// `records` must not be empty.
    pub(crate) fn try_append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone,
    ) -> Option<Result<(), LogError>> {
        self.look_ahead();
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
        let mut apart: [&[u8]; 2] = [&[]; 2];
        for record in records {
            self.frame.extend_from_slice(&record.encode_header());
            if is_apart {
                apart = [record.payload, record.tail];
            } else {
                self.frame.extend_from_slice(record.payload);
                self.frame.extend_from_slice(record.tail);
            }
        }
        let outcome = match is_apart {
            true if apart[1].is_empty() => open.file.try_append(&[&self.frame, apart[0]])?,
            true => open.file.try_append(&[&self.frame, apart[0], apart[1]])?,
            false => open.file.try_append(&[&self.frame])?,
        };
        Some(outcome.map_err(LogError::from))
    }

    /// Appends a group, into a new segment where there is none open. `payloads` are the payloads of the records.
    pub(crate) async fn append<'r>(
        &mut self,
        records: impl Iterator<Item = RecordRef<'r>> + Clone + Send,
        payloads: impl Iterator<Item = &'r Payload> + Send,
    ) -> Result<(), LogError> {
        self.look_ahead();
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
            slices.extend(payload.pieces().into_iter().filter(|piece| !piece.is_empty()).cloned());
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

    /// Syncs the earlier segments that are not.
    ///
    /// A failure is kept in mind until a segment begins that rests on nothing: the file that failed is given up here, so the
    /// next call would find all in order.
    async fn sync_unsynced(&mut self) -> Result<(), LogError> {
        let outcome = self.try_sync_unsynced().await;
        if outcome.is_err() {
            self.previous.refused = true;
        }
        outcome
    }

    async fn try_sync_unsynced(&mut self) -> Result<(), LogError> {
        settled(&mut self.tail).await?;
        while let Some(mut file) = self.shared.next_unsynced() {
            file.sync().await?;
        }
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
        if self.since_demand < DEMAND_SEGMENTS {
            self.sync_ahead();
        }
        self.prepare();
    }

    /// Begins a sync beside the appends when enough has come together.
    fn sync_ahead(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let is_full = open.file.reading_cost() >= self.segment_bytes;
        // Not while an earlier segment is not durable, for which a synced beginning stands; nor when the segment is only
        // waiting for the last sync to be relieved.
        if open.ahead.is_some() || self.tail.is_some() || (is_full && !matches!(self.next, Next::None)) {
            return;
        }
        let begun = open.synced.max(open.ahead_through);
        let piece = (self.segment_bytes / SYNCS_AHEAD).max(1);
        if open.acknowledged - begun.min(open.acknowledged) < piece || !self.shared.unsynced.lock().is_empty() {
            return;
        }
        self.begin_ahead();
    }

    fn begin_ahead(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| open.ahead.is_none()) else {
            return;
        };
        open.ahead_through = open.acknowledged;
        let (done, outcome) = oneshot::channel();
        open.ahead = Some(outcome);
        let (storage, path) = (self.shared.storage.clone(), open.info.path.clone());
        self.env.spawn("commit-log-sync", async move {
            let _ = done.send(storage.sync_file(&path).await);
        });
    }

    /// Has the next file made, and both known to the medium by name, when half the segment is full and not of syncs anyway:
    /// a reader takes a segment that is not there for one that was flushed.
    fn prepare(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let due = open.acknowledged >= self.segment_bytes / 2 && open.acknowledged > open.synced;
        if !due || open.asked || !matches!(self.next, Next::None) {
            return;
        }
        open.asked = true;
        if !open.is_named() {
            self.begin_ahead();
        }
        let number = (self.next_segment)();
        let path = format::segment_path(self.stream, number);
        let (done, made) = oneshot::channel();
        self.next = Next::Coming(made);
        let storage = self.shared.storage.clone();
        self.env.spawn("commit-log-create", async move {
            let made = async {
                let mut file = storage.create(&path).await?;
                file.sync().await?;
                Ok(file)
            };
            let made = made.await;
            if made.is_err() {
                let _ = storage.delete(&path).await;
            }
            let named = true;
            let _ = done.send(made.map(|file| Empty {
                number,
                path,
                file,
                named,
            }));
        });
    }

    /// Learns of what went on beside the appends. Gives up the segment if a sync in the background has failed.
    fn look_ahead(&mut self) {
        if let Next::Coming(coming) = &mut self.next {
            match coming.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {}
                Ok(Ok(made)) => self.next = Next::Ready(made),
                // The segment will be closed instead, and whoever opens the next one sees why.
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => self.next = Next::None,
            }
        }
        let tail = seen(&mut self.tail);
        self.tail_ended(tail);
        let ahead = self.open.as_mut().and_then(|open| seen(&mut open.ahead));
        self.ahead_ended(ahead);
    }

    fn tail_ended(&mut self, outcome: Option<SyncOutcome>) {
        match outcome {
            Some(Ok(())) => self.sync_oldest(),
            Some(Err(error)) => self.refuse(&error.into()),
            None => {}
        }
    }

    fn ahead_ended(&mut self, outcome: Option<SyncOutcome>) {
        match (outcome, &mut self.open) {
            (Some(Ok(())), Some(open)) => open.synced = open.synced.max(open.ahead_through),
            (Some(Err(error)), _) => self.refuse(&error.into()),
            _ => {}
        }
    }

    /// Ends a segment that must be closed, while writers wait: by waiting for what keeps the next one from relieving it,
    /// which is one sync or the making of a file as a rule; where that does not help, by closing it, for which all that is not
    /// synced has to be.
    pub(crate) async fn end_full(&mut self) {
        if let Next::Coming(coming) = &mut self.next {
            self.next = match coming.await {
                Ok(Ok(made)) => Next::Ready(made),
                Ok(Err(_)) | Err(_) => Next::None,
            };
        }
        if let Some(open) = &mut self.open {
            let ahead = arrived(&mut open.ahead).await;
            self.ahead_ended(ahead);
        }
        while self.shared.unsynced.lock().len() >= UNSYNCED_MAX {
            self.sync_oldest();
            let tail = arrived(&mut self.tail).await;
            let is_synced = matches!(tail, Some(Ok(())));
            self.tail_ended(tail);
            if !is_synced {
                break;
            }
        }
        // Given up, it need not be ended.
        if self.open.is_some() && !self.relieve() {
            self.close().await;
        }
    }

    /// Has the next segment take over from a full one, if that can be done at once; whether it did.
    fn relieve(&mut self) -> bool {
        let ready = |open: &Open| open.is_named() && open.ahead.is_none();
        if !self.open.as_ref().is_some_and(ready) || self.shared.unsynced.lock().len() >= UNSYNCED_MAX {
            return false;
        }
        let Next::Ready(next) = &mut self.next else {
            return false;
        };
        let Some(full) = self.open.take() else { return false };
        let previous = Previous::of(&full, false);
        let header = previous.header_of_next(self.stream, next.number).encode();
        let Some(begun) = next.file.try_append(&[&header]) else {
            self.open = Some(full);
            return false;
        };
        let Next::Ready(next) = std::mem::take(&mut self.next) else {
            return false;
        };
        // Also when that failed nothing more goes into the full one: a header that was written states its length.
        self.previous = previous;
        let number = full.number;
        let file = self.retire(full);
        self.shared.unsynced.lock().insert(number, file);
        self.since_demand = self.since_demand.saturating_add(1);
        self.sync_oldest();
        match begun {
            Ok(()) => self.open = Some(Open::new(next, number, true)),
            Err(_) => {
                // Whoever opens the next one sees what is wrong.
                let (storage, path) = (self.shared.storage.clone(), next.path);
                self.env.spawn("commit-log-delete", async move {
                    let _ = storage.delete(&path).await;
                });
            }
        }
        true
    }

    /// Begins to sync the oldest unsynced segment, if there are many, or somebody is likely to want that soon.
    fn sync_oldest(&mut self) {
        let enough = if self.since_demand < DEMAND_SEGMENTS {
            1
        } else {
            UNSYNCED_MAX / 2
        };
        if self.tail.is_some() || self.shared.unsynced.lock().len() < enough {
            return;
        }
        let Some(mut file) = self.shared.next_unsynced() else {
            return;
        };
        let (done, outcome) = oneshot::channel();
        self.tail = Some(outcome);
        self.env.spawn("commit-log-sync", async move {
            let _ = done.send(file.sync().await);
        });
    }

    /// Gives up the segment after a failure: it is never written or synced again, and what was not acknowledged in it
    /// stays refused.
    pub(crate) fn refuse(&mut self, error: &LogError) {
        self.shared.metrics.failures.inc();
        tracing::error!(stream = self.stream, %error, "commit log segment given up");
        if let Some(open) = self.open.take() {
            self.previous = Previous::of(&open, true);
            self.retire(open);
        }
        // Also when none is open: what failed may be an earlier one, on which the next would rest.
        self.previous.refused = true;
    }

    /// Ends a healthy segment. Its tail is synced, so that the order in which segments became durable is the order in
    /// which they were written.
    pub(crate) async fn close(&mut self) {
        let whole = self.sync_unsynced().await;
        let Some(mut open) = self.open.take() else { return };
        let outcome = match whole {
            Ok(()) => open.sync_tail().await,
            failed => failed,
        };
        if let Err(error) = &outcome {
            tracing::warn!(path = open.info.path, %error, "the tail of a log segment could not be synced");
        }
        self.previous = Previous::of(&open, outcome.is_err());
        self.retire(open);
    }

    /// Deletes the file that was made for a next segment, for there will be none.
    pub(crate) async fn discard_next(&mut self) {
        if let Some(empty) = self.take_next().await {
            let _ = self.shared.storage.delete(&empty.path).await;
        }
    }

    async fn take_next(&mut self) -> Option<Empty> {
        match std::mem::take(&mut self.next) {
            Next::None => None,
            Next::Coming(coming) => coming.await.ok()?.ok(),
            Next::Ready(empty) => Some(empty),
        }
    }

    /// From now on the segment is one of the closed ones.
    fn retire(&mut self, mut open: Open) -> Box<dyn AppendFile> {
        open.settle();
        open.info.len = open.acknowledged;
        open.info.reading_cost = open.file.reading_cost();
        self.shared.open_bytes.store(0, Ordering::Relaxed);
        self.shared.retention.lock().add(open.number, open.info);
        open.file
    }

    async fn open_segment(&mut self) -> Result<Open, LogError> {
        // One that begins after a failure rests on nothing.
        let rests = self.sync_unsynced().await.is_ok() && !self.previous.refused;
        let mut next = match self.take_next().await {
            Some(next) => next,
            None => {
                let number = (self.next_segment)();
                let path = format::segment_path(self.stream, number);
                let file = self.shared.storage.create(&path).await?;
                let named = false;
                Empty {
                    number,
                    path,
                    file,
                    named,
                }
            }
        };
        let header = self.previous.header_of_next(self.stream, next.number);
        let mut begun = next.file.append(&[header.encode()]).await;
        let durable = begun.is_ok() && !rests;
        if durable {
            // The header is what keeps the refused from coming back. Should this segment be refused as well, the next
            // one's header will name this one only, so this one must be durable by then. It is also what a reader keeps
            // the segment for, should the one before have a hole.
            begun = next.file.sync().await;
        }
        if let Err(error) = begun {
            // Nothing was acknowledged in it, so the stub means nothing; a leftover is an empty torn tail.
            let _ = self.shared.storage.delete(&next.path).await;
            return Err(error.into());
        }
        let mut open = Open::new(next, self.previous.number, false);
        if durable {
            open.synced = open.file.len();
        }
        Ok(open)
    }
}

impl Shared {
    /// Takes out the oldest segment that is not synced.
    fn next_unsynced(&self) -> Option<Box<dyn AppendFile>> {
        self.unsynced.lock().pop_first().map(|(_, file)| file)
    }
}

impl Previous {
    fn of(open: &Open, refused: bool) -> Previous {
        Previous {
            number: open.number,
            acknowledged: open.acknowledged,
            synced: open.synced.min(open.acknowledged),
            refused,
        }
    }

    fn header_of_next(&self, stream: u32, number: u64) -> SegmentHeader {
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
    fn new(empty: Empty, follows: u64, relieves: bool) -> Open {
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
            asked: false,
        }
    }

    fn is_named(&self) -> bool {
        self.named || self.synced > 0
    }

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
        settled(&mut self.ahead).await
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

/// What came of a sync in the background.
type SyncOutcome = Result<(), StorageError>;

/// What came of a sync whose task is gone without a word, by a panic or because the runtime ends: nobody knows, so it has
/// failed.
fn vanished() -> StorageError {
    StorageError::Io {
        path: "log".to_owned(),
        operation: "sync",
        message: "the task that synced is gone, and its outcome with it".to_owned(),
    }
}

/// Waits for a sync that was begun, if one was.
async fn settled(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Result<(), LogError> {
    let Some(outcome) = begun else { return Ok(()) };
    let outcome = outcome.await.unwrap_or_else(|_| Err(vanished()));
    *begun = None;
    Ok(outcome?)
}

/// The outcome of a sync that was begun, if one was.
async fn arrived(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Option<SyncOutcome> {
    let outcome = begun.as_mut()?.await.unwrap_or_else(|_| Err(vanished()));
    *begun = None;
    Some(outcome)
}

/// The outcome of a sync that was begun, once it is known.
fn seen(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Option<SyncOutcome> {
    let outcome = match begun.as_mut()?.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => return None,
        Err(oneshot::error::TryRecvError::Closed) => Err(vanished()),
        Ok(outcome) => outcome,
    };
    *begun = None;
    Some(outcome)
}

/// The planted bug of forgetting one sync in a hundred.
fn skips_sync(env: &Env) -> bool {
    env.planted(PlantedBug::SkipFsync) && env.random_below(100) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Payload, Record};
    use crate::tests::{env, record, replayed};
    use stele_env::metrics::Metrics;
    use stele_storage::memory::MemoryStorage;

    /// Records whose second reading is the moment at which a sync in the background turns out to have failed.
    struct Untimely<I> {
        records: I,
        fail: Arc<Mutex<Option<oneshot::Sender<SyncOutcome>>>>,
    }

    impl<I: Clone> Clone for Untimely<I> {
        fn clone(&self) -> Self {
            if let Some(fail) = self.fail.lock().take() {
                let _ = fail.send(Err(sync_error()));
            }
            Untimely {
                records: self.records.clone(),
                fail: self.fail.clone(),
            }
        }
    }

    impl<I: Iterator> Iterator for Untimely<I> {
        type Item = I::Item;

        fn next(&mut self) -> Option<I::Item> {
            self.records.next()
        }
    }

    async fn append(segments: &mut Segments, record: RecordRef<'_>) {
        segments
            .append(std::iter::once(record), std::iter::empty())
            .await
            .unwrap();
        segments.acknowledge(std::iter::once(record));
    }

    fn segments_in(storage: &Arc<dyn Storage>) -> Segments {
        let shared = Arc::new(Shared {
            storage: storage.clone(),
            metrics: LogMetrics::new(&Metrics::new()),
            retention: Mutex::default(),
            unsynced: Mutex::default(),
            open_bytes: AtomicU64::new(0),
        });
        let numbers = AtomicU64::new(1);
        Segments {
            env: env(1),
            stream: 0,
            segment_bytes: 1 << 20,
            next_segment: Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed)),
            shared,
            open: None,
            previous: Previous::default(),
            tail: None,
            since_demand: 0,
            next: Next::None,
            frame: Vec::new(),
        }
    }

    fn sync_error() -> StorageError {
        StorageError::Io {
            path: String::new(),
            operation: "sync",
            message: "planted".to_owned(),
        }
    }

    /// A full segment was relieved, but the next one could not be begun; then the sync of the full one fails, as an order
    /// or a look tells while none is open. What comes then must not rest on it.
    #[tokio::test]
    async fn a_sync_that_fails_while_no_segment_is_open_is_not_forgotten() {
        for seen_by_settling in [true, false] {
            let storage: Arc<dyn Storage> = MemoryStorage::new();
            let mut segments = segments_in(&storage);
            let (done, tail) = oneshot::channel();
            done.send(Err(sync_error())).unwrap();
            segments.tail = Some(tail);
            if seen_by_settling {
                segments.settle().await.unwrap_err();
            } else {
                segments.look_ahead();
            }
            segments.settle().await.unwrap();
            append(&mut segments, record(1, 0).borrowed()).await;
            let open = segments.open.as_ref().expect("a segment was begun");
            assert!(open.synced > 0, "its beginning rests on what was lost");
        }
    }

    /// Nobody says that a sync is done whose task is gone: by an order to be durable, or by a look while appends go on.
    #[tokio::test]
    async fn a_sync_that_vanished_has_failed() {
        for (of_tail, seen_by_settling) in [(true, true), (true, false), (false, true), (false, false)] {
            let storage: Arc<dyn Storage> = MemoryStorage::new();
            let mut segments = segments_in(&storage);
            append(&mut segments, record(1, 0).borrowed()).await;
            let (vanishing, outcome) = oneshot::channel();
            drop(vanishing);
            match (&mut segments.open, of_tail) {
                (Some(open), false) => open.ahead = Some(outcome),
                _ => segments.tail = Some(outcome),
            }
            if seen_by_settling {
                let synced = async {
                    segments.settle().await?;
                    segments.sync().await
                };
                synced.await.unwrap_err();
            } else {
                segments.look_ahead();
                assert!(segments.open.is_none(), "the segment is given up");
            }
        }
    }

    /// The group is not refused because something else failed just then.
    #[tokio::test]
    async fn a_sync_that_fails_while_a_group_is_appended_costs_the_group_nothing() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        let all = [record(1, 0), record(1, 1), record(1, 2)];
        append(&mut segments, all[0].borrowed()).await;
        let (fail, ahead) = oneshot::channel();
        if let Some(open) = &mut segments.open {
            open.ahead = Some(ahead);
        }
        let untimely = Untimely {
            records: std::iter::once(all[1].borrowed()),
            fail: Arc::new(Mutex::new(Some(fail))),
        };
        segments.append(untimely, std::iter::empty()).await.unwrap();
        segments.acknowledge(std::iter::once(all[1].borrowed()));
        append(&mut segments, all[2].borrowed()).await;
        assert_eq!(segments.previous.number, 1, "the segment was given up");
        assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 2]);
    }

    #[tokio::test]
    async fn a_payload_in_two_pieces_is_one_on_the_medium() {
        let (head, tail) = (Bytes::from_static(b"head"), |len| Bytes::from(vec![7; len]));
        let in_pieces = |n: u64, tail: &Bytes| {
            let crc = Payload::checksum([&head, tail]);
            Record {
                payload: Payload::with_crc([&head, tail], crc),
                ..record(1, n)
            }
        };
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        let tails = [tail(0), tail(10), tail(INLINE_BYTES_MAX), tail(INLINE_RECORD_BYTES_MAX)];
        let mut expected = Vec::new();
        for (n, tail) in (1..).zip(&tails) {
            let pieces = in_pieces(n, tail);
            let (records, payloads) = (std::iter::once(pieces.borrowed()), std::iter::once(&pieces.payload));
            segments.append(records, payloads).await.unwrap();
            segments.acknowledge(std::iter::once(pieces.borrowed()));
            expected.push(Record {
                payload: Payload::new([&head[..], tail].concat().into()),
                ..record(1, n)
            });
        }
        let mut found = Vec::new();
        let keep = |record| {
            found.push(record);
            Ok::<(), LogError>(())
        };
        crate::replay(&*storage, keep).await.unwrap();
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn a_large_record_by_itself_is_appended_at_once() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let mut segments = segments_in(&storage);
        append(&mut segments, record(1, 0).borrowed()).await;
        let large = |n: u64, len| Record {
            payload: Payload::new(Bytes::from(vec![n as u8; len])),
            ..record(1, n)
        };
        let all = [large(1, INLINE_BYTES_MAX), large(2, INLINE_BYTES_MAX)];
        assert!(segments.try_append(all.iter().map(Record::borrowed)).is_none());
        let too_large = large(3, INLINE_RECORD_BYTES_MAX);
        assert!(segments.try_append(std::iter::once(too_large.borrowed())).is_none());
        for record in &all {
            let appended = segments.try_append(std::iter::once(record.borrowed()));
            appended.expect("nothing to wait for").unwrap();
            segments.acknowledge(std::iter::once(record.borrowed()));
        }
        let mut found = Vec::new();
        let keep = |record| {
            found.push(record);
            Ok::<(), LogError>(())
        };
        crate::replay(&*storage, keep).await.unwrap();
        assert_eq!(found[1..], all);
    }
}
