//! Restores to moments between backups, from the archive of the log.

use super::crashes::copy;
use super::node::*;
use super::stopping::{Life, Mortal};
use crate::archive::format;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{
    BackupAdmin, BackupOrder, BackupOutcome, BackupTask, FamilyChange, GroupChange, NewFamily, ServiceResult,
    TableAdmin,
};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{AggregateKind, ErrorKind, FamilyId, Mutation, RowRange, Timestamp, ValueType};

mod choice;
mod clock;
mod gaps;
mod lost_answers;
mod many_changes;
mod names;
mod order;
mod schemas;

/// Enough for any test.
const WAITING_MAX: u64 = 1 << 30;

/// A server that archives its log, with its places.
struct World {
    root: Arc<dyn Storage>,
    backups: Arc<dyn Storage>,
    archive: Arc<dyn Storage>,
    life: Life,
    node: Node,
}

impl World {
    async fn begin() -> World {
        let root: Arc<dyn Storage> = MemoryStorage::new();
        let backups: Arc<dyn Storage> = MemoryStorage::new();
        let archive: Arc<dyn Storage> = MemoryStorage::new();
        let (life, node) = run(&root, &backups, &archive).await;
        node.archive().await;
        World {
            root,
            backups,
            archive,
            life,
            node,
        }
    }

    /// Kills the server, and starts it again.
    async fn kill(&mut self) {
        self.life.end();
        (self.life, self.node) = run(&self.root, &self.backups, &self.archive).await;
    }

    /// Stops it, and starts it again.
    async fn restart(self) -> World {
        self.node.stop().await;
        self.life.end();
        let (life, node) = run(&self.root, &self.backups, &self.archive).await;
        World { life, node, ..self }
    }

    /// Restores into a new server.
    async fn restored(&self, at: i64) -> ServiceResult<Node> {
        let empty: Arc<dyn Storage> = MemoryStorage::new();
        let other: Arc<dyn Storage> = copy(&self.archive).await;
        let node = try_start_archiving(&empty, &self.backups, Some((&other, WAITING_MAX)))
            .await
            .unwrap();
        restore_at(&node, restore(), at).await.map(|_| node)
    }

    async fn refusal(&self, at: i64) -> String {
        let error = self.restored(at).await.err().expect("the moment cannot be restored");
        assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{}", error.message);
        error.message
    }
}

/// A process that can be killed.
async fn run(root: &Arc<dyn Storage>, backups: &Arc<dyn Storage>, archive: &Arc<dyn Storage>) -> (Life, Node) {
    let life = Life::of(u64::MAX);
    let over = |storage| Mortal::over(storage, &life);
    let (root, backups, archive) = (over(root), over(backups), over(archive));
    let node = try_start_archiving(&root, &backups, Some((&archive, WAITING_MAX)))
        .await
        .unwrap();
    (life, node)
}

async fn restore_at(node: &Node, task: BackupTask, at: i64) -> ServiceResult<BackupOutcome> {
    let order = BackupOrder {
        at: Some(at),
        ..order("", task)
    };
    node.carry_out(order).await.outcome.unwrap()
}

