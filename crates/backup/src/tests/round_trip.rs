//! Backups are restored, into other roots and the same one.

use super::node::*;
use std::sync::Arc;
use stele_client::{BackupAdmin, BackupTask, SnapshotName, TableAdmin};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, TableName};

fn memory() -> Arc<dyn Storage> {
    MemoryStorage::new()
}

/// Bytes of copied files at a destination.
async fn file_bytes(destination: &Arc<dyn Storage>) -> u64 {
    destination
        .list("files/")
        .await
        .unwrap()
        .iter()
        .map(|file| file.len)
        .sum()
}

/// Epochs of the source are far above those of the target. A write after the restore is newer nevertheless, also after a start.
#[tokio::test]
async fn another_root_gets_all_rows_and_later_writes_are_newer() {
    let (source, target, destination) = (memory(), memory(), memory());
    for _ in 0..5 {
        start(&source, &destination).await.stop().await;
    }
    let node = start(&source, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..200, 1).await;
    node.flush("t").await;
    for n in (0..200).step_by(7) {
        node.delete_row("t", n).await;
    }
    node.flush("t").await;
    node.write("t", 150..220, 2).await;
    let seen = node.rows("t", false).await;
    let made = node.done("b", create()).await;
    // A flush leaves out entries that newer ones hide.
    let stored = node.rows("t", true).await;
    assert!(!seen.is_empty() && stored.len() > seen.len());
    assert_eq!(made.progress.bytes_copied, file_bytes(&destination).await);
    assert_eq!(made.progress.bytes, made.progress.bytes_done);
    assert!(
        node.catalog.view().snapshots.is_empty(),
        "the snapshots of a complete backup are deleted"
    );
    // The source is gone.
    drop((node, source));

    let other = start(&target, &destination).await;
    let restored = other.done("b", restore()).await.outcome.unwrap().unwrap();
    assert_eq!(restored.tables, [table("t")]);
    assert!(other.rows("t", false).await == seen);
    assert!(
        other.rows("t", true).await == stored,
        "tombstones and old versions are there as well"
    );
    assert!(other.catalog.view().snapshots.is_empty());
    let schema = other.catalog.table(&table("t")).unwrap().schema.clone();
    assert_eq!(schema.front_end_data, b"data of a front end");
    other.delete_row("t", 1).await;
    other.write("t", 2..3, 9).await;
    other.write("t", 7..8, 1).await;
    let now = other.rows("t", false).await;
    assert!(!now.contains_key(&b"row-00001"[..]), "a delete hides restored cells");
    assert_eq!(now[&b"row-00002"[..]].len(), 2, "a new version beside a restored one");
    assert!(
        now.contains_key(&b"row-00007"[..]),
        "written after a restored tombstone"
    );
    other.stop().await;
    let again = start(&target, &destination).await;
    assert!(again.rows("t", false).await == now);
    again.delete_row("t", 3).await;
    again.write("t", 7..8, 1).await;
    for served in again.server.all_served() {
        served.tablet.flush().await.unwrap();
    }
    again.master.compact(&table("t"), None, true).await.unwrap();
    let after = again.rows("t", false).await;
    assert!(!after.contains_key(&b"row-00003"[..]) && after.contains_key(&b"row-00007"[..]));
}

