//! Bytes read ahead of a cursor, and the size of the next read.

use crate::frame::Handle;
use bytes::Bytes;

/// The window after the first sequential step: ten default blocks.
const WINDOW_START_BYTES: usize = 64 << 10;

/// A contiguous range of the file.
#[derive(Debug)]
pub(super) struct Readahead {
    limit: usize,
    window: usize,
    offset: u64,
    bytes: Bytes,
}

impl Readahead {
    pub(super) fn new(limit: usize) -> Self {
        Readahead {
            limit,
            window: 0,
            offset: 0,
            bytes: Bytes::new(),
        }
    }

    /// Reduces the limit to `bytes`, if it is larger.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.limit = self.limit.min(bytes);
        self.window = self.window.min(self.limit);
        debug_assert!(self.window <= self.limit, "read-ahead stays within its limit");
    }

    /// Largest number of bytes to read now; 0 for no read-ahead.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The cursor went from a block to its neighbour.
    pub(super) fn sequential(&mut self) {
        let next = if self.window == 0 {
            WINDOW_START_BYTES
        } else {
            self.window.saturating_mul(2)
        };
        self.window = next.min(self.limit);
        debug_assert!(self.window <= self.limit, "read-ahead stays within its limit");
    }

    /// The cursor went to a block that is no neighbour.
    pub(super) fn not_sequential(&mut self) {
        self.window = 0;
    }

    /// Replaces the bytes read ahead.
    pub(super) fn fill(&mut self, offset: u64, bytes: Bytes) {
        self.offset = offset;
        self.bytes = bytes;
    }

    /// Drops the bytes read ahead, and returns their number.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.bytes).len()
    }

    /// The framed block, if all of it was read ahead.
    pub(super) fn take(&mut self, handle: Handle) -> Option<Bytes> {
        let framed = handle.within(self.offset, &self.bytes)?;
        if framed.len() == self.bytes.len() {
            self.bytes = Bytes::new();
        }
        Some(framed)
    }
}
