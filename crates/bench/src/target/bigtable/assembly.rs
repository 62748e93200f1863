//! Assembles rows from the chunks of a ReadRows stream.
//!
//! The rules are those of the comments of `ReadRowsResponse` in Google's `bigtable.proto`, and all of its clients
//! enforce them:
//! * A row begins with a chunk that has key, family and qualifier. Later chunks leave out unchanged parts.
//! * All parts of a split cell but the last have `value_size`.
//! * `reset_row` begins the row again. `commit_row` ends it.
//! * Keys ascend.
//!
//! A server that violates a rule would break applications, so a violation is an error.

use crate::target::{Cell, Row};
use bytes::{Bytes, BytesMut};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::read_rows_response::{CellChunk, cell_chunk::RowStatus};

/// Longest value assembled from parts: a row may have 256 MB.
const VALUE_BYTES_MAX: usize = 256 << 20;

/// The rows of one stream as they arrive.
#[derive(Default)]
pub(super) struct Assembler {
    /// The row under way, or the last one.
    row: Row,
    state: State,
    family: Bytes,
    qualifier: Bytes,
    /// The cell under way.
    split: Split,
    /// Last row that was returned, or that the server reported as passed over.
    last_key: Bytes,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Between rows.
    #[default]
    Between,
    /// In a row, between cells.
    InRow,
    /// In a cell with more parts to come.
    InCell,
}

#[derive(Default)]
struct Split {
    timestamp: i64,
    value: BytesMut,
}

impl Assembler {
    /// Takes the next chunk. Returns whether it completes a row ([`Self::row`]).
    ///
    /// # Errors
    /// A fault of the chunk.
    pub(super) fn push(&mut self, chunk: CellChunk) -> Result<bool, String> {
        let commit = matches!(chunk.row_status, Some(RowStatus::CommitRow(true)));
        if matches!(chunk.row_status, Some(RowStatus::ResetRow(true))) {
            return self.reset(&chunk).map(|()| false);
        }
        match self.state {
            State::Between => self.begin_row(&chunk)?,
            State::InRow => self.same_row(&chunk)?,
            State::InCell => self.same_cell(&chunk)?,
        }
        let more = chunk.value_size > 0;
        if more && commit {
            return Err(self.wrong("commit_row between the parts of a cell"));
        }
        if self.state != State::InCell {
            self.begin_cell(&chunk)?;
        }
        self.add_value(chunk, more)?;
        if commit {
            self.last_key = self.row.key.clone();
            self.state = State::Between;
        }
        Ok(commit)
    }

    /// Takes a report that no row up to `key` will follow.
    ///
    /// # Errors
    /// A report within a row, or a key below an earlier one.
    pub(super) fn scanned(&mut self, key: Bytes) -> Result<(), String> {
        if self.state != State::Between {
            return Err(self.wrong("last_scanned_row_key within a row"));
        }
        if key < self.last_key {
            return Err(self.wrong("last_scanned_row_key before a row already sent"));
        }
        self.last_key = key;
        Ok(())
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// A stream that ends within a row.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.state {
            State::Between => Ok(()),
            _ => Err(self.wrong("the stream ends within a row")),
        }
    }

    /// Prepares for reading the stream again from [`Self::last_key`] on: an incomplete row is dropped.
    pub(super) fn resume(&mut self) {
        self.state = State::Between;
    }

    /// The row that was just completed.
    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    /// The row that was just completed, taken.
    pub(super) fn take_row(&mut self) -> Row {
        std::mem::take(&mut self.row)
    }

    /// The last row that is finished, empty before the first.
    pub(super) fn last_key(&self) -> &Bytes {
        &self.last_key
    }

    fn begin_row(&mut self, chunk: &CellChunk) -> Result<(), String> {
        // The names stay from the row before, so that rows with the same names share them. The chunks must still repeat
        // them.
        if chunk.row_key.is_empty() || chunk.family_name.is_none() || chunk.qualifier.is_none() {
            return Err(self.wrong("a row begins without key, family or qualifier"));
        }
        if chunk.row_key <= self.last_key {
            return Err(self.wrong(&format!("row {:?} comes after it", chunk.row_key)));
        }
        self.row.key = chunk.row_key.clone();
        self.row.cells.clear();
        self.state = State::InRow;
        Ok(())
    }

    fn same_row(&self, chunk: &CellChunk) -> Result<(), String> {
        if !chunk.row_key.is_empty() && chunk.row_key != self.row.key {
            return Err(self.wrong(&format!("row {:?} begins before it is committed", chunk.row_key)));
        }
        Ok(())
    }

    fn same_cell(&self, chunk: &CellChunk) -> Result<(), String> {
        self.same_row(chunk)?;
        if chunk.family_name.is_some() || chunk.qualifier.is_some() || chunk.timestamp_micros != 0 {
            return Err(self.wrong("another cell begins within a cell"));
        }
        Ok(())
    }

    fn begin_cell(&mut self, chunk: &CellChunk) -> Result<(), String> {
        if let Some(family) = &chunk.family_name {
            if chunk.qualifier.is_none() {
                return Err(self.wrong("a family without a qualifier"));
            }
            if self.family != family.as_bytes() {
                self.family = Bytes::copy_from_slice(family.as_bytes());
            }
        }
        if let Some(qualifier) = &chunk.qualifier
            && self.qualifier != qualifier
        {
            self.qualifier = Bytes::copy_from_slice(qualifier);
        }
        self.split.timestamp = chunk.timestamp_micros;
        self.split.value.clear();
        Ok(())
    }

    fn add_value(&mut self, chunk: CellChunk, more: bool) -> Result<(), String> {
        if self.split.value.len() + chunk.value.len() > VALUE_BYTES_MAX {
            return Err(self.wrong(&format!("a value of more than {VALUE_BYTES_MAX} bytes")));
        }
        if more {
            self.split.value.extend_from_slice(&chunk.value);
            self.state = State::InCell;
            return Ok(());
        }
        // A value in one part is a slice of the message, and is not copied.
        let value = if self.split.value.is_empty() {
            chunk.value
        } else {
            self.split.value.extend_from_slice(&chunk.value);
            self.split.value.split().freeze()
        };
        self.row.cells.push(Cell {
            family: self.family.clone(),
            qualifier: self.qualifier.clone(),
            timestamp: self.split.timestamp,
            value,
        });
        self.state = State::InRow;
        Ok(())
    }

    fn reset(&mut self, chunk: &CellChunk) -> Result<(), String> {
        let bare = chunk.row_key.is_empty()
            && chunk.family_name.is_none()
            && chunk.qualifier.is_none()
            && chunk.value.is_empty()
            && chunk.timestamp_micros == 0;
        match (self.state, bare) {
            (State::Between, _) => Err(self.wrong("reset_row between rows")),
            (_, false) => Err(self.wrong("reset_row with something else")),
            (_, true) => {
                self.resume();
                Ok(())
            }
        }
    }

    fn wrong(&self, what: &str) -> String {
        let (place, key) = match self.state {
            State::Between => ("after", &self.last_key),
            _ => ("in", &self.row.key),
        };
        format!("ReadRows: {place} row {key:?}: {what}")
    }
}

#[cfg(test)]
mod tests;