/// Remembered moments with the rows of all tables.
#[derive(Default)]
struct Moments(Vec<(i64, BTreeMap<&'static str, Rows>)>);

impl Moments {
    async fn remember(&mut self, node: &Node, tables: &[&'static str]) {
        let mut rows = BTreeMap::new();
        for name in tables {
            rows.insert(*name, node.rows(name, false).await);
        }
        self.0.push((node.moment().await, rows));
    }

    /// Every moment comes back.
    async fn check(&self, world: &World) {
        for (at, tables) in &self.0 {
            let node = world
                .restored(*at)
                .await
                .map_err(|error| format!("{at}: {}", error.message));
            let node = node.unwrap();
            for (name, rows) in tables {
                let found = node.rows(name, false).await;
                assert!(
                    found == *rows,
                    "{name} at {at}: {} rows, not {}",
                    found.len(),
                    rows.len()
                );
            }
            assert_eq!(node.catalog.view().tables.len(), tables.len());
            assert!(node.catalog.view().snapshots.is_empty());
        }
    }
}

/// Several writers at the same time: puts, deletes of rows and columns, and additions, often of the same rows.
async fn write_concurrently(node: &Node, name: &str, round: i64) {
    let writers = (0..4).map(|writer| async move {
        for n in 0..40usize {
            let row = format!("row-{:05}", (n * 7 + writer * 3) % 200);
            let version = round * 1_000 + n as i64;
            let mutation = match (n + writer) % 9 {
                0 => Mutation::DeleteRow {
                    up_to: Timestamp(version),
                },
                1 => Mutation::DeleteColumn {
                    family: FamilyId(1),
                    qualifier: Bytes::from_static(b"q"),
                    from: Timestamp(2),
                    to: Timestamp(version),
                },
                _ => Mutation::Put {
                    family: FamilyId(1 + (n % 2) as u32),
                    qualifier: Bytes::from_static(b"q"),
                    timestamp: Timestamp(version),
                    value: Bytes::from(format!("{writer}-{version}").repeat(if n % 20 == 0 { 500 } else { 5 })),
                },
            };
            node.try_mutate(name, row, mutation).await.unwrap();
        }
    });
    futures::future::join_all(writers).await;
}

/// Backups, kills, restarts, splits, merges and flushes between moments; each moment is restored to.
#[tokio::test]
async fn every_remembered_moment_comes_back() {
    let mut world = World::begin().await;
    for name in ["t", "u"] {
        world.node.make_table(name).await;
        write_concurrently(&world.node, name, 1).await;
    }
    let mut moments = Moments::default();
    world.node.done("first", create()).await;
    moments.remember(&world.node, &["t", "u"]).await;
    write_concurrently(&world.node, "t", 2).await;
    moments.remember(&world.node, &["t", "u"]).await;
    world.node.archive().await;
    let tablet = world.node.catalog.table(&table("t")).unwrap().tablets()[0].id;
    world
        .node
        .master
        .split(&table("t"), tablet, Some(Bytes::from_static(b"row-00050")))
        .await
        .unwrap();
    write_concurrently(&world.node, "t", 3).await;
    write_concurrently(&world.node, "u", 3).await;
    world.kill().await;
    moments.remember(&world.node, &["t", "u"]).await;
    world.node.flush("t").await;
    write_concurrently(&world.node, "t", 4).await;
    world.node.archive().await;
    world.node.done("second", create()).await;
    moments.remember(&world.node, &["t", "u"]).await;
    world = world.restart().await;
    write_concurrently(&world.node, "u", 5).await;
    world.node.flush("u").await;
    moments.remember(&world.node, &["t", "u"]).await;
    write_concurrently(&world.node, "u", 6).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// Adds a family of sums to table `t`.
async fn add_sums(node: &Node) {
    let sum = NewFamily {
        name: "sum".to_owned(),
        gc_rule: None,
        value_type: ValueType::Aggregate(AggregateKind::Sum),
        deletes: Default::default(),
        front_end_data: Vec::new(),
    };
    let made = vec![FamilyChange::Create(sum)];
    node.master.modify_families(&table("t"), made).await.unwrap();
}

/// Adds one to the sums of some rows.
async fn add(node: &Node, rows: usize) {
    for row in (0..rows).map(|n| format!("row-{:05}", n * 60)) {
        let mutation = Mutation::Merge {
            family: FamilyId(3),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            operand: Bytes::copy_from_slice(&1i64.to_be_bytes()),
        };
        node.try_mutate("t", row, mutation).await.unwrap();
    }
}

/// Additions count once, also those that a backup has and that are in the log.
#[tokio::test]
async fn additions_count_once() {
    let mut world = World::begin().await;
    world.node.make_table("t").await;
    add_sums(&world.node).await;
    let mut moments = Moments::default();
    add(&world.node, 4).await;
    world.node.done("b", create()).await;
    add(&world.node, 3).await;
    moments.remember(&world.node, &["t"]).await;
    let tablet = world.node.catalog.table(&table("t")).unwrap().tablets()[0].id;
    world
        .node
        .master
        .split(&table("t"), tablet, Some(Bytes::from_static(b"row-00050")))
        .await
        .unwrap();
    world.kill().await;
    add(&world.node, 2).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// One table under another name, next to the one that goes on, by the server itself.
#[tokio::test]
async fn a_table_comes_back_next_to_itself() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 0..20, 1).await;
    world.node.done("b", create()).await;
    world.node.write("t", 10..30, 2).await;
    let (rows, at) = (world.node.rows("t", false).await, world.node.moment().await);
    world.node.delete_row("t", 12).await;
    world.node.archive().await;
    let outcome = restore_at(&world.node, restore_as("t", "before"), at).await.unwrap();
    assert_eq!(outcome.tables, [table("before")]);
    assert!(world.node.rows("before", false).await == rows);
    assert!(!world.node.rows("t", false).await.contains_key(&b"row-00012"[..]));
    // It is a table as any other.
    world.node.write("before", 12..13, 3).await;
    assert_eq!(world.node.rows("before", false).await[&b"row-00012"[..]].len(), 3);
}

/// The errors name the time in which moments can be restored.
#[tokio::test]
async fn other_moments_are_refused_with_those_that_can_be_restored() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    let before = world.node.moment().await;
    world.node.archive().await;
    let error = world.restored(before).await.err().unwrap();
    assert!(error.message.contains("no backups"), "{}", error.message);
    world.node.done("b", create()).await;
    world.node.write("t", 0..3, 1).await;
    let within = world.node.moment().await;
    world.node.archive().await;
    let place = order("b", create()).destination;
    let times = world.node.backups.restorable(place, None).await.unwrap();
    assert_eq!(times.len(), 1, "{times:?}");
    let (from, to) = times[0];
    assert!(
        before < from && from <= within && within < to,
        "{before} {from} {within} {to}"
    );
    for outside in [before, from - 1, to, to + 1_000_000] {
        let refused = world.refusal(outside).await;
        assert!(refused.contains(&format!("{from} to {}", to - 1)), "{refused}");
    }
    for inside in [from, within, to - 1] {
        world.restored(inside).await.unwrap();
    }
}

/// A restore that is killed at any point is completed by the same order. It is seen complete or not at all.
#[tokio::test]
async fn a_restore_to_a_moment_is_completed_after_a_kill_at_any_point() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 95..105, 1).await;
    world.node.done("b", create()).await;
    world.node.write("t", 100..110, 2).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.write("t", 100..110, 3).await;
    world.node.archive().await;
    let (at, rows) = (moments.0[0].0, &moments.0[0].1["t"]);
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    start(&empty, &world.backups).await.stop().await;
    for changes in (1..).step_by(3) {
        let root = copy(&empty).await;
        let archive = copy(&world.archive).await;
        let life = Life::of(changes);
        let mortal = Mortal::over(&root, &life);
        let mut was_done = false;
        if let Ok(node) = try_start_archiving(&mortal, &world.backups, Some((&archive, WAITING_MAX))).await {
            was_done = restore_at(&node, restore(), at).await.is_ok();
            if node.catalog.table(&table("t")).is_ok_and(|table| table.schema.enabled) {
                assert!(node.rows("t", false).await == *rows, "seen after {changes} changes");
            }
            life.end();
        }
        let node = try_start_archiving(&root, &world.backups, Some((&archive, WAITING_MAX)))
            .await
            .unwrap();
        let restored = restore_at(&node, restore(), at).await;
        let is_there = |error: &stele_client::ServiceError| error.kind == ErrorKind::AlreadyExists;
        assert!(
            restored.is_ok() || is_there(&restored.unwrap_err()),
            "after {changes} changes"
        );
        assert!(node.rows("t", false).await == *rows, "after {changes} changes");
        if was_done {
            assert!(changes > 20, "{changes} changes do not make tables");
            return;
        }
    }
}

