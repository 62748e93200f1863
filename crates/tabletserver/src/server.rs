//! The server: services assembled over shared parts, their start and their end.
//!
//! Each call of the two service interfaces is answered by one service; [`crate::service`] says which.

use crate::admission::Admission;
use crate::archived_log::ArchivedLog;
use crate::assignments::Assignments;
use crate::error::ServerError;
use crate::governor::{GovernorMetrics, MemoryGovernor};
use crate::heat::Heat;
use crate::lifecycle::Lifecycle;
use crate::loads::Loads;
use crate::log::CommitLog;
use crate::maintenance::{Compactor, FilterChooser, Flusher, Gauges, Housekeeper, Rounds, UnreadFiles};
use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use crate::parts::Parts;
use crate::read::{OneRow, Reader};
use crate::recovery::{Kept, Opened, RecoveryReport, hold_snapshots};
use crate::replacement::Replacements;
use crate::roots::{Moments, SealedLogs, SharedRoots};
use crate::row_cache::RowCache;
use crate::row_operation::RowOperations;
use crate::snapshots::Snapshots;
use crate::split::Splitter;
use crate::stopping::Stopping;
use crate::tablets::{DamagedTablet, DropNumber, Served, Tablets};
use crate::times::Times;
use crate::waits::WriteWaits;
use crate::work::{Compactions, FlushDemand};
use crate::write::WritePath;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::Catalog;
use stele_client::{ServiceError, ServiceResult, SnapshotTablet, TabletControl};
use stele_commitlog::{LogMetrics, ReplayReport};
use stele_env::metrics::Metrics;
use stele_env::{Env, PlantedBug};
use stele_filter::Filter;
use stele_memory::Pool;
use stele_sstable::Cache;
use stele_storage::{Storage, StorageError};
use stele_tablet::{FileRegistry, MemoryAccount, Ownership, TabletContext, TabletError, TabletMetrics, TokenMemory};
use stele_types::{Durability, Epoch, ErrorKind, RowRange, RowWrites, ServerId, SnapshotId, TableSchema, TabletId};
use tokio::sync::Notify;

/// Tablets flushed concurrently when the server stops. A small flush waits for storage most of the time; a large one
/// has a few buffers of a block's size.
const FLUSHES_AT_SHUTDOWN: usize = 32;

/// A tablet server.
pub struct TabletServer {
    pub(crate) parts: Parts,
    pub(crate) reader: Reader,
    pub(crate) writer: Arc<WritePath>,
    pub(crate) row_operations: RowOperations,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) splitter: Splitter,
    pub(crate) replacements: Arc<Replacements>,
    pub(crate) snapshots: Snapshots,
    pub(crate) loads: Arc<Loads>,
    pub(crate) assignments: Arc<Assignments>,
    pub(crate) upkeep: Upkeep,
}

/// The parts that a server begins with.
struct Foundation {
    context: TabletContext,
    log_root: Arc<dyn Storage>,
    epoch: Epoch,
    cache: Arc<Cache>,
    options: ServerOptions,
    /// The segments of former owners in the log.
    replayed: ReplayReport,
    /// Of servers that share the data root and archive their logs.
    moments: Option<Arc<dyn Moments>>,
}

impl Foundation {
    /// All parts, with the tablets that cannot be served and the strays.
    fn parts(
        self,
        metrics: &Metrics,
        (damaged, strays): (BTreeMap<TabletId, DamagedTablet>, BTreeSet<TabletId>),
    ) -> Parts {
        let Foundation {
            context,
            log_root,
            epoch,
            cache,
            options,
            replayed,
            moments,
        } = self;
        let times = options.log_clock.clone().zip(moments);
        let compactions = Arc::new(Compactions::default());
        let row_cache = RowCache::new(context.env.clone(), options.row_cache_bytes);
        let tablets = Tablets::new(damaged, strays, row_cache.clone(), compactions.clone());
        let tablets = Arc::new(tablets);
        let log = CommitLog::start(
            (&context.env, &log_root),
            epoch,
            &options,
            replayed,
            &LogMetrics::new(metrics),
            tablets.clone(),
        );
        let server_metrics = ServerMetrics::new(metrics);
        let heat = Arc::new(Heat::new(&options.pool));
        Parts {
            admission: Arc::new(admission_of(&context, &options, &server_metrics)),
            flushes: Arc::new(FlushDemand::new(context.memory.clone(), options.memtables.clone())),
            context,
            options,
            log_root,
            epoch,
            cache,
            row_cache,
            tablets,
            heat,
            log: Arc::new(log),
            compactions,
            schemas: Arc::default(),
            metrics: server_metrics,
            stopping: Stopping::default(),
            times: times.map(|(clock, moments)| Arc::new(Times::new(clock, moments))),
        }
    }
}

