//! Reads of many single rows: a request for a list of keys.
//!
//! The keys come in order. Each row is found as by a read of it alone, but from the place of the previous one. A cursor
//! in a file moves on to the next row in it without a lookup of the index block. When the two rows are neighbours, it
//! needs no lookup of the data block either. As long as nothing has to be waited for, rows are read one after the other
//! with the same buffers and as of one snapshot. A row that waits for storage gets a position, like the first row of any
//! other range. The next rows are probed meanwhile, and the blocks that they lack are fetched concurrently.
//!
//! Invariant: for at most [`ROWS_AHEAD`] later rows two blocks of each file that may have them are fetched, none of more than
//! [`AHEAD_BYTES_MAX`]. They go to the cache; an error of such a fetch is found when the row is read.

use super::backward::Gathered;
use super::row::Finish;
use super::{At, Forward, Position, TabletScanner, malformed, read_forward, same_column};
use crate::error::Result;
use crate::held::{ReadOptions, Times};
use crate::merging::{MergingIterator, Step};
use crate::readahead::AheadShare;
use crate::run::fences::RowLookup;
use stele_types::key;

/// Rows looked for ahead of one that waits: as many requests as keep a disk or an object store busy.
const ROWS_AHEAD: usize = 16;
/// Blocks fetched ahead are mostly some kilobytes; one with a large value in it is left to its turn.
const AHEAD_BYTES_MAX: usize = 256 << 10;

impl TabletScanner {
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

    /// Reads the next of the rows that the request names one by one, until the batch is complete; it returns whether it
    /// is. It also ends at a longer range, or at a row that waits, which has a position then.
    pub(super) fn read_listed(&mut self) -> Result<bool> {
        let is_listed = self.ranges.front().is_some_and(|range| range.as_single().is_some());
        if !is_listed || !self.reads_by_row() {
            return Ok(false);
        }
        let rows_max = self.spec.rows_limit.unwrap_or(u64::MAX);
        let options = self.row_options();
        let (state, snapshot) = self.move_on();
        let mut merge = self
            .row_before
            .take()
            .unwrap_or_else(|| MergingIterator::new(Vec::new()));
        let (mut prefix, mut spare) = (Vec::new(), Vec::new());
        while let Some(row) = self.ranges.front().and_then(|range| range.as_single()) {
            if self.reader.is_full(rows_max)
                && self
                    .reader
                    .look(rows_max, merge.passed_bytes(), self.tablet.env().now())
            {
                return Ok(true);
            }
            key::set_row_prefix(&mut prefix, row);
            let is_plain = key::is_plain_prefix(&prefix, row);
            let filter = self.spec.filter.as_deref();
            merge.next_row(&mut spare, |before, sources| {
                state.add_sources_of_row(filter, &RowLookup::new(&prefix), options, before, sources);
            });
            if let Some((at, steps)) = self.read_listed_row(&mut merge, &prefix, is_plain)? {
                let pauses = at == At::Row && merge.status() == Step::Ready;
                self.position = Some(Position {
                    refers: false,
                    upper: Some(key::row_prefix_end(&prefix)),
                    lower: prefix,
                    state,
                    snapshot,
                    merge,
                    _ahead: AheadShare::none(),
                    backward: false,
                    at,
                    gathered: Gathered::default(),
                    steps,
                    pauses,
                });
                return Ok(false);
            }
            self.rows_fetched = self.rows_fetched.saturating_sub(1);
            let range = self.ranges.pop_front();
            self.finished.extend(range);
        }
        Ok(false)
    }

    /// Reads the row with this encoded prefix from sources that are not positioned yet. Where it waits, if it does: at which
    /// place, and after how many steps.
    fn read_listed_row(
        &mut self,
        merge: &mut MergingIterator,
        prefix: &[u8],
        is_plain: bool,
    ) -> Result<Option<(At, u32)>> {
        let (reader, env) = (&mut self.reader, self.tablet.env());
        if merge.seek_rest(prefix)? == Step::Pending {
            return Ok(Some((At::Boundary, 0)));
        }
        if !merge.key().starts_with(prefix) {
            // It counts as read, so that a list of rows that are not there is returned in batches, too.
            reader.pass_row(prefix);
            return Ok(None);
        }
        let same_column = same_column::begin_row(merge, reader, prefix, is_plain)?;
        if same_column == Some(Step::End) {
            reader.finish_same_column(env)?;
            return Ok(None);
        }
        if same_column.is_none() && !reader.begin_row(prefix, is_plain, env) {
            return Ok(None);
        }
        let mut steps = 0;
        let at = match read_forward(merge, reader, &mut steps).ok_or_else(|| malformed(&self.tablet))?? {
            Forward::Pending | Forward::Paused => Some(At::Row),
            Forward::Piece => Some(At::Cut),
            Forward::End => match reader.finish(env)? {
                Finish::Row => None,
                Finish::Values => Some(At::Values),
                Finish::Piece => Some(At::Cut),
            },
        };
        Ok(at.map(|at| (at, steps)))
    }

    /// Completes the move of the merging iterator, which waits. Where it is in one of several single rows, the blocks
    /// that the next rows lack are fetched as well. They are not fetched for a row that another row's turn has fetched
    /// for: the cache has no capacity for it then.
    pub(super) async fn load_rows(&mut self) -> Result<()> {
        let is_row = self.ranges.front().is_some_and(|range| range.as_single().is_some());
        let probes_ahead = is_row && self.reads_by_row() && self.rows_fetched == 0;
        let mut ahead = if probes_ahead { self.rows_ahead() } else { Vec::new() };
        let position = self.position.as_mut().expect("a scan that waits has a position");
        self.blocks_read += (position.merge.missing().count() + ahead.len()) as u64;
        let others = futures::future::join_all(ahead.iter_mut().map(MergingIterator::load_one));
        let (own, _) = futures::future::join(position.merge.load(), others).await;
        own?;
        if probes_ahead {
            // Of rows that lacked the same block one has fetched it: mostly of the index, and now they lack their own.
            let mut ahead = self.rows_ahead();
            futures::future::join_all(ahead.iter_mut().map(MergingIterator::load_one)).await;
            self.rows_fetched = ROWS_AHEAD;
        }
        Ok(())
    }

    /// Of the rows behind the front one those that lack a block, each another one.
    fn rows_ahead(&self) -> Vec<MergingIterator> {
        let mut ahead = Vec::new();
        let position = self.position.as_ref().expect("a scan that waits has a position");
        let Position { state, merge, .. } = position;
        let mut fetched: Vec<_> = merge.missing().collect();
        for range in self.ranges.iter().skip(1).take(ROWS_AHEAD) {
            let Some(row) = range.as_single() else { break };
            let prefix = key::row_prefix(row);
            let (filter, mut sources) = (self.spec.filter.as_deref(), Vec::new());
            let (options, before) = (self.row_options(), &mut Vec::new());
            state.add_sources_of_row(filter, &RowLookup::new(&prefix), options, before, &mut sources);
            let mut merge = MergingIterator::new(sources);
            if !matches!(merge.seek_rest(&prefix), Ok(Step::Pending)) {
                continue;
            }
            let missing: Vec<_> = merge.missing().filter(|missing| !fetched.contains(missing)).collect();
            if !missing.is_empty() && missing.iter().all(|missing| missing.bytes <= AHEAD_BYTES_MAX) {
                fetched.extend(missing);
                ahead.push(merge);
            }
        }
        debug_assert!(ahead.len() <= ROWS_AHEAD, "a bounded number of rows is fetched ahead");
        ahead
    }
}
