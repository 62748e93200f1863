//! One suite over all coordinators checks the promises of [`crate::Coord`] without failures.
//!
//! Each check gets a fresh coordinator. A broken promise is a failed assertion, so this belongs in tests.

use crate::coord::Coord;
use crate::election::{campaign, leader};
use crate::epoch::{EPOCH_PREFIX, next_epoch, next_epoch_above};
use crate::error::CoordError;
use crate::limits::{KEY_BYTES_MAX, TXN_BYTES_MAX, TXN_OPS_MAX};
use crate::session_id::SessionId;
use crate::txn::{Condition, Txn, TxnOutcome, Versioned, Write};
use crate::watch::{WATCH_EVENTS_MAX, WatchEvent};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{Env, Priority};
use stele_types::ErrorKind;

/// Long enough that no slow machine ends a session by accident.
const LONG: Duration = Duration::from_secs(600);

/// Runs every check on coordinators made by `make`, whose leases run on `env`'s clock.
pub async fn run_all<F: Future<Output = Arc<dyn Coord>>>(env: &Env, make: impl Fn() -> F) {
    keys_have_versions(&*make().await).await;
    lists_are_sorted(&*make().await).await;
    conditions_guard_all_writes(&*make().await).await;
    limits_are_refused(&*make().await).await;
    watches_tell_in_order(&*make().await).await;
    slow_watches_resync(&*make().await).await;
    watches_end_with_the_coordinator(make().await).await;
    sessions_take_their_keys_along(&*make().await).await;
    sessions_expire(env, &*make().await).await;
    elections_have_one_leader(env, make().await).await;
    epochs_grow(env, make().await).await;
}

/// A transaction of one put.
pub(crate) fn put(key: &str, value: &str) -> Txn {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Txn {
        conditions: vec![],
        writes: vec![Write::Put {
            key: key.to_owned(),
            value,
        }],
    }
}

fn delete(key: &str) -> Txn {
    Txn {
        conditions: vec![],
        writes: vec![Write::Delete { key: key.to_owned() }],
    }
}

fn put_bound(key: &str, session: SessionId) -> Txn {
    let write = Write::PutBound {
        key: key.to_owned(),
        value: Bytes::from_static(b"bound"),
        session,
    };
    Txn {
        conditions: vec![],
        writes: vec![write],
    }
}

/// The revision of a transaction that must succeed.
pub(crate) async fn commit(coord: &dyn Coord, txn: Txn) -> u64 {
    match coord.txn(txn).await.expect("transaction") {
        TxnOutcome::Committed { revision } => revision,
        conflict @ TxnOutcome::Conflict { .. } => unreachable!("{conflict:?}"),
    }
}

async fn get(coord: &dyn Coord, key: &str) -> Option<Versioned> {
    coord.get(key).await.expect("get")
}

fn versioned(value: &str, version: u64) -> Versioned {
    Versioned {
        value: Bytes::copy_from_slice(value.as_bytes()),
        version,
    }
}

async fn keys_have_versions(coord: &dyn Coord) {
    assert_eq!(get(coord, "k").await, None);
    let first = commit(coord, put("k", "one")).await;
    assert_eq!(get(coord, "k").await, Some(versioned("one", first)));
    let second = commit(coord, put("k", "")).await;
    assert!(second > first);
    assert_eq!(get(coord, "k").await, Some(versioned("", second)));
    let third = commit(coord, delete("k")).await;
    assert!(third > second);
    assert_eq!(get(coord, "k").await, None);
    commit(coord, delete("k")).await;
    assert!(
        commit(coord, put("k", "again")).await > third,
        "a version does not come back"
    );
}

async fn lists_are_sorted(coord: &dyn Coord) {
    let mut expected = Vec::new();
    for key in ["b/2", "a", "b/10", "b", "b/1", "c"] {
        let version = commit(coord, put(key, key)).await;
        expected.push((key.to_owned(), versioned(key, version)));
    }
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(coord.list("").await.expect("list"), expected);
    expected.retain(|(key, _)| key.starts_with("b/"));
    assert_eq!(expected.len(), 3);
    assert_eq!(coord.list("b/").await.expect("list"), expected);
    assert_eq!(coord.list("d").await.expect("list"), vec![]);
}

