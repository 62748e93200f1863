//! Writes of a restore that are carried out without an answer.

use super::*;
use crate::{Archives, Backups, DataRoot, Places};
use async_trait::async_trait;
use std::sync::atomic::{AtomicUsize, Ordering};
use stele_client::{RowOutcome, RowStream, ServiceError, TabletRead, TabletRowOperation, TabletSample, TabletService};
use stele_tabletserver::TabletServer;
use stele_types::{Durability, RowWrites, TabletId};

/// Tablets of which the next answers to writes are lost.
struct Lossy {
    tablets: Arc<TabletServer>,
    lost: AtomicUsize,
}

#[async_trait]
impl TabletService for Lossy {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.tablets.read(tablet, request).await
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        self.tablets.mutate(tablet, rows, durability).await?;
        let (is, to) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.lost.fetch_update(is, to, |left| left.checked_sub(1)) {
            Ok(_) => Err(ServiceError::new(ErrorKind::Aborted, "planted")),
            Err(_) => Ok(()),
        }
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        self.tablets.row_operation(tablet, request).await
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        self.tablets.sample(tablet, every).await
    }
}

/// Restores to a moment into a new cluster, which loses some answers.
async fn restored(world: &World, at: i64, lost: usize) -> ServiceResult<Node> {
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    let archive = copy(&world.archive).await;
    let mut node = start(&empty, &world.backups).await;
    let tablets = Arc::new(Lossy {
        tablets: node.server.clone(),
        lost: AtomicUsize::new(lost),
    });
    let root = DataRoot::new(
        node.env.clone(),
        node.catalog.clone(),
        node.master.clone(),
        node.server.clone(),
    );
    let root = root.with_clock(node.clock.clone()).with_tablets(tablets.clone());
    node.backups = Backups::new(root, opening(&world.backups));
    node.backups.clone().with_archives(Archives {
        places: Places::new(opening(&archive)),
        own: Some(archive_place()),
    });
    restore_at(&node, restore(), at).await?;
    assert_eq!(tablets.lost.load(Ordering::Relaxed), 0);
    Ok(node)
}

#[tokio::test]
async fn a_restore_to_a_moment_repeats_writes_without_an_answer() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    write_concurrently(&world.node, "t", 1).await;
    world.node.done("b", create()).await;
    write_concurrently(&world.node, "t", 2).await;
    let (rows, at) = (world.node.rows("t", false).await, world.node.moment().await);
    world.node.archive().await;
    // One for each of the two tablets, and one again.
    let node = restored(&world, at, 3).await.map_err(|error| error.message).unwrap();
    assert!(node.rows("t", false).await == rows);
}

#[tokio::test]
async fn additions_without_an_answer_are_not_repeated() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    add_sums(&world.node).await;
    world.node.done("b", create()).await;
    add(&world.node, 3).await;
    let (rows, at) = (world.node.rows("t", false).await, world.node.moment().await);
    world.node.archive().await;
    let refused = restored(&world, at, 1).await.map(drop).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Aborted, "{refused}");
    let node = restored(&world, at, 0).await.map_err(|error| error.message).unwrap();
    assert!(node.rows("t", false).await == rows);
}
