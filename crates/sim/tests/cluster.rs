//! A cluster that leads itself survives faults, and the checkers notice planted bugs.

use stele_sim::fleet::cluster::{ClusterPlan, Copies, run};
use stele_sim::fleet::isolated::{self, Cut};
use stele_sim::fleet::{clocks, leaders, rules};

/// Seeds of the everyday lane; `stele-sim cluster` runs more.
const SEEDS: u64 = 12;
/// Seeds with backups.
const SEEDS_WITH_BACKUPS: u64 = 4;
/// Seeds in which each bug must be found at least once.
#[cfg(feature = "planted-bugs")]
const SEEDS_PER_BUG: u64 = 100;

fn plan(seed: u64) -> ClusterPlan {
    ClusterPlan {
        seed,
        planted: None,
        prints: false,
        copies: Copies::Snapshots,
        on_hdfs: false,
    }
}

#[test]
fn no_acknowledged_write_is_lost_in_a_cluster() {
    let (mut acknowledged, mut failures, mut undeleted, mut tablets_min) = (0, 0, 0, usize::MAX);
    let (mut deletions, mut scans) = (0, 0);
    for seed in 0..SEEDS {
        let verdict = run(plan(seed));
        tablets_min = verdict.tablets.min(tablets_min);
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        acknowledged += verdict.acknowledged;
        failures += verdict.failovers + verdict.zombies;
        undeleted += verdict.undeleted;
        deletions += verdict.deletions;
        scans += verdict.scans;
    }
    assert!(
        deletions > 20 * SEEDS && scans > 20 * SEEDS,
        "{deletions} deletions, {scans} scans"
    );
    assert!(undeleted > SEEDS / 2, "{undeleted} deletions of tables were undone");
    assert!(acknowledged > 100 * SEEDS, "{acknowledged} writes were acknowledged");
    assert!(failures > SEEDS, "{failures} servers failed");
    // A table begins with eleven; two for each server that lives stay.
    assert!(
        (2..11).contains(&tablets_min),
        "of small tablets {tablets_min} are left"
    );
}

#[test]
fn no_acknowledged_write_is_lost_in_a_cluster_on_hdfs() {
    let (mut acknowledged, mut failures) = (0, 0);
    for seed in 0..SEEDS {
        let verdict = run(ClusterPlan {
            on_hdfs: true,
            ..plan(seed)
        });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        acknowledged += verdict.acknowledged;
        failures += verdict.failovers + verdict.zombies;
    }
    assert!(acknowledged > 100 * SEEDS, "{acknowledged} writes were acknowledged");
    assert!(failures > SEEDS, "{failures} servers failed");
}

#[test]
fn rules_are_obeyed_by_every_server_or_known_to_be_unknown() {
    let (mut changes, mut cut_off) = (0, 0);
    for seed in 0..SEEDS {
        let verdict = rules::run(seed, false);
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        changes += verdict.acknowledged;
        cut_off += verdict.zombies;
    }
    assert!(
        changes >= 10 * SEEDS && cut_off > SEEDS,
        "{changes} changes, {cut_off} servers cut off"
    );
}

#[test]
fn a_former_leader_does_not_answer_from_an_old_catalog() {
    for seed in 0..SEEDS {
        let verdict = leaders::run(seed, false);
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        assert_eq!((verdict.acknowledged, verdict.failovers), (4, 4), "seed {seed}");
    }
}

#[test]
fn of_two_writes_without_timestamps_the_second_is_newer_whichever_server_has_the_tablet() {
    let (mut moves, mut failovers) = (0, 0);
    for seed in 0..SEEDS {
        let verdict = clocks::run(seed, false);
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        moves += verdict.moves;
        failovers += verdict.failovers;
    }
    assert!(
        moves > 5 * SEEDS && failovers > SEEDS,
        "{moves} moves, {failovers} failovers"
    );
}

/// Seeds of each direction in which a leader is cut off.
const SEEDS_PER_CUT: u64 = 2;

#[test]
fn a_leader_that_does_not_reach_the_others_stops_no_failover() {
    for cut in [Cut::From, Cut::To, Cut::Both] {
        for seed in 0..SEEDS_PER_CUT {
            let verdict = isolated::run(seed, cut, None, false);
            assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}, {cut:?}");
            assert_eq!(verdict.failovers, 1, "seed {seed}, {cut:?}");
            assert!(
                verdict.acknowledged > 0,
                "no row is written through others: seed {seed}, {cut:?}"
            );
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_leader_that_leads_alone_is_found_out() {
    for cut in [Cut::From, Cut::To, Cut::Both] {
        let verdict = isolated::run(0, cut, Some(stele_env::PlantedBug::LeadAlone), false);
        assert!(!verdict.violations.is_empty(), "{cut:?}");
    }
}

/// Leaders end in the middle of backups and restores.
#[test]
fn backups_of_a_cluster_have_all_rows_whichever_server_fails() {
    let (mut copies, mut failures) = (0, 0);
    for seed in 0..SEEDS_WITH_BACKUPS {
        let verdict = run(ClusterPlan {
            copies: Copies::Backups,
            ..plan(seed)
        });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        copies += verdict.copies;
        failures += verdict.failovers + verdict.zombies;
    }
    assert!(
        copies > 2 * SEEDS_WITH_BACKUPS,
        "{copies} restored tables were compared"
    );
    assert!(failures > SEEDS_WITH_BACKUPS, "{failures} servers failed");
}

#[test]
fn a_cluster_repeats_its_history() {
    assert_eq!(run(plan(3)), run(plan(3)));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs_of_clusters_are_found_out() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use stele_env::PlantedBug;
    for (name, bug) in PlantedBug::OF_CLUSTERS {
        // A history takes a second, and some bugs show in few: it begins with the first one that did.
        let first = match bug {
            PlantedBug::SkipLease => 5,
            PlantedBug::SealNothing => 5,
            PlantedBug::LeaveStreamsOut => 55,
            PlantedBug::SealFirst => 58,
            _ => 0,
        };
        // An assertion of a server counts as well.
        let is_found = |seed| {
            let planted = Some(bug);
            let run = AssertUnwindSafe(|| run(ClusterPlan { planted, ..plan(seed) }).violations.is_empty());
            !catch_unwind(run).unwrap_or(false)
        };
        assert!((first..first + SEEDS_PER_BUG).any(is_found), "{name} went unnoticed");
    }
}

/// Clocks of servers differ, servers fail, and tablets move, are split and merged between a backup and the moment.
#[test]
fn moments_of_a_cluster_can_be_restored_whichever_server_fails() {
    let (mut moments, mut failures) = (0, 0);
    for seed in 0..SEEDS_WITH_BACKUPS {
        let verdict = run(ClusterPlan {
            copies: Copies::Archive,
            ..plan(seed)
        });
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        moments += verdict.moments;
        failures += verdict.failovers + verdict.zombies;
    }
    assert!(
        moments > SEEDS_WITH_BACKUPS,
        "{moments} tables at a moment were compared"
    );
    assert!(failures > SEEDS_WITH_BACKUPS, "{failures} servers failed");
}
