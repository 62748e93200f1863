//! From a data root to a running server (Bigtable §5.3, §6 "Speeding up tablet recovery").
//!
//! 1. Take a new server epoch, so that everything named from now on has never been named before.
//! 2. Open every tablet the catalog names, claiming its manifest under the new epoch. Many tablets on a medium of one owner
//!    are inherited instead: what the last process left is made durable as a whole, and nothing is written.
//! 3. Replay the commit log into the memtables of the tablets that still miss it.
//!    What power loss left behind a hole in the log is deleted first. What does not fit into memory is replayed and flushed in
//!    parts (`parts`).
//! 4. Make durable what was replayed: after a kill -9 the page cache gave back bytes that the medium may not have, and from
//!    now on clients see them.
//! 5. Begin to serve. What nothing refers to (sstables, value files, manifests of tablets that are no more) is deleted beside
//!    that: for as long as a start takes nobody is served, so only what must come before is done before.
//!
//! Damage (`docs/adr/0008-serve-around-damage.md`): a tablet whose manifest is damaged or missing is set aside, and the
//! rest is served. Its log records stay in the log, and no sstable is deleted that its manifest might refer to. Should the
//! device be able to read the manifest later on, the tablet is served after all (`maintenance::unread`). A damaged
//! log, on the other hand, ends the start: nobody could say what was acknowledged.
//!
//! Damage to the last transaction of the catalog looks like a torn end. It may have been a split: the catalog names the
//! parent, which has no manifest any more, and the halves, which have everything, are *strays*. So while a tablet is damaged,
//! and after a torn end, strays keep their manifests, the files those name, and their log records. And it may have been the
//! epoch, which would be given twice, with every sequence number: so a new one is above that of any log segment, too
//! ([`last_epoch`]).

mod parts;

use crate::admission::Admission;
use crate::error::ServerError;
use crate::maintenance::{Choice, Compactions, Unread};
use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use crate::row_cache::RowCache;
use crate::server::{DamagedTablet, Routes, Stream, TabletServer};
use futures::{StreamExt, TryStreamExt};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_catalog::Catalog;
use stele_commitlog::format::parse_segment_path;
use stele_commitlog::{LogError, LogMetrics, LogOptions, LogStream, ReplayReport};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_sstable::Cache;
use stele_storage::{Storage, StorageError};
use stele_tablet::{
    Batch, FileRegistry, MemoryAccount, StoredFile, Tablet, TabletContext, TabletError, TabletMetrics,
    manifest::{self, ManifestLog},
};
use stele_types::{Epoch, ErrorKind, SeqNo, TableSchema, TabletId};
use tokio::sync::Notify;

/// What a start found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Tablets opened.
    pub tablets: usize,
    /// Tablets whose manifest cannot be read.
    pub damaged_tablets: usize,
    /// Log bytes read.
    pub log_bytes: u64,
    /// Log records replayed.
    pub log_records: u64,
    /// Log bytes dropped as a torn tail.
    pub torn_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Tablets opened at once. Each costs a few reads and a durable write, and waits most of the time: media do many syncs in the
/// time of one.
const OPEN_CONCURRENTLY: usize = 128;

/// Eighths of a budget that memtables may take of what is replayed: as much as they may have had of the same one; caches are empty.
const REPLAYED_EIGHTHS: u64 = 7;

/// Manifests swept at once: as many as object stores delete in one request.
const SWEPT_CONCURRENTLY: usize = 1_000;

