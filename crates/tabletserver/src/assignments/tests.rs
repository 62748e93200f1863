//! Servers that share a data root in memory, each with a log of its own. A server that is dropped is dead; nothing seals
//! its log, which no test writes to afterwards.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

mod times;

use super::*;
use crate::options::ServerOptions;
use crate::recovery::tests::{TABLETS, Watched, ranges, schema, write};
use crate::roots::{Moments, SharedRoots, delete_log, settle_log};
use crate::server::TabletServer;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_client::{TabletAssignments, TabletControl, unconfirmed};
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, ReadFile, Storage, StorageError};
use stele_types::{Durability, RowRange, TableId, TableSchema};

/// Streams of their logs.
const STREAMS: u32 = 2;

/// The logs of all servers.
#[derive(Default)]
struct Logs(Mutex<BTreeMap<ServerId, Arc<dyn Storage>>>);

#[async_trait]
impl SealedLogs for Logs {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let log = self.0.lock().get(&server).cloned();
        log.ok_or_else(|| StorageError::NotFound {
            path: stele_storage::servers::log_root(server),
        })
    }
}

/// A data root on which no flush succeeds for a while.
struct Unflushable {
    inner: Arc<dyn Storage>,
    refuses: AtomicBool,
}

#[async_trait]
impl stele_storage::Layer for Unflushable {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        if path.starts_with("sst/") && self.refuses.load(Ordering::Relaxed) {
            return Err(StorageError::NoSpace { path: path.to_owned() });
        }
        self.inner.create(path).await
    }
}

/// A data root and the logs of its servers.
struct Shared {
    data: Arc<dyn Storage>,
    logs: Arc<Logs>,
    /// Where servers archive their logs.
    moments: Option<Arc<dyn Moments>>,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            data: MemoryStorage::new(),
            logs: Arc::default(),
            moments: None,
        }
    }

    async fn join_with(&self, server: u32, options: ServerOptions) -> Arc<TabletServer> {
        let log: Arc<dyn Storage> = MemoryStorage::new();
        self.logs.0.lock().insert(ServerId(server), log.clone());
        let roots = SharedRoots {
            data: self.data.clone(),
            log,
            sealed: self.logs.clone(),
            moments: self.moments.clone(),
        };
        let (env, cache, metrics) = (TokioRuntime::current(), Arc::new(Cache::new(1 << 20)), Metrics::new());
        let joined = TabletServer::join(env, roots, ServerId(server), cache, options, &metrics).await;
        joined.unwrap()
    }

    async fn join(&self, server: u32) -> Arc<TabletServer> {
        self.join_with(server, crate::recovery::tests::options()).await
    }

    /// The first server, with the tablets of a new table.
    async fn first(&self, server: u32) -> Arc<TabletServer> {
        let first = self.join(server).await;
        first.create_tablets(Arc::new(schema(None)), ranges()).await.unwrap();
        first
    }

    async fn log(&self, server: u32) -> Arc<dyn Storage> {
        self.logs.open(ServerId(server)).await.unwrap()
    }

    async fn segments(&self, server: u32) -> usize {
        self.log(server).await.list("log/").await.unwrap().len()
    }
}

fn assignment(tablet: TabletId, epoch: u32, logs: &[u32]) -> Assignment {
    Assignment {
        tablet,
        epoch: Epoch(epoch),
        schema: Arc::new(schema(None)),
        logs: logs.iter().copied().map(ServerId).collect(),
        streams: logs.iter().map(|log| (ServerId(*log), STREAMS)).collect(),
    }
}

async fn open(server: &TabletServer, tablet: TabletId, epoch: u32, logs: &[u32]) -> ServiceResult<()> {
    let outcomes = server.open_tablets(vec![assignment(tablet, epoch, logs)]).await;
    assert_eq!(outcomes.len(), 1, "an outcome for each assignment");
    outcomes.into_iter().next().unwrap()
}

/// Whether it was served.
async fn hand_over(server: &TabletServer, tablet: TabletId, epoch: u32) -> ServiceResult<bool> {
    server
        .close_tablet(tablet, Epoch(epoch), Closing::HandOver, unconfirmed())
        .await
}

