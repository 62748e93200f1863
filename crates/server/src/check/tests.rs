//! A folder that a server wrote is in order.
//!
//! A check finds any change in it and names it.

use super::report::{Progress, Report, Severity};
use crate::encryption::Keys;
use crate::node::Node;
use crate::repair::Mode;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use stele_client::{GroupChange, GroupUpdate, MutateRows, NewFamily, NewSnapshot, NewTable, ReadRows, SnapshotName};
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_settings::StartArgs;
use stele_storage::faulty::FaultyStorage;
use stele_storage::memory::MemoryStorage;
use stele_storage::{ReadFile, Storage, StorageError};
use stele_tablet::Manifest;
use stele_tablet::manifest::ValueLink;
use stele_types::{FamilyId, Mutation, RowMutation, RowSet, TableName, Timestamp, ValueType};

/// A value of some 6 KB.
const VALUE_REPEATS: usize = 2_000;

pub fn table() -> TableName {
    TableName::new("space", "table")
}

pub async fn write(node: &Node, row: String) {
    write_large(node, row, VALUE_REPEATS).await;
}

/// The value is the row, repeated.
async fn write_large(node: &Node, row: String, repeats: usize) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from(row.repeat(repeats)),
    };
    let request = MutateRows {
        id: None,
        table: table(),
        rows: vec![RowMutation {
            row: row.into(),
            mutations: vec![put],
        }]
        .into(),
        durability: None,
    };
    for result in node.service.mutate_rows(request).await.unwrap() {
        result.unwrap();
    }
}

/// A server over a folder.
pub async fn start(storage: Arc<dyn Storage>) -> Node {
    let config = stele_settings::load(&StartArgs::default()).unwrap();
    let metrics = Metrics::new();
    Node::start(TokioRuntime::current(), (storage, Keys::default()), &config, &metrics)
        .await
        .unwrap()
}

/// The keys of all rows.
pub async fn rows(node: &Node) -> Vec<Bytes> {
    let request = ReadRows::new(table(), RowSet::all());
    let mut stream = node.service.read_rows(request).await.unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await.unwrap() {
        rows.extend(batch.shared_rows().map(|(row, _)| row));
    }
    rows
}

pub async fn make_table(node: &Node, name: TableName) {
    let new = NewTable {
        families: vec![NewFamily {
            name: "f".to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Default::default(),
            front_end_data: Vec::new(),
        }],
        initial_splits: vec![Bytes::from_static(b"n")],
        ..NewTable::new(name)
    };
    node.admin.create_table(new).await.unwrap();
}

/// Two tablets with a file each, and a few records in the log.
pub async fn folder() -> Arc<MemoryStorage> {
    folder_of(VALUE_REPEATS).await
}

/// The same where values are in value files.
pub async fn folder_with_values() -> Arc<MemoryStorage> {
    folder_of(10 * VALUE_REPEATS).await
}

async fn folder_of(repeats: usize) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    let node = start(storage.clone()).await;
    make_table(&node, table()).await;
    for n in 0..20 {
        write_large(&node, format!("a{n:02}"), repeats).await;
        write_large(&node, format!("p{n:02}"), repeats).await;
    }
    for served in node.server.all_served() {
        served.tablet.flush().await.unwrap();
    }
    for n in 20..23 {
        write_large(&node, format!("a{n:02}"), repeats).await;
    }
    // The process ends without a shutdown: a copy of its folder.
    copy(&*storage).await
}

pub async fn copy(storage: &dyn Storage) -> Arc<MemoryStorage> {
    let copy = MemoryStorage::new();
    for file in storage.list("").await.unwrap() {
        let content = storage.read_all(&file.path).await.unwrap();
        copy.put_if_absent(&file.path, content).await.unwrap();
    }
    copy
}

pub async fn check(storage: Arc<dyn Storage>) -> Report {
    super::check(storage, TokioRuntime::current(), Progress::hidden())
        .await
        .unwrap()
}

pub async fn flip(storage: &MemoryStorage, path: &str, at: usize) {
    let mut bytes = storage.read_all(path).await.unwrap().to_vec();
    bytes[at] ^= 1 << (at % 8);
    storage.delete(path).await.unwrap();
    storage.put_if_absent(path, bytes.into()).await.unwrap();
}

