//! Watches across lost connections and compactions.

use crate::support::cluster::Cluster;
use crate::support::proxy::Proxy;
use crate::{LONG, commit, connect, put, text};
use bytes::Bytes;
use std::time::Duration;
use stele_coord::{Coord, Txn, Watch, WatchEvent, Write};
use stele_env::Env;
use stele_env::tokio_env::TokioRuntime;

async fn next(env: &Env, watch: &mut Watch) -> WatchEvent {
    let told = env.timeout(LONG, watch.next()).await.expect("an event in time");
    told.expect("the coordinator lives")
}

/// The value of the next change.
async fn next_value(env: &Env, watch: &mut Watch) -> String {
    match next(env, watch).await {
        WatchEvent::Put { current, .. } => String::from_utf8(current.value.to_vec()).unwrap(),
        other => unreachable!("{other:?}"),
    }
}

/// Changes during a lost connection are told afterwards, each once and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_continues_after_a_lost_connection() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let (watcher, writer) = (
        connect(proxy.address(), "resume").await,
        connect(&cluster.members(), "resume").await,
    );
    commit(&*writer, put("w/0", "before")).await;
    let mut watch = watcher.watch("w/").await.unwrap();
    let mut number = 0;
    for _ in 0..3 {
        proxy.cut();
        for _ in 0..20 {
            number += 1;
            commit(&*writer, put("w/1", &number.to_string())).await;
            commit(&*writer, put("other", "x")).await;
        }
        proxy.pass();
        for expected in number - 19..=number {
            assert_eq!(next_value(&env, &mut watch).await, expected.to_string());
        }
    }
    commit(&*watcher, put("w/1", "own")).await;
    assert_eq!(next_value(&env, &mut watch).await, "own");
    assert_eq!(watch.try_next(), None);
}

/// A member that has nothing to tell is asked for its progress. Newer versions of etcd tell none to a watch of the future.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_stays_while_nothing_changes() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxies = [
        Proxy::start(cluster.member(0)).await,
        Proxy::start(cluster.member(1)).await,
    ];
    let addresses = format!("{},{}", proxies[0].address(), proxies[1].address());
    let watcher = connect(&addresses, "quiet").await;
    let mut watch = watcher.watch("w/").await.unwrap();
    env.sleep(Duration::from_secs(15)).await;
    let accepted = proxies.iter().map(Proxy::accepted);
    assert_eq!(accepted.filter(|count| *count > 0).count(), 1, "a member was left");
    commit(&*watcher, put("w/1", "later")).await;
    assert_eq!(next_value(&env, &mut watch).await, "later");
    assert_eq!(watch.try_next(), None);
}

/// If the changes during a lost connection were compacted, the watcher is told to list again, and misses nothing later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_watch_lists_again() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let (watcher, writer) = (
        connect(proxy.address(), "compacted").await,
        connect(&cluster.members(), "compacted").await,
    );
    let mut watch = watcher.watch("w/").await.unwrap();
    commit(&*writer, put("w/1", "told")).await;
    assert_eq!(next_value(&env, &mut watch).await, "told");
    proxy.cut();
    for i in 0..20 {
        commit(&*writer, put("w/1", &i.to_string())).await;
    }
    cluster.compact();
    proxy.pass();
    assert_eq!(next(&env, &mut watch).await, WatchEvent::Resync);
    assert_eq!(text(&*watcher, "w/1").await.as_deref(), Some("19"));
    commit(&*writer, put("w/1", "after")).await;
    assert_eq!(next_value(&env, &mut watch).await, "after");
    assert_eq!(watch.try_next(), None);
}

/// Responses that are larger than one message: of a list, and of a watch that catches up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_responses_come_in_pieces() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let proxy = Proxy::start(cluster.member(0)).await;
    let (watcher, writer) = (
        connect(proxy.address(), "large").await,
        connect(&cluster.members(), "large").await,
    );
    let mut watch = watcher.watch("").await.unwrap();
    proxy.cut();
    let (values, keys) = (12, 5);
    for i in 0..values {
        let write = |j: usize| Write::Put {
            key: format!("{i:02}/{j}"),
            value: Bytes::from(vec![b'x'; 200_000]),
        };
        let txn = Txn {
            conditions: vec![],
            writes: (0..keys).map(write).collect(),
        };
        commit(&*writer, txn).await;
    }
    proxy.pass();
    for i in 0..values {
        for j in 0..keys {
            let told = next(&env, &mut watch).await;
            assert_eq!(told.key(), Some(format!("{i:02}/{j}").as_str()));
        }
    }
    assert_eq!(watch.try_next(), None);
    let listed = watcher.list("").await.unwrap();
    assert_eq!(listed.len(), values * keys);
    assert!(listed.is_sorted_by(|a, b| a.0 < b.0));
}

/// More keys than a page.
#[tokio::test]
async fn long_lists_are_of_one_revision() {
    let Some(cluster) = Cluster::start() else { return };
    let coord = connect(&cluster.members(), "pages").await;
    for i in 0..12 {
        let write = |j: usize| Write::Put {
            key: format!("k/{i:02}/{j:03}"),
            value: Bytes::new(),
        };
        let txn = Txn {
            conditions: vec![],
            writes: (0..100).map(write).collect(),
        };
        commit(&*coord, txn).await;
    }
    let listed = coord.list("k/").await.unwrap();
    assert_eq!(listed.len(), 1_200);
    assert!(listed.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(coord.list("k/05/").await.unwrap().len(), 100);
}
