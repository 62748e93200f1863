//! A checked filter, in the form that evaluation needs.

use crate::cell_order::order;
use crate::error::FilterError;
use crate::evaluate::Evaluation;
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
    pub(crate) pushdown: Pushdown,
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
        reads_values(&self.root)
    }

    /// Cells that evaluation may hold at once for each cell it is given, those beside; an upper bound.
    pub fn copies_per_cell(&self) -> usize {
        self.root.copies().made()
    }

    /// Whether chance has a say in what is let through: who asks twice about a row may get two answers.
    pub fn is_sampling(&self) -> bool {
        let is_sample = |guard: &RowTest| matches!(guard, RowTest::Sample(_));
        self.guards.iter().any(is_sample) || self.root.is_sampled()
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
        debug_assert!(cells.is_sorted_by(|a, b| order(a, b).is_le()));
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
