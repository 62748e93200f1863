//! `count`, `scan`, `get`, `put` and `delete`: looking at rows and changing single cells.
//!
//! Output is for people: a row's key on a line of its own, each cell indented below it as column, time and value, all in
//! the escaped spelling. `export` is for programs.

use crate::client::admin::not_made;
use crate::client::read::ReadQuery;
use crate::client::{Client, TableRef, describe};
use crate::connection::Connection;
use crate::escape::{escape, unescape};
use crate::progress::Progress;
use crate::query::{CellArgs, ColumnRef, RangeArgs, chain, parse_bytes};
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

/// The rows of a count.
#[derive(Args, Clone, Debug)]
pub struct Count {
    /// The table, as instance/table
    pub table: TableRef,
    #[command(flatten)]
    range: RangeArgs,
}

/// The rows and cells of a scan.
#[derive(Args, Clone, Debug)]
pub struct Scan {
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
}

/// The row and the cells of a read.
#[derive(Args, Clone, Debug)]
pub struct Get {
    /// The table, as instance/table
    pub table: TableRef,
    /// The row key (\xNN for any byte)
    #[arg(value_parser = parse_bytes)]
    pub row: Bytes,
    #[command(flatten)]
    cells: CellArgs,
}

/// The row and the cells of a write.
#[derive(Args, Clone, Debug)]
pub struct Put {
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
}

/// The row and the cells of a deletion.
#[derive(Args, Clone, Debug)]
pub struct Delete {
    /// The table, as instance/table
    pub table: TableRef,
    /// The row key (\xNN for any byte)
    #[arg(value_parser = parse_bytes)]
    pub row: Bytes,
    /// Families or columns; the whole row if none is given
    #[arg(value_name = "FAMILY[:QUALIFIER]")]
    cells: Vec<Target>,
}

/// A command of its own, with the server that it is for.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($field:ident: $arguments:ty);)*) => {
        $($(#[$doc])*
        #[derive(Args, Clone, Debug)]
        pub struct $name {
            #[command(flatten)]
            $field: $arguments,
            #[command(flatten)]
            connection: Connection,
        })*
    };
}

commands! {
    /// Arguments of `count`.
    CountArgs(count: Count);
    /// Arguments of `scan`.
    ScanArgs(scan: Scan);
    /// Arguments of `get`.
    GetArgs(get: Get);
    /// Arguments of `put`.
    PutArgs(put: Put);
    /// Arguments of `delete`.
    DeleteArgs(delete: Delete);
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

/// A family or a column: `family` or `family:qualifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Family(String),
    Column(ColumnRef),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains(':') {
            true => text.parse().map(Target::Column),
            false if text.is_empty() => Err("the name of a family is empty".to_owned()),
            false => Ok(Target::Family(text.to_owned())),
        }
    }
}

impl Target {
    fn deletion(self) -> mutation::Mutation {
        match self {
            Target::Family(family_name) => {
                mutation::Mutation::DeleteFromFamily(mutation::DeleteFromFamily { family_name })
            }
            Target::Column(ColumnRef { family, qualifier }) => {
                mutation::Mutation::DeleteFromColumn(mutation::DeleteFromColumn {
                    family_name: family,
                    column_qualifier: qualifier,
                    time_range: None,
                })
            }
        }
    }
}

impl Count {
    /// Counts rows: the server sends one cell per row, without its value.
    pub async fn run(self, client: &Client) -> Result<u64> {
        let filter = chain(vec![
            Filter::CellsPerRowLimitFilter(1),
            Filter::StripValueTransformer(true),
        ]);
        let mut rows = 0;
        let mut progress = Progress::new("counted", None, 0);
        if let Some(query) = self.range.query(filter, 0) {
            let mut stream = client.read_rows(&self.table, query);
            while let Some(row) = stream.next().await.with_context(|| reading(&self.table))? {
                rows += 1;
                if rows % 1000 == 0 {
                    progress.update(rows, 0);
                }
                drop(row);
            }
        }
        progress.finish();
        Ok(rows)
    }
}

impl Scan {
    /// The read; `None` if its range has no key.
    pub(crate) fn query(self) -> (TableRef, Option<ReadQuery>) {
        let mut filters = Vec::new();
        if let Some(regex) = self.regex {
            filters.push(Filter::RowKeyRegexFilter(regex.into()));
        }
        filters.extend(self.cells.filters());
        (self.table, self.range.query(chain(filters), self.limit))
    }

