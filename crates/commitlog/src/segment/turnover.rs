//! The beginnings and ends of segments: opening, taking over, closing, giving up.

use super::Segments;
use super::next::Empty;
use super::open::{Open, Previous};
use super::unsynced::UNSYNCED_MAX;
use crate::error::LogError;
use crate::format::{self, SEGMENT_HEADER_BYTES};
use crate::retention::{SegmentInfo, SegmentState};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_storage::AppendFile;

/// How often a failure is logged. While a storage fails, every write does, as fast as clients come back; the metric counts all.
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
    /// Ends a full segment while writers wait. It waits for the next file and for the sync of one or two older segments, then
    /// lets the next segment take over. Where that is impossible it closes the segment, which syncs everything.
    pub(crate) async fn end_full(&mut self) {
        self.next.arrive().await;
        if let Err(error) = self.sync_oldest(self.unsynced_allowed()).await {
            // The open segment rests on those that could not be synced.
            self.refuse(&error);
        }
        if self.open.is_some() && !self.try_take_over() {
            self.close().await;
        }
    }

    /// Has the next segment take over from a full one, if that needs no waiting and no older segment must be synced first;
    /// whether it did. The full one stays unsynced.
    pub(super) fn take_over(&mut self) -> bool {
        let unsynced = self.shared.unsynced.lock().len();
        unsynced <= self.unsynced_allowed() && self.try_take_over()
    }

    fn try_take_over(&mut self) -> bool {
        let Some(mut next) = self.next.take_ready() else {
            return false;
        };
        let Some(full) = self.open.take() else {
            self.next.put_back(next);
            return false;
        };
        let previous = Previous::of(&full);
        let header = previous.header_of_next(self.stream, next.number).encode();
        let Some(begun) = next.file.try_append(&[&header]) else {
            self.open = Some(full);
            self.next.put_back(next);
            return false;
        };
        // Also after an error nothing more goes into the full one: a header that was written states its length.
        self.previous = previous;
        let number = full.number;
        let file = self.retire(full, SegmentState::Unsynced);
        let older = self.shared.unsynced.lock().insert(number, file);
        assert!(older.is_none(), "a segment is closed once");
        assert!(
            self.shared.unsynced.lock().len() <= UNSYNCED_MAX,
            "unsynced segments are bounded"
        );
        match begun {
            Ok(()) => self.open = Some(Open::taking_over(next, number)),
            Err(_) => {
                // The next write opens a segment, and gets the error if it persists.
                let (storage, path) = (self.shared.storage.clone(), next.path);
                self.env.spawn("commit-log-delete", async move {
                    let _ = storage.delete(&path).await;
                });
            }
        }
        true
    }

    /// Gives up the segment after a failure: it is never written or synced again, and groups in it that were not acknowledged
    /// stay refused.
    pub(crate) fn refuse(&mut self, error: &LogError) {
        self.shared.metrics.failures.inc();
        if tells(&mut self.told_at, self.env.now()) {
            tracing::error!(stream = self.stream, %error, "the commit log refuses writes that it could not log");
        }
        if let Some(open) = self.open.take() {
            self.previous = Previous::of(&open);
            let state = open.state_given_up();
            self.retire(open, state);
        }
    }

    /// Ends a healthy segment. Older segments and its own tail are synced, in this order.
    pub(crate) async fn close(&mut self) {
        let older = self.sync_older().await;
        let Some(mut open) = self.open.take() else { return };
        let outcome = match older {
            Ok(()) => open.sync_tail().await,
            failed => failed,
        };
        let state = match &outcome {
            Ok(()) => SegmentState::Settled,
            Err(error) => {
                tracing::warn!(path = open.info.path, %error, "the tail of a log segment could not be synced");
                open.state_given_up()
            }
        };
        self.previous = Previous::of(&open);
        self.retire(open, state);
    }

    /// From now on the segment is one of the closed ones.
    fn retire(&mut self, open: Open, state: SegmentState) -> Box<dyn AppendFile> {
        let number = open.number;
        let (mut info, file) = open.into_closed(state);
        // One without groups has nothing to archive.
        info.awaits_archive = self.clock.is_some() && info.end > 0;
        self.shared.open_bytes.store(0, Ordering::Relaxed);
        let replaced = self.shared.retention.lock().close_open(number, info);
        assert!(replaced.is_none(), "a segment is closed once");
        file
    }

    /// Begins a segment that stands alone: its header is durable before its first group is written.
    ///
    /// The header keeps refused groups of the segment before from coming back. Should this segment be refused as well, the
    /// next header names this one only, so this header must be durable by then.
    pub(super) async fn open_segment(&mut self) -> Result<Open, LogError> {
        assert!(self.open.is_none(), "a stream has one open segment");
        // A failure is recorded in the retention, and concerns only older segments: this one stands alone.
        let _ = self.sync_older().await;
        self.next.arrive().await;
        let mut next = match self.next.take_ready() {
            Some(next) => next,
            None => {
                let number = (self.next_segment)();
                let path = format::segment_path(self.stream, number);
                let file = self.shared.storage.create(&path).await?;
                Empty { number, path, file }
            }
        };
        let header = self.previous.header_of_next(self.stream, next.number).encode();
        let mut begun = next.file.append(&[header]).await;
        if begun.is_ok() {
            begun = next.file.sync().await;
        }
        if let Err(error) = begun {
            self.leave_unbegun(next).await;
            return Err(error.into());
        }
        self.shared.retention.lock().begin_next();
        Ok(Open::standing_alone(next, self.previous.number))
    }

    /// Leaves a segment of which nobody knows whether its header is durable. Nothing was acknowledged in it. If a deletion fails, the rest is
    /// an empty torn tail.
    async fn leave_unbegun(&mut self, segment: Empty) {
        let Empty { number, path, file } = segment;
        let info = SegmentInfo {
            path: path.clone(),
            len: SEGMENT_HEADER_BYTES as u64,
            follows: self.previous.number,
            state: SegmentState::GivenUp,
            is_unbegun: true,
            ..SegmentInfo::default()
        };
        drop(file);
        let stays = self.shared.retention.lock().add_unbegun(number, info);
        if stays {
            self.shared.metrics.retained_bytes.add(SEGMENT_HEADER_BYTES as i64);
        } else if self.shared.storage.confirm_owner().await.is_ok() {
            // Otherwise another process has taken the log over, and may have read the header.
            let _ = self.shared.storage.delete(&path).await;
        }
    }
}
