//! Creation, change and removal of tablets, as the master asks for them.

use crate::error::{from_log, from_tablet};
use crate::log::CommitLog;
use crate::parts::Parts;
use crate::row_cache::RowCache;
use crate::schemas::ChangedSchemas;
use crate::tablets::{DropNumber, Served, Shut, Tablets};
use crate::work::{Compactions, FlushDemand};
use futures::StreamExt;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::BarrierCause;
use stele_tablet::{Manifest, Tablet, TabletContext, manifest};
use stele_types::{Epoch, ErrorKind, RowRange, TableSchema, TabletId};

/// Tablets made concurrently; each waits for a durable write.
const CREATED_CONCURRENTLY: usize = 32;

/// Makes, changes and removes tablets.
pub(crate) struct Lifecycle {
    context: TabletContext,
    epoch: Epoch,
    schemas: Arc<ChangedSchemas>,
    log: Arc<CommitLog>,
    tablets: Arc<Tablets>,
    row_cache: Arc<RowCache>,
    flushes: Arc<FlushDemand>,
    compactions: Arc<Compactions>,
}

impl Lifecycle {
    /// Of the tablets of a server.
    pub(crate) fn new(parts: &Parts) -> Self {
        Lifecycle {
            context: parts.context.clone(),
            epoch: parts.epoch,
            schemas: parts.schemas.clone(),
            log: parts.log.clone(),
            tablets: parts.tablets.clone(),
            row_cache: parts.row_cache.clone(),
            flushes: parts.flushes.clone(),
            compactions: parts.compactions.clone(),
        }
    }

    /// Makes empty tablets of a table and serves them.
    pub(crate) async fn create_empty(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        let (made, outcome) = self.make_empty(schema, tablets).await;
        made.into_iter().for_each(|tablet| self.serve(tablet));
        outcome
    }

    /// Serves a tablet that was made, under a schema that may have changed meanwhile.
    pub(crate) fn serve(&self, tablet: Arc<Tablet>) {
        self.tablets.serve(tablet.clone());
        if let Some(newer) = self.schemas.newer_than(&tablet.schema())
            && tablet.set_schema(newer)
        {
            self.flushes.ripen(tablet.id());
            self.flushes.wake();
        }
    }

    /// Makes empty tablets of a table. All are tried also after a failure: the caller drops those that were made, and none
    /// must be made after that.
    pub(crate) async fn make_empty(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<(TabletId, RowRange)>,
    ) -> (Vec<Arc<Tablet>>, ServiceResult<()>) {
        let making = tablets.into_iter().map(|(id, range)| {
            let manifest = Manifest {
                tablet: id.0,
                table: schema.id.0,
                epoch: self.epoch.0,
                start: range.start,
                end: range.end,
                flushed_through: 0,
                groups: Vec::new(),
                written_micros: self.context.env.wall_micros(),
                request_tokens: None,
            };
            self.create(schema.clone(), manifest)
        });
        let mut making = futures::stream::iter(making).buffer_unordered(CREATED_CONCURRENTLY);
        let (mut made, mut outcome) = (Vec::new(), Ok(()));
        while let Some(tablet) = making.next().await {
            match tablet {
                Ok(tablet) => made.push(tablet),
                Err(error) => outcome = Err(from_tablet(error)),
            }
        }
        (made, outcome)
    }

    /// Removes tablets that were made and never served.
    pub(crate) async fn discard(&self, tablets: Vec<Arc<Tablet>>) {
        for tablet in tablets {
            tablet.close();
            self.forget(&tablet).await;
        }
    }

    /// Makes a tablet of which this is the first manifest. It is not served yet.
    pub(crate) async fn create(
        &self,
        schema: Arc<TableSchema>,
        first: Manifest,
    ) -> Result<Arc<Tablet>, stele_tablet::TabletError> {
        let id = first.tablet;
        let tablet = Tablet::create(self.context.clone(), schema, first).await?;
        assert_eq!(tablet.id().0, id, "a tablet has the identifier of its manifest");
        Ok(tablet)
    }

    /// Makes a tablet over the files of a manifest of another one, under the later epoch of the server's and its own: sequence
    /// numbers go on behind those of its files. It is not served yet.
    pub(crate) async fn create_over(
        &self,
        schema: Arc<TableSchema>,
        other: Manifest,
        tablet: TabletId,
    ) -> Result<Arc<Tablet>, stele_tablet::TabletError> {
        let manifest = Manifest {
            tablet: tablet.0,
            table: schema.id.0,
            // A manifest that was imported has a later one than this server: later writes are to be newer than its cells.
            epoch: self.epoch.0.max(other.epoch),
            written_micros: self.context.env.wall_micros(),
            ..other
        };
        self.create(schema, manifest).await
    }

