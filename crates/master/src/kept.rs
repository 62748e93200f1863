//! Accidents can be undone.
//!
//! Before a table is deleted, or rows or families of it are dropped, a snapshot of it is taken that expires after a grace. It costs
//! no space until compactions replace files, and a deletion frees the files when it expires. It is not among the snapshots that
//! clients list. When the disk or the catalog is full, and when a snapshot cannot be taken, nothing is kept: dropping a table
//! must always be possible, and free space then.
//!
//! Invariant: a table is kept before anything of it is dropped. A change that fails after that says so ([`once_begun`]): repeated, it
//! would keep the table once more, as far as it is left.

use crate::error::{from_catalog, once_begun};
use crate::master::Master;
use crate::snapshots::info;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_catalog::{CatalogError, CatalogView, SnapshotEntry, TableEntry};
use stele_client::{ServiceError, ServiceResult, SnapshotInfo, SnapshotName};
use stele_types::{ErrorKind, Kept, Resource, TableName, TableSchema, TabletId};

/// Most snapshots that are kept of tables of one name: a client may drop rows every second. The oldest goes.
const KEPT_OF_TABLE_MAX: usize = 8;
/// Most that are kept of all tables: a client may make and delete tables. The oldest of the namespace with most of them goes, so that
/// nobody can push out the tables of others.
pub(crate) const KEPT_MAX: usize = 1_000;

/// The snapshots that are kept. One of a deletion that did not happen is left out: its table is still there.
fn entries_in(view: &CatalogView, namespace: Option<&str>) -> Vec<Arc<SnapshotEntry>> {
    let is_wanted = |entry: &&Arc<SnapshotEntry>| {
        let there = || {
            view.table(&entry.schema.name)
                .is_some_and(|table| table.schema.id == entry.schema.id)
        };
        let is_of = namespace.is_none_or(|wanted| entry.name.0 == wanted);
        is_of && entry.kept.is_some_and(|kept| kept != Kept::DeletedTable || !there())
    };
    view.snapshots.values().filter(is_wanted).cloned().collect()
}

/// Deleted and changed tables that are kept, or those of a namespace, by name.
pub fn kept_in(view: &CatalogView, namespace: Option<&str>) -> Vec<Arc<SnapshotInfo>> {
    entries_in(view, namespace).iter().map(|entry| info(entry)).collect()
}

impl Master {
    /// Keeps deleted tables, and tables before drops, for this long from now on. Zero keeps nothing.
    pub fn keep_deleted_for(&self, grace: Duration) {
        let micros = i64::try_from(grace.as_micros()).unwrap_or(i64::MAX);
        self.grace_micros.store(micros, Ordering::Relaxed);
    }

    fn grace_micros(&self) -> i64 {
        self.grace_micros.load(Ordering::Relaxed)
    }

    /// Takes a snapshot of a table before something of it is dropped. All its tablets are flushed: a restore in place replaces
    /// those without dropped rows, too. Within a change.
    pub(crate) async fn keep(&self, table: &TableEntry, why: Kept) -> ServiceResult<()> {
        let grace = self.grace_micros();
        if grace == 0 {
            return Ok(());
        }
        if self.tablets.is_short_of_space().await {
            tracing::warn!(table = %table.schema.name, "the table is not kept: the disk is short of space");
            return Ok(());
        }
        self.find_out_snapshot().await.map_err(from_catalog)?;
        self.replacements.decide_for(&table.schema.name).await?;
        let created_micros = self.env.wall_micros();
        let id = match self.new_snapshot_id().await {
            Ok(id) => id,
            Err(error) if error.kind == ErrorKind::ResourceExhausted => return not_kept(table, &error),
            Err(error) => return Err(error),
        };
        let namespace = table.schema.name.namespace.clone();
        let name = SnapshotName::new(namespace, format!("kept-{:016x}", id.0));
        let expires_micros = Some(created_micros.saturating_add(grace));
        if let Err(error) = self.check_named(&name, &[], expires_micros) {
            return not_kept(table, &error);
        }
        let tablets: Vec<TabletId> = table.tablets().iter().map(|tablet| tablet.id).collect();
        let count = tablets.len() as u64;
        let files = match self.tablets.take_snapshot(id, tablets, true).await {
            Ok(files) => files,
            Err(error) => return not_kept(table, &error),
        };
        let rules = self
            .catalog
            .view()
            .access
            .get(&Resource::Table(table.schema.name.clone()))
            .cloned();
        let entry = SnapshotEntry {
            id,
            name: (name.namespace, name.name),
            schema: table.schema.clone(),
            tablet_set: table.tablet_set,
            created_micros,
            completed_micros: self.env.wall_micros(),
            expires_micros,
            front_end_data: bytes::Bytes::new(),
            parts: files.parts,
            tablets: count,
            bytes: files.bytes,
            kept: Some(why),
            rules: rules.map(|found| found.rules).unwrap_or_default(),
            version: 0,
        };
        match self.record(entry).await {
            Ok(_) => {}
            // A later start may find the snapshot: then it expires.
            Err(error) if self.unknown_snapshot.lock().is_some() => return Err(error),
            Err(error) => return not_kept(table, &error),
        }
        self.limit_kept(&table.schema.name).await.map_err(once_begun)
    }

