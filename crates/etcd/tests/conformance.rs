//! The suite over all coordinators.

use crate::support::cluster::Cluster;
use crate::{LONG, connect};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stele_coord::{Coord, conformance};
use stele_env::tokio_env::TokioRuntime;

/// Also on an etcd that runs already: `STELE_TEST_ETCD_MEMBERS` has its `host:port,host:port`.
#[tokio::test]
async fn conforms() {
    let cluster = Cluster::start();
    let elsewhere = std::env::var("STELE_TEST_ETCD_MEMBERS").ok();
    let Some(members) = elsewhere.or_else(|| cluster.as_ref().map(Cluster::members)) else {
        return;
    };
    let env = TokioRuntime::current();
    let (run, count) = (env.random_u64(), AtomicU32::new(0));
    let suite = conformance::run_all(&env, || {
        let name = format!("conformance-{run:x}-{}", count.fetch_add(1, Ordering::Relaxed));
        let members = &members;
        async move { connect(members, &name).await as Arc<dyn Coord> }
    });
    env.timeout(LONG * 3, suite).await.expect("the suite ends");
}

/// Several names share one etcd without seeing each other.
#[tokio::test]
async fn names_are_apart() {
    let Some(cluster) = Cluster::start() else { return };
    let one = connect(&cluster.members(), "prod").await;
    let other = connect(&cluster.members(), "prod2").await;
    let mut watch = other.watch("").await.unwrap();
    crate::commit(&*one, crate::put("k", "one")).await;
    assert_eq!(other.list("").await.unwrap(), vec![]);
    assert_eq!(other.get("k").await.unwrap(), None);
    crate::commit(&*other, crate::create("k", "other")).await;
    let told = watch.next().await.unwrap();
    assert_eq!(told.key(), Some("k"));
    assert_eq!(crate::text(&*one, "k").await.as_deref(), Some("one"));
}
