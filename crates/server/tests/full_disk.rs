//! The real process on a full file system.
//!
//! The file system is a small one in memory, in a mount namespace of its own. Writes are refused for want of space
//! while reads go on. When there is space again, writes go on without a restart. After a kill all acknowledged writes
//! are there. One tablet gets so little space that a flush's sstable fits and its manifest does not.

use crate::support::server;
use crate::support::table::connect;

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use server::{STELE, Server};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::local::{LocalOptions, LocalStorage};
use stele_tablet::manifest::ManifestLog;
use stele_tablet::{
    BatchBuilder, FileRegistry, Manifest, MemoryAccount, ScanSpec, Tablet, TabletContext, TabletMetrics, TabletScanner,
};
use stele_types::{
    Epoch, ErrorKind, Family, FamilyId, GroupId, Mutation, RowMutation, RowSet, TableId, TableName, TableSchema,
    TabletId, Timestamp, ValueType,
};

/// More than the 64 MiB that the server reserves plus the 64 MiB of its settings.
const DISK_BYTES: u64 = 192 << 20;
/// Bytes of a value: below the limit for an argument of a command.
const VALUE_BYTES: usize = 60_000;
/// Bytes that writers may take while the file system shrinks to those that are taken.
const SLACK_BYTES: u64 = 512 << 10;
/// How long anything may take that is bound to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system of its own, mounted where only the processes of a namespace see it; gone when this is dropped.
struct Disk {
    holder: Child,
    /// One answer for each size that the holder is told.
    answers: BufReader<ChildStdout>,
    mount: PathBuf,
    bytes: u64,
}

impl Disk {
    /// `None` where the system allows no such thing.
    fn new(at: &Path, bytes: u64) -> Option<Disk> {
        let script = format!(
            "mount -t tmpfs -o size={bytes} none \"$0\" && echo done
            while read size; do mount -o remount,size=$size none \"$0\" && echo done || echo refused; done"
        );
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut disk = Disk {
            answers: BufReader::new(holder.stdout.take()?),
            holder,
            mount: at.to_owned(),
            bytes,
        };
        disk.is_done().then_some(disk)
    }

    /// The holder's answer.
    fn is_done(&mut self) -> bool {
        let mut answer = String::new();
        let _ = self.answers.read_line(&mut answer);
        answer.trim() == "done"
    }

    /// Whether the file system has `bytes` from now on; it refuses fewer than are taken.
    fn resize(&mut self, bytes: u64) -> bool {
        writeln!(self.holder.stdin.as_mut().unwrap(), "{bytes}").unwrap();
        self.is_done()
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

    /// Where processes outside of the namespace see it.
    fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.mount.strip_prefix("/").unwrap())
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

    /// Takes all space but `left` bytes, and starts no process for it: within milliseconds.
    fn take_but(&self, left: u64) {
        let system = rustix::fs::statvfs(self.outside()).unwrap();
        let bytes = (system.f_bavail * system.f_frsize).checked_sub(left).unwrap();
        let ballast = File::create(self.outside().join("ballast")).unwrap();
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    }

