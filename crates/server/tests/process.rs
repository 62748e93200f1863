//! The real process from outside: start, refusal to start, responses and shutdown.

use crate::support::server;

use rustix::process::{Pid, Signal, kill_process};
use server::{FREE_PORTS, STELE, Server, stele};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn start(data: &Path) -> Server {
    Server::start(data, &["--memory", "64MiB"])
}

/// Runs a start that must fail, and returns the one line of its output.
fn refusal(arguments: &[&str]) -> String {
    ends_with(1, arguments)
}

/// The same of one whose settings are wrong. A service manager does not try it again.
fn wrong_settings(arguments: &[&str]) -> String {
    ends_with(2, arguments)
}

fn ends_with(status: i32, arguments: &[&str]) -> String {
    let output = stele(&["start"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    (scratch, data)
}

#[test]
fn what_was_written_is_there_after_a_clean_stop_and_after_a_kill() {
    let (_scratch, data) = scratch();
    let server = start(&data);
    server.says(&["create-table", "main/t", "--family", "f"]);
    server.says(&["put", "main/t", "before stop", "f:q=1"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));

    let server = start(&data);
    server.says(&["put", "main/t", "before kill", "f:q=2"]);
    assert_eq!(server.stop(Signal::KILL), None);

    let server = start(&data);
    let rows = server.says(&["scan", "main/t"]);
    assert!(rows.contains("before stop") && rows.contains("before kill"), "{rows}");
    assert_eq!(server.stop(Signal::INT), Some(0));
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let (_scratch, data) = scratch();
    let server = start(&data);
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

/// Systems let a process have few at first, and many when it asks.
#[test]
fn as_many_files_may_be_open_as_the_system_allows() {
    let (_scratch, data) = scratch();
    let mut command = Command::new("/bin/sh");
    let few_at_first = "ulimit -S -n 256 && exec \"$0\" \"$@\"";
    command.args(["-c", few_at_first, STELE, "start", "--memory", "64MiB", "--data"]);
    let server = Server::run(command.arg(&data).env_clear());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut words = line.unwrap().split_whitespace();
    let (now, most) = (words.next(), words.next());
    assert!(now.is_some() && now == most, "{line:?}");
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

/// As systemd starts, reloads and stops a unit of `Type=notify`.
#[test]
fn the_service_manager_learns_start_and_stop() {
    let (scratch, data) = scratch();
    let socket = scratch.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let next = || {
        let mut buffer = [0; 256];
        let read = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    };
    let mut command = stele(&["start", "--memory", "64MiB", "--data"]);
    let server = Server::run(command.arg(&data).env("NOTIFY_SOCKET", &socket));
    assert_eq!(next(), "STATUS=recovering");
    assert!(next().starts_with("READY=1\n"));
    server.says(&["health", "--http", &server.http]);
    // A reload. There are no certificates to read, and nothing else happens.
    kill_process(
        Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap(),
        Signal::HUP,
    )
    .unwrap();
    server.says(&["create-table", "main/t", "--family", "f"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    assert!(next().starts_with("STOPPING=1\n"));
}

#[test]
fn a_second_server_on_the_same_data_says_who_has_it() {
    let (_scratch, data) = scratch();
    let server = start(&data);
    let said = refusal(&[&["--data", data.to_str().unwrap()], &FREE_PORTS[..]].concat());
    assert!(
        said.contains("in use by process") && said.contains(&server.pid().to_string()),
        "{said}"
    );
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

#[test]
fn a_newer_data_folder_and_a_foreign_one_are_left_alone() {
    let (_scratch, data) = scratch();
    let data_text = data.to_str().unwrap();
    let arguments = [&["--data", data_text], &FREE_PORTS[..]].concat();
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
    assert!(wrong_settings(&["--bigtable", &address, "--http", &address]).contains("another port"));
    assert!(wrong_settings(&["--memory", "lots"]).contains("memory"));
    assert!(refusal(&[&["--data", "/proc/none"], &FREE_PORTS[..]].concat()).contains("/proc/none"));
    let config = scratch.path().join("stele.toml");
    std::fs::write(&config, "memroy = 1\n").unwrap();
    assert!(wrong_settings(&["--config", config.to_str().unwrap()]).contains("memroy"));
    assert!(!Path::new(data).exists(), "a start that fails leaves nothing behind");
}

#[test]
fn every_kind_of_file_can_be_inspected_while_the_server_runs() {
    let (_scratch, data) = scratch();
    let server = start(&data);
    server.client(&["create-table", "main/t", "--family", "f"]);
    server.client(&["put", "main/t", "row", "f:q=1"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let server = start(&data);
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
    let server = start(&data);
    server.says(&["create-table", "main/t", "--family", "f", "--family", "g"]);
    server.says(&["put", "main/t", "r", "f:q=1", "g:q=2"]);
    let options = [
        "--compression",
        "zstd",
        "--zstd-level",
        "3",
        "--in-memory",
        "--block-size",
        "4KiB",
    ];
    server.says(&[&["create-group", "main/t", "cold"][..], &options].concat());
    let groups = server.says(&["move-family", "main/t", "f", "cold", "--wait"]);
    let expected =
        "default\n    lz4\n    families g\ncold\n    zstd, level 3, blocks of 4096 bytes, in memory\n    families f\n";
    assert_eq!(groups, expected);
    assert!(server.says(&["scan", "main/t", "--family", "f"]).contains("f:q"));
    server.says(&["put", "main/t", "s", "f:q=3"]);
    let refused = server.client(&["create-group", "main/t", "x", "--zstd-level", "3"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("a level is an option of zstd"),
        "{refused:?}"
    );
    assert_eq!(server.stop(Signal::KILL), None);

    let server = start(&data);
    assert_eq!(server.says(&["groups", "main/t"]), expected);
    assert_eq!(server.says(&["count", "main/t"]).trim(), "2");
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

#[test]
fn a_start_that_waits_for_its_store_can_be_stopped() {
    // It accepts connections and never sends anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("endpoint=http://{}", silent.local_addr().unwrap());
    let options = format!("{endpoint},region=none,access_key_id=a,secret_access_key=b,allow_http=true");
    let mut starting = stele(&["start", "--data", "s3://bucket/prefix", "--data-option", &options])
        .args(FREE_PORTS)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _asked = silent.accept().unwrap();
    kill_process(Pid::from_child(&starting), Signal::TERM).unwrap();
    // As long as the store is asked otherwise, and then with 1.
    assert_eq!(starting.wait().unwrap().code(), Some(0));
}
