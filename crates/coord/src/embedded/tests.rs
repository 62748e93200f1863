use super::*;
use crate::CoordError;
use crate::conformance::{commit, put, run_all};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::tokio_env::TokioRuntime;
use stele_env::{BlockingWork, Priority, Runtime};
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::local::LocalStorage;
use stele_storage::memory::MemoryStorage;
use stele_types::ErrorKind;
use tempfile::TempDir;

mod faults;

pub(crate) async fn open(storage: &Arc<MemoryStorage>) -> Result<Arc<EmbeddedCoord>> {
    EmbeddedCoord::open(Arc::clone(storage) as Arc<dyn Storage>, TokioRuntime::current()).await
}

pub(crate) async fn paths(storage: &dyn Storage) -> Vec<String> {
    storage
        .list("")
        .await
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect()
}

/// Replaces a file by a changed copy.
pub(crate) async fn change(storage: &MemoryStorage, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::from(storage.read_all(path).await.unwrap());
    change(&mut bytes);
    storage.delete(path).await.unwrap();
    storage.put_if_absent(path, bytes.into()).await.unwrap();
}

#[tokio::test]
async fn conforms_on_memory() {
    let env = TokioRuntime::current();
    run_all(&env, || async {
        open(&MemoryStorage::new()).await.unwrap() as Arc<dyn Coord>
    })
    .await;
}

#[tokio::test]
async fn conforms_on_the_local_disk() {
    let env = TokioRuntime::current();
    let directories = Mutex::new(Vec::new());
    run_all(&env, || async {
        let directory = TempDir::new().unwrap();
        let storage = LocalStorage::open(directory.path(), env.clone()).unwrap();
        directories.lock().push(directory);
        EmbeddedCoord::open(storage, env.clone()).await.unwrap() as Arc<dyn Coord>
    })
    .await;
}

#[tokio::test]
async fn keys_survive_and_bound_keys_do_not() {
    let storage = MemoryStorage::new();
    let coord = open(&storage).await.unwrap();
    commit(&*coord, put("a", "1")).await;
    commit(&*coord, put("becomes-bound", "1")).await;
    let session = coord.session(Duration::from_secs(600)).await.unwrap();
    for key in ["bound", "becomes-bound"] {
        let (key, value) = (key.to_owned(), Bytes::from_static(b"x"));
        let write = Write::PutBound {
            key,
            value,
            session: session.id(),
        };
        commit(
            &*coord,
            Txn {
                conditions: vec![],
                writes: vec![write],
            },
        )
        .await;
    }
    let last = commit(&*coord, put("b", "2")).await;
    let expected: Vec<(String, Versioned)> = coord
        .list("")
        .await
        .unwrap()
        .into_iter()
        .filter(|(key, _)| !key.contains("bound"))
        .collect();
    drop(coord);

    // Once from the log, and once from the snapshot that the first opening made.
    for _ in 0..2 {
        let coord = open(&storage).await.unwrap();
        assert_eq!(coord.list("").await.unwrap(), expected);
        let next = coord.session(Duration::from_secs(600)).await.unwrap();
        assert!(next.id() > session.id());
    }
    assert!(commit(&*open(&storage).await.unwrap(), put("c", "3")).await > last);
}

#[tokio::test]
async fn long_logs_become_snapshots() {
    let storage = MemoryStorage::new();
    let coord = open(&storage).await.unwrap();
    let value = "x".repeat(100_000);
    for i in 0..50 {
        commit(&*coord, put(&format!("k/{}", i % 3), &value)).await;
        let bytes: u64 = storage.list("").await.unwrap().iter().map(|f| f.len).sum();
        assert!(bytes < 2 * (COMPACT_LOG_BYTES + 600_000), "{bytes}");
        let files = paths(&*storage).await.len();
        assert!(
            files == 2 || files == 4,
            "snapshot and log of this generation and the one before"
        );
    }
    let expected = coord.list("").await.unwrap();
    drop(coord);
    assert_eq!(open(&storage).await.unwrap().list("").await.unwrap(), expected);
}

