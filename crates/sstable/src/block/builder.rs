//! Builds one data block at a time.

use super::Trailer;
use crate::limits::RESTART_INTERVAL;
use stele_types::varint::zigzag;

/// Five varints and the kind.
const HEAD_BYTES_MAX: usize = 5 * 10 + 1;

/// What stands before an entry's key, put together where no growing has to be thought of.
struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            bytes: [0; HEAD_BYTES_MAX],
            len: 0,
        }
    }
}

impl Head {
    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// As `stele_types::varint` does.
    #[inline]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Collects entries; the buffers are handed out by `finish` and made anew.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    content: Vec<u8>,
    restarts: Vec<u32>,
    entries_in_interval: usize,
    timestamp: i64,
    seq_base: u64,
}

impl BlockBuilder {
    /// Adds an entry. `common` is the length of the prefix that `body` has in common with the previous entry's body
    /// (anything for the first).
    #[inline]
    pub fn add(&mut self, common: usize, body: &[u8], trailer: Trailer, value: &[u8]) {
        let mut shared = common;
        if self.content.is_empty() {
            self.seq_base = trailer.seq;
        }
        if self.content.is_empty() || self.entries_in_interval == RESTART_INTERVAL {
            self.restarts.push(self.content.len() as u32);
            self.entries_in_interval = 0;
            self.timestamp = 0;
            shared = 0;
        }
        let suffix = body.get(shared..).unwrap_or(&[]);
        let mut head = Head::default();
        head.put(shared as u64);
        head.put(suffix.len() as u64);
        head.put(value.len() as u64);
        head.push(trailer.kind as u8);
        head.put(zigzag(trailer.timestamp.0.wrapping_sub(self.timestamp)));
        head.put(zigzag(trailer.seq.wrapping_sub(self.seq_base) as i64));
        let out = &mut self.content;
        out.reserve(HEAD_BYTES_MAX + suffix.len() + value.len());
        out.extend_from_slice(head.bytes());
        out.extend_from_slice(suffix);
        out.extend_from_slice(value);
        self.timestamp = trailer.timestamp.0;
        self.entries_in_interval += 1;
    }

    /// Bytes the block would have if finished now.
    pub fn len(&self) -> usize {
        self.content.len() + 4 * self.restarts.len() + super::TAIL_BYTES
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The block's content; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        // The next block will have about the same size, and sealing appends the frame's tail.
        let next = Vec::with_capacity(self.len().min(1 << 20) + 256);
        let mut out = std::mem::replace(&mut self.content, next);
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        out.extend_from_slice(&self.seq_base.to_le_bytes());
        out.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.restarts.clear();
        self.entries_in_interval = 0;
        out
    }
}