#[tokio::test]
async fn what_a_server_wrote_is_in_order() {
    let report = check(folder().await).await;
    assert_eq!(report.findings, []);
    assert_eq!((report.tables, report.tablets, report.sstables), (1, 2, 2));
    assert_eq!((report.cells, report.log_records), (40, 43));
    assert!(report.to_text().contains("nothing is damaged"), "{}", report.to_text());
}

/// The folder with value files, where only a snapshot names the files.
pub async fn folder_with_snapshot() -> Arc<MemoryStorage> {
    let folder = folder_with_values().await;
    let node = start(folder.clone()).await;
    let new = NewSnapshot {
        name: SnapshotName::new("space", "s"),
        table: table(),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.admin.create_snapshot(new).await.unwrap();
    node.admin.truncate(&table(), true).await.unwrap();
    copy(&*folder).await
}

fn damages(report: &Report) -> Vec<(&str, &str)> {
    let found = report.findings.iter().filter(|f| f.severity == Severity::Damage);
    found.map(|f| (f.file.as_str(), f.what.as_str())).collect()
}

#[tokio::test]
async fn files_of_snapshots_are_checked() {
    let whole = folder_with_snapshot().await;
    let report = check(whole.clone()).await;
    assert_eq!(damages(&report), [], "{}", report.to_text());
    let notes = report.findings.iter().filter(|f| f.file.starts_with("sst/"));
    assert_eq!(notes.count(), 0, "no file is taken for an orphan: {}", report.to_text());
    let part = whole.list("snapshots/").await.unwrap().remove(0).path;
    let files: Vec<String> = whole
        .list("sst/")
        .await
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect();
    assert!(files.iter().any(|path| path.ends_with(".val")), "{files:?}");
    for path in files.iter().chain([&part]) {
        let missing = copy(&*whole).await;
        missing.delete(path).await.unwrap();
        let report = check(missing).await;
        assert!(
            damages(&report)
                .iter()
                .all(|(file, what)| file == path && what.contains("snapshot"))
        );
        assert!(report.damages > 0, "{path}");
        let damaged = copy(&*whole).await;
        flip(&damaged, path, 40).await;
        let report = check(damaged).await;
        assert!(damages(&report).iter().any(|(file, _)| file == path), "{path}");
    }
}

#[tokio::test]
async fn a_check_changes_nothing() {
    let folder = folder().await;
    let before = folder.list("").await.unwrap();
    check(folder.clone()).await;
    assert_eq!(folder.list("").await.unwrap(), before);
}

#[tokio::test]
async fn every_flipped_byte_is_found_and_its_file_named() {
    let folder = folder().await;
    for file in folder.list("").await.unwrap() {
        let len = file.len as usize;
        let ends = (0..len.min(64)).chain(len.saturating_sub(64)..len).step_by(5);
        for at in ends.chain((0..len).step_by(len / 10 + 1)) {
            let damaged = copy(&*folder).await;
            flip(&damaged, &file.path, at).await;
            let report = check(damaged).await;
            let named = report
                .findings
                .iter()
                .any(|f| f.severity == Severity::Damage && f.file == file.path);
            // The last group of a log, and the last record of the coordinator, might never have been acknowledged.
            let may_be_torn = file.path.starts_with("log/") && at + 6_200 > len || file.path.starts_with("coord/log-");
            assert!(named || may_be_torn, "{} at {at}: {}", file.path, report.to_text());
        }
    }
}

#[tokio::test]
async fn damaged_blocks_are_told_with_their_rows() {
    let folder = folder().await;
    let files = folder.list("sst/").await.unwrap();
    flip(&folder, &files[0].path, 50_000).await;
    flip(&folder, &files[0].path, 90_000).await;
    let report = check(folder).await;
    assert_eq!(report.damages, 2, "{}", report.to_text());
    for finding in &report.findings {
        let [place] = &finding.places[..] else {
            unreachable!("one tablet: {finding:?}");
        };
        assert_eq!(place.table.as_deref(), Some(&*table().to_string()));
        let Some((start, Some(end))) = &place.rows else {
            unreachable!("rows: {finding:?}");
        };
        assert!(start < end && start.starts_with('a') && end.len() <= 3, "{place:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["damages"], 2);
    assert_eq!(json["findings"][0]["file"], files[0].path);
}

/// Otherwise the entries of one sstable with a thousand value files would be a million names.
#[tokio::test]
async fn an_sstable_is_noted_once_for_all_of_its_value_files() {
    let folder = folder_with_values().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    let mut manifest = Manifest::decode_file(&path, &folder.read_all(&path).await.unwrap()).unwrap();
    let tablet = manifest.tablet();
    let first = manifest.groups[0].files[0].values[0].clone();
    let link = |file| ValueLink { file, ..first.clone() };
    manifest.groups[0].files[0].values = (1_000..1_100).map(link).collect();
    folder.delete(&path).await.unwrap();
    folder.put_if_absent(&path, manifest.encode_file()).await.unwrap();
    let examined = super::examine(folder, TokioRuntime::current(), Progress::hidden()).await;
    let examined = examined.unwrap();
    let noted = examined.tablets.values.values().flatten();
    let noted: Vec<_> = noted.filter(|noted| noted.tablet.id == tablet).collect();
    assert_eq!(noted.len(), 100);
    assert!(noted.windows(2).all(|two| Arc::ptr_eq(two[0], two[1])));
}

#[tokio::test]
async fn missing_and_left_over_files_are_told_apart() {
    let folder = folder().await;
    let files = folder.list("sst/").await.unwrap();
    folder.delete(&files[1].path).await.unwrap();
    let orphan = "sst/00000000000000ff.sst";
    for path in [
        orphan,
        "tablets/00000000000000ff/manifest-0000000000000001",
        "notes.txt",
    ] {
        folder.put_if_absent(path, Bytes::from_static(b"?")).await.unwrap();
    }
    let report = check(folder.clone()).await;
    let of = |severity| -> Vec<&str> {
        let found = report.findings.iter().filter(|f| f.severity == severity);
        found.map(|f| f.file.as_str()).collect()
    };
    assert_eq!(of(Severity::Damage), [files[1].path.as_str()]);
    assert_eq!(of(Severity::Note), ["tablets/00000000000000ff/", orphan, "notes.txt"]);
    let manifests = folder.list("tablets/").await.unwrap();
    folder.delete(&manifests[1].path).await.unwrap();
    let report = check(folder).await;
    let text = report.to_text();
    assert!(text.contains("has no manifest"), "{text}");
    assert!(text.contains("a damaged one may"), "{text}");
}

/// The catalog was restored to the time before a family was moved.
#[tokio::test]
async fn families_outside_of_their_group_are_told() {
    let folder = folder().await;
    let node = start(folder.clone()).await;
    let create = GroupChange::Create {
        name: "other".to_owned(),
        options: GroupUpdate::default(),
    };
    node.admin.modify_groups(&table(), vec![create]).await.unwrap();
    let folder = copy(&*folder).await;
    drop(node);
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    let mut manifest = Manifest::decode_file(&path, &folder.read_all(&path).await.unwrap()).unwrap();
    manifest.groups[0].group = 1;
    folder.delete(&path).await.unwrap();
    folder.put_if_absent(&path, manifest.encode_file()).await.unwrap();
    let report = check(folder.clone()).await;
    assert!(!report.is_damaged(), "{}", report.to_text());
    let told = report
        .findings
        .iter()
        .any(|f| f.what.contains("of locality group other") && f.what.contains("others: f;"));
    assert!(told, "{}", report.to_text());
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 43);
}

/// A server is killed or loses its power during flushes and writes. A check then finds no damage, and a repair has
/// nothing to do. The loss at a power failure is random, by the system's own choice; the report lists the findings.
#[tokio::test]
async fn what_a_server_leaves_that_dies_is_no_damage() {
    for seed in 0..6 {
        let mut device = FaultyStorage::new(TokioRuntime::current());
        for life in 0..4u64 {
            let node = start(device.clone()).await;
            if life == 0 {
                make_table(&node, table()).await;
            }
            for n in 0..8 {
                write_large(
                    &node,
                    format!("{}{life}{n:02}", ["a", "p"][n % 2]),
                    VALUE_REPEATS * (1 + 4 * (n % 3)),
                )
                .await;
            }
            let flushing = node.server.all_served();
            let flushes = flushing.iter().map(|served| served.tablet.flush());
            let steps = 3 * seed + life;
            // Some of the way, or all of it.
            let some = async {
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
            };
            futures::future::select(Box::pin(futures::future::join_all(flushes)), Box::pin(some)).await;
            match (seed + life) % 3 {
                0 => device.kill(),
                _ => device.crash(),
            }
            drop(node);
            device = device.reopen();
            let report = check(device.clone()).await;
            assert!(!report.is_damaged(), "seed {seed} life {life}: {}", report.to_text());
            let env = TokioRuntime::current();
            let (text, in_order) = crate::repair::repair(device.clone(), env, Progress::hidden(), Mode::default())
                .await
                .unwrap();
            assert!(in_order && text.contains("nothing is damaged"), "{text}");
        }
        assert_eq!(rows(&start(device).await).await.len(), 32);
    }
}

/// A remote storage that does not respond to one read of a file.
struct FarAway {
    below: Arc<MemoryStorage>,
    path: String,
    /// Number of reads of the file that get a response before that one.
    answers: Arc<AtomicI64>,
}

impl FarAway {
    fn silent_after(below: &Arc<MemoryStorage>, path: &str, answers: i64) -> Arc<FarAway> {
        Arc::new(FarAway {
            below: below.clone(),
            path: path.to_owned(),
            answers: Arc::new(AtomicI64::new(answers)),
        })
    }

    fn was_silent(&self) -> bool {
        self.answers.load(Ordering::Relaxed) < 0
    }
}

#[async_trait]
impl stele_storage::Layer for FarAway {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        let file = self.below.open(path).await?;
        if path == self.path {
            Ok(Arc::new(FarFile {
                file,
                answers: self.answers.clone(),
            }))
        } else {
            Ok(file)
        }
    }
}

/// The file.
struct FarFile {
    file: Arc<dyn ReadFile>,
    answers: Arc<AtomicI64>,
}

#[async_trait]
impl ReadFile for FarFile {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        if self.answers.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(StorageError::Io {
                path: self.file.path().to_owned(),
                operation: "read",
                message: "timed out".to_owned(),
            });
        }
        self.file.read_at(offset, len).await
    }

    fn try_read_at(&self, _offset: u64, _len: usize) -> Option<stele_storage::Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        self.file.path()
    }
}

