//! The engine under test: a tablet server over the local disk.

use crate::data::KEY_BYTES;
use crate::engine::{Engine, Row, Wait};
use anyhow::{Context, anyhow};
use bytes::Bytes;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stele_catalog::Catalog;
use stele_client::{TabletControl, TabletRead, TabletService};
use stele_coord::EmbeddedCoord;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::local::LocalStorage;
use stele_tabletserver::{MemtableLimits, ServerOptions, TabletServer};
use stele_types::{
    Compression, Durability, Epoch, Family, FamilyId, GroupId, LocalityGroup, Mutation, RowBatch, RowRange, RowSet,
    RowWrites, RowWritesBuilder, Span, TableId, TableName, TableSchema, TabletId, Timestamp, ValueType,
};
use tokio::runtime::Runtime;

/// The tablet that holds everything.
pub const TABLET: TabletId = TabletId(1);
const FAMILY: FamilyId = FamilyId(1);
const QUALIFIER: &[u8] = b"v";

/// A group is quiet so long after its last flush, and a moment, and no sooner than twice the time in which its flushes gathered.
const QUIET_TIME: Duration = Duration::from_secs(12);

/// How the engine is set up.
#[derive(Clone, Copy, Debug)]
pub struct SteleOptions {
    /// The whole budget.
    pub memory: u64,
    /// Codec of the files.
    pub compression: Compression,
    /// Whether results of hot reads are kept.
    pub row_cache: bool,
    /// How the budget is divided for good; absent, it is divided as the load wants.
    pub fixed: Option<FixedDivision>,
}

/// A division of memory that stays.
#[derive(Clone, Copy, Debug)]
pub struct FixedDivision {
    /// Bytes of memtables.
    pub memtables: u64,
    /// Bytes of the block cache.
    pub blocks: u64,
    /// Bytes of the row cache.
    pub rows: u64,
}

/// A server with one tablet.
pub async fn start(env: Env, storage: Arc<dyn Storage>, options: SteleOptions) -> anyhow::Result<Arc<TabletServer>> {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone()).await?;
    let catalog = Catalog::load(coord).await?;
    let mut cache_bytes = ServerOptions::block_cache_bytes(options.memory);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut settings = ServerOptions::for_machine(options.memory, cores);
    if let Some(fixed) = options.fixed {
        cache_bytes = usize::try_from(fixed.blocks)?;
        settings.memory = None;
        settings.memtables = MemtableLimits::for_share(fixed.memtables);
        settings.row_cache_bytes = usize::try_from(fixed.rows)?;
    }
    let cache = Arc::new(Cache::new(cache_bytes));
    settings.durability = Durability::Flush;
    if !options.row_cache {
        settings.row_cache_bytes = 0;
    }
    let metrics = Metrics::new();
    let started = TabletServer::start(env, storage, &catalog, Epoch(1), cache, settings, &metrics);
    let (server, _) = started.await.context("starting the engine")?;
    let schema = Arc::new(schema(options.compression));
    let tablets = vec![(TABLET, RowRange::all())];
    let made = server.create_tablets(schema, tablets).await;
    made.map_err(|e| anyhow!("{e}"))?;
    Ok(server)
}

/// The engine.
pub struct SteleEngine {
    server: Arc<TabletServer>,
    opened: Instant,
    foreground: Runtime,
    _background: Runtime,
}

impl SteleEngine {
    /// A new engine in an empty folder.
    pub fn open(folder: &Path, options: SteleOptions) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = |threads| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).enable_all().build()
        };
        // As the server does it.
        let foreground = runtime(cores)?;
        let background = runtime(cores.div_ceil(2))?;
        let env = TokioRuntime::env(foreground.handle().clone(), background.handle().clone());
        let server = foreground.block_on(async {
            let storage: Arc<dyn Storage> = LocalStorage::open(folder, env.clone())?;
            start(env, storage, options).await
        })?;
        Ok(SteleEngine {
            server,
            opened: Instant::now(),
            foreground,
            _background: background,
        })
    }

    /// Obsolete files are deleted in the background, moments later.
    fn wait_for_deletions(&self) {
        while self.server.obsolete_bytes() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn write(&self, rows: RowWrites, durability: Durability) -> anyhow::Result<()> {
        let written = self.server.mutate(TABLET, rows, Some(durability));
        block_on(written).map_err(|e| anyhow!("{e}"))
    }
}

