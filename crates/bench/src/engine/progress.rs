//! The terminal's display: one live line, and a line for each finished run.

use crate::outcome::{Ending, RunOutcome, Second};
use crate::plan::{Run, Stop};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The terminal's line, or plain lines without a terminal.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Runs of the suite, over all targets and repeats.
    runs: usize,
    /// Finished runs.
    over: usize,
    /// Seconds that they took, for the estimate of the remaining time.
    spent: f64,
}

impl Progress {
    /// For a suite of this many runs.
    pub fn new(runs: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(200));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            runs,
            over: 0,
            spent: 0.0,
        }
    }

    /// Prints a line above the live line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// A second has passed.
    pub fn second(&self, title: &str, run: &Run, elapsed: f64, done: u64, total: u64, last: Option<&Second>) {
        let Some(bar) = &self.bar else {
            return;
        };
        let left = match run.stop {
            Stop::Seconds(seconds) => Some(run.warmup_seconds + seconds - elapsed),
            Stop::Operations(_) if done > 0 && total > done => Some(elapsed * (total - done) as f64 / done as f64),
            Stop::Operations(_) => None,
        };
        let (rate, p99) = last.map_or((0, 0), |s| (s.operations, s.p99_micros));
        let left = left.map_or(String::new(), |l| format!(", {} left", duration(l.max(0.0))));
        bar.set_message(format!(
            "{title}: {} operations/s, p99 {}, {}{left}; run {} of {}{}",
            thousands(rate),
            micros(p99),
            duration(elapsed),
            self.over + 1,
            self.runs,
            self.suite_left()
        ));
    }

    /// Prints a finished run.
    pub fn over(&mut self, title: &str, outcome: &RunOutcome, seconds: f64) {
        self.over += 1;
        self.spent += seconds;
        let operations: u64 = outcome.kinds.iter().map(|k| k.operations).sum();
        let rows: u64 = outcome.kinds.iter().map(|k| k.rows).sum();
        let rate = if outcome.seconds > 0.0 {
            operations as f64 / outcome.seconds
        } else {
            0.0
        };
        let text = match &outcome.ending {
            Ending::Passed => format!(
                "{title}: {} operations/s over {} ({} rows)",
                thousands(rate as u64),
                duration(outcome.seconds),
                thousands(rows)
            ),
            Ending::Failed(causes) => format!("{title}: FAILED: {}", causes.join("; ")),
            Ending::Skipped(why) => format!("{title}: not run: {why}"),
        };
        self.say(&text);
    }

    /// Nothing moves any more.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn suite_left(&self) -> String {
        if self.over < 3 {
            return String::new();
        }
        let left = self.spent / self.over as f64 * self.runs.saturating_sub(self.over) as f64;
        format!(", suite about {} left", duration(left))
    }
}

/// 1234567 as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn micros(micros: u64) -> String {
    if micros < 1_000 {
        format!("{micros} µs")
    } else {
        format!("{:.1} ms", micros as f64 / 1e3)
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_legible() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!((micros(999), micros(43_210)), ("999 µs".into(), "43.2 ms".into()));
        assert_eq!([1.25, 600.0, 7_200.0].map(duration), ["1.2 s", "10 min", "2.0 h"]);
    }
}
