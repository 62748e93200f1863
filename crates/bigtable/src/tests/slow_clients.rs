//! Tests of clients that stop reading, in virtual time.

#![allow(clippy::disallowed_methods, reason = "time is tokio's, which the tests let pass")]

use super::*;
use crate::testing::{RowMerger, clock};
use crate::wire;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::Instant;
use tonic::Streaming;
use tonic::codegen::http;

/// Rows that are spread over many messages.
const ROWS: usize = 3;
const ROW_BYTES: usize = 4_000_000;

/// Longer than a read waits for its reservation.
const LONG: Duration = Duration::from_secs(3_600);

/// A front end with a budget of 256 MiB, 32 MiB of which are for responses.
async fn harness() -> Harness {
    let harness = Harness::with_pool(CallLimits::for_memory(256 << 20), Pool::new(256 << 20), clock::env());
    harness.tables().create_table(table_request("t")).await.unwrap();
    for number in 0..ROWS {
        let request = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: format!("r{number:02}").into(),
            mutations: vec![set("f", "q", 1_000, vec![number as u8; ROW_BYTES])],
            ..Default::default()
        };
        harness.data().mutate_row(request).await.unwrap();
    }
    harness
}

async fn scan(harness: &Harness) -> Result<Streaming<v2::ReadRowsResponse>, Status> {
    let request = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    };
    Ok(harness.data().read_rows(request).await?.into_inner())
}

/// A scan of which one message was taken.
async fn paused(harness: &Harness) -> Result<Streaming<v2::ReadRowsResponse>, Status> {
    let mut stream = scan(harness).await?;
    assert!(stream.message().await?.is_some());
    Ok(stream)
}

/// Reads to the end: the number of messages, and the outcome.
async fn rest(stream: &mut Streaming<v2::ReadRowsResponse>) -> (usize, Result<(), Status>) {
    let mut messages = 0;
    loop {
        match stream.message().await {
            Ok(Some(_)) => messages += 1,
            Ok(None) => return (messages, Ok(())),
            Err(status) => return (messages, Err(status)),
        }
    }
}

async fn whole(harness: &Harness) -> usize {
    let mut stream = scan(harness).await.unwrap();
    let mut merger = RowMerger::new(false);
    while let Some(response) = stream.message().await.unwrap() {
        let response = wire::ReadRowsResponse::decode(response.encode_to_vec().as_slice()).unwrap();
        merger.feed(&response).unwrap();
    }
    merger.finish().unwrap().len()
}

fn given_up(harness: &Harness) -> usize {
    let metrics = harness.metrics.render();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("stele_bigtable_responses_cancelled_total "));
    line.unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_may_pause_as_long_as_no_other_needs_its_memory() {
    let harness = harness().await;
    let mut stream = paused(&harness).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(whole(&harness).await, ROWS, "there is memory for both");
    let (messages, end) = rest(&mut stream).await;
    assert!(end.is_ok() && messages >= ROWS - 1, "{messages} {end:?}");
    assert_eq!(given_up(&harness), 0);
}

