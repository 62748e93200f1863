//! Transactions of the coordinator as transactions of etcd, and etcd's responses as outcomes. Pure.
//!
//! A write transaction has one condition and one write more than its caller gave: those of the guard. When a condition
//! fails, etcd returns the numbers of all keys in question, and the first key that does not meet its condition is the
//! conflict.

use crate::guard;
use crate::keys::Keys;
use crate::messages::{
    Compare, Comparison, DeleteRangeRequest, Headed, KeyValue, Number, Operation, PutRequest, RangeRequest, RequestOp,
    Target, TxnRequest, TxnResponse,
};
use bytes::Bytes;
use stele_coord::{Condition, CoordError, Expected, Result, SessionId, Txn, TxnOutcome, Write};

/// The result of a write transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It happened, at this revision, which is the guard's now.
    Committed { revision: i64 },
    /// A condition of the caller did not hold; the guard did.
    Conflict { key: String },
    /// The guard is not as expected. Nothing happened.
    GuardChanged { guard: Option<KeyValue> },
}

/// A write transaction under the guard.
pub(crate) fn guarded(keys: &Keys, txn: &Txn, revision: i64, id: &str) -> TxnRequest {
    assert!(!txn.writes.is_empty(), "a transaction without writes has no guard");
    assert!(revision > 0, "an absent guard guards nothing");
    let mut request = question(keys, txn);
    request.compare.push(guard_is(keys, revision));
    request.success = txn.writes.iter().map(|write| operation(keys, write)).collect();
    request.success.push(put_guard(keys, id));
    request.failure.push(read(keys.guard(), false));
    request
}

/// The conditions of a transaction without its writes.
pub(crate) fn question(keys: &Keys, txn: &Txn) -> TxnRequest {
    let conditions = txn.conditions.iter();
    TxnRequest {
        compare: conditions.clone().map(|condition| compare(keys, condition)).collect(),
        // etcd answers a transaction without a linearisable read from the memory of the member, however old.
        success: vec![read(keys.guard(), true)],
        failure: conditions
            .map(|condition| read(keys.stored(&condition.key), true))
            .collect(),
    }
}

/// Takes the place of transaction `id`, unless that has happened.
pub(crate) fn settling(keys: &Keys, revision: i64, id: &str) -> TxnRequest {
    TxnRequest {
        compare: vec![guard_is(keys, revision)],
        success: vec![put_guard(keys, &guard::settled(id))],
        failure: vec![read(keys.guard(), false)],
    }
}

/// Makes the guard if there is none.
pub(crate) fn making(keys: &Keys, id: &str, lease: i64) -> TxnRequest {
    let put = PutRequest {
        key: keys.guard(),
        value: Bytes::copy_from_slice(id.as_bytes()),
        lease,
        ignore_lease: false,
    };
    TxnRequest {
        compare: vec![condition(
            keys.guard(),
            Target::Create,
            Comparison::Equal,
            Number::Create(0),
        )],
        success: vec![wrap(Operation::Put(put))],
        failure: vec![read(keys.guard(), false)],
    }
}

/// Reads the guard.
pub(crate) fn reading(keys: &Keys) -> RangeRequest {
    RangeRequest {
        key: keys.guard(),
        ..RangeRequest::default()
    }
}

/// The result of [`guarded`] with this revision.
pub(crate) fn written(txn: &Txn, revision: i64, response: &TxnResponse) -> Result<Written> {
    if response.succeeded {
        let now = response.revision();
        return match now > revision {
            true => Ok(Written::Committed { revision: now }),
            false => Err(unexpected("a transaction that did not raise the revision")),
        };
    }
    // The guard was read last, after one key for each condition.
    if response.responses.len() != txn.conditions.len() + 1 {
        return Err(unexpected("a failed transaction without the keys of its conditions"));
    }
    let guard = read_at(response, txn.conditions.len());
    if guard.is_none_or(|guard| guard.mod_revision != revision) {
        return Ok(Written::GuardChanged { guard: guard.cloned() });
    }
    conflict(txn, response).map(|key| Written::Conflict { key })
}

/// The result of [`question`].
pub(crate) fn answered(txn: &Txn, response: &TxnResponse) -> Result<TxnOutcome> {
    match response.succeeded {
        true => Ok(TxnOutcome::Committed {
            revision: number(response.revision())?,
        }),
        false => conflict(txn, response).map(|key| TxnOutcome::Conflict { key }),
    }
}

