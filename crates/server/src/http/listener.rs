//! Limits connections to the pages and closes idle ones.
//!
//! Each connection is an open file, and the data needs files too. Abandoned connections, whether of a scraper on a
//! machine that was switched off or of an attacker, must not use them up. A connection over the limit is closed
//! immediately.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use axum::serve::Listener;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use stele_serving::{ClientStream, PortSecurity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Most connections: some dozens of scrapers and health checks.
const CONNECTIONS_MAX: usize = 256;

/// Longest idle time of a connection: longer than scrapers and health checks usually wait between two requests.
const IDLE_WAIT: Duration = Duration::from_secs(180);

/// Accepts connections up to the limit.
pub struct PageConnections {
    listener: TcpListener,
    security: PortSecurity,
    slots: Arc<Semaphore>,
}

impl PageConnections {
    /// Accepts from a listening socket.
    pub fn new(listener: TcpListener, security: PortSecurity) -> Self {
        Self::with_max(listener, security, CONNECTIONS_MAX)
    }

    fn with_max(listener: TcpListener, security: PortSecurity, max: usize) -> Self {
        PageConnections {
            listener,
            security,
            slots: Arc::new(Semaphore::new(max)),
        }
    }
}

impl Listener for PageConnections {
    type Io = PageConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (PageConnection, SocketAddr) {
        loop {
            // Pauses when the process is out of files.
            let (stream, from) = Listener::accept(&mut self.listener).await;
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                let alarm = Box::pin(sleep(IDLE_WAIT));
                let connection = PageConnection {
                    stream: self.security.begin_later(stream),
                    alarm,
                    _slot: slot,
                };
                return (connection, from);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection.
pub struct PageConnection {
    stream: ClientStream,
    alarm: Pin<Box<Sleep>>,
    _slot: OwnedSemaphorePermit,
}

impl PageConnection {
    /// The result of a read or write, or an error when nothing happened for too long.
    fn unless_late<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.alarm.as_mut().reset(Instant::now() + IDLE_WAIT);
            return outcome;
        }
        ready!(self.alarm.as_mut().poll(cx));
        let late = io::Error::new(io::ErrorKind::TimedOut, "nothing happens on the connection");
        Poll::Ready(Err(late))
    }
}

impl AsyncRead for PageConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        self.unless_late(cx, read)
    }
}

impl AsyncWrite for PageConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_late(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.unless_late(cx, written)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn accepting(max: usize) -> (PageConnections, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        (PageConnections::with_max(listener, PortSecurity::plain(), max), at)
    }

    #[tokio::test]
    async fn one_too_many_is_closed() {
        let (mut pages, at) = accepting(1).await;
        let _first = TcpStream::connect(at).await.unwrap();
        let (accepted, _) = pages.accept().await;
        let mut second = TcpStream::connect(at).await.unwrap();
        let next = tokio::spawn(async move { pages.accept().await.1 });
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0, "closed");
        assert!(!next.is_finished());
        drop(accepted);
        let third = TcpStream::connect(at).await.unwrap();
        assert_eq!(next.await.unwrap(), third.local_addr().unwrap());
    }

    #[tokio::test]
    async fn nothing_happens_for_long() {
        let (mut pages, at) = accepting(9).await;
        let mut client = TcpStream::connect(at).await.unwrap();
        let (mut accepted, _) = pages.accept().await;
        client.write_all(b"GET").await.unwrap();
        let mut buffer = [0; 100];
        assert_eq!(accepted.read(&mut buffer).await.unwrap(), 3);
        accepted.alarm = Box::pin(sleep(Duration::from_millis(10)));
        let late = accepted.read(&mut buffer).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
