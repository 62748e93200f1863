//! From a data root to a running server (Bigtable §5.3, §6 "Speeding up tablet recovery").
//!
//! 1. Take a new server epoch, so that everything named from now on has never been named before.
//! 2. Open every tablet the catalog names, claiming its manifest under the new epoch. Many tablets on a medium of one owner
//!    are inherited instead: what the last process left is made durable as a whole, and nothing is written.
//! 3. Replay the commit log into the memtables of the tablets that still miss it.
//!    What power loss left behind a hole in the log is deleted first.
//! 4. Make durable what was replayed: after a kill -9 the page cache gave back bytes that the medium may not have, and from
//!    now on clients see them.
//! 5. Delete what nothing refers to: sstables, value files, manifests of tablets that are no more.
//!
//! Damage (`docs/adr/0008-serve-around-damage.md`): a tablet whose manifest is damaged or missing is set aside, and the
//! rest is served. Its log records stay in the log, and no sstable is deleted that its manifest might refer to. A damaged
//! log, on the other hand, ends the start: nobody could say what was acknowledged.
//!
//! Damage to the last transaction of the catalog looks like a torn end. It may have been a split: the catalog names the
//! parent, which has no manifest any more, and the halves, which have everything, are *strays*. So while a tablet is damaged,
//! and after a torn end, strays keep their manifests, files and log records. And it may have been the epoch, which would be
//! given twice, with every sequence number: so a new one is above that of any log segment, too ([`last_epoch`]).

use crate::admission::Admission;
use crate::error::ServerError;
use crate::maintenance::Merges;
use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use crate::row_cache::RowCache;
use crate::server::{Routes, Stream, TabletServer};
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
    Batch, FileRegistry, MemoryAccount, StoredFile, Tablet, TabletContext, TabletError, TabletMetrics, manifest,
};
use stele_types::{Epoch, ErrorKind, TableSchema, TabletId};
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
    /// Files deleted because nothing referred to them.
    pub orphans: usize,
    /// How long it took.
    pub duration: Duration,
}

/// Tablets opened at once. Each costs a few reads and a durable write, and waits most of the time: media do many syncs in the
/// time of one.
const OPEN_AT_ONCE: usize = 128;

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
            .with_values(options.value_separate_bytes, options.value_room_bytes)
            .with_job_readahead(options.job_readahead_bytes);
        let context = TabletContext {
            env: env.clone(),
            storage: storage.clone(),
            files: Arc::new(files),
            memory: MemoryAccount::default(),
            metrics: TabletMetrics::new(metrics),
        };
        let Opened { tablets, damaged } = open_tablets(&context, catalog, epoch, options.inherit_from).await?;
        let keeps_strays = options.catalog_in_doubt || !damaged.is_empty();
        if keeps_strays {
            context.files.keep_former_files();
        }
        let replayed = replay_log(&*storage, &tablets).await?;
        delete_dropped(&*storage, &replayed.dropped).await?;
        for (_, _, segment) in &replayed.segments {
            storage.sync_file(&segment.path).await?;
        }
        let stray = strays(&context, &tablets, &damaged).await?;
        let (strays, orphans) = match keeps_strays {
            true => (stray.into_iter().map(|(tablet, _)| tablet).collect(), 0),
            false => (BTreeSet::new(), sweep(&context, &tablets, stray).await?),
        };
        if !strays.is_empty() {
            tracing::error!(
                ?strays,
                "tablets that the catalog does not name are kept, because it may be wrong"
            );
        }
        let mut report = RecoveryReport {
            tablets: tablets.len(),
            damaged_tablets: damaged.len(),
            log_bytes: replayed.bytes,
            log_records: replayed.records,
            torn_bytes: replayed.torn_bytes,
            orphans,
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
            admission,
            env: env.clone(),
            options,
            epoch,
            context,
            cache,
            streams,
            tablets: RwLock::default(),
            routes: Routes::default(),
            damaged: RwLock::new(damaged),
            strays,
            latches: Arc::default(),
            row_cache,
            metrics: server_metrics,
            splits: Mutex::default(),
            indivisible: Mutex::default(),
            work: Notify::new(),
            tidy: Notify::new(),
            ripe: Mutex::default(),
            merges: Merges::default(),
            stopping: AtomicBool::new(false),
        });
        tablets.into_values().for_each(|tablet| server.serve(tablet));
        report.duration = env.now() - start;
        server.metrics.recovery_millis.set(report.duration.as_millis() as i64);
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
    damaged: BTreeMap<TabletId, TabletError>,
}

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
    let opening = named.into_iter().map(|(id, schema)| async move {
        let opened = match inherited {
            true => Tablet::inherit(context.clone(), schema, id, epoch).await,
            false => Tablet::open(context.clone(), schema, id, epoch).await,
        };
        set_damaged_aside(id, opened)
    });
    let mut opening = futures::stream::iter(opening).buffer_unordered(OPEN_AT_ONCE);
    while let Some((id, opened)) = opening.try_next().await? {
        match opened {
            Ok(tablet) => drop(all.tablets.insert(id, tablet)),
            Err(error) => drop(all.damaged.insert(id, error)),
        }
    }
    Ok(all)
}

/// The tablet, or why it is damaged; any other error ends the start.
fn set_damaged_aside(
    tablet: TabletId,
    opened: Result<Arc<Tablet>, TabletError>,
) -> Result<(TabletId, Result<Arc<Tablet>, TabletError>), ServerError> {
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
    Ok((tablet, Err(error)))
}

async fn replay_log(
    storage: &dyn Storage,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
) -> Result<ReplayReport, LogError> {
    stele_commitlog::replay(storage, |record| {
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
        tablet.replay(&batch, record.first, record.last);
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

/// The manifests of tablets that the catalog does not name.
async fn strays(
    context: &TabletContext,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
    damaged: &BTreeMap<TabletId, TabletError>,
) -> Result<Vec<(TabletId, String)>, StorageError> {
    let manifests = context.storage.list("tablets/").await?.into_iter().filter_map(|file| {
        let (tablet, _) = manifest::parse_path(&file.path)?;
        Some((tablet, file.path))
    });
    Ok(manifests
        .filter(|(tablet, _)| !tablets.contains_key(tablet) && !damaged.contains_key(tablet))
        .collect())
}

/// Deletes sstables and manifests that belong to no tablet; how many files.
async fn sweep(
    context: &TabletContext,
    tablets: &BTreeMap<TabletId, Arc<Tablet>>,
    strays: Vec<(TabletId, String)>,
) -> Result<usize, ServerError> {
    let mut referenced: BTreeSet<StoredFile> = BTreeSet::new();
    for tablet in tablets.values() {
        referenced.extend(tablet.manifest().await.stored());
    }
    let swept = context.files.sweep(&referenced).await;
    let deleted = swept.map_err(|error| ServerError::Tablet {
        tablet: TabletId(0),
        error,
    })?;
    context.storage.confirm_owner().await?;
    for (_, path) in &strays {
        context.storage.delete(path).await?;
    }
    Ok(deleted + strays.len())
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
            info.settled = info.whole;
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
