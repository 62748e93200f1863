//! Cell keys: the order of the bytes is the order of the parts.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::cmp::Reverse;
use stele_types::{CellKey, CellKind, FamilyId, SeqNo, Timestamp};

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
            // 0 is reserved for row-level markers.
            family: FamilyId(self.family.max(1)),
            qualifier: self.qualifier.into(),
            timestamp: Timestamp(self.timestamp),
            seq: SeqNo(self.seq),
            kind: CellKind::Put,
        }
    }
}

fuzz_target!(|cells: (Cell<'_>, Cell<'_>)| {
    let order = |key: &CellKey<'_>| {
        (
            key.row.to_vec(),
            key.family,
            key.qualifier.to_vec(),
            Reverse(key.timestamp),
            Reverse(key.seq),
        )
    };
    let (a, b) = (cells.0.key(), cells.1.key());
    assert_eq!(a.encode().cmp(&b.encode()), order(&a).cmp(&order(&b)));
    if a.row.len() <= stele_types::limits::ROW_KEY_BYTES_MAX {
        assert_eq!(CellKey::decode(&a.encode()), Some(a));
    }
});
