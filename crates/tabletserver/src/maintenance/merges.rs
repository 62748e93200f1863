//! Which tablets may need a compaction, and the loops that carry them out.
//!
//! A tablet is looked at when something has happened to it: a flush, a compaction, an end of a split. What happens by
//! itself (cells expire, reads add up) is found by a slow round over all tablets, a few at a time, so that ten thousand
//! idle tablets cost nothing worth mentioning. While the disk is full, all that may shrink are looked at, and those first of
//! which most is garbage: each byte written then frees most.
//!
//! Invariant: a tablet is in `waiting` or `running` at most once each, so both are bounded by the number of tablets.

use super::{AFTER_FAILURE, IDLE};
use crate::server::{Served, TabletServer};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use stele_types::TabletId;
use tokio::sync::Notify;

/// Tablets looked at every [`IDLE`] by the slow round: ten thousand take a minute and a half a thousandth of a core.
const ROUND_STEP: usize = 32;

/// The tablets that wait for a look.
#[derive(Default)]
pub(crate) struct Merges {
    inner: Mutex<Inner>,
    wanted: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: BTreeSet<TabletId>,
    running: BTreeSet<TabletId>,
    /// Where the slow round is.
    round: Option<TabletId>,
}

impl Merges {
    /// Something happened to a tablet that may make a compaction due.
    pub(crate) fn announce(&self, tablet: TabletId) {
        if self.inner.lock().waiting.insert(tablet) {
            self.wanted.notify_one();
        }
    }

    /// How many are being compacted.
    pub(crate) fn running(&self) -> usize {
        self.inner.lock().running.len()
    }

    /// Takes the waiting tablet with the highest urgency; none beside another if it is to be `alone`.
    fn begin(&self, alone: bool, urgency: impl Fn(TabletId) -> u64) -> Option<TabletId> {
        let mut inner = self.inner.lock();
        if alone && !inner.running.is_empty() {
            return None;
        }
        let free = inner.waiting.difference(&inner.running).copied();
        let tablet = free.max_by_key(|tablet| urgency(*tablet))?;
        inner.waiting.remove(&tablet);
        inner.running.insert(tablet);
        if inner.waiting.iter().any(|other| !inner.running.contains(other)) {
            self.wanted.notify_one();
        }
        Some(tablet)
    }

    fn end(&self, tablet: TabletId) {
        self.inner.lock().running.remove(&tablet);
    }
}

impl TabletServer {
    pub(super) async fn compact_loop(self: Arc<Self>) {
        while !self.is_stopping() {
            let is_full = self.admission.is_disk_full();
            let urgency = |tablet| {
                self.served(tablet).map_or(0, |served| match is_full {
                    true => served.tablet.garbage_share(),
                    false => served.tablet.compaction_debt(),
                })
            };
            // One at a time may have all the room there is, and two would share what is little.
            match self.merges.begin(is_full, urgency) {
                Some(tablet) => {
                    if let Ok(served) = self.served(tablet) {
                        self.compact_tablet(&served).await;
                    }
                    self.merges.end(tablet);
                }
                None => {
                    let _ = self.env.timeout(IDLE, self.merges.wanted.notified()).await;
                }
            }
        }
    }

    async fn compact_tablet(&self, served: &Served) {
        let tablet = &served.tablet;
        // One file at a time; an error of the medium is one that its readers meet, too.
        match tablet.warm_next().await {
            Ok(true) => self.merges.announce(tablet.id()),
            Ok(false) => {}
            Err(error) => tracing::warn!(tablet = %tablet.id(), %error, "a file could not be read into memory"),
        }
        // What there is no room for now, the slow round comes back to.
        let compacted = match self.admission.is_disk_full() {
            true => tablet.compact_for_space(self.admission.room(1)).await,
            false => {
                let room = self.admission.room(self.options.compactions_max);
                tablet.compact_within(room).await
            }
        };
        match compacted {
            Ok(Some(_)) => self.merges.announce(tablet.id()),
            Ok(None) => {}
            Err(error) => {
                self.note_failure("compaction", &error);
                self.env.sleep(AFTER_FAILURE).await;
                self.merges.announce(tablet.id());
            }
        }
    }

    /// While the disk is full: everything that may shrink is looked at.
    pub(super) fn look_for_space(&self) {
        if self.admission.is_disk_full() {
            let served = self.all_served();
            let shrinks = served.iter().filter(|served| served.tablet.may_shrink());
            shrinks.for_each(|served| self.merges.announce(served.tablet.id()));
        }
    }

    /// The next step of the slow round.
    pub(super) fn look_at_some(&self) {
        let from = self.merges.inner.lock().round;
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<Arc<Served>> = {
            let tablets = self.tablets.read();
            let range = tablets.range((from, Bound::Unbounded)).take(ROUND_STEP);
            range.map(|(_, served)| served.clone()).collect()
        };
        let is_wanted = |served: &&Arc<Served>| served.tablet.compaction_due() || served.tablet.wants_warming();
        for served in some.iter().filter(is_wanted) {
            self.merges.announce(served.tablet.id());
        }
        let whole = some.len() == ROUND_STEP;
        self.merges.inner.lock().round = some.last().filter(|_| whole).map(|served| served.tablet.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_first_and_none_twice_at_once() {
        let merges = Merges::default();
        for id in [1, 2, 3, 2] {
            merges.announce(TabletId(id));
        }
        let urgency = |tablet: TabletId| [0, 10, 30, 20][tablet.0 as usize];
        assert_eq!(merges.begin(false, urgency), Some(TabletId(2)));
        merges.announce(TabletId(2));
        assert_eq!(merges.begin(false, urgency), Some(TabletId(3)));
        assert_eq!(merges.begin(false, urgency), Some(TabletId(1)));
        assert_eq!(merges.begin(false, urgency), None);
        merges.end(TabletId(2));
        assert_eq!(merges.begin(true, urgency), None);
        assert_eq!(merges.begin(false, urgency), Some(TabletId(2)));
        assert_eq!((merges.begin(false, urgency), merges.running()), (None, 3));
    }
}
