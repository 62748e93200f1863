//! The rows of the clients: their names, changes and content.
//!
//! A register has a value with filler, and a *mark* in another family: the number of the row's last change, and whether that was a
//! deletion. So the content of a row tells which change it is of, and that it has all of it. A row that was deleted
//! as a whole has neither.

use super::super::{COUNTS, LETTERS, VALUES};
use bytes::Bytes;
use stele_types::{Cell, Mutation, RowMutation, RowRange, Timestamp};

/// Rows of values in a tablet.
pub(super) const ROWS: u64 = 3;
/// The column of marks.
const MARK: &[u8] = b"m";
/// The kinds of deletions.
pub(super) const DELETIONS: u64 = 5;

/// A change of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Puts a value and its mark.
    Put(u64),
    /// Deletes the value in a way of this number, and puts a mark.
    DeleteValue(u64, u64),
    /// Deletes the row.
    DeleteRow,
}

impl Change {
    /// The number that a read finds afterwards.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Change::Put(number) | Change::DeleteValue(number, _) => Some(number),
            Change::DeleteRow => None,
        }
    }

    /// The change as a request has it.
    pub(super) fn of(self, row: &Bytes) -> RowMutation {
        let mutations = match self {
            Change::Put(number) => vec![put_value(number), put_mark(number, false)],
            Change::DeleteValue(number, way) => vec![delete_value(way), put_mark(number, true)],
            Change::DeleteRow => vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
        };
        RowMutation {
            row: row.clone(),
            mutations,
        }
    }
}

/// A value with filler, so that memtables and log segments fill up.
fn put_value(number: u64) -> Mutation {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(64 + (number % 7) as usize * 80, number as u8);
    Mutation::Put {
        family: VALUES,
        qualifier: Bytes::new(),
        timestamp: Timestamp(1),
        value: bytes.into(),
    }
}

fn put_mark(number: u64, deletes: bool) -> Mutation {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.push(u8::from(deletes));
    Mutation::Put {
        family: COUNTS,
        qualifier: Bytes::from_static(MARK),
        timestamp: Timestamp(1),
        value: bytes.into(),
    }
}

fn delete_value(way: u64) -> Mutation {
    let (family, qualifier) = (VALUES, Bytes::new());
    match way % (DELETIONS - 1) {
        0 => Mutation::DeleteFamily {
            family,
            up_to: Timestamp::MAX,
        },
        1 => Mutation::DeleteColumn {
            family,
            qualifier,
            from: Timestamp::MIN,
            to: Timestamp::MAX,
        },
        2 => Mutation::DeleteFamilyVersion {
            family,
            timestamp: Timestamp(1),
        },
        _ => Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp: Timestamp(1),
        },
    }
}

/// The number of the change that a register is of, and none if there is no row. Fails if the cells are not those of one change.
pub(super) fn content(cells: &[Cell]) -> Result<Option<u64>, String> {
    let (marks, values): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.qualifier == MARK);
    let torn = || format!("the cells are not those of one change: marks {marks:?}, values {values:?}");
    match (marks.as_slice(), values.as_slice()) {
        ([], []) => Ok(None),
        ([mark], values) => {
            let found = number(mark).ok_or_else(torn)?;
            let deletes = mark.value.get(8) == Some(&1);
            let is_whole = match values {
                [] => deletes,
                [value] => !deletes && number(value) == Some(found),
                _ => false,
            };
            is_whole.then_some(Some(found)).ok_or_else(torn)
        }
        _ => Err(torn()),
    }
}

/// The number that a cell begins with.
pub(super) fn number(cell: &Cell) -> Option<u64> {
    Some(u64::from_be_bytes(cell.value.get(..8)?.try_into().ok()?))
}

pub(super) fn of_register(letter: usize, number: u64) -> Bytes {
    Bytes::from(format!("{}r{number}", LETTERS[letter]))
}

pub(super) fn of_counter(letter: usize) -> Bytes {
    Bytes::from(format!("{}n", LETTERS[letter]))
}

pub(super) fn is_counter(row: &[u8]) -> bool {
    row.ends_with(b"n")
}

/// All rows of a range that any client writes, in order.
pub(super) fn rows_of(range: &RowRange) -> Vec<Bytes> {
    let registers = |letter| (0..ROWS).map(move |number| of_register(letter, number));
    let all = (0..LETTERS.len()).flat_map(|letter| [of_counter(letter)].into_iter().chain(registers(letter)));
    let rows: Vec<Bytes> = all.filter(|row| range.contains(row)).collect();
    debug_assert!(rows.is_sorted(), "names of counters are before those of registers");
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(mutations: &[Mutation]) -> Vec<Cell> {
        let puts = mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => Some(Cell::put(*family, qualifier.clone(), *timestamp, value.clone())),
            _ => None,
        });
        puts.collect()
    }

    #[test]
    fn a_row_tells_which_change_it_is_of() {
        let row = of_register(0, 1);
        for change in [Change::Put(7), Change::DeleteValue(8, 0), Change::DeleteRow] {
            let found = content(&cells(&change.of(&row).mutations));
            assert_eq!(found, Ok(change.number()), "{change:?}");
        }
    }

    #[test]
    fn parts_of_two_changes_are_noticed() {
        let (value, other, deletion) = (put_value(1), put_mark(2, false), put_mark(1, true));
        for torn in [
            vec![value.clone()],
            vec![other.clone()],
            vec![value.clone(), other],
            vec![value, deletion],
        ] {
            assert!(content(&cells(&torn)).is_err(), "{torn:?}");
        }
    }

    #[test]
    fn the_rows_of_a_range_are_in_order() {
        let all = rows_of(&RowRange::all());
        assert_eq!(all.len(), LETTERS.len() * (ROWS as usize + 1));
        let some = rows_of(&RowRange {
            start: of_register(1, 2),
            end: Some(of_register(2, 1)),
        });
        assert_eq!(some, [of_register(1, 2), of_counter(2), of_register(2, 0)]);
    }
}
