//! Coordination: a small, durable, strictly serialised map of keys, and what is built on it.
//!
//! Terms:
//! * a *revision* numbers the transactions that wrote something; it only grows;
//! * the *version* of a key is the revision that wrote it last;
//! * a *session* is a lease: it ends when revoked or not kept alive for its time to live, and the keys *bound* to it
//!   vanish with it;
//! * an *election* is a bound key that all candidates try to create ([`election::campaign`]).
//!
//! It stands where Bigtable has Chubby (Bigtable §4). Everything small that must survive and that several parties decide
//! on lives here: the catalog, epochs, who is master. Nothing big does: see the limits below, which are those of etcd, so
//! that what fits one backend fits the other.
//!
//! Backend: [`embedded`], one process over [`stele_storage::Storage`]. [`conformance`] is one suite over all backends.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod election;
pub mod embedded;
pub mod epoch;
pub mod error;
pub mod format;
pub mod session;
pub mod watch;

pub use election::{Leadership, campaign};
pub use embedded::EmbeddedCoord;
pub use epoch::{next_epoch, next_epoch_above};
pub use error::{CoordError, Result};
pub use session::{Session, SessionId};
pub use watch::{Watch, WatchEvent};

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest key. A table name, a family of prefixes and a 64-bit id take a quarter of it.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most conditions, and most writes, in one transaction; etcd's `--max-txn-ops`.
pub const TXN_OPS_MAX: usize = 128;

/// Most bytes of keys and values in one transaction: below etcd's 1.5 MiB a request, which includes framing.
pub const TXN_BYTES_MAX: usize = 1 << 20;

/// Most bytes of keys and values altogether: a million tablets at 256 bytes. A backend may hold all of it in memory.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// Most sessions at once: one per server and election, thousands of servers.
pub const SESSIONS_MAX: usize = 10_000;

/// Most watches at once on one backend object.
pub const WATCHES_MAX: usize = 10_000;

/// A value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// The revision of the transaction that wrote it.
    pub version: u64,
}

/// What a transaction wants of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key exists with exactly this version.
    Version(u64),
    /// The key exists.
    Present,
}

/// One condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: String,
    /// What it must be like.
    pub expected: Expected,
}

impl Condition {
    /// The key must not exist.
    pub fn absent(key: impl Into<String>) -> Self {
        Condition {
            key: key.into(),
            expected: Expected::Absent,
        }
    }

    /// The key must exist.
    pub fn present(key: impl Into<String>) -> Self {
        Condition {
            key: key.into(),
            expected: Expected::Present,
        }
    }

    /// The key must have this version.
    pub fn version(key: impl Into<String>, version: u64) -> Self {
        Condition {
            key: key.into(),
            expected: Expected::Version(version),
        }
    }

    /// The key must be as it was read.
    pub fn unchanged(key: impl Into<String>, read: Option<&Versioned>) -> Self {
        let expected = read.map_or(Expected::Absent, |v| Expected::Version(v.version));
        Condition {
            key: key.into(),
            expected,
        }
    }
}

/// One change of a transaction. Each key at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
    },
    /// Sets a key that vanishes when the session ends.
    PutBound {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
        /// A live session.
        session: SessionId,
    },
    /// Removes a key, if it is there.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// The key it changes.
    pub fn key(&self) -> &str {
        match self {
            Write::Put { key, .. } | Write::PutBound { key, .. } | Write::Delete { key } => key,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Write::Put { key, value } | Write::PutBound { key, value, .. } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        }
    }
}

/// If all conditions hold, all writes happen, at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// All happen.
    pub writes: Vec<Write>,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum TxnOutcome {
    /// It happened and is durable.
    Committed {
        /// The version of every key it wrote. For a transaction without writes, the current revision.
        revision: u64,
    },
    /// Nothing happened, because of a condition.
    Conflict {
        /// The key of the first condition that did not hold.
        key: String,
    },
}

/// A coordinator. Object-safe: everybody holds `Arc<dyn Coord>`.
///
/// Operations are linearisable. After an error of [`Coord::txn`] that is not about its arguments
/// ([`CoordError::is_ambiguous`]) the transaction may have happened or may yet happen, until another one succeeds.
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

impl Txn {
    /// Checks the limits above; backends call this first.
    pub fn check(&self) -> Result<()> {
        let mut bytes = 0;
        let conditions = self.conditions.iter().map(|c| (c.key.as_str(), c.key.len()));
        let writes = self.writes.iter().map(|w| (w.key(), w.bytes()));
        for (key, size) in conditions.chain(writes) {
            check_key(key)?;
            bytes += size;
        }
        let distinct: BTreeSet<&str> = self.writes.iter().map(Write::key).collect();
        let refuse = |message: String| Err(CoordError::InvalidArgument { message });
        if self.conditions.len() > TXN_OPS_MAX || self.writes.len() > TXN_OPS_MAX {
            let (conditions, writes) = (self.conditions.len(), self.writes.len());
            refuse(format!(
                "{conditions} conditions and {writes} writes, at most {TXN_OPS_MAX} each"
            ))
        } else if bytes > TXN_BYTES_MAX {
            refuse(format!("a transaction of {bytes} bytes, at most {TXN_BYTES_MAX}"))
        } else if distinct.len() != self.writes.len() {
            refuse("a transaction writes one key twice".to_owned())
        } else {
            Ok(())
        }
    }
}

fn check_key(key: &str) -> Result<()> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(CoordError::InvalidArgument {
            message: format!("a key of {len} bytes, from 1 to {KEY_BYTES_MAX} are allowed"),
        }),
    }
}
