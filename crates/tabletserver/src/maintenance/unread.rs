//! Asks devices again for what they could not read: an outage of a network that says EIO is over some time.
//!
//! * Of an open sstable some place could not be read: merges leave the file alone until it can be. So does what collects value
//!   files with one of those.
//! * What is needed to open a file could not be read: every read of it fails until it can be opened, and is taken up by the
//!   tablets that refer to it.
//! * A manifest could not be read: its tablet is not served until it can be. Then it is opened as by a start, and the records
//!   of it that the log has kept are replayed. What the start left in place for its sake, the next one sweeps.
//!
//! A device may take seconds to give a sector up. So it is asked once a minute, beside everything else, for one thing after the
//! other; and a round that takes longer than that holds up the next.

use crate::error::ServerError;
use crate::recovery::replay_log;
use crate::server::TabletServer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_tablet::Tablet;
use stele_types::{TableSchema, TabletId};

/// How far devices have been asked again.
#[derive(Default)]
pub(crate) struct Unread {
    /// A round is under way.
    is_busy: AtomicBool,
    /// A tablet has not taken up what was opened for it: it could not, or was not served then.
    is_left: AtomicBool,
}

impl TabletServer {
    /// Begins a round, if there is anything to ask for.
    pub(super) fn try_unreadable(self: &Arc<Self>) {
        let files = &self.context.files;
        let is_due = self.unread.is_left.load(Ordering::Acquire)
            || !files.damaged_sstables().is_empty()
            || !files.unread_values().is_empty()
            || !files.unopened().is_empty()
            || !self.unread_tablets().is_empty();
        if !is_due || self.unread.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        self.env.spawn_background("read again", async move {
            server.read_again().await;
            server.unread.is_busy.store(false, Ordering::Release);
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
        let mut is_any_open = self.unread.is_left.swap(false, Ordering::AcqRel);
        for file in files.unopened() {
            if self.is_stopping() {
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
        for served in self.all_served() {
            match served.tablet.hold_opened().await {
                Ok(true) => self.compactions.announce(served.tablet.id()),
                Ok(false) => {}
                Err(error) => {
                    let tablet = served.tablet.id();
                    tracing::warn!(%tablet, %error, "files that are open now are not taken up yet");
                    self.unread.is_left.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Has the next round look whether a tablet that is served from now on can take up what it holds: since it was made, files
    /// may have been opened that no other round asks for.
    pub(crate) fn note_unopened(&self, tablet: &Tablet) {
        if tablet.holds_unopened() {
            self.unread.is_left.store(true, Ordering::Release);
        }
    }

    /// The tablets that are not served because the device could not read their manifests, with their schemas.
    fn unread_tablets(&self) -> Vec<(TabletId, Arc<TableSchema>)> {
        let damaged = self.damaged.read();
        let unread = damaged.iter().filter(|(_, tablet)| tablet.is_unread());
        unread.map(|(id, tablet)| (*id, tablet.schema.clone())).collect()
    }

    async fn open_tablets_again(&self) {
        let mut opened = BTreeMap::new();
        for (id, schema) in self.unread_tablets() {
            match Tablet::open_again(self.context.clone(), schema, id, self.epoch).await {
                Ok(tablet) => drop(opened.insert(id, tablet)),
                Err(error) => tracing::debug!(tablet = %id, %error, "the tablet still cannot be served"),
            }
        }
        if opened.is_empty() {
            return;
        }
        if let Err(error) = self.replay_into(&opened).await {
            tracing::warn!(%error, "tablets that can be read again are not served yet");
            for tablet in opened.values() {
                tablet.close();
                // No file goes with that: a server that began with a damaged tablet keeps all of earlier ones.
                tablet.release_files().await;
            }
            return;
        }
        for tablet in opened.into_values() {
            self.serve_after_all(tablet).await;
        }
    }

    /// Replays what the log has of tablets that nobody has written to since the start, which has made all of that durable.
    async fn replay_into(&self, tablets: &BTreeMap<TabletId, Arc<Tablet>>) -> Result<(), ServerError> {
        // What one segment says of another counts for as long as both are there. Those of former owners are the first stream's.
        let _held = match self.streams.first() {
            Some(stream) => Some(stream.hold_segments().await),
            None => None,
        };
        let last_of_others = (u64::from(self.epoch.0) << 32).saturating_sub(1);
        replay_log(&*self.context.storage, tablets, last_of_others).await?;
        // Not by who has been replaced meanwhile.
        self.context.storage.confirm_owner().await?;
        Ok(())
    }

    /// Serves a tablet that was damaged, unless it has been dropped meanwhile.
    pub(crate) async fn serve_after_all(&self, tablet: Arc<Tablet>) {
        let id = tablet.id();
        let schema = self.damaged.read().get(&id).map(|damaged| damaged.schema.clone());
        let mut is_frozen = schema.is_some_and(|schema| tablet.set_schema(schema));
        // Before it counts as damaged no more, or the log could let go what it keeps of the tablet.
        self.serve(tablet.clone());
        let is_known = {
            let mut damaged = self.damaged.write();
            let former = damaged.remove(&id);
            // A schema that came since. What comes from now on, the tablet is told as one that is served.
            let is_known = former.is_some();
            is_frozen |= former.is_some_and(|former| tablet.set_schema(former.schema));
            is_known
        };
        if !is_known {
            // Dropped meanwhile.
            if let Some(served) = self.unserve(id) {
                self.forget(&served.tablet).await;
            }
            return;
        }
        tracing::info!(tablet = %id, "the tablet's manifest could not be read before; it is served now");
        if is_frozen {
            self.ripe.lock().insert(id);
            self.work.notify_one();
        }
        self.compactions.announce(id);
    }
}
