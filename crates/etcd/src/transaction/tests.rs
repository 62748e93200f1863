use super::*;
use crate::messages::{RangeResponse, ResponseHeader, ResponseOp};
use prost::Message;
use stele_coord::{KEY_BYTES_MAX, TXN_BYTES_MAX, TXN_OPS_MAX};

/// etcd's defaults of `--max-txn-ops` and `--max-request-bytes`.
const ETCD_OPS_MAX: usize = 128;
const ETCD_REQUEST_BYTES_MAX: usize = 3 << 19;

fn keys() -> Keys {
    Keys::new(
        &"n".repeat(crate::address::NAME_BYTES_MAX),
        "0123456789abcdef0123456789abcdef",
    )
}

fn put(key: &str, bytes: usize) -> Write {
    Write::Put {
        key: key.to_owned(),
        value: Bytes::from(vec![b'x'; bytes]),
    }
}

fn failed(kvs: &[Option<i64>]) -> TxnResponse {
    let read = |revision: &Option<i64>| {
        let kv = |mod_revision| KeyValue {
            mod_revision,
            ..KeyValue::default()
        };
        let range = RangeResponse {
            kvs: revision.map(kv).into_iter().collect(),
            ..RangeResponse::default()
        };
        ResponseOp { range: Some(range) }
    };
    TxnResponse {
        header: Some(ResponseHeader {
            revision: 90,
            ..ResponseHeader::default()
        }),
        succeeded: false,
        responses: kvs.iter().map(read).collect(),
    }
}

#[test]
fn the_largest_transactions_are_within_the_limits_of_etcd() {
    let long = |i: usize| format!("{i:04}{}", "k".repeat(KEY_BYTES_MAX - 4));
    let many = Txn {
        conditions: (0..TXN_OPS_MAX).map(|i| Condition::absent(long(i))).collect(),
        writes: (0..TXN_OPS_MAX)
            .map(|i| put(&long(i), TXN_BYTES_MAX / TXN_OPS_MAX - 2 * KEY_BYTES_MAX))
            .collect(),
    };
    let large = Txn {
        conditions: vec![],
        writes: vec![put("k", TXN_BYTES_MAX - 1)],
    };
    for txn in [many, large] {
        txn.check().expect("within the limits of the coordinator");
        let request = guarded(&keys(), &txn, i64::MAX, &u64::MAX.to_string());
        for operations in [request.compare.len(), request.success.len(), request.failure.len()] {
            assert!(operations <= ETCD_OPS_MAX, "{operations}");
        }
        assert!(
            request.encoded_len() < ETCD_REQUEST_BYTES_MAX,
            "{}",
            request.encoded_len()
        );
    }
}

#[test]
fn a_changed_guard_is_no_conflict() {
    let txn = Txn {
        conditions: vec![Condition::present("a"), Condition::version("b", 7)],
        writes: vec![put("c", 1)],
    };
    let of = |kvs: &[Option<i64>]| written(&txn, 5, &failed(kvs));
    let conflict = |key: &str| Ok(Written::Conflict { key: key.to_owned() });
    assert_eq!(of(&[None, Some(7), Some(5)]), conflict("a"));
    assert_eq!(of(&[Some(1), Some(8), Some(5)]), conflict("b"));
    assert_eq!(of(&[Some(1), None, Some(5)]), conflict("b"));
    assert_eq!(of(&[None, None, None]), Ok(Written::GuardChanged { guard: None }));
    assert!(matches!(
        of(&[None, None, Some(6)]),
        Ok(Written::GuardChanged { guard: Some(_) })
    ));
    // Responses that etcd does not give are errors.
    assert!(of(&[Some(1), Some(7), Some(5)]).is_err());
    assert!(of(&[]).is_err());
    let without_header = TxnResponse {
        succeeded: true,
        ..TxnResponse::default()
    };
    assert!(written(&txn, 5, &without_header).is_err());
}

#[test]
fn versions_that_no_key_has_never_match() {
    for version in [0, u64::MAX] {
        let compare = compare(&keys(), &Condition::version("a", version));
        assert_eq!(compare.target(), Target::Version);
        assert_eq!(compare.result(), Comparison::Less);
        assert_eq!(compare.number, Some(Number::Version(0)));
    }
}

#[test]
fn the_guard_keeps_its_lease_and_sessions_are_named() {
    let bound = Write::PutBound {
        key: "b".to_owned(),
        value: Bytes::new(),
        session: SessionId(77),
    };
    let txn = Txn {
        conditions: vec![],
        writes: vec![put("a", 0), bound],
    };
    let request = guarded(&keys(), &txn, 5, "9");
    let puts: Vec<(i64, bool)> = request
        .success
        .iter()
        .filter_map(|op| match &op.request {
            Some(Operation::Put(put)) => Some((put.lease, put.ignore_lease)),
            _ => None,
        })
        .collect();
    assert_eq!(puts, [(0, false), (77, false), (0, true)]);
    assert_eq!(sessions(&txn).collect::<Vec<_>>(), [SessionId(77)]);
}