#[tokio::test]
async fn logs_of_many_objects_become_snapshots() {
    let storage = MemoryStorage::new();
    let device = Arc::new(Remote(storage.clone(), 1));
    let coord = EmbeddedCoord::open(device, TokioRuntime::current()).await.unwrap();
    let most = (COMPACT_COST_BYTES / OBJECT_COST_BYTES) as usize;
    let mut longest = 0;
    for i in 0..1_000 {
        commit(&*coord, put(&format!("k/{}", i % 3), &i.to_string())).await;
        let generation = coord.inner.writer.lock().await.generation;
        let log = storage.read_all(&recovery::log_path(generation)).await.unwrap();
        longest = longest.max(crate::format::decode_log(&log, generation).unwrap().records.len());
    }
    assert_eq!(longest, most, "objects of one log");
    let expected = coord.list("").await.unwrap();
    drop(coord);
    assert_eq!(open(&storage).await.unwrap().list("").await.unwrap(), expected);
}

#[tokio::test]
async fn a_torn_end_is_dropped_and_other_damage_is_named() {
    let storage = MemoryStorage::new();
    let coord = open(&storage).await.unwrap();
    for i in 0..3 {
        commit(&*coord, put("k", &i.to_string())).await;
    }
    drop(coord);
    let log = recovery::log_path(1);
    let whole = storage.read_all(&log).await.unwrap();

    change(&storage, &log, |bytes| bytes.truncate(whole.len() - 1)).await;
    let coord = open(&storage).await.unwrap();
    assert_eq!(coord.get("k").await.unwrap().unwrap().value, "1");
    drop(coord);

    let storage = MemoryStorage::new();
    drop(open(&storage).await.unwrap());
    change(&storage, &log, |bytes| {
        bytes.clear();
        bytes.extend_from_slice(&whole);
        bytes[crate::format::LOG_HEADER_BYTES + 20] ^= 1;
    })
    .await;
    let error = open(&storage).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(
        error.to_string().starts_with(&format!("{log} at byte 40: expected")),
        "{error}"
    );

    storage.delete(&log).await.unwrap();
    let snapshot = recovery::snapshot_path(1);
    change(&storage, &snapshot, |bytes| bytes[30] ^= 1).await;
    let error = open(&storage).await.err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{snapshot} at byte 12: expected")),
        "{error}"
    );
}

#[tokio::test]
async fn a_log_without_snapshot_and_a_snapshot_by_a_wrong_name_are_corruption() {
    let storage = MemoryStorage::new();
    commit(&*open(&storage).await.unwrap(), put("k", "v")).await;
    let snapshot = storage.read_all(&recovery::snapshot_path(1)).await.unwrap();
    storage.delete(&recovery::snapshot_path(1)).await.unwrap();
    let error = open(&storage).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("expected a snapshot"), "{error}");

    storage
        .put_if_absent(&recovery::snapshot_path(2), snapshot)
        .await
        .unwrap();
    let error = open(&storage).await.err().unwrap();
    assert!(error.to_string().contains("expected generation 2, found 1"), "{error}");
}

