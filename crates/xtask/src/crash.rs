//! Kills the real server with SIGKILL under 64 writers, and reads everything back.
//!
//! `crashload` says which properties it proves. Each round continues with the data of the rounds before, so damage that
//! shows only after a second recovery is found too. SIGKILL loses nothing the operating system already has; power loss
//! is the simulator's business, which drops unsynced writes.

use crate::server::{self, Process, Scratch, Server, Start};
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rounds of every run of the pipeline; `cargo xtask crash` does many.
pub const SMOKE_ROUNDS: u32 = 5;

/// On average, at least. Sixty-four writers do thousands in a second; a server that refuses everything loses nothing.
const ACKNOWLEDGED_PER_ROUND: u64 = 10;

/// Small, so that flushes and compactions happen between the kills.
const MEMORY_BYTES: &str = "67108864";

/// Whether every round found every acknowledged write.
pub fn run(rounds: u32) -> Result<bool> {
    server::build()?;
    let crashload = tools::go_program("crashload")?;
    let scratch = Scratch::new("crash")?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    println!("crash: {rounds} rounds, seed {seed}");
    let mut delays = Delays(seed);
    let mut acknowledged = 0;
    for round in 1..=rounds {
        let delay = delays.next();
        match one_round(round, delay, &crashload, &scratch, seed + u64::from(round))? {
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

/// Whether there was anything to lose: nothing is missing where nothing was acknowledged. Tells of it if not.
pub fn is_proof(acknowledged: u64, rounds: u32) -> bool {
    let is_proof = acknowledged >= u64::from(rounds) * ACKNOWLEDGED_PER_ROUND;
    if !is_proof {
        eprintln!("{acknowledged} writes were acknowledged in {rounds} rounds, which proves nothing");
    }
    is_proof
}

/// The writes acknowledged in this round, or `None` when something was wrong.
fn one_round(round: u32, delay: Duration, crashload: &Path, scratch: &Scratch, seed: u64) -> Result<Option<u64>> {
    let (data, log, state) = (scratch.join("data"), scratch.join("server.log"), scratch.join("state"));
    let start = Start {
        data: &data,
        log: &log,
        arguments: &["--memory", MEMORY_BYTES],
    };
    let mut server = Server::start(&start)?;
    let seed = seed.to_string();
    let mut writer = Process::new(
        Run::new(crashload)
            .args(["write", "-address", server.address(), "-seed", &seed, "-state"])
            .args([&state])
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let mut output = BufReader::new(writer.child().stdout.take().context("no standard output")?);
    if output.read_line(&mut String::new())? == 0 {
        eprintln!("round {round}: the writers did not start");
        return Ok(None);
    }
    std::thread::sleep(delay);
    if let Some(status) = server.process().ended()? {
        eprintln!("round {round}: the server ended by itself: {status}");
        return Ok(None);
    }
    server.process().kill()?;
    // End of input tells the writers to stop; requests in flight stay unanswered.
    drop(writer.child().stdin.take());
    let mut said = String::new();
    output.read_to_string(&mut said)?;
    let status = writer.child().wait().context("waiting for the writers")?;
    if !status.success() {
        eprintln!("round {round}: the writers failed: {status}");
        return Ok(None);
    }
    let acknowledged = acknowledged_in(&said)?;
    let restart = Instant::now();
    let server = Server::start(&start)?;
    let recovery = restart.elapsed();
    let mut report = String::new();
    let passed = Run::new(crashload)
        .args(["verify", "-address", server.address(), "-state"])
        .args([&state])
        .lines(|line| report.push_str(line))?;
    println!(
        "round {round}: {acknowledged} acknowledged, killed after {} ms, ready again in {} ms, {report}",
        delay.as_millis(),
        recovery.as_millis()
    );
    Ok(passed.then_some(acknowledged))
}

/// The number of acknowledged writes in the last line of the output of the writers.
pub fn acknowledged_in(said: &str) -> Result<u64> {
    let line = said.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line:?}"))?;
    let acknowledged = value.get("acknowledged").and_then(Value::as_u64);
    acknowledged.context("the writers do not say what was acknowledged")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_without_acknowledged_writes_prove_nothing() {
        assert_eq!(acknowledged_in("{\"acknowledged\":17}\n").unwrap(), 17);
        assert!(acknowledged_in("").is_err() && acknowledged_in("{\"known\":3}").is_err());
        assert!(!is_proof(0, 5) && !is_proof(49, 5) && is_proof(50, 5));
    }
}
