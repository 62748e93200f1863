//! Tests of unreadable sectors in segments behind a gap.

use super::*;

/// Groups of a segment, of one record each: it takes four sectors.
const GROUPS: u64 = 12;
/// Bytes of a group.
const GROUP_BYTES: u64 = 28 + 36 + 1000;
/// In the second sector: it costs the groups 3 to 7.
const MIDDLE: u64 = 5_000;
/// In the last sector, as the last group is but for its header.
const END: u64 = 12_800;

/// Three segments. The first lost its last group, record 12. `rests` says whether the third took over from the second; else it
/// stands alone, and only its header is known to have been synced.
async fn after_power_loss(rests: bool) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    let mut len = 0;
    for number in 1..4u64 {
        let header = SegmentHeader {
            version: VERSION,
            stream: 0,
            number,
            previous: number - 1,
            previous_len: len,
            previous_synced: 0,
        };
        let synced = match number == 3 && !rests {
            true => SEGMENT_HEADER_BYTES as u32,
            false => 0,
        };
        let mut content = header.encode().to_vec();
        for n in 1..=GROUPS {
            let seq = SeqNo((number - 1) * GROUPS + n);
            let record = Record {
                tablet: TabletId(1),
                first: seq,
                last: seq,
                payload: Payload::new(Bytes::from(vec![seq.0 as u8; 1000])),
            };
            let group = GroupHeader {
                records_len: record.frame_len() as u32,
                records: 1,
                offset: content.len() as u64,
                unsynced: content.len() as u32 - synced,
            };
            content.extend_from_slice(&group.encode(number)[..]);
            content.extend_from_slice(&record.encode_header()[..]);
            content.extend_from_slice(record.payload.bytes());
        }
        len = content.len() as u64;
        if number == 1 {
            content.truncate((len - GROUP_BYTES) as usize);
        }
        let path = format::segment_path(0, number);
        storage.put_if_absent(&path, content.into()).await.unwrap();
    }
    storage
}

async fn found(storage: &dyn Storage) -> Result<Vec<u64>, LogError> {
    let mut found = Vec::new();
    replay(storage, |record| {
        found.push(record.first.0);
        Ok::<_, LogError>(())
    })
    .await?;
    found.sort_unstable();
    Ok(found)
}

/// Repairs a log in which one byte of a segment is unreadable. Returns the replaced segments in their order, with a `-` before
/// dropped ones, and the records that are left.
async fn repaired(rests: bool, segment: u64, byte: u64) -> (Vec<String>, Vec<u64>) {
    let storage = after_power_loss(rests).await;
    storage.make_unreadable(&format::segment_path(0, segment), byte..byte + 1);
    assert!(found(&*storage).await.is_err(), "a start refuses it");
    let damaged = damaged_segments(&*storage).await.unwrap();
    let mut replaced = Vec::new();
    for (at, segment) in damaged.iter().enumerate() {
        let sign = if segment.dropped { "-" } else { "" };
        replaced.push(format!("{sign}{}", segment.number));
        rewrite(&*storage, segment).await.unwrap();
        storage.delete(&segment.path).await.unwrap();
        // A repair that starts again after an interruption has the same result.
        let left = damaged_segments(&*storage).await.unwrap();
        let left: Vec<&str> = left.iter().map(|segment| &segment.path[..]).collect();
        let rest: Vec<&str> = damaged[at + 1..].iter().map(|segment| &segment.path[..]).collect();
        assert_eq!(left, rest);
    }
    (replaced, found(&*storage).await.unwrap())
}

/// The numbers of closed ranges.
fn numbers(pairs: &[(u64, u64)]) -> Vec<u64> {
    pairs.iter().flat_map(|(first, last)| *first..=*last).collect()
}

#[tokio::test]
async fn what_power_loss_undid_stays_undone() {
    for rests in [true, false] {
        let storage = after_power_loss(rests).await;
        assert_eq!(damaged_segments(&*storage).await.unwrap(), []);
        let expected = match rests {
            true => numbers(&[(1, 11)]),
            false => numbers(&[(1, 11), (25, 36)]),
        };
        assert_eq!(found(&*storage).await.unwrap(), expected, "without a bad sector");
        let (replaced, left) = repaired(rests, 2, MIDDLE).await;
        let dropped: &[&str] = if rests { &["-3", "-2"] } else { &["-2"] };
        assert_eq!(replaced, dropped);
        assert_eq!(left, expected);
    }
    let (replaced, left) = repaired(true, 3, MIDDLE).await;
    assert_eq!(replaced, ["-3"]);
    assert_eq!(left, numbers(&[(1, 11)]));
}

/// The group in the last sector may have been synced, and then all groups before it were.
#[tokio::test]
async fn what_may_have_been_synced_stays_and_what_is_missing_before_it_is_told() {
    let (replaced, left) = repaired(true, 2, END).await;
    assert_eq!(replaced, ["1", "2"]);
    assert_eq!(left, numbers(&[(1, 11), (13, 23), (25, 36)]));
    // Not even the third segment's predecessor is known.
    let (replaced, left) = repaired(true, 3, 10).await;
    assert_eq!(replaced, ["1", "3"]);
    assert_eq!(left, numbers(&[(1, 11), (13, 24), (29, 36)]));

    let storage = after_power_loss(true).await;
    storage.make_unreadable(&format::segment_path(0, 2), END..END + 1);
    let damaged = damaged_segments(&*storage).await.unwrap();
    let lost: Vec<(u64, u64)> = damaged[0].lost.iter().map(|part| (part.offset, part.len)).collect();
    let whole = SEGMENT_HEADER_BYTES as u64 + GROUPS * GROUP_BYTES;
    assert_eq!(lost, [(whole - GROUP_BYTES, GROUP_BYTES)]);
}
