//! The result of one run of a workload.

use crate::clock::Took;
use std::time::Duration;

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The figure in the workload's unit.
    pub figure: f64,
    /// CPU microseconds of all threads for each row, background work included.
    pub cpu_micros: f64,
    /// The longest single operation, where operations were timed.
    pub longest: Option<Duration>,
    /// Further figures by name.
    pub extra: Vec<(&'static str, f64)>,
    /// A remark in words.
    pub remark: Option<String>,
}

impl Measured {
    /// Rows of wall time, and the cost of each.
    pub fn of_wall(rows: u64, took: Took) -> Self {
        Measured {
            figure: rows as f64 / took.wall.as_secs_f64(),
            cpu_micros: took.cpu.as_secs_f64() * 1e6 / rows as f64,
            ..Measured::default()
        }
    }

    /// Rows of CPU time of all threads.
    pub fn of_cpu(rows: u64, took: Took) -> Self {
        Measured {
            figure: rows as f64 / took.cpu.as_secs_f64(),
            ..Measured::of_wall(rows, took)
        }
    }
}
