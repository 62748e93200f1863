//! A repair gives up damaged parts, saves intact ones, and keeps the damaged originals.

use super::*;
use crate::check::report::DAMAGES_MAX;
use crate::check::tests::{
    check, copy, flip, folder, folder_with_snapshot, folder_with_values, make_table, rows, start, table, write,
};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::FileInfo;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_tablet::Manifest;
use stele_tablet::manifest;
use stele_types::{TableName, TabletId};

mod encrypted;
mod parts;
mod unreadable;

async fn run(storage: &Arc<MemoryStorage>, dry_run: bool) -> (String, bool) {
    let mode = Mode {
        dry_run,
        ..Mode::default()
    };
    run_as(storage, mode).await.unwrap()
}

async fn run_as(storage: &Arc<MemoryStorage>, mode: Mode) -> anyhow::Result<(String, bool)> {
    repair(storage.clone(), TokioRuntime::current(), Progress::hidden(), mode).await
}

const DRY_ACCEPTING: Mode = Mode {
    dry_run: true,
    accept_loss: true,
};
const ACCEPTING: Mode = Mode {
    dry_run: false,
    accept_loss: true,
};

async fn content(storage: &MemoryStorage) -> Vec<(String, bytes::Bytes)> {
    let mut all = Vec::new();
    for file in storage.list("").await.unwrap() {
        let content = storage.read_all(&file.path).await.unwrap();
        all.push((file.path, content));
    }
    all
}

/// The log segment that has a row: each stream has its own.
async fn log_with(storage: &MemoryStorage, row: &[u8]) -> String {
    let mut segments = content(storage).await.into_iter();
    let has_row = |(path, bytes): &(String, bytes::Bytes)| {
        path.starts_with("log/") && bytes.windows(row.len()).any(|window| window == row)
    };
    segments.find(has_row).expect("the row was logged").0
}

/// The same damage as by a flipped bit in the version.
#[tokio::test]
async fn a_file_of_a_newer_version_is_not_given_up() {
    let folder = folder().await;
    let file = folder.list("sst/").await.unwrap().remove(0);
    // The last byte in front of the magic number.
    flip(&folder, &file.path, file.len as usize - 9).await;
    for dry_run in [true, false] {
        let (text, in_order) = run(&folder, dry_run).await;
        let told = format!("cannot be repaired: {}: ", file.path);
        assert!(
            !in_order && text.contains(&told) && text.contains("format version"),
            "{text}"
        );
        assert!(!text.contains("give up"), "{text}");
    }
    assert!(folder.open(&file.path).await.is_ok());
}

#[tokio::test]
async fn a_folder_in_order_is_left_alone() {
    let folder = folder().await;
    let before = content(&folder).await;
    assert!(run(&folder, false).await.1);
    assert_eq!(content(&folder).await, before);
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_lost_and_changes_nothing() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 50_000).await;
    let before = content(&folder).await;
    let (text, in_order) = run(&folder, true).await;
    assert!(in_order && text.contains(&path) && text.contains("rows \"a"), "{text}");
    assert_eq!(content(&folder).await, before);
}

/// A dry run of such a folder fails: some of them may be beyond repair.
#[tokio::test]
async fn damages_that_are_not_listed_count_as_beyond_repair() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 50_000).await;
    let examined = check::examine(folder, TokioRuntime::current(), Progress::hidden()).await;
    let mut examined = examined.unwrap();
    assert_eq!(beyond_repair(&examined, &[]), "");
    for _ in 0..DAMAGES_MAX {
        examined.report.damage(&path, None, "another block", Vec::new());
    }
    let beyond = beyond_repair(&examined, &[]);
    assert!(beyond.starts_with("1 more damages are not listed"), "{beyond}");
}

#[tokio::test]
async fn a_dry_run_says_of_which_files_nothing_is_left() {
    for is_there in [true, false] {
        let folder = folder().await;
        let path = folder.list("sst/").await.unwrap()[0].path.clone();
        let len = folder.read_all(&path).await.unwrap().len();
        if is_there {
            flip(&folder, &path, len - 1).await
        } else {
            folder.delete(&path).await.unwrap()
        }
        let (text, in_order) = run(&folder, true).await;
        assert!(in_order && text.contains(&format!("give up {path}")), "{text}");
    }
}