/// A log whose beginning is missing, or that belongs to another snapshot: the transactions in between would be lost in silence.
#[tokio::test]
async fn a_log_that_does_not_follow_its_snapshot_is_corruption() {
    let storage = MemoryStorage::new();
    let coord = open(&storage).await.unwrap();
    let mut last = 0;
    for i in 0..3 {
        last = commit(&*coord, put("k", &i.to_string())).await;
    }
    drop(coord);
    let log = recovery::log_path(1);
    let whole = storage.read_all(&log).await.unwrap();
    let records = crate::format::decode_log(&whole, 1).unwrap().records;
    let second = records[1].offset as usize;
    change(&storage, &log, |bytes| {
        drop(bytes.drain(crate::format::LOG_HEADER_BYTES..second))
    })
    .await;
    let error = open(&storage).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let expected = format!(
        "{log} at byte {}: expected revision {}, found {}",
        crate::format::LOG_HEADER_BYTES,
        last - 2,
        last - 1
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
    // Nor does one that begins with a revision that the snapshot has.
    let again = crate::format::encode_record(1, last - 3, &put("k", "x").writes);
    change(&storage, &log, |bytes| {
        bytes.truncate(crate::format::LOG_HEADER_BYTES);
        bytes.extend_from_slice(&again);
    })
    .await;
    assert_eq!(open(&storage).await.err().unwrap().kind(), ErrorKind::Corruption);
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let storage = MemoryStorage::new();
    let strange = [
        "coord/log-1",
        "coord/log-99999999999999999999",
        "coord/notes",
        "other/log-1",
    ];
    for path in strange {
        storage.put_if_absent(path, Bytes::from_static(b"?")).await.unwrap();
    }
    commit(&*open(&storage).await.unwrap(), put("k", "v")).await;
    let coord = open(&storage).await.unwrap();
    assert!(coord.get("k").await.unwrap().is_some());
    let left = paths(&*storage).await;
    assert!(strange.iter().all(|path| left.iter().any(|l| l == path)), "{left:?}");
}

#[tokio::test]
async fn a_second_owner_fences_the_first() {
    let storage = MemoryStorage::new();
    let first = open(&storage).await.unwrap();
    let second = open(&storage).await.unwrap();
    // The first notices when it begins a generation.
    let large = "x".repeat(900_000);
    let mut outcome = Ok(());
    for _ in 0..3 {
        outcome = outcome.and(first.txn(put("k", &large)).await.map(drop));
    }
    let error = outcome.unwrap_err();
    assert!(matches!(error, CoordError::Fenced { .. }), "{error}");
    assert!(matches!(first.txn(put("k", "v")).await, Err(CoordError::Fenced { .. })));
    commit(&*second, put("k", "v")).await;
}

/// The cost of reading an object back, in bytes.
const OBJECT_COST_BYTES: u64 = 64 << 10;

/// A file that makes an object of the bytes of each sync.
struct Objects {
    file: Box<dyn AppendFile>,
    syncs: u64,
}

#[async_trait]
impl AppendFile for Objects {
    async fn append(&mut self, slices: &[Bytes]) -> stele_storage::Result<()> {
        self.file.append(slices).await
    }
    async fn sync(&mut self) -> stele_storage::Result<()> {
        self.syncs += 1;
        self.file.sync().await
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn reading_cost(&self) -> u64 {
        self.len().max(self.syncs * OBJECT_COST_BYTES)
    }
}

/// A storage of objects that numbers its owners; this one's number.
struct Remote(Arc<MemoryStorage>, u64);

#[async_trait]
impl stele_storage::Layer for Remote {
    fn below(&self) -> &dyn Storage {
        &*self.0
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        let file = self.0.create(path).await?;
        Ok(Box::new(Objects { file, syncs: 0 }))
    }
    fn owner_epoch(&self) -> Option<u64> {
        Some(self.1)
    }
}

#[tokio::test]
async fn what_a_former_owner_puts_late_does_not_count() {
    let storage = MemoryStorage::new();
    let own = |owner| EmbeddedCoord::open(Arc::new(Remote(storage.clone(), owner)), TokioRuntime::current());
    let former = own(1).await.unwrap();
    commit(&*former, put("k", "old")).await;
    let owner = own(2).await.unwrap();
    commit(&*owner, put("k", "new")).await;
    // Any number of snapshots of the former owner, each after a failure it did not understand.
    for _ in 0..100 {
        let mut writer = former.inner.writer.lock().await;
        former.inner.begin_generation(&mut writer).await.unwrap();
    }
    let next = own(3).await.unwrap();
    assert_eq!(next.get("k").await.unwrap().unwrap().value, "new");
}

#[tokio::test]
async fn an_owner_does_not_run_into_the_numbers_of_the_next() {
    let storage = Arc::new(Remote(MemoryStorage::new(), 5));
    let coord = EmbeddedCoord::open(storage, TokioRuntime::current()).await.unwrap();
    let mut writer = coord.inner.writer.lock().await;
    writer.generation = 6 * OWNER_GENERATIONS - 2;
    coord.inner.begin_generation(&mut writer).await.unwrap();
    let full = coord.inner.begin_generation(&mut writer).await.err().unwrap();
    assert_eq!(full.kind(), ErrorKind::ResourceExhausted);
}
