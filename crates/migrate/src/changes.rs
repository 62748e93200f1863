//! From scanned cells to changes of rows.
//!
//! A row's puts and its deletes are changes of their own, and so are puts with a lifetime. Their order is of no effect:
//! each cell has its timestamp, and deletes act by timestamp.
//!
//! Of cells that differ only in their values the scan returns the newest first, and only that one is kept: written one
//! after another, the oldest would win.

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use stele_cli::escape::escape;
use stele_hbaseclient::batch::RowChange;
use stele_wire::cell::{Cell, CellRef, CellType};
use stele_wire::messages::{Durability, MutationProto, MutationType, NameBytesPair};
use stele_wire::{WireError, tags};

/// Most cells of a change; a wider row becomes several. A server converts a change without a pause.
const CELLS_MAX: usize = 10_000;

/// Attribute of a mutation: the lifetime of its cells.
const LIFETIME: &str = "_ttl";

/// Cells of one row that are written together.
#[derive(Debug)]
pub struct Change {
    kind: MutationType,
    lifetime_ms: Option<i64>,
    /// Not empty.
    cells: Vec<Cell>,
    bytes: usize,
    row: Bytes,
}

impl Change {
    /// Whether its cells are tombstones.
    pub fn is_delete(&self) -> bool {
        self.kind == MutationType::Delete
    }

    fn is_full(&self) -> bool {
        self.cells.len() >= CELLS_MAX
    }
}

fn encoded(cell: &Cell) -> CellRef<'_> {
    CellRef {
        row: &cell.row,
        family: &cell.family,
        qualifier: &cell.qualifier,
        timestamp: cell.timestamp,
        kind: cell.kind,
        value: &cell.value,
    }
}

impl RowChange for Change {
    fn row(&self) -> &Bytes {
        &self.row
    }

    fn cell_bytes(&self) -> usize {
        self.bytes
    }

    fn proto(&self) -> MutationProto {
        let lifetime = self.lifetime_ms.map(|ms| NameBytesPair {
            name: LIFETIME.to_owned(),
            value: Some(Bytes::copy_from_slice(&ms.to_be_bytes())),
        });
        MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(self.kind as i32),
            attribute: lifetime.into_iter().collect(),
            // A continued copy passes over rows that were acknowledged, also in a table that otherwise writes no log.
            durability: Some(Durability::FsyncWal as i32),
            associated_cell_count: Some(self.cells.len() as i32),
            ..MutationProto::default()
        }
    }

    fn encode_cells(&self, out: &mut BytesMut) -> Result<(), WireError> {
        self.cells.iter().try_for_each(|cell| encoded(cell).encode(out))
    }
}

/// Numbers of things that have been copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows begun.
    pub rows: u64,
    /// Cells.
    pub cells: u64,
}

/// Makes changes of the cells of a scan, in its order.
#[derive(Debug)]
pub struct Converter {
    /// Whether tags without a meaning for the target are left out.
    ignore_tags: bool,
    /// The row of the last cell.
    row: Option<Bytes>,
    /// Its cells that were counted.
    row_cells: u64,
    /// Of these, cells that come once more.
    repeated: u64,
    /// The last cell, without its value, unless its row begins again.
    last: Option<Cell>,
}

impl Converter {
    /// At the beginning of a scan.
    pub fn new(ignore_tags: bool) -> Self {
        Self {
            ignore_tags,
            row: None,
            row_cells: 0,
            repeated: 0,
            last: None,
        }
    }

    /// The last row begins again: its cells come once more, perhaps with other values, and are counted once.
    pub fn again(&mut self) {
        self.repeated = self.row_cells;
        self.last = None;
    }

