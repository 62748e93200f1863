//! Digests of rows, which compare rows of any size in little memory.
//!
//! A digest is the number of a row's cells and the sum of their 128-bit hashes, so the order of cells is of no effect.

use anyhow::Result;
use bytes::Bytes;
use std::collections::VecDeque;
use stele_hbaseclient::scan::{Cells, Scanner};
use stele_wire::cell::Cell;
use xxhash_rust::xxh3::Xxh3;

/// Digest of a row; that of no cells stands for a missing row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowDigest {
    /// Number of cells.
    pub cells: u64,
    /// Sum of their hashes.
    pub sum: u128,
}

impl RowDigest {
    /// Adds a cell: family, qualifier, timestamp, kind and value.
    pub fn add(&mut self, cell: &Cell) {
        let mut hash = Xxh3::new();
        for part in [&cell.family, &cell.qualifier, &cell.value] {
            // Lengths keep ["ab", "c"] apart from ["a", "bc"].
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(&cell.timestamp.to_le_bytes());
        hash.update(&[cell.kind as u8]);
        self.cells += 1;
        self.sum = self.sum.wrapping_add(hash.digest128());
    }
}

/// The digests of a scan's rows, in their order.
pub struct RowDigests {
    scanner: Scanner,
    rows: Rows,
    /// Bytes received.
    pub bytes: u64,
}

impl RowDigests {
    /// Of this scan.
    pub fn new(scanner: Scanner) -> Self {
        Self {
            scanner,
            rows: Rows::default(),
            bytes: 0,
        }
    }

    /// The next row and its digest.
    ///
    /// # Errors
    /// Those of the scan.
    pub async fn next(&mut self) -> Result<Option<(Bytes, RowDigest)>> {
        loop {
            if let Some(row) = self.rows.whole.pop_front() {
                return Ok(Some(row));
            }
            match self.scanner.next().await? {
                None => return Ok(self.rows.pending.take()),
                Some(cells) => {
                    self.bytes += cells.bytes;
                    self.rows.take(&cells);
                }
            }
        }
    }
}

/// Rows of which cells have arrived.
#[derive(Debug, Default)]
struct Rows {
    whole: VecDeque<(Bytes, RowDigest)>,
    /// The last row, of which more may come.
    pending: Option<(Bytes, RowDigest)>,
}

impl Rows {
    fn take(&mut self, cells: &Cells) {
        if cells.again {
            self.pending = None;
        }
        for (cell, _) in &cells.cells {
            match &mut self.pending {
                Some((row, digest)) if *row == cell.row => digest.add(cell),
                _ => {
                    self.whole.extend(self.pending.take());
                    let mut digest = RowDigest::default();
                    digest.add(cell);
                    self.pending = Some((cell.row.clone(), digest));
                }
            }
        }
        let is_whole = |(row, _): &mut (Bytes, RowDigest)| cells.whole.as_ref().is_some_and(|whole| *row <= *whole);
        self.whole.extend(self.pending.take_if(is_whole));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_wire::cell::CellType;

    fn cell(row: &'static str, qualifier: &'static str) -> (Cell, Bytes) {
        let cell = Cell {
            row: row.into(),
            family: "f".into(),
            qualifier: qualifier.into(),
            timestamp: 1,
            kind: CellType::Put,
            value: "v".into(),
        };
        (cell, Bytes::new())
    }

    fn cells(cells: &[(Cell, Bytes)], again: bool, whole: Option<&'static str>) -> Cells {
        Cells {
            cells: cells.to_vec(),
            again,
            whole: whole.map(Bytes::from),
            bytes: 0,
        }
    }

    fn digest(qualifiers: &[&'static str]) -> RowDigest {
        let mut digest = RowDigest::default();
        qualifiers
            .iter()
            .for_each(|qualifier| digest.add(&cell("r", qualifier).0));
        digest
    }

    #[test]
    fn every_part_of_a_cell_counts_and_their_order_does_not() {
        let base = cell("r", "q").0;
        let of = |cell: Cell| {
            let mut digest = RowDigest::default();
            digest.add(&cell);
            digest
        };
        let different = [
            Cell {
                family: "fq".into(),
                qualifier: "".into(),
                ..base.clone()
            },
            Cell {
                qualifier: "q2".into(),
                ..base.clone()
            },
            Cell {
                timestamp: 2,
                ..base.clone()
            },
            Cell {
                kind: CellType::Delete,
                ..base.clone()
            },
            Cell {
                value: "".into(),
                ..base.clone()
            },
        ];
        for other in different {
            assert_ne!(of(other.clone()), of(base.clone()), "{other:?}");
        }
        assert_eq!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["a", "a"]), digest(&["a"]));
    }

    #[test]
    fn a_row_that_is_read_once_more_counts_once() {
        let mut rows = Rows::default();
        rows.take(&cells(&[cell("a", "1"), cell("b", "1")], false, Some("a")));
        assert_eq!(rows.whole.len(), 1);
        rows.take(&cells(&[cell("b", "1"), cell("b", "2")], true, None));
        rows.take(&cells(&[], false, Some("b")));
        let all: Vec<_> = rows.whole.into_iter().collect();
        assert_eq!(all, [("a".into(), digest(&["1"])), ("b".into(), digest(&["1", "2"]))]);
        assert_eq!(rows.pending, None);
    }

    #[test]
    fn a_row_that_goes_while_it_is_read_does_not_count() {
        let mut rows = Rows::default();
        rows.take(&cells(&[cell("a", "1"), cell("b", "1")], false, Some("a")));
        rows.take(&cells(&[], true, None));
        assert_eq!((rows.whole.len(), rows.pending), (1, None));
    }
}
