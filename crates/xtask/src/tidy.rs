//! Checks of the house rules that neither rustfmt nor clippy knows.
//!
//! Each check takes text and returns problems, so that it can be tested without files; this module finds the files.
//! A problem names file, line and rule. There is no way to silence one: a rule that is wrong is changed here.

mod layers;
mod links;
mod sources;

use crate::shell::root;
use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::Path;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Relative to the workspace.
    pub file: String,
    /// From 1; 0 for the file as a whole.
    pub line: usize,
    pub what: String,
}

impl Problem {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Problem {
        Problem {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A text file of the workspace.
pub struct SourceFile {
    /// Relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
}

/// Whether there was nothing to complain about.
pub fn run() -> Result<bool> {
    let files = workspace_files(root())?;
    let problems = check(&files);
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    println!("tidy: {} files, {} problems", files.len(), problems.len());
    Ok(problems.is_empty())
}

/// All checks over all files.
fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut manifests = Vec::new();
    let documents = links::Documents::new(files);
    for file in files {
        match file.path.rsplit('.').next() {
            Some("rs") => {
                problems.extend(sources::rust(file));
                problems.extend(documents.paths_named_in(file));
            }
            Some("md") => {
                problems.extend(sources::words(file));
                problems.extend(documents.links_in(file));
            }
            Some("go" | "py") => problems.extend(sources::words(file)),
            Some("toml") => {
                problems.extend(layers::workspace_comments(file));
                manifests.push(file);
            }
            _ => {}
        }
    }
    for manifest in manifests {
        problems.extend(layers::manifest(manifest));
    }
    problems
}

/// Text files below `dir`, without what is built, hidden or versioned elsewhere.
fn workspace_files(dir: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    collect(dir, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(dir: &Path, prefix: &str, files: &mut Vec<SourceFile>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            let skipped = name.starts_with('.')
                || matches!(name.as_str(), "target" | "__pycache__" | "stele-data")
                || matches!(path.as_str(), "fuzz/corpus" | "fuzz/artifacts" | "fuzz/coverage");
            if !skipped {
                collect(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(SourceFile { path, text });
        }
        // What is not text (golden files) has its own tests.
    }
    Ok(())
}
