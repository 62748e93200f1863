//! The governor runs against every fixed division, on a load that changes. It uses real caches, a small model of tiered
//! compaction, and costs that are made up.

use super::policy::*;
use std::sync::Arc;
use std::time::Duration;
use stele_cache::{Admission, BlockCache, BlockKey, CacheKey, Profile, ProfileCounts, ProfilePlan, S3Fifo};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 256 * MIB;
/// Data of four times the budget, in blocks of 64 KiB with sixteen rows each.
const BLOCKS: u64 = 16 << 10;
const BLOCK_BYTES: usize = 64 << 10;
const ROWS_PER_BLOCK: u64 = 16;
const ROW_BYTES: usize = 4 << 10;
/// Costs in nanoseconds.
const BLOCK_MISS: f64 = 60_000.0;
const ROW_MISS: f64 = 4_000.0;
const BYTE: f64 = 5.0;

/// The load of the server in one second.
#[derive(Clone, Copy)]
struct Load {
    written_bytes: u64,
    /// Rows read, few of them again and again.
    skewed_reads: u64,
    /// Blocks scanned, all over the data.
    scanned_blocks: u64,
    /// Blocks scanned in a part of the data that fits three quarters of the budget.
    rescanned_blocks: u64,
}

const SECONDS: usize = 28;
const PHASES: [Load; 3] = [
    Load {
        written_bytes: 60 * MIB,
        skewed_reads: 100,
        scanned_blocks: 0,
        rescanned_blocks: 0,
    },
    Load {
        written_bytes: MIB,
        skewed_reads: 3_000,
        scanned_blocks: 0,
        rescanned_blocks: 0,
    },
    Load {
        written_bytes: MIB,
        skewed_reads: 200,
        scanned_blocks: 800,
        rescanned_blocks: 2_500,
    },
];
const REPEATED_BLOCKS: u64 = 2_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowKey(u64);

impl CacheKey for RowKey {
    fn hash64(self) -> u64 {
        BlockKey {
            file: 2,
            offset: self.0,
        }
        .hash64()
    }
}

/// A server as far as memory matters to it.
struct World {
    /// Blocks of its data.
    data: u64,
    granted: Division,
    blocks: BlockCache<()>,
    rows: S3Fifo<RowKey, ()>,
    row_profile: Profile,
    clock: Arc<parking_lot::Mutex<Duration>>,
    state: u64,
    scan_at: u64,
    rescan_at: u64,
    memtable: u64,
    seen: Observation,
}

fn plan() -> ProfilePlan {
    ProfilePlan {
        sample_shift: 3,
        ..ProfilePlan::for_budget(BUDGET as usize, BLOCK_BYTES)
    }
}

impl World {
    fn new(granted: Division, data: u64) -> Self {
        let clock = Arc::new(parking_lot::Mutex::new(Duration::from_secs(1)));
        let blocks = BlockCache::with_shards(granted.blocks as usize, 1);
        let reads = clock.clone();
        blocks.start_profile(&plan(), Arc::new(move || *reads.lock()));
        World {
            data,
            granted,
            blocks,
            rows: S3Fifo::new(granted.rows as usize, Admission::Returning),
            row_profile: Profile::new(&plan(), Admission::Returning),
            clock,
            state: 1,
            scan_at: 0,
            rescan_at: 0,
            memtable: 0,
            seen: Observation {
                file_bytes: data * BLOCK_BYTES as u64,
                written_tablets: 1,
                ..Observation::default()
            },
        }
    }

    fn grant(&mut self, granted: Division) {
        self.granted = granted;
        self.blocks.set_capacity(granted.blocks as usize);
        self.rows.set_share(granted.rows as usize);
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        RowKey(self.state).hash64()
    }

    /// One second under a load; its cost in nanoseconds.
    fn second(&mut self, load: Load) -> f64 {
        let mut cost = self.write(load.written_bytes);
        for _ in 0..load.skewed_reads {
            cost += self.read_row();
        }
        for _ in 0..load.scanned_blocks {
            self.scan_at += 1;
            cost += self.read_block(self.scan_at % self.data);
        }
        for _ in 0..load.rescanned_blocks {
            self.rescan_at += 1;
            cost += self.read_block(self.rescan_at % REPEATED_BLOCKS);
        }
        self.seen.block_profile = self.blocks.profile().unwrap_or_default();
        self.seen.row_profile = self.row_profile.counts();
        self.seen.memtable_bytes = self.memtable;
        cost
    }