/// The services of maintenance.
pub(crate) struct Upkeep {
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) unread: Arc<UnreadFiles>,
    gauges: Arc<Gauges>,
    housekeeper: Arc<Housekeeper>,
}

impl Upkeep {
    fn new(parts: &Parts, lifecycle: &Arc<Lifecycle>) -> Self {
        let tidy = Arc::new(Notify::new());
        let compactor = Arc::new(Compactor::new(parts));
        let unread = Arc::new(UnreadFiles::new(parts, lifecycle.clone()));
        let gauges = Arc::new(Gauges::new(parts));
        let rounds = Rounds {
            compactor: compactor.clone(),
            filters: Arc::new(FilterChooser::new(parts)),
            unread: unread.clone(),
            gauges: gauges.clone(),
        };
        Upkeep {
            flusher: Arc::new(Flusher::new(parts, tidy.clone())),
            housekeeper: Arc::new(Housekeeper::new(parts, rounds, tidy)),
            compactor,
            unread,
            gauges,
        }
    }

    /// Starts the loops; they end when the server stops.
    fn start(&self) {
        self.flusher.start();
        self.compactor.start();
        self.housekeeper.start();
    }
}

impl TabletServer {
    /// Recovers every tablet of the catalog and starts serving. `epoch` is one that no earlier server had. The server owns
    /// the whole data root.
    pub async fn start(
        env: Env,
        storage: Arc<dyn Storage>,
        catalog: &Catalog,
        epoch: Epoch,
        cache: Arc<Cache>,
        options: ServerOptions,
        metrics: &Metrics,
    ) -> Result<(Arc<TabletServer>, RecoveryReport), ServerError> {
        let start = env.now();
        let files = FileRegistry::new(storage.clone(), cache.clone(), epoch.0);
        let context = context_of(env.clone(), storage.clone(), files, &options, metrics);
        let (opened, found) = Opened::of_catalog(&context, catalog, epoch, options.inherit_from).await?;
        let unnamed = hold_snapshots(&context, catalog, options.catalog_in_doubt).await?;
        let mut kept = found.sort(&context, &opened, options.catalog_in_doubt).await;
        kept.leftovers.add(unnamed);
        let (opened_count, damaged_count) = (opened.len(), kept.damaged.len());
        let (replayed, log) = opened.replay(&context, &options).await?;
        let mut report = RecoveryReport::new(opened_count, damaged_count, &log);
        let Kept {
            damaged,
            strays,
            leftovers,
        } = kept;
        let foundation = Foundation {
            context,
            log_root: storage,
            epoch,
            cache,
            options,
            replayed: log,
            moments: None,
        };
        let parts = foundation.parts(metrics, (damaged, strays));
        parts.admission.check_disk(&parts.context.storage).await;
        replayed.serve(&parts.tablets);
        assert_eq!(
            parts.tablets.count(),
            opened_count,
            "every tablet that was opened is replayed and served"
        );
        report.duration = env.now() - start;
        parts.metrics.recovery_millis.set(report.duration.as_millis() as i64);
        let server = TabletServer::run(parts, None, metrics);
        env.spawn_background("sweep", leftovers.sweep(server.parts.context.clone()));
        Ok((server, report))
    }

