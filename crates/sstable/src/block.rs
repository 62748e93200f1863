//! Data blocks of an sstable: sorted entries with restart points. Layout in `docs/formats/sstable.md`.
//!
//! ```text
//! entries | restarts: u16 or u32 × r | words (8) × r | common (c) | column tail (t) | c (1) | t (1)
//!         | timestamp base (8) | sequence base (8) | r (4), bit 31 set, bit 30: u32 restarts
//! entry: shared varint | unshared varint | value length varint | kind and flags (1) | timestamp zigzag | sequence zigzag
//!        | body's middle | value
//! ```
//!
//! The keys of all restarts begin with `common`. The eight bytes after that are a restart's *word*. A search for the
//! interval that can hold a key compares these numbers, which are contiguous, and reads an entry only where they are
//! equal. The *head* of an interval is `common` and its word. The first entry of an interval shares bytes with its
//! head, so nothing is stored twice. Every other entry shares bytes with the entry before it.
//!
//! The first `shared` bytes of an entry's body are those of the previous entry. The last ones are the block's *column
//! tail* where [`ENDS_IN_TAIL`] is set. The bytes in between are the *middle*. The tail is the end of a row with family
//! and qualifier, which most neighbours have in common. The 17-byte trailer of a key is stored as kind and two
//! differences, and flags leave out differences of zero. A cell with a 10-byte value therefore costs about 5 bytes of
//! header instead of 30.
//!
//! A block has three search structures, one for each access:
//!
//! * Restart points with their words serve a seek in any block (`BlockCursor::seek`, `seek_before`) and a forward walk.
//!   They are stored in the block and find the interval. The seek then decodes at most 16 entries.
//! * The [`directory`] serves a seek in a cached block of large entries (256 bytes and more on average). It is built in
//!   memory when the block enters the cache and leads to the entry itself, without passing others.
//! * The [`window`] serves a backward walk (`seek_last`, `seek_before`, `retreat`). It belongs to a cursor and holds
//!   the decoded keys of up to 16 whole intervals. It exists because an entry can be decoded only from the previous
//!   one.
//!
//! Decoders never trust the bytes: a block from disk has passed its checksum, but the same functions also face a fuzzer. A
//! search that ends at an interval checks that the interval's first key begins with its head.

mod builder;
mod cursor;
mod directory;
mod window;

pub use builder::BlockBuilder;
pub use cursor::{BlockCursor, Buffered, BufferedValue};

use crate::error::DecodeError;
use crate::index::{common_prefix, leading_number};
use bytes::Bytes;
use directory::Directory;
use std::cmp::Ordering;
use std::ops::Range;
use stele_types::key::TRAILER_BYTES;
use stele_types::limits::CELL_KEY_BYTES_MAX;
use stele_types::{CellKind, Timestamp, varint};

/// Sequence base and restart count: the end of every block.
const TAIL_BYTES: usize = 12;
/// Lengths of common bytes and column tail, and timestamp base. They precede the last [`TAIL_BYTES`].
const EXTENSION_BYTES: usize = 10;
/// In the restart count: set in every block of this format.
const LAYOUT: u32 = 1 << 31;
/// In the restart count: restarts are u32, because some offset is 64 KiB or more.
const WIDE: u32 = 1 << 30;
/// Bytes of a restart's word.
const WORD_BYTES: usize = 8;
/// The longest common bytes and column tail: their lengths are bytes.
const COMMON_BYTES_MAX: usize = 255;

/// With the kind: the body ends in the column tail.
const ENDS_IN_TAIL: u8 = 0x10;
/// With the kind: the timestamp is the previous entry's (at a restart, the base), and not stored.
const SAME_TIMESTAMP: u8 = 0x20;
/// With the kind: the sequence is the base, and not stored.
const SAME_SEQUENCE: u8 = 0x40;
/// The bits of that byte that hold the kind.
const KIND: u8 = 0x0f;
/// All bits of that byte that have a meaning.
const KIND_AND_FLAGS: u8 = KIND | ENDS_IN_TAIL | SAME_TIMESTAMP | SAME_SEQUENCE;

const SIGN: u64 = 1 << 63;

/// Timestamp, sequence and kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// In the table's unit.
    pub timestamp: Timestamp,
    /// Commit order.
    pub seq: u64,
    /// The kind of the cell.
    pub kind: CellKind,
}

