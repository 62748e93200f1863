//! Reads fields from the front of received bytes. Byte strings are slices of them.

use crate::error::ProtocolError;
use bytes::Bytes;

/// A position in one part of the format.
pub(crate) struct Cursor {
    what: &'static str,
    bytes: Bytes,
    at: usize,
}

/// Result of a decoder.
pub(crate) type Decoded<T> = Result<T, ProtocolError>;

impl Cursor {
    /// The beginning of a part, which has this name in errors.
    pub fn new(what: &'static str, bytes: Bytes) -> Self {
        Cursor { what, bytes, at: 0 }
    }

    /// An error at this place.
    pub fn malformed(&self, reason: &'static str) -> ProtocolError {
        ProtocolError::Malformed {
            what: self.what,
            at: self.at,
            reason,
        }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The offset of the next field.
    pub fn at(&self) -> usize {
        self.at
    }

    /// All bytes of the part.
    pub fn whole(&self) -> &Bytes {
        &self.bytes
    }

    /// Fails unless everything was read.
    pub fn finish(&self) -> Decoded<()> {
        match self.left() {
            0 => Ok(()),
            _ => Err(self.malformed("there are bytes behind the end")),
        }
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let field = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let field = *field.ok_or_else(|| self.malformed("it is too short"))?;
        self.at += N;
        Ok(field)
    }

    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Decoded<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Decoded<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A byte that is one of the flags in `known`.
    pub fn flags(&mut self, known: u8) -> Decoded<u8> {
        let flags = self.u8()?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(self.malformed("it has unknown flags")),
        }
    }

    /// A number of elements that take at least `each` bytes. Memory for them is then bounded by the bytes received.
    pub fn count(&mut self, each: usize) -> Decoded<usize> {
        let count = self.u32()? as usize;
        match count.checked_mul(each) {
            Some(bytes) if bytes <= self.left() => Ok(count),
            _ => Err(self.malformed("it has more elements than bytes")),
        }
    }

    /// The next bytes, as a slice of those received.
    pub fn slice(&mut self, len: usize) -> Decoded<Bytes> {
        if len > self.left() {
            return Err(self.malformed("it is too short"));
        }
        let slice = self.bytes.slice(self.at..self.at + len);
        self.at += len;
        Ok(slice)
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Decoded<Bytes> {
        let len = self.u32()? as usize;
        self.slice(len)
    }

    /// A text behind its length, which has this many bytes.
    pub fn text(&mut self, len: usize) -> Decoded<String> {
        let bytes = self.slice(len)?;
        let text = std::str::from_utf8(&bytes).map(str::to_owned);
        text.map_err(|_| self.malformed("a text is not UTF-8"))
    }
}
