//! `FilterList`: several filters, all or one of which must let a cell pass.

mod codes;

use super::cell::{FilterCell, Hint};
use super::error::FilterError;
use super::node::{BoxNode, Code, Node};
use super::pushdown::{Needs, RANGES_MAX, RowBounds, intersect, limited, merge};
use std::cmp::Ordering;

/// A `FilterList` with `MUST_PASS_ALL`.
pub(super) struct All {
    filters: Vec<BoxNode>,
    /// Filters that want the scan to seek, of the last cell.
    seeking: Vec<usize>,
    reversed: bool,
}

impl All {
    pub(super) fn new(filters: Vec<BoxNode>) -> Self {
        Self {
            filters,
            seeking: Vec::new(),
            reversed: false,
        }
    }

    /// Asks filters in order until one leaves the cell out. Returns the code and the number of filters behind that one.
    fn until_refused(&mut self, row: &[u8], cell: &FilterCell) -> Result<(Code, usize), FilterError> {
        let mut code = Code::Include;
        for (at, filter) in self.filters.iter_mut().enumerate() {
            if filter.exhausted() {
                return Ok((Code::NextRow, at + 1));
            }
            let own = filter.cell(row, cell)?;
            if own == Code::Seek {
                self.seeking.push(at);
            }
            code = codes::both(code, own);
            if !code.includes() {
                return Ok((code, at + 1));
            }
        }
        Ok((code, self.filters.len()))
    }

    /// Rows that can pass, however many ranges they are.
    fn exact_row_ranges(&self) -> Option<Vec<RowBounds>> {
        let ranges = self.filters.iter().filter_map(|filter| filter.row_ranges());
        ranges.map(merge).reduce(|a, b| intersect(&a, &b))
    }
}

impl Node for All {
    fn reset(&mut self) {
        self.filters.iter_mut().for_each(|filter| filter.reset());
        self.seeking.clear();
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        self.filters.iter_mut().for_each(|filter| filter.set_reversed(reversed));
    }

    /// Each filter sees the row, but for those behind an exhausted one. A filter with hints keeps the row, so that the
    /// scan can seek.
    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        let (mut filtered, mut hinting) = (false, false);
        for filter in &mut self.filters {
            if filter.exhausted() {
                return Ok(true);
            }
            if filter.filters_row_key(row)? {
                filtered = true;
            } else {
                hinting |= filter.is_hinting();
            }
        }
        Ok(filtered && !hinting)
    }

    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        self.seeking.clear();
        let (code, rest) = self.until_refused(row, cell)?;
        for (at, filter) in self.filters.iter_mut().enumerate().skip(rest) {
            if filter.is_hinting() && filter.cell(row, cell)? == Code::Seek {
                self.seeking.push(at);
            }
        }
        Ok(if self.seeking.is_empty() { code } else { Code::Seek })
    }

    fn transform(&self, cell: &mut FilterCell) {
        self.filters.iter().for_each(|filter| filter.transform(cell));
    }

    fn row_cells(&mut self, cells: &mut Vec<FilterCell>) {
        self.filters.iter_mut().for_each(|filter| filter.row_cells(cells));
    }

    fn needs_row(&self) -> bool {
        self.filters.iter().any(|filter| filter.needs_row())
    }

    /// Filters behind the first that leaves the row out are not asked.
    fn filters_row(&mut self) -> bool {
        self.filters.iter_mut().any(|filter| filter.filters_row())
    }

    fn exhausted(&self) -> bool {
        self.filters.iter().any(|filter| filter.exhausted())
    }

    /// The farthest hint.
    fn hint(&mut self, row: &[u8], cell: &FilterCell) -> Option<Hint> {
        let mut farthest: Option<Hint> = None;
        for &at in &self.seeking {
            let Some(filter) = self.filters.get_mut(at).filter(|filter| !filter.exhausted()) else {
                continue;
            };
            let Some(hint) = filter.hint(row, cell) else {
                continue;
            };
            if farthest
                .as_ref()
                .is_none_or(|other| comes_first(other, &hint, row, self.reversed))
            {
                farthest = Some(hint);
            }
        }
        farthest
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        family_essential(&self.filters, family)
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        self.exact_row_ranges().map(limited)
    }

    fn remembers_rows(&self) -> bool {
        self.filters.iter().any(|filter| filter.remembers_rows())
    }

    fn needs(&self) -> Needs {
        let needs = self.filters.iter().map(|filter| filter.needs());
        let needs = needs.reduce(Needs::and).unwrap_or_else(Needs::row);
        // The rows between too many ranges are skipped by hints, and each family must have a cell that asks for one.
        match self.exact_row_ranges().is_some_and(|ranges| ranges.len() > RANGES_MAX) {
            true => needs.unnarrowed(),
            false => needs,
        }
    }

    fn drops_values(&self) -> bool {
        self.filters.iter().any(|filter| filter.drops_values())
    }
}

/// A `FilterList` with `MUST_PASS_ONE`.
pub(super) struct One {
    filters: Vec<Alternative>,
    reversed: bool,
}

struct Alternative {
    filter: BoxNode,
    /// The last cell and code, unless the filter must see the next cell anyway.
    last: Option<(FilterCell, Code)>,
    /// Whether the filter keeps the current cell, and so transforms it.
    included: bool,
}