impl Trailer {
    /// Splits a key into body and trailer.
    pub fn split(key: &[u8]) -> Option<(&[u8], Trailer)> {
        let (body, trailer) = key.split_last_chunk::<TRAILER_BYTES>()?;
        let (timestamp, rest) = trailer.split_first_chunk::<8>()?;
        let (seq, kind) = rest.split_first_chunk::<8>()?;
        let trailer = Trailer {
            timestamp: Timestamp((!u64::from_be_bytes(*timestamp) ^ SIGN) as i64),
            seq: !u64::from_be_bytes(*seq),
            kind: CellKind::from_byte(*kind.first()?)?,
        };
        Some((body, trailer))
    }

    /// The 17 bytes as they stand in a key.
    #[inline]
    pub fn encode(self) -> [u8; TRAILER_BYTES] {
        let mut out = [0; TRAILER_BYTES];
        out[..8].copy_from_slice(&(!(self.timestamp.0 as u64 ^ SIGN)).to_be_bytes());
        out[8..16].copy_from_slice(&(!self.seq).to_be_bytes());
        out[16] = self.kind as u8;
        out
    }
}

/// A decoded (uncompressed, checksummed) data block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    content: Bytes,
    entries_end: usize,
    restarts: usize,
    /// Bytes of a restart's offset.
    restart_bytes: usize,
    /// Position of the words in the content.
    words_at: usize,
    common: Range<usize>,
    tail: Range<usize>,
    timestamp_base: i64,
    seq_base: u64,
    /// Leads searches to large entries. Only cached blocks with large entries have one.
    directory: Option<Directory>,
}

impl Block {
    /// Checks the block's end; entries are checked as they are visited.
    pub fn parse(content: Bytes) -> Result<Block, DecodeError> {
        let short = || DecodeError::new(content.len(), "shorter than a data block's tail");
        let (rest, last) = content.split_last_chunk::<TAIL_BYTES>().ok_or_else(short)?;
        let (seq_base, count) = last.split_first_chunk::<8>().ok_or_else(short)?;
        let seq_base = u64::from_le_bytes(*seq_base);
        let count = count.try_into().map_or(0, u32::from_le_bytes);
        if count & LAYOUT == 0 {
            let detail = format!("data block with restart count {count:#010x}, expected bit 31 to be set");
            return Err(DecodeError::new(content.len() - 4, detail));
        }
        let mut block = Block {
            restarts: (count & !LAYOUT & !WIDE) as usize,
            restart_bytes: if count & WIDE == 0 { 2 } else { 4 },
            seq_base,
            ..Block::default()
        };
        block.entries_end = block
            .parse_tail(rest)
            .filter(|&end| block.restarts > 0 && end > 0)
            .ok_or_else(|| DecodeError::new(content.len(), "data block with an impossible number of restarts"))?;
        debug_assert!(
            block.entries_end <= block.words_at && block.words_at <= block.common.start,
            "the parts of a block follow each other"
        );
        block.content = content;
        match block.restart(0) {
            Some(0) => Ok(block),
            _ => Err(DecodeError::new(block.entries_end, "first restart is not 0")),
        }
    }

    /// Decodes the parts between the entries and the last [`TAIL_BYTES`]. Returns the end of the entries.
    fn parse_tail(&mut self, rest: &[u8]) -> Option<usize> {
        let (before, extension) = rest.split_last_chunk::<EXTENSION_BYTES>()?;
        let ([common, tail], base) = extension.split_first_chunk::<2>()?;
        self.timestamp_base = base.try_into().map_or(0, i64::from_le_bytes);
        self.tail = before.len().checked_sub(usize::from(*tail))?..before.len();
        self.common = self.tail.start.checked_sub(usize::from(*common))?..self.tail.start;
        self.words_at = self.common.start.checked_sub(self.restarts.checked_mul(WORD_BYTES)?)?;
        self.words_at.checked_sub(self.restarts * self.restart_bytes)
    }

    /// Prepares a block for the cache: adds a directory if its entries are large.
    #[must_use]
    pub fn with_directory(mut self) -> Block {
        self.directory = Directory::of(&self);
        self
    }

    /// A slice of the content that shares its memory; the range must have been checked.
    fn slice(&self, range: Range<usize>) -> Bytes {
        self.content.slice(range)
    }

    /// Bytes of the content.
    pub fn bytes(&self) -> usize {
        self.content.len()
    }

    /// Memory of the content and of the directory, if there is one.
    pub fn memory_bytes(&self) -> usize {
        self.content.len() + self.directory.as_ref().map_or(0, Directory::bytes)
    }

    /// Number of restart intervals, at least 1.
    pub fn intervals(&self) -> usize {
        self.restarts
    }

