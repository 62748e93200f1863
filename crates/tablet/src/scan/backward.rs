//! Rows in descending order.
//!
//! The merging iterator goes backward, and each row is resolved from its first entry, because tombstones come before the
//! cells they hide. Most rows are buffered: one source has all of the row and has decoded its entries on its way back.
//! Of other rows, the entries that the iterator passes are gathered first. A row of very many entries is not gathered:
//! the iterator seeks its first entry, the row is read forward like any other, and the iterator seeks back to the place
//! it came from.

use super::row::{Finish, RowReader};
use super::{At, Position, malformed};
use crate::error::Result;
use crate::merging::{MergingIterator, Step};
use crate::resolve::StoredValue;
use crate::tablet::Tablet;
use crate::values::ValueRef;
use bytes::Bytes;
use std::ops::Range;
use stele_sstable::BufferedValue;
use stele_types::CellKind;

/// Entries of a row that are gathered. With keys of the usual 50 bytes that is 400 KB, and seeking twice costs far less
/// than reading this many entries.
const ENTRIES_MAX: usize = 4096;
/// Bytes of their keys and values, also of those in value files. A row of more is read forward, where it can be given as
/// partial rows.
const BYTES_MAX: usize = 1 << 20;

/// Entries of one row, the last one first. The buffers are reused from row to row.
#[derive(Default)]
pub(super) struct Gathered {
    /// The keys, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes of the values, also of those in value files.
    value_bytes: usize,
}

struct Entry {
    /// Where the key is in `bytes`.
    key: Range<usize>,
    value: Bytes,
}

/// A value of a buffered row.
struct HeldValue<'a>(BufferedValue<'a>);

impl StoredValue for HeldValue<'_> {
    #[inline]
    fn into_bytes(self) -> Bytes {
        self.0.to_bytes()
    }

    #[inline]
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.0.as_slice())
    }
}

/// A value that was gathered.
struct GatheredValue(Bytes);

impl StoredValue for GatheredValue {
    #[inline]
    fn into_bytes(self) -> Bytes {
        self.0
    }

    #[inline]
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.0)
    }
}

impl Gathered {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.value_bytes = 0;
    }

    /// Adds the entry that `merge` is on.
    #[inline]
    fn push(&mut self, merge: &MergingIterator) {
        debug_assert!(
            self.entries
                .last()
                .is_none_or(|last| self.bytes.get(last.key.clone()) >= Some(merge.key())),
            "entries are gathered in descending order"
        );
        let start = self.bytes.len();
        self.bytes.extend_from_slice(merge.key());
        let key = start..self.bytes.len();
        let value = merge.value_slice();
        self.value_bytes += apart_bytes(merge.key(), value);
        self.value_bytes += value.len();
        self.entries.push(Entry {
            key,
            value: merge.value(),
        });
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() + self.value_bytes >= BYTES_MAX
    }

    /// The entries in key order, each once.
    fn drain_in_order(&mut self) -> impl Iterator<Item = (&[u8], GatheredValue)> {
        let bytes = self.bytes.as_slice();
        let entries = self.entries.drain(..).rev();
        entries.filter_map(move |Entry { key, value }| Some((bytes.get(key)?, GatheredValue(value))))
    }
}

/// Bytes of the value that an entry refers to, if it is in a value file.
#[inline]
fn apart_bytes(key: &[u8], value: &[u8]) -> usize {
    match key.last() {
        Some(&kind) if kind == CellKind::Reference as u8 => ValueRef::value_len_of(value),
        _ => 0,
    }
}

impl Position {
    /// Whether a buffered row has so large values in value files that it must be read as partial rows.
    fn is_large_buffered(&self, reader: &RowReader) -> bool {
        let entries = self.merge.buffered_row(|key| reader.holds(key));
        let bytes = entries.map(|entries| entries.map(|(key, value)| apart_bytes(key, value.as_slice())).sum());
        bytes.is_some_and(|bytes: usize| bytes > BYTES_MAX)
    }

    /// Begins the row whose last entry the merge is on, or leaves it behind when the filter wants nothing of it.
    pub(super) fn begin_row_backward(&mut self, reader: &mut RowReader, tablet: &Tablet) -> Result<()> {
        let wanted = reader.begin(self.merge.key(), tablet.env());
        let wanted = wanted.ok_or_else(|| malformed(tablet))?;
        let is_large = wanted && self.refers && self.is_large_buffered(reader);
        let buffered = self.merge.buffered_row(|key| reader.holds(key));
        if let Some(entries) = buffered.filter(|_| !is_large) {
            let buffered = entries.len();
            if wanted {
                for (key, value) in entries {
                    reader.take(key, HeldValue(value)).ok_or_else(|| malformed(tablet))?;
                    reader.check_size()?;
                }
                self.end_row(reader, tablet)?;
            }
            self.merge.leave(buffered)?;
            return Ok(());
        }
        if wanted {
            self.at = At::Gathering;
            self.gathered.clear();
            return self.gather_row(reader, tablet);
        }
        self.merge.seek_before(reader.row())?;
        Ok(())
    }

    /// The reader has all entries of its row.
    #[inline]
    fn end_row(&mut self, reader: &mut RowReader, tablet: &Tablet) -> Result<()> {
        self.at = match reader.finish(tablet.env())? {
            Finish::Row => At::Boundary,
            Finish::Values => At::Values,
            Finish::Piece => At::Cut,
        };
        Ok(())
    }

    /// Gathers the row; when that is complete, reads it.
    pub(super) fn gather_row(&mut self, reader: &mut RowReader, tablet: &Tablet) -> Result<()> {
        match gather(&mut self.merge, reader, &mut self.gathered)? {
            Step::Pending => return Ok(()),
            Step::Ready => {
                self.gathered.clear();
                self.at = At::Row;
                self.steps = 0;
                self.merge.seek(reader.row())?;
                return Ok(());
            }
            Step::End => {}
        }
        for (key, value) in self.gathered.drain_in_order() {
            reader.take(key, value).ok_or_else(|| malformed(tablet))?;
            reader.check_size()?;
        }
        self.end_row(reader, tablet)
    }
}

/// Gathers entries of the reader's row. `End` when it has all of them, `Ready` when they are too many, `Pending` when the
/// merge must load first.
fn gather(merge: &mut MergingIterator, reader: &RowReader, gathered: &mut Gathered) -> Result<Step> {
    let mut step = merge.status();
    loop {
        if step != Step::Ready {
            return Ok(step);
        }
        let key = merge.key();
        if !reader.holds(key) {
            return Ok(Step::End);
        }
        if gathered.is_full() {
            return Ok(Step::Ready);
        }
        gathered.push(merge);
        step = merge.retreat()?;
    }
}
