//! Reads of many single rows: a request for a list of keys.
//!
//! The keys come in order. Each row is found as by a read of it alone, but from where the one before was found: a cursor that
//! stands in a file goes on to the next row in it, which costs no look for the index block, and none for the data block when
//! the two are neighbours. When a row has to wait for the medium, those that come next are looked for too, and what they lack
//! is fetched at the same time.
//!
//! Invariant: for at most [`ROWS_AHEAD`] rows whose turn has not come two blocks of each file that may have them are fetched,
//! none of more than [`AHEAD_BYTES_MAX`]. They go to the cache; what goes wrong with them is found when it is their turn.

use super::output::Output;
use super::{Position, TabletScanner};
use crate::error::Result;
use crate::merge::{Merge, Step};
use crate::run::fences::Sought;
use crate::state::{ReadOptions, State, Times};
use stele_types::key;

/// Rows looked for ahead of one that waits: as many requests as keep a disk or an object store busy.
const ROWS_AHEAD: usize = 16;
/// Blocks fetched ahead are mostly some kilobytes; one with a large value in it is left to its turn.
const AHEAD_BYTES_MAX: usize = 256 << 10;

impl<O: Output> TabletScanner<O> {
    /// Whether rows of the request are read one by one where it names them one by one.
    pub(super) fn reads_by_row(&self) -> bool {
        !self.spec.reversed && !self.spec.raw
    }

    /// How rows by themselves are read.
    fn row_options(&self) -> ReadOptions {
        ReadOptions {
            fill_cache: true,
            readahead_bytes: 0,
            single_row: true,
            times: Times::of(self.spec.filter.as_deref(), &self.schema),
        }
    }

    /// A view of the row with this encoded prefix; not positioned but in memtables.
    fn row_sources(&self, state: &State, row: &[u8]) -> Merge {
        let mut sources = Vec::new();
        let filter = self.spec.filter.as_deref();
        state.add_sources_of_row(filter, &Sought::new(row), self.row_options(), &mut sources);
        Merge::new(sources)
    }

    /// The same, at the row's first entry; `state` is read before the snapshot.
    pub(super) fn seek_row(&mut self, state: &State, row: &[u8]) -> Result<Merge> {
        let mut merge = self.row_sources(state, row);
        if let Some(before) = self.row_before.take() {
            merge.take_cursors(before);
        }
        merge.seek_rest(row)?;
        Ok(merge)
    }

    /// Completes the move of the merge, which waits; where it is in one of several single rows, what those behind it lack is
    /// fetched as well. Not for a row that somebody else's turn has fetched for: the cache has no room for it then.
    pub(super) async fn load_rows(&mut self) -> Result<()> {
        let is_row = self.ranges.front().is_some_and(|range| range.as_single().is_some());
        let looks_ahead = is_row && self.reads_by_row() && self.rows_fetched == 0;
        let mut ahead = if looks_ahead { self.rows_ahead() } else { Vec::new() };
        let Some(position) = &mut self.position else {
            return Ok(());
        };
        let others = futures::future::join_all(ahead.iter_mut().map(Merge::load_one));
        let (own, _) = futures::future::join(position.merge.load(), others).await;
        own?;
        if looks_ahead {
            // Of rows that lacked the same block one has fetched it: mostly of the index, and now they lack their own.
            let mut ahead = self.rows_ahead();
            futures::future::join_all(ahead.iter_mut().map(Merge::load_one)).await;
            self.rows_fetched = ROWS_AHEAD;
        }
        Ok(())
    }

    /// Of the rows behind the front one those that lack a block, each another one.
    fn rows_ahead(&self) -> Vec<Merge> {
        let mut ahead = Vec::new();
        let Some(Position { state, merge, .. }) = &self.position else {
            return ahead;
        };
        let mut fetched: Vec<_> = merge.missing().collect();
        for range in self.ranges.iter().skip(1).take(ROWS_AHEAD) {
            let Some(row) = range.as_single() else { break };
            let prefix = key::row_prefix(row);
            let mut merge = self.row_sources(state, &prefix);
            if !matches!(merge.seek_rest(&prefix), Ok(Step::Pending)) {
                continue;
            }
            let missing: Vec<_> = merge.missing().filter(|missing| !fetched.contains(missing)).collect();
            if !missing.is_empty() && missing.iter().all(|missing| missing.bytes <= AHEAD_BYTES_MAX) {
                fetched.extend(missing);
                ahead.push(merge);
            }
        }
        ahead
    }
}
