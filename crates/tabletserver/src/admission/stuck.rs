//! Tablets that cannot be flushed, and how much log may be kept for them.
//!
//! A flush that fails is tried again every second, for as long as it takes. Meanwhile the log keeps every segment that has a
//! record of the tablet in it, and one behind each for its header. Every segment would become one of these, as long as the tablet is
//! written to while others fill the log. So the tablet's writes are refused once that is as much as all of the log may take
//! otherwise (`log_bytes_max`): then nothing more is kept for it, and the log has twice its usual size at most, and so
//! has the time that a start takes for it. Reads go on, and so do the writes of all other tablets.
//!
//! The refusal is `ResourceExhausted` and names the tablet and what its flush failed with: backing off does not help, repair does.
//! Writes are accepted again as soon as the tablet is flushed, or so little is kept.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use stele_client::{ServiceError, ServiceResult};
use stele_types::{ErrorKind, TabletId};

/// The tablets of which the last flush failed.
#[derive(Default)]
pub(crate) struct Stuck {
    /// With what it failed with.
    failing: Mutex<BTreeMap<TabletId, String>>,
    /// The log keeps too much for them.
    is_over: AtomicBool,
}

impl Stuck {
    /// A flush failed.
    pub fn failed(&self, tablet: TabletId, error: String) {
        self.failing.lock().insert(tablet, error);
    }

    /// The tablet was flushed, or is no more.
    pub fn ended(&self, tablet: TabletId) {
        self.failing.lock().remove(&tablet);
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

    /// Refuses writes to a tablet for which the log keeps too much. One load where that is so of none.
    pub fn check(&self, tablet: TabletId) -> ServiceResult<()> {
        if !self.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failing = self.failing.lock();
        let Some(error) = failing.get(&tablet) else {
            return Ok(());
        };
        let message = format!(
            "tablet {tablet} cannot be flushed, and the log keeps as much for it as it may: writes to it are refused until \
             it can. The flush fails with: {error}"
        );
        Err(ServiceError::new(ErrorKind::ResourceExhausted, message))
    }
}
