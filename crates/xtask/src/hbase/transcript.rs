//! Transcripts: lines `area.case.step: result`, their files, and the comparison of two of them.
//!
//! A *key* is the part before the first `: `; keys are unique in a case. Cases keep the order in which they ran.

use anyhow::{Context, Result, bail};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// An observation: its key and its line.
type Line = (String, String);

/// The lines of each case, by `area.case`.
#[derive(Debug, Default)]
pub struct Transcript {
    cases: Vec<(String, Vec<Line>)>,
}

/// A case in which two transcripts may differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Compared {
    pub case: String,
    pub changes: Vec<Change>,
}

/// An observation that is not as expected; one of the two lines may be missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub expected: Option<String>,
    pub actual: Option<String>,
}

impl Transcript {
    /// Takes a line of the program.
    pub fn take(&mut self, line: &str) -> Result<()> {
        let Some((key, _)) = line.split_once(": ") else {
            bail!("{line:?} has no key");
        };
        let mut parts = key.splitn(3, '.');
        let (Some(area), Some(name), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("{line:?}: expected area.case.step");
        };
        let case = format!("{area}.{name}");
        let entry = (key.to_owned(), line.to_owned());
        match self.cases.last_mut() {
            Some((last, lines)) if *last == case => lines.push(entry),
            _ => self.cases.push((case, vec![entry])),
        }
        Ok(())
    }

    /// Whether no case ran.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    fn parse(text: &str) -> Result<Transcript> {
        let mut transcript = Transcript::default();
        text.lines().try_for_each(|line| transcript.take(line))?;
        Ok(transcript)
    }

    fn lines_of(&self, case: &str) -> &[Line] {
        let found = self.cases.iter().find(|(name, _)| name == case);
        found.map_or(&[], |(_, lines)| lines)
    }

    /// By area, in the order in which they ran.
    fn areas(self) -> BTreeMap<String, Transcript> {
        let mut areas = BTreeMap::<String, Transcript>::new();
        for (case, lines) in self.cases {
            let area = case.split('.').next().unwrap_or_default().to_owned();
            areas.entry(area).or_default().cases.push((case, lines));
        }
        areas
    }

    fn text(&self) -> String {
        let lines = self.cases.iter().flat_map(|(_, lines)| lines);
        lines.map(|(_, line)| format!("{line}\n")).collect()
    }

    /// Replaces the cases that the other has, and takes in those that are new.
    fn update(&mut self, other: Transcript) {
        for (case, lines) in other.cases {
            match self.cases.iter_mut().find(|(name, _)| *name == case) {
                Some((_, old)) => *old = lines,
                None => self.cases.push((case, lines)),
            }
        }
    }

    /// Compares all cases of both whose names match.
    fn compare(&self, actual: &Transcript, only: &Regex) -> Vec<Compared> {
        let mut names: Vec<&String> = self.cases.iter().map(|(name, _)| name).collect();
        let new = actual.cases.iter().map(|(name, _)| name);
        names.extend(new.filter(|name| self.lines_of(name).is_empty()));
        let matching = names.into_iter().filter(|name| only.is_match(name));
        matching
            .map(|name| Compared {
                case: name.clone(),
                changes: changes(self.lines_of(name), actual.lines_of(name)),
            })
            .collect()
    }
}

/// By key, in the order of the expectation; then the lines that nobody expected.
fn changes(expected: &[Line], actual: &[Line]) -> Vec<Change> {
    let find = |lines: &[Line], key: &str| lines.iter().find(|(k, _)| k == key).map(|(_, line)| line.clone());
    let mut changes = Vec::new();
    for (key, line) in expected {
        let found = find(actual, key);
        if found.as_ref() != Some(line) {
            changes.push(Change {
                key: key.clone(),
                expected: Some(line.clone()),
                actual: found,
            });
        }
    }
    for (key, line) in actual {
        if find(expected, key).is_none() {
            changes.push(Change {
                key: key.clone(),
                expected: None,
                actual: Some(line.clone()),
            });
        }
    }
    changes
}

/// The recorded transcript, a file for each area.
pub struct Expected {
    dir: PathBuf,
}

impl Expected {
    /// That in this directory.
    pub fn new(dir: PathBuf) -> Expected {
        Expected { dir }
    }

    /// Compares the recorded cases whose names match, of all areas, with those that ran.
    pub fn compare(&self, actual: &Transcript, only: &Regex) -> Result<Vec<Compared>> {
        let entries = fs::read_dir(&self.dir).with_context(|| format!("reading {}", self.dir.display()))?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        let mut recorded = Transcript::default();
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            recorded.update(Transcript::parse(&text).with_context(|| format!("in {}", file.display()))?);
        }
        Ok(recorded.compare(actual, only))
    }

    /// Replaces the files of the areas that ran, or single cases in them when not all ran. Returns the number of files written.
    pub fn write(&self, transcript: Transcript, only: &Regex) -> Result<usize> {
        fs::create_dir_all(&self.dir).with_context(|| format!("making {}", self.dir.display()))?;
        let areas = transcript.areas();
        let count = areas.len();
        for (area, cases) in areas {
            let path = self.dir.join(format!("{area}.txt"));
            let mut all = match fs::read_to_string(&path) {
                Ok(text) if !only.as_str().is_empty() => Transcript::parse(&text)?,
                _ => Transcript::default(),
            };
            all.update(cases);
            fs::write(&path, all.text()).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(expected: &str, actual: &str, only: &str) -> Vec<(String, Vec<String>)> {
        let [expected, actual] = [expected, actual].map(|text| Transcript::parse(text).expect("parses"));
        let all = expected.compare(&actual, &Regex::new(only).expect("an expression"));
        all.into_iter()
            .map(|one| (one.case, one.changes.into_iter().map(|change| change.key).collect()))
            .collect()
    }

    fn case(name: &str, keys: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect())
    }

    #[test]
    fn lines_are_compared_by_key() {
        let expected = "a.one.x: 1\na.one.y: 2\na.two.x: 1\n";
        let actual = "a.one.y: 3\na.one.z: 4\na.two.x: 1\na.new.x: 1\n";
        assert_eq!(
            compared(expected, actual, ""),
            [
                case("a.one", &["a.one.x", "a.one.y", "a.one.z"]),
                case("a.two", &[]),
                case("a.new", &["a.new.x"])
            ]
        );
        assert_eq!(compared(expected, actual, r"\.two"), [case("a.two", &[])]);
    }

    #[test]
    fn steps_may_hold_dots_and_lines_colons() {
        let transcript = Transcript::parse("a.b.c.d.0: r {f:q@1=v: w}\n").expect("parses");
        assert_eq!(transcript.lines_of("a.b")[0].0, "a.b.c.d.0");
        for line in ["a.b: 1", "no key", "a.b.c:1"] {
            assert!(Transcript::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_partial_record_keeps_the_other_cases() {
        let mut recorded = Transcript::parse("a.one.x: 1\na.two.x: 1\n").expect("parses");
        recorded.update(Transcript::parse("a.three.x: 1\na.one.y: 2\n").expect("parses"));
        assert_eq!(recorded.text(), "a.one.y: 2\na.two.x: 1\na.three.x: 1\n");
    }
}
