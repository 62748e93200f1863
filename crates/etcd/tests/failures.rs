//! Members that die or stall, and an etcd without space.

use crate::support::cluster::Cluster;
use crate::{LONG, commit, connect, connect_with, put, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stele_coord::{Coord, CoordError, WatchEvent, next_epoch};
use stele_env::tokio_env::TokioRuntime;
use stele_env::{Env, Priority};
use stele_etcd::{EtcdAddress, EtcdCoord, EtcdSecurity};
use stele_types::ErrorKind;

const CLIENTS: usize = 4;

/// The numbers that one client got from a counter, and the number of its errors.
struct Counted {
    numbers: Vec<u64>,
    errors: Vec<CoordError>,
}

async fn count(coord: Arc<dyn Coord>, ends: Arc<AtomicBool>) -> Counted {
    let (mut numbers, mut errors) = (Vec::new(), Vec::new());
    while !ends.load(Ordering::Relaxed) {
        match next_epoch(&*coord, "c").await {
            Ok(number) => numbers.push(number),
            Err(error) => errors.push(error),
        }
    }
    Counted { numbers, errors }
}

/// The leader is killed again and again while clients count. No number is given twice, none is lost, and no client
/// sees an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_transaction_is_lost() {
    let Some(mut cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let ends = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let coord = connect(&cluster.members(), "count").await;
        let (env, counting) = (env.clone(), count(coord, Arc::clone(&ends)));
        clients.push(tokio::spawn(async move {
            env.spawn_join(Priority::Foreground, "count", counting).await
        }));
    }
    let cluster = tokio::task::spawn_blocking(move || {
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(1_500));
            let leader = cluster.leader();
            cluster.kill(leader);
            std::thread::sleep(Duration::from_millis(1_500));
            cluster.restart(leader);
            cluster.wait_ready();
        }
        cluster
    });
    let cluster = cluster.await.unwrap();
    ends.store(true, Ordering::Relaxed);

    let mut all = Vec::new();
    for client in clients {
        let counted = client.await.unwrap().unwrap();
        assert!(counted.numbers.is_sorted_by(|a, b| a < b), "a counter only grows");
        assert!(counted.errors.is_empty(), "{:?}", counted.errors);
        assert!(!counted.numbers.is_empty());
        all.extend(counted.numbers);
    }
    all.sort_unstable();
    let given = all.len() as u64;
    assert!(given > 50, "{given} numbers");
    let fresh = connect(&cluster.members(), "count").await;
    // Every transaction that happened was acknowledged, so the numbers have no gap either.
    assert_eq!(all, (1..=given).collect::<Vec<u64>>());
    assert_eq!(text(&*fresh, "epoch/c").await, Some(given.to_string()));
}

/// With one member dead, nothing is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_is_not_missed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let coord = connect(&cluster.members(), "one").await;
    let session = coord.session(LONG).await.unwrap();
    let mut watch = coord.watch("").await.unwrap();
    for dead in 0..3 {
        cluster.kill(dead);
        for i in 0..10 {
            let value = format!("{dead}-{i}");
            commit(&*coord, put("k", &value)).await;
            assert_eq!(text(&*coord, "k").await, Some(value.clone()));
            let told = env.timeout(LONG, watch.next()).await.expect("an event");
            let Some(WatchEvent::Put { current, .. }) = told else {
                unreachable!("{told:?}");
            };
            assert_eq!(current.value, value, "a watch tells everything once, in order");
        }
        session.keep_alive().await.unwrap();
        cluster.restart(dead);
        cluster.wait_ready();
    }
    assert_eq!(coord.list("").await.unwrap().len(), 1);
}

/// All errors of a coordinator that etcd does not answer.
async fn fails_in_time(coord: &dyn Coord, limit: Duration) {
    let begun = Instant::now();
    let errors = [
        coord.get("k").await.map(drop),
        coord.list("").await.map(drop),
        coord.watch("").await.map(drop),
        coord.session(LONG).await.map(drop),
        coord.txn(put("k", "unknown")).await.map(drop),
        coord.txn(put("k", "later")).await.map(drop),
    ];
    for outcome in &errors {
        let error = outcome.as_ref().expect_err("etcd does not answer");
        let expected = match error.is_ambiguous() {
            true => ErrorKind::Aborted,
            false => ErrorKind::Unavailable,
        };
        assert_eq!(error.kind(), expected, "{error}");
    }
    let ambiguous = errors.map(|outcome| outcome.is_err_and(|error| error.is_ambiguous()));
    // The second transaction is not sent before the first one is settled.
    assert_eq!(ambiguous, [false, false, false, false, true, false]);
    assert!(begun.elapsed() < limit * 7, "{:?}", begun.elapsed());
}

