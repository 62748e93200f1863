//! Mutation batches: the content of commit log records, and the input of memtables.
//!
//! A batch is encoded once, before its place in the commit order is known: an entry's sequence number is its place in
//! the batch, and [`Batch::entries`] adds the first sequence number of the record. The prefix that an entry shares with
//! the previous entry is not repeated, since for small values that is most of the bytes. Byte table:
//! `docs/formats/mutation-batch.md`.
//!
//! Invariants:
//! * Values that are large are stored *apart*: they share the memory of their request and are not among the other bytes
//!   of the batch. Only in memory does a batch consist of several buffers; in the log it is one record.
//! * A batch that [`Batch::decode`] accepts is visited in full by [`Batch::entries`], with keys a memtable can hold.
//! * [`BatchBuilder::push_rows`] puts rows in key order, which the memtable inserts fastest; it keeps the order of
//!   mutations of the same row, the only order between mutations that means anything.

mod order;

use crate::tokens::TokenRecord;
use bytes::Bytes;
use std::ops::Range;
use stele_types::key::{self, CellKind, KeyBuf};
use stele_types::lifetime::LIFETIME_BYTES;
use stele_types::varint;
use stele_types::{FamilyId, Mutation, RowMutation, RowWrites, SeqNo, Timestamp, limits};

const VERSION: u8 = 2;
/// The same with the record of a request token behind the entries.
const VERSION_WITH_TOKEN: u8 = 3;
/// Version and the longest number of entries: kept free in front of the entries until their number is known.
const HEADER_BYTES_MAX: usize = 6;

/// Low bits of an entry's first byte.
const KIND: u8 = 0x0f;
const SAME_ROW: u8 = 0x10;
const SAME_COLUMN: u8 = 0x20;
const SAME_TIME: u8 = 0x40;

/// The most bytes of an entry in addition to row, qualifier and value, if lengths are usual and its timestamp is near
/// the last one. They are the first byte, two bytes for each length and for the family, and six for the timestamp. Used
/// for reserving memory only.
const ENTRY_OVERHEAD: usize = 16;

/// From this size on a value is apart instead of being copied. The log holds the request then as long as it would hold a
/// copy; and a write of smaller buffers would cost more than copying them.
const APART_BYTES_MIN: usize = 256 << 10;

/// Initial capacity of a key buffer, which grows for longer keys. Most rows and qualifiers have some ten bytes each, and
/// the rest of a key twenty.
const KEY_BYTES_USUAL: usize = 128;

/// An encoded batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// All but the values that are apart.
    bytes: Bytes,
    /// In the order of their entries.
    apart: Vec<Apart>,
    /// The bytes behind the first buffer: a value that is apart, the bytes between it and the next one, and so on.
    /// Slices.
    rest: Vec<Bytes>,
    entries: u32,
    /// Of the request, if it has a token.
    token: Option<Box<TokenRecord>>,
}

/// A value that is apart.
#[derive(Clone, Debug)]
struct Apart {
    /// Bytes of the batch before it, without those that are apart themselves.
    at: usize,
    value: Bytes,
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Batch {}

/// Collects mutations into a batch.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Space for the header, then the entries; nothing before the first of them. Values stored apart are not included.
    bytes: Vec<u8>,
    apart: Vec<Apart>,
    entries: u32,
    /// Where the last entry's row is in `bytes`.
    row: Range<usize>,
    /// Family 0 before the first entry with a qualifier.
    family: FamilyId,
    /// Where the last qualifier is in `bytes`.
    qualifier: Range<usize>,
    timestamp: Timestamp,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder {
            bytes: Vec::new(),
            apart: Vec::new(),
            entries: 0,
            row: 0..0,
            family: FamilyId(0),
            qualifier: 0..0,
            timestamp: Timestamp(0),
        }
    }
}

/// About how much rows take that are to be written, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSize {
    /// Of the batch, at most, without values that are apart.
    batch: usize,
    apart: usize,
    /// Keys of rows that a memtable has once more with every mutation, and the batch once.
    repeated: usize,
    /// Cells that mark whole rows: those go into the memtable of each locality group.
    row_tombstones: usize,
    /// The longest key of a row, qualifier and stored value.
    longest: [usize; 3],
    /// The last of the families in the order of their numbers, and so of their creation.
    newest_family: FamilyId,
}