    /// Hands over rows until there are no more, or `each` wants none. Returns the number of rows.
    pub async fn run(self, client: &Client, mut each: impl FnMut(RowCells) -> Result<bool>) -> Result<u64> {
        let (table, query) = self.query();
        let Some(query) = query else { return Ok(0) };
        let (mut rows, mut stream) = (0, client.read_rows(&table, query));
        while let Some(row) = stream.next().await.with_context(|| reading(&table))? {
            rows += 1;
            if !each(row)? {
                break;
            }
        }
        Ok(rows)
    }
}

impl Get {
    /// The row; a missing one is a failure, so that scripts can test for it.
    pub async fn run(self, client: &Client) -> Result<RowCells> {
        if self.row.is_empty() {
            bail!("the row key is empty");
        }
        let query = ReadQuery::of_row(self.row.clone(), chain(self.cells.filters()));
        let mut stream = client.read_rows(&self.table, query);
        match stream.next().await.with_context(|| reading(&self.table))? {
            Some(row) => Ok(row),
            None => bail!("{} has no row {} with such cells", self.table, escape(&self.row)),
        }
    }
}

impl Put {
    /// Writes cells of one row, atomically.
    pub async fn run(self, client: &Client) -> Result<()> {
        let timestamp_micros = self.timestamp.unwrap_or_else(now_micros);
        let set_cell = |cell: Assignment| {
            mutation::Mutation::SetCell(SetCell {
                family_name: cell.family,
                column_qualifier: cell.qualifier,
                timestamp_micros,
                value: cell.value,
            })
        };
        let cells = self.cells.into_iter().map(set_cell).collect();
        let (shown, entry) = (escape(&self.row), entry(self.row, cells));
        let written = client.mutate_row(&self.table, entry).await;
        written
            .map_err(|status| describe(&status))
            .with_context(|| format!("cannot write row {shown} of {}", self.table))
    }
}

impl Delete {
    /// Deletes a row, or cells of it, atomically.
    pub async fn run(self, client: &Client) -> Result<()> {
        let deletions = match self.cells.is_empty() {
            true => vec![mutation::Mutation::DeleteFromRow(mutation::DeleteFromRow {})],
            false => self.cells.into_iter().map(Target::deletion).collect(),
        };
        let (shown, entry) = (escape(&self.row), entry(self.row, deletions));
        let change = format!("delete from row {shown} of {}", self.table);
        let look = format!("stele get {} {shown}", self.table);
        let deleted = client.mutate_row_once(&self.table, entry).await;
        deleted.map_err(|status| not_made(describe(&status), &status, &change, &look))
    }
}

fn entry(row: Bytes, mutations: Vec<mutation::Mutation>) -> Entry {
    let mutation = |mutation| v2::Mutation {
        mutation: Some(mutation),
    };
    Entry {
        row_key: row,
        mutations: mutations.into_iter().map(mutation).collect(),
        ..Entry::default()
    }
}

/// Counts rows.
pub async fn count(args: CountArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    let rows = args.count.run(&client).await?;
    print(&format!("{rows}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints rows.
pub async fn scan(args: ScanArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    args.scan.run(&client, |row| print(&show_row(&row))).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one row.
pub async fn get(args: GetArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    print(&show_row(&args.get.run(&client).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes cells of one row.
pub async fn put(args: PutArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    args.put.run(&client).await?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a row, or cells of it.
pub async fn delete(args: DeleteArgs) -> Result<ExitCode> {
    let client = args.connection.connect().await?;
    args.delete.run(&client).await?;
    Ok(ExitCode::SUCCESS)
}

/// The current time in the API's granularity.
pub fn now_micros() -> i64 {
    // A clock before 1970 or beyond 292,000 years is wrong; the epoch is then as good as anything.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp::to_granularity(i64::try_from(since.as_micros()).unwrap_or(0))
}

pub(crate) fn reading(table: &TableRef) -> String {
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

/// A row for people.
pub(crate) fn show_row(row: &RowCells) -> String {
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
    fn deletions_name_families_and_columns() {
        let parse = |text: &str| text.parse::<Target>();
        assert_eq!(parse("f"), Ok(Target::Family("f".to_owned())));
        let column = ColumnRef {
            family: "f".to_owned(),
            qualifier: Bytes::from_static(b"\xff"),
        };
        assert_eq!(parse("f:\\xff"), Ok(Target::Column(column)));
        assert!(parse("").is_err() && parse(":q").is_err());
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
