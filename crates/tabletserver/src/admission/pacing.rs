//! How fast writes may come: in proportion to the room that is left, so that they slow down smoothly instead of stopping.
//!
//! Terms: the *pressure* is how much of what there is room for is taken, from 0 to 1; the *drain* is how many bytes of
//! memtables flushes write in a second, while there is enough for them to do.
//!
//! Up to [`PRESSURE_EASY`] nothing is slowed. Above, writes may come at a rate that falls with the room left, in a
//! straight line: twice the drain where it begins, the drain half way, nothing at the end. (RocksDB and Pebble slow writers
//! at thresholds too; the difference is that the rate here is a function of the room, not a search for one.)
//!
//! * Memory: memtables are freed whole, when the last of them is in a file. What counts is therefore what memory will have
//!   come to by then, at the rate at which flushes write: the bytes of all memtables, and once more those that the flushes
//!   under way have still to write. This *foreseen* memory does not jump when a flush ends, so the rate does not either, and
//!   writes come as fast as they are flushed. Going by the memory of the moment, a writer met the limit just before
//!   the end of every flush.
//! * Compactions settle the number of runs in the same way, without anybody knowing how fast they are; and the space that a
//!   tablet takes beyond what is live, which counts as runs.
//!
//! Pure: [`Pacer`] is told the time.

use std::time::Duration;
use stele_tablet::picker::RUNS_EASY;

/// Pressure up to which writes are not slowed. Flushes for the sake of memory begin at a half.
pub const PRESSURE_EASY: f64 = 0.6;
/// Drain before any flush was measured: what a slow disk can do.
const DRAIN_INITIAL: f64 = 64e6;
/// Slowest rate. Nobody is held up for good by a measurement gone wrong; the limit of memory itself stops all.
const RATE_MIN: f64 = 1e6;
/// A writer is not sent to sleep for less: timers are no finer.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// A write does not use up more than this of everybody's time, however large it is: then memory decides.
const TURN_MAX: Duration = Duration::from_millis(50);
/// Credit that an idle time gives.
const BURST: Duration = Duration::from_millis(5);
/// The drain is measured over this long at least: flushes write in pieces of megabytes.
const WINDOW: Duration = Duration::from_millis(200);
/// A measurement as old as this counts a third: longer than a flush, of which the beginning and the end write nothing.
const MEMORY: f64 = 2.0;

/// What slows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Memtables fill faster than they are flushed.
    Memory,
    /// Runs are made faster than they are merged.
    Compaction,
}

/// The greater of the two pressures. `foreseen` are bytes of memory, see the [module](self).
pub fn pressure(foreseen: u64, memory_bytes_max: u64, runs: usize) -> (f64, Cause) {
    let memory = foreseen as f64 / memory_bytes_max.max(1) as f64;
    // RUNS_EASY runs are PRESSURE_EASY, twice as many are the end.
    let excess = runs.saturating_sub(RUNS_EASY) as f64 / RUNS_EASY as f64;
    let compaction = if excess > 0.0 {
        PRESSURE_EASY + excess * (1.0 - PRESSURE_EASY)
    } else {
        0.0
    };
    if compaction > memory {
        (compaction.min(1.0), Cause::Compaction)
    } else {
        (memory.min(1.0), Cause::Memory)
    }
}

/// Bytes a second that may come; `None` for as many as like.
pub fn rate(drain: f64, pressure: f64) -> Option<f64> {
    let room = (1.0 - pressure) / (1.0 - PRESSURE_EASY);
    (pressure > PRESSURE_EASY).then(|| (2.0 * drain * room).max(RATE_MIN))
}

/// Hands out turns at a rate, and measures the drain.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Bytes a second.
    drain: f64,
    /// When what has been admitted is used up, at the rates it was admitted at.
    used_up: Duration,
    /// Since when writers have been slowed and flushes had enough to do, or the last measurement; and the bytes that
    /// flushes had written by then.
    measured: Option<(Duration, u64)>,
}

