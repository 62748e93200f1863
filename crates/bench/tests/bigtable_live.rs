//! The contract of every target, tested over `memory://`.
//!
//! If `STELE_BENCH_BIGTABLE` has the address of a server, such as `bigtable://127.0.0.1:8086/live`, it is tested over
//! that too.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a client live outside the simulated database"
)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use stele_bench::target::{Columns, Connection, Put, Row, Scan, TableSpec, Target, open};

const TABLE: &str = "bench-live";

fn put(key: impl Into<Bytes>, cells: &[(&str, Bytes, Bytes)]) -> Put {
    let cells = cells.iter().map(|(f, q, v)| (Arc::from(*f), q.clone(), v.clone()));
    Put {
        key: key.into(),
        cells: cells.collect(),
    }
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn columns(families: &[&str], qualifiers: &[Bytes], versions: u32) -> Columns {
    Columns {
        families: families.iter().map(|f| Arc::from(*f)).collect(),
        qualifiers: qualifiers.to_vec(),
        versions,
    }
}

async fn get(c: &dyn Connection, key: &'static str, columns: &Columns) -> Option<Row> {
    c.get(TABLE, text(key), columns).await.unwrap()
}

async fn scan(c: &dyn Connection, scan: &Scan, most: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let sink = &mut |row: &Row| {
        rows.push(row.clone());
        if rows.len() < most {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    c.scan(TABLE, scan, sink).await.unwrap();
    rows
}

/// Every byte, so that a missing quotation is noticed.
fn awkward() -> Bytes {
    (0..=255_u8).collect()
}

/// Servers keep milliseconds, and one cell for each.
async fn next_millisecond() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

async fn cells(c: &dyn Connection) {
    assert_eq!(get(c, "nobody", &Columns::default()).await, None);
    let big: Bytes = (0..3_000_000_u64).map(|i| ((i * 7919) >> 8) as u8).collect();
    // In order of qualifiers.
    let written = [
        ("f", text(""), text("empty qualifier")),
        ("f", awkward(), awkward()),
        ("f", text("a"), text("")),
        ("g", text("a.b|c"), big),
    ];
    c.put(TABLE, put("row", &written)).await.unwrap();
    let mut found: Vec<_> = get(c, "row", &Columns::default()).await.unwrap().cells;
    found.sort_by_key(|cell| (cell.family.clone(), cell.qualifier.clone()));
    assert_eq!(found.len(), written.len());
    for (cell, (family, qualifier, value)) in found.iter().zip(&written) {
        assert_eq!((&cell.family[..], &cell.qualifier), (family.as_bytes(), qualifier));
        assert!(cell.value == *value, "{qualifier:?}: {} bytes", cell.value.len());
    }
    for (family, qualifier, value) in &written {
        let wanted = columns(&[family], std::slice::from_ref(qualifier), 1);
        let row = get(c, "row", &wanted).await.unwrap();
        assert_eq!(row.cells.len(), 1, "{qualifier:?}");
        assert!(row.cells[0].value == *value, "{qualifier:?}");
    }
    let count = async |columns: Columns| get(c, "row", &columns).await.map_or(0, |row| row.cells.len());
    assert_eq!(count(columns(&["f"], &[], 1)).await, 3);
    assert_eq!(count(columns(&["f", "g"], &[], 1)).await, 4);
    assert_eq!(count(columns(&["f"], &[text("a"), awkward()], 1)).await, 2);
    assert_eq!(count(columns(&["f"], &[text("b")], 1)).await, 0);
}

async fn versions(c: &dyn Connection) {
    for value in ["1", "2", "3"] {
        let cell = ("f", text("q"), text(value));
        c.put(TABLE, put("versions", &[cell])).await.unwrap();
        next_millisecond().await;
    }
    let values = async |versions| {
        let row = get(c, "versions", &columns(&["f"], &[], versions)).await.unwrap();
        row.cells.into_iter().map(|cell| cell.value).collect::<Vec<_>>()
    };
    assert_eq!(values(0).await, ["3"]);
    assert_eq!(values(2).await, ["3", "2"]);
}

async fn rows(c: &dyn Connection) {
    let key = |i: usize| format!("scan{i:05}");
    let value: Bytes = vec![b'v'; 2_000].into();
    let row = |i| put(key(i), &[("f", text("q"), value.clone()), ("g", text("r"), text("w"))]);
    c.put_many(TABLE, (0..5_000).map(row).collect()).await.unwrap();
    let range = |from: usize, to: usize, limit| Scan {
        start: key(from).into(),
        end: key(to).into(),
        limit,
        rows_per_fetch: Some(100),
        columns: Columns::default(),
    };
    for (scanned, most, expected) in [
        (range(0, 5_000, None), usize::MAX, 0..5_000),
        (range(17, 4_000, Some(1_000)), usize::MAX, 17..1_017),
        (range(17, 20, Some(1_000)), usize::MAX, 17..20),
        (range(17, 4_000, None), 10, 17..27),
        (range(17, 4_000, Some(0)), usize::MAX, 17..17),
    ] {
        let rows = scan(c, &scanned, most).await;
        let keys: Vec<_> = rows.iter().map(|row| row.key.clone()).collect();
        assert_eq!(keys, expected.map(|i| Bytes::from(key(i))).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row.cells.len() == 2));
    }
    let mut narrow = range(0, 5_000, None);
    narrow.columns = columns(&["f"], &[text("q")], 1);
    let rows = scan(c, &narrow, usize::MAX).await;
    assert_eq!(rows.len(), 5_000);
    assert!(
        rows.iter()
            .all(|row| row.cells.len() == 1 && row.cells[0].value == value)
    );
}

async fn conditions(c: &dyn Connection) {
    let increment = async |by| c.increment(TABLE, "n".into(), "f", text("n"), by).await.unwrap();
    assert_eq!(increment(5).await, 5);
    assert_eq!(increment(-7).await, -2);
    let check = async |qualifier: Bytes, expected: Option<Bytes>, value: Bytes| {
        next_millisecond().await;
        let put = put("c", &[("f", qualifier.clone(), value)]);
        c.check_and_put(TABLE, "f", qualifier, expected, put).await.unwrap()
    };
    for qualifier in [text("q"), text(""), awkward()] {
        let q = || qualifier.clone();
        assert!(!check(q(), Some(text("x")), text("x")).await);
        assert!(check(q(), None, text("")).await, "nothing there, as expected");
        assert!(!check(q(), None, text("x")).await);
        assert!(!check(q(), Some(text("x")), text("x")).await);
        assert!(check(q(), Some(text("")), awkward()).await);
        assert!(!check(q(), Some(text("")), text("x")).await);
        assert!(check(q(), Some(awkward()), text("end")).await);
    }
}

async fn deletes(c: &dyn Connection) {
    let one = || text("1");
    let written = [
        ("f", text("a"), one()),
        ("f", awkward(), one()),
        ("g", text("a"), one()),
    ];
    c.put(TABLE, put("gone", &written)).await.unwrap();
    let left = async || {
        get(c, "gone", &Columns::default())
            .await
            .map_or(0, |row| row.cells.len())
    };
    c.delete(TABLE, "gone".into(), Some("f"), &[awkward()]).await.unwrap();
    assert_eq!(left().await, 2);
    c.delete(TABLE, "gone".into(), Some("f"), &[]).await.unwrap();
    assert_eq!(left().await, 1);
    c.delete(TABLE, "gone".into(), None, &[]).await.unwrap();
    assert_eq!(left().await, 0);
    c.delete(TABLE, "gone".into(), None, &[]).await.unwrap();
}

async fn refusals(target: &dyn Target, c: &dyn Connection) {
    let bad = put("r", &[("nofamily", text("q"), text("v"))]);
    assert!(c.put(TABLE, bad.clone()).await.is_err());
    let good = put("r", &[("f", text("q"), text("v"))]);
    assert!(c.put_many(TABLE, vec![good.clone(), bad]).await.is_err());
    let missing = c.put("bench-none", good).await.unwrap_err();
    assert_eq!(missing.kind(), "refused", "{missing}");
    let missing = c.get("bench-none", "r".into(), &Columns::default()).await.unwrap_err();
    assert_eq!(missing.kind(), "refused", "{missing}");
    let again = TableSpec {
        name: TABLE.into(),
        families: vec!["f".into()],
        ..TableSpec::default()
    };
    assert_eq!(target.create_table(&again).await.unwrap_err().kind(), "refused");
}

async fn suite(url: &str) {
    let target = open(url).await.unwrap();
    assert!(target.stores());
    assert!(!target.describe().await.unwrap().is_empty());
    target.drop_table(TABLE).await.unwrap();
    let spec = TableSpec {
        name: TABLE.into(),
        families: vec!["f".into(), "g".into()],
        max_versions: 3,
        splits: vec![b"n".to_vec(), b"scan01000".to_vec(), b"scan03000".to_vec()],
        ..TableSpec::default()
    };
    target.create_table(&spec).await.unwrap();
    let connection = target.connect().await.unwrap();
    cells(&*connection).await;
    versions(&*connection).await;
    rows(&*connection).await;
    conditions(&*connection).await;
    deletes(&*connection).await;
    refusals(&*target, &*connection).await;
    assert_eq!(connection.retries(), 0);
    target.drop_table(TABLE).await.unwrap();
    target.drop_table(TABLE).await.unwrap();
}

#[tokio::test]
async fn a_memory_target_does_what_the_seam_says() {
    suite("memory://live").await;
}

#[tokio::test]
async fn a_real_server_does_what_the_seam_says() {
    match std::env::var("STELE_BENCH_BIGTABLE") {
        Ok(url) => suite(&url).await,
        Err(_) => println!("skipped: STELE_BENCH_BIGTABLE has no address"),
    }
}
