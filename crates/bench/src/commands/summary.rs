//! `stele-bench summary`: bundles as Markdown.

use anyhow::{Context, Result};
use std::path::PathBuf;
use stele_bench::{bundle, report};

/// Arguments of `summary`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folders written by `run`.
    #[arg(required = true)]
    bundles: Vec<PathBuf>,
}

/// Prints them.
pub fn run(arguments: &Arguments) -> Result<bool> {
    for dir in &arguments.bundles {
        let bundle = bundle::read(dir).with_context(|| format!("reading {}", dir.display()))?;
        print!("{}", report::summary(&bundle));
    }
    Ok(true)
}
