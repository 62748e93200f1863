//! Calls with one answer: order, errors, deadlines, cancels, drain.

use super::support::*;
use crate::PeerServer;
use std::future::pending;
use std::time::Duration;
use stele_client::{TabletFigures, TabletOperations, TabletSample, TabletService, TabletStorage};
use stele_memory::{OVERDRAFT_BYTES, Part, Pool};
use stele_types::{ErrorKind, TabletId};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[tokio::test]
async fn every_call_reaches_the_owner() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    let calls = async {
        remote.mutate(TABLET, writes("a"), None).await.unwrap();
        let outcome = remote.row_operation(TABLET, operation()).await.unwrap();
        assert_eq!((outcome.matched, outcome.written), (false, vec![cell(3)]));
        let sample = remote.sample(TABLET, 5).await.unwrap();
        let rows = vec![(bytes::Bytes::from_static(b"m"), 1)];
        assert_eq!(sample, TabletSample { bytes: 5, rows });
    };
    let ((), server) = tokio::join!(calls, net.serve(&tablets, pending()));
    assert_eq!(*tablets.written.lock(), ["a"]);
    drop(remote);
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_earlier_owner_tells_only_the_size_of_a_tablet() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    let known = TabletFigures {
        bytes: 3,
        storage: Some(TabletStorage {
            file_bytes: 2,
            files: 1,
            memtable_bytes: 1,
        }),
        operations: Some(TabletOperations { reads: 7, writes: 8 }),
    };
    let calls = async {
        assert_eq!(remote.figures(TABLET).await.unwrap(), TabletFigures::of_bytes(u64::MAX));
        *tablets.figures.lock() = Some(known);
        assert_eq!(remote.figures(TABLET).await.unwrap(), known);
        let error = remote.figures(TabletId(1)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
    };
    tokio::join!(calls, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test]
async fn answers_come_in_any_order() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let slow = remote.mutate(TABLET, writes("slow"), None);
    let fast = async {
        until(|| tablets.running() == 1).await;
        // A later call is answered while the first one waits.
        for every in 1..100 {
            assert_eq!(remote.sample(TABLET, every).await.unwrap().bytes, every);
        }
        assert!(tablets.written.lock().is_empty());
        tablets.gate.add_permits(1);
    };
    let (done, (), _) = tokio::join!(slow, fast, net.serve(&tablets, pending()));
    done.unwrap();
}

