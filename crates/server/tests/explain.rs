//! `stele explain`: the counts of a read against a table whose files are known.

use crate::support::server::Server;
use serde_json::Value;
use std::fmt::Write as _;
use tempfile::TempDir;

const TABLE: &str = "shop/orders";

/// Rows `key0000` to `key0999`.
fn fill(server: &Server, dir: &TempDir) {
    let file = dir.path().join("rows.csv");
    let mut rows = String::from("row,a,b\n");
    for n in 0..1_000 {
        writeln!(rows, "key{n:04},{n},x").unwrap();
    }
    std::fs::write(&file, rows).unwrap();
    let file = file.to_str().unwrap();
    server.says(&["import", TABLE, file, "--key", "row", "--family", "f", "--create"]);
}

fn start(dir: &TempDir) -> Server {
    Server::start(&dir.path().join("data"), &["--memory", "128MiB", "--hbase", "off"])
}

fn explained(server: &Server, arguments: &[&str]) -> Value {
    let all = [&["explain", TABLE, "--json"], arguments].concat();
    let value: Value = serde_json::from_str(&server.says(&all)).unwrap();
    assert_eq!(value["complete"], true);
    value["tablets"][0].clone()
}

#[test]
fn counts_tell_where_rows_come_from() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    fill(&server, &dir);
    let scan = explained(&server, &["--limit", "0"]);
    // The key is a cell as well.
    assert_eq!(
        (&scan["rows"], &scan["cells_seen"]),
        (&1_000.into(), &3_000.into()),
        "{scan}"
    );
    assert_eq!((&scan["memtables"], &scan["files"]), (&1.into(), &0.into()), "{scan}");
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));

    // The stop has flushed the memtable to a file, of which nothing is cached now.
    let server = start(&dir);
    let scan = explained(&server, &["--prefix", "key00", "--columns", "f:a", "--limit", "0"]);
    assert_eq!(
        (&scan["rows"], &scan["cells_passed"]),
        (&100.into(), &100.into()),
        "{scan}"
    );
    assert_eq!((&scan["memtables"], &scan["files"]), (&0.into(), &1.into()), "{scan}");
    assert_eq!(scan["files_used"], 1, "{scan}");
    assert!(
        scan["blocks_read"].as_u64() > Some(0) && scan["block_bytes_read"].as_u64() > Some(0),
        "{scan}"
    );
    let again = explained(&server, &["--prefix", "key00", "--columns", "f:a", "--limit", "0"]);
    assert!(again["blocks_cached"].as_u64() > Some(0), "{again}");
    // A row that is not there, within the keys of the file: its bloom filter says so.
    let absent = explained(&server, &["--row", "key0500x"]);
    assert_eq!(
        (&absent["rows"], &absent["files_used"]),
        (&0.into(), &0.into()),
        "{absent}"
    );
    assert_eq!(
        (&absent["filters_asked"], &absent["filters_excluded"]),
        (&1.into(), &1.into()),
        "{absent}"
    );
    // A row that is read often comes from the row cache.
    let mut of_row = Value::Null;
    for _ in 0..20 {
        of_row = explained(&server, &["--row", "key0500"]);
        if of_row["row_cache_hits"] == 1 {
            break;
        }
    }
    assert_eq!(
        (&of_row["rows"], &of_row["row_cache_hits"]),
        (&1.into(), &1.into()),
        "{of_row}"
    );
    assert_eq!(of_row["blocks_cached"], 0, "{of_row}");
    let text = server.says(&["explain", TABLE, "--row", "key0501"]);
    assert!(text.contains("1 used of 1 in 1 runs"), "{text}");
}

#[test]
fn tablets_are_told_apart() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    server.says(&[
        "create-table",
        TABLE,
        "--family",
        "f",
        "--split",
        "key0300",
        "--split",
        "key0600",
    ]);
    fill(&server, &dir);
    let value: Value =
        serde_json::from_str(&server.says(&["explain", TABLE, "--json", "--start", "key0100", "--limit", "600"]))
            .unwrap();
    let tablets = value["tablets"].as_array().unwrap();
    let rows: Vec<u64> = tablets.iter().map(|tablet| tablet["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [200, 300, 100]);
    assert_eq!(
        (&tablets[1]["start"], &tablets[1]["end"]),
        (&"key0300".into(), &"key0600".into())
    );
    let missing = server.client(&["explain", "shop/nothing"]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("nothing"));
}
