//! Back-pressure: when writes wait, and when they are refused.
//!
//! * Memory: a writer waits while memtables exceed their share. Flushes free it; a writer that waited too long is told
//!   that the server is busy.
//! * Disk: below a reserve, writes are refused as `ResourceExhausted` while reads go on. The reserve lets flushes finish,
//!   and writes come back by themselves when there is space again.

use crate::metrics::ServerMetrics;
use crate::options::ServerOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_storage::Storage;
use stele_tablet::MemoryAccount;
use stele_types::ErrorKind;
use tokio::sync::Notify;

/// Decides whether a write may proceed.
pub struct Admission {
    env: Env,
    memory: MemoryAccount,
    memtable_bytes_max: u64,
    free_bytes_min: u64,
    wait_max: std::time::Duration,
    /// Woken when memory was freed.
    freed: Notify,
    disk_full: AtomicBool,
    metrics: ServerMetrics,
}

impl Admission {
    /// Admission under the server's options.
    pub fn new(
        env: Env,
        memory: MemoryAccount,
        options: &ServerOptions,
        metrics: ServerMetrics,
    ) -> Self {
        Admission {
            env,
            memory,
            memtable_bytes_max: options.memtable_bytes_max,
            free_bytes_min: options.free_bytes_min,
            wait_max: options.admission_wait_max,
            freed: Notify::new(),
            disk_full: AtomicBool::new(false),
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
        if self.memory.bytes() <= self.memtable_bytes_max {
            return Ok(());
        }
        self.metrics.delayed_memory.inc();
        let freed = async {
            while self.memory.bytes() > self.memtable_bytes_max {
                let notified = self.freed.notified();
                // Memtables that readers held are freed without a flush ending, hence the look now and then.
                let _ = self
                    .env
                    .timeout(std::time::Duration::from_millis(50), notified)
                    .await;
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

    /// Looks at the medium's free space; called every now and then, and after a write met a full disk.
    pub async fn check_disk(&self, storage: &Arc<dyn Storage>) {
        let full = match storage.free_bytes().await {
            Ok(Some(free)) => {
                self.metrics
                    .free_bytes
                    .set(i64::try_from(free).unwrap_or(i64::MAX));
                free < self.free_bytes_min
            }
            Ok(None) => false,
            // Unknown: let the writes themselves find out.
            Err(_) => false,
        };
        if self.disk_full.swap(full, Ordering::Relaxed) != full {
            if full {
                tracing::error!(
                    reserve = self.free_bytes_min,
                    "disk full: writes are refused"
                );
            } else {
                tracing::info!("there is disk space again: writes are accepted");
            }
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