impl One {
    pub(super) fn new(filters: Vec<BoxNode>) -> Self {
        let filters = filters.into_iter().map(|filter| Alternative {
            filter,
            last: None,
            included: false,
        });
        Self {
            filters: filters.collect(),
            reversed: false,
        }
    }
}

impl Alternative {
    /// The code that follows from the last one: a filter that left out a column or row is not asked about it again.
    fn implied(&mut self, row: &[u8], cell: &FilterCell, reversed: bool) -> Option<Code> {
        let (last, code) = self.last.as_ref()?;
        match code {
            Code::Include | Code::Skip => None,
            Code::Seek => {
                let hint = self.filter.hint(row, last)?;
                let order = hint.compare_cell(row, cell);
                let order = if reversed { order.reverse() } else { order };
                (order == Ordering::Greater).then_some(Code::Seek)
            }
            Code::NextColumn | Code::IncludeNextColumn => last.same_column(cell).then_some(Code::NextColumn),
            Code::NextRow | Code::IncludeNextRow => (last.family == cell.family).then_some(Code::NextRow),
        }
    }
}

impl Node for One {
    fn reset(&mut self) {
        for alternative in &mut self.filters {
            alternative.filter.reset();
            alternative.last = None;
            alternative.included = false;
        }
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        for alternative in &mut self.filters {
            alternative.filter.set_reversed(reversed);
        }
    }

    fn filters_row_key(&mut self, row: &[u8]) -> Result<bool, FilterError> {
        let mut filtered = !self.filters.is_empty();
        for alternative in &mut self.filters {
            let filter = &mut alternative.filter;
            if !filter.exhausted() && !filter.filters_row_key(row)? {
                filtered = false;
            }
        }
        Ok(filtered)
    }

    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if self.filters.is_empty() {
            return Ok(Code::Include);
        }
        let mut code = None;
        for alternative in &mut self.filters {
            alternative.included = false;
            if alternative.filter.exhausted() {
                continue;
            }
            let own = match alternative.implied(row, cell, self.reversed) {
                Some(own) => own,
                None => alternative.filter.cell(row, cell)?,
            };
            let asked_again = matches!(own, Code::Include | Code::Skip);
            alternative.last = (!asked_again).then(|| (cell.clone(), own));
            alternative.included = own.includes();
            code = Some(code.map_or(own, |code| codes::either(code, own)));
        }
        Ok(code.unwrap_or(Code::Skip))
    }

    fn transform(&self, cell: &mut FilterCell) {
        for alternative in self.filters.iter().filter(|alternative| alternative.included) {
            alternative.filter.transform(cell);
        }
    }

    fn row_cells(&mut self, cells: &mut Vec<FilterCell>) {
        for alternative in &mut self.filters {
            alternative.filter.row_cells(cells);
        }
    }

    fn needs_row(&self) -> bool {
        self.filters.iter().any(|alternative| alternative.filter.needs_row())
    }

    /// Filters behind the first that keeps the row are not asked.
    fn filters_row(&mut self) -> bool {
        !self.filters.is_empty()
            && self
                .filters
                .iter_mut()
                .all(|alternative| alternative.filter.filters_row())
    }

    fn exhausted(&self) -> bool {
        !self.filters.is_empty() && self.filters.iter().all(|alternative| alternative.filter.exhausted())
    }

    /// The nearest hint; none if a filter has none.
    fn hint(&mut self, row: &[u8], cell: &FilterCell) -> Option<Hint> {
        let mut nearest: Option<Hint> = None;
        for alternative in &mut self.filters {
            if alternative.filter.exhausted() {
                continue;
            }
            let hint = alternative.filter.hint(row, cell)?;
            if nearest
                .as_ref()
                .is_none_or(|other| comes_first(&hint, other, row, self.reversed))
            {
                nearest = Some(hint);
            }
        }
        nearest
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        let mut filters = self.filters.iter();
        self.filters.is_empty() || filters.any(|alternative| alternative.filter.family_essential(family))
    }

    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        let ranges = self.filters.iter().map(|alternative| alternative.filter.row_ranges());
        let ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        (!ranges.is_empty()).then(|| limited(merge(ranges.into_iter().flatten().collect())))
    }

    fn remembers_rows(&self) -> bool {
        self.filters
            .iter()
            .any(|alternative| alternative.filter.remembers_rows())
    }

    fn needs(&self) -> Needs {
        let needs = self.filters.iter().map(|alternative| alternative.filter.needs());
        needs.reduce(Needs::and).unwrap_or_else(Needs::row).unnarrowed()
    }

    fn drops_values(&self) -> bool {
        !self.filters.is_empty() && self.filters.iter().all(|alternative| alternative.filter.drops_values())
    }
}

fn family_essential(filters: &[BoxNode], family: &[u8]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| filter.family_essential(family))
}

/// Whether a scan reaches one hint before another.
fn comes_first(hint: &Hint, other: &Hint, row: &[u8], reversed: bool) -> bool {
    let order = hint.compare(other, row);
    order == if reversed { Ordering::Greater } else { Ordering::Less }
}
