//! The versions that rows may have at a moment.

use std::collections::{BTreeMap, BTreeSet};

/// All rows now.
#[derive(Default)]
pub(super) struct Model {
    rows: BTreeMap<u64, Row>,
    last_version: u64,
    acknowledged: u64,
}

#[derive(Clone, Default)]
struct Row {
    acknowledged: Option<u64>,
    /// Later versions whose outcome is not known.
    perhaps: BTreeSet<u64>,
}

/// The rows at a moment.
pub(super) struct Moment {
    /// Microseconds of the clock of the log.
    pub(super) at: i64,
    rows: BTreeMap<u64, Row>,
}

impl Model {
    /// A write of a row begins; its version.
    pub(super) fn begin(&mut self, row: u64) -> u64 {
        self.last_version += 1;
        self.rows.entry(row).or_default().perhaps.insert(self.last_version);
        self.last_version
    }

    pub(super) fn acknowledge(&mut self, row: u64, version: u64) {
        let row = self.rows.entry(row).or_default();
        row.acknowledged = row.acknowledged.max(Some(version));
        row.perhaps.retain(|other| *other > version);
        self.acknowledged += 1;
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(super) fn moment(&self, at: i64) -> Moment {
        let rows = self.rows.clone();
        Moment { at, rows }
    }
}

impl Moment {
    /// Whether a row may have this newest version.
    pub(super) fn allows(&self, row: u64, version: Option<u64>) -> bool {
        self.versions(row).contains(&version)
    }

    pub(super) fn versions(&self, row: u64) -> BTreeSet<Option<u64>> {
        let row = self.rows.get(&row).cloned().unwrap_or_default();
        let perhaps = row.perhaps.into_iter().map(Some);
        perhaps.chain([row.acknowledged]).collect()
    }
}
