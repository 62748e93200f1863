//! Batches of mutations in log records: any bytes are refused or can be applied.
//!
//! A decoded batch keeps its meaning when it is written again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_tablet::Batch;
use stele_tablet::batch::BatchBuilder;
use stele_types::key::range_delete_start;
use stele_types::{CellKey, CellKind, Mutation, SeqNo, Timestamp};

const FIRST: SeqNo = SeqNo(1);

type Entry = (Vec<u8>, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    let Some(batch) = Batch::decode(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let numbered = Batch::decode_record(batch.to_bytes(), FIRST, SeqNo(batch.len()));
    assert_eq!(numbered.is_some(), !batch.is_empty());
    let entries = entries(&batch);
    assert_eq!(entries.len() as u64, batch.len());
    let mut builder = BatchBuilder::default();
    for (nth, (key, value)) in (0..).zip(&entries) {
        let key = CellKey::decode(key).expect("an entry has a key the memtable cannot hold");
        assert_eq!(key.seq, FIRST.plus(nth), "entries are numbered in their order");
        // A deletion of a whole column has two spellings.
        let Some(mutation) = mutation(&key, value) else {
            return;
        };
        builder.push(&key.row, mutation);
    }
    let again = builder.finish_with(batch.token().cloned());
    let decoded = Batch::decode(again.to_bytes()).expect("what was encoded decodes");
    assert_eq!(self::entries(&decoded), entries);
    assert_eq!(decoded.token(), batch.token());
    let _ = decoded.token().map(|token| token.answer());
});

fn entries(batch: &Batch) -> Vec<Entry> {
    let mut entries = Vec::new();
    batch.entries(FIRST, |key, value| entries.push((key.to_vec(), value.to_vec())));
    entries
}

/// The source of the entry; `None` for an entry with another spelling.
fn mutation<'a>(key: &'a CellKey<'_>, value: &'a [u8]) -> Option<Mutation<&'a [u8]>> {
    let (family, timestamp, qualifier) = (key.family, key.timestamp, &key.qualifier[..]);
    let delete_column = |from| Mutation::DeleteColumn {
        family,
        qualifier,
        from,
        to: timestamp,
    };
    Some(match key.kind {
        CellKind::Put => Mutation::Put {
            family,
            qualifier,
            timestamp,
            value,
        },
        CellKind::ExpiringPut => Mutation::ExpiringPut {
            family,
            qualifier,
            timestamp,
            stored: value,
        },
        CellKind::Merge => Mutation::Merge {
            family,
            qualifier,
            timestamp,
            operand: value,
        },
        CellKind::DeleteRow => Mutation::DeleteRow { up_to: timestamp },
        CellKind::DeleteFamily => Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        },
        CellKind::DeleteFamilyVersion => Mutation::DeleteFamilyVersion { family, timestamp },
        CellKind::DeleteColumn => delete_column(Timestamp::MIN),
        CellKind::DeleteRange => delete_column(range_delete_start(value).filter(|from| *from != Timestamp::MIN)?),
        CellKind::DeleteVersion => Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
        CellKind::Reference => panic!("references are made by flushes only"),
    })
}
