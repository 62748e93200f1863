//! Records of snapshots.

use super::{Catalog, Result};
use crate::error::CatalogError;
use crate::record;
use crate::view::SnapshotEntry;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_coord::{Condition, Coord, Write};
use stele_types::Resource;

/// All snapshots.
pub(super) async fn load(coord: &dyn Coord) -> Result<BTreeMap<(String, String), Arc<SnapshotEntry>>> {
    let mut snapshots = BTreeMap::new();
    for (key, versioned) in coord.list(record::SNAPSHOTS).await? {
        let entry = record::decode_snapshot(&versioned.value, versioned.version);
        let entry = entry.and_then(|entry| {
            let expected = record::snapshot_key(&entry.name.0, &entry.name.1);
            match expected == key {
                true => Ok(entry),
                false => Err(format!("the record is of {expected}")),
            }
        });
        let entry = entry.map_err(|detail| CatalogError::Corruption {
            key: key.clone(),
            detail,
        })?;
        snapshots.insert(entry.name.clone(), Arc::new(entry));
    }
    Ok(snapshots)
}

impl Catalog {
    /// The snapshot of this name.
    pub fn snapshot(&self, namespace: &str, name: &str) -> Result<Arc<SnapshotEntry>> {
        let key = (namespace.to_owned(), name.to_owned());
        let found = self.view().snapshots.get(&key).cloned();
        found.ok_or(CatalogError::NoSnapshot(key.0, key.1))
    }

    /// Records a new snapshot, whose files are durable. Its version is ignored.
    pub async fn create_snapshot(&self, entry: SnapshotEntry) -> Result<Arc<SnapshotEntry>> {
        let (namespace, name) = entry.name.clone();
        if self.view().snapshots.contains_key(&entry.name) {
            return Err(CatalogError::SnapshotExists(namespace, name));
        }
        let key = record::snapshot_key(&namespace, &name);
        self.put_snapshot(Condition::absent(&key), entry).await
    }

    /// Replaces the expiry and the data of a snapshot.
    pub async fn update_snapshot(&self, entry: SnapshotEntry) -> Result<Arc<SnapshotEntry>> {
        let former = self.snapshot(&entry.name.0, &entry.name.1)?;
        let key = record::snapshot_key(&entry.name.0, &entry.name.1);
        if former.id != entry.id {
            return Err(CatalogError::Conflict { key });
        }
        self.put_snapshot(Condition::version(&key, former.version), entry).await
    }

    async fn put_snapshot(&self, condition: Condition, mut entry: SnapshotEntry) -> Result<Arc<SnapshotEntry>> {
        let write = Write::Put {
            key: condition.key.clone(),
            value: record::encode_snapshot(&entry),
        };
        entry.version = self.commit(vec![condition], vec![write]).await?;
        let entry = Arc::new(entry);
        self.change(|view| {
            view.snapshots.insert(entry.name.clone(), entry.clone());
        });
        Ok(entry)
    }

