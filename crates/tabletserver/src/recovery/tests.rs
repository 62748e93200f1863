//! These tests check the guarantees of a start, on devices that record their requests. Simulation cannot check them,
//! because no power goes in the moments in between, or because its device has one owner only.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

mod loads;
mod outage;
mod parts;
mod replaced;
mod takeover;
mod tokens;

use super::*;
use crate::server::TabletServer;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stele_client::SplitPolicy;
use stele_commitlog::format::{GroupHeader, SegmentHeader, segment_path};
use stele_coord::EmbeddedCoord;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;

use stele_tablet::{BatchBuilder, FileRef, StoredFile, manifest::ManifestLog};
use stele_types::{
    Durability, Family, FamilyId, FileId, GroupId, Mutation, RowRange, RowWrites, SeqNo, TableId, TableName, Timestamp,
    ValueType,
};

/// A device that records requests to sync, and may have been taken over, or lose bytes that are not synced.
pub(crate) struct Watched {
    device: Arc<dyn Storage>,
    synced: Mutex<Vec<String>>,
    taken_over: AtomicBool,
    /// Lets one owner in at a time.
    inherits: AtomicBool,
    keeps_appends: bool,
    /// Takes no manifest of the first tablet.
    pub(crate) refuses_manifests: AtomicBool,
    /// Deletes no segment of the first stream.
    keeps_first_stream: AtomicBool,
}

impl Watched {
    pub(crate) fn over(device: Arc<dyn Storage>) -> Arc<Watched> {
        Arc::new(Watched {
            device,
            synced: Mutex::default(),
            taken_over: AtomicBool::new(false),
            inherits: AtomicBool::new(false),
            keeps_appends: true,
            refuses_manifests: AtomicBool::new(false),
            keeps_first_stream: AtomicBool::new(false),
        })
    }

    fn fenced() -> StorageError {
        StorageError::Fenced {
            path: String::new(),
            by: "owner 2".to_owned(),
        }
    }

    async fn paths(&self, prefix: &str) -> Vec<String> {
        let files = self.device.list(prefix).await.unwrap();
        files.into_iter().map(|file| file.path).collect()
    }
}

#[async_trait]
impl stele_storage::Layer for Watched {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        let of_first = format!("{:016x}/", TABLETS[0].0);
        if self.refuses_manifests.load(Ordering::Relaxed) && path.contains(&of_first) {
            return Err(StorageError::Io {
                path: path.to_owned(),
                operation: "put",
                message: "refused".to_owned(),
            });
        }
        self.device.put_if_absent(path, content).await
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        let is_of_first = parse_segment_path(path).is_some_and(|(stream, _)| stream == 0);
        if is_of_first && self.keeps_first_stream.load(Ordering::Relaxed) {
            return Err(StorageError::Io {
                path: path.to_owned(),
                operation: "delete",
                message: "refused".to_owned(),
            });
        }
        self.device.delete(path).await
    }

    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.synced.lock().push(path.to_owned());
        self.device.sync_file(path).await
    }

    async fn inherit(&self) -> stele_storage::Result<bool> {
        self.synced.lock().push("everything".to_owned());
        Ok(self.inherits.load(Ordering::Relaxed))
    }

    async fn confirm_owner(&self) -> stele_storage::Result<()> {
        match self.taken_over.load(Ordering::Relaxed) {
            true => Err(Watched::fenced()),
            false => Ok(()),
        }
    }

    fn keeps_appends(&self) -> bool {
        self.keeps_appends
    }
}

pub(crate) const TABLETS: [TabletId; 2] = [TabletId(1), TabletId(2)];

pub(crate) fn schema(durability: Option<Durability>) -> TableSchema {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        durability,
        families: BTreeMap::from([(FamilyId(1), family)]),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

/// Tablet 1 has rows below `m`, tablet 2 the others.
pub(crate) fn ranges() -> Vec<(TabletId, RowRange)> {
    let middle = Bytes::from_static(b"m");
    let (mut below, mut above) = (RowRange::all(), RowRange::all());
    (below.end, above.start) = (Some(middle.clone()), middle);
    TABLETS.into_iter().zip([below, above]).collect()
}

/// A catalog of its own: its fate is no business of these tests.
async fn catalog(durability: Option<Durability>) -> Catalog {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
    catalog.create_table(schema(durability), ranges()).await.unwrap();
    catalog
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        durability: Durability::Flush,
        memory: None,
        free_bytes_min: 0,
        inherit_from: TABLETS.len(),
        ..ServerOptions::for_memory(64 << 20)
    }
}

