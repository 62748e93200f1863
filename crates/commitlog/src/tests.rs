//! Tests of the log on storage that works, fills up, fails, loses power and rots. Randomness is seeded, so a failure repeats.
#![allow(clippy::disallowed_methods, reason = "the seeded runtime below runs on tokio")]

mod archived;
mod concurrent;
mod damage;
mod deletion;
mod faults;
mod gathered;
mod golden;
mod leader;
mod nth;
mod panics;
mod settling;
mod stream;
mod takeover;
mod unsynced;

use crate::{Append, Completion, LogError, LogMetrics, LogOptions, LogStream, Payload, Record, SegmentInfo, Submitted};
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::metrics::Metrics;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_storage::Storage;
use stele_types::{Durability, Epoch, SeqNo, TabletId};
use tokio::sync::oneshot;

/// A stream over a storage, as one process has it.
pub(super) struct Log {
    pub(super) stream: LogStream<Done>,
    /// The outcomes that the completions were told, in their order.
    pub(super) completed: Arc<Mutex<Vec<(u64, bool)>>>,
}

/// The action of a test when a record's outcome is known.
pub(super) struct Done(Box<dyn FnOnce(Result<(), LogError>) + Send + Sync>);

impl Completion for Done {
    fn complete(self, outcome: Result<(), LogError>) {
        (self.0)(outcome);
    }
}

/// Numbers of segments, over all processes of a test.
pub(super) type Numbers = Arc<AtomicU64>;

/// The test's tokio, with random numbers from a seed.
struct Seeded(AtomicU64);

pub(super) fn env(seed: u64) -> Env {
    Env::new(Arc::new(Seeded(AtomicU64::new(seed << 32))))
}

impl Runtime for Seeded {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_micros(&self) -> i64 {
        0
    }

    /// SplitMix64.
    fn random_u64(&self) -> u64 {
        let mut z = self
            .0
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, _: Priority, _: &'static str, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

/// Payload bytes of a record that is not gathered. Tests take a slot of this size to lead with a small record.
const LARGE_BYTES: usize = 17 << 10;

/// Small segments; groups of any size.
pub(super) fn options(segment_bytes: u64) -> LogOptions {
    LogOptions {
        clock: None,
        segment_bytes,
        queue_bytes: 1 << 20,
        group_bytes: 1 << 16,
    }
}

impl Log {
    pub(super) fn start(
        storage: &Arc<dyn Storage>,
        numbers: &Numbers,
        segment_bytes: u64,
        replayed: Vec<(u64, SegmentInfo)>,
    ) -> Log {
        let metrics = LogMetrics::new(&Metrics::new());
        let numbers = numbers.clone();
        let next = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed) + 1);
        let stream = LogStream::start(
            storage.clone(),
            env(0),
            0,
            options(segment_bytes),
            next,
            replayed,
            metrics,
        );
        Log {
            stream,
            completed: Arc::default(),
        }
    }

    /// Queues record `n` of tablet 1 and returns the channel of its outcome.
    pub(super) async fn submit(&self, n: u64, durability: Durability) -> oneshot::Receiver<Result<(), LogError>> {
        self.submit_for(1, n, durability).await
    }

    pub(super) async fn submit_for(
        &self,
        tablet: u64,
        n: u64,
        durability: Durability,
    ) -> oneshot::Receiver<Result<(), LogError>> {
        let (answer, answered) = oneshot::channel();
        let completed = self.completed.clone();
        let record = record(tablet, n);
        let slot = self.stream.slot(record.payload.bytes().len()).await.unwrap();
        let done = Done(Box::new(move |outcome| {
            completed.lock().push((n, outcome.is_ok()));
            let _ = answer.send(outcome);
        }));
        let append = Append {
            record,
            durability,
            done,
        };
        match slot.submit(append, durability, |append| (append, ())) {
            Submitted::Lead(mut lead, append) => match lead.try_commit(append.record.borrowed(), durability) {
                Some(outcome) => append.done.complete(outcome),
                None => lead.hand_over(append),
            },
            Submitted::Gathered(gathered, ()) => drop(gathered),
            Submitted::Queued(()) | Submitted::Closed => {}
        }
        answered
    }

    /// Writes record `n` and waits for its outcome.
    pub(super) async fn write(&self, n: u64, durability: Durability) -> Result<(), LogError> {
        self.submit(n, durability)
            .await
            .await
            .expect("every record is answered")
    }
}

/// Record `n` of a tablet: two mutations, and content that tells it from every other.
pub(super) fn record(tablet: u64, n: u64) -> Record {
    let first = SeqNo::new(Epoch(1), 2 * n);
    let content = format!("record {n} of tablet {tablet};").repeat(1 + n as usize % 3);
    Record {
        tablet: TabletId(tablet),
        first,
        last: first.plus(1),
        payload: Payload::new(Bytes::from(content)),
    }
}

/// The number of a record, which must be as it was made.
pub(super) fn number_of(found: &Record) -> u64 {
    let n = found.first.counter() / 2;
    assert_eq!(*found, record(found.tablet.0, n));
    n
}

/// Numbers of the records a recovery would find.
pub(super) async fn replayed(storage: &Arc<dyn Storage>) -> Result<Vec<u64>, LogError> {
    let mut found = Vec::new();
    crate::replay(&**storage, |record| {
        found.push(number_of(&record));
        Ok::<(), LogError>(())
    })
    .await?;
    Ok(found)
}

/// The paths of the segments, oldest first.
pub(super) async fn segments(storage: &Arc<dyn Storage>) -> Vec<String> {
    storage
        .list("log/")
        .await
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect()
}
