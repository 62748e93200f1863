//! Counts the memory of the cell lists that an evaluation makes, while it makes them.
//!
//! A list counts with its capacity from before it is allocated until it is dropped. Counting is in cells, because all
//! lists have cells of one size. Names of columns and values are shared between copies and are not counted.

use crate::error::FilterError;
use std::borrow::Cow;
use stele_types::Cell;

/// Memory of a label in addition to its cell: the list, which begins with capacity for four, the text, and the overhead of the
/// allocator.
pub(crate) const LABEL_BYTES: usize = 192;

/// Cells that fit into all lists of one evaluation at a time, in addition to the input. A cell takes about 100 bytes,
/// so this is 400 MiB, or 1.2 GiB with labels, if the caller permits that much. The largest row, of 256 MiB, has at most
/// 2.6 M cells.
pub(crate) const COPIES_MAX: usize = 4 << 20;

/// Bytes up to which the standard library sorts with a second list that is as long as the first. Beyond that the second
/// list may be shorter, but has at least half of the cells.
const SORT_BYTES_MAX: usize = 8_000_000;

/// The memory of one evaluation.
pub(crate) struct ListMemory {
    /// Of a cell in a list, without parts that it shares with its copies.
    cell_bytes: usize,
    /// Bytes of labels of the input. The caller has reserved no memory for these.
    labels: usize,
    /// Capacity of the list that the evaluation began with. The caller has reserved memory for it.
    input: usize,
    /// Capacity of all lists that there may be, including the input.
    limit: usize,
    /// Capacity of all lists that there are.
    held: usize,
}

impl ListMemory {
    /// Lists may take `bytes` in addition to the input. `has_labels` says that cells may get labels.
    pub(crate) fn new(input: &[Cell], capacity: usize, bytes: usize, has_labels: bool) -> Result<Self, FilterError> {
        let label_bytes = if has_labels { LABEL_BYTES } else { 0 };
        let cell_bytes = size_of::<Cell>() + label_bytes;
        let labels = input.len().saturating_mul(label_bytes);
        if labels > bytes {
            return Err(FilterError::NeedsMemory { bytes: labels });
        }
        Ok(ListMemory {
            cell_bytes,
            labels,
            input: capacity,
            limit: capacity.saturating_add((bytes - labels) / cell_bytes),
            held: capacity,
        })
    }

    /// Capacity of all lists except lists with this capacity.
    pub(crate) fn all_but(&self, capacity: usize) -> usize {
        self.held.saturating_sub(capacity)
    }

    /// There are lists with this capacity, and no others.
    pub(crate) fn settle(&mut self, capacity: usize) {
        self.held = capacity;
    }

    /// A list was dropped.
    pub(crate) fn release(&mut self, capacity: usize) {
        self.held = self.held.saturating_sub(capacity);
    }

    /// Whether there is memory for another list with this capacity, for a moment.
    pub(crate) fn check(&self, capacity: usize) -> Result<(), FilterError> {
        let capacity = self.held.saturating_add(capacity);
        if capacity > self.limit {
            let bytes = (capacity - self.input.min(capacity)).saturating_mul(self.cell_bytes);
            return Err(FilterError::NeedsMemory {
                bytes: bytes.saturating_add(self.labels),
            });
        }
        Ok(())
    }

    /// Makes space for `more` cells at the end of a list that will not have more than `most`.
    pub(crate) fn grow(&mut self, list: &mut Vec<Cell>, more: usize, most: usize) -> Result<(), FilterError> {
        let (before, needed) = (list.capacity(), list.len().saturating_add(more));
        if needed <= before {
            return Ok(());
        }
        let capacity = before.saturating_mul(2).max(CAPACITY_MIN).min(most).max(needed);
        let copies = self.held.saturating_sub(before).saturating_sub(self.input);
        if copies.saturating_add(capacity) > COPIES_MAX {
            return Err(FilterError::TooManyCells {
                what: "cells copied",
                limit: COPIES_MAX,
            });
        }
        // While cells move from the smaller list to the larger one there are both.
        self.check(capacity)?;
        list.reserve_exact(capacity - list.len());
        self.held = (self.held + list.capacity()).saturating_sub(before);
        Ok(())
    }

    /// Adds a copy of a cell to a list that will not have more than `most`.
    pub(crate) fn push(&mut self, list: &mut Vec<Cell>, cell: &Cell, most: usize) -> Result<(), FilterError> {
        self.grow(list, 1, most)?;
        list.push(cell.clone());
        Ok(())
    }

    /// Whether there is memory to sort a list.
    pub(crate) fn check_sort(&self, list: &[Cell]) -> Result<(), FilterError> {
        let at_once = SORT_BYTES_MAX / size_of::<Cell>();
        self.check((list.len() / 2).max(list.len().min(at_once)))
    }
}

/// The least capacity of a list that grows cell by cell.
const CAPACITY_MIN: usize = 4;

/// The capacity of a list of its own; none in one that is borrowed.
#[expect(clippy::ptr_arg, reason = "it depends on whether the list is owned")]
pub(crate) fn capacity_of(list: &Cow<'_, [Cell]>) -> usize {
    match list {
        Cow::Owned(cells) => cells.capacity(),
        Cow::Borrowed(_) => 0,
    }
}
