//! Files of snapshots stay as long as a snapshot names them, and go afterwards.

use crate::support::tables::plain_table;

use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{MutateRows, NewSnapshot, ReadRows, ServiceResult, SnapshotName, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::{Process, Sim};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::snapshot;
use stele_tabletserver::ServerOptions;
use stele_types::{Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowSet, SnapshotId, TableName, Timestamp};

/// More is a livelock.
const STEPS_MAX: u64 = 5_000_000;
/// Large enough for value files.
const VALUE_BYTES: usize = 4_000;

fn table() -> TableName {
    TableName::new("sim", "t")
}

fn clone() -> TableName {
    TableName::new("sim", "clone")
}

fn name() -> SnapshotName {
    SnapshotName::new("sim", "s")
}

async fn start(process: &Process, storage: &Arc<MemoryStorage>) -> Node {
    let settings = ServerOptions {
        memory: None,
        value_separate_bytes: VALUE_BYTES / 2,
        ..options()
    };
    let node = open_node(process.clone(), process.env(), storage.clone(), settings, CACHE_BYTES).await;
    node.expect("a start on a healthy medium")
}

async fn write(node: &Node, table: &TableName, row: &'static str) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![row.as_bytes()[0]; VALUE_BYTES]),
    };
    let rows = vec![RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![put],
    }];
    let request = MutateRows {
        id: None,
        table: table.clone(),
        rows: rows.into(),
        durability: Some(Durability::Sync),
    };
    let written = node.router.mutate_rows(request).await.expect("a healthy server");
    written.into_iter().for_each(|row| row.expect("a healthy server"));
}

/// The rows, whose values must be those that were written.
async fn read(node: &Node, table: &TableName) -> ServiceResult<Vec<String>> {
    let request = ReadRows::new(table.clone(), RowSet::all());
    let mut stream = node.router.read_rows(request).await?;
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await? {
        for (row, cells) in batch.shared_rows() {
            assert!(cells.iter().all(|cell| cell.value == vec![row[0]; VALUE_BYTES]));
            found.push(row.escape_ascii().to_string());
        }
    }
    Ok(found)
}

