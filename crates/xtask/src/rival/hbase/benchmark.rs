//! Runs HBase's own tools against the running HBase.
//!
//! Its benchmark is a check on ours, and its client a check on the rows that ours reads.

use super::java::Java;
use super::{REGION_SERVER, cpu_seconds, running};
use crate::proc_stat::ProcStat;
use crate::rival::Place;
use crate::shell::Run;
use anyhow::{Context, Result};
use std::time::Instant;

/// HBase's own benchmark.
pub const EVALUATION: &str = "org.apache.hadoop.hbase.PerformanceEvaluation";

/// Runs PerformanceEvaluation and compares its operations with the CPU time that the servers spent on them.
pub fn evaluate(place: &Place, arguments: &[String]) -> Result<bool> {
    let (_, members) = running(place)?;
    let java = Java::built()?;
    let spent = || -> Vec<Option<f64>> { members.iter().map(|member| cpu_seconds(&member.identity)).collect() };
    let own = || Ok::<_, anyhow::Error>(ProcStat::read("self")?.ended_children_cpu_seconds());
    let (before, own_before, begin) = (spent(), own()?, Instant::now());
    let mut tally = Tally::default();
    let succeeded = java
        .talkative_client(place, "2g", EVALUATION)
        .args(without_map_reduce(arguments))
        .lines(|line| {
            say!("{line}");
            tally.take(line);
        })?;
    let (after, own_after, seconds) = (spent(), own()?, begin.elapsed().as_secs_f64());
    say!("\n{seconds:.1} s with the start of the client's JVM; CPU seconds in that time:");
    let mut total = 0.0;
    for ((member, before), after) in members.iter().zip(before).zip(after) {
        let before = before.with_context(|| format!("{} was dead before the run", member.name))?;
        let after = after.with_context(|| format!("{} died during the run", member.name))?;
        total += after - before;
        // Only the region server sees every row.
        let rows = if member.name == REGION_SERVER { tally.rows } else { 0 };
        report(&member.name, after - before, rows);
    }
    report("all servers", total, tally.rows);
    report("client", own_after - own_before, tally.rows);
    Ok(succeeded)
}

fn report(name: &str, seconds: f64, rows: u64) {
    let rate = if rows > 0 && seconds > 0.0 {
        format!("{:>10.0} rows per CPU second", rows as f64 / seconds)
    } else {
        String::new()
    };
    say!("  {name:<13} {seconds:>8.2} {rate}");
}

/// There is no MapReduce here; without this switch more than one client would ask for it.
fn without_map_reduce(arguments: &[String]) -> Vec<String> {
    const SWITCH: &str = "--nomapred";
    let given = arguments.iter().any(|argument| argument.starts_with(SWITCH));
    let switch = (!given).then(|| SWITCH.to_owned());
    switch.into_iter().chain(arguments.iter().cloned()).collect()
}

/// Rows done, summed over the benchmark's client threads as they report them.
#[derive(Default)]
struct Tally {
    rows: u64,
}

impl Tally {
    fn take(&mut self, line: &str) {
        self.rows += finished_rows(line).unwrap_or(0);
    }
}

/// The number of rows in the line with which a client thread of PerformanceEvaluation ends.
pub fn finished_rows(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("Finished ")?.1.split_once("ms over ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A program of HBase that reads its configuration from this place, which need not be that of the running HBase. It logs
/// on standard output. `runs` says that parts of HBase run, whose jars must stay.
pub fn tool(place: &Place, heap: &str, main: &str, runs: bool) -> Result<Run> {
    let java = if runs { Java::built()? } else { Java::build()? };
    Ok(java.talkative_client(place, heap, main))
}

/// Prints the rows that HBase's own client finds in a table.
pub fn digest(place: &Place, table: &str, versions: u32) -> Result<bool> {
    let (url, _) = running(place)?;
    let address = url.trim_start_matches("hbase://");
    Java::built()?
        .client(place, "1g", "stele.rivals.hbase.Digest")
        .args([address, table, &versions.to_string()])
        .succeeds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_once_for_each_client() {
        let mut tally = Tally::default();
        for line in [
            "INFO  [TestClient-1] x: Start class a.B$C at offset 0 for 20000 rows",
            "INFO  [TestClient-1] x: Finished class a.B$C in 5049ms at offset 20000 for 20000 rows (3.9 MB/s)",
            "INFO  [TestClient-1] x: Finished TestClient-1 in 5049ms over 20000 rows",
            "INFO  [TestClient-0] x: Finished TestClient-0 in 5646ms over 10000 rows",
            "INFO  [main] x: [ Avg TPS/QPS]\t7504\t row per second",
        ] {
            tally.take(line);
        }
        assert_eq!(tally.rows, 30_000);
    }

    #[test]
    fn map_reduce_is_switched_off_once() {
        let given = |texts: &[&str]| without_map_reduce(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&["scan", "2"]), ["--nomapred", "scan", "2"]);
        assert_eq!(given(&["--nomapred", "scan", "2"]), ["--nomapred", "scan", "2"]);
    }
}
