//! How long point reads take while rows are overwritten.
//!
//! The figure is the cost that flushes and compactions have for readers. One thread overwrites rows in small batches at
//! a fixed rate, the same for every engine, which keeps flushes and compactions going. Another reads rows one after the
//! other, each timed. Both engines can keep up with the rate, and the result says whether they did: an engine that
//! writes less than requested has an easier time reading. The reader waits for each response before its next read, so a
//! stall counts once however long it is. For that reason the longest read is reported next to the percentiles.

use crate::clock::Clock;
use crate::data::{self, Values};
use crate::descheduled::Descheduled;
use crate::engine::Engine;
use crate::measured::Measured;
use crate::watch::Stalls;
use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows of a writer's batch: at 100,000 rows a second one each millisecond.
const BATCH_ROWS: u64 = 100;
/// A longer read than this is counted as this, nanoseconds.
const READ_NANOS_MAX: u64 = 60_000_000_000;

/// The operations of this load.
pub struct Load {
    /// Rows of the data, which are there already.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How many are overwritten a second.
    pub rows_per_second: u64,
    /// How long.
    pub time: Duration,
}

/// Reads and writes for the time asked for. The figure is the 99th percentile of reads in microseconds.
pub fn run(engine: &dyn Engine, load: &Load) -> anyhow::Result<Measured> {
    let stop = AtomicBool::new(false);
    let clock = Clock::start();
    let ((reads, slow), writes) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(engine, load, &stop));
        let reads = read(engine, load, clock.started());
        stop.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(writes) => anyhow::Ok((reads?, writes?)),
            Err(_) => bail!("the writer panicked"),
        }
    })?;
    let took = clock.took();
    let micros = |quantile: f64| reads.value_at_quantile(quantile) as f64 / 1e3;
    let (written, stalls) = writes;
    let mut measured = Measured::of_wall(reads.len(), took);
    measured.extra = vec![
        ("reads/s", measured.figure),
        ("50 %", micros(0.5)),
        ("99.9 %", micros(0.999)),
        ("99.99 %", micros(0.9999)),
        ("rows written/s", written as f64 / took.wall.as_secs_f64()),
        ("longest batch ms", stalls.longest.as_secs_f64() * 1e3),
    ];
    measured.figure = micros(0.99);
    measured.longest = Some(Duration::from_nanos(reads.max()));
    let reasons = stalls
        .reasons()
        .map_or(String::new(), |reasons| format!("; batches: {reasons}"));
    measured.remark = Some(format!("{}{reasons}", slow.describe()));
    Ok(measured)
}

/// How long reads took, nanoseconds.
fn read(engine: &dyn Engine, load: &Load, start: Instant) -> anyhow::Result<(Histogram<u64>, SlowReads)> {
    let mut times = Histogram::new_with_max(READ_NANOS_MAX, 3).context("a histogram of reads")?;
    let mut random = data::generator(41);
    let mut slow = SlowReads::start();
    engine.on_this_thread(&mut || {
        let mut before = start;
        while before - start < load.time {
            let found = engine.get(&data::key(data::below(&mut random, load.rows)))?;
            ensure!(found == Some(load.value_bytes), "a row of {found:?} bytes");
            let after = Instant::now();
            let took = after - before;
            times.saturating_record(took.as_nanos().try_into().unwrap_or(READ_NANOS_MAX));
            before = if slow.note(took) { Instant::now() } else { after };
        }
        Ok(())
    })?;
    Ok((times, slow))
}

/// Reads that took long, and how much of that the thread had no core.
struct SlowReads {
    cores: Descheduled,
    count: u64,
    /// Of those the ones that had no core for more than half of the time.
    descheduled: u64,
    longest: Duration,
    longest_without_core: Duration,
    /// The longest of those that had a core for most of the time.
    longest_with_core: Duration,
}

impl SlowReads {
    /// Nobody reads a row from memory that long: the reader was descheduled, or waited for something.
    const SLOW: Duration = Duration::from_millis(1);

    fn start() -> Self {
        SlowReads {
            cores: Descheduled::start(),
            count: 0,
            descheduled: 0,
            longest: Duration::ZERO,
            longest_without_core: Duration::ZERO,
            longest_with_core: Duration::ZERO,
        }
    }

    /// Whether that itself took time.
    #[inline]
    fn note(&mut self, took: Duration) -> bool {
        if took < Self::SLOW {
            return self.cores.note_short();
        }
        let without_core = self.cores.note_long();
        self.count += 1;
        if 2 * without_core > took {
            self.descheduled += 1;
        } else {
            self.longest_with_core = self.longest_with_core.max(took);
        }
        if took > self.longest {
            (self.longest, self.longest_without_core) = (took, without_core);
        }
        true
    }

    fn describe(&self) -> String {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "reads above 1 ms: {}, {} of them mostly without a core; the longest, {:.1} ms, had none for about {:.1} ms; the \
             longest that had one: {:.1} ms",
            self.count,
            self.descheduled,
            millis(self.longest),
            millis(self.longest_without_core),
            millis(self.longest_with_core),
        )
    }
}

/// Rows written until it is time to stop, and how long batches took. A writer that fell behind catches up as fast as it can.
fn overwrite(engine: &dyn Engine, load: &Load, stop: &AtomicBool) -> anyhow::Result<(u64, Stalls)> {
    let mut written = 0;
    let mut stalls = Stalls::default();
    let mut random = data::generator(43);
    let mut values = Values::new(load.value_bytes);
    let mut bytes = vec![0; load.value_bytes * BATCH_ROWS as usize];
    engine.on_this_thread(&mut || {
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let due = start + Duration::from_secs_f64(written as f64 / load.rows_per_second as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            for piece in bytes.chunks_mut(load.value_bytes) {
                piece.copy_from_slice(values.next());
            }
            let pieces = bytes.chunks(load.value_bytes);
            let rows: Vec<_> = pieces
                .map(|value| (data::key(data::below(&mut random, load.rows)), value))
                .collect();
            let before = Instant::now();
            engine.put_batch(&rows)?;
            stalls.note(before.elapsed(), engine);
            written += BATCH_ROWS;
        }
        Ok(())
    })?;
    Ok((written, stalls))
}
