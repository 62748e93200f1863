//! Turns resolved versions into the cells a read returns.

use crate::error::{Result, TabletError};
use crate::resolve::{Outcome, Sink, Skip, Version};
use bytes::Bytes;
use std::sync::Arc;
use stele_filter::Pushdown;
use stele_types::key::{CellKind, KeyParts};
use stele_types::{Cell, FamilyId, GcView, TableSchema, limits};

/// Collects the cells of one row: visible, not expired, and not cut by the filter's pushdown.
pub(super) struct ReadSink {
    schema: Arc<TableSchema>,
    pushdown: Arc<Pushdown>,
    now_micros: i64,
    family: FamilyId,
    qualifier: Bytes,
    /// Visible versions of the column so far, for the rule.
    version_index: u64,
    /// Cells of the column so far, for the pushdown.
    taken: usize,
    cells: Vec<Cell>,
    bytes: usize,
}

impl ReadSink {
    pub(super) fn new(schema: Arc<TableSchema>, pushdown: Arc<Pushdown>, now_micros: i64) -> Self {
        ReadSink {
            schema,
            pushdown,
            now_micros,
            family: FamilyId(0),
            qualifier: Bytes::new(),
            version_index: 0,
            taken: 0,
            cells: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn set_now(&mut self, now_micros: i64) {
        self.now_micros = now_micros;
    }

    pub(super) fn begin_row(&mut self) {
        self.cells.clear();
        self.bytes = 0;
    }

    pub(super) fn take_cells(&mut self) -> Vec<Cell> {
        std::mem::take(&mut self.cells)
    }

    /// A row that cannot be assembled within its limit is refused rather than cut.
    pub(super) fn check_size(&self, row_prefix: &[u8]) -> Result<()> {
        check_row_bytes(self.bytes, row_prefix)
    }
}

impl Sink for ReadSink {
    fn wants_family(&mut self, family: FamilyId) -> bool {
        self.family = family;
        self.schema.families.contains_key(&family) && self.pushdown.columns.qualifiers(family).is_some()
    }

    fn begin_column(&mut self, key: &[u8], parts: &KeyParts) -> Skip {
        self.version_index = 0;
        self.taken = 0;
        let qualifier = parts.qualifier(key);
        if !self.pushdown.columns.contains(self.family, &qualifier) {
            return Skip::Column;
        }
        self.qualifier = Bytes::copy_from_slice(&qualifier);
        Skip::Nothing
    }

    fn marker(&mut self, _: &[u8], _: &KeyParts, _: &Bytes) {}

    fn version(&mut self, version: Version<'_>) -> Skip {
        let value = match version.outcome {
            Outcome::Deleted => return Skip::Nothing,
            Outcome::Value(value) | Outcome::Operands(value) => value,
        };
        let timestamp = version.parts.timestamp;
        let view = GcView {
            version_index: self.version_index,
            timestamp,
            unit: self.schema.time_unit,
            now_micros: self.now_micros,
        };
        let rule = self.schema.families.get(&self.family).and_then(|f| f.gc_rule.as_ref());
        if rule.is_some_and(|rule| rule.is_garbage(&view)) {
            // Rules only look at age and position, and both grow from here on.
            return Skip::Column;
        }
        self.version_index += 1;
        if timestamp < self.pushdown.timestamps.start {
            return Skip::Column;
        }
        if !self.pushdown.timestamps.contains(timestamp) {
            return Skip::Nothing;
        }
        let cell = Cell::put(self.family, self.qualifier.clone(), timestamp, value);
        self.bytes += cell.weight();
        self.cells.push(cell);
        self.taken += 1;
        if self.pushdown.cells.is_some_and(|most| self.cells.len() >= most) {
            return Skip::Row;
        }
        if self.pushdown.versions.is_some_and(|most| self.taken >= most) {
            Skip::Column
        } else {
            Skip::Nothing
        }
    }
}

/// Collects everything stored of one row.
pub(super) struct RawRow {
    pushdown: Arc<Pushdown>,
    cells: Vec<Cell>,
    bytes: usize,
}

impl RawRow {
    pub(super) fn new(pushdown: Arc<Pushdown>) -> Self {
        RawRow {
            pushdown,
            cells: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, key: &[u8], parts: &KeyParts, value: Bytes) {
        let qualifier = parts.qualifier(key);
        let column_level = !matches!(
            parts.kind,
            CellKind::DeleteRow | CellKind::DeleteFamily | CellKind::DeleteFamilyVersion
        );
        if column_level && !self.pushdown.columns.contains(parts.family, &qualifier) {
            return;
        }
        let cell = Cell {
            family: parts.family,
            qualifier: Bytes::copy_from_slice(&qualifier),
            timestamp: parts.timestamp,
            kind: parts.kind,
            value,
            labels: Vec::new(),
        };
        self.bytes += cell.weight();
        self.cells.push(cell);
    }

    pub(super) fn check_size(&self, row_prefix: &[u8]) -> Result<()> {
        check_row_bytes(self.bytes, row_prefix)
    }

    pub(super) fn into_cells(self) -> Vec<Cell> {
        self.cells
    }
}

fn check_row_bytes(bytes: usize, row_prefix: &[u8]) -> Result<()> {
    if bytes <= limits::ROW_BYTES_MAX {
        return Ok(());
    }
    let start = &row_prefix[..row_prefix.len().min(64)];
    Err(TabletError::RowTooLarge {
        row_start: start.escape_ascii().to_string(),
        limit: limits::ROW_BYTES_MAX,
    })
}
