//! Evaluates a filter over one row.
//!
//! Cells are passed as owned where a filter may change them in place, and as borrowed where another filter still needs
//! them (members of an interleave, predicates). A chain of tests over an owned row therefore copies nothing, and an
//! interleave copies only the cells that its members let through.
//!
//! Invariants:
//! * Between any two filters the cells are in order of family, qualifier and timestamp, newest first.
//! * Work and the bytes of the result are bounded by the constants below, regardless of the filter.
//! * Every list that the evaluation allocates is counted before ([`ListMemory`]).

use crate::cell_order::{keep_newest, order, same_column};
use crate::error::FilterError;
use crate::list_memory::{ListMemory, capacity_of};
use crate::node::{CellTest, Node};
use bytes::Bytes;
use std::borrow::Cow;
use stele_types::limits::ROW_BYTES_MAX;
use stele_types::{Cell, CellKind};

/// Cells that may be visited for one row, once per filter that they pass. [`TESTED_BYTES`] of a pattern's subject count
/// as one cell. The limit is a few seconds of work: the largest row of 2.6 M cells can pass a hundred filters, and its
/// 256 MiB of values seven.
const VISITS_MAX: usize = 1 << 28;
/// Bytes for which an automaton takes as long as the rest of a test.
const TESTED_BYTES: usize = 8;

/// Bytes that an interleave or the sinks may pool, values counted for every copy: the result of one row must not be
/// larger than a row may be.
const POOL_BYTES_MAX: usize = ROW_BYTES_MAX;

/// The state of one evaluation.
pub(crate) struct Evaluation<'a> {
    row: &'a [u8],
    rng: &'a mut dyn FnMut() -> f64,
    /// Cells that sinks sent to the final result.
    sunk: Vec<Cell>,
    sunk_bytes: usize,
    memory: ListMemory,
    visits: usize,
}

