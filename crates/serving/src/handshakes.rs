//! Handshakes of TLS within a deadline and a limit.
//!
//! A handshake costs memory and a signature before anything is known about the client. At most a limited number run at a
//! time. One more ends the oldest: a client that works needs some milliseconds, so the oldest is one that stays silent on
//! purpose. Connections that stay silent thus cannot keep others out.

use crate::warnings::Warnings;
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntCounterVec, Metrics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time for a handshake: two round trips and a signature.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Handshakes that run at a time. Each has buffers of up to some 40 KiB, so all have 20 MB.
pub const HANDSHAKES_MAX: usize = 512;

/// The handshakes that run.
pub struct Handshakes {
    env: Env,
    wait: Duration,
    max: usize,
    running: Mutex<Running>,
    failures: IntCounterVec,
    warnings: Warnings,
}

#[derive(Default)]
struct Running {
    next: u64,
    /// By age. Dropping a sender ends its handshake.
    stops: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Handshakes {
    /// At most one per registry of metrics.
    pub fn new(env: Env, metrics: &Metrics) -> Self {
        Self::with_limits(env, metrics, HANDSHAKES_MAX, HANDSHAKE_WAIT)
    }

    /// The same for the port of other servers: clients cannot take their places, nor they those of clients.
    pub fn of_peers(env: Env, metrics: &Metrics) -> Self {
        let failures = metrics.counters(
            "stele_peer_tls_handshakes_failed_total",
            "TLS handshakes on the port for other servers that failed: refused by either side, too slow, or ended because too \
             many ran.",
            &["cause"],
        );
        Self::counting(env, failures, HANDSHAKES_MAX, HANDSHAKE_WAIT)
    }

    /// With other limits.
    pub fn with_limits(env: Env, metrics: &Metrics, max: usize, wait: Duration) -> Self {
        let failures = metrics.counters(
            "stele_tls_handshakes_failed_total",
            "TLS handshakes that failed: refused by either side, too slow, or ended because too many ran.",
            &["cause"],
        );
        Self::counting(env, failures, max, wait)
    }

    fn counting(env: Env, failures: IntCounterVec, max: usize, wait: Duration) -> Self {
        Handshakes {
            warnings: Warnings::new(env.clone()),
            env,
            wait,
            max: max.max(1),
            running: Mutex::default(),
            failures,
        }
    }

    /// The server's part of a handshake.
    pub async fn accept<T>(&self, socket: T, config: Arc<ServerConfig>) -> io::Result<TlsStream<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let (turn, stopped) = self.begin();
        let handshake = TlsAcceptor::from(config).accept(socket);
        let either = futures::future::select(handshake, stopped);
        let outcome = match self.env.timeout(self.wait, either).await {
            Ok(futures::future::Either::Left((outcome, _))) => outcome.map_err(|error| ("refused", error)),
            Ok(futures::future::Either::Right(_)) => Err(("crowded", io::ErrorKind::ConnectionAborted.into())),
            Err(_) => Err(("slow", io::ErrorKind::TimedOut.into())),
        };
        drop(turn);
        outcome.map_err(|(cause, error)| {
            self.failures.with_label_values(&[cause]).inc();
            error
        })
    }

    /// Tells the operator of a handshake that failed, in a log that nobody can fill.
    pub(crate) fn tell(&self, event: &str, error: &io::Error) {
        self.warnings.tell_of_caller(event, error);
    }

    /// Takes part, and ends the oldest if there are too many.
    fn begin(&self) -> (Turn<'_>, oneshot::Receiver<()>) {
        let (stop, stopped) = oneshot::channel();
        let mut running = self.running.lock();
        let number = running.next;
        running.next += 1;
        running.stops.insert(number, stop);
        if running.stops.len() > self.max {
            running.stops.pop_first();
        }
        debug_assert!(running.stops.len() <= self.max, "one ends for each that is too many");
        (Turn { of: self, number }, stopped)
    }
}

/// Counts a handshake until it is dropped.
struct Turn<'h> {
    of: &'h Handshakes,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.running.lock().stops.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;
    use crate::tls::{Application, Tls};
    use stele_env::tokio_env::TokioRuntime;
    use tokio::io::AsyncReadExt;

    fn handshakes(max: usize, metrics: &Metrics) -> Arc<Handshakes> {
        let wait = Duration::from_secs(3);
        Arc::new(Handshakes::with_limits(TokioRuntime::current(), metrics, max, wait))
    }

    fn config() -> Arc<ServerConfig> {
        let material = Authority::new("ca").server();
        Tls::new(&material).unwrap().config(Application::Unnamed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_cut_off() {
        let metrics = Metrics::new();
        let (_client, server) = tokio::io::duplex(1 << 16);
        let error = handshakes(9, &metrics).accept(server, config()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(
            metrics
                .render()
                .contains("stele_tls_handshakes_failed_total{cause=\"slow\"} 1")
        );
    }

    #[tokio::test(start_paused = true)]
    #[allow(clippy::disallowed_methods, reason = "handshakes are tasks of the test's runtime")]
    async fn the_oldest_makes_room() {
        let metrics = Metrics::new();
        let handshakes = handshakes(2, &metrics);
        let config = config();
        let mut clients = Vec::new();
        let mut running = Vec::new();
        for _ in 0..3 {
            let (client, server) = tokio::io::duplex(1 << 16);
            let (handshakes, config) = (Arc::clone(&handshakes), Arc::clone(&config));
            running.push(tokio::spawn(async move {
                handshakes.accept(server, config).await.map(drop)
            }));
            clients.push(client);
            tokio::task::yield_now().await;
        }
        let oldest = running.remove(0).await.unwrap().unwrap_err();
        assert_eq!(oldest.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(clients[0].read(&mut [0]).await.unwrap(), 0, "closed");
        assert!(running.iter().all(|each| !each.is_finished()));
        for late in running {
            assert_eq!(late.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(handshakes.running.lock().stops.is_empty());
    }

    #[tokio::test]
    async fn plain_text_is_refused() {
        use tokio::io::AsyncWriteExt;
        let metrics = Metrics::new();
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        assert!(handshakes(9, &metrics).accept(server, config()).await.is_err());
        assert!(metrics.render().contains("cause=\"refused\"} 1"));
    }
}
