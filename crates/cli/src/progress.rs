//! Progress of a long command on standard error.
//!
//! It is a bar on a terminal and a line every ten seconds elsewhere.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between lines when standard error is not a terminal: often enough to see life, rare enough for a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how far a command has come.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
    verb: &'static str,
    /// The counted things.
    noun: &'static str,
    bytes_total: Option<u64>,
    /// Rows when this run began; rates count from there.
    rows_before: u64,
    /// Shown behind the numbers.
    note: Option<String>,
}

impl Progress {
    /// Starts showing; `bytes_total` allows an estimate of the remaining time.
    pub fn new(verb: &'static str, bytes_total: Option<u64>, rows_before: u64) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| bar(bytes_total));
        Progress {
            bar,
            started: now,
            last_line: now,
            verb,
            noun: "rows",
            bytes_total,
            rows_before,
            note: None,
        }
    }

    /// Starts showing files instead of rows; [`Progress::expect`] tells their bytes as they become known.
    pub fn of_files(verb: &'static str) -> Self {
        Progress {
            noun: "files",
            ..Progress::new(verb, Some(0), 0)
        }
    }

    /// Changes the number of bytes that is expected in all.
    pub fn expect(&mut self, bytes_total: u64) {
        self.bytes_total = Some(bytes_total);
        if let Some(bar) = &self.bar {
            bar.set_length(bytes_total);
        }
    }

    /// Shows a text behind the numbers from now on.
    pub fn note(&mut self, text: String) {
        self.note = Some(text);
    }

    /// Shows the current numbers; cheap enough to be called often.
    pub fn update(&mut self, rows: u64, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            let (count, rate) = (HumanCount(rows), HumanCount(self.rate(rows)));
            bar.set_message(format!("{count} {}, {rate}/s{}", self.noun, self.noted()));
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            eprintln!("{}", self.line(rows, bytes));
        }
    }

    fn line(&self, rows: u64, bytes: u64) -> String {
        let (count, rate) = (HumanCount(rows), HumanCount(self.rate(rows)));
        let noun = self.noun;
        let share = match self.bytes_total {
            Some(total) if total > 0 => {
                format!(" of {} ({}%)", HumanBytes(total), bytes.saturating_mul(100) / total)
            }
            _ => String::new(),
        };
        format!(
            "{} {count} {noun}, {rate} {noun}/s, {}{share}{}",
            self.verb,
            HumanBytes(bytes),
            self.noted()
        )
    }

    fn noted(&self) -> String {
        self.note.as_ref().map(|note| format!(", {note}")).unwrap_or_default()
    }

    fn rate(&self, rows: u64) -> u64 {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        (rows.saturating_sub(self.rows_before) as f64 / seconds) as u64
    }

    /// Prints a line without disturbing the bar.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Removes the bar; the summary follows on standard output.
    pub fn finish(self) -> Duration {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }
}

fn bar(bytes_total: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes_total {
        Some(total) => (
            ProgressBar::new(total),
            "{bar:30} {percent:>3}%  {msg}, {bytes} of {total_bytes}, {eta} left",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}, {bytes}, {elapsed}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        // The templates are constants; a bar in the default style is still a bar.
        Err(_) => bar,
    }
}

/// A count with a noun, for summaries: `1 row`, `2,000 rows`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_share_and_rate() {
        let now = Instant::now();
        let mut progress = Progress {
            bar: None,
            started: now - Duration::from_secs(10),
            last_line: now,
            verb: "imported",
            noun: "rows",
            bytes_total: Some(4096),
            rows_before: 100,
            note: None,
        };
        let line = progress.line(2100, 1024);
        assert!(
            line.starts_with("imported 2,100 rows, 199 rows/s") || line.contains("200 rows/s"),
            "{line}"
        );
        assert!(line.ends_with("1.00 KiB of 4.00 KiB (25%)"), "{line}");
        progress.bytes_total = Some(0);
        progress.note("2 of 3 ranges".to_owned());
        assert!(progress.line(0, 0).ends_with("0 B, 2 of 3 ranges"));
        progress.note = None;
        assert!(progress.line(0, 0).ends_with("0 B"));
        assert_eq!(
            (count(1, "row"), count(2000, "row")),
            ("1 row".into(), "2,000 rows".into())
        );
    }
}
