//! `explain`: the work that a read causes in the server.
//!
//! The server makes the read and returns counts instead of rows, by tablet. `docs/explain.md` tells their meaning.

use crate::client::read::ReadQuery;
use crate::client::{Client, TableRef};
use crate::connection::Connection;
use crate::escape::{escape, to_json};
use crate::query::{CellArgs, RangeArgs, chain, parse_bytes};
use crate::show::print;
use crate::sizes::{show_bytes, show_seconds};
use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_filter::Filter;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use stele_adminapi::{ExplainReadResponse, TabletWork};

/// A read to explain.
#[derive(Args, Clone, Debug)]
pub struct Explain {
    /// The table, as instance/table
    pub table: TableRef,
    /// The one row to read (\xNN for any byte)
    #[arg(long, value_name = "KEY", value_parser = parse_bytes, conflicts_with_all = ["start", "end", "prefix", "regex", "limit"])]
    row: Option<Bytes>,
    #[command(flatten)]
    range: RangeArgs,
    /// Only rows whose whole key matches this RE2 expression
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// Rows at most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    cells: CellArgs,
}

/// Arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    #[command(flatten)]
    explain: Explain,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Explain {
    /// Has the server make the read.
    pub async fn run(self, client: &Client) -> Result<ExplainReadResponse> {
        let mut filters = Vec::new();
        if let Some(regex) = self.regex {
            filters.push(Filter::RowKeyRegexFilter(regex.into()));
        }
        filters.extend(self.cells.filters());
        let filter = chain(filters);
        let query = match self.row {
            Some(row) => Some(ReadQuery::of_row(row, filter)),
            None => self.range.query(filter, self.limit),
        };
        match query {
            Some(query) => client.explain_read(&self.table, &query).await,
            // No key is in the range.
            None => Ok(ExplainReadResponse::default()),
        }
    }
}

