//! Encryption at rest by the real process, and the files that it leaves behind.
//!
//! Rows with a known text go to the log, to sstables and to value files, and a row key with it to manifests and the catalog. Without
//! a key the text is found in all these places, which shows that it would be.

use crate::backup::Scratch;
use crate::support::server;

use rustix::process::Signal;
use server::{Server, stele};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MARKER: &str = "a-marker-that-nobody-else-writes";
/// Goes to a value file.
const LARGE_BYTES: usize = 40_000;

fn key_file(scratch: &Scratch, name: &str, lines: &[(&str, &str)]) -> String {
    let text: String = lines
        .iter()
        .map(|(id, digits)| format!("{id} {}\n", digits.repeat(32)))
        .collect();
    fs::write(scratch.path(name), text).unwrap();
    scratch.text(name)
}

fn start(data: &Path, keys: Option<&str>) -> Server {
    let mut arguments = vec!["--memory", "128MiB", "--hbase", "off"];
    arguments.extend(keys.map(|keys| ["--encryption-key-file", keys]).into_iter().flatten());
    Server::start(data, &arguments)
}

/// The error of a start that must fail.
fn refused(data: &Path, keys: Option<&str>) -> String {
    let mut command = stele(&["start", "--hbase", "off"]);
    command.args(server::FREE_PORTS).arg("--data").arg(data);
    command.args(keys.map(|keys| ["--encryption-key-file", keys]).into_iter().flatten());
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes rows. Some are flushed by the stop of the server, and others are left to the log by a kill.
fn write_and_kill(data: &Path, keys: Option<&str>) -> String {
    let server = start(data, keys);
    let split = format!("row-{MARKER}-5");
    server.says(&["create-table", "main/t", "--family", "f", "--split", &split]);
    let large = MARKER.repeat(LARGE_BYTES / MARKER.len());
    for n in 0..10 {
        let row = format!("row-{MARKER}-{n}");
        let value = if n == 3 { large.clone() } else { format!("{MARKER} {n}") };
        server.says(&["put", "main/t", &row, &format!("f:q={value}")]);
    }
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let server = start(data, keys);
    server.says(&["put", "main/t", "in-the-log", &format!("f:q={MARKER}")]);
    let rows = rows(&server);
    server.stop(Signal::KILL);
    rows
}

fn rows(server: &Server) -> String {
    server.says(&["scan", "main/t", "--limit", "0"])
}

/// The files below a folder with their contents.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
}

fn all_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    files(folder, &mut found);
    found.sort();
    found
}

/// The kinds of files that have the text.
fn with_marker(folder: &Path) -> BTreeSet<&'static str> {
    let with = all_files(folder)
        .into_iter()
        .filter(|(_, content)| content.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()));
    with.map(|(path, _)| match &path {
        path if path.ends_with(".sst") => "sstable",
        path if path.ends_with(".val") => "value file",
        path if path.contains("/log/") => "log",
        path if path.contains("/coord/") => "catalog",
        path if path.contains("/tablets/") => "manifest",
        _ => "other",
    })
    .collect()
}

#[test]
fn a_reader_of_the_disk_finds_no_rows() {
    let scratch = Scratch::new();
    let (plain, data) = (scratch.path("plain"), scratch.path("data"));
    write_and_kill(&plain, None);
    let found = with_marker(&plain);
    for kind in ["sstable", "value file", "log", "catalog", "manifest"] {
        assert!(found.contains(kind), "the marker is where it would be found: {found:?}");
    }

    let keys = key_file(&scratch, "keys", &[("k1", "1a")]);
    let expected = write_and_kill(&data, Some(&keys));
    assert_eq!(with_marker(&data), BTreeSet::new());
    let paths: Vec<String> = all_files(&data.join("encryption"))
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(paths.len(), 2, "keys of the root and of the table: {paths:?}");

    // Without its key and with wrong ones nothing is changed.
    let before: Vec<_> = without_lock(&data);
    let wrong = key_file(&scratch, "wrong", &[("k1", "2b")]);
    let other = key_file(&scratch, "other", &[("k2", "1a")]);
    for (keys, why) in [
        (None, "is encrypted: give the file with its key, --encryption-key-file"),
        (Some(&wrong[..]), "does not unwrap it"),
        (Some(&other), "is wrapped by the key \"k1\""),
    ] {
        let error = refused(&data, keys);
        assert!(error.contains(why) && !error.contains("1a1a"), "{error}");
    }
    assert!(without_lock(&data) == before, "a refused start changes nothing");

    // The offline commands read it with the key, and not without.
    let (place, new) = (
        scratch.text("data"),
        key_file(&scratch, "new", &[("k2", "3c"), ("k1", "1a")]),
    );
    let check = |keys: &[&str]| {
        let mut command = stele(&["check", "--data", &place]);
        command.args(keys).output().unwrap()
    };
    let checked = check(&["--encryption-key-file", &keys]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let checked = check(&[]);
    assert!(String::from_utf8_lossy(&checked.stderr).contains("is encrypted"));

    // The key is replaced; then the former one is not needed.
    let server = start(&data, Some(&new));
    assert!(rows(&server) == expected, "the rows of both logs and files");
    server.stop(Signal::KILL);
    let only = key_file(&scratch, "only", &[("k2", "3c")]);
    let server = start(&data, Some(&only));
    assert!(rows(&server) == expected, "the rows after a rotation");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    assert!(refused(&data, Some(&keys)).contains("\"k2\""));
}

/// All but the file with the number of the process.
fn without_lock(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = all_files(folder);
    files.retain(|(path, _)| !path.ends_with("/LOCK"));
    files
}

#[test]
fn encryption_is_turned_on_and_backups_are_encrypted() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let expected = write_and_kill(&data, None);
    let keys = key_file(&scratch, "keys", &[("k1", "1a")]);
    let server = start(&data, Some(&keys));
    assert!(rows(&server) == expected, "files from before are read");
    let backups = scratch.text("backups");
    server.says(&["backup", "create", &backups, "--backup", "b1", "--table", "main/t"]);
    assert_eq!(with_marker(&scratch.path("backups")), BTreeSet::new());
    assert_eq!(server.stop(Signal::TERM), Some(0));
    // The log was replaced; files from before stay until a compaction.
    let found = with_marker(&data);
    assert!(found.contains("sstable") && !found.contains("log"), "{found:?}");

    // Another server needs the key for the backup, too.
    let (with, without) = (
        start(&scratch.path("with"), Some(&keys)),
        start(&scratch.path("without"), None),
    );
    with.says(&["backup", "verify", &backups, "--backup", "b1"]);
    with.says(&["backup", "restore", &backups, "--backup", "b1"]);
    assert!(rows(&with) == expected, "the rows of the backup");
    let failed = without.client(&["backup", "list", &backups]);
    let error = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && error.contains("is encrypted"), "{error}");
}
