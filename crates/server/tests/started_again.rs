//! A server that starts itself once more because its allocator needs another setting: it is the same process, with the same
//! arguments and files, and it does so once.
//!
//! How often the program begins is seen by its configuration file: that is a pipe with a name, which whoever begins reads.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process"
)]

use crate::support::server;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use server::{FREE_PORTS, Server, stele};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const DELAY: &str = "MIMALLOC_PURGE_DELAY";
const KEPT: &str = "MIMALLOC_ARENA_MAX_OBJECT_SIZE";

/// Longer than a process takes to close what it has read to the end.
const CLOSED: Duration = Duration::from_secs(1);

/// Makes a pipe with a name that says `text` to everybody who opens it, and counts them. Its thread ends with the test.
fn counted(path: &Path, text: &'static str) -> Arc<AtomicUsize> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let readers = Arc::new(AtomicUsize::new(0));
    let (path, counter) = (path.to_owned(), readers.clone());
    thread::spawn(move || {
        // Returns when somebody reads.
        while let Ok(mut pipe) = OpenOptions::new().write(true).open(&path) {
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = pipe.write_all(text.as_bytes());
            drop(pipe);
            thread::sleep(CLOSED);
        }
    });
    readers
}

/// What a server was started with, and what it has.
struct Seen {
    server: Server,
    begun: usize,
    delay: Option<String>,
    kept: Option<String>,
    arguments: Vec<String>,
    input: PathBuf,
}

/// Starts a server with so much memory, a file as its input, and `preset` as settings of the allocator.
fn seen(scratch: &Path, memory: &'static str, preset: &[(&str, &str)]) -> Seen {
    let pipe = scratch.join(format!("config {memory}"));
    let readers = counted(&pipe, memory);
    let input = scratch.join("input");
    fs::write(&input, "not read").unwrap();
    let mut command = stele(&["start", "--config"]);
    command
        .arg(&pipe)
        .arg("--data")
        .arg(scratch.join(format!("data of {memory}")));
    command
        .arg0("another name")
        .stdin(File::open(&input).unwrap())
        .env("KEPT", "yes");
    command.envs(preset.iter().copied());
    // Its output is read here: it says where it serves.
    let server = Server::run(&mut command);
    // One more that begins would have been waiting for the pipe.
    thread::sleep(2 * CLOSED);
    let of = |file: &str| format!("/proc/{}/{file}", server.pid());
    let list = |file: &str| -> Vec<String> {
        let bytes = fs::read(of(file)).unwrap();
        let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        parts.map(|part| String::from_utf8(part.to_vec()).unwrap()).collect()
    };
    let environment = list("environ");
    assert!(environment.contains(&"KEPT=yes".to_owned()), "{environment:?}");
    let setting = |name: &str| {
        let of_name = |entry: &String| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        let values: Vec<_> = environment.iter().filter_map(of_name).collect();
        assert!(values.len() < 2, "{environment:?}");
        values.into_iter().next()
    };
    Seen {
        begun: readers.load(Ordering::Relaxed),
        delay: setting(DELAY),
        kept: setting(KEPT),
        arguments: list("cmdline"),
        input: fs::read_link(of("fd/0")).unwrap(),
        server,
    }
}

fn check(seen: &Seen, scratch: &Path, memory: &str) {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let mut expected = vec!["another name".to_owned(), "start".to_owned(), "--config".to_owned()];
    expected.push(text(scratch.join(format!("config {memory}"))));
    expected.push("--data".to_owned());
    expected.push(text(scratch.join(format!("data of {memory}"))));
    expected.extend(FREE_PORTS.map(str::to_owned));
    assert_eq!(seen.arguments, expected);
    assert_eq!(seen.input, scratch.join("input").canonicalize().unwrap());
}

/// How often it began, its delay, and what it keeps.
fn settings(seen: &Seen) -> (usize, Option<&str>, Option<&str>) {
    (seen.begun, seen.delay.as_deref(), seen.kept.as_deref())
}

#[test]
fn a_small_budget_starts_the_process_once_more() {
    let scratch = tempfile::tempdir().unwrap();
    let memory = "memory = \"256MiB\"";
    let seen = seen(scratch.path(), memory, &[]);
    assert_eq!(settings(&seen), (2, Some("200"), Some("2097152")));
    check(&seen, scratch.path(), memory);
    assert_eq!(seen.server.get("/readyz").0, 200);
    assert_eq!(seen.server.stop(Signal::TERM), Some(0));
}

#[test]
fn settings_that_are_there_are_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let memory = "memory = \"64MiB\"";
    let seen = seen(scratch.path(), memory, &[(DELAY, "7"), (KEPT, "3M")]);
    assert_eq!(settings(&seen), (1, Some("7"), Some("3M")));
    check(&seen, scratch.path(), memory);
    assert_eq!(seen.server.stop(Signal::INT), Some(0));
}

#[test]
fn a_large_budget_needs_no_other_delay() {
    let scratch = tempfile::tempdir().unwrap();
    let memory = "memory = \"1280MiB\"";
    let seen = seen(scratch.path(), memory, &[(DELAY, "7")]);
    assert_eq!(settings(&seen), (2, Some("7"), Some("2097152")));
    drop(seen);
    let memory = "memory = \"1281MiB\"";
    let seen = self::seen(scratch.path(), memory, &[(KEPT, "3M")]);
    assert_eq!(settings(&seen), (1, None, Some("3M")));
    check(&seen, scratch.path(), memory);
    assert_eq!(seen.server.stop(Signal::TERM), Some(0));
}
