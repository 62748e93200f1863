//! Runs commands of PerformanceEvaluation, and counts the CPU time of the servers.

use super::tools::show;
use crate::rival::{self, Place, finished_rows};
use anyhow::{Result, ensure};
use std::fmt;
use std::time::Instant;

const TABLE: &str = "measured";
/// Client threads: with fewer, the client waits for single answers.
pub const CLIENTS: u64 = 8;

/// A command of PerformanceEvaluation.
#[derive(Clone, Copy)]
pub struct Command {
    pub name: &'static str,
    /// Rows of each client.
    pub rows: u64,
}

/// One run of a command.
#[derive(Clone, Copy)]
pub struct Evaluated {
    pub rows_per_second: f64,
    pub rows_per_cpu_second: f64,
}

/// Median, least and most rows per CPU second of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// Runs a command with further options against the servers of a configuration, whose CPU seconds are counted.
pub fn evaluate(
    place: &Place,
    command: Command,
    options: &[&str],
    cpu_seconds: impl Fn() -> Result<f64>,
) -> Result<Evaluated> {
    let Command { name, rows } = command;
    // The first time it is fetched and built.
    let tool = rival::hbase_tool(place, "1g", rival::EVALUATION)?;
    let before = cpu_seconds()?;
    let (begin, mut output) = (Instant::now(), Vec::new());
    let succeeded = tool
        .args(["--nomapred", &format!("--table={TABLE}"), &format!("--rows={rows}")])
        .args(options)
        .args([name, &CLIENTS.to_string()])
        .lines(|line| output.push(line.to_owned()))?;
    let seconds = begin.elapsed().as_secs_f64();
    let finished: u64 = output.iter().filter_map(|line| finished_rows(line)).sum();
    if !succeeded || finished != rows * CLIENTS {
        show(&output);
    }
    ensure!(succeeded, "{name} failed");
    ensure!(finished == rows * CLIENTS, "{name} finished {finished} rows");
    let cpu = cpu_seconds()? - before;
    Ok(Evaluated {
        rows_per_second: finished as f64 / seconds,
        rows_per_cpu_second: finished as f64 / cpu.max(0.01),
    })
}

impl Spread {
    /// That of these runs.
    pub fn of(runs: &[Evaluated]) -> Spread {
        let mut figures: Vec<f64> = runs.iter().map(|run| run.rows_per_cpu_second).collect();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        Spread {
            median: at(figures.len() / 2),
            least: at(0),
            most: at(figures.len().saturating_sub(1)),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} ({:.0}–{:.0})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_shown_with_its_spread() {
        let run = |figure: f64| Evaluated {
            rows_per_second: 1.0,
            rows_per_cpu_second: figure,
        };
        assert_eq!(Spread::of(&[run(3.0), run(1.0), run(2.0)]).to_string(), "2 (1–3)");
    }
}
