//! The effect of deletes: hidden cells, and the time that compactions keep them.

use serde::{Deserialize, Serialize};

/// The cells that a delete hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeleteRule {
    /// Only cells that are older in commit order (Bigtable, HQL, HBase's NEW_VERSION_BEHAVIOR).
    BySequence,
    /// Also cells written later with a timestamp that the tombstone covers, until a major compaction drops the
    /// tombstone (HBase's classic rule).
    ByTimestamp,
}

/// Whether compactions keep cells that are deleted (HBase's KEEP_DELETED_CELLS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeepDeleted {
    /// No: they are dropped, and tombstones that have nothing left to hide as well.
    #[default]
    No,
    /// Until the family's rule calls them garbage.
    Yes,
    /// The same, but no longer than until their tombstone is older than this many microseconds.
    For(i64),
}

/// The effect of deletes in a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deletes {
    /// `None` takes the table's.
    pub rule: Option<DeleteRule>,
    /// Whether compactions keep deleted cells. A read that names the time up to which deletes act sees them.
    pub keep: KeepDeleted,
}