/// Explains a read.
pub async fn explain(args: ExplainArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let explained = args.explain.run(&client).await?;
    print(&match args.json {
        true => format!("{}\n", to_value(&explained)),
        false => show(&explained),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// An explanation for people.
pub(crate) fn show(explained: &ExplainReadResponse) -> String {
    let mut out = String::new();
    for tablet in &explained.tablets {
        let _ = writeln!(
            out,
            "tablet {}  [{}, {})  {}",
            tablet.tablet,
            escape(&tablet.start),
            escape(&tablet.end),
            show_seconds(tablet.micros as f64 / 1e6)
        );
        lines(tablet, &mut out);
    }
    match explained.tablets.len() {
        0 => out.push_str("no tablet has such rows\n"),
        1 => {}
        tablets => {
            let sum = sum(&explained.tablets);
            let took = show_seconds(sum.micros as f64 / 1e6);
            let _ = writeln!(out, "all {tablets} tablets  {took}");
            lines(&sum, &mut out);
        }
    }
    if explained.incomplete {
        out.push_str("more tablets have such rows, and were not read\n");
    }
    out
}

/// The counts of a tablet.
fn lines(tablet: &TabletWork, out: &mut String) {
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "    {name:<13} {text}");
    };
    line("rows", tablet.rows.to_string());
    line(
        "cells",
        format!("{} seen, {} passed", tablet.cells_seen, tablet.cells_passed),
    );
    if is_elsewhere(tablet) {
        let at = match tablet.server.as_str() {
            "" => "another server".to_owned(),
            server => server.to_owned(),
        };
        return line("work", format!("on {at}, which does not tell it here"));
    }
    if tablet.row_cache_hits > 0 {
        line("row cache", format!("{} rows", tablet.row_cache_hits));
    }
    line("memtables", tablet.memtables.to_string());
    line(
        "files",
        format!("{} used of {} in {} runs", tablet.files_used, tablet.files, tablet.runs),
    );
    let (asked, excluded) = (tablet.filters_asked, tablet.filters_excluded);
    line("bloom filters", format!("{asked} asked, {excluded} excluded a file"));
    let stored = show_bytes(tablet.block_bytes_read);
    let (cached, read) = (tablet.blocks_cached, tablet.blocks_read);
    line(
        "blocks",
        format!("{cached} from the cache, {read} from storage ({stored})"),
    );
    if tablet.values_read > 0 {
        let stored = show_bytes(tablet.value_bytes_read);
        line(
            "large values",
            format!("{} from storage ({stored})", tablet.values_read),
        );
    }
}

/// A tablet that has rows and no sources is one of another server.
fn is_elsewhere(tablet: &TabletWork) -> bool {
    let has_sources = tablet.memtables + tablet.files + tablet.row_cache_hits > 0;
    !tablet.server.is_empty() || (tablet.cells_seen > 0 && !has_sources)
}

/// The counts of all tablets together.
fn sum(tablets: &[TabletWork]) -> TabletWork {
    let mut sum = TabletWork::default();
    for tablet in tablets {
        sum.micros += tablet.micros;
        sum.rows += tablet.rows;
        sum.cells_seen += tablet.cells_seen;
        sum.cells_passed += tablet.cells_passed;
        sum.row_cache_hits += tablet.row_cache_hits;
        sum.memtables += tablet.memtables;
        sum.runs += tablet.runs;
        sum.files += tablet.files;
        sum.files_used += tablet.files_used;
        sum.filters_asked += tablet.filters_asked;
        sum.filters_excluded += tablet.filters_excluded;
        sum.blocks_cached += tablet.blocks_cached;
        sum.blocks_read += tablet.blocks_read;
        sum.block_bytes_read += tablet.block_bytes_read;
        sum.values_read += tablet.values_read;
        sum.value_bytes_read += tablet.value_bytes_read;
    }
    sum
}

/// An explanation for programs.
pub(crate) fn to_value(explained: &ExplainReadResponse) -> Value {
    let tablet = |tablet: &TabletWork| {
        let mut counts = json!({
            "tablet": tablet.tablet, "start": to_json(&tablet.start), "end": to_json(&tablet.end),
            "microseconds": tablet.micros, "rows": tablet.rows,
            "cells_seen": tablet.cells_seen, "cells_passed": tablet.cells_passed,
        });
        let work = match is_elsewhere(tablet) {
            true => json!({"server": tablet.server}),
            false => json!({
                "row_cache_hits": tablet.row_cache_hits, "memtables": tablet.memtables, "runs": tablet.runs,
                "files": tablet.files, "files_used": tablet.files_used,
                "filters_asked": tablet.filters_asked, "filters_excluded": tablet.filters_excluded,
                "blocks_cached": tablet.blocks_cached, "blocks_read": tablet.blocks_read,
                "block_bytes_read": tablet.block_bytes_read,
                "values_read": tablet.values_read, "value_bytes_read": tablet.value_bytes_read,
            }),
        };
        if let (Some(counts), Value::Object(work)) = (counts.as_object_mut(), work) {
            counts.extend(work);
        }
        counts
    };
    json!({
        "tablets": explained.tablets.iter().map(tablet).collect::<Vec<_>>(),
        "complete": !explained.incomplete,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tablet(server: &str) -> TabletWork {
        TabletWork {
            tablet: 7,
            server: server.to_owned(),
            end: Bytes::from_static(b"m\xff"),
            micros: 1_500,
            rows: 1,
            cells_seen: 5,
            cells_passed: 2,
            memtables: 1,
            files: 9,
            files_used: 2,
            runs: 3,
            filters_asked: 3,
            filters_excluded: 1,
            blocks_cached: 4,
            blocks_read: 1,
            block_bytes_read: 4_096,
            ..TabletWork::default()
        }
    }

    #[test]
    fn counts_are_lines() {
        let one = show(&ExplainReadResponse {
            tablets: vec![tablet("")],
            incomplete: false,
        });
        assert!(one.starts_with("tablet 7  [, m\\xff)  1.5ms\n"), "{one}");
        for line in [
            "5 seen, 2 passed",
            "2 used of 9 in 3 runs",
            "3 asked, 1 excluded",
            "4 from the cache, 1 from storage",
        ] {
            assert!(one.contains(line), "{one}");
        }
        let two = show(&ExplainReadResponse {
            tablets: vec![tablet(""), tablet("")],
            incomplete: true,
        });
        assert!(two.contains("all 2 tablets  3.0ms\n    rows          2\n"), "{two}");
        assert!(two.ends_with("were not read\n"), "{two}");
        assert_eq!(show(&ExplainReadResponse::default()), "no tablet has such rows\n");
    }

    #[test]
    fn work_on_another_server_is_not_shown_as_none() {
        let elsewhere = tablet("node-2:16020");
        let unnamed = TabletWork {
            memtables: 0,
            files: 0,
            ..tablet("")
        };
        for (tablet, named) in [(elsewhere, "on node-2:16020"), (unnamed, "on another server")] {
            let explained = ExplainReadResponse {
                tablets: vec![tablet],
                incomplete: false,
            };
            assert!(show(&explained).contains(named), "{}", show(&explained));
            assert!(to_value(&explained)["tablets"][0].get("files").is_none());
        }
    }

    #[test]
    fn json_has_the_same_counts() {
        let value = to_value(&ExplainReadResponse {
            tablets: vec![tablet("")],
            incomplete: false,
        });
        assert_eq!(value["complete"], true);
        assert_eq!(value["tablets"][0]["files_used"], 2);
        assert_eq!(value["tablets"][0]["end"], json!({"b64": "bf8="}));
    }
}
