//! A worker process: clients on a few threads, told by a dispatcher what to do.
//!
//! Each generator thread has a runtime, a connection to the target, and its share of the clients, and shares nothing that is
//! written often with the others. The main thread talks to the dispatcher.

use crate::activity::{self, ActorContext};
use crate::engine::client::{GaveUp, Loop, Ranges};
use crate::engine::frames::{self, FromDispatcher, FromWorker, Report, Start};
use crate::engine::pace::Pace;
use crate::engine::recorder::{Recorder, Totals};
use crate::engine::timer::Timer;
use crate::load::Shared;
use crate::outcome::WorkerOutcome;
use crate::plan::Stop;
use crate::target::{self, Target};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// How often a worker reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Between a client's having nothing to do and the report that says so.
const IDLE_GATHERING: Duration = Duration::from_millis(5);
/// A run without a time limit ends when the dispatcher says so; its window must end somewhere.
const LONGEST_RUN: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a worker joins.
#[derive(Debug, Clone)]
pub struct Join {
    /// The dispatcher's address.
    pub address: String,
    /// What it was told to demand.
    pub token: String,
    /// Generator threads.
    pub threads: usize,
}

/// Works for a dispatcher until that closes the connection.
///
/// # Errors
/// A dispatcher that cannot be reached, or that speaks another version.
pub async fn run(join: Join) -> Result<()> {
    let socket = TcpStream::connect(&join.address)
        .await
        .with_context(|| format!("joining the dispatcher at {}", join.address))?;
    socket.set_nodelay(true)?;
    let (mut reader, writer) = socket.into_split();
    let place = format!("{} pid {}", hostname(), std::process::id());
    let (out, outgoing) = mpsc::channel(1024);
    let writing = tokio::spawn(write_all(writer, outgoing));
    let hello = FromWorker::Hello {
        version: frames::VERSION,
        token: join.token.clone(),
        place: place.clone(),
        pid: std::process::id(),
    };
    out.send(hello).await.ok().context("the connection closed at once")?;
    let mut worker = Worker {
        place,
        threads: join.threads.max(1),
        shared: Arc::default(),
        targets: HashMap::new(),
        active: None,
        out,
    };
    while let Some(message) = frames::read(&mut reader).await? {
        worker.handle(message).await?;
    }
    drop(worker);
    writing.await??;
    Ok(())
}

async fn write_all(mut socket: OwnedWriteHalf, mut outgoing: mpsc::Receiver<FromWorker>) -> std::io::Result<()> {
    while let Some(message) = outgoing.recv().await {
        frames::write(&mut socket, &message).await?;
    }
    Ok(())
}

fn hostname() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

struct Worker {
    place: String,
    threads: usize,
    shared: Arc<Shared>,
    targets: HashMap<String, Arc<dyn Target>>,
    active: Option<Active>,
    out: mpsc::Sender<FromWorker>,
}

/// A run under way.
struct Active {
    run: u64,
    ranges: Arc<Ranges>,
    start: Box<Start>,
    go: watch::Sender<Signal>,
    retries: Arc<AtomicU64>,
    threads: usize,
    /// Ends when all threads have ended.
    ended: Option<mpsc::Receiver<Ended>>,
}

/// Told to generator threads.
#[derive(Clone)]
enum Signal {
    Wait,
    Go(Go),
    Abort,
}

#[derive(Clone)]
struct Go {
    start: Instant,
    deadline: Option<Instant>,
    recorders: Vec<Arc<Mutex<Recorder>>>,
    pace: Option<Arc<Mutex<Pace>>>,
}

/// Told by generator threads.
enum Ended {
    Connected,
    Over,
    Failed(GaveUp),
}

impl Worker {
    async fn handle(&mut self, message: FromDispatcher) -> Result<()> {
        match message {
            FromDispatcher::Start(start) => {
                let run = start.run;
                if let Err(error) = self.start(start).await {
                    let unsupported = error
                        .downcast_ref::<target::TargetError>()
                        .is_some_and(|e| matches!(e, target::TargetError::Unsupported(_)));
                    let cause = format!("{error:#}");
                    self.send(FromWorker::Failed {
                        run,
                        cause,
                        unsupported,
                    })
                    .await?;
                }
            }
            FromDispatcher::Go { run, elapsed_seconds } => self.go(run, elapsed_seconds)?,
            FromDispatcher::Ranges { run, ranges } => {
                if let Some(active) = self.of(run) {
                    active.ranges.add(ranges);
                }
            }
            FromDispatcher::Finish { run } => {
                if let Some(active) = self.of(run) {
                    active.ranges.finish();
                }
            }
            FromDispatcher::Abort { run } => {
                if self.of(run).is_some() {
                    self.abort();
                }
            }
        }
        Ok(())
    }

    fn of(&mut self, run: u64) -> Option<&mut Active> {
        self.active.as_mut().filter(|a| a.run == run)
    }

    async fn send(&self, message: FromWorker) -> Result<()> {
        self.out
            .send(message)
            .await
            .ok()
            .context("the dispatcher has closed the connection")
    }

