//! Settings of a table, as its users see them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process"
)]

use crate::support::server;

use rustix::process::Signal;
use server::Server;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for all background work that is due within seconds.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn durability_is_the_tables() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--durability", "flush"]);
    for table in ["i/kept", "i/lost"] {
        server.says(&["create-table", table, "--family", "f"]);
        server.says(&["put", table, "before", "f:q=1"]);
    }
    let said = server.says(&["alter-table", "i/lost", "--durability", "none"]);
    assert!(said.contains("durability   none"), "{said}");
    server.says(&["alter-table", "i/kept", "--durability", "sync"]);
    let syncs = server.metric("stele_commitlog_sync_seconds_count");
    server.says(&["put", "i/lost", "after", "f:q=1"]);
    assert_eq!(server.metric("stele_commitlog_sync_seconds_count"), syncs);
    server.says(&["put", "i/kept", "after", "f:q=1"]);
    assert_eq!(server.metric("stele_commitlog_sync_seconds_count"), syncs + 1);
    assert!(server.says(&["get", "i/lost", "after"]).contains("f:q"));

    server.stop(Signal::KILL);
    let server = Server::start(data.path(), &["--durability", "flush"]);
    assert!(server.says(&["settings", "i/lost"]).contains("durability   none"));
    assert!(server.says(&["settings", "i/kept"]).contains("durability   sync"));
    assert!(server.says(&["get", "i/kept", "after"]).contains("f:q"));
    assert!(server.says(&["get", "i/lost", "before"]).contains("f:q"));
    assert!(!server.client(&["get", "i/lost", "after"]).status.success());

    server.says(&["alter-table", "i/lost", "--durability", "default"]);
    server.says(&["put", "i/lost", "again", "f:q=1"]);
    server.stop(Signal::KILL);
    let server = Server::start(data.path(), &["--durability", "flush"]);
    assert!(server.says(&["get", "i/lost", "again"]).contains("f:q"));
}

#[test]
fn a_table_without_row_cache_keeps_no_rows() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    server.says(&["create-table", "i/t", "--family", "f"]);
    server.says(&["put", "i/t", "row", "f:q=1"]);
    let hits_of_reads = || {
        let before = server.metric("stele_row_cache_hits");
        for _ in 0..4 {
            assert!(server.says(&["get", "i/t", "row"]).contains("f:q"));
        }
        server.metric("stele_row_cache_hits") - before
    };
    assert!(hits_of_reads() >= 2);
    server.says(&["alter-table", "i/t", "--row-cache", "false"]);
    assert_eq!(hits_of_reads(), 0);
    server.says(&["alter-table", "i/t", "--row-cache", "true"]);
    assert!(hits_of_reads() >= 2);
}

#[test]
fn tablets_are_split_at_the_size_of_their_table() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--memory", "64MiB"]);
    server.says(&["create-table", "i/t", "--family", "f"]);
    server.says(&["alter-table", "i/t", "--tablet-size", "1MiB"]);
    let path = data.path().join("rows.csv");
    let mut rows = BufWriter::new(File::create(&path).unwrap());
    writeln!(rows, "key,value").unwrap();
    for row in 0..40_000_u64 {
        // Nothing that a codec would find much in.
        let word = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value: String = (0..16)
            .map(|i| format!("{:016x}", word.wrapping_mul(2 * i + 1)))
            .collect();
        writeln!(rows, "{row:08},{value}").unwrap();
    }
    rows.into_inner().unwrap().sync_all().unwrap();
    let path = path.to_str().unwrap();
    server.says(&["import", "i/t", path, "--key", "key", "--family", "f"]);
    let begun = Instant::now();
    while server.metric("stele_tablets") < 2 {
        assert!(begun.elapsed() < SOON, "not split");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_no_setting_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let refused = |arguments: &[&str], why: &str| {
        let output = server.client(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    };
    refused(&["settings", "i/t"], "not found");
    refused(&["alter-table", "i/t", "--row-cache", "false"], "not found");
    server.says(&["create-table", "i/t", "--family", "f"]);
    refused(&["alter-table", "i/t"], "give the settings that shall change");
    refused(&["alter-table", "i/t", "--tablet-size", "1000"], "a tablet is split at");
    assert!(server.says(&["settings", "i/t"]).contains("tablet size  default"));
}
