//! The nodes of a compiled filter, and properties that follow from the tree alone.
//!
//! Recursion here and in other modules is as deep as the tree, which compilation has bounded.

use crate::pushdown::TimestampBounds;
use crate::qualifier_range::{QualifierRange, above, below};
use crate::re2::Pattern;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use stele_types::{Cell, CellKind, FamilyId};

/// One step of evaluation. Nested chains are flattened, members without effect are removed, and neighbouring tests of
/// cells are one step.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    PassAll,
    BlockAll,
    Sink,
    Row(RowTest),
    Cells(Vec<CellTest>),
    Offset(usize),
    PerRow(usize),
    PerColumn(usize),
    Strip,
    Label(String),
    Chain(Vec<Node>),
    Interleave(Vec<Node>),
    Condition {
        predicate: Box<Node>,
        on_true: Box<Node>,
        on_false: Box<Node>,
    },
}

/// Lets a whole row through or nothing of it.
#[derive(Clone, Debug)]
pub(crate) enum RowTest {
    Key(Pattern),
    Sample(f64),
}

/// Decides about a cell by the cell alone.
#[derive(Clone, Debug)]
pub(crate) enum CellTest {
    /// Sorted. Parts of a filter with the same pattern share a list.
    Families(Arc<[FamilyId]>),
    Qualifier(Pattern),
    Columns(FamilyId, QualifierRange),
    Timestamps(TimestampBounds),
    Value(Pattern),
    ValueRange(Bound<Bytes>, Bound<Bytes>),
    ValueMask(Bytes),
}

/// The copies that may be made of one cell.
#[derive(Clone, Copy)]
pub(crate) struct Copies {
    /// Cells passed on.
    out: usize,
    /// Capacity for cells in all lists that exist at a time, besides the input.
    made: usize,
}

impl Copies {
    pub(crate) fn made(self) -> usize {
        self.made
    }
}

impl Node {
    /// Upper bound of the copies of one input cell.
    pub(crate) fn copies(&self) -> Copies {
        match self {
            Node::BlockAll => Copies { out: 0, made: 0 },
            // A list that has just doubled, joined with the rest, and sorted.
            Node::Sink => Copies { out: 0, made: 4 },
            // A member's output replaces its input.
            Node::Chain(members) => members.iter().fold(Copies { out: 1, made: 0 }, |so_far, member| {
                let (next, input) = (member.copies(), if so_far.made > 0 { so_far.out } else { 0 });
                Copies {
                    out: so_far.out.saturating_mul(next.out),
                    made: so_far
                        .made
                        .max(input.saturating_add(so_far.out.saturating_mul(next.made))),
                }
            }),
            // The output of each member is a list, and is copied into a pool, which doubles as it grows and is sorted.
            Node::Interleave(members) => members.iter().fold(Copies { out: 0, made: 1 }, |so_far, member| {
                let next = member.copies();
                Copies {
                    out: so_far.out.saturating_add(next.out),
                    made: (so_far.made.saturating_add(next.made)).saturating_add(next.out.saturating_mul(3)),
                }
            }),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => {
                let (probe, a, b) = (predicate.copies(), on_true.copies(), on_false.copies());
                Copies {
                    out: a.out.max(b.out),
                    made: probe.made.saturating_add(probe.out).max(a.made).max(b.made),
                }
            }
            _ => Copies { out: 1, made: 0 },
        }
    }

    /// Whether cells may get labels.
    pub(crate) fn has_labels(&self) -> bool {
        match self {
            Node::Label(_) => true,
            Node::Chain(members) | Node::Interleave(members) => members.iter().any(Node::has_labels),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => [predicate, on_true, on_false].into_iter().any(|node| node.has_labels()),
            _ => false,
        }
    }

