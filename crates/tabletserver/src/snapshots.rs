//! Snapshots on the server: lists of files that stay, and tablets over them.
//!
//! A snapshot lists the newest manifest of each tablet, in parts (`stele_tablet::snapshot`). From the moment at which a
//! manifest is read, its files are held in the registry. So no compaction deletes them. The catalog is changed by the master
//! afterwards; a start holds the files of all snapshots that the catalog names (`recovery`), and deletes the parts of all others.
//!
//! Invariant: the registry counts each reference of the parts of a snapshot once, from before its parts are complete until
//! after the catalog has forgotten it.

use crate::error::from_tablet;
use crate::lifecycle::Lifecycle;
use crate::parts::Parts;
use crate::replacement::{Prepared, Replacements};
use crate::tablets::{Shut, Tablets};
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, SnapshotFiles, SnapshotTablet};
use stele_tablet::snapshot::{self, SnapshotPart, SnapshotWriter};
use stele_tablet::{Manifest, StoredFile, Tablet, TabletContext, TabletError};
use stele_types::{ErrorKind, RowRange, SnapshotId, TableSchema, TabletId};

/// Tablets flushed concurrently, as many as the server flushes by itself.
const FLUSHES_MAX: usize = 4;
/// Tablets made concurrently; each waits for a durable write.
const MADE_CONCURRENTLY: usize = 32;

/// Files with their bytes, as often as a snapshot refers to them.
type Held = Vec<(StoredFile, u64)>;

/// Takes snapshots, and makes tablets of them.
pub(crate) struct Snapshots {
    context: TabletContext,
    tablets: Arc<Tablets>,
    lifecycle: Arc<Lifecycle>,
    replacements: Arc<Replacements>,
}

impl Snapshots {
    /// Of the tablets of a server.
    pub(crate) fn new(parts: &Parts, lifecycle: Arc<Lifecycle>, replacements: Arc<Replacements>) -> Self {
        Snapshots {
            context: parts.context.clone(),
            tablets: parts.tablets.clone(),
            lifecycle,
            replacements,
        }
    }

    /// Lists the files of tablets under a new snapshot.
    pub(crate) async fn take(
        &self,
        snapshot: SnapshotId,
        tablets: Vec<TabletId>,
        flush: bool,
    ) -> ServiceResult<SnapshotFiles> {
        assert!(!tablets.is_empty(), "a table has a tablet, so a snapshot has a part");
        let held: Mutex<Held> = Mutex::default();
        let mut writer = SnapshotWriter::new(self.context.storage.clone(), snapshot);
        let (mut bytes, mut outcome) = (0, Ok(()));
        let manifests = tablets.into_iter().map(|tablet| self.hold(tablet, flush, &held));
        let mut manifests = futures::stream::iter(manifests).buffered(FLUSHES_MAX);
        // To the end also after an error: a flush is not dropped half-way.
        while let Some(manifest) = manifests.next().await {
            outcome = match (outcome, manifest) {
                (Err(error), _) | (Ok(()), Err(error)) => Err(error),
                (Ok(()), Ok(manifest)) => {
                    bytes += snapshot::referenced_bytes(&manifest);
                    writer.add(manifest).await.map_err(from_tablet)
                }
            };
        }
        drop(manifests);
        let finished = match outcome {
            Ok(()) => writer.finish().await.map_err(from_tablet),
            Err(error) => Err(error),
        };
        self.end(snapshot, finished, bytes, held.into_inner()).await
    }