    /// Takes the rest of the space, while others write. The file system shrinks, since a busy machine may need a tenth
    /// of a second for the pages of a large file.
    fn take_rest(&mut self) {
        let outside = self.outside();
        let taken = || {
            let system = rustix::fs::statvfs(&outside).unwrap();
            (system.f_blocks - system.f_bfree) * system.f_frsize
        };
        let begun = Instant::now();
        let mut bytes = taken() + SLACK_BYTES;
        while !self.resize(bytes) {
            assert!(
                begun.elapsed() < PATIENCE,
                "the file system does not shrink to {bytes} bytes"
            );
            bytes = taken() + SLACK_BYTES;
        }
        let ballast = outside.join("ballast");
        let ballast = File::options().write(true).open(ballast).unwrap();
        let mut end = ballast.metadata().unwrap().len();
        while rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), end, PAGE_BYTES).is_ok() {
            end += PAGE_BYTES;
        }
    }

    fn free(&mut self) {
        assert!(self.command("rm").arg(self.ballast()).status().unwrap().success());
        assert!(self.resize(self.bytes));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Nothing is tested, and this test passes. The message tells a person who runs all of them.
fn left_out(what: &str) {
    let why = format!("{what}: no mount namespaces here, nothing was tested");
    eprintln!("{why}");
    if let Some(path) = std::env::var_os("STELE_TEST_LEFT_OUT") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(format!("{why}\n").as_bytes()).unwrap();
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

/// Rows that are acknowledged in each round before the disk fills up.
const ROWS_A_ROUND: usize = 4;

/// Writes rows through one connection until told to stop; the acknowledged rows, which `written` counts. A write takes a
/// millisecond, so some writes are in flight at the moment at which the disk is full.
#[tokio::main(flavor = "current_thread")]
async fn write_until(address: &str, stop: &AtomicBool, next: &AtomicUsize, written: &AtomicUsize) -> Vec<String> {
    let mut client = connect(address).await;
    let mut acknowledged = Vec::new();
    loop {
        let last = stop.load(Ordering::SeqCst);
        let row = format!("row-{:04}", next.fetch_add(1, Ordering::SeqCst));
        let set = v2::mutation::SetCell {
            family_name: "f".to_owned(),
            column_qualifier: Bytes::from_static(b"q"),
            timestamp_micros: -1,
            value: row.repeat(VALUE_BYTES / row.len()).into(),
        };
        let request = v2::MutateRowRequest {
            table_name: "projects/p/instances/main/tables/t".to_owned(),
            row_key: row.clone().into(),
            mutations: vec![v2::Mutation {
                mutation: Some(v2::mutation::Mutation::SetCell(set)),
            }],
            ..v2::MutateRowRequest::default()
        };
        let answer = tokio::time::timeout(Duration::from_secs(2), client.mutate_row(request)).await;
        if answer.is_ok_and(|answer| answer.is_ok()) {
            acknowledged.push(row);
            written.fetch_add(1, Ordering::SeqCst);
        }
        if last {
            return acknowledged;
        }
    }
}

/// Free space that is left before a round: more than the server reserves, and so little that it is soon taken.
const LEFT_BYTES: u64 = 88 << 20;

/// Rounds after which the log must have met the full disk. The check of free space comes every fifth of a second. A round
/// takes the space just after a check. On a slow machine the next one may still come before the log has met the full disk.
const ROUNDS_MAX: usize = 12;

/// Waits until the server has just checked its free space, which writes change; `false` if it does not.
fn wait_for_check(server: &Server) -> bool {
    let free = || server.metric("stele_storage_free_bytes");
    let (begun, before) = (Instant::now(), free());
    while free() == before {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(mut disk) = Disk::new(scratch.path(), DISK_BYTES) else {
        left_out("full disk");
        return;
    };
    let mut server = start(&disk);
    let made = server.client(&["create-table", "main/t", "--family", "f"]);
    assert!(made.status.success(), "{made:?}");
    let mut acknowledged = BTreeSet::new();
    let next = AtomicUsize::new(0);
    let mut refused_by_log = 0;
    for round in 0..ROUNDS_MAX {
        if round >= 3 && refused_by_log > 0 {
            break;
        }
        // The disk fills up under running writers.
        disk.take_but(LEFT_BYTES);
        let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        let is_checked = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| write_until(&server.bigtable, &stop, &next, &written)))
                .collect();
            let begun = Instant::now();
            while written.load(Ordering::SeqCst) < ROWS_A_ROUND && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_checked = wait_for_check(&server);
            disk.take_rest();
            stop.store(true, Ordering::SeqCst);
            for writer in writers {
                acknowledged.extend(writer.join().unwrap());
            }
            is_checked
        });
        assert!(is_checked, "free space is not checked in round {round}");
        assert!(
            written.load(Ordering::SeqCst) >= ROWS_A_ROUND,
            "too little was written in round {round}"
        );
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

/// The least space that a file takes on the file system.
const PAGE_BYTES: u64 = 4096;
/// A flush of one small row takes an sstable and a manifest of a page each.
const PAGES_MAX: u64 = 8;

fn context(storage: &Arc<LocalStorage>, epoch: u32) -> TabletContext {
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), epoch);
    TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: stele_tablet::TokenMemory::default(),
    }
}

