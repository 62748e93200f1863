//! Small types with a meaning: identifiers, sequence numbers, timestamps and their unit.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A table. Never reused after the table is dropped.
    TableId(u64)
);
id!(
    /// A tablet. A split creates two new ids.
    TabletId(u64)
);
id!(
    /// A column family within its table. 0 is reserved for row tombstones. Never reused after a drop, so the cells of a
    /// dropped family stay invisible when a family of the same name is created.
    FamilyId(u32)
);
id!(
    /// A locality group within its table.
    GroupId(u32)
);
id!(
    /// A stored file, unique within one data root: `server epoch << 32 | counter`.
    FileId(u64)
);
id!(
    /// A snapshot. From the same sequence as tables and tablets, and never reused.
    SnapshotId(u64)
);
id!(
    /// Ownership generation of a tablet: grows with every opening.
    Epoch(u32)
);
id!(
    /// One life of a server: a process gets a new one with every start, and none is given twice. The upper half of the
    /// numbers of its files and log segments. Where one server owns the data root, it is the epoch of all its tablets, too.
    ServerId(u32)
);

impl FileId {
    /// The `n`-th file of server epoch `epoch`.
    pub fn new(epoch: u32, n: u32) -> Self {
        FileId(u64::from(epoch) << 32 | u64::from(n))
    }

    /// The server epoch of its creation.
    pub fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The files of one server that must not be deleted, although no manifest may name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesInUse {
    /// Files that the server made, with this number or a higher one, may still be committed.
    pub settled_below: FileId,
    /// Files that its tablets or its readers hold, made by any server.
    pub held: BTreeSet<FileId>,
}

/// Commit order of a mutation within its tablet: `epoch << 40 | counter`, so that it grows across owners.
///
/// 24 bits of epoch allow 16 M openings of a tablet. 40 bits of counter allow 10^12 mutations per opening, 30 years at
/// 1,000 per second. At 200,000 per second to one tablet they run out after two months. Then the tablet's writes are
/// refused until its server restarts, which takes a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNo(pub u64);

impl SeqNo {
    const COUNTER_BITS: u32 = 40;
    /// Largest counter within one epoch.
    pub const COUNTER_MAX: u64 = (1 << Self::COUNTER_BITS) - 1;
    /// Before every mutation.
    pub const ZERO: SeqNo = SeqNo(0);
    /// After every mutation.
    pub const MAX: SeqNo = SeqNo(u64::MAX);

    /// Composes a sequence number. `counter` must fit 40 bits and `epoch` 24 bits.
    pub fn new(epoch: Epoch, counter: u64) -> Self {
        debug_assert!(counter <= Self::COUNTER_MAX && epoch.0 < 1 << 24);
        SeqNo(u64::from(epoch.0) << Self::COUNTER_BITS | counter)
    }

    /// The ownership generation that wrote it.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> Self::COUNTER_BITS) as u32)
    }

    /// The position within the epoch.
    pub fn counter(self) -> u64 {
        self.0 & Self::COUNTER_MAX
    }

    /// The sequence number `n` later in the same epoch.
    pub fn plus(self, n: u64) -> Self {
        debug_assert!(self.counter() + n <= Self::COUNTER_MAX);
        SeqNo(self.0 + n)
    }
}

impl fmt::Debug for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self)
    }
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch().0, self.counter())
    }
}

/// A cell's version in the table's time unit (micros or millis since the Unix epoch, or any number the user chose).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The smallest timestamp.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The largest timestamp.
    pub const MAX: Timestamp = Timestamp(i64::MAX);
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The unit of a table's timestamps, fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeUnit {
    /// Tables made through Bigtable or HQL.
    Micros,
    /// Tables made through HBase, whose users store arbitrary longs as versions.
    Millis,
}

impl TimeUnit {
    /// Microseconds, clamped to the 64-bit range; for age comparisons only, never for stored values.
    pub fn to_micros_saturating(self, timestamp: Timestamp) -> i64 {
        match self {
            TimeUnit::Micros => timestamp.0,
            TimeUnit::Millis => timestamp.0.saturating_mul(1_000),
        }
    }

    /// This unit's timestamp for a wall-clock time.
    pub fn from_wall_micros(self, micros: i64) -> Timestamp {
        match self {
            TimeUnit::Micros => Timestamp(micros),
            TimeUnit::Millis => Timestamp(micros.div_euclid(1_000)),
        }
    }
}

/// `namespace/table`. Bigtable's `projects/*/instances/I/tables/T` is `I/T`; HBase's `ns:T` is `ns/T`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// The namespace: a Bigtable instance, an HBase namespace.
    pub namespace: String,
    /// The table within the namespace.
    pub table: String,
}

impl TableName {
    /// A table name from its two parts.
    pub fn new(namespace: impl Into<String>, table: impl Into<String>) -> Self {
        TableName {
            namespace: namespace.into(),
            table: table.into(),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.table)
    }
}
