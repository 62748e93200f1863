//! `stele-bench worker`: works for a dispatcher.

use anyhow::Result;
use stele_bench::engine::worker::{self, Join};

/// Arguments of `worker`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address of the dispatcher, as it prints it.
    #[arg(long)]
    join: String,
    /// Generator threads, each with a connection of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The token that the dispatcher demands of workers.
    #[arg(long, env = "STELE_BENCH_TOKEN", hide_env_values = true)]
    token: String,
}

/// Works until the dispatcher closes the connection.
pub async fn run(arguments: Arguments) -> Result<bool> {
    let Arguments { join, threads, token } = arguments;
    worker::run(Join {
        address: join,
        token,
        threads,
    })
    .await?;
    Ok(true)
}
