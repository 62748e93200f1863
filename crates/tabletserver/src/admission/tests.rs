//! Large writes are let in one by one, and memtables are flushed for them.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::server::TabletServer;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::cell::Cell;
use std::collections::BTreeMap;
use stele_catalog::Catalog;
use stele_client::TabletControl;
use stele_coord::EmbeddedCoord;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_env::{BlockingWork, Priority, Runtime};
use stele_memtable::Memtable;
use stele_sstable::Cache;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_types::{
    Durability, Epoch, Family, FamilyId, GroupId, Mutation, RowMutation, RowRange, RowWrites, SeqNo, TableId,
    TableName, TableSchema, TabletId, Timestamp, ValueType,
};

const MIB: u64 = 1 << 20;

/// With a share of 16 MiB for memtables, hence 20 at most.
fn admission() -> (Arc<Admission>, MemoryAccount) {
    admission_in(TokioRuntime::current())
}

fn admission_in(env: Env) -> (Arc<Admission>, MemoryAccount) {
    let memory = MemoryAccount::default();
    let mut options = ServerOptions::for_memory(64 * MIB);
    options.memtables = MemtableLimits::for_share(16 * MIB);
    options.admission_wait_max = Duration::from_millis(100);
    let registry = Metrics::new();
    let (metrics, waits) = (AdmissionMetrics::new(&registry), WriteWaits::new(&registry));
    let admission = Admission::new(env, memory.clone(), Moved::default(), &options, metrics, waits);
    (Arc::new(admission), memory)
}

/// A memtable of about this many bytes.
fn memtable(memory: &MemoryAccount, bytes: u64) -> Memtable {
    let table = Memtable::new(memory.clone());
    let value = vec![0; bytes as usize];
    table.insert_all(|inserter| inserter.insert(b"key", &value, SeqNo(1)));
    table
}

#[tokio::test]
async fn large_writes_are_let_in_when_they_fit() {
    let (admission, memory) = admission();
    let nudge = || {};
    let is_large = |mib: u64| admission.is_large((mib * MIB) as usize);
    assert_eq!((is_large(2), is_large(3)), (false, true));
    let there = memtable(&memory, 8 * MIB);
    let first = admission.let_in(6 * MIB as usize, nudge).await.unwrap();
    assert_eq!((first.bytes, admission.expected_bytes()), (6 * MIB, 6 * MIB));
    // 8 and 6 and 7 are more than 20.
    let nudges = Cell::new(0);
    let counted = || nudges.set(nudges.get() + 1);
    let busy = admission.let_in(7 * MIB as usize, counted).await.err().unwrap();
    assert_eq!((busy.kind, nudges.get() > 1), (ErrorKind::Busy, true));
    assert_eq!(admission.expected_bytes(), 6 * MIB, "who has given up is not expected");
    let mut waits = Box::pin(admission.let_in(7 * MIB as usize, nudge));
    assert!(futures::poll!(&mut waits).is_pending());
    assert_eq!(admission.expected_bytes(), 13 * MIB);
    drop(there);
    let second = waits.await.unwrap();
    assert_eq!((second.bytes, admission.expected_bytes()), (7 * MIB, 13 * MIB));
    drop((first, second));
    assert_eq!(admission.expected_bytes(), 0);
}

#[tokio::test]
async fn one_that_is_larger_than_the_share_waits_for_all_others() {
    let (admission, memory) = admission();
    let there = memtable(&memory, 3 * MIB);
    let large = 100 * MIB as usize;
    assert_eq!(
        admission.let_in(large, || {}).await.err().unwrap().kind,
        ErrorKind::Busy
    );
    drop(there);
    let _rest = memtable(&memory, MIB);
    let first = admission.let_in(large, || {}).await.unwrap();
    assert_eq!(
        admission.let_in(large, || {}).await.err().unwrap().kind,
        ErrorKind::Busy
    );
    drop(first);
    admission.let_in(large, || {}).await.unwrap();
}

/// A write that does not fit but is logged stays on the disk, and nothing could be flushed any more.
#[tokio::test]
async fn a_large_write_takes_nothing_of_what_is_kept_free() {
    let (admission, memory) = admission();
    let _there = memtable(&memory, MIB);
    let reserve = admission.reserve();
    admission.free_bytes.store(reserve + 20 * MIB, Ordering::Relaxed);
    let refused = admission.pace(11 * MIB as usize, 0).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted, "{refused}");
    // Others are not.
    admission.check_accepting().unwrap();
    admission.pace(10 * MIB as usize, 0).await.unwrap();
    assert_eq!(admission.free_bytes.load(Ordering::Relaxed), reserve + 10 * MIB);
    for _ in 0..11 {
        admission.check_accepting().unwrap();
        admission.pace(MIB as usize, 0).await.unwrap();
    }
    assert!(admission.is_disk_full());
    // As when there is space again.
    admission.set_disk_full(false, reserve);
    admission.free_bytes.store(u64::MAX, Ordering::Relaxed);
    admission.pace(100 * MIB as usize, 0).await.unwrap();
}

/// A clock that a test sets, in milliseconds, and nothing else.
struct Clock(Arc<AtomicU64>);

