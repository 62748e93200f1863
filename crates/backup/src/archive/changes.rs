//! Changes of tables, noted for the archive while the catalog makes them.
//!
//! Invariant: a change is noted before it is reported to its caller, with a time of the clock of the log.

use super::format::TableChange;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_catalog::{CatalogView, TableEntry, record};
use stele_commitlog::LogClock;
use stele_memory::{Pool, Reservation};

/// Changes that wait for the archive. More than a day of constant splits; beyond it the archive has a gap. So it has beyond the memory
/// that is for changes.
const WAITING_MAX: usize = 10_000;
/// Bytes of a change in addition to those of its encoding.
const CHANGE_BYTES: usize = 96;

/// The changes that are not archived yet.
pub(crate) struct Changes {
    clock: Arc<LogClock>,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    changes: Vec<TableChange>,
    is_full: bool,
    /// Bytes of `changes`.
    bytes: usize,
    /// For these, and for those that were taken and are not archived.
    memory: Reservation,
}

impl Waiting {
    /// Takes memory for changes; whether there was some.
    fn grow(&mut self, bytes: usize) -> bool {
        let has_grown = self.memory.try_grow(bytes).is_ok();
        self.bytes += if has_grown { bytes } else { 0 };
        has_grown
    }

    /// Gives back the memory of changes that wait no more.
    fn forget(&mut self) {
        let others = self.memory.counted().saturating_sub(self.bytes);
        self.memory.shrink_to(others);
        (self.changes, self.bytes) = (Vec::new(), 0);
    }
}

impl Changes {
    pub(crate) fn new(clock: Arc<LogClock>, pool: &Pool) -> Arc<Changes> {
        let waiting = Waiting {
            changes: Vec::new(),
            is_full: false,
            bytes: 0,
            memory: pool.of(stele_memory::Part::Archive).empty(),
        };
        Arc::new(Changes {
            clock,
            waiting: Mutex::new(waiting),
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
                (change(at_micros, entry, former.map(|former| &**former)), former, entry)
            })
            // Other changes are those of owners of tablets.
            .filter(|(change, former, entry)| {
                former.is_none_or(|former| former.tablet_set != entry.tablet_set || former.schema != entry.schema)
                    || !change.tablets.is_empty()
            })
            .map(|(change, _, _)| change)
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
        if waiting.is_full {
            return;
        }
        let bytes = noted.iter().map(|change| change.encoded_len() + CHANGE_BYTES).sum();
        if waiting.changes.len() + noted.len() > WAITING_MAX || !waiting.grow(bytes) {
            waiting.forget();
            waiting.is_full = true;
        } else {
            waiting.changes.append(&mut noted);
        }
    }

    /// Takes all that were noted; `None` if there were too many. Their memory is counted until they are archived.
    pub(crate) fn take(&self) -> Option<Vec<TableChange>> {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        let changes = std::mem::take(&mut waiting.changes);
        (!std::mem::take(&mut waiting.is_full)).then_some(changes)
    }

    /// All that were taken are archived, or given up.
    pub(crate) fn archived(&self) {
        let waiting = self.waiting.lock();
        waiting.memory.shrink_to(waiting.bytes);
    }
}

/// All tables of a view.
pub(crate) fn all(at_micros: i64, view: &CatalogView) -> impl Iterator<Item = TableChange> + '_ {
    view.tables.values().map(move |entry| change(at_micros, entry, None))
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

#[cfg(test)]
mod tests;
