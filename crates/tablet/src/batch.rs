//! Mutation batches: what a commit log record carries and a memtable takes in.
//!
//! A batch is encoded once, before its place in the commit order is known: an entry's sequence number is its place in the
//! batch, and [`Batch::entries`] adds the first sequence number of the record. What entries share with the one before them is
//! not repeated, since for small values that is most of the bytes. Byte table: `docs/formats/mutation-batch.md`.
//!
//! Invariants:
//! * The bytes of a batch are its *head* and behind it its *tail*: the value of the last entry where that is large, shared with
//!   the request it came in. Only here do they come in two pieces; in the log they are one.
//! * Whatever [`Batch::decode`] accepts, [`Batch::entries`] visits in full, with keys a memtable can hold.
//! * [`BatchBuilder::push_rows`] puts rows in key order, which the memtable inserts fastest; it keeps the order of
//!   mutations of the same row, the only order between mutations that means anything.

mod order;
mod version1;

use bytes::Bytes;
use std::ops::Range;
use stele_types::key::{self, CellKind, KeyBuf};
use stele_types::varint;
use stele_types::{FamilyId, Mutation, RowMutation, RowWrite, RowWrites, SeqNo, Timestamp, limits};

const VERSION: u8 = 2;
/// Version and the longest number of entries: kept free in front of the entries until their number is known.
const HEADER_BYTES_MAX: usize = 6;

/// Low bits of an entry's first byte.
const KIND: u8 = 0x0f;
const SAME_ROW: u8 = 0x10;
const SAME_COLUMN: u8 = 0x20;
const SAME_TIME: u8 = 0x40;

/// What an entry takes at most besides row, qualifier and value, if its timestamp is not far from the last and lengths are usual: the
/// first byte, two bytes of each length and of the family, six of the timestamp. For reserving memory only.
const ENTRY_OVERHEAD: usize = 16;

/// From this size on the last value of a batch is its tail instead of being copied. Requests with a value of such a size mostly
/// have no other; one that has is held by the log as long as a copy would be.
const TAIL_BYTES_MIN: usize = 256 << 10;

/// Room for a key; longer ones find more. Most rows and qualifiers have some ten bytes each, and the rest of a key twenty.
const KEY_BYTES_USUAL: usize = 128;

/// An encoded batch.
#[derive(Clone, Debug)]
pub struct Batch {
    head: Bytes,
    /// Empty, or the value of the last entry.
    tail: Bytes,
    entries: u32,
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
    /// Room for the header, then the entries; nothing before the first of them. Without the tail.
    bytes: Vec<u8>,
    /// The value of the last entry, and nothing may follow, unless it is empty.
    tail: Bytes,
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
            tail: Bytes::new(),
            entries: 0,
            row: 0..0,
            family: FamilyId(0),
            qualifier: 0..0,
            timestamp: Timestamp(0),
        }
    }
}

impl BatchBuilder {
    /// About what a batch of these rows takes of memory of its own, at most.
    pub fn bytes_of(rows: &RowWrites) -> usize {
        let mut len = HEADER_BYTES_MAX;
        for row in rows.iter() {
            // Written once, whatever the number of its mutations: a long key before many would reserve gigabytes.
            len += row.row.len();
            row.for_each(|mutation| len += ENTRY_OVERHEAD + mutation.data_len());
        }
        match (rows.get(0), rows.len()) {
            (Some(row), 1) if len > TAIL_BYTES_MIN => len - tail_of(row, rows).len(),
            _ => len,
        }
    }

    /// Adds all mutations of all rows, in the order of the rows. Nothing may be added behind them.
    pub fn push_rows(&mut self, rows: &RowWrites) {
        self.push_rows_within(rows, Self::bytes_of(rows));
    }

    /// The same where [`BatchBuilder::bytes_of`] has said what they take.
    pub fn push_rows_within(&mut self, rows: &RowWrites, bytes: usize) {
        self.bytes.reserve(bytes);
        let order = order::of(rows);
        let index = |place: usize| match &order {
            None => place,
            Some(order) => order.get(place).map_or(usize::MAX, |index| *index as usize),
        };
        let Some(others) = rows.len().checked_sub(1) else {
            return;
        };
        for row in (0..others).filter_map(|place| rows.get(index(place))) {
            row.for_each(|mutation| self.push(row.row, mutation));
        }
        let Some(last) = rows.get(index(others)) else { return };
        let tail = tail_of(last, rows);
        let mut left = match tail.is_empty() {
            true => usize::MAX,
            false => last.mutations(),
        };
        last.for_each(|mutation| {
            left -= 1;
            self.push_mutation(last.row, mutation, left == 0);
        });
        self.tail = tail;
    }

    /// Adds all mutations of one row.
    pub fn push_row(&mut self, row: &RowMutation) {
        for mutation in &row.mutations {
            self.push(&row.row, mutation.map(|bytes| &bytes[..]));
        }
    }

    /// Adds one mutation of a row.
    pub fn push(&mut self, row: &[u8], mutation: Mutation<&[u8]>) {
        self.push_mutation(row, mutation, false);
    }

