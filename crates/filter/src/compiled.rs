//! A checked filter: the tree in the form that evaluation wants.

use crate::evaluate::Evaluation;
use crate::pushdown::{QualifierRange, TimestampBounds, above, below};
use crate::re2::Pattern;
use crate::{FilterError, Pushdown};
use bytes::Bytes;
use std::ops::Bound;
use stele_types::{Cell, FamilyId};

/// A checked filter. Shared between scans; it holds no state of a row.
#[derive(Clone, Debug)]
pub struct CompiledFilter {
    /// Conditions on the row that no cell can get past; taken out of `root`.
    pub(crate) guards: Vec<RowTest>,
    pub(crate) root: Node,
    pub(crate) pushdown: Pushdown,
}

/// One step of evaluation. Chains within chains are flat, members that change nothing are gone, and neighbouring tests
/// of cells are one step.
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

/// Lets a cell through by looking at nothing else.
#[derive(Clone, Debug)]
pub(crate) enum CellTest {
    /// Sorted.
    Families(Vec<FamilyId>),
    Qualifier(Pattern),
    Columns(FamilyId, QualifierRange),
    Timestamps(TimestampBounds),
    Value(Pattern),
    ValueRange(Bound<Bytes>, Bound<Bytes>),
    ValueMask(Bytes),
}

impl CompiledFilter {
    /// What a scan need not fetch.
    pub fn pushdown(&self) -> &Pushdown {
        &self.pushdown
    }

    /// Whether the filter changes nothing of any row.
    pub fn passes_all(&self) -> bool {
        self.guards.is_empty() && matches!(self.root, Node::PassAll)
    }

    /// Whether evaluation looks at values. If not, cells may be given to it before their values have been fetched, as
    /// `Reference`s; it hands those on, or makes empty `Put`s of them.
    pub fn reads_values(&self) -> bool {
        crate::values::reads_values(&self.root)
    }

    /// Cells that evaluation may hold at once for each cell it is given, those beside; an upper bound.
    pub fn copies_per_cell(&self) -> usize {
        self.root.copies().made
    }

    /// Whether chance has a say in what is let through: who asks twice about a row may get two answers.
    pub fn is_sampling(&self) -> bool {
        let is_sample = |guard: &RowTest| matches!(guard, RowTest::Sample(_));
        self.guards.iter().any(is_sample) || self.root.is_sampling()
    }

    /// Patterns that the value of a cell may be tried on, about: how much of the work of an evaluation values are.
    pub fn patterns_per_value(&self) -> usize {
        self.root.value_patterns()
    }

    /// Whether the row can give any cell, as far as its key and the sampling of rows tell. Draws from `rng` (uniform in
    /// [0, 1)) for the samplings it decides; [`evaluate`](Self::evaluate) does not repeat them.
    pub fn admits_row(&self, row: &[u8], rng: &mut dyn FnMut() -> f64) -> bool {
        !self.pushdown.no_cells && self.guards.iter().all(|guard| guard.admits(row, rng))
    }

    /// The cells the filter makes of an admitted row's cells, both in order of family, qualifier and timestamp (newest
    /// first). Must be called only after [`admits_row`](Self::admits_row) said yes, because it leaves out what that
    /// has decided.
    pub fn evaluate(
        &self,
        row: &[u8],
        cells: Vec<Cell>,
        rng: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<Cell>, FilterError> {
        debug_assert!(cells.is_sorted_by(|a, b| crate::evaluate::order(a, b).is_le()));
        Evaluation::new(row, rng).finish(&self.root, cells)
    }

    /// The cells the filter makes of a row's cells: [`admits_row`](Self::admits_row) and
    /// [`evaluate`](Self::evaluate) in one, for single rows.
    pub fn apply(&self, row: &[u8], cells: Vec<Cell>, rng: &mut dyn FnMut() -> f64) -> Result<Vec<Cell>, FilterError> {
        if !self.admits_row(row, rng) {
            return Ok(Vec::new());
        }
        self.evaluate(row, cells, rng)
    }
}

/// What may become of one cell.
#[derive(Clone, Copy)]
pub(crate) struct Copies {
    /// Cells handed on.
    out: usize,
    /// Cells made on the way, those among them; none where the cell itself is handed on.
    made: usize,
}

impl Node {
    /// What may become of one cell that is given to it. Recursion is as deep as the tree, which compilation has bounded.
    pub(crate) fn copies(&self) -> Copies {
        match self {
            Node::BlockAll => Copies { out: 0, made: 0 },
            // The label, and its list.
            Node::Label(_) => Copies { out: 1, made: 1 },
            Node::Sink => Copies { out: 0, made: 1 },
            Node::Chain(members) => members.iter().fold(Copies { out: 1, made: 0 }, |so_far, member| {
                let next = member.copies();
                Copies {
                    out: so_far.out.saturating_mul(next.out),
                    made: so_far.made.saturating_add(so_far.out.saturating_mul(next.made)),
                }
            }),
            // Each member's cells are made and then put together, in room that doubles, and sorted with half as much.
            Node::Interleave(members) => members.iter().fold(Copies { out: 0, made: 0 }, |so_far, member| {
                let next = member.copies();
                Copies {
                    out: so_far.out.saturating_add(next.out),
                    made: (so_far.made.saturating_add(next.made)).saturating_add(next.out.saturating_mul(2)),
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
                    made: probe.made.saturating_add(probe.out).saturating_add(a.made.max(b.made)),
                }
            }
            _ => Copies { out: 1, made: 0 },
        }
    }

    /// Patterns that a value is tried on, each as often as it stands there. Recursion is as deep as the tree, which compilation
    /// has bounded.
    fn value_patterns(&self) -> usize {
        match self {
            Node::Cells(tests) => tests.iter().filter(|test| matches!(test, CellTest::Value(_))).count(),
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
    fn is_sampling(&self) -> bool {
        match self {
            Node::Row(RowTest::Sample(_)) => true,
            Node::Chain(members) | Node::Interleave(members) => members.iter().any(Node::is_sampling),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => [predicate, on_true, on_false]
                .into_iter()
                .any(|node| node.is_sampling()),
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
}

impl CellTest {
    pub(crate) fn admits(&self, cell: &Cell) -> bool {
        match self {
            CellTest::Families(families) => families.binary_search(&cell.family).is_ok(),
            CellTest::Qualifier(pattern) => pattern.is_match(&cell.qualifier),
            CellTest::Columns(family, range) => *family == cell.family && range.contains(&cell.qualifier),
            CellTest::Timestamps(bounds) => bounds.contains(cell.timestamp),
            CellTest::Value(pattern) => pattern.is_match(&cell.value),
            CellTest::ValueRange(start, end) => above(start, &cell.value) && below(end, &cell.value),
            CellTest::ValueMask(mask) => {
                mask.len() == cell.value.len() && mask.iter().zip(&cell.value[..]).all(|(m, v)| m & v == *m)
            }
        }
    }

    /// How many bytes of a cell it takes by itself; what is compared, with no more than a filter holds, is not counted.
    #[inline]
    pub(crate) fn bytes_of(&self, cell: &Cell) -> usize {
        match self {
            CellTest::Qualifier(pattern) => pattern.bytes_matched(&cell.qualifier),
            CellTest::Value(pattern) => pattern.bytes_matched(&cell.value),
            _ => 0,
        }
    }

    /// Whether it looks at the value.
    pub(crate) fn reads_value(&self) -> bool {
        matches!(
            self,
            CellTest::Value(_) | CellTest::ValueRange(..) | CellTest::ValueMask(_)
        )
    }
}
