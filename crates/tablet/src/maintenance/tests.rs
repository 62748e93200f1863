//! Files and memory left behind by failed commits, removed tablets and waiting readers.
//!
//! The files are those on the storage. The memory is that in use while a reader waits.

use super::*;
use crate::error::TabletError;
use crate::manifest::{FileRef, ManifestLog};
use crate::{BatchBuilder, FileRegistry, MemoryAccount, ScanSpec, TabletContext, TabletMetrics, TabletScanner};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, Storage, StorageError};
use stele_types::{
    Compression, Epoch, Family, FamilyId, LocalityGroup, Mutation, RowMutation, RowRange, RowSet, TableId, TableName,
    TableSchema, Timestamp, ValueType,
};

mod cuts;

#[test]
fn files_that_are_not_compressed_take_half_as_much_again_at_most() {
    const MIB: u64 = 1 << 20;
    for (compressible, bytes, expected) in [
        (0, 0, true),
        (63, 64, true),
        (64, 192, false),
        (99, 300, true),
        (100, 300, false),
    ] {
        assert_eq!(
            is_little(compressible * MIB, bytes * MIB),
            expected,
            "{compressible} of {bytes} MiB"
        );
    }
}

/// A storage whose puts fail on demand, while files can be written.
struct NoPuts {
    device: Arc<MemoryStorage>,
    failure: Mutex<Option<StorageError>>,
    /// A put that fails puts its file there nevertheless.
    puts_anyway: AtomicBool,
    /// The failure of syncs.
    sync_failure: Mutex<Option<StorageError>>,
    /// Files that can be made before making one fails.
    files_left: Mutex<Option<usize>>,
    /// Put where the next put wants to be, just before it.
    faster: Mutex<Option<Bytes>>,
}

#[async_trait]
impl stele_storage::Layer for NoPuts {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        let left = self.files_left.lock().map(|left| left.checked_sub(1));
        match left {
            Some(None) => return Err(io()),
            left => *self.files_left.lock() = left.flatten(),
        }
        self.device.create(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        let faster = self.faster.lock().take();
        if let Some(faster) = faster {
            self.device.put_if_absent(path, faster).await?;
        }
        let failure = self.failure.lock().clone();
        match failure {
            Some(failure) if self.puts_anyway.load(Ordering::Relaxed) => {
                self.device.put_if_absent(path, content).await?;
                Err(failure)
            }
            Some(failure) => Err(failure),
            None => self.device.put_if_absent(path, content).await,
        }
    }

    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        let failure = self.sync_failure.lock().clone();
        match failure {
            Some(failure) => Err(failure),
            None => self.device.sync_file(path).await,
        }
    }
}

struct Bench {
    storage: Arc<NoPuts>,
    tablet: Arc<Tablet>,
    rows: u64,
}

impl Bench {
    async fn new() -> Bench {
        Bench::of_files(64 << 20).await
    }

    async fn of_files(file_bytes: u64) -> Bench {
        let storage = Arc::new(NoPuts {
            device: MemoryStorage::new(),
            failure: Mutex::default(),
            puts_anyway: AtomicBool::default(),
            sync_failure: Mutex::default(),
            files_left: Mutex::default(),
            faster: Mutex::default(),
        });
        let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(1 << 20)), 1).with_file_bytes(file_bytes);
        let context = TabletContext {
            env: TokioRuntime::current(),
            storage: storage.clone(),
            files: Arc::new(files),
            memory: MemoryAccount::default(),
            metrics: TabletMetrics::new(&Metrics::new()),
            tokens: crate::TokenMemory::default(),
        };
        let manifest = Manifest {
            tablet: 1,
            table: 1,
            epoch: 1,
            ..Manifest::default()
        };
        let tablet = Tablet::create(context, Arc::new(schema()), manifest).await.unwrap();
        Bench {
            storage,
            tablet,
            rows: 0,
        }
    }

    fn write(&mut self) {
        self.write_row(self.rows.to_string().into());
        self.rows += 1;
    }

    fn write_row(&self, row: Bytes) {
        let mut builder = BatchBuilder::default();
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"v"),
        };
        builder.push_row(&RowMutation {
            row,
            mutations: vec![put],
        });
        let batch = builder.finish();
        let first = self.tablet.sequence(batch.len(), |first| first).unwrap();
        self.tablet.apply(&batch, first);
    }

    fn fail(&self, failure: Option<StorageError>) {
        *self.storage.failure.lock() = failure;
    }

    /// Sstables left when all removable files are gone.
    async fn sstables(&self) -> usize {
        self.tablet.context.files.delete_obsolete().await.unwrap();
        self.storage.list("sst/").await.unwrap().len()
    }
}

