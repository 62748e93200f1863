//! Sessions whose owner stops, and the elections that follow.

use crate::support::cluster::Cluster;
use crate::{LONG, commit, connect, put};
use bytes::Bytes;
use std::time::Duration;
use stele_coord::{Coord, CoordError, Txn, TxnOutcome, WatchEvent, Write, campaign};
use stele_env::tokio_env::TokioRuntime;

fn bound(key: &str, session: &stele_coord::Session) -> Txn {
    let write = Write::PutBound {
        key: key.to_owned(),
        value: Bytes::from_static(b"bound"),
        session: session.id(),
    };
    Txn {
        conditions: vec![],
        writes: vec![write],
    }
}

/// A leader stops keeping its session alive. It knows of its end before another one leads, and its transactions fail.
#[tokio::test]
async fn another_one_leads_after_the_owner_stops() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let (old, new) = (
        connect(&cluster.members(), "leaders").await,
        connect(&cluster.members(), "leaders").await,
    );
    let session = old.session(Duration::from_secs(2)).await.unwrap();
    let led = campaign(&*old, "master", &session, Bytes::from_static(b"old"))
        .await
        .unwrap();
    let fenced = |leadership: &stele_coord::Leadership, value: &str| Txn {
        conditions: vec![leadership.fence()],
        ..put("by", value)
    };
    for _ in 0..4 {
        env.sleep(Duration::from_millis(700)).await;
        session.keep_alive().await.unwrap();
    }
    commit(&*old, fenced(&led, "old")).await;
    let other = new.session(LONG).await.unwrap();
    let won = campaign(&*new, "master", &other, Bytes::from_static(b"new"));
    let won = env.timeout(LONG, won).await.expect("the place becomes free").unwrap();
    assert_eq!(session.ends_at(), None, "the owner knew before");
    assert!(won.version() > led.version());
    let outcome = old.txn(fenced(&led, "old")).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }), "{outcome:?}");
    commit(&*new, fenced(&won, "new")).await;
    let ended = Err(CoordError::SessionEnded { session: session.id() });
    assert_eq!(session.keep_alive().await, ended);
    assert_eq!(old.txn(bound("k", &session)).await.map(drop), ended);
}

/// etcd ends a session without its owner's doing: the owner is told by its next call.
#[tokio::test]
async fn a_lost_lease_is_reported() {
    let Some(cluster) = Cluster::start() else { return };
    let env = TokioRuntime::current();
    let coord = connect(&cluster.members(), "lost").await;
    let (one, other) = (coord.session(LONG).await.unwrap(), coord.session(LONG).await.unwrap());
    let mut watch = coord.watch("").await.unwrap();
    commit(&*coord, bound("one", &one)).await;
    commit(&*coord, bound("other", &other)).await;
    cluster.revoke_lease(one.id().0);
    for (is_gone, key) in [(false, "one"), (false, "other"), (true, "one")] {
        let told = env.timeout(LONG, watch.next()).await.expect("an event").unwrap();
        assert_eq!(told.key(), Some(key));
        assert_eq!(matches!(told, WatchEvent::Deleted { .. }), is_gone);
    }
    // A transaction with keys of several sessions names the one that ended.
    let both = Txn {
        conditions: vec![],
        writes: [bound("a", &other).writes, bound("b", &one).writes].concat(),
    };
    let ended = CoordError::SessionEnded { session: one.id() };
    assert_eq!(coord.txn(both).await, Err(ended.clone()));
    assert_eq!(coord.get("a").await.unwrap(), None, "nothing of it happened");
    assert_eq!(one.ends_at(), None);
    assert_eq!(one.keep_alive().await, Err(ended.clone()));

    cluster.revoke_lease(other.id().0);
    let ended = CoordError::SessionEnded { session: other.id() };
    assert_eq!(other.keep_alive().await, Err(ended));
    assert_eq!(other.ends_at(), None);
    other.revoke().await.unwrap();
}
