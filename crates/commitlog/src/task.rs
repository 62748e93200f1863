//! The stream's task: commits the groups that a leader must not wait for.
//!
//! Pipeline: while the sync of one group runs, the records of the next queue up, encoded and checksummed by their
//! writers. When the sync is done the next group is appended and its sync begun. Only then is the first one applied and
//! acknowledged, so the device does not wait for memtables. Records of one tablet are still applied in order, since all of
//! it happens here, one group after the other.
//!
//! Writers that wait for their acknowledgement before they write again would then split into two halves, each with a sync
//! of its own. So where applying takes less time than a sync, synced records are acknowledged first, and their writers are
//! in the next group; unless many more are waiting ([`Turn::acknowledges_first`]). They are acknowledged first as well where
//! older segments must be synced before the next group: that may be up to sixteen syncs of whole segments.
//!
//! Where no segment could be begun, all waiting records are refused with the group that needed one. A storage that is out of
//! reach takes minutes to report it, and each group would wait as long. A full storage reports it without delay, and
//! may have space for the next group.
//!
//! A record that asks for no sync does not wait for a later sync, unless an earlier record of its tablet does ([`Group`]).

use crate::error::{LogError, is_no_space};
use crate::group::{Append, Completion, Group, Part};
use crate::queue::{GROUP_RECORDS_MAX, Inner, Order};
use crate::segment::Segments;
use futures::poll;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Runs until the stream is closed.
pub(crate) async fn run<C: Completion>(inner: Arc<Inner<C>>) {
    let running = Running(inner);
    let inner = &running.0;
    loop {
        let handed = inner.queue.lock().handed.take();
        match handed {
            Some(segments) => {
                let turn = Turn {
                    inner,
                    segments: Some(segments),
                    due: Vec::new(),
                    sync_took: Duration::ZERO,
                    completion_took: Duration::ZERO,
                };
                if turn.run().await {
                    return;
                }
            }
            None => inner.wake.notified().await,
        }
    }
}

/// The task. Where it is dropped before its end, as with the runtime, queued records are dropped too: they hold tablets, which
/// hold the stream.
struct Running<C: Completion>(Arc<Inner<C>>);

impl<C: Completion> Drop for Running<C> {
    fn drop(&mut self) {
        drop(self.0.shut());
    }
}

/// The time between being handed the segments and finding nothing to do.
struct Turn<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Present until the turn ends, except during a commit.
    segments: Option<Box<Segments>>,
    /// Durable; applied and acknowledged once the next sync has begun, or before.
    due: Vec<Append<C>>,
    /// Durations of the last sync, and of the last application and acknowledgement of due records.
    sync_took: Duration,
    completion_took: Duration,
}

enum Next<C> {
    Group(Group<C>),
    Order(Order),
    /// The due records are applied and acknowledged first.
    Complete,
    /// There is nothing to do; the stream is idle now.
    Rest,
}

