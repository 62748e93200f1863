//! The list of known differences between Stele and a real HBase, each with its reason.
//!
//! A line is a regular expression for whole keys, white space, and a sentence. Lines that begin with `#` are comments. An
//! entry that explains no difference any more is a failure, so that the list does not outlive its reasons.

use super::transcript::{Change, Compared};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

struct Entry {
    text: String,
    keys: Regex,
}

/// The list.
pub struct Differences {
    entries: Vec<Entry>,
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
        match fs::read_to_string(path) {
            Ok(text) => Differences::parse(&text).with_context(|| format!("in {}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Differences::parse(""),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Differences> {
        let lines = text.lines().map(str::trim);
        let entries = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (keys, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                ensure!(!reason.trim().is_empty(), "{line:?} gives no reason");
                let keys = Regex::new(&format!("^(?:{keys})$")).with_context(|| format!("in {line:?}"))?;
                Ok(Entry {
                    text: line.to_owned(),
                    keys,
                })
            });
        Ok(Differences {
            entries: entries.collect::<Result<_>>()?,
        })
    }

    /// Judges a run; `whole` says that all cases ran, so that each entry must be of use.
    pub fn judge(&self, compared: &[Compared], whole: bool) -> Judged {
        let mut judged = Judged::default();
        let mut used = vec![false; self.entries.len()];
        for one in compared {
            let mut unexplained = Vec::new();
            for change in &one.changes {
                match self.entries.iter().position(|entry| entry.keys.is_match(&change.key)) {
                    Some(index) => used.iter_mut().skip(index).take(1).for_each(|flag| *flag = true),
                    None => unexplained.push(change),
                }
            }
            if unexplained.is_empty() {
                judged.passed += 1;
            } else {
                judged.failed += 1;
                describe(&mut judged.report, &one.case, &unexplained);
            }
        }
        let unused = self.entries.iter().zip(used).filter(|(_, used)| whole && !used);
        for (entry, _) in unused {
            judged.failed += 1;
            judged.report += &format!("explains no difference any more: {}\n", entry.text);
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

    #[test]
    fn explained_differences_pass_and_others_are_shown() {
        let known = Differences::parse("# a comment\n\na\\.one\\..*  It is so.\n").expect("parses");
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
        let known = Differences::parse("a\\.one  It is so.\n").expect("parses");
        let judged = known.judge(&[changed("a.one", &["a.one.x"])], true);
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
        let judged = known.judge(&[changed("a.one", &[])], false);
        assert_eq!((judged.passed, judged.failed), (1, 0));
    }

    #[test]
    fn an_entry_has_an_expression_and_a_reason() {
        for text in ["a.one", "a.one  ", "( It is so."] {
            assert!(Differences::parse(text).is_err(), "{text:?}");
        }
    }
}
