//! `stele top`: figures and the busiest tablets of a running server, refreshed in the terminal.

use crate::http::HttpConnection;
use crate::interrupt::interrupted;
use crate::show::print;
use crate::sizes::{show_bytes, show_count, show_seconds};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Causes for which writers wait, with their series.
const CAUSES: [(&str, &str); 12] = [
    ("wait_memory", "memory"),
    ("wait_compaction", "compaction"),
    ("wait_stopped", "stopped"),
    ("wait_log", "log"),
    ("wait_log_queue", "log queue"),
    ("wait_latch", "same rows"),
    ("wait_gate", "split"),
    ("wait_large", "large writes"),
    ("wait_reservation", "batches"),
    ("wait_append", "append"),
    ("wait_apply", "memtable"),
    ("wait_followers", "group"),
];
/// Waits below this are not shown: half a millisecond in a second.
const WAIT_MIN: f64 = 0.0005;
/// Begins a screen of its own, which the terminal keeps apart from its history, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the upper left corner. The rest of a line, and the lines below the cursor, are cleared.
const HOME: &str = "\x1b[H";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_LINE: &str = "\x1b[K";

/// Arguments of `top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Seconds between two requests; the server makes its figures every five
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Prints once and ends
    #[arg(long)]
    once: bool,
    /// Tablets that are shown
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tablets: u16,
    /// Order of the tablets
    #[arg(long, value_enum, default_value_t = Order::Busy)]
    sort: Order,
    #[command(flatten)]
    connection: HttpConnection,
}

/// Order of tablets.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Order {
    /// Rows read and written in a second
    Busy,
    /// Bytes
    Size,
    /// Bytes of memtables
    Memory,
    /// Compaction debt
    Debt,
    /// Number of things waited for
    Waits,
}

#[derive(Default, Deserialize)]
struct Overview {
    version: String,
    stage: String,
    now: i64,
    started: i64,
    data: String,
    memory_budget: u64,
    #[serde(default)]
    values: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    writes_refused: bool,
    #[serde(default)]
    damaged: Vec<serde_json::Value>,
}

impl Overview {
    fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied().flatten()
    }
}

#[derive(Default, Deserialize)]
struct Tablets {
    total: usize,
    tablets: Vec<Tablet>,
}

#[derive(Deserialize)]
struct Tablet {
    id: String,
    table: String,
    start: String,
    bytes: u64,
    memtable_bytes: u64,
    runs: usize,
    reads: f64,
    writes: f64,
    waits: Vec<Waiting>,
}

#[derive(Deserialize)]
struct Waiting {
    wait: String,
    seconds: f64,
}

/// Shows the server until it is interrupted.
pub async fn top(args: TopArgs) -> Result<ExitCode> {
    let screen = look(&args).await?;
    if args.once {
        print(&screen)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("{ENTER}{}", on_screen(&screen)))?;
    let outcome = tokio::select! {
        outcome = refresh(&args) => outcome,
        () = interrupted() => Ok(()),
    };
    print(LEAVE)?;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Ends when nobody reads any more. A server that does not answer may come back.
async fn refresh(args: &TopArgs) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_secs(args.every)).await;
        let screen = match look(args).await {
            Ok(screen) => screen,
            Err(error) => format!("{error:#}\n"),
        };
        if !print(&on_screen(&screen))? {
            return Ok(());
        }
    }
}

/// The lines of a screen in place of those before.
fn on_screen(screen: &str) -> String {
    let lines = screen.replace('\n', &format!("{CLEAR_LINE}\n"));
    format!("{HOME}{lines}{CLEAR_BELOW}")
}

async fn look(args: &TopArgs) -> Result<String> {
    let order = args.sort.to_possible_value();
    let sort = order.as_ref().map_or("busy", |order| order.get_name());
    let path = format!("/api/tablets?sort={sort}&limit={}", args.tablets);
    let overview: Overview = args.connection.get("/api/overview").await?;
    let tablets = match overview.stage.as_str() {
        "recovering" => Tablets::default(),
        _ => args.connection.get(&path).await?,
    };
    Ok(show(&overview, &tablets))
}

