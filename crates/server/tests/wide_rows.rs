//! Very wide and very large rows through the real process.
//!
//! The rows have hundreds of thousands of cells, or hundreds of megabytes. They are read whole, in part, backward and
//! by several concurrent clients. Memory stays within the budget plus 200 MB, which would not hold one of them per
//! reader.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

use crate::support::server;
use crate::support::table;

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use server::{OVERDRAFT_BYTES, Server};
use table::{TABLE, connect, create_table};
use tonic::transport::Channel;
use v2::bigtable_client::BigtableClient;
use v2::mutation::{Mutation, SetCell};
use v2::read_rows_response::cell_chunk::RowStatus;
use v2::row_filter::Filter;

/// How often a read is tried: each try of one that is too slow takes ten seconds and more.
const TRIES: u32 = 5;
const BUDGET_BYTES: u64 = 256 << 20;
/// Cells of the row that has many.
const CELLS: u32 = 300_000;
/// Values of the row that is large: 160 MB of them.
const LARGE_BYTES: usize = 40_000;
const LARGE_CELLS: u32 = 4_000;

/// A row as a client received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    key: Bytes,
    cells: u32,
    bytes: usize,
    /// Of columns and values in their order.
    sum: u32,
}

impl Row {
    fn add(&mut self, qualifier: &[u8], value: &[u8]) {
        self.cells += 1;
        self.bytes += value.len();
        let mut hasher = crc32fast::Hasher::new_with_initial(self.sum);
        hasher.update(qualifier);
        hasher.update(value);
        self.sum = hasher.finalize();
    }
}

fn qualifier(n: u32) -> Bytes {
    Bytes::from(format!("column{n:06}"))
}

fn value(row: &str, n: u32) -> Bytes {
    match row {
        "large" => Bytes::from(n.to_le_bytes().repeat(LARGE_BYTES / 4)),
        _ => Bytes::from(format!("{n:0100}")),
    }
}

/// The row as it is written, but for the cells that are not wanted.
fn expected(row: &'static str, wanted: impl Fn(u32) -> bool) -> Row {
    let count = match row {
        "large" => LARGE_CELLS,
        "wide" => CELLS,
        _ => 1,
    };
    let mut expected = Row {
        key: Bytes::from_static(row.as_bytes()),
        ..Row::default()
    };
    for n in (0..count).filter(|n| wanted(*n)) {
        expected.add(&qualifier(n), &value(row, n));
    }
    expected
}

async fn write(client: &mut BigtableClient<Channel>, row: &str, cells: impl Iterator<Item = u32>) {
    let mutations = cells.map(|n| v2::Mutation {
        mutation: Some(Mutation::SetCell(SetCell {
            family_name: "f".to_owned(),
            column_qualifier: qualifier(n),
            timestamp_micros: 1_000,
            value: value(row, n),
        })),
    });
    let request = v2::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations: mutations.collect(),
        ..v2::MutateRowRequest::default()
    };
    client.mutate_row(request).await.unwrap();
}

/// The rows of a read. It is repeated, as clients do, when the server is too busy for it: a client with too little
/// processor time reads a row so slowly that the server cancels it.
async fn read(address: &str, rows: Option<&str>, filter: Option<Filter>, reversed: bool) -> Vec<Row> {
    for _ in 0..TRIES {
        match try_read(address, rows, filter.clone(), reversed).await {
            Err(status) if status.code() == tonic::Code::Unavailable => println!("again: {status}"),
            read => return read.unwrap(),
        }
    }
    panic!("{TRIES} tries, all refused");
}

