//! Rows that clients write and read through all servers, as linearizable registers.
//!
//! `tests/clients/go/cmd/registers` has the rules.

use crate::server::{self, Process};
use crate::shell::Run;
use crate::tools;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// The table of the clients.
pub const TABLE: &str = "registers/registers";

/// A clone opens its tablets on all nodes of a cluster.
const RESTORE_WAIT: Duration = Duration::from_secs(90);

/// The program at work; it ends when dropped.
pub struct Registers {
    _process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Observations between two moments.
pub struct Window {
    pub requests: u64,
    /// Requests that the client gave up, with their codes.
    pub errors: String,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// The longest time for which a row was not written and read: of the median row, and of the worst.
    pub pause_p50_ms: f64,
    pub pause_max_ms: f64,
    /// Answers that no linearizable register gives, since the start.
    pub violations: Vec<String>,
}

impl Registers {
    /// Makes the table and starts writers and readers.
    pub fn start(addresses: &[&str], options: &[&str]) -> Result<Registers> {
        let program = tools::tools_dir()?.join("registers");
        let addresses = addresses.join(",");
        Registers::by(Run::new(program).args(["-addresses", &addresses]).args(options))
    }

    /// The same by another program with its commands.
    pub fn by(program: Run) -> Result<Registers> {
        let mut command = program.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::new(command.spawn().context("starting the registers")?);
        let input = process.child().stdin.take().context("no standard input")?;
        let output = BufReader::new(process.child().stdout.take().context("no standard output")?);
        let mut registers = Registers {
            _process: process,
            input,
            output,
        };
        registers.answer()?;
        Ok(registers)
    }

    /// Sends the requests that begin from now on to these addresses.
    pub fn use_only(&mut self, addresses: &[&str]) -> Result<()> {
        self.ask(&format!("use {}", addresses.join(","))).map(drop)
    }

    /// Ends the requests that run on this address, whose server is dead; they are tried on another one.
    pub fn give_up(&mut self, address: &str) -> Result<()> {
        self.ask(&format!("give up {address}")).map(drop)
    }

    /// Writes as many MiB of other rows, evenly over all tablets.
    pub fn fill(&mut self, mebibytes: u64) -> Result<()> {
        self.ask(&format!("fill {mebibytes}")).map(drop)
    }

    /// Begins to observe.
    pub fn begin(&mut self) -> Result<()> {
        self.ask("begin").map(drop)
    }

    /// The observations since the beginning.
    pub fn end(&mut self) -> Result<Window> {
        let answer = self.ask("end")?;
        let number = |name: &str| {
            answer
                .get(name)
                .and_then(Value::as_f64)
                .with_context(|| format!("no {name}"))
        };
        let errors = answer.get("errors").and_then(Value::as_object).context("no errors")?;
        let errors: Vec<String> = errors.iter().map(|(code, count)| format!("{count} × {code}")).collect();
        Ok(Window {
            requests: number("requests")? as u64,
            errors: errors.join(", "),
            p99_ms: number("p99_ms")?,
            p999_ms: number("p999_ms")?,
            max_ms: number("max_ms")?,
            pause_p50_ms: number("pause_p50_ms")?,
            pause_max_ms: number("pause_max_ms")?,
            violations: violations(&answer)?,
        })
    }

    /// Compares the rows of a table with those of a moment in microseconds: how many it has, and those that are wrong. Of registers that were
    /// started with `-history`.
    pub fn moment(&mut self, table: &str, at: i64) -> Result<(u64, Vec<String>)> {
        let answer = self.ask(&format!("moment {table} {at}"))?;
        rows_of(&answer)
    }

    /// Restores a snapshot of the table, compares its rows with those of any moment between two, and deletes both. With `is_whole`
    /// it must be one moment for all rows. The time of the restore, and whether the rows are right.
    pub fn is_exact(
        &mut self,
        address: &str,
        name: &str,
        (from, to): (i64, i64),
        is_whole: bool,
    ) -> Result<(Duration, bool)> {
        let (snapshot, clone) = (format!("registers/{name}"), format!("clone-{name}"));
        let table = format!("registers/{clone}");
        let command = |words: &[&str]| server::command(address, RESTORE_WAIT, words);
        let start = Instant::now();
        command(&["snapshot", "restore", &snapshot, &table])?;
        let took = start.elapsed();
        let whole = if is_whole { " whole" } else { "" };
        let (rows, violations) = rows_of(&self.ask(&format!("between {clone} {from} {to}{whole}"))?)?;
        command(&["drop-table", &table])?;
        command(&["snapshot", "delete", &snapshot])?;
        Ok((took, are_none(&violations) && rows > 0))
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        writeln!(self.input, "{line}").context("the program of the registers has ended")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program of the registers has ended");
        }
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line:?}"))
    }
}

/// How many rows a table has, and those that are wrong.
fn rows_of(answer: &Value) -> Result<(u64, Vec<String>)> {
    let rows = answer.get("rows").and_then(Value::as_u64).context("no rows")?;
    Ok((rows, violations(answer)?))
}

fn violations(answer: &Value) -> Result<Vec<String>> {
    let violations = answer.get("violations").and_then(Value::as_array);
    let violations = violations.context("no violations")?;
    Ok(violations.iter().map(Value::to_string).collect())
}

/// Whether there are no violations; shows those that there are.
pub fn are_none(violations: &[String]) -> bool {
    for violation in violations {
        eprintln!("VIOLATION {violation}");
    }
    violations.is_empty()
}

impl Window {
    /// Whether every row behaved like a register; shows it where one did not.
    pub fn is_linearizable(&self) -> bool {
        are_none(&self.violations)
    }

    /// The same, and whether no request failed.
    pub fn is_clean(&self) -> bool {
        self.is_linearizable() && self.errors.is_empty()
    }
}