impl Pacer {
    /// A pacer that knows nothing yet.
    pub fn new() -> Pacer {
        Pacer {
            drain: DRAIN_INITIAL,
            used_up: Duration::ZERO,
            measured: None,
        }
    }

    /// Bytes a second that flushes are taken to write.
    pub fn drain(&self) -> f64 {
        self.drain
    }

    /// How long a write of `bytes` has to wait under a pressure; `None`, and no turn is taken, when those before it alone
    /// take longer than `wait_max`.
    pub fn turn(&mut self, now: Duration, bytes: usize, pressure: f64, wait_max: Duration) -> Option<Duration> {
        let Some(rate) = rate(self.drain, pressure) else {
            return Some(Duration::ZERO);
        };
        if self.used_up.saturating_sub(now) > wait_max {
            return None;
        }
        let turn = Duration::from_secs_f64(bytes as f64 / rate).min(TURN_MAX);
        self.used_up = self.used_up.max(now.saturating_sub(BURST)) + turn;
        let wait = self.used_up.saturating_sub(now);
        Some(if wait < SLEEP_MIN {
            Duration::ZERO
        } else {
            wait.min(wait_max)
        })
    }

    /// Flushes have written `flushed` bytes since the beginning of time. Called with every turn, and when a flush ends:
    /// while nobody is slowed they may have nothing to do, and how fast they are is not known.
    pub fn observe(&mut self, now: Duration, flushed: u64, pressure: f64) {
        if pressure <= PRESSURE_EASY {
            self.measured = None;
            return;
        }
        let (since, before) = *self.measured.get_or_insert((now, flushed));
        let took = now.saturating_sub(since);
        if took < WINDOW {
            return;
        }
        let seconds = took.as_secs_f64();
        let keep = (-seconds / MEMORY).exp();
        let measured = flushed.saturating_sub(before) as f64 / seconds;
        self.drain = (self.drain * keep + measured * (1.0 - keep)).max(RATE_MIN);
        self.measured = Some((now, flushed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(10);

    #[test]
    fn the_rate_falls_with_the_room_left() {
        let drain = 100e6;
        assert_eq!(rate(drain, 0.0), None);
        assert_eq!(rate(drain, PRESSURE_EASY), None);
        let at = |pressure| rate(drain, pressure).unwrap();
        assert!(
            (at(0.8) - drain).abs() < 1.0,
            "half way as fast as flushes: {}",
            at(0.8)
        );
        assert!((at(0.9) - drain / 2.0).abs() < 1.0);
        assert_eq!(at(1.0), RATE_MIN);
    }

    #[test]
    fn the_greater_pressure_counts() {
        assert_eq!(pressure(50, 100, 10), (0.5, Cause::Memory));
        assert_eq!(pressure(50, 100, RUNS_EASY).1, Cause::Memory);
        let (half, cause) = pressure(50, 100, RUNS_EASY * 3 / 2);
        assert!((half - 0.8).abs() < 1e-9 && cause == Cause::Compaction);
        assert_eq!(pressure(200, 100, 1000).0, 1.0);
    }

    #[test]
    fn turns_come_at_the_rate() {
        let mut pacer = Pacer::new();
        let mut now = Duration::from_secs(1);
        let mut slept = 0;
        for _ in 0..1_000 {
            let wait = pacer.turn(now, 64_000, 0.8, WAIT_MAX).unwrap();
            slept += usize::from(!wait.is_zero());
            assert!(wait.is_zero() || wait >= SLEEP_MIN);
            now += wait;
        }
        // 64 MB at 64 MB/s, less the credit.
        let took = (now - Duration::from_secs(1)).as_secs_f64();
        assert!((0.98..1.01).contains(&took), "{took}");
        assert!(slept > 400, "{slept}");
        assert_eq!(pacer.turn(now, 1 << 30, 0.5, WAIT_MAX), Some(Duration::ZERO));
        // One that is large does not use up everybody's time. When too many wait, the next is refused, and takes no turn.
        assert_eq!(pacer.turn(now, 1 << 30, 0.8, WAIT_MAX), Some(TURN_MAX));
        let short = 2 * TURN_MAX;
        assert!(pacer.turn(now, 1 << 30, 0.8, short).is_some());
        assert!(pacer.turn(now, 1 << 30, 0.8, short).is_some());
        assert_eq!(pacer.turn(now, 1, 0.8, short), None);
        assert!(pacer.turn(now + TURN_MAX, 1, 0.8, short).is_some());
    }

    /// A server whose writers fill memory ten times as fast as it is flushed: one tablet, the next flush of which begins
    /// when there is enough for one. Whether it settles, and without a stop, with this limit of a flush.
    fn settles(flush_from: f64, drain: f64, commit: f64) {
        let max = 400e6;
        let step = Duration::from_millis(1);
        let mut pacer = Pacer::new();
        // Of the memtables that are written to, being flushed, and of the latter what is left to be written.
        let (mut active, mut frozen, mut left, mut flushed) = (0.0, 0.0, 0.0, 0.0);
        let (mut now, mut free_at, mut commit_until) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (mut most, mut longest) = (0f64, Duration::ZERO);
        let mut quarters = [0.0; 4];
        while now < Duration::from_secs(60) {
            now += step;
            if frozen == 0.0 && active > flush_from {
                (frozen, left, active) = (active, active, 0.0);
            }
            if left > 0.0 {
                let wrote = (drain * 1e-3f64).min(left);
                left -= wrote;
                flushed += wrote;
                commit_until = now + Duration::from_secs_f64(commit);
            } else if frozen > 0.0 && now >= commit_until {
                frozen = 0.0;
            }
            let foreseen = active + frozen + left;
            let (pressure, _) = pressure(foreseen as u64, max as u64, 0);
            pacer.observe(now, flushed as u64, pressure);
            while free_at <= now {
                let wait = pacer.turn(now, 100_000, pressure, WAIT_MAX).unwrap();
                longest = longest.max(wait);
                free_at = free_at.max(now - step) + wait.max(step / 10);
                active += 100e3;
                let quarter = (now.as_millis() / 15_001) as usize;
                quarters[quarter] += 100e3;
            }
            most = most.max(active + frozen);
        }
        let cycle = |bytes: f64| bytes / (bytes / drain + commit);
        let expected = 15.0 * cycle(0.4 * max);
        assert!(most < max, "memory ran full: {most}");
        assert!(longest <= TURN_MAX + BURST, "{longest:?}");
        assert!((quarters[3] / expected - 1.0).abs() < 0.1, "{quarters:?} of {expected}");
        assert!((quarters[3] / quarters[2] - 1.0).abs() < 0.05, "{quarters:?}");
    }

    #[test]
    fn memory_settles_without_a_stop() {
        settles(100e6, 50e6, 0.0);
        settles(100e6, 400e6, 0.1);
        settles(200e6, 150e6, 0.2);
        settles(20e6, 20e6, 0.05);
    }

    #[test]
    fn the_drain_is_measured_while_there_is_enough_to_do() {
        let mut pacer = Pacer::new();
        let at = Duration::from_millis;
        pacer.observe(at(0), 0, 0.7);
        // Nothing was measured: a pause, then a new beginning.
        pacer.observe(at(1000), 0, 0.3);
        pacer.observe(at(2000), 0, 0.7);
        assert_eq!(pacer.drain(), DRAIN_INITIAL);
        for i in 1..=100 {
            pacer.observe(at(2000 + 100 * i), 20_000_000 * i, 0.7);
        }
        assert!((pacer.drain() / 200e6 - 1.0).abs() < 0.01, "{}", pacer.drain());
        for i in 1..=100 {
            pacer.observe(at(12_000 + 200 * i), 2_000_000_000, 0.7);
        }
        assert!(pacer.drain() < 10e6);
    }
}
