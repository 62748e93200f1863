//! The simulation itself: it repeats, it passes, and it finds planted bugs.

#[cfg(feature = "planted-bugs")]
use stele_sim::simulation::seeds_for;
use stele_sim::simulation::{Plan, run, run_encrypted, run_on_hdfs};

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        planted: None,
        prints: false,
    }
}

#[test]
fn a_seed_gives_one_trace() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in 0..5 {
        let first = run(plan(seed));
        assert_eq!(first, run(plan(seed)), "seed {seed}");
        traces.insert(first.trace);
    }
    assert_eq!(traces.len(), 5);
}

#[test]
fn some_seeds_pass() {
    let (mut acknowledged, mut lives, mut replaced) = (0, 0, 0);
    let (mut before, mut after, mut beside) = (0, 0, 0);
    for seed in 0..60 {
        // Rare bugs may need some more seeds.
        if seed >= 20 && before > 0 && after > 0 {
            break;
        }
        let verdict = run(plan(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        (acknowledged, lives) = (acknowledged + verdict.acknowledged, lives + verdict.lives);
        beside += verdict.concurrent_compactions;
        replaced += verdict.replaced;
        (before, after) = (before + verdict.puts_cut.0, after + verdict.puts_cut.1);
    }
    // Otherwise no run has interrupted the creation of a manifest.
    assert!(
        before > 0 && after > 0,
        "{before} puts cut before their effect, {after} after"
    );
    assert!(
        beside > 10,
        "{beside} compactions were begun beside others of their tablet"
    );
    assert!(replaced > 10, "{replaced} servers were replaced while they ran");
    // One seed may do little: a full disk refuses a lot.
    assert!(
        acknowledged > 2_000 && lives > 100,
        "{acknowledged} writes, {lives} lives"
    );
}

/// Power failures cut headers off and tear them, and interrupt the creation of keys.
#[test]
fn some_seeds_pass_on_an_encrypted_disk() {
    let (mut acknowledged, mut lives) = (0, 0);
    for seed in 0..12 {
        let verdict = run_encrypted(plan(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        (acknowledged, lives) = (acknowledged + verdict.acknowledged, lives + verdict.lives);
    }
    assert!(
        acknowledged > 1_000 && lives > 50,
        "{acknowledged} writes, {lives} lives"
    );
}

/// Servers that are killed and replaced, and DataNodes that lose power.
#[test]
fn some_seeds_pass_on_hdfs() {
    let (mut acknowledged, mut lives, mut replaced) = (0, 0, 0);
    for seed in 0..12 {
        let verdict = run_on_hdfs(plan(seed));
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {seed}");
        (acknowledged, lives) = (acknowledged + verdict.acknowledged, lives + verdict.lives);
        replaced += verdict.replaced;
    }
    assert!(
        acknowledged > 1_000 && lives > 100 && replaced > 20,
        "{acknowledged} writes, {lives} lives, {replaced} replaced"
    );
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found_on_hdfs() {
    use stele_env::PlantedBug;
    for (name, bug) in PlantedBug::OF_HDFS {
        let found = (0..100).any(|seed| {
            let planted = Some(bug);
            !run_on_hdfs(Plan { planted, ..plan(seed) }).violations.is_empty()
        });
        assert!(found, "{name} went unnoticed");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    use stele_env::PlantedBug;
    for (name, bug) in PlantedBug::ALL {
        // Some bugs show in few histories: it begins with the first one that did.
        let first = match bug {
            PlantedBug::StaleRow => 159,
            PlantedBug::SkipSeal => 172,
            PlantedBug::TakeForOwn => 45,
            _ => 0,
        };
        // Of a bug that is only on buckets, the seeds that have one: one in eight.
        let seeds = seeds_for(bug).skip_while(|seed| *seed < first);
        let found = seeds.take(200).any(|seed| {
            !run(Plan {
                planted: Some(bug),
                ..plan(seed)
            })
            .violations
            .is_empty()
        });
        assert!(found, "{name} went unnoticed");
    }
}
