//! The sweep deletes files of a shared data root that no tablet needs.
//!
//! No server knows all references to a file, because the halves of a split may be served by different ones. So one process
//! *marks* the files that manifests name, and *sweeps* the others. It is the only one that deletes committed files.
//!
//! A round has these steps, in this order:
//!
//! 1. It lists the files, and the parts of snapshots.
//! 2. It asks for [`Knowledge`]: the files that live servers use or may still commit, and the tablets of the catalog.
//! 3. It reads the newest manifest of every tablet in storage that it has not read yet.
//! 4. It asks for the snapshots of the catalog, and reads the files that they name. Those that are being taken when it asks are
//!    awaited first. Others may begin meanwhile: the round does not wait for them.
//! 5. It lists the tablets again. If it has not read some of them, or one had gone before step 3 read it, it repeats steps 3 to 5.
//!    A round is void if this does not end, or if a tablet's assigned owner has not claimed it. The round makes sure that nobody
//!    else has taken snapshots since step 4.
//! 6. It compares all of this ([`Checked`]).
//! 7. It deletes the files of step 1 that nothing of this needs, and that no round within the grace period needed. It deletes
//!    the parts of step 1 whose snapshots the catalog does not name.
//!
//! The manifest of a tablet that has gone since it was read counts as long as the round. Below, steps 3 to 5 are the last ones,
//! and a tablet is *read* in any step 3.
//!
//! Why a deleted file is never needed again:
//! * A file gets its first reference by a commit of the job that made it. In step 2 the job of a live server had ended: its
//!   reference exists by then, or never will. A server that is not alive has no tablet whose manifest it may still commit,
//!   because each is read as claimed under the epoch of its present owner. Or the tablet had gone before it was read: then others
//!   have replaced it and its references.
//! * A referenced file gets another reference by a new tablet: a half, or one merged of several. Tablets that are replaced go only
//!   when the new ones are there, and lose no reference before. So from one tablet to the next there is always one with the
//!   reference. The one of the beginning of step 5 is listed then, so it was read before. It had the reference all the time, so
//!   the manifest that was read names the file.
//! * Or by a snapshot. It is *being taken* from before the first of its manifests is read until the catalog names it, or never
//!   will. A snapshot that the catalog names at the end of step 4 is read. Any other one began after the beginning of step 4, so
//!   it names files of manifests that were read after step 3. Each of their tablets was read. Or it came and went since the listing
//!   before step 3, and by the point above the tablets that it replaced were read: if one of them had gone before, there would be
//!   another repetition.
//! * Or by a copy of a snapshot. No snapshot is deleted while it is being copied. So the copied one is named at the end of step 4
//!   and read, or both began after the beginning of step 4.
//! * Or by a new tablet over a snapshot. If it exists in step 5, it was read. If it is made later, its snapshot exists later than
//!   step 4, because none is deleted while a tablet is made of it. So step 4 has read the snapshot, or it began later.
//!
//! Why a deleted part is never needed: it was there in step 1, so its snapshot began before step 4. At the end of step 4 that
//! was not being taken any more, and not named. Numbers of snapshots are not used again.
//!
//! The grace period is no part of the argument. It spares readers of servers that were given up and still run, whose reads
//! would fail.

mod check;
mod held;

pub use crate::error::Result;
pub use check::{Checked, Finding};

use crate::error::TabletError;
use crate::manifest::{self, ManifestLog, StoredFile};
use crate::snapshot;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use held::HeldFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_storage::{Storage, StorageError};
use stele_types::{Epoch, FilesInUse, RowRange, ServerId, SnapshotId, TabletId};

/// Manifests read concurrently.
const READ_CONCURRENTLY: usize = 32;
/// Repetitions of steps 3 to 5 in one round. The first one takes as long as all manifests do, and each further one only as long as
/// a listing: no cluster splits that often eight times in a row.
const PASSES_MAX: usize = 8;
/// Files deleted in one request, as by object stores.
const DELETED_TOGETHER: usize = 1_000;
/// Files deleted in one round. The next round goes on.
const DELETED_MAX: usize = 20_000;