impl TabletServer {
    /// Recovers every tablet of the catalog and starts serving. `epoch` is one that no earlier server had.
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
        let server_metrics = ServerMetrics::new(metrics);
        let files = FileRegistry::new(storage.clone(), cache.clone(), epoch.0)
            .with_file_bytes(options.sstable_bytes)
            .with_separate_bytes(options.value_separate_bytes)
            .with_job_readahead(options.job_readahead_bytes)
            .with_pool(&options.pool);
        let context = TabletContext {
            env: env.clone(),
            storage: storage.clone(),
            files: Arc::new(files),
            memory: MemoryAccount::default(),
            metrics: TabletMetrics::new(metrics),
        };
        let opened = open_tablets(&context, catalog, epoch, options.inherit_from).await?;
        let (strays, leftovers) = find_leftovers(&context, &opened, options.catalog_in_doubt).await;
        let Opened { tablets, damaged, .. } = opened;
        let budget = options.memory.as_ref().map_or(u64::MAX, |memory| memory.bytes);
        let bytes_max = budget / 8 * REPLAYED_EIGHTHS;
        let (replayed, too_much) = parts::replay_within(&*storage, &tablets, &context.memory, bytes_max).await?;
        delete_dropped(&*storage, &replayed.dropped).await?;
        for (_, _, segment) in &replayed.segments {
            storage.sync_file(&segment.path).await?;
        }
        // Not by who has been replaced meanwhile, and need not begin to serve.
        storage.confirm_owner().await?;
        if let Some(sizes) = too_much {
            parts::replay_in_parts(&*storage, &tablets, &sizes, &context.memory, bytes_max).await?;
        }
        let mut report = RecoveryReport {
            tablets: tablets.len(),
            damaged_tablets: damaged.len(),
            log_bytes: replayed.bytes,
            log_records: replayed.records,
            torn_bytes: replayed.torn_bytes,
            duration: Duration::ZERO,
        };
        let streams = start_streams(&env, &storage, epoch, &options, replayed, LogMetrics::new(metrics));
        let admission = Admission::new(
            env.clone(),
            context.memory.clone(),
            context.metrics.moved.clone(),
            &options,
            server_metrics.clone(),
        );
        admission.check_disk(&storage).await;
        let row_cache = RowCache::new(env.clone(), options.row_cache_bytes);
        let server = Arc::new(TabletServer {
            admission: Arc::new(admission),
            env: env.clone(),
            options,
            epoch,
            context,
            cache,
            streams,
            tablets: RwLock::default(),
            routes: Routes::default(),
            damaged: RwLock::new(damaged),
            unread: Unread::default(),
            choice: Choice::default(),
            strays,
            latches: Arc::default(),
            row_cache,
            metrics: server_metrics,
            splits: Mutex::default(),
            indivisible: Mutex::default(),
            failed_splits: Mutex::default(),
            looked: Mutex::default(),
            work: Notify::new(),
            probed_bytes: AtomicU64::new(0),
            tidy: Notify::new(),
            ripe: Mutex::default(),
            compactions: Compactions::default(),
            stopping: AtomicBool::new(false),
        });
        tablets.into_values().for_each(|tablet| server.serve(tablet));
        report.duration = env.now() - start;
        server.metrics.recovery_millis.set(report.duration.as_millis() as i64);
        env.spawn_background("sweep", leftovers.sweep(server.context.clone()));
        server.start_maintenance();
        server.start_governor();
        Ok((server, report))
    }
}

/// The tablets of the catalog.
#[derive(Default)]
struct Opened {
    tablets: BTreeMap<TabletId, Arc<Tablet>>,
    /// Those whose manifest cannot be read.
    damaged: BTreeMap<TabletId, DamagedTablet>,
    /// The manifests of all tablets on the medium, listed when these had been opened.
    manifests: BTreeMap<TabletId, Vec<u64>>,
    /// Versions of theirs that are superseded.
    superseded: Vec<String>,
}

/// Two listings and, for each tablet, two requests and one for each of its files, many at a time: so long nobody is served.
async fn open_tablets(
    context: &TabletContext,
    catalog: &Catalog,
    epoch: Epoch,
    inherit_from: usize,
) -> Result<Opened, ServerError> {
    let view = catalog.view();
    let named: Vec<(TabletId, Arc<TableSchema>)> = view
        .tables
        .values()
        .flat_map(|t| t.tablets().iter().map(|e| (e.id, t.schema.clone())))
        .collect();
    let mut all = Opened::default();
    let inherited = named.len() >= inherit_from && context.storage.inherit().await?;
    let listed = manifest::list_all(&*context.storage).await?;
    let opening = named.into_iter().map(|(id, schema)| {
        let (context, listed) = (context.clone(), listed.get(&id).cloned().unwrap_or_default());
        async move {
            let opened = match inherited {
                true => Tablet::inherit(context, schema.clone(), id, epoch, listed).await,
                false => Tablet::open_listed(context, schema.clone(), id, epoch, listed).await,
            };
            set_damaged_aside(id, schema, opened)
        }
    });
    let mut opening = futures::stream::iter(opening).buffer_unordered(OPEN_CONCURRENTLY);
    while let Some((id, opened)) = opening.try_next().await? {
        match opened {
            Ok(tablet) => drop(all.tablets.insert(id, tablet)),
            Err(damaged) => drop(all.damaged.insert(id, damaged)),
        }
    }
    drop(opening);
    all.manifests = match inherited {
        true => listed,
        // A version of another owner may have come between.
        false => manifest::list_all(&*context.storage).await?,
    };
    for (id, tablet) in &all.tablets {
        let listed = all.manifests.get(id).map_or(&[][..], Vec::as_slice);
        let superseded = tablet.superseded(listed).await;
        all.superseded
            .extend(superseded.map_err(|error| ServerError::Tablet { tablet: *id, error })?);
    }
    Ok(all)
}

