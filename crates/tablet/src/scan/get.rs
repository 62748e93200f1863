//! Reads one row at once, when everything it takes is in memory.
//!
//! The buffers of a read are kept for the next one of the same thread. They hold nothing of the tablet between reads but
//! the schema, and a read with a filter, which is part of the reader, has its own.

use super::row::RowReader;
use super::{malformed, read_forward, wanted_groups};
use crate::error::Result;
use crate::merge::{Merge, Step};
use crate::state::{ReadOptions, Times};
use crate::tablet::Tablet;
use std::cell::Cell;
use std::sync::Arc;
use stele_filter::CompiledFilter;
use stele_types::{RowBatch, TableSchema, key};

/// What a read works with.
struct Scratch {
    schema: Arc<TableSchema>,
    reader: RowReader,
    merge: Merge,
    /// The encoded row, and the smallest key behind it.
    row: Vec<u8>,
    end: Vec<u8>,
}

impl Scratch {
    fn new(schema: Arc<TableSchema>, filter: Option<Arc<CompiledFilter>>) -> Self {
        Scratch {
            reader: RowReader::new(schema.clone(), filter, false),
            schema,
            merge: Merge::new(Vec::new()),
            row: Vec::new(),
            end: Vec::new(),
        }
    }
}

thread_local! {
    /// Of this thread's last read without a filter.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Tablet {
    /// The row as it is now, read on the calling thread: a batch of the row, or of nothing when it does not exist or the
    /// filter lets nothing through. `None` when that would have to wait for the medium: a
    /// [`TabletScanner`](super::TabletScanner) over the one row gives the same answer then. A row of another tablet has no
    /// cells.
    pub fn get_row(&self, row: &[u8], filter: Option<&Arc<CompiledFilter>>) -> Result<Option<RowBatch>> {
        let pushdown = filter.map(|f| f.pushdown());
        let is_outside = pushdown.is_some_and(|p| p.no_cells || !row.starts_with(&p.row_prefix));
        if is_outside || !self.range().contains(row) {
            return Ok(Some(RowBatch::default()));
        }
        let schema = self.schema();
        let kept = if filter.is_none() { SCRATCH.take() } else { None };
        let mut scratch = match kept.filter(|scratch| Arc::ptr_eq(&scratch.schema, &schema)) {
            Some(scratch) => scratch,
            None => Box::new(Scratch::new(schema, filter.cloned())),
        };
        let batch = self.read_into(&mut scratch, row, filter.map(|f| &**f));
        // A read that was broken off has left cells behind.
        drop(scratch.reader.take_batch());
        scratch.merge.replace(|_| ());
        scratch.reader.abandon();
        if filter.is_none() {
            SCRATCH.set(Some(scratch));
        }
        batch
    }

    fn read_into(
        &self,
        scratch: &mut Scratch,
        row: &[u8],
        filter: Option<&CompiledFilter>,
    ) -> Result<Option<RowBatch>> {
        // The state first, then the snapshot: everything acknowledged before is in that state.
        let state = self.state();
        let snapshot = self.visible();
        let Scratch {
            schema,
            reader,
            merge,
            row: prefix,
            end,
        } = scratch;
        key::set_row_prefix(prefix, row);
        key::set_row_prefix_end(end, prefix);
        let wanted = wanted_groups(schema, filter, false);
        let options = ReadOptions {
            fill_cache: true,
            readahead_bytes: 0,
            single_row: true,
            times: Times::of(filter, schema),
        };
        merge.replace(|sources| state.add_sources(wanted, prefix, Some(end), Some(prefix), options, sources));
        if merge.seek(prefix)? == Step::Pending {
            return Ok(None);
        }
        if !merge.key().starts_with(prefix) {
            return Ok(Some(RowBatch::default()));
        }
        reader.set_time(snapshot, self.wall_micros());
        if reader.begin(merge.key(), self.env()).ok_or_else(|| malformed(self))? {
            reader.reserve(1);
            if read_forward(merge, reader, &mut 0).ok_or_else(|| malformed(self))?? == Step::Pending {
                return Ok(None);
            }
        }
        reader.finish(self.env())?;
        Ok(Some(reader.take_batch()))
    }
}
