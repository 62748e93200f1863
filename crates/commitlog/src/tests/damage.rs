//! Tests of damage: torn tails are dropped silently, damage to synced bytes is an error.

use super::*;
use crate::salvage::damaged_segments;
use stele_storage::memory::MemoryStorage;

/// A segment of three groups of two records, each synced, and where each group begins.
async fn three_groups() -> (String, Vec<u8>, Vec<usize>) {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    let mut begins = Vec::new();
    for group in 0..3 {
        let len = storage.list("log/").await.unwrap().first().map_or(56, |file| file.len);
        begins.push(len as usize);
        let answers = [
            log.submit(2 * group, Durability::Sync).await,
            log.submit(2 * group + 1, Durability::Sync).await,
        ];
        for answer in answers {
            answer.await.unwrap().unwrap();
        }
    }
    let path = segments(&storage).await.remove(0);
    let content = storage.read_all(&path).await.unwrap().to_vec();
    (path, content, begins)
}

async fn replay_of(path: &str, content: &[u8]) -> Result<Vec<u64>, LogError> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    storage
        .put_if_absent(path, Bytes::copy_from_slice(content))
        .await
        .unwrap();
    replayed(&storage).await
}

/// The records that are left of six when only bytes before `len` are good.
fn good_before(len: usize, begins: &[usize], all: usize) -> Vec<u64> {
    let ends = begins.iter().skip(1).copied().chain([all]);
    let groups = ends.filter(|end| *end <= len).count() as u64;
    (0..2 * groups).collect()
}

#[tokio::test]
async fn a_segment_cut_anywhere_gives_its_whole_groups() {
    let (path, content, begins) = three_groups().await;
    for len in 0..=content.len() {
        let found = replay_of(&path, &content[..len]).await.unwrap();
        assert_eq!(found, good_before(len, &begins, content.len()), "cut at {len}");
    }
}

#[tokio::test]
async fn a_last_group_torn_anywhere_is_dropped() {
    let (path, content, begins) = three_groups().await;
    let last = begins[2];
    for from in last..content.len() {
        for garbage in [0u8, 0xa5] {
            let mut torn = content.clone();
            torn[from..].fill(garbage);
            if torn != content {
                assert_eq!(replay_of(&path, &torn).await.unwrap(), [0, 1, 2, 3], "torn from {from}");
            }
        }
    }
}

/// Where a tail was not written, the file may contain other bytes of the same segment, with valid checksums.
#[tokio::test]
async fn a_group_counts_only_in_its_place() {
    let (path, content, begins) = three_groups().await;
    let (second, third) = (begins[1], begins[2]);
    let twice = [&content[..third], &content[second..third]].concat();
    assert_eq!(replay_of(&path, &twice).await.unwrap(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_flipped_bit_in_what_was_synced_is_an_error() {
    let (path, content, begins) = three_groups().await;
    for at in 0..content.len() {
        let mut rotten = content.clone();
        rotten[at] ^= 1 << (at % 8);
        let found = replay_of(&path, &rotten).await;
        // Nothing behind the last group says that it was synced: it cannot be told from a torn tail.
        if at >= begins[2] {
            assert_eq!(found.unwrap(), [0, 1, 2, 3], "at {at}");
            continue;
        }
        let group = begins.iter().rev().find(|begin| **begin <= at).copied().unwrap_or(0);
        let named = |error: &LogError| match error {
            LogError::Corruption { path, offset, .. } => Some((path.to_string(), *offset)),
            _ => None,
        };
        let expected = Some((path.clone(), group as u64));
        assert_eq!(
            found.as_ref().err().and_then(named),
            expected,
            "bit flip at {at} gave {found:?}"
        );
    }
}

/// The next segment states how far this one was synced. So its last group is protected as well, and its header, also where that
/// group is the only one.
#[tokio::test]
async fn a_flipped_bit_in_a_closed_segment_is_an_error() {
    for groups in [1, 3] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        for n in 0..=groups {
            log.write(n, Durability::Sync).await.unwrap();
            if n + 1 == groups {
                log.stream.rotate().await;
            }
        }
        let paths = segments(&storage).await;
        let (old, new) = (&paths[0], &paths[1]);
        let (content, next) = (
            storage.read_all(old).await.unwrap(),
            storage.read_all(new).await.unwrap(),
        );
        for at in 0..content.len() {
            let mut rotten = content.to_vec();
            rotten[at] ^= 1 << (at % 8);
            let storage: Arc<dyn Storage> = MemoryStorage::new();
            storage.put_if_absent(old, rotten.into()).await.unwrap();
            storage.put_if_absent(new, next.clone()).await.unwrap();
            let found = replayed(&storage).await;
            assert!(
                matches!(found, Err(LogError::Corruption { .. })),
                "bit flip at {at} of {groups} groups gave {found:?}"
            );
            let damaged = damaged_segments(&*storage).await.unwrap();
            let [damaged] = &damaged[..] else {
                unreachable!("bit flip at {at} of {groups} groups: {damaged:?}");
            };
            let is_header = at < crate::format::SEGMENT_HEADER_BYTES;
            let saved = if is_header { groups } else { groups - 1 };
            assert_eq!((&damaged.path, damaged.kept_records), (old, saved), "bit flip at {at}");
        }
    }
}

#[tokio::test]
async fn a_newer_format_and_a_misplaced_segment_are_errors() {
    let (path, content, _) = three_groups().await;
    let moved = crate::format::segment_path(0, 77);
    assert!(matches!(
        replay_of(&moved, &content).await,
        Err(LogError::Corruption { .. })
    ));
    let mut newer = content.clone();
    newer[8] = 2;
    let crc = crc32fast::hash(&newer[..52]);
    newer[52..56].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(
        replay_of(&path, &newer).await,
        Err(LogError::TooNew { found: 2, .. })
    ));
}
