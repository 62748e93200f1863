//! Cells of the data model as the protocol writes them.
//!
//! Rows stay in the form in which they were read. Their cells are encoded once, into the frame of the response.

use crate::times;
use bytes::{Bytes, BytesMut};
use prost::Message;
use stele_types::{Cell, CellKind, TableSchema};
use stele_wire::WireError;
use stele_wire::cell::{CELL_OVERHEAD_BYTES, CellRef, CellType};
use stele_wire::frame::CellBlock;
use stele_wire::messages::{CellMessage, RowResult};

/// Bytes that a cell's message may have more than the cell in a block: 31 for tags, lengths and numbers, and not 24.
const MESSAGE_BYTES_MORE: usize = 31 - CELL_OVERHEAD_BYTES;

/// The kind of a cell in a raw read.
pub(crate) fn cell_type(kind: CellKind) -> CellType {
    match kind {
        CellKind::Put | CellKind::Merge | CellKind::Reference | CellKind::ExpiringPut => CellType::Put,
        CellKind::DeleteVersion => CellType::Delete,
        CellKind::DeleteFamilyVersion => CellType::DeleteFamilyVersion,
        CellKind::DeleteColumn | CellKind::DeleteRange => CellType::DeleteColumn,
        CellKind::DeleteRow | CellKind::DeleteFamily => CellType::DeleteFamily,
    }
}

/// The name of a cell's family; empty for one that was dropped while the row was read.
pub(crate) fn family_name<'a>(schema: &'a TableSchema, cell: &Cell) -> &'a [u8] {
    schema
        .families
        .get(&cell.family)
        .map_or(&[], |family| family.name.as_bytes())
}

fn cell_ref<'a>(schema: &'a TableSchema, row: &'a [u8], cell: &'a Cell) -> CellRef<'a> {
    let kind = cell_type(cell.kind);
    CellRef {
        row,
        family: family_name(schema, cell),
        qualifier: &cell.qualifier,
        timestamp: times::shown(schema.time_unit, cell.timestamp),
        kind,
        // A tombstone over a range of times keeps the other end of the range there.
        value: if kind == CellType::Put { &cell.value } else { &[] },
    }
}

/// A row of a result, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct ResultRow {
    pub row: Bytes,
    /// In HBase's order.
    pub cells: Vec<Cell>,
}

impl ResultRow {
    /// Bytes of its encoded cells.
    pub fn encoded_len(&self, schema: &TableSchema) -> usize {
        encoded_lens(schema, &self.row, &self.cells).sum()
    }
}

/// Encoded bytes of each of some cells of a row.
pub(crate) fn encoded_lens<'a>(
    schema: &'a TableSchema,
    row: &'a [u8],
    cells: &'a [Cell],
) -> impl Iterator<Item = usize> + 'a {
    cells.iter().map(move |cell| cell_ref(schema, row, cell).encoded_len())
}

/// Rows of one table, as a cell block.
pub(crate) struct RowsBlock<'a> {
    pub schema: &'a TableSchema,
    pub rows: &'a [ResultRow],
}

impl CellBlock for RowsBlock<'_> {
    fn encoded_len(&self) -> usize {
        self.rows.iter().map(|row| row.encoded_len(self.schema)).sum()
    }

    fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        for row in self.rows {
            for cell in &row.cells {
                cell_ref(self.schema, &row.row, cell).encode(out)?;
            }
        }
        Ok(())
    }
}

/// The place of a response's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellPlace {
    /// In the cell block.
    Block,
    /// In the message, for clients without a codec.
    Message,
}

impl CellPlace {
    /// The result of a row. Its cells are in it, or go to the cell block.
    pub fn result(self, schema: &TableSchema, row: &ResultRow) -> RowResult {
        match self {
            CellPlace::Block => counted(row),
            CellPlace::Message => self.take_result(schema, &mut row.clone()),
        }
    }

    /// The same; cells that are in it leave the row.
    pub fn take_result(self, schema: &TableSchema, row: &mut ResultRow) -> RowResult {
        match self {
            CellPlace::Block => counted(row),
            CellPlace::Message => RowResult {
                cell: encoded_messages(schema, &row.row, std::mem::take(&mut row.cells)),
                ..RowResult::default()
            },
        }
    }

    /// Memory of the cells of a result.
    pub fn result_bytes(self, schema: &TableSchema, row: &ResultRow) -> usize {
        let encoded = row.encoded_len(schema);
        match self {
            CellPlace::Block => encoded,
            CellPlace::Message => encoded + row.cells.len() * size_of::<Bytes>(),
        }
    }
}

/// The result of a row whose cells go to the cell block.
fn counted(row: &ResultRow) -> RowResult {
    RowResult {
        associated_cell_count: Some(i32::try_from(row.cells.len()).unwrap_or(i32::MAX)),
        ..RowResult::default()
    }
}

/// A message for each cell, all in one buffer. Each takes less memory than its cell, which is dropped.
fn encoded_messages(schema: &TableSchema, row: &Bytes, cells: Vec<Cell>) -> Vec<Bytes> {
    let most: usize = encoded_lens(schema, row, &cells)
        .map(|len| len + MESSAGE_BYTES_MORE)
        .sum();
    let mut out = BytesMut::with_capacity(most);
    let mut messages = Vec::with_capacity(cells.len());
    for cell in cells {
        cell_message(schema, row, &cell).encode_raw(&mut out);
        messages.push(out.split().freeze());
    }
    messages
}

fn cell_message(schema: &TableSchema, row: &Bytes, cell: &Cell) -> CellMessage {
    let shown = cell_ref(schema, row, cell);
    CellMessage {
        row: Some(row.clone()),
        family: Some(Bytes::copy_from_slice(shown.family)),
        qualifier: Some(cell.qualifier.clone()),
        timestamp: Some(shown.timestamp as u64),
        cell_type: Some(shown.kind as i32),
        value: Some(if shown.value.is_empty() {
            Bytes::new()
        } else {
            cell.value.clone()
        }),
    }
}

/// Sorts the cells of a row as HBase does: families by name, and in raw reads tombstones between the cells.
pub(crate) fn sort(schema: &TableSchema, cells: &mut [Cell], raw: bool) {
    if raw {
        cells.sort_by(|a, b| {
            let column = |cell: &Cell| match cell.kind.has_qualifier() {
                true => cell.qualifier.clone(),
                false => Bytes::new(),
            };
            let by_column = family_name(schema, a)
                .cmp(family_name(schema, b))
                .then_with(|| column(a).cmp(&column(b)));
            by_column
                .then_with(|| b.timestamp.cmp(&a.timestamp))
                .then_with(|| (cell_type(b.kind) as u8).cmp(&(cell_type(a.kind) as u8)))
        });
    } else if !families_in_order(schema) {
        cells.sort_by(|a, b| family_name(schema, a).cmp(family_name(schema, b)));
    }
}

/// Whether the families' numbers are in the order of their names.
pub(crate) fn families_in_order(schema: &TableSchema) -> bool {
    schema.families.values().map(|family| &family.name).is_sorted()
}