    /// Lists the files of a snapshot once more.
    pub(crate) async fn copy(&self, (from, parts): (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles> {
        assert_ne!(from, to, "a copy has a number of its own: its parts are other files");
        let (mut held, mut bytes) = (Held::new(), 0);
        let mut writer = SnapshotWriter::new(self.context.storage.clone(), to);
        let mut copied = Ok(());
        for part in 0..parts {
            copied = self.copy_part(from, part, &mut writer, &mut held, &mut bytes).await;
            if copied.is_err() {
                break;
            }
        }
        let finished = match copied {
            Ok(()) => writer.finish().await.map_err(from_tablet),
            Err(error) => Err(from_tablet(error)),
        };
        self.end(to, finished, bytes, held).await
    }

    async fn copy_part(
        &self,
        from: SnapshotId,
        part: u32,
        writer: &mut SnapshotWriter,
        held: &mut Held,
        bytes: &mut u64,
    ) -> Result<(), TabletError> {
        let part = snapshot::read(&*self.context.storage, from, part).await?;
        self.context.files.hold(part.stored().map(|(file, _)| file));
        held.extend(part.stored());
        for manifest in part.tablets {
            *bytes += snapshot::referenced_bytes(&manifest);
            writer.add(manifest).await?;
        }
        Ok(())
    }

    /// Removes the traces of a snapshot of which the parts could not be written.
    async fn end(
        &self,
        snapshot: SnapshotId,
        finished: ServiceResult<u32>,
        bytes: u64,
        held: Held,
    ) -> ServiceResult<SnapshotFiles> {
        match finished {
            Ok(parts) => Ok(SnapshotFiles { parts, bytes }),
            Err(error) => {
                self.context.files.let_go(held);
                self.delete_parts(snapshot).await;
                Err(error)
            }
        }
    }

    /// The newest manifest of a tablet, whose files are held from then on.
    async fn hold(&self, tablet: TabletId, flush: bool, held: &Mutex<Held>) -> ServiceResult<Manifest> {
        let served = self.tablets.served(tablet)?;
        if flush {
            served.tablet.flush().await.map_err(from_tablet)?;
        }
        let _barring = served.barring.lock().await;
        let manifest = served.tablet.hold_manifest().await.map_err(from_tablet)?;
        assert_eq!(
            manifest.tablet(),
            tablet,
            "a snapshot of a tablet has its rows, not those of another"
        );
        held.lock().extend(snapshot::stored(&manifest));
        Ok(manifest)
    }

    /// Gives up the files of a snapshot that the catalog does not name.
    pub(crate) async fn drop_files(&self, snapshot: SnapshotId, parts: u32) {
        let mut held = Held::new();
        for part in 0..parts {
            match snapshot::read(&*self.context.storage, snapshot, part).await {
                Ok(part) => held.extend(part.stored()),
                Err(error) => {
                    tracing::warn!(%snapshot, %error, "files of a dropped snapshot are left to the next start");
                }
            }
        }
        self.delete_parts(snapshot).await;
        self.context.files.let_go(held);
    }

    async fn delete_parts(&self, snapshot: SnapshotId) {
        if let Err(error) = snapshot::delete(&*self.context.storage, snapshot).await {
            tracing::warn!(%snapshot, %error, "parts of a snapshot are left to the next start");
        }
    }

    /// Makes tablets over the files of a snapshot and serves them; their rows.
    pub(crate) async fn clone_tablets(
        &self,
        schema: Arc<TableSchema>,
        from: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        let made = self.make(schema, from, &tablets).await?;
        let rows = rows(&made);
        assert_eq!(rows.len(), tablets.len(), "each identifier is of a new tablet");
        made.into_iter().for_each(|tablet| self.lifecycle.serve(tablet));
        Ok(rows)
    }

    /// The same of some tablets of a snapshot.
    pub(crate) async fn clone_some(
        &self,
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        tablets: &[SnapshotTablet],
    ) -> ServiceResult<()> {
        let made = self.make_some(schema, snapshot, tablets).await?;
        made.into_iter().for_each(|tablet| self.lifecycle.serve(tablet));
        Ok(())
    }

    /// Makes tablets over the files of a snapshot that are to replace others, and stops writes to those.
    pub(crate) async fn prepare_restore(
        &self,
        schema: Arc<TableSchema>,
        from: (SnapshotId, u32),
        old: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        let made = self.make(schema, from, &new).await?;
        let rows = rows(&made);
        self.prepare(old, made).await;
        Ok(rows)
    }

    /// The same of some tablets of a snapshot. Here they may be none: others make those.
    pub(crate) async fn prepare_some(
        &self,
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        old: Vec<TabletId>,
        new: &[SnapshotTablet],
    ) -> ServiceResult<()> {
        let made = self.make_some(schema, snapshot, new).await?;
        self.prepare(old, made).await;
        Ok(())
    }

    /// Stops writes to tablets that are to be replaced.
    async fn prepare(&self, old: Vec<TabletId>, made: Vec<Arc<Tablet>>) {
        assert!(!old.is_empty(), "a restore replaces a tablet at least");
        assert!(
            made.iter().all(|tablet| !old.contains(&tablet.id())),
            "the tablets of a restore are new ones: the old ones are dropped"
        );
        let mut gates = Vec::with_capacity(old.len());
        for served in old.iter().filter_map(|id| self.tablets.served(*id).ok()) {
            gates.push(Shut::shut(&served).await);
        }
        self.replacements.keep(Prepared {
            old,
            new: made,
            gates,
            counter: None,
            is_restore: true,
        });
    }

    /// Makes tablets over the files of a snapshot, in row order; all or none.
    async fn make(
        &self,
        schema: Arc<TableSchema>,
        (snapshot, parts): (SnapshotId, u32),
        tablets: &[TabletId],
    ) -> ServiceResult<Vec<Arc<Tablet>>> {
        let (mut made, mut ids) = (Vec::with_capacity(tablets.len()), tablets.iter().copied());
        let mut outcome = Ok(());
        for part in 0..parts {
            outcome = match self.read(snapshot, part).await {
                Ok(part) => match numbered(part, &mut ids) {
                    Some(wanted) => self.make_all(&schema, wanted, &mut made).await,
                    None => Err(other_count(snapshot)),
                },
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() && made.len() != tablets.len() {
            outcome = Err(other_count(snapshot));
        }
        self.all_or_none(made, outcome).await
    }

    /// Makes tablets over the files of some tablets of a snapshot; all or none.
    async fn make_some(
        &self,
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        tablets: &[SnapshotTablet],
    ) -> ServiceResult<Vec<Arc<Tablet>>> {
        let mut by_part: BTreeMap<u32, BTreeMap<u32, TabletId>> = BTreeMap::new();
        for wanted in tablets {
            let places = by_part.entry(wanted.part).or_default();
            if places.insert(wanted.place, wanted.tablet).is_some() {
                return Err(ServiceError::invalid("two tablets over one of a snapshot"));
            }
        }
        let (mut made, mut outcome) = (Vec::with_capacity(tablets.len()), Ok(()));
        for (number, mut places) in by_part {
            outcome = match self.read(snapshot, number).await {
                Ok(part) => {
                    let with_places = (0..).zip(part.tablets);
                    let wanted = with_places.filter_map(|(place, manifest)| Some((manifest, places.remove(&place)?)));
                    let wanted: Vec<_> = wanted.collect();
                    match places.is_empty() {
                        true => self.make_all(&schema, wanted, &mut made).await,
                        false => Err(other_count(snapshot)),
                    }
                }
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                break;
            }
        }
        assert!(
            outcome.is_err() || made.len() == tablets.len(),
            "each wanted tablet is made once"
        );
        self.all_or_none(made, outcome).await
    }

    async fn read(&self, snapshot: SnapshotId, part: u32) -> ServiceResult<SnapshotPart> {
        let part = snapshot::read(&*self.context.storage, snapshot, part).await;
        part.map_err(from_tablet)
    }

    async fn all_or_none(
        &self,
        mut made: Vec<Arc<Tablet>>,
        outcome: ServiceResult<()>,
    ) -> ServiceResult<Vec<Arc<Tablet>>> {
        match outcome {
            Ok(()) => {
                made.sort_by(|a, b| a.range().start.cmp(&b.range().start));
                Ok(made)
            }
            Err(error) => {
                self.lifecycle.discard(made).await;
                Err(error)
            }
        }
    }

    async fn make_all(
        &self,
        schema: &Arc<TableSchema>,
        wanted: Vec<(Manifest, TabletId)>,
        made: &mut Vec<Arc<Tablet>>,
    ) -> ServiceResult<()> {
        let making = wanted.into_iter();
        let making = making.map(|(manifest, id)| self.lifecycle.create_over(schema.clone(), manifest, id));
        let mut making = futures::stream::iter(making).buffer_unordered(MADE_CONCURRENTLY);
        let mut outcome = Ok(());
        while let Some(tablet) = making.next().await {
            match tablet {
                Ok(tablet) => made.push(tablet),
                Err(error) => outcome = Err(from_tablet(error)),
            }
        }
        outcome
    }
}

/// The manifests of a part with the next identifiers; `None` if there are too few of these.
fn numbered(part: SnapshotPart, ids: &mut impl Iterator<Item = TabletId>) -> Option<Vec<(Manifest, TabletId)>> {
    let wanted = part.tablets.len();
    let ids: Vec<TabletId> = ids.take(wanted).collect();
    (ids.len() == wanted).then(|| part.tablets.into_iter().zip(ids).collect())
}

/// The rows of tablets.
fn rows(tablets: &[Arc<Tablet>]) -> Vec<(TabletId, RowRange)> {
    let rows = tablets.iter().map(|tablet| (tablet.id(), tablet.range().clone()));
    rows.collect()
}

fn other_count(snapshot: SnapshotId) -> ServiceError {
    let message = format!("snapshot {snapshot}: the catalog names another number of tablets than its files");
    ServiceError::new(ErrorKind::Corruption, message)
}
