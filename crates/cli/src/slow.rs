//! `stele slow`: calls on which a running server worked for long.

use crate::http::HttpConnection;
use crate::show::print;
use crate::sizes::{show_count, show_seconds};
use crate::timestamp;
use crate::top::head;
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use std::fmt::Write;
use std::process::ExitCode;

/// Arguments of `slow`.
#[derive(Args, Clone, Debug)]
pub struct SlowArgs {
    /// The slowest calls since the start of the server, instead of the last ones
    #[arg(long)]
    slowest: bool,
    /// Calls that are shown
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,
    #[command(flatten)]
    connection: HttpConnection,
}

#[derive(Deserialize)]
struct Slow {
    count: u64,
    threshold: Option<f64>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    time: f64,
    seconds: f64,
    kind: String,
    table: String,
    start: String,
    end: Option<String>,
    ranges: u64,
    rows: u64,
    cells_seen: u64,
    cells_passed: u64,
    blocks_read: u64,
    error: Option<String>,
}

/// Prints slow calls.
pub async fn slow(args: SlowArgs) -> Result<ExitCode> {
    let order = if args.slowest { "slowest" } else { "last" };
    let path = format!("/api/slow?order={order}&limit={}", args.limit);
    let slow: Slow = args.connection.get(&path).await?;
    print(&show(&slow))?;
    Ok(ExitCode::SUCCESS)
}

fn show(slow: &Slow) -> String {
    let Some(threshold) = slow.threshold else {
        return "slow calls are not kept: the setting slow_call is off\n".to_owned();
    };
    let (count, threshold) = (slow.count, show_seconds(threshold));
    let mut out = format!("{count} calls of {threshold} or longer since the start\n");
    if slow.calls.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "\n{:<24} {:>8} {:<13} {:<24} {:>7} {:>8} {:>8} {:>7}  ROWS",
        "ENDED", "TOOK", "CALL", "TABLE", "ROWS", "SEEN", "PASSED", "BLOCKS"
    );
    for call in &slow.calls {
        let error = call
            .error
            .as_deref()
            .map_or_else(String::new, |error| format!("  {error}"));
        let _ = writeln!(
            out,
            "{:<24} {:>8} {:<13} {:<24} {:>7} {:>8} {:>8} {:>7}  {}{error}",
            timestamp::format((call.time * 1e6) as i64 / 1_000 * 1_000),
            show_seconds(call.seconds),
            call.kind,
            head(&call.table, 24),
            show_count(call.rows as f64),
            show_count(call.cells_seen as f64),
            show_count(call.cells_passed as f64),
            show_count(call.blocks_read as f64),
            rows(call),
        );
    }
    out
}

/// The rows of a call, as a key or as a range.
fn rows(call: &Call) -> String {
    let start = head(&call.start, 40);
    let is_one = matches!(call.kind.as_str(), "get" | "row operation") || (call.kind == "write" && call.ranges == 1);
    if is_one {
        return start;
    }
    let end = call.end.as_deref().map_or_else(String::new, |end| head(end, 40));
    let ranges = match call.ranges {
        0 | 1 => String::new(),
        ranges => format!(" ({ranges})"),
    };
    format!("[{start}, {end}){ranges}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_lines() {
        let slow: Slow = serde_json::from_str(
            r#"{"count": 12, "threshold": 0.2, "calls": [
                {"time": 1700000000.123, "seconds": 1.5, "kind": "scan", "table": "a/t", "start": "a", "end": null, "ranges": 3,
                 "rows": 10, "cells_seen": 20000, "cells_passed": 15, "blocks_read": 7, "error": "Busy"},
                {"time": 1700000000.123, "seconds": 0.25, "kind": "get", "table": "a/t", "start": "k", "end": "k\\x00", "ranges": 1,
                 "rows": 1, "cells_seen": 1, "cells_passed": 1, "blocks_read": 1, "error": null}]}"#,
        )
        .unwrap();
        let shown = show(&slow);
        assert!(shown.starts_with("12 calls of 200ms or longer"), "{shown}");
        assert!(
            shown.contains("2023-11-14T22:13:20.123Z") && shown.contains("20.0k"),
            "{shown}"
        );
        assert!(
            shown.contains("[a, ) (3)  Busy\n") && shown.ends_with("  k\n"),
            "{shown}"
        );
    }

    #[test]
    fn without_a_threshold_that_is_said() {
        let off: Slow = serde_json::from_str(r#"{"count": 0, "threshold": null, "calls": []}"#).unwrap();
        assert!(show(&off).contains("slow_call is off"));
    }
}