    /// Forgets a snapshot. The caller deletes its files afterwards.
    pub async fn delete_snapshot(&self, namespace: &str, name: &str) -> Result<Arc<SnapshotEntry>> {
        let entry = self.snapshot(namespace, name)?;
        let key = record::snapshot_key(namespace, name);
        let conditions = vec![Condition::version(&key, entry.version)];
        let resource = Resource::Snapshot {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let writes = [Write::Delete { key }].into_iter().chain(self.rules_go(&resource));
        self.commit(conditions, writes.collect()).await?;
        self.rules_gone(&resource);
        self.change(|view| {
            view.snapshots.remove(&entry.name);
        });
        Ok(entry)
    }

    /// Finds out the outcome of an unsettled [`Catalog::create_snapshot`]: settles it, and checks whether the record of that
    /// name is of this very snapshot. If it is, the catalog knows the snapshot from now on. If not, it never will.
    pub async fn find_out_snapshot(&self, made: &SnapshotEntry) -> Result<Option<Arc<SnapshotEntry>>> {
        self.settle().await?;
        let key = record::snapshot_key(&made.name.0, &made.name.1);
        let Some(found) = self.coord.get(&key).await? else {
            return Ok(None);
        };
        let entry = record::decode_snapshot(&found.value, found.version)
            .map_err(|detail| CatalogError::Corruption { key, detail })?;
        if entry.id != made.id {
            return Ok(None);
        }
        let entry = Arc::new(entry);
        self.change(|view| {
            view.snapshots.insert(entry.name.clone(), entry.clone());
        });
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stele_coord::EmbeddedCoord;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::memory::MemoryStorage;
    use stele_types::{AccessRule, Kept, Member, Rights, SnapshotId, TableName};

    fn entry(id: u64, name: &str) -> SnapshotEntry {
        SnapshotEntry {
            id: SnapshotId(id),
            name: ("n".to_owned(), name.to_owned()),
            schema: Arc::new(crate::catalog::tests::schema(1, 1)),
            tablet_set: stele_types::TableId(3),
            created_micros: 5,
            completed_micros: 6,
            expires_micros: Some(9),
            front_end_data: Bytes::from_static(b"data"),
            parts: 2,
            tablets: 3,
            bytes: 4,
            kept: Some(Kept::DroppedRows),
            rules: vec![AccessRule::whole(Member::User("u".into()), Rights::READ)].into(),
            version: 0,
        }
    }

    async fn coord() -> Arc<dyn Coord> {
        let env = TokioRuntime::current();
        EmbeddedCoord::open(MemoryStorage::new(), env).await.unwrap()
    }

    #[tokio::test]
    async fn snapshots_are_made_changed_and_forgotten() {
        let coord = coord().await;
        let catalog = Catalog::load(coord.clone()).await.unwrap();
        let made = catalog.create_snapshot(entry(7, "s")).await.unwrap();
        let again = catalog.create_snapshot(entry(8, "s")).await.unwrap_err();
        assert!(matches!(again, CatalogError::SnapshotExists(..)), "{again}");
        let loaded = Catalog::load(coord.clone()).await.unwrap();
        assert_eq!(loaded.snapshot("n", "s").unwrap(), made);
        assert_eq!(made.schema.name, TableName::new("n", "t"));
        let later = SnapshotEntry {
            expires_micros: None,
            ..SnapshotEntry::clone(&made)
        };
        catalog.update_snapshot(later).await.unwrap();
        let stale = loaded.delete_snapshot("n", "s").await.unwrap_err();
        assert!(matches!(stale, CatalogError::Conflict { .. }), "{stale}");
        assert_eq!(catalog.snapshot("n", "s").unwrap().expires_micros, None);
        catalog.delete_snapshot("n", "s").await.unwrap();
        let gone = catalog.delete_snapshot("n", "s").await.unwrap_err();
        assert!(matches!(gone, CatalogError::NoSnapshot(..)), "{gone}");
        assert!(Catalog::load(coord).await.unwrap().view().snapshots.is_empty());
    }

    #[tokio::test]
    async fn a_snapshot_of_unknown_outcome_is_found_out() {
        let coord = coord().await;
        let catalog = Catalog::load(coord.clone()).await.unwrap();
        assert_eq!(catalog.find_out_snapshot(&entry(7, "s")).await.unwrap(), None);
        let other = Catalog::load(coord).await.unwrap();
        other.create_snapshot(entry(7, "s")).await.unwrap();
        assert_eq!(catalog.find_out_snapshot(&entry(8, "s")).await.unwrap(), None);
        let found = catalog.find_out_snapshot(&entry(7, "s")).await.unwrap().unwrap();
        assert_eq!(catalog.snapshot("n", "s").unwrap(), found);
    }

    #[tokio::test]
    async fn a_record_under_another_key_is_refused() {
        let coord = coord().await;
        let catalog = Catalog::load(coord.clone()).await.unwrap();
        let write = Write::Put {
            key: record::snapshot_key("n", "other"),
            value: record::encode_snapshot(&entry(7, "s")),
        };
        catalog.commit(Vec::new(), vec![write]).await.unwrap();
        let refused = Catalog::load(coord).await.err().expect("two names");
        assert!(refused.to_string().contains("the record is of"), "{refused}");
    }
}
