//! The service interface of coordination, implemented by each backend.

use crate::error::Result;
use crate::session::Session;
use crate::txn::{Txn, TxnOutcome, Versioned};
use crate::watch::Watch;
use async_trait::async_trait;
use std::time::Duration;

/// A coordinator. Object-safe: its users hold `Arc<dyn Coord>`.
///
/// Operations are linearisable. After an error of [`Coord::txn`] that is not about its arguments
/// ([`CoordError::is_ambiguous`]) the transaction may have happened or may yet happen, until another one that writes
/// succeeds.
///
/// A watch may be told of a transaction after [`Coord::txn`] returned. All watches of one coordinator object are told of
/// a transaction before any of them is told of a later one.
#[async_trait]
pub trait Coord: Send + Sync + 'static {
    /// A key's value.
    async fn get(&self, key: &str) -> Result<Option<Versioned>>;

    /// All keys that begin with `prefix`, sorted, as of one revision.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>>;

    /// Runs a transaction; `Committed` means durable.
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome>;

    /// Changes of keys that begin with `prefix`, from now on.
    async fn watch(&self, prefix: &str) -> Result<Watch>;

    /// Begins a session that ends `ttl` after it was last kept alive.
    async fn session(&self, ttl: Duration) -> Result<Session>;
}
