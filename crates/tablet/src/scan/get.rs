//! Reads one row at once, when everything it takes is in memory.

use super::row::RowReader;
use super::{malformed, read_forward, wanted_groups};
use crate::error::Result;
use crate::merge::{Merge, Step};
use crate::state::ReadOptions;
use crate::tablet::Tablet;
use bytes::Bytes;
use std::sync::Arc;
use stele_filter::CompiledFilter;
use stele_types::{Cell, ReadCounts, key};

/// What a read of one row found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRead {
    /// The cells, in order; none when the row does not exist or the filter lets none through.
    pub cells: Vec<Cell>,
    /// What there was before filtering.
    pub seen: ReadCounts,
}

impl Tablet {
    /// The row as it is now, read on the calling thread; `None` when that would have to wait for the medium: a
    /// [`TabletScanner`](super::TabletScanner) over the one row gives the same answer then. A row of another tablet has no
    /// cells.
    pub fn get_row(&self, row: &[u8], filter: Option<&Arc<CompiledFilter>>) -> Result<Option<RowRead>> {
        let pushdown = filter.map(|f| f.pushdown());
        let is_outside = pushdown.is_some_and(|p| p.no_cells || !row.starts_with(&p.row_prefix));
        if is_outside || !self.range().contains(row) {
            return Ok(Some(RowRead::default()));
        }
        let schema = self.schema();
        // The state first, then the snapshot: everything acknowledged before is in that state.
        let state = self.state();
        let snapshot = self.visible();
        let prefix = key::row_prefix(row);
        let end = key::row_prefix_end(&prefix);
        let options = ReadOptions {
            fill_cache: true,
            readahead_bytes: 0,
        };
        let wanted = wanted_groups(&schema, filter.map(|f| &**f), false);
        let sources = state.sources(wanted, &prefix, Some(&end), Some(&prefix), options);
        if sources.is_empty() {
            return Ok(Some(RowRead::default()));
        }
        let mut merge = Merge::new(sources);
        merge.set_bound(&Bytes::from(end));
        if merge.seek(&prefix)? == Step::Pending {
            return Ok(None);
        }
        if !merge.key().starts_with(&prefix) {
            return Ok(Some(RowRead::default()));
        }
        let mut reader = RowReader::new(self.env().clone(), schema, filter.cloned(), false);
        reader.set_time(snapshot, self.wall_micros());
        if reader.begin(merge.key()).ok_or_else(|| malformed(self))?
            && read_forward(&mut merge, &mut reader, &mut 0).ok_or_else(|| malformed(self))?? == Step::Pending
        {
            return Ok(None);
        }
        reader.finish()?;
        let batch = reader.take_batch();
        Ok(Some(RowRead {
            seen: batch.seen,
            cells: batch.into_cells(),
        }))
    }
}
