//! `stele health`: whether a server serves requests, for health checks of containers.

use crate::http::HttpConnection;
use crate::show::print;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// Arguments of `health`.
#[derive(Args, Clone, Debug)]
pub struct HealthArgs {
    /// Whether its process answers is enough; it may recover its data or stop
    #[arg(long)]
    alive: bool,
    #[command(flatten)]
    connection: HttpConnection,
}

/// Prints the state of a server, and fails unless it serves requests.
pub async fn health(args: HealthArgs) -> Result<ExitCode> {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let (status, body) = args.connection.ask(path).await?;
    print(&String::from_utf8_lossy(&body))?;
    Ok(match status {
        200 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
