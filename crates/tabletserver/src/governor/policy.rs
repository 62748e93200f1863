//! How a budget is divided: a step from measurements to a new division. Pure: no I/O, no clock.
//!
//! Every pool has a *cost curve*: nanoseconds of work per second that the server would do, by the bytes of the pool.
//!
//! * Caches: accesses that miss, as the profile of the cache predicts for other capacities, times the measured cost of
//!   a miss.
//! * Blocks are read for rows that the row cache lacks, so the cost of blocks depends on the grant of the row cache.
//!   Accesses to blocks on behalf of missed rows grow and shrink with the missed rows. Without that both caches would
//!   retain the same rows, each in order to spare the other one's work. The time that missed rows wait for blocks is a
//!   cost of the blocks, and not counted again as the rows'.
//! * Memtables: every byte written is rewritten once for each size step of runs between a flushed file and the whole
//!   data. So larger flushes save steps. The cost is bytes written × cost of a byte × log4(data / size of a flush).
//!
//! The division with the least sum over all pools is found by trying all of them, in 64ths: curves may have cliffs,
//! which a walk along the slope would not get over. Measurements are smoothed over a few seconds.
//!
//! Divisions do not oscillate. A division must promise to save a part of the present cost, which grows with the
//! distance. To go back on a move just made it must save several times that. Below a tenth of a percent of one core
//! nothing moves at all.
//!
//! Invariants:
//! * The grants sum up to at most the part of the budget that the governor may divide. Memtables that have not shrunk
//!   to their grant yet are counted at their present size. So caches grow into memory that has been freed, not into
//!   memory that will be.
//! * No pool falls below its floor, without which it could not work, or not be measured.

use stele_cache::ProfileCounts;

/// Steps in which memory is divided.
pub(super) const UNITS: u64 = 64;
/// Fewest units: of memtables, or flushes would be too small whenever writes come back; of the block cache, which must hold
/// indexes at least; of the row cache.
const FLOOR_MEMTABLES: u64 = 4;
const FLOOR_BLOCKS: u64 = 4;
const FLOOR_ROWS: u64 = 1;
/// Largest part of the divided memory that memtables get because writers wait, whatever else would make better use of
/// it.
const MEMTABLES_WANTED_MAX: f64 = 0.5;
/// Most units of the row cache: the rest holds indexes, and blocks for readers of many neighbours. Of
/// Zipf-distributed reads over twice the memory the last eighth is worth one miss in ten.
const MOST_ROWS: u64 = UNITS / 8 * 7;
/// Most units one pool changes by in one step, so that a mistake stays small: a full turn takes four seconds.
const UNITS_PER_STEP: u64 = 16;
/// Observations count half after this many seconds: two or three steps decide.
const HALF_LIFE_SECONDS: f64 = 2.0;
/// Saving for which a move is made, as a part of the present cost.
const GAIN_MIN: f64 = 0.02;
/// Required saving of a move of everything, as a part of the present cost.
const GAIN_PER_DISTANCE: f64 = 0.05;
/// Factor on both for a move that takes back the last one.
const REVERSAL: f64 = 3.0;
/// Seconds for which a move counts as just made.
const REVERSAL_SECONDS: f64 = 20.0;
/// Saving, nanoseconds of work per second, below which nothing moves: a thousandth of one core.
const GAIN_NANOS_MIN: f64 = 1e6;
/// Blocks that are asked for when a row is missed: one of an index and one of cells, if it is in one file.
const BLOCKS_PER_ROW: f64 = 2.0;
/// Least part of the time of a missed row that counts as its own, regardless of its wait for blocks.
const OWN_PART_MIN: f64 = 0.25;
/// Cost of rewriting a byte until it has been measured: about 100 MB/s.
const BYTE_NANOS: f64 = 10.0;
/// Cost of a miss until it has been measured.
const MISS_NANOS: f64 = 20_000.0;
/// Files merged into one by a compaction.
const FAN_IN: f64 = 4.0;
/// Resident bytes above the budget at which caches begin to shrink: at most half of the excess that a process may
/// have.
const RESIDENT_SLACK: u64 = 100 << 20;

/// Bytes of each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Of memtables.
    pub memtables: u64,
    /// Of the block cache.
    pub blocks: u64,
    /// Of the row cache.
    pub rows: u64,
}

impl Division {
    pub(super) fn sum(&self) -> u64 {
        self.memtables + self.blocks + self.rows
    }
}

