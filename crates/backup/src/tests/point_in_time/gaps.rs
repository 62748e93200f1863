//! Archives that are out of reach, gaps, and parts that are not needed any more.

use super::*;
use crate::archive::Archive;
use crate::archive::format::Part;
use crate::tests::stopping::Turns;
use async_trait::async_trait;
use std::sync::atomic::{AtomicU32, Ordering};
use stele_catalog::draw_epoch;
use stele_coord::EmbeddedCoord;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::StorageError;

/// The log waits for an archive that is out of reach, and nothing is missing afterwards.
#[tokio::test]
async fn the_log_waits_for_the_archive() {
    let root: Arc<dyn Storage> = MemoryStorage::new();
    let backups: Arc<dyn Storage> = MemoryStorage::new();
    let archive: Arc<dyn Storage> = MemoryStorage::new();
    let reach = Life::of(u64::MAX);
    let reached = Mortal::over(&archive, &reach);
    let (life, node) = run(&root, &backups, &reached).await;
    node.archive().await;
    node.make_table("t").await;
    node.done("b", create()).await;
    node.archive().await;
    reach.end();
    let mut moments = Moments::default();
    for version in 1..4 {
        node.write("t", 0..100, version).await;
        // Flushed records leave the log as soon as the archive lets them.
        node.flush("t").await;
        moments.remember(&node, &["t"]).await;
        assert!(node.archiver.as_ref().unwrap().round().await.is_err());
    }
    let waiting = root.list("log/").await.unwrap().len();
    assert!(waiting > 2, "{waiting} segments");
    reach.renew(u64::MAX);
    node.archive().await;
    let world = World {
        root,
        backups,
        archive,
        life,
        node,
    };
    moments.check(&world).await;
    world.node.flush("t").await;
    world.node.stop().await;
    let left = world.root.list("log/").await.unwrap().len();
    assert!(left < waiting, "{left} segments of {waiting}");
}