/// The rows of a read, put together as clients do.
async fn try_read(
    address: &str,
    rows: Option<&str>,
    filter: Option<Filter>,
    reversed: bool,
) -> Result<Vec<Row>, tonic::Status> {
    let mut client = connect(address).await;
    let mut request = tonic::Request::new(v2::ReadRowsRequest {
        table_name: TABLE.to_owned(),
        filter: filter.map(|filter| v2::RowFilter { filter: Some(filter) }),
        rows: rows.map(|row| v2::RowSet {
            row_keys: vec![Bytes::copy_from_slice(row.as_bytes())],
            row_ranges: Vec::new(),
        }),
        reversed,
        ..v2::ReadRowsRequest::default()
    });
    // Of the features only that of reversed scans.
    let features = "CAE=".parse().unwrap();
    request.metadata_mut().insert("bigtable-features", features);
    let mut answers = client.read_rows(request).await?.into_inner();
    let (mut rows, mut open): (Vec<Row>, Option<Row>) = (Vec::new(), None);
    let (mut column, mut cell) = (Vec::new(), Vec::new());
    while let Some(answer) = answers.message().await? {
        for chunk in answer.chunks {
            if chunk.row_status == Some(RowStatus::ResetRow(true)) {
                assert!(open.take().is_some(), "there is a row to take back");
                continue;
            }
            let key = chunk.row_key;
            let row = open.get_or_insert_with(|| {
                assert!(!key.is_empty(), "a row begins with its key");
                Row { key, ..Row::default() }
            });
            if let Some(qualifier) = chunk.qualifier {
                column = qualifier;
            }
            cell.extend_from_slice(&chunk.value);
            if chunk.value_size == 0 {
                row.add(&column, &cell);
                cell.clear();
            }
            if chunk.row_status == Some(RowStatus::CommitRow(true)) {
                rows.extend(open.take());
            }
        }
    }
    assert_eq!(open, None, "an answer ends behind a row");
    Ok(rows)
}

fn check_peak(server: &Server, what: &str) {
    let peak = server.peak_bytes();
    server.forget_peak();
    println!("{what}: peak {} MiB", peak >> 20);
    assert!(peak <= BUDGET_BYTES + OVERDRAFT_BYTES, "{what}: {} MiB", peak >> 20);
}

#[tokio::test]
async fn wide_rows_are_read_as_partial_rows() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let server = Server::start(&data, &["--memory", &BUDGET_BYTES.to_string()]);
    let address = server.bigtable.as_str();
    create_table(address).await;
    let mut client = connect(address).await;
    for row in ["after", "before", "wide"] {
        let count = if row == "wide" { CELLS } else { 1 };
        for first in (0..count).step_by(10_000) {
            write(&mut client, row, first..count.min(first + 10_000)).await;
        }
    }
    for first in (0..LARGE_CELLS).step_by(100) {
        write(&mut client, "large", first..first + 100).await;
    }
    check_peak(&server, "written");
    let mut all: Vec<Row> = ["after", "before", "large", "wide"]
        .map(|row| expected(row, |_| true))
        .into();
    assert_eq!(read(address, None, None, false).await, all);
    check_peak(&server, "read");
    let others = (0..6).map(|n| {
        let row = if n % 2 == 0 { "large" } else { "wide" };
        let address = address.to_owned();
        tokio::spawn(async move { read(&address, Some(row), None, false).await })
    });
    for (n, other) in others.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(other.await.unwrap(), [all[2 + n % 2].clone()]);
    }
    check_peak(&server, "read by six at once");
    all.reverse();
    assert_eq!(read(address, None, None, true).await, all);
    check_peak(&server, "read backward");
    let page = Filter::Chain(v2::row_filter::Chain {
        filters: [
            Filter::CellsPerRowOffsetFilter(100_000),
            Filter::CellsPerColumnLimitFilter(1),
            Filter::CellsPerRowLimitFilter(50_000),
        ]
        .map(|filter| v2::RowFilter { filter: Some(filter) })
        .into(),
    });
    let paged = read(address, Some("wide"), Some(page), false).await;
    assert_eq!(paged, [expected("wide", |n| (100_000..150_000).contains(&n))]);
    let even = Filter::ValueRegexFilter(Bytes::from_static(b"[0-9]*[02468]"));
    assert_eq!(
        read(address, Some("wide"), Some(even), false).await,
        [expected("wide", |n| n % 2 == 0)]
    );
    check_peak(&server, "filtered");
}