fn weight(cells: &[Cell]) -> usize {
    cells.iter().map(Cell::weight).sum()
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(row: &'a [u8], memory: ListMemory, rng: &'a mut dyn FnMut() -> f64) -> Self {
        Evaluation {
            row,
            rng,
            sunk: Vec::new(),
            sunk_bytes: 0,
            memory,
            visits: 0,
        }
    }

    /// Evaluates the whole filter.
    pub(crate) fn finish(mut self, root: &Node, cells: Vec<Cell>) -> Result<Vec<Cell>, FilterError> {
        let input = cells.len();
        let result = self.run(root, Cow::Owned(cells))?.into_owned();
        self.with_sunk(result, input)
    }

    /// Adds the output of the sinks to the result for this many cells.
    pub(crate) fn with_sunk(mut self, mut result: Vec<Cell>, input: usize) -> Result<Vec<Cell>, FilterError> {
        if !self.sunk.is_empty() {
            check("bytes of the result", weight(&result) + self.sunk_bytes, POOL_BYTES_MAX)?;
            if result.is_empty() {
                self.memory.release(result.capacity());
                result = std::mem::take(&mut self.sunk);
            } else {
                self.memory.grow(&mut result, self.sunk.len(), usize::MAX)?;
                result.append(&mut self.sunk);
                self.memory.release(self.sunk.capacity());
            }
            self.memory.check_sort(&result)?;
            result.sort_by(order);
        }
        if result.len() > input {
            // The caller adds it to others, which may take another list as long.
            self.memory.check(result.len())?;
        }
        Ok(result)
    }

    /// Counts visited cells.
    pub(crate) fn visit(&mut self, cells: usize) -> Result<(), FilterError> {
        self.visits = self.visits.saturating_add(cells);
        check("cells visited", self.visits, VISITS_MAX)
    }

    /// Evaluates one filter. Recursion is as deep as the tree, which compilation has bounded.
    pub(crate) fn run<'c>(&mut self, node: &Node, cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        self.visit(cells.len())?;
        self.exchange(cells, |evaluation, cells| evaluation.step(node, cells))
    }

    /// Carries out a step that makes an output of its input. Afterwards the output and the sinks are the only lists that
    /// it may have left.
    pub(crate) fn exchange<'c>(
        &mut self,
        cells: Cow<'c, [Cell]>,
        step: impl FnOnce(&mut Self, Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError>,
    ) -> Result<Cow<'c, [Cell]>, FilterError> {
        let others = self.memory.all_but(capacity_of(&cells) + self.sunk.capacity());
        let output = step(self, cells)?;
        self.memory.settle(others + self.sunk.capacity() + capacity_of(&output));
        Ok(output)
    }

    fn step<'c>(&mut self, node: &Node, cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        match node {
            Node::PassAll => Ok(cells),
            Node::BlockAll => Ok(Cow::Borrowed(&[])),
            Node::Sink => self.sink(cells),
            Node::Row(test) => {
                self.visit(test.bytes_of(self.row) / TESTED_BYTES)?;
                match test.admits(self.row, self.rng) {
                    true => Ok(cells),
                    false => Ok(Cow::Borrowed(&[])),
                }
            }
            Node::Cells(tests) => self.test(tests, cells),
            Node::Offset(count) => Ok(skip(cells, *count)),
            Node::PerRow(count) => Ok(first(cells, *count)),
            Node::PerColumn(versions) => self.newest(*versions, cells),
            Node::Strip => {
                let mut cells = self.own(cells)?;
                for cell in &mut cells {
                    cell.value = Bytes::new();
                    if cell.kind == CellKind::Reference {
                        cell.kind = CellKind::Put;
                    }
                }
                Ok(Cow::Owned(cells))
            }
            Node::Label(label) => {
                let mut cells = self.own(cells)?;
                for cell in &mut cells {
                    cell.labels.push(label.clone());
                }
                Ok(Cow::Owned(cells))
            }
            Node::Chain(members) => self.chain(members, cells),
            Node::Interleave(members) => self.interleave(members, cells),
            Node::Condition {
                predicate,
                on_true,
                on_false,
            } => {
                let branch = if self.any(predicate, &cells)? {
                    on_true
                } else {
                    on_false
                };
                self.run(branch, cells)
            }
        }
    }

    fn chain<'c>(&mut self, members: &[Node], mut cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        for member in members {
            if cells.is_empty() {
                break;
            }
            cells = self.run(member, cells)?;
        }
        Ok(cells)
    }

    fn interleave<'c>(&mut self, members: &[Node], cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        let Some((last, others)) = members.split_last() else {
            return Ok(Cow::Borrowed(&[]));
        };
        let (mut pool, mut bytes) = (Vec::new(), 0);
        for member in others {
            let output = self.run(member, Cow::Borrowed(&cells))?;
            self.pool(output, &mut pool, &mut bytes)?;
        }
        let output = self.run(last, cells)?;
        self.pool(output, &mut pool, &mut bytes)?;
        self.sorted(pool)
    }

    /// The pool of an interleave as its output.
    pub(crate) fn sorted<'c>(&self, mut pool: Vec<Cell>) -> Result<Cow<'c, [Cell]>, FilterError> {
        self.memory.check_sort(&pool)?;
        // Stable, so that equal cells stay in the order of the members that gave them.
        pool.sort_by(order);
        Ok(Cow::Owned(pool))
    }

    /// Whether a predicate lets any cell through.
    fn any(&mut self, predicate: &Node, cells: &[Cell]) -> Result<bool, FilterError> {
        if let Node::Cells(tests) = predicate {
            let any = cells.iter().any(|cell| self.admits(tests, cell));
            self.visit(0)?;
            return Ok(any);
        }
        let output = self.run(predicate, Cow::Borrowed(cells))?;
        self.memory.release(capacity_of(&output));
        Ok(!output.is_empty())
    }

    fn sink<'c>(&mut self, cells: Cow<'_, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        let (mut sunk, mut bytes) = (std::mem::take(&mut self.sunk), self.sunk_bytes);
        self.pool(cells, &mut sunk, &mut bytes)?;
        (self.sunk, self.sunk_bytes) = (sunk, bytes);
        Ok(Cow::Borrowed(&[]))
    }

    /// Adds the output of one filter to a pool that held `bytes`.
    pub(crate) fn pool(
        &mut self,
        output: Cow<'_, [Cell]>,
        pool: &mut Vec<Cell>,
        bytes: &mut usize,
    ) -> Result<(), FilterError> {
        *bytes = bytes.saturating_add(weight(&output));
        check("bytes of the result", *bytes, POOL_BYTES_MAX)?;
        let taken = capacity_of(&output);
        match output {
            Cow::Owned(cells) if pool.is_empty() => {
                self.memory.release(pool.capacity());
                *pool = cells;
            }
            Cow::Owned(mut cells) => {
                self.memory.grow(pool, cells.len(), usize::MAX)?;
                pool.append(&mut cells);
                self.memory.release(taken);
            }
            Cow::Borrowed(cells) => {
                self.memory.grow(pool, cells.len(), usize::MAX)?;
                pool.extend_from_slice(cells);
            }
        }
        Ok(())
    }

    /// Whether a cell passes all tests. Past the limit of work it passes none, and the caller's [`Self::visit`] fails.
    fn admits(&mut self, tests: &[CellTest], cell: &Cell) -> bool {
        tests.iter().all(|test| {
            self.visits = self.visits.saturating_add(test.bytes_of(cell) / TESTED_BYTES + 1);
            self.visits <= VISITS_MAX && test.admits(cell)
        })
    }

    fn test<'c>(&mut self, tests: &[CellTest], cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        match cells {
            Cow::Owned(mut cells) => {
                cells.retain(|cell| self.admits(tests, cell));
                self.visit(0)?;
                Ok(Cow::Owned(cells))
            }
            Cow::Borrowed(cells) => {
                let refused = cells.iter().position(|cell| !self.admits(tests, cell));
                let (same, rest) = cells.split_at(refused.unwrap_or(cells.len()));
                let rest = rest.get(1..).unwrap_or_default();
                if refused.is_none() {
                    return Ok(Cow::Borrowed(same));
                }
                let mut kept = Vec::new();
                self.memory.grow(&mut kept, same.len(), cells.len())?;
                kept.extend_from_slice(same);
                for cell in rest {
                    if self.admits(tests, cell) {
                        self.memory.push(&mut kept, cell, cells.len())?;
                    }
                }
                self.visit(0)?;
                Ok(Cow::Owned(kept))
            }
        }
    }

    fn newest<'c>(&mut self, versions: usize, cells: Cow<'c, [Cell]>) -> Result<Cow<'c, [Cell]>, FilterError> {
        let cells = match cells {
            Cow::Owned(mut cells) => {
                keep_newest(&mut cells, versions);
                return Ok(Cow::Owned(cells));
            }
            Cow::Borrowed(cells) => cells,
        };
        let mut kept = Vec::new();
        let columns = cells.chunk_by(same_column);
        for cell in columns.flat_map(|column| column.iter().take(versions)) {
            self.memory.push(&mut kept, cell, cells.len())?;
        }
        Ok(Cow::Owned(kept))
    }

    /// The cells for changing them in place.
    pub(crate) fn own(&mut self, cells: Cow<'_, [Cell]>) -> Result<Vec<Cell>, FilterError> {
        match cells {
            Cow::Owned(cells) => Ok(cells),
            Cow::Borrowed(cells) => {
                let mut copies = Vec::new();
                self.memory.grow(&mut copies, cells.len(), cells.len())?;
                copies.extend_from_slice(cells);
                Ok(copies)
            }
        }
    }
}

