//! A promotion that is killed after any number of changes, and run again.

use super::world::{Ending, EndingCoord, Fuse, Single, coordinator, put, rows, run_again, single, state, table, task};
use super::{check_cluster, snapshots, take_back};
use crate::check::tests::{copy, start};
use crate::data_dir::marks::{INCOMING, Source};
use crate::promote::copying;
use bytes::Bytes;
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_cluster::promotion_of;
use stele_coord::Coord;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;

/// The storages and the coordinator of a promotion.
struct World {
    source: Arc<MemoryStorage>,
    /// `None` in place.
    target: Option<Arc<MemoryStorage>>,
    coord: Arc<dyn Coord>,
}

impl World {
    async fn of(single: &Single, in_place: bool) -> World {
        World {
            source: copy(&*single.storage).await,
            target: (!in_place).then(MemoryStorage::new),
            coord: coordinator().await,
        }
    }

    fn data(&self) -> Arc<MemoryStorage> {
        self.target.clone().unwrap_or_else(|| self.source.clone())
    }

    /// Runs the command until a fuse blows.
    async fn run_with(&self, fuse: &Fuse) -> anyhow::Result<()> {
        let ending = |inner: Arc<MemoryStorage>| -> Arc<dyn Storage> {
            let fuse = fuse.clone();
            Arc::new(Ending { inner, fuse })
        };
        let coord: Arc<dyn Coord> = Arc::new(EndingCoord {
            inner: self.coord.clone(),
            fuse: fuse.clone(),
        });
        let target = self.target.clone().map(ending);
        run_again(&task(ending(self.source.clone()), target, &coord)).await
    }

    async fn run(&self) -> anyhow::Result<()> {
        let target = self.target.clone().map(|target| target as Arc<dyn Storage>);
        run_again(&task(self.source.clone(), target, &self.coord)).await
    }

    async fn is_finished(&self) -> bool {
        let known = promotion_of(&*self.coord).await.unwrap();
        known.is_some_and(|known| known.is_finished)
    }

    /// All files that the catalog of the cluster needs are there.
    async fn check_files(&self) {
        let catalog = Catalog::load(self.coord.clone()).await.unwrap();
        let needed = copying::find(&*self.data(), &catalog.view()).await.unwrap();
        assert!(needed.stored.len() > 3, "{needed:?}");
        assert_eq!(snapshots(&*self.coord).await, 2);
    }
}

/// Kills a promotion at every change, and runs it again. Before that no single server and cluster may both be served.
async fn kill_everywhere(in_place: bool, happens: bool) {
    let single = single().await;
    let mut changes = 0;
    loop {
        let world = World::of(&single, in_place).await;
        let outcome = world.run_with(&Fuse::new(changes, happens)).await;
        let state = state(&*world.source).await;
        if world.is_finished().await {
            assert_ne!(state, Source::Whole, "killed after {changes}: both could be served");
        }
        if outcome.is_ok() {
            break;
        }
        let both = world.run().await;
        assert!(both.is_ok(), "killed after {changes}, run again: {both:?}");
        assert!(world.is_finished().await, "killed after {changes}");
        world.check_files().await;
        if in_place {
            let left = world.source.list("log/").await.unwrap();
            assert!(left.is_empty(), "killed after {changes}: the log stays: {left:?}");
        }
        if changes % 16 == 0 || matches!(state, Source::Left(_)) {
            check_cluster(&single, world.data(), &world.coord).await;
        }
        changes += 1;
    }
    assert!(changes > 25, "a promotion has more than {changes} changes");
}

#[tokio::test]
async fn a_copy_that_is_killed_at_any_change_is_finished_by_another_run() {
    kill_everywhere(false, false).await;
}

#[tokio::test]
async fn a_copy_that_is_killed_behind_any_change_is_finished_by_another_run() {
    kill_everywhere(false, true).await;
}

#[tokio::test]
async fn a_promotion_in_place_that_is_killed_at_any_change_is_finished_by_another_run() {
    kill_everywhere(true, false).await;
    kill_everywhere(true, true).await;
}

#[tokio::test]
async fn after_a_kill_the_single_server_may_go_on_and_be_promoted_later() {
    let mut single = single().await;
    for changes in [3, 20, 40, 60] {
        let world = World::of(&single, false).await;
        let killed = world.run_with(&Fuse::new(changes, false)).await;
        if killed.is_ok() || state(&*world.source).await != Source::Whole {
            continue;
        }
        let node = start(world.source.clone()).await;
        assert_eq!(
            rows(&*node.service, table()).await.unwrap(),
            single.rows,
            "killed after {changes}"
        );
        put(&*node.service, table(), "between", Bytes::from_static(b"both runs")).await;
        for served in node.server.all_served() {
            served.tablet.flush().await.unwrap();
        }
        let all = rows(&*node.service, table()).await.unwrap();
        node.server.shut_down().await;
        drop(node);
        world.run().await.unwrap();
        let former = std::mem::replace(&mut single.rows, all);
        check_cluster(&single, world.data(), &world.coord).await;
        single.rows = former;
    }
}

#[tokio::test]
async fn another_run_copies_only_the_files_that_are_missing_or_differ() {
    let single = single().await;
    let first = World::of(&single, false).await;
    first.run().await.unwrap();
    let target = first.target.clone().unwrap();
    let world = World::of(&single, false).await;
    let files = target.list("sst/").await.unwrap();
    let root = promotion_of(&*first.coord).await.unwrap().unwrap().of.root;
    let incoming = world.target.clone().unwrap();
    incoming
        .put_if_absent(INCOMING, crate::data_dir::marks::incoming(&root).into())
        .await
        .unwrap();
    // The first is missing, the second differs, the third is too short; the others are there.
    for (n, file) in files.iter().enumerate().skip(1) {
        let mut content = target.read_all(&file.path).await.unwrap().to_vec();
        match n {
            1 => content[7] ^= 1,
            2 => content.truncate(9),
            _ => {}
        }
        incoming.put_if_absent(&file.path, content.into()).await.unwrap();
    }
    let stale = "tablets/0000000000000001/manifest-00000000000000ff";
    incoming
        .put_if_absent(stale, Bytes::from_static(b"of an earlier state"))
        .await
        .unwrap();
    // The number of the root is of its first promotion.
    let source: Arc<dyn Storage> = copy(&*first.source).await;
    take_back(&*source).await;
    let task = task(source, Some(incoming.clone() as Arc<dyn Storage>), &world.coord);
    let copied = task.run().await.unwrap().copied.unwrap();
    assert_eq!(copied.same, files.len() as u64 - 3, "{copied:?} of {}", files.len());
    assert!(
        incoming.open(stale).await.is_err(),
        "a manifest of an earlier state is gone"
    );
    check_cluster(&single, incoming, &world.coord).await;
}
