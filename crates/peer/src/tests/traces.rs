//! Traces and work of calls over the hop, and connections that know neither.

use super::support::*;
use crate::handshake::{ANSWER_BYTES, Answer, HELLO_BYTES};
use crate::remote::RemoteTablets;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use stele_client::TabletService;
use stele_env::metrics::Metrics;
use stele_env::trace::{Finished, Tracer, within};
use stele_env::work::counted;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

/// A network whose servers trace.
fn traced_net() -> (Net, Arc<Tracer>) {
    let mut net = net(1 << 16, 0);
    let tracer = Arc::new(Tracer::new(1.0, &Metrics::new()));
    net.env = net.env.clone().with_tracer(Arc::clone(&tracer));
    (net, tracer)
}

#[tokio::test]
async fn the_owners_spans_are_below_the_callers_stages() {
    let ((mut net, tracer), tablets) = (traced_net(), tablets());
    *tablets.batches.lock() = batches(3, 10);
    let (env, remote) = (net.env.clone(), net.remote());
    let trace = env.trace("grpc", "MutateRows", || None).unwrap();
    let calls = async {
        // It opens the connection, and belongs to no request.
        remote.sample(TABLET, 1).await.unwrap();
        let of_request = async {
            remote.mutate(TABLET, writes("a"), None).await.unwrap();
            let mut rows = remote.read(TABLET, scan()).await.unwrap();
            while rows.next().await.unwrap().is_some() {}
        };
        within(Some(&trace), pin!(of_request)).await;
    };
    let ((), server) = tokio::join!(calls, net.serve(&tablets, pending()));
    drop(trace);
    server.abort();
    tracer.close();
    let finished = tracer.next_batch(&env).await.unwrap();
    let names: Vec<&str> = finished.iter().map(|finished| finished.name.1).collect();
    assert_eq!(names, ["mutate", "read", "MutateRows"]);
    let [mutate, read, request]: [Finished; 3] = finished.try_into().unwrap();
    assert_eq!(request.stages.len(), 2, "{:?}", request.stages);
    for (owners, stage) in [&mutate, &read].into_iter().zip(&request.stages) {
        assert_eq!((stage.name, stage.facts.server), ("call server", Some(OWNER.server)));
        assert_eq!(owners.own.trace, request.own.trace);
        assert_eq!(owners.parent, Some(stage.span));
        assert_eq!((owners.facts.tablet, owners.facts.outcome), (Some(TABLET.0), "ok"));
    }
    assert_eq!(read.facts.rows, 3);
}

async fn read_frame(end: &mut DuplexStream) -> Vec<u8> {
    let mut frame = vec![0; 4];
    end.read_exact(&mut frame).await.unwrap();
    let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
    frame.resize(length as usize, 0);
    end.read_exact(&mut frame[4..]).await.unwrap();
    frame
}

/// Opens a connection of this version as its owner.
async fn greet(end: &mut DuplexStream, version: u16) {
    end.read_exact(&mut [0; HELLO_BYTES]).await.unwrap();
    let answer = Answer {
        version: Ok(version),
        versions: 1..=version,
        owner: OWNER,
    };
    let answer: [u8; ANSWER_BYTES] = answer.encode();
    end.write_all(&answer).await.unwrap();
}

/// The flags of the second request on a connection of this version. The first one opens it; nobody answers either.
async fn flags_of_second(
    net: &mut Net,
    remote: &RemoteTablets,
    version: u16,
    second: impl Future<Output: std::fmt::Debug>,
) -> u16 {
    let (tell, opened) = oneshot::channel();
    let second = async {
        opened.await.unwrap();
        second.await
    };
    let owner = async {
        let mut end = net.ends.recv().await.unwrap();
        greet(&mut end, version).await;
        read_frame(&mut end).await;
        tell.send(()).unwrap();
        let frame = read_frame(&mut end).await;
        u16::from_le_bytes([frame[26], frame[27]])
    };
    tokio::select! {
        flags = owner => flags,
        outcome = async { tokio::join!(remote.sample(TABLET, 1), second) } => unreachable!("nobody answers: {outcome:?}"),
    }
}

/// The flags of a traced request.
async fn flags_at(version: u16) -> u16 {
    let (mut net, _) = traced_net();
    let (env, remote) = (net.env.clone(), net.remote());
    let trace = env.trace("grpc", "MutateRows", || None).unwrap();
    let mutate = pin!(remote.mutate(TABLET, writes("a"), None));
    flags_of_second(&mut net, &remote, version, within(Some(&trace), mutate)).await
}

/// The flags of a read whose work is counted.
async fn counted_flags_at(version: u16) -> u16 {
    let mut net = net(1 << 16, 0);
    let remote = net.remote();
    let read = async {
        let mut rows = remote.read(TABLET, scan()).await.unwrap();
        counted(rows.next()).await
    };
    flags_of_second(&mut net, &remote, version, read).await
}

#[tokio::test]
async fn only_version_3_is_asked_for_work() {
    assert_eq!(counted_flags_at(2).await, 0);
    assert_eq!(counted_flags_at(3).await, 8);
}

#[tokio::test]
async fn the_owner_tells_the_work_of_a_read() {
    let (mut net, tablets) = (net(1 << 16, 0), tablets());
    *tablets.batches.lock() = batches(3, 10);
    let remote = net.remote();
    let calls = async {
        remote.sample(TABLET, 1).await.unwrap();
        let reading = async {
            let mut rows = remote.read(TABLET, scan()).await.unwrap();
            while rows.next().await.unwrap().is_some() {}
        };
        counted(reading).await.1
    };
    let (work, server) = tokio::join!(calls, net.serve(&tablets, pending()));
    server.abort();
    assert_eq!(
        (work.blocks_read, work.files_used()),
        (3, 1),
        "each batch is a block of one file"
    );
}

#[tokio::test]
async fn only_version_2_has_traces() {
    assert_eq!(flags_at(1).await, 0);
    assert_eq!(flags_at(2).await, 4);
}
