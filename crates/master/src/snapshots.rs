//! Snapshots of tables: taken, copied, cloned, restored, deleted.
//!
//! A snapshot is complete in storage before the catalog names it, and its files are given up after the catalog has forgotten
//! it. The record in the catalog is the commit point of both. A clone is a new table over the same files. A restore replaces
//! all tablets of a table, as a truncation does, and its schema in the same transaction.
//!
//! Invariant: there is one snapshot at most of which nobody knows whether the catalog names it. No other change of snapshots
//! is begun before that is known.

pub(crate) mod rules;

use crate::automated;
use crate::error::from_catalog;
use crate::master::Master;
use crate::replacement::Replacement;
use crate::schema::{check_finished, check_table_name, check_unprotected};
use rules::{check_expiry, check_new_name, check_only, check_place};
use std::sync::Arc;
use stele_catalog::{CatalogError, CatalogView, SnapshotEntry};
use stele_client::{
    NewSnapshot, ServiceResult, SnapshotCopy, SnapshotFiles, SnapshotInfo, SnapshotName, SnapshotUpdate,
};
use stele_types::{AccessRule, Kept, SnapshotId, TableId, TableName, TableSchema, TabletId};

/// Expired snapshots that are deleted in one go, so that other changes have their turn in between.
const EXPIRED_AT_ONCE: usize = 16;

/// A table that is made of a snapshot.
#[derive(Default)]
pub(crate) struct Clone {
    /// Data instead of that of the snapshot.
    pub(crate) front_end_data: Option<Vec<u8>>,
    /// The mark of the restore that makes it.
    pub(crate) restoring: Option<String>,
    /// It is disabled, until the restore has completed it.
    pub(crate) is_unfinished: bool,
}

/// A snapshot as front ends see it.
pub(crate) fn info(entry: &SnapshotEntry) -> Arc<SnapshotInfo> {
    let (namespace, name) = entry.name.clone();
    Arc::new(SnapshotInfo {
        id: entry.id,
        name: SnapshotName { namespace, name },
        schema: entry.schema.clone(),
        created_micros: entry.created_micros,
        completed_micros: entry.completed_micros,
        expires_micros: entry.expires_micros,
        tablets: entry.tablets,
        bytes: entry.bytes,
        kept: entry.kept,
        front_end_data: entry.front_end_data.clone(),
    })
}

/// All snapshots that clients have taken, or those of a namespace, by name.
pub fn snapshots_in(view: &CatalogView, namespace: Option<&str>) -> Vec<Arc<SnapshotInfo>> {
    let is_of = |entry: &&Arc<SnapshotEntry>| namespace.is_none_or(|wanted| entry.name.0 == wanted);
    let is_wanted = |entry: &&Arc<SnapshotEntry>| entry.kept.is_none() && is_of(entry);
    let found = view.snapshots.values().filter(is_wanted);
    found.map(|entry| info(entry)).collect()
}

/// Whether a snapshot stays after it has expired, because an administrator has switched the cleanup off. That holds for snapshots
/// of clients: the server deletes those that it took by itself.
fn is_held(view: &CatalogView, entry: &SnapshotEntry) -> bool {
    !view.switches.snapshot_cleanup && entry.kept.is_none() && !automated::is_backup(entry)
}

