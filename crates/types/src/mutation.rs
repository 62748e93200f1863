//! Mutations in the terms of the data model. A front end has resolved names, units and server timestamps.

use crate::ids::{FamilyId, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// One change to one row. Mutations of a [`RowMutation`] apply in order: each has its own sequence number.
///
/// `B` is the type of qualifiers and values: owned bytes, or a span of bytes that many mutations share
/// ([`crate::writes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<B = Bytes> {
    /// Writes a cell; the same (row, family, qualifier, timestamp) overwrites.
    Put {
        /// Which family.
        family: FamilyId,
        /// Which column.
        qualifier: B,
        /// Which version.
        timestamp: Timestamp,
        /// The content.
        value: B,
    },
    /// Writes a cell that expires by itself, in the same place as a put would.
    ExpiringPut {
        /// Which family; not one of aggregates.
        family: FamilyId,
        /// Which column.
        qualifier: B,
        /// Which version.
        timestamp: Timestamp,
        /// The lifetime and the content, as [`crate::lifetime::stored`] joins them.
        stored: B,
    },
    /// Adds an operand to an aggregate cell; the family's type says how.
    Merge {
        /// Which family.
        family: FamilyId,
        /// Which column.
        qualifier: B,
        /// Which version.
        timestamp: Timestamp,
        /// Eight bytes, big-endian, signed.
        operand: B,
    },
    /// Deletes cells of the row at or below the timestamp.
    DeleteRow {
        /// `Timestamp::MAX` for all.
        up_to: Timestamp,
    },
    /// Deletes cells of one family at or below the timestamp.
    DeleteFamily {
        /// Which family.
        family: FamilyId,
        /// `Timestamp::MAX` for all.
        up_to: Timestamp,
    },
    /// Deletes one version in every column of a family.
    DeleteFamilyVersion {
        /// Which family.
        family: FamilyId,
        /// Which version.
        timestamp: Timestamp,
    },
    /// Deletes cells of one column with `from <= timestamp <= to`.
    DeleteColumn {
        /// Which family.
        family: FamilyId,
        /// Which column.
        qualifier: B,
        /// `Timestamp::MIN` for no lower bound.
        from: Timestamp,
        /// `Timestamp::MAX` for no upper bound.
        to: Timestamp,
    },
    /// Deletes one version of one column.
    DeleteVersion {
        /// Which family.
        family: FamilyId,
        /// Which column.
        qualifier: B,
        /// Which version.
        timestamp: Timestamp,
    },
}

/// The combination rule of an aggregate family. Numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum AggregateKind {
    /// Wrapping 64-bit sum.
    Sum = 1,
    /// Smallest.
    Min = 2,
    /// Largest.
    Max = 3,
}

impl AggregateKind {
    /// Combines two 8-byte big-endian signed operands; `None` when either has another length.
    pub fn combine(self, a: &[u8], b: &[u8]) -> Option<[u8; 8]> {
        let a = i64::from_be_bytes(a.try_into().ok()?);
        let b = i64::from_be_bytes(b.try_into().ok()?);
        let combined = match self {
            AggregateKind::Sum => a.wrapping_add(b),
            AggregateKind::Min => a.min(b),
            AggregateKind::Max => a.max(b),
        };
        Some(combined.to_be_bytes())
    }
}

/// All changes of one request to one row: applied together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMutation {
    /// The row.
    pub row: Bytes,
    /// The changes, in order; never empty.
    pub mutations: Vec<Mutation>,
}

impl RowMutation {
    /// Bytes of user data, for budgets and limits.
    pub fn weight(&self) -> usize {
        self.mutations.iter().map(|m| self.row.len() + m.weight()).sum()
    }
}

