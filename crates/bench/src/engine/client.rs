//! The loop of one client: take a range, run its operations in order, report.
//!
//! A failed operation has an unknown effect. Only that operation, or the write buffer that it was to send, is reported
//! as uncertain: a check expects the acknowledged operations before and after it.
//!
//! In an open loop every operation that is due before the end is sent, even after the end. A server that stalls or is
//! overloaded would otherwise lose its slowest operations from the figures.

use crate::activity::{Actor, Step};
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
    /// Open loop: when operations that were due before the deadline are given up.
    pub bound: Option<Instant>,
}

/// The part of a range that is not reported yet.
struct Open {
    /// Its first operation.
    start: u64,
    /// The operation after its last one.
    next: u64,
    /// The first operation in the client's write buffer.
    held: Option<u64>,
    /// Whether an operation in it failed.
    failed: bool,
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
    let mut last_due = None;
    while !shared.is_over()
        && let Some(range) = shared.ranges.next().await
    {
        actor.begin(range.clone());
        let mut open = Open::at(range.start);
        while open.next < range.end {
            let Some(from) = shared.wait_until_due().await else {
                break;
            };
            last_due = Some(from);
            let result = actor.step(open.next).await;
            let now = Instant::now();
            match result {
                Ok(step) => {
                    shared.recorder.lock().success(&step, from, now);
                    open.passed(&step, range.end);
                    failures_in_a_row = 0;
                }
                Err(error) => {
                    open.failed(&error, from, &mut shared.recorder.lock());
                    failures_in_a_row += 1;
                    give_up(&error, failures_in_a_row)?;
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
        // The rows of an open loop's buffer were due, the last of them then.
        let from = last_due.filter(|_| shared.pace.is_some()).unwrap_or_else(Instant::now);
        let result = actor.finish().await;
        let now = Instant::now();
        let mut recorder = shared.recorder.lock();
        match result {
            Ok(step) if step.operations == 0 && step.rows == 0 && step.verdict.is_right() => {}
            Ok(step) => recorder.success(&step, from, now),
            Err(error) => {
                recorder.failure(error.to_string(), from, now);
                open.buffer_failed(&mut recorder, now);
            }
        }
        open.report(open.next, &mut recorder, now);
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

impl Open {
    fn at(start: u64) -> Self {
        Self {
            start,
            next: start,
            held: None,
            failed: false,
        }
    }

    /// A step has succeeded.
    fn passed(&mut self, step: &Step, end: u64) {
        match step.acknowledged {
            Some(0) => _ = self.held.get_or_insert(self.next),
            Some(_) => self.held = None,
            None => {}
        }
        self.next = end.min(self.next + u64::from(step.operations.max(1)));
    }

    /// The next operation has failed, and with it the buffer, if the operation was to send that.
    fn failed(&mut self, error: &TargetError, from: Instant, recorder: &mut Recorder) {
        let now = Instant::now();
        recorder.failure(error.to_string(), from, now);
        let first = self.held.take().unwrap_or(self.next);
        self.next += 1;
        self.set_apart(first, recorder, now);
    }

    /// The buffer could not be sent at the range's end.
    fn buffer_failed(&mut self, recorder: &mut Recorder, now: Instant) {
        let first = self.held.take().unwrap_or(self.start);
        self.set_apart(first, recorder, now);
    }

    /// Reports the operations from `first` on as uncertain, those before it as done.
    fn set_apart(&mut self, first: u64, recorder: &mut Recorder, now: Instant) {
        if !self.failed && recorder.may_set_apart() {
            self.report(first, recorder, now);
            self.failed = true;
            self.report(self.next, recorder, now);
            self.failed = false;
        } else {
            self.failed = true;
        }
    }

    /// Reports the operations below `end`.
    fn report(&mut self, end: u64, recorder: &mut Recorder, now: Instant) {
        if self.start < end {
            recorder.span(self.start..end, self.failed, now);
            self.start = end;
        }
    }
}

impl Loop {
    fn is_over(&self) -> bool {
        let Some(deadline) = self.deadline else {
            return false;
        };
        match &self.pace {
            Some(pace) => self.start + Duration::from_secs_f64(pace.lock().next_due()) >= deadline,
            None => Instant::now() >= deadline,
        }
    }

    /// Time from which the next operation's latency counts; `None` when time is up.
    async fn wait_until_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let Some(pace) = &self.pace else {
            return self.deadline.is_none_or(|deadline| now < deadline).then_some(now);
        };
        let due = self.start + Duration::from_secs_f64(pace.lock().take());
        if self.deadline.is_some_and(|deadline| due >= deadline) {
            return None;
        }
        if self.bound.is_some_and(|bound| now >= bound) {
            self.give_rest_up(pace, due, now);
            return None;
        }
        self.timer.until(due).await;
        // Two kinds of delay. If all clients were busy, the server caused it, and it is part of the latency. If this
        // client was free, the generator caused it, and it is reported separately.
        self.recorder.lock().send_lag(Instant::now() - due.max(now));
        Some(due)
    }

    /// Counts the operation that was due at `due`, and all later ones before the deadline, as failed.
    fn give_rest_up(&self, pace: &Mutex<Pace>, mut due: Instant, now: Instant) {
        let deadline = self.deadline.unwrap_or(now);
        let text = format!("not sent {:.1} s after the end", (now - deadline).as_secs_f64());
        let (mut pace, mut recorder) = (pace.lock(), self.recorder.lock());
        while due < deadline {
            recorder.unsent(&text, due, now);
            due = self.start + Duration::from_secs_f64(pace.take());
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;
    use crate::plan::Run;

    fn recorder() -> Recorder {
        let now = Instant::now();
        Recorder::new(vec!["put".into()], now, now..now, 0, &Run::default())
    }

    fn step(acknowledged: u32) -> Step {
        Step {
            operations: 1,
            acknowledged: Some(acknowledged),
            ..Step::default()
        }
    }

    fn lost() -> TargetError {
        TargetError::Connection("reset".into())
    }

    #[test]
    fn a_failed_buffer_is_uncertain_and_nothing_before_or_after_it() {
        let (mut recorder, now) = (recorder(), Instant::now());
        let mut open = Open::at(100);
        // A buffer of three rows is sent, the next one is not, and of the last one two rows are left for the end.
        for acknowledged in [0, 0, 3, 0, 0] {
            open.passed(&step(acknowledged), 200);
        }
        open.failed(&lost(), now, &mut recorder);
        for acknowledged in [0, 0, 3, 0, 0] {
            open.passed(&step(acknowledged), 200);
        }
        open.buffer_failed(&mut recorder, now);
        open.report(open.next, &mut recorder, now);
        let taken = recorder.take(now, true);
        assert_eq!(taken.done, [100..103, 106..109]);
        assert_eq!(taken.uncertain, [103..106, 109..111]);
    }

    #[test]
    fn failures_beyond_the_limit_make_their_range_uncertain() {
        let (mut recorder, now) = (recorder(), Instant::now());
        while recorder.may_set_apart() {}
        let mut open = Open::at(0);
        open.passed(&step(1), 10);
        open.failed(&lost(), now, &mut recorder);
        open.passed(&step(1), 10);
        open.report(open.next, &mut recorder, now);
        let taken = recorder.take(now, true);
        assert_eq!((taken.done, taken.uncertain), (vec![], vec![0..3]));
    }
}