/// As of manifests that were restored from before the catalog.
#[tokio::test]
async fn a_dry_run_says_what_a_repair_does_nothing_about() {
    let folder = folder().await;
    let path = paths(&folder, "tablets/", "").await.remove(0);
    let mut manifest = Manifest::decode_file(&path, &folder.read_all(&path).await.unwrap()).unwrap();
    manifest.table += 1;
    folder.delete(&path).await.unwrap();
    folder.put_if_absent(&path, manifest.encode_file()).await.unwrap();
    for dry_run in [true, false] {
        let (text, in_order) = run(&folder, dry_run).await;
        assert!(!in_order && text.contains("cannot be repaired: tablets/"), "{text}");
    }
}

#[tokio::test]
async fn the_intact_blocks_of_an_sstable_are_saved() {
    for at in [50_000, 1 << 30] {
        let folder = folder().await;
        let path = folder.list("sst/").await.unwrap()[0].path.clone();
        let original = folder.read_all(&path).await.unwrap();
        let whole = at > original.len();
        flip(&folder, &path, if whole { original.len() - 1 } else { at }).await;
        let damaged = folder.read_all(&path).await.unwrap();
        let (text, in_order) = run(&folder, false).await;
        assert!(in_order, "{text}");
        assert_eq!(folder.read_all(&format!("damaged/{path}")).await.unwrap(), damaged);
        assert_eq!(check(folder.clone()).await.damages, 0);
        let node = start(folder.clone()).await;
        let left = rows(&node).await;
        // 20 rows in each file, and three in the log.
        let of = |letter: &str| left.iter().filter(|row| row.starts_with(letter.as_bytes())).count();
        assert_eq!(of("p"), 20, "{text}");
        let expected = if whole { 3..4 } else { 16..23 };
        assert!(expected.contains(&of("a")), "{} rows left\n{text}", of("a"));
        assert_eq!(node.server.damaged_tablets().len(), 0);
    }
}

/// Repeated attempts must not use up the free space, or no server starts on the disk any more.
#[tokio::test]
async fn a_repair_for_which_there_is_no_space_leaves_nothing() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 50_000).await;
    let env = TokioRuntime::current();
    let disk = FaultyStorage::new(env.clone());
    let (mut used, mut len) = (0, 0);
    for (path_of, content) in content(&folder).await {
        used += content.len() as u64;
        len = len.max(if path_of == path { content.len() as u64 } else { 0 });
        disk.put_if_absent(&path_of, content).await.unwrap();
    }
    let names = async || {
        let all = disk.list("").await.unwrap().into_iter().map(|file| file.path);
        all.filter(|path| !path.starts_with("coord/")).collect::<Vec<_>>()
    };
    let before = names().await;
    // Not enough for the new file; and enough for it, but not for the copy of the original.
    for room in [len / 2, len + len / 2] {
        disk.set_plan(FaultPlan {
            space_limit: Some(used + room),
            ..FaultPlan::default()
        });
        for _ in 0..3 {
            let repaired = repair(disk.clone(), env.clone(), Progress::hidden(), Mode::default()).await;
            let error = format!("{:#}", repaired.unwrap_err());
            assert!(error.contains("no space left"), "{error}");
            assert_eq!(names().await, before);
        }
    }
    disk.set_plan(FaultPlan::default());
    let repaired = repair(disk.clone(), env, Progress::hidden(), Mode::default()).await;
    let (text, in_order) = repaired.unwrap();
    assert!(in_order, "{text}");
}

#[tokio::test]
async fn a_missing_sstable_is_given_up() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    folder.delete(&path).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains("it was missing"), "{text}");
    let left = rows(&start(folder.clone()).await).await;
    assert_eq!(left.len(), 23, "{text}");
}

#[tokio::test]
async fn a_log_is_saved_behind_its_damage() {
    let folder = folder().await;
    let path = log_with(&folder, b"a21").await;
    let len = folder.read_all(&path).await.unwrap().len();
    // In the second of the three records that are in no file: each is some 6 KB long. Both tablets are in this stream, with 20 records
    // each before them.
    flip(&folder, &path, len - 9_000).await;
    assert!(check(folder.clone()).await.is_damaged());
    let (text, _) = run(&folder, true).await;
    assert!(
        text.contains("42 intact records") && text.contains("sequence numbers after"),
        "{text}"
    );
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains(&format!("damaged/{path}")), "{text}");
    let left = rows(&start(folder.clone()).await).await;
    let expected: Vec<&[u8]> = vec![b"a20", b"a22"];
    let found: Vec<&[u8]> = left
        .iter()
        .map(|row| &row[..])
        .filter(|row| (&b"a20"[..]..b"b").contains(row))
        .collect();
    assert_eq!((left.len(), found), (42, expected), "{text}");
}