impl<C: Completion> Turn<'_, C> {
    /// Whether the stream was closed.
    async fn run(mut self) -> bool {
        // A leader that fills a segment leaves it to the task to close it.
        if let Some(segments) = self.segments.as_mut()
            && segments.must_close()
        {
            segments.end_full().await;
        }
        loop {
            match self.next() {
                Next::Group(group) => {
                    if let Some(mut segments) = self.segments.take() {
                        self.commit(&mut segments, group).await;
                        self.segments = Some(segments);
                    }
                }
                Next::Complete => {
                    self.complete_due();
                    // Writers on this very thread come back only when they get to run.
                    self.inner.env.yield_now().await;
                }
                Next::Order(Order::Mark(mark, done)) => {
                    self.complete_due();
                    let outcome = match &mut self.segments {
                        Some(segments) => segments.write_mark(mark).await,
                        None => Err(LogError::Closed),
                    };
                    let _ = done.send(outcome);
                }
                Next::Order(order) => {
                    self.complete_due();
                    if let Some(segments) = &mut self.segments {
                        segments.close().await;
                        if matches!(order, Order::Close(_)) {
                            segments.discard_next().await;
                        }
                    }
                    match order {
                        // Carried out above.
                        Order::Mark(..) => {}
                        Order::Rotate(done) => {
                            let _ = done.send(());
                        }
                        Order::Close(done) => {
                            if let Some(done) = done {
                                let _ = done.send(());
                            }
                            return true;
                        }
                    }
                }
                Next::Rest => return false,
            }
        }
    }

    fn next(&mut self) -> Next<C> {
        let mut queue = self.inner.queue.lock();
        if self.acknowledges_first(queue.waiting.len()) {
            return Next::Complete;
        }
        // The tablet of a mark has no record that waits, and under load the queue is never empty.
        if matches!(queue.orders.front(), Some(Order::Mark(..)))
            && let Some(mark) = queue.orders.pop_front()
        {
            assert!(matches!(mark, Order::Mark(..)), "only marks precede groups that wait");
            return Next::Order(mark);
        }
        if !queue.waiting.is_empty() {
            let bytes_max = self.inner.options.group_bytes;
            return Next::Group(Group::gather(&mut queue.waiting, bytes_max, GROUP_RECORDS_MAX));
        }
        if let Some(order) = queue.orders.pop_front() {
            return Next::Order(order);
        }
        if let Some(segments) = self.segments.take() {
            queue.rest(segments);
        }
        assert!(
            self.due.is_empty(),
            "a turn ends when every synced record is acknowledged"
        );
        Next::Rest
    }

    /// Whether due records are acknowledged before the next group begins.
    fn acknowledges_first(&self, waiting: usize) -> bool {
        let due = self.due.len();
        due > 0 && waiting < 2 * due && (waiting == 0 || self.completion_took < self.sync_took)
    }

    /// Commits a group, except the completion of its synced records.
    async fn commit(&mut self, segments: &mut Segments, group: Group<C>) {
        let mut out_of_reach = None;
        let mut refuse = |segments: &mut Segments, error: &LogError| {
            let is_begun = segments.is_open();
            segments.refuse(error);
            out_of_reach = Some(error.clone()).filter(|error| !is_begun && !is_no_space(error));
        };
        let freed = append(segments, group.free()).await;
        match &freed {
            Ok(()) => segments.acknowledge(group.free().records()),
            Err(error) => refuse(segments, error),
        }
        let (free, bound) = group.into_parts();
        if bound.is_empty() {
            self.complete_due();
            self.inner.complete(free, &freed);
            // A sync would have let others run. After a failure they run later: a record that arrives now has no part in it.
            if freed.is_ok() {
                self.inner.env.yield_now().await;
            }
        } else if freed.is_err() {
            self.complete_due();
            self.inner.complete(free, &freed);
            self.inner.complete(bound, &freed);
        } else {
            let outcome = self.sync(segments, free, Part(&bound)).await;
            match &outcome {
                Ok(()) => {
                    segments.acknowledge(Part(&bound).records());
                    assert!(self.due.is_empty(), "a group is completed before the next one is due");
                    self.due = bound;
                }
                Err(error) => {
                    refuse(segments, error);
                    self.inner.complete(bound, &outcome);
                }
            }
        }
        if let Some(error) = out_of_reach {
            let waiting = std::mem::take(&mut self.inner.queue.lock().waiting);
            self.inner.complete(waiting.into(), &Err(error));
        }
        if segments.must_close() {
            self.complete_due();
            segments.end_full().await;
        }
    }

    /// Appends and syncs the records that are bound to the sync. Meanwhile completes the due records and `free`; before, where
    /// the append has to wait for syncs of older segments.
    async fn sync(
        &mut self,
        segments: &mut Segments,
        mut free: Vec<Append<C>>,
        bound: Part<'_, C>,
    ) -> Result<(), LogError> {
        if !segments.is_settled() {
            self.complete_due();
            self.inner.complete(std::mem::take(&mut free), &Ok(()));
        }
        let appended = match segments.settle().await {
            Ok(()) => append(segments, bound).await,
            unsettled => unsettled,
        };
        let begin = self.inner.env.now();
        let mut sync = pin!(segments.sync());
        let begun = match &appended {
            Ok(()) => poll!(sync.as_mut()),
            Err(_) => Poll::Pending,
        };
        self.complete_due();
        self.inner.complete(free, &Ok(()));
        appended?;
        let outcome = match begun {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => sync.await,
        };
        self.sync_took = self.inner.env.now() - begin;
        outcome
    }

    fn complete_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let begin = self.inner.env.now();
        let due = std::mem::take(&mut self.due);
        self.inner.complete(due, &Ok(()));
        self.completion_took = self.inner.env.now() - begin;
    }
}

impl<C: Completion> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.give_up();
        }
    }
}

async fn append<C: Completion>(segments: &mut Segments, part: Part<'_, C>) -> Result<(), LogError> {
    if part.is_unlogged() {
        return Ok(());
    }
    segments.append(part.records(), part.payloads()).await
}
