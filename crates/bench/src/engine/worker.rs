//! A worker process: clients on a few threads, controlled by a dispatcher.
//!
//! Each generator thread has a runtime, a connection to the target, and its share of the clients. Threads share no
//! state that is written often. The main thread talks to the dispatcher.

mod generator;
mod reporter;

use crate::clients::{self, Shared};
use crate::engine::client::{GaveUp, Ranges};
use crate::engine::frames::{self, FromDispatcher, FromWorker, Start};
use crate::engine::pace::Pace;
use crate::engine::recorder::Recorder;
use crate::plan::Stop;
use crate::target::{self, Target};
use anyhow::{Context, Result, bail};
use generator::{Ended, Generator, Go, Signal};
use parking_lot::Mutex;
use reporter::{CpuWatch, Reporter};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};

/// Length of the window of a run without a time limit, which ends when the dispatcher ends it.
const LONGEST_RUN: Duration = Duration::from_secs(365 * 24 * 3600);

/// Longest time after the end of an open loop in which operations that were due are still sent, and not longer than the
/// run itself. A stall of some seconds is then measured to its end. An overloaded server has failed.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How a worker joins.
#[derive(Debug, Clone)]
pub struct Join {
    /// The dispatcher's address.
    pub address: String,
    /// The dispatcher's token.
    pub token: String,
    /// Generator threads.
    pub threads: usize,
}

/// Works for a dispatcher until the dispatcher closes the connection.
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
    out.send(hello)
        .await
        .ok()
        .context("the connection closed immediately")?;
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

    /// Connects the clients of a run, and reports it.
    async fn start(&mut self, start: Box<Start>) -> Result<()> {
        self.abort();
        let run = start.run;
        self.shared
            .prepare(&start.what, start.worker, start.workers, &start.written)?;
        let target = self.target(&start.target).await?;
        let threads = self.threads.min(start.clients as usize).max(1);
        let (ask, asked) = mpsc::unbounded_channel();
        let (go, signal) = watch::channel(Signal::Wait);
        // Each thread sends two messages, and each client may send one more.
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
            bail!("two orders to begin one run");
        };
        let start = &active.start;
        let what = &start.what;
        let began = Instant::now()
            .checked_sub(Duration::from_secs_f64(elapsed_seconds))
            .context("a run that began before this machine did")?;
        let from = began + Duration::from_secs_f64(what.warmup_seconds);
        let length = match what.stop {
            Stop::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
            Stop::Operations(_) => None,
        };
        let (until, deadline) = (from + length.unwrap_or(LONGEST_RUN), length.map(|length| from + length));
        let bound = length.map(|length| from + length + length.min(DRAIN_MAX));
        let names = clients::kinds(what);
        let recorder = || {
            let recorder = Recorder::new(names.clone(), began, from..until, elapsed_seconds as u32, what);
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
            // An open loop ends with its last operation, which may be late.
            cpu: CpuWatch::new(from, deadline.filter(|_| what.rate.is_none())),
            out: self.out.clone(),
            place: self.place.clone(),
        };
        let go = Go {
            start: began,
            deadline,
            bound,
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
        // Only `Shared::prepare` uses these, and they may be long.
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
