//! Rows and requests made to take a server down by its own work on them.
//!
//! Under each of them the memory of the real process stays within its budget plus 200 MB, and requests that are too
//! large are refused with the documented error.

use crate::support::noise;
use crate::support::resident;
use crate::support::server;
use crate::support::table;

use bytes::Bytes;
use futures::future::join_all;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use noise::noise;
use resident::Watch;
use server::{OVERDRAFT_BYTES, Server};
use std::time::{Duration, Instant};
use table::{TABLE, connect, create_table};
use tonic::{Code, Status};
use v2::mutation::{Mutation, SetCell};
use v2::read_modify_write_rule::Rule;
use v2::row_filter::Filter;

/// Longest time until a client has got its turn, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENTS: usize = 8;
/// Cells of the large row, and the bytes of each: 120 MB in all, more than any budget spares for one row that is read as a whole.
const CELLS: usize = 40;
const CELL_BYTES: usize = 3_000_000;
const MIB: u64 = 1 << 20;

struct Pressed {
    _scratch: tempfile::TempDir,
    server: Server,
    budget: u64,
    watch: Option<Watch>,
}

impl Pressed {
    async fn begin(budget_mib: u64) -> Pressed {
        let scratch = tempfile::tempdir().unwrap();
        let budget = budget_mib * MIB;
        let server = Server::start(&scratch.path().join("data"), &["--memory", &budget.to_string()]);
        create_table(&server.bigtable).await;
        let watch = Some(Watch::new(server.pid()));
        Pressed {
            _scratch: scratch,
            server,
            budget,
            watch,
        }
    }

    fn check(&mut self, what: &str) {
        let seen = self.watch.take().unwrap().seen();
        println!("{what}: peak {} MiB, {} looks", seen.peak_bytes / MIB, seen.looks);
        assert!(
            seen.peak_bytes <= self.budget + OVERDRAFT_BYTES,
            "{what}: {} MiB",
            seen.peak_bytes / MIB
        );
        self.watch = Some(Watch::new(self.server.pid()));
    }
}

fn set(column: &str, value: &Bytes) -> v2::Mutation {
    v2::Mutation {
        mutation: Some(Mutation::SetCell(SetCell {
            family_name: "f".to_owned(),
            column_qualifier: Bytes::copy_from_slice(column.as_bytes()),
            timestamp_micros: 1_000,
            value: value.clone(),
        })),
    }
}

/// Until it is not told to come again.
async fn patiently<T>(mut call: impl AsyncFnMut() -> Result<T, Status>) -> Result<T, Status> {
    let begun = Instant::now();
    loop {
        match call().await {
            Err(status) if status.code() == Code::Unavailable && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            done => return done,
        }
    }
}

async fn mutate(address: &str, row: &str, mutations: Vec<v2::Mutation>) -> Result<(), Status> {
    let request = v2::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations,
        ..v2::MutateRowRequest::default()
    };
    let mut client = connect(address).await;
    patiently(async || client.mutate_row(request.clone()).await.map(drop)).await
}

async fn write_large_row(address: &str) {
    for cell in 0..CELLS {
        let value = noise(cell as u64, CELL_BYTES);
        let cell = set(&format!("large{cell:03}"), &value);
        mutate(address, "row", vec![cell]).await.unwrap();
    }
}

async fn check_and_mutate(
    address: &str,
    row: &str,
    predicate: Option<Filter>,
    on_match: Vec<v2::Mutation>,
) -> Result<bool, Status> {
    let request = v2::CheckAndMutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        predicate_filter: predicate.map(|filter| v2::RowFilter { filter: Some(filter) }),
        true_mutations: on_match,
        false_mutations: vec![set("otherwise", &Bytes::new())],
        ..v2::CheckAndMutateRowRequest::default()
    };
    let mut client = connect(address).await;
    let call = async || client.check_and_mutate_row(request.clone()).await;
    Ok(patiently(call).await?.into_inner().predicate_matched)
}