#[tokio::test]
async fn a_manifest_is_left_alone_without_consent() {
    let folder = folder().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 30).await;
    let damaged = folder.read_all(&path).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("not done without --accept-loss"), "{text}");
    assert!(text.contains("no version of its manifest can be read"), "{text}");
    assert_eq!(folder.read_all(&path).await.unwrap(), damaged);
    assert_eq!(folder.list("sst/").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_tablet_without_manifest_begins_anew_from_the_log() {
    let folder = folder().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    flip(&folder, &path, 30).await;
    let before = content(&folder).await;
    let (text, in_order) = run_as(&folder, DRY_ACCEPTING).await.unwrap();
    assert!(in_order && text.contains("begin with no files"), "{text}");
    assert_eq!(content(&folder).await, before);
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    let kept: Vec<String> = folder
        .list("damaged/")
        .await
        .unwrap()
        .into_iter()
        .map(|f| f.path)
        .collect();
    assert_eq!(kept.len(), 2, "the manifest and the file it referred to: {kept:?}");
    assert!(kept.contains(&format!("damaged/{path}")));
    // The log still has all that was written.
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 43, "{text}");
}

#[tokio::test]
async fn an_older_manifest_is_taken_with_consent() {
    let folder = folder().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    let (tablet, number) = stele_tablet::manifest::parse_path(&path).unwrap();
    let newer = stele_tablet::manifest::path(tablet, number + 1);
    let content = folder.read_all(&path).await.unwrap();
    folder.put_if_absent(&newer, content).await.unwrap();
    flip(&folder, &newer, 30).await;
    let (text, in_order) = run(&folder, true).await;
    assert!(!in_order && text.contains(&format!("take version {number}")), "{text}");
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    assert!(folder.open(&newer).await.is_err());
    assert_eq!(folder.list("sst/").await.unwrap().len(), 2, "the files are in use");
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 43);
}

/// The newest file of this kind.
async fn newest(storage: &MemoryStorage, prefix: &str) -> String {
    storage.list(prefix).await.unwrap().pop().unwrap().path
}

#[tokio::test]
async fn a_snapshot_of_the_catalog_is_made_again() {
    let folder = folder().await;
    let node = start(folder.clone()).await;
    // Its later work goes to a copy.
    let folder = copy(&*folder).await;
    drop(node);
    let path = newest(&folder, "coord/snapshot-").await;
    flip(&folder, &path, 45).await;
    let before = content(&folder).await;
    let (text, in_order) = run(&folder, true).await;
    assert!(in_order && text.contains("nothing of it is lost"), "{text}");
    assert_eq!(content(&folder).await, before);
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains(&format!("damaged/{path}")), "{text}");
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 43);
}

#[tokio::test]
async fn a_first_snapshot_of_the_catalog_cannot_be_made_again() {
    let folder = folder().await;
    let path = newest(&folder, "coord/snapshot-").await;
    flip(&folder, &path, 30).await;
    let before = content(&folder).await;
    let error = run_as(&folder, ACCEPTING).await.unwrap_err().to_string();
    assert!(error.contains("restore coord/ from a backup"), "{error}");
    assert_eq!(content(&folder).await, before);
}

#[tokio::test]
async fn a_log_of_the_catalog_counts_to_its_damage_with_consent() {
    let folder = folder().await;
    let path = newest(&folder, "coord/log-").await;
    let len = folder.read_all(&path).await.unwrap().len();
    flip(&folder, &path, len / 2).await;
    let before = content(&folder).await;
    let (text, in_order) = run(&folder, false).await;
    assert!(
        !in_order && text.contains("say --accept-loss") && text.contains("lost: every change"),
        "{text}"
    );
    assert_eq!(content(&folder).await, before);
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    // Tablets that the catalog no longer names are kept.
    let kept = folder.list("damaged/").await.unwrap();
    assert!(
        kept.iter().any(|file| file.path.starts_with("damaged/coord/")),
        "{kept:?}"
    );
    drop(start(folder.clone()).await);
    assert_eq!(check(folder).await.damages, 0);
}