    /// Zipf-like: the logarithm of the rank is evenly distributed. Hot rows lie anywhere.
    fn read_row(&mut self) -> f64 {
        let rows = self.data * ROWS_PER_BLOCK;
        let uniform = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = (rows as f64).powf(uniform) as u64;
        let row = RowKey(rank.wrapping_mul(0x9e37_79b1) % rows);
        let hash = row.hash64();
        if self.rows.get(row).is_some() {
            if self.row_profile.samples(hash) {
                self.row_profile.accessed(hash, ROW_BYTES);
            }
            return 0.0;
        }
        self.row_profile.missed(hash, *self.clock.lock());
        let cost = ROW_MISS + self.read_block(row.0 / ROWS_PER_BLOCK);
        self.pass(ROW_MISS);
        if self.row_profile.samples(hash) {
            self.row_profile.loaded(hash, ROW_BYTES, *self.clock.lock());
        }
        if self.rows.admits(row, ROW_BYTES) {
            self.rows.insert(row, (), ROW_BYTES);
        }
        cost
    }

    fn read_block(&mut self, block: u64) -> f64 {
        let key = BlockKey { file: 1, offset: block };
        if self.blocks.get(&key).is_some() {
            return 0.0;
        }
        self.pass(BLOCK_MISS);
        self.blocks.insert(key, (), BLOCK_BYTES);
        BLOCK_MISS
    }

    fn pass(&self, nanos: f64) {
        *self.clock.lock() += Duration::from_nanos(nanos as u64);
    }

    /// Flushes at the size that the grant gives. Four files of one size become one of the next, up to the size of the
    /// data. Every byte pays its part of that immediately. Otherwise the figures of some seconds would depend on the
    /// moment of measurement.
    fn write(&mut self, bytes: u64) -> f64 {
        let data = (self.data * BLOCK_BYTES as u64) as f64;
        self.seen.written_bytes += bytes;
        let flush = crate::options::flush_bytes(self.granted.memtables, 1);
        self.memtable = flush / 2;
        let (mut times, mut size) = (1.0, flush as f64);
        while size < data {
            // The last tier is complete only now and then.
            times += ((data - size) / (3.0 * size)).min(1.0);
            size *= 4.0;
        }
        let rewritten = bytes as f64 * times;
        self.seen.rewritten_bytes += rewritten as u64;
        let cost = rewritten * BYTE;
        self.seen.rewriting_nanos += cost as u64;
        cost
    }
}

fn governor(begin: Division) -> Governor {
    let plan = GovernorPlan {
        budget: BUDGET,
        capacities: plan().capacities,
        flush_bytes: crate::options::flush_bytes,
        has_rows: true,
    };
    Governor::new(plan, begin)
}

/// The result of a fixed division of the same bytes, given in 64ths of the divided budget.
fn fixed(memtables: u64, rows: u64) -> Division {
    let unit = (BUDGET - BUDGET / 16) / 64;
    Division {
        memtables: memtables * unit,
        blocks: (64 - memtables - rows) * unit,
        rows: rows * unit,
    }
}

/// Cost of every second, and the moves made in it.
fn run(begin: Division, governor: Option<Governor>) -> (Vec<f64>, Vec<bool>) {
    run_phases(&PHASES, BLOCKS, begin, governor)
}

/// The same of other loads and data.
fn run_phases(phases: &[Load], data: u64, begin: Division, mut governor: Option<Governor>) -> (Vec<f64>, Vec<bool>) {
    let mut world = World::new(begin, data);
    let (mut costs, mut moves) = (Vec::new(), Vec::new());
    for &load in phases {
        for _ in 0..SECONDS {
            costs.push(world.second(load));
            let decision = governor.as_mut().map(|g| g.step(world.seen.clone(), 1.0));
            moves.push(decision.as_ref().is_some_and(|d| d.moved));
            if let Some(decision) = decision {
                let Division {
                    memtables,
                    blocks,
                    rows,
                } = decision.granted;
                assert!(memtables + blocks + rows <= BUDGET, "granted {:?}", decision.granted);
                world.grant(decision.granted);
            }
        }
    }
    (costs, moves)
}

