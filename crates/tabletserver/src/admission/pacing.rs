//! The pace of writes falls in proportion to free memory and with compaction debt.
//!
//! Two things are in short supply, and a write waits for the one with the longer wait.
//!
//! **Memory.** The *pressure* is the used part of the memory for memtables, from 0 to 1. The *flush rate* is the bytes
//! of memtables that flushes write in a second, while there is enough for them to do. Up to [`PRESSURE_EASY`] nothing
//! is slowed. Above it, the admitted rate falls linearly with the free part. It is twice the flush rate where it
//! begins, the flush rate half way, and 1 MB/s at the end. (RocksDB and Pebble slow writers at thresholds too; the
//! difference is that the rate here is a function of the free memory, not a search for one.)
//!
//! A memtable is freed as a whole, when the last of it is in a file. So the pressure counts the memory at the time when
//! the flushes under way end, if writes come as fast as they are flushed. That is the bytes of all memtables, and once
//! more those that these flushes have still to write. This *foreseen* memory does not jump when a flush ends, so the
//! rate does not either. With the memory of the moment, a writer met the limit just before the end of every flush.
//!
//! **Compactions.** A tablet's *compaction debt* (`stele_tablet::picker::compaction_pressure`) says how far compactions
//! are behind there, in runs or in space: 0 is not at all. The *compaction throughput* is the bytes of writes that
//! compactions make good for in a second. The admitted rate of a tablet in debt is four times the throughput where debt
//! begins, and the throughput half way to 1. It is a quarter of the throughput at 1, a 16th at 1.5, and so on: each
//! step of the same width divides the rate by the same number. Such a law has no end at which writes stop. It settles
//! where writes come as fast as compactions make good for them, and a throughput that is mistaken by four times moves
//! that by half. The throughput is measured from the bytes that compactions read, which do not depend on how fast
//! writes come. A rate that follows the admitted writes would oscillate between everything and nothing.
//!
//! No write waits longer than [`LONGEST_WAIT`] for compactions while the debt is below 1. Beyond 1, that limit grows by
//! the same law until it meets the limit of all waits. Hence many writers of large batches do not wait for one another;
//! the space that they take slows them later.
//!
//! Pure: [`Pacer`] is told the time.

use std::time::Duration;
use stele_tablet::MovedBytes;
use stele_tablet::picker::PRESSURE_FULL;

/// Pressure up to which writes are not slowed. Flushes for the sake of memory begin at a half.
pub const PRESSURE_EASY: f64 = 0.6;
/// Flush rate and compaction throughput before any were measured: those of a slow disk.
const RATE_INITIAL: f64 = 64e6;
/// Slowest rate. Nobody is held up for good by a measurement gone wrong; the limit of memory itself stops all.
const RATE_MIN: f64 = 1e6;
/// A writer is not sent to sleep for less: timers are no finer.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// A write does not use up more than this of everybody's time, however large it is: then memory decides.
const TURN_MAX: Duration = Duration::from_millis(50);
/// Credit that an idle time gives.
const BURST: Duration = Duration::from_millis(5);
/// The flush rate is measured over this long at least: flushes write in pieces of megabytes.
const WINDOW: Duration = Duration::from_millis(200);
/// A measurement as old as this counts a third: longer than a flush, of which the beginning and the end write nothing.
const MEMORY: f64 = 2.0;
/// The compaction throughput is measured over this long at least; a compaction reports every megabyte it has read.
const COMPACTION_WINDOW: Duration = Duration::from_millis(500);
/// A time this long without writes to tablets with compaction debt is not measured: compactions may have had nothing
/// to do.
const COMPACTION_PAUSE: Duration = Duration::from_secs(5);
/// A measurement of merges as old as this counts a third: several jobs.
const COMPACTION_MEMORY: f64 = 8.0;
/// The part of the bytes that compactions read which makes good for writes. Half of them is garbage where space is
/// twice the live bytes, which is about where the debt is half way. Where there are too many runs, about half of the
/// compacted bytes come from flushes and half from earlier compactions.
const GARBAGE_SHARE: f64 = 0.5;
/// How much slower writes come for every 1 of compaction debt, and how much faster than the compaction throughput
/// where it begins.
const STEEPNESS: f64 = 16.0;
/// Longest wait for compactions while the debt is below 1: a caller hardly notices it.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The cause of a write's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Memtables fill faster than they are flushed.
    Memory,
    /// Runs or garbage are made faster than they are merged.
    Compaction,
}

