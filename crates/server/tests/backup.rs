//! Backups by the real process and the real command line.
//!
//! The process is killed in the middle. Accidents are undone.

use crate::support::server;

use rustix::process::Signal;
use server::Server;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Rows of the table; each tenth has a value that goes to a value file.
const ROWS: usize = 400;
/// Slow enough that a kill hits the work: some 2.5 MB in two seconds.
const RATE: &str = "1200KiB";

pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

pub(crate) fn start(data: &Path) -> Server {
    Server::start(data, &["--memory", "128MiB", "--hbase", "off"])
}

/// Makes a table with rows.
pub(crate) fn fill(server: &Server, scratch: &Scratch, table: &str, version: usize) {
    let file = scratch.path("rows.csv");
    let mut text = "key,q\n".to_owned();
    for n in 0..ROWS {
        let len = if n % 10 == 0 { 6_000 } else { 20 };
        let value: String = (0..len)
            .map(|m| format!("{:x}", (n * 7919 + m * m * 31 + version) % 65_537))
            .collect();
        text += &format!("row-{n:05},{value}\n");
    }
    fs::write(&file, text).unwrap();
    server.says(&["create-table", table, "--family", "f", "--split", "row-00200"]);
    server.says(&[
        "import",
        table,
        &file.display().to_string(),
        "--key",
        "key",
        "--family",
        "f",
    ]);
}

pub(crate) fn rows(server: &Server, table: &str) -> String {
    server.says(&["scan", table, "--limit", "0"])
}

/// Runs a command and kills the server after a while; whether the command was done before.
pub(crate) fn killed(server: Server, arguments: &[&str], after: Duration) -> bool {
    let mut command = server.client_command(arguments);
    let mut client = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    let done = client.try_wait().unwrap();
    server.stop(Signal::KILL);
    // Without its server it would try for half a minute.
    let _ = client.kill();
    let _ = client.wait();
    done.is_some_and(|status| status.success())
}

