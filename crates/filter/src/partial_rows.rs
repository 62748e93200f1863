//! Evaluates a filter over partial rows.
//!
//! A partial row has all cells of a row between two others in order. Most filters decide about each cell by itself, so
//! the result of a partial row is the same as within the whole row. Filters that count cells continue to count from one
//! partial row to the next; their state is their *progress*. A filter never moves a cell before an earlier input cell,
//! so the results of the partial rows, one after the other, are the result of the row.
//!
//! Conditions and samplings in the middle of the tree are different: there one cell, or one sampling decision, affects
//! earlier cells. Such filters have no progress and need the whole row.
//!
//! Invariant: the limits of one evaluation hold for each partial row.

use crate::cell_order::is_input;
use crate::compiled::CompiledFilter;
use crate::error::FilterError;
use crate::evaluate::{Evaluation, first, skip};
use crate::node::{Node, RowTest};
use bytes::Bytes;
use std::borrow::Cow;
use stele_types::{Cell, FamilyId};

/// The state of a filter after the earlier parts of a row.
#[derive(Clone, Debug)]
pub struct RowProgress(Progress);

/// The same of one node.
#[derive(Clone, Debug)]
enum Progress {
    /// The node decides about each cell by itself.
    Nothing,
    /// Cells that are still skipped, or still let through.
    Left(usize),
    /// The column of the last cell, and how many cells of it there were.
    Column(Option<(FamilyId, Bytes)>, usize),
    /// Of the members.
    Members(Vec<Progress>),
}

impl CompiledFilter {
    /// The progress before the first part of a row; `None` when the filter needs whole rows.
    pub fn progress(&self) -> Option<RowProgress> {
        Progress::of(&self.root).map(RowProgress)
    }

    /// The result for the next part of an admitted row. Must be called only after [`admits_row`](Self::admits_row)
    /// returned true, and within `memory` like [`evaluate`](Self::evaluate). After an error the progress is of no use.
    pub fn evaluate_partial_row(
        &self,
        row: &[u8],
        cells: Vec<Cell>,
        progress: &mut RowProgress,
        memory: usize,
        rng: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<Cell>, FilterError> {
        debug_assert!(is_input(&cells), "cells are in order");
        let (memory, input) = (self.list_memory(&cells, memory)?, cells.len());
        let mut evaluation = Evaluation::new(row, memory, rng);
        let cells = run(&mut evaluation, &self.root, &mut progress.0, Cow::Owned(cells))?.into_owned();
        evaluation.with_sunk(cells, input)
    }
}

impl Progress {
    /// Recursion is as deep as the tree, which compilation has bounded.
    fn of(node: &Node) -> Option<Progress> {
        Some(match node {
            Node::Offset(count) | Node::PerRow(count) => Progress::Left(*count),
            Node::PerColumn(_) => Progress::Column(None, 0),
            Node::Chain(members) | Node::Interleave(members) => {
                let parts: Vec<Progress> = members.iter().map(Progress::of).collect::<Option<_>>()?;
                if parts.iter().all(|part| matches!(part, Progress::Nothing)) {
                    Progress::Nothing
                } else {
                    Progress::Members(parts)
                }
            }
            Node::Condition { .. } | Node::Row(RowTest::Sample(_)) => return None,
            Node::PassAll | Node::BlockAll | Node::Sink | Node::Row(RowTest::Key(_)) => Progress::Nothing,
            Node::Cells(_) | Node::Strip | Node::Label(_) => Progress::Nothing,
        })
    }
}

/// Evaluates one filter over a partial row.
fn run<'c>(
    evaluation: &mut Evaluation<'_>,
    node: &Node,
    progress: &mut Progress,
    cells: Cow<'c, [Cell]>,
) -> Result<Cow<'c, [Cell]>, FilterError> {
    evaluation.exchange(cells, |evaluation, cells| step(evaluation, node, progress, cells))
}

fn step<'c>(
    evaluation: &mut Evaluation<'_>,
    node: &Node,
    progress: &mut Progress,
    cells: Cow<'c, [Cell]>,
) -> Result<Cow<'c, [Cell]>, FilterError> {
    match (node, progress) {
        (Node::Offset(_), Progress::Left(left)) => {
            evaluation.visit(cells.len())?;
            let skipped = cells.len().min(*left);
            *left -= skipped;
            Ok(skip(cells, skipped))
        }
        (Node::PerRow(_), Progress::Left(left)) => {
            evaluation.visit(cells.len())?;
            let kept = cells.len().min(*left);
            *left -= kept;
            Ok(first(cells, kept))
        }
        (Node::PerColumn(versions), Progress::Column(column, count)) => {
            evaluation.visit(cells.len())?;
            let mut cells = evaluation.own(cells)?;
            keep_newest(&mut cells, *versions, column, count);
            Ok(Cow::Owned(cells))
        }
        (Node::Chain(members), Progress::Members(parts)) => {
            let mut cells = cells;
            for (member, part) in members.iter().zip(parts) {
                if cells.is_empty() {
                    break;
                }
                cells = run(evaluation, member, part, cells)?;
            }
            Ok(cells)
        }
        (Node::Interleave(members), Progress::Members(parts)) => {
            let (mut pool, mut bytes) = (Vec::new(), 0);
            for (member, part) in members.iter().zip(parts) {
                let output = run(evaluation, member, part, Cow::Borrowed(&cells))?;
                evaluation.pool(output, &mut pool, &mut bytes)?;
            }
            evaluation.sorted(pool)
        }
        (node, _) => evaluation.run(node, cells),
    }
}

/// Keeps the first `versions` cells of each column, of which `count` of `column` came before these.
fn keep_newest(cells: &mut Vec<Cell>, versions: usize, column: &mut Option<(FamilyId, Bytes)>, count: &mut usize) {
    let last = cells.last().map(|cell| (cell.family, cell.qualifier.clone()));
    let mut current = column.take();
    cells.retain(|cell| {
        let same = current
            .as_ref()
            .is_some_and(|(family, qualifier)| *family == cell.family && *qualifier == cell.qualifier);
        if !same {
            current = Some((cell.family, cell.qualifier.clone()));
            *count = 0;
        }
        *count += 1;
        *count <= versions
    });
    *column = last.or(current);
}
