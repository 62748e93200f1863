//! Snapshots of tables whose tablets are on several servers.
//!
//! The leader lists the files of a snapshot. The owner of a tablet flushes it, and the leader reads the newest manifest then.
//!
//! The manifest has every write that was acknowledged before the snapshot began. The owner served the tablet under the
//! epoch of its assignment during the flush, so the flush took all of its writes and of those that it had replayed. The manifest is
//! of the same epoch. A later owner claims the manifest under a greater epoch before it serves the tablet, so there was none.
//! Should the epochs differ, the tablet has moved, and its next owner is asked.
//!
//! Nothing is held on the servers: files that a manifest has named are deleted by the sweep alone. It waits for the snapshots that
//! are being taken ([`ClusterControl::being_taken`]), and reads the files of all snapshots (`stele_tablet::sweep`). Parts of
//! snapshots that the catalog does not name are left to it, too.

use super::ClusterControl;
use super::passing::until_served;
use crate::tablet_calls::TabletCall;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult, SnapshotFiles, SnapshotTablet};
use stele_storage::StorageError;
use stele_tablet::snapshot::{self, SnapshotWriter};
use stele_tablet::{Manifest, ManifestLog, TabletError};
use stele_types::{Epoch, ErrorKind, RowRange, ServerId, SnapshotId, TableSchema, TabletId};

/// Tablets listed concurrently: each waits for a flush on its server, and for two requests to storage.
const LISTED_CONCURRENTLY: usize = 16;

/// A tablet of a snapshot with a new identifier.
struct Place {
    wanted: SnapshotTablet,
    range: RowRange,
    /// Of the manifest: the new tablet has this one or the later one of its server.
    epoch: u32,
}

impl ClusterControl {
    /// The snapshots that are being taken, and those of which nobody knows whether the catalog names them.
    pub(crate) fn being_taken(&self) -> BTreeSet<SnapshotId> {
        let mut taking = self.taking.lock();
        if !taking.is_empty() {
            let view = self.local.catalog.view();
            for named in view.snapshots.values() {
                taking.remove(&named.id);
            }
        }
        taking.clone()
    }

    /// Lists the files of tablets under a new snapshot.
    pub(super) async fn take(
        &self,
        snapshot: SnapshotId,
        tablets: Vec<TabletId>,
        flush: bool,
    ) -> ServiceResult<SnapshotFiles> {
        // Before the first manifest is read.
        self.taking.lock().insert(snapshot);
        let manifests: Vec<BoxFuture<'_, ServiceResult<Manifest>>> = tablets
            .into_iter()
            .map(|tablet| self.manifest_of(tablet, flush).boxed())
            .collect();
        let manifests = futures::stream::iter(manifests).buffered(LISTED_CONCURRENTLY);
        let listed = self.list(snapshot, manifests.boxed()).await;
        if listed.is_err() {
            self.taking.lock().remove(&snapshot);
        }
        listed
    }

