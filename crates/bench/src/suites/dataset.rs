//! A table and its contents.

use crate::plan::{KeyFormat, KeyOrder, Keys, Operation, Values, Workload};
use crate::target::{Compression, TableSpec};

/// A table, its keys and its values, shared by several runs of an experiment.
#[derive(Debug, Clone)]
pub(super) struct Dataset {
    /// The schema of the table.
    pub table: TableSpec,
    /// Size of the key space: keys are numbers below it.
    pub records: u64,
    /// Their form.
    pub format: KeyFormat,
    /// The values under them.
    pub values: Values,
}

impl Dataset {
    /// A table of one version and no compression, named after `name`. Padded keys that are too narrow for this many
    /// records (above the document's own size) are widened.
    pub fn new(name: &str, records: u64, format: KeyFormat, values: Values) -> Self {
        let table = TableSpec {
            name: format!("bench-{name}"),
            families: crate::load::families(&values),
            max_versions: 1,
            splits: Vec::new(),
            compression: Compression::None,
            in_memory: false,
            block_bytes: None,
        };
        let format = match format {
            KeyFormat::Padded { digits } => KeyFormat::Padded {
                digits: digits.max(digits_of(records)),
            },
            other => other,
        };
        Self {
            table,
            records,
            format,
            values,
        }
    }

    /// With a compression.
    pub fn compressed(mut self, compression: Compression) -> Self {
        self.table.compression = compression;
        self
    }

    /// Bytes of a row's values, at most.
    pub fn row_bytes(&self) -> u64 {
        let each = self.values.bytes_max.unwrap_or(self.values.bytes);
        u64::from(each) * u64::from(self.values.columns.max(self.values.families).max(1))
    }

    /// One kind of operation on it.
    pub fn only(&self, operation: Operation, order: KeyOrder) -> Workload {
        self.mix(vec![(operation, 1.0)], order)
    }

    /// Several kinds of operation on it.
    pub fn mix(&self, mix: Vec<(Operation, f64)>, order: KeyOrder) -> Workload {
        Workload {
            table: self.table.name.clone(),
            mix,
            keys: Keys {
                records: self.records,
                order,
                format: self.format.clone(),
            },
            values: self.values.clone(),
            verify: true,
        }
    }
}

/// Decimal digits of the largest key number.
fn digits_of(records: u64) -> u8 {
    records
        .saturating_sub(1)
        .checked_ilog10()
        .map_or(1, |log| log as u8 + 1)
}