    fn abort(&mut self) {
        if let Some(active) = self.active.take() {
            active.ranges.finish();
            let _ = active.go.send(Signal::Abort);
        }
    }

    /// Connects the clients of a run, and says so.
    async fn start(&mut self, start: Box<Start>) -> Result<()> {
        self.abort();
        let run = start.run;
        self.shared
            .prepare(&start.what, start.worker, start.workers, &start.written)?;
        let target = self.target(&start.target).await?;
        let threads = self.threads.min(start.clients as usize).max(1);
        let (ask, asked) = mpsc::unbounded_channel();
        let (go, signal) = watch::channel(Signal::Wait);
        // Each thread says two things, and each client may say one more.
        let (say, mut said) = mpsc::channel(2 * threads + start.clients as usize);
        let ranges = Arc::new(Ranges::new(ask));
        let retries = Arc::new(AtomicU64::new(0));
        for thread in 0..threads {
            let generator = Generator {
                thread,
                threads,
                start: Arc::new(clone_start(&start)),
                target: target.clone(),
                shared: self.shared.clone(),
                ranges: ranges.clone(),
                signal: signal.clone(),
                retries: retries.clone(),
                say: say.clone(),
            };
            std::thread::Builder::new()
                .name(format!("generator-{thread}"))
                .spawn(move || generator.main())?;
        }
        drop(say);
        for _ in 0..threads {
            match said.recv().await {
                Some(Ended::Connected) => {}
                Some(Ended::Failed(GaveUp {
                    cause,
                    unsupported: false,
                })) => bail!(cause),
                Some(Ended::Failed(GaveUp {
                    cause,
                    unsupported: true,
                })) => {
                    return Err(target::TargetError::Unsupported(cause).into());
                }
                Some(Ended::Over) | None => bail!("a generator thread ended before it began"),
            }
        }
        tokio::spawn(ask_for_more(run, asked, Arc::downgrade(&ranges), self.out.clone()));
        self.active = Some(Active {
            run,
            ranges,
            start,
            go,
            retries,
            threads,
            ended: Some(said),
        });
        self.send(FromWorker::Ready { run }).await
    }

    async fn target(&mut self, url: &str) -> Result<Arc<dyn Target>> {
        if let Some(target) = self.targets.get(url) {
            return Ok(target.clone());
        }
        let target = target::open(url).await?;
        self.targets.insert(url.to_owned(), target.clone());
        Ok(target)
    }

    fn go(&mut self, run: u64, elapsed_seconds: f64) -> Result<()> {
        let Some(active) = self.of(run) else {
            return Ok(());
        };
        let Some(ended) = active.ended.take() else {
            bail!("told to begin twice");
        };
        let start = &active.start;
        let what = &start.what;
        let began = Instant::now()
            .checked_sub(Duration::from_secs_f64(elapsed_seconds))
            .context("a run that began before this machine did")?;
        let from = began + Duration::from_secs_f64(what.warmup_seconds);
        let (until, deadline) = match what.stop {
            Stop::Seconds(seconds) => {
                let until = from + Duration::from_secs_f64(seconds);
                (until, Some(until))
            }
            Stop::Operations(_) => (from + LONGEST_RUN, None),
        };
        let names = activity::kinds(what);
        let recorder = || {
            let recorder = Recorder::new(
                names.clone(),
                began,
                from..until,
                elapsed_seconds as u32,
                what.rate.is_some(),
            );
            Arc::new(Mutex::new(recorder))
        };
        let recorders: Vec<_> = (0..active.threads).map(|_| recorder()).collect();
        let pace = what.rate.map(|open| {
            let mut pace = Pace::new(open, start.clients, what.clients, what.seed ^ u64::from(start.worker));
            pace.skip_to(elapsed_seconds);
            Arc::new(Mutex::new(pace))
        });
        let reporter = Reporter {
            run,
            worker: start.worker,
            recorders: recorders.clone(),
            ranges: active.ranges.clone(),
            retries: active.retries.clone(),
            retries_reported: 0,
            cpu: CpuWatch::new(from, deadline),
            out: self.out.clone(),
            place: self.place.clone(),
        };
        let go = Go {
            start: began,
            deadline,
            recorders,
            pace,
        };
        if let Some(active) = self.of(run) {
            let _ = active.go.send(Signal::Go(go));
        }
        tokio::spawn(reporter.run(ended));
        Ok(())
    }
}

fn clone_start(start: &Start) -> Start {
    Start {
        run: start.run,
        what: start.what.clone(),
        target: start.target.clone(),
        // Only `Shared::prepare` wants these, and they may be long.
        written: Vec::new(),
        worker: start.worker,
        workers: start.workers,
        first_client: start.first_client,
        clients: start.clients,
    }
}

async fn ask_for_more(
    run: u64,
    mut asked: mpsc::UnboundedReceiver<()>,
    ranges: std::sync::Weak<Ranges>,
    out: mpsc::Sender<FromWorker>,
) {
    while asked.recv().await.is_some() {
        let Some(count) = ranges.upgrade().map(|r| r.take_hunger()) else {
            return;
        };
        if count > 0 && out.send(FromWorker::Take { run, count }).await.is_err() {
            return;
        }
    }
}

