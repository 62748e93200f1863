//! The list of known differences between Stele and a real HBase, each with its reason.

use super::reasons::Reasons;
use super::transcript::{Change, Compared};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// The list.
pub struct Differences {
    reasons: Reasons,
}

/// The verdict on a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Cases without a difference that is not explained.
    pub passed: u64,
    /// Other cases, and entries without use.
    pub failed: u64,
    /// The differences, case by case.
    pub report: String,
}

impl Differences {
    /// Reads the file; none is an empty list.
    pub fn read(path: &Path) -> Result<Differences> {
        Ok(Differences {
            reasons: Reasons::read(path)?,
        })
    }

    /// Judges a run; `whole` says that all cases ran, so that each entry must be of use.
    pub fn judge(mut self, compared: &[Compared], whole: bool) -> Judged {
        let mut judged = Judged::default();
        for one in compared {
            let changes = one.changes.iter();
            let unexplained: Vec<_> = changes.filter(|change| !self.reasons.explain(&change.key)).collect();
            if unexplained.is_empty() {
                judged.passed += 1;
            } else {
                judged.failed += 1;
                describe(&mut judged.report, &one.case, &unexplained);
            }
        }
        for entry in self.reasons.unused().filter(|_| whole) {
            judged.failed += 1;
            judged.report += &format!("explains no difference any more: {entry}\n");
        }
        judged
    }
}

fn describe(report: &mut String, case: &str, changes: &[&Change]) {
    // Writing to a string does not fail.
    let _ = writeln!(report, "@@ {case}");
    for change in changes {
        for (sign, line) in [('-', &change.expected), ('+', &change.actual)] {
            if let Some(line) = line {
                let _ = writeln!(report, "{sign}{line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(case: &str, keys: &[&str]) -> Compared {
        let changes = keys.iter().map(|key| Change {
            key: (*key).to_owned(),
            expected: Some(format!("{key}: 1")),
            actual: None,
        });
        Compared {
            case: case.to_owned(),
            changes: changes.collect(),
        }
    }

    fn known(text: &str) -> Differences {
        Differences {
            reasons: Reasons::parse(text).expect("parses"),
        }
    }

    #[test]
    fn explained_differences_pass_and_others_are_shown() {
        let known = known("# a comment\n\na\\.one\\..*  It is so.\n");
        let run = [
            changed("a.one", &["a.one.x", "a.one.y"]),
            changed("a.two", &["a.two.x"]),
            changed("a.same", &[]),
        ];
        let judged = known.judge(&run, true);
        assert_eq!((judged.passed, judged.failed), (2, 1));
        assert_eq!(judged.report, "@@ a.two\n-a.two.x: 1\n");
    }

    #[test]
    fn an_entry_without_use_fails_a_whole_run() {
        let text = "a\\.one  It is so.\n";
        let judged = known(text).judge(&[changed("a.one", &["a.one.x"])], true);
        assert_eq!(
            (judged.passed, judged.failed),
            (0, 2),
            "an expression is for the whole key"
        );
        assert!(
            judged.report.ends_with("any more: a\\.one  It is so.\n"),
            "{}",
            judged.report
        );
        let judged = known(text).judge(&[changed("a.one", &[])], false);
        assert_eq!((judged.passed, judged.failed), (1, 0));
    }
}
