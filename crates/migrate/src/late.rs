//! Finds rows whose tombstones are written once more.
//!
//! A scan returns a tombstone before the cells that it hides. If the target gets those much later, a compaction may have
//! dropped the tombstone by then, and the cells would be visible. A row of several responses may take minutes. A row may also
//! be deleted while it is read: the peer ships the tombstone then, and it may be gone before the last cells come.
//!
//! Such a row's tombstones are read and written again after its last cell. They are not kept meanwhile: a row may have
//! more of them than fit into memory.
//!
//! Pure: no clock, no network.

use bytes::Bytes;
use std::time::{Duration, Instant};
use stele_hbaseclient::scan::Cells;
use stele_wire::cell::{Cell, CellType};

/// Time after which a tombstone may be gone. A tombstone is in a file first, which a compaction must find then.
pub const LATE: Duration = Duration::from_secs(10);

/// Follows the responses of a scan.
#[derive(Debug, Default)]
pub struct LateRows {
    pending: Option<Pending>,
}

/// A row that is not whole.
#[derive(Debug)]
struct Pending {
    row: Bytes,
    /// When its first cells came.
    since: Instant,
    has_tombstones: bool,
    /// Whether it has cells of a later response, too.
    is_long: bool,
}

impl LateRows {
    /// Notes the next cells of the scan. Returns the row whose tombstones are to be written again after these cells.
    pub fn note(&mut self, cells: &Cells, now: Instant) -> Option<Bytes> {
        let is_whole = |row: &Bytes| cells.whole.as_ref().is_some_and(|whole| row <= whole);
        // The cells of a row that begins again are all in later responses, as are its tombstones.
        let mut pending = self.pending.take().filter(|_| !cells.again);
        if let Some(long) = &mut pending {
            let more = cells.cells.iter().take_while(|(cell, _)| cell.row == long.row);
            for (cell, _) in more {
                long.is_long = true;
                long.has_tombstones |= is_tombstone(cell);
            }
        }
        let done = pending.take_if(|pending| is_whole(&pending.row));
        self.pending = pending.or_else(|| {
            let (last, _) = cells.cells.last().filter(|(last, _)| !is_whole(&last.row))?;
            let of_row = |cell: &Cell| cell.row == last.row;
            let mut of_row = cells.cells.iter().rev().take_while(|(cell, _)| of_row(cell));
            Some(Pending {
                // A copy: the row is a slice of a whole response.
                row: Bytes::copy_from_slice(&last.row),
                since: now,
                has_tombstones: of_row.any(|(cell, _)| is_tombstone(cell)),
                is_long: false,
            })
        });
        let is_late = |row: &Pending| row.is_long && (row.has_tombstones || now - row.since > LATE);
        done.filter(is_late).map(|done| done.row)
    }
}

/// Whether a cell hides others.
pub fn is_tombstone(cell: &Cell) -> bool {
    cell.kind != CellType::Put
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of rows: `-a` is a tombstone of row `a`, `+a` a put.
    fn cells(text: &str, whole: &'static str) -> Cells {
        let cell = |word: &str| {
            let (kind, row) = word.split_at(1);
            let cell = Cell {
                row: Bytes::copy_from_slice(row.as_bytes()),
                family: "f".into(),
                qualifier: "q".into(),
                timestamp: 1,
                kind: if kind == "-" {
                    CellType::DeleteFamily
                } else {
                    CellType::Put
                },
                value: Bytes::new(),
            };
            (cell, Bytes::new())
        };
        Cells {
            cells: text.split_whitespace().map(cell).collect(),
            whole: (!whole.is_empty()).then(|| whole.into()),
            ..Cells::default()
        }
    }

    #[test]
    fn rows_of_several_responses_with_tombstones_are_late() {
        let (mut late, now) = (LateRows::default(), Instant::now());
        let mut note = |text: &str, whole| late.note(&cells(text, whole), now);
        assert_eq!(note("-a +a -b", "a"), None, "row a came at once");
        assert_eq!(note("+b", ""), None, "it is not whole");
        assert_eq!(note("+b +c", "b"), Some("b".into()));
        assert_eq!(note("+c +d", "c"), None, "no tombstone");
        assert_eq!(note("-d", ""), None);
        assert_eq!(note("", "d"), Some("d".into()), "whole without more cells");
        assert_eq!(note("-e", ""), None);
        assert_eq!(note("", "e"), None, "in one response");
    }

    #[test]
    fn rows_that_took_long_are_late() {
        let (mut late, now) = (LateRows::default(), Instant::now());
        assert_eq!(late.note(&cells("+a", ""), now), None);
        let after = now + LATE + Duration::from_secs(1);
        assert_eq!(late.note(&cells("+a +b", "a"), after), Some("a".into()));
        assert_eq!(late.note(&cells("+b", "b"), after), None);
    }

    #[test]
    fn a_row_that_begins_again_is_as_new() {
        let (mut late, now) = (LateRows::default(), Instant::now());
        assert_eq!(late.note(&cells("-a", ""), now), None);
        let again = Cells {
            again: true,
            ..cells("-a +a +b", "a")
        };
        assert_eq!(late.note(&again, now), None);
        assert_eq!(late.note(&cells("+b", "b"), now), None, "row b has no tombstone");
    }
}