/// The archive is read whole: a changed or missing piece or part is reported, and no table is there.
#[tokio::test]
async fn a_damaged_archive_is_reported_and_nothing_is_skipped() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    let mut at = 0;
    for version in 1..5 {
        world.node.write("t", 0..10, version).await;
        at = world.node.moment().await;
        world.node.archive().await;
    }
    world.restored(at).await.unwrap();
    let files = world.archive.list("").await.unwrap();
    let damaged = files.iter().filter(|file| file.path != format::FORMAT);
    let mut reported = 0;
    for file in damaged {
        let content = world.archive.read_all(&file.path).await.unwrap();
        for missing in [false, true] {
            world.archive.delete(&file.path).await.unwrap();
            if !missing {
                let mut changed = content.to_vec();
                *changed.last_mut().unwrap() ^= 1;
                world.archive.put_if_absent(&file.path, changed.into()).await.unwrap();
            }
            let outcome = world.restored(at).await;
            world.archive.delete(&file.path).await.unwrap();
            world.archive.put_if_absent(&file.path, content.clone()).await.unwrap();
            // Parts before the backup are not read, and the last one that is missing makes the time shorter.
            let Err(error) = outcome else { continue };
            let is_last = error.kind == ErrorKind::FailedPrecondition && missing;
            assert!(
                is_last || error.kind == ErrorKind::Corruption,
                "{}: {}",
                file.path,
                error.message
            );
            assert!(
                is_last || error.message.contains(&file.path),
                "{}: {}",
                file.path,
                error.message
            );
            reported += 1;
        }
    }
    assert!(reported >= 14, "{reported} of {}", files.len());
}
