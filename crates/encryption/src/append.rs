//! An encrypted file being written.

use crate::cipher::NONCE_BYTES;
use crate::header::{FileHeader, HEADER_BYTES};
use crate::keyring::RingKey;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::{AppendFile, Result};

/// Bytes that are encrypted together: an append of any size takes this much memory more.
const PIECE_BYTES: usize = 1 << 20;

/// A storage that refuses to append this much without waiting refuses everything.
const SMALL_BYTES: usize = 4 << 10;

/// Encrypts appended bytes.
pub(crate) struct EncryptedAppend {
    below: Box<dyn AppendFile>,
    key: Arc<RingKey>,
    header: FileHeader,
    has_header: bool,
    /// Bytes of content.
    len: u64,
    /// Whether the storage below may append without waiting.
    tries: bool,
}

impl EncryptedAppend {
    pub(crate) fn new(below: Box<dyn AppendFile>, key: Arc<RingKey>, nonce: [u8; NONCE_BYTES]) -> Self {
        EncryptedAppend {
            below,
            header: FileHeader::new(key.name, &key.content, nonce),
            key,
            has_header: false,
            len: 0,
            tries: true,
        }
    }

    /// An empty piece with space for bytes of content, after the header if that is missing.
    fn begin(&self, capacity: usize) -> Vec<u8> {
        match self.has_header {
            true => Vec::with_capacity(capacity),
            false => {
                let mut piece = Vec::with_capacity(capacity + HEADER_BYTES);
                piece.extend_from_slice(&self.header.encode());
                piece
            }
        }
    }

    fn header_bytes(&self) -> usize {
        if self.has_header { 0 } else { HEADER_BYTES }
    }

    /// Encrypts the content in a piece, which goes to the end of the file.
    fn seal(&self, piece: &mut [u8]) {
        let content = piece.get_mut(self.header_bytes()..).unwrap_or_default();
        self.key.content.apply(&self.header.nonce, self.len, content);
    }

    /// Counts an appended piece.
    fn appended(&mut self, piece_bytes: usize) {
        assert!(
            piece_bytes > self.header_bytes(),
            "a header is written together with content"
        );
        self.len += (piece_bytes - self.header_bytes()) as u64;
        self.has_header = true;
    }

    async fn append_piece(&mut self, mut piece: Vec<u8>) -> Result<()> {
        self.seal(&mut piece);
        let bytes = piece.len();
        self.below.append(&[Bytes::from(piece)]).await?;
        self.appended(bytes);
        Ok(())
    }
}

#[async_trait]
impl AppendFile for EncryptedAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        let mut left: usize = slices.iter().map(Bytes::len).sum();
        if left == 0 {
            return self.below.append(&[]).await;
        }
        let mut slices = slices.iter().map(|slice| &slice[..]);
        let mut slice: &[u8] = &[];
        while left > 0 {
            let wanted = left.min(PIECE_BYTES);
            let mut piece = self.begin(wanted);
            let end = piece.len() + wanted;
            while piece.len() < end {
                if slice.is_empty() {
                    slice = slices.next().unwrap_or_default();
                    continue;
                }
                let (now, later) = slice.split_at(slice.len().min(end - piece.len()));
                piece.extend_from_slice(now);
                slice = later;
            }
            self.append_piece(piece).await?;
            left -= wanted;
        }
        Ok(())
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<Result<()>> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total == 0 {
            return self.below.try_append(&[]);
        }
        if !self.tries || total > 2 * PIECE_BYTES {
            return None;
        }
        let mut piece = self.begin(total);
        slices.iter().for_each(|slice| piece.extend_from_slice(slice));
        self.seal(&mut piece);
        let done = self.below.try_append(&[&piece]);
        match &done {
            Some(Ok(())) => self.appended(piece.len()),
            Some(Err(_)) => {}
            None => self.tries = total > SMALL_BYTES,
        }
        done
    }

    async fn sync(&mut self) -> Result<()> {
        self.below.sync().await
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reading_cost(&self) -> u64 {
        self.below.reading_cost()
    }
}