/// The value of a row; empty when it has none.
fn read(server: &TabletServer, tablet: TabletId, row: &str) -> ServiceResult<String> {
    let row = server.get_row(tablet, row.as_bytes(), None)?;
    let cells = row.expect("it is in memory").into_batch().into_cells();
    Ok(cells
        .first()
        .map_or_else(String::new, |cell| cell.value.escape_ascii().to_string()))
}

async fn logs_needed(server: &TabletServer, tablet: TabletId) -> Vec<ServerId> {
    let load = server.load().await.unwrap();
    let of_tablet = load.tablets.into_iter().find(|load| load.tablet == tablet);
    of_tablet.expect("the tablet is served").logs
}

/// Whether a tablet needs no log after a while.
async fn is_soon_flushed(server: &TabletServer, tablet: TabletId) -> bool {
    let flushed = async {
        while !logs_needed(server, tablet).await.is_empty() {
            TokioRuntime::current().sleep(Duration::from_millis(10)).await;
        }
    };
    TokioRuntime::current()
        .timeout(Duration::from_secs(30), flushed)
        .await
        .is_ok()
}

/// Server 1 began before server 2. The last part fails if the row cache keeps a result from before the tablet left.
#[tokio::test]
async fn a_tablet_moves_back_and_forth_with_all_its_rows() {
    let shared = Shared::new();
    let (older, younger) = (shared.join(1).await, shared.first(2).await);
    write(&younger, TABLETS[0], "a", "first").await;
    for _ in 0..3 {
        assert_eq!(read(&younger, TABLETS[0], "a").unwrap(), "first");
    }
    hand_over(&younger, TABLETS[0], 2).await.unwrap();
    let refused = read(&younger, TABLETS[0], "a").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "the caller looks it up again");
    open(&older, TABLETS[0], 3, &[]).await.unwrap();
    assert_eq!(read(&older, TABLETS[0], "a").unwrap(), "first");
    write(&older, TABLETS[0], "a", "second").await;
    hand_over(&older, TABLETS[0], 3).await.unwrap();
    assert!(older.load().await.unwrap().tablets.is_empty());
    open(&younger, TABLETS[0], 4, &[]).await.unwrap();
    assert_eq!(read(&younger, TABLETS[0], "a").unwrap(), "second");
    write(&younger, TABLETS[0], "b", "third").await;
    assert_eq!(read(&younger, TABLETS[0], "b").unwrap(), "third");
}

/// Each survivor replays the records of its share, and needs the log until it has flushed them.
#[tokio::test]
async fn the_tablets_of_a_dead_server_are_divided_over_the_others() {
    let shared = Shared::new();
    let dead = shared.first(1).await;
    write(&dead, TABLETS[0], "a", "flushed").await;
    dead.flush(TABLETS[0]).await.unwrap();
    write(&dead, TABLETS[0], "b", "logged").await;
    write(&dead, TABLETS[1], "z", "logged").await;
    drop(dead);
    let log = shared.log(1).await;
    assert!(settle_log(&*log).await.unwrap() > 0);
    let (two, three) = (shared.join(2).await, shared.join(3).await);
    open(&two, TABLETS[0], 4, &[1]).await.unwrap();
    open(&three, TABLETS[1], 4, &[1]).await.unwrap();
    assert_eq!(read(&two, TABLETS[0], "b").unwrap(), "logged");
    assert_eq!(read(&three, TABLETS[1], "z").unwrap(), "logged");
    for (server, tablet) in [(&two, TABLETS[0]), (&three, TABLETS[1])] {
        assert!(
            is_soon_flushed(server, tablet).await,
            "nobody asks for it: its records are in no log of this server"
        );
    }
    assert!(delete_log(&*log).await.unwrap() > 0);
    assert_eq!(shared.segments(1).await, 0);
    drop(two);
    open(&three, TABLETS[0], 5, &[2]).await.unwrap();
    assert_eq!(read(&three, TABLETS[0], "a").unwrap(), "flushed");
    assert_eq!(read(&three, TABLETS[0], "b").unwrap(), "logged");
}

/// A storage of which some requests wait until another one was made.
struct Ordered {
    inner: Arc<dyn Storage>,
    /// Is closed by the first listing of a log; the versions of manifests wait for that.
    listed: Arc<tokio::sync::Semaphore>,
    /// A former owner that flushes its first tablet behind that listing.
    dying: Option<Arc<TabletServer>>,
    /// Its log is deleted then.
    deletes: bool,
}