/// The key that [`settling`] or [`making`] read, because its condition did not hold.
pub(crate) fn guard_read(response: &TxnResponse) -> Option<&KeyValue> {
    read_at(response, 0)
}

/// A revision as the coordinator counts it.
pub(crate) fn number(revision: i64) -> Result<u64> {
    u64::try_from(revision).map_err(|_| unexpected("a negative revision"))
}

/// The sessions that keys are to be bound to.
pub(crate) fn sessions(txn: &Txn) -> impl Iterator<Item = SessionId> {
    txn.writes.iter().filter_map(|write| match write {
        Write::PutBound { session, .. } => Some(*session),
        Write::Put { .. } | Write::Delete { .. } => None,
    })
}

/// The first condition that did not hold, by the keys that were read in the same transaction.
fn conflict(txn: &Txn, response: &TxnResponse) -> Result<String> {
    let mut conditions = txn.conditions.iter().enumerate();
    let failed = conditions.find(|(i, condition)| !holds(condition.expected, read_at(response, *i)));
    let (_, condition) = failed.ok_or_else(|| unexpected("a failed transaction whose conditions hold"))?;
    Ok(condition.key.clone())
}

fn holds(expected: Expected, found: Option<&KeyValue>) -> bool {
    match (expected, found) {
        (Expected::Absent, found) => found.is_none(),
        (Expected::Present, found) => found.is_some(),
        (Expected::Version(_), None) => false,
        (Expected::Version(version), Some(found)) => u64::try_from(found.mod_revision) == Ok(version),
    }
}

fn read_at(response: &TxnResponse, index: usize) -> Option<&KeyValue> {
    response.responses.get(index)?.range.as_ref()?.kvs.first()
}

fn compare(keys: &Keys, of: &Condition) -> Compare {
    let key = keys.stored(&of.key);
    match of.expected {
        Expected::Absent => condition(key, Target::Create, Comparison::Equal, Number::Create(0)),
        Expected::Present => condition(key, Target::Create, Comparison::Greater, Number::Create(0)),
        Expected::Version(version) => match i64::try_from(version) {
            Ok(version) if version > 0 => condition(key, Target::Mod, Comparison::Equal, Number::Mod(version)),
            // No key has such a version, and one that does not exist must not seem to. No number is below zero.
            _ => condition(key, Target::Version, Comparison::Less, Number::Version(0)),
        },
    }
}

fn guard_is(keys: &Keys, revision: i64) -> Compare {
    condition(keys.guard(), Target::Mod, Comparison::Equal, Number::Mod(revision))
}

fn condition(key: Bytes, target: Target, result: Comparison, number: Number) -> Compare {
    Compare {
        result: result.into(),
        target: target.into(),
        key,
        number: Some(number),
    }
}

fn operation(keys: &Keys, write: &Write) -> RequestOp {
    let put = |key: &str, value: &Bytes, lease| {
        Operation::Put(PutRequest {
            key: keys.stored(key),
            value: value.clone(),
            lease,
            ignore_lease: false,
        })
    };
    wrap(match write {
        Write::Put { key, value } => put(key, value, 0),
        Write::PutBound { key, value, session } => put(key, value, lease_of(*session)),
        Write::Delete { key } => Operation::Delete(DeleteRangeRequest { key: keys.stored(key) }),
    })
}

/// The guard keeps its lease, so that the only leases a transaction can miss are those of its sessions.
fn put_guard(keys: &Keys, id: &str) -> RequestOp {
    wrap(Operation::Put(PutRequest {
        key: keys.guard(),
        value: Bytes::copy_from_slice(id.as_bytes()),
        lease: 0,
        ignore_lease: true,
    }))
}

fn read(key: Bytes, keys_only: bool) -> RequestOp {
    wrap(Operation::Range(RangeRequest {
        key,
        keys_only,
        ..RangeRequest::default()
    }))
}

fn wrap(operation: Operation) -> RequestOp {
    RequestOp {
        request: Some(operation),
    }
}

/// The lease of a session, by its name in etcd.
pub(crate) fn lease_of(session: SessionId) -> i64 {
    session.0 as i64
}

/// etcd does not behave as its protocol says.
pub(crate) fn unexpected(found: &str) -> CoordError {
    CoordError::BadValue {
        key: "etcd".to_owned(),
        expected: "a response by its protocol",
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests;