    /// Lists the files of a snapshot once more.
    pub(super) async fn copy(&self, (from, parts): (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles> {
        assert_ne!(from, to, "a copy has a number of its own: its parts are other files");
        // Or its parts would look like those of a snapshot that was not finished.
        self.taking.lock().insert(to);
        let manifests = futures::stream::iter(0..parts).then(move |part| self.manifests_in(from, part));
        let listed = self.list(to, manifests.flat_map(futures::stream::iter).boxed()).await;
        if listed.is_err() {
            self.taking.lock().remove(&to);
        }
        listed
    }

    async fn manifests_in(&self, snapshot: SnapshotId, part: u32) -> Vec<ServiceResult<Manifest>> {
        match snapshot::read(&*self.data, snapshot, part).await {
            Ok(part) => part.tablets.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(from_tablet(error))],
        }
    }

    async fn list(
        &self,
        snapshot: SnapshotId,
        mut manifests: BoxStream<'_, ServiceResult<Manifest>>,
    ) -> ServiceResult<SnapshotFiles> {
        let mut writer = SnapshotWriter::new(self.data.clone(), snapshot);
        let mut bytes = 0;
        while let Some(manifest) = manifests.next().await {
            let manifest = manifest?;
            bytes += snapshot::referenced_bytes(&manifest);
            writer.add(manifest).await.map_err(from_tablet)?;
        }
        let parts = writer.finish().await.map_err(from_tablet)?;
        Ok(SnapshotFiles { parts, bytes })
    }

    /// The newest manifest of a tablet: after a flush, with everything that was acknowledged before this call.
    async fn manifest_of(&self, tablet: TabletId, flush: bool) -> ServiceResult<Manifest> {
        let read = || async {
            match flush {
                true => self.flushed_manifest(tablet).await,
                false => self.newest_manifest(tablet).await,
            }
        };
        until_served(&self.local.env, tablet, read).await
    }

    async fn flushed_manifest(&self, tablet: TabletId) -> ServiceResult<Manifest> {
        let owner = self.owner(tablet)?;
        let epoch = owner.epoch;
        self.done(owner.server, TabletCall::FlushUnder { tablet, epoch })
            .await?;
        let manifest = self.newest_manifest(tablet).await?;
        if Epoch(manifest.epoch) != epoch {
            let message = format!("tablet {tablet} has moved since its flush");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        Ok(manifest)
    }

    async fn newest_manifest(&self, tablet: TabletId) -> ServiceResult<Manifest> {
        let opened = ManifestLog::open(self.data.clone(), tablet).await;
        let (_, manifest) = opened.map_err(|error| match error {
            // A tablet of the catalog has a manifest. A listing of a folder may miss the old and the new one while its owner replaces it.
            TabletError::Storage(StorageError::NotFound { .. }) => {
                ServiceError::new(ErrorKind::Unavailable, format!("tablet {tablet}: {error}"))
            }
            error => from_tablet(error),
        })?;
        assert_eq!(
            manifest.tablet(),
            tablet,
            "a snapshot of a tablet has its rows, not those of another"
        );
        Ok(manifest)
    }

    /// Makes tablets over the files of a snapshot on all servers, and serves them; their rows.
    pub(super) async fn clone_tablets(
        &self,
        schema: Arc<TableSchema>,
        from: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        let places = self.places(from, &tablets).await?;
        let rows = rows(&places);
        let shares = self.divide(places)?;
        for (server, share) in &shares {
            share.iter().for_each(|place| self.note_place(*server, place));
        }
        let calls = shares.into_iter().map(|(server, share)| {
            let call = TabletCall::Clone {
                schema: schema.clone(),
                snapshot: from.0,
                tablets: share.into_iter().map(|place| place.wanted).collect(),
            };
            self.done(server, call)
        });
        // All are awaited: none must be made after a failure is known.
        let outcomes = futures::future::join_all(calls).await;
        match outcomes.into_iter().collect::<ServiceResult<()>>() {
            Ok(()) => Ok(rows),
            Err(error) => {
                self.drop_everywhere(tablets).await;
                Err(error)
            }
        }
    }

    /// Has the servers of the old tablets make the new ones, and keep writers out of the old ones.
    pub(super) async fn prepare_restored(
        &self,
        schema: Arc<TableSchema>,
        from: (SnapshotId, u32),
        old: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>> {
        let Some(first) = old.first().copied() else {
            return Err(ServiceError::invalid("a table without tablets cannot be restored"));
        };
        let places = self.places(from, &new).await?;
        let rows = rows(&places);
        self.keep_owners(&old).await;
        let by_owner = match self.by_owner(&old) {
            Ok(by_owner) => by_owner,
            Err(error) => {
                self.end_replacement(first, false).await;
                return Err(error);
            }
        };
        let servers: Vec<ServerId> = by_owner.keys().copied().collect();
        let mut shares: BTreeMap<ServerId, Vec<SnapshotTablet>> = BTreeMap::new();
        let count = places.len();
        for (number, place) in places.into_iter().enumerate() {
            // Neighbours together, so that a server reads few parts. The leader moves tablets afterwards where that is better.
            let server = servers[number * servers.len() / count];
            self.note_place(server, &place);
            shares.entry(server).or_default().push(place.wanted);
        }
        let calls = by_owner.into_iter().filter_map(|(server, old)| {
            let first = *old.first()?;
            let call = TabletCall::PrepareRestore {
                schema: schema.clone(),
                snapshot: from.0,
                old,
                new: shares.remove(&server).unwrap_or_default(),
            };
            Some((server, first, call))
        });
        self.prepare(first, calls.collect(), new).await?;
        Ok(rows)
    }

    fn note_place(&self, server: ServerId, place: &Place) {
        let epoch = Epoch(server.0.max(place.epoch));
        self.homes.note(server, epoch, [place.wanted.tablet].into_iter());
    }

    /// The tablets of a snapshot in row order, each with one of these identifiers.
    async fn places(&self, (snapshot, parts): (SnapshotId, u32), tablets: &[TabletId]) -> ServiceResult<Vec<Place>> {
        let mut places = Vec::with_capacity(tablets.len());
        let mut ids = tablets.iter().copied();
        for number in 0..parts {
            let part = snapshot::read(&*self.data, snapshot, number)
                .await
                .map_err(from_tablet)?;
            for (place, manifest) in (0..).zip(part.tablets) {
                let tablet = ids.next().ok_or_else(|| other_count(snapshot))?;
                let wanted = SnapshotTablet {
                    part: number,
                    place,
                    tablet,
                };
                places.push(Place {
                    wanted,
                    range: manifest.range(),
                    epoch: manifest.epoch,
                });
            }
        }
        if ids.next().is_some() || places.is_empty() {
            return Err(other_count(snapshot));
        }
        places.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        Ok(places)
    }
}

fn rows(places: &[Place]) -> Vec<(TabletId, RowRange)> {
    let rows = places.iter().map(|place| (place.wanted.tablet, place.range.clone()));
    rows.collect()
}

fn from_tablet(error: TabletError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

fn other_count(snapshot: SnapshotId) -> ServiceError {
    let message = format!("snapshot {snapshot}: the catalog names another number of tablets than its files");
    ServiceError::new(ErrorKind::Corruption, message)
}