#[tokio::test]
async fn errors_of_the_owner_are_passed_on() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    let calls = async {
        // A tablet that is not the owner's: nothing has happened, the router repeats its lookup.
        let error = remote.mutate(TabletId(1), writes("a"), None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        let mut stream = remote.read(TabletId(1), point("r")).await.unwrap();
        assert_eq!(stream.next().await.unwrap_err().kind, ErrorKind::Unavailable);
        for kind in [ErrorKind::ResourceExhausted, ErrorKind::Aborted, ErrorKind::NotFound] {
            *tablets.error.lock() = Some(kind);
            let error = remote.mutate(TABLET, writes("a"), None).await.unwrap_err();
            assert_eq!((error.kind, &error.message[..]), (kind, "as told"));
        }
    };
    tokio::join!(calls, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_at_both_ends() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let calls = async {
        let (written, sampled) = tokio::join!(remote.mutate(TABLET, writes("a"), None), remote.sample(TABLET, 0));
        assert_eq!(written.unwrap_err().kind, ErrorKind::Aborted, "the outcome is unknown");
        assert_eq!(sampled.unwrap_err().kind, ErrorKind::Busy);
        until(|| tablets.running() == 0).await;
        // The connection lives on.
        assert_eq!(remote.sample(TABLET, 3).await.unwrap().bytes, 3);
    };
    let ((), server) = tokio::join!(calls, net.serve(&tablets, pending()));
    assert!(!server.is_finished());
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let calls = async {
        tokio::select! {
            _ = remote.mutate(TABLET, writes("a"), None) => unreachable!(),
            () = until(|| tablets.running() == 1) => {}
        }
        until(|| tablets.running() == 0).await;
        assert!(remote.sample(TABLET, 1).await.is_ok());
    };
    tokio::join!(calls, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drained_owner_finishes_its_calls_and_refuses_others() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let (drain, drained) = oneshot::channel::<()>();
    let calls = async {
        let running = remote.mutate(TABLET, writes("a"), None);
        let later = async {
            until(|| tablets.running() == 1).await;
            drain.send(()).unwrap();
            settle().await;
            let error = remote.mutate(TABLET, writes("b"), None).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
            tablets.gate.add_permits(1);
        };
        tokio::join!(running, later).0.unwrap();
    };
    let drained = async { drained.await.unwrap_or(()) };
    let ((), server) = tokio::join!(calls, net.serve(&tablets, drained));
    // The caller closes the connection.
    server.await.unwrap().unwrap();
    assert_eq!(*tablets.written.lock(), ["a"]);
}

/// It drains connections of callers that it trusted before, and goes on to serve. A read whose reader pauses lasts for a minute.
#[tokio::test]
async fn calls_do_not_wait_for_the_end_of_a_drained_connection() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    let (drain, drained) = oneshot::channel::<()>();
    *tablets.batches.lock() = batches(10, 1 << 20);
    let read = async {
        let mut stream = remote.read(TABLET, scan()).await.unwrap();
        assert!(stream.next().await.unwrap().is_some());
        stream
    };
    let (stream, first) = tokio::join!(read, net.serve(&tablets, async { drained.await.unwrap_or(()) }));
    drain.send(()).unwrap();
    settle().await;
    let (second, server) = tokio::join!(remote.mutate(TABLET, writes("a"), None), net.serve(&tablets, pending()));
    second.unwrap();
    assert!(!first.is_finished(), "the read goes on");
    drop(stream);
    first.await.unwrap().unwrap();
    server.abort();
}

#[tokio::test]
async fn later_calls_use_another_connection_once_that_is_wanted() {
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let calls = async { tokio::join!(remote.mutate(TABLET, writes("a"), None), net.serve(&tablets, pending())) };
    let renewed = async {
        until(|| tablets.running() == 1).await;
        remote.renew();
        tablets.gate.add_permits(2);
    };
    let ((running, first), ()) = tokio::join!(calls, renewed);
    running.unwrap();
    first.await.unwrap().unwrap();
    let (later, second) = tokio::join!(remote.mutate(TABLET, writes("b"), None), net.serve(&tablets, pending()));
    later.unwrap();
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_memory_and_give_it_back() {
    let pool = Pool::default().limited(Part::Peers, 4 << 10);
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote_within(&pool), closed_tablets());
    let peers = pool.of(Part::Peers);
    let calls = async {
        let call = |row| remote.mutate(TABLET, writes(row), None);
        let first = async { tokio::join!(call("a"), call("b"), call("c")) };
        let rest = async {
            until(|| tablets.running() == 3).await;
            assert!(peers.used() > 3 << 10, "{}", peers.used());
            let error = call("d").await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Busy, "it waited long enough");
            assert_eq!((peers.waiting(), tablets.running()), (0, 3));
            tablets.gate.add_permits(3);
        };
        let ((a, b, c), ()) = tokio::join!(first, rest);
        a.and(b).and(c).unwrap();
        assert_eq!(peers.used(), 0);
    };
    tokio::join!(calls, net.serve(&tablets, pending())).1.abort();
    assert_eq!(tablets.written.lock().len(), 3);
}

/// The request of the client may have the overdraft.
#[tokio::test(start_paused = true)]
async fn the_copy_of_a_large_request_waits_for_no_overdraft() {
    let pool = Pool::default().limited(Part::Peers, 4 << 10);
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote_within(&pool), tablets());
    let _overdraft = pool.try_overdraft().unwrap();
    let name = "x".repeat(8 << 10);
    let calls = async { remote.mutate(TABLET, writes(name.leak()), None).await.unwrap() };
    tokio::join!(calls, net.serve(&tablets, pending())).1.abort();
}