impl WriteSize {
    /// The size of these rows' mutations.
    pub fn of(rows: &RowWrites) -> WriteSize {
        let mut size = WriteSize::of_header();
        for row in rows.iter() {
            size.add_row(row.row);
            let mut mutations = 0usize;
            row.for_each(|mutation| {
                size.add(row.row, &mutation);
                mutations += 1;
            });
            size.repeated += row.row.len() * mutations.saturating_sub(1);
        }
        size
    }

    /// The size of mutations of one row.
    pub fn of_row<'m>(row: &[u8], mutations: impl ExactSizeIterator<Item = Mutation<&'m [u8]>>) -> WriteSize {
        let mut size = WriteSize::of_header();
        size.add_row(row);
        size.repeated += row.len() * mutations.len().saturating_sub(1);
        mutations.for_each(|mutation| size.add(row, &mutation));
        size
    }

    /// The size of several together.
    pub fn sum(sizes: impl Iterator<Item = WriteSize>) -> WriteSize {
        sizes.fold(WriteSize::default(), |sum, size| WriteSize {
            batch: sum.batch.saturating_add(size.batch),
            apart: sum.apart.saturating_add(size.apart),
            repeated: sum.repeated.saturating_add(size.repeated),
            row_tombstones: sum.row_tombstones.saturating_add(size.row_tombstones),
            longest: std::array::from_fn(|part| sum.longest[part].max(size.longest[part])),
            newest_family: sum.newest_family.max(size.newest_family),
        })
    }

    fn of_header() -> WriteSize {
        WriteSize {
            batch: HEADER_BYTES_MAX,
            ..WriteSize::default()
        }
    }

    fn add_row(&mut self, row: &[u8]) {
        self.batch += row.len();
        self.longest[0] = self.longest[0].max(row.len());
    }

    /// Adds a mutation without its row, which the batch has once for any number of mutations: a long key repeated before many
    /// would reserve gigabytes.
    fn add(&mut self, row: &[u8], mutation: &Mutation<&[u8]>) {
        let apart = apart_len(mutation);
        let (qualifier, value) = mutation.data_lens();
        self.batch += ENTRY_OVERHEAD + qualifier + value - apart;
        self.apart += apart;
        self.longest[1] = self.longest[1].max(qualifier);
        self.longest[2] = self.longest[2].max(value);
        if let Some(family) = mutation.family() {
            self.newest_family = self.newest_family.max(family);
        }
        if matches!(mutation, Mutation::DeleteRow { .. }) {
            self.row_tombstones += row.len() + ENTRY_OVERHEAD;
        }
    }

    /// Fails if a part is longer than a batch may hold. Every write is checked before it is encoded: a record of the log that
    /// cannot be decoded would stop each later start.
    pub fn check(&self) -> Result<(), String> {
        const LIMITS: [(&str, usize); 3] = [
            ("row key", limits::ROW_KEY_BYTES_MAX),
            ("column qualifier", limits::QUALIFIER_BYTES_MAX),
            ("value", limits::VALUE_BYTES_MAX),
        ];
        match LIMITS.iter().zip(self.longest).find(|((_, most), bytes)| bytes > most) {
            None => Ok(()),
            Some(((part, most), bytes)) => Err(format!("a {part} of {bytes} bytes, the limit is {most}")),
        }
    }

    /// The family that was created last of those that are written; family 0 if there is none.
    pub fn newest_family(&self) -> FamilyId {
        self.newest_family
    }

    /// Memory of the batch's own.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Whether the number of locality groups makes a difference.
    pub fn marks_rows(&self) -> bool {
        self.row_tombstones > 0
    }

    /// The bytes that memtables of this many locality groups take and the batch does not.
    pub fn repeated(&self, groups: usize) -> usize {
        let tombstones = self.row_tombstones.saturating_mul(groups.saturating_sub(1));
        self.repeated.saturating_add(tombstones)
    }

    /// The bytes that memtables of this many locality groups take for it.
    pub fn in_memtables(&self, groups: usize) -> usize {
        self.apart.saturating_add(self.without_apart(groups))
    }

    /// The same without values that are apart: those are in memory already, with their request.
    pub fn without_apart(&self, groups: usize) -> usize {
        self.batch.saturating_add(self.repeated(groups))
    }
}

