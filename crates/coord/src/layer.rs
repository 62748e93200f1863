//! A coordinator over another one that differs from it in a few calls.

use crate::coord::Coord;
use crate::error::Result;
use crate::session::Session;
use crate::txn::{Txn, TxnOutcome, Versioned};
use crate::watch::Watch;
use async_trait::async_trait;
use std::time::Duration;

/// A coordinator whose calls go to another one, those excepted that it implements itself. It is a [`Coord`].
#[async_trait]
pub trait Layer: Send + Sync + 'static {
    /// The other coordinator.
    fn below(&self) -> &dyn Coord;

    /// See [`Coord::get`].
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        self.below().get(key).await
    }

    /// See [`Coord::list`].
    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        self.below().list(prefix).await
    }

    /// See [`Coord::txn`].
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        self.below().txn(txn).await
    }

    /// See [`Coord::watch`].
    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.below().watch(prefix).await
    }

    /// See [`Coord::session`].
    async fn session(&self, ttl: Duration) -> Result<Session> {
        self.below().session(ttl).await
    }
}

#[async_trait]
impl<L: Layer> Coord for L {
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        Layer::get(self, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        Layer::list(self, prefix).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        Layer::txn(self, txn).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        Layer::watch(self, prefix).await
    }

    async fn session(&self, ttl: Duration) -> Result<Session> {
        Layer::session(self, ttl).await
    }
}
