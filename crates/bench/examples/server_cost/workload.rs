//! The workloads of the servers.
//!
//! Reads are of [`ROWS`] rows of 1000 bytes, which fit in memory. Each workload that writes has a table of its own. The
//! rows for reads thus stay unchanged, and rows of ten bytes are not compacted with those of a thousand. Keys of each
//! request are chosen at random from ten million. Only the values are sent again and again.

use crate::caller::{Caller, framed};
use crate::echo::Payload;
use anyhow::ensure;
use bytes::Bytes;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_bench::load::random::Stream;
use tonic::codegen::http::Uri;
use v2::mutation::{Mutation as Kind, SetCell};
use v2::row_filter::Filter;

/// 20 MB, far below any memory budget.
const ROWS: u64 = 20_000;

/// Few are met twice.
const KEYS: u64 = 10_000_000;

/// Requests made before the measurement, sent in turn. There are fewer batches, which would otherwise fill the memory.
const REQUESTS: u64 = 8_192;
const BATCH_REQUESTS: u64 = 256;

/// Rows of a batch.
const BATCH_ROWS: u64 = 100;

const INSTANCE: &str = "projects/bench/instances/bench";
const READ_TABLE: &str = "bench-read";
const WRITE_TABLES: [&str; 4] = ["bench-write", "bench-write-1000", "bench-write-100", "bench-write-10"];

/// One workload by name.
pub struct Plan {
    pub name: &'static str,
    /// The unit of counting.
    pub unit: &'static str,
    /// Calls under way at a time.
    pub callers: u64,
    kind: Kinds,
}

impl Plan {
    /// Whether flushes and compactions follow it.
    pub fn writes(&self) -> bool {
        matches!(self.kind, Kinds::Write | Kinds::Batch(_))
    }
}

#[derive(Clone, Copy)]
enum Kinds {
    Echo,
    /// Of one row.
    Read,
    /// Of one row, through a filter that client libraries send for "the newest version of some columns".
    FilteredRead,
    /// Of one row that does not exist.
    AbsentRead,
    Scan,
    Write,
    /// Rows of this many bytes.
    Batch(usize),
}

impl Plan {
    pub fn echo() -> Plan {
        Plan::new("echo", "calls", 64, Kinds::Echo)
    }

    pub fn all() -> Vec<Plan> {
        vec![
            Plan::new("read-row", "calls", 64, Kinds::Read),
            Plan::new("read-row-filtered", "calls", 64, Kinds::FilteredRead),
            Plan::new("read-row-absent", "calls", 64, Kinds::AbsentRead),
            Plan::new("mutate-row", "calls", 64, Kinds::Write),
            Plan::new("scan-1000", "bytes", 4, Kinds::Scan),
            Plan::new("mutate-rows-1000", "rows", 16, Kinds::Batch(1000)),
            Plan::new("mutate-rows-100", "rows", 16, Kinds::Batch(100)),
            Plan::new("mutate-rows-10", "rows", 16, Kinds::Batch(10)),
        ]
    }

    fn new(name: &'static str, unit: &'static str, callers: u64, kind: Kinds) -> Plan {
        Plan {
            name,
            unit,
            callers,
            kind,
        }
    }
}

/// A workload's requests, ready to be sent.
pub struct Workload {
    kind: Kinds,
    path: &'static str,
    requests: Vec<Template>,
    seed: u64,
}

/// A whole request, or a request without the keys that it writes.
struct Template {
    bytes: Bytes,
    /// Offsets of the keys.
    keys: Vec<usize>,
}

impl Template {
    fn new(kind: Kinds, bytes: Bytes) -> Template {
        let is_key =
            |at: &usize| bytes[*at..].starts_with(KEY_PREFIX) && bytes[at + KEY_PREFIX.len()..].len() >= KEY_DIGITS;
        let keys = match kind {
            Kinds::Write | Kinds::Batch(_) => (0..bytes.len()).filter(is_key).collect(),
            _ => Vec::new(),
        };
        Template { bytes, keys }
    }

