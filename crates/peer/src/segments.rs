//! Encoded bytes: small parts are copied together, large values are shared.

use bytes::{BufMut, Bytes, BytesMut};

/// Values of this size and more are shared: a copy takes longer than one more buffer in a gathered write.
const SHARED_BYTES_MIN: usize = 32 << 10;

/// The body of a frame in parts.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    closed: Vec<Bytes>,
    open: BytesMut,
    /// Of both.
    len: usize,
    shared: usize,
}

impl Segments {
    pub fn with_capacity(bytes: usize) -> Self {
        Segments {
            open: BytesMut::with_capacity(bytes),
            ..Segments::default()
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that were copied.
    pub fn copied(&self) -> usize {
        self.len - self.shared
    }

    pub fn u8(&mut self, value: u8) {
        self.open.put_u8(value);
        self.len += 1;
    }

    pub fn u16(&mut self, value: u16) {
        self.slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.slice(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.slice(&value.to_le_bytes());
    }

    /// A length or number. The longest frame bounds them far below 4 Gi; a longer one makes the frame too long.
    pub fn size(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    /// Copies bytes.
    pub fn slice(&mut self, bytes: &[u8]) {
        self.open.put_slice(bytes);
        self.len += bytes.len();
    }

    /// Copies bytes behind their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.slice(bytes);
    }

    /// Adds bytes, large ones without a copy.
    pub fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.slice(bytes);
        }
        if !self.open.is_empty() {
            self.closed.push(self.open.split().freeze());
        }
        self.closed.push(bytes.clone());
        self.len += bytes.len();
        self.shared += bytes.len();
    }

    /// Adds everything of another body.
    pub fn append(&mut self, other: Segments) {
        let (len, shared) = (other.len, other.shared);
        if other.closed.is_empty() {
            return self.slice(&other.open);
        }
        if !self.open.is_empty() {
            self.closed.push(self.open.split().freeze());
        }
        self.closed.extend(other.closed);
        self.open = other.open;
        self.len += len;
        self.shared += shared;
    }

    /// The parts, none of them empty.
    pub fn into_parts(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.closed.push(self.open.freeze());
        }
        self.closed
    }

    /// One piece, for tests and small bodies.
    pub fn into_bytes(self) -> Bytes {
        match self.closed.is_empty() {
            true => self.open.freeze(),
            false => self.into_parts().concat().into(),
        }
    }
}