#[tokio::test(start_paused = true)]
async fn forty_clients_that_pause_do_not_stop_others() {
    let harness = harness().await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(paused(&harness).await.unwrap());
    }
    let begun = Instant::now();
    assert_eq!(whole(&harness).await, ROWS);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // A client of a cancelled response gets UNAVAILABLE after whole messages. Not all responses were cancelled.
    let mut broken = 0;
    for stream in &mut streams {
        let (_, end) = rest(stream).await;
        if let Err(status) = end {
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains("read nothing"), "{status}");
            broken += 1;
        }
    }
    assert!((24..40).contains(&broken), "{broken}");
    assert_eq!(given_up(&harness), broken);
    // All reservations have been released.
    drop(streams);
    assert_eq!(whole(&harness).await, ROWS);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_client_holds_for_its_stream() {
    let harness = harness().await;
    let mut request = Request::new(v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    });
    request.set_timeout(Duration::from_secs(100));
    let mut stream = harness.data().read_rows(request).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_secs(99)).await;
    assert!(stream.message().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (messages, end) = rest(&mut stream).await;
    assert_eq!(end.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(messages < ROWS - 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_client_holds_for_a_read_that_waits() {
    let harness = harness().await;
    // Each holds the reservation of a batch, and nothing is left.
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(paused(&harness).await.unwrap());
    }
    let mut request = Request::new(v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    });
    request.set_timeout(Duration::from_secs(2));
    let begun = Instant::now();
    assert_eq!(code(harness.data().read_rows(request).await), Code::DeadlineExceeded);
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

type Client = h2::client::SendRequest<Bytes>;

/// A client's side of a connection. Once it is deaf it reads nothing.
struct Socket(DuplexStream, Arc<AtomicBool>);

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.1.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Pin::new(&mut self.0).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A connection with these windows and with space for some bytes on their way, and the switch that makes the client deaf.
async fn connected(harness: &Harness, windows: u32, bytes: usize) -> (Client, Arc<AtomicBool>) {
    let (client, server) = tokio::io::duplex(bytes);
    let (service, env) = (harness.service.clone(), clock::env());
    tokio::spawn(async move {
        stele_serving::serve(server, service, crate::HTTP2_SETTINGS, env, std::future::pending()).await
    });
    let deaf = Arc::new(AtomicBool::new(false));
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(windows)
        .initial_connection_window_size(windows.max(1 << 16));
    let (client, connection) = builder.handshake(Socket(client, Arc::clone(&deaf))).await.unwrap();
    tokio::spawn(connection);
    (client.ready().await.unwrap(), deaf)
}

/// A connection whose client opens no windows, so that it gets the heads of responses only.
async fn without_windows(harness: &Harness) -> Client {
    connected(harness, 0, 1 << 20).await.0
}

/// A connection whose client opens the largest windows, and reads nothing any more.
async fn deaf(harness: &Harness, bytes: usize) -> Client {
    let (client, deaf) = connected(harness, i32::MAX as u32, bytes).await;
    // It has read the server's settings, and waits for more.
    tokio::time::sleep(Duration::from_millis(1)).await;
    deaf.store(true, Ordering::Relaxed);
    client
}

/// Begins a call with the given message, of which some bytes are not sent.
fn call(
    client: &mut Client,
    method: &str,
    message: &impl prost::Message,
    withheld: usize,
) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let head = http::Request::post(format!("http://test/google.bigtable.v2.Bigtable/{method}"));
    let (response, mut body) = client.send_request(head.body(()).unwrap(), false).unwrap();
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message.encoded_len() as u32).to_be_bytes());
    message.encode(&mut bytes).unwrap();
    bytes.truncate(bytes.len() - withheld);
    body.send_data(bytes.into(), withheld == 0).unwrap();
    (response, body)
}

/// A call whose response has begun.
async fn begun(client: &mut Client, method: &str, message: &impl prost::Message) -> h2::RecvStream {
    call(client, method, message, 0).0.await.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn clients_that_take_nothing_do_not_keep_others_out() {
    let limits = CallLimits {
        calls_max: 2,
        ..CallLimits::default()
    };
    let harness = Harness::with_pool(limits, Pool::default(), clock::env());
    let ping = v2::PingAndWarmRequest {
        name: INSTANCE.into(),
        ..Default::default()
    };
    let write = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![set("f", "q", 0, "v")],
        ..Default::default()
    };
    harness.tables().create_table(table_request("t")).await.unwrap();
    let mut client = without_windows(&harness).await;
    let mut read = begun(&mut client, "PingAndWarm", &ping).await;
    let mut change = begun(&mut client, "MutateRow", &write).await;
    tokio::time::sleep(LONG).await;
    // Nobody has needed their places. Each call that is refused gets one for the next.
    let mut held = Vec::new();
    for _ in 0..2 {
        assert_eq!(
            code(harness.data().ping_and_warm(ping.clone()).await),
            Code::Unavailable
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
        held.push(scan(&harness).await.unwrap());
    }
    for (stalled, expected) in [
        (&mut read, h2::Reason::REFUSED_STREAM),
        (&mut change, h2::Reason::CANCEL),
    ] {
        let end = stalled.data().await.unwrap().unwrap_err();
        assert_eq!(end.reason(), Some(expected));
    }
}

fn in_flight(harness: &Harness) -> usize {
    let metrics = harness.metrics.render();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("stele_bigtable_requests_in_flight "));
    line.unwrap().parse().unwrap()
}

