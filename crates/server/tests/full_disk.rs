//! The real process on a real file system that is full: a small one in memory, in a mount namespace of its own.
//!
//! Writes are refused for want of space while reads go on; when there is space again writes go on without a restart; and
//! after a kill everything that was acknowledged is there.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a real process over real sockets"
)]

#[path = "support/server.rs"]
mod server;

use server::{STELE, Server};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More than the 64 MiB that the server keeps free, and the 64 MiB that its settings do.
const DISK_BYTES: u64 = 192 << 20;
/// Of a value: below what an argument of a command may have.
const VALUE_BYTES: usize = 60_000;
/// How long anything may take that is bound to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system of its own, mounted where only the processes of a namespace see it; gone when this is dropped.
struct Disk {
    holder: Child,
    mount: PathBuf,
}

impl Disk {
    /// `None` where the system allows no such thing.
    fn new(at: &Path) -> Option<Disk> {
        let script = format!("mount -t tmpfs -o size={DISK_BYTES} none \"$0\" && echo mounted && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = String::new();
        let _ = BufReader::new(holder.stdout.take()?).read_line(&mut said);
        let disk = Disk {
            holder,
            mount: at.to_owned(),
        };
        (said.trim() == "mounted").then_some(disk)
    }

    /// A command within.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let holder = self.holder.id().to_string();
        command
            .args([
                "--target",
                &holder,
                "--user",
                "--mount",
                "--preserve-credentials",
                program,
            ])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null());
        command
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    /// Takes all space that is left.
    fn fill(&self) {
        let script = "cat /dev/zero > \"$0\"";
        let full = self
            .command("sh")
            .args(["-c", script])
            .arg(self.ballast())
            .output()
            .unwrap();
        assert!(!full.status.success(), "zeros without end fit on the disk");
    }

    fn free(&self) {
        assert!(self.command("rm").arg(self.ballast()).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn start(disk: &Disk) -> Server {
    let mut command = disk.command(STELE);
    command.args(["start", "--memory", "64MiB", "--free-space-min", "1MiB", "--data"]);
    Server::run(command.arg(disk.mount.join("data")))
}

/// Whether the row was acknowledged before long. A client that is refused tries again for a while.
fn put(server: &Server, row: &str) -> bool {
    let value = format!("f:q={}", row.repeat(VALUE_BYTES / row.len()));
    let mut command = server.client_command(&["put", "main/t", row, &value]);
    let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        if let Some(status) = client.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    client.kill().unwrap();
    client.wait().unwrap();
    false
}

fn rows(server: &Server) -> BTreeSet<String> {
    let text = server.says(&["scan", "main/t", "--limit", "0"]);
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    names
        .filter(|name| name.starts_with("row-") && name.len() == 8)
        .map(str::to_owned)
        .collect()
}

/// Writes rows until told to stop; those that were acknowledged.
fn write_until(server: &Server, stop: &AtomicBool, next: &AtomicUsize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    loop {
        let last = stop.load(Ordering::SeqCst);
        let row = format!("row-{:04}", next.fetch_add(1, Ordering::SeqCst));
        if put(server, &row) {
            acknowledged.push(row);
        }
        if last {
            return acknowledged;
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(scratch.path()) else {
        eprintln!("no mount namespaces here: nothing was tested");
        return;
    };
    let mut server = start(&disk);
    let made = server.client(&["create-table", "main/t", "--family", "f"]);
    assert!(made.status.success(), "{made:?}");
    let mut acknowledged = BTreeSet::new();
    let next = AtomicUsize::new(0);
    let mut refused_by_log = 0;
    for round in 0..3 {
        // The disk fills up under the hands of those who write.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| write_until(&server, &stop, &next)))
                .collect();
            std::thread::sleep(Duration::from_millis(500));
            disk.fill();
            stop.store(true, Ordering::SeqCst);
            for writer in writers {
                acknowledged.extend(writer.join().unwrap());
            }
        });
        assert!(acknowledged.len() > 3 * round, "nothing was written in round {round}");
        assert!(!put(&server, "row-none"), "a write is accepted though the disk is full");
        assert!(server.metric("stele_writes_refused_disk_total") > 0);
        refused_by_log += server.metric("stele_commitlog_failures_total");
        let read = rows(&server);
        let lost: Vec<_> = acknowledged.difference(&read).collect();
        assert!(
            lost.is_empty(),
            "while the disk is full {lost:?} are not found, {} are",
            read.len()
        );
        if round == 1 {
            drop(server);
            disk.free();
            server = start(&disk);
        } else {
            disk.free();
        }
        let freed = Instant::now();
        while !put(&server, "row-0000") {
            assert!(freed.elapsed() < PATIENCE, "no write is accepted though there is space");
        }
    }
    assert!(
        refused_by_log > 0,
        "only the look at free space now and then has refused anything"
    );
    drop(server);
    let server = start(&disk);
    let read = rows(&server);
    let lost: Vec<_> = acknowledged.difference(&read).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
    drop(server);
}