/// The paths of this kind.
async fn paths(storage: &MemoryStorage, prefix: &str, ending: &str) -> Vec<String> {
    let files = storage.list(prefix).await.unwrap().into_iter();
    files
        .map(|file| file.path)
        .filter(|path| path.ends_with(ending))
        .collect()
}

/// A start sweeps unreferenced files: parts that were given up must be out of its reach.
async fn is_kept(storage: &Arc<MemoryStorage>, path: &str, content: &bytes::Bytes) {
    drop(start(storage.clone()).await);
    assert_eq!(&storage.read_all(&format!("damaged/{path}")).await.unwrap(), content);
    assert!(storage.open(path).await.is_err(), "{path} is in use");
}

#[tokio::test]
async fn value_files_of_a_manifest_that_is_given_up_are_kept() {
    let folder = folder_with_values().await;
    let tablets = paths(&folder, "tablets/", "").await;
    let damaged = Manifest::decode_file(&tablets[0], &folder.read_all(&tablets[0]).await.unwrap()).unwrap();
    let named: Vec<String> = damaged.stored().map(StoredFile::path).collect();
    assert_eq!(
        named.iter().filter(|path| path.ends_with(".val")).count(),
        1,
        "{named:?}"
    );
    let before = content(&folder).await;
    flip(&folder, &tablets[0], 30).await;
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    for (path, content) in before.iter().filter(|(path, _)| named.contains(path)) {
        is_kept(&folder, path, content).await;
    }
    assert_eq!(
        rows(&start(folder.clone()).await).await.len(),
        43,
        "the log has all of them"
    );
}

/// A snapshot is not changed, and its intact part can be restored.
#[tokio::test]
async fn files_that_a_snapshot_names_stay() {
    let folder = folder_with_snapshot().await;
    let before = paths(&folder, "sst/", "").await;
    let damaged = paths(&folder, "sst/", ".sst").await.remove(0);
    flip(&folder, &damaged, 40).await;
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains(&damaged), "{text}");
    let after = paths(&folder, "sst/", "").await;
    assert!(before.iter().all(|path| after.contains(path)), "{before:?} {after:?}");
}

#[tokio::test]
async fn an_older_manifest_misses_value_files_too() {
    let folder = folder_with_values().await;
    let path = paths(&folder, "tablets/", "").await.remove(0);
    let (tablet, number) = manifest::parse_path(&path).unwrap();
    let newer = manifest::path(tablet, number + 1);
    let older = folder.read_all(&path).await.unwrap();
    let values = Manifest::decode_file(&path, &older).unwrap().stored().last().unwrap();
    folder.put_if_absent(&newer, older).await.unwrap();
    flip(&folder, &newer, 30).await;
    folder.delete(&values.path()).await.unwrap();
    let (text, _) = run(&folder, true).await;
    assert!(text.contains("with 2 files (1 of them missing)"), "{text}");
}

#[tokio::test]
async fn value_files_of_an_sstable_that_is_given_up_are_kept() {
    let folder = folder_with_values().await;
    let tablets = paths(&folder, "tablets/", "").await;
    let named = Manifest::decode_file(&tablets[0], &folder.read_all(&tablets[0]).await.unwrap()).unwrap();
    let named: Vec<String> = named.stored().map(StoredFile::path).collect();
    let [sstable, values] = &named[..] else {
        unreachable!("an sstable with its value file: {named:?}");
    };
    let content = folder.read_all(values).await.unwrap();
    folder.delete(sstable).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains("its last reference is gone"), "{text}");
    is_kept(&folder, values, &content).await;
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 23);
}

/// Where a repair is interrupted.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Before a value file is copied.
    KeepingValues,
    /// A manifest has been made.
    ManifestMade,
}

/// A storage that fails every operation from one moment on.
struct Interrupting {
    below: Arc<MemoryStorage>,
    at: At,
    stopped: AtomicBool,
}

impl Interrupting {
    async fn repair(below: &Arc<MemoryStorage>, at: At, mode: Mode) {
        let interrupting = Arc::new(Interrupting {
            below: below.clone(),
            at,
            stopped: AtomicBool::new(false),
        });
        let device: Arc<dyn Storage> = interrupting.clone();
        repair(device, TokioRuntime::current(), Progress::hidden(), mode)
            .await
            .unwrap_err();
        assert!(interrupting.stopped.load(Ordering::Relaxed), "it got so far");
    }