#[async_trait]
impl stele_storage::Layer for Ordered {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        if path.starts_with("tablets/") {
            assert!(self.listed.acquire().await.is_err(), "it is never granted, only closed");
        }
        self.inner.put_if_absent(path, content).await
    }

    async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<stele_storage::FileInfo>> {
        let listed = self.inner.list(prefix).await?;
        if prefix.starts_with("log/") && !self.listed.is_closed() {
            if let Some(dying) = &self.dying {
                dying.flush(TABLETS[0]).await.expect("it is the owner still");
            }
            for file in listed.iter().filter(|_| self.deletes) {
                self.inner.delete(&file.path).await?;
            }
            self.listed.close();
        }
        Ok(listed)
    }
}

/// Rows wait for both. Between the listing and the claim the former server may flush a memtable whose records are in the listed segments, and
/// delete those of which manifests have all.
#[tokio::test]
async fn a_log_is_opened_while_tablets_are_claimed() {
    for (flushes, deletes) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut shared = Shared::new();
        let dead = shared.first(1).await;
        write(&dead, TABLETS[0], "a", "flushed").await;
        dead.flush(TABLETS[0]).await.unwrap();
        let has_logged = flushes || !deletes;
        if has_logged {
            write(&dead, TABLETS[0], "b", "logged").await;
        }
        let listed = Arc::new(tokio::sync::Semaphore::new(0));
        let mut dying = Some(dead).filter(|_| flushes);
        let mut ordered = |inner| Ordered {
            inner,
            listed: listed.clone(),
            dying: dying.take(),
            deletes,
        };
        let log = ordered(shared.log(1).await);
        shared.logs.0.lock().insert(ServerId(1), Arc::new(log));
        shared.data = Arc::new(ordered(shared.data.clone()));
        let next = shared.join(2).await;
        let opened = open(&next, TABLETS[0], 3, &[1]);
        let opened = TokioRuntime::current().timeout(Duration::from_secs(30), opened).await;
        opened.expect("the claim waits for no end of the opening").unwrap();
        assert_eq!(read(&next, TABLETS[0], "a").unwrap(), "flushed");
        let expected = if has_logged { "logged" } else { "" };
        assert_eq!(read(&next, TABLETS[0], "b").unwrap(), expected);
        let is_replayed = !next.assignments.replayed.lock().is_empty();
        assert_eq!(is_replayed, !flushes && !deletes, "files have the other records");
    }
}

/// A storage of a log that tells of the first read behind the header of a segment.
struct Read {
    inner: Arc<dyn Storage>,
    read: Arc<tokio::sync::Semaphore>,
}

#[async_trait]
impl stele_storage::Layer for Read {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(ReadSegment {
            inner: self.inner.open(path).await?,
            read: self.read.clone(),
        }))
    }
}

struct ReadSegment {
    inner: Arc<dyn ReadFile>,
    read: Arc<tokio::sync::Semaphore>,
}