async fn start(device: &Arc<Watched>, catalog: &Catalog, epoch: u32) -> Result<Arc<TabletServer>, ServerError> {
    start_with(device, catalog, epoch, options()).await
}

async fn start_with(
    device: &Arc<Watched>,
    catalog: &Catalog,
    epoch: u32,
    options: ServerOptions,
) -> Result<Arc<TabletServer>, ServerError> {
    let (env, cache, metrics) = (TokioRuntime::current(), Arc::new(Cache::new(1 << 20)), Metrics::new());
    let started = TabletServer::start(env, device.clone(), catalog, Epoch(epoch), cache, options, &metrics).await;
    started.map(|(server, _)| server)
}

/// The first server, on an empty device.
pub(crate) async fn first(device: &Arc<Watched>, durability: Option<Durability>) -> Arc<TabletServer> {
    first_with(device, durability, options()).await
}

/// The same with options of its own.
pub(crate) async fn first_with(
    device: &Arc<Watched>,
    durability: Option<Durability>,
    options: ServerOptions,
) -> Arc<TabletServer> {
    let nothing = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let nothing = Catalog::load(nothing.await.unwrap()).await.unwrap();
    let server = start_with(device, &nothing, 1, options).await.unwrap();
    server
        .lifecycle
        .create_empty(Arc::new(schema(durability)), ranges())
        .await
        .unwrap();
    server
}

async fn put(server: &TabletServer, row: &'static str, durability: Option<Durability>) {
    let tablet = TABLETS[usize::from(row >= "m")];
    server.write(tablet, &writes(row, "v"), durability).await.unwrap();
}

pub(crate) async fn write(server: &TabletServer, tablet: TabletId, row: &'static str, value: &'static str) {
    server.write(tablet, &writes(row, value), None).await.unwrap();
}

fn writes(row: &'static str, value: &'static str) -> RowWrites {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(value.as_bytes()),
    };
    let row = stele_types::RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![mutation],
    };
    RowWrites::from(vec![row])
}

fn has(server: &TabletServer, row: &str) -> bool {
    let tablet = TABLETS[usize::from(row >= "m")];
    let read = server.get_row(tablet, row.as_bytes(), None).unwrap();
    !read.expect("it is in memory").into_batch().is_empty()
}

#[tokio::test]
async fn what_is_replayed_is_synced_before_anybody_sees_it() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    put(&server, "a", None).await;
    put(&server, "z", None).await;
    let segments = device.paths("log/").await;
    assert!(!segments.is_empty());
    drop(server);
    device.synced.lock().clear();
    let server = start(&device, &catalog, 2).await.unwrap();
    assert!(has(&server, "a") && has(&server, "z"));
    let synced = device.synced.lock().clone();
    assert!(segments.iter().all(|path| synced.contains(path)), "{synced:?}");
}

/// An heir of a device claims nothing, and its first commit is of its epoch nevertheless. A segment is never synced
/// again after a sync of it has failed.
#[tokio::test]
async fn what_the_log_cannot_make_durable_is_flushed() {
    let faulty = FaultyStorage::new(TokioRuntime::current());
    let server = first(&Watched::over(faulty.clone()), None).await;
    put(&server, "a", None).await;
    faulty.set_plan(FaultPlan {
        sync_error: 1.0,
        ..FaultPlan::default()
    });
    let refused = server
        .write(TABLETS[0], &writes("b", "v"), Some(Durability::Sync))
        .await;
    assert!(refused.is_err());
    faulty.set_plan(FaultPlan::default());
    let holders = || {
        server.parts.log.streams().iter().map(|stream| {
            stream
                .forsaken_holders(|t, s| server.parts.tablets.is_flushed(t, s))
                .len()
        })
    };
    assert_eq!(holders().sum::<usize>(), 1);
    for _ in 0..80 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if holders().sum::<usize>() == 0 {
            break;
        }
    }
    drop(server);
    faulty.crash();
    let server = start(&Watched::over(faulty.reopen()), &catalog(None).await, 2)
        .await
        .unwrap();
    assert!(has(&server, "a") && !has(&server, "b"));
    // Not by luck.
    assert_eq!(server.parts.context.memory.bytes(), 0);
}