impl BatchBuilder {
    /// Adds all mutations of all rows, in the order of the rows. Nothing may be added behind them.
    pub fn push_rows(&mut self, rows: &RowWrites) {
        self.push_rows_within(rows, WriteSize::of(rows).batch());
    }

    /// The same with the size that [`WriteSize::of`] has computed.
    pub fn push_rows_within(&mut self, rows: &RowWrites, bytes: usize) {
        self.bytes.reserve(bytes);
        let order = order::of(rows);
        debug_assert!(
            order.as_ref().is_none_or(|order| order.len() == rows.len()),
            "the order names each row once"
        );
        let index = |place: usize| match &order {
            None => place,
            Some(order) => order.get(place).map_or(usize::MAX, |index| *index as usize),
        };
        for place in 0..rows.len() {
            let row = rows.get(index(place)).expect("the order names rows of the batch");
            let mut number = 0;
            row.for_each(|mutation| {
                let value = match apart_len(&mutation) {
                    0 => None,
                    _ => row.shared_value(number, rows),
                };
                number += 1;
                self.push_mutation(row.row, mutation, value);
            });
        }
    }

    /// Adds all mutations of one row.
    pub fn push_row(&mut self, row: &RowMutation) {
        for mutation in &row.mutations {
            self.push(&row.row, mutation.map(|bytes| &bytes[..]));
        }
    }

    /// Adds one mutation of a row.
    pub fn push(&mut self, row: &[u8], mutation: Mutation<&[u8]>) {
        self.push_mutation(row, mutation, None);
    }

    /// Adds one mutation of a row, of whose value only the length is copied if that is to be `apart`.
    #[inline]
    fn push_mutation(&mut self, row: &[u8], mutation: Mutation<&[u8]>, apart: Option<Bytes>) {
        let range_value;
        let (family, qualifier, timestamp, kind, value): (FamilyId, &[u8], Timestamp, CellKind, &[u8]) = match mutation
        {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => (family, qualifier, timestamp, CellKind::Put, value),
            Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored,
            } => (family, qualifier, timestamp, CellKind::ExpiringPut, stored),
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
        let entry = NewEntry {
            family,
            qualifier,
            timestamp,
            kind,
            value,
            apart,
        };
        self.push_entry(row, entry);
    }

    #[inline]
    fn push_entry(&mut self, row: &[u8], entry: NewEntry<'_>) {
        let NewEntry {
            family,
            qualifier,
            timestamp,
            kind,
            value,
            apart,
        } = entry;
        debug_assert!(
            row.len() <= limits::ROW_KEY_BYTES_MAX,
            "a row that is encoded can be decoded"
        );
        debug_assert!(
            qualifier.len() <= limits::QUALIFIER_BYTES_MAX,
            "a qualifier that is encoded can be decoded"
        );
        debug_assert!(
            value.len() <= limits::VALUE_BYTES_MAX,
            "a value that is encoded can be decoded"
        );
        debug_assert!(!kind.has_family() || family.0 != 0, "family 0 stands for none");
        let same_row = self.entries > 0 && self.bytes.get(self.row.clone()) == Some(row);
        let same_column =
            kind.has_qualifier() && family == self.family && self.bytes.get(self.qualifier.clone()) == Some(qualifier);
        let same_time = self.entries > 0 && timestamp == self.timestamp;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let out = &mut self.bytes;
        if out.is_empty() {
            out.extend_from_slice(&[0; HEADER_BYTES_MAX]);
        }
        out.push(kind as u8 | bit(same_row, SAME_ROW) | bit(same_column, SAME_COLUMN) | bit(same_time, SAME_TIME));
        if !same_row {
            varint::put_bytes(out, row);
            self.row = out.len() - row.len()..out.len();
        }
        if kind.has_family() && !same_column {
            varint::put_u32(out, family.0);
            if kind.has_qualifier() {
                varint::put_bytes(out, qualifier);
                self.family = family;
                self.qualifier = out.len() - qualifier.len()..out.len();
            }
        }
        if !same_time {
            varint::put_u64(out, varint::zigzag(timestamp.0.wrapping_sub(self.timestamp.0)));
            self.timestamp = timestamp;
        }
        if let Some(value) = apart {
            varint::put_u32(out, value.len() as u32);
            let at = out.len();
            self.apart.push(Apart { at, value });
        } else if kind.has_value() {
            varint::put_bytes(out, value);
        }
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
        self.finish_with(None)
    }

