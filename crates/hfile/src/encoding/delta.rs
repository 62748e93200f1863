//! Cells as differences to the cell before: `PREFIX`, `DIFF` and `FAST_DIFF`.
//!
//! All share the front of the key before, of `common` bytes; the key without its timestamp and type in the last two. These
//! also leave the family out, which is the same in all cells, and have flags in a byte at the front.
//!
//! | encoding | a cell; lengths are compressed integers |
//! |---|---|
//! | `PREFIX` | rest of the key, value and `common` as lengths; rest of the key; value |
//! | `DIFF` | of the first cell the family (1, n). Then flags; key and value as lengths unless as before; `common`; rest of row and qualifier; timestamp or its difference in 1 to 8 bytes, lowest first; type unless as before; value |
//! | `FAST_DIFF` | flags; key and value as lengths unless as before; `common`. Of the first cell the key and the value, else rest of row and qualifier; the timestamp but for the bytes at its front that are as before; type and value unless as before |
//!
//! Behind each cell are the length of its tags (compressed integer) and the tags, if the file has tags, and a vlong, if the
//! file has numbers in the order of commits.

use super::{BlockLayout, Encoding};
use crate::error::{Decoded, Malformed};
use crate::input::Input;
use crate::key::TIME_AND_TYPE_BYTES;
use crate::tags::Dictionary;
use std::ops::Range;

/// Bytes of the length of a row.
const ROW_LEN_BYTES: usize = 2;

mod diff {
    pub const SAME_KEY_LENGTH: u8 = 1;
    pub const SAME_VALUE_LENGTH: u8 = 1 << 1;
    pub const SAME_TYPE: u8 = 1 << 2;
    pub const TIME_IS_DIFFERENCE: u8 = 1 << 3;
    pub const TIME_IS_NEGATIVE: u8 = 1 << 7;

    /// Bytes of the timestamp.
    pub fn time_bytes(flags: u8) -> usize {
        usize::from(flags >> 4 & 7) + 1
    }
}

mod fast {
    /// Bytes of the timestamp that are as before.
    pub const TIME_PREFIX: u8 = 7;
    pub const SAME_KEY_LENGTH: u8 = 1 << 3;
    pub const SAME_VALUE_LENGTH: u8 = 1 << 4;
    pub const SAME_TYPE: u8 = 1 << 5;
    pub const SAME_VALUE: u8 = 1 << 6;
}

/// Decodes the cells of a block.
pub struct Decoder<'a> {
    input: Input<'a>,
    layout: BlockLayout,
    /// Bytes of `out` at most.
    limit: usize,
    out: Vec<u8>,
    dictionary: Dictionary<'a>,
    /// The key of the last cell; empty before the first.
    key: Vec<u8>,
    /// The value of the last cell, in `out`.
    value: Range<usize>,
    /// The family of all cells behind its length.
    family: Vec<u8>,
}

/// A value that is to be added.
enum Value {
    /// The next bytes.
    New(usize),
    /// That of the cell before.
    Same,
}

impl<'a> Decoder<'a> {
    /// Of the cells in `input`, which take `limit` bytes as plain cells at most.
    pub fn new(input: Input<'a>, layout: BlockLayout, limit: usize) -> Self {
        Decoder {
            input,
            layout,
            limit,
            out: Vec::with_capacity(limit),
            dictionary: Dictionary::default(),
            key: Vec::new(),
            value: 0..0,
            family: Vec::new(),
        }
    }

    /// The plain cells, without their numbers in the order of commits.
    pub fn decode(mut self, encoding: Encoding) -> Decoded<Vec<u8>> {
        while !self.input.is_empty() {
            let value = match encoding {
                Encoding::Diff => self.diff()?,
                Encoding::FastDiff => self.fast_diff()?,
                _ => self.prefix()?,
            };
            self.add(value)?;
        }
        Ok(self.out)
    }

    fn prefix(&mut self) -> Decoded<Value> {
        let rest = self.input.compressed_int()?;
        let value = self.input.compressed_int()?;
        let common = self.input.compressed_int()?;
        if common > self.key.len() {
            return Malformed::new("a key that shares more than the key before has");
        }
        self.key.truncate(common);
        self.key.extend(self.input.take(rest)?);
        Ok(Value::New(value))
    }

    fn diff(&mut self) -> Decoded<Value> {
        let is_first = self.key.is_empty();
        if is_first {
            let len = self.input.u8()?;
            self.family = [&[len], self.input.take(usize::from(len))?].concat();
        }
        let flags = self.input.u8()?;
        let is_set = |flag: u8| flags & flag != 0;
        let key_len = self.length_or(is_set(diff::SAME_KEY_LENGTH), self.key.len())?;
        let value_len = self.length_or(is_set(diff::SAME_VALUE_LENGTH), self.value.len())?;
        let common = self.input.compressed_int()?;
        let (before, kind_before) = self.time_and_type().unwrap_or_default();
        self.columns(key_len, common)?;
        let mut timestamp = self.input.little_endian(diff::time_bytes(flags))?;
        if is_set(diff::TIME_IS_NEGATIVE) {
            timestamp = timestamp.wrapping_neg();
        }
        if is_set(diff::TIME_IS_DIFFERENCE) {
            timestamp = i64::from_be_bytes(before).wrapping_sub(timestamp);
        }
        let kind = match is_set(diff::SAME_TYPE) && !is_first {
            true => kind_before,
            false => self.input.u8()?,
        };
        self.key.extend(timestamp.to_be_bytes());
        self.key.push(kind);
        Ok(Value::New(value_len))
    }

