//! Samples of operations: the heat of tablets and of ranges of rows.
//!
//! Terms: an *operation* is a row read or written. A *sample* is one operation that stands for all of its thread since the
//! sample before; its *weight* is their number. So weights add up to the operations, and only their places are an estimate.
//!
//! An operation costs a subtraction in a variable of its thread. At most [`SAMPLES_PER_TICK`] of them a second take the
//! lock of the buffer, under any load: the distance of samples grows with each thousand, and is chosen again at
//! every tick. It varies at random, or a client that writes in a cycle would always be met at the same place.
//!
//! Nothing is sampled until the first tick. A console ticks about once a second ([`Heat::tick`]); that
//! moves the samples into the [`map`], and into the rates of tablets.
//!
//! Invariant: the buffer and the map never hold more than the pool has reserved for them.

pub mod map;

use map::{HeatMap, Operations};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use stele_memory::{Part, Pool};
use stele_types::{TableId, TabletId};

/// Samples of a tick at about which their distance is aimed.
const SAMPLES_PER_TICK: u32 = 1_024;
/// Samples that the buffer takes: when it is full, samples are 256 times as far apart as when it was empty.
const SAMPLES_MAX: usize = 4 * SAMPLES_PER_TICK as usize;
/// Bytes of a row key that are kept: rows that differ only behind them are shown as one.
const KEY_BYTES_MAX: usize = 64;
/// Mean operations between two samples at most, and before the first tick: a thread notices that tick after as many.
const DISTANCE_MAX: u32 = 4_096;

/// Whether a row was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

thread_local! {
    static NEXT: Next = const { Next { left: Cell::new(1), drawn: Cell::new(1), random: Cell::new(0x9e37_79b9) } };
}

/// When the thread takes its next sample.
struct Next {
    /// Operations until then; never 0.
    left: Cell<u32>,
    /// Operations from the last sample to the next.
    drawn: Cell<u32>,
    random: Cell<u32>,
}

impl Next {
    /// Counts operations if no sample is among them; else nothing, and the caller counts them one by one.
    #[inline]
    fn count(&self, operations: u32) -> bool {
        let left = self.left.get();
        debug_assert!(left > 0, "a thread is always on its way to a sample");
        if left > operations {
            self.left.set(left - operations);
            return false;
        }
        true
    }

    /// Draws the next distance at a sample, which [`Next::count`] of one operation has found, and returns its weight.
    fn draw(&self, distance: u32) -> u32 {
        assert_eq!(self.left.get(), 1, "a sample is the last operation of its distance");
        let weight = self.drawn.get();
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        let drawn = 1 + random % (2 * distance.max(1) - 1);
        self.left.set(drawn);
        self.drawn.set(drawn);
        debug_assert!(drawn > 0 && weight > 0, "a sample stands for itself at least");
        weight
    }
}

/// The heat of one server.
pub struct Heat {
    /// Mean distance of samples.
    distance: AtomicU32,
    /// Whether somebody ticks.
    on: AtomicBool,
    samples: Mutex<Samples>,
    map: Mutex<HeatMap>,
}

/// Samples since the last tick.
#[derive(Default)]
struct Samples {
    taken: Vec<Sample>,
    keys: Vec<u8>,
    /// Operations of all of them.
    weight: u64,
}

struct Sample {
    tablet: TabletId,
    kind: Kind,
    weight: u32,
    key_end: usize,
}

/// Operations on one tablet.
#[derive(Debug, Default)]
pub struct Traffic {
    reads: Rate,
    writes: Rate,
}

/// Operations of one kind: their number, and how many there are in a second.
#[derive(Debug, Default)]
struct Rate {
    count: AtomicU64,
    since_tick: AtomicU64,
    /// Bits of a float.
    per_second: AtomicU32,
}

impl Rate {
    fn add(&self, weight: u64) {
        if weight == 0 {
            return;
        }
        self.count.fetch_add(weight, Ordering::Relaxed);
        self.since_tick.fetch_add(weight, Ordering::Relaxed);
    }

