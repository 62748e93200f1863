//! The kind of error when a connection is lost, by phase.

use super::support::*;
use crate::frame::{Encoded, FrameKind, OUTCOME_UNKNOWN};
use crate::handshake::{Answer, HELLO_BYTES, Refusal, VERSIONS};
use crate::remote::Losses;
use bytes::Bytes;
use std::future::pending;
use std::time::Duration;
use stele_client::{ServiceError, TabletService};
use stele_memory::Pool;
use stele_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nobody listens.
    Refused,
    /// Closed instead of an answer to the hello.
    InHandshake,
    /// The owner has restarted.
    NotTheOwner,
    /// Closed when half of the request was taken.
    HalfSent,
    /// Closed after the request.
    Sent,
    /// Closed within the answer.
    HalfAnswered,
    /// Garbage instead of an answer.
    Garbage,
    /// The owner says that the outcome is unknown.
    Unknown,
    /// The owner says that the tablet is not its own.
    NotMine,
}

use Phase::{Garbage, HalfAnswered, HalfSent, InHandshake, NotMine, NotTheOwner, Refused, Sent, Unknown};

/// Takes the owner's part, up to the loss.
async fn play(mut end: DuplexStream, phase: Phase) {
    if matches!(phase, InHandshake | NotTheOwner) {
        end.read_exact(&mut [0; HELLO_BYTES]).await.unwrap();
        let answer = Answer {
            version: Err(Refusal::Epoch),
            versions: VERSIONS,
            owner: OWNER,
        };
        if phase == NotTheOwner {
            end.write_all(&answer.encode()).await.unwrap();
        }
        return;
    }
    begin(&mut end).await;
    let mut head = [0; 24];
    end.read_exact(&mut head).await.unwrap();
    if phase == HalfSent {
        return;
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    end.read_exact(&mut vec![0; length - head.len()]).await.unwrap();
    let answer = match phase {
        HalfAnswered => Encoded::bare(FrameKind::Response, 1, &[]).head()[..10].to_vec(),
        Garbage => vec![0xa5; 40],
        Unknown => error(ErrorKind::Internal, OUTCOME_UNKNOWN),
        NotMine => error(ErrorKind::Unavailable, 0),
        _ => Vec::new(),
    };
    end.write_all(&answer).await.unwrap();
    if matches!(phase, Unknown | NotMine) {
        // The connection is whole.
        pending::<()>().await;
    }
}

fn error(kind: ErrorKind, flags: u8) -> Vec<u8> {
    let (header, body) = crate::messages::encode_error(&ServiceError::new(kind, "as told"));
    let frame = Encoded::new(FrameKind::Error, flags, 1, &header, body).unwrap();
    [frame.head(), &frame.body.concat()].concat()
}

/// The kinds of the errors of a mutate, a row operation, a read and a sample.
async fn kinds(phase: Phase) -> Vec<ErrorKind> {
    let mut kinds = Vec::new();
    for call in 0..4 {
        // A request is larger than a pipe, so that a part of it can be taken.
        let mut net = net(20, usize::from(phase == Refused));
        let remote = net.remote();
        let called = async {
            match call {
                0 => remote.mutate(TABLET, writes("a"), None).await.map(|_| ()),
                1 => remote.row_operation(TABLET, operation()).await.map(|_| ()),
                2 => {
                    let mut stream = remote.read(TABLET, scan()).await.unwrap();
                    stream.next().await.map(|_| ())
                }
                _ => remote.sample(TABLET, 1).await.map(|_| ()),
            }
        };
        let played = async {
            if let Some(end) = net.ends.recv().await {
                play(end, phase).await;
            }
            pending::<()>().await;
        };
        let result = tokio::select! {
            result = called => result,
            () = played => unreachable!(),
        };
        kinds.push(result.unwrap_err().kind);
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_says_whether_the_call_was_executed() {
    use ErrorKind::{Aborted, Unavailable};
    // Certainly not executed: the router repeats the call.
    for phase in [Refused, InHandshake, NotTheOwner, HalfSent, NotMine] {
        assert_eq!(kinds(phase).await, [Unavailable; 4], "{phase:?}");
    }
    // The outcome of a write is unknown, a read may be repeated.
    for phase in [Sent, HalfAnswered, Garbage] {
        assert_eq!(
            kinds(phase).await,
            [Aborted, Aborted, Unavailable, Unavailable],
            "{phase:?}"
        );
    }
    assert_eq!(kinds(Unknown).await, [Aborted; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_comes_back_after_a_pause() {
    let mut net = net(1 << 16, 3);
    let env = net.env.clone();
    let (remote, tablets) = (net.remote(), tablets());
    let called = async {
        let mut refused = 0;
        while remote.mutate(TABLET, writes("a"), None).await.is_err() {
            refused += 1;
            env.sleep(Duration::from_millis(1)).await;
        }
        refused
    };
    let (refused, server) = tokio::join!(called, net.serve(&tablets, pending()));
    // Three connections were refused. In between, calls fail without one: for 10, 20 and 40 ms.
    assert!((30..100).contains(&refused), "{refused}");
    assert_eq!(*tablets.written.lock(), ["a"]);
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn only_connections_that_end_unasked_are_lost() {
    let losses = Losses::default();
    let mut watch = losses.watch();
    let mut net = net(1 << 16, 1);
    let env = net.env.clone();
    let (remote, tablets) = (net.remote_noting(&Pool::default(), &losses), tablets());
    let mut is_lost = async || {
        env.sleep(Duration::from_secs(2)).await;
        env.timeout(Duration::from_secs(1), watch.lost()).await.is_ok()
    };
    remote.mutate(TABLET, writes("a"), None).await.expect_err("refused");
    assert!(!is_lost().await, "it was never open");
    let called = async { remote.sample(TABLET, 1).await };
    let (called, server) = tokio::join!(called, net.serve(&tablets, pending()));
    called.expect("answered");
    assert!(!is_lost().await, "it is open");
    server.abort();
    assert!(is_lost().await);
    assert!(!is_lost().await, "it was lost once");
    let called = async { remote.sample(TABLET, 1).await };
    let (called, _server) = tokio::join!(called, net.serve(&tablets, pending()));
    called.expect("answered");
    drop(remote);
    assert!(!is_lost().await, "the caller has closed it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_connection_is_removed_with_its_caller() {
    let mut net = net(1 << 16, 0);
    let remote = net.remote();
    // The caller gives up before the handshake.
    let mut end = tokio::select! {
        _ = remote.mutate(TABLET, writes("a"), None) => unreachable!(),
        end = net.ends.recv() => end.unwrap(),
    };
    begin(&mut end).await;
    let first = async {
        let mut head = [0; 24];
        end.read_exact(&mut head).await.unwrap();
        head[8]
    };
    let call = tokio::select! {
        _ = remote.sample(TABLET, 1) => unreachable!(),
        call = first => call,
    };
    assert_eq!(call, 2, "the first request was never sent");
}

/// Bytes that a slow server takes of its socket in each second, and seconds for a large request.
const SLOW: (usize, u64) = (64 << 10, 32);

/// A request that arrives slowly is no silence, however long it takes; the server answers nothing before it is whole.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_a_request_is_alive() {
    let wait = Duration::from_secs(1_000);
    for (stops_after, kind) in [(SLOW.1 / 2, ErrorKind::Unavailable), (SLOW.1 + 1, ErrorKind::Aborted)] {
        let mut net = net(SLOW.0, 0);
        let env = net.env.clone();
        let remote = net.remote();
        let request = Bytes::from(vec![7; SLOW.0 * SLOW.1 as usize]);
        let started = env.now();
        let taken = async {
            let mut end = net.begun().await;
            for _ in 0..stops_after {
                env.sleep(Duration::from_secs(1)).await;
                let _ = end.read(&mut vec![0; SLOW.0]).await.unwrap();
            }
            pending::<()>().await;
        };
        let error = tokio::select! {
            called = remote.control(request, wait) => called.unwrap_err(),
            () = taken => unreachable!(),
        };
        assert_eq!(error.kind, kind, "{error}");
        let after = (env.now() - started).as_secs();
        let expected = stops_after + 10;
        assert!(
            (expected - 1..expected + 3).contains(&after),
            "{after} instead of {expected}"
        );
    }
}