#[test]
fn backups_are_made_verified_restored_and_deleted_across_kills() {
    let scratch = Scratch::new();
    let (data, other, backups) = (scratch.path("data"), scratch.path("other"), scratch.text("backups"));
    let server = start(&data);
    fill(&server, &scratch, "main/t", 1);
    let expected = rows(&server, "main/t");
    assert!(expected.len() > 100_000);
    let create = ["backup", "create", &backups, "--backup", "b1", "--rate", RATE];
    let mut server = Some(server);
    for tenths in [2, 9, 14] {
        killed(server.take().unwrap(), &create, Duration::from_millis(tenths * 100));
        server = Some(start(&data));
    }
    let server = server.unwrap();
    // On a slow machine nothing is at the destination yet.
    let listed = server.client(&["backup", "list", &backups]).stdout;
    let listed = String::from_utf8_lossy(&listed);
    if !listed.contains("b1") || listed.contains("not complete") {
        server.says(&create[..5]);
    }
    assert!(server.says(&["backup", "list", &backups]).contains("main/t"));
    assert!(
        server
            .says(&["backup", "verify", &backups, "--backup", "b1"])
            .contains("no damage")
    );
    let again = server.client(&["backup", "create", &backups, "--backup", "b1"]);
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("already"),
        "{again:?}"
    );
    let second = server.says(&["backup", "create", &backups, "--backup", "b2", "--digest"]);
    assert!(second.contains("0 files copied"), "{second}");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    // The source is gone.
    fs::remove_dir_all(&data).unwrap();

    let restore = ["backup", "restore", &backups, "--backup", "b1", "--rate", RATE];
    let mut server = Some(start(&other));
    for tenths in [3, 10] {
        killed(server.take().unwrap(), &restore, Duration::from_millis(tenths * 100));
        server = Some(start(&other));
    }
    let server = server.unwrap();
    if !server.says(&["tables"]).contains("main/t") {
        server.says(&restore[..5]);
    }
    assert!(rows(&server, "main/t") == expected);
    let as_u = [
        "backup", "restore", &backups, "--backup", "b2", "--table", "main/t", "--as", "main/u",
    ];
    server.says(&as_u);
    server.says(&["put", "main/u", "row-00000", "f:q=new"]);
    assert!(rows(&server, "main/t") == expected && rows(&server, "main/u") != expected);

    killed(
        server,
        &["backup", "delete", &backups, "--backup", "b1"],
        Duration::from_millis(30),
    );
    let server = start(&other);
    if server.says(&["backup", "list", &backups]).contains("b1 ") {
        server.says(&["backup", "delete", &backups, "--backup", "b1"]);
    }
    assert!(
        server
            .says(&["backup", "verify", &backups, "--backup", "b2", "--digest"])
            .contains("no damage")
    );
    damage_one(&scratch.path("backups/files"));
    let damaged = server.client(&["backup", "verify", &backups, "--backup", "b2"]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    assert!(
        String::from_utf8_lossy(&damaged.stdout).contains("damage: "),
        "{damaged:?}"
    );
    server.says(&["backup", "delete", &backups, "--backup", "b2"]);
    assert_eq!(files_below(&scratch.path("backups/files")), 0, "no file is left");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let checked = server::stele(&["check", "--data"]).arg(&other).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// Changes a byte of a file.
fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

fn damage_one(folder: &Path) {
    let inner = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let file = fs::read_dir(inner).unwrap().next().unwrap().unwrap().path();
    let mut content = fs::read(&file).unwrap();
    content[50] ^= 1;
    fs::write(&file, content).unwrap();
}

#[test]
fn places_of_something_else_are_refused() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = start(&data);
    server.says(&["create-table", "main/t", "--family", "f"]);
    for (place, why) in [
        (scratch.text("data"), "not empty"),
        ("relative".to_owned(), "absolute"),
        ("ftp://x/y".to_owned(), "neither a folder"),
    ] {
        let refused = server.client(&["backup", "create", &place, "--backup", "b"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{place}: {said}");
    }
    let absent = server.client(&["backup", "list", &scratch.text("absent")]);
    assert!(
        String::from_utf8_lossy(&absent.stderr).contains("no backups"),
        "{absent:?}"
    );
}

#[test]
fn accidents_are_undone() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = start(&data);
    fill(&server, &scratch, "main/t", 1);
    let expected = rows(&server, "main/t");
    server.says(&["drop-table", "main/t"]);
    assert!(!server.says(&["tables"]).contains("main/t"));
    assert_eq!(server.stop(Signal::KILL), None);
    let server = start(&data);
    let deleted = server.says(&["tables", "--deleted"]);
    assert!(
        deleted.contains("main/t  deleted") && deleted.contains("24 h"),
        "{deleted}"
    );
    server.says(&["undelete", "main/t"]);
    assert!(rows(&server, "main/t") == expected);
    assert_eq!(server.says(&["tables", "--deleted"]), "");
    assert_eq!(server.stop(Signal::TERM), Some(0));

    let off = Server::start(
        &data,
        &["--memory", "128MiB", "--hbase", "off", "--keep-deleted", "off"],
    );
    off.says(&["drop-table", "main/t"]);
    assert_eq!(off.says(&["tables", "--deleted"]), "");
    let undone = off.client(&["undelete", "main/t"]);
    assert!(
        String::from_utf8_lossy(&undone.stderr).contains("not kept"),
        "{undone:?}"
    );
}

/// Kept for a second: then its files go.
#[test]
fn files_of_a_deleted_table_go_after_the_grace() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &["--memory", "128MiB", "--hbase", "off", "--keep-deleted", "1s"]);
    fill(&server, &scratch, "main/t", 1);
    server.says(&["drop-table", "main/t"]);
    let left = || fs::read_dir(data.join("sst")).map_or(0, |files| files.count());
    let mut waited = 0;
    while left() > 0 && waited < 300 {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
    }
    assert_eq!(left(), 0, "files are left");
}
