//! Settings of a tablet server, derived from the memory budget where that is possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_commitlog::LogClock;
use stele_memory::Pool;
use stele_memory::bounds::{JOB_READAHEAD, LOG_QUEUES};
use stele_tablet::values::SEPARATE_BYTES_MIN;
use stele_types::Durability;

/// Tablets opened concurrently. Each costs a few reads and a durable write, and waits most of the time: storage does
/// many syncs in the time of one.
pub(crate) const OPENED_CONCURRENTLY: usize = 128;

/// Limits of memtables. Clones share the same limits: the governor moves them, and admission and flushes read them
/// every time. The two numbers may be read a moment apart.
#[derive(Clone, Debug)]
pub struct MemtableLimits {
    inner: Arc<(AtomicU64, AtomicU64)>,
}

impl MemtableLimits {
    /// Limits for all memtables together and for those of one tablet.
    pub fn new(bytes_max: u64, tablet_bytes: u64) -> Self {
        MemtableLimits {
            inner: Arc::new((AtomicU64::new(bytes_max), AtomicU64::new(tablet_bytes))),
        }
    }

    /// The limits for a share of memory.
    pub fn for_share(bytes_max: u64) -> Self {
        let limits = MemtableLimits::new(0, 0);
        limits.set_share(bytes_max);
        limits
    }

    /// Moves both limits to those of a share; see [`MemtableLimits::for_share`].
    pub fn set_share(&self, bytes_max: u64) {
        self.inner.0.store(bytes_max, Ordering::Relaxed);
        self.inner.1.store(tablet_bytes(bytes_max), Ordering::Relaxed);
    }

    /// Bytes of all memtables at which writers wait.
    pub fn bytes_max(&self) -> u64 {
        self.inner.0.load(Ordering::Relaxed)
    }

    /// Bytes of one tablet's memtables at which it is flushed.
    pub fn tablet_bytes(&self) -> u64 {
        self.inner.1.load(Ordering::Relaxed)
    }
}

/// Bytes of one tablet's memtables that are flushed, when all memtables have this many bytes. It is a quarter of them,
/// so that one fills while another is written to a file. It is at most 128 MB, beyond which memtables gain little and
/// take long to write.
fn tablet_bytes(bytes_max: u64) -> u64 {
    (bytes_max / 4).min(128 << 20)
}

/// The approximate size of a flush, when memtables have `bytes_max` in all and this many tablets are written to:
/// flushes also begin when half of the whole is used, with the largest.
pub(crate) fn flush_bytes(bytes_max: u64, tablets: u64) -> u64 {
    tablet_bytes(bytes_max).min(bytes_max / 2 / tablets.max(1))
}

/// Memory that is divided between memtables, block cache and row cache while the server runs.
#[derive(Clone)]
pub struct MemoryBudget {
    /// All of it.
    pub bytes: u64,
    /// How often it is divided again.
    pub interval: Duration,
    /// Resident bytes of the process, where somebody can tell.
    pub resident: Option<ResidentBytes>,
    /// Returns freed memory to the system, where the platform allows it; it may block for some tens of milliseconds.
    pub give_back: Option<GiveBack>,
}

/// Tells how much memory the process takes.
pub type ResidentBytes = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Has the allocator return the memory that it retains.
pub type GiveBack = Arc<dyn Fn() + Send + Sync>;

impl MemoryBudget {
    /// A budget that is divided every second.
    pub fn new(bytes: u64) -> Self {
        MemoryBudget {
            bytes,
            interval: Duration::from_secs(1),
            resident: None,
            give_back: None,
        }
    }
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("bytes", &self.bytes)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// Cores for each stream of the log, and most streams. One stream appends, checks and applies on one core at a time.
/// Each has an open segment that is not reclaimed, and four of the largest are a quarter of the log's limit.
const CORES_PER_STREAM: usize = 4;
const STREAMS_MAX: usize = 4;
/// Fewest streams of the log. Measured with 64 writers of two tablets that want syncs, on two cores shared with other work.
/// Two streams did 80,000 to 180,000 rows a second where one did 11,000 to 27,000 in most runs. While one stream waits for
/// the device the other applies and acknowledges. A third has no core of such a machine to use.
const LOG_STREAMS_MIN: u32 = 2;
/// Cores for each concurrent compaction, and most of them: background work has half of the cores, of which flushes
/// take some.
const CORES_PER_COMPACTION: usize = 4;
const COMPACTIONS_MAX: usize = 8;
/// Memory for each concurrent compaction: sixteen times its largest read-ahead.
const MEMORY_PER_COMPACTION: u64 = 512 << 20;

/// Settings. [`ServerOptions::for_machine`] gives consistent ones.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Durability of writes that neither the request nor the table decides.
    pub durability: Durability,
    /// The budget that is divided while the server runs, beginning with the division below; absent, that one stays.
    pub memory: Option<MemoryBudget>,
    /// Bytes of memtables; may change while the server runs.
    pub memtables: MemtableLimits,
    /// Bytes of results of single-row reads kept for the next reader; 0 keeps none.
    pub row_cache_bytes: usize,
    /// Bytes of commit log at which the tablets that hold its oldest part are flushed; bounds recovery time.
    pub log_bytes_max: u64,
    /// Bytes of one log segment.
    pub log_segment_bytes: u64,
    /// Payload bytes that may wait for each stream of the log.
    pub log_queue_bytes: usize,
    /// Log streams; a tablet always writes to the same one.
    pub log_streams: u32,
    /// The clock of a log that is archived; `None` if it is not. Every write is then synced before it is acknowledged.
    pub log_clock: Option<Arc<LogClock>>,
    /// Bytes at which a tablet splits.
    pub tablet_bytes_max: u64,
    /// Bytes of one sstable at which a flush or a compaction begins another.
    pub sstable_bytes: u64,
    /// Values from this size on are kept in value files, out of the way of merges.
    pub value_separate_bytes: usize,
    /// Whether the catalog may lack its last transaction. Then tablets that it does not name are left for the next start, with
    /// the files that they need.
    pub catalog_in_doubt: bool,
    /// Tablets from which on a start makes the whole storage durable, where it has one owner at a time, and writes no
    /// claim to each.
    pub inherit_from: usize,
    /// The pool from which values, batches, rows of writes, readahead and bloom filters reserve their memory. Front ends
    /// share it.
    pub pool: Pool,
    /// Concurrent compactions, two of one tablet at most. Each takes its read-ahead, a few megabytes of blocks in
    /// flight, and the filter and index of the file that it writes.
    pub compactions_max: usize,
    /// Bytes that a flush or a compaction reads ahead, over all that it reads from.
    pub job_readahead_bytes: usize,
    /// Free bytes of storage below which writes are refused, so that flushes and compactions can still finish.
    pub free_bytes_min: u64,
    /// How long a write waits for memory before it is refused as busy.
    pub admission_wait_max: Duration,
}