    /// The encoded batch of a request with a token.
    pub fn finish_with(mut self, token: Option<TokenRecord>) -> Batch {
        assert!(
            token.is_none() || self.entries > 0,
            "a request that changes nothing may be repeated"
        );
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES_MAX, 0);
        }
        // Version and number go to the end of the reserved bytes in front.
        let mut header = [0; HEADER_BYTES_MAX];
        let (mut rest, mut len) = (self.entries, 0);
        while rest >= 0x80 {
            header[1 + len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        header[0] = if token.is_some() { VERSION_WITH_TOKEN } else { VERSION };
        header[1 + len] = rest as u8;
        let header = &header[..len + 2];
        let unused = HEADER_BYTES_MAX - header.len();
        self.bytes[unused..HEADER_BYTES_MAX].copy_from_slice(header);
        if let Some(token) = &token {
            token.encode(&mut self.bytes);
        }
        let bytes = Bytes::from(self.bytes).slice(unused..);
        self.apart.iter_mut().for_each(|apart| apart.at -= unused);
        debug_assert!(
            self.apart.is_sorted_by_key(|apart| apart.at),
            "values apart are in the order of their entries"
        );
        let mut rest = Vec::with_capacity(2 * self.apart.len());
        let ends = self.apart.iter().skip(1).map(|next| next.at);
        for (apart, end) in self.apart.iter().zip(ends.chain([bytes.len()])) {
            rest.extend([apart.value.clone(), bytes.slice(apart.at..end)]);
        }
        Batch {
            bytes,
            apart: self.apart,
            rest,
            entries: self.entries,
            token: token.map(Box::new),
        }
    }
}

/// An entry that is added.
struct NewEntry<'a> {
    family: FamilyId,
    qualifier: &'a [u8],
    timestamp: Timestamp,
    kind: CellKind,
    value: &'a [u8],
    apart: Option<Bytes>,
}

/// Bytes of a mutation's value that is to be apart, else 0.
#[inline]
fn apart_len(mutation: &Mutation<&[u8]>) -> usize {
    match mutation {
        Mutation::Put { value, .. } if value.len() >= APART_BYTES_MIN => value.len(),
        _ => 0,
    }
}

impl Batch {
    /// Checks an encoded batch from the log; `None` when any part is not as the byte table says.
    pub fn decode(bytes: Bytes) -> Option<Batch> {
        let (&version, mut input) = bytes.split_first()?;
        let entries = varint::take_u32(&mut input)?;
        let mut reader = Reader::new(input, 0, &[]);
        if !(0..entries).all(|_| reader.next().is_some()) {
            return None;
        }
        let token = match version {
            VERSION => None,
            VERSION_WITH_TOKEN if entries > 0 => Some(Box::new(TokenRecord::take(&mut reader.input)?)),
            _ => return None,
        };
        reader.input.is_empty().then_some(Batch {
            bytes,
            apart: Vec::new(),
            rest: Vec::new(),
            entries,
            token,
        })
    }

    /// Checks an encoded batch together with the sequence numbers of the log record that carried it: one for each
    /// mutation, all in one epoch, as [`Batch::entries`] needs them.
    pub fn decode_record(bytes: Bytes, first: SeqNo, last: SeqNo) -> Option<Batch> {
        let batch = Batch::decode(bytes)?;
        let one_each = !batch.is_empty() && last.0.checked_sub(first.0) == Some(batch.len() - 1);
        (one_each && first.epoch() == last.epoch()).then_some(batch)
    }

