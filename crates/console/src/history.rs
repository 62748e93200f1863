//! The last hour of all series, a point every five seconds.
//!
//! It takes about 140 KB with any load.

use crate::series::SERIES;
use crate::totals::Totals;
use std::collections::VecDeque;
use std::time::Duration;
use stele_env::metrics::Reading;

/// Points that are kept: an hour.
const POINTS_MAX: usize = 720;

/// The history of a process.
#[derive(Debug, Default)]
pub struct History {
    /// Oldest first.
    points: VecDeque<Point>,
    before: Option<Totals>,
}

/// The values of all series at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Seconds since 1970.
    pub time: i64,
    /// In the order of [`SERIES`]; not a number where there is no value.
    pub values: Vec<f32>,
}

impl History {
    /// Adds a point. The first reading only begins it.
    pub fn add(&mut self, time: i64, at: Duration, readings: &[Reading]) {
        let now = Totals {
            at,
            readings: readings.to_vec(),
        };
        if let Some(before) = &self.before {
            let values = SERIES.iter().map(|series| series.value(before, &now) as f32).collect();
            if self.points.len() >= POINTS_MAX {
                self.points.pop_front();
            }
            self.points.push_back(Point { time, values });
        }
        self.before = Some(now);
    }

    /// The points after a time, not more than `count`, oldest first.
    pub fn since(&self, time: i64, count: usize) -> Vec<Point> {
        let newer = self.points.iter().filter(|point| point.time > time);
        let skip = newer.clone().count().saturating_sub(count);
        newer.skip(skip).cloned().collect()
    }

    /// The newest point.
    pub fn last(&self) -> Option<&Point> {
        self.points.back()
    }
}

#[cfg(test)]
mod tests;