    /// Deletes snapshots that are kept beyond the limits: of tables of this name, and of all.
    async fn limit_kept(&self, table: &TableName) -> ServiceResult<()> {
        let mut kept = self.kept_entries(None);
        kept.sort_by_key(|entry| entry.id);
        let of_table: Vec<_> = kept
            .iter()
            .filter(|entry| entry.schema.name == *table)
            .cloned()
            .collect();
        let surplus = of_table.len().saturating_sub(KEPT_OF_TABLE_MAX);
        let mut surplus: Vec<_> = of_table.into_iter().take(surplus).collect();
        if surplus.is_empty() {
            let by_namespace = kept.iter().map(|entry| (entry.name.0.as_str(), entry));
            surplus.extend(surplus_of(by_namespace, KEPT_MAX).into_iter().cloned());
        }
        for entry in surplus {
            self.delete_snapshot_locked(&info(&entry).name.clone()).await?;
        }
        Ok(())
    }

    /// Gives up all that is kept of a namespace that is to be made: the former one of its name may have belonged to others.
    pub(crate) async fn give_up_namespace(&self, namespace: &str) -> ServiceResult<()> {
        if self.catalog.view().namespaces.contains_key(namespace) {
            return Ok(());
        }
        for entry in self.kept_entries(Some(namespace)) {
            self.delete_snapshot_locked(&info(&entry).name.clone()).await?;
        }
        Ok(())
    }

    /// While the disk is full: deletes the oldest snapshot that is kept; how many.
    pub(crate) async fn give_up_kept(&self) -> ServiceResult<usize> {
        if !self.tablets.is_short_of_space().await {
            return Ok(0);
        }
        let mut kept = self.kept_entries(None);
        kept.sort_by_key(|entry| entry.id);
        let Some(oldest) = kept.first() else {
            return Ok(0);
        };
        let _changing = self.changing.lock().await;
        let name = info(oldest).name.clone();
        tracing::warn!(table = %oldest.schema.name, "a kept table is given up, because the disk is full");
        self.delete_snapshot_locked(&name).await.map(|()| 1)
    }

    fn kept_entries(&self, namespace: Option<&str>) -> Vec<Arc<SnapshotEntry>> {
        entries_in(&self.catalog.view(), namespace)
    }

    /// Makes a deleted table again, with its rules in the same transaction. Within a change.
    pub(crate) async fn undelete_locked(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        if self.catalog.view().table(table).is_some() {
            return Err(from_catalog(CatalogError::TableExists(table.clone())));
        }
        let mut kept = self.kept_entries(Some(&table.namespace));
        kept.retain(|entry| entry.kept == Some(Kept::DeletedTable) && entry.schema.name == *table);
        let newest = kept.into_iter().max_by_key(|entry| entry.id);
        let not_kept = || ServiceError::not_found(format!("no table {table} was deleted that is still kept"));
        let newest = newest.ok_or_else(not_kept)?;
        let name = info(&newest).name.clone();
        let made = self.clone_locked(&name, table, None, &newest.rules).await?;
        // The table is there, which a repeated call would take for that of somebody else.
        if let Err(error) = self.delete_snapshot_locked(&name).await {
            tracing::warn!(%table, snapshot = %name, %error, "the table is made again, and stays kept until it expires");
        }
        Ok(made)
    }
}

/// Those of some entries, oldest first, that go so that `most` are left: each is the oldest of a namespace that has most entries.
fn surplus_of<'n, T>(oldest_first: impl Iterator<Item = (&'n str, T)>, most: usize) -> Vec<T> {
    let mut left = 0;
    let mut by_namespace: BTreeMap<&str, VecDeque<(usize, T)>> = BTreeMap::new();
    for (namespace, entry) in oldest_first {
        by_namespace.entry(namespace).or_default().push_back((left, entry));
        left += 1;
    }
    let mut surplus = Vec::new();
    while left > most {
        let oldest_of = |entries: &VecDeque<(usize, T)>| Reverse(entries.front().map(|(age, _)| *age));
        let largest = by_namespace
            .values_mut()
            .max_by_key(|entries| (entries.len(), oldest_of(entries)));
        let Some((_, oldest)) = largest.and_then(VecDeque::pop_front) else {
            break;
        };
        surplus.push(oldest);
        left -= 1;
    }
    surplus
}

/// The change goes on without undoing.
fn not_kept(table: &TableEntry, error: &ServiceError) -> ServiceResult<()> {
    tracing::warn!(table = %table.schema.name, %error, "the table is not kept for undoing");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_with_most_gives_up_its_oldest() {
        let surplus = |text: &'static str, most| {
            let entries = text.char_indices().map(|(at, _)| (&text[at..=at], at));
            surplus_of(entries, most)
        };
        assert_eq!(surplus("abbb", 4), [0; 0]);
        assert_eq!(surplus("abbb", 3), [1]);
        assert_eq!(surplus("abbb", 1), [1, 2, 0], "of equal ones the oldest goes");
        assert_eq!(surplus("aaab", 2), [0, 1]);
        assert_eq!(surplus("ab", 0), [0, 1]);
    }
}
