//! Tests of salvage: intact groups of a damaged log are saved, lost ones are reported.

use super::*;
use crate::format::Payload;
use crate::replay;
use bytes::Bytes;
use stele_storage::memory::MemoryStorage;

mod unreadable;

const GROUPS: u64 = 4;

/// Two segments of four groups of one record each, the second of which states the length of the first.
async fn two_segments() -> (Arc<dyn Storage>, Vec<u64>) {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut begins = Vec::new();
    let mut len = 0;
    for number in 1..3u64 {
        let header = SegmentHeader {
            version: VERSION,
            stream: 0,
            number,
            previous: number - 1,
            previous_len: len,
            previous_synced: len,
        };
        let mut content = header.encode().to_vec();
        for n in 0..GROUPS {
            if number == 1 {
                begins.push(content.len() as u64);
            }
            let seq = SeqNo((number - 1) * GROUPS + n + 1);
            let record = Record {
                tablet: TabletId(n % 2),
                first: seq,
                last: seq,
                payload: Payload::new(Bytes::from(vec![seq.0 as u8; 50])),
            };
            let group = GroupHeader {
                records_len: record.frame_len() as u32,
                records: 1,
                offset: content.len() as u64,
                unsynced: 0,
            };
            content.extend_from_slice(&group.encode(number)[..]);
            content.extend_from_slice(&record.encode_header()[..]);
            content.extend_from_slice(record.payload.bytes());
        }
        len = content.len() as u64;
        let path = format::segment_path(0, number);
        storage.put_if_absent(&path, content.into()).await.unwrap();
    }
    (storage, begins)
}

async fn sequence_numbers(storage: &dyn Storage) -> Result<Vec<u64>, LogError> {
    let mut found = Vec::new();
    replay(storage, |record| {
        assert_eq!(record.payload.bytes()[..], [record.first.0 as u8; 50]);
        found.push(record.first.0);
        Ok::<_, LogError>(())
    })
    .await?;
    found.sort_unstable();
    Ok(found)
}

#[tokio::test]
async fn an_intact_log_has_no_damaged_segment() {
    let (storage, _) = two_segments().await;
    assert_eq!(damaged_segments(&*storage).await.unwrap(), []);
}

#[tokio::test]
async fn all_groups_but_the_damaged_one_are_saved() {
    let (_, begins) = two_segments().await;
    let len = begins[1] * GROUPS;
    for at in (0..len).step_by(3) {
        let (storage, _) = two_segments().await;
        let path = format::segment_path(0, 1);
        let mut content = storage.read_all(&path).await.unwrap().to_vec();
        let Some(byte) = content.get_mut(at as usize) else {
            continue;
        };
        *byte ^= 4;
        storage.delete(&path).await.unwrap();
        storage.put_if_absent(&path, content.into()).await.unwrap();
        assert!(sequence_numbers(&*storage).await.is_err(), "byte {at}");

        let damaged = damaged_segments(&*storage).await.unwrap();
        let [segment] = &damaged[..] else {
            unreachable!("byte {at}: {damaged:?}");
        };
        let hit = begins.iter().rposition(|begin| *begin <= at).map(|n| n as u64);
        let lost: Vec<(u64, u64)> = segment.lost.iter().map(|part| (part.offset, part.len)).collect();
        // Only the header precedes the first group, and it is written again.
        let expected = hit.map(|n| (begins[n as usize], begins[1] - begins[0]));
        assert_eq!(lost, Vec::from_iter(expected), "byte {at}");
        if hit == Some(2) {
            let around = BTreeMap::from([
                (TabletId(0), (Some(SeqNo(1)), None)),
                (TabletId(1), (Some(SeqNo(2)), Some(SeqNo(4)))),
            ]);
            assert_eq!(segment.lost[0].tablets, around);
        }
        let made = rewrite(&*storage, segment).await.unwrap().unwrap();
        assert_eq!(
            rewrite(&*storage, segment).await.unwrap(),
            Some(made),
            "after an interruption"
        );
        storage.delete(&path).await.unwrap();
        let expected: Vec<u64> = (1..=2 * GROUPS)
            .filter(|seq| hit.is_none_or(|n| *seq != n + 1))
            .collect();
        assert_eq!(sequence_numbers(&*storage).await.unwrap(), expected, "byte {at}");
        assert_eq!(damaged_segments(&*storage).await.unwrap(), []);
    }
}

