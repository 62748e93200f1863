//! Hands a tablet over to another server.
//!
//! Everything that its owner has acknowledged is in files afterwards, so the next owner needs no log of this one. Writes of
//! unknown outcome are decided as well: every sequence number that was given out counts as flushed. Otherwise a record that
//! was refused could come back, if a later owner were to replay this server's log for another reason.

use crate::error::Result;
use crate::files::Ownership;
use crate::tablet::{Stopped, Tablet};
use stele_types::SeqNo;

impl Tablet {
    /// Flushes the tablet, closes it and releases its files. The caller has stopped compactions, and then writes. After an
    /// error the tablet goes on as before.
    pub async fn hand_over(&self, _stopped: &Stopped<'_>) -> Result<()> {
        assert_eq!(
            self.context.files.ownership(),
            Ownership::Shared,
            "only servers that share a data root hand tablets over"
        );
        self.flush().await?;
        let flushing = self.flushing.lock().await;
        self.check_open()?;
        self.settle().await?;
        let state = self.state();
        assert!(
            state.frozen.is_empty() && state.groups.iter().all(|group| group.active.is_empty()),
            "a tablet is handed over by its files: nothing may be left in memtables"
        );
        drop(state);
        let given = SeqNo(self.next_sequence().0.saturating_sub(1));
        if given.counter() > 0 && given > self.flushed_through() {
            let change = |manifest: &mut crate::Manifest| {
                manifest.flushed_through = manifest.flushed_through.max(given.0);
            };
            self.commit((&[], None), change, |_| {}).await?;
            self.set_flushed(given);
        }
        self.close();
        drop(flushing);
        self.release_files().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
