//! The calls that a scan makes to a filter, with HBase's defaults.

use super::cell::{FilterCell, Hint};
use super::error::FilterError;
use super::pushdown::{Needs, RowBounds};
use bytes::Bytes;

/// A filter of a tree, which owns those below it.
pub(super) type BoxNode = Box<dyn Node>;

/// A filter's verdict on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Include,
    IncludeNextColumn,
    /// The next row of the cell's family.
    IncludeNextRow,
    Skip,
    NextColumn,
    /// The next row of the cell's family.
    NextRow,
    /// The place given by [`Node::hint`].
    Seek,
}

impl Code {
    pub(super) fn includes(self) -> bool {
        matches!(self, Self::Include | Self::IncludeNextColumn | Self::IncludeNextRow)
    }
}

/// A filter with its state. Calls come in this order for each row: [`Node::filters_row_key`], [`Node::cell`] for each
/// cell and [`Node::transform`] if it is kept, [`Node::row_cells`], [`Node::filters_row`], [`Node::reset`].
pub(super) trait Node: Send + Sync {
    /// Forgets the row.
    fn reset(&mut self) {}

    /// Tells that rows come in descending order. Not every filter passes it on to those below.
    fn set_reversed(&mut self, _reversed: bool) {}

    /// Whether the row is left out because of its key.
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(self.exhausted())
    }

    /// Judges a cell.
    fn cell(&mut self, row: &[u8], cell: &FilterCell) -> Result<Code, FilterError>;

    /// Changes a kept cell.
    fn transform(&self, _cell: &mut FilterCell) {}

    /// Drops some of the row's kept cells.
    fn row_cells(&mut self, _cells: &mut Vec<FilterCell>) {}

    /// Whether the filter needs whole rows.
    fn needs_row(&self) -> bool {
        false
    }

    /// Whether the row is left out, now that its cells were seen.
    fn filters_row(&mut self) -> bool {
        false
    }

    /// Whether no later row can pass.
    fn exhausted(&self) -> bool {
        false
    }

    /// The place for [`Code::Seek`], computed at the cell which the code was for.
    fn hint(&mut self, _row: &[u8], _cell: &FilterCell) -> Option<Hint> {
        None
    }

    /// Whether the family must be read before the row is judged.
    fn family_essential(&self, _family: &[u8]) -> bool {
        true
    }

    /// Whether a list asks for hints even when another filter has refused the row or cell.
    fn is_hinting(&self) -> bool {
        false
    }

    /// Rows that can pass; all when `None`.
    fn row_ranges(&self) -> Option<Vec<RowBounds>> {
        None
    }

    /// Whether the filter remembers rows that do not pass, so that none may be hidden from it.
    fn remembers_rows(&self) -> bool {
        false
    }

    /// The part of the cells that it needs.
    fn needs(&self) -> Needs {
        Needs::everything()
    }

    /// Whether a kept cell has lost its value.
    fn drops_values(&self) -> bool {
        false
    }
}

/// The smallest string after all those that begin with the prefix; `None` if there is none.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut after = prefix.get(..=last)?.to_vec();
    if let Some(byte) = after.last_mut() {
        *byte += 1;
    }
    Some(after.into())
}