/// Observations of the server so far. Counters only grow.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Bytes that went into memtables.
    pub written_bytes: u64,
    /// Bytes that flushes and compactions wrote.
    pub rewritten_bytes: u64,
    /// How long they took.
    pub rewriting_nanos: u64,
    /// Writes that waited for memory.
    pub delayed_writes: u64,
    /// The block cache's profile.
    pub block_profile: ProfileCounts,
    /// The row cache's profile.
    pub row_profile: ProfileCounts,
    /// Bytes of all files now.
    pub file_bytes: u64,
    /// Tablets with anything in their memtables now.
    pub written_tablets: u64,
    /// Bytes in memtables now, frozen ones and those that readers hold included.
    pub memtable_bytes: u64,
    /// Bytes that memtables have given back, and that are kept for those that fill.
    pub spare_bytes: u64,
    /// Bytes now that are not ours to divide: pinned indexes and filters, queues.
    pub other_bytes: u64,
    /// Resident bytes of the process now, where that is known.
    pub resident_bytes: Option<u64>,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Bytes that every pool may take from now on.
    pub granted: Division,
    /// Where that is going to.
    pub division: Division,
    /// Nanoseconds of work per second that a 64th more would save, and a 64th less would cost; memtables, blocks, rows.
    pub marginal: [(f64, f64); 3],
    /// Whether the division changed.
    pub moved: bool,
    /// Bytes that could be divided.
    pub divisible: u64,
}

/// The constants of a governor.
#[derive(Clone, Debug)]
pub struct GovernorPlan {
    /// The whole budget.
    pub budget: u64,
    /// Capacities the profiles of both caches simulate.
    pub capacities: Vec<usize>,
    /// Bytes of one flush, by bytes granted to memtables and tablets that are written to.
    pub flush_bytes: fn(u64, u64) -> u64,
    /// Whether there is a row cache.
    pub has_rows: bool,
}

/// The governor's memory between steps.
#[derive(Clone, Debug)]
pub struct Governor {
    plan: GovernorPlan,
    division: Division,
    before: Observation,
    /// Whether anything has been observed yet.
    begun: bool,
    written: Rate,
    blocks: Demand,
    rows: Demand,
    byte_nanos: Ratio,
    /// Fewest bytes for memtables because writers had to wait; falls while none does, and fast when nobody writes.
    memtables_wanted: f64,
    /// Bytes subtracted from the divided memory because the process is too large.
    excess: u64,
    /// The last move in units, and seconds since.
    last_move: ([i64; 3], f64),
}

/// A quantity per second, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    sum: f64,
    seconds: f64,
}

/// A quotient of two sums, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    above: f64,
    below: f64,
}

/// The accesses of readers to a cache.
#[derive(Clone, Debug, Default)]
struct Demand {
    accesses: Rate,
    hits: Vec<Rate>,
    /// Of the cache itself, with its grant.
    missed: Rate,
    miss_nanos: Ratio,
}

/// Cost by units.
type Curve = Vec<f64>;

/// The costs of divisions.
struct Costs {
    memtables: Curve,
    /// At the present accesses to blocks.
    blocks: Curve,
    /// Blocks that missed rows wait for left out.
    rows: Curve,
    /// The factor by which accesses to blocks change with the row cache.
    block_accesses: Curve,
}

impl Costs {
    /// Of a division in units; `None` past all of them.
    fn of(&self, [memtables, blocks, rows]: [u64; 3]) -> Option<f64> {
        let at = |curve: &Curve, units: u64| curve.get(units as usize).copied();
        let blocks = at(&self.blocks, blocks)? * at(&self.block_accesses, rows)?;
        Some(at(&self.memtables, memtables)? + blocks + at(&self.rows, rows)?)
    }

    /// The cost that a unit more of each pool saves and a unit less adds.
    fn marginal(&self, division: [u64; 3]) -> [(f64, f64); 3] {
        let here = self.of(division).unwrap_or(0.0);
        [0, 1, 2].map(|pool| {
            let (mut more, mut less) = (division, division);
            more[pool] += 1;
            less[pool] = less[pool].saturating_sub(1);
            (
                self.of(more).map_or(0.0, |cost| here - cost),
                self.of(less).map_or(0.0, |cost| cost - here),
            )
        })
    }
}