/// How much a write is to be slowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Pressure on memory.
    pub pressure: f64,
    /// Compaction debt of the tablet: 1 is much.
    pub compaction_pressure: f64,
}

impl Load {
    /// `foreseen` are bytes of memory, see the [module](self); `compaction_pressure` is the compaction debt, in units of
    /// [`PRESSURE_FULL`].
    pub fn new(foreseen: u64, memory_bytes_max: u64, compaction_pressure: u64) -> Load {
        let load = Load {
            pressure: (foreseen as f64 / memory_bytes_max.max(1) as f64).min(1.0),
            compaction_pressure: compaction_pressure as f64 / PRESSURE_FULL as f64,
        };
        debug_assert!(
            (0.0..=1.0).contains(&load.pressure) && load.compaction_pressure >= 0.0,
            "a load is a part of a limit: {load:?}"
        );
        load
    }

    /// Whether nothing slows.
    pub fn is_easy(&self) -> bool {
        self.pressure <= PRESSURE_EASY && self.compaction_pressure <= 0.0
    }
}

/// Bytes a second that may come under a pressure; `None` for as many as like.
pub fn memory_rate(flush_rate: f64, pressure: f64) -> Option<f64> {
    let reservation = (1.0 - pressure) / (1.0 - PRESSURE_EASY);
    (pressure > PRESSURE_EASY).then(|| (2.0 * flush_rate * reservation).max(RATE_MIN))
}

/// Bytes a second that may come to a tablet with this compaction debt; `None` for no limit.
pub fn compaction_rate(compacted: f64, compaction_pressure: f64) -> Option<f64> {
    (compaction_pressure > 0.0).then(|| (compacted * STEEPNESS.powf(0.5 - compaction_pressure)).max(RATE_MIN))
}

/// The longest time that a write to a tablet with this compaction debt waits for compactions.
pub fn longest_wait(compaction_pressure: f64, wait_max: Duration) -> Duration {
    let longest = LONGEST_WAIT.as_secs_f64() * STEEPNESS.powf((compaction_pressure - 1.0).clamp(0.0, 8.0));
    Duration::from_secs_f64(longest).min(wait_max)
}

/// Hands out turns at the rates, and measures the speeds that the rates follow.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Bytes a second.
    flush_rate: f64,
    /// When the admitted writes are used up, at the rates at which they were admitted.
    used_up: Duration,
    /// The same of the rates for merges.
    compaction_rate_used_until: Duration,
    /// Since when writers have been slowed and flushes had enough to do, or the last measurement; and the bytes that
    /// flushes had written by then.
    measured: Option<(Duration, u64)>,
    throughput: CompactionThroughput,
}

impl Pacer {
    /// A pacer that knows nothing yet.
    pub fn new() -> Pacer {
        Pacer {
            flush_rate: RATE_INITIAL,
            used_up: Duration::ZERO,
            compaction_rate_used_until: Duration::ZERO,
            measured: None,
            throughput: CompactionThroughput::new(),
        }
    }

    /// Bytes a second that flushes are taken to write.
    pub fn flush_rate(&self) -> f64 {
        self.flush_rate
    }

    /// Bytes of writes that merges are taken to make good for in a second.
    pub fn compaction_throughput(&self) -> f64 {
        self.throughput.in_writes()
    }