impl ServerOptions {
    /// Initial settings for a budget of `memory` bytes. Memtables get two fifths, the block cache two fifths (given to
    /// the cache by the caller), and the row cache a twentieth. Indexes, filters, queues and requests in flight get the
    /// rest.
    pub fn for_memory(memory: u64) -> Self {
        let memtable_bytes_max = memory * 2 / 5;
        let row_cache_bytes = memory / 20;
        assert!(
            memtable_bytes_max + ServerOptions::block_cache_bytes(memory) as u64 + row_cache_bytes <= memory,
            "the shares of memtables and caches sum to at most the budget"
        );
        ServerOptions {
            durability: Durability::Sync,
            memory: Some(MemoryBudget::new(memory)),
            memtables: MemtableLimits::for_share(memtable_bytes_max),
            row_cache_bytes: usize::try_from(row_cache_bytes).unwrap_or(usize::MAX),
            log_bytes_max: (memtable_bytes_max * 2).clamp(64 << 20, 512 << 20),
            log_segment_bytes: (memtable_bytes_max / 8).clamp(4 << 20, 32 << 20),
            log_queue_bytes: (LOG_QUEUES.of(memory) / u64::from(LOG_STREAMS_MIN)) as usize,
            log_streams: LOG_STREAMS_MIN,
            log_clock: None,
            tablet_bytes_max: 512 << 20,
            sstable_bytes: 64 << 20,
            value_separate_bytes: SEPARATE_BYTES_MIN,
            // To make everything durable may wait for data that other programs wrote to the disk, so a few tablets
            // are claimed one by one.
            inherit_from: 64,
            catalog_in_doubt: false,
            pool: Pool::new(memory),
            compactions_max: 2,
            // A megabyte for each of 32 runs where there is a gigabyte; less means more requests to storage, which
            // only a remote one would notice.
            job_readahead_bytes: JOB_READAHEAD.of(memory) as usize,
            free_bytes_min: 64 << 20,
            admission_wait_max: Duration::from_secs(10),
        }
    }

    /// The same for a machine with this many cores: [`ServerOptions::for_memory`] is right up to eight. All streams
    /// of the log together queue as much.
    pub fn for_machine(memory: u64, cores: usize) -> Self {
        let least = ServerOptions::for_memory(memory);
        let streams_min = least.log_streams as usize;
        let streams = (cores / CORES_PER_STREAM).clamp(streams_min, STREAMS_MAX);
        let by_memory = usize::try_from(memory / MEMORY_PER_COMPACTION).unwrap_or(usize::MAX);
        let compactions = (cores / CORES_PER_COMPACTION).min(by_memory);
        assert!(
            streams >= streams_min,
            "more cores have more streams, among which the queue is divided"
        );
        ServerOptions {
            log_streams: streams as u32,
            log_queue_bytes: least.log_queue_bytes * streams_min / streams,
            compactions_max: compactions.clamp(least.compactions_max, COMPACTIONS_MAX),
            ..least
        }
    }

    /// Bytes that may wait for the log in all.
    pub(crate) fn log_queues_bytes(&self) -> u64 {
        self.log_queue_bytes as u64 * u64::from(self.log_streams.max(1))
    }

    /// The block cache's share of the budget.
    pub fn block_cache_bytes(memory: u64) -> usize {
        usize::try_from(memory * 2 / 5).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_compactions_grow_with_cores_as_far_as_memory_bears() {
        let of = |memory: u64, cores: usize| {
            let options = ServerOptions::for_machine(memory, cores);
            (options.log_streams, options.compactions_max)
        };
        assert_eq!([of(4 << 30, 1), of(4 << 30, 2), of(4 << 30, 8)], [(2, 2); 3]);
        assert_eq!([of(4 << 30, 12), of(4 << 30, 16)], [(3, 3), (4, 4)]);
        assert_eq!(
            [of(4 << 30, 128), of(1 << 30, 128), of(64 << 20, 128)],
            [(4, 8), (4, 2), (4, 2)]
        );
        for memory in [64 << 20, 512 << 20, 16 << 30] {
            let few = ServerOptions::for_machine(memory, 2);
            let many = ServerOptions::for_machine(memory, 128);
            assert_eq!(few.log_queues_bytes(), many.log_queues_bytes());
            let open = u64::from(many.log_streams) * many.log_segment_bytes;
            assert!(open <= many.log_bytes_max / 4, "{open} of {}", many.log_bytes_max);
        }
    }
}
