//! Fuzzes the decoders. The targets are in `fuzz/`, a workspace of its own because it needs a nightly compiler.
//!
//! Every run begins with seeds made of the golden files and by the encoders of today: seeds that are kept go stale with the
//! next version of a format, and nobody sees it.

use crate::shell::{Run, root, target_dir};
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The largest allocation that a decoder may make: the formats allow a block with a value of 100 MiB.
const ALLOCATION_MIB_MAX: u32 = 128;

/// Memory of a target as a whole. The sanitizer retains freed memory for a while.
const MEMORY_MIB_MAX: u32 = 1024;

/// Whether no target found anything.
pub fn run(target: Option<&str>, seconds: u64) -> Result<bool> {
    let cargo_fuzz = tools::cargo_fuzz()?;
    let all = targets()?;
    let chosen: Vec<&String> = match target {
        Some(name) => all.iter().filter(|t| *t == name).collect(),
        None => all.iter().collect(),
    };
    if chosen.is_empty() {
        bail!("no such target; there are: {}", all.join(", "));
    }
    in_fuzz("nightly", ["run", "--quiet", "--example", "seeds"])
        .check()
        .context("making the seeds")?;
    let time = format!("-max_total_time={seconds}");
    let allocation = format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}");
    let memory = format!("-rss_limit_mb={MEMORY_MIB_MAX}");
    let mut clean = true;
    for target in chosen {
        println!("=== fuzz {target}");
        // Cells and requests may be large, but decoders show their faults in small inputs, and more of them a second.
        let passed = nightly(&cargo_fuzz)
            .args(["run", target])
            .args(corpora(target)?)
            .args([
                "--",
                &time,
                "-max_len=65536",
                &allocation,
                &memory,
                "-timeout=10",
                "-print_final_stats=1",
            ])
            .succeeds()?;
        clean &= passed;
    }
    Ok(clean)
}

/// Whether all targets build and take their seeds, of which each has some: by the compiler of the workspace, hence without
/// coverage and sanitizers. The workspace's own checks do not see `fuzz/`.
pub fn smoke() -> Result<Tally> {
    let version = toolchain()?;
    in_fuzz(&version, ["build", "--quiet", "--bins", "--examples"]).check()?;
    in_fuzz(&version, ["run", "--quiet", "--example", "seeds"])
        .check()
        .context("making the seeds")?;
    let mut tally = Tally::default();
    for target in targets()? {
        let seeds = root().join("fuzz/seeds").join(&target);
        if !seeds.is_dir() {
            // The engine's own inputs are too short to reach anything without coverage.
            eprintln!("{target}: fuzz/examples/seeds.rs writes no seeds for it");
            tally.add(Tally::one(false));
            continue;
        }
        let program = Run::new(target_dir().join("debug").join(&target));
        let program = program.args(["-runs=0"]).args([&seeds]);
        let output = program.into_command().output().with_context(|| target.clone())?;
        if !output.status.success() {
            eprintln!(
                "{target}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        tally.add(Tally::one(output.status.success()));
    }
    Ok(tally)
}

/// The channel that the toolchain file of the workspace asks for.
fn toolchain() -> Result<String> {
    let path = root().join("rust-toolchain.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let channel = text.lines().find_map(|line| line.strip_prefix("channel = \""));
    let channel = channel.and_then(|rest| rest.strip_suffix('"'));
    channel.map(str::to_owned).context("no channel in the toolchain file")
}

/// A cargo in `fuzz/`, which has a toolchain file of its own.
fn in_fuzz<const N: usize>(toolchain: &str, arguments: [&str; N]) -> Run {
    Run::new("cargo")
        .args(arguments)
        .dir(root().join("fuzz"))
        .env("RUSTUP_TOOLCHAIN", toolchain)
        .env("CARGO_TARGET_DIR", target_dir())
        .without_env("CARGO")
        .without_env("RUSTC")
}

fn nightly(cargo_fuzz: &std::path::Path) -> Run {
    // The toolchain file of the workspace would win over a `+nightly` otherwise.
    Run::new(cargo_fuzz)
        .args(["fuzz"])
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .without_env("CARGO")
        .without_env("RUSTC")
}

/// The folders of inputs: findings of earlier runs, to which this run adds its own, and the seeds.
fn corpora(target: &str) -> Result<Vec<PathBuf>> {
    let found = root().join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
    let seeds = root().join("fuzz/seeds").join(target);
    Ok([found, seeds].into_iter().filter(|dir| dir.is_dir()).collect())
}

/// The names in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        if let (Some(stem), Some("rs")) = (path.file_stem(), path.extension().and_then(|e| e.to_str())) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
