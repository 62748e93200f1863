//! Mutation batches: what a commit log record carries and a memtable takes in.
//!
//! A batch is encoded once, before its place in the commit order is known: its keys carry sequence numbers relative to
//! the batch, and [`Batch::entries`] adds the first sequence number of the record. Byte table:
//! `docs/formats/mutation-batch.md`.

use bytes::Bytes;
use stele_types::key::{self, CellKind, KeyBuf};
use stele_types::varint;
use stele_types::{FamilyId, Mutation, RowMutation, SeqNo, Timestamp, limits};

const VERSION: u8 = 1;

/// An encoded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    bytes: Bytes,
    entries: u32,
}

/// Collects mutations into a batch.
#[derive(Debug)]
pub struct BatchBuilder {
    body: Vec<u8>,
    entries: u32,
    key: KeyBuf,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder {
            body: Vec::new(),
            entries: 0,
            key: KeyBuf::new(),
        }
    }
}

impl BatchBuilder {
    /// Adds all mutations of one row.
    pub fn push_row(&mut self, row: &RowMutation) {
        for mutation in &row.mutations {
            self.push(&row.row, mutation.map(|bytes| &bytes[..]));
        }
    }

    /// Adds one mutation of a row.
    pub fn push(&mut self, row: &[u8], mutation: Mutation<&[u8]>) {
        let range_value;
        let (family, qualifier, timestamp, kind, value): (FamilyId, &[u8], Timestamp, CellKind, &[u8]) = match mutation
        {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => (family, qualifier, timestamp, CellKind::Put, value),
            Mutation::Merge {
                family,
                qualifier,
                timestamp,
                operand,
            } => (family, qualifier, timestamp, CellKind::Merge, operand),
            Mutation::DeleteRow { up_to } => (FamilyId(0), &[], up_to, CellKind::DeleteRow, &[]),
            Mutation::DeleteFamily { family, up_to } => (family, &[], up_to, CellKind::DeleteFamily, &[]),
            Mutation::DeleteFamilyVersion { family, timestamp } => {
                (family, &[], timestamp, CellKind::DeleteFamilyVersion, &[])
            }
            Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            } if from == Timestamp::MIN => (family, qualifier, to, CellKind::DeleteColumn, &[]),
            Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            } => {
                range_value = key::range_delete_value(from);
                (family, qualifier, to, CellKind::DeleteRange, &range_value)
            }
            Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            } => (family, qualifier, timestamp, CellKind::DeleteVersion, &[]),
        };
        self.key
            .set(row, family, qualifier, timestamp, SeqNo(u64::from(self.entries)), kind);
        varint::put_bytes(&mut self.body, self.key.as_slice());
        varint::put_bytes(&mut self.body, value);
        self.entries += 1;
    }

    /// Number of mutations so far.
    pub fn len(&self) -> u32 {
        self.entries
    }

    /// Whether there is no mutation.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The encoded batch.
    pub fn finish(self) -> Batch {
        let mut out = Vec::with_capacity(self.body.len() + 8);
        out.push(VERSION);
        varint::put_u32(&mut out, self.entries);
        out.extend_from_slice(&self.body);
        Batch {
            bytes: out.into(),
            entries: self.entries,
        }
    }
}

impl Batch {
    /// Checks an encoded batch from the log; `None` when any part is not as the byte table says.
    pub fn decode(bytes: Bytes) -> Option<Batch> {
        let mut input: &[u8] = &bytes;
        let (&version, rest) = input.split_first()?;
        if version != VERSION {
            return None;
        }
        input = rest;
        let entries = varint::take_u32(&mut input)?;
        for _ in 0..entries {
            let key = varint::take_bytes(&mut input)?;
            let value = varint::take_bytes(&mut input)?;
            let parts = key::KeyParts::parse(key)?;
            let aggregate = parts.kind == CellKind::Merge || parts.kind == CellKind::DeleteRange;
            let value_ok = if aggregate {
                value.len() == 8
            } else {
                value.len() <= limits::VALUE_BYTES_MAX
            };
            if parts.seq.0 >= u64::from(entries) || !value_ok {
                return None;
            }
        }
        input.is_empty().then_some(Batch { bytes, entries })
    }