    /// Removes tablets with all their files.
    pub(crate) async fn drop_all(&self, tablets: Vec<TabletId>) {
        let mut gone = Vec::with_capacity(tablets.len());
        // All before the files of any: meanwhile others may write to the tablets that replace them.
        for id in tablets {
            // First: a task that takes up a damaged tablet checks this once it serves the tablet. So one of the two
            // finds the work of the other.
            let was_damaged = self.tablets.forget_damaged(id);
            gone.push((id, was_damaged, self.tablets.unserve(id)));
        }
        for (id, was_damaged, served) in gone {
            if let Some(served) = served {
                self.forget(&served.tablet).await;
            } else if was_damaged {
                // Its sstables, which nobody can name, are left to the next start.
                self.delete_manifests(id).await;
            }
            self.tablets.forget_abandoned(id);
        }
        self.flushes.wake();
    }

    /// Releases the files of a tablet that is no more, and deletes its manifests. Files that cannot be deleted now,
    /// the next start deletes.
    pub(crate) async fn forget(&self, tablet: &Tablet) {
        assert!(
            tablet.check_open().is_err(),
            "a tablet is closed before its files are released"
        );
        tablet.release_files().await;
        self.delete_manifests(tablet.id()).await;
    }

    async fn delete_manifests(&self, tablet: TabletId) {
        let storage = &self.context.storage;
        let left = match storage.list(&manifest::directory(tablet)).await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%tablet, %error, "manifests left over");
                return;
            }
        };
        let paths: Vec<String> = left.into_iter().map(|file| file.path).collect();
        // Together: storage may remove their directory with them.
        if let Err(error) = storage.delete_all(&paths).await {
            tracing::warn!(%tablet, %error, "manifests left over");
        }
    }

    /// Drops the rows of a range from a tablet.
    pub(crate) async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()> {
        let served = self.tablets.served(tablet)?;
        self.drop_rows_of(&served, range).await
    }

    /// The same if the tablet is served under this epoch, and no later drop was begun. An order may arrive after it was given again and
    /// answered: rows that were written since then are not to be dropped.
    pub(crate) async fn drop_rows_in_order(
        &self,
        tablet: TabletId,
        (epoch, number): (Epoch, DropNumber),
        range: RowRange,
    ) -> ServiceResult<()> {
        let served = self.tablets.served(tablet)?;
        if served.tablet.epoch() != epoch {
            let message = format!("tablet {tablet} is not served under epoch {epoch} here");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        let mut newest = served.newest_drop.lock().await;
        if number <= *newest {
            let message = format!("rows of tablet {tablet} were dropped by a later order");
            return Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
        }
        *newest = number;
        self.drop_rows_of(&served, range).await
    }

    async fn drop_rows_of(&self, served: &Arc<Served>, range: RowRange) -> ServiceResult<()> {
        let tablet = served.tablet.id();
        // Both in the order of a split, and for its reasons.
        let _held = self.compactions.hold_majors(tablet);
        let stopped = served.tablet.stop_compactions().await;
        served.tablet.flush().await.map_err(from_tablet)?;
        let _gate = Shut::shut(served).await;
        served.tablet.check_open().map_err(from_tablet)?;
        let _barring = served.barring.lock().await;
        let barred = self.log.bar(tablet, BarrierCause::DroppedRows).await;
        barred.map_err(from_log)?;
        let clearing = self.row_cache.clearing(tablet);
        served.tablet.drop_rows(&range, &stopped).await.map_err(from_tablet)?;
        drop(clearing);
        self.flushes.wake();
        Ok(())
    }

    /// Tells every tablet of a table its schema.
    pub(crate) fn publish_schema(&self, schema: &Arc<TableSchema>) {
        // First these: a tablet that begins to be served meanwhile is found below, or has got the schema here.
        self.tablets.set_schema_of_damaged(schema);
        for served in self.tablets.all() {
            let tablet = &served.tablet;
            let is_news = |known: &Arc<TableSchema>| known.id == schema.id && known.version < schema.version;
            if !tablet.with_schema(is_news) {
                continue;
            }
            if tablet.set_schema(schema.clone()) {
                // Misplaced cells of a family in memtables move to its group once they are in files.
                self.flushes.ripen(tablet.id());
                self.flushes.wake();
            } else if !tablet.state().misplaced().is_empty() || tablet.wants_warming() {
                self.compactions.announce(tablet.id());
            }
        }
    }
}
