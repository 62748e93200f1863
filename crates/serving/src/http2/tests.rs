//! Connections in memory, with the `h2` crate as the client. Time is tokio's, which the tests let pass.
#![allow(clippy::disallowed_methods, reason = "clients are tasks of the test's runtime")]

use super::*;
use futures::FutureExt;
use http_body::Frame;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stele_env::tokio_env::TokioRuntime;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::Notify;

const SETTINGS: Http2Settings = Http2Settings {
    stream_window: 1 << 20,
    connection_window: 4 << 20,
    frame_bytes_max: 64 << 10,
    header_bytes_max: 16 << 10,
    streams_max: 100,
    broken_streams_max: 10,
    begin_wait: Duration::from_secs(10),
    probe_interval: Duration::from_secs(60),
    probe_wait: Duration::from_secs(20),
};

/// Bytes that fit into the pipe of a connection.
const PIPE_BYTES: usize = 1 << 20;

/// The bytes with which a client begins: it has no settings of its own.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A body of which the transport queues all without a pause.
const PIECE_BYTES: usize = SEND_BUFFER_BYTES - 10_000;

/// Pieces of a body, then the end.
struct Pieces {
    left: VecDeque<Bytes>,
    taken: Arc<AtomicUsize>,
    gives_up: Arc<AtomicBool>,
    _alive: Alive,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.left.pop_front();
        self.taken.fetch_add(usize::from(piece.is_some()), Ordering::Relaxed);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Serves `/now` immediately, `/slow` after a millisecond of the thread, `/later` when told, `/never` never, `/piece` with a body of
/// [`PIECE_BYTES`], and `/large` with one of 64 pieces of 64 KiB.
#[derive(Clone, Default)]
struct Model {
    later: Arc<Notify>,
    /// Requests whose future exists.
    alive: Arc<AtomicUsize>,
    /// Bodies of responses.
    bodies: Arc<AtomicUsize>,
    /// Bodies are given up that are not taken.
    gives_up: Arc<AtomicBool>,
    /// Pieces of bodies that the transport has taken.
    taken: Arc<AtomicUsize>,
    /// Slow requests since another task had a turn, and the most of them.
    slow: Arc<AtomicUsize>,
    slow_most: Arc<AtomicUsize>,
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Service for Model {
    type Body = Pieces;

    fn call(
        &self,
        request: http::Request<RequestBody>,
    ) -> impl Future<Output = http::Response<Pieces>> + Send + 'static {
        let model = self.clone();
        model.alive.fetch_add(1, Ordering::Relaxed);
        let alive = Alive(Arc::clone(&model.alive));
        async move {
            let _alive = alive;
            let pieces = match request.uri().path() {
                "/later" => {
                    model.later.notified().await;
                    1
                }
                "/never" => std::future::pending().await,
                "/slow" => {
                    std::thread::sleep(TURN);
                    let slow = 1 + model.slow.fetch_add(1, Ordering::Relaxed);
                    model.slow_most.fetch_max(slow, Ordering::Relaxed);
                    1
                }
                "/large" => 64,
                _ => 1,
            };
            let bytes = match request.uri().path() {
                "/large" => 64 << 10,
                "/piece" => PIECE_BYTES,
                _ => 300,
            };
            let piece = Bytes::from(vec![7; bytes]);
            model.bodies.fetch_add(1, Ordering::Relaxed);
            http::Response::new(Pieces {
                left: vec![piece; pieces].into(),
                taken: Arc::clone(&model.taken),
                gives_up: Arc::clone(&model.gives_up),
                _alive: Alive(Arc::clone(&model.bodies)),
            })
        }
    }