/// Mean cost of the last quarter of a phase, where everything has settled.
fn settled(costs: &[f64], phase: usize) -> f64 {
    let end = (phase + 1) * SECONDS;
    costs[end - SECONDS / 4..end].iter().sum::<f64>() / (SECONDS / 4) as f64
}

#[test]
fn it_comes_close_to_the_best_division_of_every_phase_and_beats_each_one_overall() {
    let divisions = [
        (4, 1),
        (4, 8),
        (4, 16),
        (8, 3),
        (16, 4),
        (16, 16),
        (26, 4),
        (32, 16),
        (48, 4),
        (56, 2),
        (58, 1),
    ];
    let begin = fixed(26, 4);
    let (costs, moves) = run(begin, Some(governor(begin)));
    let total: f64 = costs.iter().sum();
    let fixed: Vec<(Division, Vec<f64>)> = divisions
        .iter()
        .map(|&(m, r)| (fixed(m, r), run(fixed(m, r), None).0))
        .collect();
    for (division, theirs) in &fixed {
        let theirs: f64 = theirs.iter().sum();
        println!("{division:?}: {:.2} of its cost", total / theirs);
    }
    for phase in 0..PHASES.len() {
        let best = fixed
            .iter()
            .map(|(_, costs)| settled(costs, phase))
            .fold(f64::MAX, f64::min);
        let ours = settled(&costs, phase);
        println!("phase {phase}: {:.3} of the best fixed division's cost", ours / best);
    }
    for (division, theirs) in &fixed {
        assert!(total < theirs.iter().sum(), "{division:?} is better overall");
    }
    for phase in 0..PHASES.len() {
        let best = fixed
            .iter()
            .map(|(_, costs)| settled(costs, phase))
            .fold(f64::MAX, f64::min);
        assert!(settled(&costs, phase) < 1.1 * best, "phase {phase}");
    }
    for (phase, moves) in moves.chunks(SECONDS).enumerate() {
        let late = moves[SECONDS / 2..].iter().filter(|moved| **moved).count();
        assert!(late <= 2, "phase {phase}: {late} moves after it had settled");
    }
}

/// Skewed reads of data that fits the memory once, but not as blocks and as rows. Where both caches keep the same rows, each
/// of them is worth little as long as the other one stays as it is.
#[test]
fn skewed_reads_get_the_rows_that_spare_blocks() {
    let reads = Load {
        written_bytes: 0,
        skewed_reads: 5_000,
        scanned_blocks: 0,
        rescanned_blocks: 0,
    };
    let unit = BUDGET / 64;
    for data in [40 * unit, 60 * unit] {
        let blocks = data / BLOCK_BYTES as u64;
        let settled_cost = |begin, governor| settled(&run_phases(&[reads], blocks, begin, governor).0, 0);
        let rows = [1, 16, 32, 48];
        let best = rows
            .into_iter()
            .map(|rows| settled_cost(fixed(4, rows), None))
            .fold(f64::MAX, f64::min);
        for begin in [fixed(26, 4), fixed(4, 1)] {
            let ours = settled_cost(begin, Some(governor(begin)));
            println!(
                "{} MiB of data: {:.3} of the best fixed division's cost",
                data / MIB,
                ours / best
            );
            assert!(
                ours < 1.15 * best,
                "{} MiB of data, from {begin:?}: {:.3}",
                data / MIB,
                ours / best
            );
        }
    }
}

/// Reads that would like more of the block cache than there is.
fn wanting_blocks(seconds: u64) -> Observation {
    let capacities = plan().capacities.len() as u64;
    Observation {
        block_profile: ProfileCounts {
            accesses: 10_000 * seconds,
            hits: (1..=capacities).map(|i| 1_000 * i * seconds).collect(),
            timed: seconds,
            timed_nanos: 50_000 * seconds,
            missed: 5_000 * seconds,
        },
        ..Observation::default()
    }
}

#[test]
fn it_starts_from_any_division() {
    for bytes in [
        [0, 0, 0],
        [BUDGET, 0, 0],
        [0, BUDGET, 0],
        [0, 0, BUDGET],
        [1, 0, u64::MAX / 2],
    ] {
        let [memtables, blocks, rows] = bytes;
        let mut governor = governor(Division {
            memtables,
            blocks,
            rows,
        });
        let Division {
            memtables,
            blocks,
            rows,
        } = governor.step(Observation::default(), 1.0).granted;
        assert!(memtables > 0 && blocks > 0 && rows > 0, "{bytes:?}");
        assert!(memtables + blocks + rows <= BUDGET, "{bytes:?}");
    }
}

