//! One stream: a bounded queue, and a task that turns what is queued into groups.
//!
//! Cost of a write: one queue slot, its share of one vectored append, its share of one sync. Encoding and checksumming
//! happen on the submitting task; the stream's task only gathers slices. While a sync runs the next group gathers.
//!
//! A writer first takes a [`Slot`], then fixes its sequence number, then submits into the slot: submission never waits,
//! so a tablet can hold its sequencer lock across it, and records of one tablet queue in sequence order.

use crate::error::LogError;
use crate::format::{self, GroupHeader, PAYLOAD_BYTES_MAX, Record, SegmentHeader};
use crate::retention::{Retention, SegmentInfo};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::metrics::{Histogram, IntCounter, IntGauge, Metrics};
use stele_env::{Env, PlantedBug};
use stele_storage::{AppendFile, Storage, StorageError};
use stele_types::{Durability, SeqNo, TabletId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Called on the stream's task, in log order, when the record is as durable as asked or has been refused. Must be quick
/// and must not block: it applies the record to its memtable and wakes the writer.
pub type Completion = Box<dyn FnOnce(Result<(), LogError>) + Send + Sync>;

/// A record on its way into the log.
pub struct Append {
    /// What to write.
    pub record: Record,
    /// How durable it must be when `done` is called.
    pub durability: Durability,
    /// Told the outcome.
    pub done: Completion,
}

/// Settings of a stream.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A segment is closed when it grows past this. 32 MiB: large enough that its creation (two syncs) is noise, small
    /// enough that space comes back soon after a flush.
    pub segment_bytes: u64,
    /// Payload bytes that may wait; more makes writers wait.
    pub queue_bytes: usize,
    /// Payload bytes of one group. Bounds how long a small write waits behind large ones.
    pub group_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 32 << 20,
            queue_bytes: 64 << 20,
            group_bytes: 4 << 20,
        }
    }
}

/// Records that may wait.
const QUEUE_RECORDS: usize = 4096;
/// Records of one group; bounds the slices of one vectored append.
const GROUP_RECORDS_MAX: usize = 1024;

/// Instruments of the commit log, shared by all streams of a server.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    bytes: IntCounter,
    records: IntCounter,
    groups: IntCounter,
    failures: IntCounter,
    sync_seconds: Histogram,
    retained_bytes: IntGauge,
}

impl LogMetrics {
    /// Registers the instruments.
    pub fn new(metrics: &Metrics) -> Self {
        LogMetrics {
            bytes: metrics.counter(
                "stele_commitlog_written_bytes_total",
                "Bytes appended to the commit log.",
            ),
            records: metrics.counter("stele_commitlog_records_total", "Records appended to the commit log."),
            groups: metrics.counter("stele_commitlog_groups_total", "Group commits."),
            failures: metrics.counter("stele_commitlog_failures_total", "Group commits refused by the medium."),
            sync_seconds: metrics.latency("stele_commitlog_sync_seconds", "Duration of a commit log sync."),
            retained_bytes: metrics.gauge(
                "stele_commitlog_retained_bytes",
                "Bytes of commit log kept for recovery.",
            ),
        }
    }
}

/// A handle to a running stream; cheap to share.
pub struct LogStream {
    queue: mpsc::Sender<Command>,
    bytes: Arc<Semaphore>,
    queue_bytes: usize,
    shared: Arc<Shared>,
}

/// State that the stream's task and its handle share.
struct Shared {
    storage: Arc<dyn Storage>,
    metrics: LogMetrics,
    retention: Mutex<Retention>,
    /// Bytes in the open segment.
    open_bytes: AtomicU64,
}

enum Command {
    Append(Append, OwnedSemaphorePermit),
    /// Closes the open segment so that it can be deleted once flushed.
    Rotate(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// The right to submit one record.
pub struct Slot<'a> {
    queue: mpsc::Permit<'a, Command>,
    bytes: OwnedSemaphorePermit,
}

impl Slot<'_> {
    /// Queues the record; its completion will be called.
    pub fn submit(self, append: Append) {
        self.queue.send(Command::Append(append, self.bytes));
    }
}

