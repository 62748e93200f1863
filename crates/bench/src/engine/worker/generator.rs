//! One generator thread: a runtime, a connection to the target, its share of clients.

use crate::activity::ActorContext;
use crate::clients::Shared;
use crate::engine::client::{self, GaveUp, Loop, Ranges};
use crate::engine::frames::Start;
use crate::engine::pace::Pace;
use crate::engine::recorder::Recorder;
use crate::engine::timer::Timer;
use crate::target::{Target, TargetError};
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// State of a run, sent to generator threads.
#[derive(Clone)]
pub(super) enum Signal {
    Wait,
    Go(Go),
    Abort,
}

#[derive(Clone)]
pub(super) struct Go {
    pub(super) start: Instant,
    pub(super) deadline: Option<Instant>,
    /// See [`Loop::bound`].
    pub(super) bound: Option<Instant>,
    pub(super) recorders: Vec<Arc<Mutex<Recorder>>>,
    pub(super) pace: Option<Arc<Mutex<Pace>>>,
}

/// Messages from generator threads.
pub(super) enum Ended {
    Connected,
    Over,
    Failed(GaveUp),
}
/// One generator thread of one run.
pub(super) struct Generator {
    pub(super) thread: usize,
    pub(super) threads: usize,
    pub(super) start: Arc<Start>,
    pub(super) target: Arc<dyn Target>,
    pub(super) shared: Arc<Shared>,
    pub(super) ranges: Arc<Ranges>,
    pub(super) signal: watch::Receiver<Signal>,
    pub(super) retries: Arc<AtomicU64>,
    pub(super) say: mpsc::Sender<Ended>,
}

impl Generator {
    /// Runs the thread to its end, and reports the result.
    pub(super) fn main(self) {
        let say = self.say.clone();
        let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => LocalSet::new().block_on(&runtime, self.work()),
            Err(error) => Err(anyhow::Error::from(error)),
        };
        let last = match ended {
            Ok(()) => Ended::Over,
            Err(error) => {
                let unsupported = error
                    .downcast_ref::<TargetError>()
                    .is_some_and(|e| matches!(e, TargetError::Unsupported(_)));
                Ended::Failed(GaveUp {
                    cause: format!("{error:#}"),
                    unsupported,
                })
            }
        };
        // The channel has capacity for all messages of each thread and client.
        let _ = say.try_send(last);
    }

    async fn work(mut self) -> Result<()> {
        let connection = self.target.connect().await?;
        let mut actors = Vec::new();
        for client in (self.thread..self.start.clients as usize).step_by(self.threads) {
            let context = ActorContext {
                connection: connection.clone(),
                worker: self.start.worker,
                workers: self.start.workers,
                client: self.start.first_client + client as u32,
                clients: self.start.what.clients,
                seed: self.start.what.seed,
            };
            actors.push(self.shared.actor(&self.start.what, context)?);
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
            bound: go.bound,
        };
        let clients: Vec<_> = actors
            .into_iter()
            .map(|actor| tokio::task::spawn_local(client::run(shared.clone(), actor)))
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

/// Waits for all clients. Aborts the others when one gives up.
async fn wait_for(clients: Vec<tokio::task::JoinHandle<Result<(), GaveUp>>>, ranges: &Ranges) -> Result<()> {
    let mut first: Option<anyhow::Error> = None;
    for client in clients {
        let error = match client.await {
            Ok(Ok(())) => continue,
            Ok(Err(GaveUp {
                cause,
                unsupported: true,
            })) => TargetError::Unsupported(cause).into(),
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
            // The worker drops a run only when it aborts it or starts the next.
            return;
        }
    }
}