/// Beyond its bound the log goes, writes go on, and the archive says so.
#[tokio::test]
async fn too_much_log_is_a_gap_and_stops_no_write() {
    let root: Arc<dyn Storage> = MemoryStorage::new();
    let backups: Arc<dyn Storage> = MemoryStorage::new();
    let archive: Arc<dyn Storage> = MemoryStorage::new();
    let reach = Life::of(u64::MAX);
    let reached = Mortal::over(&archive, &reach);
    let node = try_start_archiving(&root, &backups, Some((&reached, 100_000)))
        .await
        .unwrap();
    node.archive().await;
    node.make_table("t").await;
    node.done("b", create()).await;
    node.write("t", 0..10, 1).await;
    let mut moments = Moments::default();
    moments.remember(&node, &["t"]).await;
    node.archive().await;
    reach.end();
    node.write("t", 0..200, 2).await;
    let lost = node.moment().await;
    assert!(node.archiver.as_ref().unwrap().round().await.is_err());
    node.write("t", 0..10, 3).await;
    reach.renew(u64::MAX);
    node.archive().await;
    let life = Life::of(u64::MAX);
    let mut world = World {
        root,
        backups,
        archive,
        life,
        node,
    };
    moments.check(&world).await;
    assert!(world.refusal(lost).await.contains("these can"));
    // A backup behind the gap begins again, and a process that starts later knows nothing else.
    world.node.write("t", 0..10, 4).await;
    let behind = world.node.moment().await;
    world.node.archive().await;
    assert!(world.refusal(behind).await.contains("these can"));
    world.node.done("behind", create()).await;
    world.node.write("t", 0..10, 5).await;
    world.node.stop().await;
    (world.life, world.node) = run(&world.root, &world.backups, &world.archive).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// The server dies after it gave up log and before the archive says so. The next one knows.
#[tokio::test]
async fn a_gap_outlives_the_process_that_made_it() {
    let root: Arc<dyn Storage> = MemoryStorage::new();
    let backups: Arc<dyn Storage> = MemoryStorage::new();
    let archive: Arc<dyn Storage> = MemoryStorage::new();
    let (reach, process) = (Life::of(u64::MAX), Life::of(u64::MAX));
    let (reached, mortal) = (Mortal::over(&archive, &reach), Mortal::over(&root, &process));
    let node = try_start_archiving(&mortal, &backups, Some((&reached, 100_000)))
        .await
        .unwrap();
    node.make_table("t").await;
    node.archive().await;
    node.done("b", create()).await;
    reach.end();
    node.write("t", 0..200, 1).await;
    assert!(node.archiver.as_ref().unwrap().round().await.is_err());
    process.end();
    let (life, node) = run(&root, &backups, &archive).await;
    node.write("t", 0..10, 2).await;
    let behind = node.moment().await;
    node.archive().await;
    let world = World {
        root,
        backups,
        archive,
        life,
        node,
    };
    world.refusal(behind).await;
}

/// An archive with a backup, and a moment behind it.
async fn archived() -> (World, Moments) {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    world.node.write("t", 0..10, 1).await;
    let mut moments = Moments::default();
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    (world, moments)
}

/// A restore takes numbers that servers take, too, and so does a start that ends early. Neither changes the log.
#[tokio::test]
async fn restores_and_starts_that_end_early_leave_no_gap() {
    let (mut world, mut moments) = archived().await;
    world.node.done("b", restore_as("t", "copy")).await;
    world.node.master.delete_table(&table("copy")).await.unwrap();
    // Not archived yet when the server ends.
    world.node.write("t", 0..10, 2).await;
    moments.remember(&world.node, &["t"]).await;
    world.kill().await;
    world.life.end();
    let coord = EmbeddedCoord::open(world.root.clone(), TokioRuntime::current()).await;
    draw_epoch(&*coord.unwrap(), 0, true).await.unwrap();
    (world.life, world.node) = run(&world.root, &world.backups, &world.archive).await;
    world.node.write("t", 0..10, 3).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    moments.check(&world).await;
}

/// A server that ran without archiving its log leaves a gap, although its log has gone.
#[tokio::test]
async fn a_run_without_the_archive_is_a_gap() {
    let (mut world, moments) = archived().await;
    world.node.stop().await;
    let without = start(&world.root, &world.backups).await;
    without.write("t", 0..10, 2).await;
    let missing = without.moment().await;
    without.stop().await;
    (world.life, world.node) = run(&world.root, &world.backups, &world.archive).await;
    world.node.write("t", 0..10, 3).await;
    world.node.archive().await;
    world.node.write("t", 0..10, 4).await;
    let behind = world.node.moment().await;
    world.node.archive().await;
    moments.check(&world).await;
    world.refusal(missing).await;
    world.refusal(behind).await;
}

/// The archiver is killed at every change of its storage and of the archive; nothing is missing.
#[tokio::test]
async fn an_archiver_that_is_killed_at_any_point_leaves_no_hole() {
    let first = World::begin().await;
    first.node.make_table("t").await;
    first.node.done("b", create()).await;
    first.node.archive().await;
    first.life.end();
    for changes in (1..).step_by(2) {
        let (root, archive) = (copy(&first.root).await, copy(&first.archive).await);
        let (life, node) = run(&root, &first.backups, &archive).await;
        node.write("t", 0..20, 2).await;
        let mut moments = Moments::default();
        moments.remember(&node, &["t"]).await;
        life.renew(changes);
        let was_done = node.archiver.as_ref().unwrap().round().await.is_ok();
        life.end();
        let (life, node) = run(&root, &first.backups, &archive).await;
        node.write("t", 10..15, 3).await;
        moments.remember(&node, &["t"]).await;
        node.archive().await;
        let world = World {
            root,
            backups: first.backups.clone(),
            archive,
            life,
            node,
        };
        moments.check(&world).await;
        if was_done {
            assert!(changes > 2, "{changes} changes do not make a part");
            return;
        }
    }
}

/// Another server archives there. The log is not kept for it, however little that is, and writes go on.
#[tokio::test]
async fn a_taken_archive_keeps_no_log() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    world.node.archive().await;
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    let last = *archive.numbers().await.unwrap().last().unwrap();
    let of_other = Part {
        number: last + 1,
        epoch: 1_000,
        ..archive.part(last).await.unwrap()
    };
    assert_eq!(archive.put_part(&of_other).await.unwrap(), None);
    let log = world.node.server.archived_log().unwrap();
    for version in 1..4 {
        world.node.write("t", 0..100, version).await;
        assert!(log.positions().iter().any(|at| at.is_closed), "some log waits");
        let refused = world.node.archiver.as_ref().unwrap().round().await.unwrap_err();
        assert!(refused.to_string().contains("another server"), "{refused}");
        assert!(log.positions().iter().all(|at| !at.is_closed), "nothing is kept");
    }
}