/// The knowledge that a round needs in addition to storage.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// The files in use by each server that may still commit a manifest: each that lives, and each whose tablets have not
    /// all been assigned to others.
    pub servers: BTreeMap<ServerId, FilesInUse>,
    /// No server with this number or a higher one had begun when the knowledge was gathered.
    pub next_server: ServerId,
    /// The tablets that the catalog names.
    pub tablets: BTreeMap<TabletId, NamedTablet>,
    /// Tablets that a change under way may come to name.
    pub coming: BTreeSet<TabletId>,
}

/// A tablet that the catalog names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTablet {
    /// Of its newest assignment.
    pub epoch: Epoch,
    /// Its rows.
    pub range: RowRange,
}

/// The leader, who knows servers, tablets and snapshots. A round asks in the order of the methods.
#[async_trait]
pub trait Leader: Sync {
    /// Files in use, and the tablets of the catalog.
    async fn knowledge(&self) -> Result<Knowledge>;

    /// The snapshots of the catalog, each with the number of its parts, at a moment at which none is being taken of those that
    /// were when this was called.
    async fn snapshots(&self) -> Result<BTreeMap<SnapshotId, u32>>;

    /// Fails unless the leader has been one since it was asked for snapshots: nobody else has taken any.
    async fn confirm(&self) -> Result<()>;
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// This many files and manifests were deleted.
    Swept {
        /// Sstables and value files.
        files: usize,
        /// Manifests of tablets that the catalog does not name.
        manifests: usize,
        /// Parts of snapshots that the catalog does not name.
        parts: usize,
    },
    /// Tablets were created or removed all the time, so nothing was deleted.
    TabletsChanged,
    /// A tablet is not claimed by its present owner yet, so a former one could still commit. Nothing was deleted.
    Unclaimed(TabletId),
}

/// The state of the sweep between rounds.
#[derive(Debug)]
pub struct Sweep {
    grace: Duration,
    /// When a round found a file unneeded that no round has found needed since.
    files: BTreeMap<StoredFile, Duration>,
    /// The same of tablets that the catalog does not name.
    tablets: BTreeMap<TabletId, Duration>,
    snapshots: HeldFiles,
    checked: Option<Checked>,
}

/// Files with their bytes.
type Listed = BTreeMap<StoredFile, u64>;

/// The newest manifests of the tablets that listings showed.
#[derive(Default)]
struct Marks {
    /// Tablets of the first listing. The knowledge is older than others, and cannot tell whether the catalog names them.
    first: BTreeSet<TabletId>,
    /// Tablets that had gone when they were to be read.
    gone: BTreeSet<TabletId>,
    needed: BTreeMap<StoredFile, Need>,
    epochs: BTreeMap<TabletId, Epoch>,
    ranges: BTreeMap<TabletId, RowRange>,
}

/// The statement of a manifest on a file that it names: of a tablet of the catalog, if one of them names the file.
struct Need {
    tablet: TabletId,
    /// Bytes of the file.
    len: u64,
}

impl Sweep {
    /// A sweep that deletes only files that were unneeded for this long.
    pub fn new(grace: Duration) -> Self {
        Sweep {
            grace,
            files: BTreeMap::new(),
            tablets: BTreeMap::new(),
            snapshots: HeldFiles::default(),
            checked: None,
        }
    }

    /// The comparison of the last round; `None` if it was void.
    pub fn checked(&self) -> Option<&Checked> {
        self.checked.as_ref()
    }

    /// For a simulation: deletes files although a snapshot names them.
    pub fn forget_snapshots(&mut self) {
        self.snapshots.forget_all();
    }