    fn request(&self, random: &mut Stream) -> Bytes {
        if self.keys.is_empty() {
            return self.bytes.clone();
        }
        let mut bytes = self.bytes.to_vec();
        for at in &self.keys {
            let mut rest = random.below(KEYS);
            for digit in bytes[at + KEY_PREFIX.len()..][..KEY_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        bytes.into()
    }
}

impl Workload {
    pub fn new(plan: &Plan) -> anyhow::Result<Workload> {
        let mut random = Stream::new(plan.name.len() as u64, 0);
        let (path, count) = match plan.kind {
            Kinds::Echo => ("/stele.Echo/Echo", 1),
            Kinds::Read | Kinds::FilteredRead | Kinds::AbsentRead => (READ_ROWS, REQUESTS),
            Kinds::Scan => (READ_ROWS, 1),
            Kinds::Write => (MUTATE_ROW, REQUESTS),
            Kinds::Batch(_) => (MUTATE_ROWS, BATCH_REQUESTS),
        };
        let requests = (0..count).map(|_| Ok(Template::new(plan.kind, request(plan.kind, &mut random)?)));
        Ok(Workload {
            kind: plan.kind,
            path,
            requests: requests.collect::<anyhow::Result<_>>()?,
            seed: plan.name.len() as u64,
        })
    }
}

const READ_ROWS: &str = "/google.bigtable.v2.Bigtable/ReadRows";
const MUTATE_ROW: &str = "/google.bigtable.v2.Bigtable/MutateRow";
const MUTATE_ROWS: &str = "/google.bigtable.v2.Bigtable/MutateRows";

fn request(kind: Kinds, random: &mut Stream) -> anyhow::Result<Bytes> {
    let table = |name: &str| format!("{INSTANCE}/tables/{name}");
    match kind {
        Kinds::Echo => framed(&Payload {
            bytes: vec![b'e'; 1000].into(),
        }),
        Kinds::Read | Kinds::FilteredRead | Kinds::AbsentRead => {
            let number = random.below(ROWS);
            let row_key = match kind {
                Kinds::AbsentRead => format!("absent{number:014}").into(),
                _ => key(number),
            };
            framed(&v2::ReadRowsRequest {
                table_name: table(READ_TABLE),
                rows: Some(v2::RowSet {
                    row_keys: vec![row_key],
                    row_ranges: Vec::new(),
                }),
                filter: matches!(kind, Kinds::FilteredRead).then(newest),
                rows_limit: 1,
                ..Default::default()
            })
        }
        Kinds::Scan => framed(&v2::ReadRowsRequest {
            table_name: table(READ_TABLE),
            ..Default::default()
        }),
        Kinds::Write => framed(&v2::MutateRowRequest {
            table_name: table(WRITE_TABLES[0]),
            row_key: key(random.below(KEYS)),
            mutations: vec![put(value(random, 1000))],
            ..Default::default()
        }),
        Kinds::Batch(bytes) => {
            let entries = (0..BATCH_ROWS).map(|_| entry(key(random.below(KEYS)), value(random, bytes)));
            framed(&v2::MutateRowsRequest {
                table_name: table(&format!("{}-{bytes}", WRITE_TABLES[0])),
                entries: entries.collect(),
                ..Default::default()
            })
        }
    }
}

/// One caller's way through a workload's requests.
pub struct Requests {
    workload: Arc<Workload>,
    uri: Option<Uri>,
    random: Stream,
}

impl Requests {
    /// Every call chooses new keys: a repeated request would write the same rows.
    pub fn new(workload: &Arc<Workload>) -> Requests {
        static WAYS: AtomicU64 = AtomicU64::new(0);
        Requests {
            workload: workload.clone(),
            uri: None,
            random: Stream::new(workload.seed, WAYS.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Makes a call. Returns its completed work in the plan's unit.
    pub async fn next(&mut self, caller: &Caller) -> anyhow::Result<u64> {
        let uri = match &self.uri {
            Some(uri) => uri.clone(),
            None => self.uri.insert(caller.uri(self.workload.path)?).clone(),
        };
        let number = self.random.below(self.workload.requests.len() as u64) as usize;
        let request = self.workload.requests[number].request(&mut self.random);
        if let Kinds::Batch(_) = self.workload.kind {
            return batch(caller, uri, request).await;
        }
        let mut bytes = 0;
        caller.call(uri, request, |piece| bytes += piece.len() as u64).await?;
        match self.workload.kind {
            Kinds::Scan => {
                ensure!(bytes > ROWS * 1000, "a scan of {bytes} bytes");
                Ok(ROWS * 1000)
            }
            Kinds::Echo | Kinds::Read | Kinds::FilteredRead => {
                ensure!((1000..1200).contains(&bytes), "a response of {bytes} bytes");
                Ok(1)
            }
            _ => {
                ensure!(bytes < 50, "a response of {bytes} bytes");
                Ok(1)
            }
        }
    }
}

/// Writes a batch, every row of which must succeed.
async fn batch(caller: &Caller, uri: Uri, request: Bytes) -> anyhow::Result<u64> {
    let mut answer = Vec::new();
    caller
        .call(uri, request, |piece| answer.extend_from_slice(piece))
        .await?;
    let response = v2::MutateRowsResponse::decode(answer.get(5..).unwrap_or_default())?;
    let good = |entry: &v2::mutate_rows_response::Entry| entry.status.as_ref().is_some_and(|status| status.code == 0);
    let rows = response.entries.iter().filter(|entry| good(entry)).count() as u64;
    ensure!(rows == BATCH_ROWS, "{rows} of {BATCH_ROWS} rows were written");
    Ok(rows)
}

/// Creates the tables, and fills the one for reads.
pub async fn prepare(caller: &Caller) -> anyhow::Result<()> {
    let create = caller.uri("/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable")?;
    for table in [READ_TABLE].into_iter().chain(WRITE_TABLES) {
        let request = admin::CreateTableRequest {
            parent: INSTANCE.to_owned(),
            table_id: table.to_owned(),
            table: Some(admin::Table {
                column_families: [("f".to_owned(), admin::ColumnFamily::default())].into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        caller.call(create.clone(), framed(&request)?, |_| ()).await?;
    }
    let write = caller.uri(MUTATE_ROWS)?;
    let mut random = Stream::new(0, 0);
    for first in (0..ROWS).step_by(BATCH_ROWS as usize) {
        let rows = first..first + BATCH_ROWS;
        let request = v2::MutateRowsRequest {
            table_name: format!("{INSTANCE}/tables/{READ_TABLE}"),
            entries: rows.map(|row| entry(key(row), value(&mut random, 1000))).collect(),
            ..Default::default()
        };
        batch(caller, write.clone(), framed(&request)?).await?;
    }
    Ok(())
}

const KEY_PREFIX: &[u8] = b"user";
const KEY_DIGITS: usize = 16;

/// Twenty bytes.
fn key(number: u64) -> Bytes {
    format!("user{number:016}").into()
}

/// Bytes that do not compress.
fn value(random: &mut Stream, bytes: usize) -> Bytes {
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    words.take(bytes).collect::<Vec<u8>>().into()
}

fn put(value: Bytes) -> v2::Mutation {
    let set = SetCell {
        family_name: "f".to_owned(),
        column_qualifier: Bytes::from_static(b"0"),
        timestamp_micros: -1,
        value,
    };
    v2::Mutation {
        mutation: Some(Kind::SetCell(set)),
    }
}

fn entry(row_key: Bytes, value: Bytes) -> v2::mutate_rows_request::Entry {
    v2::mutate_rows_request::Entry {
        row_key,
        mutations: vec![put(value)],
        ..Default::default()
    }
}

fn newest() -> v2::RowFilter {
    let filter = |filter| v2::RowFilter { filter: Some(filter) };
    let filters = vec![
        filter(Filter::FamilyNameRegexFilter("f".to_owned())),
        filter(Filter::ColumnQualifierRegexFilter(Bytes::from_static(b"0"))),
        filter(Filter::CellsPerColumnLimitFilter(1)),
    ];
    filter(Filter::Chain(v2::row_filter::Chain { filters }))
}
