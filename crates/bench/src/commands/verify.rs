//! `stele-bench verify`: whether bundles are whole and free of contradictions.

use anyhow::Result;
use std::path::PathBuf;
use stele_bench::bundle;

/// Arguments of `verify`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folders written by `run`.
    #[arg(required = true)]
    bundles: Vec<PathBuf>,
}

/// Prints every problem.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let mut right = true;
    for dir in &arguments.bundles {
        let problems = bundle::verify(dir);
        for problem in &problems {
            println!("{}: {problem}", dir.display());
        }
        if problems.is_empty() {
            let unknown = match bundle::repeats(dir) {
                Ok(Some(_)) => "",
                _ => "; its repeats are not recorded, so a repeat that all of its runs lack is not noticed",
            };
            println!("{}: whole, and it agrees with itself{unknown}", dir.display());
        }
        right &= problems.is_empty();
    }
    Ok(right)
}