impl Runtime for Clock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    fn random_u64(&self) -> u64 {
        0
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn spawn(&self, _: Priority, _: &'static str, _: BoxFuture<'static, ()>) {}
    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

#[tokio::test]
async fn space_is_short_when_flushes_bring_none() {
    let now = Arc::new(AtomicU64::new(0));
    let (admission, memory) = admission_in(Env::new(Arc::new(Clock(now.clone()))));
    let faulty = FaultyStorage::new(TokioRuntime::current());
    let storage: Arc<dyn Storage> = faulty.clone();
    // A check with this many bytes free, a fifth of a second after the former one; whether the disk is full, and space short.
    let check = async |free| {
        faulty.set_plan(FaultPlan {
            space_limit: Some(free),
            ..FaultPlan::default()
        });
        now.fetch_add(200, Ordering::Relaxed);
        admission.check_disk(&storage).await;
        (admission.is_disk_full(), admission.is_short_of_space())
    };
    let min = admission.free_bytes_min;
    let there = memtable(&memory, 8 * MIB);
    assert_eq!(check(min + 9 * MIB).await, (false, false));
    // A flush makes space for writes, and takes a little of the reserve itself until the log gives it back.
    for _ in 0..50 {
        assert_eq!(check(min + MIB).await, (true, false));
    }
    for _ in 0..20 {
        assert_eq!(check(min - MIB).await, (true, false));
    }
    assert_eq!(check(min).await, (true, false));
    // No flush has the space of memtables that cannot be flushed.
    admission.unflushable.set_memory(8 * MIB);
    for _ in 0..25 {
        assert_eq!(check(min + MIB).await, (true, false));
    }
    assert_eq!(check(min + MIB).await, (true, true));
    drop(there);
    assert_eq!(check(min + MIB).await, (false, false));
}

/// A quota shows in refused writes, and not in the free space.
#[tokio::test]
async fn space_is_short_while_writes_meet_a_full_disk() {
    let now = Arc::new(AtomicU64::new(60_000));
    let (admission, _) = admission_in(Env::new(Arc::new(Clock(now.clone()))));
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    for _ in 0..3 {
        admission.met_full_disk();
        assert!(admission.is_disk_full() && admission.is_short_of_space());
        now.fetch_add(1_900, Ordering::Relaxed);
        admission.check_disk(&storage).await;
        assert!(
            !admission.is_disk_full() && admission.is_short_of_space(),
            "the next write tries"
        );
    }
    now.fetch_add(100, Ordering::Relaxed);
    assert!(!admission.is_short_of_space());
}

/// A server with a share of 25.6 MiB for memtables, hence 32 at most, and one tablet.
async fn server() -> Arc<TabletServer> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
    let options = ServerOptions {
        durability: Durability::Flush,
        memory: None,
        free_bytes_min: 0,
        ..ServerOptions::for_memory(64 * MIB)
    };
    let (env, cache, metrics) = (TokioRuntime::current(), Arc::new(Cache::new(1 << 20)), Metrics::new());
    let device: Arc<dyn Storage> = MemoryStorage::new();
    let started = TabletServer::start(env, device, &catalog, Epoch(1), cache, options, &metrics).await;
    let (server, _) = started.unwrap();
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    let schema = TableSchema {
        families: BTreeMap::from([(FamilyId(1), family)]),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    };
    let ranges = vec![(TabletId(1), RowRange::all())];
    server.lifecycle.create_empty(Arc::new(schema), ranges).await.unwrap();
    server
}

/// Tables that can be undeleted are not given up for it.
#[tokio::test]
async fn a_server_that_refuses_writes_for_flushes_is_not_short_of_space() {
    let server = server().await;
    server.parts.admission.set_disk_full(true, 0);
    assert!(server.is_refusing_writes() && !server.is_short_of_space().await);
    server.parts.admission.met_full_disk();
    assert!(server.is_short_of_space().await);
    server.shut_down().await;
}

async fn write(server: &TabletServer, value_bytes: u64) -> u64 {
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![7; value_bytes as usize]),
    };
    let row = RowMutation {
        row: Bytes::from_static(b"r"),
        mutations: vec![mutation],
    };
    server.write(TabletId(1), &vec![row].into(), None).await.unwrap();
    server.parts.context.memory.bytes()
}

/// The memtables are smaller than the size at which they are flushed by themselves.
#[tokio::test]
async fn memtables_are_flushed_for_a_write_that_waits() {
    let server = server().await;
    assert!(write(&server, 4 * MIB).await > 4 * MIB);
    assert!(write(&server, 30 * MIB).await < 31 * MIB);
    assert_eq!(server.parts.admission.expected_bytes(), 0);
    // Several concurrent writes, each of which would fit alone, do not add up.
    let writes = (0..4).map(|_| write(&server, 20 * MIB));
    let there = futures::future::join_all(writes).await;
    assert!(there.iter().all(|bytes| *bytes < 33 * MIB), "{there:?}");
    assert_eq!(server.parts.admission.batches.taken(), 0);
    server.shut_down().await;
}

/// Of mutations of one row the log has the row's key once, and the memtable each time.
#[tokio::test]
async fn what_memtables_take_for_a_write_counts_not_what_the_log_does() {
    let server = server().await;
    let mutation = |n| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(n),
        value: Bytes::new(),
    };
    let row = RowMutation {
        row: Bytes::from(vec![b'r'; 4 << 10]),
        mutations: (0..5_000).map(mutation).collect(),
    };
    let rows: RowWrites = vec![row].into();
    let write = async || {
        server.write(TabletId(1), &rows, None).await.unwrap();
        server.parts.context.memory.bytes()
    };
    let writes = (0..4).map(|_| write());
    let there = futures::future::join_all(writes).await;
    assert!(there.iter().all(|bytes| *bytes < 33 * MIB), "{there:?}");
    // More than all memtables may take, from a request of a few hundred kilobytes.
    let row = RowMutation {
        row: Bytes::from(vec![b'r'; 4 << 10]),
        mutations: (0..50_000).map(mutation).collect(),
    };
    let refused = server.write(TabletId(1), &vec![row].into(), None).await.err().unwrap();
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted, "{refused}");
    assert_eq!(server.parts.admission.expected_bytes(), 0);
    server.shut_down().await;
}