    /// The mean of some seconds, in which the last ones count most.
    fn tick(&self, seconds: f32) {
        const MEMORY_SECONDS: f32 = 8.0;
        let before = f32::from_bits(self.per_second.load(Ordering::Relaxed));
        let since = self.since_tick.swap(0, Ordering::Relaxed);
        if since == 0 && before == 0.0 {
            return;
        }
        let part = (seconds / MEMORY_SECONDS).clamp(0.0, 1.0);
        let now = before + part * (since as f32 / seconds.max(0.001) - before);
        debug_assert!(now >= 0.0, "the mean of numbers that are not negative");
        let now = if now < 0.005 { 0.0 } else { now };
        self.per_second.store(now.to_bits(), Ordering::Relaxed);
    }

    fn per_second(&self) -> f32 {
        f32::from_bits(self.per_second.load(Ordering::Relaxed))
    }
}

/// The tablets of a server, as far as heat concerns them.
pub(crate) trait Places {
    /// Counts operations on a tablet; its table, if it is served.
    fn add_traffic(&self, tablet: TabletId, operations: Operations) -> Option<TableId>;

    /// Visits all tablets that are served.
    fn each_traffic(&self, visit: &mut dyn FnMut(&Traffic));
}

impl Traffic {
    /// Counts operations.
    pub(crate) fn add(&self, operations: Operations) {
        self.reads.add(operations.reads);
        self.writes.add(operations.writes);
    }

    fn tick(&self, since: Duration) {
        self.reads.tick(since.as_secs_f32());
        self.writes.tick(since.as_secs_f32());
    }

    /// Reads and writes of rows since the tablet was opened, as far as there were ticks.
    pub fn counts(&self) -> (u64, u64) {
        let count = |rate: &Rate| rate.count.load(Ordering::Relaxed);
        (count(&self.reads), count(&self.writes))
    }

    /// Reads and writes of rows in a second.
    pub fn per_second(&self) -> (f32, f32) {
        (self.reads.per_second(), self.writes.per_second())
    }

    /// Reads and writes in a second together.
    pub(crate) fn requests_per_second(&self) -> u64 {
        let (reads, writes) = self.per_second();
        debug_assert!(reads >= 0.0 && writes >= 0.0, "rates of counters are not negative");
        (reads + writes) as u64
    }
}

impl Heat {
    /// Nothing yet.
    pub(crate) fn new(pool: &Pool) -> Self {
        Heat {
            distance: AtomicU32::new(DISTANCE_MAX),
            on: Default::default(),
            samples: Mutex::default(),
            map: Mutex::new(HeatMap::new(pool.of(Part::Heat).empty(), pool.of(Part::Heat).limit())),
        }
    }

    /// Whether operations are counted: not before the first tick.
    pub(crate) fn is_counting(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts an operation on a row.
    #[inline]
    pub(crate) fn note(&self, kind: Kind, tablet: TabletId, row: &[u8]) {
        if NEXT.with(|next| next.count(1)) {
            self.sample(kind, tablet, row);
        }
    }

    /// Counts operations on `count` rows. Most batches have no sample, and their rows are not visited.
    #[inline]
    pub(crate) fn note_all<'a>(
        &self,
        kind: Kind,
        tablet: TabletId,
        count: usize,
        rows: impl FnOnce() -> Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    ) {
        let operations = u32::try_from(count).unwrap_or(u32::MAX);
        if !NEXT.with(|next| next.count(operations)) {
            return;
        }
        rows().for_each(|row| self.note(kind, tablet, row));
    }

    #[cold]
    fn sample(&self, kind: Kind, tablet: TabletId, row: &[u8]) {
        let distance = self.distance.load(Ordering::Relaxed);
        let weight = NEXT.with(|next| next.draw(distance));
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let samples = &mut *self.samples.lock();
        samples.weight += u64::from(weight);
        if samples.taken.len() >= SAMPLES_MAX {
            // Sums stay exact; of places there are enough.
            if let Some(last) = samples.taken.last_mut() {
                last.weight = last.weight.saturating_add(weight);
            }
            return;
        }
        let key = row.get(..KEY_BYTES_MAX).unwrap_or(row);
        samples.keys.extend_from_slice(key);
        samples.taken.push(Sample {
            tablet,
            kind,
            weight,
            key_end: samples.keys.len(),
        });
        debug_assert!(samples.taken.len() <= SAMPLES_MAX, "the buffer is bounded");
        if samples.taken.len().is_multiple_of(SAMPLES_PER_TICK as usize) {
            self.distance.store((distance * 4).min(DISTANCE_MAX), Ordering::Relaxed);
        }
    }

