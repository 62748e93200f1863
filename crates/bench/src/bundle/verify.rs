//! Checks a bundle: its files against `SHA256SUMS`, and its figures against one another.

use super::layout::{self, INCOMPLETE, SUMS};
use super::{BundleError, consistency, read, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// Most files of a bundle. The largest suite has some hundred runs; more than this is not a bundle.
const FILES_MAX: usize = 100_000;

/// A fault of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or the run.
    pub place: String,
    /// Expected and found.
    pub what: String,
}

impl Problem {
    pub(super) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

/// All faults of the bundle in `dir`. Empty if it is as it was written.
pub fn verify(dir: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    match paths(dir) {
        Ok(found) => check_sums(dir, &found, &mut problems),
        Err(error) => problems.push(Problem::new(dir.display().to_string(), error.to_string())),
    }
    match read(dir) {
        Ok(bundle) => consistency::check(&bundle, &mut problems),
        Err(error) => problems.push(Problem::new(dir.display().to_string(), error.to_string())),
    }
    problems
}

/// The paths of all files below `dir`, in order. Symbolic links count as files, and are not followed.
pub(super) fn paths(dir: &Path) -> Result<BTreeSet<String>, BundleError> {
    let mut found = BTreeSet::new();
    let mut folders = vec![(dir.to_owned(), String::new())];
    let mut entries = 0usize;
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(BundleError::io(&folder))? {
            let entry = entry.map_err(BundleError::io(&folder))?;
            entries += 1;
            if entries > FILES_MAX {
                return Err(BundleError::damaged(dir, format!("more than {FILES_MAX} files")));
            }
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().map_err(BundleError::io(&folder))?.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// Compares the files at `found` with `SHA256SUMS`.
pub(super) fn check_sums(dir: &Path, found: &BTreeSet<String>, problems: &mut Vec<Problem>) {
    if found.contains(INCOMPLETE) {
        problems.push(Problem::new(INCOMPLETE, "the bench that wrote this bundle did not end"));
    }
    let sums = match listed(dir, problems) {
        Ok(sums) => sums,
        Err(error) => return problems.push(Problem::new(SUMS, error.to_string())),
    };
    for path in found {
        if !sums.contains_key(path) && path != SUMS && path != INCOMPLETE {
            problems.push(Problem::new(path, format!("not in {SUMS}")));
        }
    }
    for (path, expected) in &sums {
        match found.contains(path).then(|| read::file(dir, path)) {
            None => problems.push(Problem::new(path, "missing")),
            Some(Err(error)) => problems.push(Problem::new(path, error.to_string())),
            Some(Ok(content)) => {
                let sum = write::sum(&content);
                if sum != *expected {
                    problems.push(Problem::new(
                        path,
                        format!("changed: SHA-256 {sum}, expected {expected}"),
                    ));
                }
            }
        }
    }
}

/// `SHA256SUMS` as a map from paths to sums. Lines that violate the format are reported.
fn listed(dir: &Path, problems: &mut Vec<Problem>) -> Result<BTreeMap<String, String>, BundleError> {
    let text = read::file(dir, SUMS)?;
    let text = String::from_utf8_lossy(&text);
    let mut sums = BTreeMap::new();
    for (number, line) in (1u64..).zip(text.lines()) {
        match line.split_once("  ") {
            Some((sum, path)) if sum.len() == 64 && layout::is_path(path) => {
                if sums.insert(path.to_owned(), sum.to_owned()).is_some() {
                    problems.push(Problem::new(SUMS, format!("line {number}: {path} is there twice")));
                }
            }
            _ => problems.push(Problem::new(
                SUMS,
                format!("line {number}: expected a sum, two spaces and a path"),
            )),
        }
    }
    Ok(sums)
}
