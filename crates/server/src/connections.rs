//! Limits the connections of clients and closes those that stay silent.
//!
//! A connection costs memory before its first request, so the limit follows from the budget. A connection over the
//! limit is closed immediately. The client sees a busy server and not one that hangs. A connection that does not begin
//! HTTP/2 within a few seconds is closed, too: no layer above would notice it. The transport probes connections that
//! have begun. Each connection is an open file, and the data needs some of these: connections get half of the files
//! that the process may have.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use futures::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use stele_env::metrics::{IntCounter, IntGauge, Metrics};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

/// Memory of a connection with a few requests: buffers for reading and writing, tables of headers, its task.
const CONNECTION_BYTES: u64 = 64 << 10;

/// The least limit: some hundreds of clients with pools of four.
const CONNECTIONS_MIN: u64 = 1_024;

/// The greatest limit: each connection is an open file, and systems allow about 65,536 of them in all.
const CONNECTIONS_MAX: u64 = 16_384;

/// Pause after the system could not accept a connection for want of files or memory. Without it the failure would
/// repeat immediately and continuously.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time in which a connection must begin. The preface is one packet.
const BEGIN_WAIT: Duration = Duration::from_secs(10);

/// Bytes with which every HTTP/2 connection begins (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;

/// Accepts connections up to the limit.
pub struct Connections<I = TcpIncoming> {
    incoming: I,
    /// The end of the pause, if there is one.
    pause: Option<Pin<Box<Sleep>>>,
    slots: Arc<Semaphore>,
    open: IntGauge,
    refused: IntCounter,
}

impl<I> Connections<I> {
    /// A listener for this budget of memory and this number of open files. Connections get an eighth of the memory and
    /// half of the files.
    pub fn new(incoming: I, memory: u64, files: u64, metrics: &Metrics) -> Self {
        let max = (memory / 8 / CONNECTION_BYTES).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
        let max = max.min(files / 2).max(1);
        Self::with_max(incoming, usize::try_from(max).unwrap_or(usize::MAX), metrics)
    }

    fn with_max(incoming: I, max: usize, metrics: &Metrics) -> Self {
        Connections {
            incoming,
            pause: None,
            slots: Arc::new(Semaphore::new(max)),
            open: metrics.gauge("stele_connections", "Open connections of clients."),
            refused: metrics.counter(
                "stele_connections_refused_total",
                "Connections closed immediately because there were too many.",
            ),
        }
    }
}

/// Whether an error concerns only the one connection that was about to be accepted.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

impl<I: Stream<Item = io::Result<TcpStream>> + Unpin> Stream for Connections<I> {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let stream = match ready!(Pin::new(&mut self.incoming).poll_next(cx)) {
                Some(Ok(stream)) => stream,
                Some(Err(error)) if is_of_one(&error) => continue,
                Some(Err(error)) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    self.pause = Some(Box::pin(sleep(ACCEPT_PAUSE)));
                    continue;
                }
                None => return Poll::Ready(None),
            };
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
                self.refused.inc();
                continue;
            };
            self.open.inc();
            return Poll::Ready(Some(Ok(Connection {
                stream,
                beginning: Some(Beginning {
                    bytes: 0,
                    alarm: Box::pin(sleep(BEGIN_WAIT)),
                }),
                open: self.open.clone(),
                _slot: slot,
            })));
        }
    }
}

/// One connection.
pub struct Connection {
    stream: TcpStream,
    /// The deadline; until the preface has arrived.
    beginning: Option<Beginning>,
    open: IntGauge,
    _slot: OwnedSemaphorePermit,
}

struct Beginning {
    bytes: usize,
    alarm: Pin<Box<Sleep>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, into);
        let Some(beginning) = &mut this.beginning else {
            return read;
        };
        beginning.bytes += into.filled().len() - before;
        if beginning.bytes >= PREFACE_BYTES {
            this.beginning = None;
        } else if read.is_pending() {
            ready!(beginning.alarm.as_mut().poll(cx));
            let late = io::Error::new(io::ErrorKind::TimedOut, "the connection did not begin");
            return Poll::Ready(Err(late));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn accepting(max: usize, metrics: &Metrics) -> (Connections, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        (Connections::with_max(TcpIncoming::from(listener), max, metrics), at)
    }

    #[tokio::test]
    async fn one_too_many_is_closed_until_another_ends() {
        let metrics = Metrics::new();
        let (mut connections, at) = accepting(1, &metrics).await;
        let _first = TcpStream::connect(at).await.unwrap();
        let accepted = connections.next().await.unwrap().unwrap();
        let mut second = TcpStream::connect(at).await.unwrap();
        let mut third = tokio::spawn(async move { connections.next().await.map(|c| (c, connections)) });
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0, "closed");
        assert!(!third.is_finished());
        assert!(metrics.render().contains("stele_connections_refused_total 1"));
        drop(accepted);
        let _again = TcpStream::connect(at).await.unwrap();
        assert!((&mut third).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_system_without_files_is_not_asked_all_the_time() {
        let mut asked = 0;
        let incoming = futures::stream::repeat_with(|| {
            asked += 1;
            let no_files = rustix::io::Errno::MFILE;
            Err::<TcpStream, _>(io::Error::from(no_files))
        });
        let mut connections = Connections::with_max(incoming, 9, &Metrics::new());
        for _ in 0..3 {
            assert!(futures::poll!(connections.next()).is_pending());
        }
        drop(connections);
        assert_eq!(asked, 1);
    }

    #[tokio::test]
    async fn files_are_left_for_the_data() {
        let of = |files| {
            let connections = Connections::new(futures::stream::pending::<()>(), 64 << 20, files, &Metrics::new());
            connections.slots.available_permits()
        };
        assert_eq!((of(u64::MAX), of(1_024), of(0)), (1_024, 512, 1));
    }

    #[tokio::test]
    async fn a_connection_must_begin() {
        let (mut connections, at) = accepting(9, &Metrics::new()).await;
        let mut silent = TcpStream::connect(at).await.unwrap();
        silent.write_all(b"PRI * HTTP/2.0").await.unwrap();
        let mut accepted = connections.next().await.unwrap().unwrap();
        if let Some(beginning) = &mut accepted.beginning {
            beginning.alarm = Box::pin(sleep(Duration::from_millis(10)));
        }
        let mut buffer = [0; 100];
        let begun = Instant::now();
        assert_eq!(accepted.read(&mut buffer).await.unwrap(), 14);
        let late = accepted.read(&mut buffer).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < BEGIN_WAIT);
    }

    #[tokio::test]
    async fn what_has_begun_may_be_silent() {
        let (mut connections, at) = accepting(9, &Metrics::new()).await;
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut accepted = connections.next().await.unwrap().unwrap();
        let mut buffer = [0; 24];
        accepted.read_exact(&mut buffer).await.unwrap();
        assert!(accepted.beginning.is_none());
    }
}
