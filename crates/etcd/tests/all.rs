//! Checks the coordinator on a real etcd of three members. `cargo xtask etcd` passes its program and a folder; without
//! them the tests pass without a check.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts, stops and kills real processes, and drives real sockets"
)]

mod support {
    pub mod cluster;
    pub mod proxy;
}

mod conformance;
mod failures;
mod late;
mod secured;
mod sessions;
mod watches;

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::{Condition, Coord, Txn, TxnOutcome, Write};
use stele_env::tokio_env::TokioRuntime;
use stele_etcd::{EtcdAddress, EtcdCoord, EtcdSecurity};

/// Long enough for everything on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// A coordinator of this name.
pub async fn connect(members: &str, name: &str) -> Arc<EtcdCoord> {
    connect_with(members, name, LONG).await
}

/// The same with a time for each request.
pub async fn connect_with(members: &str, name: &str, limit: Duration) -> Arc<EtcdCoord> {
    let address = EtcdAddress::parse(&format!("etcd://{members}/{name}")).unwrap();
    let security = EtcdSecurity::default();
    EtcdCoord::connect_with(&address, security, TokioRuntime::current(), limit)
        .await
        .expect("connect")
}

/// A transaction of one put.
pub fn put(key: &str, value: &str) -> Txn {
    let write = Write::Put {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    Txn {
        conditions: vec![],
        writes: vec![write],
    }
}

/// The same, if the key does not exist.
pub fn create(key: &str, value: &str) -> Txn {
    Txn {
        conditions: vec![Condition::absent(key)],
        ..put(key, value)
    }
}

/// The revision of a transaction that must succeed.
pub async fn commit(coord: &dyn Coord, txn: Txn) -> u64 {
    match coord.txn(txn).await.expect("transaction") {
        TxnOutcome::Committed { revision } => revision,
        conflict @ TxnOutcome::Conflict { .. } => unreachable!("{conflict:?}"),
    }
}

/// The text of a key.
pub async fn text(coord: &dyn Coord, key: &str) -> Option<String> {
    let found = coord.get(key).await.expect("get")?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}
