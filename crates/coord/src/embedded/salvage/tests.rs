//! Tests of salvage: damaged files are made again, and losses are reported.

use super::*;
use crate::conformance::{commit, put};
use crate::embedded::tests::{change, open, paths};
use crate::{Coord, EmbeddedCoord};
use stele_storage::memory::MemoryStorage;

/// Two generations: `a` in the first, `b` and `c` in the second.
async fn two_generations() -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    let first = open(&storage).await.unwrap();
    commit(&*first, put("a", "1")).await;
    drop(first);
    let second = open(&storage).await.unwrap();
    commit(&*second, put("b", "2")).await;
    commit(&*second, put("c", "3")).await;
    storage
}

async fn keys(coord: &EmbeddedCoord) -> Vec<String> {
    coord.list("").await.unwrap().into_iter().map(|(key, _)| key).collect()
}

async fn salvaged(storage: &Arc<MemoryStorage>) -> Result<Option<Salvaged>> {
    salvage(&(Arc::clone(storage) as Arc<dyn Storage>)).await
}

/// Puts the salvaged keys, and opens them.
async fn repaired(storage: &Arc<MemoryStorage>) -> (Salvaged, Vec<String>) {
    let salvaged = salvaged(storage).await.unwrap().unwrap();
    assert!(open(storage).await.is_err(), "recovery refuses what is damaged");
    salvaged.put(&(Arc::clone(storage) as Arc<dyn Storage>)).await.unwrap();
    let coord = open(storage).await.unwrap();
    (salvaged, keys(&coord).await)
}

fn newest(paths: &[String], prefix: &str) -> String {
    paths
        .iter()
        .filter(|path| path.starts_with(prefix))
        .max()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn the_generation_before_stays_and_no_more() {
    let storage = two_generations().await;
    assert_eq!(paths(&*storage).await.len(), 4);
    drop(open(&storage).await.unwrap());
    let third = open(&storage).await.unwrap();
    assert_eq!(keys(&third).await, ["a", "b", "c"]);
    assert_eq!(paths(&*storage).await.len(), 4);
}

#[tokio::test]
async fn a_damaged_snapshot_is_made_again() {
    for is_gone in [false, true] {
        let storage = two_generations().await;
        let path = newest(&paths(&*storage).await, "coord/snapshot-");
        match is_gone {
            true => storage.delete(&path).await.unwrap(),
            false => change(&storage, &path, |bytes| bytes[40] ^= 1).await,
        }
        let (salvaged, keys) = repaired(&storage).await;
        assert_eq!(salvaged.lost, None);
        assert_eq!(salvaged.damaged, if is_gone { vec![] } else { vec![path] });
        assert_eq!(keys, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn a_record_that_failed_does_not_come_back() {
    let storage = two_generations().await;
    let before = paths(&*storage)
        .await
        .into_iter()
        .find(|p| p.starts_with("coord/log-"))
        .unwrap();
    let bytes = storage.read_all(&before).await.unwrap();
    let last = decode_log(&bytes, 1).unwrap().records.pop().unwrap().revision;
    let failed = crate::format::encode_record(1, last + 1, &put("never", "x").writes);
    change(&storage, &before, |bytes| bytes.extend_from_slice(&failed)).await;
    let path = newest(&paths(&*storage).await, "coord/snapshot-");
    change(&storage, &path, |bytes| bytes[40] ^= 1).await;
    assert_eq!(repaired(&storage).await.1, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_damaged_log_counts_up_to_its_damage() {
    let storage = two_generations().await;
    let path = newest(&paths(&*storage).await, "coord/log-");
    let bytes = storage.read_all(&path).await.unwrap();
    let first = decode_log(&bytes, 2).unwrap().records[0].offset as usize;
    change(&storage, &path, |bytes| bytes[first + 20] ^= 1).await;
    let (salvaged, keys) = repaired(&storage).await;
    assert!(salvaged.lost.unwrap().contains("after revision"));
    assert_eq!((salvaged.damaged, keys), (vec![path], vec!["a".to_owned()]));
}

#[tokio::test]
async fn what_does_not_lead_up_to_it_is_not_taken() {
    // The last record before the damaged snapshot is missing.
    let storage = two_generations().await;
    let all = paths(&*storage).await;
    let before = all.iter().find(|p| p.starts_with("coord/log-")).unwrap();
    change(&storage, before, |bytes| bytes.truncate(bytes.len() - 3)).await;
    change(&storage, &newest(&all, "coord/snapshot-"), |bytes| bytes[40] ^= 1).await;
    assert!(matches!(salvaged(&storage).await, Err(CoordError::Corruption { .. })));
    // There is nothing before it.
    let storage = MemoryStorage::new();
    drop(open(&storage).await.unwrap());
    assert!(salvaged(&storage).await.unwrap().is_none());
    let path = newest(&paths(&*storage).await, "coord/snapshot-");
    change(&storage, &path, |bytes| bytes[9] ^= 1).await;
    assert!(salvaged(&storage).await.is_err());
}

#[tokio::test]
async fn what_the_device_cannot_read_is_no_unacknowledged_end() {
    let storage = two_generations().await;
    let path = newest(&paths(&*storage).await, "coord/log-");
    let len = storage.read_all(&path).await.unwrap().len() as u64;
    storage.make_unreadable(&path, len - 1..len);
    let (salvaged, _) = repaired(&storage).await;
    assert_eq!(salvaged.damaged, [path]);
    assert!(salvaged.lost.unwrap().contains("bytes that the device can read"));

    let storage = two_generations().await;
    let path = newest(&paths(&*storage).await, "coord/snapshot-");
    storage.make_unreadable(&path, 40..41);
    let (salvaged, keys) = repaired(&storage).await;
    assert_eq!((salvaged.damaged, salvaged.lost), (vec![path], None));
    assert_eq!(keys, ["a", "b", "c"]);
}
