//! The process that owns the plan: workers join it, get ranges of operations, and report.
//!
//! Invariants:
//! * An operation of a counted run is reported done by exactly one worker, or by none and the run has failed.
//! * A worker that closes its connection, or sends nothing for [`SILENCE_MAX`], is dead. Its unreported work is given
//!   to others. If it was one of our own processes, another is started in its place.
//! * A run without any progress for [`STANDSTILL_MAX`] has failed; it never waits for ever.

use crate::engine::frames::{self, FromDispatcher, FromWorker};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

mod run;

pub use run::{Observer, Order};

/// A worker reports each second. One that has been silent for this long is dead.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Longer than any driver waits for a busy server before it fails.
pub const STANDSTILL_MAX: Duration = Duration::from_secs(180);
/// Most replacements of dead processes of our own, over a whole suite.
const REPLACEMENTS_MAX: u32 = 20;

/// The workers to use.
#[derive(Debug, Clone)]
pub struct Hiring {
    /// Address on which they join.
    pub listen: SocketAddr,
    /// Processes to start on this machine.
    pub local: u32,
    /// Number of workers to wait for that the user starts.
    pub remote: u32,
    /// Generator threads of each local one.
    pub threads: usize,
    /// Token that each must present.
    pub token: String,
}

/// The dispatcher's end of all workers.
pub struct Dispatcher {
    hiring: Hiring,
    address: SocketAddr,
    workers: BTreeMap<u32, Colleague>,
    /// Processes that we have started, by process id.
    children: BTreeMap<u32, Child>,
    events: mpsc::Receiver<(u32, Happening)>,
    replacements: u32,
    next_run: u64,
}

/// A worker that has joined.
struct Colleague {
    pid: u32,
    to: mpsc::Sender<FromDispatcher>,
    heard: Instant,
}

/// An event on a connection.
enum Happening {
    Joined {
        place: String,
        pid: u32,
        to: mpsc::Sender<FromDispatcher>,
    },
    Said(FromWorker),
    Gone(String),
}

impl Dispatcher {
    /// Listens for workers.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub async fn listen(hiring: Hiring) -> Result<Self> {
        let listener = TcpListener::bind(hiring.listen)
            .await
            .with_context(|| format!("listening for workers on {}", hiring.listen))?;
        let address = listener.local_addr()?;
        let (events, incoming) = mpsc::channel(4096);
        tokio::spawn(accept(listener, hiring.token.clone(), events));
        Ok(Self {
            hiring,
            address,
            workers: BTreeMap::new(),
            children: BTreeMap::new(),
            events: incoming,
            replacements: 0,
            next_run: 1,
        })
    }

    /// Starts local workers, and waits until all have joined.
    ///
    /// # Errors
    /// Workers that do not join within two minutes (ten, for remote ones).
    pub async fn hire(&mut self) -> Result<()> {
        for _ in 0..self.hiring.local {
            self.start_child()?;
        }
        self.wait_for_all().await
    }

    /// The address on which workers join.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Process ids of the local workers that we have started.
    pub fn local_pids(&self) -> Vec<u32> {
        self.children.keys().copied().collect()
    }

    async fn wait_for_all(&mut self) -> Result<()> {
        let wanted = (self.hiring.local + self.hiring.remote) as usize;
        let patience = Duration::from_secs(if self.hiring.remote > 0 { 600 } else { 120 });
        let deadline = tokio::time::Instant::now() + patience;
        while self.workers.len() < wanted {
            let next = tokio::time::timeout_at(deadline, self.events.recv());
            let have = self.workers.len();
            let (id, happening) = next
                .await
                .with_context(|| format!("{have} of {wanted} workers joined within {} s", patience.as_secs()))?
                .context("the listener has ended")?;
            self.note(id, &happening);
        }
        Ok(())
    }

    /// Updates the list of workers. The run itself decides about the consequences of an event.
    fn note(&mut self, id: u32, happening: &Happening) {
        match happening {
            Happening::Joined { pid, to, .. } => {
                let colleague = Colleague {
                    pid: *pid,
                    to: to.clone(),
                    heard: Instant::now(),
                };
                self.workers.insert(id, colleague);
            }
            Happening::Said(_) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.heard = Instant::now();
                }
            }
            Happening::Gone(_) => {
                if let Some(gone) = self.workers.remove(&id) {
                    // A dropped child is killed if it lives. A child that has ended leaves no zombie either.
                    self.children.remove(&gone.pid);
                }
            }
        }
    }

    fn start_child(&mut self) -> Result<()> {
        let program = std::env::current_exe().context("finding this program")?;
        let child = Command::new(program)
            .arg("worker")
            .args(["--join", &self.address.to_string()])
            .args(["--threads", &self.hiring.threads.to_string()])
            .env("STELE_BENCH_TOKEN", &self.hiring.token)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker")?;
        let pid = child.id().context("a worker that ended immediately")?;
        self.children.insert(pid, child);
        Ok(())
    }

    /// Starts a process in place of a dead one of ours. Returns whether it did.
    fn replace(&mut self) -> Result<bool> {
        let ours = self.children.len() < self.hiring.local as usize;
        if !ours || self.replacements >= REPLACEMENTS_MAX {
            return Ok(false);
        }
        self.replacements += 1;
        self.start_child()?;
        Ok(true)
    }

    async fn send(&self, id: u32, message: FromDispatcher) {
        if let Some(worker) = self.workers.get(&id) {
            // The reader of a dead worker's connection notices its end.
            let _ = worker.to.send(message).await;
        }
    }
}

/// Lets workers in. Ends with the dispatcher.
async fn accept(listener: TcpListener, token: String, events: mpsc::Sender<(u32, Happening)>) {
    let mut next_id = 0;
    while let Ok((socket, _)) = listener.accept().await {
        let (id, token, events) = (next_id, token.clone(), events.clone());
        next_id += 1;
        tokio::spawn(async move {
            if let Err(error) = welcome(id, socket, &token, &events).await {
                let _ = events.send((id, Happening::Gone(format!("{error:#}")))).await;
            }
        });
    }
}

async fn welcome(id: u32, socket: TcpStream, token: &str, events: &mpsc::Sender<(u32, Happening)>) -> Result<()> {
    socket.set_nodelay(true)?;
    let (mut reader, writer) = socket.into_split();
    let hello = tokio::time::timeout(Duration::from_secs(10), frames::read(&mut reader)).await??;
    let Some(FromWorker::Hello {
        version,
        token: said,
        place,
        pid,
    }) = hello
    else {
        bail!("it did not introduce itself");
    };
    if version != frames::VERSION || said != token {
        bail!("a worker of version {version} with a wrong token or version was turned away");
    }
    let (to, outgoing) = mpsc::channel(1024);
    tokio::spawn(write_all(writer, outgoing));
    if events.send((id, Happening::Joined { place, pid, to })).await.is_ok() {
        listen(id, &mut reader, events).await?;
        bail!("it closed the connection");
    }
    Ok(())
}

async fn listen(id: u32, reader: &mut OwnedReadHalf, events: &mpsc::Sender<(u32, Happening)>) -> Result<()> {
    while let Some(message) = frames::read(reader).await? {
        if events.send((id, Happening::Said(message))).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn write_all(mut socket: OwnedWriteHalf, mut outgoing: mpsc::Receiver<FromDispatcher>) {
    while let Some(message) = outgoing.recv().await {
        if frames::write(&mut socket, &message).await.is_err() {
            return;
        }
    }
}