    /// Runs a round at the time `now`. An unreadable manifest or part of a snapshot is an error: nobody knows the files that
    /// it names.
    pub async fn round(&mut self, storage: &Arc<dyn Storage>, now: Duration, leader: &dyn Leader) -> Result<Round> {
        self.checked = None;
        let listed = storage.list("sst/").await?.into_iter();
        let listed = listed.filter_map(|info| Some((StoredFile::parse_path(&info.path)?, info.len)));
        let listed: Listed = listed.collect();
        let parts = storage.list(snapshot::DIRECTORY).await?;
        let knowledge = leader.knowledge().await?;
        let Some((marks, named)) = self.mark(storage, &knowledge, leader).await? else {
            return Ok(Round::TabletsChanged);
        };
        if let Some(unclaimed) = unclaimed(&knowledge, &marks) {
            return Ok(Round::Unclaimed(unclaimed));
        }
        leader.confirm().await?;
        let is_unneeded = |file: &&StoredFile| !self.snapshots.holds(**file) && is_unneeded(**file, &knowledge, &marks);
        let unneeded: BTreeSet<StoredFile> = listed.keys().filter(is_unneeded).copied().collect();
        let mut checked = check::compare(&**storage, &listed, &knowledge, &marks, self.snapshots.files()).await?;
        checked.unneeded = unneeded.len() as u64;
        self.checked = Some(checked);
        let files = due(&mut self.files, unneeded, now, self.grace);
        let is_orphan =
            |tablet: &&TabletId| !knowledge.tablets.contains_key(*tablet) && !knowledge.coming.contains(*tablet);
        let orphans = marks.epochs.keys().filter(|tablet| marks.first.contains(*tablet));
        let orphans = orphans.filter(is_orphan);
        let tablets = due(&mut self.tablets, orphans.copied().collect(), now, self.grace);
        assert!(
            files.iter().all(|file| !marks.needed.contains_key(file)),
            "a file that a manifest names is never swept"
        );
        assert!(
            files.iter().all(|file| !self.snapshots.holds(*file)),
            "a file that a snapshot names is never swept"
        );
        let unnamed = parts.into_iter().map(|info| info.path).filter(|path| {
            let part = snapshot::parse_path(path);
            part.is_some_and(|(snapshot, _)| !named.contains_key(&snapshot))
        });
        let parts = delete_parts(&**storage, unnamed.collect()).await?;
        let manifests = self.delete_tablets(&**storage, tablets).await?;
        let files = self.delete_files(&**storage, files).await?;
        Ok(Round::Swept {
            files,
            manifests,
            parts,
        })
    }

    /// Steps 3 to 5: the manifests of all tablets, and the snapshots of the catalog. `None` if there are new tablets each time.
    async fn mark(
        &mut self,
        storage: &Arc<dyn Storage>,
        knowledge: &Knowledge,
        leader: &dyn Leader,
    ) -> Result<Option<(Marks, BTreeMap<SnapshotId, u32>)>> {
        let mut listed = tablets(&**storage).await?;
        let mut marks = Marks {
            first: listed.clone(),
            ..Marks::default()
        };
        for _ in 0..PASSES_MAX {
            let are_all_read = marks.read(storage, &listed, knowledge).await?;
            let named = leader.snapshots().await?;
            self.snapshots.follow(&**storage, &named).await?;
            listed = tablets(&**storage).await?;
            assert!(
                marks.gone.iter().all(|tablet| !marks.epochs.contains_key(tablet)),
                "a tablet had gone, or was read"
            );
            if are_all_read && listed.iter().all(|tablet| marks.epochs.contains_key(tablet)) {
                return Ok(Some((marks, named)));
            }
        }
        Ok(None)
    }

    async fn delete_files(&mut self, storage: &dyn Storage, files: Vec<StoredFile>) -> Result<usize> {
        let files: Vec<StoredFile> = files.into_iter().take(DELETED_MAX).collect();
        for some in files.chunks(DELETED_TOGETHER) {
            let paths: Vec<String> = some.iter().map(|file| file.path()).collect();
            storage.delete_all(&paths).await?;
            for file in some {
                self.files.remove(file);
            }
        }
        Ok(files.len())
    }

    /// Deletes the manifests of tablets that are no more. The files that they name are unneeded from the next round on.
    async fn delete_tablets(&mut self, storage: &dyn Storage, tablets: Vec<TabletId>) -> Result<usize> {
        let mut deleted = 0;
        for tablet in tablets {
            let left = storage.list(&manifest::directory(tablet)).await?;
            let paths: Vec<String> = left.into_iter().map(|info| info.path).collect();
            storage.discard_all(&paths).await?;
            self.tablets.remove(&tablet);
            deleted += paths.len();
        }
        Ok(deleted)
    }
}

/// Deletes parts of snapshots that are no more, and of those that were not finished.
async fn delete_parts(storage: &dyn Storage, parts: Vec<String>) -> Result<usize> {
    for some in parts.chunks(DELETED_TOGETHER) {
        storage.delete_all(some).await?;
    }
    Ok(parts.len())
}