#[tokio::test]
async fn tablets_are_inherited_where_nobody_else_can_be_at_work() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    put(&server, "a", None).await;
    drop(server);
    let manifests = device.paths("tablets/").await;
    let claiming = start(&device, &catalog, 2).await.unwrap();
    let claimed = device.paths("tablets/").await;
    assert_ne!(claimed, manifests, "others may be at work: each tablet is written to");
    drop(claiming);
    device.inherits.store(true, Ordering::Relaxed);
    device.synced.lock().clear();
    let server = start(&device, &catalog, 3).await.unwrap();
    assert_eq!(device.paths("tablets/").await, claimed);
    assert_eq!(device.synced.lock().first().map(String::as_str), Some("everything"));
    assert!(has(&server, "a"));
    put(&server, "z", None).await;
    server.shut_down().await;
    drop(server);
    assert_ne!(device.paths("tablets/").await, claimed, "flushed at the end");
    assert!(
        start(&device, &catalog, 3).await.is_err(),
        "what it committed is of its epoch"
    );
    device.inherits.store(false, Ordering::Relaxed);
    let server = start(&device, &catalog, 4).await.unwrap();
    assert!(has(&server, "a") && has(&server, "z"));
}

/// A segment that lost its end, and the one that follows it after rotation. No caller was promised the records of the
/// second, and when the first is gone they would count.
#[tokio::test]
async fn what_does_not_count_behind_a_hole_is_deleted() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    drop(first(&device, None).await);
    let header = |number, previous, previous_len| SegmentHeader {
        version: 1,
        stream: 0,
        number,
        previous,
        previous_len,
        previous_synced: 0,
    };
    let mut builder = BatchBuilder::default();
    let (family, qualifier) = (FamilyId(1), &b"q"[..]);
    let put = Mutation::Put {
        family,
        qualifier,
        timestamp: Timestamp(1),
        value: qualifier,
    };
    builder.push(b"a", put);
    let batch = builder.finish();
    let record = stele_commitlog::Record {
        tablet: TABLETS[0],
        first: SeqNo::new(Epoch(1), 5),
        last: SeqNo::new(Epoch(1), 5),
        payload: stele_commitlog::Payload::new(batch.to_bytes()),
    };
    let records = [&record.encode_header()[..], &batch.to_bytes()].concat();
    let group = GroupHeader {
        records_len: records.len() as u32,
        records: 1,
        offset: 56,
        unsynced: 56,
    };
    let relieved = [&header(1, 0, 0).encode()[..], &b"torn"[..]].concat();
    let behind = [&header(2, 1, 1_000).encode()[..], &group.encode(2)[..], &records].concat();
    let paths = [segment_path(0, 1), segment_path(0, 2)];
    for (path, content) in paths.iter().zip([relieved, behind]) {
        device.put_if_absent(path, content.into()).await.unwrap();
    }
    device.taken_over.store(true, Ordering::Relaxed);
    assert!(start(&device, &catalog, 2).await.is_err(), "it has been replaced");
    assert_eq!(
        device.paths("log/0000/000000000000000").await,
        paths,
        "not by who was replaced"
    );
    device.taken_over.store(false, Ordering::Relaxed);
    let server = start(&device, &catalog, 3).await.unwrap();
    assert!(!has(&server, "a"));
    assert_eq!(device.paths("log/0000/000000000000000").await, paths[..1]);
}

