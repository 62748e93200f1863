//! Changes of tables, noted for the archive while the catalog makes them.
//!
//! Invariant: a change is noted before it is reported to its caller, with a time of the clock of the log.

use super::format::TableChange;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_catalog::{CatalogView, TableEntry, record};
use stele_commitlog::LogClock;

/// Changes that wait for the archive. More than a day of constant splits; beyond it the archive has a gap.
const WAITING_MAX: usize = 10_000;

/// The changes that are not archived yet.
pub(crate) struct Changes {
    clock: Arc<LogClock>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    changes: Vec<TableChange>,
    is_full: bool,
}

impl Changes {
    pub(crate) fn new(clock: Arc<LogClock>) -> Arc<Changes> {
        Arc::new(Changes {
            clock,
            waiting: Mutex::default(),
        })
    }

    /// Notes the difference of two views.
    pub(crate) fn note(&self, before: &CatalogView, after: &CatalogView) {
        let mut waiting = self.waiting.lock();
        // Under the lock, so that a caller that takes the changes later has all that are older.
        let at_micros = self.clock.now();
        let changed = after.tables.iter().filter(|(name, entry)| {
            let former = before.tables.get(*name);
            former.is_none_or(|former| !Arc::ptr_eq(former, entry))
        });
        let mut noted: Vec<TableChange> = changed
            .map(|(name, entry)| {
                let former = before
                    .tables
                    .get(name)
                    .filter(|former| former.schema.id == entry.schema.id);
                change(at_micros, entry, former.map(|former| &**former))
            })
            .collect();
        let gone = before.tables.iter().filter(|(name, former)| {
            let same = after.tables.get(*name);
            same.is_none_or(|entry| entry.schema.id != former.schema.id)
        });
        noted.extend(gone.map(|(_, former)| TableChange {
            at_micros,
            table: former.schema.id.0,
            record: Vec::new(),
            tablets: Vec::new(),
        }));
        if waiting.changes.len() + noted.len() > WAITING_MAX {
            waiting.changes = Vec::new();
            waiting.is_full = true;
        } else if !waiting.is_full {
            waiting.changes.append(&mut noted);
        }
    }

    /// Takes all that were noted; `None` if there were too many.
    pub(crate) fn take(&self) -> Option<Vec<TableChange>> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        (!waiting.is_full).then_some(waiting.changes)
    }
}

/// All tables of a view.
pub(crate) fn all(at_micros: i64, view: &CatalogView) -> Vec<TableChange> {
    view.tables
        .values()
        .map(|entry| change(at_micros, entry, None))
        .collect()
}

fn change(at_micros: i64, entry: &TableEntry, former: Option<&TableEntry>) -> TableChange {
    let known: BTreeSet<_> = former
        .iter()
        .flat_map(|former| former.tablets())
        .map(|tablet| tablet.id)
        .collect();
    let new = entry.tablets().iter().filter(|tablet| !known.contains(&tablet.id));
    let record: Bytes = record::encode_table(&entry.schema, entry.tablet_set);
    TableChange {
        at_micros,
        table: entry.schema.id.0,
        record: record.to_vec(),
        tablets: new.map(|tablet| tablet.id.0).collect(),
    }
}
