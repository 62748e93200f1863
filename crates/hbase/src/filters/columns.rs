//! Filters that judge columns by their qualifiers or their number in the row.

use super::cell::{FilterCell, Hint, Version};
use super::comparison::Comparison;
use super::error::FilterError;
use super::node::{Code, Node};
use super::pushdown::{Needs, RowBounds};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Bound;
use stele_wire::messages::{self, CompareType};

fn column_hint(cell: &FilterCell, qualifier: &Bytes) -> Option<Hint> {
    Some(Hint::Column {
        family: cell.family.clone(),
        qualifier: qualifier.clone(),
        version: Version::First,
    })
}

/// `FamilyFilter`.
pub(super) struct Family(pub(super) Comparison);

impl Node for Family {
    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let passes = cell.family.is_empty() || self.0.passes(&cell.family)?;
        Ok(if passes { Code::Include } else { Code::NextRow })
    }

    fn needs(&self) -> Needs {
        let family = self.0.comparator().and_then(|comparator| comparator.as_binary());
        Needs {
            family: family.filter(|_| self.0.op() == CompareType::Equal).cloned(),
            ..Needs::key()
        }
    }
}

/// `QualifierFilter`.
pub(super) struct Qualifier(pub(super) Comparison);

impl Node for Qualifier {
    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let passes = self.0.passes(&cell.qualifier)?;
        Ok(if passes { Code::Include } else { Code::Skip })
    }

    fn needs(&self) -> Needs {
        Needs::qualifiers(bounds(&self.0).unwrap_or_else(RowBounds::all))
    }
}

/// The keys that pass a comparison, if they are a range.
pub(super) fn bounds(comparison: &Comparison) -> Option<RowBounds> {
    let comparator = comparison.comparator()?;
    if let Some(prefix) = comparator.as_prefix() {
        return (comparison.op() == CompareType::Equal).then(|| RowBounds::prefix(prefix));
    }
    let value = || comparator.as_binary().cloned();
    let (start, stop) = match comparison.op() {
        CompareType::Less => (Bound::Unbounded, Bound::Excluded(value()?)),
        CompareType::LessOrEqual => (Bound::Unbounded, Bound::Included(value()?)),
        CompareType::Equal => (Bound::Included(value()?), Bound::Included(value()?)),
        CompareType::GreaterOrEqual => (Bound::Included(value()?), Bound::Unbounded),
        CompareType::Greater => (Bound::Excluded(value()?), Bound::Unbounded),
        CompareType::NotEqual | CompareType::NoOp => return None,
    };
    Some(RowBounds { start, stop })
}

/// `ColumnPrefixFilter`.
pub(super) struct ColumnPrefix(pub(super) Bytes);

impl Node for ColumnPrefix {
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        Ok(if cell.qualifier.starts_with(&self.0) {
            Code::Include
        } else if cell.qualifier < self.0 {
            Code::Seek
        } else {
            Code::NextRow
        })
    }

    fn hint(&mut self, _row: &[u8], cell: &FilterCell) -> Option<Hint> {
        column_hint(cell, &self.0)
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        Needs::qualifiers(RowBounds::prefix(&self.0))
    }
}

/// `MultipleColumnPrefixFilter`.
pub(super) struct ColumnPrefixes {
    prefixes: BTreeSet<Bytes>,
    /// The prefix to seek to.
    next: Option<Bytes>,
}

impl ColumnPrefixes {
    pub(super) fn new(prefixes: Vec<Bytes>) -> Result<Self, FilterError> {
        let count = prefixes.len();
        let prefixes: BTreeSet<_> = prefixes.into_iter().collect();
        if prefixes.len() < count {
            return Err(FilterError::argument("prefixes must be distinct"));
        }
        Ok(Self { prefixes, next: None })
    }
}

impl Node for ColumnPrefixes {
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    /// Only the largest prefix up to the qualifier is tried, so a prefix of another prefix lets less pass than alone.
    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if self.prefixes.is_empty() {
            return Ok(Code::Include);
        }
        let qualifier = &cell.qualifier;
        let before = self.prefixes.range::<Bytes, _>(..=qualifier).next_back();
        if before.is_some_and(|prefix| qualifier.starts_with(prefix)) {
            return Ok(Code::Include);
        }
        let after = (Bound::Excluded(qualifier), Bound::Unbounded);
        Ok(match self.prefixes.range::<Bytes, _>(after).next() {
            None => Code::NextRow,
            Some(prefix) => {
                self.next = Some(prefix.clone());
                Code::Seek
            }
        })
    }

    fn hint(&mut self, _row: &[u8], cell: &FilterCell) -> Option<Hint> {
        column_hint(cell, self.next.as_ref()?)
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        match (self.prefixes.first(), self.prefixes.last()) {
            (Some(first), Some(last)) => Needs::qualifiers(RowBounds {
                start: Bound::Included(first.clone()),
                stop: RowBounds::prefix(last).stop,
            }),
            _ => Needs::key(),
        }
    }
}

