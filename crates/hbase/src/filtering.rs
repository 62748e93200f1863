//! Applies HBase's filters to rows of the data model.

use crate::cells::{cell_type, families_in_order, family_name};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::filters::{FilterCell, FilterError, Needs, RowBounds, ScanFilter, ScanShape};
use crate::selection::FamilySearch;
use crate::times;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_env::Env;
use stele_filter::Filter as Narrowed;
use stele_memory::{Consumer, Reservation};
use stele_types::{Cell, CellKind, FamilyId, RowRange, TableSchema, limits};
use stele_wire::messages::Filter;

/// Units of work for one row ([`crate::pace::Pace`]): about a second. A row of a million cells may have twenty filters, and one of 100 MB
/// twelve patterns.
const ROW_UNITS_MAX: usize = 20_000_000;

/// Units of work to compile a pattern: about 50 µs.
const PATTERN_UNITS: usize = 1_000;

impl From<FilterError> for Failure {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::NoMemory => Failure::overloaded("no memory for a filter"),
            other => Failure::do_not_retry(other.to_string()),
        }
    }
}

/// The filter of one Get, condition or scanner, over rows of a table.
pub(crate) struct RowFilter {
    filter: ScanFilter,
    /// Names of families, each shared by its cells.
    names: BTreeMap<FamilyId, Bytes>,
    search: FamilySearch,
    /// Of the compiled filter; while it judges a row, also of text that it makes of values.
    memory: Reservation,
    memory_max: usize,
    /// Units of work so far, with those of its decoding.
    spent: usize,
}

impl RowFilter {
    /// Decodes a filter for a read of this shape. Its memory is reserved before it is taken.
    pub fn decode(filter: &Filter, schema: &TableSchema, shape: &ScanShape, shared: &Context) -> Outcome<Self> {
        Self::decode_within(filter, schema, shape, &shared.env, &shared.responses)
    }

    /// The same without a context.
    pub fn decode_within(
        filter: &Filter,
        schema: &TableSchema,
        shape: &ScanShape,
        env: &Env,
        memory: &Consumer,
    ) -> Outcome<Self> {
        let env = env.clone();
        let random: crate::filters::Random = Arc::new(move || env.random_u64());
        let name = |family: &stele_types::Family| Bytes::copy_from_slice(family.name.as_bytes());
        let memory_max = memory.limit();
        let memory = memory.empty();
        let mut charge = |bytes| memory.try_grow(bytes).is_ok();
        let filter = ScanFilter::decode_within(filter, shape, &random, &mut charge)?;
        let cost = filter.cost();
        Ok(RowFilter {
            spent: cost.nodes + cost.patterns * PATTERN_UNITS,
            filter,
            names: schema.families.iter().map(|(id, family)| (*id, name(family))).collect(),
            search: FamilySearch::default(),
            memory,
            memory_max,
        })
    }

    /// Units of work so far ([`crate::pace::Pace`]), also where it has failed.
    pub fn spent(&self) -> usize {
        self.spent
    }

    /// Bytes that are reserved for it.
    pub fn reserved(&self) -> usize {
        self.memory.counted()
    }

    /// Units of work that it takes to filter these cells ([`crate::pace::Pace`]).
    fn units(&self, row: &[u8], cells: &[Cell]) -> usize {
        let lengths = cells.iter().map(|cell| (cell.qualifier.len(), cell.value.len()));
        self.filter.cost().units(row.len(), lengths)
    }

    /// Reserves memory for the text that patterns make of a value.
    fn reserve_text(&self, cells: &[Cell]) -> Outcome<()> {
        let cost = self.filter.cost();
        let bytes = cells
            .iter()
            .map(|cell| cost.copied_bytes(&cell.value))
            .max()
            .unwrap_or(0);
        if bytes > self.memory_max {
            return Err(Failure::do_not_retry(format!(
                "a pattern decodes a value to {bytes} bytes; the limit is {}",
                self.memory_max
            )));
        }
        let reserved = self.memory.try_grow(bytes);
        reserved.map_err(|_| FilterError::NoMemory.into())
    }

    /// Filters the cells of a row, and returns the units of work that it took ([`crate::pace::Pace`]). The event loop stands still
    /// meanwhile, so more than [`ROW_UNITS_MAX`] are refused.
    pub fn apply(&mut self, schema: &TableSchema, row: &[u8], cells: &mut Vec<Cell>) -> Outcome<usize> {
        let units = self.units(row, cells);
        if units > ROW_UNITS_MAX {
            let (nodes, count) = (self.filter.cost().nodes, cells.len());
            return Err(Failure::do_not_retry(format!(
                "{nodes} filters for a row of {count} cells are too much work: take fewer filters, or fewer columns"
            )));
        }
        let reserved = self.reserved();
        self.reserve_text(cells)?;
        self.spent = self.spent.saturating_add(units);
        let mut filtered: Vec<FilterCell> = cells.drain(..).map(|cell| self.to_filter(schema, cell)).collect();
        let judged = self.filter.row(row, &mut filtered);
        self.memory.shrink_to(reserved);
        judged?;
        let mut last = None;
        for cell in filtered {
            // The cells of a family follow each other, and share its name.
            let id = match &last {
                Some((name, id)) if *name == cell.family => *id,
                _ => self.search.find(schema, &cell.family, Some(&self.memory))?,
            };
            last = Some((cell.family.clone(), id));
            cells.push(from_filter(schema, id, cell)?);
        }
        Ok(units)
    }