/// The tablet, or why it is damaged; any other error ends the start.
fn set_damaged_aside(
    tablet: TabletId,
    schema: Arc<TableSchema>,
    opened: Result<Arc<Tablet>, TabletError>,
) -> Result<(TabletId, Result<Arc<Tablet>, DamagedTablet>), ServerError> {
    let error = match opened {
        Ok(opened) => return Ok((tablet, Ok(opened))),
        Err(TabletError::Storage(StorageError::NotFound { path })) => TabletError::Corruption {
            path: Arc::from(path),
            detail: "the catalog names the tablet, but it has no manifest".to_owned(),
        },
        Err(error) if error.kind() == ErrorKind::Corruption => error,
        Err(error) => return Err(ServerError::Tablet { tablet, error }),
    };
    tracing::error!(%tablet, %error, "the tablet is damaged and not served; `stele check` says more");
    Ok((tablet, Err(DamagedTablet { error, schema })))
}

/// Replays the log segments up to the number `last` into tablets.
pub(crate) async fn replay_log(
    storage: &dyn Storage,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
    last: u64,
) -> Result<ReplayReport, LogError> {
    replay_batches(storage, tablets, last, Tablet::replay).await
}

/// Shows what log segments up to the number `last` have of these tablets: each batch with its first and last sequence number.
async fn replay_batches(
    storage: &dyn Storage,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
    last: u64,
    mut visit: impl FnMut(&Tablet, &Batch, SeqNo, SeqNo),
) -> Result<ReplayReport, LogError> {
    stele_commitlog::replay_through(storage, last, |record| {
        // Records of tablets that were dropped or split are in their successors' files.
        let Some(tablet) = tablets.get(&record.tablet) else {
            return Ok(());
        };
        let (payload, first, last) = (record.payload.bytes(), record.first, record.last);
        let batch = Batch::decode_record(payload.clone(), first, last).ok_or_else(|| LogError::Corruption {
            path: Arc::from("log"),
            offset: 0,
            detail: format!(
                "record {first}..={last} of tablet {}: checksum right, batch not decodable or of another length",
                record.tablet
            ),
        })?;
        visit(tablet, &batch, record.first, record.last);
        Ok(())
    })
    .await
}

/// Deletes the log segments that do not count because the one before lost its end.
async fn delete_dropped(storage: &dyn Storage, dropped: &[String]) -> Result<(), StorageError> {
    if dropped.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        segments = dropped.len(),
        "the log lost its end: what nobody had synced is gone"
    );
    storage.confirm_owner().await?;
    for path in dropped {
        storage.delete(path).await?;
    }
    Ok(())
}

/// What a start finds on the medium and nobody needs any more. It is deleted while tablets are served already: all of it is of
/// earlier processes, and nothing of it can come to be needed.
struct Leftovers {
    /// What the manifests name, that of no other file of an earlier process is needed; absent when all must stay.
    referenced: Option<BTreeSet<StoredFile>>,
    manifests: Vec<String>,
}