    /// The prefix of the keys of all intervals that is stored once. At most 255 bytes.
    #[inline]
    pub fn common(&self) -> &[u8] {
        self.content.get(self.common.clone()).unwrap_or(&[])
    }

    /// The suffix of bodies that is stored once.
    #[inline]
    pub fn column_tail(&self) -> &[u8] {
        self.content.get(self.tail.clone()).unwrap_or(&[])
    }

    /// Offset of the n-th interval; `None` past the last.
    #[inline]
    fn restart(&self, n: usize) -> Option<usize> {
        if n >= self.restarts {
            return None;
        }
        let bytes = self.content.get(self.entries_end + self.restart_bytes * n..)?;
        Some(if self.restart_bytes == 2 {
            usize::from(u16::from_le_bytes(*bytes.first_chunk()?))
        } else {
            u32::from_le_bytes(*bytes.first_chunk()?) as usize
        })
    }

    /// The bytes of the n-th interval's word.
    #[inline]
    fn word(&self, n: usize) -> &[u8] {
        let at = self.words_at + WORD_BYTES * n;
        self.content.get(at..at + WORD_BYTES).unwrap_or(&[])
    }

    /// Length of an interval's head.
    #[inline]
    fn head_len(&self) -> usize {
        self.common.len() + WORD_BYTES
    }

    /// Decodes the entry at `at` and checks its key's length. `timestamp` and `body_len` are those of the previous
    /// entry, at a restart the base and the head. The entry ends within the first `limit` bytes.
    #[inline(always)]
    fn entry(&self, at: usize, limit: usize, timestamp: i64, body_len: usize) -> Result<Entry, DecodeError> {
        self.decode(at, limit, timestamp)
            .filter(|entry| entry.shared <= body_len && entry.body_len <= CELL_KEY_BYTES_MAX - TRAILER_BYTES)
            .ok_or_else(|| malformed_entry(at))
    }

    /// Decodes the entry at `start`; `None` when it is malformed or leaves the first `limit` bytes. Bytes read may lie
    /// after `limit`, but never after the content; an entry with such bytes ends after the limit, too.
    #[inline(always)]
    fn decode(&self, start: usize, limit: usize, before: i64) -> Option<Entry> {
        let content = &self.content[..];
        let head = u32::from_le_bytes(*content.get(start..)?.first_chunk()?);
        let (shared, unshared, value_len, kind, mut at);
        // Four bytes in nearly every case: three lengths, of which only the value's is often above 127, and the kind.
        if head & 0x80_80_80 == 0 {
            shared = (head & 0xff) as usize;
            unshared = (head >> 8 & 0xff) as usize;
            value_len = (head >> 16 & 0xff) as usize;
            kind = (head >> 24) as u8;
            at = start + 4;
        } else {
            at = start;
            // At a restart, shared bytes are of the head and not of this interval, so `limit` does not bound them.
            shared = take_length(content, &mut at, CELL_KEY_BYTES_MAX)?;
            unshared = take_length(content, &mut at, limit)?;
            value_len = take_length(content, &mut at, limit)?;
            kind = *content.get(at)?;
            at += 1;
        }
        let mut timestamp = before;
        if kind & SAME_TIMESTAMP == 0 {
            timestamp = before.wrapping_add(varint::unzigzag(take_varint(content, &mut at)?));
        }
        let seq_at = at;
        if kind & SAME_SEQUENCE == 0 {
            pass_varint(content, &mut at)?;
        }
        // This cannot overflow: neither length is above `limit` or 127.
        let value_at = at + unshared;
        let end = value_at + value_len;
        debug_assert!(
            start < at && at <= content.len(),
            "an entry's header lies within the content"
        );
        if end > limit || kind & !KIND_AND_FLAGS != 0 {
            return None;
        }
        let tail_at = shared + unshared;
        let tail_len = if kind & ENDS_IN_TAIL != 0 { self.tail.len() } else { 0 };
        Some(Entry {
            at: start,
            shared,
            seq_at,
            middle_at: at,
            value_at,
            end,
            tail_at,
            body_len: tail_at + tail_len,
            timestamp,
            kind: CellKind::from_byte(kind & KIND)?,
        })
    }

    /// Timestamp, sequence and kind of an entry.
    #[inline]
    fn trailer(&self, entry: &Entry) -> Trailer {
        let mut seq = self.seq_base;
        let mut at = entry.seq_at;
        if at < entry.middle_at {
            // `decode` skipped this varint, so it is well-formed.
            let difference = take_varint(&self.content, &mut at).unwrap_or(0);
            seq = seq.wrapping_add(varint::unzigzag(difference) as u64);
        }
        Trailer {
            timestamp: Timestamp(entry.timestamp),
            seq,
            kind: entry.kind,
        }
    }

