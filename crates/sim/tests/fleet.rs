//! Servers that share a bucket lose nothing over moves and failures.
//!
//! A master that breaks its promises is found out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use stele_sim::fleet::{FleetBug, FleetPlan, FleetVerdict, run};

/// Seeds of the everyday lane; `stele-sim fleet` runs more.
const SEEDS: u64 = 12;
/// Seeds in which each bug must be found at least once.
const SEEDS_PER_BUG: u64 = 40;

fn plan(seed: u64, bug: Option<FleetBug>) -> FleetPlan {
    FleetPlan {
        seed,
        bug,
        prints: false,
    }
}

#[test]
fn a_fleet_repeats_its_history() {
    let first = run(plan(3, None));
    assert_eq!(first, run(plan(3, None)));
}

#[test]
fn no_acknowledged_write_is_lost_over_moves_and_failures() {
    let mut sum = FleetVerdict::default();
    for seed in 0..SEEDS {
        let verdict = run(plan(seed, None));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        sum.acknowledged += verdict.acknowledged;
        sum.deletions += verdict.deletions;
        sum.scans += verdict.scans;
        sum.moves += verdict.moves;
        sum.failovers += verdict.failovers;
        sum.zombies += verdict.zombies;
        sum.zombie_writes += verdict.zombie_writes;
        sum.swept += verdict.swept;
        sum.logs_deleted += verdict.logs_deleted;
    }
    assert!(sum.acknowledged > 100 * SEEDS, "{sum:?}");
    assert!(
        sum.moves > SEEDS && sum.failovers > SEEDS && sum.zombies > SEEDS / 2,
        "{sum:?}"
    );
    assert!(sum.deletions > 20 * SEEDS && sum.scans > 20 * SEEDS, "{sum:?}");
    assert!(sum.zombie_writes > 10 * SEEDS, "{sum:?}");
    assert!(sum.swept > SEEDS && sum.logs_deleted > SEEDS, "{sum:?}");
}

#[test]
fn a_master_that_breaks_a_promise_is_found_out() {
    for (name, bug) in FleetBug::ALL {
        // An assertion of the server counts as well.
        let is_found = |seed| {
            let run = AssertUnwindSafe(|| run(plan(seed, Some(bug))).violations.is_empty());
            !catch_unwind(run).unwrap_or(false)
        };
        assert!((0..SEEDS_PER_BUG).any(is_found), "{name} went unnoticed");
    }
}