    /// Starts a server that shares the data root with others, and has no tablet yet: [`stele_client::TabletAssignments`] gives
    /// it some. `server` is a number that no server had before, and that is above all epochs so far.
    pub async fn join(
        env: Env,
        roots: SharedRoots,
        server: ServerId,
        cache: Arc<Cache>,
        options: ServerOptions,
        metrics: &Metrics,
    ) -> Result<Arc<TabletServer>, ServerError> {
        let SharedRoots {
            data,
            log,
            sealed,
            moments,
        } = roots;
        // A log that is not empty is that of another life: nobody would replay it.
        if let Some(segment) = log.list("log/").await?.into_iter().next() {
            return Err(ServerError::Storage(StorageError::AlreadyExists { path: segment.path }));
        }
        let files = FileRegistry::new(data.clone(), cache.clone(), server.0).with_ownership(Ownership::Shared);
        let foundation = Foundation {
            context: context_of(env, data, files, &options, metrics),
            log_root: log,
            epoch: Epoch(server.0),
            cache,
            options,
            replayed: ReplayReport::default(),
            moments,
        };
        let parts = foundation.parts(metrics, Default::default());
        parts.admission.check_disk(&parts.context.storage).await;
        Ok(TabletServer::run(parts, Some(sealed), metrics))
    }

    /// Makes the services over some parts, and starts them.
    fn run(parts: Parts, sealed: Option<Arc<dyn SealedLogs>>, metrics: &Metrics) -> Arc<TabletServer> {
        let governor = MemoryGovernor::new(&parts, GovernorMetrics::new(metrics));
        let server = Arc::new(TabletServer::of(parts, sealed));
        server.upkeep.start();
        if let Some(budget) = server.parts.options.memory.clone() {
            governor.start(budget);
        }
        server
    }

    /// All services over some parts; none of them has begun.
    fn of(parts: Parts, sealed: Option<Arc<dyn SealedLogs>>) -> Self {
        let lifecycle = Arc::new(Lifecycle::new(&parts));
        let writer = Arc::new(WritePath::new(&parts));
        let upkeep = Upkeep::new(&parts, &lifecycle);
        let replacements = Replacements::new(&parts, lifecycle.clone(), upkeep.unread.clone());
        let replacements = Arc::new(replacements);
        let assignments = Arc::new(Assignments::new(&parts, sealed, upkeep.unread.clone()));
        TabletServer {
            assignments,
            reader: Reader::new(parts.tablets.clone(), parts.row_cache.clone(), parts.heat.clone()),
            row_operations: RowOperations::new(writer.clone()),
            writer,
            splitter: Splitter::new(&parts, lifecycle.clone(), replacements.clone()),
            snapshots: Snapshots::new(&parts, lifecycle.clone(), replacements.clone()),
            loads: Arc::new(Loads::new(&parts)),
            replacements,
            lifecycle,
            upkeep,
            parts,
        }
    }

    /// Stops accepting writes, completes queued ones, flushes everything. Returns how many tablets could not be
    /// flushed: the log has the records that their files lack.
    pub async fn shut_down(&self) -> usize {
        self.parts.stopping.stop();
        self.parts.flushes.wake_to_stop();
        self.parts.log.close().await;
        let flushing = self.all_served().into_iter().map(|served| async move {
            let flushed = served.tablet.flush().await;
            if let Err(error) = &flushed {
                tracing::warn!(tablet = %served.tablet.id(), %error, "not flushed at shutdown; the log has it");
            }
            served.tablet.close();
            usize::from(flushed.is_err())
        });
        assert!(
            self.is_stopping(),
            "nothing is written any more while the last memtables are flushed"
        );
        let flushing = futures::stream::iter(flushing).buffer_unordered(FLUSHES_AT_SHUTDOWN);
        let failed = flushing.fold(0, |failed, one| async move { failed + one }).await;
        if failed == 0
            && let Err(error) = self.parts.log.delete_unneeded().await
        {
            tracing::warn!(%error, "log segments left over at shutdown");
        }
        failed
    }