/// `ColumnRangeFilter`.
pub(super) struct ColumnRange {
    min: Option<Bytes>,
    min_inclusive: bool,
    max: Option<Bytes>,
    max_inclusive: bool,
}

impl ColumnRange {
    pub(super) fn new(message: messages::ColumnRangeFilter) -> Self {
        Self {
            min: message.min_column,
            min_inclusive: message.min_column_inclusive.unwrap_or_default(),
            max: message.max_column,
            max_inclusive: message.max_column_inclusive.unwrap_or_default(),
        }
    }
}

impl Node for ColumnRange {
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if let Some(min) = &self.min {
            if cell.qualifier < min {
                return Ok(Code::Seek);
            }
            if cell.qualifier == min && !self.min_inclusive {
                return Ok(Code::NextColumn);
            }
        }
        let passes = self.max.as_ref().is_none_or(|max| {
            let at_max = cell.qualifier == max && self.max_inclusive;
            at_max || cell.qualifier < max
        });
        Ok(if passes { Code::Include } else { Code::NextRow })
    }

    fn hint(&mut self, _row: &[u8], cell: &FilterCell) -> Option<Hint> {
        column_hint(cell, &self.min.clone().unwrap_or_default())
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        let bound = |qualifier: &Option<Bytes>, inclusive| match qualifier {
            None => Bound::Unbounded,
            Some(qualifier) if inclusive => Bound::Included(qualifier.clone()),
            Some(qualifier) => Bound::Excluded(qualifier.clone()),
        };
        Needs::qualifiers(RowBounds {
            start: bound(&self.min, self.min_inclusive),
            stop: bound(&self.max, self.max_inclusive),
        })
    }
}

/// `ColumnCountGetFilter`. It ends a scan at the first row with more columns than its limit.
pub(super) struct ColumnCount {
    limit: i32,
    count: i64,
}

impl ColumnCount {
    pub(super) fn new(limit: i32) -> Result<Self, FilterError> {
        if limit < 0 {
            return Err(FilterError::argument("a limit must not be negative"));
        }
        Ok(Self { limit, count: 0 })
    }
}

impl Node for ColumnCount {
    fn reset(&mut self) {
        self.count = 0;
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        self.count += 1;
        Ok(if self.exhausted() {
            Code::NextColumn
        } else {
            Code::IncludeNextColumn
        })
    }

    fn exhausted(&self) -> bool {
        self.count > i64::from(self.limit)
    }

    fn remembers_rows(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        Needs::keys()
    }
}

/// `ColumnPaginationFilter`.
pub(super) struct ColumnPagination {
    limit: i64,
    offset: PageStart,
    count: i64,
}

enum PageStart {
    Columns(i64),
    Qualifier(Bytes),
}

impl ColumnPagination {
    pub(super) fn new(message: messages::ColumnPaginationFilter) -> Result<Self, FilterError> {
        let columns = message.offset.unwrap_or_default();
        if message.limit < 0 || (message.column_offset.is_none() && columns < 0) {
            return Err(FilterError::argument("limit and offset must not be negative"));
        }
        let columns = PageStart::Columns(i64::from(columns));
        Ok(Self {
            limit: i64::from(message.limit),
            offset: message.column_offset.map_or(columns, PageStart::Qualifier),
            count: 0,
        })
    }
}

impl Node for ColumnPagination {
    fn reset(&mut self) {
        self.count = 0;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let code = match &self.offset {
            PageStart::Columns(offset) if self.count >= offset + self.limit => return Ok(Code::NextRow),
            PageStart::Columns(offset) if self.count < *offset => Code::NextColumn,
            PageStart::Qualifier(_) if self.count >= self.limit => return Ok(Code::NextRow),
            PageStart::Qualifier(first) if self.count == 0 && cell.qualifier < first => return Ok(Code::Seek),
            PageStart::Columns(_) | PageStart::Qualifier(_) => Code::IncludeNextColumn,
        };
        self.count += 1;
        Ok(code)
    }

    fn hint(&mut self, _row: &[u8], cell: &FilterCell) -> Option<Hint> {
        match &self.offset {
            PageStart::Columns(_) => None,
            PageStart::Qualifier(first) => column_hint(cell, first),
        }
    }

    fn needs(&self) -> Needs {
        Needs::keys()
    }
}
