//! Kills the real server with SIGKILL under 64 writers, and reads everything back.
//!
//! `crashload` says which properties it proves. Each round continues with the data of the rounds before, so damage that
//! shows only after a second recovery is found too. SIGKILL loses nothing the operating system already has; power loss
//! is the simulator's business, which drops unsynced writes.

use crate::choices::{self, Choices};
use crate::server::{self, Scratch, Server, Start};
use crate::writers::{Proof, is_proof};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Rounds of every run of the pipeline; `cargo xtask crash` does many.
pub const SMOKE_ROUNDS: u32 = 5;

/// Small, so that flushes and compactions happen between the kills.
const MEMORY_BYTES: &str = "67108864";

/// Whether every round found every acknowledged write.
pub fn run(rounds: u32) -> Result<bool> {
    server::build()?;
    let scratch = Scratch::new("crash")?;
    let proof = Proof::new(scratch.join("state"))?;
    let seed = choices::seed(None)?;
    println!("crash: {rounds} rounds, seed {seed}");
    let mut choices = Choices(seed);
    let mut acknowledged = 0;
    for round in 1..=rounds {
        // From the first writes to well after the first flush.
        let delay = Duration::from_millis(200 + choices.below(3_000) as u64);
        match one_round(round, delay, &proof, &scratch, seed + u64::from(round))? {
            Some(more) => acknowledged += more,
            None => return Ok(false),
        }
    }
    if !is_proof(acknowledged, rounds) {
        return Ok(false);
    }
    scratch.passed();
    Ok(true)
}

/// The writes acknowledged in this round, or `None` when something was wrong.
fn one_round(round: u32, delay: Duration, proof: &Proof, scratch: &Scratch, seed: u64) -> Result<Option<u64>> {
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let start = Start {
        data: &data,
        log: &log,
        arguments: &["--memory", MEMORY_BYTES],
    };
    let mut server = Server::start(&start)?;
    let Some(writers) = proof.write(server.address(), seed)? else {
        return Ok(None);
    };
    std::thread::sleep(delay);
    if let Some(status) = server.process().ended()? {
        eprintln!("round {round}: the server ended by itself: {status}");
        return Ok(None);
    }
    server.process().kill()?;
    let Some(acknowledged) = writers.stop()? else {
        return Ok(None);
    };
    let restart = Instant::now();
    let server = Server::start(&start)?;
    let recovery = restart.elapsed();
    let (passed, report) = proof.verify(server.address())?;
    println!(
        "round {round}: {acknowledged} acknowledged, killed after {} ms, ready again in {} ms, {report}",
        delay.as_millis(),
        recovery.as_millis()
    );
    Ok(passed.then_some(acknowledged))
}