#[tokio::test]
async fn nothing_is_swept_by_who_was_replaced() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    drop(first(&device, None).await);
    let of_nobody = [FileRef::path(FileId::new(1, 77)), manifest::path(TabletId(99), 1)];
    for path in &of_nobody {
        device.put_if_absent(path, Bytes::from_static(b"x")).await.unwrap();
    }
    device.taken_over.store(true, Ordering::Relaxed);
    assert!(start(&device, &catalog, 2).await.is_err());
    for path in &of_nobody {
        assert_eq!(device.paths(path).await.len(), 1, "{path}");
    }
    // Nor while it serves already.
    device.taken_over.store(false, Ordering::Relaxed);
    let server = start(&device, &catalog, 3).await.unwrap();
    device.taken_over.store(true, Ordering::Relaxed);
    let env = TokioRuntime::current();
    env.sleep(Duration::from_millis(50)).await;
    for path in &of_nobody {
        assert_eq!(device.paths(path).await.len(), 1, "{path}");
    }
    drop(server);
    device.taken_over.store(false, Ordering::Relaxed);
    let server = start(&device, &catalog, 4).await.unwrap();
    put(&server, "a", None).await;
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    for path in &of_nobody {
        swept(&device, path).await;
    }
    env.sleep(Duration::from_millis(50)).await;
    assert_eq!(device.paths("sst/").await.len(), 1, "of its own it needs all");
}

/// Waits until nothing is left below a prefix.
async fn swept(device: &Watched, prefix: &str) {
    let mut tries = 0;
    while !device.paths(prefix).await.is_empty() {
        tries += 1;
        assert!(tries < 1_000, "{prefix} is still there");
        TokioRuntime::current().sleep(Duration::from_millis(5)).await;
    }
}

/// Each stream has a directory of its own, and only that one may fail.
#[tokio::test]
async fn a_stream_that_cannot_be_cut_keeps_no_other() {
    let device = Watched::over(MemoryStorage::new());
    let server = first(&device, None).await;
    device.keeps_first_stream.store(true, Ordering::Relaxed);
    put(&server, "a", None).await;
    put(&server, "z", None).await;
    let streams = || async {
        let paths = device.paths("log/").await;
        let numbers = paths.iter().filter_map(|path| parse_segment_path(path));
        numbers.map(|(stream, _)| stream).collect::<Vec<u32>>()
    };
    assert_eq!(streams().await, [0, 1]);
    for stream in server.parts.log.streams() {
        stream.rotate().await;
    }
    for served in server.all_served() {
        served.tablet.flush().await.unwrap();
    }
    server.parts.log.delete_unneeded().await.unwrap_err();
    assert_eq!(streams().await, [0]);
    device.keeps_first_stream.store(false, Ordering::Relaxed);
    server.parts.log.delete_unneeded().await.unwrap();
    assert!(streams().await.is_empty());
}

/// Nobody knows which files it refers to, so all stay, its versions too; also when the other tablet has done with them.
#[tokio::test]
async fn a_damaged_manifest_keeps_every_file_of_the_time_before() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    for _ in 0..2 {
        for (row, tablet) in [("a", TABLETS[0]), ("z", TABLETS[1])] {
            put(&server, row, None).await;
            server.served(tablet).unwrap().tablet.flush().await.unwrap();
        }
    }
    drop(server);
    let (directory, sstables) = (manifest::directory(TABLETS[0]), device.paths("sst/").await);
    assert_eq!(sstables.len(), 4);
    let newest = device.paths(&directory).await.pop().unwrap();
    device.delete(&newest).await.unwrap();
    device
        .put_if_absent(&newest, Bytes::from_static(b"damaged"))
        .await
        .unwrap();
    let server = start(&device, &catalog, 2).await.unwrap();
    assert_eq!(server.damaged_tablets().len(), 1);
    assert!(has(&server, "z"));
    let whole = server.served(TABLETS[1]).unwrap().tablet.clone();
    whole.compact_all().await.unwrap();
    server.parts.context.files.delete_obsolete().await.unwrap();
    let left = device.paths("sst/").await;
    assert!(sstables.iter().all(|path| left.contains(path)), "{left:?}");
    assert!(device.paths(&directory).await.contains(&newest));
}

