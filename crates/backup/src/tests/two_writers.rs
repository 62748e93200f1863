//! Two servers make one backup.
//!
//! A data root and a copy of it have one identity, and give one number to different files.

use super::crashes::{copy, killed};
use super::node::*;
use super::stopping::{Mortal, Pause};
use std::sync::Arc;
use stele_client::{BackupAdmin, BackupTask, ServiceResult};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::ErrorKind;

/// A root and its rows.
type Root = (Arc<dyn Storage>, Rows);

fn memory() -> Arc<dyn Storage> {
    MemoryStorage::new()
}

/// A root and a copy of it, in each of which other rows were written since. Their files have the same numbers.
async fn twins() -> [Root; 2] {
    let original = memory();
    let node = start(&original, &memory()).await;
    node.make_table("t").await;
    node.write("t", 95..111, 1).await;
    node.flush("t").await;
    // The identity of the root is made by the first work.
    node.done("first", create()).await;
    node.stop().await;
    let mut twins = Vec::new();
    for version in [2, 3] {
        let root = copy(&original).await;
        let node = start(&root, &memory()).await;
        node.write("t", 100..120, version).await;
        node.flush("t").await;
        let rows = node.rows("t", false).await;
        node.stop().await;
        twins.push((root, rows));
    }
    let twins: [Root; 2] = twins.try_into().unwrap_or_else(|_| unreachable!("two versions"));
    let mut same = 0;
    for file in twins[0].0.list("sst/").await.unwrap() {
        let content = twins[0].0.read_all(&file.path).await.unwrap();
        let other = twins[1].0.read_all(&file.path).await;
        same += usize::from(other.is_ok_and(|other| other != content));
    }
    assert!(same > 0, "files of one number differ");
    twins
}

/// The backup is intact and has these rows; afterwards nothing of it is left.
async fn check(nodes: [&Node; 2], at: &Arc<dyn Storage>, rows: &Rows, context: &str) {
    let verified = nodes[0].done("b", BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(verified.damage.is_empty(), "{context}: {verified:?}");
    let other = start(&memory(), at).await;
    other.done("b", restore()).await;
    assert!(
        other.rows("t", false).await == *rows,
        "{context}: rows of the other root"
    );
    nodes[0].done("b", BackupTask::Delete).await;
    let left = at.list("").await.unwrap();
    let is_state = |path: &str| path.starts_with("state/") || path == "FORMAT";
    assert!(left.iter().all(|file| is_state(&file.path)), "{context}: {left:?}");
    for node in nodes {
        assert!(
            node.catalog.view().snapshots.is_empty(),
            "{context}: a snapshot is left"
        );
    }
}

async fn outcome(node: &Node, number: u64) -> ServiceResult<()> {
    loop {
        match node.backups.work(number).unwrap().outcome {
            Some(outcome) => return outcome.map(drop),
            None => node.env.sleep(std::time::Duration::from_millis(1)).await,
        }
    }
}

/// One stands still after each number of changes, while the other makes the whole backup.
#[tokio::test]
async fn one_of_two_writers_completes_the_backup() {
    let [(sleeper, its_rows), (other, other_rows)] = twins().await;
    for changes in 1.. {
        let context = format!("after {changes} changes");
        let at = memory();
        let pause = Pause::after(changes);
        let slow = start(&copy(&sleeper).await, &Mortal::over(&at, &pause)).await;
        let fast = start(&copy(&other).await, &at).await;
        let number = slow.backups.begin(order("b", create())).await.unwrap();
        while !pause.stands() && slow.backups.work(number).unwrap().outcome.is_none() {
            slow.env.sleep(std::time::Duration::from_millis(1)).await;
        }
        let of_fast = fast.work("b", create()).await.outcome.unwrap().map(drop);
        let stood = pause.stands();
        pause.go_on();
        let of_slow = outcome(&slow, number).await;
        let (lost, rows) = match &of_fast {
            Ok(()) => (&of_slow, &other_rows),
            Err(_) => (&of_fast, &its_rows),
        };
        let lost = lost.as_ref().expect_err("one of them completes the backup");
        assert_eq!(lost.kind, ErrorKind::AlreadyExists, "{context}: {}", lost.message);
        check([&fast, &slow], &at, rows, &context).await;
        if !stood {
            assert!(changes > 15, "{changes} changes do not make a backup");
            return;
        }
    }
}

/// The original is killed at each point, and a copy continues its backup: it takes over only files that are the same.
#[tokio::test]
async fn a_copy_does_not_take_over_other_files_of_the_same_number() {
    let [(original, _), (other, other_rows)] = twins().await;
    for changes in 1.. {
        let context = format!("after {changes} changes");
        let at = memory();
        if killed(&copy(&original).await, &at, changes, create()).await {
            assert!(changes > 15, "{changes} changes do not make a backup");
            return;
        }
        let node = start(&copy(&other).await, &at).await;
        match node.work("b", create()).await.outcome.unwrap() {
            Ok(_) => check([&node, &node], &at, &other_rows, &context).await,
            // The last change of the original was the one that completed it.
            Err(error) => assert_eq!(error.kind, ErrorKind::AlreadyExists, "{context}: {}", error.message),
        }
    }
}

/// One stands still after each number of changes, while the other deletes the backup. It holds no files afterwards.
#[tokio::test]
async fn a_backup_that_another_server_deletes_leaves_no_snapshots() {
    let [(root, _), (other, _)] = twins().await;
    let mut deleted = 0;
    for changes in 1.. {
        let context = format!("after {changes} changes");
        let at = memory();
        let pause = Pause::after(changes);
        let slow = start(&copy(&root).await, &Mortal::over(&at, &pause)).await;
        let fast = start(&copy(&other).await, &at).await;
        let number = slow.backups.begin(order("b", create())).await.unwrap();
        while !pause.stands() && slow.backups.work(number).unwrap().outcome.is_none() {
            slow.env.sleep(std::time::Duration::from_millis(1)).await;
        }
        let stood = pause.stands();
        let deletion = match stood {
            true => fast.work("b", BackupTask::Delete).await.outcome.unwrap().map(drop),
            false => Ok(()),
        };
        pause.go_on();
        let made = outcome(&slow, number).await;
        if !stood {
            assert!(deleted > 5, "{deleted} backups were deleted while they were made");
            return;
        }
        if deletion.is_ok()
            && let Err(error) = made
        {
            assert_eq!(error.kind, ErrorKind::Aborted, "{context}: {}", error.message);
            assert!(
                slow.catalog.view().snapshots.is_empty(),
                "{context}: a snapshot is left"
            );
            deleted += 1;
        }
    }
}