    #[inline]
    fn middle(&self, entry: &Entry) -> &[u8] {
        self.content.get(entry.middle_at..entry.value_at).unwrap_or(&[])
    }

    /// The column tail, if the entry's body ends in it.
    #[inline]
    fn tail_of(&self, entry: &Entry) -> &[u8] {
        if entry.body_len > entry.tail_at {
            self.column_tail()
        } else {
            &[]
        }
    }

    /// Compares an entry's key with `target`, whose first `entry.shared` bytes equal the key's. Returns also the length
    /// of the common prefix of the body and the target.
    #[inline(always)]
    fn compare(&self, entry: &Entry, target: &[u8]) -> (Ordering, usize) {
        let mut matched = entry.shared;
        for piece in [self.middle(entry), self.tail_of(entry)] {
            let rest = target.get(matched..).unwrap_or(&[]);
            let common = common_prefix(piece, rest);
            matched += common;
            if let Some(own) = piece.get(common) {
                // Beyond the end of `target` the longer key is the greater one.
                return (
                    rest.get(common).map_or(Ordering::Greater, |other| own.cmp(other)),
                    matched,
                );
            }
        }
        let rest = target.get(matched..).unwrap_or(&[]);
        if rest.is_empty() {
            return (Ordering::Greater, matched);
        }
        (self.trailer(entry).encode().as_slice().cmp(rest), matched)
    }

    /// The first entry of the n-th interval, and the end of the interval.
    #[inline]
    fn first_entry(&self, n: usize) -> Result<(Entry, usize), DecodeError> {
        let start = self.restart(n);
        let end = self.restart(n + 1).unwrap_or(self.entries_end);
        let start = start
            .filter(|&start| start < end && end <= self.entries_end)
            .ok_or_else(|| DecodeError::new(self.entries_end + self.restart_bytes * n, "restarts out of order"))?;
        let entry = self.entry(start, end, self.timestamp_base, self.head_len())?;
        if entry.shared < self.head_len() && !self.begins_with_head(&entry, n) {
            return Err(DecodeError::new(start, "a key that is not as its interval's head says"));
        }
        Ok((entry, end))
    }

    /// Whether the key of the n-th interval's first entry begins with the head. Called when the entry shares only a
    /// part of the head.
    fn begins_with_head(&self, entry: &Entry, n: usize) -> bool {
        let trailer = self.trailer(entry).encode();
        let mut own = [self.middle(entry), self.tail_of(entry), &trailer].into_iter();
        let mut key = own.next().unwrap_or(&[]);
        let in_word = entry.shared.saturating_sub(self.common.len());
        for mut head in [self.common().get(entry.shared..), self.word(n).get(in_word..)]
            .into_iter()
            .flatten()
        {
            while !head.is_empty() {
                let len = head.len().min(key.len());
                if head.get(..len) != key.get(..len) {
                    return false;
                }
                head = head.get(len..).unwrap_or(&[]);
                key = key.get(len..).unwrap_or(&[]);
                if key.is_empty() && !head.is_empty() {
                    let Some(next) = own.next() else { return false };
                    key = next;
                }
            }
        }
        true
    }

    /// Length of the common prefix of the n-th interval's head and `target`.
    #[inline]
    fn head_matches(&self, n: usize, target: &[u8]) -> usize {
        let common = self.common();
        let matched = common_prefix(common, target);
        if matched < common.len() {
            return matched;
        }
        matched + common_prefix(self.word(n), target.get(matched..).unwrap_or(&[]))
    }

    /// Compares the key of the n-th interval's first entry with `target`. Returns also the length of the common prefix
    /// of its body and `target`.
    #[inline]
    fn compare_first(&self, n: usize, entry: &Entry, target: &[u8]) -> (Ordering, usize) {
        let matched = self.head_matches(n, target);
        if entry.shared <= matched {
            return self.compare(entry, target);
        }
        let head = self.common().iter().chain(self.word(n)).nth(matched);
        // Beyond the end of `target` the longer key is the greater one.
        let order = target
            .get(matched)
            .map_or(Ordering::Greater, |other| head.cmp(&Some(other)));
        (order, matched)
    }

    /// Compares the n-th interval's first key with `target`.
    #[inline]
    fn compare_restart(&self, n: usize, target: &[u8]) -> Result<Ordering, DecodeError> {
        let (entry, _) = self.first_entry(n)?;
        Ok(self.compare_first(n, &entry, target).0)
    }

