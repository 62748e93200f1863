//! Runs one phase by a client's load program, and reads CPU times around it.
//!
//! The program prints `ready` after its warm-up and waits for a line. Then it measures, and prints `done` as soon
//! as the last operation has ended, and a line of JSON.

use super::neighbours::Neighbours;
use super::party::Party;
use super::{Arguments, Beside, Phase};
use crate::server::Process;
use crate::shell::{Run, root};
use crate::tools;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Servers are quiet when they have used less than this share of a core for [`QUIET_TIME`].
const QUIET_SHARE: f64 = 0.05;

/// Pauses between flushes and compactions are shorter.
const QUIET_TIME: Duration = Duration::from_secs(2);

/// Longest wait for that. Afterwards the server is measured all the same, and the result says so.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often CPU time is looked at while waiting. It is counted in hundredths of a second.
const QUIET_STEP: Duration = Duration::from_millis(200);

/// Rows of the table of large values: 100 MB.
pub const LARGE_ROWS: u32 = 200;

/// Bytes of a large value.
pub const LARGE_BYTES: u32 = 512_000;

/// More readers of large values would measure the memory of the machine.
const LARGE_CALLERS_MAX: u32 = 16;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    Go,
    Python,
    Java,
}

impl Client {
    pub fn name(self) -> &'static str {
        match self {
            Client::Go => "go",
            Client::Python => "python",
            Client::Java => "java",
        }
    }

    /// Callers of Python share one interpreter; more of them only wait for each other.
    fn callers(self) -> u32 {
        match self {
            Client::Go | Client::Java => 64,
            Client::Python => 8,
        }
    }
}

/// The load program of a client, ready to run.
pub struct Load {
    pub client: Client,
    command: Vec<OsString>,
    callers: u32,
    rows: u32,
    options: Vec<String>,
    /// Requests of another process, and its connections.
    apart: Option<(Beside, Option<u32>)>,
}

impl Load {
    /// Builds or installs the program.
    pub fn new(client: Client, arguments: &Arguments) -> Result<Load> {
        let command = match client {
            Client::Go => vec![tools::go_program("measure")?.into()],
            Client::Python => {
                let script = root().join("tests/clients/python/measure.py");
                vec![tools::python()?.into(), "-B".into(), script.into()]
            }
            Client::Java => {
                let jars = tools::java_load()?.join("*");
                vec!["java".into(), "-cp".into(), jars.into(), "Measure".into()]
            }
        };
        let mut options = vec!["-seconds".to_owned(), arguments.seconds.to_string()];
        if client == Client::Go {
            if let Some(connections) = arguments.connections {
                options.extend(["-connections".to_owned(), connections.to_string()]);
            }
            if let Some(rate) = arguments.rate {
                options.extend(["-rate".to_owned(), rate.to_string()]);
            }
            if let Some(beside) = arguments.beside.filter(|_| !arguments.apart) {
                options.extend(["-beside".to_owned(), beside.name().to_owned()]);
            }
        }
        Ok(Load {
            client,
            command,
            callers: arguments.callers.unwrap_or(client.callers()),
            rows: arguments.rows,
            options,
            apart: arguments
                .beside
                .filter(|_| arguments.apart)
                .map(|beside| (beside, arguments.connections)),
        })
    }