    /// The first buffer of the encoded bytes: all of them, but with large values.
    pub fn first_piece(&self) -> &[u8] {
        let end = self.apart.first().map_or(self.bytes.len(), |apart| apart.at);
        self.bytes.get(..end).unwrap_or_default()
    }

    /// The same, to keep.
    pub fn shared_first_piece(&self) -> Bytes {
        self.bytes.slice_ref(self.first_piece())
    }

    /// The buffers behind the first.
    pub fn other_pieces(&self) -> &[Bytes] {
        &self.rest
    }

    /// How many the encoded bytes are.
    pub fn byte_len(&self) -> usize {
        self.bytes.len() + self.apart.iter().map(|apart| apart.value.len()).sum::<usize>()
    }

    /// The encoded bytes in one buffer.
    pub fn to_bytes(&self) -> Bytes {
        if self.rest.is_empty() {
            return self.bytes.clone();
        }
        let mut bytes = Vec::with_capacity(self.byte_len());
        bytes.extend_from_slice(self.first_piece());
        self.rest
            .iter()
            .for_each(|partial_row| bytes.extend_from_slice(partial_row));
        bytes.into()
    }

    /// The record of the request's token, if it has one.
    pub fn token(&self) -> Option<&TokenRecord> {
        self.token.as_deref()
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
    pub fn entries(&self, first: SeqNo, visit: impl FnMut(&[u8], &[u8])) {
        self.entries_of(first, |_| true, visit);
    }

    /// Calls `visit(sequence number, row, mutation)` for every mutation, in their order.
    pub fn mutations(&self, first: SeqNo, mut visit: impl FnMut(SeqNo, &[u8], Mutation<&[u8]>)) {
        let mut input: &[u8] = self.bytes.get(1..).unwrap_or_default();
        let _ = varint::take_u32(&mut input);
        let mut reader = Reader::new(input, self.bytes.len(), &self.apart);
        for number in 0..self.len() {
            let entry = reader.next().expect("a batch is checked when it is decoded");
            if let Some(mutation) = entry.mutation() {
                visit(first.plus(number), reader.row, mutation);
            }
        }
        debug_assert!(
            reader.input.is_empty() || self.token.is_some(),
            "all mutations of a batch without a token are visited"
        );
    }

    /// As [`Batch::entries`], without entries whose family is not `wanted`. Tombstones of a whole row have family 0.
    pub fn entries_of(&self, first: SeqNo, wanted: impl Fn(FamilyId) -> bool, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut input: &[u8] = self.bytes.get(1..).unwrap_or_default();
        let _ = varint::take_u32(&mut input);
        let mut reader = Reader::new(input, self.bytes.len(), &self.apart);
        let mut key = KeyBuf::with_capacity(KEY_BYTES_USUAL);
        for number in 0..self.len() {
            let entry = reader.next().expect("a batch is checked when it is decoded");
            if entry.row_begins {
                key.set_row(reader.row);
            }
            if wanted(entry.family) {
                key.set_after_row(
                    entry.family,
                    entry.qualifier,
                    entry.timestamp,
                    first.plus(number),
                    entry.kind,
                );
                visit(key.as_slice(), entry.value);
            }
        }
        debug_assert!(
            reader.input.is_empty() || self.token.is_some(),
            "all bytes of a batch without a token are entries"
        );
    }
}

/// Reads one entry after another.
struct Reader<'a> {
    /// The unread bytes.
    input: &'a [u8],
    /// Bytes of the batch, of which those that are left are the last.
    len: usize,
    /// Values that are not behind their lengths and have not come yet.
    apart: &'a [Apart],
    begun: bool,
    row: &'a [u8],
    /// Of the last entry with a qualifier; family 0 before that.
    family: FamilyId,
    qualifier: &'a [u8],
    timestamp: Timestamp,
}

