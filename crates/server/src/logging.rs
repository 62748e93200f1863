//! Structured logs on standard error.

use anyhow::Context;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging; once per process.
pub fn start(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .with_context(|| format!("log: {filter:?} is not a filter"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    if json {
        builder.json().init();
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).init();
    }
    Ok(())
}
