//! Cell blocks in the layout of HBase's `KeyValueCodec`: consecutive cells, without count or trailer.
//!
//! | bytes | field, big-endian |
//! |---|---|
//! | 4 | bytes that follow: 8 + key + value |
//! | 4 | bytes of the key: 12 + row + family + qualifier |
//! | 4 | bytes of the value |
//! | 2, n | row |
//! | 1, n | family |
//! | n | qualifier, the rest of the key |
//! | 8 | timestamp |
//! | 1 | type |
//! | n | value |
//! | 2, n | tags; only with `KeyValueCodecWithTags`, and only of a cell that has some |

use crate::WireError;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Timestamp that stands for the server's own time.
pub const LATEST: i64 = i64::MAX;

/// Bytes of a cell besides row, family, qualifier and value.
pub const CELL_OVERHEAD_BYTES: usize = 4 + KEY_AND_VALUE_LENGTHS + KEY_OVERHEAD;

/// Longest row, from its 16-bit length in Java.
pub const ROW_BYTES_MAX: usize = i16::MAX as usize;

/// Longest family, from its 8-bit length in Java.
pub const FAMILY_BYTES_MAX: usize = i8::MAX as usize;

/// Longest qualifier or value: far above HBase's own limit of 10 MiB for a cell, and no sum of lengths overflows.
pub const PART_BYTES_MAX: usize = 1 << 29;

const KEY_AND_VALUE_LENGTHS: usize = 8;
/// Lengths of row and family, timestamp, type.
const KEY_OVERHEAD: usize = 2 + 1 + 8 + 1;
/// Bytes behind the length of a cell of empty parts.
const REST_BYTES_MIN: usize = KEY_AND_VALUE_LENGTHS + KEY_OVERHEAD;

/// Meanings of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellType {
    /// Holds a value.
    Put = 4,
    /// Deletes one version of its column.
    Delete = 8,
    /// Deletes the cells of its family that have its timestamp.
    DeleteFamilyVersion = 10,
    /// Deletes all versions of its column up to its timestamp.
    DeleteColumn = 12,
    /// Deletes all cells of its family up to its timestamp.
    DeleteFamily = 14,
}

impl CellType {
    /// The type of this code.
    ///
    /// # Errors
    /// A code of no cell.
    pub fn from_code(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            4 => Self::Put,
            8 => Self::Delete,
            10 => Self::DeleteFamilyVersion,
            12 => Self::DeleteColumn,
            14 => Self::DeleteFamily,
            other => {
                let expected = "4, 8, 10, 12 or 14";
                return Err(WireError::unexpected("type of a cell", expected, other.to_string()));
            }
        })
    }
}

/// A decoded cell. Its parts are slices of the block that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Row key.
    pub row: Bytes,
    /// Family.
    pub family: Bytes,
    /// Qualifier.
    pub qualifier: Bytes,
    /// In ms, unless the writer uses another unit.
    pub timestamp: i64,
    /// Its meaning.
    pub kind: CellType,
    /// Value.
    pub value: Bytes,
}

/// A cell to be written.
#[derive(Debug, Clone, Copy)]
pub struct CellRef<'a> {
    /// Row key, at most [`ROW_BYTES_MAX`].
    pub row: &'a [u8],
    /// Family, at most [`FAMILY_BYTES_MAX`].
    pub family: &'a [u8],
    /// Qualifier.
    pub qualifier: &'a [u8],
    /// [`LATEST`] for the server's time.
    pub timestamp: i64,
    /// Its meaning.
    pub kind: CellType,
    /// Value.
    pub value: &'a [u8],
}

impl CellRef<'_> {
    /// Bytes of the encoded cell.
    pub fn encoded_len(&self) -> usize {
        CELL_OVERHEAD_BYTES + self.row.len() + self.family.len() + self.qualifier.len() + self.value.len()
    }

    /// Appends the encoded cell to a block.
    ///
    /// # Errors
    /// A part longer than its length field can express. Nothing has been appended then.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        at_most("row of a cell", self.row, ROW_BYTES_MAX)?;
        at_most("family of a cell", self.family, FAMILY_BYTES_MAX)?;
        at_most("qualifier of a cell", self.qualifier, PART_BYTES_MAX)?;
        at_most("value of a cell", self.value, PART_BYTES_MAX)?;
        let key = KEY_OVERHEAD + self.row.len() + self.family.len() + self.qualifier.len();
        // One reservation, so that the writes below never grow the buffer.
        out.reserve(self.encoded_len());
        out.put_u32((KEY_AND_VALUE_LENGTHS + key + self.value.len()) as u32);
        out.put_u32(key as u32);
        out.put_u32(self.value.len() as u32);
        out.put_u16(self.row.len() as u16);
        out.put_slice(self.row);
        out.put_u8(self.family.len() as u8);
        out.put_slice(self.family);
        out.put_slice(self.qualifier);
        out.put_i64(self.timestamp);
        out.put_u8(self.kind as u8);
        out.put_slice(self.value);
        Ok(())
    }
}

fn at_most(what: &'static str, bytes: &[u8], limit: usize) -> Result<(), WireError> {
    if bytes.len() <= limit {
        return Ok(());
    }
    let (limit, found) = (limit as u64, bytes.len() as u64);
    Err(WireError::TooLong { what, limit, found })
}

