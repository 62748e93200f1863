//! Values of ZooKeeper's Jute encoding. Numbers are big-endian; strings, buffers and lists begin with their length as an
//! `i32`, which is -1 for one that is missing.

use crate::WireError;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Reads values from the front of a record.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Reads a record.
    pub fn new(record: Bytes) -> Self {
        Reader(record)
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn check(&self, what: &'static str, needed: usize) -> Result<(), WireError> {
        match self.0.len() < needed {
            true => Err(WireError::Truncated {
                what,
                needed: needed as u64,
                found: self.0.len() as u64,
            }),
            false => Ok(()),
        }
    }

    /// A 32-bit number.
    pub fn i32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.check(what, 4)?;
        Ok(self.0.get_i32())
    }

    /// A 64-bit number.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.check(what, 8)?;
        Ok(self.0.get_i64())
    }

    /// A byte that is 0 or not.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, WireError> {
        self.check(what, 1)?;
        Ok(self.0.get_u8() != 0)
    }

    /// A buffer; empty if it is missing.
    pub fn buffer(&mut self, what: &'static str) -> Result<Bytes, WireError> {
        let length = self.length(what)?;
        self.check(what, length)?;
        Ok(self.0.split_to(length))
    }

    /// A string; empty if it is missing.
    pub fn text(&mut self, what: &'static str) -> Result<String, WireError> {
        let bytes = self.buffer(what)?;
        String::from_utf8(bytes.into()).map_err(|_| WireError::unexpected(what, "text in UTF-8", "other bytes"))
    }

    /// The number of the strings in a list; they are passed over. Each takes 4 bytes at least, so the list is bounded by
    /// the record.
    pub fn skip_texts(&mut self, what: &'static str) -> Result<usize, WireError> {
        let count = self.length(what)?;
        for _ in 0..count {
            self.buffer(what)?;
        }
        Ok(count)
    }

    fn length(&mut self, what: &'static str) -> Result<usize, WireError> {
        match self.i32(what)? {
            -1 => Ok(0),
            length => usize::try_from(length)
                .map_err(|_| WireError::unexpected(what, "a length of -1 or more", length.to_string())),
        }
    }
}

/// Appends a string.
pub fn put_text(out: &mut BytesMut, text: &str) {
    put_buffer(out, text.as_bytes());
}

/// Appends a buffer. One above 2 GiB does not exist: a server's nodes are small.
pub fn put_buffer(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.put_slice(bytes);
}

/// Appends a list of strings.
pub fn put_texts(out: &mut BytesMut, texts: &[String]) {
    out.put_i32(i32::try_from(texts.len()).unwrap_or(i32::MAX));
    for text in texts {
        put_text(out, text);
    }
}
