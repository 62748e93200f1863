//! Reads a segment that comes in pieces, as an archive has it.
//!
//! Pieces are consecutive bytes of one segment and end anywhere; the last one ends with a group. Every group and record is
//! checked.
//!
//! Total: any bytes give records or an error, never a panic. It holds one group and one piece at most.

use crate::format::{GROUP_HEADER_BYTES, GroupHeader, PAYLOAD_BYTES_MAX, Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use bytes::{Bytes, BytesMut};

/// Largest group: as a reader of the log has it.
const GROUP_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (64 << 20);

/// Bytes that do not check, at an offset in a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment:016x} at offset {offset}: {detail}")]
pub struct BadPiece {
    /// The segment.
    pub segment: u64,
    /// Where in it.
    pub offset: u64,
    /// Why.
    pub detail: &'static str,
}

/// The content of a segment, group by group.
#[derive(Debug)]
pub struct Pieces {
    stream: u32,
    segment: u64,
    /// The offset of the first byte of `buffer`.
    at: u64,
    buffer: BytesMut,
}

impl Pieces {
    /// Of a segment whose first piece begins at an offset: 0, or where a group begins.
    pub fn new(stream: u32, segment: u64, from: u64) -> Pieces {
        Pieces {
            stream,
            segment,
            at: from,
            buffer: BytesMut::new(),
        }
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The offset behind the last byte that was added.
    pub fn end(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Bytes that were added, and not taken yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The header, for a segment that begins at offset 0, once it has come. Must be taken before the first group.
    pub fn take_header(&mut self) -> Result<Option<SegmentHeader>, BadPiece> {
        if self.at > 0 || self.buffer.len() < SEGMENT_HEADER_BYTES {
            return Ok(None);
        }
        let header = SegmentHeader::decode(&self.buffer);
        debug_assert_eq!(self.at, 0, "a header is at the beginning of its segment");
        let header = header.filter(|header| (header.stream, header.number) == (self.stream, self.segment));
        let header = header.ok_or_else(|| self.bad("the header does not check"))?;
        self.skip(SEGMENT_HEADER_BYTES);
        Ok(Some(header))
    }

    /// The records of the next group; `None` until all its bytes have come.
    pub fn next_group(&mut self) -> Result<Option<Vec<Record>>, BadPiece> {
        if self.at == 0 || self.buffer.len() < GROUP_HEADER_BYTES {
            return Ok(None);
        }
        let header = GroupHeader::decode(self.segment, &self.buffer);
        let header = header.filter(|header| header.offset == self.at);
        let header = header.ok_or_else(|| self.bad("no group begins here"))?;
        let len = header.records_len as usize;
        if len > GROUP_BYTES_MAX {
            return Err(self.bad("a group is larger than any that is written"));
        }
        let all = GROUP_HEADER_BYTES + len;
        if self.buffer.len() < all {
            return Ok(None);
        }
        // A copy, so that the buffer does not grow for as long as a record is held.
        let mut bytes = Bytes::copy_from_slice(self.buffer.get(GROUP_HEADER_BYTES..all).unwrap_or_default());
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let record = Record::decode(&mut bytes).ok_or_else(|| self.bad("a record does not check"))?;
            records.push(record);
        }
        if records.len() != header.records as usize {
            return Err(self.bad("a group has another number of records than its header says"));
        }
        self.skip(all);
        debug_assert_eq!(
            self.at,
            header.offset + all as u64,
            "the next group begins where this one ends"
        );
        Ok(Some(records))
    }

    /// Fails if bytes of an unfinished group, or of the header, are left.
    pub fn finish(&self) -> Result<(), BadPiece> {
        match self.buffer.is_empty() {
            true => Ok(()),
            false => Err(self.bad("the last group is not complete")),
        }
    }

    fn skip(&mut self, len: usize) {
        assert!(len <= self.buffer.len(), "only bytes that have come are passed over");
        let _ = self.buffer.split_to(len);
        self.at += len as u64;
    }

    fn bad(&self, detail: &'static str) -> BadPiece {
        BadPiece {
            segment: self.segment,
            offset: self.at,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../testdata/v1.log");

    /// All records of the golden segment in pieces of some size, from a byte on.
    fn read(bytes: &[u8], from: usize, piece: usize) -> Result<usize, BadPiece> {
        let mut pieces = Pieces::new(2, 0x0300, from as u64);
        let mut records = 0;
        for piece in bytes[from..].chunks(piece) {
            pieces.push(piece);
            pieces.take_header()?;
            while let Some(group) = pieces.next_group()? {
                records += group.len();
            }
        }
        pieces.finish()?;
        assert_eq!(pieces.end(), bytes.len() as u64);
        Ok(records)
    }

    #[test]
    fn pieces_of_any_size_have_all_records_and_changed_ones_are_refused() {
        for piece in 1..GOLDEN.len() {
            assert_eq!(read(GOLDEN, 0, piece), Ok(3));
            assert_eq!(read(GOLDEN, SEGMENT_HEADER_BYTES, piece), Ok(3));
        }
        for changed in 0..GOLDEN.len() {
            let mut bytes = GOLDEN.to_vec();
            bytes[changed] ^= 1;
            assert!(read(&bytes, 0, 50).is_err(), "byte {changed}");
        }
        for end in SEGMENT_HEADER_BYTES + 1..GOLDEN.len() {
            let whole = read(&GOLDEN[..end], 0, 50);
            assert!(whole.is_err() || whole == Ok(2), "{end}: {whole:?}");
        }
    }
}
