//! The time that a split, and a deletion of rows, keep writes waiting.

use crate::support::tables;

use bytes::Bytes;
use std::time::Duration;
use stele_client::{MutateRows, ServiceError, TableAdmin, TableService, TabletControl};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::Sim;
use stele_storage::memory::MemoryStorage;
use stele_types::{FamilyId, Mutation, RowMutation, RowRange, TableName, TabletId, Timestamp};
use tables::plain_table;
use tokio::sync::oneshot;

/// Steps of the run; more is a livelock.
const STEPS_MAX: u64 = 1_000_000;
/// Longest time of a write that nothing delays.
const AT_ONCE: Duration = Duration::from_secs(1);

fn table() -> TableName {
    TableName::new("split", "rows")
}

async fn write(node: &Node, number: u32) -> Result<(), ServiceError> {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"a value of some length"),
    };
    let request = MutateRows {
        id: None,
        table: table(),
        rows: vec![RowMutation {
            row: Bytes::from(format!("row{number:03}")),
            mutations: vec![put],
        }]
        .into(),
        durability: None,
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

async fn split_during_a_compaction(sim: Sim) -> Result<(), String> {
    let text = |e: ServiceError| e.to_string();
    let process = sim.process();
    let env = process.env();
    let node = open_node(process, env.clone(), MemoryStorage::new(), options(), CACHE_BYTES).await?;
    node.master
        .create_table(plain_table(table(), Vec::new()))
        .await
        .map_err(text)?;
    for number in 0..100 {
        write(&node, number).await.map_err(text)?;
    }
    let server = node.server().clone();
    let served = server.all_served().pop().ok_or("no tablet")?;
    let tablet = served.tablet.id();
    // As one that takes long does.
    let compacting = served.tablet.stop_compactions().await;
    let splitting = server.clone();
    let (done, mut prepared) = oneshot::channel();
    env.spawn("split", async move {
        let _ = done.send(
            splitting
                .prepare_split(tablet, (TabletId(1000), TabletId(1001)), None)
                .await,
        );
    });
    env.sleep(Duration::from_secs(5)).await;
    let written = env.timeout(AT_ONCE, write(&node, 500)).await;
    written
        .map_err(|_| "a write waits for the compaction that the split waits for")?
        .map_err(text)?;
    if prepared.try_recv().is_ok() {
        return Err("a tablet is divided while a compaction replaces its files".to_owned());
    }
    drop(compacting);
    let row = prepared.await.map_err(|_| "the split was dropped")?.map_err(text)?;
    if row.is_none() {
        return Err("a hundred rows are not divided".to_owned());
    }
    // Between its halves it takes no writes.
    if let Ok(Ok(())) = env.timeout(AT_ONCE, write(&node, 501)).await {
        return Err("a write got into a tablet that is divided".to_owned());
    }
    server.finish_replacement(tablet, false).await;
    write(&node, 502).await.map_err(text)
}

async fn drop_rows_during_a_compaction(sim: Sim) -> Result<(), String> {
    let text = |e: ServiceError| e.to_string();
    let process = sim.process();
    let env = process.env();
    let node = open_node(process, env.clone(), MemoryStorage::new(), options(), CACHE_BYTES).await?;
    node.master
        .create_table(plain_table(table(), Vec::new()))
        .await
        .map_err(text)?;
    write(&node, 1).await.map_err(text)?;
    let server = node.server().clone();
    let served = server.all_served().pop().ok_or("no tablet")?;
    let tablet = served.tablet.id();
    let compacting = served.tablet.stop_compactions().await;
    let dropping = server.clone();
    let (done, dropped) = oneshot::channel();
    env.spawn("drop", async move {
        let _ = done.send(dropping.drop_rows(tablet, RowRange::all()).await);
    });
    env.sleep(Duration::from_secs(5)).await;
    let written = env.timeout(AT_ONCE, write(&node, 2)).await;
    written
        .map_err(|_| "a write waits for the compaction that the deletion waits for")?
        .map_err(text)?;
    drop(compacting);
    dropped.await.map_err(|_| "the deletion was dropped")?.map_err(text)?;
    if served.tablet.state().file_bytes() > 0 {
        return Err("rows are left".to_owned());
    }
    write(&node, 3).await.map_err(text)
}

#[test]
fn a_running_compaction_keeps_a_deletion_of_rows_waiting_and_not_the_writers() {
    let sim = Sim::new(1, STEPS_MAX);
    let outcome = sim.run(drop_rows_during_a_compaction(sim.clone()));
    outcome.expect("the run ends").unwrap();
}

#[test]
fn a_running_compaction_keeps_the_split_waiting_and_not_the_writers() {
    let sim = Sim::new(1, STEPS_MAX);
    let outcome = sim.run(split_during_a_compaction(sim.clone()));
    outcome.expect("the run ends").unwrap();
}