    /// Number of intervals whose first key is below `target`.
    #[inline]
    fn intervals_below(&self, target: &[u8]) -> Result<usize, DecodeError> {
        let common = self.common();
        match common.cmp(target.get(..common.len()).unwrap_or(target)) {
            Ordering::Less => return Ok(self.restarts),
            Ordering::Greater => return Ok(0),
            Ordering::Equal => {}
        }
        let wanted = leading_number(target, common.len(), target.len());
        let words = self
            .content
            .get(self.words_at..self.common.start)
            .unwrap_or(&[])
            .as_chunks()
            .0;
        let number = |word: &[u8; WORD_BYTES]| u64::from_be_bytes(*word);
        let below = words.partition_point(|word| number(word) < wanted);
        if words.get(below).is_none_or(|word| number(word) != wanted) {
            return Ok(below);
        }
        let equal = words
            .get(below..)
            .unwrap_or(&[])
            .partition_point(|word| number(word) == wanted);
        self.intervals_below_by_keys(target, below, below + equal)
    }

    /// The same by whole keys, for a result that is known to be within `low..=high`.
    fn intervals_below_by_keys(&self, target: &[u8], mut low: usize, mut high: usize) -> Result<usize, DecodeError> {
        debug_assert!(
            low <= high && high <= self.restarts,
            "a search stays within the block's intervals"
        );
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_restart(middle, target)? == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// One entry of the block. Positions are offsets in the block's content; lengths and `tail_at` are offsets in the body.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    shared: usize,
    /// Position of the sequence, if it is stored.
    seq_at: usize,
    middle_at: usize,
    value_at: usize,
    end: usize,
    /// Offset in the body of the end of the middle, which is the start of the column tail if the entry has one.
    tail_at: usize,
    body_len: usize,
    timestamp: i64,
    kind: CellKind,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            at: 0,
            shared: 0,
            seq_at: 0,
            middle_at: 0,
            value_at: 0,
            end: 0,
            tail_at: 0,
            body_len: 0,
            timestamp: 0,
            kind: CellKind::Put,
        }
    }
}

#[cold]
#[inline(never)]
fn malformed_entry(at: usize) -> DecodeError {
    DecodeError::new(
        at,
        "malformed entry, or one whose key shares more than there is or exceeds the limit",
    )
}

/// Decodes the varint at `at` and advances `at` past it. A varint of up to eight bytes is decoded from one word without
/// a loop: pairs of seven-bit groups are joined.
#[inline]
fn take_varint(content: &[u8], at: &mut usize) -> Option<u64> {
    const CONTINUED: u64 = u64::from_ne_bytes([0x80; 8]);
    let Some(word) = content.get(*at..).and_then(|rest| rest.first_chunk()) else {
        return take_long_varint(content, at);
    };
    let word = u64::from_le_bytes(*word);
    let last = !word & CONTINUED;
    if last == 0 {
        return take_long_varint(content, at);
    }
    let bytes = last.trailing_zeros() as usize / 8 + 1;
    *at += bytes;
    if bytes == 1 {
        return Some(word & 0x7f);
    }
    // Up to the lowest clear continuation bit.
    let groups = word & (last ^ (last - 1)) & !CONTINUED;
    let pairs = (groups & 0x007f_007f_007f_007f) | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    Some((fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4)
}

/// Decodes the varint at `at`; `None` if it is above `limit`.
#[inline]
fn take_length(content: &[u8], at: &mut usize, limit: usize) -> Option<usize> {
    let length = usize::try_from(take_varint(content, at)?).ok()?;
    (length <= limit).then_some(length)
}

/// Advances `at` past the varint there.
#[inline]
fn pass_varint(content: &[u8], at: &mut usize) -> Option<()> {
    const CONTINUED: u32 = u32::from_ne_bytes([0x80; 4]);
    let word = content.get(*at..).and_then(|rest| rest.first_chunk());
    let last = word.map_or(0, |word| !u32::from_le_bytes(*word) & CONTINUED);
    if last == 0 {
        return take_varint(content, at).map(|_| ());
    }
    *at += last.trailing_zeros() as usize / 8 + 1;
    Some(())
}

#[cold]
#[inline(never)]
fn take_long_varint(content: &[u8], at: &mut usize) -> Option<u64> {
    let mut input = content.get(*at..)?;
    let before = input.len();
    let value = varint::take_u64(&mut input)?;
    *at += before - input.len();
    Some(value)
}

#[cfg(test)]
mod tests;
