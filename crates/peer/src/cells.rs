//! The table of cells that row batches and outcomes share, and the data behind it.
//!
//! Headers stand together and have a fixed size, so a reader finds each value by adding lengths. Values are slices of the frame:
//! a batch passes a server without its values being copied.

use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use stele_types::{Cell, CellKind, FamilyId, Labels, Timestamp};

/// Bytes of one entry of the table.
pub(crate) const CELL_BYTES: usize = 24;

/// Appends the entry of a cell. Labels beyond the format's limits cannot be made by a valid filter.
pub(crate) fn encode_header(cell: &Cell, out: &mut Segments) {
    out.u32(cell.family.0);
    out.u8(cell.kind as u8);
    out.u8(u8::try_from(cell.labels.len()).unwrap_or(u8::MAX));
    out.u16(0);
    out.size(cell.qualifier.len());
    out.size(cell.value.len());
    out.i64(cell.timestamp.0);
}

/// Appends the data of a cell.
pub(crate) fn encode_data(cell: &Cell, out: &mut Segments) {
    out.shared(&cell.qualifier);
    out.shared(&cell.value);
    for label in cell.labels.iter().take(usize::from(u8::MAX)) {
        let end = label.floor_char_boundary(usize::from(u8::MAX));
        out.u8(end as u8);
        out.slice(&label.as_bytes()[..end]);
    }
}

/// An entry of the table.
#[derive(Clone, Copy)]
pub(crate) struct CellHeader {
    family: FamilyId,
    kind: CellKind,
    labels: u8,
    qualifier: usize,
    value: usize,
    timestamp: Timestamp,
}

impl CellHeader {
    /// Reads an entry.
    pub fn read(table: &mut Cursor) -> Decoded<CellHeader> {
        let family = FamilyId(table.u32()?);
        let kind = CellKind::from_byte(table.u8()?).filter(|kind| *kind != CellKind::Reference);
        let kind = kind.ok_or_else(|| table.malformed("an unknown kind of cell"))?;
        let labels = table.u8()?;
        if table.u16()? != 0 {
            return Err(table.malformed("a reserved field is not zero"));
        }
        Ok(CellHeader {
            family,
            kind,
            labels,
            qualifier: table.u32()? as usize,
            value: table.u32()? as usize,
            timestamp: Timestamp(table.i64()?),
        })
    }

    /// Reads the data of the cell.
    pub fn cell(self, data: &mut Cursor) -> Decoded<Cell> {
        let (qualifier, value) = (data.slice(self.qualifier)?, data.slice(self.value)?);
        let mut labels = Labels::none();
        for _ in 0..self.labels {
            let len = usize::from(data.u8()?);
            labels.push(data.text(len)?);
        }
        Ok(Cell {
            family: self.family,
            kind: self.kind,
            qualifier,
            timestamp: self.timestamp,
            value,
            labels,
        })
    }
}

/// Appends a number of cells, their table and their data.
pub(crate) fn encode_list(cells: &[Cell], out: &mut Segments) {
    out.size(cells.len());
    cells.iter().for_each(|cell| encode_header(cell, out));
    cells.iter().for_each(|cell| encode_data(cell, out));
}

/// Reads cells that were appended with their number.
pub(crate) fn decode_list(fields: &mut Cursor) -> Decoded<Vec<Cell>> {
    let count = fields.count(CELL_BYTES)?;
    let headers: Decoded<Vec<CellHeader>> = (0..count).map(|_| CellHeader::read(fields)).collect();
    headers?.into_iter().map(|header| header.cell(fields)).collect()
}
