//! `stele-bench null-server`: prepared responses, at the least possible cost.

use anyhow::Result;
use stele_bench::target::null;

/// Arguments of `null-server`.
#[derive(clap::Args)]
pub struct Arguments {
    /// `hbase` or `bigtable`.
    #[arg(long)]
    protocol: String,
}

/// Serves until standard input is closed.
pub async fn run(arguments: &Arguments) -> Result<bool> {
    null::serve(&arguments.protocol).await?;
    Ok(true)
}