    /// Converts the next cells.
    ///
    /// # Errors
    /// Tags that the target does not have, or bytes that are no tags.
    pub fn convert(&mut self, cells: Vec<(Cell, Bytes)>) -> Result<(Vec<Change>, Counts)> {
        let (mut changes, mut counts): (Vec<Change>, Counts) = Default::default();
        // The last change of the row for each kind and lifetime. A row may have as many lifetimes as cells.
        let mut last_changes: HashMap<(MutationType, Option<i64>), usize> = HashMap::new();
        for (cell, tags) in cells {
            let same_row = self.row.as_ref() == Some(&cell.row);
            if same_row && self.last.as_ref().is_some_and(|last| is_again(last, &cell)) {
                continue;
            }
            if !same_row {
                last_changes.clear();
                counts.rows += 1;
                self.row = Some(cell.row.clone());
                (self.row_cells, self.repeated) = (0, 0);
            }
            match self.repeated.checked_sub(1) {
                Some(repeated) => self.repeated = repeated,
                None => {
                    counts.cells += 1;
                    self.row_cells += 1;
                }
            }
            self.last = Some(Cell {
                value: Bytes::new(),
                ..cell.clone()
            });
            let kind = match cell.kind {
                CellType::Put => MutationType::Put,
                _ => MutationType::Delete,
            };
            let lifetime_ms = self.lifetime(&cell, tags)?;
            let bytes = encoded(&cell).encoded_len();
            let last = last_changes.get(&(kind, lifetime_ms));
            let last = last.and_then(|at| changes.get_mut(*at));
            match last.filter(|change| !change.is_full()) {
                Some(change) => {
                    change.bytes += bytes;
                    change.cells.push(cell);
                }
                None => {
                    last_changes.insert((kind, lifetime_ms), changes.len());
                    changes.push(Change {
                        kind,
                        lifetime_ms,
                        bytes,
                        row: cell.row.clone(),
                        cells: vec![cell],
                    });
                }
            }
        }
        Ok((changes, counts))
    }

    fn lifetime(&self, cell: &Cell, tags: Bytes) -> Result<Option<i64>> {
        if tags.is_empty() {
            return Ok(None);
        }
        let row = || escape(&cell.row);
        let tags = tags::read(tags).with_context(|| format!("row {}: a cell has broken tags", row()))?;
        if let Some(kind) = tags.foreign.filter(|_| !self.ignore_tags) {
            bail!(
                "row {}: a cell has a tag of type {kind}, which would be lost; --ignore-tags copies it without",
                row()
            );
        }
        Ok(tags.lifetime_ms.filter(|_| cell.kind == CellType::Put))
    }
}