    /// How long a write of `bytes` has to wait, and for what; `None`, and no turn is taken, when those before it alone take
    /// longer than `wait_max`.
    pub fn turn(&mut self, now: Duration, bytes: usize, load: Load, wait_max: Duration) -> Option<(Duration, Cause)> {
        let memory = self.memory_turn(now, bytes, load.pressure, wait_max)?;
        let compactions = self.compaction_turn(now, bytes, load.compaction_pressure, wait_max);
        let (wait, cause) = match compactions > memory {
            true => (compactions, Cause::Compaction),
            false => (memory, Cause::Memory),
        };
        Some(if wait < SLEEP_MIN {
            (Duration::ZERO, cause)
        } else {
            (wait, cause)
        })
    }

    fn memory_turn(&mut self, now: Duration, bytes: usize, pressure: f64, wait_max: Duration) -> Option<Duration> {
        let Some(rate) = memory_rate(self.flush_rate, pressure) else {
            return Some(Duration::ZERO);
        };
        if self.used_up.saturating_sub(now) > wait_max {
            return None;
        }
        let turn = Duration::from_secs_f64(bytes as f64 / rate).min(TURN_MAX);
        let before = self.used_up;
        self.used_up = self.used_up.max(now.saturating_sub(BURST)) + turn;
        assert!(self.used_up >= before, "a turn is behind those that were given before");
        Some(self.used_up.saturating_sub(now).min(wait_max))
    }

    fn compaction_turn(
        &mut self,
        now: Duration,
        bytes: usize,
        compaction_pressure: f64,
        wait_max: Duration,
    ) -> Duration {
        let Some(rate) = compaction_rate(self.compaction_throughput(), compaction_pressure) else {
            return Duration::ZERO;
        };
        let longest = longest_wait(compaction_pressure, wait_max);
        let turn = Duration::from_secs_f64(bytes as f64 / rate).min(longest);
        let begins = self.compaction_rate_used_until.max(now.saturating_sub(BURST));
        // A write that has waited long enough takes no more of the others' time.
        let ends = (begins + turn).min(now + longest);
        self.compaction_rate_used_until = self.compaction_rate_used_until.max(ends);
        let wait = ends.saturating_sub(now);
        assert!(
            wait <= longest,
            "a write waits for compactions at most {longest:?}, not {wait:?}"
        );
        wait
    }

    /// Flushes have written `flushed` bytes since the start of the process, and flushes and compactions `moved` bytes
    /// of files. Called with every turn, and when a flush ends: while no write is slowed they may have nothing to do,
    /// and their speed is not known.
    pub fn observe(&mut self, now: Duration, flushed: u64, moved: MovedBytes, load: Load) {
        self.throughput.observe(now, moved, load.compaction_pressure > 0.0);
        if load.pressure <= PRESSURE_EASY {
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
        self.flush_rate = (self.flush_rate * keep + measured * (1.0 - keep)).max(RATE_MIN);
        assert!(
            self.flush_rate.is_finite() && self.flush_rate >= RATE_MIN,
            "a measured rate is a number, and lets some writes pass: {}",
            self.flush_rate
        );
        self.measured = Some((now, flushed));
    }
}

/// Measures how many bytes of writes compactions make good for. They read bytes of files, which are compressed, and
/// bytes of writes are not. The sizes of memtables and of the files that flushes made of them tell the ratio.
#[derive(Clone, Debug)]
struct CompactionThroughput {
    /// Time with compaction debt and the bytes that compactions read in it, older ones counting less.
    seconds: f64,
    compacted: f64,
    /// The same of memtables that were flushed, and of the files they became.
    memtables: f64,
    files: f64,
    /// Since when, the bytes that had been moved by then, and whether any tablet had compaction debt since.
    measured: Option<(Duration, MovedBytes, bool)>,
}

impl CompactionThroughput {
    fn new() -> CompactionThroughput {
        // Forgotten within seconds.
        CompactionThroughput {
            seconds: 1.0,
            compacted: RATE_INITIAL / GARBAGE_SHARE,
            memtables: 1e6,
            files: 1e6,
            measured: None,
        }
    }

