//! A server frees the memory of dropped tablets, and all memory when it ends.
//!
//! Reference cycles are the only way to leak memory, and nothing but its growth would show them.

use crate::support::tables;

use bytes::Bytes;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::Sim;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_tablet::Tablet;
use stele_types::{FamilyId, Mutation, RowMutation, RowRange, RowSet, TableName, Timestamp};
use tables::plain_table;

/// More is a livelock.
const STEPS_MAX: u64 = 2_000_000;
/// Rows to write: several times the size at which a tablet with these settings splits.
const ROWS: u32 = 400;
/// Time within which a tablet of [`ROWS`] is split and files of former tablets are deleted.
const SETTLED: Duration = Duration::from_secs(30);

/// Latency of each operation of the storage.
const LATENCY: Duration = Duration::from_millis(1);
/// Writes that are under way when a server is killed.
const UNDER_WAY: u32 = 30;

fn table(name: &str) -> TableName {
    TableName::new("freed", name)
}

async fn write(node: &Node, name: &str, number: u32) -> Result<(), ServiceError> {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![b'v'; 200]),
    };
    let row = RowMutation {
        row: Bytes::from(format!("row{number:05}")),
        mutations: vec![put],
    };
    let request = MutateRows {
        id: None,
        table: table(name),
        rows: vec![row].into(),
        durability: None,
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

/// By row, for the row cache, and as a whole.
async fn read(node: &Node, name: &str) -> Result<usize, ServiceError> {
    let rows = (0..ROWS).step_by(7).map(|n| Bytes::from(format!("row{n:05}")));
    let single = rows.map(|row| RowSet::new(vec![RowRange::single(&row)]));
    let mut found = 0;
    for rows in single.chain([RowSet::all()]) {
        let mut stream = node.router.read_rows(ReadRows::new(table(name), rows)).await?;
        while let Some(batch) = stream.next().await? {
            found += batch.shared_rows().count();
        }
    }
    Ok(found)
}

fn tablets(node: &Node) -> Vec<Weak<Tablet>> {
    let served = node.server().all_served();
    served.iter().map(|served| Arc::downgrade(&served.tablet)).collect()
}

/// How many of the tablets are in memory and not served.
fn kept(node: &Node, ever: &[Weak<Tablet>]) -> usize {
    let in_memory = ever.iter().filter(|tablet| tablet.strong_count() > 0).count();
    in_memory.saturating_sub(node.tablets())
}

async fn life(sim: Sim, storage: Arc<FaultyStorage>, stops: bool) -> Result<Vec<Weak<dyn Send + Sync>>, String> {
    let text = |e: ServiceError| e.to_string();
    let process = sim.process();
    let env = process.env();
    let node = open_node(process.clone(), env.clone(), storage, options(), CACHE_BYTES).await?;
    let mut ever = tablets(&node);
    for name in ["stays", "goes"] {
        node.master
            .create_table(plain_table(table(name), Vec::new()))
            .await
            .map_err(text)?;
        ever.extend(tablets(&node));
        for number in 0..ROWS {
            write(&node, name, number).await.map_err(text)?;
            if number % 100 == 99 {
                read(&node, name).await.map_err(text)?;
            }
        }
        env.sleep(SETTLED).await;
        read(&node, name).await.map_err(text)?;
    }
    if node.tablets() < 6 {
        return Err(format!("{} tablets: none was split", node.tablets()));
    }
    if kept(&node, &ever) > 0 {
        return Err("a tablet that was split is kept".to_owned());
    }
    let before = node.tablets();
    ever = tablets(&node);
    node.master.delete_table(&table("goes")).await.map_err(text)?;
    env.sleep(SETTLED).await;
    if node.tablets() >= before || kept(&node, &ever) > 0 {
        return Err("a tablet of a dropped table is kept".to_owned());
    }
    let mut all: Vec<Weak<dyn Send + Sync>> = Vec::new();
    for tablet in tablets(&node) {
        all.push(tablet);
    }
    all.push(Arc::downgrade(node.server()) as Weak<dyn Send + Sync>);
    all.push(Arc::downgrade(&node.master) as Weak<dyn Send + Sync>);
    all.push(Arc::downgrade(&node.router) as Weak<dyn Send + Sync>);
    if stops {
        node.server().shut_down().await;
        // Its loops wake up and end.
        env.sleep(SETTLED).await;
    } else {
        let node = Arc::new(node);
        for number in 0..UNDER_WAY {
            let node = node.clone();
            env.spawn("write", async move { drop(write(&node, "stays", number).await) });
        }
        // One is on its way to the storage, and the others are queued.
        env.sleep(LATENCY / 2).await;
        process.kill();
    }
    Ok(all)
}

#[test]
fn tablets_that_are_no_more_and_servers_that_ended_are_freed() {
    for stops in [false, true] {
        let sim = Sim::new(1, STEPS_MAX);
        let env = sim.process().env();
        let storage = FaultyStorage::new(env.clone());
        // Time for writes to queue up behind one another.
        storage.set_plan(FaultPlan {
            latency_min: LATENCY,
            latency_max: LATENCY,
            ..FaultPlan::default()
        });
        let living = life(sim.clone(), storage.clone(), stops);
        let checked = sim.run(async move {
            let held = living.await?;
            env.sleep(SETTLED).await;
            let kept = held.iter().filter(|held| held.strong_count() > 0).count();
            match kept {
                0 => Ok(()),
                _ => Err(format!("{kept} of {} parts of a server outlive it", held.len())),
            }
        });
        checked.expect("the run ends").unwrap();
        assert_eq!(Arc::strong_count(&storage), 1, "the medium is held");
    }
}
