//! Filters around another filter.

use super::cell::{FilterCell, Hint};
use super::error::FilterError;
use super::node::{BoxNode, Code, Node};
use super::pushdown::{Needs, RowBounds};

/// `FilterWrapper`: the inner filter.
pub(super) struct Wrapper(pub(super) BoxNode);

impl Node for Wrapper {
    fn reset(&mut self) {
        self.0.reset();
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        Ok(self.0.exhausted() || self.0.filters_row_key(row)?)
    }

    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        self.0.cell(row, cell)
    }

    fn transform(&self, cell: &mut FilterCell) {
        self.0.transform(cell);
    }

    /// HBase judges the row here too, and again when the scan asks.
    fn row_cells(&mut self, cells: &mut Vec<FilterCell>) {
        self.0.row_cells(cells);
        if !cells.is_empty() && self.0.filters_row() {
            cells.clear();
        }
    }

    fn needs_row(&self) -> bool {
        self.0.needs_row()
    }

    fn filters_row(&mut self) -> bool {
        self.0.filters_row()
    }

    fn exhausted(&self) -> bool {
        self.0.exhausted()
    }

    fn hint(&mut self, row: &[u8], cell: &FilterCell) -> Option<Hint> {
        self.0.hint(row, cell)
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        self.0.family_essential(family)
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        self.0.row_ranges()
    }

    fn remembers_rows(&self) -> bool {
        self.0.remembers_rows()
    }

    fn needs(&self) -> Needs {
        self.0.needs()
    }

    fn drops_values(&self) -> bool {
        self.0.drops_values()
    }
}

/// `SkipFilter`: leaves out a row if the inner filter leaves out one of its cells.
pub(super) struct SkipRow {
    inner: BoxNode,
    filtered: bool,
}

impl SkipRow {
    pub(super) fn new(inner: BoxNode) -> Self {
        let filtered = false;
        Self { inner, filtered }
    }
}

impl Node for SkipRow {
    fn reset(&mut self) {
        self.inner.reset();
        self.filtered = false;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let code = self.inner.cell(row, cell)?;
        self.filtered |= code != Code::Include;
        Ok(code)
    }

    fn transform(&self, cell: &mut FilterCell) {
        self.inner.transform(cell);
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        self.filtered
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        self.inner.family_essential(family)
    }

    fn remembers_rows(&self) -> bool {
        self.inner.remembers_rows()
    }

    fn needs(&self) -> Needs {
        self.inner.needs().unnarrowed()
    }

    fn drops_values(&self) -> bool {
        self.inner.drops_values()
    }
}

/// `WhileMatchFilter`: ends the scan when the inner filter leaves out a row or cell.
pub(super) struct WhileMatch {
    inner: BoxNode,
    exhausted: bool,
}

impl WhileMatch {
    pub(super) fn new(inner: BoxNode) -> Self {
        let exhausted = false;
        Self { inner, exhausted }
    }
}

impl Node for WhileMatch {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        if self.exhausted() {
            return Ok(true);
        }
        let filtered = self.inner.filters_row_key(row)?;
        self.exhausted |= filtered;
        Ok(filtered)
    }

    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let code = self.inner.cell(row, cell)?;
        self.exhausted |= code != Code::Include;
        Ok(code)
    }

    fn transform(&self, cell: &mut FilterCell) {
        self.inner.transform(cell);
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        let filtered = self.inner.filters_row();
        self.exhausted |= filtered;
        filtered
    }

    fn exhausted(&self) -> bool {
        self.exhausted || self.inner.exhausted()
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        self.inner.family_essential(family)
    }

    fn remembers_rows(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        self.inner.needs().unnarrowed()
    }

    fn drops_values(&self) -> bool {
        self.inner.drops_values()
    }
}
