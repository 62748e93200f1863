//! The reports of a worker to its dispatcher during a run.

use super::LONGEST_RUN;
use super::generator::Ended;
use crate::engine::client::{GaveUp, Ranges};
use crate::engine::frames::{self, FromWorker, Report};
use crate::engine::recorder::{Recorder, Totals};
use crate::outcome::WorkerOutcome;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often a worker reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Delay between a client's idleness and the report of it.
const IDLE_GATHERING: Duration = Duration::from_millis(5);

/// Sends the contents of the recorders, once a second and at the end.
pub(super) struct Reporter {
    pub(super) run: u64,
    pub(super) worker: u32,
    pub(super) place: String,
    pub(super) recorders: Vec<Arc<Mutex<Recorder>>>,
    pub(super) ranges: Arc<Ranges>,
    pub(super) retries: Arc<AtomicU64>,
    pub(super) retries_reported: u64,
    pub(super) cpu: CpuWatch,
    pub(super) out: mpsc::Sender<FromWorker>,
}

impl Reporter {
    /// Reports until all generator threads have ended, and then once more.
    pub(super) async fn run(mut self, mut ended: mpsc::Receiver<Ended>) {
        let mut every = tokio::time::interval(REPORT_EVERY);
        every.tick().await;
        let mut failure = None;
        loop {
            tokio::select! {
                _ = every.tick() => {
                    if self.report(false).await.is_err() {
                        return;
                    }
                }
                () = self.ranges.idle() => {
                    // Others will be idle in a moment too: one report covers all of them.
                    tokio::time::sleep(IDLE_GATHERING).await;
                    if self.report(false).await.is_err() {
                        return;
                    }
                }
                () = self.cpu.wait() => self.cpu.mark(),
                said = ended.recv() => match said {
                    Some(Ended::Failed(gave_up)) => {
                        failure.get_or_insert(gave_up);
                    }
                    Some(Ended::Connected | Ended::Over) => {}
                    None => break,
                }
            }
        }
        let _ = self.report(true).await;
        let run = self.run;
        let last = match failure {
            Some(GaveUp { cause, unsupported }) => FromWorker::Failed {
                run,
                cause,
                unsupported,
            },
            None => FromWorker::Done { run },
        };
        let _ = self.out.send(last).await;
    }

    async fn report(&mut self, last: bool) -> Result<(), mpsc::error::SendError<FromWorker>> {
        let now = Instant::now();
        let mut report = Report {
            run: self.run,
            ..Report::default()
        };
        let mut totals = Totals::default();
        let mut client_seconds = 0.0;
        for recorder in &self.recorders {
            let taken = recorder.lock().take(now, last);
            totals.add(&taken.kinds, &taken.send_lag);
            client_seconds += taken.busy.as_secs_f64();
            report.verdict.merge(&taken.verdict);
            report.last_span_at = frames::later(report.last_span_at, taken.last_span_at);
            report.done.extend(taken.done);
            report.uncertain.extend(taken.uncertain);
            report.seconds.extend(taken.seconds);
        }
        let retries = self.retries.load(Ordering::Relaxed);
        let (kinds, send_lag) = totals.finish();
        report.increment = WorkerOutcome {
            worker: self.worker,
            place: self.place.clone(),
            kinds,
            client_seconds,
            cpu_seconds: self.cpu.take(last),
            threads: u32::try_from(self.recorders.len()).unwrap_or(u32::MAX),
            retries: retries - self.retries_reported,
            send_lag,
        };
        self.retries_reported = retries;
        self.out.send(FromWorker::Report(Box::new(report))).await
    }
}

/// CPU seconds of this process within the measured window.
pub(super) struct CpuWatch {
    window: Range<Instant>,
    /// CPU time at the window's start, once it has passed.
    last: Option<f64>,
    /// Whether the window has ended.
    over: bool,
    pending: f64,
}

impl CpuWatch {
    pub(super) fn new(from: Instant, until: Option<Instant>) -> Self {
        Self {
            window: from..until.unwrap_or(from + LONGEST_RUN),
            last: None,
            over: false,
            pending: 0.0,
        }
    }

    /// Returns at the window's start or end.
    async fn wait(&self) {
        let at = match (self.last, self.over) {
            (_, true) => return std::future::pending().await,
            (None, false) => self.window.start,
            (Some(_), false) => self.window.end,
        };
        tokio::time::sleep_until(at.into()).await;
    }

    fn mark(&mut self) {
        let now = process_cpu_seconds();
        match self.last {
            None => self.last = Some(now),
            Some(last) => {
                self.pending += now - last;
                self.over = true;
            }
        }
    }

    fn take(&mut self, last: bool) -> f64 {
        if let Some(before) = self.last
            && !self.over
        {
            let now = process_cpu_seconds();
            self.pending += now - before;
            self.last = Some(now);
            self.over = last;
        }
        std::mem::take(&mut self.pending)
    }
}

/// CPU seconds of this process since it began.
fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