#[async_trait]
impl ReadFile for ReadSegment {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        if offset + len as u64 > stele_commitlog::format::SEGMENT_HEADER_BYTES as u64 {
            self.read.close();
        }
        self.inner.read_at(offset, len).await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<stele_storage::Result<Bytes>> {
        self.inner.try_read_at(offset, len)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn path(&self) -> &str {
        self.inner.path()
    }
}

/// The claim waits for the first read of records, so it would never come if that came after it.
#[tokio::test]
async fn a_log_is_read_while_tablets_are_claimed() {
    let mut shared = Shared::new();
    let dead = shared.first(1).await;
    write(&dead, TABLETS[0], "b", "logged").await;
    drop(dead);
    let read = Arc::new(tokio::sync::Semaphore::new(0));
    let log = Read {
        inner: shared.log(1).await,
        read: read.clone(),
    };
    shared.logs.0.lock().insert(ServerId(1), Arc::new(log));
    shared.data = Arc::new(Ordered {
        inner: shared.data.clone(),
        listed: read,
        dying: None,
        deletes: false,
    });
    let next = shared.join(2).await;
    let opened = open(&next, TABLETS[0], 3, &[1]);
    let opened = TokioRuntime::current().timeout(Duration::from_secs(10), opened).await;
    opened.expect("the claim waits for no end of the replay").unwrap();
    assert_eq!(self::read(&next, TABLETS[0], "b").unwrap(), "logged");
}

/// The segments of another stream are not even opened: here they are damaged.
#[tokio::test]
async fn only_the_streams_of_the_tablets_that_are_taken_up_are_read() {
    let shared = Shared::new();
    let dead = shared.first(1).await;
    for (tablet, row) in TABLETS.into_iter().zip(["a", "m"]) {
        write(&dead, tablet, row, "logged").await;
    }
    drop(dead);
    let streams = TABLETS.map(|tablet| stele_types::stream_of(ServerId(1), tablet, STREAMS));
    assert_ne!(streams[0], streams[1], "the tablets have streams of their own");
    let log = shared.log(1).await;
    for segment in log.list(&format!("log/{:04x}/", streams[1])).await.unwrap() {
        log.delete(&segment.path).await.unwrap();
        log.put_if_absent(&segment.path, Bytes::from_static(&[1; 200]))
            .await
            .unwrap();
    }
    let next = shared.join(2).await;
    open(&next, TABLETS[0], 3, &[1]).await.unwrap();
    assert_eq!(read(&next, TABLETS[0], "a").unwrap(), "logged");
}

/// It is damaged, say, and stays so. Another tablet that is opened in the same call needs no log, or another one.
#[tokio::test]
async fn a_log_that_cannot_be_replayed_keeps_only_its_tablets_closed() {
    for needs_log in [false, true] {
        let shared = Shared::new();
        let (first, second) = (shared.first(1).await, shared.join(2).await);
        write(&first, TABLETS[0], "a", "logged").await;
        hand_over(&first, TABLETS[1], 1).await.unwrap();
        drop(first);
        open(&second, TABLETS[1], 3, &[]).await.unwrap();
        write(&second, TABLETS[1], "z", "second").await;
        let logs: &[u32] = if needs_log { &[2] } else { &[] };
        if !needs_log {
            hand_over(&second, TABLETS[1], 3).await.unwrap();
        }
        drop(second);
        shared.logs.0.lock().remove(&ServerId(1));
        let third = shared.join(3).await;
        let both = vec![assignment(TABLETS[0], 4, &[1]), assignment(TABLETS[1], 4, logs)];
        let outcomes = third.open_tablets(both).await;
        assert!(outcomes[0].is_err(), "{outcomes:?}");
        assert_eq!(outcomes[1], Ok(()));
        assert_eq!(read(&third, TABLETS[1], "z").unwrap(), "second");
        assert!(read(&third, TABLETS[0], "a").is_err());
        assert!(
            needs_log || !third.parts.flushes.are_held(),
            "nothing was replayed, and it is tried again and again"
        );
        open(&third, TABLETS[0], 4, &[1]).await.unwrap_err();
    }
}

/// Another version of the program may have chosen streams by another rule.
#[tokio::test]
async fn a_log_with_a_record_in_another_stream_is_read_whole() {
    let shared = Shared::new();
    let dead = shared.first(1).await;
    for (tablet, row) in TABLETS.into_iter().zip(["a", "m"]) {
        write(&dead, tablet, row, "logged").await;
    }
    drop(dead);
    let next = shared.join(2).await;
    for ((tablet, row), count) in TABLETS.into_iter().zip(["a", "m"]).zip([5, 7]) {
        let wrong = Assignment {
            streams: BTreeMap::from([(ServerId(1), count)]),
            ..assignment(tablet, 3, &[1])
        };
        assert_eq!(next.open_tablets(vec![wrong]).await, [Ok(())]);
        assert_eq!(read(&next, tablet, row).unwrap(), "logged", "of {count} streams");
    }
}

/// The second one may die before its flush: its own log has later records, and those before are in the first log.
#[tokio::test]
async fn records_of_two_dead_servers_are_replayed_together() {
    let device = Arc::new(Unflushable {
        inner: MemoryStorage::new(),
        refuses: AtomicBool::new(true),
    });
    let shared = Shared {
        data: device.clone(),
        logs: Arc::default(),
        moments: None,
    };
    let one = shared.first(1).await;
    write(&one, TABLETS[0], "a", "one").await;
    write(&one, TABLETS[0], "b", "one").await;
    drop(one);
    let two = shared.join(2).await;
    open(&two, TABLETS[0], 3, &[1]).await.unwrap();
    assert_eq!(logs_needed(&two, TABLETS[0]).await, [ServerId(1)]);
    write(&two, TABLETS[0], "b", "two").await;
    drop(two);
    device.refuses.store(false, Ordering::Relaxed);
    let three = shared.join(4).await;
    open(&three, TABLETS[0], 5, &[1, 2]).await.unwrap();
    assert_eq!(read(&three, TABLETS[0], "a").unwrap(), "one");
    assert_eq!(read(&three, TABLETS[0], "b").unwrap(), "two");
    // A record of the time before the tablet moved is not replayed from a log that the assignment does not name.
    hand_over(&three, TABLETS[0], 5).await.unwrap();
    open(&three, TABLETS[0], 6, &[]).await.unwrap();
    assert_eq!(read(&three, TABLETS[0], "b").unwrap(), "two");
}

#[tokio::test]
async fn a_log_that_exceeds_memory_is_replayed_in_parts() {
    let shared = Shared::new();
    let dead = shared.first(1).await;
    let value: &'static str = Box::leak("v".repeat(10_000).into_boxed_str());
    for row in ["a", "b", "c", "d", "e", "f"] {
        write(&dead, TABLETS[0], row, value).await;
    }
    for row in ["u", "v", "w", "x", "y", "z"] {
        write(&dead, TABLETS[1], row, value).await;
    }
    drop(dead);
    let options = ServerOptions {
        memtables: MemtableLimits::new(100 << 10, 50 << 10),
        ..crate::recovery::tests::options()
    };
    let next = shared.join_with(2, options).await;
    let both = TABLETS.map(|tablet| assignment(tablet, 3, &[1])).into();
    assert_eq!(next.open_tablets(both).await, vec![Ok(()); 2]);
    for (tablet, row) in [
        (TABLETS[0], "a"),
        (TABLETS[0], "f"),
        (TABLETS[1], "u"),
        (TABLETS[1], "z"),
    ] {
        let batch = next.get_row(tablet, row.as_bytes(), None).unwrap();
        assert!(batch.is_none_or(|row| !row.into_batch().is_empty()), "{row}");
    }
}

#[tokio::test]
async fn an_assignment_is_opened_and_closed_once_however_often_it_is_asked_for() {
    let shared = Shared::new();
    let server = shared.first(1).await;
    let other = shared.join(2).await;
    open(&server, TABLETS[0], 1, &[])
        .await
        .expect("it is served under that epoch");
    let refused = open(&server, TABLETS[0], 3, &[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "{refused}");
    let of_another = hand_over(&server, TABLETS[0], 9).await.unwrap();
    write(&server, TABLETS[0], "a", "v").await;
    let first = hand_over(&server, TABLETS[0], 1).await.unwrap();
    let repeated = hand_over(&server, TABLETS[0], 1).await.expect("the answer was lost");
    assert_eq!((of_another, first, repeated), (false, true, false));
    // Its former owner is dead and the log cannot be read yet: the others are not affected.
    let missing = open(&other, TABLETS[0], 3, &[77]).await.unwrap_err();
    assert!(missing.message.contains("the log of server 77"), "{missing}");
    open(&other, TABLETS[0], 3, &[])
        .await
        .expect("the same epoch, on the same server");
    assert_eq!(read(&other, TABLETS[0], "a").unwrap(), "v");
    let unknown = vec![assignment(TabletId(99), 4, &[]), assignment(TABLETS[0], 3, &[])];
    let outcomes = other.open_tablets(unknown).await;
    assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
}

/// Its server was given up and runs on. It must notice before it answers its master, and its log keeps the records.
#[tokio::test]
async fn a_tablet_that_another_owner_has_claimed_is_given_up() {
    let shared = Shared::new();
    let (former, next) = (shared.first(1).await, shared.join(2).await);
    write(&former, TABLETS[0], "a", "v").await;
    open(&next, TABLETS[0], 3, &[1]).await.unwrap();
    write(&former, TABLETS[0], "b", "after its log was to be sealed").await;
    let fenced = former.flush(TABLETS[0]).await.unwrap_err();
    assert_eq!(fenced.kind, ErrorKind::Unavailable, "{fenced}");
    let load = former.load().await.unwrap();
    assert_eq!(load.tablets.len(), 1, "{load:?}");
    let refused = former
        .write(TABLETS[0], &stele_types::RowWrites::from(vec![]), None)
        .await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Unavailable);
    former.flush(TABLETS[1]).await.unwrap();
    for stream in former.parts.log.streams() {
        stream.rotate().await;
    }
    former.parts.log.delete_unneeded().await.unwrap();
    assert!(
        shared.segments(1).await > 0,
        "the next owner may not have read them yet"
    );
    assert_eq!(read(&next, TABLETS[0], "a").unwrap(), "v");
}

/// Its log has records that the file lacks, and an assignment does not name the log of the server that it is for.
#[tokio::test]
async fn a_tablet_that_was_not_flushed_at_shutdown_is_not_opened_again() {
    let mut shared = Shared::new();
    let data = Arc::new(Unflushable {
        inner: shared.data.clone(),
        refuses: AtomicBool::new(false),
    });
    shared.data = data.clone();
    let (first, next) = (shared.first(1).await, shared.join(2).await);
    write(&first, TABLETS[0], "a", "v").await;
    data.refuses.store(true, Ordering::Relaxed);
    assert_eq!(first.shut_down().await, 1, "a tablet is not flushed");
    data.refuses.store(false, Ordering::Relaxed);
    assert!(first.load().await.unwrap().tablets.is_empty());
    let refused = open(&first, TABLETS[0], 1, &[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    open(&next, TABLETS[0], 2, &[1]).await.unwrap();
    assert_eq!(read(&next, TABLETS[0], "a").unwrap(), "v");
}

/// The flush has taken long, and nobody could get the tablet any more.
#[tokio::test]
async fn a_tablet_that_no_other_server_can_get_is_served_on() {
    let shared = Shared::new();
    let server = shared.first(1).await;
    write(&server, TABLETS[0], "a", "v").await;
    let away = async { Err(ServiceError::new(ErrorKind::Unavailable, "the coordinator is away")) };
    let closed = server.close_tablet(TABLETS[0], Epoch(1), Closing::HandOver, Box::pin(away));
    assert_eq!(closed.await.unwrap_err().kind, ErrorKind::Unavailable);
    write(&server, TABLETS[0], "b", "v").await;
    assert!(hand_over(&server, TABLETS[0], 1).await.unwrap());
}

/// As above, while the server goes on.
#[tokio::test]
async fn a_tablet_that_left_comes_back_under_a_new_epoch_only() {
    let shared = Shared::new();
    let server = shared.first(1).await;
    write(&server, TABLETS[0], "a", "v").await;
    let closed = server
        .close_tablet(TABLETS[0], Epoch(1), Closing::Abandon, unconfirmed())
        .await;
    closed.unwrap();
    let refused = open(&server, TABLETS[0], 1, &[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "{refused}");
    open(&server, TABLETS[0], 2, &[]).await.unwrap();
}

/// Another owner had it meanwhile, and this server's master did not say so.
#[tokio::test]
async fn a_fenced_tablet_that_comes_back_releases_the_files_of_its_former_life() {
    let shared = Shared::new();
    let (former, next) = (shared.first(1).await, shared.join(2).await);
    write(&former, TABLETS[0], "a", "v").await;
    former.flush(TABLETS[0]).await.unwrap();
    let files = |server: &TabletServer| server.parts.context.files.in_use().held.len();
    assert_eq!(files(&former), 1);
    open(&next, TABLETS[0], 3, &[1]).await.unwrap();
    write(&former, TABLETS[0], "b", "after its log was to be sealed").await;
    former.flush(TABLETS[0]).await.unwrap_err();
    assert!(
        former
            .load()
            .await
            .unwrap()
            .tablets
            .iter()
            .all(|load| load.tablet != TABLETS[0])
    );
    let closed = hand_over(&former, TABLETS[0], 1).await.unwrap();
    assert!(!closed, "a tablet that was given up was not flushed for its next owner");
    hand_over(&next, TABLETS[0], 3).await.unwrap();
    open(&former, TABLETS[0], 4, &[]).await.unwrap();
    hand_over(&former, TABLETS[0], 4).await.unwrap();
    assert_eq!(files(&former), 0, "a sweep may delete what others have compacted");
}

/// All files of the data root would look like leftovers of an earlier process.
#[tokio::test]
async fn a_server_that_shares_its_data_deletes_nothing_of_others() {
    let shared = Shared::new();
    let one = shared.first(1).await;
    write(&one, TABLETS[0], "a", "v").await;
    hand_over(&one, TABLETS[0], 1).await.unwrap();
    let two = shared.join(2).await;
    open(&two, TABLETS[0], 3, &[]).await.unwrap();
    for server in [&one, &two] {
        server.parts.context.files.delete_obsolete().await.unwrap();
    }
    two.drop_tablets(vec![TABLETS[0]]).await;
    two.parts.context.files.delete_obsolete().await.unwrap();
    assert_eq!(shared.data.list("sst/").await.unwrap().len(), 1, "it is the sweep's");
    let left = shared.data.list("tablets/0000000000000001/").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_server_that_owns_the_data_root_is_assigned_nothing() {
    let device = Watched::over(MemoryStorage::new());
    let server = crate::recovery::tests::first(&device, Some(Durability::Flush)).await;
    let refused = open(&server, TABLETS[0], 2, &[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
    let refused = hand_over(&server, TABLETS[0], 1).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition);
    assert_eq!(server.load().await.unwrap().tablets.len(), 2);
    let _: Arc<TableSchema> = server.served(TABLETS[0]).unwrap().tablet.schema();
}

/// The master sends the new schema to a server that is still opening the tablet under the old one.
#[tokio::test]
async fn a_tablet_that_is_being_opened_gets_the_newest_schema() {
    let shared = Shared::new();
    let server = shared.first(1).await;
    hand_over(&server, TABLETS[0], 1).await.unwrap();
    let newer = TableSchema {
        version: 2,
        ..schema(None)
    };
    // Of many newer tables before, so that not all are remembered.
    for id in 1_000..6_000 {
        let other = TableSchema {
            id: TableId(id),
            ..TableSchema::clone(&schema(None))
        };
        server.set_schema(Arc::new(other)).await;
    }
    server.set_schema(Arc::new(newer)).await;
    open(&server, TABLETS[0], 2, &[]).await.unwrap();
    assert_eq!(server.served(TABLETS[0]).unwrap().tablet.schema().version, 2);
    // Told late, after it has learned of a newer one.
    let older = TableSchema::clone(&schema(None));
    server.set_schema(Arc::new(older)).await;
    assert_eq!(server.served(TABLETS[0]).unwrap().tablet.schema().version, 2);
}

/// A server learns of a change together with the creation of the table, and has made tablets of it before.
#[tokio::test]
async fn a_tablet_that_is_made_gets_the_newest_schema() {
    let shared = Shared::new();
    let server = shared.first(1).await;
    let of_version = |version| TableSchema {
        id: TableId(77),
        version,
        ..TableSchema::clone(&schema(None))
    };
    let (early, late) = (TabletId(700), TabletId(701));
    let make = |tablet| server.create_tablets(Arc::new(of_version(1)), vec![(tablet, RowRange::all())]);
    make(early).await.unwrap();
    server.set_schema(Arc::new(of_version(2))).await;
    make(late).await.unwrap();
    for tablet in [early, late] {
        assert_eq!(server.served(tablet).unwrap().tablet.schema().version, 2);
    }
}

/// Otherwise the log would grow for as long as the process runs.
#[tokio::test]
async fn the_log_retains_nothing_for_an_abandoned_tablet_that_is_back_or_dropped() {
    let shared = Shared::new();
    let first = shared.first(1).await;
    for tablet in [TABLETS[0], TABLETS[1]] {
        let closed = first
            .close_tablet(tablet, Epoch(1), Closing::Abandon, unconfirmed())
            .await;
        closed.unwrap();
        assert!(first.parts.tablets.has_unserved() && !first.parts.tablets.is_served(tablet));
        match tablet == TABLETS[0] {
            true => open(&first, tablet, 2, &[]).await.unwrap(),
            false => first.drop_tablets(vec![tablet]).await,
        }
        assert!(!first.parts.tablets.has_unserved());
    }
}
