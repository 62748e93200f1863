//! Back-pressure: when writes wait, and when they are refused.
//!
//! * Memory: a writer waits while memtables exceed their share. Flushes free it; a writer that waited too long is told
//!   that the server is busy.
//! * Compaction debt: a writer to a tablet with too many files is slowed, by a little more for each.
//! * Disk: below a reserve, writes are refused as `ResourceExhausted` while reads go on. The reserve lets flushes finish,
//!   and writes come back by themselves when there is space again.

use crate::metrics::ServerMetrics;
use crate::options::{MemtableLimits, ServerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_storage::Storage;
use stele_tablet::MemoryAccount;
use stele_types::ErrorKind;
use tokio::sync::Notify;

/// Files of a group that merging compactions leave alone in a full tree: seven tiers of four, with some to spare.
const FILES_EASY: usize = 32;
/// Delay of a write for every file above that.
const PACE_STEP: Duration = Duration::from_millis(1);
/// Longest such delay.
const PACE_MAX: Duration = Duration::from_millis(100);

/// Decides whether a write may proceed.
pub struct Admission {
    env: Env,
    memory: MemoryAccount,
    memtables: MemtableLimits,
    free_bytes_min: u64,
    wait_max: Duration,
    /// Woken when memory was freed.
    freed: Notify,
    disk_full: AtomicBool,
    /// As last seen; everything where the medium has no limit.
    free_bytes: AtomicU64,
    metrics: ServerMetrics,
}

impl Admission {
    /// Admission under the server's options.
    pub fn new(env: Env, memory: MemoryAccount, options: &ServerOptions, metrics: ServerMetrics) -> Self {
        Admission {
            env,
            memory,
            memtables: options.memtables.clone(),
            free_bytes_min: options.free_bytes_min,
            wait_max: options.admission_wait_max,
            freed: Notify::new(),
            disk_full: AtomicBool::new(false),
            free_bytes: AtomicU64::new(u64::MAX),
            metrics,
        }
    }

    /// Waits until a write may proceed.
    pub async fn admit(&self) -> ServiceResult<()> {
        if self.disk_full.load(Ordering::Relaxed) {
            self.metrics.refused_disk.inc();
            let message = "the disk is full: writes are refused until there is space";
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        if self.memory.bytes() <= self.memtables.bytes_max() {
            return Ok(());
        }
        self.metrics.delayed_memory.inc();
        let freed = async {
            while self.memory.bytes() > self.memtables.bytes_max() {
                let notified = self.freed.notified();
                // Memtables that readers held are freed without a flush ending, hence the look now and then.
                let _ = self.env.timeout(Duration::from_millis(50), notified).await;
            }
        };
        self.env.timeout(self.wait_max, freed).await.map_err(|_| {
            self.metrics.refused_memory.inc();
            ServiceError::new(
                ErrorKind::Busy,
                "memtables are full and flushes do not keep up: retry later",
            )
        })
    }

    /// Tells waiting writers that memory was freed.
    pub fn memory_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Looks at the medium's free space; called every now and then. What was accepted must still fit when it is
    /// flushed, so the reserve grows with what is in memory.
    pub async fn check_disk(&self, storage: &Arc<dyn Storage>) {
        let reserve = self.free_bytes_min.saturating_add(self.memory.bytes());
        let full = match storage.free_bytes().await {
            Ok(Some(free)) => {
                self.free_bytes.store(free, Ordering::Relaxed);
                self.metrics.free_bytes.set(i64::try_from(free).unwrap_or(i64::MAX));
                free < reserve
            }
            // Unlimited, or unknown: then the writes themselves find out.
            Ok(None) | Err(_) => false,
        };
        if self.disk_full.swap(full, Ordering::Relaxed) != full {
            if full {
                tracing::error!(reserve, "disk full: writes are refused");
            } else {
                tracing::info!("there is disk space again: writes are accepted");
            }
        }
    }

    /// Whether a compaction may write this much without taking what flushes need.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let reserve = self.free_bytes_min.saturating_add(self.memory.bytes());
        self.free_bytes.load(Ordering::Relaxed) >= reserve.saturating_add(bytes)
    }

    /// Slows a writer to a tablet whose compactions do not keep up: not at all up to [`FILES_EASY`] files in a group,
    /// then a little more for every file, so that the load settles instead of stopping and starting.
    pub async fn pace(&self, files: usize) {
        let excess = files.saturating_sub(FILES_EASY);
        if excess > 0 {
            self.metrics.delayed_compaction.inc();
            let delay = PACE_STEP * u32::try_from(excess).unwrap_or(u32::MAX);
            self.env.sleep(delay.min(PACE_MAX)).await;
        }
    }

    /// A write met a full disk: refuse the next ones until a look says otherwise.
    pub fn met_full_disk(&self) {
        self.disk_full.store(true, Ordering::Relaxed);
    }

    /// Whether writes are refused for want of space.
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }
}
