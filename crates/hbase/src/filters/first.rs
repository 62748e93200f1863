//! Filters that keep the beginning of a row, or cells without their values.

use super::cell::FilterCell;
use super::error::FilterError;
use super::node::{Code, Node};
use super::pushdown::Needs;
use bytes::Bytes;
use std::collections::HashSet;

/// `FirstKeyOnlyFilter`.
#[derive(Default)]
pub(super) struct FirstKey {
    found: bool,
}

impl Node for FirstKey {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        if std::mem::replace(&mut self.found, true) {
            return Ok(Code::NextRow);
        }
        Ok(Code::Include)
    }

    fn needs(&self) -> Needs {
        Needs::first_cell()
    }
}

/// `FirstKeyValueMatchingQualifiersFilter`.
pub(super) struct FirstMatching {
    qualifiers: HashSet<Bytes>,
    found: bool,
}

impl FirstMatching {
    pub(super) fn new(qualifiers: Vec<Bytes>) -> Self {
        Self {
            qualifiers: qualifiers.into_iter().collect(),
            found: false,
        }
    }
}

impl Node for FirstMatching {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], cell: &FilterCell) -> Result<Code, FilterError> {
        if self.found {
            return Ok(Code::NextRow);
        }
        self.found = self.qualifiers.contains(&cell.qualifier);
        Ok(Code::Include)
    }

    fn needs(&self) -> Needs {
        Needs::keys()
    }
}

/// `KeyOnlyFilter`.
pub(super) struct KeyOnly {
    pub(super) length_as_value: bool,
}

impl Node for KeyOnly {
    fn filters_row_key(&mut self, _row: &[u8]) -> Result<bool, FilterError> {
        Ok(false)
    }

    fn cell(&mut self, _row: &[u8], _cell: &FilterCell) -> Result<Code, FilterError> {
        Ok(Code::Include)
    }

    fn transform(&self, cell: &mut FilterCell) {
        cell.value = if self.length_as_value {
            let length = i32::try_from(cell.value.len()).unwrap_or(i32::MAX);
            Bytes::copy_from_slice(&length.to_be_bytes())
        } else {
            Bytes::new()
        };
    }

    fn needs(&self) -> Needs {
        Needs {
            values: self.length_as_value,
            ..Needs::row()
        }
    }

    fn drops_values(&self) -> bool {
        !self.length_as_value
    }
}