impl Governor {
    /// A governor of a server that begins with a division.
    pub fn new(plan: GovernorPlan, begin: Division) -> Self {
        assert!(
            plan.capacities.is_sorted(),
            "hits between simulated capacities are on a line from the smaller to the larger"
        );
        let demand = Demand {
            hits: vec![Rate::default(); plan.capacities.len()],
            ..Demand::default()
        };
        Governor {
            division: begin,
            before: Observation::default(),
            begun: false,
            written: Rate::default(),
            blocks: demand.clone(),
            rows: demand,
            byte_nanos: Ratio::default(),
            memtables_wanted: 0.0,
            excess: 0,
            last_move: ([0; 3], f64::MAX),
            plan,
        }
    }

    /// Takes the observations of `seconds` since the last step, and divides again.
    pub fn step(&mut self, now: Observation, seconds: f64) -> Decision {
        if std::mem::replace(&mut self.begun, true) {
            self.learn(&now, seconds.max(1e-3));
        }
        self.shrink_by(&now);
        let divisible = self.divisible(&now);
        let unit = divisible / UNITS;
        let present = self.units_now(unit);
        let costs = self.costs(unit, &now);
        let target = self.best(&costs, present);
        assert_eq!(
            target.iter().sum::<u64>(),
            UNITS,
            "a division gives every unit to one pool: {target:?}"
        );
        let moved = target != present;
        if moved {
            self.last_move = ([0, 1, 2].map(|i| target[i] as i64 - present[i] as i64), 0.0);
        }
        self.last_move.1 += seconds;
        let [memtables, blocks, rows] = target.map(|units| units * unit);
        self.division = Division {
            memtables,
            blocks,
            rows,
        };
        self.before = now;
        assert!(
            self.division.sum() <= divisible,
            "the shares of the pools sum to at most the divided memory"
        );
        let granted = self.granted(divisible);
        assert!(
            granted.sum() <= divisible,
            "the pools together may take at most the divided memory: {granted:?} of {divisible}"
        );
        Decision {
            granted,
            division: self.division,
            marginal: costs.marginal(target),
            moved,
            divisible,
        }
    }

    fn learn(&mut self, now: &Observation, seconds: f64) {
        let before = &self.before;
        let keep = 0.5f64.powf(seconds / HALF_LIFE_SECONDS);
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.written
            .add(since(now.written_bytes, before.written_bytes), seconds, keep);
        self.byte_nanos.add(
            since(now.rewriting_nanos, before.rewriting_nanos),
            since(now.rewritten_bytes, before.rewritten_bytes),
        );
        self.blocks
            .add(&now.block_profile, &before.block_profile, seconds, keep);
        self.rows.add(&now.row_profile, &before.row_profile, seconds, keep);
        if now.delayed_writes > before.delayed_writes {
            let wanted = self.memtables_wanted.max(self.division.memtables as f64) * 1.25;
            // A part that the floor does not follow would only take its time to be forgotten.
            self.memtables_wanted = wanted.min(self.division.sum() as f64 * MEMTABLES_WANTED_MAX);
        } else {
            let keep: f64 = if now.written_bytes > before.written_bytes {
                0.9
            } else {
                0.4
            };
            self.memtables_wanted *= keep.powf(seconds);
        }
    }

    /// Shrinks the pools by the excess of the process, and gives it back slowly.
    fn shrink_by(&mut self, now: &Observation) {
        let limit = self.plan.budget + RESIDENT_SLACK;
        let above = now.resident_bytes.unwrap_or(0).saturating_sub(limit);
        self.excess = self.excess - self.excess / 64 + above / 2;
        self.excess = self.excess.min(self.plan.budget / 2);
    }

    /// Bytes to divide: without memory that others hold, and a sixteenth for requests in flight; a quarter of the
    /// budget at least, or nothing would work.
    fn divisible(&self, now: &Observation) -> u64 {
        let budget = self.plan.budget;
        let others = now.other_bytes + budget / 16 + self.excess;
        let divisible = budget.saturating_sub(others).max(budget / 4).max(UNITS);
        assert!(
            divisible <= budget.max(UNITS),
            "the divided memory is a part of the budget: {divisible} of {budget}"
        );
        divisible
    }

