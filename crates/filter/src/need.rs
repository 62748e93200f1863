//! Derives the [`Pushdown`] of a filter from its need.
//!
//! A *need* of filter `F` is a reduction `r` (cut columns and timestamps, then newest versions of each column, then
//! first cells of the row) with `F(r(x)) = F(x)` for every row `x`. Needs compose:
//!
//! * **Side by side** (interleave, condition with its branches), the weaker of the two. Weakening one step must not
//!   make a later one cut more: the version limit stays only if both cut the same timestamps, the cell limit only if
//!   everything before it is the same.
//! * **In a chain** `A, B`, the need of `A` holds. The steps of the need of `B` are added that give the same result
//!   before `A` as after it. The [`Reach`] of `A` decides which: how much of a row, besides the cell itself, `A`
//!   depends on.
//!
//! A sink ends the analysis of its chain: later members may need less, but the sink has sent cells to the result before
//! them.
//!
//! Where too many families are looked at, columns are not cut, and neither are first cells, which are those of the cut columns.

use crate::column_cut::{ColumnCut, CutWork};
use crate::node::{CellTest, Node, RowTest};
use crate::pushdown::{Pushdown, TimestampBounds};
use crate::qualifier_range::QualifierRange;
use crate::re2::Pattern;
use crate::values::needs_values;
use bytes::Bytes;
use std::ops::Bound;
use stele_types::RowRange;

/// The need of a filter. Without `row_prefix` it gives no cell of any row, and the rest does not matter.
struct Need {
    row_prefix: Option<Vec<u8>>,
    columns: ColumnCut,
    timestamps: TimestampBounds,
    versions: Option<usize>,
    cells: Option<usize>,
}

/// How much of a row decides about one cell. A reduction may move before a filter if it removes nothing that decides
/// about the remaining cells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// The whole row: no reduction may go first.
    Row,
    /// The cell's column: cuts of columns may go first.
    Column,
    /// The cell alone: cuts of timestamps may go first, too.
    Cell,
    /// Only properties that all cells of a column share: limits of versions may go first, too.
    Uniform,
}

/// The pushdown of a whole filter.
pub(crate) fn pushdown(root: &Node) -> Pushdown {
    let mut work = CutWork::new();
    let mut need = need(root, &mut work).normalized();
    if work.is_over() {
        (need.columns, need.cells) = (ColumnCut::all(), None);
    }
    let no_cells = need.row_prefix.is_none();
    Pushdown {
        row_prefix: Bytes::from(need.row_prefix.unwrap_or_default()),
        no_cells,
        columns: if no_cells { ColumnCut::none() } else { need.columns },
        timestamps: need.timestamps,
        versions: need.versions,
        cells: need.cells,
        keys_only: !needs_values(root),
        families_before: Vec::new(),
    }
}

impl Need {
    fn everything() -> Need {
        Need {
            row_prefix: Some(Vec::new()),
            columns: ColumnCut::all(),
            timestamps: TimestampBounds::ALL,
            versions: None,
            cells: None,
        }
    }

    fn nothing() -> Need {
        Need {
            row_prefix: None,
            ..Need::everything()
        }
    }

    /// A filter that needs no cell makes none: every filter makes an empty row of an empty row.
    fn normalized(self) -> Need {
        let never = self.timestamps.end.is_some_and(|end| end <= self.timestamps.start);
        if never || self.columns.is_none() {
            Need::nothing()
        } else {
            self
        }
    }