impl Master {
    /// The snapshot of a name.
    pub(crate) fn snapshot_entry(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotEntry>> {
        let found = self.catalog.snapshot(&name.namespace, &name.name);
        found.map_err(from_catalog)
    }

    /// Checks a snapshot of a client before anything is made.
    fn check_new(&self, name: &SnapshotName, front_end_data: &[u8], expires_micros: Option<i64>) -> ServiceResult<()> {
        self.check_named(name, front_end_data, expires_micros)?;
        check_place(&self.catalog.view(), &name.namespace)
    }

    /// The same for a table that is kept: its limit is obeyed afterwards.
    pub(crate) fn check_named(
        &self,
        name: &SnapshotName,
        front_end_data: &[u8],
        expires_micros: Option<i64>,
    ) -> ServiceResult<()> {
        check_new_name(name, front_end_data)?;
        check_expiry(expires_micros, self.env.wall_micros())?;
        let view = self.catalog.view();
        let key = (name.namespace.clone(), name.name.clone());
        if view.snapshots.contains_key(&key) {
            return Err(from_catalog(CatalogError::SnapshotExists(key.0, key.1)));
        }
        Ok(())
    }

    /// A number for a snapshot that is to be taken.
    pub(crate) async fn new_snapshot_id(&self) -> ServiceResult<SnapshotId> {
        let ids = self.catalog.allocate_ids(1).await.map_err(from_catalog)?;
        Ok(SnapshotId(ids.first().copied().unwrap_or_default()))
    }

    /// A number for a snapshot that is to be imported: its parts may be written from now on, to be recorded by
    /// [`Master::import_snapshot`] or given up by [`Master::abandon_import`].
    pub async fn begin_import(&self) -> ServiceResult<SnapshotId> {
        let id = self.new_snapshot_id().await?;
        self.tablets.expect_snapshot(id);
        Ok(id)
    }

    /// Gives up an import that was not recorded, with its parts.
    pub async fn abandon_import(&self, snapshot: SnapshotId) {
        self.tablets.drop_snapshot(snapshot, 0).await;
    }

    /// Records a snapshot whose parts and files were imported under a number from [`Master::begin_import`]. After an error
    /// of known outcome they are given up.
    pub async fn import_snapshot(&self, entry: SnapshotEntry) -> ServiceResult<Arc<SnapshotInfo>> {
        self.carry_out(|master| async move {
            let name = SnapshotName::new(entry.name.0.clone(), entry.name.1.clone());
            let checked = match master.find_out_snapshot().await {
                Ok(()) => master.check_new(&name, &entry.front_end_data, entry.expires_micros),
                Err(error) => Err(from_catalog(error)),
            };
            if let Err(error) = checked {
                master.tablets.drop_snapshot(entry.id, entry.parts).await;
                return Err(error);
            }
            master.record(entry).await
        })
        .await
    }

    /// Takes a snapshot of a table.
    pub(crate) async fn create_snapshot_locked(&self, new: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        self.find_out_snapshot().await.map_err(from_catalog)?;
        self.check_new(&new.name, &new.front_end_data, new.expires_micros)?;
        if new.only_of_name {
            check_only(&self.catalog.view(), &new.name.name)?;
        }
        // A tablet with a replacement of unknown outcome might take writes in its successors already.
        self.replacements.decide_for(&new.table).await?;
        let table = self.entry(&new.table)?;
        check_finished(&table.schema)?;
        let created_micros = self.moment();
        let id = self.new_snapshot_id().await?;
        let tablets: Vec<TabletId> = table.tablets().iter().map(|tablet| tablet.id).collect();
        let count = tablets.len() as u64;
        let files = self.tablets.take_snapshot(id, tablets, new.flush).await?;
        let entry = SnapshotEntry {
            id,
            name: (new.name.namespace, new.name.name),
            schema: table.schema.clone(),
            tablet_set: table.tablet_set,
            created_micros,
            completed_micros: self.moment(),
            expires_micros: new.expires_micros,
            front_end_data: new.front_end_data.into(),
            parts: files.parts,
            tablets: count,
            bytes: files.bytes,
            kept: None,
            rules: Default::default(),
            version: 0,
        };
        self.record(entry).await
    }

    /// Copies a snapshot.
    pub(crate) async fn copy_snapshot_locked(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        self.find_out_snapshot().await.map_err(from_catalog)?;
        self.check_new(&copy.name, &copy.front_end_data, copy.expires_micros)?;
        // Tables of the copy would be in its namespace.
        if copy.name.namespace != copy.source.namespace {
            self.check_new_namespace(&copy.name.namespace)?;
        }
        let source = self.snapshot_entry(&copy.source)?;
        let id = self.new_snapshot_id().await?;
        let SnapshotFiles { parts, .. } = self.tablets.copy_snapshot((source.id, source.parts), id).await?;
        let entry = SnapshotEntry {
            id,
            name: (copy.name.namespace, copy.name.name),
            expires_micros: copy.expires_micros,
            front_end_data: copy.front_end_data.into(),
            parts,
            kept: None,
            rules: Vec::new().into(),
            ..SnapshotEntry::clone(&source)
        };
        self.record(entry).await
    }

    /// Records a snapshot whose files are listed in storage.
    pub(crate) async fn record(&self, entry: SnapshotEntry) -> ServiceResult<Arc<SnapshotInfo>> {
        let (id, parts) = (entry.id, entry.parts);
        match self.catalog.create_snapshot(entry.clone()).await {
            Ok(made) => {
                self.tablets.note_snapshot(id);
                tracing::info!(snapshot = %info(&made).name, table = %made.schema.name, "snapshot taken");
                Ok(info(&made))
            }
            Err(error) => {
                // While it is unknown whether the catalog names it, its files must stay.
                match error.is_ambiguous() {
                    true => *self.unknown_snapshot.lock() = Some(entry),
                    false => self.tablets.drop_snapshot(id, parts).await,
                }
                Err(from_catalog(error))
            }
        }
    }

    /// Whether the snapshot of unknown outcome has been recorded: then it stays, else its files go.
    pub(crate) async fn find_out_snapshot(&self) -> Result<(), CatalogError> {
        let unknown = self.unknown_snapshot.lock().clone();
        let Some(entry) = unknown else {
            return Ok(());
        };
        let found = self.catalog.find_out_snapshot(&entry).await?;
        *self.unknown_snapshot.lock() = None;
        match found.is_some() {
            true => self.tablets.note_snapshot(entry.id),
            false => self.tablets.drop_snapshot(entry.id, entry.parts).await,
        }
        tracing::info!(snapshot = %info(&entry).name, exists = found.is_some(), "the fate of the snapshot is known");
        Ok(())
    }

    /// Changes the expiry or the data of a snapshot.
    pub(crate) async fn update_snapshot_locked(
        &self,
        name: &SnapshotName,
        update: SnapshotUpdate,
    ) -> ServiceResult<Arc<SnapshotInfo>> {
        self.find_out_snapshot().await.map_err(from_catalog)?;
        let mut entry = SnapshotEntry::clone(&*self.snapshot_entry(name)?);
        if let Some(expires_micros) = update.expires_micros {
            check_expiry(expires_micros, self.env.wall_micros())?;
            entry.expires_micros = expires_micros;
        }
        if let Some(data) = update.front_end_data {
            check_new_name(name, &data)?;
            entry.front_end_data = data.into();
        }
        let updated = self.catalog.update_snapshot(entry).await.map_err(from_catalog)?;
        Ok(info(&updated))
    }

    /// Deletes a snapshot.
    pub(crate) async fn delete_snapshot_locked(&self, name: &SnapshotName) -> ServiceResult<()> {
        self.find_out_snapshot().await.map_err(from_catalog)?;
        let deleted = self.catalog.delete_snapshot(&name.namespace, &name.name).await;
        let deleted = deleted.map_err(from_catalog)?;
        self.tablets.drop_snapshot(deleted.id, deleted.parts).await;
        Ok(())
    }

    /// Makes a table of a snapshot, with these access rules.
    pub(crate) async fn clone_locked(
        &self,
        name: &SnapshotName,
        table: &TableName,
        front_end_data: Option<Vec<u8>>,
        rules: &[AccessRule],
    ) -> ServiceResult<Arc<TableSchema>> {
        // A table that comes back into its own namespace begins none.
        if name.namespace != table.namespace {
            self.check_new_namespace(&table.namespace)?;
        }
        let clone = Clone {
            front_end_data,
            ..Clone::default()
        };
        self.clone_with(name, table, clone, rules).await
    }

    pub(crate) async fn clone_with(
        &self,
        name: &SnapshotName,
        table: &TableName,
        clone: Clone,
        rules: &[AccessRule],
    ) -> ServiceResult<Arc<TableSchema>> {
        self.find_out_made().await.map_err(from_catalog)?;
        let snapshot = self.snapshot_entry(name)?;
        check_table_name(table)?;
        if self.catalog.view().table(table).is_some() {
            return Err(from_catalog(CatalogError::TableExists(table.clone())));
        }
        let (id, ids) = self.ids_for(&snapshot).await?;
        let mut schema = TableSchema {
            id,
            name: table.clone(),
            enabled: !clone.is_unfinished,
            restoring: clone.restoring,
            deletion_protection: false,
            automated_backups: None,
            ..TableSchema::clone(&snapshot.schema)
        };
        if let Some(data) = clone.front_end_data {
            schema.front_end_data = data;
        }
        if snapshot.kept != Some(Kept::DeletedTable) {
            // Views are of the table that was made for their readers, and not of its copies.
            schema.views.clear();
        }
        for view in schema.views.values_mut() {
            view.is_protected = false;
        }
        let files = (snapshot.id, snapshot.parts);
        let tablets = self
            .tablets
            .clone_snapshot(Arc::new(schema.clone()), files, ids)
            .await?;
        // A kept table comes back into its own namespace, and the others that are kept there stay.
        if name.namespace != table.namespace
            && let Err(error) = self.give_up_namespace(&table.namespace).await
        {
            self.abandon(tablets).await;
            return Err(error);
        }
        self.record_table(schema, tablets, rules).await
    }

    /// Replaces a table by the state of a snapshot.
    pub(crate) async fn restore_locked(
        &self,
        name: &SnapshotName,
        table: &TableName,
    ) -> ServiceResult<Arc<TableSchema>> {
        self.replacements.decide_former().await?;
        let snapshot = self.snapshot_entry(name)?;
        let entry = self.entry(table)?;
        check_unprotected(&entry.schema)?;
        check_finished(&entry.schema)?;
        let (set, new) = self.ids_for(&snapshot).await?;
        let restored = rules::restored_schema(&snapshot.schema, &entry.schema);
        let old: Vec<TabletId> = entry.tablets().iter().map(|tablet| tablet.id).collect();
        let files = (snapshot.id, snapshot.parts);
        let schema = Arc::new(restored.clone());
        let new = self.tablets.prepare_restore(schema, files, old.clone(), new).await?;
        let replacement = Replacement {
            table: table.clone(),
            old,
            new,
            set: Some((entry.schema.id, set)),
            restored: Some(Arc::new(restored)),
        };
        self.replacements.carry_out(replacement).await?;
        Ok(self.entry(table)?.schema.clone())
    }

    /// New identifiers for a table, or a set of tablets, of a snapshot, and for its tablets.
    async fn ids_for(&self, snapshot: &SnapshotEntry) -> ServiceResult<(TableId, Vec<TabletId>)> {
        let count = usize::try_from(snapshot.tablets).unwrap_or(usize::MAX);
        let ids = self.catalog.allocate_ids(count.saturating_add(1)).await;
        let mut ids = ids.map_err(from_catalog)?.into_iter();
        let first = TableId(ids.next().unwrap_or_default());
        Ok((first, ids.map(TabletId).collect()))
    }

    /// Deletes snapshots that have expired, some at a time; how many.
    pub async fn delete_expired(&self) -> ServiceResult<usize> {
        let now = self.env.wall_micros();
        let view = self.catalog.view();
        let is_due = |entry: &&Arc<SnapshotEntry>| {
            let has_expired = entry.expires_micros.is_some_and(|at| at <= now);
            has_expired && !is_held(&view, entry)
        };
        let expired = view.snapshots.values().filter(is_due);
        let expired: Vec<Arc<SnapshotEntry>> = expired.take(EXPIRED_AT_ONCE).cloned().collect();
        for found in &expired {
            let _changing = self.changing.lock().await;
            // Its expiry or the switch may have been changed meanwhile, or another may have its name.
            let current = self.catalog.snapshot(&found.name.0, &found.name.1);
            let is_same = current.is_ok_and(|current| current.version == found.version);
            if is_same && !is_held(&self.catalog.view(), found) {
                let name = info(found).name.clone();
                self.delete_snapshot_locked(&name).await?;
                tracing::info!(snapshot = %name, "an expired snapshot is deleted");
            }
        }
        Ok(expired.len())
    }
}
