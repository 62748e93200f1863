//! Back-pressure: when writes wait, and when they are refused.
//!
//! * Memory and compaction debt: writers are slowed in proportion to the free part of the memtables' share, and by the
//!   compaction debt in runs and in space (`pacing`). So the load settles instead of stopping and starting. Should
//!   memory run over nevertheless, writers wait; after a limit they are refused as busy.
//! * Unflushable tablets: writes to them are refused when log or memory retain too much for them, and writes to other tablets
//!   are not slowed for their sake (`unflushable`).
//! * Disk: below a reserve, writes are refused as `ResourceExhausted` while reads go on. The reserve lets flushes finish, and
//!   compactions that free space; writes are accepted again when there is space. A large write that would take of the
//!   reserve by itself is refused before that. Full for longer than flushes take, the disk is short of space (`shortage`).

mod metrics;
mod pacing;
mod shortage;
mod unflushable;

pub use metrics::AdmissionMetrics;

use crate::memory::{RowMemory, WriteMemory};
use crate::options::{MemtableLimits, ServerOptions};
use crate::waits::{self, WriteWaits};
use pacing::{Cause, Load, Pacer};
use parking_lot::Mutex;
use shortage::Shortage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_memory::Pool;
use stele_storage::Storage;
use stele_tablet::{MemoryAccount, Moved, SpaceLimit};
use stele_types::{ErrorKind, TabletId};
use tokio::sync::{Notify, Semaphore};
use unflushable::Unflushable;

/// The most that memtables may grow past their share before writers are stopped; a quarter of the share where that is
/// less. Part of the memory that a server may take above its budget.
const MEMORY_OVER_MAX: u64 = 64 << 20;
/// Writes of more than this part of the memtables' share are let in one by one: two concurrently would exceed it by
/// as much.
const LARGE_PART: u64 = 8;
/// Smaller writes are never large: dozens of them fit into the memory that memtables may take beyond their share.
const LARGE_BYTES_MIN: u64 = 1 << 20;
/// Free bytes above the reserve from which on written bytes are not counted between two checks of free space. Far
/// more than a fifth of a second's writes.
const AMPLE_SPACE: u64 = 1 << 30;
/// How often a stopped writer checks without being woken.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Decides whether a write may proceed.
pub struct Admission {
    env: Env,
    memory: MemoryAccount,
    moved: Moved,
    memtables: MemtableLimits,
    free_bytes_min: u64,
    wait_max: Duration,
    /// Held for moments, and only while there is pressure.
    pacer: Mutex<Pacer>,
    /// Woken when memory was freed.
    freed: Notify,
    disk_full: AtomicBool,
    /// As of the last check, less the bytes logged since where space is scarce; the maximum where storage has no
    /// limit.
    free_bytes: AtomicU64,
    /// Held for moments: by checks of free space, and by writes that met a full disk.
    shortage: Mutex<Shortage>,
    metrics: AdmissionMetrics,
    waits: WriteWaits,
    /// Tablets that cannot be flushed.
    pub(crate) unflushable: Unflushable,
    /// For rows that writes read.
    pub(crate) rows: RowMemory,
    /// Memory for the copied parts of requests.
    pub(crate) batches: WriteMemory,
    /// One turn: of the large write that waits for memory, while others queue behind it.
    large: Semaphore,
    /// Bytes of the large write that waits for memory.
    wanted: AtomicU64,
    /// Bytes of large writes that have been let in and may not be in memtables yet.
    coming: AtomicU64,
    /// Is told the bytes of memtables above their share.
    pool: Pool,
}

/// A large write that has been let in; dropped when it is applied.
pub struct Coming {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let before = self.admission.coming.fetch_sub(self.bytes, Ordering::Relaxed);
        assert!(
            before >= self.bytes,
            "a large write leaves the account once: {before} bytes are in it, {} leave",
            self.bytes
        );
        self.admission.report_excess();
        self.admission.freed.notify_waiters();
    }
}

/// Bytes that memtables may take beyond their share.
fn over_max(share: u64) -> u64 {
    (share / 4).min(MEMORY_OVER_MAX)
}

/// Tells of a write that waits, as long as it does.
struct Wanted<'a>(&'a AtomicU64);

