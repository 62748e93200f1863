//! `count`, `scan`, `get` and `put`: looking at rows and changing single cells.
//!
//! Output is for people: a row's key on a line of its own, each cell indented below it as column, time and value, all in
//! the escaped spelling. `export` is for programs.

use crate::client::read::ReadQuery;
use crate::client::{TableRef, describe};
use crate::connection::Connection;
use crate::escape::{escape, unescape};
use crate::progress::Progress;
use crate::query::{CellArgs, RangeArgs, chain, parse_bytes};
use crate::records::{CellValue, RowCells};
use crate::timestamp;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use v2::mutate_rows_request::Entry;
use v2::mutation::{self, SetCell};
use v2::row_filter::Filter;

/// Arguments of `count`.
#[derive(Args, Clone, Debug)]
pub struct CountArgs {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `scan`.
#[derive(Args, Clone, Debug)]
pub struct ScanArgs {
    /// The table, as instance/table
    pub table: TableRef,
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
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `get`.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The row key (\xNN for any byte)
    #[arg(value_parser = parse_bytes)]
    pub row: Bytes,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `put`.
#[derive(Args, Clone, Debug)]
pub struct PutArgs {
    /// The table, as instance/table
    pub table: TableRef,
    /// The row key (\xNN for any byte)
    #[arg(value_parser = parse_bytes)]
    pub row: Bytes,
    /// Cells to write, as family:qualifier=value
    #[arg(required = true, value_name = "FAMILY:QUALIFIER=VALUE")]
    pub cells: Vec<Assignment>,
    /// Timestamp of the cells in microseconds since 1970 [default: now]
    #[arg(long, value_name = "MICROS", value_parser = clap::value_parser!(i64).range(0..))]
    timestamp: Option<i64>,
    #[command(flatten)]
    connection: Connection,
}

/// One `family:qualifier=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    family: String,
    qualifier: Bytes,
    value: Bytes,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once(':').and_then(|(family, rest)| {
            rest.split_once('=')
                .map(|(qualifier, value)| (family, qualifier, value))
        });
        match split {
            Some((family, qualifier, value)) if !family.is_empty() => Ok(Assignment {
                family: family.to_owned(),
                qualifier: unescape(qualifier)?.into(),
                value: unescape(value)?.into(),
            }),
            _ => Err(format!("`{text}` is not of the form family:qualifier=value")),
        }
    }
}

/// Counts rows: the server sends one cell per row, without its value.
pub async fn count(args: CountArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let filter = chain(vec![
        Filter::CellsPerRowLimitFilter(1),
        Filter::StripValueTransformer(true),
    ]);
    let mut rows = 0;
    let mut progress = Progress::new("counted", None, 0);
    if let Some(query) = args.range.query(filter, 0) {
        let mut stream = client.read_rows(&args.table, query);
        while let Some(row) = stream.next().await.with_context(|| reading(&args.table))? {
            rows += 1;
            if rows % 1000 == 0 {
                progress.update(rows, 0);
            }
            drop(row);
        }
    }
    progress.finish();
    print(&format!("{rows}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints rows.
pub async fn scan(args: ScanArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let mut filters = Vec::new();
    if let Some(regex) = args.regex {
        filters.push(Filter::RowKeyRegexFilter(regex.into()));
    }
    filters.extend(args.cells.filters());
    let Some(query) = args.range.query(chain(filters), args.limit) else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut stream = client.read_rows(&args.table, query);
    while let Some(row) = stream.next().await.with_context(|| reading(&args.table))? {
        if !print(&show_row(&row))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one row; a missing one is a failure, so that scripts can test for it.
pub async fn get(args: GetArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let end = [&args.row[..], b"\0"].concat().into();
    let query = ReadQuery {
        start: args.row.clone(),
        end,
        filter: chain(args.cells.filters()),
        limit: 1,
    };
    if args.row.is_empty() {
        bail!("the row key is empty");
    }
    let mut stream = client.read_rows(&args.table, query);
    match stream.next().await.with_context(|| reading(&args.table))? {
        Some(row) => print(&show_row(&row))?,
        None => bail!("{} has no row {} with such cells", args.table, escape(&args.row)),
    };
    Ok(ExitCode::SUCCESS)
}

/// Writes cells of one row, atomically.
pub async fn put(args: PutArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let timestamp_micros = args.timestamp.unwrap_or_else(now_micros);
    let set_cell = |cell: Assignment| v2::Mutation {
        mutation: Some(mutation::Mutation::SetCell(SetCell {
            family_name: cell.family,
            column_qualifier: cell.qualifier,
            timestamp_micros,
            value: cell.value,
        })),
    };
    let mutations = args.cells.into_iter().map(set_cell).collect();
    let entry = Entry {
        row_key: args.row.clone(),
        mutations,
        ..Entry::default()
    };
    client
        .mutate_row(&args.table, entry)
        .await
        .map_err(|status| describe(&status))
        .with_context(|| format!("cannot write row {} of {}", escape(&args.row), args.table))?;
    Ok(ExitCode::SUCCESS)
}

/// The current time in the API's granularity.
pub fn now_micros() -> i64 {
    // A clock before 1970 or beyond 292,000 years is wrong; the epoch is then as good as anything.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp::to_granularity(i64::try_from(since.as_micros()).unwrap_or(0))
}

fn reading(table: &TableRef) -> String {
    format!("cannot read {table}")
}

/// Writes to standard output; false if its reader has closed it (`stele scan ... | head`).
pub fn print(text: &str) -> Result<bool> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

fn show_row(row: &RowCells) -> String {
    let column = |cell: &CellValue| format!("{}:{}", cell.family, escape(&cell.qualifier));
    let width = row
        .cells
        .iter()
        .map(|cell| column(cell).chars().count())
        .max()
        .unwrap_or(0);
    // One very long qualifier shall not push all values off the screen.
    let width = width.min(40);
    let mut out = format!("{}\n", escape(&row.key));
    for cell in &row.cells {
        let (column, value) = (column(cell), escape(&cell.value));
        let time = timestamp::format(cell.timestamp);
        out.push_str(&format!("    {column:width$}  {time}  {value}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_parse() {
        let parse = |text: &str| text.parse::<Assignment>();
        let cell = parse("f:a:b=c=d\\n").unwrap();
        assert_eq!((&*cell.family, &cell.qualifier[..]), ("f", &b"a:b"[..]));
        assert_eq!(cell.value, &b"c=d\n"[..]);
        assert_eq!(parse("f:=").unwrap().qualifier, &b""[..]);
        for bad in ["f", "f:q", ":q=v", "f:q=\\z"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rows_are_readable() {
        let cell = |qualifier: &'static [u8], value: &'static [u8]| CellValue {
            family: "f".to_owned(),
            qualifier: Bytes::from_static(qualifier),
            timestamp: 1_700_000_000_123_000,
            value: Bytes::from_static(value),
        };
        let cells = vec![cell(b"a", b"1\n"), cell(b"long", b"\xff")];
        let shown = show_row(&RowCells {
            key: Bytes::from_static(b"k"),
            cells,
        });
        let time = "2023-11-14T22:13:20.123Z";
        assert_eq!(
            shown,
            format!("k\n    f:a     {time}  1\\n\n    f:long  {time}  \\xff\n")
        );
    }
}