    /// The need of two filters of the same input.
    fn side_by_side(self, other: Need, work: &mut CutWork) -> Need {
        let (Some(a), Some(b)) = (&self.row_prefix, &other.row_prefix) else {
            return if self.row_prefix.is_none() { other } else { self };
        };
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let same_times = self.timestamps == other.timestamps;
        let same_cells = same_times && self.columns == other.columns && self.versions == other.versions;
        let larger = |a: Option<usize>, b: Option<usize>| a.zip(b).map(|(a, b)| a.max(b));
        Need {
            row_prefix: a.get(..common).map(<[u8]>::to_vec),
            columns: self.columns.hull(other.columns, work),
            timestamps: self.timestamps.hull(other.timestamps),
            versions: if same_times {
                larger(self.versions, other.versions)
            } else {
                None
            },
            cells: if same_cells {
                larger(self.cells, other.cells)
            } else {
                None
            },
        }
    }
}

fn need(node: &Node, work: &mut CutWork) -> Need {
    let all = Need::everything();
    let need = match node {
        Node::BlockAll => Need::nothing(),
        Node::Row(RowTest::Key(pattern)) => Need {
            row_prefix: Some(pattern.literal_prefix().to_vec()),
            ..all
        },
        Node::PerRow(count) => Need {
            cells: Some(*count),
            ..all
        },
        Node::PerColumn(versions) => Need {
            versions: Some(*versions),
            ..all
        },
        Node::Cells(tests) => tests.iter().fold(all, |so_far, test| cut(so_far, test, work)),
        Node::Chain(members) => chain(members, work),
        Node::Interleave(members) => members.iter().fold(Need::nothing(), |so_far, member| {
            let next = need(member, work);
            so_far.side_by_side(next, work)
        }),
        Node::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            let on_false = need(on_false, work);
            let branches = need(on_true, work).side_by_side(on_false, work);
            let Some(rows) = branches.row_prefix.clone() else {
                return Need::nothing();
            };
            // The predicate does not decide which rows have a result, but which result they have.
            let mut predicate = need(predicate, work);
            predicate.row_prefix = predicate.row_prefix.map(|_| rows);
            branches.side_by_side(predicate, work)
        }
        Node::PassAll | Node::Sink | Node::Row(RowTest::Sample(_)) => all,
        Node::Offset(_) | Node::Strip | Node::Label(_) => all,
    };
    need.normalized()
}

/// Adds the cut that a test of cells makes, or that its pattern's prefix allows.
fn cut(need: Need, test: &CellTest, work: &mut CutWork) -> Need {
    let columns = match test {
        CellTest::Families(families) => ColumnCut::of_families(families, work),
        CellTest::Columns(family, range) => ColumnCut {
            others: None,
            families: [(*family, Some(range.clone()).filter(|range| !range.is_empty()))].into(),
        },
        CellTest::Qualifier(pattern) => ColumnCut {
            others: Some(qualifiers(pattern)),
            families: Default::default(),
        },
        CellTest::Timestamps(bounds) => {
            return Need {
                timestamps: need.timestamps.intersect(*bounds),
                ..need
            };
        }
        CellTest::Value(_) | CellTest::ValueRange(..) | CellTest::ValueMask(_) => return need,
    };
    Need {
        columns: need.columns.intersect(columns, work),
        ..need
    }
}

/// The qualifiers that can match.
fn qualifiers(pattern: &Pattern) -> QualifierRange {
    if let Some(literal) = pattern.as_literal() {
        return QualifierRange::exact(Bytes::copy_from_slice(literal));
    }
    if pattern.literal_prefix().is_empty() {
        return QualifierRange::all();
    }
    let range = RowRange::prefix(&Bytes::copy_from_slice(pattern.literal_prefix()));
    QualifierRange {
        start: Bound::Included(range.start),
        end: range.end.map_or(Bound::Unbounded, Bound::Excluded),
    }
}

/// The need of a chain so far, and the state that decides how the next member adds to it.
struct ChainNeed {
    need: Need,
    /// The least reach of the members so far, as far as it matters. A test of timestamps that was added to the need
    /// does not hinder limits of versions, because they come after it in the reduction, too.
    reach: Reach,
    /// The reduction leaves the same cells of a row as the members so far, except for `skipped` cells at its beginning.
    exact: bool,
    skipped: usize,
}