    /// Moves the samples since the last tick to the map and to the rates of tablets. `since` is the time since then.
    pub(crate) fn tick(&self, tablets: &impl Places, wall_seconds: i64, since: Duration) {
        let samples = std::mem::take(&mut *self.samples.lock());
        let per_tick = samples.weight / u64::from(SAMPLES_PER_TICK);
        let distance = u32::try_from(per_tick).unwrap_or(DISTANCE_MAX).clamp(1, DISTANCE_MAX);
        assert!(distance > 0, "samples are one operation apart at least");
        self.distance.store(distance, Ordering::Relaxed);
        let mut map = self.map.lock();
        map.advance(wall_seconds);
        let mut start = 0;
        for sample in &samples.taken {
            let key = samples.keys.get(start..sample.key_end).unwrap_or_default();
            start = sample.key_end;
            let (weight, mut operations) = (u64::from(sample.weight), Operations::default());
            match sample.kind {
                Kind::Read => operations.reads = weight,
                Kind::Write => operations.writes = weight,
            }
            // One that was split or dropped meanwhile is forgotten.
            if let Some(table) = tablets.add_traffic(sample.tablet, operations) {
                map.add(table, key, operations);
            }
        }
        debug_assert_eq!(start, samples.keys.len(), "every key is of a sample");
        drop(map);
        tablets.each_traffic(&mut |traffic| traffic.tick(since));
        self.on.store(true, Ordering::Relaxed);
    }

    /// Calls `look` with the map. `look` must not take long: ticks wait for it.
    pub fn with_map<R>(&self, look: impl FnOnce(&HeatMap) -> R) -> R {
        look(&self.map.lock())
    }
}

impl std::fmt::Debug for Heat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heat")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next() -> Next {
        Next {
            left: Cell::new(1),
            drawn: Cell::new(1),
            random: Cell::new(7),
        }
    }

    #[test]
    fn weights_add_up_to_the_operations() {
        let next = next();
        let (mut operations, mut weights, mut samples) = (0u64, 0u64, 0u64);
        for _ in 0..200_000u32 {
            operations += 1;
            if next.count(1) {
                weights += u64::from(next.draw(64));
                samples += 1;
            }
        }
        assert!(operations - weights < 128, "{operations} {weights}");
        let mean = operations / samples;
        assert!((60..72).contains(&mean), "{mean}");
    }

    #[test]
    fn at_distance_one_every_operation_is_a_sample() {
        let next = next();
        for _ in 0..100 {
            assert!(next.count(1));
            assert_eq!(next.draw(1), 1);
        }
    }

    /// A client that writes in a cycle as long as the distance is met at every place of it.
    #[test]
    fn cycles_are_met_everywhere() {
        let (next, mut met) = (next(), [0u64; 64]);
        for step in 0..200_000usize {
            if next.count(1) {
                met[step % 64] += u64::from(next.draw(64));
            }
        }
        let (least, most) = (met.iter().min().unwrap(), met.iter().max().unwrap());
        assert!(*least > 1_000 && *most < 8_000, "{met:?}");
    }

    #[test]
    fn rates_rise_and_fall() {
        let rate = Rate::default();
        for _ in 0..60 {
            rate.add(500);
            rate.tick(1.0);
        }
        assert!((rate.per_second() - 500.0).abs() < 5.0, "{}", rate.per_second());
        (0..200).for_each(|_| rate.tick(1.0));
        assert_eq!(rate.per_second(), 0.0);
    }

    #[test]
    fn a_flood_is_sampled_in_bounds() {
        let heat = Heat::new(&Pool::default());
        heat.on.store(true, Ordering::Relaxed);
        heat.distance.store(1, Ordering::Relaxed);
        for n in 0..3_000_000u32 {
            heat.note(Kind::Write, TabletId(1), &n.to_be_bytes());
        }
        let samples = heat.samples.lock();
        assert!(samples.taken.len() <= SAMPLES_MAX);
        assert!(
            samples.weight + 2 * u64::from(DISTANCE_MAX) > 3_000_000,
            "{}",
            samples.weight
        );
    }
}