/// A table with a row of this size, and a request for the row.
async fn with_row(harness: &Harness, bytes: usize) -> v2::ReadRowsRequest {
    harness.tables().create_table(table_request("t")).await.unwrap();
    harness.put("row", "f", "q", vec![7; bytes]).await;
    v2::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(v2::RowSet {
            row_keys: vec!["row".into()],
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The transport takes small responses whole, and their calls would end while it holds them.
#[tokio::test(start_paused = true)]
async fn responses_that_cannot_be_written_count_and_do_not_keep_others_out() {
    let limits = CallLimits {
        calls_max: 20,
        ..CallLimits::default()
    };
    let harness = Harness::with_pool(limits, Pool::default(), clock::env());
    let read = with_row(&harness, 60 << 10).await;
    let mut client = deaf(&harness, 100).await;
    let _calls: Vec<_> = (0..40).map(|_| call(&mut client, "ReadRows", &read, 0)).collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Others take the places of the responses that the connection has gathered.
    let mut held = Vec::new();
    while let Ok(response) = harness.data().read_rows(read.clone()).await {
        held.push(response);
    }
    assert!(held.len() <= 2, "{}", held.len());
    let refused = || async { code(harness.data().read_rows(read.clone()).await) };
    assert_eq!(refused().await, Code::Unavailable, "clients have some seconds");
    tokio::time::sleep(Duration::from_secs(2)).await;
    // One of them may be the response that is being written, whose memory is not freed.
    for _ in 0..2 {
        assert_eq!(refused().await, Code::Unavailable);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(refused().await, Code::Ok);
    // Its connection ends when it has taken nothing for a while.
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(in_flight(&harness), held.len());
}

/// The transport holds the last pieces of these responses, and all of their reservations with them.
#[tokio::test(start_paused = true)]
async fn responses_whose_ends_cannot_be_written_do_not_keep_their_reservations() {
    let harness = Harness::with_pool(CallLimits::for_memory(256 << 20), Pool::new(256 << 20), clock::env());
    let read = with_row(&harness, 900_000).await;
    let mut calls = Vec::new();
    for _ in 0..40 {
        let mut client = deaf(&harness, 800_000).await;
        calls.push((call(&mut client, "ReadRows", &read, 0), client));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    assert_eq!(code(harness.data().read_rows(read).await), Code::Ok);
    assert!(begun.elapsed() > Duration::from_secs(1), "there was memory");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_no_request_do_not_keep_others_out() {
    let limits = CallLimits {
        calls_max: 2,
        ..CallLimits::default()
    };
    let harness = Harness::with_pool(limits, Pool::default(), clock::env());
    let read = with_row(&harness, 1_000_000).await;
    let write = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        mutations: vec![set("f", "q", 0, vec![7; 1_500_000])],
        ..Default::default()
    };
    let (mut client, _) = connected(&harness, 1 << 20, 4 << 20).await;
    // All but the last byte of the one, and nothing of the other.
    let (_uploaded, _rest) = call(&mut client, "MutateRow", &write, 1);
    let withheld = read.encoded_len() + 4;
    let (unsent, mut body) = call(&mut client, "ReadRows", &read, withheld);
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Some bytes now and then are not enough.
    body.send_data(Bytes::from_static(&[0]), false).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let call = || async { code(harness.data().read_rows(read.clone()).await) };
    assert_eq!(call().await, Code::Unavailable);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(call().await, Code::Ok);
    let given_up = unsent.await.unwrap();
    let status = Status::from_header_map(given_up.headers()).unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("arrives slowly"), "{status}");
    assert_eq!(in_flight(&harness), 1, "the upload arrives fast enough");
}

/// The families of a table that was created again have the numbers of former families.
#[tokio::test(start_paused = true)]
async fn a_read_that_waits_does_not_read_another_table_of_the_same_name() {
    let harness = harness().await;
    // Each holds the reservation of a batch, and nothing is left.
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(paused(&harness).await.unwrap());
    }
    let made_again = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let delete = admin::DeleteTableRequest { name: TABLE.into() };
        harness.tables().delete_table(delete).await.unwrap();
        let mut other = table_request("t");
        let families = other.table.as_mut().map(|table| &mut table.column_families);
        families.unwrap().retain(|name, _| name == "g");
        harness.tables().create_table(other).await.unwrap();
        harness.put("r", "g", "q", "v").await;
    };
    let begun = Instant::now();
    let (waited, ()) = tokio::join!(scan(&harness), made_again);
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(code(waited), Code::NotFound);
    drop(streams);
    assert_eq!(whole(&harness).await, 1);
}