    /// Patterns that are tried on a value, each as often as it occurs in the tree, and as often as its pace says. Patterns of
    /// qualifiers count as far as they may cost more than usual ones.
    pub(crate) fn value_patterns(&self) -> usize {
        match self {
            Node::Cells(tests) => tests.iter().map(CellTest::value_patterns).sum(),
            Node::Chain(members) | Node::Interleave(members) => members.iter().map(Node::value_patterns).sum(),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => predicate.value_patterns() + on_true.value_patterns().max(on_false.value_patterns()),
            _ => 0,
        }
    }

    /// Whether a row is sampled within it. Recursion is as deep as the tree, which compilation has bounded.
    pub(crate) fn is_sampled(&self) -> bool {
        match self {
            Node::Row(RowTest::Sample(_)) => true,
            Node::Chain(members) | Node::Interleave(members) => members.iter().any(Node::is_sampled),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => [predicate, on_true, on_false].into_iter().any(|node| node.is_sampled()),
            _ => false,
        }
    }

    /// Whether cells can leave it past its enclosing filters.
    pub(crate) fn has_sink(&self) -> bool {
        match self {
            Node::Sink => true,
            Node::Chain(members) | Node::Interleave(members) => members.iter().any(Node::has_sink),
            _ => false,
        }
    }
}

impl RowTest {
    pub(crate) fn admits(&self, row: &[u8], rng: &mut dyn FnMut() -> f64) -> bool {
        match self {
            RowTest::Key(pattern) => pattern.is_match(row),
            RowTest::Sample(probability) => rng() < *probability,
        }
    }

    /// Bytes of a row's key that a pattern reads one by one.
    pub(crate) fn bytes_of(&self, row: &[u8]) -> usize {
        match self {
            RowTest::Key(pattern) => pattern.bytes_matched(row),
            RowTest::Sample(_) => 0,
        }
    }

    /// The same as work at the worst.
    pub(crate) fn bytes_paced(&self, row: &[u8]) -> usize {
        match self {
            RowTest::Key(pattern) => pattern.bytes_paced(row),
            RowTest::Sample(_) => 0,
        }
    }
}

/// Whether a cell is the tombstone of a row, which only raw reads return. It hides cells of every family: a read of one family that
/// lacks it returns deleted cells as if they were not.
fn is_of_all_families(cell: &Cell) -> bool {
    cell.kind == CellKind::DeleteRow
}

impl CellTest {
    pub(crate) fn admits(&self, cell: &Cell) -> bool {
        match self {
            CellTest::Families(families) => {
                families.binary_search(&cell.family).is_ok() || !families.is_empty() && is_of_all_families(cell)
            }
            CellTest::Qualifier(pattern) => pattern.is_match(&cell.qualifier),
            CellTest::Columns(family, range) => {
                *family == cell.family && range.contains(&cell.qualifier) || is_of_all_families(cell)
            }
            CellTest::Timestamps(bounds) => bounds.contains(cell.timestamp),
            CellTest::Value(pattern) => pattern.is_match(&cell.value),
            CellTest::ValueRange(start, end) => above(start, &cell.value) && below(end, &cell.value),
            CellTest::ValueMask(mask) => {
                mask.len() == cell.value.len() && mask.iter().zip(&cell.value[..]).all(|(m, v)| m & v == *m)
            }
        }
    }

    /// Bytes of a cell that a pattern reads one by one. Comparisons are not counted: their length is bounded by the
    /// filter.
    #[inline]
    pub(crate) fn bytes_of(&self, cell: &Cell) -> usize {
        match self {
            CellTest::Qualifier(pattern) => pattern.bytes_matched(&cell.qualifier),
            CellTest::Value(pattern) => pattern.bytes_matched(&cell.value),
            _ => 0,
        }
    }

    fn value_patterns(&self) -> usize {
        match self {
            CellTest::Value(pattern) => pattern.pace(),
            CellTest::Qualifier(pattern) => pattern.pace() - 1,
            _ => 0,
        }
    }

    /// Whether it reads the value.
    pub(crate) fn reads_value(&self) -> bool {
        matches!(
            self,
            CellTest::Value(_) | CellTest::ValueRange(..) | CellTest::ValueMask(_)
        )
    }
}
