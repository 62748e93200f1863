//! Random histories of tablets, checked against the model.
//!
//! A history is a list of steps over a table of one or more tablets: writes, flushes, compactions, divisions, dropped
//! ranges, restarts, reads. Every read is checked, and at the end everything is read in several ways. The storage has
//! either all in memory or nothing, so that both the synchronous and the waiting half of each cursor run. In some
//! histories it temporarily cannot read all files.
//!
//! `PROPTEST_CASES` sets the number of histories per test.

pub mod history;
mod table;

use history::{Setup, Steps, setup, setup_of_small_files, steps, steps_with_outages};
use proptest::prelude::*;
use stele_sim::runtime::Sim;
use stele_types::DeleteRule;
use table::Table;

fn run(seed: u64, setup: Setup, steps: Steps) -> Result<(), TestCaseError> {
    let sim = Sim::new(seed, 2_000_000);
    let env = sim.process().env();
    let outcome = sim.run(async move {
        let mut table = Table::create(env, setup).await?;
        for step in &steps.0 {
            table.step(step).await.map_err(|why| format!("at {step:?}: {why}"))?;
        }
        table.check_everything().await
    });
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(TestCaseError::fail(why)),
        Err(stalled) => Err(TestCaseError::fail(stalled.to_string())),
    }
}

/// Histories per test: enough to find planted bugs in a few seconds.
fn config() -> ProptestConfig {
    config_of(96)
}

fn config_of(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(cases);
    ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn deletes_by_sequence(seed in any::<u64>(), setup in setup(DeleteRule::BySequence), steps in steps(60)) {
        run(seed, setup, steps)?;
    }

    #[test]
    fn deletes_by_timestamp(seed in any::<u64>(), setup in setup(DeleteRule::ByTimestamp), steps in steps(60)) {
        run(seed, setup, steps)?;
    }

    #[test]
    fn long_histories(seed in any::<u64>(), setup in setup(DeleteRule::BySequence), steps in steps(400)) {
        run(seed, setup, steps)?;
    }
}

proptest! {
    // Every other of them has cut files side by side that cannot be opened.
    #![proptest_config(config_of(32))]

    #[test]
    fn outages(seed in any::<u64>(), setup in setup_of_small_files(), steps in steps_with_outages(40)) {
        run(seed, setup, steps)?;
    }
}
