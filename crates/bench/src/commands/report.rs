//! `stele-bench report`: the page of one bundle, or of several compared.

use anyhow::{Context, Result};
use std::path::PathBuf;
use stele_bench::{bundle, report};

/// Arguments of `report`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folders written by `run`. Several are compared with the first.
    #[arg(required = true)]
    bundles: Vec<PathBuf>,
    /// File to write.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
}

/// Renders the page.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let mut bundles = Vec::new();
    for dir in &arguments.bundles {
        bundles.push(bundle::read(dir).with_context(|| format!("reading {}", dir.display()))?);
    }
    let page = if bundles.len() == 1 {
        report::render(&bundles)
    } else {
        report::compare(&bundles)
    };
    // Never into a bundle: its files are sealed.
    std::fs::write(&arguments.out, page).with_context(|| format!("writing {}", arguments.out.display()))?;
    println!("written to {}", arguments.out.display());
    Ok(true)
}
