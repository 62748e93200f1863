//! Closed segments that are not durable yet.
//!
//! A full segment is closed without a sync: where no write asks for durability, most of the log is flushed to sstables and
//! deleted before it has cost the device anything. Unsynced segments are synced oldest first, in the foreground:
//! * before a group is written that must be durable ([`Segments::settle`]);
//! * before a segment is opened that stands alone, or the open one is closed;
//! * when the open one is full: one if [`UNSYNCED_MAX`] of them exist, two if unneeded segments cannot be deleted before
//!   older ones are synced, as behind the records of an unflushable tablet ([`retention`](crate::retention)).
//!
//! A failed sync is final, since the system may have dropped the bytes. Recovery drops the segments behind one that lost
//! its end. So all unsynced segments become [`SegmentState::NotDurable`] at the first failure, and only a flush of their
//! tablets makes their records durable.
//!
//! [`SegmentState::NotDurable`]: crate::retention::SegmentState::NotDurable

use super::{Segments, Shared};
use crate::error::LogError;
use stele_env::Env;
use stele_storage::AppendFile;

/// Unsynced segments of a stream at most: 512 MiB, the longest log that a server keeps while its flushes succeed. Bounds the wait of the
/// first write that asks for durability, and the loss of writes with durability `flush` in a power loss.
pub(crate) const UNSYNCED_MAX: usize = 16;

impl Segments {
    /// The number of segments that may stay unsynced when the open one is replaced.
    pub(super) fn unsynced_allowed(&self) -> usize {
        let awaits_sync = self.shared.retention.lock().awaits_sync();
        let unsynced = self.shared.unsynced.lock().len();
        // One comes for two that go, so that those behind an unflushable tablet become fewer.
        let allowed = if awaits_sync {
            unsynced.saturating_sub(2)
        } else {
            unsynced
        };
        allowed.min(UNSYNCED_MAX - 1)
    }

    /// Syncs all unsynced segments, oldest first.
    pub(super) async fn sync_older(&mut self) -> Result<(), LogError> {
        self.sync_oldest(0).await
    }

    /// Syncs the oldest unsynced segments until at most `left` are unsynced. After an error none is: all have failed.
    pub(super) async fn sync_oldest(&mut self, left: usize) -> Result<(), LogError> {
        while let Some((number, mut file)) = self.shared.next_unsynced(left) {
            assert!(
                number <= self.previous.number,
                "an unsynced segment is older than the open one"
            );
            let synced = file.sync().await;
            close_apart(&self.env, file);
            if let Err(error) = synced {
                tracing::warn!(stream = self.stream, %error, "log segments could not be synced; their tablets are flushed");
                self.shared.retention.lock().set_not_durable(number);
                self.abandon_unsynced();
                return Err(error.into());
            }
            self.shared.retention.lock().synced(number);
            if number == self.previous.number {
                // The header of the next segment states it, so that damage to these bytes is not taken for a torn tail.
                self.previous.note_synced();
            }
        }
        Ok(())
    }

    /// Gives up syncing the segments behind one whose sync failed.
    fn abandon_unsynced(&self) {
        let unsynced = std::mem::take(&mut *self.shared.unsynced.lock());
        for (number, file) in unsynced {
            self.shared.retention.lock().set_not_durable(number);
            close_apart(&self.env, file);
        }
    }
}

impl Shared {
    /// Takes out the oldest unsynced segment, unless there are only `left` or fewer.
    fn next_unsynced(&self, left: usize) -> Option<(u64, Box<dyn AppendFile>)> {
        let mut unsynced = self.unsynced.lock();
        if unsynced.len() <= left {
            return None;
        }
        unsynced.pop_first()
    }
}

/// Closes the file of a closed segment on a thread for blocking work. The segment may have been deleted during its sync. The last
/// close of a deleted file waits until its blocks are freed, 30 to 200 ms where the device is told to discard them. A
/// thread that runs tasks would delay them, and every timer of the runtime.
fn close_apart(env: &Env, file: Box<dyn AppendFile>) {
    let apart = env.clone();
    env.spawn("commit-log-close", async move {
        // An error means that the runtime ends.
        let _ = apart.blocking(move || drop(file)).await;
    });
}
