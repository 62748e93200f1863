//! Archives of a log under power losses and kills, and when they are slow.

use std::time::Duration;
use stele_sim::archived::bounds::{self, BoundPlan, WAITING_BYTES_MAX};
use stele_sim::archived::{ArchivePlan, run};

fn plan(seed: u64) -> ArchivePlan {
    ArchivePlan {
        seed,
        planted: None,
        prints: false,
    }
}

#[test]
fn an_archive_has_one_trace_for_a_seed() {
    for seed in 0..2 {
        assert_eq!(run(plan(seed)), run(plan(seed)), "seed {seed}");
    }
}

#[test]
fn moments_have_what_was_acknowledged_by_then() {
    let (mut acknowledged, mut lives, mut restored, mut refused) = (0, 0, 0, 0);
    for seed in 0..15 {
        let verdict = run(plan(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        (acknowledged, lives) = (acknowledged + verdict.acknowledged, lives + verdict.lives);
        (restored, refused) = (restored + verdict.restored, refused + verdict.refused);
    }
    assert!(acknowledged > 500 && lives > 40, "{acknowledged} writes, {lives} lives");
    assert!(
        restored > 20 && restored > refused,
        "{restored} moments restored, {refused} refused"
    );
}

/// Each write is acknowledged, and the log that is kept is bounded, also where no request to the archive ever ends.
#[test]
fn an_archive_that_hangs_keeps_log_up_to_the_bound() {
    let plan = BoundPlan {
        seed: 1,
        takes: Duration::from_secs(1_000_000),
        writes: 700,
        every: Duration::from_secs(3),
    };
    let found = bounds::run(plan).unwrap();
    assert!(found.ranges > 1, "{found:?}");
    assert!(found.waiting_bytes < WAITING_BYTES_MAX + 30_000, "{found:?}");
}

/// A round that goes on and never ends. A file that is on its way is waited for, and one more for the end of the range: 140 kB are
/// written meanwhile. All writes together are 700 kB.
#[test]
fn an_archive_that_is_too_slow_keeps_log_up_to_the_bound() {
    let plan = BoundPlan {
        seed: 2,
        takes: Duration::from_secs(20),
        writes: 2_000,
        every: Duration::from_millis(100),
    };
    let found = bounds::run(plan).unwrap();
    assert!(found.ranges > 1, "{found:?}");
    assert!(found.waiting_bytes < WAITING_BYTES_MAX + 140_000, "{found:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs_of_archives_are_found() {
    for (name, bug) in stele_env::PlantedBug::OF_ARCHIVES {
        let planted = Some(bug);
        let found = (0..100).any(|seed| !run(ArchivePlan { planted, ..plan(seed) }).violations.is_empty());
        assert!(found, "{name} went unnoticed");
    }
}
