//! Loads far more data than the memory budget holds and checks the project's promises.
//!
//! Every row is there, and large values are those that were written, also after SIGKILL. Memory stays within the budget and
//! 200 MB under any request; the files are not much larger than the data; a restart is quick.
//!
//! A run goes through *phases*, each a kind of load. It notes the largest resident set of each, and the server's own
//! account of it ([`account`]). The loads are in `tests/clients/go/cmd/load` (`press.go`, `large.go`), and hostile requests
//! in `crates/server/tests/hostile.rs`.

mod account;

use crate::server::{self, Scratch, Server, Start};
use crate::shell::{Run, json_line};
use crate::tally::Tally;
use crate::tools;
use account::Account;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Value bytes; the evaluations of the family use 1,000.
const VALUE_BYTES: u64 = 1_000;

/// Allowed above the budget: the project's promise.
const RSS_MARGIN_BYTES: u64 = 200_000_000;

/// Files may hold this much more than the values: keys, indexes, inputs of a running compaction, the log.
const DISK_FACTOR: f64 = 2.5;

/// The wide row of [`PHASES`].
const WIDE_CELLS: u64 = 100_000;
const WIDE_VALUE_BYTES: u64 = 10;

/// A kind of load: its name, and the arguments of `load`, but for how long.
type Phase = (&'static str, &'static [&'static str]);

/// The phases after the fill and the first count. Large values are a tenth of the smallest budget's share of requests.
const PHASES: [Phase; 8] = [
    ("zipf reads, 64 callers", &["zipf"]),
    ("full scans, 32 callers", &["scans", "-callers", "32"]),
    (
        "values of 3 MB, 16 callers",
        &["large", "-table", "large", "-bytes", "3000000", "-callers", "16"],
    ),
    (
        "values of 16 MB, 4 callers",
        &["large", "-table", "large", "-bytes", "16000000", "-callers", "4"],
    ),
    (
        "a row of 100,000 cells, 8 readers",
        &[
            "wide", "-table", "wide", "-rows", "100000", "-bytes", "10", "-callers", "8",
        ],
    ),
    ("1,000 connections", &["connect", "-callers", "1000"]),
    ("1,000 scans that nobody takes", &["stall", "-callers", "1000"]),
    ("writes of single rows, 64 callers", &["write"]),
];

/// Kinds of load of which some must be answered.
const MUST_DO: [&str; 3] = ["zipf", "connect", "wide"];

/// One budget's outcome.
struct Outcome {
    memory_mib: u64,
    /// By phase, in bytes.
    peaks: Vec<(String, u64)>,
    /// Each check, and whether it held.
    checks: Vec<(String, bool)>,
}

/// The load of all phases for half a minute, on the smallest budget, which one request may exceed, and on a usual
/// one.
pub fn smoke() -> Result<Tally> {
    Ok(Tally::one(run(120, &[64, 512], 3)?))
}

/// Whether all of it held, for each budget; each kind of load goes on for this number of seconds.
pub fn run(megabytes: u64, budgets_mib: &[u64], seconds: u32) -> Result<bool> {
    server::build()?;
    let load = tools::go_program("load")?;
    let mut outcomes = Vec::new();
    for memory_mib in budgets_mib {
        let is_largest = budgets_mib.iter().max() == Some(memory_mib);
        let outcome = one(&load, megabytes, (*memory_mib, is_largest), seconds)?;
        for (what, holds) in &outcome.checks {
            println!("{} {what}", if *holds { "ok  " } else { "FAIL" });
        }
        outcomes.push(outcome);
    }
    print_table(&outcomes);
    Ok(outcomes
        .iter()
        .all(|outcome| outcome.checks.iter().all(|(_, holds)| *holds)))
}

/// All phases on a budget, of which it matters whether it is the largest.
fn one(load: &Path, megabytes: u64, (memory_mib, is_largest): (u64, bool), seconds: u32) -> Result<Outcome> {
    println!("=== budget {memory_mib} MiB");
    let scratch = Scratch::new("soak")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let memory = (memory_mib << 20).to_string();
    let start = Start {
        data: &data,
        log: &log,
        arguments: &["--memory", &memory],
    };
    let rows = megabytes * 1_000_000 / VALUE_BYTES;
    let (rows_text, seconds_text) = (rows.to_string(), seconds.to_string());
    // The writes of large values, of all phases.
    let state = scratch.join("large.json").display().to_string();
    let mut peaks = Vec::new();
    let mut answered = Vec::new();

    let mut server = Server::start(&start)?;
    let address = server.address().to_owned();
    let mut phase = |server: &mut Server, name: &str, arguments: &[&str]| -> Result<Value> {
        server.process().forget_peak_rss()?;
        let run = || json_line(Run::new(load).args(arguments).args(["-address", &address]));
        let (result, account) = Account::largest_while(server.http(), run)?;
        let peak = server.process().peak_rss_bytes()?;
        println!("{name}: {result}, peak {} MiB\n    {account}", peak >> 20);
        // Refusals are as good as answers, but not where nothing is too large.
        if MUST_DO.contains(&arguments.first().copied().unwrap_or_default()) {
            answered.push((
                format!("{name}: something is answered"),
                number(&result, "done") > Some(0),
            ));
        }
        peaks.push((name.to_owned(), peak));
        Ok(result)
    };
    phase(&mut server, "fill", &["fill", "-rows", &rows_text])?;
    let counted = phase(&mut server, "count", &["count"])?;
    let disk = bytes_below(&data)?;
    for (name, arguments) in PHASES {
        // A wide row has a count of its own.
        let table = ["-rows", &rows_text];
        let more = ["-seconds", &seconds_text, "-state", &state];
        let own = arguments.contains(&"-rows");
        let all: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(table.into_iter().filter(|_| !own))
            .chain(more)
            .collect();
        phase(&mut server, name, &all)?;
    }
    server.process().kill()?;
    let restart = Instant::now();
    let mut server = Server::start(&start)?;
    let recovery = restart.elapsed();
    let (recovered, large) = recovered(load, server.address(), rows, &state)?;
    peaks.push(("restart and count".to_owned(), server.process().peak_rss_bytes()?));

    let limit = (memory_mib << 20) + RSS_MARGIN_BYTES;
    let mut checks = vec![
        (
            format!("{rows} whole rows before the kill"),
            held(&counted) == (Some(rows), Some(rows * VALUE_BYTES)),
        ),
        (
            format!("{} MB of files for {megabytes} MB of values", disk / 1_000_000),
            disk as f64 <= DISK_FACTOR * (megabytes * 1_000_000) as f64,
        ),
        (format!("ready again in {} ms", recovery.as_millis()), true),
    ];
    checks.extend(recovered);
    checks.push(large_values(&large, is_largest));
    checks.extend(answered);
    checks.extend(peaks.iter().map(|(name, peak)| {
        let what = format!("{name}: peak {} MiB, at most {} MiB", peak >> 20, limit >> 20);
        (what, *peak <= limit)
    }));
    if checks.iter().all(|(_, holds)| *holds) {
        scratch.passed();
    }
    Ok(Outcome {
        memory_mib,
        peaks,
        checks,
    })
}

/// Whether a server that was killed has all data, and the result for the large values.
fn recovered(load: &Path, address: &str, rows: u64, state: &str) -> Result<([(String, bool); 2], Value)> {
    let ask = |arguments: &[&str]| json_line(Run::new(load).args(arguments).args(["-address", address]));
    let (all, wide) = (ask(&["count"])?, ask(&["count", "-table", "wide"])?);
    let large = ask(&["large-check", "-table", "large", "-state", state])?;
    let checks = [
        // Since the first count they were overwritten with others of the same length. Other phases have tables of their own.
        (
            format!("{rows} whole rows after recovery"),
            held(&all) == (Some(rows), Some(rows * VALUE_BYTES)),
        ),
        (
            format!("{WIDE_CELLS} cells of the wide row after recovery"),
            held(&wide) == (Some(1), Some(WIDE_CELLS * WIDE_VALUE_BYTES)),
        ),
    ];
    Ok((checks, large))
}

/// The rows and bytes of a count.
fn held(counted: &Value) -> (Option<u64>, Option<u64>) {
    (number(counted, "rows"), number(counted, "bytes"))
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

/// Whether there are large values that were acknowledged, and none is wrong; shows those that are. The largest budget must
/// have taken some of each size: a smaller one may refuse all of the largest size.
fn large_values(answer: &Value, of_each_size: bool) -> (String, bool) {
    let rows = |bytes| answer.get("rows").and_then(|rows| number(rows, bytes)).unwrap_or(0);
    let found: Vec<(&str, u64)> = large_sizes().map(|bytes| (bytes, rows(bytes))).collect();
    let enough = match of_each_size {
        true => found.iter().all(|(_, rows)| *rows > 0),
        false => found.iter().any(|(_, rows)| *rows > 0),
    };
    let counts: Vec<String> = found
        .iter()
        .map(|(bytes, rows)| format!("{rows} of {bytes} bytes"))
        .collect();
    let wrong = answer.get("wrong").and_then(Value::as_array);
    for line in wrong.into_iter().flatten() {
        eprintln!("    {line}");
    }
    (
        format!("acknowledged large values after recovery: {}", counts.join(", ")),
        enough && wrong.is_some_and(Vec::is_empty),
    )
}

/// The sizes of large values in [`PHASES`], as arguments.
fn large_sizes() -> impl Iterator<Item = &'static str> {
    let large = PHASES
        .iter()
        .filter(|(_, arguments)| arguments.first() == Some(&"large"));
    let size = |arguments: &[&'static str]| {
        let at = arguments.iter().position(|argument| *argument == "-bytes")?;
        arguments.get(at + 1).copied()
    };
    large.filter_map(move |(_, arguments)| size(arguments))
}

fn print_table(outcomes: &[Outcome]) {
    let Some(first) = outcomes.first() else { return };
    println!("\nlargest resident set, MiB");
    print!("{:<36}", "budget");
    outcomes.iter().for_each(|outcome| print!("{:>8}", outcome.memory_mib));
    println!();
    for (row, (name, _)) in first.peaks.iter().enumerate() {
        print!("{name:<36}");
        for outcome in outcomes {
            let peak = outcome.peaks.get(row).map_or(0, |(_, peak)| *peak);
            print!("{:>8}", peak >> 20);
        }
        println!();
    }
    print!("{:<36}", "allowed");
    for outcome in outcomes {
        print!("{:>8}", ((outcome.memory_mib << 20) + RSS_MARGIN_BYTES) >> 20);
    }
    println!();
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        // Compactions delete files meanwhile.
        let Ok(info) = entry.metadata() else { continue };
        bytes += if info.is_dir() {
            bytes_below(&entry.path())?
        } else {
            info.len()
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn large_values_are_kept_if_there_are_some_and_none_is_wrong() {
        let holds = |answer: Value| [false, true].map(|of_each_size| large_values(&answer, of_each_size).1);
        let both = json!({"3000000": 3, "16000000": 1});
        assert_eq!(holds(json!({"rows": both, "wrong": []})), [true; 2]);
        assert_eq!(
            holds(json!({"rows": both, "wrong": ["row r is not there"]})),
            [false; 2]
        );
        // The small budget may refuse the largest values, the large one may not.
        assert_eq!(holds(json!({"rows": {"3000000": 3}, "wrong": []})), [true, false]);
        assert_eq!(holds(json!({"rows": {}, "wrong": []})), [false; 2]);
        assert_eq!(holds(json!({})), [false; 2]);
    }
}
