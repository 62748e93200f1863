//! How fast writes may come: in proportion to the room that is left, so that they slow down smoothly instead of stopping.
//!
//! Terms: the *pressure* is how much of what there is room for is taken (memtable bytes of their limit, sorted runs of
//! twice what is easy), from 0 to 1; the *drain* is how many bytes of memtables flushes free in a second.
//!
//! Up to [`PRESSURE_EASY`] nothing is slowed. Above, writes may come at a rate that falls with the room left, in a
//! straight line: twice the drain where it begins, the drain half way, nothing at the end. Memory therefore settles where
//! writes come as fast as flushes free, with room on both sides for a whole memtable being freed at once; compactions settle
//! the number of runs in the same way, without anybody knowing how fast they are. (RocksDB and Pebble slow writers at
//! thresholds too; the difference is that the rate here is a function of the room, not a search for one.)
//!
//! Pure: [`Pacer`] is told the time.

use std::time::Duration;

/// Pressure up to which writes are not slowed. Flushes for the sake of memory begin at a half.
pub const PRESSURE_EASY: f64 = 0.6;
/// Runs of a group that merging compactions leave alone in a full tree: seven tiers of four, with some to spare.
const RUNS_EASY: usize = 32;
/// Drain before any flush was measured: what a slow disk can do.
const DRAIN_INITIAL: f64 = 64e6;
/// Slowest rate. Nobody is held up for good by a measurement gone wrong; the limit of memory itself stops all.
const RATE_MIN: f64 = 1e6;
/// A writer is not sent to sleep for less: timers are no finer.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// Credit that an idle time gives.
const BURST: Duration = Duration::from_millis(5);

/// What slows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Memtables fill faster than they are flushed.
    Memory,
    /// Runs are made faster than they are merged.
    Compaction,
}

/// The greater of the two pressures.
pub fn pressure(memory_bytes: u64, memory_bytes_max: u64, runs: usize) -> (f64, Cause) {
    let memory = memory_bytes as f64 / memory_bytes_max.max(1) as f64;
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
    /// When a flush last ended, and bytes freed by then.
    flushed: (Duration, u64),
    /// Writers were slowed all the time since: flushes had enough to do.
    pressed: bool,
}

impl Pacer {
    /// A pacer that knows nothing yet.
    pub fn new(now: Duration) -> Pacer {
        Pacer {
            drain: DRAIN_INITIAL,
            used_up: Duration::ZERO,
            flushed: (now, 0),
            pressed: false,
        }
    }

    /// Bytes a second that flushes are taken to free.
    pub fn drain(&self) -> f64 {
        self.drain
    }

    /// How long a write of `bytes` has to wait under a pressure; `None`, and no turn is taken, when those before it alone
    /// take longer than `wait_max`.
    pub fn turn(&mut self, now: Duration, bytes: usize, pressure: f64, wait_max: Duration) -> Option<Duration> {
        let Some(rate) = rate(self.drain, pressure) else {
            self.pressed = false;
            return Some(Duration::ZERO);
        };
        if self.used_up.saturating_sub(now) > wait_max {
            return None;
        }
        self.used_up = self.used_up.max(now.saturating_sub(BURST)) + Duration::from_secs_f64(bytes as f64 / rate);
        let wait = self.used_up.saturating_sub(now);
        Some(if wait < SLEEP_MIN {
            Duration::ZERO
        } else {
            wait.min(wait_max)
        })
    }

    /// A flush has ended; `freed` are the bytes freed since the beginning of time. Between two flushes that end one after
    /// the other the medium may have had nothing to do, so such a measurement only counts when it is better than what
    /// was known, or when there was enough to do.
    pub fn flushed(&mut self, now: Duration, freed: u64, pressure: f64) {
        let (since, before) = self.flushed;
        let took = now.saturating_sub(since).as_secs_f64();
        let bytes = freed.saturating_sub(before) as f64;
        if took > 0.0 && bytes > 0.0 {
            let measured = bytes / took;
            if measured > self.drain || self.pressed {
                // Half of what was known stays: one flush may be small, or meet a compaction.
                self.drain = (self.drain + measured) / 2.0;
            }
        }
        self.flushed = (now, freed);
        self.pressed = pressure > PRESSURE_EASY;
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
        let mut pacer = Pacer::new(Duration::ZERO);
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
        // One that is too large for its turn alone still gets one; those behind it are refused, and take none.
        assert_eq!(pacer.turn(now, 1 << 30, 0.8, WAIT_MAX), Some(WAIT_MAX));
        assert_eq!(pacer.turn(now, 1, 0.8, WAIT_MAX), None);
        assert!(pacer.turn(now + Duration::from_secs(8), 1, 0.8, WAIT_MAX).is_some());
    }

    /// Writers that would fill memory ten times as fast as a flush of a quarter of it at a time frees it.
    #[test]
    fn memory_settles_without_a_stop() {
        let (max, flush_bytes, drain) = (400e6, 100e6, 50e6);
        let step = Duration::from_millis(1);
        let (mut now, mut memory, mut freed, mut flushed) = (Duration::ZERO, 0.0, 0.0, 0.0);
        let mut pacer = Pacer::new(now);
        let mut free_at = Duration::ZERO;
        let (mut most, mut longest, mut written) = (0f64, Duration::ZERO, 0.0);
        while now < Duration::from_secs(60) {
            now += step;
            while free_at <= now {
                let (pressure, _) = pressure(memory as u64, max as u64, 0);
                let wait = pacer.turn(now, 500_000, pressure, WAIT_MAX).unwrap();
                longest = longest.max(wait);
                free_at = now + wait.max(step);
                memory += 500e3;
                written += 500e3;
            }
            most = most.max(memory);
            flushed = if memory - flushed > 0.0 {
                flushed + drain * 1e-3
            } else {
                flushed
            };
            if flushed >= flush_bytes {
                memory -= flush_bytes;
                freed += flush_bytes;
                flushed = 0.0;
                pacer.flushed(now, freed as u64, pressure(memory as u64, max as u64, 0).0);
            }
        }
        assert!(most < max, "memory ran full: {most}");
        assert!(longest < Duration::from_millis(250), "{longest:?}");
        assert!(written > 55.0 * drain, "{written} of {}", 60.0 * drain);
        assert!((pacer.drain() - drain).abs() < drain * 0.2, "{}", pacer.drain());
    }
}