fn schema() -> Arc<TableSchema> {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    Arc::new(TableSchema {
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("full", "disk"))
    })
}

fn apply(tablet: &Tablet, row: u64) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    let mut batch = BatchBuilder::default();
    batch.push_row(&RowMutation {
        row: Bytes::from(format!("row{row:03}")),
        mutations: vec![put],
    });
    let batch = batch.finish();
    let first = tablet.sequence(batch.len(), |first| first).unwrap();
    tablet.apply(&batch, first);
}

async fn count_rows(tablet: &Arc<Tablet>) -> u64 {
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut rows = 0;
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        rows += batch.rows().count() as u64;
    }
    rows
}

/// The sstables that the newest manifest names; all of them must be there.
async fn named(storage: &Arc<LocalStorage>) -> usize {
    let (_, manifest) = ManifestLog::open(storage.clone(), TabletId(1)).await.unwrap();
    for file in manifest.stored() {
        storage.open(&file.path()).await.unwrap();
    }
    manifest.stored().count()
}

#[tokio::test]
async fn a_manifest_that_does_not_fit_leaves_the_one_before() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(scratch.path(), 2 << 20) else {
        left_out("full disk");
        return;
    };
    let (data, ballast) = (disk.outside().join("data"), disk.outside().join("ballast"));
    let options = LocalOptions { reserve_bytes: 0 };
    let storage = LocalStorage::open_with(&data, TokioRuntime::current(), options).unwrap();
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let first = context(&storage, 1);
    let files = first.files.clone();
    let tablet = Tablet::create(first, schema(), manifest).await.unwrap();
    apply(&tablet, 0);
    tablet.flush().await.unwrap();
    let mut without_space = BTreeSet::new();
    for pages in 0..PAGES_MAX {
        apply(&tablet, pages + 1);
        let before = named(&storage).await;
        disk.fill();
        {
            // Closed again: an open file keeps its space.
            let file = std::fs::OpenOptions::new().write(true).open(&ballast).unwrap();
            let bytes = file.metadata().unwrap().len();
            file.set_len(bytes - pages * PAGE_BYTES).unwrap();
        }
        let mut is_flushed = false;
        for _ in 0..2 {
            match tablet.flush().await {
                Ok(_) => is_flushed = true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
                    without_space.insert(if error.to_string().contains("manifest-") {
                        "manifest"
                    } else {
                        "sstable"
                    });
                    assert_eq!(named(&storage).await, before);
                }
            }
            assert_eq!(count_rows(&tablet).await, pages + 2, "what is in memory is read");
            files.delete_obsolete().await.unwrap();
        }
        std::fs::remove_file(&ballast).unwrap();
        tablet.flush().await.unwrap();
        assert_eq!(
            named(&storage).await,
            before + 1,
            "the file of the flush that went well, with {pages} pages"
        );
        assert_eq!(storage.list("sst/").await.unwrap().len(), before + 1);
        assert_eq!(std::fs::read_dir(data.join("tmp")).unwrap().count(), 0);
        assert!(is_flushed || pages < PAGES_MAX - 1, "two pages are not enough");
    }
    assert_eq!(without_space, BTreeSet::from(["manifest", "sstable"]));
    tablet.close();
    let tablet = Tablet::open(context(&storage, 2), schema(), TabletId(1), Epoch(2))
        .await
        .unwrap();
    assert_eq!(count_rows(&tablet).await, PAGES_MAX + 1);
}
