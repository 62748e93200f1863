//! Data blocks. Layout in `docs/formats/sstable.md`.
//!
//! ```text
//! entries | restarts: u32 × r | sequence base (8) | r (4)
//! entry: shared varint | unshared varint | value length varint | kind (1) | timestamp zigzag | sequence zigzag
//!        | body suffix | value
//! ```
//!
//! The 17-byte trailer of a key is stored as kind and two differences, so that a cell with a 10-byte value costs about
//! 10 bytes of header instead of 20. Nothing here trusts the bytes: a block from disk has passed its checksum, but the
//! same functions also face a fuzzer.

mod builder;
mod cursor;

pub use builder::BlockBuilder;
pub use cursor::BlockCursor;

use crate::error::DecodeError;
use bytes::Bytes;
use std::ops::Range;
use stele_types::key::TRAILER_BYTES;
use stele_types::{CellKind, Timestamp, varint};

/// Sequence base and restart count.
const TAIL_BYTES: usize = 12;

const SIGN: u64 = 1 << 63;

/// Timestamp, sequence and kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// In the table's unit.
    pub timestamp: Timestamp,
    /// Commit order.
    pub seq: u64,
    /// What the key stands for.
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
    seq_base: u64,
}

impl Block {
    /// Checks the block's tail; entries are checked as they are visited.
    pub fn parse(content: Bytes) -> Result<Block, DecodeError> {
        let malformed = |detail| DecodeError::new(content.len(), detail);
        let (seq_base, restarts) = content
            .last_chunk::<TAIL_BYTES>()
            .and_then(|tail| tail.split_first_chunk::<8>())
            .ok_or_else(|| malformed("shorter than a data block's tail"))?;
        let seq_base = u64::from_le_bytes(*seq_base);
        let restarts = restarts.try_into().map_or(0, u32::from_le_bytes) as usize;
        let entries_end = restarts
            .checked_mul(4)
            .and_then(|len| content.len().checked_sub(len + TAIL_BYTES))
            .filter(|&end| restarts > 0 && end > 0)
            .ok_or_else(|| malformed("data block with an impossible number of restarts"))?;
        let block = Block {
            content,
            entries_end,
            restarts,
            seq_base,
        };
        match block.restart(0) {
            Some(0) => Ok(block),
            _ => Err(DecodeError::new(entries_end, "first restart is not 0")),
        }
    }

    /// A slice of the content that shares its memory; the range must have been checked.
    fn slice(&self, range: Range<usize>) -> Bytes {
        self.content.slice(range)
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.content.len()
    }

    /// Where the n-th interval begins; `None` past the last.
    #[inline]
    fn restart(&self, n: usize) -> Option<usize> {
        if n >= self.restarts {
            return None;
        }
        let at = self.entries_end + 4 * n;
        let bytes = self.content.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    }

    /// Body and trailer of the n-th interval's first entry.
    #[inline]
    fn restart_key(&self, n: usize) -> Result<(&[u8], Trailer), DecodeError> {
        let malformed = || DecodeError::new(self.entries_end + 4 * n, "malformed restart");
        let at = self.restart(n).ok_or_else(malformed)?;
        let entry = RawEntry::decode(&self.content, self.entries_end, at).ok_or_else(malformed)?;
        let body = self.content.get(entry.suffix()).ok_or_else(malformed)?;
        let trailer = entry.trailer(0, self.seq_base).ok_or_else(malformed)?;
        Ok((body, trailer))
    }
}

/// One entry as it stands in the block; ranges are within the block's content.
#[derive(Clone, Copy, Debug)]
struct RawEntry {
    shared: usize,
    kind: u8,
    timestamp: u64,
    seq: u64,
    suffix_at: usize,
    value_at: usize,
    end: usize,
}

impl RawEntry {
    /// Decodes the entry at `at`; `None` when it is malformed or leaves the first `limit` bytes of `content`. What is
    /// read may lie behind `limit`, never behind `content`; an entry of such bytes ends behind the limit, too.
    #[inline]
    fn decode(content: &[u8], limit: usize, at: usize) -> Option<RawEntry> {
        let mut at = at;
        // Five bytes in nearly every case: three lengths, of which only the value's is often above 127, and the kind.
        let head = u32::from_le_bytes(*content.get(at..)?.first_chunk()?);
        let (shared, unshared, value_len, kind);
        if head & 0x80_80_80 == 0 {
            [shared, unshared, value_len] = [head & 0xff, head >> 8 & 0xff, head >> 16 & 0xff].map(u64::from);
            kind = (head >> 24) as u8;
            at += 4;
        } else {
            shared = take_varint(content, &mut at)?;
            unshared = take_varint(content, &mut at)?;
            value_len = take_varint(content, &mut at)?;
            kind = *content.get(at)?;
            at += 1;
        }
        let timestamp = take_varint(content, &mut at)?;
        let seq = take_varint(content, &mut at)?;
        let left = limit.checked_sub(at)? as u64;
        if unshared > left || value_len > left - unshared || shared > limit as u64 {
            return None;
        }
        let value_at = at + unshared as usize;
        Some(RawEntry {
            shared: shared as usize,
            kind,
            timestamp,
            seq,
            suffix_at: at,
            value_at,
            end: value_at + value_len as usize,
        })
    }

    fn suffix(&self) -> Range<usize> {
        self.suffix_at..self.value_at
    }

    #[inline]
    fn trailer(&self, timestamp_base: i64, seq_base: u64) -> Option<Trailer> {
        let timestamp = timestamp_base.wrapping_add(varint::unzigzag(self.timestamp));
        Some(Trailer {
            timestamp: Timestamp(timestamp),
            seq: seq_base.wrapping_add(varint::unzigzag(self.seq) as u64),
            kind: CellKind::from_byte(self.kind)?,
        })
    }
}

/// The varint at `at`, and `at` moved behind it. One of up to eight bytes is taken as one word, without a loop: the
/// groups of seven bits are pushed together in pairs.
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