/// Parts that no backup needs go, and no others.
#[tokio::test]
async fn parts_go_that_no_backup_needs() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("old", create()).await;
    for version in 1..4 {
        world.node.write("t", 0..10, version).await;
        world.node.archive().await;
    }
    world.node.done("new", create()).await;
    let mut moments = Moments::default();
    world.node.write("t", 0..10, 4).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    let count = async || world.archive.list(format::PARTS).await.unwrap().len();
    let all = count().await;
    world.node.done("", BackupTask::Prune).await;
    assert!(all - count().await <= 1, "the old backup needs them");
    world.node.done("old", BackupTask::Delete).await;
    world.node.done("", BackupTask::Prune).await;
    assert!(count().await < all - 1, "{} of {all}", count().await);
    moments.check(&world).await;
    let first = world.archive.list(format::PARTS).await.unwrap()[0].path.clone();
    let first = format::parse_part(&first).unwrap();
    let pieces = world.archive.list(format::PIECES).await.unwrap();
    assert!(pieces.iter().all(|file| format::parse_piece(&file.path) >= Some(first)));
    // Without a backup nobody knows which moments are wanted.
    world.node.done("new", BackupTask::Delete).await;
    let refused = world
        .node
        .work("", BackupTask::Prune)
        .await
        .outcome
        .unwrap()
        .unwrap_err();
    assert!(refused.message.contains("no backup"), "{}", refused.message);
}

/// A part is missing in the middle. The range ends before it, so no moment behind it is offered for a backup from before.
#[tokio::test]
async fn a_missing_part_ends_its_range() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("b", create()).await;
    let (mut moments, mut numbers) = (Vec::new(), Vec::new());
    let archive = Archive::open(world.archive.clone(), false).await.unwrap();
    for version in 1..5 {
        world.node.write("t", 0..10, version).await;
        moments.push(world.node.moment().await);
        world.node.archive().await;
        numbers.push(*archive.numbers().await.unwrap().last().unwrap());
    }
    world.archive.delete(&format::part_path(numbers[2])).await.unwrap();
    world.restored(moments[1]).await.unwrap();
    for behind in [moments[2], moments[3]] {
        assert!(world.refusal(behind).await.contains("these can"));
    }
    let times = world
        .node
        .backups
        .restorable(order("b", create()).destination, None)
        .await
        .unwrap();
    assert_eq!(times.len(), 1, "{times:?}");
    assert!(times[0].1 <= moments[2], "{times:?}");
}