impl<'a> Wanted<'a> {
    fn new(wanted: &'a AtomicU64, bytes: u64) -> Self {
        let former = wanted.swap(bytes, Ordering::Relaxed);
        assert_eq!(former, 0, "large writes wait one at a time");
        Wanted(wanted)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Admission {
    /// Admission under the server's options.
    pub fn new(
        env: Env,
        memory: MemoryAccount,
        moved: Moved,
        options: &ServerOptions,
        metrics: AdmissionMetrics,
        waits: WriteWaits,
    ) -> Self {
        Admission {
            pacer: Mutex::new(Pacer::new()),
            unflushable: Unflushable::default(),
            rows: RowMemory::new(&options.pool, options.admission_wait_max, env.clone()),
            batches: WriteMemory::new(&options.pool, options.admission_wait_max, env.clone()),
            large: Semaphore::new(1),
            wanted: AtomicU64::new(0),
            coming: AtomicU64::new(0),
            pool: options.pool.clone(),
            env,
            memory,
            moved,
            memtables: options.memtables.clone(),
            free_bytes_min: options.free_bytes_min,
            wait_max: options.admission_wait_max,
            freed: Notify::new(),
            disk_full: AtomicBool::new(false),
            free_bytes: AtomicU64::new(u64::MAX),
            shortage: Mutex::default(),
            metrics,
            waits,
        }
    }

    /// Refuses writes while the disk is full.
    pub fn check_accepting(&self) -> ServiceResult<()> {
        if self.disk_full.load(Ordering::Relaxed) {
            self.metrics.refused_disk.inc();
            let message = "the disk is full: writes are refused until there is space";
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        Ok(())
    }

    /// Refuses writes to an unflushable tablet with this many `bytes` in memtables, while too much is retained for
    /// it.
    pub fn check_unflushable(&self, tablet: TabletId, bytes: impl FnOnce() -> u64) -> ServiceResult<()> {
        let checked = self.unflushable.check(tablet, bytes, self.memtables.bytes_max());
        if checked.is_err() {
            self.metrics.refused_unflushable.inc();
        }
        checked
    }

    /// Waits until a write of about this many bytes may proceed, to a tablet with this compaction debt
    /// (`picker::compaction_pressure`). A few loads where there is no pressure.
    pub async fn pace(&self, bytes: usize, compaction_pressure: u64) -> ServiceResult<()> {
        self.spend(bytes)?;
        let load = self.load(compaction_pressure);
        if !load.is_easy() {
            self.wait_for_turn(bytes, load).await?;
        }
        Ok(())
    }

    /// Whether there is far more space than writes can take before the next check of free space.
    pub fn has_ample_space(&self) -> bool {
        let free = self.free_bytes.load(Ordering::Relaxed);
        free == u64::MAX || free > self.reserve().saturating_add(AMPLE_SPACE)
    }

    /// Counts bytes that are about to be logged, lest writes use up the reserve between two checks of free space. A
    /// large write that would use it up by itself is refused: then nothing could be flushed, and only a flush brings
    /// space back.
    fn spend(&self, bytes: usize) -> ServiceResult<()> {
        if self.has_ample_space() {
            return Ok(());
        }
        let (bytes, reserve) = (bytes as u64, self.reserve());
        let less = |free: u64| {
            // Once in the log, and once in the files that it is flushed to.
            let fits = bytes <= LARGE_BYTES_MIN || free >= reserve.saturating_add(bytes.saturating_mul(2));
            fits.then(|| free.saturating_sub(bytes))
        };
        match self.free_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(free) if free.saturating_sub(bytes) < reserve => self.set_disk_full(true, reserve),
            Ok(_) => {}
            Err(_) => {
                self.metrics.refused_disk.inc();
                let message = format!("the disk is too full for a write of {bytes} bytes, which takes space twice");
                return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
            }
        }
        Ok(())
    }

    /// Free bytes below which writes are refused: accepted writes must still fit when they are flushed.
    fn reserve(&self) -> u64 {
        self.free_bytes_min.saturating_add(self.memory.bytes())
    }

    fn set_disk_full(&self, full: bool, reserve: u64) {
        if self.disk_full.swap(full, Ordering::Relaxed) != full {
            if full {
                tracing::error!(reserve, "disk full: writes are refused");
            } else {
                tracing::info!("there is disk space again: writes are accepted");
            }
        }
    }

    /// Bytes of memtables that flushes can free.
    fn memory_bytes(&self) -> u64 {
        self.memory.bytes().saturating_sub(self.unflushable.memory_bytes())
    }

    fn load(&self, compaction_pressure: u64) -> Load {
        let foreseen = self.memory_bytes() + self.memory.flushing_bytes();
        Load::new(foreseen, self.memtables.bytes_max(), compaction_pressure)
    }

    /// Whether memtables exceed their share by the margin above which nothing may be added. This is the last resort,
    /// where a measurement was wrong or the share has become smaller.
    fn is_memory_over(&self) -> bool {
        let max = self.memtables.bytes_max();
        self.memory_bytes() > max.saturating_add(over_max(max))
    }

    async fn wait_for_turn(&self, bytes: usize, load: Load) -> ServiceResult<()> {
        let turn = {
            let (now, mut pacer) = (self.env.now(), self.pacer.lock());
            pacer.observe(now, self.memory.flushed_bytes(), self.moved.bytes(), load);
            pacer.turn(now, bytes, load, self.wait_max)
        };
        let (wait, cause) = turn.ok_or_else(|| self.busy())?;
        assert!(
            wait <= self.wait_max,
            "no write waits longer than the limit of all waits: {wait:?}"
        );
        if !wait.is_zero() {
            match cause {
                Cause::Memory => self.metrics.delayed_memory.inc(),
                Cause::Compaction => self.metrics.delayed_compaction.inc(),
            }
            let waited_for = match cause {
                Cause::Memory => waits::Cause::Memory,
                Cause::Compaction => waits::Cause::Compaction,
            };
            self.metrics.delayed_seconds.observe(wait.as_secs_f64());
            let slept = self.env.sleep(wait);
            self.waits.until(&self.env, waited_for, slept).await;
        }
        if self.is_memory_over() {
            return self.wait_for_memory().await;
        }
        Ok(())
    }

    async fn wait_for_memory(&self) -> ServiceResult<()> {
        let start = self.env.now();
        let freed = async {
            while self.is_memory_over() {
                let notified = self.freed.notified();
                // Memtables that readers held are freed without a flush ending, hence the look now and then.
                let _ = self.env.timeout(POLL_INTERVAL, notified).await;
            }
        };
        let freed = self.env.timeout(self.wait_max, freed).await;
        self.metrics.stopped_memory.inc();
        self.metrics.delayed_memory.inc();
        let took = self.env.now() - start;
        self.waits.note(waits::Cause::Stopped, took);
        self.metrics.delayed_seconds.observe(took.as_secs_f64());
        freed.map_err(|_| self.busy())
    }

    /// Whether a write is a sizeable part of the memtables' share: then [`Admission::let_in`] lets it in, after
    /// [`Admission::pace`], which does for all others.
    pub fn is_large(&self, bytes: usize) -> bool {
        bytes as u64 > LARGE_BYTES_MIN && bytes as u64 > self.memtables.bytes_max() / LARGE_PART
    }

    /// Lets a large write in when it fits in addition to the memtables and the other large writes that were let in,
    /// or when hardly anything is left to be flushed. One after the other; `nudge` is called to have memtables
    /// flushed.
    pub async fn let_in(self: &Arc<Self>, bytes: usize, nudge: impl Fn()) -> ServiceResult<Coming> {
        let bytes = bytes as u64;
        let start = self.env.now();
        let waits = async {
            let _turn = self.large.acquire().await.expect("the semaphore is never closed");
            let _wanted = Wanted::new(&self.wanted, bytes);
            while !self.fits(bytes) {
                let notified = self.freed.notified();
                nudge();
                let _ = self.env.timeout(POLL_INTERVAL, notified).await;
            }
            self.count_in(bytes as usize)
        };
        let let_in = self.env.timeout(self.wait_max, waits).await;
        let took = self.env.now() - start;
        self.waits.note(waits::Cause::Large, took);
        if took >= POLL_INTERVAL {
            self.metrics.delayed_memory.inc();
            self.metrics.delayed_seconds.observe(took.as_secs_f64());
        }
        let_in.map_err(|_| self.busy())
    }

    /// Counts a large write that goes ahead without having waited.
    pub fn count_in(self: &Arc<Self>, bytes: usize) -> Coming {
        let bytes = bytes as u64;
        self.coming.fetch_add(bytes, Ordering::Relaxed);
        self.report_excess();
        Coming {
            admission: Arc::clone(self),
            bytes,
        }
    }

    /// Whether a large write may be added.
    fn fits(&self, bytes: u64) -> bool {
        let (max, there) = (self.memtables.bytes_max(), self.memory_bytes());
        let coming = self.coming.load(Ordering::Relaxed);
        let is_first = coming == 0 && there <= max / LARGE_PART;
        is_first || there.saturating_add(coming).saturating_add(bytes) <= max.saturating_add(over_max(max))
    }

    /// Publishes the bytes that memtables take beyond their share, so that caches shrink.
    fn report_excess(&self) {
        let taken = self.memory.bytes() + self.coming.load(Ordering::Relaxed);
        let excess = taken.saturating_sub(self.memtables.bytes_max());
        self.pool
            .set_memtable_excess(usize::try_from(excess).unwrap_or(usize::MAX));
    }

    /// Whether a large write waits for memory.
    pub fn awaits_large(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Cancels slow responses that keep this many bytes of memtables.
    pub fn reclaim_pinned(&self, bytes: u64) {
        if bytes > 0 {
            self.pool.reclaim(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Bytes of large writes that are not in memtables yet: flushes free memory for them.
    pub fn expected_bytes(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed) + self.coming.load(Ordering::Relaxed)
    }

    fn busy(&self) -> ServiceError {
        self.metrics.refused_memory.inc();
        let message = "memtables are full and flushes do not keep up: retry later";
        ServiceError::new(ErrorKind::Busy, message)
    }

    /// A flush has ended: tells waiting writers, and shows how fast flushes are.
    pub fn memory_freed(&self) {
        self.report_excess();
        let load = self.load(0);
        let (flush_rate, compaction_throughput) = {
            let mut pacer = self.pacer.lock();
            pacer.observe(self.env.now(), self.memory.flushed_bytes(), self.moved.bytes(), load);
            (pacer.flush_rate(), pacer.compaction_throughput())
        };
        self.metrics.flush_rate_bytes_per_second.set(flush_rate as i64);
        self.metrics
            .compaction_throughput_bytes_per_second
            .set(compaction_throughput as i64);
        self.freed.notify_waiters();
    }

    /// Checks the free space of storage; called every now and then.
    pub async fn check_disk(&self, storage: &Arc<dyn Storage>) {
        let (full, short) = match storage.free_bytes().await {
            Ok(Some(free)) => {
                self.free_bytes.store(free, Ordering::Relaxed);
                self.metrics.free_bytes.set(i64::try_from(free).unwrap_or(i64::MAX));
                // Flushes do not bring back the space that is kept for tablets that cannot be flushed.
                let kept = self.free_bytes_min.saturating_add(self.unflushable.memory_bytes());
                (free < self.reserve(), free < kept)
            }
            // Unlimited, or unknown: then the writes themselves find out.
            Ok(None) | Err(_) => (false, false),
        };
        self.set_disk_full(full, self.reserve());
        self.shortage.lock().checked(self.env.now(), full && short);
    }

    /// The bytes that each of `compactions` concurrent ones may write without taking the space that flushes of
    /// accepted writes need.
    pub fn reservation(&self, compactions: usize) -> SpaceLimit {
        let free = self.free_bytes.load(Ordering::Relaxed);
        if free == u64::MAX {
            return SpaceLimit::UNLIMITED;
        }
        let into_bottom = free.saturating_sub(self.memory.bytes());
        let share = |bytes: u64| bytes / (compactions.max(1) as u64);
        let reservation = SpaceLimit {
            any: share(into_bottom.saturating_sub(self.free_bytes_min)),
            into_bottom: share(into_bottom),
        };
        assert!(
            reservation.any <= reservation.into_bottom && reservation.into_bottom <= free,
            "compactions share the free bytes, and those that free space get more of them"
        );
        reservation
    }

    /// A write met a full disk: refuse the next ones until a check says otherwise.
    pub fn met_full_disk(&self) {
        self.disk_full.store(true, Ordering::Relaxed);
        self.shortage.lock().met(self.env.now());
    }

    /// Whether enough is free that writes would be accepted if nothing were in memory.
    pub fn has_reserve(&self) -> bool {
        self.free_bytes.load(Ordering::Relaxed) >= self.free_bytes_min
    }

    /// Whether writes are refused for want of space.
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Whether space is wanted that flushes do not bring back: not while writes are refused until memtables are flushed.
    pub fn is_short_of_space(&self) -> bool {
        self.shortage.lock().lasts(self.env.now())
    }
}

#[cfg(test)]
mod tests;