    /// The present division in units that sum up to all of them.
    fn units_now(&self, unit: u64) -> [u64; 3] {
        let d = self.division;
        let sum = d.sum().max(1);
        let scaled =
            |bytes: u64| ((u128::from(bytes) * u128::from(UNITS) + u128::from(sum) / 2) / u128::from(sum)) as u64;
        let least = self.memtables_floor(unit);
        let rows = if self.plan.has_rows {
            // A server may be set up with hardly anything else.
            scaled(d.rows).clamp(FLOOR_ROWS, UNITS - FLOOR_BLOCKS - least)
        } else {
            0
        };
        let memtables = scaled(d.memtables).clamp(least, UNITS - FLOOR_BLOCKS - rows);
        let blocks = UNITS - rows - memtables;
        assert!(
            blocks >= FLOOR_BLOCKS && memtables >= least,
            "no pool is below its floor: {memtables} units of memtables, {blocks} of blocks"
        );
        [memtables, blocks, rows]
    }

    fn memtables_floor(&self, unit: u64) -> u64 {
        let wanted = (self.memtables_wanted / unit as f64).ceil() as u64;
        let most = (UNITS as f64 * MEMTABLES_WANTED_MAX) as u64;
        wanted.clamp(FLOOR_MEMTABLES, most)
    }

    fn costs(&self, unit: u64, now: &Observation) -> Costs {
        let written = self.written.per_second();
        let byte_nanos = self.byte_nanos.value(BYTE_NANOS);
        let memtables = |bytes: u64| {
            let flush = (self.plan.flush_bytes)(bytes, now.written_tablets.max(1)).max(1) as f64;
            let data = (now.file_bytes as f64 / now.written_tablets.max(1) as f64).max(flush * FAN_IN);
            written * byte_nanos * (data / flush).log(FAN_IN)
        };
        let curve = |cost: &dyn Fn(u64) -> f64| -> Curve { (0..=UNITS).map(|units| cost(units * unit)).collect() };
        let capacities = &self.plan.capacities;
        let blocks = curve(&|bytes| self.blocks.cost(capacities, bytes));
        let missed = curve(&|bytes| self.rows.misses(capacities, bytes));
        // Each missed row that is spared spares this many accesses to blocks. Nothing here depends on the present
        // division, but on all measurements under all divisions: figures of different times contradict each other.
        let missed_seen = self.rows.missed.per_second();
        let of_row = match self.blocks.accesses.per_second() {
            accesses if accesses > 0.0 => (BLOCKS_PER_ROW / accesses).min(1.0 / missed_seen.max(f64::MIN_POSITIVE)),
            _ => 0.0,
        };
        let miss_nanos = self.rows.miss_nanos.value(MISS_NANOS);
        // The time that a missed row waits for blocks.
        let waits = of_row * self.blocks.missed.per_second() * self.blocks.miss_nanos.value(MISS_NANOS);
        let own_nanos = (miss_nanos - waits).max(miss_nanos * OWN_PART_MIN);
        Costs {
            memtables: curve(&memtables),
            blocks,
            block_accesses: missed
                .iter()
                .map(|m| (1.0 + of_row * (m - missed_seen)).max(0.0))
                .collect(),
            rows: missed.iter().map(|m| m * own_nanos).collect(),
        }
    }

    /// The division to be in next: towards the best one, or the present one when that is not worth it. Costs are never negative.
    fn best(&self, costs: &Costs, present: [u64; 3]) -> [u64; 3] {
        let cost = |division: [u64; 3]| costs.of(division).unwrap_or(f64::MAX);
        let now = cost(present);
        if now < GAIN_NANOS_MIN {
            // No move saves more than the present cost. An idle server does not search.
            return present;
        }
        let unit = self.unit_of_floor();
        let least = self.memtables_floor(unit);
        let (rows_least, rows_most) = if self.plan.has_rows {
            (FLOOR_ROWS, MOST_ROWS)
        } else {
            (0, 0)
        };
        let mut best = (now, present);
        for rows in rows_least..=rows_most {
            for memtables in least..=UNITS - FLOOR_BLOCKS - rows {
                let division = [memtables, UNITS - memtables - rows, rows];
                let cost = cost(division) + now * self.reluctance(present, division);
                if cost < best.0 {
                    best = (cost, division);
                }
            }
        }
        let target = best.1;
        let saved = now - cost(target);
        let reverses = self.reverses(present, target);
        let gain_min = GAIN_MIN * if reverses { REVERSAL } else { 1.0 };
        if saved < GAIN_NANOS_MIN || saved < now * gain_min {
            return present;
        }
        limited(present, target)
    }

    /// Bytes of a unit as of the last division.
    fn unit_of_floor(&self) -> u64 {
        (self.division.sum() / UNITS).max(1)
    }

