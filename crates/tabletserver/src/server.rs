//! The server: which tablets it serves, and what they share.

use crate::admission::Admission;
use crate::error::{from_tablet, not_here};
use crate::latch::{RowLatches, SharedLock};
use crate::maintenance::{Choice, Compactions, Unread};
use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use crate::row_cache::RowCache;
use crate::split::SplitCheck;
use crate::waits::WriteWaits;
use crate::write::PendingWrite;
use arc_swap::{ArcSwap, Guard};
use futures::StreamExt;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_catalog::block_of;
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::LogStream;
use stele_env::Env;
use stele_memory::Pool;
use stele_sstable::Cache;
use stele_storage::StorageError;
use stele_tablet::{Tablet, TabletContext, TabletError};
use stele_types::{Epoch, SeqNo, TableSchema, TabletId};
use tokio::sync::Notify;

/// Tablets flushed at once when the server stops. A flush of little waits for the medium most of the time; one of much
/// keeps a few buffers of a block's size.
const FLUSHES_AT_SHUTDOWN: usize = 32;

/// A tablet being served.
pub struct Served {
    /// The tablet.
    pub tablet: Arc<Tablet>,
    /// Where its records go.
    pub(crate) stream: Arc<Stream>,
    /// Writers hold it shared from the range check until their batch is applied; a split or a drop of rows alone.
    pub(crate) gate: SharedLock,
    /// The server's.
    pub(crate) row_cache: Arc<RowCache>,
}

impl Served {
    /// Bytes of the tablet's memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.tablet.state().memtable_bytes()
    }
}

/// A stream of the commit log.
pub(crate) type Stream = LogStream<PendingWrite>;

/// Keeps writers out of a tablet while it lives.
pub(crate) struct Shut(Arc<Served>);

impl Shut {
    /// Waits for the writers of a tablet.
    pub(crate) async fn shut(served: &Arc<Served>) -> Shut {
        served.gate.own().await;
        Shut(served.clone())
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.gate.disown();
    }
}

/// A tablet that cannot be served.
pub(crate) struct DamagedTablet {
    /// Why.
    pub(crate) error: TabletError,
    /// Its table's, as of now.
    pub(crate) schema: Arc<TableSchema>,
}

impl DamagedTablet {
    /// Whether the device could not read its manifest. It may by now.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.error, TabletError::Storage(StorageError::Unreadable { .. }))
    }
}

/// A split between its halves.
pub(crate) struct PreparedSplit {
    /// The two tablets, not served yet.
    pub(crate) halves: [Arc<Tablet>; 2],
    /// Keeps writers out of the tablet.
    pub(crate) _gate: Shut,
}

/// Maps from ids to tablets: with ten thousand tablets, a change of one copies 160 entries.
const ROUTE_SHARDS: usize = 64;

/// The tablets by id. Who looks one up takes no lock, does not keep anybody from changing the map meanwhile, and takes no
/// reference of its own: the two together would cost a read of a row as much again.
pub(crate) struct Routes(Box<[ArcSwap<ById>]>);

type ById = BTreeMap<TabletId, Arc<Served>>;

impl Default for Routes {
    fn default() -> Self {
        Routes((0..ROUTE_SHARDS).map(|_| ArcSwap::default()).collect())
    }
}

impl Routes {
    /// The tablets among which one is, if it is served.
    pub(crate) fn around(&self, tablet: TabletId) -> Guard<Arc<ById>> {
        self.shard(tablet).load()
    }

    /// Changes the part of a tablet. One at a time.
    fn change(&self, tablet: TabletId, change: impl FnOnce(&mut ById)) {
        let shard = self.shard(tablet);
        let mut tablets = ById::clone(&shard.load());
        change(&mut tablets);
        shard.store(Arc::new(tablets));
    }

    fn shard(&self, tablet: TabletId) -> &ArcSwap<ById> {
        &self.0[place_of(tablet, ROUTE_SHARDS)]
    }
}

/// In which of so many places a tablet is. A table and each split take a block of identifiers of their own, so by its identifier alone
/// the tablet of a table that was not divided when it was made would be in the second place, and every half in the first two.
fn place_of(tablet: TabletId, places: usize) -> usize {
    (block_of(tablet.0).wrapping_add(tablet.0) % places as u64) as usize
}

