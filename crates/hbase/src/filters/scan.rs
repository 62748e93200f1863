//! Drives a filter over the rows of a region, as HBase's scanners do.
//!
//! HBase reads each family on its own: a filter's step to the next row, and its hints, move only the family of the cell
//! that they were given for. So a family can lie behind the others by rows, which the filter then sees without it.
//! Families that are not essential are read only for rows that pass, after the row was judged.

use super::cell::{FilterCell, Hint};
use super::cost::Cost;
use super::decode::{self, Charge};
use super::error::FilterError;
use super::node::{BoxNode, Code, Node};
use super::pushdown::{Needs, RowBounds};
use super::wrapping::Wrapper;
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;
use stele_wire::messages;

/// A source of random numbers.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A family that a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyVersions {
    /// Name.
    pub family: Bytes,
    /// Most versions of a column that the scan returns: the smaller of the scan's limit and the table's. Of a raw scan,
    /// the scan's.
    pub versions_max: u32,
}

/// Properties of a scan that decide how its filter is driven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanShape {
    /// The families that are read.
    pub families: Vec<FamilyVersions>,
    /// Whether rows come in descending order.
    pub reversed: bool,
    /// Whether families that are not essential are read after the row was judged. HBase refuses this for reversed scans;
    /// here it has no effect on them.
    pub load_on_demand: bool,
    /// Most cells of a row and family.
    pub store_limit: Option<u32>,
    /// Kept cells of a row and family that are skipped before those.
    pub store_offset: u32,
}

/// Outcomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVerdict {
    /// The list holds the cells to return, at least one.
    Kept,
    /// Nothing is returned.
    Dropped,
}

/// The filter of one scan of one region, with its state.
pub struct ScanFilter {
    root: Wrapper,
    cost: Cost,
    needs_row: bool,
    reversed: bool,
    load_on_demand: bool,
    store_limit: Option<u64>,
    store_offset: u64,
    /// By the names of their families.
    stores: Vec<Store>,
}

/// Memory of a family that a filter reads, besides its name.
const STORE_BYTES: usize = std::mem::size_of::<Store>() + std::mem::size_of::<FamilyVersions>();

/// Reading of one family.
struct Store {
    family: Bytes,
    versions_max: u32,
    /// Whether it is read after the row was judged.
    on_demand: bool,
    /// Nothing is read any more, because the filter was exhausted within a row.
    closed: bool,
    /// Rows before this one are not read.
    seek: Option<Bytes>,
}

impl std::fmt::Debug for ScanFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScanFilter")
    }
}

impl ScanFilter {
    /// Decodes the filter of a Get, Scan or condition. Each scan of a region takes one of its own.
    ///
    /// # Errors
    /// Messages that cannot be decoded, classes that do not exist, arguments that they do not take, and trees that are
    /// too large.
    pub fn decode(filter: &messages::Filter, shape: &ScanShape, random: &Random) -> Result<Self, FilterError> {
        Self::decode_within(filter, shape, random, &mut |_| true)
    }

    /// The same within bounded memory: `charge` takes bytes before the filter uses them.
    ///
    /// # Errors
    /// Those of [`ScanFilter::decode`], and [`FilterError::NoMemory`].
    pub fn decode_within(
        filter: &messages::Filter,
        shape: &ScanShape,
        random: &Random,
        charge: &mut Charge<'_>,
    ) -> Result<Self, FilterError> {
        let (root, cost): (BoxNode, Cost) = decode::tree(filter, random, charge)?;
        if !charge(shape.families.len().saturating_mul(STORE_BYTES)) {
            return Err(FilterError::NoMemory);
        }
        let mut root = Wrapper(root);
        // The wrapper does not pass this on in HBase, which therefore calls the filter inside.
        root.0.set_reversed(shape.reversed);
        let load_on_demand = shape.load_on_demand && !shape.reversed;
        let mut this = Self {
            needs_row: root.needs_row(),
            root,
            cost,
            reversed: shape.reversed,
            load_on_demand,
            store_limit: shape
                .store_limit
                .map(|limit| u64::from(limit) + u64::from(shape.store_offset)),
            store_offset: u64::from(shape.store_offset),
            stores: Vec::with_capacity(shape.families.len()),
        };
        for FamilyVersions { family, versions_max } in &shape.families {
            this.add_store(family, *versions_max);
        }
        this.stores.sort_by(|a, b| a.family.cmp(&b.family));
        Ok(this)
    }

    /// Judges one row. Cells are in HBase's order, all of one row, and already limited to the table's versions. The kept
    /// ones stay in the list, limited to the scan's versions, and may have lost their values.
    ///
    /// # Errors
    /// A stored value that a comparator cannot read. HBase fails the call then.
    pub fn row(&mut self, row: &[u8], cells: &mut Vec<FilterCell>) -> Result<RowVerdict, FilterError> {
        let verdict = self.judge(row, cells);
        self.root.reset();
        let verdict = verdict?;
        if verdict == RowVerdict::Dropped {
            cells.clear();
        }
        Ok(verdict)
    }

