//! A disk that is full at any point loses nothing acknowledged.
//!
//! A server writes, flushes and compacts while the storage accepts only a limited number of further bytes. The limit is
//! moved over the whole range, so that each kind of file is once the one that does not fit. Then there is space again:
//! writes go on without a restart. Then the power fails, and all acknowledged writes are there.

use crate::support::tables;

use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::Sim;
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_types::{ErrorKind, FamilyId, Mutation, RowMutation, RowSet, TableName, Timestamp};
use tables::plain_table;

/// Steps of one run; more is a livelock.
const STEPS_MAX: u64 = 3_000_000;
/// Writes of a run, and bytes of each value: some 100 KB in all, several memtables.
const WRITES: u64 = 60;
const VALUE_BYTES: usize = 1_500;

fn table() -> TableName {
    TableName::new("full", "disk")
}

async fn write(node: &Node, row: &Bytes) -> Result<(), ServiceError> {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![row.len() as u8; VALUE_BYTES]),
    };
    let request = MutateRows {
        id: None,
        table: table(),
        rows: vec![RowMutation {
            row: row.clone(),
            mutations: vec![put],
        }]
        .into(),
        durability: None,
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

async fn rows(node: &Node) -> Result<BTreeSet<Bytes>, ServiceError> {
    let mut stream = node.router.read_rows(ReadRows::new(table(), RowSet::all())).await?;
    let mut found = BTreeSet::new();
    while let Some(batch) = stream.next().await? {
        found.extend(batch.shared_rows().map(|(row, _)| row));
    }
    Ok(found)
}

/// How many writes were acknowledged and refused while there were `reservation` bytes.
async fn live(sim: Sim, reservation: u64) -> Result<(u64, u64), String> {
    let text = |e: ServiceError| e.to_string();
    let storage = FaultyStorage::new(sim.process().env());
    let process = sim.process();
    let env = process.env();
    let settings = || {
        let mut settings = options();
        // No space is reserved, or writes would be refused before any operation fails.
        settings.free_bytes_min = 0;
        settings
    };
    let node = open_node(process.clone(), env.clone(), storage.clone(), settings(), CACHE_BYTES).await?;
    node.master
        .create_table(plain_table(table(), Vec::new()))
        .await
        .map_err(text)?;
    let used: u64 = storage
        .list("")
        .await
        .map_err(|e| e.to_string())?
        .iter()
        .map(|f| f.len)
        .sum();
    storage.set_plan(FaultPlan {
        space_limit: Some(used + reservation),
        ..FaultPlan::default()
    });
    let mut acknowledged = BTreeSet::new();
    let mut refused = 0;
    for n in 0..WRITES {
        let row = Bytes::from(format!("row{n:03}"));
        match write(&node, &row).await {
            Ok(()) => drop(acknowledged.insert(row)),
            Err(error) if matches!(error.kind, ErrorKind::ResourceExhausted | ErrorKind::Busy) => refused += 1,
            Err(error) => return Err(format!("a full disk is told as {:?}: {error}", error.kind)),
        }
        env.sleep(Duration::from_millis(20)).await;
    }
    let missing = |found: &BTreeSet<Bytes>| acknowledged.difference(found).next().cloned();
    if let Some(row) = missing(&rows(&node).await.map_err(text)?) {
        return Err(format!("{row:?} is missing while the disk is full"));
    }
    storage.set_plan(FaultPlan::default());
    env.sleep(Duration::from_secs(5)).await;
    let more = Bytes::from_static(b"more");
    write(&node, &more).await.map_err(|e| format!("with room again: {e}"))?;
    process.kill();
    storage.crash();
    let storage = storage.reopen();
    let process = sim.process();
    let node = open_node(process.clone(), process.env(), storage, settings(), CACHE_BYTES).await?;
    let found = rows(&node).await.map_err(text)?;
    process.kill();
    if let Some(row) = missing(&found) {
        return Err(format!("{row:?} is missing after a power loss"));
    }
    if found.contains(&more) {
        Ok((acknowledged.len() as u64, refused))
    } else {
        Err("what was written with room again is missing".to_owned())
    }
}

#[test]
fn nothing_is_lost_wherever_the_disk_is_full() {
    let (mut acknowledged, mut refused) = (0, 0);
    let mut failures = Vec::new();
    for step in 0..45u64 {
        let reservation = step * 4_211;
        let sim = Sim::new(step, STEPS_MAX);
        match sim
            .run(live(sim.clone(), reservation))
            .unwrap_or_else(|stalled| Err(stalled.to_string()))
        {
            Ok((a, r)) => (acknowledged, refused) = (acknowledged + a, refused + r),
            Err(why) => failures.push(format!("{reservation} bytes of room: {why}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // Most of the range is neither empty nor roomy.
    assert!(
        acknowledged > 500 && refused > 250,
        "{acknowledged} acknowledged, {refused} refused"
    );
}

/// Overwrites a few rows until several times the disk was written, with a reserve. Garbage would fill the disk, so all
/// of it must be accepted in the end without any outside help. Returns the number of refusals on the way.
async fn overwrite(sim: Sim, reservation: u64) -> Result<u64, String> {
    let text = |e: ServiceError| e.to_string();
    let storage = FaultyStorage::new(sim.process().env());
    let process = sim.process();
    let env = process.env();
    let node = open_node(process.clone(), env.clone(), storage.clone(), options(), CACHE_BYTES).await?;
    node.master
        .create_table(plain_table(table(), Vec::new()))
        .await
        .map_err(text)?;
    let files = storage.list("").await.map_err(|e| e.to_string())?;
    let used: u64 = files.iter().map(|f| f.len).sum();
    storage.set_plan(FaultPlan {
        space_limit: Some(used + reservation),
        ..FaultPlan::default()
    });
    let mut refused = 0;
    for n in 0..OVERWRITES {
        let row = Bytes::from(format!("row{}", n % OVERWRITTEN_ROWS));
        let mut tries = 0;
        loop {
            match write(&node, &row).await {
                Ok(()) => break,
                Err(error) if matches!(error.kind, ErrorKind::ResourceExhausted | ErrorKind::Busy) => refused += 1,
                Err(error) => return Err(format!("a full disk is told as {:?}: {error}", error.kind)),
            }
            tries += 1;
            if tries > 100 {
                return Err(format!("write {n} is refused for good"));
            }
            if n >= OVERWRITTEN_ROWS && rows(&node).await.map_err(text)?.len() as u64 != OVERWRITTEN_ROWS {
                return Err("rows are missing while the disk is full".to_owned());
            }
            env.sleep(Duration::from_millis(100)).await;
        }
        env.sleep(Duration::from_millis(5)).await;
    }
    process.kill();
    Ok(refused)
}

const OVERWRITES: u64 = 400;
const OVERWRITTEN_ROWS: u64 = 8;

#[test]
fn a_disk_full_of_garbage_frees_itself() {
    let mut failures = Vec::new();
    let mut refused = 0;
    // From three times the live data plus the reserve and a segment of the log: less is left than a tablet takes.
    for step in 0..60u64 {
        let reservation = 45_000 + step * 2_503;
        let sim = Sim::new(step, 4 * STEPS_MAX);
        match sim
            .run(overwrite(sim.clone(), reservation))
            .unwrap_or_else(|stalled| Err(stalled.to_string()))
        {
            Ok(some) => refused += some,
            Err(why) => failures.push(format!("{reservation} bytes of room: {why}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(refused > 0, "no disk was ever full");
}
