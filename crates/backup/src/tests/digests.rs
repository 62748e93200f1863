//! Digests of rows: noted when a backup is made, and compared later.

use super::node::*;
use crate::destination::Destination;
use crate::format::{Document, Record};
use crate::paths;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use stele_client::{BackupOrder, BackupTask, FamilyChange, ReadRows, TableAdmin, TableService};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, GcRule, RowSet};

fn with_digests(task: BackupTask) -> BackupOrder {
    BackupOrder {
        digests: true,
        ..order("b", task)
    }
}

/// The digest of a table as a client computes it.
async fn read(node: &Node, name: &str) -> (u64, u64, Vec<u8>) {
    let schema = node.catalog.table(&table(name)).unwrap().schema.clone();
    let request = ReadRows::new(table(name), RowSet::all());
    let mut stream = node.service.read_rows(request).await.unwrap();
    let (mut rows, mut cells, mut digest) = (0, 0, Sha256::new());
    while let Some(batch) = stream.next().await.unwrap() {
        for (row, of_row) in batch.shared_rows() {
            rows += 1;
            for cell in of_row {
                cells += 1;
                let family = schema.families[&cell.family].name.as_bytes();
                for part in [&row[..], family, &cell.qualifier[..], &cell.value[..]] {
                    digest.update((part.len() as u32).to_be_bytes());
                    digest.update(part);
                }
            }
        }
    }
    (rows, cells, digest.finalize().to_vec())
}

async fn record(at: &Arc<dyn Storage>) -> Record {
    let destination = Destination::open(at.clone(), false).await.unwrap();
    let state = destination.state().await.unwrap();
    destination.record(state.backups[0].attempt()).await.unwrap()
}

#[tokio::test]
async fn the_digest_is_that_of_the_rows_a_client_reads() {
    let (source, at): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&source, &at).await;
    node.make_table("t").await;
    node.write("t", 0..200, 1).await;
    node.flush("t").await;
    node.write("t", 50..120, 2).await;
    for n in (0..200).step_by(7) {
        node.delete_row("t", n).await;
    }
    let expected = read(&node, "t").await;
    let made = node
        .carry_out(with_digests(BackupTask::Create { tables: Vec::new() }))
        .await;
    assert!(matches!(made.outcome, Some(Ok(_))), "{:?}", made.outcome);
    let noted = record(&at).await.tables.remove(0);
    assert_eq!((noted.rows, noted.cells, noted.sha256), expected);
    assert!(expected.0 > 100);
    // The server goes on, and the backup has the same rows.
    node.write("t", 0..50, 3).await;
    node.stop().await;
    drop(source);
    let other: Arc<dyn Storage> = MemoryStorage::new();
    let other = start(&other, &at).await;
    let verified = other
        .carry_out(with_digests(BackupTask::Verify))
        .await
        .outcome
        .unwrap()
        .unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
    other.done("b", restore()).await;
    assert_eq!(read(&other, "t").await, expected);
}

/// All checksums hold, and the record says that there were other rows.
#[tokio::test]
async fn other_rows_are_damage() {
    let (source, at): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&source, &at).await;
    node.make_table("t").await;
    node.write("t", 90..120, 1).await;
    node.carry_out(with_digests(BackupTask::Create { tables: Vec::new() }))
        .await;
    let mut other = record(&at).await;
    other.tables[0].sha256[3] ^= 1;
    let path = paths::record(other.attempt());
    at.delete(&path).await.unwrap();
    at.put_if_absent(&path, other.encode_file(&path).unwrap())
        .await
        .unwrap();
    let without = node.done("b", BackupTask::Verify).await.outcome.unwrap().unwrap();
    assert!(without.damage.is_empty(), "{without:?}");
    let found = node
        .carry_out(with_digests(BackupTask::Verify))
        .await
        .outcome
        .unwrap()
        .unwrap();
    assert!(found.damage[0].contains("other rows than were backed up"), "{found:?}");
    assert_eq!((found.damage.len(), found.more_damage), (1, 0));
}

/// Cells that a rule hides for their age are hidden as of the moment of the backup.
#[tokio::test]
async fn cells_that_expire_do_not_change_the_digest() {
    // On a busy machine all cells may expire before the digest is noted: then a longer life is tried.
    for life in [1_500_000, 6_000_000, 24_000_000] {
        if expires_after_digest(life).await {
            return;
        }
    }
    unreachable!("no backup was made in 24 seconds");
}

/// Verifies a backup of cells that live this long, in microseconds; false when they expired before its digest was noted.
async fn expires_after_digest(life: i64) -> bool {
    let (source, at): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&source, &at).await;
    node.make_table("t").await;
    let now = node.env.wall_micros();
    let rule = FamilyChange::Update {
        name: "f".to_owned(),
        gc_rule: Some(Some(GcRule::MaxAgeMicros(life))),
        value_type: None,
        deletes: None,
        front_end_data: None,
    };
    node.master.modify_families(&table("t"), vec![rule]).await.unwrap();
    node.write("t", 90..120, now).await;
    node.carry_out(with_digests(BackupTask::Create { tables: Vec::new() }))
        .await;
    let noted = record(&at).await.tables.remove(0).rows;
    while node.env.wall_micros() < now + life + 10_000 {
        node.env.sleep(std::time::Duration::from_millis(20)).await;
    }
    let is_late = read(&node, "t").await.0 >= noted;
    let verified = node
        .carry_out(with_digests(BackupTask::Verify))
        .await
        .outcome
        .unwrap()
        .unwrap();
    assert!(verified.damage.is_empty(), "{verified:?}");
    !is_late
}

#[tokio::test]
async fn digests_that_were_not_noted_are_not_compared() {
    let (source, at): (Arc<dyn Storage>, Arc<dyn Storage>) = (MemoryStorage::new(), MemoryStorage::new());
    let node = start(&source, &at).await;
    node.make_table("t").await;
    node.done("b", create()).await;
    let refused = node
        .carry_out(with_digests(BackupTask::Verify))
        .await
        .outcome
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::FailedPrecondition, "{}", refused.message);
}
