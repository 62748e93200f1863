//! Rules for snapshots, and the schemas of tables that are made of them.

use stele_catalog::CatalogView;
use stele_client::{ServiceError, ServiceResult, SnapshotName};
use stele_types::{ErrorKind, FamilyId, TableSchema};

/// Most snapshots of clients at one time, of all namespaces: nine hundred tables with ten each. A start reads the lists of all of them. Tables that are
/// kept have a limit of their own.
pub(crate) const SNAPSHOTS_MAX: usize = 9_000;

/// Most bytes of a front end's data: a description and labels.
const DATA_BYTES_MAX: usize = 64 << 10;

/// Refuses a name that some front end could not show, or too much data.
pub(super) fn check_new_name(name: &SnapshotName, front_end_data: &[u8]) -> ServiceResult<()> {
    crate::schema::check_snapshot_name(&name.namespace, &name.name)?;
    if front_end_data.len() > DATA_BYTES_MAX {
        let message = format!("a snapshot carries at most {DATA_BYTES_MAX} bytes of data");
        return Err(ServiceError::invalid(message));
    }
    Ok(())
}

/// Refuses a name that a snapshot of a client has in any namespace.
pub(super) fn check_only(view: &CatalogView, name: &str) -> ServiceResult<()> {
    let mut of_clients = view.snapshots.values().filter(|entry| entry.kept.is_none());
    match of_clients.any(|entry| entry.name.1 == name) {
        true => {
            let message = format!("there is a snapshot {name}, perhaps in another namespace");
            Err(ServiceError::new(ErrorKind::AlreadyExists, message))
        }
        false => Ok(()),
    }
}

/// Refuses another snapshot where there is no place. A namespace may have as many snapshots as places are left, so none takes the
/// last ones from the others. In any case it may have its part of all places: all of them if there is no other namespace.
pub(crate) fn check_place(view: &CatalogView, namespace: &str) -> ServiceResult<()> {
    let of_clients = || view.snapshots.values().filter(|entry| entry.kept.is_none());
    let own = of_clients().filter(|entry| entry.name.0 == namespace).count();
    let left = SNAPSHOTS_MAX.saturating_sub(of_clients().count());
    let namespaces = view.namespaces.len().max(1);
    if own < left || (left > 0 && own < SNAPSHOTS_MAX / namespaces) {
        return Ok(());
    }
    let message = match left {
        0 => format!("there are {SNAPSHOTS_MAX} snapshots, which is the limit: delete some"),
        left => format!("{namespace} has {own} snapshots, and {left} places are left for all: delete some of its own"),
    };
    Err(ServiceError::new(ErrorKind::ResourceExhausted, message))
}

/// Refuses an expiry in the past.
pub(super) fn check_expiry(expires_micros: Option<i64>, now: i64) -> ServiceResult<()> {
    match expires_micros {
        Some(at) if at <= now => Err(ServiceError::invalid("a snapshot cannot expire before it is taken")),
        _ => Ok(()),
    }
}

/// The schema of a table after a restore. Families that the table got since are gone, and their numbers are not given
/// again.
pub(super) fn restored_schema(snapshot: &TableSchema, table: &TableSchema) -> TableSchema {
    let restored = TableSchema {
        id: table.id,
        name: table.name.clone(),
        version: table.version + 1,
        enabled: table.enabled,
        restoring: None,
        deletion_protection: table.deletion_protection,
        automated_backups: table.automated_backups,
        views: table.views.clone(),
        next_family: FamilyId(snapshot.next_family.0.max(table.next_family.0)),
        ..snapshot.clone()
    };
    debug_assert!(
        restored.families.keys().all(|id| *id < restored.next_family),
        "a family has a number below the next one"
    );
    restored
}
