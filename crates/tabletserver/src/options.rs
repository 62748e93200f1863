//! Settings of a tablet server, derived from the memory budget where that is possible.

use std::time::Duration;
use stele_types::Durability;

/// Settings. [`ServerOptions::for_memory`] gives consistent ones.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Durability of writes that neither the request nor the table decides.
    pub durability: Durability,
    /// Bytes of all memtables at which writers wait.
    pub memtable_bytes_max: u64,
    /// Bytes of one tablet's memtables at which it is flushed.
    pub tablet_memtable_bytes: u64,
    /// Bytes of commit log at which the tablets that hold its oldest part are flushed; bounds recovery time.
    pub log_bytes_max: u64,
    /// Bytes of one log segment.
    pub log_segment_bytes: u64,
    /// Payload bytes that may wait for the log.
    pub log_queue_bytes: usize,
    /// Log streams.
    pub log_streams: u32,
    /// Bytes at which a tablet splits.
    pub tablet_bytes_max: u64,
    /// Compactions at once.
    pub compactions_max: usize,
    /// Free bytes of the medium below which writes are refused, so that flushes and compactions can still finish.
    pub free_bytes_min: u64,
    /// How long a write waits for memory before it is refused as busy.
    pub admission_wait_max: Duration,
}

impl ServerOptions {
    /// Settings for a budget of `memory` bytes: two fifths for memtables, two fifths for the block cache (given to the cache
    /// by the caller), the rest for indexes, filters, queues and requests in flight.
    pub fn for_memory(memory: u64) -> Self {
        let memtable_bytes_max = memory * 2 / 5;
        ServerOptions {
            durability: Durability::Sync,
            memtable_bytes_max,
            tablet_memtable_bytes: (memtable_bytes_max / 4).clamp(1 << 20, 128 << 20),
            log_bytes_max: (memtable_bytes_max * 2).clamp(64 << 20, 512 << 20),
            log_segment_bytes: (memtable_bytes_max / 8).clamp(4 << 20, 32 << 20),
            log_queue_bytes: (memory / 32).clamp(4 << 20, 64 << 20) as usize,
            log_streams: 1,
            tablet_bytes_max: 512 << 20,
            compactions_max: 1,
            free_bytes_min: 64 << 20,
            admission_wait_max: Duration::from_secs(10),
        }
    }

    /// The block cache's share of the budget.
    pub fn block_cache_bytes(memory: u64) -> usize {
        usize::try_from(memory * 2 / 5).unwrap_or(usize::MAX)
    }
}
