//! Wait times of writes, by cause.
//!
//! Every place at which a write can be held up is a [`Cause`] with a histogram of its own, as in the stall statistics of
//! RocksDB. A small write that nothing holds up does not read the clock: a wait is timed from the moment at which a future was
//! not ready. Work on the writer's own thread is timed for batches of [`TIMED_BYTES_MIN`] and more. Waits below
//! [`NOTED_MIN`] are not recorded: they are the time that work takes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use stele_env::metrics::{Histogram, Metrics};
use stele_env::{Env, trace};

/// Shorter waits are not noted.
const NOTED_MIN: Duration = Duration::from_millis(1);
/// From this size on a batch has its append and its insertion timed: they take some 20 µs, and reading the clock
/// three times less than a tenth of one.
const TIMED_BYTES_MIN: usize = 16 << 10;

/// The cause of a wait, in the order in which a write meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Batches in flight take all the memory there is for them.
    Reservation,
    /// Slowed, because memtables fill faster than they are flushed.
    Memory,
    /// Slowed, because merges are behind.
    Compaction,
    /// Stopped, because memtables have outgrown their share.
    Stopped,
    /// A large write waits until it fits into memory.
    Large,
    /// The tablet is being split, or rows of it are dropped.
    Gate,
    /// Others write or read for a write the same rows.
    Latch,
    /// As much is queued for the log as may be.
    LogQueue,
    /// Others, or the log's task, append, sync and apply: all that happens to a record that was queued.
    Log,
    /// The writer's own append.
    Append,
    /// The writer's own insertion into memtables.
    Apply,
    /// The writer commits records that were queued behind its own.
    Followers,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 12] = [
        Cause::Reservation,
        Cause::Memory,
        Cause::Compaction,
        Cause::Stopped,
        Cause::Large,
        Cause::Gate,
        Cause::Latch,
        Cause::LogQueue,
        Cause::Log,
        Cause::Append,
        Cause::Apply,
        Cause::Followers,
    ];

    /// As metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Reservation => "reservation",
            Cause::Memory => "memory",
            Cause::Compaction => "compaction",
            Cause::Stopped => "stopped",
            Cause::Large => "large",
            Cause::Gate => "gate",
            Cause::Latch => "latch",
            Cause::LogQueue => "log-queue",
            Cause::Log => "log",
            Cause::Append => "append",
            Cause::Apply => "apply",
            Cause::Followers => "followers",
        }
    }

    /// The stage of a traced request that such a wait is. The last causes are parts of the stage `commit`.
    fn stage(self) -> Option<&'static str> {
        match self {
            Cause::Reservation => Some("wait: batch memory"),
            Cause::Memory => Some("wait: flushes"),
            Cause::Compaction => Some("wait: compactions"),
            Cause::Stopped => Some("wait: memtable memory"),
            Cause::Large => Some("wait: large write"),
            Cause::Gate => Some("wait: gate"),
            Cause::Latch => Some("wait: latch"),
            Cause::LogQueue => Some("wait: log queue"),
            Cause::Log | Cause::Append | Cause::Apply | Cause::Followers => None,
        }
    }
}

/// How long writers of a server have waited. Clones are one and the same.
#[derive(Clone, Debug)]
pub struct WriteWaits {
    by_cause: Arc<[WouldBlock; Cause::ALL.len()]>,
}

#[derive(Debug)]
struct WouldBlock {
    seconds: Histogram,
    /// Nanoseconds of the longest since somebody asked.
    longest: AtomicU64,
}

