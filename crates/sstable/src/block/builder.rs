//! Builds one data block at a time.

use super::Trailer;
use crate::limits::RESTART_INTERVAL;
use stele_types::varint::{put_u64, zigzag};

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
        let out = &mut self.content;
        put_u64(out, shared as u64);
        put_u64(out, suffix.len() as u64);
        put_u64(out, value.len() as u64);
        out.push(trailer.kind as u8);
        put_u64(out, zigzag(trailer.timestamp.0.wrapping_sub(self.timestamp)));
        put_u64(out, zigzag(trailer.seq.wrapping_sub(self.seq_base) as i64));
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