/// An address without a server.
#[tokio::test]
async fn connecting_to_nothing_fails_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().to_string();
    drop(listener);
    let address = EtcdAddress::parse(&format!("etcd://{free}/nothing")).unwrap();
    let begun = Instant::now();
    let connected = EtcdCoord::connect_with(
        &address,
        EtcdSecurity::default(),
        TokioRuntime::current(),
        Duration::from_millis(300),
    )
    .await;
    let error = connected.map(drop).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&free), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(300), "it is tried again");
    assert!(begun.elapsed() < LONG);
}

/// With two members dead, errors are clear and come in time. Afterwards everything continues by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_errors_come_in_time() {
    let Some(mut cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let limit = Duration::from_secs(2);
    let coord = connect_with(&cluster.members(), "two", limit).await;
    commit(&*coord, put("k", "before")).await;
    let mut watch = coord.watch("k").await.unwrap();
    cluster.kill(0);
    cluster.kill(1);
    fails_in_time(&*coord, limit).await;
    cluster.restart(0);
    cluster.wait_ready();
    let recovered = async { while coord.txn(put("k", "after")).await.is_err() {} };
    env.timeout(LONG, recovered).await.expect("it recovers by itself");
    assert_eq!(text(&*coord, "k").await.as_deref(), Some("after"));
    let told = async {
        while let Some(WatchEvent::Put { current, .. }) = watch.next().await {
            if current.value == "after" {
                return;
            }
        }
        unreachable!("the watch ended");
    };
    env.timeout(LONG, told).await.expect("the watch continues");
}

/// Members that stall with open connections: errors come in time, a session is over by the local clock, and everything
/// continues by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_etcd_is_noticed() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let limit = Duration::from_secs(2);
    let coord = connect_with(&cluster.members(), "stalled", limit).await;
    let ttl = Duration::from_secs(3);
    let session = coord.session(ttl).await.unwrap();
    commit(&*coord, put("k", "before")).await;
    session.keep_alive().await.unwrap();
    assert!(session.ends_at().is_some_and(|end| end > env.now()));
    (0..3).for_each(|i| cluster.pause(i));
    let error = session.keep_alive().await.expect_err("etcd does not answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    env.sleep(ttl).await;
    assert_eq!(
        session.ends_at(),
        None,
        "the session is over although etcd did not tell"
    );
    let ended = Err(CoordError::SessionEnded { session: session.id() });
    assert_eq!(session.keep_alive().await, ended);
    fails_in_time(&*coord, limit).await;
    (0..3).for_each(|i| cluster.resume(i));
    let recovered = async { while coord.txn(put("k", "after")).await.is_err() {} };
    env.timeout(LONG, recovered).await.expect("it recovers by itself");
    assert_eq!(text(&*coord, "k").await.as_deref(), Some("after"));
    assert_eq!(session.keep_alive().await, ended, "a session that was over stays so");
}

/// A leader that stalls is left for another member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_leader_is_left() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let coord = connect(&cluster.members(), "leader").await;
    let mut watch = coord.watch("k").await.unwrap();
    commit(&*coord, put("k", "before")).await;
    let leader = cluster.leader();
    cluster.pause(leader);
    commit(&*coord, put("k", "after")).await;
    for expected in ["before", "after"] {
        let told = env.timeout(LONG, watch.next()).await.expect("an event");
        assert!(
            matches!(&told, Some(WatchEvent::Put { current, .. }) if current.value == expected),
            "{told:?}"
        );
    }
    cluster.resume(leader);
}

/// An etcd without space refuses writes and serves the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_refuses_writes() {
    let Some(cluster) = Cluster::start() else { return };
    let env: Env = TokioRuntime::current();
    let coord = connect(&cluster.members(), "full").await;
    let session = coord.session(LONG).await.unwrap();
    commit(&*coord, put("k", "before")).await;
    cluster.no_space(true);
    let refused = async {
        loop {
            // The other members learn of the alarm a moment later.
            match coord.txn(put("k", "refused")).await {
                Ok(_) => env.sleep(Duration::from_millis(10)).await,
                Err(error) => return error,
            }
        }
    };
    let error = env.timeout(LONG, refused).await.expect("an error");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert!(!error.is_ambiguous());
    assert!(error.to_string().contains("space"), "{error}");
    let fresh = connect(&cluster.members(), "full").await;
    let error = fresh.txn(put("k", "refused")).await.expect_err("etcd is full");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    let error = coord.session(LONG).await.expect_err("etcd is full");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert!(coord.get("k").await.unwrap().is_some());
    session.keep_alive().await.unwrap();
    cluster.no_space(false);
    let accepted = async {
        while coord.txn(put("k", "after")).await.is_err() {
            env.sleep(Duration::from_millis(10)).await;
        }
    };
    env.timeout(LONG, accepted).await.expect("writes are served again");
    session.revoke().await.unwrap();
}
