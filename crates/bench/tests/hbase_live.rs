//! The HBase driver against a real HBase, named by `STELE_BENCH_HBASE=hbase://host:port`.
//!
//! Without that variable the tests print a note and do nothing: the servers are too large to be part of every test run.
//! `STELE_BENCH_HBASE_JARS`, a class path, adds a comparison of all results with those of HBase's own client.

use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use stele_bench::target::{Columns, Compression, Connection, Put, Row, Scan, TableSpec, Target, TargetError};

const TABLE: &str = "bench-hbase-live";

async fn target() -> Option<Arc<dyn Target>> {
    let Ok(url) = std::env::var("STELE_BENCH_HBASE") else {
        println!("skipped: STELE_BENCH_HBASE names no HBase");
        return None;
    };
    Some(stele_bench::target::open(&url).await.expect("the address is right"))
}

/// Creates a table of its own for each test, since they run concurrently.
async fn table(target: &dyn Target, suffix: &str, splits: &[&str]) -> String {
    let name = format!("{TABLE}-{suffix}");
    target
        .drop_table(&name)
        .await
        .expect("a table that may not exist is dropped");
    let spec = TableSpec {
        name: name.clone(),
        families: vec!["f".into(), "g".into()],
        max_versions: 3,
        splits: splits.iter().map(|s| s.as_bytes().to_vec()).collect(),
        compression: Compression::None,
        in_memory: false,
        block_bytes: Some(16 << 10),
    };
    target.create_table(&spec).await.expect("the table is made");
    name
}

fn put(key: &str, cells: &[(&str, &str, &str)]) -> Put {
    let bytes = |s: &str| Bytes::copy_from_slice(s.as_bytes());
    let cells = cells.iter().map(|(f, q, v)| (Arc::from(*f), bytes(q), bytes(v)));
    Put {
        key: bytes(key),
        cells: cells.collect(),
    }
}

fn text(row: &Row) -> String {
    let cell = |c: &stele_bench::target::Cell| {
        format!(
            "{}:{}={}",
            c.family.escape_ascii(),
            c.qualifier.escape_ascii(),
            c.value.escape_ascii()
        )
    };
    format!(
        "{} {}",
        row.key.escape_ascii(),
        row.cells.iter().map(cell).collect::<Vec<_>>().join(" ")
    )
}

async fn rows(connection: &dyn Connection, table: &str, scan: &Scan) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut sink = |row: &Row| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    };
    connection.scan(table, scan, &mut sink).await.expect("the scan ends");
    rows
}

#[tokio::test]
async fn single_rows() {
    let Some(target) = target().await else { return };
    let table = table(&*target, "rows", &["m"]).await;
    let c = target.connect().await.expect("connected");
    let all = Columns::default();
    let get = async |key: &'static str, columns: &Columns| {
        let row = c
            .get(&table, Bytes::from_static(key.as_bytes()), columns)
            .await
            .expect("read");
        row.map(|row| text(&row)).unwrap_or_default()
    };

    c.put(&table, put("a", &[("f", "1", "x"), ("f", "2", ""), ("g", "1", "y")]))
        .await
        .expect("written");
    c.put(&table, put("z", &[("f", "1", "last")])).await.expect("written");
    assert_eq!(get("a", &all).await, "a f:1=x f:2= g:1=y");
    assert_eq!(get("z", &all).await, "z f:1=last");
    assert_eq!(get("b", &all).await, "");

    let one = Columns {
        families: vec!["f".into()],
        qualifiers: vec!["1".into()],
        versions: 3,
    };
    c.put(&table, put("a", &[("f", "1", "x2")])).await.expect("written");
    assert_eq!(get("a", &one).await, "a f:1=x2 f:1=x");
    assert_eq!(
        get(
            "a",
            &Columns {
                families: vec!["g".into()],
                ..all.clone()
            }
        )
        .await,
        "a g:1=y"
    );

    let key = Bytes::from_static(b"n");
    assert_eq!(
        c.increment(&table, key.clone(), "f", "n".into(), 5)
            .await
            .expect("added"),
        5
    );
    assert_eq!(
        c.increment(&table, key.clone(), "f", "n".into(), -7)
            .await
            .expect("added"),
        -2
    );

    let check = async |expected: Option<&'static str>, value: &'static str| {
        let expected = expected.map(|v| Bytes::from_static(v.as_bytes()));
        let put = put("c", &[("f", "q", value)]);
        c.check_and_put(&table, "f", "q".into(), expected, put)
            .await
            .expect("checked")
    };
    assert!(check(None, "1").await, "it has no value");
    assert!(!check(None, "2").await);
    assert!(!check(Some("2"), "3").await);
    assert!(check(Some("1"), "3").await);
    assert_eq!(get("c", &all).await, "c f:q=3");

    c.delete(&table, Bytes::from_static(b"a"), Some("f"), &["1".into()])
        .await
        .expect("deleted");
    assert_eq!(
        get(
            "a",
            &Columns {
                versions: 3,
                ..all.clone()
            }
        )
        .await,
        "a f:2= g:1=y"
    );
    c.delete(&table, Bytes::from_static(b"a"), Some("f"), &[])
        .await
        .expect("deleted");
    assert_eq!(get("a", &all).await, "a g:1=y");
    c.delete(&table, Bytes::from_static(b"a"), None, &[])
        .await
        .expect("deleted");
    assert_eq!(get("a", &all).await, "");
    target.drop_table(&table).await.expect("dropped");
}