/// Whether two cells differ at most in their values.
fn is_again(last: &Cell, cell: &Cell) -> bool {
    last.timestamp == cell.timestamp
        && last.kind == cell.kind
        && last.qualifier == cell.qualifier
        && last.family == cell.family
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &'static str, timestamp: i64, kind: CellType, value: &'static str) -> Cell {
        Cell {
            row: row.into(),
            family: "f".into(),
            qualifier: "q".into(),
            timestamp,
            kind,
            value: value.into(),
        }
    }

    /// Changes as `row kind lifetime: value@time ...`.
    fn shown(changes: &[Change]) -> Vec<String> {
        let cell = |cell: &Cell| format!("{}@{}", cell.value.escape_ascii(), cell.timestamp);
        let change = |change: &Change| {
            let cells: Vec<_> = change.cells.iter().map(cell).collect();
            let row = change.row.escape_ascii();
            format!("{row} {:?} {:?}: {}", change.kind, change.lifetime_ms, cells.join(" "))
        };
        changes.iter().map(change).collect()
    }

    fn plain(cells: &[Cell]) -> Vec<(Cell, Bytes)> {
        cells.iter().map(|cell| (cell.clone(), Bytes::new())).collect()
    }

    #[test]
    fn puts_and_deletes_of_a_row_are_changes_of_their_own() {
        let cells = [
            cell("a", 9, CellType::DeleteFamily, ""),
            cell("a", 8, CellType::Put, "x"),
            cell("a", 7, CellType::Delete, ""),
            cell("a", 7, CellType::Put, "y"),
            cell("b", 7, CellType::Put, "z"),
        ];
        let (changes, counts) = Converter::new(false).convert(plain(&cells)).unwrap();
        assert_eq!(
            shown(&changes),
            ["a Delete None: @9 @7", "a Put None: x@8 y@7", "b Put None: z@7"]
        );
        assert_eq!(counts, Counts { rows: 2, cells: 5 });
        let logged = |change: &Change| change.proto().durability == Some(Durability::FsyncWal as i32);
        assert!(changes.iter().all(logged));
        let mut out = BytesMut::new();
        changes[1].encode_cells(&mut out).unwrap();
        assert_eq!(out.len(), changes[1].cell_bytes());
    }

    #[test]
    fn of_cells_at_one_place_the_first_is_kept_across_responses_too() {
        let mut converter = Converter::new(false);
        let first = [cell("a", 7, CellType::Put, "new"), cell("a", 7, CellType::Put, "old")];
        assert_eq!(
            shown(&converter.convert(plain(&first)).unwrap().0),
            ["a Put None: new@7"]
        );
        let second = [cell("a", 7, CellType::Put, "older"), cell("a", 6, CellType::Put, "x")];
        let (changes, counts) = converter.convert(plain(&second)).unwrap();
        assert_eq!(shown(&changes), ["a Put None: x@6"]);
        assert_eq!(counts, Counts { rows: 0, cells: 1 });
    }

    #[test]
    fn cells_of_a_row_that_begins_again_are_written_once_more_and_counted_once() {
        let mut converter = Converter::new(false);
        let counted = |counts: Counts| (counts.rows, counts.cells);
        let first = [cell("a", 9, CellType::Put, "x"), cell("b", 7, CellType::Put, "old")];
        assert_eq!(counted(converter.convert(plain(&first)).unwrap().1), (2, 2));
        converter.again();
        let second = [
            cell("b", 7, CellType::Put, "overwritten"),
            cell("b", 6, CellType::Put, "y"),
        ];
        let (changes, counts) = converter.convert(plain(&second)).unwrap();
        assert_eq!(shown(&changes), ["b Put None: overwritten@7 y@6"]);
        assert_eq!(counted(counts), (0, 1));
        converter.again();
        let third = [cell("c", 7, CellType::Put, "x")];
        assert_eq!(
            counted(converter.convert(plain(&third)).unwrap().1),
            (1, 1),
            "b is gone"
        );
    }

    #[test]
    fn cells_of_one_lifetime_are_changes_of_some_cells_each() {
        let tag = |ms: i64| -> Bytes { [&[0, 9, 8][..], &ms.to_be_bytes()].concat().into() };
        let count = 2 * CELLS_MAX as i64 + 2;
        let put = |at: i64| (cell("a", count - at, CellType::Put, "x"), tag(1 + at % 2));
        let cells: Vec<_> = (0..count)
            .map(put)
            .chain([(cell("b", 1, CellType::Put, "y"), tag(1))])
            .collect();
        let (changes, counts) = Converter::new(false).convert(cells).unwrap();
        let shapes: Vec<_> = changes
            .iter()
            .map(|c| (&c.row[..], c.lifetime_ms, c.cells.len()))
            .collect();
        assert_eq!(
            shapes,
            [
                (&b"a"[..], Some(1), CELLS_MAX),
                (b"a", Some(2), CELLS_MAX),
                (b"a", Some(1), 1),
                (b"a", Some(2), 1),
                (b"b", Some(1), 1),
            ]
        );
        assert_eq!(counts.cells, count as u64 + 1);
        // In minutes if each cell were compared with those before it.
        let each: Vec<_> = (0..100_000)
            .map(|at| (cell("a", 200_000 - at, CellType::Put, "x"), tag(at + 1)))
            .collect();
        assert_eq!(Converter::new(false).convert(each).unwrap().0.len(), 100_000);
    }

    #[test]
    fn a_lifetime_becomes_one_of_the_mutation_and_other_tags_are_errors() {
        let tag = |kind: u8, value: &[u8]| -> Bytes { [&[0, value.len() as u8 + 1, kind][..], value].concat().into() };
        let put = cell("a", 7, CellType::Put, "x");
        let with = |tags: Bytes| vec![(put.clone(), tags)];
        let lifetime = with(tag(8, &5000i64.to_be_bytes()));
        let (changes, _) = Converter::new(false).convert(lifetime).unwrap();
        assert_eq!(shown(&changes), ["a Put Some(5000): x@7"]);
        assert_eq!(changes[0].proto().attribute[0].name, "_ttl");
        let label = with(tag(2, b"secret"));
        let refused = Converter::new(false).convert(label.clone()).unwrap_err().to_string();
        assert!(refused.contains("row a") && refused.contains("type 2"), "{refused}");
        assert_eq!(Converter::new(true).convert(label).unwrap().1.cells, 1);
        assert!(Converter::new(true).convert(with(Bytes::from_static(&[9]))).is_err());
    }
}
