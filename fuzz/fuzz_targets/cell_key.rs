//! Cell keys: a decoded key encodes to the same bytes.
//!
//! Its parts agree with the whole, and the order of the bytes is the order of the parts.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::cmp::Reverse;
use stele_types::key::{KeyParts, row_prefix_len};
use stele_types::limits::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX};
use stele_types::{CellKey, CellKind, FamilyId, SeqNo, Timestamp};

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Ok((a, b)) = <(Cell<'_>, Cell<'_>)>::arbitrary(&mut Unstructured::new(bytes)) {
        compare(&a.key(), &b.key());
    }
});

fn decode(bytes: &[u8]) {
    let Some(key) = CellKey::decode(bytes) else {
        return;
    };
    assert_eq!(key.encode(), bytes);
    let parts = KeyParts::parse(bytes).expect("what decodes can be split");
    assert_eq!(row_prefix_len(bytes), Some(parts.row_end));
    assert_eq!(
        (parts.timestamp, parts.seq, parts.kind),
        (key.timestamp, key.seq, key.kind)
    );
    assert_eq!((parts.row(bytes), parts.qualifier(bytes)), (key.row, key.qualifier));
}

fn compare(a: &CellKey<'_>, b: &CellKey<'_>) {
    let order = |key: &CellKey<'_>| {
        (
            key.row.to_vec(),
            key.family,
            key.qualifier.to_vec(),
            Reverse(key.timestamp),
            Reverse(key.seq),
        )
    };
    assert_eq!(a.encode().cmp(&b.encode()), order(a).cmp(&order(b)));
    if a.row.len() <= ROW_KEY_BYTES_MAX && a.qualifier.len() <= QUALIFIER_BYTES_MAX {
        assert_eq!(CellKey::decode(&a.encode()).as_ref(), Some(a));
    }
}

#[derive(Arbitrary, Debug)]
struct Cell<'a> {
    row: &'a [u8],
    family: u32,
    qualifier: &'a [u8],
    timestamp: i64,
    seq: u64,
}

impl<'a> Cell<'a> {
    fn key(&self) -> CellKey<'a> {
        CellKey {
            row: self.row.into(),
            // 0 is reserved for row-level tombstones.
            family: FamilyId(self.family.max(1)),
            qualifier: self.qualifier.into(),
            timestamp: Timestamp(self.timestamp),
            seq: SeqNo(self.seq),
            kind: CellKind::Put,
        }
    }
}
