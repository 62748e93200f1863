//! The real process, seen from outside: how it starts, refuses to start, answers, and stops.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const STELE: &str = env!("CARGO_BIN_EXE_stele");

/// A command with none of the caller's settings.
fn stele(arguments: &[&str]) -> Command {
    let mut command = Command::new(STELE);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A running server on free ports.
struct Server {
    child: Child,
    bigtable: SocketAddr,
    http: SocketAddr,
}

impl Server {
    /// Starts and waits for the banner.
    fn start(data: &Path) -> Server {
        let data = data.to_str().expect("test paths are UTF-8");
        let ports = [
            "--bigtable",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--memory",
            "64MiB",
        ];
        let mut command = stele(&["start", "--data", data]);
        let mut child = command
            .args(ports)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut after = |label: &str| loop {
            let line = lines
                .next()
                .expect("the banner is printed before the output ends")
                .unwrap();
            if let Some(rest) = line.trim_start().strip_prefix(label) {
                return rest.trim().to_owned();
            }
        };
        let bigtable = after("Bigtable").parse().unwrap();
        let health = after("health");
        let http = health
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        Server { child, bigtable, http }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    fn client(&self, arguments: &[&str]) -> Output {
        stele(arguments)
            .env("STELE_ADDRESS", self.bigtable.to_string())
            .output()
            .unwrap()
    }

    /// Asks it to stop and gives its exit code.
    fn stop(mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// Runs a start that must fail, and gives the one line it says.
fn refusal(arguments: &[&str]) -> String {
    let output = stele(&["start"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    (scratch, data)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_was_written_is_there_after_a_clean_stop_and_after_a_kill() {
    let (_scratch, data) = scratch();
    let server = Server::start(&data);
    assert!(
        server
            .client(&["create-table", "main/t", "--family", "f"])
            .status
            .success()
    );
    assert!(
        server
            .client(&["put", "main/t", "before stop", "f:q=1"])
            .status
            .success()
    );
    assert_eq!(server.stop(Signal::TERM), Some(0));

    let server = Server::start(&data);
    assert!(
        server
            .client(&["put", "main/t", "before kill", "f:q=2"])
            .status
            .success()
    );
    assert_eq!(server.stop(Signal::KILL), None);

    let server = Server::start(&data);
    let rows = text(&server.client(&["scan", "main/t"]));
    assert!(rows.contains("before stop") && rows.contains("before kill"), "{rows}");
    assert_eq!(server.stop(Signal::INT), Some(0));
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let (_scratch, data) = scratch();
    let server = Server::start(&data);
    server.client(&["create-table", "main/t", "--family", "f"]);
    server.client(&["put", "main/t", "row", "f:q=1"]);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/readyz").0, 200);
    let (status, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    let expected = [
        "stele_bigtable_requests_total{",
        "stele_bigtable_request_seconds_bucket{",
        "stele_tablets 1",
        "stele_memtable_bytes ",
        "stele_block_cache_bytes ",
        "stele_commitlog_written_bytes_total ",
        "stele_commitlog_retained_bytes ",
        "stele_commitlog_sync_seconds_count ",
        "stele_tablet_flushes_total ",
        "stele_tablet_flush_bytes_total ",
        "stele_tablet_compactions_total ",
        "stele_tablet_compaction_written_bytes_total ",
        "stele_recovery_milliseconds ",
    ];
    for name in expected {
        assert!(metrics.contains(name), "{name} is missing");
    }
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

#[test]
fn a_second_server_on_the_same_data_says_who_has_it() {
    let (_scratch, data) = scratch();
    let server = Server::start(&data);
    let ports = ["--bigtable", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let said = refusal(&[&["--data", data.to_str().unwrap()], &ports[..]].concat());
    assert!(
        said.contains("in use by process") && said.contains(&server.child.id().to_string()),
        "{said}"
    );
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

#[test]
fn a_newer_data_folder_and_a_foreign_one_are_left_alone() {
    let (_scratch, data) = scratch();
    let data_text = data.to_str().unwrap();
    let arguments = [
        "--data",
        data_text,
        "--bigtable",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ];
    std::fs::create_dir_all(data.join("tmp")).unwrap();
    std::fs::write(data.join("FORMAT"), "stele-data 99\n").unwrap();
    std::fs::write(data.join("tmp/unknown"), "kept").unwrap();
    assert!(refusal(&arguments).contains("format 99"));
    assert_eq!(std::fs::read(data.join("tmp/unknown")).unwrap(), b"kept");
    assert!(!data.join("LOCK").exists());

    std::fs::remove_file(data.join("FORMAT")).unwrap();
    std::fs::write(data.join("thesis.tex"), "years of work").unwrap();
    assert!(refusal(&arguments).contains("not a Stele data folder"));
}

#[test]
fn bad_settings_and_taken_ports_are_one_clear_line() {
    let (scratch, data) = scratch();
    let data = data.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refusal(&["--data", data, "--bigtable", &address]).contains("in use"));
    assert!(refusal(&["--bigtable", &address, "--http", &address]).contains("another port"));
    assert!(refusal(&["--memory", "lots"]).contains("memory"));
    assert!(
        refusal(&[
            "--data",
            "/proc/none",
            "--bigtable",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0"
        ])
        .contains("/proc/none")
    );
    let config = scratch.path().join("stele.toml");
    std::fs::write(&config, "memroy = 1\n").unwrap();
    assert!(refusal(&["--config", config.to_str().unwrap()]).contains("memroy"));
    assert!(!Path::new(data).exists(), "a start that fails leaves nothing behind");
}

#[test]
fn every_kind_of_file_can_be_inspected_while_the_server_runs() {
    let (_scratch, data) = scratch();
    let server = Server::start(&data);
    server.client(&["create-table", "main/t", "--family", "f"]);
    server.client(&["put", "main/t", "row", "f:q=1"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let server = Server::start(&data);
    server.client(&["put", "main/t", "row", "f:q=2"]);
    let mut kinds = std::collections::BTreeSet::new();
    for file in files_below(&data) {
        let path = file.strip_prefix(&data).unwrap().to_str().unwrap().to_owned();
        if path == "LOCK" {
            continue;
        }
        let output = stele(&["inspect", "--verbose", file.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{path}: {output:?}"
        );
        kinds.insert(path.split(['/', '-']).next().unwrap().to_owned() + path.rsplit_once('.').map_or("", |(_, e)| e));
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["FORMAT", "coord", "loglog", "sstsst", "tablets"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn families_move_between_locality_groups_while_they_are_used() {
    let (_scratch, data) = scratch();
    let server = Server::start(&data);
    let run = |server: &Server, arguments: &[&str]| {
        let output = server.client(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output)
    };
    run(&server, &["create-table", "main/t", "--family", "f", "--family", "g"]);
    run(&server, &["put", "main/t", "r", "f:q=1", "g:q=2"]);
    let options = [
        "--compression",
        "zstd",
        "--zstd-level",
        "3",
        "--in-memory",
        "--block-size",
        "4KiB",
    ];
    run(&server, &[&["create-group", "main/t", "cold"][..], &options].concat());
    let groups = run(&server, &["move-family", "main/t", "f", "cold", "--wait"]);
    let expected =
        "default\n    lz4\n    families g\ncold\n    zstd, level 3, blocks of 4096 bytes, in memory\n    families f\n";
    assert_eq!(groups, expected);
    assert!(run(&server, &["scan", "main/t", "--family", "f"]).contains("f:q"));
    run(&server, &["put", "main/t", "s", "f:q=3"]);
    let refused = server.client(&["create-group", "main/t", "x", "--zstd-level", "3"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("a level is an option of zstd"),
        "{refused:?}"
    );
    assert_eq!(server.stop(Signal::KILL), None);

    let server = Server::start(&data);
    assert_eq!(run(&server, &["groups", "main/t"]), expected);
    assert_eq!(run(&server, &["count", "main/t"]).trim(), "2");
    assert_eq!(server.stop(Signal::TERM), Some(0));
}