fn schema() -> TableSchema {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

fn io() -> StorageError {
    StorageError::Io {
        path: "manifest".to_owned(),
        operation: "put",
        message: "broken".to_owned(),
    }
}

#[tokio::test]
async fn commits_that_fail_for_long_leave_one_file_at_most() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.tablet.flush().await.unwrap();
    bench.write();
    bench.fail(Some(io()));
    for _ in 0..5 {
        bench.tablet.flush().await.unwrap_err();
        assert_eq!(
            bench.sstables().await,
            2,
            "the file that the failed manifest may refer to stays"
        );
    }
    bench.fail(None);
    bench.tablet.flush().await.unwrap();
    assert_eq!(bench.sstables().await, 2);
}

#[tokio::test]
async fn a_commit_without_space_gives_its_files_back() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.fail(Some(StorageError::NoSpace {
        path: "manifest".to_owned(),
    }));
    bench.tablet.flush().await.unwrap_err();
    assert_eq!(bench.sstables().await, 0);
    bench.fail(None);
    bench.tablet.flush().await.unwrap();
    assert_eq!(bench.sstables().await, 1);
}

/// It could not be read back, so the one before stays.
#[tokio::test]
async fn a_manifest_that_is_too_large_gives_its_files_back() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.tablet.set_committed_start(Bytes::from(vec![0; 64 << 20])).await;
    let refused = bench.tablet.flush().await.unwrap_err();
    assert!(matches!(refused, TabletError::ManifestTooLarge { .. }), "{refused}");
    assert_eq!(bench.sstables().await, 0);
    bench.tablet.set_committed_start(Bytes::new()).await;
    bench.tablet.flush().await.unwrap();
    assert_eq!(bench.sstables().await, 1);
}

/// As on a full disk: the manifest is moved into place, and its directory cannot be synced.
#[tokio::test]
async fn a_manifest_that_is_there_keeps_its_files_though_its_sync_finds_no_space() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.fail(Some(io()));
    bench.storage.puts_anyway.store(true, Ordering::Relaxed);
    *bench.storage.sync_failure.lock() = Some(StorageError::NoSpace {
        path: "manifest".to_owned(),
    });
    let error = bench.tablet.flush().await.unwrap_err();
    let is_unknown = matches!(error, TabletError::Storage(StorageError::Io { .. }));
    assert!(is_unknown, "{error}");
    assert_eq!(bench.sstables().await, 1, "the manifest refers to it");
    *bench.storage.sync_failure.lock() = None;
    bench.fail(None);
    // The next owner, if the process ends now, and this one, if it does not.
    let device = bench.storage.device.clone();
    let (_, newest) = ManifestLog::open(device, bench.tablet.id()).await.unwrap();
    assert_eq!(newest.all_files().count(), 1);
    bench.tablet.flush().await.unwrap();
    assert_eq!(bench.sstables().await, 1);
    assert_eq!(bench.tablet.manifest().await.all_files().count(), 1);
}

#[tokio::test]
async fn a_flush_that_ends_after_the_tablet_was_dropped_leaves_nothing() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.tablet.flush().await.unwrap();
    bench.write();
    // As a flush or a compaction that began before does.
    bench.tablet.close();
    bench.tablet.release_files().await;
    bench.tablet.flush().await.unwrap_err();
    let Bench { storage, tablet, .. } = bench;
    let files = tablet.context.files.clone();
    drop(tablet);
    files.delete_obsolete().await.unwrap();
    assert_eq!(storage.list("sst/").await.unwrap(), []);
}