#[tokio::test]
async fn the_same_root_gets_a_table_under_another_name() {
    let (source, destination) = (memory(), memory());
    let node = start(&source, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..120, 1).await;
    node.done("b", create()).await;
    let before = node.rows("t", false).await;
    node.write("t", 0..120, 2).await;
    let taken = node.work("b", restore()).await.outcome.unwrap().unwrap_err();
    assert_eq!(taken.kind, ErrorKind::AlreadyExists, "{}", taken.message);
    node.done("b", restore_as("t", "u")).await;
    assert!(node.rows("u", false).await == before);
    assert!(node.rows("t", false).await != before);
    // A restored table is like any other: a snapshot of it, and a clone.
    let name = SnapshotName::new("space", "s");
    let new = stele_client::NewSnapshot {
        name: name.clone(),
        table: table("u"),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.write("u", 0..5, 3).await;
    node.master.create_snapshot(new).await.unwrap();
    node.master.clone_snapshot(&name, &table("v"), None).await.unwrap();
    node.write("v", 0..5, 4).await;
    assert_eq!(node.rows("v", false).await[&b"row-00001"[..]].len(), 3);
    let absent = node.work("b", restore_as("x", "y")).await.outcome.unwrap().unwrap_err();
    assert_eq!(absent.kind, ErrorKind::NotFound, "{}", absent.message);
    let absent = node.work("c", restore()).await.outcome.unwrap().unwrap_err();
    assert_eq!(absent.kind, ErrorKind::NotFound, "{}", absent.message);
}

#[tokio::test]
async fn only_new_files_are_copied() {
    let (source, destination) = (memory(), memory());
    let node = start(&source, &destination).await;
    for name in ["t", "u"] {
        node.make_table(name).await;
        node.write(name, 0..150, 1).await;
        node.flush(name).await;
    }
    node.done("b1", create()).await;
    let after_first = file_bytes(&destination).await;
    let same = node.done("b2", create()).await;
    assert_eq!(same.progress.bytes_copied, 0, "nothing has changed");
    assert_eq!(same.progress.bytes_done, same.progress.bytes);
    assert_eq!(file_bytes(&destination).await, after_first);
    node.write("t", 300..330, 1).await;
    let third = node.done("b3", create()).await;
    let new = file_bytes(&destination).await - after_first;
    assert_eq!(third.progress.bytes_copied, new);
    assert!(new > 0 && new < after_first / 2, "{new} of {after_first}");
    // Another table alone, over files that only the first backups copied.
    let one = BackupTask::Create {
        tables: vec![table("u")],
    };
    assert_eq!(node.done("b4", one).await.progress.bytes_copied, 0);
    let listed = node.backups.list(order("", create()).destination).await.unwrap();
    let shown: Vec<_> = listed
        .iter()
        .map(|b| (b.name.as_str(), b.tables.len(), b.completed_micros.is_some()))
        .collect();
    assert_eq!(
        shown,
        [("b1", 2, true), ("b2", 2, true), ("b3", 2, true), ("b4", 1, true)]
    );
    let again = node.work("b1", create()).await.outcome.unwrap().unwrap_err();
    assert_eq!(again.kind, ErrorKind::AlreadyExists);
    let absent = BackupTask::Create {
        tables: vec![TableName::new("space", "x")],
    };
    let absent = node.work("b5", absent).await.outcome.unwrap().unwrap_err();
    assert_eq!(absent.kind, ErrorKind::NotFound, "{}", absent.message);
}

/// Two tables share files after a clone.
#[tokio::test]
async fn common_files_of_tables_are_copied_once() {
    let (source, target, destination) = (memory(), memory(), memory());
    let node = start(&source, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    let new = stele_client::NewSnapshot {
        name: SnapshotName::new("space", "s"),
        table: table("t"),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.master.create_snapshot(new).await.unwrap();
    let name = SnapshotName::new("space", "s");
    node.master.clone_snapshot(&name, &table("u"), None).await.unwrap();
    let (stored, data): (u64, Vec<_>) = (0, source.list("sst/").await.unwrap());
    let stored = stored + data.iter().map(|file| file.len).sum::<u64>();
    let made = node.done("b", create()).await;
    assert_eq!(made.progress.bytes_copied, stored);
    let rows = node.rows("u", false).await;
    let other = start(&target, &destination).await;
    let restored = other.done("b", restore()).await;
    assert_eq!(restored.progress.files_copied, made.progress.files_copied);
    assert!(other.rows("t", false).await == rows && other.rows("u", false).await == rows);
    other.write("t", 0..10, 5).await;
    assert!(other.rows("u", false).await == rows, "they are two tables");
}

#[tokio::test]
async fn a_folder_is_a_destination() {
    let folder = tempfile::tempdir().unwrap();
    let env = stele_env::tokio_env::TokioRuntime::current();
    let destination: Arc<dyn Storage> = stele_storage::local::LocalStorage::open(folder.path(), env).unwrap();
    let (source, target) = (memory(), memory());
    let node = start(&source, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    node.done("b1", create()).await;
    node.write("t", 140..160, 2).await;
    node.done("b2", create()).await;
    node.done("b1", BackupTask::Delete).await;
    let verified = node.done("b2", BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
    let other = start(&target, &destination).await;
    other.done("b2", restore()).await;
    assert!(other.rows("t", false).await == node.rows("t", false).await);
    other.done("b2", BackupTask::Delete).await;
    assert!(destination.list("files/").await.unwrap().is_empty());
}

#[tokio::test]
async fn damage_of_a_destination_is_found() {
    let (source, destination) = (memory(), MemoryStorage::new());
    let at: Arc<dyn Storage> = destination.clone();
    let node = start(&source, &at).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    node.done("b", create()).await;
    let verified = node.done("b", BackupTask::Verify).await;
    assert!(verified.outcome.unwrap().unwrap().damage.is_empty());
    assert_eq!(verified.progress.bytes_done, file_bytes(&at).await);
    let files = at.list("").await.unwrap();
    for file in files
        .iter()
        .filter(|file| !file.path.starts_with("state/") && file.path != "FORMAT")
    {
        let intact = at.read_all(&file.path).await.unwrap();
        let mut damaged = intact.to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        for content in [Some(damaged.clone()), Some(damaged[..middle].to_vec()), None] {
            at.delete(&file.path).await.unwrap();
            if let Some(content) = content {
                at.put_if_absent(&file.path, content.into()).await.unwrap();
            }
            let found = node.done("b", BackupTask::Verify).await.outcome.unwrap().unwrap();
            let name = file.path.rsplit('/').next().unwrap();
            assert!(
                found.damage.iter().any(|damage| damage.contains(name)),
                "{}: {found:?}",
                file.path
            );
        }
        at.delete(&file.path).await.unwrap();
        at.put_if_absent(&file.path, intact).await.unwrap();
    }
    assert!(
        node.done("b", BackupTask::Verify)
            .await
            .outcome
            .unwrap()
            .unwrap()
            .damage
            .is_empty()
    );
}

/// Damage of the data is not copied, and a damaged backup is not restored: nothing is left of the attempt.
#[tokio::test]
async fn damage_ends_a_copy() {
    let (source, target, destination) = (MemoryStorage::new(), memory(), memory());
    let at: Arc<dyn Storage> = source.clone();
    let node = start(&at, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    node.flush("t").await;
    let files = at.list("sst/").await.unwrap();
    let largest = files.iter().max_by_key(|file| file.len).unwrap();
    let intact = at.read_all(&largest.path).await.unwrap();
    let mut damaged = intact.to_vec();
    damaged[100] ^= 1;
    at.delete(&largest.path).await.unwrap();
    at.put_if_absent(&largest.path, damaged.into()).await.unwrap();
    let failed = node.work("b", create()).await.outcome.unwrap().unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Corruption, "{}", failed.message);
    let unfinished = node.work("b", restore()).await.outcome.unwrap().unwrap_err();
    assert_eq!(unfinished.kind, ErrorKind::FailedPrecondition, "{}", unfinished.message);
    at.delete(&largest.path).await.unwrap();
    at.put_if_absent(&largest.path, intact).await.unwrap();
    node.done("b", create()).await;

    let copied = destination.list("files/").await.unwrap();
    let largest = copied.iter().max_by_key(|file| file.len).unwrap();
    let mut damaged = destination.read_all(&largest.path).await.unwrap().to_vec();
    damaged[100] ^= 1;
    destination.delete(&largest.path).await.unwrap();
    destination.put_if_absent(&largest.path, damaged.into()).await.unwrap();
    let other = start(&target, &destination).await;
    let failed = other.work("b", restore()).await.outcome.unwrap().unwrap_err();
    assert_eq!(failed.kind, ErrorKind::Corruption, "{}", failed.message);
    assert!(other.catalog.view().tables.is_empty() && other.catalog.view().snapshots.is_empty());
    let gone = async {
        while !target.list("sst/").await.unwrap().is_empty() {
            other.env.sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let gone = other.env.timeout(std::time::Duration::from_secs(5), gone).await;
    assert!(gone.is_ok(), "files are left over");
}

#[tokio::test]
async fn one_work_runs_at_its_rate_and_can_be_called_off() {
    let (source, destination) = (memory(), memory());
    let node = start(&source, &destination).await;
    node.make_table("t").await;
    node.write("t", 0..150, 1).await;
    let slow = stele_client::BackupOrder {
        bytes_per_second: Some(1_000),
        ..order("b", create())
    };
    let number = node.backups.begin(slow).await.unwrap();
    let busy = node.backups.begin(order("c", create())).await.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Unavailable);
    assert!(
        node.backups.work(number).unwrap().outcome.is_none(),
        "hundreds of seconds at this rate"
    );
    node.backups.cancel(number).unwrap();
    let ended = loop {
        let work = node.backups.work(number).unwrap();
        if work.outcome.is_some() {
            break work;
        }
        node.env.sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(ended.outcome.unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(node.backups.work(99).unwrap_err().kind, ErrorKind::NotFound);
    node.done("b", create()).await;
}
