//! The cell key: an encoding of a cell's coordinates that sorts by `memcmp`. The coordinates are row, family,
//! qualifier, timestamp, sequence and kind.
//!
//! The memtable, the sstable and every merging iterator over them use one byte order. A comparison is therefore one
//! `memcmp`, and a block can share prefixes. Byte table in `docs/formats/cell-key.md`:
//!
//! ```text
//! row        escaped: 00 → 00 FF, ended by 00 01
//! family     n (1 byte, 0..=4), then the id in n bytes, big-endian; n = 0 is the row level (id 0)
//!            -- row tombstones stop here and continue with the trailer --
//! level      00 family tombstone (trailer follows) | 01 column
//! qualifier  escaped: 00 → 00 FF, ended by 00 01
//! level      00 column tombstone | 01 cell
//! trailer    timestamp (8, descending) | sequence (8, descending) | kind (1)
//! ```
//!
//! Descending means the complement of the order-preserving big-endian form. Within a row the row tombstones come first.
//! Then come, per family, its tombstones and its qualifiers. Per qualifier come its tombstones and then its cells:
//! newest timestamp first and, at the same timestamp, newest sequence first. Every tombstone that can hide a cell sorts
//! before that cell, so one forward pass resolves a row.

use crate::ids::{FamilyId, SeqNo, Timestamp};
use crate::limits;
use bytes::Bytes;
use std::borrow::Cow;

const ESCAPE: u8 = 0x00;
const ESCAPED_ZERO: u8 = 0xff;
const TERMINATOR: u8 = 0x01;
const LEVEL_MARKER: u8 = 0x00;
const LEVEL_INNER: u8 = 0x01;

/// Bytes of timestamp, sequence and kind at the end of every key.
pub const TRAILER_BYTES: usize = 17;

/// The kind of an entry. Numbers are on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CellKind {
    /// A value.
    Put = 1,
    /// Hides the row's cells at or below the timestamp.
    DeleteRow = 2,
    /// Hides the family's cells at or below the timestamp.
    DeleteFamily = 3,
    /// Hides the column's cells at or below the timestamp.
    DeleteColumn = 4,
    /// Hides exactly one version of a column.
    DeleteVersion = 5,
    /// Hides the column's cells from the timestamp in the value (8 bytes, big-endian) up to the key's, inclusive.
    DeleteRange = 6,
    /// An operand of the family's aggregate (sum, min, max): resolved on read and in compaction.
    Merge = 7,
    /// Hides one version in every column of a family.
    DeleteFamilyVersion = 8,
    /// A put whose value is in a value file; the entry is the reference. In sstables only, never in a write.
    Reference = 9,
    /// A put that expires by itself; the entry is its [`crate::lifetime`], then the value.
    ExpiringPut = 10,
}