/// A tablet server. All its parts are shared; see the modules for what happens to them.
pub struct TabletServer {
    pub(crate) env: Env,
    pub(crate) options: ServerOptions,
    pub(crate) epoch: Epoch,
    pub(crate) context: TabletContext,
    pub(crate) cache: Arc<Cache>,
    pub(crate) streams: Vec<Arc<Stream>>,
    pub(crate) tablets: RwLock<ById>,
    /// The same for requests; changed while `tablets` is locked.
    pub(crate) routes: Routes,
    /// Tablets that the catalog does not name although it perhaps should.
    pub(crate) strays: BTreeSet<TabletId>,
    /// Tablets whose manifest cannot be read, with the reason: every request for one is refused with it, and the log keeps
    /// what it has of them.
    pub(crate) damaged: RwLock<BTreeMap<TabletId, DamagedTablet>>,
    /// How far devices have been asked again for what they could not read.
    pub(crate) unread: Unread,
    /// Whether row filters in memory are being chosen.
    pub(crate) choice: Choice,
    pub(crate) latches: Arc<RowLatches>,
    pub(crate) row_cache: Arc<RowCache>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) splits: Mutex<BTreeMap<TabletId, PreparedSplit>>,
    /// Tablets that turned out to have no row to split at, with their size then: not tried again until they grow.
    pub(crate) indivisible: Mutex<BTreeMap<TabletId, u64>>,
    /// Tablets of which a split failed, and until when they are left alone.
    pub(crate) failed_splits: Mutex<BTreeMap<TabletId, Duration>>,
    /// The last look for tablets to split.
    pub(crate) looked: Mutex<SplitCheck>,
    /// Wakes the flush loop.
    pub(crate) work: Notify,
    /// Bytes of memtables when the flush loop began to look last.
    pub(crate) probed_bytes: AtomicU64,
    /// Wakes housekeeping: a flush has made log segments superfluous.
    pub(crate) tidy: Notify,
    /// Tablets whose memtables are worth a file.
    pub(crate) ripe: Mutex<BTreeSet<TabletId>>,
    /// Tablets that may need a compaction.
    pub(crate) compactions: Compactions,
    pub(crate) stopping: AtomicBool,
}

impl TabletServer {
    /// The tablet, if it is served here.
    pub fn served(&self, tablet: TabletId) -> ServiceResult<Arc<Served>> {
        let served = self.routes.around(tablet).get(&tablet).cloned();
        served.ok_or_else(|| self.not_served(tablet))
    }

    /// Whether a tablet is served here.
    pub(crate) fn is_served(&self, tablet: TabletId) -> bool {
        self.routes.around(tablet).contains_key(&tablet)
    }

    /// The error for a tablet that is not served here.
    pub(crate) fn not_served(&self, tablet: TabletId) -> ServiceError {
        match self.damaged.read().get(&tablet) {
            Some(damaged) => from_tablet(damaged.error.clone()),
            None => not_here(tablet),
        }
    }

    /// The tablets that cannot be served, and why.
    pub fn damaged_tablets(&self) -> Vec<(TabletId, TabletError)> {
        let damaged = self.damaged.read();
        let damaged = damaged.iter().map(|(id, damaged)| (*id, damaged.error.clone()));
        damaged.collect()
    }

    /// All tablets served here.
    pub fn all_served(&self) -> Vec<Arc<Served>> {
        self.tablets.read().values().cloned().collect()
    }

    /// Begins to serve a tablet.
    pub(crate) fn serve(&self, tablet: Arc<Tablet>) {
        let stream = self.streams[place_of(tablet.id(), self.streams.len())].clone();
        let served = Served {
            tablet: tablet.clone(),
            stream,
            gate: SharedLock::default(),
            row_cache: self.row_cache.clone(),
        };
        let served = Arc::new(served);
        let mut tablets = self.tablets.write();
        self.routes.change(tablet.id(), |shard| {
            shard.insert(tablet.id(), served.clone());
        });
        tablets.insert(tablet.id(), served);
        drop(tablets);
        if tablet.wants_warming() {
            self.compactions.announce(tablet.id());
        }
    }

    /// Stops serving a tablet: requests that hold it finish or find it closed.
    pub(crate) fn unserve(&self, tablet: TabletId) -> Option<Arc<Served>> {
        let mut tablets = self.tablets.write();
        let served = tablets.remove(&tablet)?;
        self.routes.change(tablet, |shard| {
            shard.remove(&tablet);
        });
        drop(tablets);
        served.tablet.close();
        Some(served)
    }

