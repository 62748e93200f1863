//! Filter trees: any tree is refused or keeps the promises of filters for any row.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::ops::Bound;
use stele_filter::Filter;
use stele_fuzz::{check_filter, schema, sort};
use stele_types::{Cell, FamilyId, TimeUnit, Timestamp};

/// Cells of the row; a chain of interleaves doubles them at every step.
const CELLS_MAX: usize = 24;

/// Filters of the tree, for the same reason.
const FILTERS_MAX: usize = 40;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    row: &'a [u8],
    chance: u8,
    cells: Vec<InputCell<'a>>,
    tree: Tree<'a>,
}

#[derive(Arbitrary, Debug)]
struct InputCell<'a> {
    family: u8,
    qualifier: &'a [u8],
    timestamp: i8,
    value: &'a [u8],
}

#[derive(Arbitrary, Debug)]
enum Tree<'a> {
    Chain(Vec<Tree<'a>>),
    Interleave(Vec<Tree<'a>>),
    Condition(Box<(Tree<'a>, Option<Tree<'a>>, Option<Tree<'a>>)>),
    Sink,
    PassAll,
    BlockAll,
    RowKeyRegex(&'a [u8]),
    RowSample(f64),
    FamilyRegex(&'a [u8]),
    QualifierRegex(&'a [u8]),
    ColumnRange(u8, Edge<'a>, Edge<'a>),
    TimestampRange(i8, Option<i8>),
    ValueRegex(&'a [u8]),
    ValueRange(Edge<'a>, Edge<'a>),
    ValueBitmask(&'a [u8]),
    CellsPerRowOffset(i8),
    CellsPerRow(i8),
    CellsPerColumn(i8),
    StripValue,
    ApplyLabel(&'a str),
}

#[derive(Arbitrary, Debug)]
enum Edge<'a> {
    Included(&'a [u8]),
    Excluded(&'a [u8]),
    Unbounded,
}

fuzz_target!(|input: Input<'_>| {
    let mut left = FILTERS_MAX;
    let Some(filter) = build(&input.tree, &mut left) else {
        return;
    };
    let Ok(compiled) = filter.compile(&schema(TimeUnit::Micros, 1)) else {
        return;
    };
    let cell = |cell: &InputCell<'_>| {
        let family = FamilyId(u32::from(cell.family % 4) + 1);
        let timestamp = Timestamp(i64::from(cell.timestamp));
        Cell::put(family, bytes(cell.qualifier), timestamp, bytes(cell.value))
    };
    let mut cells: Vec<Cell> = input.cells.iter().take(CELLS_MAX).map(cell).collect();
    sort(&mut cells);
    cells.dedup_by(|a, b| (a.family, &a.qualifier, a.timestamp) == (b.family, &b.qualifier, b.timestamp));
    check_filter(&compiled, input.row, &cells, f64::from(input.chance) / 256.0);
});

fn bytes(slice: &[u8]) -> Bytes {
    Bytes::copy_from_slice(slice)
}

fn edge(edge: &Edge<'_>) -> Bound<Bytes> {
    match edge {
        Edge::Included(at) => Bound::Included(bytes(at)),
        Edge::Excluded(at) => Bound::Excluded(bytes(at)),
        Edge::Unbounded => Bound::Unbounded,
    }
}

/// The filter of a tree; `None` when it has too many.
fn build(tree: &Tree<'_>, left: &mut usize) -> Option<Filter> {
    *left = left.checked_sub(1)?;
    let mut members = |members: &[Tree<'_>]| members.iter().map(|m| build(m, left)).collect::<Option<Vec<_>>>();
    Some(match tree {
        Tree::Chain(of) => Filter::Chain(members(of)?),
        Tree::Interleave(of) => Filter::Interleave(members(of)?),
        Tree::Condition(parts) => {
            let mut branch = |tree: &Option<Tree<'_>>| match tree {
                Some(tree) => build(tree, left).map(|filter| Some(Box::new(filter))),
                None => Some(None),
            };
            let (on_true, on_false) = (branch(&parts.1)?, branch(&parts.2)?);
            Filter::Condition {
                predicate: Box::new(build(&parts.0, left)?),
                on_true,
                on_false,
            }
        }
        Tree::Sink => Filter::Sink,
        Tree::PassAll => Filter::PassAll,
        Tree::BlockAll => Filter::BlockAll,
        Tree::RowKeyRegex(pattern) => Filter::RowKeyRegex(bytes(pattern)),
        Tree::RowSample(probability) => Filter::RowSample(*probability),
        Tree::FamilyRegex(pattern) => Filter::FamilyRegex(bytes(pattern)),
        Tree::QualifierRegex(pattern) => Filter::QualifierRegex(bytes(pattern)),
        Tree::ColumnRange(family, start, end) => {
            let family = ["a", "b", "c", "other"][usize::from(family % 4)].to_owned();
            Filter::ColumnRange {
                family,
                start: edge(start),
                end: edge(end),
            }
        }
        Tree::TimestampRange(start, end) => Filter::TimestampRange {
            start: i64::from(*start),
            end: end.map(i64::from),
        },
        Tree::ValueRegex(pattern) => Filter::ValueRegex(bytes(pattern)),
        Tree::ValueRange(start, end) => Filter::ValueRange {
            start: edge(start),
            end: edge(end),
        },
        Tree::ValueBitmask(mask) => Filter::ValueBitmask(bytes(mask)),
        Tree::CellsPerRowOffset(count) => Filter::CellsPerRowOffset(i32::from(*count)),
        Tree::CellsPerRow(count) => Filter::CellsPerRow(i32::from(*count)),
        Tree::CellsPerColumn(count) => Filter::CellsPerColumn(i32::from(*count)),
        Tree::StripValue => Filter::StripValue,
        Tree::ApplyLabel(label) => Filter::ApplyLabel((*label).to_owned()),
    })
}