/// Reads the cells of a block one after another. A cell that cannot be read leaves the block all the same. Where its length is
/// none, the place of later cells is not known, and the block ends.
#[derive(Debug, Clone, Default)]
pub struct CellReader {
    block: Bytes,
}

impl CellReader {
    /// A reader of this block.
    pub fn new(block: Bytes) -> Self {
        Self { block }
    }

    /// Bytes of the block that are not read yet.
    pub fn remaining(&self) -> usize {
        self.block.len()
    }

    /// How many cells the rest of the block has, by their lengths alone. A length of no cell ends it.
    pub fn cells_left(&self) -> usize {
        let mut rest = &self.block[..];
        let mut cells = 0;
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(after) = after.get(length..).filter(|_| length >= REST_BYTES_MIN) else {
                break;
            };
            rest = after;
            cells += 1;
        }
        cells
    }

    /// The next cell, which must exist and have no tags.
    ///
    /// # Errors
    /// Bytes that are not a cell, or the end of the block.
    pub fn read(&mut self) -> Result<Cell, WireError> {
        let (cell, rest) = parts(self.take_cell()?)?;
        if rest.is_empty() {
            return Ok(cell);
        }
        let limit = cell.value.len() as u64;
        Err(WireError::TooLong {
            what: "value of a cell",
            limit,
            found: limit + rest.len() as u64,
        })
    }

    /// The next cell and its tags, of a block in the layout of `KeyValueCodecWithTags`.
    ///
    /// # Errors
    /// Bytes that are not a cell, or the end of the block.
    pub fn read_with_tags(&mut self) -> Result<(Cell, Bytes), WireError> {
        let (cell, mut rest) = parts(self.take_cell()?)?;
        if rest.is_empty() {
            return Ok((cell, rest));
        }
        let len = number(&mut rest, 2, "length of a cell's tags", Buf::get_u16)?;
        let tags = take(&mut rest, usize::from(len), "tags of a cell")?;
        if rest.is_empty() {
            return Ok((cell, tags));
        }
        let limit = u64::from(len);
        Err(WireError::TooLong {
            what: "tags of a cell",
            limit,
            found: limit + rest.len() as u64,
        })
    }

    /// Passes over the next cell.
    ///
    /// # Errors
    /// A length of no cell, or the end of the block.
    pub fn pass_over(&mut self) -> Result<(), WireError> {
        self.take_cell().map(drop)
    }

    /// The bytes of the next cell behind its length.
    fn take_cell(&mut self) -> Result<Bytes, WireError> {
        let taken = self.take_delimited();
        if taken.is_err() {
            self.block.clear();
        }
        taken
    }

    fn take_delimited(&mut self) -> Result<Bytes, WireError> {
        let total = length(&mut self.block, "length of a cell")?;
        if total < REST_BYTES_MIN {
            let (needed, found) = (REST_BYTES_MIN as u64, total as u64);
            return Err(WireError::Truncated {
                what: "cell",
                needed,
                found,
            });
        }
        take(&mut self.block, total, "cell")
    }
}

impl Iterator for CellReader {
    type Item = Result<Cell, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.block.is_empty()).then(|| self.read())
    }
}

/// The cell of these bytes, and those behind its value.
fn parts(mut cell: Bytes) -> Result<(Cell, Bytes), WireError> {
    let key_len = length(&mut cell, "length of a cell's key")?;
    let value_len = length(&mut cell, "length of a cell's value")?;
    let mut key = take(&mut cell, key_len, "key of a cell")?;
    let value = take(&mut cell, value_len, "value of a cell")?;
    let row_len = number(&mut key, 2, "length of a row", Buf::get_u16)?;
    let row = take(&mut key, usize::from(row_len), "row of a cell")?;
    let family_len = number(&mut key, 1, "length of a family", Buf::get_u8)?;
    let family = take(&mut key, usize::from(family_len), "family of a cell")?;
    let qualifier_len = key.len().checked_sub(9).ok_or(WireError::Truncated {
        what: "timestamp and type of a cell",
        needed: 9,
        found: key.len() as u64,
    })?;
    let qualifier = take(&mut key, qualifier_len, "qualifier of a cell")?;
    let timestamp = number(&mut key, 8, "timestamp of a cell", Buf::get_i64)?;
    let kind = CellType::from_code(number(&mut key, 1, "type of a cell", Buf::get_u8)?)?;
    let found = Cell {
        row,
        family,
        qualifier,
        timestamp,
        kind,
        value,
    };
    Ok((found, cell))
}

fn length(bytes: &mut Bytes, what: &'static str) -> Result<usize, WireError> {
    Ok(number(bytes, 4, what, Buf::get_u32)? as usize)
}

pub(crate) fn number<T>(
    bytes: &mut Bytes,
    len: usize,
    what: &'static str,
    get: fn(&mut Bytes) -> T,
) -> Result<T, WireError> {
    let (needed, found) = (len as u64, bytes.len() as u64);
    if found < needed {
        return Err(WireError::Truncated { what, needed, found });
    }
    Ok(get(bytes))
}

pub(crate) fn take(bytes: &mut Bytes, len: usize, what: &'static str) -> Result<Bytes, WireError> {
    let (needed, found) = (len as u64, bytes.len() as u64);
    if found < needed {
        return Err(WireError::Truncated { what, needed, found });
    }
    Ok(bytes.split_to(len))
}

#[cfg(test)]
mod tests;
