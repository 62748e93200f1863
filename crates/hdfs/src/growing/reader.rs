//! Reads of a growing file, as far as it is finished.

use super::Writers;
use super::pieces::{Pieces, piece_key};
use super::sealing::try_seal_own;
use crate::located::Located;
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use std::sync::{Arc, Weak};
use stele_storage::{ReadFile, Result, StorageError, check_range};

/// Pieces that one read fetches concurrently.
const PIECES_CONCURRENT: usize = 8;

/// Opens a file in its present state.
pub(crate) async fn open(writers: &Writers, path: &str) -> Result<GrowingRead> {
    let shared = &writers.shared;
    let writer = writers.by_path.lock().get(path).and_then(Weak::upgrade);
    let end = match writer {
        None => None,
        Some(writer) => match writer.cut().await {
            Ok(end) => Some(end),
            // Nothing is written to it any more, and its appender may not notice for long: the archive reads an idle log, too.
            Err(error) => {
                tracing::debug!(path, %error, "a file is sealed for its reader");
                try_seal_own(shared, path).await?;
                None
            }
        },
    };
    let pieces = Pieces::list(&shared.cluster, path).await?;
    if !pieces.is_file() {
        return Err(StorageError::NotFound { path: path.to_owned() });
    }
    let mut located = Vec::new();
    let mut len = 0;
    for (number, bytes) in pieces.readable(path, end)? {
        if bytes > 0 {
            let piece = Located::open(&shared.cluster, &piece_key(path, number), bytes).await;
            len += bytes;
            located.push((len, piece.map_err(|error| error.of_whole(path))?));
        }
    }
    assert!(
        located.iter().is_sorted_by_key(|(end, _)| *end),
        "pieces are found by the end of each in the file"
    );
    Ok(GrowingRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        pieces: located,
    })
}

pub(crate) struct GrowingRead {
    shared: Arc<Shared>,
    path: String,
    /// Each piece that has bytes, and its end in the file.
    pieces: Vec<(u64, Located)>,
}

#[async_trait]
impl ReadFile for GrowingRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        check_range(&self.path, offset, len, self.len())?;
        let end = offset + len as u64;
        let wanted = self.pieces.iter().filter_map(|(piece_end, piece)| {
            let piece_start = piece_end - piece.len();
            let (from, to) = (offset.max(piece_start), end.min(*piece_end));
            (from < to).then_some((
                piece,
                from.saturating_sub(piece_start),
                to.saturating_sub(from) as usize,
            ))
        });
        let reads: Vec<_> = wanted.map(|(piece, from, len)| piece.read(from, len)).collect();
        let mut parts: Vec<Bytes> = futures::stream::iter(reads)
            .buffered(PIECES_CONCURRENT)
            .try_collect()
            .await
            .map_err(|error| error.of_whole(&self.path))?;
        if parts.len() == 1 {
            return Ok(parts.pop().unwrap_or_default());
        }
        let mut content = BytesMut::with_capacity(len);
        parts.iter().for_each(|part| content.extend_from_slice(part));
        assert_eq!(content.len(), len, "the ranges of all pieces add up to the read");
        Ok(content.freeze())
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        check_range(&self.path, offset, len, self.len()).err().map(Err)
    }

    fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |(end, _)| *end)
    }

    fn path(&self) -> &str {
        &self.path
    }
}