/// This holds for every read of the file; and no repair gives the file up for it.
#[tokio::test]
async fn a_medium_that_does_not_answer_has_no_damage() {
    let folder = folder_with_values().await;
    for (prefix, suffix) in [("sst/", ".sst"), ("sst/", ".val"), ("log/", ""), ("coord/", "")] {
        let files = folder.list(prefix).await.unwrap();
        let path = files.into_iter().find(|file| file.path.ends_with(suffix)).unwrap().path;
        let mut answers = 0;
        loop {
            let device = FarAway::silent_after(&folder, &path, answers);
            let checked = super::check(device.clone(), TokioRuntime::current(), Progress::hidden()).await;
            if !device.was_silent() {
                assert!(!checked.unwrap().is_damaged());
                break;
            }
            let error = format!("{:#}", checked.unwrap_err());
            assert!(error.contains(&path) && error.contains("timed out"), "{error}");
            let device = FarAway::silent_after(&folder, &path, answers);
            let dry_run = Mode {
                dry_run: true,
                ..Mode::default()
            };
            let repaired = crate::repair::repair(device, TokioRuntime::current(), Progress::hidden(), dry_run).await;
            let error = format!("{:#}", repaired.unwrap_err());
            assert!(error.contains("timed out"), "{error}");
            answers += 1 + answers / 2;
        }
        assert!(answers > 0, "{path}");
    }
}