impl LogStream {
    /// Starts stream number `stream`. `next_segment` gives numbers that grow and that no earlier process used;
    /// `replayed` are the segments that recovery found, to be deleted when flushed.
    pub fn start(
        storage: Arc<dyn Storage>,
        env: Env,
        stream: u32,
        options: LogOptions,
        next_segment: Arc<dyn Fn() -> u64 + Send + Sync>,
        replayed: Vec<(u64, SegmentInfo)>,
        metrics: LogMetrics,
    ) -> Self {
        let mut retention = Retention::default();
        for (number, info) in replayed {
            metrics.retained_bytes.add(info.len as i64);
            retention.add(number, info);
        }
        let shared = Arc::new(Shared {
            storage,
            metrics,
            retention: Mutex::new(retention),
            open_bytes: AtomicU64::new(0),
        });
        let (queue, commands) = mpsc::channel(QUEUE_RECORDS);
        let bytes = Arc::new(Semaphore::new(options.queue_bytes));
        let queue_bytes = options.queue_bytes;
        let task = Task {
            env: env.clone(),
            stream,
            options,
            next_segment,
            shared: shared.clone(),
            segment: None,
            previous: Previous::default(),
        };
        env.spawn("commit-log", task.run(commands));
        LogStream {
            queue,
            bytes,
            queue_bytes,
            shared,
        }
    }

    /// Waits for room for a payload of this size. Refuses a record that the format cannot hold.
    pub async fn slot(&self, payload_bytes: usize) -> Result<Slot<'_>, LogError> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(LogError::TooLarge {
                bytes: payload_bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        let weight = payload_bytes.clamp(1, self.queue_bytes) as u32;
        let bytes = self
            .bytes
            .clone()
            .acquire_many_owned(weight)
            .await
            .map_err(|_| LogError::Closed)?;
        let queue = self.queue.reserve().await.map_err(|_| LogError::Closed)?;
        Ok(Slot { queue, bytes })
    }

    /// Bytes on the medium, open segment included.
    pub fn retained_bytes(&self) -> u64 {
        self.shared.retention.lock().bytes() + self.shared.open_bytes.load(Ordering::Relaxed)
    }

    /// Deletes the segments that nobody needs. `is_flushed(tablet, seq)` says whether the tablet's files hold everything
    /// up to `seq`, or the tablet is no more.
    pub async fn delete_unneeded(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Result<usize, LogError> {
        let mut unneeded = self.shared.retention.lock().take_unneeded(is_flushed).into_iter();
        let mut count = 0;
        while let Some((number, info)) = unneeded.next() {
            if let Err(error) = self.shared.storage.delete(&info.path).await {
                // Those behind it stay as well: the header of each says what counts of the one before.
                let mut retention = self.shared.retention.lock();
                retention.add(number, info);
                unneeded.for_each(|(number, info)| retention.add(number, info));
                return Err(error.into());
            }
            self.shared.metrics.retained_bytes.sub(info.len as i64);
            count += 1;
        }
        Ok(count)
    }

    /// The tablets that keep the oldest closed segment.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        self.shared.retention.lock().oldest_holders(is_flushed)
    }

    /// Closes the open segment, so that flushes can free it.
    pub async fn rotate(&self) {
        let (done, rotated) = oneshot::channel();
        if self.queue.send(Command::Rotate(done)).await.is_ok() {
            let _ = rotated.await;
        }
    }

    /// Completes what is queued, then refuses everything.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.queue.send(Command::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// The segment being written.
struct Open {
    number: u64,
    file: Box<dyn AppendFile>,
    info: SegmentInfo,
    /// Everything before this offset is synced.
    synced: u64,
    /// Everything before this offset was acknowledged to somebody.
    acknowledged: u64,
}

/// What a segment's header says about the segment before it.
#[derive(Clone, Copy, Default)]
struct Previous {
    number: u64,
    acknowledged: u64,
    synced: u64,
    /// Behind what was acknowledged there may be a group that was refused.
    refused: bool,
}

struct Task {
    env: Env,
    stream: u32,
    options: LogOptions,
    next_segment: Arc<dyn Fn() -> u64 + Send + Sync>,
    shared: Arc<Shared>,
    segment: Option<Open>,
    /// The segment before the open one.
    previous: Previous,
}

