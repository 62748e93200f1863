//! Fuzzes the decoders. The targets are in `fuzz/`, a workspace of its own because it needs a nightly compiler.

use crate::shell::{Run, root};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

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
    let limit = format!("-max_total_time={seconds}");
    let mut clean = true;
    for target in chosen {
        println!("=== fuzz {target}");
        // Cells and requests may be large, but decoders show their faults in small inputs, and more of them a second.
        let passed = nightly(&cargo_fuzz)
            .args(["run", target])
            .args(corpora(target)?)
            .args([
                "--",
                &limit,
                "-max_len=65536",
                "-rss_limit_mb=2048",
                "-timeout=10",
                "-print_final_stats=1",
            ])
            .succeeds()?;
        clean &= passed;
    }
    Ok(clean)
}

fn nightly(cargo_fuzz: &std::path::Path) -> Run {
    // The toolchain file of the workspace would win over a `+nightly` otherwise.
    Run::new(cargo_fuzz)
        .args(["fuzz"])
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .without_env("CARGO")
        .without_env("RUSTC")
}

/// Where inputs come from: what earlier runs found, which also takes what this one finds, and the seeds in the repository.
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
