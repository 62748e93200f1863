//! Reading: the objects of a file, listed when it is opened, appear as one.

use super::parts::{Extent, Object, Parts, part_key};
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::sync::Arc;
use stele_storage::{ReadFile, Result, StorageError};

/// Objects that one read fetches concurrently: enough to hide the latency of small ones, few enough not to be throttled.
const CONCURRENT: usize = 32;

/// Listings before a missing part counts as lost. Parts are joined and deleted while a listing is made. In the next one
/// they are joined already, unless others were joined since.
const LISTINGS_MAX: usize = 4;

/// Opens a file in its present state.
pub(crate) async fn open(shared: &Arc<Shared>, path: &str) -> Result<GrowingRead> {
    let extents = list(shared, path).await?;
    Ok(GrowingRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        len: extents.len(),
        extents: Mutex::new(Arc::new(extents)),
    })
}

/// A file as a listing shows it; `None` if the listing is not of one moment.
pub(crate) fn of_listing(shared: &Arc<Shared>, path: &str, parts: &Parts) -> Option<GrowingRead> {
    if parts.hole().is_some() || parts.is_only_begun() {
        return None;
    }
    let extents = Extents::new(parts.extents());
    assert_eq!(extents.len(), parts.len(), "the objects of a file hold its bytes");
    Some(GrowingRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        len: extents.len(),
        extents: Mutex::new(Arc::new(extents)),
    })
}

/// The objects of a file without a hole.
async fn list(shared: &Shared, path: &str) -> Result<Extents> {
    let mut missing = 0;
    for _ in 0..LISTINGS_MAX {
        let parts = Parts::list(&shared.store, path).await?;
        if !super::is_file(shared, path, &parts).await? {
            return Err(StorageError::NotFound { path: path.to_owned() });
        }
        let hole = parts.hole();
        if hole.is_some() || parts.is_only_begun() {
            // A deletion under way has the same effect: a gap, or, where the listing is not of one instant, the first part
            // alone. The first part is deleted first.
            let first = shared.store.head(&part_key(path, 0)).await;
            first.map_err(|error| error.of_whole(path))?;
        }
        match hole {
            None => return Ok(Extents::new(parts.extents())),
            Some(number) => missing = number,
        }
    }
    Err(StorageError::Lost {
        path: part_key(path, missing),
        detail: "the part is missing, though later ones are there",
    })
}

/// Objects, and the end of each in the file.
struct Extents(Vec<(u64, Object)>);

/// An object, an offset in it, and a number of bytes from there.
type Piece = (Object, u64, usize);

impl Extents {
    fn new(extents: Vec<Extent>) -> Extents {
        let ends = extents.into_iter().scan(0, |end, Extent { object, len }| {
            *end += len;
            Some((*end, object))
        });
        let extents = Extents(ends.collect());
        debug_assert!(
            extents.0.is_sorted_by(|a, b| a.0 < b.0),
            "every object holds a byte, and ends behind the one before"
        );
        extents
    }

    fn len(&self) -> u64 {
        self.0.last().map_or(0, |(end, _)| *end)
    }

    /// The place of the object that contains an offset.
    fn containing(&self, offset: u64) -> usize {
        self.0.partition_point(|(end, _)| *end <= offset)
    }

    /// The pieces of objects that make up a range of the file.
    fn pieces(&self, offset: u64, end: u64) -> Vec<Piece> {
        let first = self.containing(offset);
        let before = first.checked_sub(1).and_then(|before| self.0.get(before));
        let mut start = before.map_or(0, |(end, _)| *end);
        let mut pieces = Vec::new();
        for (object_end, object) in self.0.iter().skip(first) {
            let (from, to) = (offset.max(start), end.min(*object_end));
            if from >= to {
                break;
            }
            pieces.push((*object, from - start, (to - from) as usize));
            start = *object_end;
        }
        debug_assert_eq!(
            pieces.iter().map(|(_, _, len)| *len as u64).sum::<u64>(),
            end.min(self.len()).saturating_sub(offset),
            "the pieces cover the range"
        );
        pieces
    }
}

pub(crate) struct GrowingRead {
    shared: Arc<Shared>,
    path: String,
    len: u64,
    /// Of the last listing.
    extents: Mutex<Arc<Extents>>,
}

impl GrowingRead {
    /// Reads the pieces; `None` when an object of them does not exist.
    async fn fetch(&self, pieces: Vec<Piece>) -> Result<Option<Vec<Bytes>>> {
        let fetches = pieces.into_iter().map(|(object, from, len)| async move {
            match self.shared.store.get_range(&object.key(&self.path), from, len).await {
                Err(StorageError::NotFound { .. }) => Ok(None),
                other => other.map(Some),
            }
        });
        futures::stream::iter(fetches.collect::<Vec<_>>())
            .buffered(CONCURRENT)
            .try_collect::<Vec<Option<Bytes>>>()
            .await
            .map(|pieces| pieces.into_iter().collect())
    }

    /// Lists the objects again: some were joined, or the file was deleted, or a part of it was lost.
    async fn list_again(&self) -> Result<()> {
        let extents = list(&self.shared, &self.path).await?;
        if extents.len() < self.len {
            return Err(StorageError::Lost {
                path: self.path.clone(),
                detail: "the last parts are missing, though the file is there",
            });
        }
        *self.extents.lock() = Arc::new(extents);
        Ok(())
    }
}

#[async_trait]
impl ReadFile for GrowingRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        stele_storage::check_range(&self.path, offset, len, self.len)?;
        let end = offset + len as u64;
        for _ in 0..LISTINGS_MAX {
            let extents = Arc::clone(&self.extents.lock());
            let Some(mut pieces) = self.fetch(extents.pieces(offset, end)).await? else {
                self.list_again().await?;
                continue;
            };
            if pieces.len() == 1 {
                return Ok(pieces.pop().unwrap_or_default());
            }
            let mut content = BytesMut::with_capacity(len);
            pieces.iter().for_each(|piece| content.extend_from_slice(piece));
            debug_assert_eq!(content.len(), len, "the ranges of all objects add up to the read");
            return Ok(content.freeze());
        }
        Err(StorageError::Lost {
            path: self.path.clone(),
            detail: "listed parts are missing, though the file is there",
        })
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        let checked = stele_storage::check_range(&self.path, offset, len, self.len);
        checked.err().map(Err)
    }

    fn request_end(&self, offset: u64) -> Option<u64> {
        let extents = self.extents.lock();
        let containing = extents.0.get(extents.containing(offset));
        containing.map(|(end, _)| *end)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn reading_cost(&self) -> u64 {
        let objects = self.extents.lock().0.len() as u64;
        self.len.max(objects * self.shared.part_cost())
    }

    fn path(&self) -> &str {
        &self.path
    }
}