/// A run is interrupted after any deletions of old parts. Moments of newer backups come back, and the next run goes on.
#[tokio::test]
async fn an_interrupted_prune_leaves_what_is_needed() {
    let world = World::begin().await;
    world.node.make_table("t").await;
    world.node.done("old", create()).await;
    for version in 1..8 {
        world.node.write("t", 0..10, version).await;
        world.node.archive().await;
    }
    world.node.done("new", create()).await;
    let mut moments = Moments::default();
    world.node.write("t", 0..10, 8).await;
    moments.remember(&world.node, &["t"]).await;
    world.node.archive().await;
    world.node.done("old", BackupTask::Delete).await;
    let parts = async |archive: &Arc<dyn Storage>| {
        let listed = archive.list(format::PARTS).await.unwrap();
        listed.into_iter().map(|file| file.path).collect::<Vec<String>>()
    };
    let all = parts(&world.archive).await;
    let pruned = copy(&world.archive).await;
    let first_of_new = {
        let archive = crate::archive::Archive::open(pruned, false).await.unwrap();
        let range = archive.ranges().await.unwrap().remove(0);
        archive.part_before(&range, moments.0[0].0).await.unwrap()
    };
    let old = all
        .iter()
        .filter(|path| format::parse_part(path) < Some(first_of_new - 1));
    let old: Vec<&String> = old.collect();
    assert!(old.len() >= 5, "{} of {}", old.len(), all.len());
    // Deleted: every second one, the middle, the newest, the oldest.
    let deleted = |n: usize, round: usize| match round {
        0 => n % 2 == 1,
        1 => n > 1 && n < old.len() - 1,
        2 => n == old.len() - 1,
        _ => n < 3,
    };
    let whole = copy(&world.archive).await;
    for round in 0..4 {
        for path in world.archive.list("").await.unwrap() {
            world.archive.delete(&path.path).await.unwrap();
        }
        for file in whole.list("").await.unwrap() {
            let content = whole.read_all(&file.path).await.unwrap();
            world.archive.put_if_absent(&file.path, content).await.unwrap();
        }
        for (_, path) in old.iter().enumerate().filter(|(n, _)| deleted(*n, round)) {
            world.archive.delete(path).await.unwrap();
        }
        moments.check(&world).await;
        world.node.done("", BackupTask::Prune).await;
        let left = parts(&world.archive).await;
        assert!(left.iter().all(|path| !old.contains(&path)), "round {round}: {left:?}");
        moments.check(&world).await;
    }
}

/// Opens of files of the log that show them without their ends.
#[derive(Clone, Default)]
struct Shortened(Arc<AtomicU32>);

#[async_trait]
impl Turns for Shortened {
    async fn change(&self, _: &str) -> stele_storage::Result<()> {
        Ok(())
    }

    async fn changed(&self, _: &str) -> stele_storage::Result<()> {
        Ok(())
    }

    fn open(&self, path: &str) -> stele_storage::Result<()> {
        let take = |times: u32| times.checked_sub(1);
        if path.starts_with("log/") && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Err(StorageError::OutOfBounds {
                path: path.to_owned(),
                offset: 100,
                wanted: 100,
                len: 150,
            });
        }
        Ok(())
    }
}

/// A log that cannot be read once is read later, and one that never can is a gap.
#[tokio::test]
async fn a_log_that_is_read_later_is_no_gap() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let shortened = Shortened::default();
    let root = Mortal::over(&storage, &shortened);
    let backups: Arc<dyn Storage> = MemoryStorage::new();
    let archive: Arc<dyn Storage> = MemoryStorage::new();
    let (life, node) = run(&root, &backups, &archive).await;
    node.archive().await;
    node.make_table("t").await;
    node.done("b", create()).await;
    node.write("t", 0..10, 1).await;
    let mut moments = Moments::default();
    moments.remember(&node, &["t"]).await;
    let round = async || node.archiver.as_ref().unwrap().round().await;
    shortened.0.store(3, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(round().await.is_err());
    }
    round().await.unwrap();
    node.write("t", 0..10, 2).await;
    shortened.0.store(u32::MAX, Ordering::Relaxed);
    let lost = node.moment().await;
    let mut failed = 0;
    while round().await.is_err() {
        failed += 1;
        assert!(failed < 20, "the log is kept for ever");
    }
    shortened.0.store(0, Ordering::Relaxed);
    assert!(failed > 3, "the log is given up after {failed} rounds");
    let world = World {
        root,
        backups,
        archive,
        life,
        node,
    };
    moments.check(&world).await;
    world.refusal(lost).await;
}