#[tokio::test]
async fn what_was_refused_does_not_come_back() {
    let (storage, begins) = two_segments().await;
    // The successor says that only the first two groups count; of those one is damaged.
    let second = format::segment_path(0, 2);
    let header = SegmentHeader {
        version: VERSION,
        stream: 0,
        number: 2,
        previous: 1,
        previous_len: begins[2],
        previous_synced: begins[2],
    };
    let content = header.encode().to_vec();
    storage.delete(&second).await.unwrap();
    storage.put_if_absent(&second, content.into()).await.unwrap();
    let path = format::segment_path(0, 1);
    let mut content = storage.read_all(&path).await.unwrap().to_vec();
    content[begins[0] as usize + 40] ^= 1;
    storage.delete(&path).await.unwrap();
    storage.put_if_absent(&path, content.into()).await.unwrap();
    let damaged = damaged_segments(&*storage).await.unwrap();
    rewrite(&*storage, &damaged[0]).await.unwrap().unwrap();
    storage.delete(&path).await.unwrap();
    assert_eq!(sequence_numbers(&*storage).await.unwrap(), [2]);
}

/// The segment that states the length of the one before is damaged itself, behind its header.
#[tokio::test]
async fn what_was_refused_before_a_damaged_segment_does_not_come_back() {
    let (storage, begins) = two_segments().await;
    let second = format::segment_path(0, 2);
    let header = SegmentHeader {
        version: VERSION,
        stream: 0,
        number: 2,
        previous: 1,
        previous_len: begins[2],
        previous_synced: begins[2],
    };
    let mut content = storage.read_all(&second).await.unwrap().to_vec();
    content[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode()[..]);
    // In the second round only the header is left.
    for (groups, expected) in [(&[1][..], &[1, 2, 5, 7, 8][..]), (&[0, 1, 2, 3], &[1, 2])] {
        let (storage, _) = two_segments().await;
        let mut content = content.clone();
        for group in groups {
            content[begins[*group] as usize + 40] ^= 1;
        }
        storage.delete(&second).await.unwrap();
        storage.put_if_absent(&second, content.into()).await.unwrap();
        let damaged = damaged_segments(&*storage).await.unwrap();
        rewrite(&*storage, &damaged[0]).await.unwrap().unwrap();
        storage.delete(&second).await.unwrap();
        assert_eq!(sequence_numbers(&*storage).await.unwrap(), expected);
    }
}

/// The header of a misplaced segment states nothing about this one's neighbours.
#[tokio::test]
async fn a_foreign_header_says_nothing_of_the_segments_before() {
    let (storage, begins) = two_segments().await;
    let (first, path) = (format::segment_path(0, 1), format::segment_path(0, 2));
    let mut content = storage.read_all(&path).await.unwrap().to_vec();
    let foreign = SegmentHeader {
        version: VERSION,
        stream: 1,
        number: 2,
        previous: 1,
        previous_len: begins[1],
        previous_synced: begins[1],
    };
    let header = foreign.encode();
    content[..header.len()].copy_from_slice(&header[..]);
    storage.delete(&path).await.unwrap();
    storage.put_if_absent(&path, content.into()).await.unwrap();

    let damaged = damaged_segments(&*storage).await.unwrap();
    let paths: Vec<&str> = damaged.iter().map(|segment| &segment.path[..]).collect();
    assert_eq!(paths, [&path[..]]);
    rewrite(&*storage, &damaged[0]).await.unwrap().unwrap();
    storage.delete(&path).await.unwrap();
    let expected: Vec<u64> = (1..=2 * GROUPS).collect();
    assert_eq!(sequence_numbers(&*storage).await.unwrap(), expected, "{first} is whole");
    assert_eq!(damaged_segments(&*storage).await.unwrap(), []);
}
