//! Requests of the service interface use the data model's terms. Families are given by id, timestamps in the table's
//! unit.

use crate::figures::TabletFigures;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{
    AutomatedBackups, Compression, DeleteRule, Deletes, Durability, FamilyId, GcRule, GroupOptions, RowRange, RowSet,
    RowWrites, TableId, TableName, TableSchema, TabletId, TimeUnit, Timestamp, ValueType, View,
};

/// A read of any number of rows.
#[derive(Clone, Debug)]
pub struct ReadRows {
    /// Which table.
    pub table: TableName,
    /// As in [`MutateRows`]: a caller that reads on must not read another table that has taken the name.
    pub id: Option<TableId>,
    /// Which rows.
    pub rows: RowSet,
    /// What to return of each row; `None` returns everything.
    pub filter: Option<Arc<Filter>>,
    /// Rows to return at most, counted after the filter; 0 for all.
    pub rows_limit: u64,
    /// Rows in descending order. The cells within a row keep their order.
    pub reversed: bool,
    /// All stored entries, including tombstones and hidden or expired cells. The filter sees them like cells.
    pub raw: bool,
    /// [`TableService::try_read_row`](crate::TableService::try_read_row) was called and would have had to
    /// wait: the caches that it probes need not be probed again.
    pub waits: bool,
}

impl ReadRows {
    /// The row, if this is a read of one row, resolved.
    pub fn one_row(&self) -> Option<&Bytes> {
        match self.rows.ranges() {
            [range] if !self.raw => range.as_single(),
            _ => None,
        }
    }

    /// A read of everything in `rows`.
    pub fn new(table: TableName, rows: RowSet) -> Self {
        ReadRows {
            table,
            id: None,
            rows,
            filter: None,
            rows_limit: 0,
            reversed: false,
            raw: false,
            waits: false,
        }
    }
}

/// Writes to any number of rows, each row atomic, all independent.
#[derive(Clone, Debug)]
pub struct MutateRows {
    /// Which table.
    pub table: TableName,
    /// The one that the families are of: `NotFound` when another has taken its name. `None` for whichever has it.
    pub id: Option<TableId>,
    /// The rows, in the order in which changes to the same row apply.
    pub rows: RowWrites,
    /// `None` takes the table's.
    pub durability: Option<Durability>,
}

/// A point in a table, for splitting work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSample {
    /// A row key; empty for the end of the sampled rows.
    pub row: Bytes,
    /// Approximate bytes between the beginning of that and the row.
    pub offset_bytes: u64,
}

/// One tablet, as status pages and region lookups need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletInfo {
    /// Which tablet.
    pub id: TabletId,
    /// Its rows.
    pub range: RowRange,
    /// Its size, and the operations on it; `None` while no server serves it, or its server does not answer.
    pub figures: Option<TabletFigures>,
}

/// A tablet and its rows, without its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletPlace {
    /// Which tablet.
    pub id: TabletId,
    /// Its rows.
    pub range: RowRange,
    /// The server that serves it, if it is another one than this.
    pub server: Option<Arc<ServerPlace>>,
    /// Grows whenever the tablet gets another server; 0 where there is one server.
    pub generation: u32,
}

impl TabletPlace {
    /// A tablet of this server, the only one.
    pub fn here(id: TabletId, range: RowRange) -> Self {
        TabletPlace {
            id,
            range,
            server: None,
            generation: 0,
        }
    }
}

/// The place of another server, for protocols whose clients call the servers of tablets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPlace {
    /// Host that clients are told.
    pub host: String,
    /// Port of the HBase API there.
    pub port: u16,
    /// Milliseconds of its start.
    pub start_code: u64,
}

/// The compactions of a tablet. One that was requested and waits for a worker counts as running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompactionState {
    /// None.
    #[default]
    None,
    /// Some that the server chose, or a requested check for one.
    Minor,
    /// A requested one of all files.
    Major,
    /// Both.
    MajorAndMinor,
}

/// A table to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewTable {
    /// Its name; the namespace is made when missing.
    pub name: TableName,
    /// Unit of timestamps.
    pub time_unit: TimeUnit,
    /// Client timestamps must be multiples of this many units.
    pub granularity: i64,
    /// The rule for the cells that a delete hides, in families without one of their own.
    pub delete_rule: DeleteRule,
    /// `None` takes the server's.
    pub durability: Option<Durability>,
    /// Whether dropping is refused.
    pub deletion_protection: bool,
    /// The families.
    pub families: Vec<NewFamily>,
    /// Rows at which the table is split from the start; duplicates and empty keys are ignored.
    pub initial_splits: Vec<Bytes>,
    /// Block compression of the default locality group.
    pub compression: Compression,
    /// Backups that the server makes by itself.
    #[serde(default)]
    pub automated_backups: Option<AutomatedBackups>,
    /// Data that the front end gets back verbatim.
    pub front_end_data: Vec<u8>,
}

impl NewTable {
    /// A table without families in microseconds of any value, whose deletes act by sequence. Otherwise the server decides.
    pub fn new(name: TableName) -> Self {
        NewTable {
            name,
            time_unit: TimeUnit::Micros,
            granularity: 1,
            delete_rule: DeleteRule::BySequence,
            durability: None,
            deletion_protection: false,
            families: Vec::new(),
            initial_splits: Vec::new(),
            compression: Compression::None,
            automated_backups: None,
            front_end_data: Vec::new(),
        }
    }
}

/// A family to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewFamily {
    /// Its name.
    pub name: String,
    /// `None` keeps everything.
    pub gc_rule: Option<GcRule>,
    /// The type of the values.
    pub value_type: ValueType,
    /// The effect of deletes.
    pub deletes: Deletes,
    /// Data that the front end gets back verbatim.
    pub front_end_data: Vec<u8>,
}