    /// Whether files hold everything of a tablet up to a sequence number, so that the log need not.
    pub(crate) fn is_flushed(&self, tablet: TabletId, seq: SeqNo) -> bool {
        let tablets = self.tablets.read();
        match tablets.get(&tablet) {
            Some(served) => served.tablet.flushed_through() >= seq,
            // Dropped or split: its successors' manifests hold what it held. Of a damaged or a stray one nobody knows.
            None => !self.strays.contains(&tablet) && !self.damaged.read().contains_key(&tablet),
        }
    }

    /// The server's ownership generation.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What one request at a time may take beyond its room: front ends share it.
    pub fn pool(&self) -> &Pool {
        &self.options.pool
    }

    /// The environment.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Tells every tablet of a table its schema.
    pub(crate) fn publish_schema(&self, schema: &Arc<TableSchema>) {
        // First these: one that begins to be served meanwhile is found below, or has learnt of it here.
        let mut damaged = self.damaged.write();
        for tablet in damaged.values_mut().filter(|tablet| tablet.schema.id == schema.id) {
            tablet.schema = schema.clone();
        }
        drop(damaged);
        for served in self.all_served() {
            let tablet = &served.tablet;
            if tablet.schema().id != schema.id {
                continue;
            }
            if tablet.set_schema(schema.clone()) {
                // What a family has left in memory of another group follows it when it is in files.
                self.ripe.lock().insert(tablet.id());
                self.work.notify_one();
            } else if !tablet.state().misplaced().is_empty() || tablet.wants_warming() {
                self.compactions.announce(tablet.id());
            }
        }
    }

    /// Stops accepting writes, completes what is queued, flushes everything. Returns what could not be flushed: it is in
    /// the log.
    pub async fn shut_down(&self) -> usize {
        self.stopping.store(true, Ordering::Release);
        self.work.notify_waiters();
        for stream in &self.streams {
            stream.close().await;
        }
        let flushing = self.all_served().into_iter().map(|served| async move {
            let flushed = served.tablet.flush().await;
            if let Err(error) = &flushed {
                tracing::warn!(tablet = %served.tablet.id(), %error, "not flushed at shutdown; the log has it");
            }
            served.tablet.close();
            usize::from(flushed.is_err())
        });
        let flushing = futures::stream::iter(flushing).buffer_unordered(FLUSHES_AT_SHUTDOWN);
        let failed = flushing.fold(0, |failed, one| async move { failed + one }).await;
        if failed == 0
            && let Err(error) = self.delete_unneeded_log().await
        {
            tracing::warn!(%error, "log segments left over at shutdown");
        }
        failed
    }

    /// Deletes the log segments that nobody needs. No header speaks of another stream's segment, so where one cannot be deleted the
    /// other streams go on.
    pub(crate) async fn delete_unneeded_log(&self) -> Result<usize, stele_commitlog::LogError> {
        let is_flushed = |tablet, seq| self.is_flushed(tablet, seq);
        let (mut deleted, mut failure) = (0, None);
        for stream in &self.streams {
            match stream.delete_unneeded(is_flushed).await {
                Ok(some) => deleted += some,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(deleted), Err)
    }

    /// Whether writes are refused for want of disk space.
    pub fn is_refusing_writes(&self) -> bool {
        self.admission.is_disk_full()
    }

    /// How long writers have waited, and for what.
    pub fn write_waits(&self) -> &WriteWaits {
        &self.metrics.waits
    }

    /// Compactions that were begun while another of the same tablet ran.
    pub fn concurrent_compactions(&self) -> u64 {
        self.context.metrics.concurrent_compactions.get()
    }

    /// Bytes of files that nothing refers to any more, and that are not deleted yet.
    pub fn obsolete_bytes(&self) -> u64 {
        self.context.files.obsolete_bytes()
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifiers as `Catalog::allocate_ids` gives them, the first of a block to the table.
    #[test]
    fn tablets_are_in_all_places_however_they_were_made() {
        let first = |block: u64| block << 20;
        let of_tables: Vec<u64> = (1..=240).map(|block| first(block) + 1).collect();
        let halves: Vec<u64> = (1..=120).flat_map(|block| [first(block), first(block) + 1]).collect();
        let of_one_table: Vec<u64> = (1..=240).map(|number| first(7) + number).collect();
        for ids in [of_tables, halves, of_one_table] {
            for places in [1, 2, 3, 4, ROUTE_SHARDS] {
                let mut taken = vec![0; places];
                ids.iter().for_each(|id| taken[place_of(TabletId(*id), places)] += 1);
                let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
                assert!(*most <= 2 * *least, "{places} places, from {}: {taken:?}", ids[0]);
            }
        }
    }
}
