//! Assembles rows from the cells of a response.
//!
//! A server may split a row into partial rows. Each is a result of its own, marked partial unless it is the last one.
//! Parts of a row always follow one another, perhaps in different responses.

use crate::target::{Cell, Row};
use bytes::Bytes;
use stele_hbaseclient::Failure;
use stele_wire::cell::CellReader;

/// Cells for which memory is reserved before they have been read.
const CELLS_EXPECTED_MAX: usize = 1024;

/// Reads the cells of a response, result by result.
pub struct RowReader {
    cells: CellReader,
}

impl RowReader {
    /// Of this cell block.
    pub fn new(block: Bytes) -> Self {
        Self {
            cells: CellReader::new(block),
        }
    }

    /// The next result, which has `count` cells; `None` if that is zero.
    ///
    /// # Errors
    /// Fewer cells, bytes that are not cells, or cells of different rows.
    pub fn row(&mut self, count: usize) -> Result<Option<Row>, Failure> {
        if count == 0 {
            return Ok(None);
        }
        let first = self.cells.read()?;
        let mut row = Row {
            key: first.row.clone(),
            cells: Vec::with_capacity(count.min(CELLS_EXPECTED_MAX)),
        };
        row.cells.push(of_wire(first));
        for _ in 1..count {
            let cell = self.cells.read()?;
            if cell.row != row.key {
                return Err(Failure::Protocol("a result has cells of two rows".into()));
            }
            row.cells.push(of_wire(cell));
        }
        Ok(Some(row))
    }

    /// Checks that no cells are left.
    ///
    /// # Errors
    /// Cells that belong to no result.
    pub fn finish(self) -> Result<(), Failure> {
        match self.cells.remaining() {
            0 => Ok(()),
            rest => Err(Failure::Protocol(format!("{rest} bytes of cells belong to no result"))),
        }
    }
}

fn of_wire(cell: stele_wire::cell::Cell) -> Cell {
    Cell {
        family: cell.family,
        qualifier: cell.qualifier,
        timestamp: cell.timestamp,
        value: cell.value,
    }
}

/// Assembles partial rows.
#[derive(Debug, Default)]
pub struct Assembly {
    pending: Option<Row>,
}

impl Assembly {
    /// Takes a result, and returns the rows that are complete now, in order: a pending row that turns out to have
    /// ended, and this one.
    pub fn push(&mut self, piece: Row, partial: bool) -> (Option<Row>, Option<Row>) {
        let (ended, row) = match self.pending.take() {
            Some(mut pending) if pending.key == piece.key => {
                pending.cells.extend(piece.cells);
                (None, pending)
            }
            ended => (ended, piece),
        };
        if partial {
            self.pending = Some(row);
            return (ended, None);
        }
        (ended, Some(row))
    }

    /// The row that is pending: complete, if its region is finished.
    pub fn take(&mut self) -> Option<Row> {
        self.pending.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use stele_wire::cell::{CellRef, CellType};

    fn block(cells: &[(&str, &str)]) -> Bytes {
        let mut out = BytesMut::new();
        for (row, qualifier) in cells {
            let (row, qualifier) = (row.as_bytes(), qualifier.as_bytes());
            let cell = CellRef {
                row,
                family: b"f",
                qualifier,
                timestamp: 1,
                kind: CellType::Put,
                value: b"v",
            };
            cell.encode(&mut out).unwrap();
        }
        out.freeze()
    }

    fn piece(row: &str, qualifier: &str) -> Row {
        RowReader::new(block(&[(row, qualifier)])).row(1).unwrap().unwrap()
    }

    fn text(row: Option<Row>) -> String {
        let Some(row) = row else { return String::new() };
        let qualifiers: Vec<_> = row
            .cells
            .iter()
            .map(|c| c.qualifier.escape_ascii().to_string())
            .collect();
        format!("{}:{}", row.key.escape_ascii(), qualifiers.join(","))
    }

    #[test]
    fn a_result_has_exactly_its_cells() {
        let all = block(&[("a", "1"), ("a", "2"), ("b", "1")]);
        let mut reader = RowReader::new(all.clone());
        assert_eq!(text(reader.row(2).unwrap()), "a:1,2");
        assert_eq!(text(reader.row(0).unwrap()), "");
        assert!(reader.finish().is_err());
        assert!(RowReader::new(all.clone()).row(3).is_err(), "two rows");
        assert!(RowReader::new(all).row(4).is_err(), "too few");
    }

    #[test]
    fn pieces_become_one_row() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.push(piece("a", "1"), true), (None, None));
        assert_eq!(assembly.push(piece("a", "2"), true), (None, None));
        assert_eq!(text(assembly.push(piece("a", "3"), false).1), "a:1,2,3");
        assert_eq!(assembly.take(), None);
    }

    #[test]
    fn a_row_ends_where_another_begins() {
        let mut assembly = Assembly::default();
        assembly.push(piece("a", "1"), true);
        let (ended, complete) = assembly.push(piece("b", "1"), false);
        assert_eq!((text(ended), text(complete)), ("a:1".into(), "b:1".into()));
        assembly.push(piece("c", "1"), true);
        assert_eq!(text(assembly.take()), "c:1");
    }
}
