//! Measures the engine by itself: against RocksDB turn by turn, and by counting instructions.
//!
//! RocksDB is C++ and takes about ten minutes to build, once for each target folder. Its bindings are generated with
//! libclang, which a Python package carries, so that nothing has to be installed on the machine.

use crate::shell::{Run, cargo, root, target_dir};
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The engine's benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// Counts the instructions of the hot paths instead, and compares them with the record.
    #[arg(long)]
    counts: bool,
    /// With `--counts`: puts the counts on record.
    #[arg(long, requires = "counts")]
    record: bool,
    /// The rival: `rocksdb`.
    #[arg(long)]
    against: Option<String>,
    /// Where results go as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Workloads; all quick ones when absent. `list` lists them.
    workloads: Vec<String>,
    /// Further arguments of `stele-bench-engine`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Hot paths, with two numbers of operations whose difference is counted.
const PATHS: [(&str, u64, u64); 8] = [
    ("put", 2_000, 12_000),
    ("put-batch", 10_000, 40_000),
    ("get", 1_000, 11_000),
    ("get-kept", 1_000, 21_000),
    ("multi-get", 1_000, 11_000),
    ("get-absent", 1_000, 21_000),
    // Whole scans of 50,000 rows.
    ("scan-served", 50_000, 150_000),
    ("scan-served-reverse", 50_000, 150_000),
];

/// How much more than on record a path may cost before that is a failure. Counts repeat within a percent; another
/// processor's string functions make some percent.
const TOLERANCE: f64 = 1.10;

/// Builds the benchmark and runs it.
pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.counts {
        return counts(arguments.record).map(|tally| tally.failed == 0 && tally.passed > 0);
    }
    let program = build(arguments.against.is_some())?;
    let mut command = Run::new(program).args(&arguments.workloads);
    if let Some(rival) = &arguments.against {
        command = command.args(["--against", rival]);
    }
    if let Some(json) = &arguments.json {
        let json = std::path::absolute(json).context("the result file's path")?;
        command = command.args(["--json"]).args([json]);
    }
    // Not the folder for temporary files, which may be memory.
    let scratch = target_dir().join("tmp");
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    command
        .args(["--dir"])
        .args([scratch])
        .args(&arguments.arguments)
        .succeeds()
}

/// The command that builds the program without a rival.
pub fn building() -> Run {
    cargo(["build", "--release", "--package", "stele-enginebench"])
}

fn build(rival: bool) -> Result<PathBuf> {
    let mut build = building();
    if rival {
        let headers = Run::new("gcc").args(["-print-file-name=include"]).output()?;
        build = build
            .args(["--features", "rocksdb"])
            // As its own makefile does. Its crate passes on the instructions that Rust may use: those of every x86-64. Then
            // checksums of the log and probes of filters do without the instructions of this machine, which RocksDB asks for
            // at compile time. Stele's libraries ask for them at run time.
            .env("CXXFLAGS", "-march=native")
            .env("LIBCLANG_PATH", &tools::libclang()?)
            .env("BINDGEN_EXTRA_CLANG_ARGS", Path::new(&format!("-I{}", headers.trim())));
    }
    build.check()?;
    Ok(target_dir().join("release/stele-bench-engine"))
}

/// Counts every hot path's instructions; a path that costs more than on record fails.
pub fn counts(record: bool) -> Result<Tally> {
    let program = build(false)?;
    let path = root().join("crates/enginebench/instructions.txt");
    let known = read_record(&fs::read_to_string(&path).unwrap_or_default());
    let mut tally = Tally::default();
    let mut text =
        String::from("# Instructions per operation (row) of the hot paths: cargo xtask bench-engine --counts\n");
    for ((name, ..), count) in PATHS.iter().zip(counted(&program)) {
        let (name, count) = (*name, count?);
        let on_record = known.get(name).copied();
        let passed = record || on_record.is_some_and(|known| count as f64 <= known as f64 * TOLERANCE);
        let shown = on_record.map_or("nothing".to_owned(), |known| known.to_string());
        println!(
            "{name:12} {count:>8} instructions, {shown} on record{}",
            if passed { "" } else { ": FAILED" }
        );
        tally.add(Tally::one(passed));
        text.push_str(&format!("{name} {count}\n"));
    }
    if record {
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(tally)
}

/// The instructions of an operation of each of [`PATHS`]. As many are counted at a time as there are processors: a
/// count does not depend on other load of the machine.
fn counted(program: &Path) -> Vec<Result<u64>> {
    let left = Mutex::new(PATHS.into_iter().enumerate());
    let results = PATHS.map(|_| OnceLock::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((place, path)) = next else { break };
                    let _ = results[place].set(of_one(program, path));
                }
            });
        }
    });
    let results = results.into_iter().map(OnceLock::into_inner);
    results.map(|result| result.context("it was not counted")?).collect()
}

/// Instructions of one operation: the difference of many and few, by how many more they are.
fn of_one(program: &Path, (name, few, many): (&str, u64, u64)) -> Result<u64> {
    let difference = instructions(program, name, many)?.saturating_sub(instructions(program, name, few)?);
    Ok(difference / (many - few))
}

/// Instructions of one run, by callgrind.
fn instructions(program: &Path, path: &str, operations: u64) -> Result<u64> {
    let out = target_dir().join(format!("tmp/callgrind-{path}.out"));
    fs::create_dir_all(target_dir().join("tmp"))?;
    Run::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args([format!("--callgrind-out-file={}", out.display())])
        .args([program])
        .args([path, "--count", &operations.to_string()])
        .check()
        .context("valgrind counts instructions; it is a package of every distribution")?;
    let text = fs::read_to_string(&out).with_context(|| out.display().to_string())?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total
        .and_then(|t| t.trim().parse().ok())
        .context("callgrind wrote no total")?;
    ensure!(total > 0, "callgrind counted nothing");
    Ok(total)
}

fn read_record(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_read_back() {
        let record = read_record("# Instructions per operation\nput 12\nget-absent 7\n");
        assert_eq!(record.get("get-absent"), Some(&7));
        assert_eq!(record.len(), 2);
    }
}