/// One step of an all-or-nothing schema change; steps apply in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FamilyChange {
    /// `AlreadyExists` when the name is taken. Fields that are absent take their defaults.
    Create(NewFamily),
    /// `NotFound` when there is no such family. `Some` fields change.
    Update {
        /// Which family.
        name: String,
        /// `Some(None)` removes the rule.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        gc_rule: Option<Option<GcRule>>,
        /// A new type; an aggregate's type never changes.
        value_type: Option<ValueType>,
        /// A new effect of deletes. Cells that compactions have dropped under the old one do not come back.
        deletes: Option<Deletes>,
        /// Data that the front end gets back verbatim.
        front_end_data: Option<Vec<u8>>,
    },
    /// Drops the family and its data. `NotFound` when there is no such family; refused on a protected table.
    Drop {
        /// Which family.
        name: String,
    },
}

/// One step of an all-or-nothing change of locality groups; steps apply in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum GroupChange {
    /// `AlreadyExists` when the name is taken. Options that are not given take their defaults.
    Create {
        /// Its name.
        name: String,
        /// How its files are to be.
        options: GroupUpdate,
    },
    /// `NotFound` when there is no such group. New files follow, old ones when they are compacted.
    Alter {
        /// Which group.
        name: String,
        /// The change.
        options: GroupUpdate,
    },
    /// Moves a family with all it has: new cells go to the group from now on, and compactions take the old ones there.
    /// `FailedPrecondition` while an earlier move of the family is not complete.
    MoveFamily {
        /// Which family.
        family: String,
        /// Where to.
        group: String,
    },
}

/// A change of a group's options; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUpdate {
    /// Codec. A group that changes from Zstandard loses the options that only Zstandard has.
    pub compression: Option<Compression>,
    /// Level of Zstandard.
    pub zstd_level: Option<u8>,
    /// Dictionary of each file; 0 for none.
    pub dictionary_bytes: Option<u32>,
    /// Content of a data block; 0 for the default.
    pub block_bytes: Option<u32>,
    /// Row filter; 0 for none.
    pub filter_bits_per_row: Option<u32>,
    /// Blocks are kept in memory as far as the cache allows.
    pub in_memory: Option<bool>,
    /// Size of a file; 0 for the default.
    pub file_bytes: Option<u64>,
}

impl GroupUpdate {
    /// The options after the change.
    pub fn apply(&self, options: &mut GroupOptions) {
        if let Some(compression) = self.compression {
            options.compression = compression;
            if compression != Compression::Zstd {
                let GroupOptions {
                    zstd_level,
                    dictionary_bytes,
                    ..
                } = GroupOptions::default();
                (options.zstd_level, options.dictionary_bytes) = (zstd_level, dictionary_bytes);
            }
        }
        options.zstd_level = self.zstd_level.unwrap_or(options.zstd_level);
        options.dictionary_bytes = self.dictionary_bytes.unwrap_or(options.dictionary_bytes);
        if let Some(bytes) = self.block_bytes {
            options.block_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        }
        options.filter_bits_per_row = self.filter_bits_per_row.or(options.filter_bits_per_row);
        options.in_memory = self.in_memory.unwrap_or(options.in_memory);
        if let Some(bytes) = self.file_bytes {
            options.file_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        }
    }
}

/// The locality groups of a table, and where its families are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableGroups {
    /// Has both.
    pub schema: Arc<TableSchema>,
    /// Families of which some tablet still has cells in the group they were moved out of.
    pub unsettled: BTreeSet<FamilyId>,
}

/// A change of a table's own settings; `None` leaves one as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TableUpdate {
    /// The table that the caller has read, and the version of its schema then. Any other is `Aborted`, also a table that was made
    /// again by the same name. `None` changes any.
    #[serde(default)]
    pub former: Option<(TableId, u64)>,
    /// Whether dropping is refused.
    pub deletion_protection: Option<bool>,
    /// Whether rows are read and written.
    pub enabled: Option<bool>,
    /// Whether writes of rows are refused.
    pub read_only: Option<bool>,
    /// Default durability.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub durability: Option<Option<Durability>>,
    /// Whether results of reads of single rows are kept for the next reader.
    pub row_cache: Option<bool>,
    /// Bytes of files at which a tablet is split; 0 for the server's.
    pub tablet_bytes_max: Option<u64>,
    /// Backups that the server makes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub automated_backups: Option<Option<AutomatedBackups>>,
    /// A change of one authorized view, by its name.
    #[serde(default)]
    pub view: Option<(String, ViewChange)>,
    /// Data that the front end gets back verbatim.
    pub front_end_data: Option<Vec<u8>>,
}

/// A change of an authorized view. `former` is the version that the caller has read; `None` changes any. Another version is
/// `Aborted`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ViewChange {
    /// Make it; `AlreadyExists` if there is one.
    Create(View),
    /// Replace it; `NotFound` if there is none.
    Replace {
        /// The view, whose version does not matter.
        view: View,
        /// The version that it replaces.
        former: Option<u64>,
    },
    /// Delete it; `FailedPrecondition` if it is protected.
    Delete {
        /// The version that is deleted.
        former: Option<u64>,
    },
}

/// A field that is there: without this, `Some(None)` would come back as `None`.
pub(crate) fn present<'a, T: Deserialize<'a>, D: Deserializer<'a>>(fields: D) -> Result<Option<T>, D::Error> {
    T::deserialize(fields).map(Some)
}

/// The server's time as a timestamp of a table: the clock truncated to the granularity.
pub fn server_timestamp(unit: TimeUnit, granularity: i64, wall_micros: i64) -> Timestamp {
    let now = unit.from_wall_micros(wall_micros).0;
    Timestamp(now - now.rem_euclid(granularity.max(1)))
}