/// Also where the process's end loses appended bytes: then a flush is a sync.
#[tokio::test]
async fn what_must_survive_is_synced_whoever_asks_for_it() {
    let of_table = (true, Some(Durability::Sync), None);
    let of_request = (true, None, Some(Durability::Sync));
    let appends_are_lost = (false, None, Some(Durability::Flush));
    for (keeps_appends, of_table, of_request) in [of_table, of_request, appends_are_lost] {
        // Unsynced bytes survive a power loss by chance.
        for _ in 0..8 {
            let faulty = FaultyStorage::new(TokioRuntime::current());
            let watched = |device: Arc<FaultyStorage>| {
                Arc::new(Watched {
                    device,
                    synced: Mutex::default(),
                    taken_over: AtomicBool::new(false),
                    inherits: AtomicBool::new(false),
                    keeps_appends,
                    refuses_manifests: AtomicBool::new(false),
                    keeps_first_stream: AtomicBool::new(false),
                })
            };
            let device = watched(faulty.clone());
            let catalog = catalog(of_table).await;
            let server = first(&device, of_table).await;
            put(&server, "a", of_request).await;
            faulty.crash();
            drop(server);
            let server = start(&watched(faulty.reopen()), &catalog, 2).await.unwrap();
            assert!(has(&server, "a"), "{keeps_appends} {of_table:?} {of_request:?}");
        }
    }
}

/// The catalog after the first tablet was divided before this row.
async fn catalog_of_halves(row: Bytes, halves: [TabletId; 2]) -> Catalog {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
    let [(_, first), second] = <[_; 2]>::try_from(ranges()).unwrap();
    let (mut left, mut right) = (first.clone(), first);
    (left.end, right.start) = (Some(row.clone()), row);
    let tablets = vec![(halves[0], left), (halves[1], right), second];
    catalog.create_table(schema(None), tablets).await.unwrap();
    catalog
}

/// A leader may learn late of a preparation that has ended: it must not undo the next one of the same tablet.
#[tokio::test]
async fn a_late_end_of_a_preparation_leaves_the_next_one_alone() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    for row in ["a", "b", "c", "d"] {
        put(&server, row, None).await;
    }
    let prepare = |halves: [u64; 2]| {
        let [left, right] = halves.map(TabletId);
        server.splitter.prepare(TABLETS[0], (left, right), None)
    };
    prepare([11, 12]).await.unwrap().unwrap();
    let [(tablet, early)] = server.prepared_replacements()[..] else {
        unreachable!("one replacement is prepared");
    };
    assert_eq!(tablet, TABLETS[0]);
    server.end_preparation(TABLETS[0], early, false).await;
    assert!(server.prepared_replacements().is_empty());
    prepare([13, 14]).await.unwrap().unwrap();
    server.end_preparation(TABLETS[0], early, false).await;
    assert_eq!(server.prepared_replacements().len(), 1);
    server.replacements.finish(TABLETS[0], true).await;
    assert!(server.served(TabletId(13)).is_ok() && server.served(TABLETS[0]).is_err());
}

/// The new owner has split the tablet and deleted its manifests, so that the former one finds its next number free.
#[tokio::test]
async fn a_former_owner_deletes_nothing_of_a_tablet_that_was_split() {
    let memory: Arc<dyn Storage> = MemoryStorage::new();
    let (old_storage, new_storage) = (Watched::over(memory.clone()), Watched::over(memory.clone()));
    let old = first(&old_storage, None).await;
    for _ in 0..2 {
        for row in ["a", "b", "c", "d"] {
            put(&old, row, None).await;
        }
        old.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    }
    let new = start(&new_storage, &catalog(None).await, 2).await.unwrap();
    let halves = [TabletId(11), TabletId(12)];
    let row = new
        .splitter
        .prepare(TABLETS[0], halves.into(), None)
        .await
        .unwrap()
        .unwrap();
    new.replacements.finish(TABLETS[0], true).await;

    old_storage.taken_over.store(true, Ordering::Relaxed);
    let compacted = old.served(TABLETS[0]).unwrap().tablet.compact_all().await;
    assert!(matches!(compacted, Err(TabletError::Fenced { .. })), "{compacted:?}");
    old.parts.context.files.delete_obsolete().await.unwrap();

    drop(new);
    let catalog = catalog_of_halves(row, halves).await;
    let again = start(&new_storage, &catalog, 3).await.unwrap();
    for (row, tablet) in [("a", halves[0]), ("d", halves[1])] {
        let read = again.get_row(tablet, row.as_bytes(), None).unwrap();
        let read = read.map(|row| row.into_batch().is_empty());
        assert_ne!(read, Some(true), "{row}");
    }
}

