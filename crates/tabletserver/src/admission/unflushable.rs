//! Unflushable tablets, and the bounds of log and memory retained for them.
//!
//! A flush that fails is tried again every second, for as long as it takes. Meanwhile the log retains every segment with a record
//! of the tablet, and one behind each for its header. Every segment would become one of these while the tablet is written to
//! and others fill the log. So the tablet's writes are refused once the log retains `log_bytes_max` for it, the limit of the
//! whole log otherwise. The log then has twice its usual size at most, and so has the time that a start takes for it.
//! Reads go on, and so do the writes of all other tablets.
//!
//! Their memtables cannot be freed either. Once they take [`MEMORY_PART`] of the memtables' share, their writes are refused as
//! well. Their bytes are left out where writes of others are slowed or stopped for memory, and where others are flushed for
//! its sake. So memtables may be past their share by the bytes that tablets had when their flush first failed.
//!
//! The refusal is `ResourceExhausted` and names the tablet and the error of its flush: backing off does not help, repair does.
//! Writes are accepted again as soon as the tablet is flushed by any caller, or little enough is retained.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stele_client::{ServiceError, ServiceResult};
use stele_types::{ErrorKind, TabletId};

/// The part of the memtables' share that unflushable tablets may fill: the rest is far above the half at which others
/// are flushed early.
const MEMORY_PART: u64 = 4;

/// The tablets of which the last flush failed.
#[derive(Default)]
pub(crate) struct Unflushable {
    /// Each with the error of its flush.
    failing: Mutex<BTreeMap<TabletId, String>>,
    /// There are some.
    any: AtomicBool,
    /// Bytes of their memtables.
    memory: AtomicU64,
    /// The log keeps too much for them.
    is_over: AtomicBool,
}

impl Unflushable {
    /// A flush failed.
    pub fn failed(&self, tablet: TabletId, error: String) {
        let mut failing = self.failing.lock();
        failing.insert(tablet, error);
        self.any.store(true, Ordering::Relaxed);
    }

    /// The tablet was flushed, or is no more.
    pub fn ended(&self, tablet: TabletId) {
        let mut failing = self.failing.lock();
        failing.remove(&tablet);
        if failing.is_empty() {
            self.any.store(false, Ordering::Relaxed);
            self.memory.store(0, Ordering::Relaxed);
        }
        debug_assert_eq!(
            self.any.load(Ordering::Relaxed),
            !failing.is_empty(),
            "the flag that spares writers the lock says whether a tablet fails"
        );
    }

    /// Notes how large their memtables are.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of memory that no flush frees.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// The error of the flush of a tablet, if its last one failed. One load where no tablet fails.
    pub fn error_of(&self, tablet: TabletId) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.failing.lock().get(&tablet).cloned()
    }

    /// Which they are.
    pub fn tablets(&self) -> BTreeSet<TabletId> {
        self.failing.lock().keys().copied().collect()
    }

    /// Notes whether `bytes` of log, which are kept for them, are more than may be.
    pub fn set_kept(&self, bytes: u64, bytes_max: u64) {
        let is_over = bytes > bytes_max;
        if self.is_over.swap(is_over, Ordering::Relaxed) != is_over {
            let tablets: Vec<TabletId> = self.tablets().into_iter().collect();
            if is_over {
                tracing::error!(
                    ?tablets,
                    bytes,
                    "the log is full of what cannot be flushed: writes to these tablets are refused"
                );
            } else {
                tracing::info!("writes are accepted again by all tablets");
            }
        }
    }

    /// Refuses writes to a tablet for which too much is kept: by the log, or in its memtables, which have `bytes` of the share
    /// of all. One load where no tablet fails.
    pub fn check(&self, tablet: TabletId, bytes: impl FnOnce() -> u64, share: u64) -> ServiceResult<()> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failing = self.failing.lock();
        let Some(error) = failing.get(&tablet) else {
            return Ok(());
        };
        let kept = if self.is_over.load(Ordering::Relaxed) {
            "the log keeps as much for it as it may"
        } else if bytes() > share / MEMORY_PART / failing.len() as u64 {
            "its memtables are as large as they may be"
        } else {
            return Ok(());
        };
        let message = format!(
            "tablet {tablet} cannot be flushed, and {kept}: writes to it are refused until it can. The flush fails with: {error}"
        );
        Err(ServiceError::new(ErrorKind::ResourceExhausted, message))
    }
}