/// Notes the entries that are unneeded now, and forgets all others. Returns those that have been so for the grace period.
fn due<T: Copy + Ord>(
    since: &mut BTreeMap<T, Duration>,
    unneeded: BTreeSet<T>,
    now: Duration,
    grace: Duration,
) -> Vec<T> {
    since.retain(|entry, _| unneeded.contains(entry));
    for entry in unneeded {
        since.entry(entry).or_insert(now);
    }
    let due = since.iter().filter(|(_, first)| now.saturating_sub(**first) >= grace);
    due.map(|(entry, _)| *entry).collect()
}

/// Whether no tablet needs a file, and no live server may come to refer to it.
fn is_unneeded(file: StoredFile, knowledge: &Knowledge, marks: &Marks) -> bool {
    let maker = ServerId(file.id().epoch());
    let is_settled = match knowledge.servers.get(&maker) {
        Some(in_use) => file.id() < in_use.settled_below,
        None => maker < knowledge.next_server,
    };
    let is_held = || {
        knowledge
            .servers
            .values()
            .any(|in_use| in_use.held.contains(&file.id()))
    };
    is_settled && !marks.needed.contains_key(&file) && !is_held()
}

/// A tablet of the catalog that its present owner has not claimed. One that had manifests and has none any more was replaced or
/// dropped: the catalog does not name it by now.
fn unclaimed(knowledge: &Knowledge, marks: &Marks) -> Option<TabletId> {
    let is_unclaimed = |(tablet, named): &(&TabletId, &NamedTablet)| match marks.epochs.get(*tablet) {
        Some(of) => *of < named.epoch,
        None => !marks.gone.contains(*tablet),
    };
    let mut unclaimed = knowledge.tablets.iter().filter(is_unclaimed);
    unclaimed.next().map(|(tablet, _)| *tablet)
}

/// The tablets that have manifests.
async fn tablets(storage: &dyn Storage) -> Result<BTreeSet<TabletId>> {
    Ok(manifest::list_all(storage).await?.into_keys().collect())
}

impl Marks {
    /// Reads the newest manifest of each listed tablet that was not read yet. Whether none of them had gone.
    async fn read(
        &mut self,
        storage: &Arc<dyn Storage>,
        listed: &BTreeSet<TabletId>,
        knowledge: &Knowledge,
    ) -> Result<bool> {
        let unread = listed.iter().filter(|tablet| !self.epochs.contains_key(tablet));
        let reading = unread.copied().map(|tablet| async move {
            let read = newest(storage, tablet).await?;
            Ok::<_, TabletError>((tablet, read))
        });
        let reading: Vec<_> = reading.collect();
        let mut reading = futures::stream::iter(reading).buffer_unordered(READ_CONCURRENTLY);
        let mut are_all_read = true;
        while let Some((tablet, manifest)) = reading.try_next().await? {
            let Some(manifest) = manifest else {
                self.gone.insert(tablet);
                are_all_read = false;
                continue;
            };
            self.gone.remove(&tablet);
            let is_named = knowledge.tablets.contains_key(&tablet);
            for (file, len) in manifest.stored_with_lens() {
                if is_named || !self.needed.contains_key(&file) {
                    self.needed.insert(file, Need { tablet, len });
                }
            }
            self.epochs.insert(tablet, Epoch(manifest.epoch));
            self.ranges.insert(tablet, manifest.range());
        }
        assert_eq!(
            self.epochs.len(),
            self.ranges.len(),
            "the manifest of each tablet has an epoch and rows"
        );
        debug_assert!(
            !are_all_read || listed.iter().all(|tablet| self.epochs.contains_key(tablet)),
            "each listed tablet was read, if none had gone"
        );
        Ok(are_all_read)
    }
}

/// The newest manifest of a tablet; `None` when it has none any more.
async fn newest(storage: &Arc<dyn Storage>, tablet: TabletId) -> Result<Option<manifest::Manifest>> {
    match ManifestLog::open(storage.clone(), tablet).await {
        Ok((_, manifest)) => Ok(Some(manifest)),
        Err(TabletError::Storage(StorageError::NotFound { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
