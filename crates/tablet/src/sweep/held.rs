//! The files that snapshots hold, counted over rounds of the sweep.
//!
//! Parts of snapshots never change, so each is read twice: when its snapshot is found, and when it is gone. The sweep is the one
//! that deletes parts, so those of a snapshot that has gone are there to be read. Should they not be, all are read again.
//!
//! Invariant: the count of a file is the number of references by the manifests of all counted snapshots.

use super::Result;
use crate::manifest::StoredFile;
use crate::snapshot;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use stele_storage::Storage;
use stele_types::SnapshotId;

/// Parts read concurrently: a megabyte each, unless one tablet has more.
const READ_CONCURRENTLY: usize = 16;

/// The files of counted snapshots: 40 bytes in memory for each.
#[derive(Debug, Default)]
pub(super) struct HeldFiles {
    /// With the number of their parts.
    counted: BTreeMap<SnapshotId, u32>,
    references: BTreeMap<StoredFile, u32>,
    /// A planted bug: snapshots count for nothing.
    forgets: bool,
}

impl HeldFiles {
    /// Counts the files of these snapshots, with the numbers of their parts, and of no others. After an error some may not be
    /// counted yet.
    pub async fn follow(&mut self, storage: &dyn Storage, named: &BTreeMap<SnapshotId, u32>) -> Result<()> {
        let gone: Vec<SnapshotId> = self
            .counted
            .keys()
            .filter(|id| !named.contains_key(id))
            .copied()
            .collect();
        for snapshot in gone {
            if self.forget(storage, snapshot).await.is_err() {
                // Nobody knows any more which references were its own.
                self.counted.clear();
                self.references.clear();
                break;
            }
        }
        for (snapshot, parts) in named {
            if !self.counted.contains_key(snapshot) {
                for (file, count) in references(storage, *snapshot, *parts).await? {
                    *self.references.entry(file).or_default() += count;
                }
                self.counted.insert(*snapshot, *parts);
            }
        }
        assert!(
            self.counted.keys().eq(named.keys()),
            "the counted snapshots are those of the catalog"
        );
        assert!(
            !self.counted.is_empty() || self.references.is_empty(),
            "without snapshots no file is held"
        );
        Ok(())
    }

    async fn forget(&mut self, storage: &dyn Storage, snapshot: SnapshotId) -> Result<()> {
        let Some(parts) = self.counted.get(&snapshot).copied() else {
            return Ok(());
        };
        for (file, count) in references(storage, snapshot, parts).await? {
            let left = self.references.get(&file).copied().unwrap_or(0).checked_sub(count);
            match left.expect("each reference of a counted snapshot is counted") {
                0 => drop(self.references.remove(&file)),
                left => drop(self.references.insert(file, left)),
            }
        }
        self.counted.remove(&snapshot);
        Ok(())
    }

    /// The files that snapshots name.
    pub fn files(&self) -> impl Iterator<Item = StoredFile> + '_ {
        self.references.keys().copied()
    }

    /// Whether a snapshot names a file.
    pub fn holds(&self, file: StoredFile) -> bool {
        self.references.contains_key(&file) && !self.forgets
    }

    /// From now on no file stays because of a snapshot.
    pub fn forget_all(&mut self) {
        self.forgets = true;
    }
}

/// The references of a snapshot by file.
async fn references(storage: &dyn Storage, snapshot: SnapshotId, parts: u32) -> Result<BTreeMap<StoredFile, u32>> {
    let reading = (0..parts).map(|part| snapshot::read(storage, snapshot, part));
    let reading: Vec<_> = reading.collect();
    let mut reading = futures::stream::iter(reading).buffer_unordered(READ_CONCURRENTLY);
    let mut references: BTreeMap<StoredFile, u32> = BTreeMap::new();
    while let Some(part) = reading.try_next().await? {
        for (file, _) in part.stored() {
            *references.entry(file).or_default() += 1;
        }
    }
    Ok(references)
}
