//! Rows in descending order.
//!
//! The merge goes backward. What it passes of one row is gathered and then resolved from its first entry, because markers
//! come before what they hide. A row of very many entries is not gathered: the merge seeks its first entry, the row is
//! read forward like any other, and the merge seeks back to where it came from.

use super::output::Output;
use super::row::RowReader;
use super::{At, Position, malformed};
use crate::error::Result;
use crate::merge::{Merge, Step};
use crate::tablet::Tablet;
use bytes::Bytes;

/// Entries of a row that are gathered. With keys of the usual 50 bytes that is 400 KB, and seeking twice is by far not
/// what reading so many costs.
const ENTRIES_MAX: usize = 4096;
/// Bytes of their keys; values are slices of blocks.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Entries of one row, the last one first. The buffers are reused from row to row.
#[derive(Default)]
pub(super) struct Gathered {
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// Where each key ends, with its value.
    entries: Vec<(usize, Bytes)>,
}

impl Gathered {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    fn push(&mut self, key: &[u8], value: Bytes) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), value));
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.keys.len() >= KEY_BYTES_MAX
    }

    /// The entries in key order, each once.
    fn drain_in_order(&mut self) -> impl Iterator<Item = (&[u8], Bytes)> {
        let keys = &self.keys;
        let mut entries = self.entries.drain(..).rev().peekable();
        std::iter::from_fn(move || {
            let (end, value) = entries.next()?;
            let start = entries.peek().map_or(0, |(end, _)| *end);
            Some((keys.get(start..end)?, value))
        })
    }
}

impl Position {
    /// Begins the row whose last entry the merge is on, or leaves it behind when the filter wants nothing of it.
    pub(super) fn begin_row_backward<O: Output>(&mut self, reader: &mut RowReader<O>, tablet: &Tablet) -> Result<()> {
        if reader
            .begin(self.merge.key(), tablet.env())
            .ok_or_else(|| malformed(tablet))?
        {
            self.at = At::Gathering;
            self.gathered.clear();
            return self.gather_row(reader, tablet);
        }
        self.merge.seek_before(reader.row())?;
        Ok(())
    }

    /// Gathers the row; when that is complete, reads it.
    pub(super) fn gather_row<O: Output>(&mut self, reader: &mut RowReader<O>, tablet: &Tablet) -> Result<()> {
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
            reader.take(key, || value).ok_or_else(|| malformed(tablet))?;
            reader.check_size()?;
        }
        self.at = match reader.finish(tablet.env())? {
            true => At::Boundary,
            false => At::Values,
        };
        Ok(())
    }
}

/// Gathers entries of the reader's row. `End` when it has all of them, `Ready` when they are too many, `Pending` when the
/// merge must load first.
fn gather<O: Output>(merge: &mut Merge, reader: &RowReader<O>, gathered: &mut Gathered) -> Result<Step> {
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
        gathered.push(key, merge.value());
        step = merge.retreat()?;
    }
}