#[test]
fn an_idle_server_moves_nothing() {
    let mut governor = governor(fixed(26, 4));
    for _ in 0..20 {
        assert!(!governor.step(Observation::default(), 1.0).moved);
    }
}

#[test]
fn caches_grow_only_into_memory_that_was_freed() {
    let mut governor = governor(fixed(52, 4));
    for second in 0..10 {
        let seen = Observation {
            memtable_bytes: 190 * MIB,
            other_bytes: 20 * MIB,
            ..wanting_blocks(second)
        };
        let decision = governor.step(seen, 1.0);
        let granted = decision.granted;
        let sum = 190 * MIB + 20 * MIB + granted.blocks + granted.rows;
        assert!(sum <= BUDGET, "{decision:?}");
    }
    let freed = governor.step(wanting_blocks(10), 1.0).granted;
    assert!(freed.memtables < 32 * MIB && freed.blocks > 190 * MIB, "{freed:?}");
}

#[test]
fn what_memtables_have_spare_is_not_given_to_caches() {
    let mut governor = governor(fixed(52, 4));
    for second in 0..10 {
        let seen = Observation {
            memtable_bytes: 150 * MIB,
            spare_bytes: 37 * MIB,
            other_bytes: 20 * MIB,
            ..wanting_blocks(second)
        };
        let decision = governor.step(seen, 1.0);
        let granted = decision.granted;
        let sum = (150 + 37 + 20) * MIB + granted.blocks + granted.rows;
        assert!(sum <= BUDGET, "{decision:?}");
    }
}

#[test]
fn a_process_that_is_too_large_gives_way() {
    let mut governor = governor(fixed(26, 4));
    let before = governor.step(Observation::default(), 1.0).divisible;
    let mut after = 0;
    for _ in 0..5 {
        let seen = Observation {
            resident_bytes: Some(BUDGET + 140 * MIB),
            ..Observation::default()
        };
        after = governor.step(seen, 1.0).divisible;
    }
    assert!(after < before - 80 * MIB, "{after} of {before}");
    for _ in 0..300 {
        after = governor.step(Observation::default(), 1.0).divisible;
    }
    assert!(after > before - 2 * MIB, "{after} of {before}");
}

/// Memtables return the memory granted for slowed writers as soon after a long delay, such as a bulk load, as after a
/// short one.
#[test]
fn memtables_that_writers_waited_for_long_are_given_up_as_soon() {
    for stalled_for in [60, 3_600] {
        let mut stalled = governor(fixed(26, 4));
        let mut seen = Observation::default();
        for second in 1..stalled_for {
            seen.delayed_writes = second;
            seen.written_bytes = 10 * MIB * second;
            stalled.step(seen.clone(), 1.0);
        }
        // Nothing is written any more, or a trickle.
        for (trickle, seconds_max) in [(0, 10), (1, 60)] {
            let mut governor = stalled.clone();
            let reading = |second| Observation {
                delayed_writes: seen.delayed_writes,
                written_bytes: seen.written_bytes + trickle * second,
                ..wanting_blocks(second)
            };
            let mut seconds = 1..=seconds_max;
            let given_up = seconds.find(|second| governor.step(reading(*second), 1.0).granted.memtables < 40 * MIB);
            assert!(given_up.is_some(), "after {stalled_for} s, trickle {trickle}");
        }
    }
}

#[test]
fn memtables_that_writers_waited_for_are_given_up_soon_after() {
    let mut governor = governor(fixed(26, 4));
    let mut seen = Observation::default();
    for second in 1..10 {
        seen.delayed_writes = second;
        seen.written_bytes = 10 * MIB * second;
        governor.step(seen.clone(), 1.0);
    }
    let stalled = governor.step(seen.clone(), 1.0).granted.memtables;
    assert!(stalled > 100 * MIB, "{stalled}");
    let mut after = stalled;
    for second in 1..8 {
        let reading = Observation {
            delayed_writes: seen.delayed_writes,
            written_bytes: seen.written_bytes,
            ..wanting_blocks(second)
        };
        after = governor.step(reading, 1.0).granted.memtables;
    }
    assert!(after < 40 * MIB, "{after}");
}
