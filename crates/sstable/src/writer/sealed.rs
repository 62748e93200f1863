//! Sealed blocks that are not yet written.
//!
//! Blocks are compressed straight into one buffer, which is handed to the file and reused after the write. No block is
//! copied on its way, and the buffer's bytes are cleared once and not for each block.

use super::FLUSH_BYTES;
use bytes::{Bytes, BytesMut};
use stele_storage::{AppendFile, Result};

/// A larger buffer is not reused: some blocks have a hundred megabytes.
const BUFFER_BYTES_MAX: usize = 4 * FLUSH_BYTES;

#[derive(Default)]
pub(super) struct Sealed {
    /// The first bytes: blocks that were too large to be copied, and the buffers filled before them.
    pieces: Vec<Bytes>,
    pieces_bytes: usize,
    /// The remaining bytes, up to `filled`; bytes after that are undefined.
    buffer: BytesMut,
    filled: usize,
}

impl Sealed {
    /// Bytes to be written.
    pub(super) fn len(&self) -> usize {
        self.pieces_bytes + self.filled
    }

    /// At least `len` bytes of space after the filled bytes, to be filled and then [kept](Self::keep). Their initial
    /// content is undefined.
    pub(super) fn space(&mut self, len: usize) -> &mut [u8] {
        let needed = self.filled + len;
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// Marks the first `len` bytes of the space as filled.
    pub(super) fn keep(&mut self, len: usize) {
        assert!(
            self.filled + len <= self.buffer.len(),
            "filled bytes lie within the buffer"
        );
        self.filled += len;
    }

    /// Adds bytes without copying them.
    pub(super) fn push(&mut self, bytes: Bytes) {
        let before = self.buffer.split_to(std::mem::take(&mut self.filled)).freeze();
        for piece in [before, bytes] {
            if !piece.is_empty() {
                self.pieces_bytes += piece.len();
                self.pieces.push(piece);
            }
        }
    }

    /// Hands everything to a file.
    pub(super) async fn write(&mut self, file: &mut dyn AppendFile) -> Result<()> {
        let total = self.len();
        let whole = std::mem::take(&mut self.buffer).freeze();
        let mut slices = std::mem::take(&mut self.pieces);
        self.pieces_bytes = 0;
        slices.push(whole.slice(..std::mem::take(&mut self.filled)));
        debug_assert_eq!(
            slices.iter().map(Bytes::len).sum::<usize>(),
            total,
            "all sealed bytes are handed over"
        );
        let written = file.append(&slices).await;
        drop(slices);
        // The storage may have retained its slice: then a new buffer is allocated.
        if whole.len() <= BUFFER_BYTES_MAX
            && let Ok(buffer) = whole.try_into_mut()
        {
            self.buffer = buffer;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use stele_storage::Storage;
    use stele_storage::memory::MemoryStorage;

    fn fill(sealed: &mut Sealed, bytes: &[u8]) {
        sealed.space(bytes.len() + 7)[..bytes.len()].copy_from_slice(bytes);
        sealed.keep(bytes.len());
    }

    #[test]
    fn everything_is_written_in_order_and_the_buffer_comes_back() {
        block_on(write_in_order());
    }

    async fn write_in_order() {
        let storage = MemoryStorage::new();
        let mut file = storage.create("f").await.unwrap();
        let mut sealed = Sealed::default();
        sealed.write(&mut *file).await.unwrap();
        fill(&mut sealed, b"one ");
        fill(&mut sealed, b"two ");
        assert_eq!(sealed.len(), 8);
        let at = sealed.buffer.as_ptr();
        sealed.write(&mut *file).await.unwrap();
        assert_eq!((sealed.len(), sealed.buffer.as_ptr()), (0, at));
        fill(&mut sealed, b"three ");
        sealed.push(Bytes::from_static(b"four "));
        sealed.push(Bytes::from_static(b"five "));
        fill(&mut sealed, b"six");
        assert_eq!(sealed.len(), 19);
        sealed.write(&mut *file).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(storage.read_all("f").await.unwrap(), "one two three four five six");
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        block_on(write_of_a_large_buffer());
    }

    async fn write_of_a_large_buffer() {
        let storage = MemoryStorage::new();
        let mut file = storage.create("f").await.unwrap();
        let mut sealed = Sealed::default();
        sealed.space(BUFFER_BYTES_MAX + 1);
        fill(&mut sealed, b"a");
        sealed.write(&mut *file).await.unwrap();
        assert!(sealed.buffer.is_empty());
        assert_eq!(file.len(), 1);
    }
}
