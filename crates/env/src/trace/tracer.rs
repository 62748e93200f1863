//! Decides which requests are traced, and queues their spans for the exporter.
//!
//! The queue is bounded in spans. A request that finds no space is dropped and counted: nobody waits for the exporter, which
//! may wait for a collector.

use super::{Finished, Parent};
use crate::Env;
use crate::metrics::{IntCounter, Metrics};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::Notify;

/// Spans that wait for the exporter. One takes two hundred bytes, so all of them take two megabytes.
pub const QUEUE_SPANS_MAX: usize = 8_192;

/// Spans from which on a batch does not wait for more. One takes about three hundred bytes as it is sent.
pub const BATCH_SPANS: usize = 512;

/// How long a batch waits for more spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The sampler of an environment, and the queue of its spans.
pub struct Tracer {
    /// Numbers below it are sampled; `u64::MAX` samples all.
    threshold: u64,
    queue: Mutex<Queue>,
    /// Told when the queue is no longer empty, when it has a batch, and when it is closed.
    changed: Notify,
    /// By outcome.
    exported: IntCounter,
    dropped: IntCounter,
    failed: IntCounter,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Finished>,
    /// Of all of them.
    spans: usize,
    is_closed: bool,
}

impl Tracer {
    /// Samples this part of the requests whose callers do not decide: from 0, none, to 1, all.
    pub fn new(part: f64, metrics: &Metrics) -> Tracer {
        let spans = metrics.counters(
            "stele_trace_spans_total",
            "Spans by outcome: exported, dropped because the queue was full, or failed because the collector did not take them.",
            &["outcome"],
        );
        Tracer {
            // The conversion saturates.
            threshold: (part * 2f64.powi(64)) as u64,
            queue: Mutex::default(),
            changed: Notify::new(),
            exported: spans.with_label_values(&["exported"]),
            dropped: spans.with_label_values(&["dropped"]),
            failed: spans.with_label_values(&["failed"]),
        }
    }

    /// The number of the trace, if the request is sampled. Its parent decides, if it has one.
    pub(super) fn sample(&self, env: &Env, parent: Option<&Parent>) -> Option<u128> {
        if let Some(parent) = parent {
            return parent.is_sampled.then_some(parent.at.trace);
        }
        if self.threshold == 0 {
            return None;
        }
        let low = env.random_u64();
        let is_sampled = self.threshold == u64::MAX || low < self.threshold;
        is_sampled.then(|| u128::from(env.random_u64()) << 64 | u128::from(low.max(1)))
    }

    /// Queues a request that has ended.
    pub(super) fn submit(&self, finished: Finished) {
        let spans = finished.spans();
        let is_awaited = {
            let queue = &mut *self.queue.lock();
            let before = queue.spans;
            if queue.is_closed || before + spans > QUEUE_SPANS_MAX {
                self.dropped.inc_by(spans as u64);
                return;
            }
            queue.spans += spans;
            queue.waiting.push_back(finished);
            before == 0 || (before < BATCH_SPANS && queue.spans >= BATCH_SPANS)
        };
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// The next batch for the exporter, of which there is one; `None` when the tracer is closed and has no more.
    pub async fn next_batch(&self, env: &Env) -> Option<Vec<Finished>> {
        self.until(1).await;
        // Elapsed or not, there is a batch.
        let _ = env.timeout(BATCH_WAIT, self.until(BATCH_SPANS)).await;
        let batch = self.queue.lock().take(BATCH_SPANS);
        (!batch.is_empty()).then_some(batch)
    }

    /// Waits until this many spans are queued, or the tracer is closed.
    async fn until(&self, spans: usize) {
        while !self.queue.lock().has(spans) {
            self.changed.notified().await;
        }
    }

    /// Takes no more spans.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// The collector has taken these spans.
    pub fn count_exported(&self, spans: usize) {
        self.exported.inc_by(spans as u64);
    }

    /// It has not.
    pub fn count_failed(&self, spans: usize) {
        self.failed.inc_by(spans as u64);
    }

    /// Spans that found no space in the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

impl Queue {
    fn has(&self, spans: usize) -> bool {
        self.is_closed || self.spans >= spans
    }

    /// The oldest requests, up to the one that has the last of that many spans.
    fn take(&mut self, spans: usize) -> Vec<Finished> {
        let (mut batch, mut taken) = (Vec::new(), 0);
        while taken < spans
            && let Some(finished) = self.waiting.pop_front()
        {
            taken += finished.spans();
            batch.push(finished);
        }
        self.spans -= taken;
        debug_assert!(
            self.spans > 0 || self.waiting.is_empty(),
            "the queue counts the spans of all requests in it"
        );
        batch
    }
}
