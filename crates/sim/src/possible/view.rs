//! The filter of a read, for the server and for the checker.
//!
//! The checker's half is written from `docs/filters.md` alone in the plainest way: over the whole row, one filter after
//! the other. Nothing is pushed down, skipped or compiled. It shares only the names of the kinds with the engine's
//! filters.

use bytes::Bytes;
use std::cmp::Reverse;
use std::ops::Bound;
use stele_filter::Filter;
use stele_types::{Cell, FamilyId, Timestamp};

/// A filter of the kinds under test. Values begin with a number of eight bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// Everything.
    All,
    /// The newest cells of each column.
    NewestOfColumn(i32),
    /// The first cells of the row.
    FirstOfRow(i32),
    /// All but the first cells of the row.
    AfterFirst(i32),
    /// Columns of one family.
    Columns {
        /// The family and its name.
        family: (FamilyId, &'static str),
        /// The first qualifier.
        from: Bytes,
        /// The first qualifier beyond the range; `None` is no limit.
        to: Option<Bytes>,
    },
    /// Cells in a range of timestamps.
    Times {
        /// The first timestamp.
        from: i64,
        /// The first timestamp beyond the range; `None` is no limit.
        to: Option<i64>,
    },
    /// Cells whose values begin with a number in a range.
    Numbers {
        /// The first number.
        from: u64,
        /// The first number beyond the range.
        to: u64,
    },
    /// Everything, without values.
    Stripped,
    /// The second filter applied to the result of the first.
    Chain(Box<View>, Box<View>),
    /// The results of both, with duplicates.
    Both(Box<View>, Box<View>),
}

impl View {
    /// The filter as the server takes it.
    pub fn filter(&self) -> Filter {
        let number = |n: &u64| Bytes::copy_from_slice(&n.to_be_bytes());
        match self {
            View::All => Filter::PassAll,
            View::NewestOfColumn(most) => Filter::CellsPerColumn(*most),
            View::FirstOfRow(most) => Filter::CellsPerRow(*most),
            View::AfterFirst(count) => Filter::CellsPerRowOffset(*count),
            View::Columns { family, from, to } => Filter::ColumnRange {
                family: family.1.to_owned(),
                start: Bound::Included(from.clone()),
                end: to.clone().map_or(Bound::Unbounded, Bound::Excluded),
            },
            View::Times { from, to } => Filter::TimestampRange { start: *from, end: *to },
            View::Numbers { from, to } => Filter::ValueRange {
                start: Bound::Included(number(from)),
                end: Bound::Excluded(number(to)),
            },
            View::Stripped => Filter::StripValue,
            View::Chain(first, second) => Filter::Chain(vec![first.filter(), second.filter()]),
            View::Both(one, other) => Filter::Interleave(vec![one.filter(), other.filter()]),
        }
    }

    /// The result for a row's cells, which are in order.
    pub fn of(&self, mut cells: Vec<Cell>) -> Vec<Cell> {
        match self {
            View::All => {}
            View::NewestOfColumn(most) => return newest_of_column(cells, *most),
            View::FirstOfRow(most) => cells.truncate(count(*most)),
            View::AfterFirst(first) => return cells.into_iter().skip(count(*first)).collect(),
            View::Columns { family, from, to } => cells.retain(|cell| {
                cell.family == family.0 && *from <= cell.qualifier && to.as_ref().is_none_or(|to| cell.qualifier < *to)
            }),
            View::Times { from, to } => cells.retain(|cell| {
                Timestamp(*from) <= cell.timestamp && to.is_none_or(|to| cell.timestamp < Timestamp(to))
            }),
            View::Numbers { from, to } => cells.retain(|cell| {
                let number = cell.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                number.is_some_and(|number| (*from..*to).contains(&number))
            }),
            View::Stripped => cells.iter_mut().for_each(|cell| cell.value = Bytes::new()),
            View::Chain(first, second) => return second.of(first.of(cells)),
            View::Both(one, other) => {
                let mut both = one.of(cells.clone());
                both.append(&mut other.of(cells));
                // The sort is stable: of equal cells those of the first filter come first.
                both.sort_by_key(|cell| (cell.family, cell.qualifier.clone(), Reverse(cell.timestamp)));
                return both;
            }
        }
        cells
    }
}

fn newest_of_column(cells: Vec<Cell>, most: i32) -> Vec<Cell> {
    let mut newest: Vec<Cell> = Vec::new();
    for cell in cells {
        let same = |other: &&Cell| other.family == cell.family && other.qualifier == cell.qualifier;
        if newest.iter().filter(same).count() < count(most) {
            newest.push(cell);
        }
    }
    newest
}

fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}
