//! Detached scans are positions of scans whose readers have not asked for the next batch.
//!
//! A position holds the state that it was opened in: memtables that may have been flushed, files that may be obsolete. The
//! tablet frees it when the state changes or memory is short. It knows scans by this interface only ([`Detached`]); a scan
//! registers itself when it detaches for the first time.

use crate::state::State;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::Env;

/// The place where a scan leaves its position between two batches.
pub(crate) trait Detached: Send + Sync {
    /// Frees the position, pinned or not: the reader opens another one.
    fn discard(&self);

    /// The memtables that are pinned here and are not of the current state, if there are any.
    fn pinned(self: Arc<Self>, current: &State) -> Option<Pinned>;

    /// Frees the memory that the position has read ahead, if its reader has not come since `before`; how many bytes.
    fn drop_readahead(&self, before: Duration) -> usize;

    /// Frees a position of a former state: now, or when its pin ends.
    fn release(self: Arc<Self>, env: &Env);
}

/// A position that pins memtables which are its tablet's no more.
pub struct Pinned {
    /// Where the position is.
    pub(crate) scan: Arc<dyn Detached>,
    /// Since when its reader has not come.
    pub since: Duration,
    /// The memtables, by their addresses in memory, with their bytes. Others may pin them, too.
    pub memtables: Vec<(usize, u64)>,
}

impl Pinned {
    /// Frees the position: its reader begins the row again.
    pub fn release(&self) {
        self.scan.discard();
    }
}

/// The detached scans of a tablet. Scans that have ended are forgotten when the list would have to grow.
#[derive(Default)]
pub(crate) struct DetachedScans {
    scans: Mutex<Vec<Weak<dyn Detached>>>,
}

impl DetachedScans {
    /// Adds a scan.
    pub(crate) fn register(&self, scan: Weak<dyn Detached>) {
        let mut scans = self.scans.lock();
        if scans.len() == scans.capacity() {
            scans.retain(|scan| scan.strong_count() > 0);
        }
        scans.push(scan);
    }

    /// The scans that have not ended. Positions are freed without the list's lock.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Detached>> {
        self.scans.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
