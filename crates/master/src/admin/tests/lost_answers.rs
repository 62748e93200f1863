//! Replacements that the coordinator has carried out, and of which the answers were lost.
//!
//! Only a coordinator of many processes does that.

use super::*;
use stele_assignment::{Assignment, Owner};
use stele_catalog::{Homes, Reassignment, SchemaListener};
use stele_coord::Condition;
use stele_coord::watch::Watchers;
use stele_types::{Epoch, ServerId};
use tokio::sync::watch;

/// All new tablets are on server 1, which is known until their records exist.
#[derive(Default)]
struct First {
    has_forgotten: AtomicBool,
}

impl Homes for First {
    fn home_of(&self, _: TabletId) -> Option<Owner> {
        (!self.has_forgotten.load(Ordering::Relaxed)).then_some(Owner {
            server: ServerId(1),
            epoch: Epoch(1),
        })
    }
}

struct Deaf;

#[async_trait]
impl SchemaListener for Deaf {
    async fn changed(&self, _: Arc<TableSchema>) {}
}

/// A coordinator whose events can be held back.
struct Holding {
    env: Env,
    coord: Arc<dyn Coord>,
    holds: watch::Sender<bool>,
}

#[async_trait]
impl stele_coord::Layer for Holding {
    fn below(&self) -> &dyn Coord {
        &*self.coord
    }

    async fn watch(&self, prefix: &str) -> stele_coord::Result<Watch> {
        let mut events = self.coord.watch(prefix).await?;
        let mut watchers = Watchers::default();
        let told = watchers.watch(prefix)?;
        let mut holds = self.holds.subscribe();
        self.env.spawn("events", async move {
            while let Some(event) = events.next().await {
                if holds.wait_for(|holds| !holds).await.is_err() {
                    return;
                }
                watchers.send(&event);
            }
        });
        Ok(told)
    }
}

/// The master of a leader, over a coordinator that carries out transactions without an answer.
async fn leading() -> (Arc<Unsure>, (Arc<Catalog>, Arc<First>), Arc<Noting>, Arc<Master>) {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await.unwrap();
    leading_over(coord, env).await
}

async fn leading_over(
    coord: Arc<dyn Coord>,
    env: Env,
) -> (Arc<Unsure>, (Arc<Catalog>, Arc<First>), Arc<Noting>, Arc<Master>) {
    let coord = Arc::new(Unsure {
        coord,
        fails: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        unreachable: parking_lot::Mutex::default(),
        carries_out: true,
    });
    let elected = coord.txn(Txn {
        conditions: Vec::new(),
        writes: vec![Write::Put {
            key: "election/test".to_owned(),
            value: Bytes::new(),
        }],
    });
    let TxnOutcome::Committed { revision } = elected.await.unwrap() else {
        unreachable!("there is no condition")
    };
    let (catalog, follower) = Catalog::follow(coord.clone()).await.unwrap();
    env.spawn("follower", follower.run(env.clone(), Arc::new(Deaf)));
    let fence = Condition::version("election/test", revision);
    let homes = Arc::new(First::default());
    let catalog = catalog.lead(fence, homes.clone()).await.unwrap();
    let tablets = Arc::new(Noting::default());
    let master = Master::new(env, catalog.clone(), tablets.clone());
    (coord, (catalog, homes), tablets, master)
}

#[tokio::test]
async fn a_split_that_was_carried_out_without_an_answer_is_not_undone() {
    let (coord, (catalog, homes), tablets, master) = leading().await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let large = tablets.made.lock()[0];
    *tablets.large.lock() = Some(large);
    coord.fails.store(true, Ordering::Relaxed);
    master.split_due().await.unwrap_err();
    assert!(tablets.ended.lock().is_empty(), "it is not known yet");
    coord.fails.store(false, Ordering::Relaxed);
    homes.has_forgotten.store(true, Ordering::Relaxed);
    *tablets.large.lock() = None;
    master.split_due().await.unwrap();
    assert_eq!(*tablets.ended.lock(), [(large, true)]);
    assert_eq!(catalog.table(&name).unwrap().tablets().len(), 2);
}

/// The leader changes assignments concurrently with its master. Such a change settles the split before the view has either.
#[tokio::test]
async fn a_split_that_a_change_of_assignments_has_settled_is_not_undone() {
    let env = TokioRuntime::current();
    let holding = Arc::new(Holding {
        env: env.clone(),
        coord: EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await.unwrap(),
        holds: watch::Sender::new(false),
    });
    let (coord, (catalog, _), tablets, master) = leading_over(holding.clone(), env.clone()).await;
    let (name, other) = (TableName::new("n", "t"), TableName::new("n", "u"));
    master.create_table(new_table(&name)).await.unwrap();
    master.create_table(new_table(&other)).await.unwrap();
    let large = tablets.made.lock()[0];
    *tablets.large.lock() = Some(large);
    coord.fails.store(true, Ordering::Relaxed);
    holding.holds.send_replace(true);
    master.split_due().await.unwrap_err();
    coord.fails.store(false, Ordering::Relaxed);
    *tablets.large.lock() = None;
    let moved = catalog.table(&other).unwrap().tablets()[0].clone();
    let change = Reassignment {
        tablet: moved.id,
        seen: moved.assignment.clone(),
        next: Assignment {
            moving_to: Some(ServerId(2)),
            ..moved.assignment
        },
    };
    let reassigning = tokio::spawn({
        let catalog = catalog.clone();
        async move { catalog.reassign(&[change]).await }
    });
    let deciding = tokio::spawn({
        let master = master.clone();
        async move { master.split_due().await }
    });
    env.sleep(Duration::from_millis(50)).await;
    assert!(!reassigning.is_finished(), "its events are held back");
    holding.holds.send_replace(false);
    assert_eq!(reassigning.await.unwrap().unwrap(), 1);
    deciding.await.unwrap().unwrap();
    assert_eq!(*tablets.ended.lock(), [(large, true)]);
    assert_eq!(catalog.table(&name).unwrap().tablets().len(), 2);
}

#[tokio::test]
async fn a_truncation_that_was_carried_out_without_an_answer_is_not_undone() {
    let (coord, (catalog, homes), tablets, master) = leading().await;
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();
    let before = catalog.table(&name).unwrap();
    coord.fails.store(true, Ordering::Relaxed);
    master.truncate(&name, true).await.unwrap_err();
    coord.fails.store(false, Ordering::Relaxed);
    homes.has_forgotten.store(true, Ordering::Relaxed);
    master.split_due().await.unwrap();
    let after = catalog.table(&name).unwrap();
    assert_ne!(after.tablet_set, before.tablet_set);
    assert_eq!(*tablets.ended.lock(), [(before.tablets()[0].id, true)]);
    let named = format!("catalog/tablet/{:016x}/", after.tablet_set.0);
    assert_eq!(
        coord.list(&named).await.unwrap().len(),
        1,
        "the records that the table names"
    );
}
