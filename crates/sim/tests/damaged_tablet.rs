//! A tablet that cannot be served does not affect the others.
//!
//! Its log is kept within a bound. A server with several tablets on two log streams is killed; the manifest of one
//! tablet is damaged, or names files of a locality group that the catalog lacks. Life after life the other tablets are
//! written to. When the manifest is whole again, everything is there.

use crate::support::tables;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::{Process, Sim};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::manifest::{GroupFiles, Manifest};
use stele_tabletserver::{MemtableLimits, ServerOptions};
use stele_types::{Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, TableName, Timestamp};
use tables::plain_table;

/// More is a livelock.
const STEPS_MAX: u64 = 5_000_000;
/// Where the table is split: four tablets, two on each stream.
const SPLITS: [&[u8]; 3] = [b"b", b"c", b"d"];
/// Bytes of a value.
const VALUE_BYTES: usize = 500;
/// The limit of the log.
const LOG_BYTES: u64 = 64 << 10;

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

async fn start(process: &Process, storage: &Arc<MemoryStorage>) -> Node {
    let node = open_node(process.clone(), process.env(), storage.clone(), settings(), CACHE_BYTES).await;
    node.expect("damage to a tablet does not stop a server")
}

async fn make_table(node: &Node) {
    let new = plain_table(table(), SPLITS.map(Bytes::from_static).to_vec());
    node.master.create_table(new).await.expect("a new table");
}

async fn write(node: &Node, row: &Bytes) -> Result<(), ServiceError> {
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
        durability: Some(Durability::Sync),
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

async fn read(node: &Node, range: RowRange) -> Result<Vec<Bytes>, ServiceError> {
    let request = ReadRows::new(table(), RowSet::new(vec![range]));
    let mut stream = node.router.read_rows(request).await?;
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await? {
        found.extend(batch.shared_rows().map(|(row, _)| row));
    }
    Ok(found)
}

async fn write_all(node: &Node, tablets: &[&str], numbers: std::ops::Range<u32>, written: &mut Vec<Bytes>) {
    for n in numbers {
        for tablet in tablets {
            let row = Bytes::from(format!("{tablet}{n:05}"));
            write(node, &row).await.expect("a healthy tablet");
            written.push(row);
        }
    }
}

async fn log_bytes(storage: &MemoryStorage) -> u64 {
    let files = storage.list("log/").await.expect("memory does not fail");
    files.iter().map(|file| file.len).sum()
}

async fn replace(storage: &MemoryStorage, path: &str, content: Bytes) {
    storage.delete(path).await.expect("memory does not fail");
    let put = storage.put_if_absent(path, content).await;
    put.expect("nobody else writes");
}

/// The newest manifest of each tablet, by its first row.
async fn manifests(storage: &MemoryStorage) -> BTreeMap<Bytes, (String, Bytes)> {
    let mut newest = BTreeMap::new();
    for file in storage.list("tablets/").await.expect("memory does not fail") {
        let content = storage.read_all(&file.path).await.expect("memory does not fail");
        let manifest = Manifest::decode_file(&file.path, &content).expect("a whole manifest");
        newest.insert(manifest.start.clone(), (file.path, content));
    }
    newest
}

/// As damage leaves it, or a catalog that forgot a locality group.
type Spoil = fn(&str, &Bytes) -> Bytes;

fn flipped(_: &str, content: &Bytes) -> Bytes {
    let mut damaged = content.to_vec();
    damaged[30] ^= 1;
    damaged.into()
}

fn of_unknown_group(path: &str, content: &Bytes) -> Bytes {
    let mut manifest = Manifest::decode_file(path, content).expect("a whole manifest");
    let files = std::mem::take(&mut manifest.groups)
        .into_iter()
        .flat_map(|group| group.files);
    manifest.groups = vec![GroupFiles {
        group: 7,
        files: files.collect(),
    }];
    manifest.encode_file()
}

async fn lives(sim: Sim, spoil: Spoil) {
    let storage = MemoryStorage::new();
    let mut written = Vec::new();
    let process = sim.process();
    let node = start(&process, &storage).await;
    make_table(&node).await;
    write_all(&node, &["a", "b", "c", "d"], 0..2, &mut written).await;
    for served in node.server().all_served() {
        served.tablet.flush().await.expect("memory does not fail");
    }
    write_all(&node, &["a", "b", "c", "d"], 2..20, &mut written).await;
    process.kill();
    let (path, whole) = manifests(&storage).await.remove(&b""[..]).expect("a manifest");
    replace(&storage, &path, spoil(&path, &whole)).await;
    let spoilt = storage.read_all(&path).await.expect("memory does not fail");

    for life in 1..5 {
        let process = sim.process();
        let node = start(&process, &storage).await;
        assert_eq!(node.server().damaged_tablets().len(), 1);
        write_all(&node, &["b", "c", "d"], life * 200..life * 200 + 200, &mut written).await;
        let refused = write(&node, &Bytes::from_static(b"a"))
            .await
            .expect_err("nobody knows the tablet");
        assert_eq!(refused.kind, ErrorKind::Corruption, "{refused}");
        let refused = read(&node, RowRange::all()).await.expect_err("a part is missing");
        assert_eq!(refused.kind, ErrorKind::Corruption, "{refused}");
        process.env().sleep(Duration::from_secs(2)).await;
        let bytes = log_bytes(&storage).await;
        assert!(bytes < 3 * LOG_BYTES, "life {life}: {bytes} bytes of log");
        let from_b = RowRange {
            start: Bytes::from_static(b"b"),
            end: None,
        };
        let rows = read(&node, from_b).await.expect("healthy tablets");
        let expected = written.iter().filter(|row| row[0] != b'a').count();
        assert_eq!(rows.len(), expected);
        process.kill();
    }
    // Each life has claimed the tablet that it then set aside, if it could read the manifest.
    for file in storage.list("tablets/").await.expect("memory does not fail") {
        let content = storage.read_all(&file.path).await.expect("memory does not fail");
        let is_spoilt = content == spoilt
            || Manifest::decode_file(&file.path, &content).is_ok_and(|m| m.groups.iter().any(|group| group.group == 7));
        if is_spoilt {
            let mut manifest = Manifest::decode_file(&path, &whole).expect("it was whole");
            if let Ok(claimed) = Manifest::decode_file(&file.path, &content) {
                manifest.epoch = claimed.epoch;
            }
            replace(&storage, &file.path, manifest.encode_file()).await;
        }
    }
    let process = sim.process();
    let node = start(&process, &storage).await;
    assert_eq!(node.server().damaged_tablets().len(), 0);
    let mut rows = read(&node, RowRange::all()).await.expect("everything is whole");
    rows.sort();
    written.sort();
    assert_eq!(rows, written);
    process.kill();
}

fn run(spoil: Spoil) {
    let sim = Sim::new(1, STEPS_MAX);
    sim.run(lives(sim.clone(), spoil)).expect("no livelock");
}

#[test]
fn the_log_of_a_tablet_with_a_damaged_manifest_is_kept_and_bounded() {
    run(flipped);
}

#[test]
fn a_tablet_with_files_of_an_unknown_group_is_set_aside() {
    run(of_unknown_group);
}