    /// The size of the filter, which the work for each cell grows with.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Whether no later row can pass, so the scan ends. Families that are read on demand make no rows.
    pub fn all_remaining_filtered(&self) -> bool {
        let mut essential = self.stores.iter().filter(|store| !store.on_demand);
        self.root.exhausted() || (!self.stores.is_empty() && essential.all(|store| store.closed))
    }

    /// Whether the filter itself is exhausted, which a client is told even if no row is left.
    pub fn is_done(&self) -> bool {
        self.root.exhausted()
    }

    /// The row that the scan may continue at, because the filter has asked to skip those before. Of a reversed scan, the
    /// largest such row.
    pub fn next_row(&self) -> Option<Bytes> {
        let open = self.stores.iter().filter(|store| !store.closed && !store.on_demand);
        let mut rows = open.map(|store| store.seek.as_ref());
        let first = rows.next()??;
        let nearest = rows.try_fold(first, |nearest, row| {
            let row = row?;
            let nearer = if self.reversed { row > nearest } else { row < nearest };
            Some(if nearer { row } else { nearest })
        });
        nearest.cloned()
    }

    /// Whether the filter judges whole rows, so it cannot be used with a batch or with partial rows.
    pub fn has_filter_row(&self) -> bool {
        self.needs_row
    }

    /// Rows that can pass, sorted and disjoint; all when `None`. The scan may skip all others.
    pub fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        if self.root.remembers_rows() {
            return None;
        }
        self.root.row_ranges()
    }

    /// The parts of rows that the answer depends on. The scan may leave out others; it may pass empty values if values
    /// do not matter.
    pub fn needs(&self) -> Needs {
        let mut needs = self.root.needs();
        needs.values |= !self.root.drops_values();
        needs
    }

    fn add_store(&mut self, family: &Bytes, versions_max: u32) {
        self.stores.push(Store {
            family: family.clone(),
            versions_max,
            on_demand: self.load_on_demand && !self.root.family_essential(family),
            closed: false,
            seek: None,
        });
    }

    fn judge(&mut self, row: &[u8], cells: &mut Vec<FilterCell>) -> Result<RowVerdict, FilterError> {
        let all = std::mem::take(cells);
        let (essential, on_demand) = self.split(row, all);
        if essential.is_empty() {
            return Ok(RowVerdict::Dropped);
        }
        let filtered = self.root.filters_row_key(row)?;
        if filtered && self.root.exhausted() {
            return Ok(RowVerdict::Dropped);
        }
        self.read_stores(row, essential, cells)?;
        // The scan passes over the cells of such a row, and the filter sees them.
        if filtered || !self.keeps_row(cells) {
            return Ok(RowVerdict::Dropped);
        }
        if !on_demand.is_empty() {
            self.read_stores(row, on_demand, cells)?;
            cells.sort_by(compare_columns);
        }
        Ok(if cells.is_empty() {
            RowVerdict::Dropped
        } else {
            RowVerdict::Kept
        })
    }

    /// Cells that are read, by family: those of essential families, and the others.
    fn split(&mut self, row: &[u8], cells: Vec<FilterCell>) -> (Vec<Family>, Vec<Family>) {
        let (mut essential, mut on_demand) = (Vec::new(), Vec::new());
        let mut cells = cells.into_iter().peekable();
        while let Some(first) = cells.peek() {
            let family = first.family.clone();
            let mut own = Vec::new();
            while let Some(cell) = cells.next_if(|cell| cell.family == family) {
                own.push(cell);
            }
            let store = self.stores.binary_search_by(|store| store.family.cmp(&family));
            debug_assert!(store.is_ok(), "cells are of families that the scan reads");
            let Some((store, reading)) = store.ok().and_then(|at| Some((at, self.stores.get_mut(at)?))) else {
                continue;
            };
            if reading.reads(row, self.reversed) {
                let families = if reading.on_demand {
                    &mut on_demand
                } else {
                    &mut essential
                };
                families.push(Family { store, cells: own });
            }
        }
        (essential, on_demand)
    }

    /// Whether the row is kept after its cells were judged; drops cells that the filter rejects only now.
    fn keeps_row(&mut self, cells: &mut Vec<FilterCell>) -> bool {
        let read = !cells.is_empty();
        if !self.needs_row {
            return read && !self.root.filters_row();
        }
        self.root.0.row_cells(cells);
        if !cells.is_empty() && self.root.filters_row() {
            return false;
        }
        // A row that lost all of its cells only now still goes on to the families that are read on demand.
        read
    }

    fn read_stores(
        &mut self,
        row: &[u8],
        families: Vec<Family>,
        kept: &mut Vec<FilterCell>,
    ) -> Result<(), FilterError> {
        for family in families {
            let Some(store) = self.stores.get_mut(family.store) else {
                continue;
            };
            let mut reader = StoreReader {
                filter: &mut *self.root.0,
                reversed: self.reversed,
                limit: self.store_limit,
                offset: self.store_offset,
                row,
                store,
                counted: 0,
                versions: 0,
                kept,
            };
            reader.read(family.cells)?;
        }
        Ok(())
    }
}