    /// Checks an encoded batch together with the sequence numbers of the log record that carried it: one for each
    /// mutation, all in one epoch, as [`Batch::entries`] needs them.
    pub fn decode_record(bytes: Bytes, first: SeqNo, last: SeqNo) -> Option<Batch> {
        let batch = Batch::decode(bytes)?;
        let one_each = !batch.is_empty() && last.0.checked_sub(first.0) == Some(batch.len() - 1);
        (one_each && first.epoch() == last.epoch()).then_some(batch)
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Number of mutations, hence of sequence numbers it takes.
    pub fn len(&self) -> u64 {
        u64::from(self.entries)
    }

    /// Whether there is no mutation.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Calls `visit(key, value)` for every entry, its key carrying the absolute sequence number.
    pub fn entries(&self, first: SeqNo, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut input: &[u8] = self.bytes.get(1..).unwrap_or_default();
        let _ = varint::take_u32(&mut input);
        let mut key = Vec::new();
        while let (Some(relative), Some(value)) = (varint::take_bytes(&mut input), varint::take_bytes(&mut input)) {
            let Some(seq) = key::seq_of(relative) else { return };
            key.clear();
            key.extend_from_slice(relative);
            let at = key.len() - 9;
            key[at..at + 8].copy_from_slice(&(!first.plus(seq.0).0).to_be_bytes());
            visit(&key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::CellKey;

    #[test]
    fn entries_get_absolute_sequence_numbers_in_order() {
        let mut builder = BatchBuilder::default();
        let put = |v: &'static [u8]| Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(7),
            value: Bytes::from_static(v),
        };
        let mutations = vec![Mutation::DeleteRow { up_to: Timestamp::MAX }, put(b"x"), put(b"y")];
        builder.push_row(&RowMutation {
            row: Bytes::from_static(b"r"),
            mutations,
        });
        let batch = builder.finish();
        assert_eq!(Batch::decode(batch.bytes().clone()), Some(batch.clone()));
        let mut seen = Vec::new();
        let first = SeqNo::new(stele_types::Epoch(3), 100);
        batch.entries(first, |key, value| {
            let key = CellKey::decode(key).expect("what was encoded decodes");
            seen.push((key.seq.counter(), key.kind, value.to_vec()));
        });
        let expected = [
            (100, CellKind::DeleteRow, vec![]),
            (101, CellKind::Put, b"x".to_vec()),
            (102, CellKind::Put, b"y".to_vec()),
        ];
        assert_eq!(seen, expected);
        for cut in 0..batch.bytes().len() {
            assert_eq!(Batch::decode(batch.bytes().slice(..cut)), None);
        }
    }

    #[test]
    fn a_record_has_one_number_for_each_mutation() {
        let mut builder = BatchBuilder::default();
        let mutations = vec![Mutation::DeleteRow { up_to: Timestamp::MAX }; 2];
        builder.push_row(&RowMutation {
            row: Bytes::from_static(b"r"),
            mutations,
        });
        let batch = builder.finish();
        let decode = |first, last| Batch::decode_record(batch.bytes().clone(), SeqNo(first), SeqNo(last));
        assert_eq!(decode(5, 6), Some(batch.clone()));
        let last_of_epoch = SeqNo::COUNTER_MAX;
        for (first, last) in [
            (5, 5),
            (5, 7),
            (6, 5),
            (u64::MAX, u64::MAX),
            (last_of_epoch, last_of_epoch + 1),
        ] {
            assert_eq!(decode(first, last), None, "{first}..={last}");
        }
        let empty = BatchBuilder::default().finish();
        assert_eq!(Batch::decode_record(empty.bytes().clone(), SeqNo(1), SeqNo(0)), None);
    }
}
