//! From one segment to the next: relief, and the ends a segment can come to.

use super::Segments;
use super::ahead::{UNSYNCED_MAX, arrived};
use super::next::Empty;
use super::open::{Open, Previous};
use crate::error::LogError;
use crate::format;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_storage::AppendFile;

/// How often a failure is logged. As long as a medium fails, every write does, as fast as clients come back; the metric
/// counts all.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Whether a failure is logged at this time, when one was at `told_at`.
pub(super) fn tells(told_at: &mut Option<Duration>, now: Duration) -> bool {
    let tells = told_at.is_none_or(|at| now.saturating_sub(at) >= TOLD_EVERY);
    if tells {
        *told_at = Some(now);
    }
    tells
}

impl Segments {
    /// Ends a segment that must be closed, while writers wait: by waiting for what keeps the next one from relieving it,
    /// which is one sync or the making of a file as a rule; where that does not help, by closing it, for which all that is not
    /// synced has to be.
    pub(crate) async fn end_full(&mut self) {
        self.next.be_ready().await;
        if let Some(open) = &mut self.open {
            let ahead = arrived(&mut open.ahead).await;
            self.ahead_ended(ahead);
        }
        while self.shared.unsynced.lock().len() >= UNSYNCED_MAX {
            self.sync_oldest();
            let tail = arrived(&mut self.tail).await;
            let is_synced = matches!(tail, Some(Ok(())));
            self.tail_ended(tail);
            if !is_synced {
                break;
            }
        }
        // Given up, it need not be ended.
        if self.open.is_some() && !self.relieve() {
            self.close().await;
        }
    }

    /// Has the next segment take over from a full one, if that can be done at once; whether it did.
    pub(super) fn relieve(&mut self) -> bool {
        let ready = |open: &Open| open.is_named() && open.ahead.is_none();
        if !self.open.as_ref().is_some_and(ready) || self.shared.unsynced.lock().len() >= UNSYNCED_MAX {
            return false;
        }
        let Some(mut next) = self.next.ready.pop_front() else {
            return false;
        };
        let Some(full) = self.open.take() else { return false };
        let previous = Previous::of(&full, false);
        let header = previous.header_of_next(self.stream, next.number).encode();
        let Some(begun) = next.file.try_append(&[&header]) else {
            self.open = Some(full);
            self.next.ready.push_front(next);
            return false;
        };
        // Also when that failed nothing more goes into the full one: a header that was written states its length.
        self.previous = previous;
        let number = full.number;
        let file = self.retire(full);
        self.shared.unsynced.lock().insert(number, file);
        self.since_demand = self.since_demand.saturating_add(1);
        self.sync_oldest();
        match begun {
            Ok(()) => self.open = Some(Open::new(next, number, true)),
            Err(_) => {
                // Whoever opens the next one sees what is wrong.
                let (storage, path) = (self.shared.storage.clone(), next.path);
                self.env.spawn("commit-log-delete", async move {
                    let _ = storage.delete(&path).await;
                });
            }
        }
        true
    }

    /// Gives up the segment after a failure: it is never written or synced again, and what was not acknowledged in it
    /// stays refused.
    pub(crate) fn refuse(&mut self, error: &LogError) {
        self.shared.metrics.failures.inc();
        if tells(&mut self.told_at, self.env.now()) {
            tracing::error!(stream = self.stream, %error, "the commit log refuses writes that it could not log");
        }
        if let Some(mut open) = self.open.take() {
            self.previous = Previous::of(&open, true);
            open.info.forsaken = open.synced < open.acknowledged;
            self.retire(open);
        }
        // Also when none is open: what failed may be an earlier one, on which the next would rest.
        self.previous.refused = true;
    }

    /// Ends a healthy segment. Its tail is synced, so that the order in which segments became durable is the order in
    /// which they were written.
    pub(crate) async fn close(&mut self) {
        let whole = self.sync_unsynced().await;
        let Some(mut open) = self.open.take() else { return };
        let outcome = match whole {
            Ok(()) => open.sync_tail().await,
            failed => failed,
        };
        if let Err(error) = &outcome {
            tracing::warn!(path = open.info.path, %error, "the tail of a log segment could not be synced");
        }
        self.previous = Previous::of(&open, outcome.is_err());
        let number = open.number;
        open.info.forsaken = outcome.is_err() && open.synced < open.acknowledged;
        self.retire(open);
        if outcome.is_ok() {
            self.shared.retention.lock().synced(number);
        }
    }

    /// From now on the segment is one of the closed ones.
    pub(super) fn retire(&mut self, mut open: Open) -> Box<dyn AppendFile> {
        open.settle();
        open.info.len = open.acknowledged;
        open.info.whole = open.acknowledged == open.file.len();
        open.info.reading_cost = open.file.reading_cost();
        self.shared.open_bytes.store(0, Ordering::Relaxed);
        self.shared.retention.lock().add(open.number, open.info);
        open.file
    }

    pub(super) async fn open_segment(&mut self) -> Result<Open, LogError> {
        // One that begins after a failure rests on nothing.
        let rests = self.sync_unsynced().await.is_ok() && !self.previous.refused;
        let mut next = match self.next.take().await {
            Some(next) => next,
            None => {
                let number = (self.next_segment)();
                let path = format::segment_path(self.stream, number);
                let file = self.shared.storage.create(&path).await?;
                let named = false;
                Empty {
                    number,
                    path,
                    file,
                    named,
                }
            }
        };
        let header = self.previous.header_of_next(self.stream, next.number);
        let mut begun = next.file.append(&[header.encode()]).await;
        let durable = begun.is_ok() && !rests;
        if durable {
            // The header is what keeps the refused from coming back. Should this segment be refused as well, the next
            // one's header will name this one only, so this one must be durable by then. It is also what a reader keeps
            // the segment for, should the one before have a hole.
            begun = next.file.sync().await;
        }
        if let Err(error) = begun {
            // Nothing was acknowledged in it, so the stub means nothing; a leftover is an empty torn tail.
            let _ = self.shared.storage.delete(&next.path).await;
            return Err(error.into());
        }
        let mut open = Open::new(next, self.previous.number, false);
        if durable {
            open.synced = open.file.len();
        }
        Ok(open)
    }
}