    fn in_writes(&self) -> f64 {
        assert!(
            self.seconds > 0.0,
            "compactions were measured for some time, or are assumed to have been"
        );
        let compacted = GARBAGE_SHARE * self.compacted / self.seconds;
        (compacted * self.memtables / self.files.max(1.0)).max(RATE_MIN)
    }

    fn observe(&mut self, now: Duration, moved: MovedBytes, is_under_pressure: bool) {
        let (since, before, was_under_pressure) = self.measured.get_or_insert((now, moved, false));
        *was_under_pressure |= is_under_pressure;
        let (since, before, was_under_pressure) = (*since, *before, *was_under_pressure);
        let took = now.saturating_sub(since);
        if took < COMPACTION_WINDOW {
            return;
        }
        self.measured = Some((now, moved, false));
        if !was_under_pressure || took > COMPACTION_PAUSE {
            return;
        }
        let seconds = took.as_secs_f64();
        let keep = (-seconds / COMPACTION_MEMORY).exp();
        let count = |sum: &mut f64, now: u64, before: u64| *sum = *sum * keep + now.saturating_sub(before) as f64;
        self.seconds = self.seconds * keep + seconds;
        count(&mut self.compacted, moved.compacted, before.compacted);
        count(&mut self.memtables, moved.memtables, before.memtables);
        count(&mut self.files, moved.files, before.files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(10);

    /// Memory is under this pressure, and merges keep up.
    fn pressed(pressure: f64) -> Load {
        Load {
            pressure,
            compaction_pressure: 0.0,
        }
    }

    #[test]
    fn the_rate_falls_with_the_memory_left() {
        let flush_rate = 100e6;
        assert_eq!(memory_rate(flush_rate, 0.0), None);
        assert_eq!(memory_rate(flush_rate, PRESSURE_EASY), None);
        let at = |pressure| memory_rate(flush_rate, pressure).unwrap();
        assert!(
            (at(0.8) - flush_rate).abs() < 1.0,
            "half way as fast as flushes: {}",
            at(0.8)
        );
        assert!((at(0.9) - flush_rate / 2.0).abs() < 1.0);
        assert_eq!(at(1.0), RATE_MIN);
    }

    #[test]
    fn the_longer_wait_counts() {
        let at = |pressure, compaction_pressure| {
            let load = Load {
                pressure,
                compaction_pressure,
            };
            Pacer::new()
                .turn(Duration::from_secs(1), 1_000_000, load, WAIT_MAX)
                .unwrap()
        };
        assert!(Load::new(50, 100, 0).is_easy());
        assert!(!Load::new(50, 100, 1).is_easy() && !Load::new(61, 100, 0).is_easy());
        assert_eq!(
            Load::new(200, 100, 500),
            Load {
                pressure: 1.0,
                compaction_pressure: 0.5
            }
        );
        assert_eq!(at(0.5, 0.0), (Duration::ZERO, Cause::Memory));
        assert_eq!(at(0.9, 0.5).1, Cause::Memory);
        assert_eq!(at(0.5, 0.5).1, Cause::Compaction);
        assert_eq!(at(0.8, 0.9).1, Cause::Compaction);
    }

    /// The wait of a lone writer of 100 kB at this compaction debt.
    fn lone_wait(compaction_pressure: f64) -> Duration {
        let mut pacer = Pacer::new();
        let now = Duration::from_secs(1);
        pacer.compaction_rate_used_until = now;
        pacer.compaction_turn(now, 100_000, compaction_pressure, WAIT_MAX)
    }

    #[test]
    fn waits_for_merges_grow_smoothly_with_crowding() {
        assert_eq!(lone_wait(0.0), Duration::ZERO);
        let mut before = lone_wait(1e-9);
        // Starts at a quarter of the wait at the compaction throughput.
        let at_yield = 100_000.0 / RATE_INITIAL;
        assert!((before.as_secs_f64() / at_yield - 0.25).abs() < 1e-3, "{before:?}");
        for step in 1..5_000 {
            let compaction_pressure = f64::from(step) / 1e3;
            let wait = lone_wait(compaction_pressure);
            assert!(wait >= before, "{compaction_pressure}: {wait:?} after {before:?}");
            assert!(
                wait <= before.mul_f64(1.01),
                "{compaction_pressure}: {wait:?} after {before:?}"
            );
            assert!(wait <= longest_wait(compaction_pressure, WAIT_MAX));
            before = wait;
        }
        assert!((lone_wait(0.5).as_secs_f64() / at_yield - 1.0).abs() < 1e-3);
        assert!((lone_wait(1.0).as_secs_f64() / at_yield - 4.0).abs() < 1e-3);
    }

    #[test]
    fn nobody_waits_long_for_merges_before_they_are_far_behind() {
        let second = Duration::from_secs(1);
        let mut pacer = Pacer::new();
        let most = |pacer: &mut Pacer, compaction_pressure, writers| {
            let turn = |_| pacer.compaction_turn(second, 1 << 20, compaction_pressure, WAIT_MAX);
            (0..writers).map(turn).max().unwrap()
        };
        assert_eq!(most(&mut pacer, 0.9, 1000), LONGEST_WAIT);
        assert_eq!(most(&mut pacer, 1.0, 1000), LONGEST_WAIT);
        let more = most(&mut pacer, 1.5, 1000);
        assert!(more > 3 * LONGEST_WAIT && more < 5 * LONGEST_WAIT, "{more:?}");
        // A writer to a tablet with less compaction debt does not wait for these.
        assert_eq!(most(&mut pacer, 0.1, 1), LONGEST_WAIT);
        assert_eq!(most(&mut pacer, 0.0, 1), Duration::ZERO);
        assert_eq!(most(&mut pacer, 9.0, 1000), WAIT_MAX);
        // Nor is a wait that has passed counted twice.
        let later = second + WAIT_MAX;
        assert!(pacer.compaction_turn(later, 1000, 0.1, WAIT_MAX) < SLEEP_MIN);
    }

    /// One tablet that one writer overwrites in batches of a megabyte, as fast as pacing permits. Compactions read
    /// `compacted` bytes a second, and take all runs to the bottom level one after the other. The space of runs that a
    /// compaction has read is freed later, after `held` of its time. Returns the most space in the second half as a
    /// multiple of the live bytes, the accepted bytes a second, and the longest wait.
    fn overwritten(compacted: f64, compressed: f64, offered: f64, held: f64) -> (f64, f64, Duration) {
        const LIVE: f64 = 3.2e9;
        const MIB: f64 = 1024.0 * 1024.0;
        let step = Duration::from_millis(1);
        let mut pacer = Pacer::new();
        // Bytes of runs in the compaction, bytes that it has read of them, and bytes of runs behind it.
        let (mut upper_runs, mut read, mut behind) = (0.0, 0.0, 0.0);
        let (mut memtable, mut moved) = (0.0, MovedBytes::default());
        let (mut now, mut free_at) = (Duration::ZERO, Duration::ZERO);
        let (mut most, mut accepted, mut longest) = (0f64, 0.0, Duration::ZERO);
        let end = Duration::from_secs(400);
        while now < end {
            now += step;
            if upper_runs > 0.0 {
                read += compacted * 1e-3;
                moved.compacted += (compacted * 1e-3) as u64;
                if read >= LIVE + upper_runs {
                    (upper_runs, read) = (0.0, 0.0);
                }
            } else if behind > 0.33 * LIVE {
                (upper_runs, behind) = (behind, 0.0);
            }
            if memtable > 50e6 {
                moved.memtables += memtable as u64;
                moved.files += (memtable * compressed) as u64;
                behind += memtable * compressed;
                memtable = 0.0;
            }
            let part = read / (LIVE + upper_runs);
            let space = LIVE + upper_runs * (1.0 - (part - held).max(0.0)) + behind;
            let percent = space / LIVE * 100.0;
            let load = Load {
                pressure: 0.0,
                compaction_pressure: ((percent - 150.0) / 100.0).max(0.0),
            };
            pacer.observe(now, 0, moved, load);
            while free_at <= now {
                let (wait, _) = pacer.turn(now, MIB as usize, load, WAIT_MAX).unwrap();
                free_at = free_at.max(now - step) + wait + Duration::from_secs_f64(MIB / offered);
                memtable += MIB;
                if now > end / 2 {
                    longest = longest.max(wait);
                    accepted += MIB;
                }
            }
            if now > end / 2 {
                most = most.max(space / LIVE);
            }
        }
        (most, accepted / (end / 2).as_secs_f64(), longest)
    }

    #[test]
    fn space_settles_without_a_stop() {
        for compacted in [100e6, 400e6, 1000e6] {
            for compressed in [0.3, 0.65, 1.0] {
                for held in [0.1, 1.0] {
                    let (most, rate, longest) = overwritten(compacted, compressed, 2e9, held);
                    // Half of the bytes that compactions read is garbage where space is twice the live bytes.
                    let at_twice = GARBAGE_SHARE * compacted / compressed;
                    let of = rate / at_twice;
                    println!(
                        "{compacted:e} {compressed} {held}: space {most:.2}, {of:.2} of the yield, longest {longest:?}"
                    );
                    assert!(most < 2.5, "{compacted} {compressed} {held}: {most}");
                    assert!(of > 0.5 && of < 1.5, "{compacted} {compressed} {held}: {of}");
                    let long = Duration::from_secs_f64(8.0 * 1024.0 * 1024.0 / rate);
                    assert!(
                        longest < long.min(LONGEST_WAIT),
                        "{compacted} {compressed} {held}: {longest:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn who_writes_slower_than_merges_is_not_slowed() {
        let (most, rate, longest) = overwritten(400e6, 0.65, 100e6, 1.0);
        assert!(
            most < 2.0 && rate > 95e6 && longest < 2 * SLEEP_MIN,
            "{most} {rate} {longest:?}"
        );
    }

    #[test]
    fn the_yield_is_measured_while_there_are_crowded_tablets() {
        let at = Duration::from_millis;
        let under_pressure = |compaction_pressure| Load {
            pressure: 0.0,
            compaction_pressure,
        };
        let mut pacer = Pacer::new();
        let mut moved = MovedBytes::default();
        // Files half as large as the memtables.
        let mut go = |pacer: &mut Pacer, from: u64, compacted, load| {
            for step in 1..=200 {
                moved.memtables += 2_000_000;
                moved.files += 1_000_000;
                moved.compacted += compacted;
                pacer.observe(at(from + 200 * step), 0, moved, load);
            }
        };
        go(&mut pacer, 0, 100_000_000, under_pressure(0.0));
        assert_eq!(pacer.compaction_throughput(), RATE_INITIAL);
        go(&mut pacer, 40_000, 20_000_000, under_pressure(0.1));
        assert!(
            (pacer.compaction_throughput() / 100e6 - 1.0).abs() < 0.02,
            "{}",
            pacer.compaction_throughput()
        );
        // A pause in which nothing was to be merged.
        pacer.observe(at(200_000), 0, moved_by(0), under_pressure(0.1));
        assert!(
            (pacer.compaction_throughput() / 100e6 - 1.0).abs() < 0.02,
            "{}",
            pacer.compaction_throughput()
        );
    }

    fn moved_by(bytes: u64) -> MovedBytes {
        MovedBytes {
            memtables: bytes,
            files: bytes,
            compacted: bytes,
        }
    }

    #[test]
    fn turns_come_at_the_rate() {
        let mut pacer = Pacer::new();
        let mut now = Duration::from_secs(1);
        let mut slept = 0;
        for _ in 0..1_000 {
            let wait = pacer.turn(now, 64_000, pressed(0.8), WAIT_MAX).unwrap().0;
            slept += usize::from(!wait.is_zero());
            assert!(wait.is_zero() || wait >= SLEEP_MIN);
            now += wait;
        }
        // 64 MB at 64 MB/s, less the credit.
        let took = (now - Duration::from_secs(1)).as_secs_f64();
        assert!((0.98..1.01).contains(&took), "{took}");
        assert!(slept > 400, "{slept}");
        let mut turn = |now, bytes, pressure, wait_max| {
            let turn = pacer.turn(now, bytes, pressed(pressure), wait_max);
            turn.map(|(wait, _)| wait)
        };
        assert_eq!(turn(now, 1 << 30, 0.5, WAIT_MAX), Some(Duration::ZERO));
        // One that is large does not use up everybody's time. When too many wait, the next is refused, and takes no turn.
        assert_eq!(turn(now, 1 << 30, 0.8, WAIT_MAX), Some(TURN_MAX));
        let short = 2 * TURN_MAX;
        assert!(turn(now, 1 << 30, 0.8, short).is_some());
        assert!(turn(now, 1 << 30, 0.8, short).is_some());
        assert_eq!(turn(now, 1, 0.8, short), None);
        assert!(turn(now + TURN_MAX, 1, 0.8, short).is_some());
    }

    /// A server whose writers fill memory ten times as fast as it is flushed: one tablet, the next flush of which begins
    /// when there is enough for one. Whether it settles, and without a stop, with this limit of a flush.
    fn settles(flush_from: f64, flush_rate: f64, commit: f64) {
        let max = 400e6;
        let step = Duration::from_millis(1);
        let mut pacer = Pacer::new();
        // Bytes of memtables that are written to and of those being flushed, and the bytes that flushes have still to
        // write.
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
                let wrote = (flush_rate * 1e-3f64).min(left);
                left -= wrote;
                flushed += wrote;
                commit_until = now + Duration::from_secs_f64(commit);
            } else if frozen > 0.0 && now >= commit_until {
                frozen = 0.0;
            }
            let foreseen = active + frozen + left;
            let load = Load::new(foreseen as u64, max as u64, 0);
            pacer.observe(now, flushed as u64, MovedBytes::default(), load);
            while free_at <= now {
                let (wait, _) = pacer.turn(now, 100_000, load, WAIT_MAX).unwrap();
                longest = longest.max(wait);
                free_at = free_at.max(now - step) + wait.max(step / 10);
                active += 100e3;
                let quarter = (now.as_millis() / 15_001) as usize;
                quarters[quarter] += 100e3;
            }
            most = most.max(active + frozen);
        }
        let cycle = |bytes: f64| bytes / (bytes / flush_rate + commit);
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
        pacer.observe(at(0), 0, MovedBytes::default(), pressed(0.7));
        // Nothing was measured: a pause, then a new beginning.
        pacer.observe(at(1000), 0, MovedBytes::default(), pressed(0.3));
        pacer.observe(at(2000), 0, MovedBytes::default(), pressed(0.7));
        assert_eq!(pacer.flush_rate(), RATE_INITIAL);
        for i in 1..=100 {
            pacer.observe(at(2000 + 100 * i), 20_000_000 * i, MovedBytes::default(), pressed(0.7));
        }
        assert!(
            (pacer.flush_rate() / 200e6 - 1.0).abs() < 0.01,
            "{}",
            pacer.flush_rate()
        );
        for i in 1..=100 {
            pacer.observe(at(12_000 + 200 * i), 2_000_000_000, MovedBytes::default(), pressed(0.7));
        }
        assert!(pacer.flush_rate() < 10e6);
    }
}
