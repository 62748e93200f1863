//! A checked filter, and its evaluation over one row.

use crate::{Filter, FilterError, Pushdown};
use stele_types::{Cell, TableSchema};

/// A checked filter. Shared between scans; it holds no state of a row.
#[derive(Clone, Debug)]
pub struct CompiledFilter {
    pushdown: Pushdown,
}

impl Filter {
    /// Checks the whole tree, also what no row would ever reach, and prepares it for rows of tables with this schema.
    pub fn compile(&self, _schema: &TableSchema) -> Result<CompiledFilter, FilterError> {
        Ok(CompiledFilter {
            pushdown: Pushdown::default(),
        })
    }
}

impl CompiledFilter {
    /// What a scan need not fetch.
    pub fn pushdown(&self) -> &Pushdown {
        &self.pushdown
    }

    /// Whether the row can give any cell, as far as its key and the sampling of rows tell. Draws from `rng` (uniform in
    /// [0, 1)) for the samplings it decides; [`evaluate`](Self::evaluate) does not repeat them.
    pub fn admits_row(&self, _row: &[u8], _rng: &mut dyn FnMut() -> f64) -> bool {
        true
    }

    /// The cells the filter makes of an admitted row's cells, both in order of family, qualifier and timestamp (newest
    /// first). Must be called only after [`admits_row`](Self::admits_row) said yes.
    pub fn evaluate(
        &self,
        _row: &[u8],
        cells: Vec<Cell>,
        _rng: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<Cell>, FilterError> {
        Ok(cells)
    }
}

/// Keeps the first `versions` cells of each column.
pub(crate) fn keep_newest(cells: &mut Vec<Cell>, versions: usize) {
    let _ = (cells, versions);
}
