//! Tests share a schema, the client's side of a ReadRows stream, and a service model.

pub(crate) mod clock;
pub(crate) mod fake;
mod in_process;

use crate::wire::{CellChunk, ReadRowsResponse};
use bytes::Bytes;
use std::collections::BTreeMap;
use stele_types::schema::Family;
use stele_types::{AggregateKind, FamilyId, GroupId, TableId, TableName, TableSchema, ValueType};

/// Families `f` (1) and `g` (2) of bytes and `sum` (3); millisecond granularity.
pub(crate) fn schema() -> TableSchema {
    let family = |name: &str, value_type| Family {
        name: name.into(),
        gc_rule: None,
        value_type,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        granularity: 1_000,
        families: BTreeMap::from([
            (FamilyId(1), family("f", ValueType::Bytes)),
            (FamilyId(2), family("g", ValueType::Bytes)),
            (FamilyId(3), family("sum", ValueType::Aggregate(AggregateKind::Sum))),
        ]),
        next_family: FamilyId(4),
        ..TableSchema::new(TableId(1), TableName::new("i", "t"))
    }
}

/// A cell as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergedCell {
    pub family: String,
    pub qualifier: Bytes,
    pub timestamp: i64,
    pub value: Vec<u8>,
    pub labels: Vec<String>,
}

/// A row as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergedRow {
    pub key: Bytes,
    pub cells: Vec<MergedCell>,
}

/// The state machine by which clients assemble rows, as strict as the strictest of them.
pub(crate) struct RowMerger {
    reversed: bool,
    last_key: Option<Bytes>,
    /// The same before the current row.
    key_before: Option<Bytes>,
    row: Option<MergedRow>,
    /// Total size of the cell that is arriving in several chunks.
    pieces_of: Option<i32>,
    rows: Vec<MergedRow>,
    pub scanned: Vec<Bytes>,
    pub stats: Option<crate::pb::v2::RequestStats>,
}

fn ensure(condition: bool, rule: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(rule.to_owned()) }
}

impl RowMerger {
    pub fn new(reversed: bool) -> Self {
        RowMerger {
            reversed,
            last_key: None,
            key_before: None,
            row: None,
            pieces_of: None,
            rows: Vec::new(),
            scanned: Vec::new(),
            stats: None,
        }
    }

    pub fn feed(&mut self, response: &ReadRowsResponse) -> Result<(), String> {
        ensure(self.stats.is_none(), "nothing follows the statistics")?;
        if !response.last_scanned_row_key.is_empty() {
            ensure(
                response.chunks.is_empty() && self.row.is_none(),
                "progress is told between rows",
            )?;
            self.advance_to(&response.last_scanned_row_key)?;
            self.scanned.push(response.last_scanned_row_key.clone());
        }
        for chunk in &response.chunks {
            self.chunk(chunk)?;
        }
        self.stats.clone_from(&response.request_stats);
        Ok(())
    }

    pub fn finish(self) -> Result<Vec<MergedRow>, String> {
        ensure(self.row.is_none(), "a stream does not end within a row")?;
        Ok(self.rows)
    }

    fn chunk(&mut self, chunk: &CellChunk) -> Result<(), String> {
        if chunk.reset_row {
            let bare = CellChunk {
                reset_row: true,
                ..CellChunk::default()
            };
            ensure(
                self.row.is_some() && *chunk == bare,
                "a reset stands alone, within a row",
            )?;
            (self.row, self.pieces_of) = (None, None);
            self.last_key = self.key_before.take();
            return Ok(());
        }
        match self.pieces_of {
            Some(total) => self.next_piece(chunk, total)?,
            None => self.new_cell(chunk)?,
        }
        self.pieces_of = (chunk.value_size > 0).then_some(chunk.value_size);
        if chunk.commit_row {
            ensure(chunk.value_size == 0, "no commit between pieces")?;
            self.rows.extend(self.row.take());
        }
        Ok(())
    }

    fn next_piece(&mut self, chunk: &CellChunk, total: i32) -> Result<(), String> {
        let bare = CellChunk {
            value: chunk.value.clone(),
            value_size: chunk.value_size,
            commit_row: chunk.commit_row,
            ..CellChunk::default()
        };
        ensure(*chunk == bare, "a piece has only a value")?;
        ensure(
            chunk.value_size == 0 || chunk.value_size == total,
            "all pieces tell the same size",
        )?;
        let cell = self
            .row
            .as_mut()
            .and_then(|row| row.cells.last_mut())
            .ok_or("a piece of nothing")?;
        cell.value.extend_from_slice(&chunk.value);
        let len = cell.value.len() as i32;
        ensure(
            if chunk.value_size == 0 {
                len == total
            } else {
                len < total
            },
            "the pieces make the size",
        )
    }

    fn new_cell(&mut self, chunk: &CellChunk) -> Result<(), String> {
        if self.row.is_none() {
            ensure(!chunk.row_key.is_empty(), "a row begins with its key")?;
            ensure(
                chunk.family_name.is_some() && chunk.qualifier.is_some(),
                "a row begins with a column",
            )?;
            self.key_before.clone_from(&self.last_key);
            self.advance_to(&chunk.row_key)?;
        }
        ensure(
            chunk.family_name.is_none() || chunk.qualifier.is_some(),
            "a family comes with a qualifier",
        )?;
        let row = self.row.get_or_insert_with(|| MergedRow {
            key: chunk.row_key.clone(),
            cells: Vec::new(),
        });
        ensure(
            chunk.row_key.is_empty() || chunk.row_key == row.key,
            "one row at a time",
        )?;
        let previous = row.cells.last();
        let family = chunk
            .family_name
            .clone()
            .or(previous.map(|c| c.family.clone()))
            .unwrap_or_default();
        let qualifier = chunk
            .qualifier
            .clone()
            .or(previous.map(|c| c.qualifier.clone()))
            .unwrap_or_default();
        if let Some(previous) = previous.filter(|c| c.family == family) {
            ensure(previous.qualifier <= qualifier, "columns ascend")?;
            let same = previous.qualifier == qualifier;
            ensure(
                !same || previous.timestamp >= chunk.timestamp_micros,
                "timestamps descend",
            )?;
        }
        row.cells.push(MergedCell {
            family,
            qualifier,
            timestamp: chunk.timestamp_micros,
            value: chunk.value.to_vec(),
            labels: chunk.labels.clone(),
        });
        Ok(())
    }

    fn advance_to(&mut self, key: &Bytes) -> Result<(), String> {
        let forward = self
            .last_key
            .as_ref()
            .is_none_or(|last| if self.reversed { key < last } else { key > last });
        ensure(forward, "keys go one way")?;
        self.last_key = Some(key.clone());
        Ok(())
    }
}