fn show(overview: &Overview, tablets: &Tablets) -> String {
    let count = |name| overview.value(name).map_or_else(|| "-".to_owned(), show_count);
    let bytes = |name| {
        overview
            .value(name)
            .map_or_else(|| "-".to_owned(), |it| show_bytes(it as u64))
    };
    let time = |name| overview.value(name).map_or_else(|| "-".to_owned(), show_seconds);
    let mut out = format!(
        "stele {}  {}  up {}  {}\n\n",
        overview.version,
        overview.stage,
        show_seconds((overview.now - overview.started).max(0) as f64),
        overview.data
    );
    let _ = writeln!(
        out,
        "calls     reads {}/s  writes {}/s  errors {}/s  refused {}/s  connections {}",
        count("reads"),
        count("writes"),
        count("errors"),
        count("refused"),
        count("connections"),
    );
    let _ = writeln!(
        out,
        "latency   read p50 {}  p95 {}  p99 {}   write p50 {}  p95 {}  p99 {}",
        time("read_p50"),
        time("read_p95"),
        time("read_p99"),
        time("write_p50"),
        time("write_p95"),
        time("write_p99"),
    );
    let _ = writeln!(
        out,
        "memory    resident {} of {}  memtables {}  blocks {}  rows {}  indexes {}  reserved {}",
        bytes("resident"),
        show_bytes(overview.memory_budget),
        bytes("memtables"),
        bytes("blocks"),
        bytes("rows"),
        bytes("indexes"),
        bytes("reserved"),
    );
    let _ = writeln!(
        out,
        "storage   log {}  sync p99 {}  debt {}  compactions {}  flushes {}  free {}",
        bytes("log_bytes"),
        time("sync_p99"),
        bytes("debt"),
        count("compactions"),
        count("flushes"),
        bytes("free"),
    );
    let _ = writeln!(out, "waiting   {}", show_causes(overview));
    if overview.writes_refused {
        out.push_str("the disk is full: writes are refused\n");
    }
    if !overview.damaged.is_empty() {
        let _ = writeln!(out, "{} tablets are damaged and not served", overview.damaged.len());
    }
    out.push('\n');
    out.push_str(&show_tablets(tablets));
    out
}

/// The causes for which writers wait, the longest first.
fn show_causes(overview: &Overview) -> String {
    let value = |series| overview.value(series).unwrap_or(0.0);
    let mut causes: Vec<(f64, &str)> = CAUSES.iter().map(|(series, name)| (value(series), *name)).collect();
    causes.retain(|(seconds, _)| *seconds >= WAIT_MIN);
    causes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shown: Vec<String> = causes
        .into_iter()
        .map(|(seconds, name)| format!("{name} {}/s", show_seconds(seconds)))
        .collect();
    if shown.is_empty() {
        "no writer waits".to_owned()
    } else {
        shown.join("  ")
    }
}

fn show_tablets(tablets: &Tablets) -> String {
    let mut out = format!(
        "{:<20} {:<24} {:>8} {:>8} {:>9} {:>9} {:>4}  {:<28} ROWS FROM ({} tablets)\n",
        "TABLET", "TABLE", "READ/S", "WRITE/S", "SIZE", "MEMTABLE", "RUNS", "STATE", tablets.total
    );
    for tablet in &tablets.tablets {
        let waits: Vec<String> = tablet
            .waits
            .iter()
            .map(|waiting| format!("{} {}", waiting.wait, show_seconds(waiting.seconds)))
            .collect();
        let _ = writeln!(
            out,
            "{:<20} {:<24} {:>8} {:>8} {:>9} {:>9} {:>4}  {:<28} {}",
            tablet.id,
            head(&tablet.table, 24),
            show_count(tablet.reads),
            show_count(tablet.writes),
            show_bytes(tablet.bytes),
            show_bytes(tablet.memtable_bytes),
            tablet.runs,
            head(&waits.join(", "), 28),
            head(&tablet.start, 48),
        );
    }
    out
}

/// The beginning of a text, as wide as its column.
pub(crate) fn head(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_figures_and_tablets() {
        let overview: Overview = serde_json::from_str(
            r#"{"version": "1", "stage": "ready", "now": 500, "started": 80, "data": "d", "memory_budget": 1073741824,
                "values": {"reads": 12345, "read_p99": 0.0042, "write_p50": null, "wait_log": 0.25, "wait_gate": 0.0001,
                           "debt": 1048576}, "writes_refused": true, "extra": 1}"#,
        )
        .unwrap();
        let tablets: Tablets = serde_json::from_str(
            r#"{"total": 9000, "offset": 0, "tablets": [{"id": "7", "table": "a/a-very-long-name-of-a-table", "start": "k\\x00",
                "bytes": 1, "memtable_bytes": 0, "runs": 3, "reads": 10, "writes": 0.5,
                "waits": [{"wait": "flush", "seconds": 3}]}]}"#,
        )
        .unwrap();
        let shown = show(&overview, &tablets);
        for part in [
            "up 7.0min",
            "reads 12.3k/s",
            "p99 4.2ms",
            "write p50 -",
            "debt 1.0MiB",
            "waiting   log 250ms/s\n",
            "writes are refused",
            "a/a-very-long-name-of-a…",
            "flush 3.0s",
            "k\\x00",
            "(9000 tablets)",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        assert!(on_screen(&shown).starts_with(HOME));
    }
}
