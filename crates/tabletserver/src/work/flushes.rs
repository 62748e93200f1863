//! The demand for flushes that the flush loop has not seen yet.

use crate::options::MemtableLimits;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use stele_tablet::MemoryAccount;
use stele_types::TabletId;
use tokio::sync::Notify;

/// Wakes the flush loop, and says for which tablets.
pub(crate) struct FlushDemand {
    memory: MemoryAccount,
    memtables: MemtableLimits,
    /// Wakes the flush loop.
    work: Notify,
    /// Bytes of memtables when the flush loop began its last check.
    checked_bytes: AtomicU64,
    /// Tablets whose memtables are worth a file.
    ripe: Mutex<BTreeSet<TabletId>>,
    /// Holders of flushes that can wait.
    holds: AtomicUsize,
}

/// Keeps flushes that can wait from beginning: rows of a failed server wait for a replay, which needs the processors, the network and
/// the storage.
pub(crate) struct HeldFlushes(Arc<FlushDemand>);

impl Drop for HeldFlushes {
    fn drop(&mut self) {
        let holds = self.0.holds.fetch_sub(1, Ordering::Relaxed);
        assert!(holds > 0, "each hold ends once");
        self.0.wake();
    }
}

impl FlushDemand {
    /// No tablet is ripe, and the loop has checked no memory yet.
    pub(crate) fn new(memory: MemoryAccount, memtables: MemtableLimits) -> Self {
        FlushDemand {
            memory,
            memtables,
            work: Notify::new(),
            checked_bytes: AtomicU64::new(0),
            ripe: Mutex::default(),
            holds: AtomicUsize::new(0),
        }
    }

    /// Lets no flush begin that can wait, as long as the result lives.
    pub(crate) fn hold(self: &Arc<Self>) -> HeldFlushes {
        self.holds.fetch_add(1, Ordering::Relaxed);
        HeldFlushes(self.clone())
    }

    /// Whether flushes that can wait do so.
    pub(crate) fn are_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// Whether there may be something to flush that the flush loop has not seen, when a tablet has this many `active_bytes`.
    /// Memory grows by chunks, which hold thousands of small rows. As long as it is the memory that the loop has checked, the
    /// loop would decide the same, and waking it costs as much as a small write.
    pub(crate) fn presses(&self, tablet: TabletId, active_bytes: u64) -> bool {
        let bytes = self.memory.bytes();
        let is_new = bytes != self.checked_bytes.load(Ordering::Relaxed);
        let full = bytes > self.memtables.bytes_max() / 2;
        let ripe = active_bytes > self.memtables.tablet_bytes();
        // Stays in while it is being flushed; when that ends the loop checks by itself.
        let is_riper = ripe && self.ripe.lock().insert(tablet);
        is_riper || (full && is_new)
    }

    /// Wakes the flush loop.
    pub(crate) fn wake(&self) {
        self.work.notify_one();
    }

    /// Wakes the flush loop so that it sees the end of the server.
    pub(crate) fn wake_to_stop(&self) {
        self.work.notify_waiters();
    }

    /// A tablet is worth a file, regardless of the size of its memtables.
    pub(crate) fn ripen(&self, tablet: TabletId) {
        self.ripe.lock().insert(tablet);
    }

    /// Waits until somebody wakes the flush loop.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
    }

    /// The flush loop begins a check: memory that grows from now on is new to it.
    pub(crate) fn begin_check(&self) {
        self.set_checked(self.memory.bytes());
    }

    /// The loop has checked memory of this many bytes.
    pub(crate) fn set_checked(&self, bytes: u64) {
        self.checked_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The tablets that are worth a file.
    pub(crate) fn ripe(&self) -> BTreeSet<TabletId> {
        self.ripe.lock().clone()
    }

    /// A flush of a tablet begins: it is not ripe any more.
    pub(crate) fn begun(&self, tablet: TabletId) {
        self.ripe.lock().remove(&tablet);
    }

    /// Forgets the tablets of `seen` for which nothing is to be done. Those that became ripe after `seen` was taken stay.
    pub(crate) fn forget(&self, seen: &BTreeSet<TabletId>, is_done: impl Fn(&TabletId) -> bool) {
        self.ripe.lock().retain(|id| !seen.contains(id) || !is_done(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_held_until_the_last_hold_ends() {
        let demand = Arc::new(FlushDemand::new(
            MemoryAccount::default(),
            MemtableLimits::new(1 << 20, 1 << 10),
        ));
        let holds = [demand.hold(), demand.hold()];
        for hold in holds {
            assert!(demand.are_held());
            drop(hold);
        }
        assert!(!demand.are_held());
    }
}