/// What one group commit takes off the queue.
#[derive(Default)]
struct Group {
    appends: Vec<Append>,
    permits: Vec<OwnedSemaphorePermit>,
    bytes: usize,
    /// A command that ends the group and runs after it.
    then: Option<Command>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(first) = commands.recv().await {
            let group = gather(first, &mut commands, self.options.group_bytes);
            if !group.appends.is_empty() {
                self.commit(group.appends).await;
            }
            drop(group.permits);
            match group.then {
                None | Some(Command::Append(..)) => {}
                Some(Command::Rotate(done)) => {
                    self.close_segment().await;
                    let _ = done.send(());
                }
                Some(Command::Close(done)) => {
                    commands.close();
                    self.close_segment().await;
                    let _ = done.send(());
                }
            }
        }
        self.close_segment().await;
    }

    /// Writes a group and tells every writer.
    async fn commit(&mut self, appends: Vec<Append>) {
        let outcome = self.write(&appends).await;
        if let Err(error) = &outcome {
            self.shared.metrics.failures.inc();
            tracing::error!(stream = self.stream, %error, "commit log group refused");
            self.abandon_segment();
        }
        for append in appends {
            // What needs no log is not harmed by its failure.
            let outcome = if append.durability == Durability::None {
                Ok(())
            } else {
                outcome.clone()
            };
            (append.done)(outcome);
        }
        if self
            .segment
            .as_ref()
            .is_some_and(|s| s.file.len() >= self.options.segment_bytes)
        {
            self.close_segment().await;
        }
    }

    async fn write(&mut self, appends: &[Append]) -> Result<(), LogError> {
        let logged = || appends.iter().filter(|a| a.durability != Durability::None);
        let Some(durability) = logged().map(|a| a.durability).max() else {
            return Ok(());
        };
        if self.segment.is_none() {
            self.segment = Some(self.open_segment().await?);
        }
        let Some(open) = self.segment.as_mut() else {
            return Err(LogError::Closed);
        };

        let records_len: usize = logged().map(|a| a.record.frame_len()).sum();
        let header = GroupHeader {
            records_len: records_len as u32,
            records: logged().count() as u32,
            offset: open.file.len(),
            unsynced: u32::try_from(open.file.len() - open.synced).unwrap_or(u32::MAX),
        };
        let mut slices = vec![header.encode(open.number)];
        for append in logged() {
            slices.push(append.record.encode_header());
            slices.push(append.record.payload.bytes().clone());
        }
        open.file.append(&slices).await?;
        if durability == Durability::Sync && !skips_sync(&self.env) {
            let start = self.env.now();
            open.file.sync().await?;
            open.synced = open.file.len();
            self.shared
                .metrics
                .sync_seconds
                .observe((self.env.now() - start).as_secs_f64());
        }
        for append in logged() {
            open.info.note(append.record.tablet, append.record.last);
        }
        let metrics = &self.shared.metrics;
        let written = open.file.len() - open.acknowledged;
        open.acknowledged = open.file.len();
        self.shared.open_bytes.store(open.acknowledged, Ordering::Relaxed);
        metrics.retained_bytes.add(written as i64);
        metrics.bytes.inc_by(written);
        metrics.groups.inc();
        metrics.records.inc_by(u64::from(header.records));
        Ok(())
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
            synced,
            acknowledged: 0,
        })
    }

    /// Ends a healthy segment. Its tail is synced, so that the order in which segments became durable is the order in
    /// which they were written.
    async fn close_segment(&mut self) {
        let Some(mut open) = self.segment.take() else { return };
        if open.synced < open.file.len() {
            match open.file.sync().await {
                Ok(()) => open.synced = open.file.len(),
                Err(error) => {
                    tracing::warn!(path = open.info.path, %error, "the tail of a log segment could not be synced");
                }
            }
        }
        self.retire(open, false);
    }

    /// Ends a segment after a failure: it is never written or synced again, and what was refused in it stays refused.
    fn abandon_segment(&mut self) {
        if let Some(open) = self.segment.take() {
            self.retire(open, true);
        }
    }

    fn retire(&mut self, mut open: Open, refused: bool) {
        let Open {
            number,
            acknowledged,
            synced,
            ..
        } = open;
        self.previous = Previous {
            number,
            acknowledged,
            synced: synced.min(acknowledged),
            refused,
        };
        open.info.len = open.acknowledged;
        self.shared.open_bytes.store(0, Ordering::Relaxed);
        self.shared.retention.lock().add(open.number, open.info);
    }
}

/// Takes what is queued now, up to the group limits.
fn gather(first: Command, commands: &mut mpsc::Receiver<Command>, group_bytes: usize) -> Group {
    let mut group = Group::default();
    let mut next = Some(first);
    while let Some(command) = next {
        match command {
            Command::Append(append, permit) => {
                group.bytes += append.record.payload.bytes().len();
                group.appends.push(append);
                group.permits.push(permit);
            }
            other => {
                group.then = Some(other);
                return group;
            }
        }
        let full = group.bytes >= group_bytes || group.appends.len() >= GROUP_RECORDS_MAX;
        next = if full { None } else { commands.try_recv().ok() };
    }
    group
}

/// The planted bug of forgetting one sync in a hundred.
fn skips_sync(env: &Env) -> bool {
    env.planted(PlantedBug::SkipFsync) && env.random_below(100) == 0
}

/// Whether an error means that the medium is full.
pub fn is_no_space(error: &LogError) -> bool {
    matches!(error, LogError::Storage(StorageError::NoSpace { .. }))
}
