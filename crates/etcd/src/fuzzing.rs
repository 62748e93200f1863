//! Checks of responses of etcd for fuzz targets.
//!
//! They are here, because the messages are no interface of the crate.

use crate::guard::{self, Guard};
use crate::keys::Keys;
use crate::listing::entry;
use crate::messages::{
    AuthenticateResponse, Event, Headed, KeyValue, LeaseGrantResponse, LeaseResponse, LeaseRevokeResponse,
    RangeResponse, ResponseHeader, ResponseOp, TxnResponse, WatchResponse,
};
use crate::transaction::{Written, answered, guard_read, written};
use bytes::Bytes;
use prost::Message;
use std::fmt::Debug;
use stele_coord::{Condition, Txn, TxnOutcome, Write};

/// The revision of the guard in the checked transactions.
const REVISION: i64 = 40;

/// Checks a response of each kind, and its outcome for the caller.
///
/// # Panics
/// If encoding changes a response. If an outcome names a key or a revision that neither the caller nor the response has.
pub fn responses(bytes: &[u8]) {
    let keys = Keys::new("prod", "1");
    same::<AuthenticateResponse>(bytes);
    same::<LeaseGrantResponse>(bytes);
    same::<LeaseRevokeResponse>(bytes);
    same::<LeaseResponse>(bytes);
    if let Some(page) = same::<RangeResponse>(bytes) {
        page.kvs.iter().for_each(|kv| shown(&keys, kv));
    }
    if let Some(watched) = same::<WatchResponse>(bytes) {
        let changed = watched.events.iter().filter_map(|event| event.kv.as_ref());
        changed.for_each(|kv| shown(&keys, kv));
    }
    if let Some(response) = same::<TxnResponse>(bytes) {
        outcome(&response);
    }
}

/// Valid responses from which fuzzing starts.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = || {
        Some(ResponseHeader {
            cluster_id: 1,
            member_id: 2,
            revision: REVISION + 1,
        })
    };
    let kv = |key: &'static str, revision| KeyValue {
        key: Bytes::from_static(key.as_bytes()),
        create_revision: 3,
        mod_revision: revision,
        version: 1,
        value: Bytes::from_static(b"v"),
        lease: 7,
    };
    let page = RangeResponse {
        header: header(),
        kvs: vec![kv("prod/keys/a", 5), kv("prod/keys/b", 6)],
        more: true,
    };
    let read = |kvs| ResponseOp {
        range: Some(RangeResponse {
            kvs,
            ..RangeResponse::default()
        }),
    };
    let txn = |succeeded, responses| TxnResponse {
        header: header(),
        succeeded,
        responses,
    };
    let kept = vec![
        read(vec![kv("prod/keys/a", 5)]),
        read(vec![kv("prod/keys/b", 6)]),
        read(vec![kv("prod/guards/1", REVISION)]),
    ];
    let lease = LeaseGrantResponse {
        header: header(),
        id: 7,
        ttl: 10,
        error: "none".to_owned(),
    };
    let event = Event {
        kind: 1,
        kv: Some(kv("prod/keys/a", 5)),
    };
    let watched = WatchResponse {
        header: header(),
        created: true,
        events: vec![event],
        ..WatchResponse::default()
    };
    vec![
        page.encode_to_vec(),
        txn(true, Vec::new()).encode_to_vec(),
        txn(false, kept).encode_to_vec(),
        lease.encode_to_vec(),
        watched.encode_to_vec(),
    ]
}

fn same<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    assert_eq!(M::decode(&message.encode_to_vec()[..]).as_ref(), Ok(&message));
    Some(message)
}

/// An entry has the key that its user wrote.
fn shown(keys: &Keys, kv: &KeyValue) {
    if let Ok((key, current)) = entry(keys, kv) {
        assert!(!key.is_empty());
        assert_eq!(keys.stored(&key), kv.key);
        assert_eq!(i64::try_from(current.version), Ok(kv.mod_revision));
    }
}

fn outcome(response: &TxnResponse) {
    let txn = Txn {
        conditions: vec![Condition::absent("a"), Condition::version("b", 6)],
        writes: vec![Write::Delete { key: "a".to_owned() }],
    };
    let is_asked = |key: &str| txn.conditions.iter().any(|condition| condition.key == key);
    match written(&txn, REVISION, response) {
        Ok(Written::Committed { revision }) => assert!(response.succeeded && revision > REVISION),
        Ok(Written::Conflict { key }) => assert!(!response.succeeded && is_asked(&key)),
        Ok(Written::GuardChanged { guard }) => {
            assert!(!response.succeeded && guard.is_none_or(|guard| guard.mod_revision != REVISION));
        }
        Err(_) => {}
    }
    match answered(&txn, response) {
        Ok(TxnOutcome::Committed { revision }) => assert_eq!(i64::try_from(revision), Ok(response.revision())),
        Ok(TxnOutcome::Conflict { key }) => assert!(!response.succeeded && is_asked(&key)),
        Err(_) => {}
    }
    let read = guard_read(response);
    let _ = guard::fate("7", read);
    assert_eq!(matches!(guard::found(read), Guard::Absent), read.is_none());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_survive_their_checks() {
        for seed in seeds() {
            responses(&seed);
        }
    }
}
