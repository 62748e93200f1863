//! Fast path for one-cell rows in the same column and from the same source.
//! Most rows of scans over small rows are such rows.
//!
//! Merging, resolving and cutting cost several times as much as copying such a row, and have the same result for each of them.
//! The fast path checks only the parts that can differ: row, timestamp, sequence, kind. Any other row is left to the general
//! path, with the position where that expects it.

use super::row::RowReader;
use super::{At, Position};
use crate::error::Result;
use crate::merging::{MergingIterator, Step};
use crate::resolve::StoredValue;
use crate::tablet::Tablet;
use bytes::Bytes;
use stele_sstable::Cursor;
use stele_types::key;

/// The value a cursor is on.
struct CurrentValue<'a>(&'a Cursor);

impl StoredValue for CurrentValue<'_> {
    #[inline]
    fn into_bytes(self) -> Bytes {
        self.0.value_bytes()
    }

    #[inline]
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.0.value())
    }
}

impl Position {
    /// Reads rows that are like the one read last, until one is not or the batch is full. False when none was read.
    pub(super) fn read_same_column(&mut self, reader: &mut RowReader, tablet: &Tablet, rows_max: u64) -> Result<bool> {
        if self.backward {
            self.read_same_column_backward(reader, tablet, rows_max)
        } else {
            self.read_same_column_forward(reader, tablet, rows_max)
        }
    }

    fn read_same_column_forward(&mut self, reader: &mut RowReader, tablet: &Tablet, rows_max: u64) -> Result<bool> {
        let upper = self.upper.as_deref();
        let Some(cursor) = self.merge.lone_cursor() else {
            return Ok(false);
        };
        let mut any = false;
        while !reader.is_full(rows_max) {
            let key = cursor.key();
            let Some((row_end, is_plain)) = key::measure_row_prefix(key) else {
                break;
            };
            if upper.is_some_and(|upper| key >= upper)
                || !reader.begin_same_column(key, row_end, is_plain, CurrentValue(cursor))
            {
                break;
            }
            any = true;
            let step = cursor.advance()?;
            if step != Step::Ready {
                self.at = At::Row;
                self.steps = 0;
                self.merge.lone_moved(step)?;
                break;
            }
            if reader.holds(cursor.key()) {
                self.at = At::Row;
                self.steps = 0;
                break;
            }
            reader.finish_same_column(tablet.env())?;
        }
        Ok(any)
    }

    fn read_same_column_backward(&mut self, reader: &mut RowReader, tablet: &Tablet, rows_max: u64) -> Result<bool> {
        let Some(cursor) = self.merge.lone_cursor() else {
            return Ok(false);
        };
        let mut any = false;
        while !reader.is_full(rows_max) {
            let key = cursor.key();
            let Some((row_end, is_plain)) = key::measure_row_prefix(key) else {
                break;
            };
            if key < &self.lower[..] || !is_alone(cursor, key.get(..row_end).unwrap_or(key)) {
                break;
            }
            if !reader.begin_same_column(key, row_end, is_plain, CurrentValue(cursor)) {
                break;
            }
            any = true;
            reader.finish_same_column(tablet.env())?;
            cursor.leave(1);
        }
        Ok(any)
    }
}

/// Begins the row with this encoded prefix, on whose first entry the merging iterator is, if it is like the one read
/// last, and goes to the next entry. [`Step::End`] says that the row is at its end; any other step says that the
/// iterator is on more of it or must load first. `None` when the row is different, and nothing has been done.
#[inline]
pub(super) fn begin_row(
    merge: &mut MergingIterator,
    reader: &mut RowReader,
    prefix: &[u8],
    is_plain: bool,
) -> Result<Option<Step>> {
    let Some(cursor) = merge.lone_cursor().filter(|_| reader.is_same_column()) else {
        return Ok(None);
    };
    if !reader.begin_same_column(cursor.key(), prefix.len(), is_plain, CurrentValue(cursor)) {
        return Ok(None);
    }
    let mut step = cursor.advance()?;
    if step != Step::Ready {
        step = merge.lone_moved(step)?;
    }
    Ok(Some(match step {
        Step::Ready if !reader.holds(merge.key()) => Step::End,
        step => step,
    }))
}

/// Whether the row of the cursor's key, this encoded one, is known to have no other before it.
#[inline]
fn is_alone(cursor: &Cursor, row: &[u8]) -> bool {
    // Most neighbours differ in the last byte before the terminator.
    let last = row.len().saturating_sub(3);
    let before = cursor.buffered_before();
    before.is_some_and(|key| key.get(last) != row.get(last) || !key.starts_with(row))
}