#[tokio::test]
async fn a_request_above_the_share_of_requests_takes_the_overdraft() {
    let pool = Pool::default().limited(Part::Requests, 1 << 20);
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), closed_tablets());
    let calls = async {
        let write = |row, bytes| remote.mutate(TABLET, large_writes(row, bytes), None);
        let first = write("a", 2 << 20);
        let others = async {
            until(|| tablets.running() == 1).await;
            assert!(pool.is_overdrawn());
            assert_eq!(write("b", 2 << 20).await.unwrap_err().kind, ErrorKind::Busy);
            // It takes nothing from requests within the share.
            let small = write("c", 900 << 10);
            let open = async {
                until(|| tablets.running() == 2).await;
                tablets.gate.add_permits(2);
            };
            tokio::join!(small, open).0.unwrap();
        };
        tokio::join!(first, others).0.unwrap();
        until(|| !pool.is_overdrawn()).await;
        assert_eq!(pool.of(Part::Requests).used(), 0);
        // It would never fit.
        let error = write("d", OVERDRAFT_BYTES + 1).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ResourceExhausted, "{error}");
        tablets.gate.add_permits(1);
        write("e", 2 << 20).await.unwrap();
    };
    let server = net.serve_within(&pool, &tablets, pending());
    tokio::join!(calls, server).1.abort();
    assert_eq!(*tablets.written.lock(), ["a", "c", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_owner_is_given_up() {
    let mut net = net(1 << 16, 0);
    let remote = net.remote();
    let started = Instant::now();
    let (called, mut end) = tokio::join!(remote.sample(TABLET, 1), net.begun());
    // It kept the connection, and never answered the ping.
    assert_eq!(called.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(
        (10..13).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
    let mut sent = Vec::new();
    end.read_to_end(&mut sent).await.unwrap();
    assert!(!sent.is_empty());
    assert!(Duration::from_secs(20) > started.elapsed(), "well before its deadline");
}

#[tokio::test]
async fn the_caller_of_a_client_travels_with_its_calls() {
    use stele_access::audit::Audit;
    use stele_access::testing::MemoryRules;
    use stele_access::{Access, AccessOptions, Forwarded, Shown, on_behalf_of};
    use stele_storage::Storage;
    let mut net = net(1 << 16, 0);
    let (remote, tablets) = (net.remote(), tablets());
    *tablets.in_memory.lock() = batches(1, 8).pop_front();
    let storage = stele_storage::memory::MemoryStorage::new();
    let metrics = stele_env::metrics::Metrics::new();
    let audit = Audit::start(storage.clone(), net.env.clone(), &metrics).await.unwrap();
    let options = AccessOptions {
        trusts_users: true,
        ..AccessOptions::default()
    };
    let access = Access::new(
        std::sync::Arc::new(MemoryRules::default()),
        options,
        None,
        net.env.clone(),
    );
    let shown = Shown {
        user: Some("alice"),
        ..Shown::default()
    };
    let alice = access.identify(shown).unwrap();
    let calls = async {
        let work = async {
            remote.mutate(TABLET, writes("a"), None).await.unwrap();
            remote.row_operation(TABLET, operation()).await.unwrap();
            remote.read(TABLET, point("r")).await.unwrap().next().await.unwrap();
            remote.mutate(TabletId(1), writes("b"), None).await.unwrap_err();
        };
        on_behalf_of(alice, work).await;
        // Work of the server itself has no caller.
        remote.sample(TABLET, 5).await.unwrap();
        remote.mutate(TABLET, writes("c"), None).await.unwrap();
    };
    let end = net.ends.recv();
    let log = Some(std::sync::Arc::new(Forwarded::new(audit.clone(), true)));
    let serve = async {
        let end = end.await.unwrap();
        let server = PeerServer::new(net.env.clone(), &Pool::default(), OWNER, tablets.clone());
        server.forwarded_to(log).proven().serve(end, pending()).await
    };
    futures::future::select(Box::pin(calls), Box::pin(serve)).await;
    audit.flush().await;
    let file = storage.list("log/").await.unwrap().remove(0);
    let text = storage.read_all(&file.path).await.unwrap();
    let lines = std::str::from_utf8(&text).unwrap().lines();
    let lines: Vec<String> = lines
        .map(|line| line.split_once("\"who\"").unwrap().1.to_owned())
        .collect();
    let line = |operation: &str, tablet: u64, outcome: &str| {
        format!(
            ":\"alice\",\"by\":\"trusted user\",\"from\":\"server 1\",\"operation\":\"{operation}\",\"on\":\"tablet \
             {tablet}\",\"outcome\":\"{outcome}\""
        )
    };
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with(&line("mutate", TABLET.0, "done")), "{lines:?}");
    assert!(
        lines[1].starts_with(&line("row_operation", TABLET.0, "done")),
        "{lines:?}"
    );
    assert!(lines[2].starts_with(&line("read", TABLET.0, "done")), "{lines:?}");
    assert!(lines[3].starts_with(&line("mutate", 1, "failed")), "{lines:?}");
}
