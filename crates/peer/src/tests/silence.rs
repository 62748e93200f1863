//! Connections on which nothing arrives for a while, and requests that arrive late.

use super::malformed::request;
use super::support::*;
use crate::frame::{Encoded, FrameKind};
use crate::handshake::{ANSWER_BYTES, HELLO_BYTES};
use crate::limits::{QUIET_AFTER, SILENCE_MAX};
use crate::messages::{CallKind, encode_mutate};
use crate::server::{ConnectionError, PeerServer};
use std::future::pending;
use std::pin::pin;
use std::time::Duration;
use stele_client::TabletService;
use stele_memory::Pool;
use stele_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_caller_has_given_up_is_not_carried_out() {
    let mut net = net(1 << 16, 0);
    let (env, remote, tablets) = (net.env.clone(), net.remote(), tablets());
    let server = PeerServer::new(env.clone(), &Pool::default(), OWNER, tablets.clone());
    let (mut near, far) = tokio::io::duplex(1 << 16);
    // The network between both holds back all frames of the caller, until the call was made again.
    let network = async {
        let mut caller = net.ends.recv().await.unwrap();
        let (mut hello, mut answer) = ([0; HELLO_BYTES], [0; ANSWER_BYTES]);
        caller.read_exact(&mut hello).await.unwrap();
        near.write_all(&hello).await.unwrap();
        near.read_exact(&mut answer).await.unwrap();
        caller.write_all(&answer).await.unwrap();
        let mut held = Vec::new();
        caller.read_to_end(&mut held).await.unwrap();
        env.sleep(SECOND).await;
        let again = remote.mutate(TABLET, writes("a"), None);
        let (again, serving) = tokio::join!(again, net.serve(&tablets, pending()));
        again.unwrap();
        // The owner may have closed its end.
        let _ = near.write_all(&held).await;
        serving.abort_handle()
    };
    let first = remote.mutate(TABLET, writes("a"), None);
    let (first, serving, ended) = tokio::join!(first, network, server.serve(far, pending()));
    assert_eq!(first.unwrap_err().kind, ErrorKind::Aborted);
    assert!(matches!(ended, Err(ConnectionError::Silent)), "{ended:?}");
    assert_eq!(*tablets.written.lock(), ["a"]);
    serving.abort();
}

/// Its process was stopped, say, and the bytes have waited in its socket.
#[tokio::test(start_paused = true)]
async fn an_owner_that_stood_still_does_not_carry_out_the_requests_of_that_time() {
    for (still, is_late) in [(SILENCE_MAX - SECOND, false), (SILENCE_MAX, true)] {
        let (net, tablets) = (net(1, 0), tablets());
        let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets.clone());
        let (mut caller, end) = tokio::io::duplex(1 << 16);
        let mut serving = pin!(server.serve(end, pending()));
        tokio::select! {
            ended = &mut serving => unreachable!("{ended:?}"),
            () = greet(&mut caller) => {}
        }
        net.env.sleep(still).await;
        let write = encode_mutate(&writes("a"), None).into_bytes();
        let write = request(1, Ok(CallKind::Mutate), &write);
        caller.write_all(&write).await.unwrap();
        let ended = serving.await;
        assert!(matches!(ended, Err(ConnectionError::Silent)), "{ended:?}");
        assert_eq!(tablets.written.lock().is_empty(), is_late);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_traffic_goes_on_also_while_a_call_takes_long() {
    let mut net = net(1 << 16, 0);
    let (env, remote, tablets) = (net.env.clone(), net.remote(), closed_tablets());
    let calls = async {
        for _ in 0..3 {
            let slow = async {
                env.sleep(15 * SECOND).await;
                tablets.gate.add_permits(1);
            };
            let (written, ()) = tokio::join!(remote.mutate(TABLET, writes("a"), None), slow);
            written.unwrap();
            env.sleep(60 * SECOND).await;
        }
    };
    let ((), serving) = tokio::join!(calls, net.serve(&tablets, pending()));
    assert!(net.ends.try_recv().is_err(), "there was one connection");
    serving.abort();
}

/// Requests that it has sent may be carried out, and those that it has not sent are not.
#[tokio::test(start_paused = true)]
async fn a_caller_that_hears_nothing_sends_no_more_requests() {
    let mut net = net(1 << 16, 0);
    let (env, remote) = (net.env.clone(), net.remote());
    let mutate = async |after: Duration| {
        env.sleep(after).await;
        let written = remote.mutate(TABLET, writes("a"), None).await;
        written.unwrap_err().kind
    };
    let calls = async { tokio::join!(mutate(SECOND), mutate(2 * SECOND), mutate(2 * QUIET_AFTER)) };
    let answer = async {
        let mut end = net.begun().await;
        env.sleep(SECOND / 2).await;
        end.write_all(Encoded::bare(FrameKind::Pong, 0, &[]).head())
            .await
            .unwrap();
        let mut sent = Vec::new();
        end.read_to_end(&mut sent).await.unwrap();
    };
    let (kinds, ()) = tokio::join!(calls, answer);
    let expected = (ErrorKind::Aborted, ErrorKind::Aborted, ErrorKind::Unavailable);
    assert_eq!(kinds, expected);
}

/// The owner may have ended the connection, and requests that are sent on it have no outcome.
#[tokio::test(start_paused = true)]
async fn a_caller_that_stood_still_asks_before_it_sends_a_request() {
    let mut net = net(1 << 16, 0);
    let remote = net.remote();
    let frame = async |end: &mut DuplexStream| {
        let mut head = [0; 24];
        end.read_exact(&mut head).await.unwrap();
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        end.read_exact(&mut vec![0; length - head.len()]).await.unwrap();
        head[4]
    };
    let pong = Encoded::bare(FrameKind::Pong, 0, &[]);
    let talk = async {
        let mut end = net.begun().await;
        assert_eq!(frame(&mut end).await, FrameKind::Request as u8);
        assert_eq!(frame(&mut end).await, FrameKind::Ping as u8);
        tokio::time::advance(SILENCE_MAX).await;
        assert_eq!(frame(&mut end).await, FrameKind::Ping as u8);
        // It answers the first ping.
        end.write_all(pong.head()).await.unwrap();
        settle().await;
        end
    };
    let first = remote.mutate(TABLET, writes("a"), None);
    let second = async {
        let end = talk.await;
        let write = remote.mutate(TABLET, writes("b"), None);
        let answer = async {
            settle().await;
            drop(end);
        };
        tokio::join!(write, answer).0
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap_err().kind, ErrorKind::Aborted);
    assert_eq!(second.unwrap_err().kind, ErrorKind::Unavailable, "it was not sent");
}
