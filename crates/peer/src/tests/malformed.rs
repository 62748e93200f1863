//! Frames that are not the protocol's: the connection ends, and nothing else happens.

use super::support::*;
use crate::error::ProtocolError;
use crate::frame::{Encoded, FrameKind};
use crate::handshake::{ANSWER_BYTES, Answer, Hello, Identity, Refusal, VERSIONS};
use crate::messages::{CallHeader, CallKind, samples};
use crate::segments::Segments;
use crate::server::{ConnectionError, PeerServer};
use bytes::Bytes;
use proptest::prelude::*;
use std::future::pending;
use stele_memory::{Part, Pool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(super) fn request(call: u64, kind: Result<CallKind, u16>, body: &[u8]) -> Vec<u8> {
    let header = CallHeader {
        kind,
        takes_partial_rows: false,
        has_caller: false,
        has_trace: false,
        tells_work: false,
        left: None,
        tablet: TABLET,
        credit: 1 << 20,
    };
    let mut content = Segments::default();
    content.slice(body);
    let frame = Encoded::new(FrameKind::Request, 0, call, &header.encode(), content).unwrap();
    [frame.head(), &frame.body.concat()].concat()
}

fn large(bytes: usize) -> Segments {
    let mut content = Segments::default();
    content.slice(&vec![0; bytes]);
    content
}

/// Serves these bytes behind a handshake; how the connection ends, and the bytes that it answers.
async fn served(bytes: Vec<u8>) -> (Result<(), ConnectionError>, Vec<u8>) {
    let net = net(1, 0);
    let pool = Pool::default();
    let server = PeerServer::new(net.env.clone(), &pool, OWNER, tablets());
    let (mut caller, end) = tokio::io::duplex(1 << 20);
    let talk = async move {
        greet(&mut caller).await;
        caller.write_all(&bytes).await.unwrap();
        settle().await;
        let _ = caller.shutdown().await;
        let mut answers = Vec::new();
        caller.read_to_end(&mut answers).await.unwrap();
        answers
    };
    let serve = async move { server.serve(end, pending()).await };
    let (ended, answers) = tokio::join!(serve, talk);
    assert_eq!(pool.of(Part::Requests).used(), 0, "memory is given back");
    assert_eq!(pool.of(Part::PeerRows).used(), 0, "memory is given back");
    (ended, answers)
}

async fn protocol_error(bytes: Vec<u8>) -> ProtocolError {
    match served(bytes).await.0 {
        Err(ConnectionError::Protocol(error)) => error,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn violations_end_the_connection() {
    let body = &samples::bodies().0[3];
    let valid = request(1, Ok(CallKind::Sample), body);
    assert!(served(valid.clone()).await.0.is_ok());
    let twice = [valid.clone(), valid.clone()].concat();
    assert_eq!(protocol_error(twice).await, ProtocolError::CallNumber(1));
    let mut damaged = valid.clone();
    damaged[50] ^= 1;
    assert_eq!(protocol_error(damaged.clone()).await, ProtocolError::Checksum("frame"));
    damaged[1] ^= 1;
    assert_eq!(protocol_error(damaged).await, ProtocolError::Checksum("head"));
    let answer = Encoded::bare(FrameKind::Response, 1, &[]).head().to_vec();
    assert_eq!(protocol_error(answer).await, ProtocolError::FrameKind(4));
    // Its head is enough: nothing is allocated for the rest.
    let rows = Encoded::new(FrameKind::Rows, 0, 1, &[], large(1 << 20)).unwrap();
    assert_eq!(protocol_error(rows.head().to_vec()).await, ProtocolError::FrameKind(5));
    let other = request(1, Ok(CallKind::Read), body);
    assert!(matches!(protocol_error(other).await, ProtocolError::Malformed { .. }));
}

#[tokio::test]
async fn unknown_calls_and_cancels_are_no_violations() {
    let mut bytes = request(1, Err(257), b"anything");
    bytes.extend_from_slice(Encoded::bare(FrameKind::Cancel, 77, &[]).head());
    bytes.extend_from_slice(Encoded::bare(FrameKind::Credit, 77, &[1; 8]).head());
    bytes.extend_from_slice(Encoded::bare(FrameKind::Ping, 0, &[]).head());
    let (ended, answers) = served(bytes).await;
    ended.unwrap();
    let text = String::from_utf8_lossy(&answers);
    assert!(text.contains("does not know calls of kind 257"), "{text}");
    assert!(answers.ends_with(Encoded::bare(FrameKind::Pong, 0, &[]).head()));
}

#[tokio::test]
async fn strangers_are_refused() {
    let net = net(1, 0);
    let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets());
    let hello = |versions, caller, owner| Hello {
        versions,
        caller,
        owner,
    };
    let other = Identity { server: 3, ..CALLER };
    let cases = [
        (hello(VERSIONS, CALLER, OWNER), None),
        (hello(VERSIONS, other, OWNER), None),
        (hello(VERSIONS, CALLER, other), Some(Refusal::Server)),
        (hello(7..=9, CALLER, OWNER), Some(Refusal::Version)),
    ];
    for (hello, refusal) in cases {
        let (mut caller, end) = tokio::io::duplex(1 << 10);
        let talk = async move {
            caller.write_all(&hello.encode()).await.unwrap();
            let mut answer = [0; ANSWER_BYTES];
            caller.read_exact(&mut answer).await.unwrap();
            Answer::decode(&answer).unwrap()
        };
        let (ended, answer) = tokio::join!(server.serve(end, pending()), talk);
        assert_eq!(answer.version.err(), refusal);
        assert_eq!(ended.is_err(), refusal.is_some());
    }
    // A draining server, and a stream of another protocol.
    let (mut caller, end) = tokio::io::duplex(1 << 10);
    let bytes = hello(VERSIONS, CALLER, OWNER).encode();
    caller.write_all(&bytes).await.unwrap();
    let ended = server.serve(end, async {}).await;
    assert!(matches!(
        ended,
        Err(ConnectionError::Refused(CALLER, Refusal::Draining))
    ));
    let (mut caller, end) = tokio::io::duplex(1 << 10);
    caller.write_all(&[b'x'; 200]).await.unwrap();
    let ended = server.serve(end, pending()).await;
    assert!(matches!(ended, Err(ConnectionError::Protocol(ProtocolError::Magic))));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_says_nothing_is_closed() {
    let net = net(1, 0);
    let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets());
    let (_silent, end) = tokio::io::duplex(1 << 10);
    assert!(matches!(
        server.serve(end, pending()).await,
        Err(ConnectionError::NotBegun)
    ));
    let (mut caller, end) = tokio::io::duplex(1 << 10);
    let (ended, ()) = tokio::join!(server.serve(end, pending()), greet(&mut caller));
    assert!(matches!(ended, Err(ConnectionError::Silent)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Valid frames of all kinds, some with damage or around damaged bodies.
    #[test]
    fn a_server_survives_any_frames(
        picks in prop::collection::vec((0usize..8, any::<u16>(), any::<u8>(), any::<bool>()), 1..8)
    ) {
        let (requests, _) = samples::bodies();
        let kinds = [CallKind::Read, CallKind::Mutate, CallKind::RowOperation, CallKind::Sample];
        let mut bytes = Vec::new();
        for (call, (which, at, to, in_body)) in (1..).zip(picks) {
            let mut frame = match which {
                0..4 => {
                    let mut body = requests[which].to_vec();
                    if in_body {
                        let at = usize::from(at) % body.len();
                        body[at] = to;
                    }
                    request(call, Ok(kinds[which]), &Bytes::from(body))
                }
                4 => Encoded::bare(FrameKind::Cancel, u64::from(to % 8), &[]).head().to_vec(),
                5 => Encoded::bare(FrameKind::Credit, u64::from(to % 8), &[to; 8]).head().to_vec(),
                6 => Encoded::bare(FrameKind::Ping, 0, &[]).head().to_vec(),
                _ => vec![to; usize::from(at % 100)],
            };
            if to == 7 && !frame.is_empty() {
                let at = usize::from(at) % frame.len();
                frame[at] ^= 1;
            }
            bytes.extend_from_slice(&frame);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (ended, _) = runtime.block_on(served(bytes));
        prop_assert!(matches!(ended, Ok(()) | Err(ConnectionError::Protocol(_) | ConnectionError::Io(_))));
    }
}
