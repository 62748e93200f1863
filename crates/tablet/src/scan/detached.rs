//! The position of a scan after a batch, until its reader asks for the next.
//!
//! Between rows the position only saves a seek, and the tablet frees it when its state changes. Within a row it *pins* its
//! state for a time that the row allows (`partial_rows`). It is freed then, whether or not its reader ever comes back; earlier
//! when memory is short, because no flush frees pinned memory ([`Pinned`]).

use super::{At, Position, TabletScanner};
use crate::detached::{Detached, Pinned};
use crate::state::State;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::Env;
use stele_memtable::Memtable;

/// Where a position waits for its reader.
#[derive(Default)]
pub(crate) struct DetachedScan(Mutex<Place>);

#[derive(Default)]
struct Place {
    position: Option<Position>,
    /// Until when it is not taken away.
    pinned_until: Option<Duration>,
    /// A task waits for that.
    is_timed: bool,
    /// When the position came.
    since: Duration,
}

impl DetachedScan {
    /// Takes the position, pinned or not.
    pub(crate) fn take(&self) -> Option<Position> {
        let mut place = self.0.lock();
        place.pinned_until = None;
        place.position.take()
    }

    fn release_later(self: &Arc<Self>, wait: Duration, env: &Env) {
        let (place, later) = (Arc::downgrade(self), env.clone());
        env.spawn("release of a pinned state", async move {
            later.sleep(wait).await;
            if let Some(place) = place.upgrade() {
                place.0.lock().is_timed = false;
                place.release(&later);
            }
        });
    }
}

impl Detached for DetachedScan {
    fn discard(&self) {
        drop(self.take());
    }

    /// The memtables that are pinned here in addition to those of the current state, if any are.
    fn pinned(self: Arc<Self>, current: &State) -> Option<Pinned> {
        let place = self.0.lock();
        place.pinned_until?;
        let state = &place.position.as_ref()?.state;
        let is_current = |memtable: &&Arc<Memtable>| current.memtables().any(|other| Arc::ptr_eq(memtable, other));
        let former = state.memtables().filter(|memtable| !is_current(memtable));
        let memtables: Vec<_> = former
            .map(|memtable| (Arc::as_ptr(memtable).addr(), memtable.bytes()))
            .collect();
        (!memtables.is_empty()).then(|| Pinned {
            scan: self.clone(),
            since: place.since,
            memtables,
        })
    }

    /// Frees the read-ahead memory of the position, if its reader has not come since `before`; returns the number of
    /// bytes. Between rows the position is dropped as well. Otherwise no other scan could use its share of the
    /// read-ahead pool for as long as the reader stays away. It costs a seek to make another position.
    fn drop_readahead(&self, before: Duration) -> usize {
        let (bytes, given_up) = {
            let mut place = self.0.lock();
            if place.since > before {
                return 0;
            }
            let Some(position) = &mut place.position else { return 0 };
            let bytes = position.merge.drop_readahead();
            let is_between_rows = place.pinned_until.is_none();
            (bytes, place.position.take_if(|_| is_between_rows))
        };
        drop(given_up);
        bytes
    }

    /// Takes away a position of a state that is no longer the tablet's, now or when its time has come.
    fn release(self: Arc<Self>, env: &Env) {
        let now = env.now();
        let released = {
            let mut place = self.0.lock();
            match place.pinned_until {
                Some(until) if until > now => {
                    if !std::mem::replace(&mut place.is_timed, true) {
                        self.release_later(until - now, env);
                    }
                    None
                }
                _ => {
                    place.pinned_until = None;
                    place.position.take()
                }
            }
        };
        // Freed when nobody waits for the lock: it may be the last to hold a hundred megabytes of memtables.
        drop(released);
    }
}

impl TabletScanner {
    /// Leaves the position where the tablet can take it.
    pub(super) fn park(&mut self) {
        let Some(position) = self.position.take() else { return };
        debug_assert!(
            position.at == At::Boundary || self.reader.partial_rows.is_between(),
            "a scan detaches between rows or between pieces of one"
        );
        let generation = position.state.generation;
        let tablet = &self.tablet;
        let place = self.detached.get_or_insert_with(|| {
            let place = Arc::<DetachedScan>::default();
            let scan: Weak<dyn Detached> = Arc::downgrade(&(Arc::clone(&place) as Arc<dyn Detached>));
            tablet.detached.register(scan);
            place
        });
        {
            let mut waiting = place.0.lock();
            waiting.pinned_until = self.reader.partial_rows.pinned_until();
            waiting.since = tablet.env().now();
            debug_assert!(waiting.position.is_none(), "a scan leaves one position");
            waiting.position = Some(position);
        }
        // A change of state before that has not found it there.
        if tablet.check_open().is_err() {
            drop(place.take());
        } else if tablet.generation() != generation {
            place.clone().release(tablet.env());
        }
    }
}