/// Or it would be flushed, its compactions stopped and its writers kept waiting twice a second.
#[tokio::test]
async fn a_split_that_failed_is_not_tried_again_at_once() {
    let device = Watched::over(MemoryStorage::new());
    let options = ServerOptions {
        tablet_bytes_max: 0,
        ..options()
    };
    let server = first_with(&device, None, options).await;
    for row in ["a", "b", "c", "d"] {
        put(&server, row, None).await;
    }
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    assert_eq!(server.splitter.candidates(&SplitPolicy::default()), [TABLETS[0]]);
    put(&server, "e", None).await;
    device.refuses_manifests.store(true, Ordering::Relaxed);
    let halves = [TabletId(11), TabletId(12)];
    server
        .splitter
        .prepare(TABLETS[0], halves.into(), None)
        .await
        .unwrap_err();
    assert!(server.splitter.candidates(&SplitPolicy::default()).is_empty());
    device.refuses_manifests.store(false, Ordering::Relaxed);
    // Its time is over.
    server.splitter.end_pause(TABLETS[0]);
    assert_eq!(server.splitter.candidates(&SplitPolicy::default()), [TABLETS[0]]);
    server.shut_down().await;
}

/// A table with few tablets for its servers is divided sooner; the check is repeated although no file was made.
#[tokio::test]
async fn a_divided_limit_makes_a_small_tablet_a_candidate() {
    let device = Watched::over(MemoryStorage::new());
    let options = ServerOptions {
        tablet_bytes_max: 1 << 20,
        ..options()
    };
    let server = first_with(&device, None, options).await;
    put(&server, "a", None).await;
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    let policy = |divisor| SplitPolicy {
        servers: 2,
        divisors: [(TableId(1), divisor)].into(),
    };
    assert!(server.splitter.candidates(&policy(1)).is_empty());
    assert_eq!(server.splitter.candidates(&policy(1 << 20)), [TABLETS[0]]);
    assert!(server.splitter.candidates(&policy(2)).is_empty());
    server.shut_down().await;
}

/// The transaction of the split was the last of the catalog, is damaged, and seems torn: the catalog names the parent.
#[tokio::test]
async fn a_split_that_the_catalog_forgot_is_kept() {
    let device = Watched::over(MemoryStorage::new());
    let forgetful = catalog(None).await;
    let server = first(&device, None).await;
    for row in ["a", "b", "c", "d"] {
        put(&server, row, None).await;
    }
    let halves = [TabletId(11), TabletId(12)];
    let row = server
        .splitter
        .prepare(TABLETS[0], halves.into(), None)
        .await
        .unwrap()
        .unwrap();
    server.replacements.finish(TABLETS[0], true).await;
    write(&server, halves[0], "a", "acknowledged").await;
    drop(server);

    let without = start(&device, &forgetful, 2).await.unwrap();
    assert_eq!(without.damaged_tablets().len(), 1);
    for half in halves {
        assert!(!device.paths(&manifest::directory(half)).await.is_empty(), "{half}");
        assert!(
            !without.parts.tablets.is_flushed(half, SeqNo(1)),
            "the log keeps what it has of {half}"
        );
    }
    without.shut_down().await;
    drop(without);

    let restored = start(&device, &catalog_of_halves(row, halves).await, 3).await.unwrap();
    let read = restored.get_row(halves[0], b"a", None).unwrap();
    let cells = read.expect("it is in memory").into_batch().into_cells();
    assert_eq!(cells[0].value, "acknowledged");
}