    /// The tablet, if it is served here.
    pub fn served(&self, tablet: TabletId) -> ServiceResult<Arc<Served>> {
        self.parts.tablets.served(tablet)
    }

    /// All tablets served here.
    pub fn all_served(&self) -> Vec<Arc<Served>> {
        self.parts.tablets.all()
    }

    /// The tablets that cannot be served, and why.
    pub fn damaged_tablets(&self) -> Vec<(TabletId, TabletError)> {
        self.parts.tablets.damaged()
    }

    /// A row as it is now, read on the calling thread; an empty batch when there is none, or the filter passes
    /// nothing. `None` when that would have to wait for storage: [`TabletService::read`](stele_client::TabletService)
    /// gives the same row then. A row that is not the tablet's is `Unavailable`.
    pub fn get_row(&self, tablet: TabletId, row: &[u8], filter: Option<&Arc<Filter>>) -> ServiceResult<Option<OneRow>> {
        self.reader.get_row(tablet, row, filter)
    }

    /// Writes rows of one tablet; returns when they are as durable as asked.
    pub async fn write(&self, tablet: TabletId, rows: &RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        self.writer.write(tablet, rows, durability).await
    }

    /// Drops the rows of a range from a tablet that is served under this epoch, unless a later drop was begun.
    pub async fn drop_rows_in_order(
        &self,
        tablet: TabletId,
        order: (Epoch, DropNumber),
        range: RowRange,
    ) -> ServiceResult<()> {
        self.lifecycle.drop_rows_in_order(tablet, order, range).await
    }

    /// The first tablet of each prepared replacement whose outcome the server has not been told, with the number of the
    /// preparation.
    pub fn prepared_replacements(&self) -> Vec<(TabletId, u64)> {
        self.replacements.prepared()
    }

    /// The number of the prepared replacement that begins with a tablet.
    pub fn preparation_of(&self, first: TabletId) -> Option<u64> {
        self.replacements.number_of(first)
    }

    /// Whether a prepared replacement keeps writers out of a tablet: it must not be opened here until that has ended.
    pub fn is_being_replaced(&self, tablet: TabletId) -> bool {
        self.replacements.replaces(tablet)
    }

