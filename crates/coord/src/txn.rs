//! Transactions: conditions on keys, and writes that happen if all conditions hold.

use crate::error::{CoordError, Result};
use crate::limits::{KEY_BYTES_MAX, TXN_BYTES_MAX, TXN_OPS_MAX};
use crate::session_id::SessionId;
use bytes::Bytes;
use std::collections::BTreeSet;

/// A value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// The revision of the transaction that wrote it.
    pub version: u64,
}

/// The state that a transaction expects of a key.
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
    /// The state it must have.
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

    /// Its bytes of those that a transaction may have.
    pub fn bytes(&self) -> usize {
        match self {
            Write::Put { key, value } | Write::PutBound { key, value, .. } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        }
    }
}

/// If all conditions hold, all writes happen as one.
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