/// Nothing is damaged, and the catalog ends torn: a table may have been its last transaction.
#[tokio::test]
async fn what_a_catalog_in_doubt_does_not_name_is_kept() {
    let device = Watched::over(MemoryStorage::new());
    let server = first(&device, None).await;
    put(&server, "a", None).await;
    server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
    drop(server);
    let nothing = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let nothing = Catalog::load(nothing.await.unwrap()).await.unwrap();
    let before = device.paths("").await;
    let doubting = ServerOptions {
        catalog_in_doubt: true,
        ..options()
    };
    drop(start_with(&device, &nothing, 2, doubting).await.unwrap());
    let after = device.paths("").await;
    assert!(
        before.iter().all(|path| after.contains(path)),
        "{before:?} and then {after:?}"
    );
    let _believing = start(&device, &nothing, 3).await.unwrap();
    swept(&device, "sst/").await;
}

/// Nothing is missing in it: files that no tablet needs are deleted without another start. Files that an orphan needs
/// are not deleted.
#[tokio::test]
async fn a_catalog_in_doubt_keeps_no_more_than_strays_need() {
    for with_orphan in [false, true] {
        let device = Watched::over(MemoryStorage::new());
        let named = match with_orphan {
            true => catalog_of_the_second().await,
            false => catalog(None).await,
        };
        let server = first(&device, None).await;
        for _ in 0..2 {
            for (row, tablet) in [("a", TABLETS[0]), ("z", TABLETS[1])] {
                put(&server, row, None).await;
                server.served(tablet).unwrap().tablet.flush().await.unwrap();
            }
        }
        // It merges no more from here on.
        server.shut_down().await;
        drop(server);
        let of_both = [paths_of(&device, TABLETS[0]).await, paths_of(&device, TABLETS[1]).await];
        let of_nobody = FileRef::path(FileId::new(1, 77));
        device.put_if_absent(&of_nobody, Bytes::new()).await.unwrap();
        let doubting = ServerOptions {
            catalog_in_doubt: true,
            ..options()
        };
        let server = start_with(&device, &named, 2, doubting).await.unwrap();
        swept(&device, &of_nobody).await;
        put(&server, "y", None).await;
        let second = server.served(TABLETS[1]).unwrap().tablet.clone();
        second.flush().await.unwrap();
        second.compact_all().await.unwrap();
        server.parts.context.files.delete_obsolete().await.unwrap();
        let left = device.paths("sst/").await;
        assert!(
            !of_both[1].iter().any(|path| left.contains(path)),
            "{of_both:?}, then {left:?}"
        );
        assert!(
            !with_orphan || of_both[0].iter().all(|path| left.contains(path)),
            "{of_both:?}, then {left:?}"
        );
        server.shut_down().await;
        drop(server);
        let server = start(&device, &catalog(None).await, 3).await.unwrap();
        assert!(server.damaged_tablets().is_empty());
        for (row, tablet) in [("a", TABLETS[0]), ("z", TABLETS[1])] {
            let read = server.get_row(tablet, row.as_bytes(), None).unwrap();
            assert!(read.is_none_or(|row| !row.into_batch().is_empty()), "{row}");
        }
    }
}

/// Where the files of a tablet are.
async fn paths_of(device: &Arc<Watched>, tablet: TabletId) -> Vec<String> {
    let (_, manifest) = ManifestLog::open(device.clone(), tablet).await.unwrap();
    manifest.stored().map(StoredFile::path).collect()
}

/// The catalog after its last transaction, which made the first tablet known, was lost.
async fn catalog_of_the_second() -> Catalog {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
    let tablets = vec![(TABLETS[1], RowRange::all())];
    catalog.create_table(schema(None), tablets).await.unwrap();
    catalog
}

#[tokio::test]
async fn the_log_tells_its_last_epoch() {
    let device = Watched::over(MemoryStorage::new());
    assert_eq!(last_epoch(&*device).await, Ok(0));
    let server = first(&device, None).await;
    put(&server, "a", None).await;
    drop(server);
    let server = start(&device, &catalog(None).await, 7).await.unwrap();
    put(&server, "a", None).await;
    assert_eq!(last_epoch(&*device).await, Ok(7));
}
