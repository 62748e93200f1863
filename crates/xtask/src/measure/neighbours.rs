//! Requests of another process while a phase is measured.
//!
//! Its program takes the time that servers and the measured client leave: it runs at a lower priority. So its own work with the
//! rows that it reads is not in the measured latencies, and only the server's share of it is.

use super::Beside;
use super::load::expect_line;
use super::party::Party;
use crate::server::Process;
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

/// The niceness of the program: it gets a tenth of a core that others want.
const NICE: &str = "10";

/// The program at work. Dropping it ends it.
pub struct Neighbours {
    _process: Process,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Neighbours {
    /// Starts the program. Its requests have begun when this returns.
    pub fn start(beside: Beside, connections: Option<u32>, party: &Party) -> Result<Neighbours> {
        let program = tools::go_program("measure")?;
        let connections = connections.unwrap_or(1).to_string();
        let mut child = Run::new("nice")
            .args(["-n", NICE])
            .args([&program])
            .args(["neighbours", "-address", party.address(), "-beside", beside.name()])
            .args(["-connections", &connections])
            .args(party.credentials())
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the neighbours")?;
        let input = child.stdin.take().context("no standard input")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?);
        let process = Process::new(child);
        expect_line(&mut lines, "ready")?;
        Ok(Neighbours {
            _process: process,
            input,
            lines,
        })
    }

    /// Ends the requests; the rounds of each kind.
    pub fn stop(mut self) -> Result<Value> {
        writeln!(self.input, "stop")?;
        self.input.flush()?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the neighbours printed {line:?}"))
    }
}
