//! Runs HBase's own load programs, PerformanceEvaluation and LoadTestTool, against a server of its protocol.
//!
//! All commands of PerformanceEvaluation run but `metaWrite` and `cleanMeta`, which write `hbase:meta`: that table is made
//! from the catalog here, and takes no writes.
//!
//! Both check only a part of the data that they read. A run is in order when the program ends well. PerformanceEvaluation
//! must also report as many rows as were asked for; LoadTestTool ends with a failure after any wrong read, update or write.

use crate::rival::site::Site;
use crate::rival::{self, Place, finished_rows};
use crate::shell::Run;
use crate::tally::Tally;
use crate::tools::hbase_cases;
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::fs;
use std::time::Instant;

const LOAD_TEST: &str = "org.apache.hadoop.hbase.util.LoadTestTool";

/// Enough for several flushes of the client's buffers and scans of several requests.
const ROWS: u32 = 20_000;
/// Each row of it is a scan of a hundred rows.
const RANGE_SCANS: u32 = 1_000;
/// Each row of it is a scan of up to half of the table.
const LONG_RANGE_SCANS: u32 = 20;
/// Each row of it is a scan of the whole table.
const FILTER_SCANS: u32 = 20;

/// Standard output has the progress of both programs, and all warnings.
const LOG4J: &str = "\
status = error
appender.out.type = Console
appender.out.name = OUT
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %.1000m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
logger.evaluation.name = org.apache.hadoop.hbase.PerformanceEvaluation
logger.evaluation.level = INFO
logger.load.name = org.apache.hadoop.hbase.util.LoadTestTool
logger.load.level = INFO
logger.action.name = org.apache.hadoop.hbase.util.MultiThreadedAction
logger.action.level = INFO
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = ERROR
";

/// A run of PerformanceEvaluation: a command, its rows, and options. One client, unless the options say otherwise.
struct Evaluation {
    command: &'static str,
    rows: u32,
    options: &'static [&'static str],
}

const fn evaluation(command: &'static str) -> Evaluation {
    with(command, ROWS, &[])
}