    /// Part of the present cost that a move must save for its distance.
    fn reluctance(&self, present: [u64; 3], to: [u64; 3]) -> f64 {
        let distance: u64 = (0..3).map(|i| present[i].abs_diff(to[i])).sum();
        let factor = if self.reverses(present, to) { REVERSAL } else { 1.0 };
        GAIN_PER_DISTANCE * factor * distance as f64 / (2 * UNITS) as f64
    }

    /// Whether a move takes back the last one, made a short while ago.
    fn reverses(&self, present: [u64; 3], to: [u64; 3]) -> bool {
        let (last, seconds) = &self.last_move;
        let product: i64 = (0..3).map(|i| last[i] * (to[i] as i64 - present[i] as i64)).sum();
        *seconds < REVERSAL_SECONDS && product < 0
    }

    /// Bytes that the pools may take while memtables are larger than their part.
    fn granted(&self, divisible: u64) -> Division {
        let Division {
            memtables,
            blocks,
            rows,
        } = self.division;
        // Memtables grow into spare memory, as far as their grant goes.
        let held = (self.before.memtable_bytes + self.before.spare_bytes).max(memtables);
        let blocks_least = divisible / UNITS * FLOOR_BLOCKS;
        let blocks = blocks.min(divisible.saturating_sub(held + rows)).max(blocks_least);
        Division {
            memtables,
            blocks,
            rows,
        }
    }
}

/// A step of at most [`UNITS_PER_STEP`] units for each pool on the way to a target.
fn limited(present: [u64; 3], target: [u64; 3]) -> [u64; 3] {
    let furthest = (0..3).map(|i| present[i].abs_diff(target[i])).max().unwrap_or(0);
    if furthest <= UNITS_PER_STEP {
        return target;
    }
    let part = |i: usize| {
        let way = target[i] as i64 - present[i] as i64;
        (present[i] as i64 + way * UNITS_PER_STEP as i64 / furthest as i64) as u64
    };
    let (memtables, rows) = (part(0), part(2));
    assert!(memtables + rows <= UNITS, "a step between two divisions is a division");
    [memtables, UNITS - memtables - rows, rows]
}

impl Rate {
    fn add(&mut self, amount: f64, seconds: f64, keep: f64) {
        self.sum = self.sum * keep + amount;
        self.seconds = self.seconds * keep + seconds;
    }

    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.sum / self.seconds
        } else {
            0.0
        }
    }
}

impl Ratio {
    /// Without new measurements it stays as it is, so that a quiet time does not erase them.
    fn add(&mut self, above: f64, below: f64) {
        if below > 0.0 {
            self.above = self.above * 0.9 + above;
            self.below = self.below * 0.9 + below;
        }
    }

    fn value(&self, otherwise: f64) -> f64 {
        if self.below > 0.0 {
            self.above / self.below
        } else {
            otherwise
        }
    }
}

impl Demand {
    fn add(&mut self, now: &ProfileCounts, before: &ProfileCounts, seconds: f64, keep: f64) {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.accesses.add(since(now.accesses, before.accesses), seconds, keep);
        self.missed.add(since(now.missed, before.missed), seconds, keep);
        for (i, rate) in self.hits.iter_mut().enumerate() {
            let of = |counts: &ProfileCounts| counts.hits.get(i).copied().unwrap_or(0);
            rate.add(since(of(now), of(before)), seconds, keep);
        }
        self.miss_nanos.add(
            since(now.timed_nanos, before.timed_nanos),
            since(now.timed, before.timed),
        );
    }

    /// Nanoseconds per second that misses cost at a capacity.
    fn cost(&self, capacities: &[usize], bytes: u64) -> f64 {
        self.misses(capacities, bytes) * self.miss_nanos.value(MISS_NANOS)
    }

    /// Misses per second at a capacity: between simulated capacities on a straight line.
    fn misses(&self, capacities: &[usize], bytes: u64) -> f64 {
        let (mut below, mut hits_below) = (0.0, 0.0f64);
        let bytes = bytes as f64;
        let mut hits = 0.0;
        for (capacity, rate) in capacities.iter().zip(&self.hits) {
            let (capacity, here) = (*capacity as f64, rate.per_second().max(hits_below));
            if bytes <= capacity {
                hits = hits_below + (here - hits_below) * (bytes - below) / (capacity - below).max(1.0);
                break;
            }
            (below, hits_below, hits) = (capacity, here, here);
        }
        (self.accesses.per_second() - hits).max(0.0)
    }
}
