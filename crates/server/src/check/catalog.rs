//! Checks the catalog.
//!
//! Every record must be readable, and the tablets of each table must cover all rows once.

use super::report::{Report, storage_may_answer};
use super::snapshots::NamedSnapshot;
use anyhow::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_catalog::record::{self, SnapshotRecord};
use stele_catalog::{TableEntry, TabletEntry};
use stele_coord::{Coord, CoordError, EmbeddedCoord};
use stele_env::Env;
use stele_storage::Storage;
use stele_types::{RowRange, SnapshotId, TableId, TableSchema, TabletId};

/// A tablet that the catalog names.
pub struct Named {
    /// Its table.
    pub schema: Arc<TableSchema>,
    /// Its rows.
    pub range: RowRange,
}

/// The content of a catalog.
pub struct Found {
    /// The tablets that the catalog names.
    pub tablets: BTreeMap<TabletId, Named>,
    /// The snapshots that the catalog names.
    pub snapshots: Vec<NamedSnapshot>,
    /// Whether it may lack its last transaction.
    pub is_torn: bool,
}

/// Reads the catalog; `None` when it is damaged. An error is one of the storage and may be transient.
pub async fn check(storage: Arc<dyn Storage>, env: Env, report: &mut Report) -> anyhow::Result<Option<Found>> {
    Ok(match read(storage, env, report).await {
        Ok(found) => Some(found),
        Err(CoordError::Storage(error)) if storage_may_answer(&error) => {
            return Err(error).context("reading the catalog");
        }
        Err(CoordError::Corruption {
            file,
            offset,
            expected,
            found,
        }) => {
            let what = format!("expected {expected}, found {found}; the catalog cannot be read");
            report.damage(&file, Some(offset), what, Vec::new());
            None
        }
        Err(error) => {
            report.damage("coord", None, error.to_string(), Vec::new());
            None
        }
    })
}

async fn read(storage: Arc<dyn Storage>, env: Env, report: &mut Report) -> Result<Found, CoordError> {
    let coord = EmbeddedCoord::open(storage, env).await?;
    let mut tablets: BTreeMap<TableId, Vec<TabletEntry>> = BTreeMap::new();
    for (key, versioned) in coord.list(record::TABLETS).await? {
        let Some((table, id)) = record::parse_tablet_key(&key) else {
            report.damage(&key, None, "not the key of a tablet", Vec::new());
            continue;
        };
        match record::decode_tablet(&versioned.value) {
            Ok((range, assignment)) => tablets.entry(table).or_default().push(TabletEntry {
                id,
                range,
                assignment,
                version: versioned.version,
            }),
            Err(why) => report.damage(&key, None, why, Vec::new()),
        }
    }
    let mut named = BTreeMap::new();
    for (key, versioned) in coord.list(record::TABLES).await? {
        let (schema, tablet_set) = match record::decode_table(&versioned.value) {
            Ok((schema, tablet_set)) => (Arc::new(schema), tablet_set),
            Err(why) => {
                report.damage(&key, None, why, Vec::new());
                continue;
            }
        };
        report.tables += 1;
        if record::table_key(&schema.name) != key {
            report.damage(&key, None, format!("describes table {}", schema.name), Vec::new());
        }
        let of_table = tablets.remove(&tablet_set).unwrap_or_default();
        if let Err(why) = TableEntry::new(schema.clone(), versioned.version, of_table.clone()) {
            report.damage(&key, None, why, Vec::new());
        }
        for tablet in of_table {
            report.tablets += 1;
            let entry = Named {
                schema: schema.clone(),
                range: tablet.range,
            };
            if named.insert(tablet.id, entry).is_some() {
                let what = format!("tablet {} belongs to two tables", tablet.id);
                report.damage(&key, None, what, Vec::new());
            }
        }
    }
    for (table, left) in tablets {
        let what = format!(
            "{} tablets of a table that is no more; the next start removes them",
            left.len()
        );
        report.note(
            &record::tablet_key(table, left.first().map_or(TabletId(0), |t| t.id)),
            what,
        );
    }
    Ok(Found {
        tablets: named,
        snapshots: snapshots(&*coord, report).await?,
        is_torn: coord.was_torn(),
    })
}

async fn snapshots(coord: &dyn Coord, report: &mut Report) -> Result<Vec<NamedSnapshot>, CoordError> {
    let mut named = Vec::new();
    for (key, versioned) in coord.list(record::SNAPSHOTS).await? {
        let decoded = record::decode::<SnapshotRecord>(&versioned.value).and_then(|found| {
            let (schema, _) = record::decode_table(&found.table)?;
            Ok((found, schema))
        });
        match decoded {
            Ok((found, schema)) => {
                if record::snapshot_key(&found.namespace, &found.name) != key {
                    let what = format!("describes snapshot {}/{}", found.namespace, found.name);
                    report.damage(&key, None, what, Vec::new());
                }
                named.push(NamedSnapshot {
                    shown: format!("{}/{} of table {}", found.namespace, found.name, schema.name),
                    id: SnapshotId(found.id),
                    parts: found.parts,
                    tablets: found.tablets,
                });
            }
            Err(why) => report.damage(&key, None, why, Vec::new()),
        }
    }
    Ok(named)
}