struct Entry<'a> {
    row_begins: bool,
    family: FamilyId,
    qualifier: &'a [u8],
    timestamp: Timestamp,
    kind: CellKind,
    value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The mutation that it was made of; `None` for kinds that are in files alone, which a reader refuses.
    fn mutation(&self) -> Option<Mutation<&'a [u8]>> {
        debug_assert_ne!(self.kind, CellKind::Reference, "only files have references");
        let Entry {
            family,
            qualifier,
            timestamp,
            value,
            ..
        } = *self;
        let delete_column = |from| Mutation::DeleteColumn {
            family,
            qualifier,
            from,
            to: timestamp,
        };
        Some(match self.kind {
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
            CellKind::DeleteRange => delete_column(key::range_delete_start(value)?),
            CellKind::DeleteVersion => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
            CellKind::Reference => return None,
        })
    }
}

impl<'a> Reader<'a> {
    fn new(input: &'a [u8], len: usize, apart: &'a [Apart]) -> Self {
        Reader {
            input,
            len,
            apart,
            begun: false,
            row: &[],
            family: FamilyId(0),
            qualifier: &[],
            timestamp: Timestamp(0),
        }
    }

    /// The next entry; `None` when it is not as the byte table says.
    fn next(&mut self) -> Option<Entry<'a>> {
        let (&first, rest) = self.input.split_first()?;
        self.input = rest;
        let kind = CellKind::from_byte(first & KIND)?;
        let same = |bit: u8| first & bit != 0;
        let unknown = first & !(KIND | SAME_ROW | SAME_COLUMN | SAME_TIME) != 0;
        let nothing_before = !self.begun && (same(SAME_ROW) || same(SAME_TIME));
        // Where a value is, only files say.
        if unknown || nothing_before || kind == CellKind::Reference {
            return None;
        }
        self.begun = true;
        if !same(SAME_ROW) {
            self.row = self.take_bytes(limits::ROW_KEY_BYTES_MAX)?;
        }
        let (family, qualifier) = self.take_column(kind, same(SAME_COLUMN))?;
        if !same(SAME_TIME) {
            let change = varint::unzigzag(varint::take_u64(&mut self.input)?);
            self.timestamp = Timestamp(self.timestamp.0.wrapping_add(change));
        }
        let value = if kind.has_value() { self.take_value()? } else { &[] };
        if matches!(kind, CellKind::Merge | CellKind::DeleteRange) && value.len() != 8
            || kind == CellKind::ExpiringPut && value.len() < LIFETIME_BYTES
        {
            return None;
        }
        Some(Entry {
            row_begins: !same(SAME_ROW),
            family,
            qualifier,
            timestamp: self.timestamp,
            kind,
            value,
        })
    }

    fn take_column(&mut self, kind: CellKind, same: bool) -> Option<(FamilyId, &'a [u8])> {
        if same {
            let known = kind.has_qualifier() && self.family != FamilyId(0);
            return known.then_some((self.family, self.qualifier));
        }
        if !kind.has_family() {
            return Some((FamilyId(0), &[]));
        }
        let family = FamilyId(varint::take_u32(&mut self.input)?);
        if family == FamilyId(0) {
            return None;
        }
        if !kind.has_qualifier() {
            return Some((family, &[]));
        }
        self.qualifier = self.take_bytes(limits::QUALIFIER_BYTES_MAX)?;
        self.family = family;
        Some((family, self.qualifier))
    }

    fn take_value(&mut self) -> Option<&'a [u8]> {
        let Some((next, others)) = self.apart.split_first() else {
            return self.take_bytes(limits::VALUE_BYTES_MAX);
        };
        let before = self.input;
        let len = varint::take_u32(&mut self.input)? as usize;
        // No other value begins where one that is apart would be: each entry has bytes of its own.
        if self.len.checked_sub(self.input.len()) == Some(next.at) {
            self.apart = others;
            return (next.value.len() == len).then_some(&next.value[..]);
        }
        self.input = before;
        self.take_bytes(limits::VALUE_BYTES_MAX)
    }

    fn take_bytes(&mut self, len_max: usize) -> Option<&'a [u8]> {
        varint::take_bytes(&mut self.input).filter(|bytes| bytes.len() <= len_max)
    }
}

#[cfg(test)]
mod tests;
