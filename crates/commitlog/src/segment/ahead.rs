//! Syncs beside the appends: of the open segment, a piece at a time, and of those that were relieved, oldest first.
//!
//! What came of one is looked at when the stream is used next. One that failed costs the open segment.

use super::{Segments, Shared};
use crate::error::LogError;
use stele_env::Env;
use stele_storage::{AppendFile, StorageError};
use tokio::sync::oneshot;

/// Pieces of a segment that is synced ahead: with 32 MiB they are 4 MiB, some 20 ms of a disk's bandwidth, which is then about
/// what the one who asks for a sync finds to do.
const SYNCS_AHEAD: u64 = 8;

/// Segments for which a stream goes on syncing ahead after something was to be durable: half a gigabyte, a second or two of
/// the fastest writes.
pub(super) const DEMAND_SEGMENTS: u32 = 16;

/// Relieved segments that are not synced, at most; from half as many on the oldest is synced. 256 MiB, a second or two of
/// a disk's bandwidth: what the first who asks for a sync waits for at worst, and about what memtables hold.
pub(super) const UNSYNCED_MAX: usize = 8;

/// What came of a sync in the background.
pub(super) type SyncOutcome = Result<(), StorageError>;

/// What came of a sync whose task is gone without a word, by a panic or because the runtime ends: nobody knows, so it has
/// failed.
fn vanished() -> StorageError {
    StorageError::Io {
        path: "log".to_owned(),
        operation: "sync",
        message: "the task that synced is gone, and its outcome with it".to_owned(),
    }
}

impl Segments {
    /// Begins a sync beside the appends when enough has come together.
    pub(super) fn sync_ahead(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let is_full = open.file.reading_cost() >= self.segment_bytes;
        // Not while an earlier segment is not durable, for which a synced beginning stands; nor when the segment is only
        // waiting for the last sync to be relieved.
        if open.ahead.is_some() || self.tail.is_some() || (is_full && self.next.is_asked_for()) {
            return;
        }
        let begun = open.synced.max(open.ahead_through);
        let piece = (self.segment_bytes / SYNCS_AHEAD).max(1);
        if open.acknowledged - begun.min(open.acknowledged) < piece || !self.shared.unsynced.lock().is_empty() {
            return;
        }
        self.begin_ahead();
    }