async fn read_modify_write(address: &str, row: &str, rules: Vec<(&str, Rule)>) -> Result<Vec<Bytes>, Status> {
    let rules = rules.into_iter().map(|(column, rule)| v2::ReadModifyWriteRule {
        family_name: "f".to_owned(),
        column_qualifier: Bytes::copy_from_slice(column.as_bytes()),
        rule: Some(rule),
    });
    let request = v2::ReadModifyWriteRowRequest {
        table_name: TABLE.to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        rules: rules.collect(),
        ..v2::ReadModifyWriteRowRequest::default()
    };
    let mut client = connect(address).await;
    let answer = patiently(async || client.read_modify_write_row(request.clone()).await).await?;
    let columns = answer
        .into_inner()
        .row
        .unwrap()
        .families
        .into_iter()
        .flat_map(|f| f.columns);
    Ok(columns.map(|column| column.cells[0].value.clone()).collect())
}

async fn at_once<T>(call: impl AsyncFn(usize) -> T) -> Vec<T> {
    join_all((0..CLIENTS).map(|client| call(client))).await
}

/// A row larger than all memory for rows that writes read: the state needed of it is small.
#[tokio::test]
async fn writes_that_read_a_large_row_do_not_take_it_whole() {
    let mut pressed = Pressed::begin(64).await;
    let address = pressed.server.bigtable.clone();
    write_large_row(&address).await;
    pressed.check("written");
    let matched = at_once(async |client| {
        let here = [set(&format!("here{client}"), &Bytes::from_static(b"x"))];
        check_and_mutate(&address, "row", None, here.into()).await
    });
    assert!(matched.await.into_iter().all(|matched| matched.unwrap()));
    pressed.check("a condition on any cell");
    let last = Filter::ColumnQualifierRegexFilter(Bytes::from(format!("large{:03}", CELLS - 1)));
    let nowhere = Filter::ValueRegexFilter(Bytes::from_static(b"nowhere"));
    let matched = at_once(async |_| {
        let here = check_and_mutate(&address, "row", Some(last.clone()), Vec::new()).await?;
        Ok::<_, Status>((
            here,
            check_and_mutate(&address, "row", Some(nowhere.clone()), Vec::new()).await?,
        ))
    });
    for matched in matched.await {
        assert_eq!(matched.unwrap(), (true, false));
    }
    pressed.check("conditions on the last cell, and on all values");
    let counted = at_once(async |_| {
        for _ in 0..3 {
            let rules = vec![
                ("counter", Rule::IncrementAmount(1)),
                ("zlog", Rule::AppendValue("x".into())),
            ];
            read_modify_write(&address, "row", rules).await?;
        }
        Ok::<_, Status>(())
    });
    assert!(counted.await.into_iter().all(|counted| counted.is_ok()));
    let rules = vec![
        ("counter", Rule::IncrementAmount(0)),
        ("zlog", Rule::AppendValue(Bytes::new())),
    ];
    let found = read_modify_write(&address, "row", rules).await.unwrap();
    let all = 3 * CLIENTS;
    assert_eq!(
        found,
        [Bytes::from((all as i64).to_be_bytes().to_vec()), "x".repeat(all).into()]
    );
    pressed.check("counters and logs");
}

/// A filter that must see a row as a whole is refused where that is more than is spared for one.
#[tokio::test]
async fn what_must_be_whole_is_refused_above_its_bound() {
    let mut pressed = Pressed::begin(64).await;
    let address = pressed.server.bigtable.clone();
    write_large_row(&address).await;
    pressed.check("written");
    let pass = || {
        Some(Box::new(v2::RowFilter {
            filter: Some(Filter::PassAllFilter(true)),
        }))
    };
    let condition = Filter::Condition(Box::new(v2::row_filter::Condition {
        predicate_filter: Some(Box::new(v2::RowFilter {
            filter: Some(Filter::ValueRegexFilter(Bytes::from_static(b"nowhere"))),
        })),
        true_filter: pass(),
        false_filter: pass(),
    }));
    let checked = at_once(async |_| check_and_mutate(&address, "row", Some(condition.clone()), Vec::new()).await);
    for checked in checked.await {
        assert_eq!(checked.unwrap_err().code(), Code::ResourceExhausted);
    }
    pressed.check("a condition within a condition");
    let read = at_once(async |_| {
        let request = v2::ReadRowsRequest {
            table_name: TABLE.to_owned(),
            filter: Some(v2::RowFilter {
                filter: Some(condition.clone()),
            }),
            ..v2::ReadRowsRequest::default()
        };
        let mut client = connect(&address).await;
        patiently(async || {
            let mut answers = client.read_rows(request.clone()).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        })
        .await
    });
    for read in read.await {
        assert_eq!(read.unwrap_err().code(), Code::ResourceExhausted);
    }
    pressed.check("a condition in a read");
}

