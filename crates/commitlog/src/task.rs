//! The stream's task: commits what a leader must not wait for.
//!
//! Pipeline: while the sync of one group runs, the records of the next queue up, encoded and checksummed by their
//! writers. When the sync is done the next group is appended and its sync begun, and only then is the first one applied
//! and acknowledged, so that inserting into memtables costs no time of the device. Records of one tablet are still applied in
//! order, since all of it happens here, one group after the other.
//!
//! Writers that wait for their acknowledgement before they write again would then come in two shifts, each with a sync of
//! its own, and half as many share one. So where applying takes less than a sync does, what is due is acknowledged first,
//! and its writers are in the next group again; unless those who wait are many more ([`Turn::acknowledges_first`]).
//!
//! Where no segment could be begun, what has queued up meanwhile is refused with the group that needed one: a medium that is
//! out of reach takes minutes to say so, and each group would wait as long, behind all those before it. A full one says so at
//! once, and may have room for the next.
//!
//! What asks for no sync is not kept waiting for one that begins after it was queued, unless a record of its tablet
//! before it is ([`Group`]).

use crate::error::LogError;
use crate::group::{Append, Completion, Group, Part};
use crate::segment::Segments;
use crate::stream::{GROUP_RECORDS_MAX, Inner, Order, is_no_space};
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

/// The task. Where it is dropped before its end, as with the runtime, nobody will commit what is queued; and what is queued
/// holds tablets, which hold the stream.
struct Running<C: Completion>(Arc<Inner<C>>);

impl<C: Completion> Drop for Running<C> {
    fn drop(&mut self) {
        drop(self.0.shut());
    }
}

/// The time between being handed the segments and finding nothing to do.
struct Turn<'a, C: Completion> {
    inner: &'a Inner<C>,
    /// Here until the turn ends.
    segments: Option<Box<Segments>>,
    /// Durable; applied and acknowledged once the next sync has begun, or before.
    due: Vec<Append<C>>,
    /// What the last sync took, and the last time that something due was applied and acknowledged.
    sync_took: Duration,
    completion_took: Duration,
}

enum Next<C> {
    Group(Group<C>),
    Order(Order),
    /// First what is due.
    Complete,
    /// Nothing at all; the stream is idle now.
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
                Next::Order(order) => {
                    self.complete_due();
                    if let Some(segments) = &mut self.segments {
                        segments.close().await;
                        if matches!(order, Order::Close(_)) {
                            segments.discard_next().await;
                        }
                    }
                    match order {
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
        if !queue.waiting.is_empty() {
            let bytes_max = self.inner.options.group_bytes;
            return Next::Group(Group::gather(&mut queue.waiting, bytes_max, GROUP_RECORDS_MAX));
        }
        if let Some(order) = queue.orders.pop_front() {
            return Next::Order(order);
        }
        queue.idle = self.segments.take();
        Next::Rest
    }

    /// Whether what is due is acknowledged before the next group begins.
    fn acknowledges_first(&self, waiting: usize) -> bool {
        let due = self.due.len();
        due > 0 && waiting < 2 * due && (waiting == 0 || self.completion_took < self.sync_took)
    }

    /// Commits a group, all but the completion of what it synced.
    async fn commit(&mut self, segments: &mut Segments, group: Group<C>) {
        let mut out_of_reach = None;
        let mut refuse = |segments: &mut Segments, error: &LogError| {
            let is_begun = segments.open.is_some();
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
            // A sync would have let others run.
            self.inner.env.yield_now().await;
        } else if freed.is_err() {
            self.complete_due();
            self.inner.complete(free, &freed);
            self.inner.complete(bound, &freed);
        } else {
            let outcome = self.sync(segments, free, Part(&bound)).await;
            match &outcome {
                Ok(()) => {
                    segments.acknowledge(Part(&bound).records());
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

    /// Appends and syncs what is bound to the sync, and meanwhile completes what is due and `free`.
    async fn sync(
        &mut self,
        segments: &mut Segments,
        free: Vec<Append<C>>,
        bound: Part<'_, C>,
    ) -> Result<(), LogError> {
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