    fn to_filter(&self, schema: &TableSchema, cell: Cell) -> FilterCell {
        let name = self.names.get(&cell.family).cloned();
        FilterCell {
            family: name.unwrap_or_else(|| Bytes::copy_from_slice(family_name(schema, &cell))),
            qualifier: cell.qualifier,
            timestamp: times::shown(schema.time_unit, cell.timestamp),
            kind: cell_type(cell.kind),
            value: cell.value,
        }
    }

    /// Whether no later row can pass.
    pub fn is_over(&self) -> bool {
        self.filter.all_remaining_filtered()
    }

    /// Whether the filter itself ended the scan: the client is told that all of it is over.
    pub fn is_done(&self) -> bool {
        self.filter.is_done()
    }

    /// Whether it decides over whole rows, so that rows cannot be cut.
    pub fn needs_whole_rows(&self) -> bool {
        self.filter.has_filter_row()
    }

    /// The row at which the scan may go on.
    pub fn next_row(&self) -> Option<Bytes> {
        self.filter.next_row()
    }

    /// Filters of the data model that leave out parts of rows on which no answer depends. `of_cells` says whether all cells that they let pass
    /// reach this filter; else the first one of a row may not.
    pub fn narrowed(&self, schema: &TableSchema, of_cells: bool) -> Vec<Narrowed> {
        let needs = self.filter.needs();
        let mut narrowed = Vec::new();
        if of_cells {
            narrowed.extend(columns(schema, &needs));
            // Rows are read in the order of the families' numbers, and HBase's is that of their names.
            if needs.first_cell && families_in_order(schema) {
                narrowed.push(Narrowed::CellsPerRow(1));
            }
        }
        if !needs.values {
            narrowed.push(Narrowed::StripValue);
        }
        narrowed
    }

    /// The rows of a range that can pass.
    pub fn rows_within(&self, range: &RowRange) -> Vec<RowRange> {
        let Some(ranges) = self.filter.row_ranges() else {
            return vec![range.clone()];
        };
        let of = |RowBounds { start, stop }: RowBounds| RowRange::from_bounds(start, stop).intersect(range);
        ranges.into_iter().map(of).collect()
    }

    /// Whether a row of a range can pass.
    pub fn may_pass(&self, range: &RowRange) -> bool {
        self.rows_within(range).iter().any(|rows| !rows.is_empty())
    }
}

/// The columns that a filter needs, if they are within one family.
fn columns(schema: &TableSchema, needs: &Needs) -> Option<Narrowed> {
    let mut families = schema.families.values().map(|family| family.name.as_str());
    let family = match &needs.family {
        Some(family) => families.find(|name| name.as_bytes() == family),
        None if schema.families.len() == 1 => families.next(),
        None => None,
    };
    let bounds = &needs.qualifiers;
    let is_all = *bounds == RowBounds::all();
    let narrows = !is_all || schema.families.len() > 1;
    // An empty range is no filter of the data model, and a very long one may be more than a request may have.
    if bounds.is_empty() || bounds.bytes() > limits::QUALIFIER_BYTES_MAX {
        return None;
    }
    let RowBounds { start, stop } = bounds.clone();
    let family = family.filter(|_| narrows)?.to_owned();
    Some(Narrowed::ColumnRange {
        family,
        start,
        end: stop,
    })
}

/// The kind of a cell that a filter has kept.
fn kind_of(kind: stele_wire::cell::CellType) -> CellKind {
    use stele_wire::cell::CellType;
    match kind {
        CellType::Put => CellKind::Put,
        CellType::Delete => CellKind::DeleteVersion,
        CellType::DeleteFamilyVersion => CellKind::DeleteFamilyVersion,
        CellType::DeleteColumn => CellKind::DeleteColumn,
        CellType::DeleteFamily => CellKind::DeleteFamily,
    }
}

fn from_filter(schema: &TableSchema, id: FamilyId, cell: FilterCell) -> Outcome<Cell> {
    let timestamp = times::stored(schema, cell.timestamp)?;
    let kind = kind_of(cell.kind);
    Ok(Cell {
        kind,
        ..Cell::put(id, cell.qualifier, timestamp, cell.value)
    })
}

#[cfg(test)]
mod tests;