/// The strays that are kept, and what goes. While a tablet is damaged nobody knows which files it refers to, so every file and
/// every stray is kept. In doubt about the catalog strays are kept with the files that they refer to; where there are none,
/// nothing is missing in the catalog: whatever a transaction made known had its manifests before.
async fn find_leftovers(context: &TabletContext, opened: &Opened, in_doubt: bool) -> (BTreeSet<TabletId>, Leftovers) {
    let is_orphan = |id: &&TabletId| !opened.tablets.contains_key(id) && !opened.damaged.contains_key(id);
    let strays: BTreeSet<TabletId> = opened.manifests.keys().filter(is_orphan).copied().collect();
    let mut manifests = opened.superseded.clone();
    let mut referenced: BTreeSet<StoredFile> = BTreeSet::new();
    for tablet in opened.tablets.values() {
        referenced.extend(tablet.manifest().await.stored());
    }
    if opened.damaged.is_empty() && !in_doubt {
        let stray = strays.iter().filter_map(|id| Some((id, opened.manifests.get(id)?)));
        manifests.extend(stray.flat_map(|(id, numbers)| numbers.iter().map(|number| manifest::path(*id, *number))));
        let referenced = Some(referenced);
        return (BTreeSet::new(), Leftovers { referenced, manifests });
    }
    if !strays.is_empty() {
        tracing::error!(
            ?strays,
            "tablets that the catalog does not name are kept, because it may be wrong"
        );
    }
    let of_orphans = match opened.damaged.is_empty() {
        true => files_of(context, &strays).await,
        false => None,
    };
    let referenced = of_orphans.map(|of_orphans| {
        context.files.keep(of_orphans.clone());
        referenced.extend(of_orphans);
        referenced
    });
    if referenced.is_none() {
        context.files.keep_former_files();
    }
    (strays, Leftovers { referenced, manifests })
}

/// The files that tablets refer to which are not served; `None` when that cannot be told of each.
async fn files_of(context: &TabletContext, tablets: &BTreeSet<TabletId>) -> Option<BTreeSet<StoredFile>> {
    let mut files = BTreeSet::new();
    for tablet in tablets {
        match ManifestLog::open(context.storage.clone(), *tablet).await {
            Ok((_, manifest)) => files.extend(manifest.stored()),
            Err(error) => {
                tracing::error!(%tablet, %error, "a manifest of a tablet that the catalog does not name cannot be read");
                return None;
            }
        }
    }
    Some(files)
}

impl Leftovers {
    /// Deletes them, if this process still is the owner. What is left over now, the next start finds.
    async fn sweep(self, context: TabletContext) {
        let start = context.env.now();
        match self.delete(&context).await {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "swept in {:?}", context.env.now() - start),
            Err(error) => tracing::warn!(%error, "what nobody needs any more is left to the next start"),
        }
    }

    async fn delete(self, context: &TabletContext) -> Result<usize, TabletError> {
        let mut deleted = self.manifests.len();
        context.storage.confirm_owner().await?;
        for some in self.manifests.chunks(SWEPT_CONCURRENTLY) {
            context.storage.discard_all(some).await?;
        }
        if let Some(referenced) = &self.referenced {
            deleted += context.files.sweep(referenced).await?;
        }
        Ok(deleted)
    }
}

/// The highest epoch of which there is a log segment; 0 when there is none.
pub async fn last_epoch(storage: &dyn Storage) -> Result<u64, StorageError> {
    let segments = storage.list("log/").await?;
    let numbers = segments.iter().filter_map(|file| parse_segment_path(&file.path));
    Ok(numbers.map(|(_, number)| number >> 32).max().unwrap_or(0))
}

fn start_streams(
    env: &Env,
    storage: &Arc<dyn Storage>,
    epoch: Epoch,
    options: &ServerOptions,
    replayed: ReplayReport,
    metrics: LogMetrics,
) -> Vec<Arc<Stream>> {
    let counter = AtomicU64::new(1);
    let next_segment: Arc<dyn Fn() -> u64 + Send + Sync> =
        Arc::new(move || u64::from(epoch.0) << 32 | counter.fetch_add(1, Ordering::Relaxed));
    let log = LogOptions {
        segment_bytes: options.log_segment_bytes,
        queue_bytes: options.log_queue_bytes,
        ..LogOptions::default()
    };
    // Segment numbers are unique over all streams, so the first stream can look after all old segments.
    let mut old: Vec<_> = replayed
        .segments
        .into_iter()
        .map(|(_, number, mut info)| {
            // They were synced before anything was built on them.
            info.note_synced();
            (number, info)
        })
        .collect();
    (0..options.log_streams.max(1))
        .map(|stream| {
            let old = std::mem::take(&mut old);
            let (env, storage) = (env.clone(), storage.clone());
            let stream = LogStream::start(
                storage,
                env,
                stream,
                log.clone(),
                next_segment.clone(),
                old,
                metrics.clone(),
            );
            Arc::new(stream)
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
