//! The process is killed at every point of a work; the same order completes it.

use super::node::*;
use super::stopping::{Life, Mortal};
use std::sync::Arc;
use stele_client::{BackupAdmin, BackupTask, TableAdmin};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::ErrorKind;

pub(super) async fn copy(storage: &Arc<dyn Storage>) -> Arc<dyn Storage> {
    let copy = MemoryStorage::new();
    for file in storage.list("").await.unwrap() {
        let content = storage.read_all(&file.path).await.unwrap();
        copy.put_if_absent(&file.path, content).await.unwrap();
    }
    copy
}

/// Two tables with some files.
async fn source() -> (Arc<dyn Storage>, Rows) {
    let (storage, nowhere): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&storage, &nowhere).await;
    for name in ["t", "u"] {
        node.make_table(name).await;
        node.write(name, 95..111, 1).await;
        node.flush(name).await;
    }
    let rows = node.rows("t", false).await;
    node.stop().await;
    (storage, rows)
}

/// Runs a work on a process that is killed after some changes; whether the work was done before.
pub(super) async fn killed(root: &Arc<dyn Storage>, at: &Arc<dyn Storage>, changes: u64, task: BackupTask) -> bool {
    let life = Life::of(changes);
    let (root, at) = (Mortal::over(root, &life), Mortal::over(at, &life));
    let Ok(node) = try_start(&root, &at).await else {
        return false;
    };
    let number = node.backups.begin(order("b", task)).await.unwrap();
    loop {
        let work = node.backups.work(number).unwrap();
        match work.outcome {
            Some(outcome) => {
                life.end();
                return outcome.is_ok();
            }
            None => node.env.sleep(std::time::Duration::from_millis(1)).await,
        }
    }
}

