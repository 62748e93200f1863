//! The catalog in memory: immutable, shared, replaced as a whole.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_assignment::Assignment;
use stele_types::{
    AccessRule, Kept, Resource, RowRange, SnapshotId, Switches, TableId, TableName, TableSchema, TabletId,
};

/// One tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletEntry {
    /// Which tablet.
    pub id: TabletId,
    /// Its rows.
    pub range: RowRange,
    /// In a cluster, the server that has it.
    pub assignment: Assignment,
    /// Version of its record, for conditional changes.
    pub version: u64,
}

/// One table.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// The schema.
    pub schema: Arc<TableSchema>,
    /// Version of its record.
    pub version: u64,
    /// The number that the records of its tablets are under: the table's, until all its tablets are replaced together.
    pub tablet_set: TableId,
    /// The tablets in row order.
    tablets: Vec<TabletEntry>,
}

/// Fails unless these tablets, in row order, have all rows of a table; the error says where they leave a hole or overlap.
pub fn check_joined<'r>(tablets: impl Iterator<Item = (TabletId, &'r RowRange)>) -> Result<(), String> {
    let first = Bytes::new();
    let mut expected = Some(&first);
    for (id, range) in tablets {
        if expected != Some(&range.start) {
            let start = &range.start;
            return Err(format!(
                "tablet {id} begins at {start:?}, the one before ends at {expected:?}"
            ));
        }
        expected = range.end.as_ref();
    }
    expected.map_or(Ok(()), |end| Err(format!("no tablet from row {end:?} on")))
}

impl TableEntry {
    /// A table with its tablets, in any order; the error says where they leave a hole or overlap.
    pub fn new(schema: Arc<TableSchema>, version: u64, mut tablets: Vec<TabletEntry>) -> Result<Self, String> {
        tablets.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        check_joined(tablets.iter().map(|tablet| (tablet.id, &tablet.range)))?;
        Ok(TableEntry {
            tablet_set: schema.id,
            schema,
            version,
            tablets,
        })
    }

    /// The same tablets under another schema.
    pub fn with_schema(&self, schema: Arc<TableSchema>, version: u64) -> Self {
        TableEntry {
            schema,
            version,
            tablet_set: self.tablet_set,
            tablets: self.tablets.clone(),
        }
    }

    /// The same, with the records of its tablets under this number.
    pub fn of_set(mut self, tablet_set: TableId) -> Self {
        self.tablet_set = tablet_set;
        self
    }

    /// The tablets in row order.
    pub fn tablets(&self) -> &[TabletEntry] {
        &self.tablets
    }

    /// The tablet that holds `row`.
    pub fn tablet_of(&self, row: &[u8]) -> &TabletEntry {
        let after = self.tablets.partition_point(|t| t.range.begins_by(row));
        &self.tablets[after.saturating_sub(1)]
    }

    /// The tablet that holds the last row below `end`, or the last tablet for `None`.
    pub fn tablet_before(&self, end: Option<&[u8]>) -> &TabletEntry {
        let after = end.map_or(self.tablets.len(), |end| {
            self.tablets.partition_point(|t| t.range.start < end)
        });
        &self.tablets[after.saturating_sub(1)]
    }
}

/// A snapshot of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotEntry {
    /// Which snapshot.
    pub id: SnapshotId,
    /// The namespace that it is in, and its name there.
    pub name: (String, String),
    /// The schema of the table when it was taken.
    pub schema: Arc<TableSchema>,
    /// The number that the records of the table's tablets were under. Another one later means that all tablets were replaced.
    pub tablet_set: TableId,
    /// Wall-clock microseconds at which it was begun.
    pub created_micros: i64,
    /// Wall-clock microseconds at which it was complete.
    pub completed_micros: i64,
    /// Wall-clock microseconds from which on it may be deleted; `None` for never.
    pub expires_micros: Option<i64>,
    /// Data of the front end.
    pub front_end_data: Bytes,
    /// Files with its manifests.
    pub parts: u32,
    /// Its tablets.
    pub tablets: u64,
    /// Bytes of the rows that it refers to, roughly.
    pub bytes: u64,
    /// Why the server has taken it by itself; `None` if a client has.
    pub kept: Option<Kept>,
    /// The access rules of the table when it was kept.
    pub rules: Arc<[AccessRule]>,
    /// Version of its record, for conditional changes.
    pub version: u64,
}

/// The access rules of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRules {
    /// The rules; at least one.
    pub rules: Arc<[AccessRule]>,
    /// Version of their record, for conditional changes.
    pub version: u64,
}

/// The access rules of all resources that have some.
pub type AccessView = BTreeMap<Resource, ResourceRules>;

/// The whole catalog at one moment.
#[derive(Clone, Debug, Default)]
pub struct CatalogView {
    /// By name.
    pub tables: BTreeMap<TableName, Arc<TableEntry>>,
    /// Data of front ends about namespaces, and whether they were made on purpose.
    pub namespaces: BTreeMap<String, (Bytes, bool)>,
    /// Snapshots by namespace and name.
    pub snapshots: BTreeMap<(String, String), Arc<SnapshotEntry>>,
    /// Access rules. The same pointer as long as no rule changes.
    pub access: Arc<AccessView>,
    /// Work that servers do by themselves.
    pub switches: Switches,
    /// In a cluster: some table may have other tablets than those here. A record cannot be read, or the rest of a change follows.
    pub is_outdated: bool,
}

impl CatalogView {
    /// The table of this name.
    pub fn table(&self, name: &TableName) -> Option<&Arc<TableEntry>> {
        self.tables.get(name)
    }

    /// Those among some tablets that tables have. A record that is left over from a set that no table names is none of them.
    pub fn tablets_among(&self, tablets: &BTreeSet<TabletId>) -> BTreeSet<TabletId> {
        let all = self.tables.values().flat_map(|table| table.tablets());
        let known = all.map(|tablet| tablet.id).filter(|id| tablets.contains(id));
        known.collect()
    }

    /// The tables of a namespace, by name.
    pub fn tables_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<TableEntry>> + 'a {
        let from = TableName::new(namespace, "");
        self.tables
            .range(from..)
            .take_while(move |(name, _)| name.namespace == namespace)
            .map(|(_, t)| t)
    }
}
