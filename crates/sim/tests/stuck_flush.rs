//! A tablet that cannot be flushed for long.
//!
//! The other tablets of its log are written to all the time. The log stays bounded and the others go on. Once the
//! storage works again, or the server has restarted, nothing is lost and the log is short.

use crate::support::tables;

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::{Process, Sim};
use stele_storage::faulty::FaultyStorage;
use stele_storage::{Result, Storage, StorageError};
use stele_tabletserver::{MemtableLimits, ServerOptions};
use stele_types::{
    Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, TableName, TabletId, Timestamp,
};
use tables::plain_table;

/// More is a livelock.
const STEPS_MAX: u64 = 20_000_000;
/// Where the table is split: four tablets, two on each stream.
const SPLITS: [&[u8]; 3] = [b"b", b"c", b"d"];
/// Bytes of a value.
const VALUE_BYTES: usize = 500;
/// The limit of the log, which holds a second time for data that cannot be flushed.
const LOG_BYTES: u64 = 64 << 10;
/// The excess over that per log stream: writes until the next check.
const LATE_BYTES: u64 = 64 << 10;
/// Writes to each tablet: many times the limit of the log.
const ROUNDS: u32 = 2_000;

/// A storage that refuses the manifests of one tablet during an outage.
struct Ill {
    inner: Arc<FaultyStorage>,
    tablet: TabletId,
    is_ill: AtomicBool,
    error: fn(&str) -> StorageError,
}

fn eio(path: &str) -> StorageError {
    StorageError::Io {
        path: path.to_owned(),
        operation: "put",
        message: "planted".to_owned(),
    }
}

fn enospc(path: &str) -> StorageError {
    StorageError::NoSpace { path: path.to_owned() }
}

#[async_trait]
impl stele_storage::Layer for Ill {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        let tablet = stele_tablet::manifest::parse_path(path).map(|(tablet, _)| tablet);
        if self.is_ill.load(Ordering::Relaxed) && tablet == Some(self.tablet) {
            return Err((self.error)(path));
        }
        self.inner.put_if_absent(path, content).await
    }
}

fn settings() -> ServerOptions {
    ServerOptions {
        // Only the log asks for flushes.
        memory: None,
        memtables: MemtableLimits::new(64 << 20, 32 << 20),
        log_bytes_max: LOG_BYTES,
        log_segment_bytes: 8 << 10,
        log_streams: 2,
        tablet_bytes_max: 64 << 20,
        value_separate_bytes: 1 << 20,
        ..options()
    }
}

fn table() -> TableName {
    TableName::new("sim", "t")
}

async fn start(process: &Process, storage: Arc<dyn Storage>) -> Node {
    let node = open_node(process.clone(), process.env(), storage, settings(), CACHE_BYTES).await;
    node.expect("a start")
}

async fn write(node: &Node, row: &Bytes, durability: Durability) -> std::result::Result<(), ServiceError> {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![b'v'; VALUE_BYTES]),
    };
    let rows = vec![RowMutation {
        row: row.clone(),
        mutations: vec![put],
    }];
    let request = MutateRows {
        id: None,
        table: table(),
        rows: rows.into(),
        durability: Some(durability),
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

async fn rows(node: &Node) -> BTreeSet<Bytes> {
    let request = ReadRows::new(table(), RowSet::new(vec![RowRange::all()]));
    let mut stream = node.router.read_rows(request).await.expect("a healthy medium");
    let mut found = BTreeSet::new();
    while let Some(batch) = stream.next().await.expect("a healthy medium") {
        found.extend(batch.shared_rows().map(|(row, _)| row));
    }
    found
}

async fn log_bytes(storage: &FaultyStorage) -> u64 {
    let files = storage.list("log/").await.expect("a healthy medium");
    files.iter().map(|file| file.len).sum()
}

/// How the story ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The outage ends.
    Heals,
    /// The power fails; the outage ends.
    PowerLoss,
}