async fn conditions_guard_all_writes(coord: &dyn Coord) {
    let version = commit(coord, put("a", "1")).await;
    let cases = [
        (Condition::absent("a"), false),
        (Condition::present("a"), true),
        (Condition::version("a", version), true),
        (Condition::version("a", version + 1), false),
        (Condition::version("a", 0), false),
        (Condition::absent("z"), true),
        (Condition::present("z"), false),
        (Condition::version("z", version), false),
        (Condition::unchanged("z", None), true),
        (Condition::unchanged("a", None), false),
    ];
    for (i, (condition, holds)) in cases.into_iter().enumerate() {
        let key = condition.key.clone();
        let two = [put(&format!("x/{i}"), "x"), put(&format!("y/{i}"), "y")];
        let writes = two.into_iter().flat_map(|txn| txn.writes).collect();
        // A condition that holds comes first, to see that all count.
        let conditions = vec![Condition::present("a"), condition.clone()];
        match coord.txn(Txn { conditions, writes }).await.expect("transaction") {
            TxnOutcome::Committed { revision } => {
                assert!(holds, "{condition:?}");
                assert_eq!(get(coord, &format!("x/{i}")).await, Some(versioned("x", revision)));
                assert_eq!(get(coord, &format!("y/{i}")).await, Some(versioned("y", revision)));
            }
            TxnOutcome::Conflict { key: found } => {
                assert!(!holds, "{condition:?}");
                assert_eq!(found, key);
                assert_eq!(get(coord, &format!("x/{i}")).await, None);
                assert_eq!(get(coord, &format!("y/{i}")).await, None);
            }
        }
    }
    // Conditions alone are a question. Others may share the coordinator's revisions.
    let last = commit(coord, put("a", "2")).await;
    let question = Txn {
        conditions: vec![Condition::version("a", last)],
        writes: vec![],
    };
    assert!(commit(coord, question).await >= last);
}