impl Engine for SteleEngine {
    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8], sync: bool) -> anyhow::Result<()> {
        let durability = if sync { Durability::Sync } else { Durability::Flush };
        self.write(writes(&[(*key, value)])?, durability)
    }

    fn put_batch(&self, rows: &[Row<'_>]) -> anyhow::Result<()> {
        self.write(writes(rows)?, Durability::Flush)
    }

    fn get(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<usize>> {
        // Nothing is awaited by a caller who does not have to wait, as in the rival.
        match value_without_waiting(&self.server, key, <[u8]>::len)? {
            Some(found) => Ok(found),
            None => block_on(value(&self.server, key, <[u8]>::len)),
        }
    }

    fn value(&self, key: &[u8; KEY_BYTES]) -> anyhow::Result<Option<Vec<u8>>> {
        block_on(value(&self.server, key, <[u8]>::to_vec))
    }

    fn get_list(&self, keys: &[[u8; KEY_BYTES]]) -> anyhow::Result<(u64, u64)> {
        block_on(list(&self.server, keys))
    }

    fn scan(&self, reversed: bool) -> anyhow::Result<(u64, u64)> {
        block_on(scan(&self.server, reversed))
    }

    fn settle(&self) -> anyhow::Result<()> {
        for served in self.server.all_served() {
            self.foreground.block_on(served.tablet.flush())?;
            while served.tablet.compaction_due() {
                std::thread::sleep(Duration::from_millis(5));
            }
            // One that was begun before ends first.
            drop(self.foreground.block_on(served.tablet.stop_compactions()));
        }
        self.wait_for_deletions();
        Ok(())
    }

    fn rest(&self) -> anyhow::Result<()> {
        std::thread::sleep(QUIET_TIME + 2 * self.opened.elapsed());
        self.settle()
    }

    fn compact(&self) -> anyhow::Result<()> {
        for served in self.server.all_served() {
            self.foreground.block_on(served.tablet.compact_all())?;
        }
        self.wait_for_deletions();
        Ok(())
    }

    fn take_waits(&self) -> Vec<Wait> {
        let waits = self.server.write_waits().take_longest();
        waits.into_iter().map(|(cause, took)| (cause.name(), took)).collect()
    }

    fn on_this_thread(&self, work: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        // Timers and spawned tasks find the runtime by the thread's context.
        let _context = self.foreground.enter();
        work()
    }
}

impl Drop for SteleEngine {
    fn drop(&mut self) {
        self.foreground.block_on(self.server.shut_down());
    }
}

/// That which a reader wants of a row's value.
fn value_of<T>(batch: &RowBatch, wanted: impl Fn(&[u8]) -> T) -> Option<T> {
    let cells = batch.rows().flat_map(|(_, cells)| cells);
    cells.last().map(|cell| wanted(&cell.value))
}

/// That which a reader wants of a row's value, or whether there is none, read on the calling thread; `None` when that has to wait.
fn value_without_waiting<T>(
    server: &TabletServer,
    key: &[u8; KEY_BYTES],
    wanted: impl Fn(&[u8]) -> T,
) -> anyhow::Result<Option<Option<T>>> {
    let row = server.get_row(TABLET, key, None).map_err(|e| anyhow!("{e}"))?;
    Ok(row.map(|row| value_of(&row.into_batch(), wanted)))
}

/// That which a reader wants of a row's value, read on the calling thread if that does not have to wait.
pub async fn value<T>(
    server: &TabletServer,
    key: &[u8; KEY_BYTES],
    wanted: impl Fn(&[u8]) -> T,
) -> anyhow::Result<Option<T>> {
    if let Some(found) = value_without_waiting(server, key, &wanted)? {
        return Ok(found);
    }
    let request = TabletRead {
        rows: RowSet::new(vec![RowRange::single(&Bytes::copy_from_slice(key))]),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: true,
    };
    let mut stream = server.read(TABLET, request).await.map_err(|e| anyhow!("{e}"))?;
    let mut found = None;
    while let Some(batch) = stream.next().await.map_err(|e| anyhow!("{e}"))? {
        found = value_of(&batch, &wanted).or(found);
    }
    Ok(found)
}

/// How many of these rows there are, and bytes of their values, as a front end reads a list of keys.
pub async fn list(server: &TabletServer, keys: &[[u8; KEY_BYTES]]) -> anyhow::Result<(u64, u64)> {
    let row = |key: &[u8; KEY_BYTES]| RowRange::single(&Bytes::copy_from_slice(key));
    let request = TabletRead {
        rows: RowSet::new(keys.iter().map(row).collect()),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: false,
    };
    sums(server, request).await
}

/// How many rows there are, and bytes of their values, as a front end reads all of them: in batches that the caller owns.
pub async fn scan(server: &TabletServer, reversed: bool) -> anyhow::Result<(u64, u64)> {
    let request = TabletRead {
        rows: RowSet::all(),
        filter: None,
        reversed,
        raw: false,
        rows_limit: None,
        waits: false,
    };
    sums(server, request).await
}

async fn sums(server: &TabletServer, request: TabletRead) -> anyhow::Result<(u64, u64)> {
    let mut stream = server.read(TABLET, request).await.map_err(|e| anyhow!("{e}"))?;
    let (mut rows, mut bytes) = (0, 0);
    while let Some(batch) = stream.next().await.map_err(|e| anyhow!("{e}"))? {
        rows += batch.len() as u64;
        let cells = batch.rows().flat_map(|(_, cells)| cells);
        bytes += cells.map(|cell| cell.value.len() as u64).sum::<u64>();
    }
    Ok((rows, bytes))
}

/// Rows of one cell each, as a front end lays them over the bytes of its request.
pub fn writes(rows: &[Row<'_>]) -> anyhow::Result<RowWrites> {
    let bytes = rows.iter().map(|(_, value)| KEY_BYTES + value.len()).sum::<usize>();
    let mut request = Vec::with_capacity(QUALIFIER.len() + bytes);
    request.extend_from_slice(QUALIFIER);
    for (key, value) in rows {
        request.extend_from_slice(key);
        request.extend_from_slice(value);
    }
    let span = |start, end| Span::new(start, end).context("a batch of 4 GiB");
    let qualifier = span(0, QUALIFIER.len())?;
    let mut at = QUALIFIER.len();
    let mut builder = RowWritesBuilder::over(request.into(), rows.len());
    for (_, value) in rows {
        let (value_at, end) = (at + KEY_BYTES, at + KEY_BYTES + value.len());
        let put = Mutation::Put {
            family: FAMILY,
            qualifier,
            timestamp: Timestamp(1_700_000_000_000_000),
            value: span(value_at, end)?,
        };
        let added = builder
            .push(put)
            .and_then(|()| builder.end_row(span(at, value_at).ok()?));
        added.context("a row outside of its batch")?;
        at = end;
    }
    Ok(builder.finish())
}

fn schema(compression: Compression) -> TableSchema {
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: BTreeMap::from([(FAMILY, family)]),
        next_family: FamilyId(2),
        groups: vec![LocalityGroup::new(GroupId(0), "default", compression)],
        ..TableSchema::new(TableId(1), TableName::new("bench", "rows"))
    }
}
