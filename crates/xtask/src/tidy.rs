//! Checks the house rules that neither rustfmt nor clippy knows.
//!
//! Each check takes text and returns problems, so that it can be tested without files; this module finds the files.
//! A problem names file, line and rule. There is no way to silence one: a rule that is wrong is changed here.
//!
//! Some rules are *ratchets* ([`ratchet`]): the workspace may break them as often as it did, and not once more.

mod assertions;
mod cycles;
mod doc_tests;
mod layers;
mod lexer;
mod limiters;
mod links;
mod pages;
mod product;
mod prose;
mod ratchet;
mod sources;

use crate::shell::root;
use anyhow::{Context, Result, anyhow};
use ratchet::{Direction, Judgement, Measure};
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A place that breaks a rule.
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

/// The options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Prints every place that breaks a ratcheted rule, and checks nothing.
    #[arg(long, value_enum, value_name = "RULE", conflicts_with = "tighten")]
    list: Option<Listed>,
    /// Writes improved numbers into the ratchet file.
    #[arg(long)]
    tighten: bool,
    /// With `--list`: only places in files whose path begins like this.
    #[arg(requires = "list")]
    path: Option<String>,
}

/// The rules whose places can be listed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Listed {
    /// All four rules of language.
    Prose,
    /// Relative clauses in place of nouns.
    FreeRelatives,
    /// Words with a better one.
    BannedWords,
    /// Sentences of more than 35 words.
    LongSentences,
    /// Headers whose first sentence has more than 15 words.
    LongHeaders,
    /// Import cycles among modules.
    Cycles,
}

impl Listed {
    fn takes(self, rule: &str) -> bool {
        match self {
            Listed::Prose => true,
            Listed::FreeRelatives => rule == "free_relatives",
            Listed::BannedWords => rule == "banned_words",
            Listed::LongSentences => rule == "long_sentences",
            Listed::LongHeaders => rule == "long_headers",
            Listed::Cycles => false,
        }
    }
}

/// Runs the task that the arguments ask for.
pub fn task(arguments: &Arguments) -> Result<bool> {
    match arguments.list {
        Some(listed) => list(listed, arguments.path.as_deref().unwrap_or_default()),
        None => check_workspace(arguments.tighten),
    }
}

/// Checks the workspace; whether there was no problem.
pub fn run() -> Result<bool> {
    check_workspace(false)
}

/// Whether any doc comment has a test.
pub fn has_doc_tests() -> Result<bool> {
    let files = workspace_files(root())?;
    let mut sources = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"));
    Ok(sources.any(doc_tests::has_doc_test))
}

fn check_workspace(tighten: bool) -> Result<bool> {
    let files = workspace_files(root())?;
    let mut problems = check(&files);
    let measured = Measured::of(&files);
    problems.extend_from_slice(&measured.limiters);
    println!("tidy: {}", measured.summary());
    let judgement = judge(&measured.measures(), tighten)?;
    problems.extend(judgement.problems);
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    for hint in judgement.hints {
        println!("tidy: {hint}");
    }
    println!("tidy: {} files, {} problems", files.len(), problems.len());
    Ok(problems.is_empty())
}

/// Compares with the ratchet file, and writes improvements into it when told to.
fn judge(measures: &[Measure], tighten: bool) -> Result<Judgement> {
    let path = root().join(ratchet::PATH);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let parse = |text: &str| ratchet::parse(text).map_err(|problem| anyhow!("{problem}"));
    let recorded = parse(&text)?;
    if !tighten {
        return Ok(ratchet::judge(&recorded, measures));
    }
    let tightened = ratchet::tightened(&recorded, measures);
    fs::write(&path, &tightened).with_context(|| format!("writing {}", path.display()))?;
    Ok(ratchet::judge(&parse(&tightened)?, measures))
}

/// Prints the places that break a rule. A reader that closes the pipe, such as `head`, ends the list.
fn list(listed: Listed, path: &str) -> Result<bool> {
    let measured = Measured::of(&workspace_files(root())?);
    let places = measured.prose.faults.iter().filter(|fault| listed.takes(fault.rule));
    let places = places
        .map(|fault| &fault.problem)
        .filter(|problem| problem.file.starts_with(path));
    let mut lines: Vec<String> = places.map(ToString::to_string).collect();
    if listed == Listed::Cycles {
        let cycles = measured.cycles.iter().filter(|cycle| cycle.is_below(path));
        lines.extend(cycles.map(cycles::Cycle::describe));
    }
    let count = format!("{} found", lines.len());
    let mut output = std::io::stdout().lock();
    for line in lines.iter().chain([&count]) {
        match writeln!(output, "{line}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    Ok(true)
}

/// The state of the rules about the product, ratcheted but for limiters.
struct Measured {
    prose: prose::Findings,
    cycles: Vec<cycles::Cycle>,
    limiters: Vec<Problem>,
    assertions: Vec<Measure>,
    product_lines: usize,
}

impl Measured {
    fn of(files: &[SourceFile]) -> Measured {
        let product = product::files(files);
        Measured {
            prose: prose::Findings::of(files),
            cycles: cycles::find(&product),
            limiters: limiters::check(&product),
            assertions: assertions::measure(&product),
            product_lines: product::lines(&product),
        }
    }

    fn modules_in_cycles(&self) -> usize {
        self.cycles.iter().map(|cycle| cycle.modules.len()).sum()
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = self.prose.measures();
        measures.push(Measure {
            rule: "modules_in_cycles".to_owned(),
            value: self.modules_in_cycles() as f64,
            direction: Direction::Falls,
        });
        measures.extend(self.assertions.iter().cloned());
        measures
    }

    fn summary(&self) -> String {
        let short = |measure: &Measure| {
            let name = measure.rule.trim_start_matches("assertions.");
            format!("{name} {}", measure.value)
        };
        let assertions: Vec<String> = self.assertions.iter().map(short).collect();
        format!(
            "{}; {} modules in {} cycles; assertions per 1,000 lines (aim {}): {}; {} product lines",
            self.prose.summary(),
            self.modules_in_cycles(),
            self.cycles.len(),
            assertions::AIM,
            assertions.join(", "),
            self.product_lines
        )
    }
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
                problems.extend(pages::length(file));
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

/// Text files below `dir`, except built, hidden or separately versioned ones.
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
        // Files that are not text (golden files) have their own tests.
    }
    Ok(())
}