    /// Adds one mutation of a row, of whose value nothing but the length if that `is_tail`.
    #[inline]
    fn push_mutation(&mut self, row: &[u8], mutation: Mutation<&[u8]>, is_tail: bool) {
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
        let entry = NewEntry {
            family,
            qualifier,
            timestamp,
            kind,
            value,
            is_tail,
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
            is_tail,
        } = entry;
        debug_assert!(self.tail.is_empty(), "nothing follows the tail");
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
        if kind.has_value() && is_tail {
            varint::put_u32(out, value.len() as u32);
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
    pub fn finish(mut self) -> Batch {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES_MAX, 0);
        }
        // Version and number go to the end of the room in front.
        let mut header = [0; HEADER_BYTES_MAX];
        let (mut rest, mut len) = (self.entries, 0);
        while rest >= 0x80 {
            header[1 + len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        header[0] = VERSION;
        header[1 + len] = rest as u8;
        let header = &header[..len + 2];
        let unused = HEADER_BYTES_MAX - header.len();
        self.bytes[unused..HEADER_BYTES_MAX].copy_from_slice(header);
        Batch {
            head: Bytes::from(self.bytes).slice(unused..),
            tail: self.tail,
            entries: self.entries,
        }
    }
}

/// What is added.
struct NewEntry<'a> {
    family: FamilyId,
    qualifier: &'a [u8],
    timestamp: Timestamp,
    kind: CellKind,
    value: &'a [u8],
    is_tail: bool,
}

/// The value of a row's last mutation, if it is to be the tail of a batch that ends with the row.
#[inline]
fn tail_of(row: RowWrite<'_>, rows: &RowWrites) -> Bytes {
    row.last_value(rows, TAIL_BYTES_MIN).unwrap_or_default()
}

impl Batch {
    /// Checks an encoded batch from the log; `None` when any part is not as the byte table says.
    pub fn decode(bytes: Bytes) -> Option<Batch> {
        let (&version, mut input) = bytes.split_first()?;
        let entries = varint::take_u32(&mut input)?;
        let sound = match version {
            VERSION => {
                let mut reader = Reader::new(input, &[]);
                (0..entries).all(|_| reader.next().is_some()) && reader.input.is_empty()
            }
            version1::VERSION => version1::is_sound(input, entries),
            _ => false,
        };
        sound.then_some(Batch {
            head: bytes,
            tail: Bytes::new(),
            entries,
        })
    }

    /// Checks an encoded batch together with the sequence numbers of the log record that carried it: one for each
    /// mutation, all in one epoch, as [`Batch::entries`] needs them.
    pub fn decode_record(bytes: Bytes, first: SeqNo, last: SeqNo) -> Option<Batch> {
        let batch = Batch::decode(bytes)?;
        let one_each = !batch.is_empty() && last.0.checked_sub(first.0) == Some(batch.len() - 1);
        (one_each && first.epoch() == last.epoch()).then_some(batch)
    }

    /// The encoded bytes, in their two pieces; the second is empty but with a large value.
    pub fn pieces(&self) -> [&Bytes; 2] {
        [&self.head, &self.tail]
    }

    /// How many they are.
    pub fn byte_len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// The encoded bytes in one piece.
    pub fn to_bytes(&self) -> Bytes {
        match self.tail.is_empty() {
            true => self.head.clone(),
            false => [&self.head[..], &self.tail].concat().into(),
        }
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

    /// As [`Batch::entries`], without entries whose family is not `wanted`; markers of a whole row have family 0.
    pub fn entries_of(&self, first: SeqNo, wanted: impl Fn(FamilyId) -> bool, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut input: &[u8] = self.head.get(1..).unwrap_or_default();
        let _ = varint::take_u32(&mut input);
        if self.head.first() == Some(&version1::VERSION) {
            return version1::entries(input, first, wanted, visit);
        }
        let mut reader = Reader::new(input, &self.tail);
        let mut key = KeyBuf::with_capacity(KEY_BYTES_USUAL);
        for number in 0..self.len() {
            let Some(entry) = reader.next() else { return };
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
    }
}

/// Reads one entry after another.
struct Reader<'a> {
    /// What is left.
    input: &'a [u8],
    /// The value of the last entry, if it is not behind its length.
    tail: &'a [u8],
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

impl<'a> Reader<'a> {
    fn new(input: &'a [u8], tail: &'a [u8]) -> Self {
        Reader {
            input,
            tail,
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
        if matches!(kind, CellKind::Merge | CellKind::DeleteRange) && value.len() != 8 {
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
        let before = self.input;
        if let Some(value) = self.take_bytes(limits::VALUE_BYTES_MAX) {
            return Some(value);
        }
        self.input = before;
        let len = varint::take_u32(&mut self.input)? as usize;
        let is_tail = self.input.is_empty() && !self.tail.is_empty() && self.tail.len() == len;
        is_tail.then(|| std::mem::take(&mut self.tail))
    }

    fn take_bytes(&mut self, len_max: usize) -> Option<&'a [u8]> {
        varint::take_bytes(&mut self.input).filter(|bytes| bytes.len() <= len_max)
    }
}

#[cfg(test)]
mod tests;