    fn check(&self, path: &str) -> stele_storage::Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            Err(StorageError::Io {
                path: path.to_owned(),
                operation: "any",
                message: "interrupted".to_owned(),
            })
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Storage for Interrupting {
    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        if self.at == At::KeepingValues && path.starts_with(KEPT) && path.ends_with(".val") {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.check(path)?;
        self.below.create(path).await
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        self.check(path)?;
        self.below.open(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        self.check(path)?;
        self.below.put_if_absent(path, content).await?;
        if self.at == At::ManifestMade && path.starts_with("tablets/") {
            self.stopped.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
        self.check(prefix)?;
        self.below.list(prefix).await
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        self.check(path)?;
        self.below.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.check(path)?;
        self.below.sync_file(path).await
    }

    async fn free_bytes(&self) -> stele_storage::Result<Option<u64>> {
        self.below.free_bytes().await
    }
}

/// A repair that starts again finds nothing damaged, and the next start sweeps files that a given-up manifest named.
#[tokio::test]
async fn what_a_manifest_named_is_kept_though_the_repair_was_interrupted() {
    let folder = folder_with_values().await;
    let path = paths(&folder, "tablets/", "").await.remove(0);
    let given_up = Manifest::decode_file(&path, &folder.read_all(&path).await.unwrap()).unwrap();
    let named: Vec<String> = given_up.stored().map(StoredFile::path).collect();
    assert_eq!(named.len(), 2, "an sstable with its value file: {named:?}");
    let before = content(&folder).await;
    flip(&folder, &path, 30).await;
    Interrupting::repair(&folder, At::ManifestMade, ACCEPTING).await;
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    for (path, content) in before.iter().filter(|(path, _)| named.contains(path)) {
        let kept = folder.read_all(&format!("damaged/{path}")).await;
        assert_eq!(&kept.unwrap(), content, "{text}");
    }
}

#[tokio::test]
async fn value_files_of_an_sstable_are_kept_though_the_repair_was_interrupted() {
    let folder = folder_with_values().await;
    let path = paths(&folder, "tablets/", "").await.remove(0);
    let named = Manifest::decode_file(&path, &folder.read_all(&path).await.unwrap()).unwrap();
    let named: Vec<String> = named.stored().map(StoredFile::path).collect();
    let [sstable, values] = &named[..] else {
        unreachable!("an sstable with its value file: {named:?}");
    };
    let content = folder.read_all(values).await.unwrap();
    folder.delete(sstable).await.unwrap();
    Interrupting::repair(&folder, At::KeepingValues, Mode::default()).await;
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order, "{text}");
    is_kept(&folder, values, &content).await;
}

/// The newest manifest of a tablet cannot be read, and a file of the older one is damaged: the file with its intact
/// blocks is in use from then on.
#[tokio::test]
async fn what_is_saved_for_an_older_manifest_stays() {
    let folder = folder().await;
    let path = paths(&folder, "tablets/", "").await.remove(0);
    let (tablet, number) = manifest::parse_path(&path).unwrap();
    let newer = manifest::path(tablet, number + 1);
    let older = folder.read_all(&path).await.unwrap();
    let file = Manifest::decode_file(&path, &older)
        .unwrap()
        .stored()
        .next()
        .unwrap()
        .path();
    folder.put_if_absent(&newer, older).await.unwrap();
    flip(&folder, &newer, 30).await;
    flip(&folder, &file, 50_000).await;
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    let left = rows(&start(folder.clone()).await).await;
    assert!(left.len() > 35, "{} rows\n{text}", left.len());
    assert_eq!(check(folder).await.damages, 0);
}

/// After a split two tablets refer to one file. Of one the manifest cannot be read: it may be restored, and wants the file.
#[tokio::test]
async fn a_damaged_file_stays_while_a_manifest_cannot_be_read() {
    let folder = folder().await;
    let tablets = paths(&folder, "tablets/", "").await;
    let [first, second] = [&tablets[0], &tablets[1]];
    let shared = Manifest::decode_file(first, &folder.read_all(first).await.unwrap()).unwrap();
    let shared = shared.all_files().next().unwrap().clone();
    let path = FileRef::path(shared.id());
    let mut both = Manifest::decode_file(second, &folder.read_all(second).await.unwrap()).unwrap();
    let upper = bytes::Bytes::from_static(b"z");
    both.groups[0]
        .files
        .insert(0, shared.narrowed(Some(upper), None).unwrap());
    let whole = both.encode_file();
    folder.delete(second).await.unwrap();
    folder.put_if_absent(second, whole.clone()).await.unwrap();
    flip(&folder, second, 30).await;
    flip(&folder, &path, 50_000).await;
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("not done without --accept-loss"), "{text}");
    assert!(folder.open(&path).await.is_ok(), "{text}");
    // The manifest is restored, and the next repair gives up no more than the damaged blocks.
    folder.delete(second).await.unwrap();
    folder.put_if_absent(second, whole).await.unwrap();
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && !text.contains("it was missing"), "{text}");
    assert!(folder.open(&path).await.is_err());
    assert!(rows(&start(folder.clone()).await).await.len() > 35);
}