    fn fast_diff(&mut self) -> Decoded<Value> {
        let flags = self.input.u8()?;
        let is_set = |flag: u8| flags & flag != 0;
        let key_len = self.length_or(is_set(fast::SAME_KEY_LENGTH), self.key.len())?;
        let value_len = self.length_or(is_set(fast::SAME_VALUE_LENGTH), self.value.len())?;
        let common = self.input.compressed_int()?;
        let Some((time_before, kind_before)) = self.time_and_type() else {
            self.key.extend(self.input.take(key_len)?);
            self.family = family_of(&self.key)?.to_vec();
            return Ok(Value::New(value_len));
        };
        self.columns(key_len, common)?;
        let shared = usize::from(flags & fast::TIME_PREFIX);
        let (time_front, time_back) = time_before.split_at_checked(shared).unwrap_or_default();
        self.key.extend(time_front);
        self.key.extend(self.input.take(time_back.len())?);
        let kind = match is_set(fast::SAME_TYPE) {
            true => kind_before,
            false => self.input.u8()?,
        };
        self.key.push(kind);
        match is_set(fast::SAME_VALUE) {
            true if value_len == self.value.len() => Ok(Value::Same),
            true => Malformed::new("the same value of another length"),
            false => Ok(Value::New(value_len)),
        }
    }

    fn length_or(&mut self, is_same: bool, before: usize) -> Decoded<usize> {
        match is_same {
            true => Ok(before),
            false => self.input.compressed_int(),
        }
    }

    /// Timestamp and type of the cell before; `None` if there is none.
    fn time_and_type(&self) -> Option<([u8; 8], u8)> {
        let (kind, key) = self.key.split_last()?;
        Some((*key.last_chunk()?, *kind))
    }

    /// Makes the key the row, the family and the qualifier of the next cell, whose key shares `common` bytes with the one
    /// before and has `key_len` bytes.
    fn columns(&mut self, key_len: usize, common: usize) -> Decoded<()> {
        let shared_max = self.key.len().saturating_sub(TIME_AND_TYPE_BYTES);
        if common > shared_max {
            return Malformed::new("a key that shares more than the columns of the key before");
        }
        let row_end_before = row_end(&self.key).unwrap_or(usize::MAX);
        self.key.truncate(common);
        if common < row_end_before {
            let missing = ROW_LEN_BYTES.saturating_sub(common);
            self.key.extend(self.input.take(missing)?);
            let Some(rest) = row_end(&self.key).and_then(|end| end.checked_sub(self.key.len())) else {
                return Malformed::new("a row that is shorter than the part that it shares");
            };
            self.key.extend(self.input.take(rest)?);
            self.key.extend(&self.family);
        }
        let Some(rest) = key_len.checked_sub(self.key.len() + TIME_AND_TYPE_BYTES) else {
            return Malformed::new("a key that is shorter than its parts");
        };
        self.key.extend(self.input.take(rest)?);
        Ok(())
    }

    /// Appends the cell whose key is complete.
    fn add(&mut self, value: Value) -> Decoded<()> {
        let value_len = match &value {
            Value::New(len) => *len,
            Value::Same => self.value.len(),
        };
        self.check_room(8 + self.key.len() + value_len)?;
        self.out.extend((self.key.len() as u32).to_be_bytes());
        self.out.extend((value_len as u32).to_be_bytes());
        self.out.extend(&self.key);
        let from = self.out.len();
        match value {
            Value::New(len) => self.out.extend(self.input.take(len)?),
            Value::Same => self.out.extend_from_within(self.value.clone()),
        }
        self.value = from..self.out.len();
        if self.layout.cells.tags {
            self.add_tags()?;
        }
        if self.layout.cells.sequences {
            self.input.vlong()?;
        }
        Ok(())
    }

    fn add_tags(&mut self) -> Decoded<()> {
        let len = self.input.compressed_int()?;
        let Ok(stored) = u16::try_from(len) else {
            return Malformed::new("tags of more than 65,535 bytes");
        };
        self.check_room(2 + len)?;
        self.out.extend(stored.to_be_bytes());
        match self.layout.compressed_tags {
            true => self.dictionary.read(&mut self.input, len, &mut self.out),
            false => {
                self.out.extend(self.input.take(len)?);
                Ok(())
            }
        }
    }

    fn check_room(&self, bytes: usize) -> Decoded<()> {
        match self.limit.checked_sub(self.out.len()) {
            Some(room) if bytes <= room => Ok(()),
            _ => Malformed::new("more cells than the block says"),
        }
    }
}

/// Where the row ends in a key; `None` if the key ends before its length does.
fn row_end(key: &[u8]) -> Option<usize> {
    let len = key.first_chunk::<ROW_LEN_BYTES>()?;
    Some(ROW_LEN_BYTES + usize::from(u16::from_be_bytes(*len)))
}

/// The family of a key behind its length.
fn family_of(key: &[u8]) -> Decoded<&[u8]> {
    let family = row_end(key).and_then(|from| key.get(from..)).and_then(|rest| {
        let len = usize::from(*rest.first()?);
        rest.get(..=len)
    });
    family.map_or_else(|| Malformed::new("a key without a family"), Ok)
}
