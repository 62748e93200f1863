//! Tags of a cell, as HBase has them behind its value.
//!
//! | bytes | field, big-endian |
//! |---|---|
//! | 2 | bytes that follow: 1 + value |
//! | 1 | type |
//! | n | value |

use crate::WireError;
use crate::cell::{number, take};
use bytes::{Buf, Bytes};

/// Type of the tag that holds the lifetime of a cell in ms, 8 bytes.
const TTL: u8 = 8;

/// Type of the tag of HBase's large values (MOB) that names the table of the value's file. It has no meaning for a reader. The
/// cell has one of type 5, too: its value is then the name of that file.
const TABLE_OF_LARGE_VALUE: u8 = 6;

/// The tags of a cell that have a meaning for its readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tags {
    /// Milliseconds from the cell's timestamp after which it expires.
    pub lifetime_ms: Option<i64>,
    /// Type of another tag: a label, a rule of access, a value that is elsewhere.
    pub foreign: Option<u8>,
}

/// Reads the tags of a cell.
///
/// # Errors
/// Bytes that are no tags.
pub fn read(mut bytes: Bytes) -> Result<Tags, WireError> {
    let mut tags = Tags::default();
    while !bytes.is_empty() {
        let len = number(&mut bytes, 2, "length of a tag", Buf::get_u16)?;
        let mut tag = take(&mut bytes, usize::from(len), "tag of a cell")?;
        match number(&mut tag, 1, "type of a tag", Buf::get_u8)? {
            TTL => tags.lifetime_ms = Some(lifetime(&tag)?),
            TABLE_OF_LARGE_VALUE => {}
            kind => tags.foreign = Some(kind),
        }
    }
    Ok(tags)
}

fn lifetime(value: &[u8]) -> Result<i64, WireError> {
    let found = || WireError::unexpected("lifetime of a cell", "8 bytes", format!("{} bytes", value.len()));
    value.try_into().map(i64::from_be_bytes).map_err(|_| found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_found_among_tags() {
        let bytes = [&[0, 2, 6, 9, 0, 9, 8][..], &1000i64.to_be_bytes(), &[0, 1, 2]].concat();
        let read_tags = read(bytes.into()).unwrap();
        assert_eq!((read_tags.lifetime_ms, read_tags.foreign), (Some(1000), Some(2)));
        assert_eq!(read(Bytes::new()), Ok(Tags::default()));
        let of_large_value = read(Bytes::from_static(&[0, 1, 5])).unwrap();
        assert_eq!(
            of_large_value.foreign,
            Some(5),
            "the value of the cell is the name of a file"
        );
    }

    #[test]
    fn bytes_that_are_no_tags_are_refused() {
        for bad in [&[0][..], &[0, 0], &[0, 2, 8], &[0, 3, 8, 1, 1]] {
            assert!(read(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
    }
}
