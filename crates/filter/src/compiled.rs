//! A checked filter, in the form that evaluation needs.

use crate::cell_order::is_input;
use crate::error::FilterError;
use crate::evaluate::Evaluation;
use crate::list_memory::{LABEL_BYTES, ListMemory};
use crate::node::{Node, RowTest};
use crate::pushdown::Pushdown;
use crate::values::reads_values;
use stele_types::Cell;

/// A checked filter. Shared between scans; it holds no state of a row.
#[derive(Clone, Debug)]
pub struct CompiledFilter {
    /// Conditions on the row that no cell can get past; taken out of `root`.
    pub(crate) guards: Vec<RowTest>,
    pub(crate) root: Node,
    /// Cells may get labels.
    pub(crate) has_labels: bool,
    pub(crate) pushdown: Pushdown,
}

impl CompiledFilter {
    /// The reduction of rows that a scan may carry out.
    pub fn pushdown(&self) -> &Pushdown {
        &self.pushdown
    }

    /// Whether the filter changes nothing of any row.
    pub fn passes_all(&self) -> bool {
        self.guards.is_empty() && matches!(self.root, Node::PassAll)
    }

    /// Whether evaluation reads values. If not, cells may be passed before their values have been fetched, as
    /// `Reference`s. Evaluation passes those on, or makes empty `Put`s of them.
    pub fn reads_values(&self) -> bool {
        reads_values(&self.root)
    }

    /// Upper bound of the bytes that evaluation takes for each input cell, in addition to the input. Most evaluations take
    /// far less, because the bound lets every test pass everything.
    pub fn bytes_per_cell_max(&self) -> usize {
        let label_bytes = if self.has_labels { LABEL_BYTES } else { 0 };
        let bytes = self
            .root
            .copies()
            .made()
            .saturating_mul(size_of::<Cell>() + label_bytes);
        bytes.saturating_add(label_bytes)
    }

    /// Whether the filter samples rows. Two evaluations of the same row may then differ.
    pub fn is_sampling(&self) -> bool {
        let is_sample = |guard: &RowTest| matches!(guard, RowTest::Sample(_));
        self.guards.iter().any(is_sample) || self.root.is_sampled()
    }

    /// Estimate of the patterns that are tried on the value of a cell: how much of the work of an evaluation values
    /// are. A pattern of very many states counts for several.
    pub fn patterns_per_value(&self) -> usize {
        self.root.value_patterns()
    }

    /// Whether the row can give any cell, judged by its key and the sampling of rows. Takes a value of `rng` (uniform
    /// in [0, 1)) for each sampling that it decides; [`evaluate`](Self::evaluate) does not repeat them.
    pub fn admits_row(&self, row: &[u8], rng: &mut dyn FnMut() -> f64) -> bool {
        !self.pushdown.no_cells && self.guards.iter().all(|guard| guard.admits(row, rng))
    }

    /// Bytes of the row's key that [`admits_row`](Self::admits_row) searches, each as often as a usual pattern could read it meanwhile, at
    /// the worst.
    pub fn key_bytes_searched(&self, row: &[u8]) -> usize {
        self.guards.iter().map(|guard| guard.bytes_paced(row)).sum()
    }

    /// The filter's result for an admitted row. Input and result are in order of family, qualifier and timestamp
    /// (newest first). Must be called only after [`admits_row`](Self::admits_row) returned true, because it skips the
    /// decisions made there. `memory` is the number of bytes that it may take in addition to the input, with a place for
    /// the result among others; it fails with [`FilterError::NeedsMemory`] before it takes more.
    pub fn evaluate(
        &self,
        row: &[u8],
        cells: Vec<Cell>,
        memory: usize,
        rng: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<Cell>, FilterError> {
        debug_assert!(is_input(&cells), "cells are in order");
        let memory = self.list_memory(&cells, memory)?;
        Evaluation::new(row, memory, rng).finish(&self.root, cells)
    }

    /// The account of an evaluation of these cells.
    pub(crate) fn list_memory(&self, cells: &Vec<Cell>, bytes: usize) -> Result<ListMemory, FilterError> {
        ListMemory::new(cells, cells.capacity(), bytes, self.has_labels)
    }

    /// The cells the filter makes of a row's cells: [`admits_row`](Self::admits_row) and
    /// [`evaluate`](Self::evaluate) in one, for single rows whose memory is in no account.
    pub fn apply(&self, row: &[u8], cells: Vec<Cell>, rng: &mut dyn FnMut() -> f64) -> Result<Vec<Cell>, FilterError> {
        if !self.admits_row(row, rng) {
            return Ok(Vec::new());
        }
        self.evaluate(row, cells, usize::MAX, rng)
    }
}
