//! Sixty-four writers of Google's client, and the proof that no acknowledged write is lost.

use crate::server::Process;
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};

/// On average, at least. Sixty-four writers do thousands in a second; a server that refuses everything loses nothing.
const ACKNOWLEDGED_PER_ROUND: u64 = 10;

/// The program, and the file that carries acknowledged writes from one round to the next.
pub struct Proof {
    program: PathBuf,
    state: PathBuf,
}

/// Writers at work.
pub struct Writers {
    process: Process,
    output: BufReader<ChildStdout>,
}

impl Proof {
    /// Builds the program; `state` is made by the first round.
    pub fn new(state: PathBuf) -> Result<Proof> {
        Ok(Proof {
            program: tools::go_program("crashload")?,
            state,
        })
    }

    /// Starts writers, which use this address; `None` when they did not begin.
    pub fn write(&self, address: &str, seed: u64) -> Result<Option<Writers>> {
        let mut process = Process::new(
            Run::new(&self.program)
                .args(["write", "-address", address, "-seed", &seed.to_string(), "-state"])
                .args([&self.state])
                .into_command()
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let mut output = BufReader::new(process.child().stdout.take().context("no standard output")?);
        if output.read_line(&mut String::new())? == 0 {
            eprintln!("the writers did not start");
            return Ok(None);
        }
        Ok(Some(Writers { process, output }))
    }

    /// Whether all acknowledged writes are there, and a report.
    pub fn verify(&self, address: &str) -> Result<(bool, String)> {
        let mut report = String::new();
        let passed = Run::new(&self.program)
            .args(["verify", "-address", address, "-state"])
            .args([&self.state])
            .lines(|line| report.push_str(line))?;
        Ok((passed, report))
    }
}

impl Writers {
    /// Stops them: the number of acknowledged writes, or `None` when they failed. Requests in flight stay unanswered.
    pub fn stop(mut self) -> Result<Option<u64>> {
        drop(self.process.child().stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        let status = self.process.child().wait().context("waiting for the writers")?;
        if !status.success() {
            eprintln!("the writers failed: {status}");
            return Ok(None);
        }
        acknowledged_in(&said).map(Some)
    }
}

/// Whether there was anything to lose: nothing is missing where nothing was acknowledged. Tells of it if not.
pub fn is_proof(acknowledged: u64, rounds: u32) -> bool {
    let is_proof = acknowledged >= u64::from(rounds) * ACKNOWLEDGED_PER_ROUND;
    if !is_proof {
        eprintln!("{acknowledged} writes were acknowledged in {rounds} rounds, which proves nothing");
    }
    is_proof
}

/// The number of acknowledged writes in the last line of the output of the writers.
fn acknowledged_in(said: &str) -> Result<u64> {
    let line = said.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line:?}"))?;
    let acknowledged = value.get("acknowledged").and_then(Value::as_u64);
    acknowledged.context("the writers do not say what was acknowledged")
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
