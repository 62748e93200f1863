//! Sizes and split points of key ranges, from the index alone where possible.
//!
//! A separator is a prefix of a real key. The row it begins with is therefore between the neighbouring blocks' rows and
//! is a valid boundary, though that row may not exist. Shorter boundaries also make shorter catalog keys.

use crate::block::BlockCursor;
use crate::cursor::{Cursor, CursorOptions, Step};
use crate::error::Result;
use crate::frame::Handle;
use crate::index::IndexBlock;
use crate::reader::Sstable;
use std::sync::Arc;
use stele_types::key::{row_prefix, row_prefix_len};

/// Position of a data block: the number of its index block and its number there.
type Place = (usize, usize);

impl Sstable {
    /// Bytes on disk of the data blocks from the block of `lower` (inclusive) to the block of `upper` (exclusive). The
    /// sizes of adjacent ranges add up to the size of their union. Precise to one block at each end.
    pub async fn approximate_bytes(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<u64> {
        let start = self.offset_of(lower, 0).await?;
        let end = self.offset_of(upper, self.properties().data_bytes).await?;
        Ok(end.saturating_sub(start))
    }

    /// Row prefixes within the bounds, at least `every_bytes` of data apart, each with the bytes of data before it in
    /// this file.
    pub async fn row_samples(
        &self,
        every_bytes: u64,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut next = self.offset_of(lower, 0).await?.saturating_add(every_bytes.max(1));
        let bounds = self.sample_bounds(lower, upper);
        let first = self.find_place(lower.unwrap_or(&[])).await?.0;
        for top_at in first..self.top().len() {
            let index = self.index_block(top_at).await?;
            for at in 0..index.len() {
                let (row, offset) = self.boundary(top_at, &index, at)?;
                if bounds.is_after(&row) {
                    return Ok(samples);
                }
                let is_new = samples.last().is_none_or(|(last, _)| *last < row);
                if offset >= next && is_new && bounds.contains(&row) {
                    next = offset.saturating_add(every_bytes.max(1));
                    samples.push((row, offset));
                }
            }
        }
        Ok(samples)
    }

    /// An encoded row prefix that divides the data within the bounds into two parts of about equal size, both with at
    /// least one row of this file. `None` when there are fewer than two rows.
    pub async fn split_row(self: &Arc<Self>, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let Some(bounds) = self.rows_within(lower, upper).await? else {
            return Ok(None);
        };
        let start = self.offset_of(lower, 0).await?;
        let end = self.offset_of(upper, self.properties().data_bytes).await?;
        let middle = start + end.saturating_sub(start) / 2;
        let (top_at, at) = self.place_of_offset(middle).await?;
        if let Some(row) = self.first_boundary_from(top_at, at, &bounds).await? {
            return Ok(Some(row));
        }
        if let Some(row) = self.last_boundary_before(top_at, at, &bounds).await? {
            return Ok(Some(row));
        }
        // No block begins with a usable row, so a few blocks hold all rows: search the block with the last row.
        let place = self.find_place(&bounds.upto).await?;
        let row = self.middle_row_of_block(place, &bounds).await?;
        debug_assert!(
            row.as_ref().is_none_or(|row| bounds.contains(row)),
            "a split leaves rows on both sides"
        );
        Ok(Some(row.unwrap_or(bounds.upto)))
    }

    /// The rows after the first one within the bounds; `None` when there is none.
    async fn rows_within(self: &Arc<Self>, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Option<Bounds>> {
        let mut cursor = Cursor::new(Arc::clone(self), CursorOptions::default());
        cursor.seek(lower.unwrap_or(&[]))?;
        let first = row_of(&mut cursor).await?;
        match upper {
            Some(upper) => cursor.seek_before(upper)?,
            None => cursor.seek_last()?,
        };
        let last = row_of(&mut cursor).await?;
        Ok(match (first, last) {
            (Some(above), Some(upto)) if above < upto => Some(Bounds {
                above,
                upto,
                below: None,
            }),
            _ => None,
        })
    }

    async fn first_boundary_from(&self, top_at: usize, at: usize, bounds: &Bounds) -> Result<Option<Vec<u8>>> {
        let mut from = at;
        for top_at in top_at..self.top().len() {
            let index = self.index_block(top_at).await?;
            for at in from..index.len() {
                let (row, _) = self.boundary(top_at, &index, at)?;
                if bounds.contains(&row) {
                    return Ok(Some(row));
                }
                if bounds.is_after(&row) {
                    return Ok(None);
                }
            }
            from = 0;
        }
        Ok(None)
    }

    async fn last_boundary_before(&self, top_at: usize, at: usize, bounds: &Bounds) -> Result<Option<Vec<u8>>> {
        let mut before = at;
        for top_at in (0..=top_at).rev() {
            let index = self.index_block(top_at).await?;
            for at in (0..before.min(index.len())).rev() {
                let (row, _) = self.boundary(top_at, &index, at)?;
                if bounds.contains(&row) {
                    return Ok(Some(row));
                }
                if row <= bounds.above {
                    return Ok(None);
                }
            }
            before = usize::MAX;
        }
        Ok(None)
    }

    /// The middle one of the usable rows that begin in one block.
    async fn middle_row_of_block(&self, (top_at, at): Place, bounds: &Bounds) -> Result<Option<Vec<u8>>> {
        let index = self.index_block(top_at).await?;
        let handle = self.child(top_at, &index, at)?;
        let block = self.block(handle, true).await?;
        let mut cells = BlockCursor::default();
        cells.set_block(block);
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut more = cells.seek_first();
        while more.map_err(|e| self.corruption_at(handle, &e))? {
            let row = row_prefix_len(cells.key()).and_then(|len| cells.key().get(..len));
            if let Some(row) = row
                && bounds.contains(row)
                && rows.last().is_none_or(|last| last != row)
            {
                rows.push(row.to_vec());
            }
            more = cells.advance();
        }
        let middle = rows.len() / 2;
        Ok(rows.into_iter().nth(middle))
    }

    /// The row at which data may be split before the `at`-th block of an index block, and the block's offset.
    fn boundary(&self, top_at: usize, index: &IndexBlock, at: usize) -> Result<(Vec<u8>, u64)> {
        let child = self.child(top_at, index, at)?;
        let separator = index.separator(at).unwrap_or(&[]);
        let row = match row_prefix_len(separator) {
            Some(len) => separator.get(..len).unwrap_or(separator).to_vec(),
            None => terminated(separator),
        };
        Ok((row, child.offset))
    }

    async fn offset_of(&self, key: Option<&[u8]>, default: u64) -> Result<u64> {
        let Some(key) = key else { return Ok(default) };
        if key > &self.properties().largest_key[..] {
            return Ok(self.properties().data_bytes);
        }
        let (top_at, at) = self.find_place(key).await?;
        let index = self.index_block(top_at).await?;
        Ok(self.child(top_at, &index, at)?.offset)
    }

    async fn find_place(&self, key: &[u8]) -> Result<Place> {
        let top_at = self.top().find(key, true);
        let top_at = top_at.map_err(|e| self.corruption_at(Handle::default(), &e))?;
        let index = self.index_block(top_at).await?;
        let at = index.find(key, true);
        Ok((top_at, at.map_err(|e| self.corruption_at(Handle::default(), &e))?))
    }

    /// The first data block at or after an offset, or the last one.
    async fn place_of_offset(&self, offset: u64) -> Result<Place> {
        let last_top = self.top().len() - 1;
        // The top index does not store offsets of data: search by the first child of each index block.
        let (mut low, mut high) = (0, self.top().len());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let index = self.index_block(middle).await?;
            if self.child(middle, &index, 0)?.offset <= offset {
                low = middle
            } else {
                high = middle
            }
        }
        let index = self.index_block(low).await?;
        for at in 0..index.len() {
            if self.child(low, &index, at)?.offset >= offset {
                return Ok((low, at));
            }
        }
        Ok(if low < last_top {
            (low + 1, 0)
        } else {
            (low, index.len() - 1)
        })
    }

    pub(crate) async fn index_block(&self, top_at: usize) -> Result<IndexBlock> {
        let handle = self.child(top_at, self.top(), top_at)?;
        self.block(handle, true).await
    }

    /// The `at`-th child; `top_at` is for the error.
    pub(crate) fn child(&self, top_at: usize, index: &IndexBlock, at: usize) -> Result<Handle> {
        index.child(at).ok_or_else(|| {
            let parent = self.top().child(top_at).unwrap_or_default();
            self.corruption_at(parent, &index.malformed(at))
        })
    }

    fn sample_bounds(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Bounds {
        let row = |key: &[u8]| {
            row_prefix_len(key)
                .and_then(|len| key.get(..len))
                .unwrap_or(key)
                .to_vec()
        };
        let smallest = row(&self.properties().smallest_key);
        let last = row(&self.properties().largest_key);
        Bounds {
            above: lower.map_or(smallest.clone(), |lower| smallest.max(row(lower))),
            upto: last,
            below: upper.map(<[u8]>::to_vec),
        }
    }
}

/// Rows that leave data on both sides of a split: above the first row, not above the last one, below the upper bound.
struct Bounds {
    above: Vec<u8>,
    upto: Vec<u8>,
    below: Option<Vec<u8>>,
}

impl Bounds {
    fn contains(&self, row: &[u8]) -> bool {
        row > self.above.as_slice() && !self.is_after(row)
    }

    fn is_after(&self, row: &[u8]) -> bool {
        row > self.upto.as_slice() || self.below.as_deref().is_some_and(|below| row >= below)
    }
}

/// The row prefix at a cursor, after pending loads.
async fn row_of(cursor: &mut Cursor) -> Result<Option<Vec<u8>>> {
    if cursor.load().await? != Step::Ready {
        return Ok(None);
    }
    let key = cursor.key();
    Ok(row_prefix_len(key).and_then(|len| key.get(..len)).map(<[u8]>::to_vec))
}

/// Completes a separator that ends within the row to a row: escapes stay, and the terminator is added. A written
/// separator never ends with half an escape: its last byte is greater than the byte it replaced, hence not 0. Bytes
/// from disk may end so, and are then cut there.
fn terminated(separator: &[u8]) -> Vec<u8> {
    let mut row = separator.strip_suffix(&[0]).unwrap_or(separator).to_vec();
    row.extend_from_slice(&row_prefix(&[]));
    row
}