#[tokio::test]
async fn a_reader_that_does_not_come_back_holds_no_memtable() {
    let mut bench = Bench::new().await;
    for _ in 0..10_000 {
        bench.write();
    }
    let rows = RowSet::new(vec![RowRange::all()]);
    let spec = ScanSpec {
        rows,
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(bench.tablet.clone(), spec);
    let mut seen = 0;
    for _ in 0..2 {
        seen += scanner.next_batch().await.unwrap().unwrap().len();
    }
    assert!(seen < 10_000, "the scan has more to give");
    bench.tablet.flush().await.unwrap();
    assert_eq!(bench.tablet.context.memory.bytes(), 0);
    bench.tablet.compact_all().await.unwrap();
    assert_eq!(bench.sstables().await, 1);
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        seen += batch.len();
    }
    assert_eq!(seen, 10_000);
}

#[tokio::test]
async fn a_new_owner_keeps_what_the_old_one_commits_until_then() {
    let mut bench = Bench::new().await;
    bench.write();
    bench.tablet.flush().await.unwrap();
    let mut committed = bench.tablet.manifest().await;
    committed.flushed_through += 1;
    *bench.storage.faster.lock() = Some(committed.encode_file());
    let (context, schema) = (bench.tablet.context.clone(), bench.tablet.schema());
    let owner = Tablet::open(context, schema, bench.tablet.id(), Epoch(2))
        .await
        .unwrap();
    assert_eq!(owner.flushed_through(), committed.flushed_through());
}

#[tokio::test]
async fn an_owner_learns_that_it_was_replaced() {
    let mut bench = Bench::new().await;
    let (context, schema) = (bench.tablet.context.clone(), bench.tablet.schema());
    Tablet::open(context, schema, bench.tablet.id(), Epoch(2))
        .await
        .unwrap();
    bench.write();
    let fenced = bench.tablet.flush().await.unwrap_err();
    assert!(matches!(fenced, TabletError::Fenced { .. }), "{fenced}");
    bench.tablet.check_open().unwrap_err();
}

/// Groups are flushed one after another and committed together.
#[tokio::test]
async fn a_flush_that_ends_between_two_groups_loses_and_tears_nothing() {
    let bench = Bench::new().await;
    let mut schema = schema();
    schema
        .groups
        .push(LocalityGroup::new(GroupId(1), "second", Compression::None));
    let second = Family {
        name: "g".to_owned(),
        group: GroupId(1),
        ..schema.families[&FamilyId(1)].clone()
    };
    schema.families.insert(FamilyId(2), second);
    let schema = Arc::new(schema);
    bench.tablet.set_schema(schema.clone());
    let mut log = Vec::new();
    for row in ["a", "b"] {
        let mut builder = BatchBuilder::default();
        let put = |family| Mutation::Put {
            family: FamilyId(family),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"v"),
        };
        builder.push_row(&RowMutation {
            row: row.into(),
            mutations: vec![put(1), put(2)],
        });
        let batch = builder.finish();
        let first = bench.tablet.sequence(batch.len(), |first| first).unwrap();
        bench.tablet.apply(&batch, first);
        // The first row is in files, the second one in the file of one group when the process ends.
        *bench.storage.files_left.lock() = Some(if row == "a" { 2 } else { 1 });
        assert_eq!(bench.tablet.flush().await.is_ok(), row == "a");
        log.push((batch, first));
    }
    *bench.storage.files_left.lock() = None;
    assert_eq!(bench.tablet.flushed_through(), log[0].1.plus(1));
    for replayed in [false, true] {
        let epoch = Epoch(2 + u32::from(replayed));
        let context = bench.tablet.context.clone();
        let owner = Tablet::open(context, schema.clone(), bench.tablet.id(), epoch)
            .await
            .unwrap();
        if replayed {
            log.iter()
                .for_each(|(batch, first)| owner.replay(batch, *first, first.plus(1)));
        }
        let cells = |row: &[u8]| {
            let batch = owner.get_row(row, None).unwrap().unwrap();
            batch.rows().map(|(_, cells)| cells.len()).sum::<usize>()
        };
        assert_eq!((cells(b"a"), cells(b"b")), (2, if replayed { 2 } else { 0 }));
    }
}