async fn story(sim: Sim, error: fn(&str) -> StorageError, end: End, durability: Durability) {
    let inner = FaultyStorage::new(sim.process().env());
    let process = sim.process();
    let node = start(&process, inner.clone()).await;
    let splits = SPLITS.map(Bytes::from_static).to_vec();
    let made = node.master.create_table(plain_table(table(), splits)).await;
    made.expect("a new table");
    let served = node.server().all_served();
    let first = served.iter().find(|served| served.tablet.range().contains(b"a"));
    let tablet = first.expect("the first tablet").tablet.id();
    node.server().shut_down().await;
    process.kill();

    let ill = Arc::new(Ill {
        inner: inner.clone(),
        tablet,
        is_ill: AtomicBool::new(false),
        error,
    });
    let process = sim.process();
    let node = start(&process, ill.clone()).await;
    ill.is_ill.store(true, Ordering::Relaxed);
    let (mut written, mut refused, mut longest) = (BTreeSet::new(), 0, 0);
    for n in 0..ROUNDS {
        for tablet_row in ["a", "b", "c", "d"] {
            let row = Bytes::from(format!("{tablet_row}{n:05}"));
            match write(&node, &row, durability).await {
                Ok(()) => drop(written.insert(row)),
                Err(error) => {
                    assert!(
                        tablet_row == "a" && error.kind == ErrorKind::ResourceExhausted,
                        "{row:?}: {error}"
                    );
                    let says = format!("tablet {tablet} cannot be flushed");
                    assert!(error.message.contains(&says), "{error}");
                    refused += 1;
                }
            }
        }
        if n % 20 == 0 {
            process.env().sleep(Duration::from_millis(300)).await;
            longest = longest.max(log_bytes(&inner).await);
        }
    }
    assert!(longest <= 2 * LOG_BYTES + LATE_BYTES, "{longest} bytes of log");
    assert!((1..ROUNDS).contains(&refused), "{refused} refused");
    let row = Bytes::from_static(b"a00000");
    assert!(rows(&node).await.contains(&row), "it is read all the time");

    ill.is_ill.store(false, Ordering::Relaxed);
    let (process, node) = match end {
        End::Heals => (process, node),
        End::PowerLoss => {
            process.kill();
            inner.crash();
            let process = sim.process();
            let node = start(&process, inner.reopen()).await;
            (process, node)
        }
    };
    process.env().sleep(Duration::from_secs(15)).await;
    let late = Bytes::from_static(b"a99999");
    write(&node, &late, durability).await.expect("it can be flushed again");
    written.insert(late);
    let bytes = log_bytes(&inner.reopen()).await;
    assert!(bytes <= LOG_BYTES + LATE_BYTES, "{bytes} bytes of log are left");
    let found = rows(&node).await;
    assert!(
        found == written || (end == End::PowerLoss && durability == Durability::Flush && found.is_subset(&written))
    );
    process.kill();
    // Once more, from the content of the storage.
    let process = sim.process();
    let node = start(&process, inner.reopen()).await;
    assert_eq!(rows(&node).await, found);
    process.kill();
}

fn run(error: fn(&str) -> StorageError, end: End, durability: Durability) {
    for seed in 1..4 {
        let sim = Sim::new(seed, STEPS_MAX);
        sim.run(story(sim.clone(), error, end, durability))
            .expect("no livelock");
    }
}

#[test]
fn a_tablet_whose_manifest_meets_errors_does_not_fill_the_log() {
    run(eio, End::Heals, Durability::Sync);
}

#[test]
fn a_tablet_that_finds_no_space_does_not_fill_the_log() {
    run(enospc, End::Heals, Durability::Flush);
}

#[test]
fn what_the_log_keeps_for_a_tablet_survives_power_loss() {
    run(eio, End::PowerLoss, Durability::Sync);
}

#[test]
fn power_loss_takes_what_was_not_synced_and_adds_nothing() {
    run(eio, End::PowerLoss, Durability::Flush);
}