#[tokio::test]
async fn many_rows_and_scans() {
    let Some(target) = target().await else { return };
    let table = table(&*target, "scans", &["k01000", "k02000", "k03500"]).await;
    let c = target.connect().await.expect("connected");
    let value = |i: u32| format!("{i:-<1000}");
    let key = |i: u32| format!("k{i:05}");
    // In an order that is not the table's, and more than one request for each region.
    let order = (0..5000u32).map(|i| i * 7919 % 5000);
    let puts = order
        .map(|i| put(&key(i), &[("f", "a", &value(i)), ("g", "b", "second")]))
        .collect();
    c.put_many(&table, puts).await.expect("all are written");

    let whole = rows(&*c, &table, &Scan::default()).await;
    assert_eq!(whole.len(), 5000);
    for (i, row) in whole.iter().enumerate() {
        let i = i as u32;
        assert_eq!(text(row), format!("{} f:a={} g:b=second", key(i), value(i)));
    }
    target.flush_table(&table).await.expect("flushed");
    for (start, end, limit, fetch, expected) in [
        (900, 2100, None, None, 900..2100),
        (900, 2100, None, Some(7), 900..2100),
        (990, 5000, Some(20), Some(3), 990..1010),
        (990, 5000, Some(10), None, 990..1000),
        (4990, 9999, None, None, 4990..5000),
        (100, 100, None, None, 100..100),
        (0, 9999, Some(4000), Some(1000), 0..4000),
    ] {
        let (start, end) = (key(start).into(), key(end).into());
        let columns = Columns {
            families: vec!["g".into()],
            ..Columns::default()
        };
        let scan = Scan {
            start,
            end,
            limit,
            rows_per_fetch: fetch,
            columns,
        };
        let found: Vec<String> = rows(&*c, &table, &scan).await.iter().map(text).collect();
        let expected: Vec<String> = expected.map(|i| format!("{} g:b=second", key(i))).collect();
        assert_eq!(found, expected, "{scan:?}");
    }
    let mut seen = 0;
    let mut sink = |_: &Row| {
        seen += 1;
        if seen == 5 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    c.scan(
        &table,
        &Scan {
            rows_per_fetch: Some(10),
            ..Scan::default()
        },
        &mut sink,
    )
    .await
    .expect("broken off");
    assert_eq!(seen, 5);
    assert_eq!(c.retries(), 0);
    target.drop_table(&table).await.expect("dropped");
}

#[tokio::test]
async fn rows_larger_than_an_answer_come_whole() {
    let Some(target) = target().await else { return };
    let table = table(&*target, "large", &[]).await;
    let c = target.connect().await.expect("connected");
    let value = "v".repeat(100_000);
    for key in ["a", "b", "c"] {
        // Some 6 MB each, so that every response splits a row.
        let qualifiers: Vec<String> = (0..60).map(|q| format!("{q:03}")).collect();
        let cells: Vec<_> = qualifiers.iter().map(|q| ("f", q.as_str(), value.as_str())).collect();
        c.put_many(&table, vec![put(key, &cells)]).await.expect("written");
    }
    let found = rows(&*c, &table, &Scan::default()).await;
    let shape: Vec<(Bytes, usize)> = found.iter().map(|row| (row.key.clone(), row.cells.len())).collect();
    assert_eq!(shape, ["a", "b", "c"].map(|key| (Bytes::from(key), 60)));
    assert!(
        found
            .iter()
            .all(|row| row.cells.windows(2).all(|w| w[0].qualifier < w[1].qualifier))
    );
    target.drop_table(&table).await.expect("dropped");
}

#[tokio::test]
async fn refusals_and_tables_made_again() {
    let Some(target) = target().await else { return };
    let name = table(&*target, "again", &["m"]).await;
    let c = target.connect().await.expect("connected");
    let unknown_family = c.put(&name, put("a", &[("x", "1", "v")])).await;
    assert!(
        matches!(unknown_family, Err(TargetError::Refused(_))),
        "{unknown_family:?}"
    );
    let many = c
        .put_many(&name, vec![put("a", &[("f", "1", "v")]), put("b", &[("x", "1", "v")])])
        .await;
    assert!(matches!(many, Err(TargetError::Refused(_))), "{many:?}");
    let no_table = c.get("bench-there-is-no-such", "a".into(), &Columns::default()).await;
    assert!(matches!(no_table, Err(TargetError::Refused(_))), "{no_table:?}");

    // The connection still knows the regions of the table before.
    c.put(&name, put("z", &[("f", "1", "before")])).await.expect("written");
    let again = table(&*target, "again", &["c", "x"]).await;
    assert_eq!(
        c.get(&again, "z".into(), &Columns::default()).await.expect("read"),
        None
    );
    c.put(&again, put("d", &[("f", "1", "after")])).await.expect("written");
    assert_eq!(rows(&*c, &again, &Scan::default()).await.len(), 1);
    assert!(c.retries() > 0, "old regions had to be looked up again");
    target.drop_table(&again).await.expect("dropped");
    target.drop_table(&again).await.expect("dropping what is gone is fine");
}

#[tokio::test]
async fn it_says_what_it_is() {
    let Some(target) = target().await else { return };
    let facts = target.describe().await.expect("described");
    println!("{facts:?}");
    for name in ["cluster id", "version", "region servers"] {
        assert!(
            facts.iter().any(|(key, value)| key == name && !value.is_empty()),
            "{name}"
        );
    }
}

/// The output of [`RowDigest.java`](hbase_live/RowDigest.java) for the same range.
async fn digest(connection: &dyn Connection, table: &str, start: &'static str, end: &'static str) -> String {
    let (mut rows, mut cells, mut crc) = (0, 0, flate2::Crc::new());
    let mut sink = |row: &Row| {
        rows += 1;
        for cell in &row.cells {
            cells += 1;
            for part in [
                &row.key,
                &cell.family,
                &cell.qualifier,
                &cell.timestamp.to_be_bytes()[..],
                &cell.value,
            ] {
                crc.update(part);
            }
        }
        ControlFlow::Continue(())
    };
    let columns = Columns {
        versions: 2,
        ..Columns::default()
    };
    let scan = Scan {
        start: start.into(),
        end: end.into(),
        columns,
        ..Scan::default()
    };
    connection.scan(table, &scan, &mut sink).await.expect("the scan ends");
    format!("{rows} rows, {cells} cells, {:x}", crc.sum())
}

#[tokio::test]
async fn hbases_own_client_reads_the_same() {
    let Some(target) = target().await else { return };
    let Ok(jars) = std::env::var("STELE_BENCH_HBASE_JARS") else {
        println!("skipped: STELE_BENCH_HBASE_JARS is no class path with HBase's client");
        return;
    };
    let url = std::env::var("STELE_BENCH_HBASE").unwrap_or_default();
    let address = url
        .trim_start_matches("hbase://")
        .split(['?', '/'])
        .next()
        .unwrap_or_default()
        .to_owned();
    let table = table(&*target, "java", &["k04000", "k11111"]).await;
    let c = target.connect().await.expect("connected");
    // Rows of different sizes, with one to five cells of no to a few thousand bytes, and every seventh one twice.
    let row = |i: u32, turn: u32| {
        let value = |q: u32| format!("{turn}-{i}-").repeat((i * 31 + q * 17) as usize % 400);
        let cells: Vec<_> = (0..=i % 5)
            .map(|q| (["f", "g"][q as usize % 2], format!("q{q}"), value(q)))
            .collect();
        let cells: Vec<_> = cells.iter().map(|(f, q, v)| (*f, q.as_str(), v.as_str())).collect();
        put(&format!("k{i:05}"), &cells)
    };
    c.put_many(&table, (0..20_000).map(|i| row(i, 1)).collect())
        .await
        .expect("written");
    target.flush_table(&table).await.expect("flushed");
    c.put_many(&table, (0..20_000).step_by(7).map(|i| row(i, 2)).collect())
        .await
        .expect("written");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hbase_live/RowDigest.java");
    for (start, end) in [("", ""), ("k03999", "k11112"), ("k19990", "")] {
        let mut java = std::process::Command::new("java");
        java.args(["-cp", &jars, program, &address, &table, start, end]);
        let output = java.output().expect("java is there");
        let theirs = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let ours = digest(&*c, &table, start, end).await;
        println!("{start:?} to {end:?}: {ours}");
        assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(digest(&*c, &table, "", "").await.starts_with("20000 rows, "));
    target.drop_table(&table).await.expect("dropped");
}