    /// The program's report, with the CPU time that server and client took for its operations.
    ///
    /// All parties must be quiet before, because they share the machine.
    pub fn run(&self, phase: Phase, party: &Party, all: &[Party]) -> Result<Value> {
        let mut client = self.start(phase, party)?;
        let output = client.child().stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(output);
        expect_line(&mut lines, "ready")?;
        let settled = settle(|| all.iter().map(Party::cpu_seconds).sum())?;
        let neighbours = self
            .apart
            .map(|(beside, connections)| Neighbours::start(beside, connections, party));
        let neighbours = neighbours.transpose()?;
        let groups_before = party.log_groups()?;
        let (server_before, client_before) = (party.cpu_seconds()?, client.cpu_seconds()?);
        let mut input = client.child().stdin.take().context("no standard input")?;
        writeln!(input, "go")?;
        input.flush()?;
        expect_line(&mut lines, "done")?;
        let (server, own) = (
            party.cpu_seconds()? - server_before,
            client.cpu_seconds()? - client_before,
        );
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let rounds = neighbours.map(Neighbours::stop).transpose()?;
        let mut report: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line:?}"))?;
        let number = |name: &str| report.get(name).and_then(Value::as_f64);
        let operations = number("operations").context("no operations")?;
        let seconds = number("seconds").context("no seconds")?;
        let fields = report.as_object_mut().context("no object")?;
        fields.insert("server_cpu_seconds".into(), json!(server));
        fields.insert("server_cpus".into(), json!(server / seconds));
        fields.insert("client_cpus".into(), json!(own / seconds));
        fields.insert("per_server_cpu_second".into(), json!(operations / server));
        fields.insert("settled".into(), json!(settled));
        if let Some((before, now)) = groups_before.zip(party.log_groups()?) {
            fields.insert("log_groups".into(), json!(now - before));
        }
        if let Some(rounds) = rounds {
            fields.insert("neighbours".into(), rounds);
        }
        Ok(report)
    }

    fn start(&self, phase: Phase, party: &Party) -> Result<Process> {
        let (operation, table, rows, bytes, callers) = match phase {
            Phase::Large => (
                "read",
                "large",
                LARGE_ROWS,
                LARGE_BYTES,
                self.callers.min(LARGE_CALLERS_MAX),
            ),
            Phase::Increment => ("increment", "counters", self.rows, 1000, self.callers),
            _ => (phase.name(), "measure", self.rows, 1000, self.callers),
        };
        let (program, first) = self.command.split_first().context("no program")?;
        let child = Run::new(program)
            .args(first)
            .args([operation, "-address", party.address(), "-table", table])
            .args(["-rows", &rows.to_string(), "-value-bytes", &bytes.to_string()])
            .args(["-callers", &callers.to_string()])
            .args(&self.options)
            .args(party.credentials())
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the load of {}", self.client.name()))?;
        Ok(Process::new(child))
    }
}

/// Reads a line, which must be this one.
pub fn expect_line(lines: &mut BufReader<ChildStdout>, wanted: &str) -> Result<()> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    if line.trim_end() != wanted {
        bail!("the load program printed {line:?} instead of {wanted:?}");
    }
    Ok(())
}

/// Waits until CPU time stands still; whether it did in time.
fn settle(cpu: impl Fn() -> Result<f64>) -> Result<bool> {
    let start = Instant::now();
    let mut watch = Quiet::default();
    loop {
        let now = start.elapsed();
        if watch.sample(now, cpu()?) {
            return Ok(true);
        }
        if now >= QUIET_WAIT_MAX {
            return Ok(false);
        }
        std::thread::sleep(QUIET_STEP);
    }
}

/// Decides from samples of CPU time whether processes have been quiet for long enough.
#[derive(Default)]
struct Quiet {
    /// Time and CPU seconds since which they may have been quiet.
    since: Option<(Duration, f64)>,
}

impl Quiet {
    /// Takes the CPU seconds used until now.
    fn sample(&mut self, now: Duration, cpu_seconds: f64) -> bool {
        let (since, cpu_then) = *self.since.get_or_insert((now, cpu_seconds));
        if cpu_seconds - cpu_then >= QUIET_SHARE * QUIET_TIME.as_secs_f64() {
            self.since = Some((now, cpu_seconds));
            return false;
        }
        now.saturating_sub(since) >= QUIET_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet_at(samples: &[(u64, f64)]) -> Option<u64> {
        let mut watch = Quiet::default();
        let mut samples = samples.iter();
        let found = samples.find(|(ms, cpu)| watch.sample(Duration::from_millis(*ms), *cpu));
        found.map(|(ms, _)| *ms)
    }

    #[test]
    fn a_server_is_quiet_after_two_seconds_without_work() {
        assert_eq!(quiet_at(&[(0, 5.0), (1000, 5.0), (1999, 5.0), (2000, 5.0)]), Some(2000));
        // A twentieth of a core is work.
        assert_eq!(quiet_at(&[(0, 5.0), (1000, 5.06), (2000, 5.12)]), None);
        assert_eq!(quiet_at(&[(0, 5.0), (1000, 5.04), (2000, 5.09)]), Some(2000));
        // After work the two seconds begin again.
        assert_eq!(quiet_at(&[(0, 5.0), (1000, 6.0), (2000, 6.0), (3000, 6.0)]), Some(3000));
    }
}