impl WriteWaits {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        let seconds = m.latencies(
            "stele_write_wait_seconds",
            "How long writes were held up, by what: waits of a millisecond and more.",
            &["cause"],
        );
        let waits = |cause: Cause| WouldBlock {
            seconds: seconds.with_label_values(&[cause.name()]),
            longest: AtomicU64::new(0),
        };
        WriteWaits {
            by_cause: Arc::new(Cause::ALL.map(waits)),
        }
    }

    /// A write has waited.
    pub fn note(&self, cause: Cause, took: Duration) {
        if let Some(stage) = cause.stage() {
            trace::ended(stage, took);
        }
        if took < NOTED_MIN {
            return;
        }
        debug_assert_eq!(Cause::ALL[cause as usize], cause, "`ALL` has the order of the variants");
        let waits = &self.by_cause[cause as usize];
        waits.seconds.observe(took.as_secs_f64());
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        waits.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Waits for `future`, and notes how long if it was not ready immediately.
    pub(crate) async fn until<F: Future>(&self, env: &Env, cause: Cause, future: F) -> F::Output {
        let mut future = pin!(future);
        if let Poll::Ready(output) = futures::poll!(future.as_mut()) {
            return output;
        }
        let start = env.now();
        let output = future.await;
        self.note(cause, env.now().saturating_sub(start));
        output
    }

    /// Times the work of a writer on its own thread, for a batch of this many bytes.
    pub(crate) fn watch(&self, env: &Env, bytes: usize) -> Option<Watch> {
        (bytes >= TIMED_BYTES_MIN).then(|| Watch {
            waits: self.clone(),
            env: env.clone(),
            since: env.now(),
        })
    }

    /// The longest wait of each cause since the last call, the longest first; those that were none left out.
    pub fn take_longest(&self) -> Vec<(Cause, Duration)> {
        let waits = Cause::ALL.into_iter().zip(self.by_cause.iter());
        let taken = waits.map(|(cause, waits)| (cause, Duration::from_nanos(waits.longest.swap(0, Ordering::Relaxed))));
        let mut longest: Vec<_> = taken.filter(|(_, took)| !took.is_zero()).collect();
        longest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        longest
    }
}

/// Times the steps of a write one after the other.
pub(crate) struct Watch {
    waits: WriteWaits,
    env: Env,
    since: Duration,
}

impl Watch {
    /// Notes the time of the step that ends here.
    pub(crate) fn step(&mut self, cause: Cause) {
        let now = self.env.now();
        self.waits.note(cause, now.saturating_sub(self.since));
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[test]
    fn each_cause_has_its_place() {
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
        }
    }

    #[test]
    fn the_longest_of_each_cause_is_told_once() {
        let metrics = Metrics::new();
        let waits = WriteWaits::new(&metrics);
        let millis = Duration::from_millis;
        for (cause, took) in [
            (Cause::Log, 7),
            (Cause::Compaction, 30),
            (Cause::Log, 9),
            (Cause::Gate, 0),
        ] {
            waits.note(cause, millis(took));
        }
        let longest = waits.take_longest();
        assert_eq!(longest, [(Cause::Compaction, millis(30)), (Cause::Log, millis(9))]);
        assert_eq!(waits.take_longest(), []);
        let rendered = metrics.render();
        assert!(
            rendered.contains("stele_write_wait_seconds_count{cause=\"log\"} 2"),
            "{rendered}"
        );
        assert!(
            rendered.contains("stele_write_wait_seconds_count{cause=\"gate\"} 0"),
            "{rendered}"
        );
    }

    #[tokio::test]
    async fn only_what_is_waited_for_is_timed() {
        let (env, waits) = (TokioRuntime::current(), WriteWaits::new(&Metrics::new()));
        assert_eq!(waits.until(&env, Cause::Gate, async { 5 }).await, 5);
        assert_eq!(waits.take_longest(), []);
        waits
            .until(&env, Cause::Gate, env.sleep(Duration::from_millis(3)))
            .await;
        let longest = waits.take_longest();
        assert!(
            matches!(longest[..], [(Cause::Gate, took)] if took >= Duration::from_millis(3)),
            "{longest:?}"
        );
    }

    #[tokio::test]
    async fn large_batches_have_their_steps_timed() {
        let (env, waits) = (TokioRuntime::current(), WriteWaits::new(&Metrics::new()));
        assert!(waits.watch(&env, TIMED_BYTES_MIN - 1).is_none());
        let mut watch = waits.watch(&env, TIMED_BYTES_MIN).unwrap();
        watch.step(Cause::Append);
        env.sleep(Duration::from_millis(3)).await;
        watch.step(Cause::Apply);
        let longest = waits.take_longest();
        assert!(matches!(longest[..], [(Cause::Apply, _)]), "{longest:?}");
    }
}