async fn verify(node: &Node) {
    let verified = node.done("b", BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
}

#[tokio::test]
async fn a_backup_is_completed_after_a_kill_at_any_point() {
    let (storage, rows) = source().await;
    for changes in 1.. {
        let root = copy(&storage).await;
        let at: Arc<dyn Storage> = MemoryStorage::new();
        let was_done = killed(&root, &at, changes, create()).await;
        // Another kill in the middle of the second attempt.
        if !was_done && changes % 3 == 0 {
            killed(&root, &at, 12, create()).await;
        }
        let node = start(&root, &at).await;
        let made = node.work("b", create()).await.outcome.unwrap();
        let is_there = |error: &stele_client::ServiceError| error.kind == ErrorKind::AlreadyExists;
        assert!(made.is_ok() || is_there(&made.unwrap_err()), "after {changes} changes");
        verify(&node).await;
        let other: Arc<dyn Storage> = MemoryStorage::new();
        let other = start(&other, &at).await;
        other.done("b", restore()).await;
        assert!(other.rows("t", false).await == rows, "after {changes} changes");
        // Nothing else is left.
        node.done("b", BackupTask::Delete).await;
        assert!(node.catalog.view().snapshots.is_empty());
        let left = at.list("").await.unwrap();
        let is_state = |path: &str| path.starts_with("state/") || path == "FORMAT";
        assert!(
            left.iter().all(|file| is_state(&file.path)),
            "after {changes} changes: {left:?}"
        );
        if was_done {
            assert!(changes > 30, "{changes} changes do not make a backup");
            return;
        }
    }
}

/// Everything that was acknowledged before the second call is in the backup, and no table that is gone or not wanted by then.
#[tokio::test]
async fn a_backup_that_is_continued_has_what_was_written_since() {
    let (storage, _) = source().await;
    let mut continued = 0;
    for changes in (1..).step_by(2) {
        let context = format!("after {changes} changes");
        let root = copy(&storage).await;
        let at: Arc<dyn Storage> = MemoryStorage::new();
        let was_done = killed(&root, &at, changes, create()).await;
        let node = start(&root, &at).await;
        let has_snapshots = !node.catalog.view().snapshots.is_empty();
        node.write("t", 90..120, 2).await;
        node.master.delete_table(&table("u")).await.unwrap();
        node.make_table("u").await;
        node.write("u", 0..5, 3).await;
        node.make_table("v").await;
        let only_one = changes % 4 == 1;
        let since = node.moment().await;
        let again = match only_one {
            true => BackupTask::Create {
                tables: vec![table("t")],
            },
            false => create(),
        };
        if let Err(error) = node.work("b", again).await.outcome.unwrap() {
            assert_eq!(error.kind, ErrorKind::AlreadyExists, "{context}: {}", error.message);
            if was_done {
                assert!(continued > 5, "{continued} attempts had taken snapshots");
                return;
            }
            continue;
        }
        continued += u64::from(has_snapshots);
        // Restores to moments count from here: the drop is in the backup.
        let listed = node.backups.list(order("b", create()).destination).await.unwrap();
        assert!(listed[0].begun_micros > since, "{context}");
        verify(&node).await;
        let empty: Arc<dyn Storage> = MemoryStorage::new();
        let other = start(&empty, &at).await;
        other.done("b", restore()).await;
        let tables: &[&str] = if only_one { &["t"] } else { &["t", "u", "v"] };
        assert_eq!(other.catalog.view().tables.len(), tables.len(), "{context}");
        for name in tables {
            let (found, rows) = (other.rows(name, false).await, node.rows(name, false).await);
            assert!(
                found == rows,
                "{name} {context}: {} rows, not {}",
                found.len(),
                rows.len()
            );
        }
        let left = node.catalog.view();
        let left = left
            .snapshots
            .values()
            .filter(|entry| entry.name.1.starts_with("backup-"));
        assert_eq!(left.count(), 0, "{context}");
    }
}

#[tokio::test]
async fn a_restore_is_completed_after_a_kill_at_any_point() {
    let (storage, rows) = source().await;
    let at: Arc<dyn Storage> = MemoryStorage::new();
    start(&storage, &at).await.done("b", create()).await;
    let empty: Arc<dyn Storage> = MemoryStorage::new();
    start(&empty, &at).await.stop().await;
    for changes in 1.. {
        let root = copy(&empty).await;
        let was_done = killed(&root, &at, changes, restore()).await;
        if !was_done && changes % 3 == 0 {
            killed(&root, &at, 12, restore()).await;
        }
        let node = start(&root, &at).await;
        let restored = node.work("b", restore()).await.outcome.unwrap();
        let is_there = |error: &stele_client::ServiceError| error.kind == ErrorKind::AlreadyExists;
        assert!(
            restored.is_ok() || is_there(&restored.unwrap_err()),
            "after {changes} changes"
        );
        for name in ["t", "u"] {
            assert!(node.rows(name, false).await == rows, "{name} after {changes} changes");
        }
        node.write("t", 95..100, 2).await;
        node.stop().await;
        let again = start(&root, &at).await;
        assert!(again.rows("u", false).await == rows);
        assert_eq!(again.rows("t", false).await[&b"row-00095"[..]].len(), 2);
        if was_done {
            assert!(changes > 30, "{changes} changes do not make tables");
            return;
        }
    }
}

#[tokio::test]
async fn a_deletion_is_completed_after_a_kill_at_any_point() {
    let (storage, _) = source().await;
    let before: Arc<dyn Storage> = MemoryStorage::new();
    let node = start(&storage, &before).await;
    node.done("b", create()).await;
    node.write("t", 95..100, 2).await;
    node.done("other", create()).await;
    node.stop().await;
    for changes in 1.. {
        let (root, at) = (copy(&storage).await, copy(&before).await);
        let was_done = killed(&root, &at, changes, BackupTask::Delete).await;
        let node = start(&root, &at).await;
        let deleted = node.work("b", BackupTask::Delete).await.outcome.unwrap();
        let is_gone = |error: &stele_client::ServiceError| error.kind == ErrorKind::NotFound;
        assert!(
            deleted.is_ok() || is_gone(&deleted.unwrap_err()),
            "after {changes} changes"
        );
        // A deletion that was removed from the state and not swept is swept by the next one.
        node.done("none", create()).await;
        node.done("none", BackupTask::Delete).await;
        let verified = node.done("other", BackupTask::Verify).await.outcome.unwrap().unwrap();
        assert!(verified.damage.is_empty(), "after {changes} changes: {verified:?}");
        node.done("other", BackupTask::Delete).await;
        let left = at.list("files/").await.unwrap();
        assert!(left.is_empty(), "after {changes} changes: {left:?}");
        if was_done {
            assert!(changes > 5, "{changes} changes do not delete a backup");
            return;
        }
    }
}
