//! Counts passed, failed and skipped checks in the output of each kind of test runner.

use std::collections::BTreeMap;
use std::fmt;

/// Passed, failed and skipped checks of any number of suites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Checks that the test itself left out. They have not passed.
    pub skipped: u64,
}

impl Tally {
    /// One check.
    pub fn one(passed: bool) -> Tally {
        Tally {
            passed: u64::from(passed),
            failed: u64::from(!passed),
            skipped: 0,
        }
    }

    /// Whether nothing was checked.
    pub fn is_empty(self) -> bool {
        self.passed + self.failed == 0
    }

    /// `, 3 skipped` for the end of a line; nothing if none was.
    pub fn skips(self) -> String {
        match self.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} skipped"),
        }
    }

    /// Adds another suite's counts.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// A runner that exits with a failure but names none (it did not compile, it crashed) counts as one failure.
    pub fn with_exit(mut self, success: bool) -> Tally {
        if !success && self.failed == 0 {
            self.failed = 1;
        }
        self
    }

    /// Takes a line of `cargo test`: `test result: ok. 5 passed; 0 failed; …`. Whether it is one.
    pub fn cargo_line(&mut self, line: &str) -> bool {
        let result = line.strip_prefix("test result: ");
        if let Some(result) = result {
            self.add(numbers_before_words(result));
        }
        result.is_some()
    }

    /// Takes a line of a runner that ends with `N passed, N failed` in any order, as pytest and the simulator do. Whether it
    /// is one.
    pub fn summary_line(&mut self, line: &str) -> bool {
        let is_summary = line.contains(" passed") || line.contains(" failed") || line.contains(" error");
        if is_summary {
            *self = numbers_before_words(line);
        }
        is_summary
    }
}

/// `5 passed, 1 failed`, and the skipped ones if there are any.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed{}", self.passed, self.failed, self.skips())
    }
}

/// Reads `5 passed; 1 failed`, with any punctuation; errors count as failures.
fn numbers_before_words(line: &str) -> Tally {
    let words: Vec<&str> = line
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .collect();
    let mut tally = Tally::default();
    for pair in words.windows(2) {
        if let [number, word] = pair
            && let Ok(n) = number.parse::<u64>()
        {
            match *word {
                "passed" => tally.passed += n,
                "failed" | "error" | "errors" => tally.failed += n,
                "skipped" | "ignored" => tally.skipped += n,
                _ => {}
            }
        }
    }
    tally
}

/// How a test of Go ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    Skipped,
}

/// Reads `go test -json`. Only tests without subtests of their own count, so nothing counts twice.
#[derive(Default)]
pub struct GoEvents {
    results: BTreeMap<String, Ended>,
    output: BTreeMap<String, String>,
}

impl GoEvents {
    /// Takes one line; lines that are no events (compiler errors) are handed back to be shown.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            return Some(line);
        };
        let text = |name: &str| event.get(name).and_then(|v| v.as_str()).unwrap_or_default();
        let test = text("Test").to_owned();
        match text("Action") {
            "output" | "build-output" => self.output.entry(test).or_default().push_str(text("Output")),
            "pass" => self.ended(test, Ended::Passed),
            "fail" => self.ended(test, Ended::Failed),
            "skip" => self.ended(test, Ended::Skipped),
            _ => {}
        }
        None
    }

    /// Events of a whole package name no test.
    fn ended(&mut self, test: String, ended: Ended) {
        if !test.is_empty() {
            self.results.insert(test, ended);
        }
    }

    /// Counts, and the output of the failed and the skipped tests, which says why.
    pub fn finish(self) -> (Tally, String) {
        let mut tally = Tally::default();
        let mut report = String::new();
        for (test, ended) in &self.results {
            let prefix = format!("{test}/");
            let has_subtests = self
                .results
                .range(prefix.clone()..)
                .next()
                .is_some_and(|(name, _)| name.starts_with(&prefix));
            match ended {
                _ if has_subtests => {}
                Ended::Skipped => tally.skipped += 1,
                ended => tally.add(Tally::one(*ended == Ended::Passed)),
            }
            if *ended != Ended::Passed {
                let output = self.output.get(test).map_or("", String::as_str);
                // `=== RUN`, `=== PAUSE` and the like say nothing once it is over.
                let telling = output.split_inclusive('\n').filter(|l| !l.starts_with("=== "));
                report.extend(telling);
            }
        }
        if self.results.is_empty() {
            report = self.output.into_values().collect();
        }
        (tally, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn cargo_results_add_up() {
        let mut tally = Tally::default();
        tally.cargo_line("running 3 tests");
        tally.cargo_line("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.cargo_line("test result: FAILED. 1 passed; 2 failed; 0 ignored");
        assert_eq!(tally, counts(6, 2, 0));
    }

    #[test]
    fn the_last_summary_counts() {
        let mut tally = Tally::default();
        tally.summary_line("===== 2 failed, 10 passed, 4 skipped, 1 warning, 3 errors in 0.52s =====");
        assert_eq!(tally, counts(10, 5, 4));
        tally.summary_line("nothing to see");
        tally.summary_line("60 passed, 0 failed");
        assert_eq!(tally, counts(60, 0, 0));
        for tally in [counts(3, 1, 0), counts(3, 0, 2)] {
            let mut read = Tally::default();
            read.summary_line(&tally.to_string());
            assert_eq!(read, tally);
        }
    }

    #[test]
    fn a_silent_failure_counts_once() {
        assert_eq!(Tally::default().with_exit(false).failed, 1);
        assert_eq!(counts(1, 3, 0).with_exit(false).failed, 3);
        assert_eq!(Tally::default().with_exit(true), Tally::default());
    }

    #[test]
    fn go_counts_leaves() {
        let mut events = GoEvents::default();
        for (action, test) in [
            ("pass", "TestA"),
            ("pass", "TestB/x"),
            ("fail", "TestB/y"),
            ("fail", "TestB"),
            ("pass", ""),
        ] {
            assert_eq!(
                events.line(&format!(r#"{{"Action":"{action}","Test":"{test}"}}"#)),
                None
            );
        }
        for text in ["=== RUN TestB/y", "why"] {
            events.line(&format!(
                r#"{{"Action":"output","Test":"TestB/y","Output":"{text}\n"}}"#
            ));
        }
        assert_eq!(events.line("# not json"), Some("# not json"));
        assert_eq!(events.finish(), (counts(2, 1, 0), "why\n".to_owned()));
    }

    #[test]
    fn go_tests_that_were_skipped_have_not_passed() {
        let mut events = GoEvents::default();
        // Go says of a test with skipped subtests only that it passed, and of a package without tests that it was skipped.
        for (action, test) in [("skip", "TestA/x"), ("pass", "TestA"), ("skip", "TestB"), ("skip", "")] {
            events.line(&format!(r#"{{"Action":"{action}","Test":"{test}"}}"#));
        }
        events.line(r#"{"Action":"output","Test":"TestB","Output":"no network\n"}"#);
        let (tally, report) = events.finish();
        assert!(tally.is_empty());
        assert_eq!((tally, report.as_str()), (counts(0, 0, 2), "no network\n"));
    }
}
