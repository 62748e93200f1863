//! Table schemas.

use crate::gc::GcRule;
use crate::ids::{FamilyId, GroupId, TableId, TableName, TimeUnit};
use crate::mutation::AggregateKind;
use crate::view::Views;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

mod automated;
mod deletes;
mod group;

pub use automated::AutomatedBackups;
pub use deletes::{DeleteRule, Deletes, KeepDeleted};
pub use group::GroupOptions;

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Durability {
    /// None: it is in memory only, and lost when the process dies.
    None,
    /// The operating system has it: it survives kill -9 but not power loss.
    Flush,
    /// The device has it (fdatasync): it survives power loss.
    Sync,
}

/// The type of a family's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueType {
    /// Uninterpreted.
    Bytes,
    /// An aggregate of 64-bit signed integers.
    Aggregate(AggregateKind),
}

/// A column family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Unique within the table.
    pub name: String,
    /// `None` keeps everything.
    pub gc_rule: Option<GcRule>,
    /// The type of the values.
    pub value_type: ValueType,
    /// The effect of deletes.
    pub deletes: Deletes,
    /// The locality group whose files hold it.
    pub group: GroupId,
    /// Opaque data of the front end that created the family (for Bigtable, its serialized value type).
    pub front_end_data: Vec<u8>,
}

/// A set of families with their own memtables and files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalityGroup {
    /// Unique within the table.
    pub id: GroupId,
    /// Unique within the table.
    pub name: String,
    /// Options of its files.
    pub options: GroupOptions,
    /// Families that were moved to another group and may have left misplaced cells in files of this one. The misplaced
    /// cells of a family are older than all its cells in its own group. A family has misplaced cells in at most one
    /// group.
    pub left: BTreeSet<FamilyId>,
}

impl LocalityGroup {
    /// A group with default options and without misplaced cells.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Compression {
    /// Uncompressed.
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

/// A table. Immutable once published: a change creates a new one with a higher version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The cells that deletes hide, in families that have no rule of their own. Fixed at creation.
    pub delete_rule: DeleteRule,
    /// Default durability of writes; `None` takes the server's.
    pub durability: Option<Durability>,
    /// Whether dropping the table or a family is refused.
    pub deletion_protection: bool,
    /// Whether rows are read and written. A disabled table keeps its rows, and can be administered.
    pub enabled: bool,
    /// Whether writes of rows are refused. Administration is not.
    pub read_only: bool,
    /// Of a table that a restore has made: the name of its snapshot, which names the restore. While the table is disabled, the
    /// restore has not completed it: it may be removed and made again. Absent when the restore has ended.
    #[serde(default)]
    pub restoring: Option<String>,
    /// The families by id. Ids of dropped families are not reused.
    pub families: BTreeMap<FamilyId, Family>,
    /// The next family id.
    pub next_family: FamilyId,
    /// The locality groups; the first is the default.
    pub groups: Vec<LocalityGroup>,
    /// Bytes at which a tablet splits; 0 takes the server's.
    pub tablet_bytes_max: u64,
    /// Whether results of single-row reads are cached.
    pub row_cache: bool,
    /// Backups that the server makes by itself.
    #[serde(default)]
    pub automated_backups: Option<AutomatedBackups>,
    /// Its authorized views.
    #[serde(default)]
    pub views: Views,
    /// Opaque data of the front end that created the table.
    pub front_end_data: Vec<u8>,
}

impl TableSchema {
    /// A table without families, in one uncompressed group, in microseconds, that is enabled and has the settings of the server.
    pub fn new(id: TableId, name: TableName) -> Self {
        TableSchema {
            id,
            name,
            version: 1,
            time_unit: TimeUnit::Micros,
            granularity: 1,
            delete_rule: DeleteRule::BySequence,
            durability: None,
            deletion_protection: false,
            enabled: true,
            read_only: false,
            restoring: None,
            families: BTreeMap::new(),
            next_family: FamilyId(1),
            groups: vec![LocalityGroup::new(GroupId(0), "default", Compression::None)],
            tablet_bytes_max: 0,
            row_cache: true,
            automated_backups: None,
            views: Views::new(),
            front_end_data: Vec::new(),
        }
    }

    /// Whether a restore has made the table and not completed it. It lacks rows, so nobody may read or change it.
    pub fn is_unfinished(&self) -> bool {
        self.restoring.is_some() && !self.enabled
    }

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

    /// Whether blocks of a group have priority in the cache.
    pub fn keeps_in_memory(&self, group: GroupId) -> bool {
        let group = self.groups.iter().find(|g| g.id == group);
        group.is_some_and(|group| group.options.in_memory)
    }

    /// The rule for the cells that deletes hide in a family: its own, or the table's.
    pub fn delete_rule_of(&self, family: FamilyId) -> DeleteRule {
        let own = self.families.get(&family).and_then(|family| family.deletes.rule);
        own.unwrap_or(self.delete_rule)
    }

    /// The rule of every family, if it is the same. A tombstone of a row is in the same set for all of them, so it needs
    /// the finer rule where they differ.
    pub fn common_delete_rule(&self) -> DeleteRule {
        let differs = |family: &Family| family.deletes.rule.is_some_and(|rule| rule != self.delete_rule);
        match self.families.values().any(differs) {
            true => DeleteRule::BySequence,
            false => self.delete_rule,
        }
    }

    /// Whether every family hides by this rule.
    pub fn deletes_only(&self, rule: DeleteRule) -> bool {
        self.families
            .values()
            .all(|family| family.deletes.rule.unwrap_or(self.delete_rule) == rule)
    }

    /// Whether compactions of some family keep deleted cells.
    pub fn keeps_deleted(&self) -> bool {
        self.families
            .values()
            .any(|family| family.deletes.keep != KeepDeleted::No)
    }

    /// Whether a delete of a row must be one of each family. A tombstone of a row is in each locality group, which drops its
    /// copy at a time of its own. By timestamp the result of a read would depend on the groups that it reads. Besides, no
    /// family that keeps its deleted cells ever lets such a tombstone go.
    pub fn deletes_rows_by_family(&self) -> bool {
        !self.deletes_only(DeleteRule::BySequence) || self.keeps_deleted()
    }

    /// The group that holds a family; the default group for one that no longer exists.
    pub fn group_of(&self, family: FamilyId) -> GroupId {
        self.families.get(&family).map_or(GroupId(0), |f| f.group)
    }
}
