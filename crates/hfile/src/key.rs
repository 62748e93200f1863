//! The key of a cell, as it is in blocks and in the file info.
//!
//! | bytes | field, big-endian |
//! |---|---|
//! | 2, n | row |
//! | 1, n | family |
//! | n | qualifier: the rest |
//! | 8 | timestamp |
//! | 1 | type |

use crate::error::{Decoded, Malformed};
use crate::input::Input;
use std::ops::Range;
use stele_wire::cell::{CellType, FAMILY_BYTES_MAX, ROW_BYTES_MAX};

/// Bytes of timestamp and type.
pub const TIME_AND_TYPE_BYTES: usize = 9;

/// Where the parts of a key are within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyParts {
    pub row: Range<usize>,
    pub family: Range<usize>,
    pub qualifier: Range<usize>,
    pub timestamp: i64,
    pub kind: CellType,
}

impl KeyParts {
    pub fn parse(key: &[u8]) -> Decoded<KeyParts> {
        let mut input = Input::new(key);
        let row_len = usize::from(input.u16()?);
        let row = input.position()..input.position() + row_len;
        input.take(row_len)?;
        let family_len = usize::from(input.u8()?);
        let family = input.position()..input.position() + family_len;
        input.take(family_len)?;
        if row_len > ROW_BYTES_MAX || family_len > FAMILY_BYTES_MAX {
            return Malformed::new("a row or a family with a negative length");
        }
        let Some(qualifier_len) = input.rest().len().checked_sub(TIME_AND_TYPE_BYTES) else {
            return Malformed::new("a key without timestamp and type");
        };
        let qualifier = input.position()..input.position() + qualifier_len;
        input.take(qualifier_len)?;
        let timestamp = input.u64()? as i64;
        let code = input.u8()?;
        match CellType::from_code(code) {
            Ok(kind) => Ok(KeyParts {
                row,
                family,
                qualifier,
                timestamp,
                kind,
            }),
            Err(_) => Malformed::new(format!("a cell of type {code}")),
        }
    }
}

/// The row of a key whose type may be of no cell, as in an index or for the last key.
pub fn row_of(key: &[u8]) -> Decoded<&[u8]> {
    let mut input = Input::new(key);
    let len = usize::from(input.u16()?);
    input.take(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_key() {
        let key = [&[0, 2][..], b"ro", &[1], b"f", b"qua", &7i64.to_be_bytes(), &[4]].concat();
        let parts = KeyParts::parse(&key).unwrap();
        assert_eq!(&key[parts.row.clone()], b"ro");
        assert_eq!(&key[parts.family.clone()], b"f");
        assert_eq!(&key[parts.qualifier.clone()], b"qua");
        assert_eq!((parts.timestamp, parts.kind), (7, CellType::Put));
        assert_eq!(row_of(&key), Ok(&b"ro"[..]));
        for len in 0..key.len() {
            // A shorter qualifier is a key as well, should the last byte be a type.
            let _ = KeyParts::parse(&key[..len]);
        }
        assert!(KeyParts::parse(&key[..10]).is_err());
        assert!(KeyParts::parse(&[0xff, 0xff]).is_err());
    }
}
