//! Accepts the connections of a port, and hands each to an event loop.
//!
//! A connection costs memory before its first request, so their number is limited. A connection over the limit is closed
//! immediately: the client sees a busy server and not one that hangs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is where the seam meets sockets"
)]

use crate::event_loops::{EventLoops, Place};
use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntCounter, IntGauge, Metrics};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory of a connection with a few requests: buffers for reading and writing, tables of headers, its task.
const CONNECTION_BYTES: u64 = 64 << 10;

/// The least limit: some hundreds of clients with pools of four.
const CONNECTIONS_MIN: u64 = 1_024;

/// The greatest limit: each connection is an open file, and systems allow about 65,536 of them in all.
const CONNECTIONS_MAX: u64 = 16_384;

/// Pause after the system could not accept a connection for want of files or memory. Without it the failure would
/// repeat immediately and continuously.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A connection that is silent for this long is probed by the system: a client whose machine is gone never closes its
/// connections. Protocols with probes of their own find it earlier.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The time between probes, and how many may remain unanswered.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBES_MAX: u32 = 4;

/// The number of connections for this budget of memory and this number of open files. Connections get an eighth of the
/// memory. They get half of the files: the data needs files too.
pub fn connections_max(memory: u64, files: u64) -> usize {
    let max = (memory / 8 / CONNECTION_BYTES).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
    usize::try_from(max.min(files / 2).max(1)).unwrap_or(usize::MAX)
}

/// Accepts connections up to a limit.
pub struct Acceptor {
    slots: Arc<Semaphore>,
    max: usize,
    env: Env,
    open: IntGauge,
    refused: IntCounter,
}

/// Counts a connection until it is dropped.
struct Slot {
    open: IntGauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Acceptor {
    /// At most one per registry of metrics.
    pub fn new(max: usize, env: Env, metrics: &Metrics) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Acceptor {
            slots: Arc::new(Semaphore::new(max)),
            max,
            env,
            open: metrics.gauge("stele_connections", "Open connections of clients."),
            refused: metrics.counter(
                "stele_connections_refused_total",
                "Connections closed immediately because there were too many.",
            ),
        }
    }

    /// Accepts connections until this future is dropped. `serve` runs on the connection's loop, to the connection's end.
    pub async fn accept<F>(
        &self,
        listener: &TcpListener,
        loops: &EventLoops,
        serve: impl Fn(TcpStream) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    let Some(slot) = self.slot() else {
                        self.refused.inc();
                        continue;
                    };
                    if let Some(place) = loops.place() {
                        hand_over(socket, place, slot, serve.clone());
                    }
                }
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    self.env.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits until all connections have ended. Others must not be accepted meanwhile.
    pub async fn all_ended(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        let _ = self.slots.acquire_many(all).await;
    }

    fn slot(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        self.open.inc();
        Some(Slot {
            open: self.open.clone(),
            _permit: permit,
        })
    }
}

/// Whether an error concerns only the one connection that was about to be accepted.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Sets the options of a connection's socket.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(SILENCE_MAX)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES_MAX);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}

/// Moves a socket to its loop: a socket is registered with the runtime that polls it.
fn hand_over<F>(socket: TcpStream, place: Place, slot: Slot, serve: impl Fn(TcpStream) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let moved = prepare(&socket).and_then(|()| socket.into_std());
    match moved {
        Ok(socket) => place.spawn(move || async move {
            match TcpStream::from_std(socket) {
                Ok(socket) => serve(socket).await,
                Err(error) => tracing::warn!(%error, "a connection was lost"),
            }
            drop(slot);
        }),
        // The client is gone.
        Err(error) => tracing::debug!(%error, "a connection ended before it began"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use stele_env::tokio_env::TokioRuntime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// An acceptor of this many connections that echo.
    async fn accepting(max: usize, metrics: &Metrics) -> (Arc<Acceptor>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Arc::new(Acceptor::new(max, TokioRuntime::current(), metrics));
        let accepting = Arc::clone(&acceptor);
        tokio::spawn(async move {
            let loops = EventLoops::start(2).unwrap();
            let echo = |mut socket: TcpStream| async move {
                let (mut from, mut to) = socket.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            };
            accepting.accept(&listener, &loops, echo).await;
        });
        (acceptor, address)
    }

    async fn echoes(socket: &mut TcpStream) -> bool {
        let mut byte = [7];
        socket.write_all(&byte).await.is_ok() && socket.read_exact(&mut byte).await.is_ok()
    }

    #[tokio::test]
    async fn one_too_many_is_closed_until_another_ends() {
        let metrics = Metrics::new();
        let (acceptor, at) = accepting(1, &metrics).await;
        let mut first = TcpStream::connect(at).await.unwrap();
        assert!(echoes(&mut first).await);
        let mut second = TcpStream::connect(at).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0, "closed");
        let shown = metrics.render();
        assert!(shown.contains("stele_connections_refused_total 1") && shown.contains("stele_connections 1"));
        drop(first);
        acceptor.all_ended().await;
        let mut again = TcpStream::connect(at).await.unwrap();
        assert!(echoes(&mut again).await);
    }

    #[tokio::test]
    async fn silent_connections_are_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        assert!(!SockRef::from(&socket).keepalive().unwrap());
        prepare(&socket).unwrap();
        let options = SockRef::from(&socket);
        assert!(options.keepalive().unwrap() && socket.nodelay().unwrap());
        assert_eq!(options.tcp_keepalive_time().unwrap(), SILENCE_MAX);
    }

    #[test]
    fn files_are_left_for_the_data() {
        let of = |files| connections_max(64 << 20, files);
        assert_eq!((of(u64::MAX), of(1_024), of(0)), (1_024, 512, 1));
        assert_eq!(connections_max(u64::MAX, u64::MAX), CONNECTIONS_MAX as usize);
    }
}
