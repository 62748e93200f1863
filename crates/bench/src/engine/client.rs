//! The loop of one client: take a range, run its operations in order, report.

use crate::activity::Actor;
use crate::engine::pace::Pace;
use crate::engine::recorder::Recorder;
use crate::engine::timer::Timer;
use crate::target::TargetError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Failures in a row after which a client gives the run up. A dead server would otherwise cost hours.
const FAILURES_IN_A_ROW_MAX: u32 = 200;
/// Pause after a failure, so that immediate failures do not make a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// Ranges of a worker that no client has begun, and clients waiting for one.
#[derive(Debug)]
pub struct Ranges {
    waiting: Mutex<VecDeque<Range<u64>>>,
    arrived: Notify,
    finished: AtomicBool,
    hungry: AtomicU32,
    idle: Notify,
    ask: mpsc::UnboundedSender<()>,
}

impl Ranges {
    /// No ranges yet. `ask` receives a message for each range that a client begins. Ranges under way are never more
    /// than the ranges given at first, which bounds the channel.
    pub fn new(ask: mpsc::UnboundedSender<()>) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            finished: AtomicBool::new(false),
            hungry: AtomicU32::new(0),
            idle: Notify::new(),
            ask,
        }
    }

    /// Adds ranges.
    pub fn add(&self, ranges: Vec<Range<u64>>) {
        self.waiting.lock().extend(ranges);
        self.arrived.notify_waiters();
    }

    /// Announces that no more ranges will come.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        self.arrived.notify_waiters();
    }

    /// Ranges begun since the last call.
    pub fn take_hunger(&self) -> u32 {
        self.hungry.swap(0, Ordering::AcqRel)
    }

    /// Returns when a client has run out of work: the end may be near, and the dispatcher must know.
    pub async fn idle(&self) {
        self.idle.notified().await;
    }

    async fn next(&self) -> Option<Range<u64>> {
        loop {
            // Registered before the check, so that a range that arrives in between is not missed.
            let arrived = self.arrived.notified();
            if self.finished.load(Ordering::Acquire) {
                return None;
            }
            if let Some(range) = self.waiting.lock().pop_front() {
                // Requests the next range while this one is being done, so that no client waits for a round trip to the
                // dispatcher.
                self.hungry.fetch_add(1, Ordering::AcqRel);
                let _ = self.ask.send(());
                return Some(range);
            }
            self.idle.notify_one();
            arrived.await;
        }
    }
}

/// State shared by the clients of one thread.
#[derive(Clone)]
pub struct Loop {
    /// Work to do.
    pub ranges: Arc<Ranges>,
    /// Counts the steps.
    pub recorder: Arc<Mutex<Recorder>>,
    /// Open loop: when operations are due, seconds after `start`.
    pub pace: Option<Arc<Mutex<Pace>>>,
    /// Waits for those moments.
    pub timer: Timer,
    /// Start of the run.
    pub start: Instant,
    /// When to stop, if time decides.
    pub deadline: Option<Instant>,
}

/// Why a client gave the run up.
#[derive(Debug)]
pub struct GaveUp {
    /// The last failure.
    pub cause: String,
    /// Whether the protocol lacks the operation.
    pub unsupported: bool,
}

/// Works until no work is left or time is up.
///
/// # Errors
/// The failure that made the client give up.
pub async fn run(shared: Loop, mut actor: Box<dyn Actor>) -> Result<(), GaveUp> {
    let mut failures_in_a_row = 0;
    while !shared.is_over()
        && let Some(range) = shared.ranges.next().await
    {
        actor.begin(range.clone());
        let mut next = range.start;
        let mut failed = false;
        while next < range.end {
            let Some(from) = shared.wait_until_due().await else {
                break;
            };
            let result = actor.step(next).await;
            let now = Instant::now();
            match result {
                Ok(step) => {
                    shared.recorder.lock().success(&step, from, now);
                    next = range.end.min(next + u64::from(step.operations.max(1)));
                    failures_in_a_row = 0;
                }
                Err(error) => {
                    shared.recorder.lock().failure(error.to_string(), from, now);
                    failed = true;
                    next += 1;
                    failures_in_a_row += 1;
                    give_up(&error, failures_in_a_row)?;
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
        let from = Instant::now();
        let result = actor.finish().await;
        let now = Instant::now();
        let mut recorder = shared.recorder.lock();
        match result {
            Ok(step) if step.operations == 0 && step.rows == 0 && step.verdict.is_right() => {}
            Ok(step) => recorder.success(&step, from, now),
            Err(error) => {
                failed = true;
                recorder.failure(error.to_string(), from, now);
            }
        }
        recorder.span(range.start..next, failed, now);
    }
    Ok(())
}

fn give_up(error: &TargetError, failures_in_a_row: u32) -> Result<(), GaveUp> {
    let unsupported = matches!(error, TargetError::Unsupported(_));
    if unsupported || failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
        let cause = match error {
            TargetError::Unsupported(why) => why.clone(),
            other => format!("{failures_in_a_row} failures in a row, the last: {other}"),
        };
        return Err(GaveUp { cause, unsupported });
    }
    Ok(())
}

impl Loop {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Time from which the next operation's latency counts; `None` when time is up.
    async fn wait_until_due(&self) -> Option<Instant> {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return None;
        }
        let Some(pace) = &self.pace else {
            return Some(now);
        };
        let due = self.start + Duration::from_secs_f64(pace.lock().take());
        if self.deadline.is_some_and(|deadline| due >= deadline) {
            return None;
        }
        self.timer.until(due).await;
        // Two kinds of delay. If all clients were busy, the server caused it, and it is part of the latency. If this
        // client was free, the generator caused it, and it is reported separately.
        self.recorder.lock().send_lag(Instant::now() - due.max(now));
        Some(due)
    }
}
