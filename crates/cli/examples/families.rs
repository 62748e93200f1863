//! Measures time and memory of operations on tables with thousands of families.
//!
//! Tables with few families serve as a comparison. `stele start --data DIR`, then `cargo run --release -p stele-cli
//! --example families -- HOST:PORT [PID]`. With the server's process number its memory is shown, too. The table in
//! `docs/locality-groups.md` is the output.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a client that measures time, outside of the server"
)]

use anyhow::{Context, Result, ensure};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use std::time::{Duration, Instant};
use stele_cli::client::admin::NewFamily;
use stele_cli::client::read::ReadQuery;
use stele_cli::client::{Client, TableRef};
use v2::column_range::{EndQualifier, StartQualifier};
use v2::mutate_rows_request::Entry;
use v2::mutation::{Mutation, SetCell};
use v2::row_filter::Filter;

const FAMILIES: [usize; 4] = [1, 100, 1_000, 10_000];
/// Reads of one family of one row; the median is shown.
const READS: usize = 101;
/// Rows that have a cell in every family.
const ROWS: usize = 10;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("HOST:PORT of a server")?;
    let pid = arguments.next();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "| families | create | add one | write a row of all | read it | {ROWS} such rows scanned | one family of one row, by \
         name | one column | memory of the server |\n|---|---|---|---|---|---|---|---|---|"
    );
    runtime.block_on(async {
        let client = Client::connect(&address, "stele").await?;
        for families in FAMILIES {
            measure(&client, families, pid.as_deref()).await?;
        }
        Ok(())
    })
}

async fn measure(client: &Client, families: usize, pid: Option<&str>) -> Result<()> {
    let table = TableRef {
        instance: "families".to_owned(),
        table: format!("of{families}"),
    };
    let before = resident(pid);
    let name = |number: usize| format!("family-{number:05}");
    let new = |number| NewFamily {
        name: name(number),
        versions_max: Some(3),
    };
    let all: Vec<NewFamily> = (0..families).map(new).collect();
    let created = timed(async || ensure_true(client.create_table(&table, &all, &[]).await?)).await?;
    let added = timed(async || client.create_families(&table, &[new(families)]).await).await?;
    let entry = |row: usize| Entry {
        row_key: format!("row{row}").into(),
        mutations: (0..families).map(|number| set(name(number))).collect(),
        ..Entry::default()
    };
    let mut written = Vec::new();
    for row in 0..ROWS {
        let entries = [entry(row)];
        written.push(timed(async || ensure_true(client.mutate_rows(&table, &entries).await?.is_empty())).await?);
    }
    let row = async |row: &'static str, filter: Option<Filter>, cells: usize| {
        let query = ReadQuery {
            start: row.into(),
            end: format!("{row}\0").into(),
            filter: filter.map(|filter| v2::RowFilter { filter: Some(filter) }),
            limit: 0,
        };
        read(client, &table, query, cells).await
    };
    let read_row = timed(async || row("row5", None, families).await).await?;
    let scanned = timed(async || read(client, &table, ReadQuery::default(), families * ROWS).await).await?;
    let middle = name(families / 2);
    let by_name = Filter::FamilyNameRegexFilter(middle.clone());
    let column = Filter::ColumnRangeFilter(v2::ColumnRange {
        family_name: middle,
        start_qualifier: Some(StartQualifier::StartQualifierClosed("q".into())),
        end_qualifier: Some(EndQualifier::EndQualifierClosed("q".into())),
    });
    let mut points = Vec::new();
    for filter in [by_name, column] {
        let mut times = Vec::new();
        for _ in 0..READS {
            times.push(timed(async || row("row3", Some(filter.clone()), 1).await).await?);
        }
        points.push(median(times));
    }
    let memory = match (before, resident(pid)) {
        (Some(before), Some(after)) => format!("{:+.1} MB", (after - before) as f64 / 1e6),
        _ => "–".to_owned(),
    };
    let points: Vec<String> = points.into_iter().map(show).collect();
    println!(
        "| {families} | {} | {} | {} | {} | {} | {} | {memory} |",
        show(created),
        show(added),
        show(median(written)),
        show(read_row),
        show(scanned),
        points.join(" | ")
    );
    Ok(())
}

fn set(family_name: String) -> v2::Mutation {
    v2::Mutation {
        mutation: Some(Mutation::SetCell(SetCell {
            family_name,
            column_qualifier: "q".into(),
            timestamp_micros: 1_000,
            value: "0123456789".into(),
        })),
    }
}

async fn read(client: &Client, table: &TableRef, query: ReadQuery, expected: usize) -> Result<()> {
    let mut rows = client.read_rows(table, query);
    let mut cells = 0;
    while let Some(row) = rows.next().await? {
        cells += row.cells.len();
    }
    ensure!(cells == expected, "{cells} cells were read, not {expected}");
    Ok(())
}

fn ensure_true(done: bool) -> Result<()> {
    ensure!(done, "the table exists already, or a write was refused");
    Ok(())
}

async fn timed(action: impl AsyncFnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    action().await?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn show(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        millis if millis < 10.0 => format!("{millis:.2} ms"),
        millis => format!("{millis:.0} ms"),
    }
}

/// Resident bytes of a process.
fn resident(pid: Option<&str>) -> Option<i64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid?)).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
