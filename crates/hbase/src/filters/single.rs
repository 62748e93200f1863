//! Filters that judge a row by one of its columns.

use super::cell::FilterCell;
use super::comparison::Comparison;
use super::error::FilterError;
use super::node::{Code, Node};
use bytes::Bytes;
use std::collections::HashSet;

/// `SingleColumnValueFilter` and `SingleColumnValueExcludeFilter`.
pub(super) struct SingleColumn {
    pub(super) family: Bytes,
    pub(super) qualifier: Bytes,
    pub(super) comparison: Comparison,
    /// Whether rows without the column are left out.
    pub(super) if_missing: bool,
    /// Whether older versions do not count.
    pub(super) latest_only: bool,
    /// Whether the column is left out of rows that pass.
    pub(super) exclude: bool,
    pub(super) state: SingleColumnState,
}

/// How far a row is judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SingleColumnState {
    #[default]
    NotFound,
    /// No version so far passes.
    Refused,
    Passed,
}

impl Node for SingleColumn {
    fn reset(&mut self) {
        self.state = SingleColumnState::NotFound;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        match self.state {
            SingleColumnState::Passed => return Ok(Code::Include),
            SingleColumnState::Refused if self.latest_only => return Ok(Code::NextRow),
            SingleColumnState::Refused | SingleColumnState::NotFound => {}
        }
        if !cell.is_of(&self.family, &self.qualifier) {
            return Ok(Code::Include);
        }
        let passes = self.comparison.passes(&cell.value)?;
        self.state = if passes {
            SingleColumnState::Passed
        } else {
            SingleColumnState::Refused
        };
        // Cells are kept until the row is judged.
        Ok(if !passes && self.latest_only {
            Code::NextRow
        } else {
            Code::Include
        })
    }

    fn row_cells(&mut self, cells: &mut Vec<FilterCell>) {
        if self.exclude {
            cells.retain(|cell| !cell.is_of(&self.family, &self.qualifier));
        }
    }

    fn needs_row(&self) -> bool {
        true
    }

    fn filters_row(&mut self) -> bool {
        match self.state {
            SingleColumnState::NotFound => self.if_missing,
            SingleColumnState::Refused => true,
            SingleColumnState::Passed => false,
        }
    }

    fn family_essential(&self, family: &[u8]) -> bool {
        !self.if_missing || family == self.family
    }
}

/// `DependentColumnFilter`.
pub(super) struct DependentColumn {
    pub(super) family: Bytes,
    pub(super) qualifier: Bytes,
    /// Any value passes when absent.
    pub(super) comparison: Option<Comparison>,
    /// Whether the column itself is left out.
    pub(super) drop_column: bool,
    /// Of the column's cells that pass.
    pub(super) timestamps: HashSet<i64>,
}

impl Node for DependentColumn {
    fn reset(&mut self) {
        self.timestamps.clear();
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if !cell.is_of(&self.family, &self.qualifier) {
            // Kept until all timestamps are known.
            return Ok(Code::Include);
        }
        if let Some(comparison) = &self.comparison
            && !comparison.passes(&cell.value)?
        {
            return Ok(Code::Skip);
        }
        self.timestamps.insert(cell.timestamp);
        Ok(if self.drop_column { Code::Skip } else { Code::Include })
    }

    fn row_cells(&mut self, cells: &mut Vec<FilterCell>) {
        cells.retain(|cell| self.timestamps.contains(&cell.timestamp));
    }

    fn needs_row(&self) -> bool {
        true
    }
}
