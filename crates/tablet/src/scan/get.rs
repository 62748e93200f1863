//! Reads one row without waiting, when all blocks it needs are in memory.
//!
//! The checks that can rule the row out come first, cheapest first: the tablet's range, memtables, the fences of each run of
//! files (`run::fences`), bloom filters, which are probed by one hash of the row. Only the remaining sources take a reference to
//! anything shared. The clock is read where a rule needs it.
//!
//! A thread retains the buffers of a read for its next one under the same filter; filters are shared between requests
//! (`Filter::compile_shared`). Between reads the buffers hold nothing of the tablet but the schema.

use super::row::{Finish, RowReader};
use super::{Forward, malformed, read_forward};
use crate::error::{Result, TabletError};
use crate::held::{ReadOptions, Times};
use crate::merging::{MergingIterator, Step};
use crate::run::fences::RowLookup;
use crate::tablet::Tablet;
use std::cell::Cell;
use std::sync::Arc;
use stele_env::work;
use stele_filter::CompiledFilter;
use stele_types::{GcRule, RowBatch, SeqNo, TableSchema, key};

/// The buffers of a read.
struct Scratch {
    schema: Arc<TableSchema>,
    /// Part of the reader.
    filter: Option<Arc<CompiledFilter>>,
    /// Whether some rule of the schema depends on the clock, or a read has met a cell that expires by itself.
    has_ages: bool,
    reader: RowReader,
    merge: MergingIterator,
    /// The encoded row.
    row: Vec<u8>,
}

impl Scratch {
    fn new(schema: Arc<TableSchema>, filter: Option<Arc<CompiledFilter>>) -> Self {
        let mut rules = schema.families.values().filter_map(|f| f.gc_rule.as_ref());
        Scratch {
            has_ages: rules.any(GcRule::has_age),
            reader: nonblocking_reader(schema.clone(), filter.clone()),
            filter,
            schema,
            merge: MergingIterator::new(Vec::new()),
            row: Vec::new(),
        }
    }

    /// Whether it is for reads of the tablet with this filter.
    fn fits(&self, tablet: &Tablet, filter: Option<&Arc<CompiledFilter>>) -> bool {
        let same_filter = match (&self.filter, filter) {
            (None, None) => true,
            // The one here is alive, so no other can have its address.
            (Some(mine), Some(other)) => Arc::ptr_eq(mine, other),
            _ => false,
        };
        same_filter && tablet.has_schema(&self.schema)
    }

    /// Drops the blocks, memtables and files of a read, and the cells of one that was broken off.
    fn clean(&mut self, is_whole: bool) {
        self.merge.replace(|_| ());
        if !is_whole {
            drop(self.reader.take_batch());
            self.reader.abandon();
        }
    }
}

/// The most bytes of a row that is read on the calling thread. They are in no account until the response is made of
/// them, a moment later on the same thread.
const CONCURRENT_BYTES: usize = 1 << 20;

fn nonblocking_reader(schema: Arc<TableSchema>, filter: Option<Arc<CompiledFilter>>) -> RowReader {
    let mut reader = RowReader::new(schema, filter, false);
    reader.set_reservation(CONCURRENT_BYTES);
    reader
}

