//! Table schemas.

use crate::gc::GcRule;
use crate::ids::{FamilyId, GroupId, TableId, TableName, TimeUnit};
use crate::mutation::AggregateKind;
use std::collections::{BTreeMap, BTreeSet};

mod group;

pub use group::GroupOptions;

/// What a delete hides, fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteRule {
    /// Only what is older in commit order (Bigtable, HQL, HBase's NEW_VERSION_BEHAVIOR).
    BySequence,
    /// Also what is written later with a timestamp the marker covers, until a major compaction drops the marker
    /// (HBase's classic rule).
    ByTimestamp,
}

/// What an acknowledged write has survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: it is in memory only, and lost when the process dies.
    None,
    /// The operating system has it: it survives kill -9 but not power loss.
    Flush,
    /// The medium has it (fdatasync): it survives power loss.
    Sync,
}

/// What a family's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Uninterpreted.
    Bytes,
    /// An aggregate of 64-bit signed integers.
    Aggregate(AggregateKind),
}

/// A column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Unique within the table.
    pub name: String,
    /// `None` keeps everything.
    pub gc_rule: Option<GcRule>,
    /// What the values are.
    pub value_type: ValueType,
    /// The locality group whose files hold it.
    pub group: GroupId,
    /// What the front end that made the family wants back verbatim (for Bigtable, its serialized value type).
    pub front_end_data: Vec<u8>,
}

/// A set of families with their own memtables and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityGroup {
    /// Unique within the table.
    pub id: GroupId,
    /// Unique within the table.
    pub name: String,
    /// How its files are written and kept.
    pub options: GroupOptions,
    /// Families that were moved to another group and may have left cells in files of this one. What a family has left
    /// behind is older than all of it in its own group; a family leaves things behind in at most one.
    pub left: BTreeSet<FamilyId>,
}

impl LocalityGroup {
    /// A group of default options that no family has left.
    pub fn new(id: GroupId, name: impl Into<String>, compression: Compression) -> Self {
        LocalityGroup {
            id,
            name: name.into(),
            options: GroupOptions {
                compression,
                ..GroupOptions::default()
            },
            left: BTreeSet::new(),
        }
    }
}

/// Block compression. Numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Stored as is.
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// Snappy raw format.
    Snappy = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compression {
    /// Decodes a stored number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Snappy,
            3 => Compression::Zstd,
            _ => return None,
        })
    }
}

/// A table. Immutable once published: a change makes a new one with a higher version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSchema {
    /// Which table.
    pub id: TableId,
    /// Its name.
    pub name: TableName,
    /// Grows with every change.
    pub version: u64,
    /// Unit of timestamps.
    pub time_unit: TimeUnit,
    /// Timestamps a client gives must be multiples of this many units (Bigtable's MILLIS granularity on a micros
    /// table is 1,000); 1 takes any.
    pub granularity: i64,
    /// What deletes hide.
    pub delete_rule: DeleteRule,
    /// Default durability of writes; `None` takes the server's.
    pub durability: Option<Durability>,
    /// Whether dropping the table or a family is refused.
    pub deletion_protection: bool,
    /// The families by id. Ids of dropped families are not reused.
    pub families: BTreeMap<FamilyId, Family>,
    /// The next family id.
    pub next_family: FamilyId,
    /// The locality groups; the first is the default.
    pub groups: Vec<LocalityGroup>,
    /// Bytes at which a tablet splits; 0 takes the server's.
    pub tablet_bytes_max: u64,
    /// Whether results of reads of single rows are kept for the next reader.
    pub row_cache: bool,
    /// What the front end that made the table wants back verbatim.
    pub front_end_data: Vec<u8>,
}

impl TableSchema {
    /// The family of this name.
    pub fn family_named(&self, name: &str) -> Option<(FamilyId, &Family)> {
        self.families
            .iter()
            .find(|(_, f)| f.name == name)
            .map(|(id, f)| (*id, f))
    }

    /// The group of this name.
    pub fn group_named(&self, name: &str) -> Option<&LocalityGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The options of a group's files; the defaults for one that does not exist.
    pub fn group_options(&self, group: GroupId) -> GroupOptions {
        let group = self.groups.iter().find(|g| g.id == group);
        group.map(|group| group.options.clone()).unwrap_or_default()
    }

    /// Whether blocks of a group are to be kept in memory.
    pub fn keeps_in_memory(&self, group: GroupId) -> bool {
        let group = self.groups.iter().find(|g| g.id == group);
        group.is_some_and(|group| group.options.in_memory)
    }

    /// The group that holds a family; the default group for one that no longer exists.
    pub fn group_of(&self, family: FamilyId) -> GroupId {
        self.families.get(&family).map_or(GroupId(0), |f| f.group)
    }
}