/// Cells of one row and family.
struct Family {
    /// Index of the store.
    store: usize,
    cells: Vec<FilterCell>,
}

impl Store {
    /// Whether it still reads this row.
    fn reads(&mut self, row: &[u8], reversed: bool) -> bool {
        let before = |seek: &Bytes| if reversed { row > seek } else { row < seek };
        let skipped = self.seek.as_ref().is_some_and(before);
        if !skipped {
            self.seek = None;
        }
        !self.closed && !skipped
    }
}

fn compare_columns(a: &FilterCell, b: &FilterCell) -> Ordering {
    let columns = (&a.family, &a.qualifier).cmp(&(&b.family, &b.qualifier));
    let versions = || (b.timestamp, b.kind as u8).cmp(&(a.timestamp, a.kind as u8));
    columns.then_with(versions)
}

/// Reads the cells of one row and family.
struct StoreReader<'a> {
    filter: &'a mut dyn Node,
    reversed: bool,
    limit: Option<u64>,
    offset: u64,
    row: &'a [u8],
    store: &'a mut Store,
    /// Cells that the filter kept.
    counted: u64,
    /// Those of the current column.
    versions: u32,
    kept: &'a mut Vec<FilterCell>,
}

/// Where reading continues.
enum Step {
    Cell,
    Column,
    Place(Hint),
    /// The next row, without asking whether the filter is exhausted.
    EndAtLimit,
    Row,
}

impl StoreReader<'_> {
    fn read(&mut self, cells: Vec<FilterCell>) -> Result<(), FilterError> {
        let mut cells = cells.into_iter().peekable();
        let mut column: Option<FilterCell> = None;
        while let Some(cell) = cells.next() {
            if column.as_ref().is_none_or(|column| !column.same_column(&cell)) {
                self.versions = 0;
                column = Some(cell.clone());
            }
            if self.filter.exhausted() {
                break;
            }
            match self.cell(&cell)? {
                Step::Cell => {}
                Step::Column => while cells.next_if(|next| next.same_column(&cell)).is_some() {},
                Step::Place(hint) => {
                    let before = |next: &FilterCell| hint.compare_cell(self.row, next) == Ordering::Greater;
                    // The row is behind the place of a reversed scan.
                    while cells.next_if(|next| self.reversed || before(next)).is_some() {}
                    if let Hint::Row(row) = hint {
                        self.store.seek = Some(row);
                    }
                }
                Step::EndAtLimit => return Ok(()),
                Step::Row => break,
            }
        }
        self.store.closed |= self.filter.exhausted();
        Ok(())
    }

    fn cell(&mut self, cell: &FilterCell) -> Result<Step, FilterError> {
        let code = self.filter.cell(self.row, cell)?;
        let step = match code {
            Code::Include | Code::Skip => Step::Cell,
            Code::IncludeNextColumn | Code::NextColumn => Step::Column,
            Code::IncludeNextRow | Code::NextRow => Step::Row,
            Code::Seek => self.seek(cell),
        };
        if !code.includes() {
            return Ok(step);
        }
        self.versions = self.versions.saturating_add(1);
        if self.versions > self.store.versions_max {
            return Ok(if matches!(step, Step::Row) {
                Step::Row
            } else {
                Step::Column
            });
        }
        let mut kept = cell.clone();
        self.filter.transform(&mut kept);
        self.counted += 1;
        if self.counted > self.offset {
            self.kept.push(kept);
            if self.limit.is_some_and(|limit| self.counted >= limit) {
                return Ok(Step::EndAtLimit);
            }
        }
        Ok(step)
    }

    /// Follows the filter's hint if that leads forward, and else goes to the next cell.
    fn seek(&mut self, cell: &FilterCell) -> Step {
        let Some(hint) = self.filter.hint(self.row, cell) else {
            return Step::Cell;
        };
        // HBase does not end if a reversed scan is sent to the beginning of its row.
        let forward = match &hint {
            Hint::Row(row) if self.reversed => row < self.row,
            Hint::Row(row) => row > self.row,
            Hint::Column { .. } => !self.reversed && hint.compare_cell(self.row, cell) == Ordering::Greater,
        };
        if forward { Step::Place(hint) } else { Step::Cell }
    }
}
