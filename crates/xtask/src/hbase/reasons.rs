//! Lists of names that are expected to fail, each with its reason.
//!
//! A line is a regular expression for whole names, white space, and a sentence. Lines that begin with `#` are comments. An
//! entry that explains nothing any more is reported, so that a list does not outlive its reasons.

use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

struct Entry {
    text: String,
    names: Regex,
    used: bool,
}

/// A list.
pub struct Reasons {
    entries: Vec<Entry>,
}

impl Reasons {
    /// Reads the file; none is an empty list.
    pub fn read(path: &Path) -> Result<Reasons> {
        match fs::read_to_string(path) {
            Ok(text) => Reasons::parse(&text).with_context(|| format!("in {}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Reasons::parse(""),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Reads the text of such a file.
    pub fn parse(text: &str) -> Result<Reasons> {
        let lines = text.lines().map(str::trim);
        let entries = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (names, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                ensure!(!reason.trim().is_empty(), "{line:?} gives no reason");
                let names = Regex::new(&format!("^(?:{names})$")).with_context(|| format!("in {line:?}"))?;
                Ok(Entry {
                    text: line.to_owned(),
                    names,
                    used: false,
                })
            });
        Ok(Reasons {
            entries: entries.collect::<Result<_>>()?,
        })
    }

    /// Whether an entry has this name; the first that has it is then of use.
    pub fn explain(&mut self, name: &str) -> bool {
        let entry = self.entries.iter_mut().find(|entry| entry.names.is_match(name));
        entry.map(|entry| entry.used = true).is_some()
    }

    /// The lines of entries that have explained nothing.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = self.entries.iter().filter(|entry| !entry.used);
        unused.map(|entry| entry.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_an_expression_and_a_reason() {
        for text in ["a.one", "a.one  ", "( It is so."] {
            assert!(Reasons::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_expression_is_for_the_whole_name() {
        let mut list = Reasons::parse("# a comment\n\na\\.one\\..*  It is so.\n").expect("parses");
        assert!(!list.explain("a.one"));
        assert_eq!(list.unused().collect::<Vec<_>>(), ["a\\.one\\..*  It is so."]);
        assert!(list.explain("a.one.x"));
        assert_eq!(list.unused().next(), None);
    }
}
