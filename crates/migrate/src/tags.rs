//! Tags of a cell, as HBase stores them behind its value.
//!
//! | bytes | field, big-endian |
//! |---|---|
//! | 2 | bytes that follow: 1 + value |
//! | 1 | type |
//! | n | value |

use bytes::{Buf, Bytes};

/// Type of the tag that holds the lifetime of a cell in ms, 8 bytes.
const TTL: u8 = 8;

/// Types of tags by which HBase finds large values. They have no meaning for a reader.
const OF_LARGE_VALUES: [u8; 2] = [5, 6];

/// The tags of a cell that matter here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tags {
    /// Milliseconds from the cell's timestamp after which it expires.
    pub lifetime_ms: Option<i64>,
    /// Type of a tag that the target does not have: labels, rules of access.
    pub foreign: Option<u8>,
}

/// Reads the tags of a cell; `None` if they are no tags.
pub fn read(mut bytes: Bytes) -> Option<Tags> {
    let mut tags = Tags::default();
    while !bytes.is_empty() {
        let len = usize::from(bytes.try_get_u16().ok()?);
        if len == 0 || len > bytes.len() {
            return None;
        }
        let mut tag = bytes.split_to(len);
        match tag.get_u8() {
            TTL => tags.lifetime_ms = Some(i64::from_be_bytes(tag.get(..)?.try_into().ok()?)),
            kind if OF_LARGE_VALUES.contains(&kind) => {}
            kind => tags.foreign = Some(kind),
        }
    }
    Some(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_found_among_tags() {
        let bytes = [&[0, 2, 5, 9, 0, 9, 8][..], &1000i64.to_be_bytes(), &[0, 1, 2]].concat();
        let read_tags = read(bytes.into()).unwrap();
        assert_eq!((read_tags.lifetime_ms, read_tags.foreign), (Some(1000), Some(2)));
        assert_eq!(read(Bytes::new()), Some(Tags::default()));
    }

    #[test]
    fn bytes_that_are_no_tags_are_refused() {
        for bad in [&[0][..], &[0, 0], &[0, 2, 8], &[0, 3, 8, 1, 1]] {
            assert_eq!(read(Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
    }
}
