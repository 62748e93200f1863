//! Tables of users that have the names of restored ones.

use super::*;
use crate::archive::AnyArchive;
use crate::archive::memory::RestoreMemory;
use crate::destination::Destination;
use crate::error::BackupError;
use crate::restore_at::{self, Moment};
use crate::work::Work;
use crate::{DataRoot, Places};
use stele_client::{NewSnapshot, ServiceError, SnapshotName, TableUpdate};
use stele_types::TableId;

/// An archive with a backup and a moment behind it.
async fn world_with_a_moment() -> (World, i64, Rows) {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.write("t", 95..105, 1).await;
    world.node.done("b", create()).await;
    world.node.write("t", 100..110, 2).await;
    let (at, rows) = (world.node.moment().await, world.node.rows("t", false).await);
    world.node.archive().await;
    (world, at, rows)
}

async fn enable(node: &Node, enabled: bool) -> ServiceResult<()> {
    let update = TableUpdate {
        enabled: Some(enabled),
        ..TableUpdate::default()
    };
    node.master.update_table(&table("t"), update).await.map(drop)
}

/// A server on which a restore was killed, at the first point at which `is_there` says so.
async fn killed(world: &World, at: Option<i64>, is_there: impl Fn(&Node) -> bool) -> Node {
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    start(&empty, &world.backups).await.stop().await;
    for changes in 1..1_000 {
        let root = copy(&empty).await;
        let archive = copy(&world.archive).await;
        let life = Life::of(changes);
        let mortal = Mortal::over(&root, &life);
        if let Ok(node) = try_start_archiving(&mortal, &world.backups, Some((&archive, WAITING_MAX))).await {
            let _ = again(&node, at).await;
            life.end();
        }
        let node = try_start_archiving(&root, &world.backups, Some((&archive, WAITING_MAX))).await;
        let node = node.unwrap();
        if is_there(&node) {
            return node;
        }
    }
    unreachable!("a restore has fewer changes, and some kill leaves the state that is sought")
}

/// Gives the order of the restore.
async fn again(node: &Node, at: Option<i64>) -> ServiceResult<BackupOutcome> {
    let task = BackupTask::Restore {
        table: None,
        target: None,
    };
    let order = BackupOrder {
        at,
        ..order(if at.is_some() { "" } else { "b" }, task)
    };
    node.carry_out(order).await.outcome.unwrap()
}

fn has_snapshot(node: &Node) -> bool {
    node.catalog
        .view()
        .snapshots
        .keys()
        .any(|(_, name)| name.starts_with("restore-"))
}

/// A user makes a table of the name while a restore is interrupted, before its own. It is never taken for that of the restore.
#[tokio::test]
async fn a_table_of_a_user_is_not_taken_for_that_of_a_restore() {
    let (world, at, _) = world_with_a_moment().await;
    for (at, is_enabled) in [(Some(at), false), (Some(at), true), (None, true), (None, false)] {
        let node = killed(&world, at, |node| {
            has_snapshot(node) && node.catalog.view().tables.is_empty()
        })
        .await;
        node.make_table("t").await;
        node.write("t", 0..3, 7).await;
        let rows = node.rows("t", false).await;
        enable(&node, is_enabled).await.unwrap();
        for _ in 0..2 {
            let refused = again(&node, at).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::AlreadyExists, "{}", refused.message);
        }
        enable(&node, true).await.unwrap();
        assert!(node.rows("t", false).await == rows, "the rows of the user");
    }
}

/// An unfinished table is the restore's alone: nobody enables, changes or copies it, and the same order makes it again.
#[tokio::test]
async fn an_unfinished_table_is_made_again_and_not_changed() {
    let (world, at, rows) = world_with_a_moment().await;
    let is_unfinished = |node: &Node| {
        node.catalog
            .table(&table("t"))
            .is_ok_and(|entry| entry.schema.is_unfinished())
    };
    let node = killed(&world, Some(at), is_unfinished).await;
    let refused = |outcome: Result<(), ServiceError>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{}", error.message);
        assert!(error.message.contains("being restored"), "{}", error.message);
    };
    refused(enable(&node, true).await);
    let drop_family = FamilyChange::Drop { name: "g".to_owned() };
    refused(
        node.master
            .modify_families(&table("t"), vec![drop_family])
            .await
            .map(drop),
    );
    refused(node.master.truncate(&table("t"), true).await);
    refused(node.master.drop_row_range(&table("t"), RowRange::all()).await);
    let snapshot = NewSnapshot {
        name: SnapshotName::new("space", "s"),
        table: table("t"),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    refused(node.master.create_snapshot(snapshot).await.map(drop));
    // A restore to another moment does not take it over.
    let other = again(&node, Some(at + 1)).await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::AlreadyExists, "{}", other.message);
    assert!(other.message.contains("another restore"), "{}", other.message);
    let whole = node.work("whole", create()).await.outcome.unwrap().unwrap_err();
    assert!(whole.message.contains("no table to back up"), "{}", whole.message);
    again(&node, Some(at)).await.unwrap();
    assert!(node.rows("t", false).await == rows);
    let schema = node.catalog.table(&table("t")).unwrap().schema.clone();
    assert_eq!((schema.enabled, schema.restoring.clone()), (true, None));
    assert!(node.catalog.view().snapshots.is_empty());
}

/// Another leader ends a restore and begins it again for the same order, with tables of its own. A batch of the former one that comes
/// late must not be written into these.
#[tokio::test]
async fn a_replay_writes_only_into_the_table_that_its_restore_has_made() {
    let (world, at, _) = world_with_a_moment().await;
    let node = &world.node;
    let root = DataRoot::new(
        node.env.clone(),
        node.catalog.clone(),
        node.master.clone(),
        node.server.clone(),
    );
    let destination = Destination::open(world.backups.clone(), false).await.unwrap();
    let places = Places::new(opening(&world.archive));
    let archive = AnyArchive::open(&places, order("", create()).destination)
        .await
        .unwrap();
    let moment = Moment { at, archive: &archive };
    let work = Work::new(node.env.clone(), None, 1);
    let memory = RestoreMemory::new(node.server.pool());
    let plan = restore_at::plan(&destination, (&moment, &memory), (None, None), &work)
        .await
        .unwrap();
    let own = node.catalog.table(&table("t")).unwrap().schema.id;
    let replay = |id| {
        let targets = BTreeMap::from([(0, (table("t"), id))]);
        let (plan, root, moment, work) = (&plan, &root, &moment, &work);
        async move { plan.replay(root, moment, &targets, work).await }
    };
    let refused = replay(TableId(own.0 + 1)).await.unwrap_err();
    assert!(matches!(refused, BackupError::OtherRestore(_)), "{refused}");
    replay(own).await.unwrap();
    work.cancel();
    replay(own).await.unwrap_err();
}
