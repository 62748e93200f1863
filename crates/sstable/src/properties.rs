//! The properties of a file. Tags are in `docs/formats/sstable.md` and are never reused.

mod families;

pub(crate) use families::FamilySet;

use crate::error::DecodeError;
use crate::frame::Handle;
use bytes::Bytes;
use prost::Message;
use stele_types::{CellKind, FamilyId, Timestamp};

/// The properties block: enough to rule out a file without reading it, and to plan compactions.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Properties {
    /// First key.
    #[prost(bytes = "vec", tag = "1")]
    pub smallest_key: Vec<u8>,
    /// Last key.
    #[prost(bytes = "bytes", tag = "2")]
    pub largest_key: Bytes,
    /// Entries of every kind.
    #[prost(uint64, tag = "3")]
    pub cells: u64,
    /// Distinct rows.
    #[prost(uint64, tag = "4")]
    pub rows: u64,
    /// Sum of full key lengths.
    #[prost(uint64, tag = "5")]
    pub raw_key_bytes: u64,
    /// Sum of value lengths.
    #[prost(uint64, tag = "6")]
    pub raw_value_bytes: u64,
    /// Over puts and merge operands; absent when there is none.
    #[prost(sint64, optional, tag = "7")]
    pub timestamp_min: Option<i64>,
    /// Over puts and merge operands; absent when there is none.
    #[prost(sint64, optional, tag = "8")]
    pub timestamp_max: Option<i64>,
    /// Over all cells.
    #[prost(uint64, tag = "9")]
    pub seq_min: u64,
    /// Over all cells.
    #[prost(uint64, tag = "10")]
    pub seq_max: u64,
    /// The n-th element counts kind n + 1.
    #[prost(uint64, repeated, tag = "11")]
    pub kind_counts: Vec<u64>,
    /// Number of data blocks.
    #[prost(uint64, tag = "12")]
    pub data_blocks: u64,
    /// Length of the data-block part of the file.
    #[prost(uint64, tag = "13")]
    pub data_bytes: u64,
    /// Number of first-level index blocks.
    #[prost(uint64, tag = "14")]
    pub index_blocks: u64,
    /// The compression asked for; single blocks may be raw.
    #[prost(uint32, tag = "15")]
    pub compression: u32,
    /// Program and version.
    #[prost(string, tag = "16")]
    pub created_by: String,
    /// Wall clock, microseconds since the Unix epoch; 0 when unknown.
    #[prost(int64, tag = "17")]
    pub created_micros: i64,
    /// The families that have entries, ascending, as pairs of the first and the last of neighbours; 0 stands for row
    /// tombstones. Empty when unknown.
    #[prost(uint32, repeated, tag = "18")]
    pub families: Vec<u32>,
    /// Level of Zstandard; 0 for other codecs.
    #[prost(uint32, tag = "19")]
    pub zstd_level: u32,
    /// Content bytes at which data blocks were closed; 0 when unknown.
    #[prost(uint32, tag = "20")]
    pub block_bytes: u32,
    /// Bits per row that the filter was made with.
    #[prost(uint32, tag = "21")]
    pub filter_bits_per_row: u32,
    /// Offset of the dictionary's block.
    #[prost(uint64, tag = "22")]
    pub dictionary_offset: u64,
    /// Bytes of the dictionary; 0 when there is none.
    #[prost(uint32, tag = "23")]
    pub dictionary_bytes: u32,
    /// Estimated bytes that compressing all data blocks would save.
    #[prost(uint64, tag = "24")]
    pub compressible_bytes: u64,
}

impl Properties {
    /// Decodes the properties and checks their promises to readers: both keys present and in order, at least one cell.
    pub fn decode_checked(content: &[u8]) -> Result<Properties, DecodeError> {
        let properties = Properties::decode(content).map_err(|e| DecodeError::new(0, format!("properties: {e}")))?;
        let ordered = !properties.smallest_key.is_empty() && properties.smallest_key <= properties.largest_key;
        if !ordered || properties.cells == 0 {
            return Err(DecodeError::new(0, "properties: no cells, or keys out of order"));
        }
        if !families::are_sound(&properties.families) {
            return Err(DecodeError::new(0, "properties: families out of order"));
        }
        Ok(properties)
    }

    /// Position of the dictionary, if there is one.
    pub fn dictionary(&self) -> Option<Handle> {
        (self.dictionary_bytes > 0).then_some(Handle {
            offset: self.dictionary_offset,
            len: self.dictionary_bytes,
        })
    }

    /// Whether the file may have entries of a family, or for family 0 row tombstones.
    pub fn may_have_family(&self, family: FamilyId) -> bool {
        self.families.is_empty() || families::contain(&self.families, family)
    }

    /// The first and the last of the families from `first` to `last` that have entries. `None` when none has, or the
    /// families are unknown. The cost depends on the number of ranges, not of families.
    pub fn families_within(&self, first: FamilyId, last: FamilyId) -> Option<(FamilyId, FamilyId)> {
        families::within(&self.families, first, last)
    }

    /// The number of families with entries, and the number of these within `ranges`, which do not overlap. Both 0 when
    /// the families are unknown.
    pub fn families_among(&self, ranges: &[(FamilyId, FamilyId)]) -> (u64, u64) {
        families::among(&self.families, ranges)
    }

    /// Cells of one kind.
    pub fn count(&self, kind: CellKind) -> u64 {
        self.kind_counts.get(kind as usize - 1).copied().unwrap_or(0)
    }

    /// Number of tombstones. While there is one, the file must be read even when no put of it is needed.
    pub fn deletes(&self) -> u64 {
        self.cells
            .saturating_sub(self.count(CellKind::Put))
            .saturating_sub(self.count(CellKind::Merge))
            .saturating_sub(self.count(CellKind::Reference))
            .saturating_sub(self.count(CellKind::ExpiringPut))
    }

    /// Counts one cell. The writer maintains rows, blocks and keys.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], ts: Timestamp, seq: u64, kind: CellKind) {
        let first = self.cells == 0;
        self.cells += 1;
        self.raw_key_bytes += key.len() as u64;
        self.raw_value_bytes += value.len() as u64;
        self.seq_min = if first { seq } else { self.seq_min.min(seq) };
        self.seq_max = self.seq_max.max(seq);
        if !kind.is_delete() {
            self.timestamp_min = Some(self.timestamp_min.map_or(ts.0, |min| min.min(ts.0)));
            self.timestamp_max = Some(self.timestamp_max.map_or(ts.0, |max| max.max(ts.0)));
        }
        let index = kind as usize - 1;
        if self.kind_counts.len() <= index {
            self.kind_counts.resize(index + 1, 0);
        }
        self.kind_counts[index] += 1;
        debug_assert!(self.seq_min <= self.seq_max, "the range of sequences is not empty");
        debug_assert!(
            self.timestamp_min <= self.timestamp_max,
            "the range of timestamps is not empty"
        );
        debug_assert_eq!(
            self.kind_counts.iter().sum::<u64>(),
            self.cells,
            "every cell is counted under one kind"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_counts_do_not_overflow() {
        let mut properties = Properties {
            smallest_key: b"k".to_vec(),
            largest_key: Bytes::from_static(b"k"),
            cells: 1,
            kind_counts: vec![u64::MAX; CellKind::Merge as usize],
            ..Properties::default()
        };
        let read = Properties::decode_checked(&properties.encode_to_vec());
        assert_eq!(read.map(|p| p.deletes()), Ok(0));
        properties.kind_counts = vec![1];
        properties.cells = 3;
        assert_eq!(properties.deletes(), 2);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Properties::decode_checked(&bytes);
        }
    }
}
