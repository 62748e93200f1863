//! Kills the real server with SIGKILL under 64 writers, and reads everything back.
//!
//! `crashload` says which properties it proves. Each round continues with the data of the rounds before, so damage that
//! shows only after a second recovery is found too. SIGKILL loses nothing the operating system already has; power loss
//! is the simulator's business, which drops unsynced writes.

use crate::server::{self, Scratch, Server, Start};
use crate::writers::{Proof, is_proof};
use anyhow::Result;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rounds of every run of the pipeline; `cargo xtask crash` does many.
pub const SMOKE_ROUNDS: u32 = 5;

/// Small, so that flushes and compactions happen between the kills.
const MEMORY_BYTES: &str = "67108864";

/// Whether every round found every acknowledged write.
pub fn run(rounds: u32) -> Result<bool> {
    server::build()?;
    let scratch = Scratch::new("crash")?;
    let proof = Proof::new(scratch.join("state"))?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    println!("crash: {rounds} rounds, seed {seed}");
    let mut delays = Delays(seed);
    let mut acknowledged = 0;
    for round in 1..=rounds {
        let delay = delays.next();
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

/// Delays between 200 ms and 3.2 s: from the first writes to well after the first flush.
struct Delays(u64);

impl Delays {
    fn next(&mut self) -> Duration {
        // A linear congruential step; quality does not matter, repeatability does.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(200 + (self.0 >> 33) % 3_000)
    }
}