async fn take(node: &Node) {
    let new = NewSnapshot {
        name: name(),
        table: table(),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.master.create_snapshot(new).await.expect("a healthy server");
}

/// Long enough for compactions, and for the deletion of obsolete files.
async fn pause(process: &Process) {
    process.env().sleep(Duration::from_secs(5)).await;
}

async fn files(storage: &MemoryStorage, prefix: &str) -> BTreeSet<String> {
    let files = storage.list(prefix).await.expect("memory does not fail");
    files.into_iter().map(|file| file.path).collect()
}

async fn stored(storage: &MemoryStorage) -> BTreeSet<String> {
    let mut stored = BTreeSet::new();
    for path in files(storage, snapshot::DIRECTORY).await {
        let (id, part) = snapshot::parse_path(&path).expect("a part");
        let part = snapshot::read(storage, id, part).await.expect("a whole part");
        stored.extend(part.stored().map(|(file, _)| file.path()));
    }
    stored
}

async fn with_snapshot(process: &Process, storage: &Arc<MemoryStorage>) -> Node {
    let node = start(process, storage).await;
    let new = plain_table(table(), vec![Bytes::from_static(b"m")]);
    node.master.create_table(new).await.expect("a new table");
    for row in ["a", "c", "x", "z"] {
        write(&node, &table(), row).await;
    }
    take(&node).await;
    node
}

/// The table is compacted, truncated and dropped, and the server starts again.
async fn files_stay(sim: Sim) {
    let storage = MemoryStorage::new();
    let process = sim.process();
    let node = with_snapshot(&process, &storage).await;
    let held = stored(&storage).await;
    assert!(held.iter().any(|path| path.ends_with(".val")), "{held:?}");
    write(&node, &table(), "b").await;
    node.master.compact(&table(), None, true).await.expect("taken");
    pause(&process).await;
    assert!(held.is_subset(&files(&storage, "sst/").await), "compacted");
    node.master.truncate(&table(), false).await.expect("a healthy server");
    pause(&process).await;
    assert!(held.is_subset(&files(&storage, "sst/").await), "truncated");
    assert_eq!(
        node.server().obsolete_bytes(),
        0,
        "held files are not counted as obsolete"
    );
    node.master.delete_table(&table()).await.expect("a healthy server");
    process.kill();
    let process = sim.process();
    let node = start(&process, &storage).await;
    pause(&process).await;
    assert_eq!(files(&storage, "sst/").await, held, "dropped, and swept by a start");
    let cloned = node.master.clone_snapshot(&name(), &clone(), None).await;
    assert_eq!(cloned.expect("a healthy server").name, clone());
    assert_eq!(read(&node, &clone()).await.expect("all there"), ["a", "c", "x", "z"]);
    node.master.delete_snapshot(&name()).await.expect("a healthy server");
    pause(&process).await;
    assert_eq!(files(&storage, "sst/").await, held, "the clone needs them");
    assert!(files(&storage, snapshot::DIRECTORY).await.is_empty());
    node.master.delete_table(&clone()).await.expect("a healthy server");
    pause(&process).await;
    assert!(files(&storage, "sst/").await.is_empty(), "nobody needs them");
    process.kill();
}

#[test]
fn files_of_a_snapshot_stay_until_nothing_needs_them() {
    let sim = Sim::new(1, STEPS_MAX);
    sim.run(files_stay(sim.clone())).expect("no livelock");
}

/// A reader holds a file that no tablet refers to, and a clone takes it up again.
async fn taken_up(sim: Sim) {
    let storage = MemoryStorage::new();
    let process = sim.process();
    let node = with_snapshot(&process, &storage).await;
    let request = ReadRows::new(table(), RowSet::all());
    let mut stream = node.router.read_rows(request).await.expect("a healthy server");
    node.master.truncate(&table(), true).await.expect("a healthy server");
    let _ = stream.next().await;
    node.master
        .clone_snapshot(&name(), &clone(), None)
        .await
        .expect("a healthy server");
    node.master.delete_snapshot(&name()).await.expect("a healthy server");
    drop(stream);
    pause(&process).await;
    assert_eq!(read(&node, &clone()).await.expect("all there"), ["a", "c", "x", "z"]);
    assert_eq!(node.server().obsolete_bytes(), 0);
    write(&node, &clone(), "b").await;
    node.master.compact(&clone(), None, true).await.expect("taken");
    pause(&process).await;
    assert_eq!(
        read(&node, &clone()).await.expect("all there"),
        ["a", "b", "c", "x", "z"]
    );
    process.kill();
    let process = sim.process();
    let node = start(&process, &storage).await;
    assert_eq!(
        read(&node, &clone()).await.expect("all there"),
        ["a", "b", "c", "x", "z"]
    );
    process.kill();
}

#[test]
fn a_clone_takes_up_files_that_a_reader_holds() {
    let sim = Sim::new(1, STEPS_MAX);
    sim.run(taken_up(sim.clone())).expect("no livelock");
}

/// Parts that no record names are of a snapshot that was not finished.
async fn half_taken(sim: Sim) {
    let storage = MemoryStorage::new();
    let process = sim.process();
    let node = with_snapshot(&process, &storage).await;
    let path = files(&storage, snapshot::DIRECTORY).await.pop_first().expect("a part");
    let whole = storage.read_all(&path).await.expect("memory does not fail");
    let other = snapshot::path(SnapshotId(99), 0);
    storage
        .put_if_absent(&other, whole.clone())
        .await
        .expect("nobody else writes");
    process.kill();
    drop(node);
    let process = sim.process();
    let node = start(&process, &storage).await;
    pause(&process).await;
    assert_eq!(
        files(&storage, snapshot::DIRECTORY).await,
        BTreeSet::from([path.clone()])
    );
    // A part that cannot be read: nobody knows the files that it names, so they stay.
    node.master.delete_table(&table()).await.expect("a healthy server");
    process.kill();
    let before = files(&storage, "sst/").await;
    storage.delete(&path).await.expect("memory does not fail");
    let process = sim.process();
    let node = start(&process, &storage).await;
    pause(&process).await;
    assert_eq!(files(&storage, "sst/").await, before);
    let refused = node.master.clone_snapshot(&name(), &clone(), None).await;
    assert_eq!(refused.expect_err("its files are unknown").kind, ErrorKind::Corruption);
    node.master.delete_snapshot(&name()).await.expect("a healthy server");
    process.kill();
    let process = sim.process();
    let _node = start(&process, &storage).await;
    pause(&process).await;
    assert!(files(&storage, "sst/").await.is_empty(), "nobody needs them");
    process.kill();
}

#[test]
fn a_start_removes_half_of_a_snapshot_and_keeps_files_that_a_damaged_one_may_name() {
    let sim = Sim::new(1, STEPS_MAX);
    sim.run(half_taken(sim.clone())).expect("no livelock");
}

/// A restore replaces rows, tablets and families in one step, and survives the end of the process.
async fn restored(sim: Sim) {
    let storage = MemoryStorage::new();
    let process = sim.process();
    let node = with_snapshot(&process, &storage).await;
    write(&node, &table(), "b").await;
    let copy = stele_client::SnapshotCopy {
        source: name(),
        name: SnapshotName::new("sim", "copy"),
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.master.copy_snapshot(copy).await.expect("a healthy server");
    node.master.delete_snapshot(&name()).await.expect("a healthy server");
    node.master.truncate(&table(), false).await.expect("a healthy server");
    write(&node, &table(), "q").await;
    let copy = SnapshotName::new("sim", "copy");
    let schema = node
        .master
        .restore_snapshot(&copy, &table())
        .await
        .expect("a healthy server");
    assert_eq!(read(&node, &table()).await.expect("all there"), ["a", "c", "x", "z"]);
    assert_eq!(node.tablets(), 2, "those of the snapshot");
    let served = node.server().all_served();
    assert!(
        served
            .iter()
            .all(|served| served.tablet.schema().version == schema.version)
    );
    write(&node, &table(), "d").await;
    process.kill();
    let process = sim.process();
    let node = start(&process, &storage).await;
    assert_eq!(
        read(&node, &table()).await.expect("all there"),
        ["a", "c", "d", "x", "z"]
    );
    process.kill();
}

#[test]
fn a_restore_replaces_everything_in_one_step() {
    let sim = Sim::new(1, STEPS_MAX);
    sim.run(restored(sim.clone())).expect("no livelock");
}
