//! Encodes row batches: the results of reads.

use crate::cells::{CELL_BYTES, CellHeader, encode_data, encode_header};
use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use bytes::Bytes;
use stele_types::{ReadCounts, RowBatch};

const CONTINUES: u8 = 1;
const UNFINISHED: u8 = 2;
const UNSTABLE: u8 = 4;
const SCANNED: u8 = 8;

/// Bytes before the tables.
const FIXED_BYTES: usize = 29;

/// Bytes of one entry of the table of rows.
const ROW_BYTES: usize = 8;

/// The body of a frame of rows.
pub(crate) fn encode(batch: &RowBatch) -> Segments {
    let cells: usize = batch.rows().map(|(_, cells)| cells.len()).sum();
    let mut out = Segments::with_capacity(FIXED_BYTES + ROW_BYTES * batch.len() + (CELL_BYTES + 32) * cells);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(batch.continues, CONTINUES)
        | flag(batch.unfinished, UNFINISHED)
        | flag(batch.unstable, UNSTABLE)
        | flag(batch.scanned_through.is_some(), SCANNED));
    out.u64(batch.seen.rows);
    out.u64(batch.seen.cells);
    out.size(batch.len());
    out.size(cells);
    let scanned = batch.scanned_through.as_deref().unwrap_or_default();
    out.size(scanned.len());
    for (row, cells) in batch.rows() {
        out.size(row.len());
        out.size(cells.len());
    }
    for (_, cells) in batch.rows() {
        cells.iter().for_each(|cell| encode_header(cell, &mut out));
    }
    batch.rows().for_each(|(row, _)| out.slice(row));
    out.slice(scanned);
    for (_, cells) in batch.rows() {
        cells.iter().for_each(|cell| encode_data(cell, &mut out));
    }
    out
}

/// Reads a body. Qualifiers and values are slices of it.
pub(crate) fn decode(body: Bytes) -> Decoded<RowBatch> {
    let mut fields = Cursor::new("row batch", body);
    let flags = fields.flags(CONTINUES | UNFINISHED | UNSTABLE | SCANNED)?;
    let seen = ReadCounts {
        rows: fields.u64()?,
        cells: fields.u64()?,
    };
    let (rows, cells, scanned) = (fields.u32()? as usize, fields.u32()? as usize, fields.u32()? as usize);
    let tables = rows
        .checked_mul(ROW_BYTES)
        .zip(cells.checked_mul(CELL_BYTES))
        .and_then(|(rows, cells)| rows.checked_add(cells));
    if tables.is_none_or(|bytes| bytes > fields.left()) {
        return Err(fields.malformed("it has more rows and cells than bytes"));
    }
    let mut row_table = Cursor::new("row table", fields.slice(rows * ROW_BYTES)?);
    let mut cell_table = Cursor::new("cell table", fields.slice(cells * CELL_BYTES)?);
    let key_bytes = key_bytes(&row_table, rows, cells)?;
    let mut keys = Cursor::new("row keys", fields.slice(key_bytes)?);
    let scanned = fields.slice(scanned)?;
    let mut batch = RowBatch::default();
    if rows > 1 {
        batch = RowBatch::with_capacity(rows, key_bytes);
    }
    for _ in 0..rows {
        let key = row_table.u32()? as usize;
        let key = keys.slice(key)?;
        let count = row_table.u32()? as usize;
        let row: Decoded<Vec<_>> = (0..count)
            .map(|_| CellHeader::read(&mut cell_table)?.cell(&mut fields))
            .collect();
        match rows {
            1 => batch = RowBatch::of_row(key, row?),
            _ => {
                batch.push_cells(row?);
                batch.end_row(&key);
            }
        }
    }
    fields.finish()?;
    batch.continues = flags & CONTINUES != 0;
    batch.unfinished = flags & UNFINISHED != 0;
    batch.unstable = flags & UNSTABLE != 0;
    batch.scanned_through = (flags & SCANNED != 0).then_some(scanned);
    batch.seen = seen;
    Ok(batch)
}

/// The bytes of all keys. The numbers of cells, each of them positive, must be those of the table of cells.
fn key_bytes(row_table: &Cursor, rows: usize, cells: usize) -> Decoded<usize> {
    let mut table = Cursor::new("row table", row_table.whole().clone());
    let (mut bytes, mut sum) = (0usize, 0usize);
    for _ in 0..rows {
        bytes = bytes.saturating_add(table.u32()? as usize);
        let count = table.u32()? as usize;
        if count == 0 {
            return Err(table.malformed("a row has no cells"));
        }
        sum = sum.saturating_add(count);
    }
    match sum == cells {
        true => Ok(bytes),
        false => Err(table.malformed("the rows have another number of cells")),
    }
}

#[cfg(test)]
mod tests;