impl<B> Mutation<B> {
    /// The same mutation at another time: of the cell that it writes, or the last time that it deletes.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        match &mut self {
            Mutation::Put { timestamp, .. }
            | Mutation::ExpiringPut { timestamp, .. }
            | Mutation::Merge { timestamp, .. }
            | Mutation::DeleteFamilyVersion { timestamp, .. }
            | Mutation::DeleteVersion { timestamp, .. } => *timestamp = time,
            Mutation::DeleteRow { up_to } | Mutation::DeleteFamily { up_to, .. } => *up_to = time,
            Mutation::DeleteColumn { from, to, .. } => *to = time.max(*from),
        }
        self
    }

    /// The time that [`Mutation::at`] replaces.
    pub fn time(&self) -> Timestamp {
        match self {
            Mutation::Put { timestamp, .. }
            | Mutation::ExpiringPut { timestamp, .. }
            | Mutation::Merge { timestamp, .. }
            | Mutation::DeleteFamilyVersion { timestamp, .. }
            | Mutation::DeleteVersion { timestamp, .. } => *timestamp,
            Mutation::DeleteRow { up_to } | Mutation::DeleteFamily { up_to, .. } => *up_to,
            Mutation::DeleteColumn { to, .. } => *to,
        }
    }

    /// Whether its time is that of a server whose clock was read as `now`. A delete of the versions from a later time on ends where it
    /// begins.
    pub fn is_at(&self, now: Timestamp) -> bool {
        match self {
            Mutation::DeleteColumn { from, to, .. } if from == to => *from >= now,
            _ => self.time() == now,
        }
    }

    /// The same mutation over other bytes.
    #[inline]
    pub fn map<'m, C>(&'m self, bytes: impl Fn(&'m B) -> C) -> Mutation<C> {
        match self {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => Mutation::Put {
                family: *family,
                qualifier: bytes(qualifier),
                timestamp: *timestamp,
                value: bytes(value),
            },
            Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored,
            } => Mutation::ExpiringPut {
                family: *family,
                qualifier: bytes(qualifier),
                timestamp: *timestamp,
                stored: bytes(stored),
            },
            Mutation::Merge {
                family,
                qualifier,
                timestamp,
                operand,
            } => Mutation::Merge {
                family: *family,
                qualifier: bytes(qualifier),
                timestamp: *timestamp,
                operand: bytes(operand),
            },
            Mutation::DeleteRow { up_to } => Mutation::DeleteRow { up_to: *up_to },
            Mutation::DeleteFamily { family, up_to } => Mutation::DeleteFamily {
                family: *family,
                up_to: *up_to,
            },
            Mutation::DeleteFamilyVersion { family, timestamp } => Mutation::DeleteFamilyVersion {
                family: *family,
                timestamp: *timestamp,
            },
            Mutation::DeleteColumn {
                family,
                qualifier,
                from,
                to,
            } => Mutation::DeleteColumn {
                family: *family,
                qualifier: bytes(qualifier),
                from: *from,
                to: *to,
            },
            Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            } => Mutation::DeleteVersion {
                family: *family,
                qualifier: bytes(qualifier),
                timestamp: *timestamp,
            },
        }
    }
}

impl<B> Mutation<B> {
    /// The family this touches; `None` for the whole row.
    pub fn family(&self) -> Option<FamilyId> {
        match self {
            Mutation::DeleteRow { .. } => None,
            Mutation::Put { family, .. }
            | Mutation::ExpiringPut { family, .. }
            | Mutation::Merge { family, .. }
            | Mutation::DeleteFamily { family, .. }
            | Mutation::DeleteFamilyVersion { family, .. }
            | Mutation::DeleteColumn { family, .. }
            | Mutation::DeleteVersion { family, .. } => Some(*family),
        }
    }
}

impl Mutation {
    fn weight(&self) -> usize {
        32 + self.data_len()
    }
}

impl<B: AsRef<[u8]>> Mutation<B> {
    /// Bytes of its qualifier and value.
    pub fn data_len(&self) -> usize {
        let (qualifier, value) = self.data_lens();
        qualifier + value
    }

    /// Bytes of its qualifier, and of its value as it is stored.
    pub fn data_lens(&self) -> (usize, usize) {
        match self {
            Mutation::Put { qualifier, value, .. } => (qualifier.as_ref().len(), value.as_ref().len()),
            Mutation::ExpiringPut { qualifier, stored, .. } => (qualifier.as_ref().len(), stored.as_ref().len()),
            Mutation::Merge { qualifier, operand, .. } => (qualifier.as_ref().len(), operand.as_ref().len()),
            Mutation::DeleteColumn { qualifier, .. } | Mutation::DeleteVersion { qualifier, .. } => {
                (qualifier.as_ref().len(), 0)
            }
            _ => (0, 0),
        }
    }
}