async fn limits_are_refused(coord: &dyn Coord) {
    let many = |n: usize| Txn {
        conditions: vec![],
        writes: (0..n).flat_map(|i| put(&format!("m/{i}"), "").writes).collect(),
    };
    let large = |n: usize| put("k", &"x".repeat(n - 1));
    let twice = Txn {
        conditions: vec![],
        writes: [put("k", "1").writes, delete("k").writes].concat(),
    };
    let conditions = vec![Condition::present("k"); TXN_OPS_MAX + 1];
    for bad in [
        put("", "x"),
        put(&"k".repeat(KEY_BYTES_MAX + 1), "x"),
        Txn {
            conditions: vec![Condition::absent("")],
            writes: vec![],
        },
        Txn {
            conditions,
            writes: vec![],
        },
        many(TXN_OPS_MAX + 1),
        large(TXN_BYTES_MAX + 1),
        twice,
    ] {
        let error = coord.txn(bad).await.expect_err("a transaction over a limit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(!error.is_ambiguous());
    }
    assert_eq!(coord.list("").await.expect("list"), vec![]);
    commit(coord, put(&"k".repeat(KEY_BYTES_MAX), "x")).await;
    commit(coord, many(TXN_OPS_MAX)).await;
    commit(coord, large(TXN_BYTES_MAX)).await;
}

async fn watches_tell_in_order(coord: &dyn Coord) {
    commit(coord, put("w/before", "x")).await;
    let mut watch = coord.watch("w/").await.expect("watch");
    let first = commit(coord, put("w/a", "1")).await;
    commit(coord, put("other", "x")).await;
    let both = Txn {
        conditions: vec![],
        writes: [put("w/a", "2").writes, put("w/b", "1").writes].concat(),
    };
    let second = commit(coord, both).await;
    let third = commit(coord, delete("w/a")).await;
    commit(coord, delete("w/absent")).await;
    let event = |key: &str, value, version| WatchEvent::Put {
        key: key.to_owned(),
        current: versioned(value, version),
    };
    let deleted = WatchEvent::Deleted {
        key: "w/a".to_owned(),
        revision: third,
    };
    for expected in [
        event("w/a", "1", first),
        event("w/a", "2", second),
        event("w/b", "1", second),
        deleted,
    ] {
        assert_eq!(watch.next().await, Some(expected));
    }
    assert_eq!(watch.try_next(), None);
}

async fn slow_watches_resync(coord: &dyn Coord) {
    let mut watch = coord.watch("").await.expect("watch");
    assert_eq!(watch.try_next(), None);
    let writes = |i: usize| (0..TXN_OPS_MAX).flat_map(move |j| put(&format!("{i}/{j}"), "").writes);
    for i in 0..=WATCH_EVENTS_MAX / TXN_OPS_MAX {
        commit(
            coord,
            Txn {
                conditions: vec![],
                writes: writes(i).collect(),
            },
        )
        .await;
    }
    let last = commit(coord, put("last", "x")).await;
    everything_is_told(coord).await;
    let (mut resyncs, mut events, mut newest) = (0, 0, None);
    while let Some(event) = watch.try_next() {
        if event.key().is_some_and(|key| key.starts_with("told/")) {
            continue;
        }
        resyncs += usize::from(event == WatchEvent::Resync);
        events += 1;
        newest = Some(event);
    }
    assert_eq!(resyncs, 1);
    assert!(events <= WATCH_EVENTS_MAX + 1, "{events}");
    let expected = WatchEvent::Put {
        key: "last".to_owned(),
        current: versioned("x", last),
    };
    assert_eq!(newest, Some(expected), "changes after the loss are told");
}

async fn watches_end_with_the_coordinator(coord: Arc<dyn Coord>) {
    let mut watch = coord.watch("").await.expect("watch");
    commit(&*coord, put("k", "x")).await;
    everything_is_told(&*coord).await;
    drop(coord);
    while watch.next().await.is_some() {}
}

/// Returns once all watches were told of all changes so far.
async fn everything_is_told(coord: &dyn Coord) {
    let mut other = coord.watch("told/").await.expect("watch");
    for key in ["told/1", "told/2"] {
        commit(coord, put(key, "")).await;
        assert_eq!(other.next().await.as_ref().and_then(WatchEvent::key), Some(key));
    }
}

async fn sessions_take_their_keys_along(coord: &dyn Coord) {
    let session = coord.session(LONG).await.expect("session");
    assert!(session.ends_at().is_some());
    let other = coord.session(LONG).await.expect("session");
    assert_ne!(session.id(), other.id());
    let mut watch = coord.watch("s/").await.expect("watch");
    for key in ["s/1", "s/2", "s/3", "s/4"] {
        commit(coord, put_bound(key, session.id())).await;
        assert!(watch.next().await.is_some());
    }
    // A later write takes a key away from the session.
    commit(coord, put("s/2", "unbound")).await;
    commit(coord, put_bound("s/3", other.id())).await;
    commit(coord, delete("s/4")).await;
    for _ in 0..3 {
        assert!(watch.next().await.is_some());
    }
    session.keep_alive().await.expect("keep alive");
    session.revoke().await.expect("revoke");
    session.revoke().await.expect("revoke twice");
    let left: Vec<String> = coord.list("").await.expect("list").into_iter().map(|e| e.0).collect();
    assert_eq!(left, ["s/2", "s/3"]);
    assert!(
        matches!(watch.next().await, Some(WatchEvent::Deleted { key, .. }) if key == "s/1"),
        "the key that vanished is told"
    );
    assert_eq!(watch.try_next(), None);

    let ended = Err(CoordError::SessionEnded { session: session.id() });
    assert_eq!(session.keep_alive().await, ended);
    assert_eq!(session.ends_at(), None);
    assert_eq!(coord.txn(put_bound("s/5", session.id())).await.map(|_| ()), ended);
    assert_eq!(get(coord, "s/5").await, None);
}

async fn sessions_expire(env: &Env, coord: &dyn Coord) {
    let kept = coord.session(LONG).await.expect("session");
    let lost = coord.session(Duration::from_millis(20)).await.expect("session");
    commit(coord, put_bound("kept", kept.id())).await;
    let mut watch = coord.watch("lost").await.expect("watch");
    match coord.txn(put_bound("lost", lost.id())).await {
        Ok(_) => {
            assert!(watch.next().await.is_some());
            let gone = env.timeout(LONG, watch.next()).await.expect("the session expires");
            assert!(matches!(gone, Some(WatchEvent::Deleted { .. })), "{gone:?}");
        }
        // On a slow machine it ends before it is used.
        Err(error) => assert_eq!(error.kind(), ErrorKind::FailedPrecondition),
    }
    assert!(lost.keep_alive().await.is_err());
    assert_eq!(lost.ends_at(), None);
    kept.keep_alive().await.expect("keep alive");
    assert!(get(coord, "kept").await.is_some());
}

async fn elections_have_one_leader(env: &Env, coord: Arc<dyn Coord>) {
    let session = coord.session(LONG).await.expect("session");
    let first = campaign(&*coord, "master", &session, Bytes::from_static(b"one"))
        .await
        .expect("campaign");
    let found = leader(&*coord, "master").await.expect("leader").expect("there is one");
    assert_eq!(found, versioned("one", first.version()));

    let mut followers = Vec::new();
    for name in ["two", "three"] {
        let candidate = coord.session(LONG).await.expect("session");
        let coord = Arc::clone(&coord);
        let run = async move {
            let value = Bytes::from_static(name.as_bytes());
            let won = campaign(&*coord, "master", &candidate, value).await.expect("campaign");
            let found = leader(&*coord, "master").await.expect("leader").expect("there is one");
            assert_eq!(found, versioned(name, won.version()));
            let fenced = Txn {
                conditions: vec![won.fence()],
                writes: put("by", name).writes,
            };
            commit(&*coord, fenced).await;
            won.resign(&*coord).await.expect("resign");
        };
        let env = env.clone();
        followers.push(async move { env.spawn_join(Priority::Foreground, "candidate", run).await });
    }
    // A name that continues ours is another election.
    let other = campaign(&*coord, "master2", &session, Bytes::new())
        .await
        .expect("campaign");
    other.resign(&*coord).await.expect("resign");
    assert_eq!(leader(&*coord, "master").await.expect("leader"), Some(found));
    session.revoke().await.expect("revoke");
    for follower in followers {
        follower.await.expect("a candidate leads in turn");
    }
    let fenced = Txn {
        conditions: vec![first.fence()],
        writes: put("by", "one").writes,
    };
    let outcome = coord.txn(fenced).await.expect("transaction");
    assert!(
        matches!(outcome, TxnOutcome::Conflict { .. }),
        "the deposed leader is fenced"
    );
    assert_eq!(leader(&*coord, "master").await.expect("leader"), None);
}

async fn epochs_grow(env: &Env, coord: Arc<dyn Coord>) {
    assert_eq!(next_epoch(&*coord, "e").await, Ok(1));
    assert_eq!(next_epoch(&*coord, "e").await, Ok(2));
    assert_eq!(next_epoch(&*coord, "f").await, Ok(1));
    assert_eq!(next_epoch_above(&*coord, "f", 1).await, Ok(2));
    assert_eq!(next_epoch_above(&*coord, "f", 7).await, Ok(8));
    assert_eq!(next_epoch_above(&*coord, "f", 7).await, Ok(9));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (env, coord) = (env.clone(), Arc::clone(&coord));
        tasks.push(async move {
            let next = async move { next_epoch(&*coord, "e").await.expect("epoch") };
            env.spawn_join(Priority::Foreground, "epoch", next).await.expect("task")
        });
    }
    let mut epochs = Vec::new();
    for task in tasks {
        epochs.push(task.await);
    }
    epochs.sort_unstable();
    assert_eq!(epochs, (3..11).collect::<Vec<u64>>());
    commit(&*coord, put(&format!("{EPOCH_PREFIX}bad"), "many")).await;
    let error = next_epoch(&*coord, "bad").await.expect_err("not a number");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}