/// A catalog that lost changes must not give out numbers of its counters twice. An epoch that is no longer the highest
/// could open no tablet, and an epoch that is used twice would produce names of existing files.
#[tokio::test]
async fn a_catalog_that_lost_changes_gives_no_number_twice() {
    let whole = folder().await;
    let node = start(whole.clone()).await;
    make_table(&node, TableName::new("space", "other")).await;
    let whole = copy(&*whole).await;
    drop(node);
    let path = newest(&whole, "coord/log-").await;
    let len = whole.read_all(&path).await.unwrap().len();
    let mut repaired = 0;
    for at in (20..len).step_by(len / 8) {
        let folder = copy(&*whole).await;
        flip(&folder, &path, at).await;
        if !check(folder.clone()).await.is_damaged() {
            // It appears torn.
            continue;
        }
        repaired += 1;
        let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
        assert!(in_order, "at {at}: {text}");
        let node = start(folder.clone()).await;
        make_table(&node, TableName::new("space", "third")).await;
        write(&node, "b00".to_owned()).await;
        for served in node.server.all_served() {
            served.tablet.flush().await.unwrap();
        }
        write(&node, "b01".to_owned()).await;
        let folder = copy(&*folder).await;
        assert_eq!(rows(&start(folder.clone()).await).await.len(), 45, "at {at}: {text}");
        assert_eq!(check(folder).await.damages, 0, "at {at}");
    }
    assert!(repaired > 2);
}

/// Damage to the last record appears torn, and a start in doubt keeps files that the catalog does not name. A repair of
/// another damage ends the doubt.
#[tokio::test]
async fn what_a_torn_catalog_does_not_name_is_kept() {
    let folder = folder().await;
    let node = start(folder.clone()).await;
    make_table(&node, TableName::new("space", "other")).await;
    // Its later work goes to a copy.
    let folder = copy(&*folder).await;
    drop(node);
    let log = newest(&folder, "coord/log-").await;
    let len = folder.read_all(&log).await.unwrap().len();
    flip(&folder, &log, len - 1).await;
    let all = paths(&folder, "tablets/", "").await;
    let damaged = folder.list("sst/").await.unwrap()[0].path.clone();
    flip(&folder, &damaged, 50_000).await;
    let (text, in_order) = run(&folder, true).await;
    assert!(in_order && text.matches("  move tablets/").count() == 2, "{text}");
    let (text, in_order) = run(&folder, false).await;
    assert!(in_order && text.contains("ends with a torn record"), "{text}");
    let kept = paths(&folder, "damaged/tablets/", "").await;
    assert_eq!(kept.len(), 2, "of {all:?}\n{text}");
}

