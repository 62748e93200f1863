//! Failed reads of devices are retried. An outage of a network that says EIO ends some time.
//!
//! * A place of an open sstable could not be read: compactions leave the file alone until it can be. So does the collection of
//!   value files with such a place.
//! * A part of a file that is needed to open it could not be read: every read of the file fails until it can be opened.
//!   Then the tablets that refer to it take it up.
//! * A manifest could not be read: its tablet is not served until it can be. Then it is opened as by a start, and the records
//!   that the log has retained are replayed. Files that the start left in place for its sake are swept by the next one.
//!
//! A device may take seconds to give a sector up. So it is asked once a minute, concurrently with everything else, for one thing
//! after the other; a round that takes longer than a minute delays the next.

use crate::lifecycle::Lifecycle;
use crate::log::CommitLog;
use crate::parts::Parts;
use crate::recovery::Opened;
use crate::stopping::Stopping;
use crate::tablets::{Tablets, TakenUp};
use crate::work::{Compactions, FlushDemand};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_tablet::{Tablet, TabletContext};
use stele_types::Epoch;

/// Asks devices again, and serves tablets that can be read by then.
pub(crate) struct UnreadFiles {
    context: TabletContext,
    epoch: Epoch,
    tablets: Arc<Tablets>,
    log: Arc<CommitLog>,
    lifecycle: Arc<Lifecycle>,
    flushes: Arc<FlushDemand>,
    compactions: Arc<Compactions>,
    stopping: Stopping,
    /// A round is under way.
    is_busy: AtomicBool,
    /// A tablet has not taken up a file that was opened for it: it could not, or was not served then.
    is_left: AtomicBool,
}

impl UnreadFiles {
    /// Of a server.
    pub(crate) fn new(parts: &Parts, lifecycle: Arc<Lifecycle>) -> Self {
        UnreadFiles {
            context: parts.context.clone(),
            epoch: parts.epoch,
            tablets: parts.tablets.clone(),
            log: parts.log.clone(),
            lifecycle,
            flushes: parts.flushes.clone(),
            compactions: parts.compactions.clone(),
            stopping: parts.stopping.clone(),
            is_busy: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
        }
    }

    /// Begins a round, if there is anything to ask for.
    pub(super) fn begin(self: &Arc<Self>) {
        let files = &self.context.files;
        let is_due = self.is_left.load(Ordering::Acquire)
            || !files.damaged_sstables().is_empty()
            || !files.unread_values().is_empty()
            || !files.unopened().is_empty()
            || !self.tablets.unread().is_empty();
        if !is_due || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let unread = self.clone();
        self.context.env.spawn_background("read again", async move {
            unread.read_again().await;
            let was_busy = unread.is_busy.swap(false, Ordering::AcqRel);
            assert!(was_busy, "one round at a time: no other may end this one");
        });
    }

    /// A round.
    pub(crate) async fn read_again(&self) {
        for sstable in self.context.files.damaged_sstables() {
            sstable.try_unreadable().await;
        }
        for values in self.context.files.unread_values() {
            values.try_unreadable().await;
        }
        self.open_files_again().await;
        self.open_tablets_again().await;
    }

    async fn open_files_again(&self) {
        let files = &self.context.files;
        let mut is_any_open = self.is_left.swap(false, Ordering::AcqRel);
        for file in files.unopened() {
            if self.stopping.is_stopping() {
                return;
            }
            if files.open_again(file).await {
                tracing::info!(
                    path = file.path(),
                    "the file could not be opened before, and is open now"
                );
                is_any_open = true;
            }
        }
        if !is_any_open {
            return;
        }
        for served in self.tablets.all() {
            match served.tablet.hold_opened().await {
                Ok(true) => self.compactions.announce(served.tablet.id()),
                Ok(false) => {}
                Err(error) => {
                    let tablet = served.tablet.id();
                    tracing::warn!(%tablet, %error, "files that are open now are not taken up yet");
                    self.is_left.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Has the next round check a tablet that is served from now on: since it was made, files that it refers to may
    /// have been opened, for which no other round asks.
    pub(crate) fn note_unopened(&self, tablet: &Tablet) {
        if tablet.holds_unopened() {
            self.is_left.store(true, Ordering::Release);
        }
    }

    async fn open_tablets_again(&self) {
        let opened = Opened::again(&self.context, self.tablets.unread(), self.epoch).await;
        if opened.is_empty() {
            return;
        }
        let count = opened.len();
        let replayed = {
            // The header of one segment says how much of another counts, for as long as both are there.
            let _held = self.log.hold_former_segments().await;
            opened.replay_former(&self.context, self.epoch).await
        };
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err((opened, error)) => {
                tracing::warn!(%error, "tablets that can be read again are not served yet");
                opened.give_up().await;
                return;
            }
        };
        let mut served = 0;
        for tablet in replayed.into_tablets() {
            self.serve_after_all(tablet).await;
            served += 1;
        }
        assert_eq!(served, count, "a tablet that was opened is served or given up");
    }

    /// Serves a tablet that was damaged, unless it has been dropped meanwhile.
    pub(crate) async fn serve_after_all(&self, tablet: Arc<Tablet>) {
        let id = tablet.id();
        let TakenUp { was_damaged, is_frozen } = self.tablets.take_up(tablet);
        if !was_damaged {
            // Dropped meanwhile.
            if let Some(served) = self.tablets.unserve(id) {
                self.lifecycle.forget(&served.tablet).await;
            }
            return;
        }
        tracing::info!(tablet = %id, "the tablet's manifest could not be read before; it is served now");
        if is_frozen {
            self.flushes.ripen(id);
            self.flushes.wake();
        }
        self.compactions.announce(id);
    }
}
