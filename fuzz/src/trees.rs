//! Filter trees as a fuzzer makes them up.

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::ops::Bound;
use stele_filter::Filter;

/// Filters of a tree; a chain of interleaves doubles cells at every step.
const FILTERS_MAX: usize = 40;

/// A filter and those within.
#[derive(Arbitrary, Debug)]
pub enum Tree<'a> {
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

/// Where a range begins or ends.
#[derive(Arbitrary, Debug)]
pub enum Edge<'a> {
    Included(&'a [u8]),
    Excluded(&'a [u8]),
    Unbounded,
}

impl Tree<'_> {
    /// The filter; `None` when it has too many.
    pub fn filter(&self) -> Option<Filter> {
        build(self, &mut { FILTERS_MAX })
    }

    /// Whether it lets rows through by chance.
    pub fn is_random(&self) -> bool {
        match self {
            Tree::RowSample(_) => true,
            Tree::Chain(of) | Tree::Interleave(of) => of.iter().any(Tree::is_random),
            Tree::Condition(parts) => {
                let branches = [&parts.1, &parts.2].into_iter().flatten();
                parts.0.is_random() || branches.into_iter().any(Tree::is_random)
            }
            _ => false,
        }
    }
}

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
