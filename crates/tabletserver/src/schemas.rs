//! The newest changed schemas, for tablets that are not served yet when a schema changes.
//!
//! A schema is noted before the tablets that are served are told of it. A tablet is served first, and checks this list then. So each
//! tablet learns of each schema in one of the two ways.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_types::{TableId, TableSchema};

/// Schemas that are remembered: more than tables are changed in the time in which a tablet is opened or replaced.
const SCHEMAS_MAX: usize = 1 << 12;

/// Changed schemas, where the catalog is followed. Elsewhere the master tells of each schema after all tablets are served.
#[derive(Default)]
pub(crate) struct ChangedSchemas(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// Each with the number of its note.
    schemas: BTreeMap<TableId, (u64, Arc<TableSchema>)>,
    notes: u64,
}

impl ChangedSchemas {
    /// Notes a changed schema.
    pub(crate) fn note(&self, schema: &Arc<TableSchema>) {
        let mut noted = self.0.lock();
        noted.notes += 1;
        let number = noted.notes;
        noted.schemas.insert(schema.id, (number, schema.clone()));
        if noted.schemas.len() > SCHEMAS_MAX {
            // The oldest note goes: a tablet that is being opened needs the newest.
            let oldest = noted.schemas.iter().min_by_key(|(_, (number, _))| *number);
            if let Some(table) = oldest.map(|(table, _)| *table) {
                noted.schemas.remove(&table);
            }
        }
        assert!(
            noted.schemas.len() <= SCHEMAS_MAX,
            "a bounded number of schemas is remembered"
        );
    }

    /// The noted schema of a table, if it is newer than this one.
    pub(crate) fn newer_than(&self, schema: &TableSchema) -> Option<Arc<TableSchema>> {
        let noted = self.0.lock();
        let (_, newest) = noted.schemas.get(&schema.id)?;
        (newest.version > schema.version).then(|| newest.clone())
    }
}