fn check(what: &'static str, value: usize, limit: usize) -> Result<(), FilterError> {
    if value > limit {
        return Err(FilterError::TooManyCells { what, limit });
    }
    Ok(())
}

pub(crate) fn skip(cells: Cow<'_, [Cell]>, count: usize) -> Cow<'_, [Cell]> {
    match cells {
        Cow::Owned(mut cells) => {
            cells.drain(..count.min(cells.len()));
            Cow::Owned(cells)
        }
        Cow::Borrowed(cells) => Cow::Borrowed(cells.get(count..).unwrap_or_default()),
    }
}

pub(crate) fn first(cells: Cow<'_, [Cell]>, count: usize) -> Cow<'_, [Cell]> {
    match cells {
        Cow::Owned(mut cells) => {
            cells.truncate(count);
            Cow::Owned(cells)
        }
        Cow::Borrowed(cells) => Cow::Borrowed(cells.get(..count).unwrap_or(cells)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::re2::Pattern;
    use stele_types::{FamilyId, Timestamp};

    fn cell(value_bytes: usize) -> Cell {
        let value = Bytes::from(vec![b'v'; value_bytes]);
        Cell::put(FamilyId(1), Bytes::new(), Timestamp(1), value)
    }

    fn left(visits: usize, node: &Node, cells: &[Cell], owned: bool) -> Result<usize, FilterError> {
        let mut rng = || 0.5;
        let memory = ListMemory::new(cells, cells.len(), usize::MAX, false)?;
        let mut evaluation = Evaluation::new(b"row", memory, &mut rng);
        evaluation.visits = VISITS_MAX - visits;
        let cells = if owned {
            Cow::Owned(cells.to_vec())
        } else {
            Cow::Borrowed(cells)
        };
        evaluation.run(node, cells)?;
        Ok(VISITS_MAX - evaluation.visits)
    }

    #[test]
    fn bytes_that_patterns_are_tried_on_are_work() {
        let pattern = |text: &[u8]| CellTest::Value(Pattern::compile(text).unwrap());
        let tests = |text: &[u8], count: usize| Node::Cells(vec![pattern(text); count]);
        let cells = [cell(8_000), cell(8_000)];
        for owned in [true, false] {
            // Two cells, and for each test of each a thousand and one.
            let all = 2 + 3 * 2 * 1_001;
            assert_eq!(left(all + 5, &tests(b"[v-w]*", 3), &cells, owned).ok(), Some(5));
            let error = left(all - 1, &tests(b"[v-w]*", 3), &cells, owned).unwrap_err();
            assert_eq!(error.kind(), stele_types::ErrorKind::ResourceExhausted);
            // Tests that are not reached cost nothing, and neither do bytes that a comparison decides.
            assert_eq!(left(10, &tests(b"w[v-w]*", 3), &cells, owned).ok(), Some(6));
        }
    }

    #[test]
    fn a_pattern_of_very_many_states_is_refused_for_a_large_value() {
        let test = CellTest::Value(Pattern::compile(br"\C*a\C{1000}b\C*").unwrap());
        let error = left(VISITS_MAX, &Node::Cells(vec![test]), &[cell(100 << 20)], true).unwrap_err();
        assert_eq!(error.kind(), stele_types::ErrorKind::ResourceExhausted);
        let usual = CellTest::Value(Pattern::compile(br"[a-u]\C*").unwrap());
        assert!(left(VISITS_MAX, &Node::Cells(vec![usual]), &[cell(100 << 20)], true).is_ok());
    }

    #[test]
    fn a_predicate_is_work_too() {
        let test = CellTest::Value(Pattern::compile(b"[v-w]*w").unwrap());
        let condition = Node::Condition {
            predicate: Box::new(Node::Cells(vec![test])),
            on_true: Box::new(Node::PassAll),
            on_false: Box::new(Node::PassAll),
        };
        let cells = [cell(8_000), cell(8_000)];
        assert!(left(2_100, &condition, &cells, true).is_ok());
        assert!(left(1_900, &condition, &cells, true).is_err());
    }
}