impl CellKind {
    /// Decodes a stored kind.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => CellKind::Put,
            2 => CellKind::DeleteRow,
            3 => CellKind::DeleteFamily,
            4 => CellKind::DeleteColumn,
            5 => CellKind::DeleteVersion,
            6 => CellKind::DeleteRange,
            7 => CellKind::Merge,
            8 => CellKind::DeleteFamilyVersion,
            9 => CellKind::Reference,
            10 => CellKind::ExpiringPut,
            _ => return None,
        })
    }

    /// Whether this is a tombstone, which hides other cells and holds no data.
    pub fn is_delete(self) -> bool {
        !matches!(
            self,
            CellKind::Put | CellKind::Merge | CellKind::Reference | CellKind::ExpiringPut
        )
    }

    /// Whether this is a value as it was written, here or in a value file, and nothing else.
    #[inline]
    pub fn is_put(self) -> bool {
        matches!(self, CellKind::Put | CellKind::Reference)
    }

    /// Whether keys of this kind name a family.
    pub fn has_family(self) -> bool {
        self.level() != Level::Row
    }

    /// Whether keys of this kind name a column.
    pub fn has_qualifier(self) -> bool {
        matches!(self.level(), Level::Column | Level::Cell)
    }

    /// Whether an entry of this kind has a value.
    pub fn has_value(self) -> bool {
        !self.is_delete() || self == CellKind::DeleteRange
    }

    #[inline]
    fn level(self) -> Level {
        match self {
            CellKind::DeleteRow => Level::Row,
            CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => Level::Family,
            CellKind::DeleteColumn | CellKind::DeleteRange => Level::Column,
            CellKind::Put | CellKind::Merge | CellKind::Reference | CellKind::ExpiringPut | CellKind::DeleteVersion => {
                Level::Cell
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Row,
    Family,
    Column,
    Cell,
}

/// A growable key buffer that is reused from cell to cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBuf {
    bytes: Vec<u8>,
    /// End of the encoded row.
    row_end: usize,
}

impl KeyBuf {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with memory for a key of `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        KeyBuf {
            bytes: Vec::with_capacity(bytes),
            row_end: 0,
        }
    }

    /// The encoded bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the encoded bytes out.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// Replaces the content by the key of one cell or tombstone. `qualifier` is ignored above column level.
    pub fn set(
        &mut self,
        row: &[u8],
        family: FamilyId,
        qualifier: &[u8],
        timestamp: Timestamp,
        seq: SeqNo,
        kind: CellKind,
    ) {
        self.set_row(row);
        self.set_after_row(family, qualifier, timestamp, seq, kind);
    }

    /// Replaces the content by the prefix of a row, for [`KeyBuf::set_after_row`].
    pub fn set_row(&mut self, row: &[u8]) {
        self.bytes.clear();
        push_escaped(&mut self.bytes, row);
        self.row_end = self.bytes.len();
    }

    /// Makes the content the key of one cell or tombstone of the row that was set last. `qualifier` is ignored above
    /// column level.
    pub fn set_after_row(
        &mut self,
        family: FamilyId,
        qualifier: &[u8],
        timestamp: Timestamp,
        seq: SeqNo,
        kind: CellKind,
    ) {
        let level = kind.level();
        let out = &mut self.bytes;
        out.truncate(self.row_end);
        if level == Level::Row {
            out.push(0);
        } else {
            push_family(out, family);
            if level == Level::Family {
                out.push(LEVEL_MARKER);
            } else {
                out.push(LEVEL_INNER);
                push_escaped(out, qualifier);
                out.push(if level == Level::Column {
                    LEVEL_MARKER
                } else {
                    LEVEL_INNER
                });
            }
        }
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&descending_timestamp(timestamp));
        trailer[8..16].copy_from_slice(&(!seq.0).to_be_bytes());
        trailer[16] = kind as u8;
        out.extend_from_slice(&trailer);
    }
}

/// The encoded prefix that all keys of `row` and no other keys share.
pub fn row_prefix(row: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(row.len() + 2);
    push_escaped(&mut out, row);
    out
}

/// Makes `out` the encoded prefix of `row`, as [`row_prefix`] does, and reuses its memory.
pub fn set_row_prefix(out: &mut Vec<u8>, row: &[u8]) {
    out.clear();
    push_escaped(out, row);
}

/// Whether nothing of the row is escaped in its encoded prefix.
#[inline]
pub fn is_plain_prefix(row_prefix: &[u8], row: &[u8]) -> bool {
    // Escaping adds bytes, and the terminator is two.
    row_prefix.len() == row.len() + 2
}

/// The smallest key after all keys of the row with this encoded prefix. The terminator's last byte grows by one. No key
/// of another row lies between, because a row that continues with a zero byte has `00 FF` there.
pub fn row_prefix_end(row_prefix: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(row_prefix.len());
    set_row_prefix_end(&mut out, row_prefix);
    out
}

/// Makes `out` the result of [`row_prefix_end`], and reuses its memory.
pub fn set_row_prefix_end(out: &mut Vec<u8>, row_prefix: &[u8]) {
    out.clear();
    out.extend_from_slice(row_prefix);
    if let Some(last) = out.last_mut() {
        *last = TERMINATOR + 1;
    }
}

/// The encoded prefix of the next possible row after the one with this encoded prefix: it has one more zero byte.
pub fn next_row_prefix(row_prefix: &[u8]) -> Vec<u8> {
    let row = row_prefix.strip_suffix(&[ESCAPE, TERMINATOR]).unwrap_or(row_prefix);
    [row, &[ESCAPE, ESCAPED_ZERO, ESCAPE, TERMINATOR]].concat()
}

/// The encoded prefix of one family within a row.
pub fn family_prefix(row: &[u8], family: FamilyId) -> Vec<u8> {
    let mut out = row_prefix(row);
    push_family(&mut out, family);
    out
}

/// The encoded prefix of one column within a row.
pub fn column_prefix(row: &[u8], family: FamilyId, qualifier: &[u8]) -> Vec<u8> {
    let mut out = family_prefix(row, family);
    out.push(LEVEL_INNER);
    push_escaped(&mut out, qualifier);
    out
}

/// Length of the encoded row (with its terminator) at the front of `key`, or `None` when it is not well-formed.
pub fn row_prefix_len(key: &[u8]) -> Option<usize> {
    escaped_len(key)
}

/// Like [`row_prefix_len`]. Returns also whether nothing in the row is escaped: the row is then the prefix without its
/// last two bytes.
#[inline]
pub fn measure_row_prefix(key: &[u8]) -> Option<(usize, bool)> {
    let zero = first_zero(key)?;
    if key.get(zero + 1) == Some(&TERMINATOR) {
        return Some((zero + 2, true));
    }
    Some((escaped_len(key)?, false))
}

/// The row that an encoded row prefix stands for; borrowed when nothing was escaped.
pub fn decode_row(row_prefix: &[u8]) -> Option<Cow<'_, [u8]>> {
    let len = escaped_len(row_prefix)?;
    (len == row_prefix.len()).then(|| unescape(&row_prefix[..len - 2]))
}

/// The row of a prefix whose length [`row_prefix_len`] has returned.
#[inline]
pub fn decode_checked_row(row_prefix: &[u8]) -> Cow<'_, [u8]> {
    unescape(row_prefix.split_last_chunk::<2>().map_or(&[], |(row, _)| row))
}

/// Whether two short strings are equal. After a key was assembled, a comparison with vector loads waits until all its
/// bytes are in the cache. A comparison of words does not, because most bytes were written as such words.
#[inline]
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    fn ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
        a.first_chunk::<N>() == b.first_chunk() && a.last_chunk::<N>() == b.last_chunk()
    }
    a.len() == b.len()
        && match a.len() {
            0 => true,
            1 => a.first() == b.first(),
            2..=3 => ends::<2>(a, b),
            4..=7 => ends::<4>(a, b),
            8..=16 => ends::<8>(a, b),
            _ => a == b,
        }
}

/// A decoded view of an encoded key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellKey<'a> {
    /// The row, unescaped.
    pub row: Cow<'a, [u8]>,
    /// 0 for row tombstones.
    pub family: FamilyId,
    /// Empty above column level.
    pub qualifier: Cow<'a, [u8]>,
    /// In the table's unit.
    pub timestamp: Timestamp,
    /// Commit order.
    pub seq: SeqNo,
    /// The kind of the entry.
    pub kind: CellKind,
}

/// The positions of the parts within an encoded key, without decoding them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts {
    /// End of the row prefix.
    pub row_end: usize,
    /// 0 for row tombstones.
    pub family: FamilyId,
    /// Start of the escaped qualifier; equals `qualifier_end` above column level.
    pub qualifier_start: usize,
    /// End of the escaped qualifier with its terminator.
    pub qualifier_end: usize,
    /// In the table's unit.
    pub timestamp: Timestamp,
    /// Commit order.
    pub seq: SeqNo,
    /// The kind of the entry.
    pub kind: CellKind,
}

impl Default for KeyParts {
    fn default() -> Self {
        KeyParts {
            row_end: 0,
            family: FamilyId(0),
            qualifier_start: 0,
            qualifier_end: 0,
            timestamp: Timestamp(0),
            seq: SeqNo(0),
            kind: CellKind::Put,
        }
    }
}

impl KeyParts {
    /// Splits an encoded key; `None` when any part violates the byte table.
    pub fn parse(key: &[u8]) -> Option<KeyParts> {
        if key.len() > limits::CELL_KEY_BYTES_MAX {
            return None;
        }
        let row_end = escaped_len(key)?;
        Self::parse_after_row(key, row_end)
    }

    /// Splits an encoded key whose row prefix is known to end at `row_end`.
    pub fn parse_after_row(key: &[u8], row_end: usize) -> Option<KeyParts> {
        let (head, trailer) = key.split_last_chunk()?;
        Body::parse(head.get(row_end..)?)?.with(row_end, trailer)
    }

    /// The qualifier of `key`, unescaped; empty above column level.
    pub fn qualifier<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        if self.qualifier_start == self.qualifier_end {
            return Cow::Borrowed(&[]);
        }
        unescape(&key[self.qualifier_start..self.qualifier_end - 2])
    }

    /// The row of `key`, unescaped.
    pub fn row<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        unescape(&key[..self.row_end - 2])
    }
}

/// Splits a sequence of keys. Neighbouring keys mostly have the same column, in the same row or the next. The bytes of
/// the column are then compared and not parsed again.
#[derive(Debug, Default)]
pub struct KeySplitter {
    /// The bytes between row and trailer of the last key, and their decoded form; empty before the first key.
    bytes: Vec<u8>,
    body: Body,
    /// The parts of the last key. Written field by field and returned by reference: a copy with wider loads than the
    /// stores would stall on them.
    parts: KeyParts,
}

impl KeySplitter {
    /// Splits a key whose row prefix is known to end at `row_end`, as [`KeyParts::parse_after_row`] does.
    #[inline]
    pub fn split(&mut self, key: &[u8], row_end: usize) -> Option<&KeyParts> {
        let (head, trailer) = key.split_last_chunk()?;
        let bytes = head.get(row_end..)?;
        if !is_same(bytes, &self.bytes) || bytes.is_empty() {
            self.body = Body::parse(bytes)?;
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        self.body.put(row_end, trailer, &mut self.parts)?;
        Some(&self.parts)
    }
}

impl KeySplitter {
    /// Family, level and qualifier of the key split last, as far as they identify its column; empty when they do not.
    #[inline]
    pub fn column(&self) -> &[u8] {
        match self.body.level {
            Level::Cell | Level::Column => self.bytes.split_last().map_or(&[], |(_, column)| column),
            Level::Row | Level::Family => &[],
        }
    }

    /// Timestamp and sequence of a [`CellKind::Put`] in the column of the key split last. `None` for other keys, and
    /// when the last key was not at cell level. The row prefix is known to end at `row_end`.
    #[inline]
    pub fn put_in_same_column(&self, key: &[u8], row_end: usize) -> Option<(Timestamp, SeqNo)> {
        let (head, trailer) = key.split_last_chunk::<TRAILER_BYTES>()?;
        let (timestamp, rest) = trailer.split_first_chunk()?;
        let (seq, kind) = rest.split_first_chunk()?;
        let alike = kind == [CellKind::Put as u8].as_slice()
            && self.body.level == Level::Cell
            && is_same(head.get(row_end..)?, &self.bytes);
        alike.then(|| (timestamp_from_descending(*timestamp), SeqNo(!u64::from_be_bytes(*seq))))
    }
}

/// The part of a key between row and trailer; positions are relative to the row's end.
#[derive(Clone, Copy, Debug)]
struct Body {
    family: FamilyId,
    qualifier_start: usize,
    qualifier_end: usize,
    level: Level,
}

impl Default for Body {
    fn default() -> Self {
        Body {
            family: FamilyId(0),
            qualifier_start: 0,
            qualifier_end: 0,
            level: Level::Row,
        }
    }
}

impl Body {
    fn parse(bytes: &[u8]) -> Option<Body> {
        let (&family_bytes, rest) = bytes.split_first()?;
        let (family, rest) = take_family(family_bytes, rest)?;
        let mut body = Body {
            family,
            qualifier_start: bytes.len(),
            qualifier_end: bytes.len(),
            level: Level::Row,
        };
        if family.0 == 0 {
            return rest.is_empty().then_some(body);
        }
        let (&level, rest) = rest.split_first()?;
        body.level = match level {
            LEVEL_MARKER if rest.is_empty() => Level::Family,
            LEVEL_INNER => {
                let len = escaped_len(rest)?;
                body.qualifier_start = bytes.len() - rest.len();
                body.qualifier_end = body.qualifier_start + len;
                match rest.get(len..)? {
                    [LEVEL_MARKER] => Level::Column,
                    [LEVEL_INNER] => Level::Cell,
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(body)
    }

    #[inline]
    fn with(&self, row_end: usize, trailer: &[u8; TRAILER_BYTES]) -> Option<KeyParts> {
        let mut parts = KeyParts::default();
        self.put(row_end, trailer, &mut parts)?;
        Some(parts)
    }

    #[inline]
    fn put(&self, row_end: usize, trailer: &[u8; TRAILER_BYTES], parts: &mut KeyParts) -> Option<()> {
        let (timestamp, rest) = trailer.split_first_chunk()?;
        let (seq, kind) = rest.split_first_chunk()?;
        let kind = CellKind::from_byte(*kind.first()?)?;
        parts.row_end = row_end;
        parts.family = self.family;
        parts.qualifier_start = row_end + self.qualifier_start;
        parts.qualifier_end = row_end + self.qualifier_end;
        parts.timestamp = timestamp_from_descending(*timestamp);
        parts.seq = SeqNo(!u64::from_be_bytes(*seq));
        parts.kind = kind;
        (self.level == kind.level()).then_some(())
    }
}

impl<'a> CellKey<'a> {
    /// Decodes an encoded key; `None` when it violates the byte table.
    pub fn decode(key: &'a [u8]) -> Option<CellKey<'a>> {
        let parts = KeyParts::parse(key)?;
        Some(CellKey {
            row: parts.row(key),
            family: parts.family,
            qualifier: parts.qualifier(key),
            timestamp: parts.timestamp,
            seq: parts.seq,
            kind: parts.kind,
        })
    }

    /// Encodes this key.
    pub fn encode(&self) -> Vec<u8> {
        let mut buf = KeyBuf::new();
        buf.set(
            &self.row,
            self.family,
            &self.qualifier,
            self.timestamp,
            self.seq,
            self.kind,
        );
        buf.into_vec()
    }
}

/// The sequence number of an encoded key of valid length.
pub fn seq_of(key: &[u8]) -> Option<SeqNo> {
    let start = key.len().checked_sub(9)?;
    Some(SeqNo(!u64::from_be_bytes(key.get(start..start + 8)?.try_into().ok()?)))
}

/// Replaces the sequence number of an encoded key of valid length; leaves shorter ones unchanged.
pub fn set_seq(key: &mut [u8], seq: SeqNo) {
    let start = key.len().checked_sub(9);
    if let Some(field) = start.and_then(|start| key.get_mut(start..start + 8)) {
        field.copy_from_slice(&(!seq.0).to_be_bytes());
    }
}

/// The lower timestamp bound (inclusive) a [`CellKind::DeleteRange`] carries in its value.
pub fn range_delete_start(value: &[u8]) -> Option<Timestamp> {
    Some(Timestamp(i64::from_be_bytes(value.try_into().ok()?)))
}

/// The value of a [`CellKind::DeleteRange`] whose lower bound (inclusive) is `start`.
pub fn range_delete_value(start: Timestamp) -> Bytes {
    Bytes::copy_from_slice(&start.0.to_be_bytes())
}

fn descending_timestamp(timestamp: Timestamp) -> [u8; 8] {
    (!((timestamp.0 as u64) ^ (1 << 63))).to_be_bytes()
}

/// Decodes a timestamp from its form in a key.
#[inline]
pub fn timestamp_from_descending(bytes: [u8; 8]) -> Timestamp {
    Timestamp(((!u64::from_be_bytes(bytes)) ^ (1 << 63)) as i64)
}

fn push_family(out: &mut Vec<u8>, family: FamilyId) {
    let bytes = family.0.to_be_bytes();
    let skip = family.0.leading_zeros() as usize / 8;
    out.push((4 - skip) as u8);
    out.extend_from_slice(&bytes[skip..]);
}

/// Canonical form only: no leading zero byte.
fn take_family(len: u8, rest: &[u8]) -> Option<(FamilyId, &[u8])> {
    if len > 4 {
        return None;
    }
    let (id, rest) = rest.split_at_checked(usize::from(len))?;
    if id.first() == Some(&0) {
        return None;
    }
    let value = id.iter().fold(0u32, |acc, &b| acc << 8 | u32::from(b));
    Some((FamilyId(value), rest))
}

fn push_escaped(out: &mut Vec<u8>, mut bytes: &[u8]) {
    while let Some(zero) = first_zero(bytes) {
        out.extend_from_slice(&bytes[..zero]);
        out.extend_from_slice(&[ESCAPE, ESCAPED_ZERO]);
        bytes = &bytes[zero + 1..];
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[ESCAPE, TERMINATOR]);
}

/// Length of the escaped string at the front of `input`, with its terminator.
#[inline]
fn escaped_len(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += first_zero(input.get(at..)?)?;
        match *input.get(at + 1)? {
            TERMINATOR => return Some(at + 2),
            ESCAPED_ZERO => at += 2,
            _ => return None,
        }
    }
}

/// Position of the first zero byte. Compares eight bytes at a time; the last eight may overlap the ones before.
#[inline]
fn first_zero(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        if let Some(at) = first_zero_of(*word) {
            return Some(8 * n + at);
        }
    }
    match bytes.last_chunk() {
        Some(_) if rest.is_empty() => None,
        Some(last) => Some(bytes.len() - 8 + first_zero_of(*last)?),
        None => rest.iter().position(|&b| b == 0),
    }
}

/// A borrow makes only bytes above a zero byte seem to be zero, so the lowest is the first (Warren, "Hacker's Delight",
/// 6-1).
#[inline]
fn first_zero_of(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_le_bytes(word);
    let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

/// Removes the escapes; `escaped` is without its terminator.
fn unescape(escaped: &[u8]) -> Cow<'_, [u8]> {
    if first_zero(escaped).is_none() {
        return Cow::Borrowed(escaped);
    }
    let mut out = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        out.push(byte);
        if byte == ESCAPE {
            bytes.next();
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