    /// Flushes a tablet that is served under this epoch. Then its manifest also has each bulk load and each drop of rows of which the log
    /// has the barrier: a snapshot lacks none that is older than itself.
    pub async fn flush_for_snapshot(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<()> {
        let served = self.served(tablet)?;
        if served.tablet.epoch() != epoch {
            let message = format!("tablet {tablet} is not served under epoch {epoch} here");
            return Err(ServiceError::new(ErrorKind::Unavailable, message));
        }
        assert_eq!(
            served.tablet.id(),
            tablet,
            "a snapshot has the rows of the tablet that was asked for"
        );
        self.flush(tablet).await?;
        drop(served.barring.lock().await);
        Ok(())
    }

    /// Makes tablets over the files of a snapshot, and serves them. Nothing refers to them yet. After an error none is left.
    pub async fn clone_some(
        &self,
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        tablets: &[SnapshotTablet],
    ) -> ServiceResult<()> {
        self.snapshots.clone_some(schema, snapshot, tablets).await
    }

    /// First half of a restore: makes such tablets that are not served yet, and stops writes to the old ones.
    pub async fn prepare_restore_of(
        &self,
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        old: Vec<TabletId>,
        new: &[SnapshotTablet],
    ) -> ServiceResult<()> {
        self.snapshots.prepare_some(schema, snapshot, old, new).await
    }

    /// Ends one preparation of a replacement by the outcome in the catalog. Nothing happens if it has ended.
    pub async fn end_preparation(&self, first: TabletId, number: u64, committed: bool) {
        self.replacements.finish_preparation(first, number, committed).await;
    }

    /// Tablets that prepared replacements made and that are not served yet, with their epochs.
    pub fn coming_tablets(&self) -> BTreeMap<TabletId, Epoch> {
        self.replacements.coming()
    }

    /// Refuses an assignment from now on that was not opened, so that another server may get the tablet with the same logs. False if its
    /// tablet is served here.
    ///
    /// # Errors
    /// If the tablet is being opened, or could not be opened either under this epoch.
    pub async fn decline_tablet(&self, tablet: TabletId, epoch: Epoch) -> ServiceResult<bool> {
        self.assignments.decline(tablet, epoch).await
    }

    /// Tablets that left without a flush: the log retains their records for their next owners.
    pub fn abandoned_tablets(&self) -> Vec<TabletId> {
        self.parts.tablets.abandoned()
    }

    /// Lets go of the records of abandoned tablets that no server replays.
    pub fn forget_abandoned(&self, tablets: &[TabletId]) {
        for tablet in tablets {
            self.parts.tablets.forget_abandoned(*tablet);
        }
        self.parts.flushes.wake();
    }

    /// The log, for its archive; `None` if it is not archived.
    pub fn archived_log(&self) -> Option<ArchivedLog> {
        let clock = self.parts.options.log_clock.clone()?;
        Some(ArchivedLog {
            log: Some(self.parts.log.clone()),
            root: self.parts.log_root.clone(),
            clock,
            epoch: self.parts.epoch,
            pool: self.parts.options.pool.clone(),
        })
    }

    /// The server's ownership generation.
    pub fn epoch(&self) -> Epoch {
        self.parts.epoch
    }

    /// How many streams its commit log has ([`stele_types::stream_of`]).
    pub fn log_streams(&self) -> u32 {
        self.parts.log.stream_count()
    }

    /// The pool from which all parts of the server reserve memory. Front ends share it.
    pub fn pool(&self) -> &Pool {
        &self.parts.options.pool
    }

    /// The environment.
    pub fn env(&self) -> &Env {
        &self.parts.context.env
    }

    /// Whether writes are refused for want of disk space.
    pub fn is_refusing_writes(&self) -> bool {
        self.parts.admission.is_disk_full()
    }

    /// How long writers have waited, and for what.
    pub fn write_waits(&self) -> &WriteWaits {
        &self.parts.metrics.waits
    }

    /// Compactions that were begun while another of the same tablet ran.
    pub fn concurrent_compactions(&self) -> u64 {
        self.parts.context.metrics.concurrent_compactions.get()
    }

    /// Bytes of files that nothing refers to any more, and that are not deleted yet.
    pub fn obsolete_bytes(&self) -> u64 {
        self.parts.context.files.obsolete_bytes()
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.parts.stopping.is_stopping()
    }

    /// Which rows are read and written.
    pub fn heat(&self) -> &Heat {
        &self.parts.heat
    }

    /// Moves samples of rows to the heat map; `since` is the time since the last call. Until the first call nothing is
    /// sampled.
    pub fn tick_heat(&self, since: Duration) {
        let wall_seconds = self.env().wall_micros().div_euclid(1_000_000);
        self.parts.heat.tick(&*self.parts.tablets, wall_seconds, since);
    }

    /// Brings the gauges up to date.
    pub fn update_gauges(&self) {
        self.upkeep.gauges.update();
    }
}

fn admission_of(context: &TabletContext, options: &ServerOptions, metrics: &ServerMetrics) -> Admission {
    Admission::new(
        context.env.clone(),
        context.memory.clone(),
        context.metrics.moved.clone(),
        options,
        metrics.admission.clone(),
        metrics.waits.clone(),
    )
}

/// The context that all tablets of the server share.
pub(crate) fn context_of(
    env: Env,
    storage: Arc<dyn Storage>,
    files: FileRegistry,
    options: &ServerOptions,
    metrics: &Metrics,
) -> TabletContext {
    let files = files
        .with_file_bytes(options.sstable_bytes)
        .with_separate_bytes(options.value_separate_bytes)
        .with_job_readahead(options.job_readahead_bytes)
        .with_pool(&options.pool);
    if env.planted(PlantedBug::ForgetSnapshots) {
        files.forget_snapshots();
    }
    TabletContext {
        env,
        storage,
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(metrics),
        tokens: TokenMemory::of(&options.pool),
    }
}
