//! Replay of the commit log after any damage to a segment.
//!
//! It gives written records in their order, or an error, and never other records. A repair produces a log that replays
//! and gives no others either.
#![no_main]

use bytes::Bytes;
use futures::executor::block_on;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stele_commitlog::format::{GroupHeader, SegmentHeader, VERSION, segment_path};
use stele_commitlog::salvage::{damaged_segments, rewrite};
use stele_commitlog::{LogError, Payload, Record, inspect, replay};
use stele_fuzz::storage;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tablet::Batch;
use stele_types::{SeqNo, TabletId};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    groups: Vec<Group<'a>>,
    damage: Damage<'a>,
    /// Of the segment that follows: the length that it records as acknowledged and synced.
    next: Option<(u32, u32)>,
}

#[derive(Arbitrary, Debug)]
struct Group<'a> {
    unsynced: u32,
    records: Vec<Entry<'a>>,
}

#[derive(Arbitrary, Debug)]
struct Entry<'a> {
    tablet: u8,
    first: u64,
    count: u8,
    payload: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum Damage<'a> {
    None,
    Cut(u16),
    Flip(u16, u8),
    Overwrite(u16, &'a [u8]),
    Append(&'a [u8]),
    /// The whole segment.
    Replace(&'a [u8]),
}

fuzz_target!(|input: Input<'_>| {
    let (mut bytes, written) = segment(&input.groups);
    let whole = matches!(input.damage, Damage::None);
    // An overwritten checksum can be made right; nothing else can add a record.
    let foreign = matches!(
        input.damage,
        Damage::Overwrite(..) | Damage::Append(_) | Damage::Replace(_)
    );
    damage(&mut bytes, &input.damage);
    let len = bytes.len() as u64;
    let mut files = vec![(segment_path(0, 1), Bytes::from(bytes))];
    if let Some((acknowledged, synced)) = input.next {
        let header = SegmentHeader {
            version: VERSION,
            stream: 0,
            number: 2,
            previous: 1,
            previous_len: u64::from(acknowledged),
            previous_synced: u64::from(synced),
        };
        files.push((segment_path(0, 2), header.encode()));
    }
    let all: usize = files.iter().map(|(_, content)| content.len()).sum();
    let storage = storage(files.iter().map(|(path, content)| (path.as_str(), content.clone())));
    let file = block_on(storage.open(&segment_path(0, 1))).expect("just made");
    let _ = block_on(inspect(file, |record| format!("{record:?}")));
    let mut found = Vec::new();
    let report = block_on(replay(&*storage, |record| {
        found.push(record);
        Ok::<_, LogError>(())
    }));
    if let Ok(report) = &report {
        assert!(report.torn_bytes <= all as u64);
        assert_eq!(report.records, found.len() as u64);
    }
    if !foreign {
        assert!(written.starts_with(&found), "a record that was not written");
    }
    if whole
        && input
            .next
            .is_none_or(|(acknowledged, _)| u64::from(acknowledged) >= len)
        && report.is_ok()
    {
        assert_eq!(found, written);
    }
    if report.is_err() {
        repaired(&storage, (!foreign).then_some(&written));
    }
    for record in &found {
        if let Some(batch) = Batch::decode_record(record.payload.bytes().clone(), record.first, record.last) {
            batch.entries(record.first, |_, _| ());
        }
    }
});

/// Repairs the log as `stele repair` does. `written` is known where nothing can look like a record that is none.
fn repaired(storage: &Arc<MemoryStorage>, written: Option<&Vec<Record>>) {
    let Ok(damaged) = block_on(damaged_segments(&**storage)) else {
        return;
    };
    for segment in &damaged {
        let Ok(_) = block_on(rewrite(&**storage, segment)) else {
            return;
        };
        block_on(storage.delete(&segment.path)).expect("memory does not fail");
    }
    let mut found = Vec::new();
    let report = block_on(replay(&**storage, |record| {
        found.push(record);
        Ok::<_, LogError>(())
    }));
    report.expect("a repaired log replays");
    if let Some(written) = written {
        let mut rest = written.iter();
        assert!(
            found.iter().all(|record| rest.any(|other| other == record)),
            "a record that was not written"
        );
    }
}

fn segment(groups: &[Group<'_>]) -> (Vec<u8>, Vec<Record>) {
    let header = SegmentHeader {
        version: VERSION,
        stream: 0,
        number: 1,
        previous: 0,
        previous_len: 0,
        previous_synced: 0,
    };
    let mut bytes = header.encode().to_vec();
    let mut written = Vec::new();
    for group in groups.iter().filter(|group| !group.records.is_empty()) {
        let mut body = Vec::new();
        for entry in &group.records {
            let record = Record {
                tablet: TabletId(u64::from(entry.tablet)),
                first: SeqNo(entry.first),
                last: SeqNo(entry.first.saturating_add(u64::from(entry.count))),
                payload: Payload::new(Bytes::copy_from_slice(entry.payload)),
            };
            body.extend_from_slice(&record.encode_header());
            body.extend_from_slice(record.payload.bytes());
            written.push(record);
        }
        let header = GroupHeader {
            records_len: body.len() as u32,
            records: group.records.len() as u32,
            offset: bytes.len() as u64,
            unsynced: group.unsynced,
        };
        bytes.extend_from_slice(&header.encode(1));
        bytes.extend_from_slice(&body);
    }
    (bytes, written)
}

fn damage(bytes: &mut Vec<u8>, damage: &Damage<'_>) {
    match damage {
        Damage::None => {}
        Damage::Cut(at) => bytes.truncate(usize::from(*at)),
        Damage::Flip(at, mask) => {
            if let Some(byte) = bytes.get_mut(usize::from(*at)) {
                *byte ^= mask;
            }
        }
        Damage::Overwrite(at, with) => {
            for (byte, new) in bytes.iter_mut().skip(usize::from(*at)).zip(*with) {
                *byte = *new;
            }
        }
        Damage::Append(tail) => bytes.extend_from_slice(tail),
        Damage::Replace(content) => *bytes = content.to_vec(),
    }
}