    fn poll_give_up(body: &mut Pieces, _: &mut Context<'_>) -> Poll<h2::Reason> {
        match body.gives_up.load(Ordering::Relaxed) {
            true => Poll::Ready(h2::Reason::CANCEL),
            false => Poll::Pending,
        }
    }
}

/// Counts the writes of the server.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

type Client = h2::client::SendRequest<Bytes>;
type Served = tokio::task::JoinHandle<Result<(), ConnectionError>>;

/// A served connection, its client, and the number of the server's writes.
async fn connected(model: &Model, drain: Arc<Notify>) -> (Client, Served, Arc<AtomicUsize>) {
    let (client, server) = duplex(PIPE_BYTES);
    let writes = Arc::new(AtomicUsize::new(0));
    let socket = Counted(server, Arc::clone(&writes));
    let (model, env) = (model.clone(), TokioRuntime::current());
    let served = tokio::spawn(async move { serve(socket, model, SETTINGS, env, drain.notified()).await });
    let mut builder = h2::client::Builder::new();
    // A stream that is not read must not use up the window of all.
    builder.initial_connection_window_size(1 << 20);
    let (client, connection) = builder.handshake(client).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    (client.ready().await.unwrap(), served, writes)
}

fn send(client: &mut Client, path: &str) -> h2::client::ResponseFuture {
    let request = http::Request::builder()
        .uri(format!("http://test{path}"))
        .body(())
        .unwrap();
    client.send_request(request, true).unwrap().0
}

async fn body(response: h2::client::ResponseFuture) -> usize {
    let mut body = response.await.unwrap().into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_ready_leave_with_one_write() {
    let model = Model::default();
    let (mut client, _served, writes) = connected(&model, Arc::default()).await;
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    let before = writes.load(Ordering::Relaxed);
    let sent: Vec<_> = (0..20).map(|_| send(&mut client, "/now")).collect();
    for response in sent {
        assert_eq!(body(response).await, 300);
    }
    assert_eq!(writes.load(Ordering::Relaxed) - before, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_do_not_hold_up_others() {
    let model = Model::default();
    let (mut client, _served, writes) = connected(&model, Arc::default()).await;
    let waiting: Vec<_> = (0..20).map(|_| send(&mut client, "/later")).collect();
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    assert_eq!(model.alive.load(Ordering::Relaxed), 20);
    let before = writes.load(Ordering::Relaxed);
    model.later.notify_waiters();
    for response in waiting {
        assert_eq!(body(response).await, 300);
    }
    assert_eq!(
        writes.load(Ordering::Relaxed) - before,
        1,
        "completed together, sent together"
    );
}

#[tokio::test]
async fn other_tasks_have_turns_while_a_connection_starts_many_requests() {
    let model = Model::default();
    let (mut client, _served, _) = connected(&model, Arc::default()).await;
    let slow = Arc::clone(&model.slow);
    tokio::spawn(poll_fn(move |cx| {
        slow.store(0, Ordering::Relaxed);
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    let sent: Vec<_> = (0..50).map(|_| send(&mut client, "/slow")).collect();
    for response in sent {
        assert_eq!(body(response).await, 300);
    }
    assert_eq!(model.slow_most.load(Ordering::Relaxed), 1, "each takes a turn");
}

#[tokio::test]
async fn requests_that_wait_end_while_others_arrive_all_the_time() {
    let model = Model::default();
    let (client, _served, _) = connected(&model, Arc::default()).await;
    let later = send(&mut client.clone(), "/later");
    for mut client in std::iter::repeat_n(client, 4) {
        tokio::spawn(async move {
            loop {
                body(send(&mut client, "/slow")).await;
            }
        });
    }
    while model.slow.load(Ordering::Relaxed) < 100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    model.later.notify_waiters();
    let ended = tokio::time::timeout(Duration::from_secs(30), body(later)).await;
    assert_eq!(ended, Ok(300));
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_with_its_stream_and_with_its_connection() {
    let model = Model::default();
    let (mut client, served, _) = connected(&model, Arc::default()).await;
    let (reset, kept) = (send(&mut client, "/never"), send(&mut client, "/never"));
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    assert_eq!(model.alive.load(Ordering::Relaxed), 2);
    drop(reset);
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    assert_eq!(model.alive.load(Ordering::Relaxed), 1);
    drop((kept, client));
    served.await.unwrap().unwrap();
    assert_eq!(model.alive.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_taken_as_the_client_reads_it() {
    let model = Model::default();
    let (mut client, _served, _) = connected(&model, Arc::default()).await;
    let large = send(&mut client, "/large");
    let response = large.await.unwrap();
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    // The default window of a stream is 64 KiB.
    let taken = model.taken.load(Ordering::Relaxed) - 1;
    assert!(taken <= 2, "{taken} pieces");
    let mut rest = response.into_body();
    let mut bytes = 0;
    while let Some(data) = rest.data().await {
        let data = data.unwrap();
        bytes += data.len();
        rest.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(bytes, 64 * (64 << 10));
}

#[tokio::test(start_paused = true)]
async fn a_drained_connection_ends_after_its_last_response() {
    let (model, drain) = (Model::default(), Arc::new(Notify::new()));
    let (mut client, served, _) = connected(&model, Arc::clone(&drain)).await;
    let last = send(&mut client, "/later");
    assert_eq!(body(send(&mut client, "/now")).await, 300);
    drain.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!served.is_finished());
    model.later.notify_waiters();
    assert_eq!(body(last).await, 300);
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_must_begin() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let begin = tokio::time::Instant::now();
    client.write_all(b"PRI * HTTP/2.0").await.unwrap();
    let served = serve(
        server,
        Model::default(),
        SETTINGS,
        TokioRuntime::current(),
        std::future::pending(),
    );
    assert!(matches!(served.await, Err(ConnectionError::NotBegun(_))));
    assert_eq!(begin.elapsed(), SETTINGS.begin_wait);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_is_found_and_a_silent_one_is_kept() {
    let model = Model::default();
    let (client, kept, _) = connected(&model, Arc::default()).await;
    let (mut gone, server) = duplex(PIPE_BYTES);
    let (service, env) = (model.clone(), TokioRuntime::current());
    let served = tokio::spawn(async move { serve(server, service, SETTINGS, env, std::future::pending()).await });
    // It begins, reads, and never answers.
    gone.write_all(BEGINNING).await.unwrap();
    let begin = tokio::time::Instant::now();
    let mut sink = Vec::new();
    gone.read_to_end(&mut sink).await.unwrap();
    assert!(matches!(served.await.unwrap(), Err(ConnectionError::Silent)));
    // It was heard in the first interval, silent in the second, and then probed.
    assert_eq!(begin.elapsed(), 2 * SETTINGS.probe_interval + SETTINGS.probe_wait);
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert!(!kept.is_finished(), "the other one answers probes");
    drop(client);
}

/// Its answer to a probe waits behind an upload, and other bytes come before.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_after_a_late_answer_is_found() {
    let (mut gone, server) = duplex(PIPE_BYTES);
    let (service, env) = (Model::default(), TokioRuntime::current());
    let served = tokio::spawn(async move { serve(server, service, SETTINGS, env, std::future::pending()).await });
    gone.write_all(BEGINNING).await.unwrap();
    let until_probe = 2 * SETTINGS.probe_interval + Duration::from_secs(1);
    tokio::time::sleep(until_probe).await;
    let mut sent = vec![0; PIPE_BYTES];
    let length = gone.read(&mut sent).await.unwrap();
    let is_probe = |frame: &&[u8]| frame.starts_with(b"\0\0\x08\x06\0\0\0\0\0");
    let mut answer = sent[..length].windows(17).find(is_probe).unwrap().to_vec();
    answer[4] = 1;
    gone.write_all(b"\0\0\x08\x06\0\0\0\0\0a probe!").await.unwrap();
    tokio::time::sleep(SETTINGS.probe_wait + Duration::from_secs(5)).await;
    gone.write_all(&answer).await.unwrap();
    let ended = tokio::time::timeout(4 * SETTINGS.probe_interval, served).await;
    assert!(matches!(ended.unwrap().unwrap(), Err(ConnectionError::Silent)));
}

/// The client learns that an upload was refused when much of it is under way.
#[tokio::test(start_paused = true)]
async fn refused_uploads_end_no_connection() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let (service, env) = (Model::default(), TokioRuntime::current());
    let served = tokio::spawn(async move { serve(server, service, SETTINGS, env, std::future::pending()).await });
    client.write_all(BEGINNING).await.unwrap();
    let streams = (0..SETTINGS.streams_max as u8).map(|n| 2 * n + 1);
    let begin = streams.clone().map(|stream| {
        let headers = b"\x83\x86\x44\x04/now\x41\x01t";
        [&[0, 0, headers.len() as u8, 1, 4, 0, 0, 0, stream], &headers[..]].concat()
    });
    client.write_all(&begin.collect::<Vec<_>>().concat()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let more = streams.map(|stream| [0, 0, 1, 0, 0, 0, 0, 0, stream, 7]);
    client.write_all(&more.collect::<Vec<_>>().concat()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!served.is_finished(), "all was for streams that the server has reset");
}

/// The deadlines of many calls pass before the server has read any of them.
#[tokio::test(start_paused = true)]
async fn calls_that_are_cancelled_before_they_are_taken_end_no_connection() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let model = Model::default();
    let (service, env) = (model.clone(), TokioRuntime::current());
    let headers = b"\x82\x86\x44\x06/never\x41\x01t";
    let call = |stream: u16| {
        let [high, low] = stream.to_be_bytes();
        [&[0, 0, headers.len() as u8, 1, 5, 0, 0, high, low], &headers[..]].concat()
    };
    let mut bytes = [BEGINNING, &call(1)].concat();
    // More than there may be streams: those that are cancelled do not count.
    for stream in (1..3 * SETTINGS.streams_max as u16).map(|n| 2 * n + 1) {
        bytes.extend(call(stream));
        let [high, low] = stream.to_be_bytes();
        // RST_STREAM with the code CANCEL.
        bytes.extend([0, 0, 4, 3, 0, 0, 0, high, low, 0, 0, 0, 8]);
    }
    client.write_all(&bytes).await.unwrap();
    let served = tokio::spawn(async move { serve(server, service, SETTINGS, env, std::future::pending()).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!served.is_finished(), "one call was not cancelled");
    assert_eq!(model.alive.load(Ordering::Relaxed), 1);
}

/// A client that has read nothing. It gives a window of 2^31 - 1 bytes to each stream and to the connection, and has begun some
/// requests for a path of six bytes.
async fn deaf(model: &Model, path: &[u8; 6], requests: u8) -> (DuplexStream, Served) {
    let (mut client, server) = duplex(100);
    let (service, env) = (model.clone(), TokioRuntime::current());
    let served = tokio::spawn(async move { serve(server, service, SETTINGS, env, std::future::pending()).await });
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend_from_slice(b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff");
    bytes.extend_from_slice(b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0");
    let headers = [b"\x82\x86\x44\x06", &path[..], b"\x41\x01t"].concat();
    for request in 0..requests {
        bytes.extend_from_slice(&[0, 0, headers.len() as u8, 1, 5, 0, 0, 0, 2 * request + 1]);
        bytes.extend_from_slice(&headers);
    }
    client.write_all(&bytes).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    (client, served)
}

const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0a probe!";

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_costs_one_buffer() {
    let model = Model::default();
    let (_client, _) = deaf(&model, b"/large", 1).await;
    let taken = model.taken.load(Ordering::Relaxed);
    assert!((1..=3).contains(&taken), "{taken} pieces of 64 KiB");
}

/// Otherwise no limit of a front end would bound the bytes that are queued for a client that reads nothing.
#[tokio::test(start_paused = true)]
async fn a_body_is_kept_until_it_is_written() {
    let model = Model::default();
    let (mut client, _served) = deaf(&model, b"/piece", 20).await;
    assert_eq!(model.taken.load(Ordering::Relaxed), 20, "all are with the transport");
    let kept = model.bodies.load(Ordering::Relaxed);
    assert!((18..=20).contains(&kept), "{kept}: the connection has gathered one");
    let mut sink = vec![0; 20 * PIECE_BYTES];
    client.read_exact(&mut sink).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(model.bodies.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_written_is_given_up() {
    let model = Model::default();
    let (mut client, served) = deaf(&model, b"/piece", 20).await;
    model.gives_up.store(true, Ordering::Relaxed);
    // Something that wakes the connection.
    client.write_all(PING).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kept = model.bodies.load(Ordering::Relaxed);
    assert!(kept <= 1, "{kept}: one is being written");
    let mut sink = vec![0; 1 << 10];
    while tokio::time::timeout(Duration::from_secs(1), client.read_exact(&mut sink))
        .await
        .is_ok()
    {}
    assert_eq!(model.bodies.load(Ordering::Relaxed), 0);
    assert!(!served.is_finished(), "the connection goes on");
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_whose_client_takes_nothing_though_it_sends() {
    let model = Model::default();
    let (mut silent, ended) = deaf(&model, b"/piece", 20).await;
    let (mut slow, goes_on) = deaf(&model, b"/piece", 20).await;
    for _ in 0..2 * OUTPUT_WAIT.as_secs() / 20 {
        assert!(!goes_on.is_finished());
        tokio::time::sleep(Duration::from_secs(20)).await;
        let _ = silent.write_all(PING).await;
        slow.write_all(PING).await.unwrap();
        slow.read_u8().await.unwrap();
    }
    let ended = ended.now_or_never().expect("it has ended").unwrap();
    assert!(matches!(ended, Err(ConnectionError::NotTaken)), "{ended:?}");
    assert!(!goes_on.is_finished());
    drop((slow, goes_on.await));
    assert_eq!(model.bodies.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_body_arrives_whole_under_tls() {
    let authority = crate::testing::Authority::new("ca");
    let tls = crate::Tls::new(&authority.server()).unwrap();
    // A small pipe: the stream under TLS takes bytes that its pipe does not, and must be asked to send them later.
    let (client, server) = duplex(1_000);
    let accept = tokio_rustls::TlsAcceptor::from(tls.config(crate::Application::Http2)).accept(server);
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let connect = tokio_rustls::TlsConnector::from(authority.client(None)).connect(name, client);
    let (server, client) = tokio::join!(accept, connect);
    let (server, env) = (server.unwrap(), TokioRuntime::current());
    tokio::spawn(async move { serve(server, Model::default(), SETTINGS, env, std::future::pending()).await });
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(8 << 20)
        .initial_connection_window_size(8 << 20);
    let (client, connection) = builder.handshake(client.unwrap()).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut client = client.ready().await.unwrap();
    for (path, bytes) in [("/large", 64 << 16), ("/now", 300)] {
        let arrived = tokio::time::timeout(Duration::from_secs(30), body(send(&mut client, path))).await;
        assert_eq!(arrived.unwrap(), bytes, "{path}");
    }
}
