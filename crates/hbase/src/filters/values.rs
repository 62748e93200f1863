//! Filters that judge cells by their values or timestamps.

use super::cell::{FilterCell, Hint, Version};
use super::comparison::Comparison;
use super::error::FilterError;
use super::node::{Code, Node};
use super::pushdown::{Needs, RowBounds};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Bound;

/// `ValueFilter`.
pub(super) struct Value(pub(super) Comparison);

impl Node for Value {
    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let passes = self.0.passes(&cell.value)?;
        Ok(if passes { Code::Include } else { Code::Skip })
    }

    fn needs(&self) -> Needs {
        Needs::value()
    }
}

/// `ColumnValueFilter`.
pub(super) struct ColumnValue {
    family: Bytes,
    qualifier: Bytes,
    comparison: Comparison,
    found: bool,
}

impl ColumnValue {
    pub(super) fn new(family: Bytes, qualifier: Bytes, comparison: Comparison) -> Self {
        Self {
            family,
            qualifier,
            comparison,
            found: false,
        }
    }
}

impl Node for ColumnValue {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if !cell.is_of(&self.family, &self.qualifier) {
            return Ok(if self.found { Code::NextRow } else { Code::NextColumn });
        }
        self.found = true;
        let passes = self.comparison.passes(&cell.value)?;
        Ok(if passes { Code::Include } else { Code::Skip })
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        family == self.family
    }

    fn needs(&self) -> Needs {
        Needs {
            family: Some(self.family.clone()),
            qualifiers: RowBounds {
                start: Bound::Included(self.qualifier.clone()),
                stop: Bound::Included(self.qualifier.clone()),
            },
            ..Needs::value()
        }
    }
}

/// `TimestampsFilter`.
pub(super) struct Timestamps {
    timestamps: BTreeSet<i64>,
    hinting: bool,
}

impl Timestamps {
    pub(super) fn new(timestamps: Vec<i64>, hinting: bool) -> Result<Self, FilterError> {
        if timestamps.iter().any(|&timestamp| timestamp < 0) {
            return Err(FilterError::argument("timestamps must not be negative"));
        }
        let timestamps = timestamps.into_iter().collect();
        Ok(Self { timestamps, hinting })
    }
}

impl Node for Timestamps {
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        let oldest = self.timestamps.first().copied().unwrap_or(i64::MAX);
        Ok(if self.timestamps.contains(&cell.timestamp) {
            Code::Include
        } else if cell.timestamp < oldest {
            Code::NextColumn
        } else if self.hinting {
            Code::Seek
        } else {
            Code::Skip
        })
    }

    fn hint(&mut self, _row: &[u8], cell: &FilterCell) -> Option<Hint> {
        if !self.hinting {
            return None;
        }
        let older = self.timestamps.range(..cell.timestamp).next_back();
        Some(Hint::Column {
            family: cell.family.clone(),
            qualifier: cell.qualifier.clone(),
            version: older.map_or(Version::Last, |&timestamp| Version::At(timestamp)),
        })
    }

    fn is_hinting(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        Needs::key()
    }
}