/// The output of such writes is bounded by the budget, and waits for memory as other writes do.
#[tokio::test]
async fn large_writes_of_writes_that_read_do_not_add_up() {
    let mut pressed = Pressed::begin(64).await;
    let address = pressed.server.bigtable.clone();
    let half = noise(1, 8_000_000);
    let appended = at_once(async |client| {
        let append = || vec![("log", Rule::AppendValue(half.clone()))];
        let row = format!("append{client}");
        for _ in 0..2 {
            read_modify_write(&address, &row, append()).await?;
        }
        read_modify_write(&address, &row, append()).await.map(drop)
    });
    for refused in appended.await {
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted, "24 MB");
    }
    pressed.check("values that grow");
    let large = noise(2, 30_000_000);
    let written = at_once(async |client| {
        let cell = set("large", &large);
        let row = format!("check{client}");
        mutate(&address, &row, vec![set("a", &Bytes::new())]).await?;
        check_and_mutate(&address, &row, None, vec![cell]).await
    });
    for matched in written.await {
        assert!(matched.unwrap());
    }
    pressed.check("large conditional writes");
}

/// Many keys, and patterns that are large when they are compiled.
#[tokio::test]
async fn reads_of_many_keys_and_of_large_patterns_do_not_add_up() {
    let mut pressed = Pressed::begin(64).await;
    let address = pressed.server.bigtable.clone();
    mutate(&address, "r", vec![set("q", &Bytes::from_static(b"v"))])
        .await
        .unwrap();
    let read = async |rows: Option<v2::RowSet>, filter: Option<Filter>| {
        let request = v2::ReadRowsRequest {
            table_name: TABLE.to_owned(),
            rows,
            filter: filter.map(|filter| v2::RowFilter { filter: Some(filter) }),
            ..v2::ReadRowsRequest::default()
        };
        let mut client = connect(&address).await;
        patiently(async || {
            let mut answers = client.read_rows(request.clone()).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        })
        .await
    };
    let keys = |count: u32| v2::RowSet {
        row_keys: (0..count).map(|n| Bytes::from(n.to_be_bytes().to_vec())).collect(),
        row_ranges: Vec::new(),
    };
    for answer in at_once(async |_| read(Some(keys(100_000)), None).await).await {
        answer.unwrap();
    }
    for answer in at_once(async |_| read(Some(keys(1_000_000)), None).await).await {
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    }
    pressed.check("many keys");
    // Each is some twenty bytes and a large automaton.
    let large = |n: usize| format!("(?i)(?:\\C{{{n}}}[^a-m]{{{n}}}\\pL{{{n}}}){{9}}");
    for n in [10, 100, 1_000] {
        let one = |_| v2::RowFilter {
            filter: Some(Filter::ValueRegexFilter(large(n).into())),
        };
        let many = Filter::Interleave(v2::row_filter::Interleave {
            filters: (0..30).map(one).collect(),
        });
        for answer in at_once(async |_| read(None, Some(many.clone())).await).await {
            let code = answer.err().map(|status| status.code());
            // Their compilation delays requests on a busy machine.
            let is_fine = matches!(code, None | Some(Code::InvalidArgument | Code::DeadlineExceeded));
            assert!(is_fine, "{n}: {code:?}");
        }
        pressed.check(&format!("patterns that repeat {n} times"));
    }
}