/// The catalog lost a split: it names a tablet that has no manifest any more, and not its halves, which have everything.
#[tokio::test]
async fn the_halves_of_a_split_that_was_lost_are_found() {
    let whole = folder().await;
    let node = start(whole.clone()).await;
    for served in node.server.all_served() {
        served.tablet.compact_all().await.unwrap();
    }
    let before = rows(&node).await;
    let folder = copy(&*whole).await;
    drop(node);
    let (tablet, _) = manifest::parse_path(&paths(&folder, "tablets/", "").await[0]).unwrap();
    let versions = paths(&folder, &manifest::directory(tablet), "").await;
    let newest = versions.last().unwrap();
    let parent = Manifest::decode_file(newest, &folder.read_all(newest).await.unwrap()).unwrap();
    let row = Bytes::from_static(b"a10");
    let at = Bytes::from(stele_types::key::row_prefix(&row));
    for (number, (lower, upper)) in [(None, Some(at.clone())), (Some(at), None)].into_iter().enumerate() {
        let mut half = parent.clone();
        half.tablet += 1_000 + number as u64;
        match number {
            0 => half.end = Some(row.clone()),
            _ => half.start = row.clone(),
        }
        for group in &mut half.groups {
            let files = std::mem::take(&mut group.files).into_iter();
            group.files = files
                .filter_map(|file| file.narrowed(lower.clone(), upper.clone()))
                .collect();
        }
        let path = manifest::path(half.tablet(), 1);
        folder.put_if_absent(&path, half.encode_file()).await.unwrap();
    }
    for path in &versions {
        folder.delete(path).await.unwrap();
    }
    let unchanged = content(&folder).await;
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("have its rows"), "{text}");
    assert_eq!(folder.list("damaged/").await.unwrap().len(), 0, "{text}");
    let folder = MemoryStorage::new();
    for (path, content) in unchanged {
        folder.put_if_absent(&path, content).await.unwrap();
    }
    let (text, in_order) = run_as(&folder, DRY_ACCEPTING).await.unwrap();
    assert!(in_order && !text.contains("begin with no files"), "{text}");
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order && !text.contains("begin with no files"), "{text}");
    assert_eq!(rows(&start(folder.clone()).await).await, before, "{text}");
}

/// The catalog lost a merge: it names two tablets that have no manifest any more, and not the one that has their rows.
#[tokio::test]
async fn the_tablet_of_a_merge_that_was_lost_is_found() {
    let whole = folder().await;
    let node = start(whole.clone()).await;
    let before = rows(&node).await;
    let catalog = copy(&*whole).await;
    let old: Vec<TabletId> = node
        .server
        .all_served()
        .iter()
        .map(|served| served.tablet.id())
        .collect();
    assert_eq!(old.len(), 2);
    let new = node.admin.merge(&table(), old).await.unwrap();
    make_table(&node, TableName::new("space", "later")).await;
    let after = copy(&*whole).await;
    drop(node);
    let with_former_catalog = async || {
        let folder = copy(&*after).await;
        for path in paths(&folder, "coord/", "").await {
            folder.delete(&path).await.unwrap();
        }
        for path in paths(&catalog, "coord/", "").await {
            let content = catalog.read_all(&path).await.unwrap();
            folder.put_if_absent(&path, content).await.unwrap();
        }
        folder
    };
    let folder = with_former_catalog().await;
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("has its rows"), "{text}");
    for mode in [DRY_ACCEPTING, ACCEPTING] {
        let folder = with_former_catalog().await;
        let (text, in_order) = run_as(&folder, mode).await.unwrap();
        assert!(in_order && !text.contains("begin with no files"), "{text}");
        if !mode.dry_run {
            assert_eq!(rows(&start(folder.clone()).await).await, before, "{text}");
        }
    }
    // The same of a log that is damaged there.
    let log = newest(&after, "coord/log-").await;
    let merged_at = catalog.read_all(&log).await.unwrap().len() + 20;
    let with_damaged_catalog = async || {
        let folder = copy(&*after).await;
        flip(&folder, &log, merged_at).await;
        folder
    };
    let folder = with_damaged_catalog().await;
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order && !text.contains("begin with no files"), "{text}");
    assert_eq!(rows(&start(folder).await).await, before, "{text}");
    // Half of them: nothing may take the place of rows that are there.
    let manifests = |all: Vec<(String, Bytes)>| all.into_iter().filter(|(path, _)| path.starts_with("tablets/"));
    for (folder, kept) in [(with_former_catalog().await, 0), (with_damaged_catalog().await, 1)] {
        let all = paths(&folder, "tablets/", "").await;
        let merged = all
            .iter()
            .find(|path| manifest::parse_path(path).unwrap().0 == new)
            .unwrap();
        let mut half = Manifest::decode_file(merged, &folder.read_all(merged).await.unwrap()).unwrap();
        half.start = Bytes::from_static(b"c");
        folder.delete(merged).await.unwrap();
        folder.put_if_absent(merged, half.encode_file()).await.unwrap();
        let unchanged = content(&folder).await;
        let refused = run_as(&folder, ACCEPTING).await.unwrap_err().to_string();
        assert!(refused.contains("some of its rows"), "{refused}");
        // Only the damaged log of the catalog.
        assert_eq!(paths(&folder, "damaged/", "").await.len(), kept);
        assert!(manifests(unchanged).eq(manifests(content(&folder).await)));
    }
}
