//! Serves connections to the pages, limits their number and closes idle ones.
//!
//! Each connection is an open file, and the data needs files too. Abandoned connections, whether of a scraper on a
//! machine that was switched off or of an attacker, must not use them up. Nor may they keep health checks away: a
//! connection without a request is closed after seconds, and one over the limit replaces the longest idle one.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the binary owns the sockets"
)]

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use stele_serving::{ClientStream, PortSecurity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, Sleep, sleep};

/// Most connections: some dozens of scrapers and health checks.
const CONNECTIONS_MAX: usize = 256;

/// Longest time from the beginning of a connection, or the end of a response, to the end of the next request's header. A
/// scraper that asks less often connects again, which takes a millisecond.
const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// Longest time without a byte while a request is received or answered: pages take seconds, and clients have slow networks.
const STALLED_WAIT: Duration = Duration::from_secs(180);

/// Serves connections up to the limit.
pub struct PageConnections {
    listener: TcpListener,
    security: PortSecurity,
    connections_max: usize,
    begun: Instant,
    tasks: JoinSet<()>,
    /// The connections of `tasks`.
    open: HashMap<Id, Open>,
}

/// A connection that is served.
struct Open {
    last_active: LastActive,
    task: AbortHandle,
}

/// The time of the last read or write of a connection.
#[derive(Clone)]
struct LastActive {
    begun: Instant,
    /// Microseconds since then.
    micros: Arc<AtomicU64>,
}

impl LastActive {
    fn now(begun: Instant) -> Self {
        let micros = Arc::default();
        let last = LastActive { begun, micros };
        last.note();
        last
    }

    fn note(&self) {
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros, Ordering::Relaxed);
    }
}

impl PageConnections {
    /// Of a listening socket.
    pub fn new(listener: TcpListener, security: PortSecurity) -> Self {
        Self::with_max(listener, security, CONNECTIONS_MAX)
    }

    fn with_max(listener: TcpListener, security: PortSecurity, connections_max: usize) -> Self {
        PageConnections {
            listener,
            security,
            connections_max,
            begun: Instant::now(),
            tasks: JoinSet::new(),
            open: HashMap::new(),
        }
    }

    /// Answers requests until it is dropped.
    pub async fn serve(mut self, router: Router) {
        loop {
            // Pauses when the process is out of files.
            let (socket, _) = Listener::accept(&mut self.listener).await;
            self.make_space().await;
            self.begin(socket, router.clone());
        }
    }

    /// Ends the longest idle connection if there is no space for another one, and waits for its end.
    async fn make_space(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        if self.tasks.len() < self.connections_max {
            return;
        }
        let open = self.open.values();
        let idle = open.min_by_key(|open| open.last_active.micros.load(Ordering::Relaxed));
        if let Some(idle) = idle {
            idle.task.abort();
        }
        if let Some(ended) = self.tasks.join_next_with_id().await {
            self.forget(ended);
        }
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
        debug_assert_eq!(self.open.len(), self.tasks.len(), "each connection has a task");
    }

    fn begin(&mut self, socket: TcpStream, router: Router) {
        let last_active = LastActive::now(self.begun);
        let connection = PageConnection {
            stream: self.security.begin_later(socket),
            alarm: Box::pin(sleep(STALLED_WAIT)),
            last_active: last_active.clone(),
        };
        let task = self.tasks.spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_WAIT)
                .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router));
            // Clients break off, and connections without a request are closed. Nobody needs to know.
            let _ = served.await;
        });
        self.open.insert(task.id(), Open { last_active, task });
        assert!(
            self.tasks.len() <= self.connections_max,
            "space was made for the connection"
        );
    }
}

/// One connection.
struct PageConnection {
    stream: ClientStream,
    alarm: Pin<Box<Sleep>>,
    last_active: LastActive,
}

impl PageConnection {
    /// The result of a read or write, or an error when nothing happened for too long.
    fn unless_late<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.last_active.note();
            self.alarm.as_mut().reset(Instant::now() + STALLED_WAIT);
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
    use axum::routing::post;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Pages with this limit of connections, which are served to the end of the test.
    async fn serving(max: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let pages = PageConnections::with_max(listener, PortSecurity::plain(), max);
        let answer = post(|body: String| async move { format!("{body}!") });
        tokio::spawn(pages.serve(Router::new().route("/", answer)));
        at
    }

    async fn connect(at: SocketAddr) -> TcpStream {
        TcpStream::connect(at).await.unwrap()
    }

    fn request(body: &str) -> String {
        format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{body}")
    }

    /// Asks, and reads the response.
    async fn ask(client: &mut TcpStream) {
        client.write_all(request("ok").as_bytes()).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"ok!") {
            assert_ne!(client.read_buf(&mut response).await.unwrap(), 0, "an answer");
        }
    }

    /// Waits for the end of a connection, and returns the seconds.
    async fn closed(client: &mut TcpStream) -> u64 {
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        begun.elapsed().as_secs()
    }

    #[tokio::test]
    async fn one_too_many_takes_the_place_of_the_longest_idle_one() {
        let at = serving(2).await;
        let (mut idle, mut used) = (connect(at).await, connect(at).await);
        ask(&mut idle).await;
        for _ in 0..3 {
            ask(&mut used).await;
            let mut next = connect(at).await;
            ask(&mut next).await;
            assert!(closed(&mut idle).await < REQUEST_WAIT.as_secs());
            idle = next;
        }
        ask(&mut used).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_closed() {
        let at = serving(9).await;
        let mut silent = connect(at).await;
        assert_eq!(closed(&mut silent).await, REQUEST_WAIT.as_secs());
        let mut slow = connect(at).await;
        slow.write_all(b"POST / HT").await.unwrap();
        assert_eq!(closed(&mut slow).await, REQUEST_WAIT.as_secs());
        let mut used = connect(at).await;
        for _ in 0..3 {
            ask(&mut used).await;
        }
        assert_eq!(closed(&mut used).await, REQUEST_WAIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_not_waited_for_without_end() {
        let at = serving(9).await;
        let mut client = connect(at).await;
        client.write_all(request("o").as_bytes()).await.unwrap();
        assert_eq!(closed(&mut client).await, STALLED_WAIT.as_secs());
    }
}