    pub(super) fn begin_ahead(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| open.ahead.is_none()) else {
            return;
        };
        open.ahead_through = open.acknowledged;
        let (done, outcome) = oneshot::channel();
        open.ahead = Some(outcome);
        let (storage, path) = (self.shared.storage.clone(), open.info.path.clone());
        self.env.spawn("commit-log-sync", async move {
            let _ = done.send(storage.sync_file(&path).await);
        });
    }

    /// Learns of what went on beside the appends. Gives up the segment if a sync in the background has failed.
    pub(super) fn probe_ahead(&mut self) {
        // Where none is there the segment will be closed instead, and whoever opens the next one sees why.
        let is_made = self.next.look();
        self.open.iter_mut().for_each(|open| open.ends_reserve |= !is_made);
        let tail = seen(&mut self.tail);
        self.tail_ended(tail);
        let ahead = self.open.as_mut().and_then(|open| seen(&mut open.ahead));
        self.ahead_ended(ahead);
    }

    pub(super) fn tail_ended(&mut self, outcome: Option<SyncOutcome>) {
        match outcome {
            Some(Ok(())) => self.sync_oldest(),
            Some(Err(error)) => {
                self.forsake_unsynced();
                self.refuse(&error.into());
            }
            None => {}
        }
    }

    /// After a sync of one of the earlier segments has failed: power loss leaves a hole there, with which everything goes that
    /// follows it, synced or not, up to a segment that rests on nothing.
    fn forsake_unsynced(&self) {
        let unsynced = self.shared.unsynced.lock();
        let mut retention = self.shared.retention.lock();
        unsynced.keys().for_each(|number| retention.forsake(*number));
    }

    pub(super) fn ahead_ended(&mut self, outcome: Option<SyncOutcome>) {
        match (outcome, &mut self.open) {
            (Some(Ok(())), Some(open)) => open.synced = open.synced.max(open.ahead_through),
            (Some(Err(error)), _) => self.refuse(&error.into()),
            _ => {}
        }
    }

    /// Begins to sync the oldest unsynced segment, if there are many, or somebody is likely to want that soon.
    pub(super) fn sync_oldest(&mut self) {
        let enough = if self.since_demand < DEMAND_SEGMENTS {
            1
        } else {
            UNSYNCED_MAX / 2
        };
        if self.tail.is_some() || self.shared.unsynced.lock().len() < enough {
            return;
        }
        let Some((number, mut file)) = self.shared.next_unsynced() else {
            return;
        };
        let (done, outcome) = oneshot::channel();
        self.tail = Some(outcome);
        let (shared, env) = (self.shared.clone(), self.env.clone());
        self.env.spawn("commit-log-sync", async move {
            let synced = file.sync().await;
            shared.ended(number, synced.is_ok());
            let _ = done.send(synced);
            close_apart(&env, file);
        });
    }

    /// Syncs the earlier segments that are not.
    ///
    /// A failure is kept in mind until a segment begins that rests on nothing: the file that failed is given up here, so the
    /// next call would find all in order.
    pub(super) async fn sync_unsynced(&mut self) -> Result<(), LogError> {
        let outcome = self.try_sync_unsynced().await;
        if outcome.is_err() {
            self.forsake_unsynced();
            self.previous.refused = true;
        }
        outcome
    }

    pub(super) async fn try_sync_unsynced(&mut self) -> Result<(), LogError> {
        settled(&mut self.tail).await?;
        while let Some((number, mut file)) = self.shared.next_unsynced() {
            let synced = file.sync().await;
            close_apart(&self.env, file);
            self.shared.ended(number, synced.is_ok());
            synced?;
        }
        Ok(())
    }
}

impl Shared {
    /// Takes out the oldest segment that is not synced.
    fn next_unsynced(&self) -> Option<(u64, Box<dyn AppendFile>)> {
        self.unsynced.lock().pop_first()
    }

    /// The sync of a segment has ended.
    fn ended(&self, number: u64, is_synced: bool) {
        let mut retention = self.retention.lock();
        match is_synced {
            true => retention.synced(number),
            false => retention.forsake(number),
        }
    }
}

/// Lets go of a segment that is closed, on a thread that nobody needs: it may have been deleted while it was synced, and who is
/// the last to close a deleted file waits until its blocks are freed, 30 to 200 ms where the device is told to discard them. A thread that
/// runs tasks would keep them waiting, and every timer of the runtime, with it every writer who is being slowed.
fn close_apart(env: &Env, file: Box<dyn AppendFile>) {
    let apart = env.clone();
    env.spawn("commit-log-close", async move {
        // Only a runtime that ends says no.
        let _ = apart.blocking(move || drop(file)).await;
    });
}

/// Waits for a sync that was begun, if one was.
pub(super) async fn settled(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Result<(), LogError> {
    let Some(outcome) = begun else { return Ok(()) };
    let outcome = outcome.await.unwrap_or_else(|_| Err(vanished()));
    *begun = None;
    Ok(outcome?)
}

/// The outcome of a sync that was begun, if one was.
pub(super) async fn arrived(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Option<SyncOutcome> {
    let outcome = begun.as_mut()?.await.unwrap_or_else(|_| Err(vanished()));
    *begun = None;
    Some(outcome)
}

/// The outcome of a sync that was begun, once it is known.
fn seen(begun: &mut Option<oneshot::Receiver<SyncOutcome>>) -> Option<SyncOutcome> {
    let outcome = match begun.as_mut()?.try_recv() {
        Err(oneshot::error::TryRecvError::Empty) => return None,
        Err(oneshot::error::TryRecvError::Closed) => Err(vanished()),
        Ok(outcome) => outcome,
    };
    *begun = None;
    Some(outcome)
}