/// One generator thread of one run.
struct Generator {
    thread: usize,
    threads: usize,
    start: Arc<Start>,
    target: Arc<dyn Target>,
    shared: Arc<Shared>,
    ranges: Arc<Ranges>,
    signal: watch::Receiver<Signal>,
    retries: Arc<AtomicU64>,
    say: mpsc::Sender<Ended>,
}

impl Generator {
    fn main(self) {
        let say = self.say.clone();
        let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => LocalSet::new().block_on(&runtime, self.work()),
            Err(error) => Err(anyhow::Error::from(error)),
        };
        let last = match ended {
            Ok(()) => Ended::Over,
            Err(error) => {
                let unsupported = error
                    .downcast_ref::<target::TargetError>()
                    .is_some_and(|e| matches!(e, target::TargetError::Unsupported(_)));
                Ended::Failed(GaveUp {
                    cause: format!("{error:#}"),
                    unsupported,
                })
            }
        };
        // There is room for what each thread and client says once.
        let _ = say.try_send(last);
    }

    async fn work(mut self) -> Result<()> {
        let connection = self.target.connect().await?;
        let mut actors = Vec::new();
        for client in (self.thread..self.start.clients as usize).step_by(self.threads) {
            let context = ActorContext {
                connection: connection.clone(),
                shared: self.shared.clone(),
                worker: self.start.worker,
                workers: self.start.workers,
                client: self.start.first_client + client as u32,
                clients: self.start.what.clients,
                seed: self.start.what.seed,
            };
            actors.push(activity::actor(&self.start.what, context)?);
        }
        let timer = Timer::new()?;
        let _ = self.say.try_send(Ended::Connected);
        let go = loop {
            match self.signal.borrow_and_update().clone() {
                Signal::Go(go) => break go,
                Signal::Abort => return Ok(()),
                Signal::Wait => {}
            }
            if self.signal.changed().await.is_err() {
                return Ok(());
            }
        };
        let shared = Loop {
            ranges: self.ranges.clone(),
            recorder: go
                .recorders
                .get(self.thread)
                .context("a recorder for each thread")?
                .clone(),
            pace: go.pace,
            timer: timer.clone(),
            start: go.start,
            deadline: go.deadline,
        };
        let clients: Vec<_> = actors
            .into_iter()
            .map(|actor| tokio::task::spawn_local(crate::engine::client::run(shared.clone(), actor)))
            .collect();
        let waking = tokio::task::spawn_local(async move { timer.run().await });
        let result = tokio::select! {
            result = wait_for(clients, &self.ranges) => result,
            () = aborted(&mut self.signal) => Ok(()),
        };
        waking.abort();
        self.retries.fetch_add(connection.retries(), Ordering::Relaxed);
        result
    }
}

/// Waits for all clients, and ends the others when one gives up.
async fn wait_for(clients: Vec<tokio::task::JoinHandle<Result<(), GaveUp>>>, ranges: &Ranges) -> Result<()> {
    let mut first: Option<anyhow::Error> = None;
    for client in clients {
        let error = match client.await {
            Ok(Ok(())) => continue,
            Ok(Err(GaveUp {
                cause,
                unsupported: true,
            })) => target::TargetError::Unsupported(cause).into(),
            Ok(Err(GaveUp {
                cause,
                unsupported: false,
            })) => anyhow::Error::msg(cause),
            Err(error) => anyhow::Error::from(error).context("a client ended abnormally"),
        };
        ranges.finish();
        first.get_or_insert(error);
    }
    first.map_or(Ok(()), Err)
}

async fn aborted(signal: &mut watch::Receiver<Signal>) {
    loop {
        if matches!(*signal.borrow_and_update(), Signal::Abort) {
            return;
        }
        if signal.changed().await.is_err() {
            // The worker forgets a run only when it aborts it or starts the next.
            return;
        }
    }
}

/// Sends what recorders hold, once a second and at the end.
struct Reporter {
    run: u64,
    worker: u32,
    place: String,
    recorders: Vec<Arc<Mutex<Recorder>>>,
    ranges: Arc<Ranges>,
    retries: Arc<AtomicU64>,
    retries_reported: u64,
    cpu: CpuWatch,
    out: mpsc::Sender<FromWorker>,
}

impl Reporter {
    async fn run(mut self, mut ended: mpsc::Receiver<Ended>) {
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
                    // Others will be idle in a moment too: one report for all of them.
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
            retries: retries - self.retries_reported,
            send_lag,
        };
        self.retries_reported = retries;
        self.out.send(FromWorker::Report(Box::new(report))).await
    }
}

/// CPU seconds of this process within the measured window.
struct CpuWatch {
    window: Range<Instant>,
    /// CPU time at the window's start, once that has come.
    last: Option<f64>,
    /// Whether the window has ended.
    over: bool,
    pending: f64,
}

impl CpuWatch {
    fn new(from: Instant, until: Option<Instant>) -> Self {
        Self {
            window: from..until.unwrap_or(from + LONGEST_RUN),
            last: None,
            over: false,
            pending: 0.0,
        }
    }

    /// Returns when the window's start or end has come.
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