thread_local! {
    /// Of this thread's last read without a filter, and of the last one with one.
    static PLAIN: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    static FILTERED: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The result of a read on the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointRead {
    /// The row's batch: of the row, or of nothing when it does not exist or the filter lets nothing through.
    Batch(RowBatch),
    /// Nothing of the row is stored: key ranges and row filters say so, and it took no block.
    NotFound,
    /// It would have to wait for storage, or for memory; or the filter samples rows and must not be evaluated twice,
    /// should waiting be necessary.
    WouldBlock,
}

impl Tablet {
    /// The row as it is now, read on the calling thread: a batch of the row, or an empty one when it does not exist or
    /// the filter lets nothing through. `None` when that would have to wait for storage, or the filter samples rows: a
    /// [`TabletScanner`](super::TabletScanner) over the one row gives the same result then. A row of another tablet has
    /// no cells.
    pub fn get_row(&self, row: &[u8], filter: Option<&Arc<CompiledFilter>>) -> Result<Option<RowBatch>> {
        Ok(match self.get(row, filter)? {
            PointRead::Batch(batch) => Some(batch),
            PointRead::NotFound => Some(RowBatch::default()),
            PointRead::WouldBlock => None,
        })
    }

    /// The result of [`Tablet::get_row`], and how it was obtained. Takes no memory for a row of which nothing is stored,
    /// and no reference to anything shared but the sources that may have the row.
    pub fn get(&self, row: &[u8], filter: Option<&Arc<CompiledFilter>>) -> Result<PointRead> {
        let pushdown = filter.map(|f| f.pushdown());
        let begins_else = |prefix: &[u8]| !prefix.is_empty() && !row.starts_with(prefix);
        let is_outside = pushdown.is_some_and(|p| p.no_cells || begins_else(&p.row_prefix));
        if is_outside || !self.range().contains(row) {
            return Ok(PointRead::NotFound);
        }
        if filter.is_some_and(|f| f.is_sampling()) {
            // A read that waits is made by a scan, which would sample again a row that was sampled already.
            return Ok(PointRead::WouldBlock);
        }
        let place = if filter.is_none() { &PLAIN } else { &FILTERED };
        let mut scratch = match place.take().filter(|scratch| scratch.fits(self, filter)) {
            Some(scratch) => scratch,
            None => Box::new(Scratch::new(self.schema(), filter.cloned())),
        };
        let mut got = self.read_into(&mut scratch, row, filter.map(|f| &**f));
        if !scratch.has_ages && scratch.reader.sink.meets_lifetimes() {
            // The clock was not read, because no rule needs it. From here on it is.
            scratch.clean(false);
            scratch.has_ages = true;
            got = self.read_into(&mut scratch, row, filter.map(|f| &**f));
        }
        if matches!(got, Err(TabletError::NeedsMemory { .. })) {
            // A scan can wait for memory.
            got = Ok(PointRead::WouldBlock);
        }
        if !matches!(got, Ok(PointRead::NotFound)) {
            scratch.clean(matches!(got, Ok(PointRead::Batch(_))));
        }
        place.set(Some(scratch));
        got
    }

    fn read_into(&self, scratch: &mut Scratch, row: &[u8], filter: Option<&CompiledFilter>) -> Result<PointRead> {
        let Scratch {
            schema,
            filter: _,
            has_ages,
            reader,
            merge,
            row: prefix,
        } = scratch;
        key::set_row_prefix(prefix, row);
        let row_lookup = RowLookup::new(prefix);
        let options = ReadOptions {
            fill_cache: true,
            readahead_bytes: 0,
            single_row: true,
            times: Times::of(filter, schema),
        };
        let mut snapshot = SeqNo::ZERO;
        // The sources hold the parts of the state that they need.
        let mut any = false;
        merge.replace(|sources| {
            self.with_state(|state| {
                // The state first, then the snapshot: everything acknowledged before is in that state.
                snapshot = self.visible();
                work::note(|work| state.note_sources(work));
                state.add_sources_of_row(filter, &row_lookup, options, &mut Vec::new(), sources);
            });
            any = !sources.is_empty();
        });
        if !any {
            return Ok(PointRead::NotFound);
        }
        if merge.seek_rest(prefix)? == Step::Pending {
            return Ok(PointRead::WouldBlock);
        }
        if !merge.key().starts_with(prefix) {
            return Ok(PointRead::Batch(RowBatch::default()));
        }
        reader.set_time(snapshot, if *has_ages { self.wall_micros() } else { 0 });
        if reader.begin_row(prefix, key::is_plain_prefix(prefix, row), self.env()) {
            reader.reserve_one(row);
            if read_forward(merge, reader, &mut 0).ok_or_else(|| malformed(self))?? != Forward::End {
                return Ok(PointRead::WouldBlock);
            }
        }
        // Values in value files are read from storage, however near that is.
        if reader.finish(self.env())? != Finish::Row || reader.batch_refers() {
            return Ok(PointRead::WouldBlock);
        }
        let batch = reader.take_batch();
        debug_assert!(batch.len() <= 1, "a read of one row gives one row at most");
        Ok(PointRead::Batch(batch))
    }
}