fn chain(members: &[Node], work: &mut CutWork) -> Need {
    let mut so_far = ChainNeed {
        need: Need::everything(),
        reach: Reach::Uniform,
        exact: true,
        skipped: 0,
    };
    for member in members {
        so_far.take(need(member, work), work);
        if member.has_sink() {
            break;
        }
        so_far.pass(member);
    }
    so_far.need
}

impl ChainNeed {
    /// Adds the possible parts of the next member's need.
    fn take(&mut self, next: Need, work: &mut CutWork) {
        let need = &mut self.need;
        need.row_prefix = match (need.row_prefix.take(), next.row_prefix) {
            (Some(a), Some(b)) if a.starts_with(&b) => Some(a),
            (Some(a), Some(b)) if b.starts_with(&a) => Some(b),
            _ => None,
        };
        let same_times = next.timestamps == TimestampBounds::ALL;
        let same_columns = next.columns == ColumnCut::all();
        if self.reach >= Reach::Column {
            let so_far = std::mem::replace(&mut need.columns, ColumnCut::all());
            need.columns = so_far.intersect(next.columns, work);
        }
        if self.reach >= Reach::Cell {
            need.timestamps = need.timestamps.intersect(next.timestamps);
        }
        let smaller = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let versions_taken = self.reach == Reach::Uniform;
        if versions_taken {
            need.versions = smaller(need.versions, next.versions);
        }
        let all_taken = versions_taken || same_times && same_columns && next.versions.is_none();
        if self.exact && all_taken {
            let cells = next.cells.map(|cells| cells.saturating_add(self.skipped));
            need.cells = smaller(need.cells, cells);
        }
    }

    /// Records the effect of the next member, whose need was added, on the cells.
    fn pass(&mut self, member: &Node) {
        match member {
            Node::Cells(tests) => {
                for test in tests {
                    self.pass_test(test);
                }
            }
            Node::PerColumn(_) => {
                self.exact &= self.reach == Reach::Uniform;
                self.lower(Reach::Column);
            }
            Node::Offset(count) => {
                self.skipped = self.skipped.saturating_add(*count);
                self.lower(Reach::Row);
            }
            Node::PerRow(_) => self.lower(Reach::Row),
            Node::Interleave(_) | Node::Condition { .. } | Node::Chain(_) => {
                self.exact = false;
                self.lower(reach(member));
            }
            _ => {}
        }
    }

    fn pass_test(&mut self, test: &CellTest) {
        match test {
            CellTest::Families(_) | CellTest::Columns(..) => {
                self.exact &= self.reach >= Reach::Column;
            }
            CellTest::Qualifier(pattern) => {
                self.exact &= self.reach >= Reach::Column && pattern.as_literal().is_some();
            }
            CellTest::Timestamps(_) if self.reach >= Reach::Cell => {}
            _ => {
                self.exact = false;
                self.lower(Reach::Cell);
            }
        }
    }

    fn lower(&mut self, reach: Reach) {
        self.reach = self.reach.min(reach);
    }
}

fn reach(node: &Node) -> Reach {
    let least = |members: &[Node], most: Reach| members.iter().map(reach).fold(most, Reach::min);
    match node {
        Node::Sink | Node::Offset(_) | Node::PerRow(_) | Node::Condition { .. } => Reach::Row,
        Node::PerColumn(_) => Reach::Column,
        Node::Cells(tests) => {
            let of_cell = |test: &CellTest| test.reads_value() || matches!(test, CellTest::Timestamps(_));
            if tests.iter().any(of_cell) {
                Reach::Cell
            } else {
                Reach::Uniform
            }
        }
        Node::Chain(members) => least(members, Reach::Uniform),
        Node::Interleave(members) => least(members, Reach::Cell),
        Node::PassAll | Node::BlockAll | Node::Row(_) | Node::Strip | Node::Label(_) => Reach::Uniform,
    }
}