const fn with(command: &'static str, rows: u32, options: &'static [&'static str]) -> Evaluation {
    Evaluation { command, rows, options }
}

/// The first fills the table for the others.
const EVALUATIONS: [Evaluation; 29] = [
    with("sequentialWrite", ROWS, &["--multiPut=100", "--autoFlush=true"]),
    evaluation("randomRead"),
    with("randomRead", ROWS, &["--multiGet=100"]),
    evaluation("sequentialRead"),
    evaluation("scan"),
    with("scan", ROWS, &["--caching=100", "--filterAll"]),
    with("randomSeekScan", RANGE_SCANS, &[]),
    with("scanRange10", RANGE_SCANS, &[]),
    with("scanRange100", RANGE_SCANS, &[]),
    with("scanRange1000", LONG_RANGE_SCANS, &[]),
    with("scanRange10000", LONG_RANGE_SCANS, &[]),
    with("metaRandomRead", RANGE_SCANS, &[]),
    with("filterScan", FILTER_SCANS, &[]),
    evaluation("reverseScan"),
    evaluation("increment"),
    evaluation("append"),
    evaluation("checkAndMutate"),
    evaluation("checkAndPut"),
    evaluation("checkAndDelete"),
    evaluation("randomDelete"),
    evaluation("sequentialDelete"),
    evaluation("sequentialWrite"),
    evaluation("randomWrite"),
    with(
        "randomWrite",
        ROWS,
        &["--multiPut=100", "--autoFlush=true", "--columns=3"],
    ),
    evaluation("asyncRandomRead"),
    evaluation("asyncSequentialRead"),
    evaluation("asyncScan"),
    evaluation("asyncRandomWrite"),
    evaluation("asyncSequentialWrite"),
];

const EVALUATION_TABLE: &str = "evaluation";
const LOAD_TABLE: &str = "load_test";

/// Each key is written once with five columns, updated by a fifth of the writers' work, and read and checked.
const LOAD: [&str; 8] = [
    "-write",
    "5:1000:8",
    "-update",
    "20:8",
    "-read",
    "100:8",
    "-num_keys",
    "20000",
];

/// Runs all whose names match; whether all were in order.
pub fn run(address: &str, only: &Regex) -> Result<bool> {
    let place = configure(address, "hbase-clients")?;
    drop_table(address, LOAD_TABLE)?;
    let mut tally = Tally::default();
    for evaluation in EVALUATIONS.iter().filter(|one| only.is_match(&one.name())) {
        let name = evaluation.name();
        tally.add(Tally::one(timed(&name, || evaluate(&place, evaluation))?));
    }
    if only.is_match("LoadTestTool") {
        tally.add(Tally::one(timed("LoadTestTool", || load(&place))?));
    }
    ensure!(tally.passed + tally.failed > 0, "no tool is called {only}");
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

impl Evaluation {
    /// The command and its options, as they are shown and selected.
    fn name(&self) -> String {
        let words: Vec<&str> = std::iter::once(self.command)
            .chain(self.options.iter().copied())
            .collect();
        words.join(" ")
    }
}

/// A program of `tests/clients/java-hbase`, with these options of its virtual machine.
pub fn program(options: &[&str], class: &str) -> Result<Run> {
    let class_path = format!("{}/*", hbase_cases()?.display());
    let class = format!("stele.clients.hbase.{class}");
    Ok(Run::new("java").args(options).args(["-cp", &class_path, &class]))
}

/// The same with this much memory, as a program that is not measured.
pub fn small_program(memory: &str, class: &str) -> Result<Run> {
    program(&[&format!("-Xmx{memory}"), "-XX:+UseSerialGC"], class)
}

/// LoadTestTool takes rows of an earlier run for its own, and finds them wrong.
fn drop_table(address: &str, table: &str) -> Result<()> {
    small_program("256m", "Drop")?
        .args([address, table])
        .check()
        .with_context(|| format!("dropping the table {table}"))
}

/// A directory with the configuration of clients of this server.
pub fn configure(address: &str, name: &str) -> Result<Place> {
    let place = Place::of(name);
    place.prepare(true)?;
    let mut site = Site::new();
    site.set(
        "hbase.client.registry.impl",
        "org.apache.hadoop.hbase.client.RpcConnectionRegistry",
    )
    .set("hbase.client.bootstrap.servers", address)
    // A server that fails is to be seen in minutes, not in hours.
    .set("hbase.client.retries.number", 8)
    .set("hbase.rpc.timeout", 30_000)
    .set("hbase.client.operation.timeout", 60_000);
    for (file, text) in [("hbase-site.xml", site.xml()), ("log4j2.properties", LOG4J.to_owned())] {
        let path = place.conf().join(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(place)
}

pub(super) fn timed(name: &str, step: impl FnOnce() -> Result<Option<String>>) -> Result<bool> {
    let begin = Instant::now();
    let fault = step()?;
    let seconds = begin.elapsed().as_secs_f64();
    match &fault {
        None => println!("ok      {name:<40} {seconds:>6.1} s"),
        Some(fault) => println!("failed  {name:<40} {seconds:>6.1} s: {fault}"),
    }
    Ok(fault.is_none())
}

/// Its fault, if it had one; its output is shown then.
fn evaluate(place: &Place, evaluation: &Evaluation) -> Result<Option<String>> {
    let mut output = Vec::new();
    let succeeded = rival::hbase_tool(place, "1g", rival::EVALUATION)?
        .args(["--nomapred".to_owned(), format!("--table={EVALUATION_TABLE}")])
        .args([format!("--rows={}", evaluation.rows)])
        .args(evaluation.options)
        .args([evaluation.command, "1"])
        .lines(|line| output.push(line.to_owned()))?;
    let rows: u64 = output.iter().filter_map(|line| finished_rows(line)).sum();
    let fault = judge(succeeded, rows, u64::from(evaluation.rows));
    if fault.is_some() {
        show(&output);
    }
    Ok(fault)
}

fn judge(succeeded: bool, rows: u64, wanted: u64) -> Option<String> {
    if !succeeded {
        Some("it ended with a failure".to_owned())
    } else if rows != wanted {
        Some(format!("it finished {rows} rows of {wanted}"))
    } else {
        None
    }
}

fn load(place: &Place) -> Result<Option<String>> {
    let mut output = Vec::new();
    let succeeded = rival::hbase_tool(place, "1g", LOAD_TEST)?
        .args(["-tn", LOAD_TABLE])
        .args(LOAD)
        .lines(|line| output.push(line.to_owned()))?;
    if succeeded {
        return Ok(None);
    }
    show(&output);
    Ok(Some("it read, updated or wrote something wrongly".to_owned()))
}

/// The end of the output, where the reason is.
pub(super) fn show(output: &[String]) {
    const LINES: usize = 60;
    for line in output.iter().skip(output.len().saturating_sub(LINES)) {
        println!("  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_in_order_when_it_ended_well_with_all_rows() {
        assert_eq!(judge(true, 20, 20), None);
        assert!(judge(false, 20, 20).is_some());
        assert!(judge(true, 19, 20).is_some());
    }

    #[test]
    fn evaluations_have_names_of_their_own() {
        let mut names: Vec<String> = EVALUATIONS.iter().map(Evaluation::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), EVALUATIONS.len());
    }
}
