//! Requests that a network delays beyond the patience of their client.

use crate::support::cluster::{Cluster, number};
use crate::support::proxy::Proxy;
use crate::{LONG, commit, connect, connect_with, create, put, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::time::Duration;
use stele_coord::{Coord, TxnOutcome};
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;
use stele_types::ErrorKind;

/// Four attempts of a second each: longer than a request is on its way.
const LIMIT: Duration = Duration::from_secs(4);

/// Waits until etcd decided on the requests that were held back.
async fn decided(env: &Env, cluster: &Cluster, index: u64) {
    let wait = async {
        while cluster.raft_index() < index {
            env.sleep(Duration::from_millis(10)).await;
        }
    };
    env.timeout(LONG, wait).await.expect("etcd decides on late requests");
}

/// A transaction times out, a later one succeeds, and then the first one arrives. It must not take effect any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_transaction_does_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let coord = connect_with(proxy.address(), "late", LIMIT).await;
    commit(&*coord, put("other", "1")).await;

    proxy.hold();
    let error = coord.txn(create("k", "late")).await.expect_err("no answer");
    assert!(error.is_ambiguous(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
    proxy.pass();
    commit(&*coord, put("other", "2")).await;
    assert_eq!(text(&*coord, "k").await, None);

    let held = proxy.held();
    assert!(held > 0, "the transaction was held back");
    let before = cluster.raft_index();
    proxy.release().await;
    decided(&env, &cluster, before + held as u64).await;
    assert_eq!(text(&*coord, "k").await, None, "the late transaction took effect");
    assert_eq!(text(&*coord, "other").await.as_deref(), Some("2"));
    commit(&*coord, create("k", "in time")).await;
}

/// Only the first connection is held back. The transaction is settled and sent again within its time, and happens once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_sent_again_happens_once() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let coord = connect_with(proxy.address(), "again", LIMIT * 2).await;
    commit(&*coord, put("other", "1")).await;

    proxy.hold();
    let passes = async {
        while proxy.held() == 0 {
            env.sleep(Duration::from_millis(5)).await;
        }
        proxy.pass();
    };
    let (outcome, ()) = futures::future::join(coord.txn(put("k", "first")), passes).await;
    assert!(matches!(outcome, Ok(TxnOutcome::Committed { .. })), "{outcome:?}");
    commit(&*coord, put("k", "second")).await;
    let held = proxy.held();
    let before = cluster.raft_index();
    proxy.release().await;
    decided(&env, &cluster, before + held as u64).await;
    assert_eq!(text(&*coord, "k").await.as_deref(), Some("second"));
}

/// A transaction that etcd carried out, but whose answer was lost, is reported as it was. Sent again it would be a
/// conflict with itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_is_found() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let coord = connect_with(proxy.address(), "lost", LIMIT * 2).await;
    let other = connect(&cluster.members(), "lost").await;
    commit(&*coord, put("other", "1")).await;
    proxy.mute();
    let happens = async {
        while text(&*other, "k").await.is_none() {
            env.sleep(Duration::from_millis(5)).await;
        }
        proxy.pass();
    };
    let (outcome, ()) = futures::future::join(coord.txn(create("k", "x")), happens).await;
    let found = other.get("k").await.unwrap().expect("the key");
    let revision = found.version;
    assert_eq!(outcome, Ok(TxnOutcome::Committed { revision }));
    let next = commit(&*coord, put("k", "y")).await;
    assert!(next > revision);
}

/// A caller that stops waiting leaves nothing that could take effect later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_transaction_is_settled() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let coord = connect_with(proxy.address(), "abandoned", LIMIT * 2).await;
    commit(&*coord, put("k", "1")).await;
    proxy.hold();
    let abandoned = env.timeout(Duration::from_secs(1), coord.txn(put("k", "late"))).await;
    assert!(abandoned.is_err());
    proxy.pass();
    commit(&*coord, put("k", "2")).await;
    let held = proxy.held();
    let before = cluster.raft_index();
    proxy.release().await;
    decided(&env, &cluster, before + held as u64).await;
    assert_eq!(text(&*coord, "k").await.as_deref(), Some("2"));
}

/// The guard is bound to a lease. When that ends, the next transaction makes the guard again.
#[tokio::test]
async fn a_guard_that_vanished_is_made_again() {
    let Some(cluster) = Cluster::start() else { return };
    let coord = connect(&cluster.members(), "guard").await;
    commit(&*coord, put("k", "1")).await;
    let range = json!({ "key": STANDARD.encode("guard/guards/"), "range_end": STANDARD.encode("guard/guards0") });
    let guards = |cluster: &Cluster| cluster.call("/v3/kv/range", &range)["kvs"].clone();
    let lease = number(&guards(&cluster)[0]["lease"]);
    assert!(lease > 0, "the guard of a dead process goes by itself");
    cluster.revoke_lease(lease);
    assert!(guards(&cluster).is_null());
    commit(&*coord, put("k", "2")).await;
    commit(&*coord, put("k", "3")).await;
    let made = guards(&cluster);
    assert_ne!(number(&made[0]["lease"]), lease);
    assert_eq!(made.as_array().map(Vec::len), Some(1));
    assert_eq!(text(&*coord, "k").await.as_deref(), Some("3"));
}
