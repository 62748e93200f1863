//! Snapshots: a table at one moment, under a name.
//!
//! A snapshot holds files and copies nothing. It outlives its table. Front ends call it a snapshot or a backup.

use crate::request::present;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use stele_types::{Kept, SnapshotId, TableName, TableSchema, TabletId};

/// The name of a snapshot within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SnapshotName {
    /// The namespace; that of the table, unless it is a copy.
    pub namespace: String,
    /// The name, of letters, digits and `-_.`.
    pub name: String,
}

impl SnapshotName {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        SnapshotName {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A snapshot to be taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewSnapshot {
    /// Its name.
    pub name: SnapshotName,
    /// The table.
    pub table: TableName,
    /// Whether memtables are flushed first. Without, the snapshot has only rows that are in files.
    pub flush: bool,
    /// Whether it is refused also when a snapshot of another namespace has its name.
    #[serde(default)]
    pub only_of_name: bool,
    /// Wall-clock microseconds from which on the server deletes it; `None` for never.
    pub expires_micros: Option<i64>,
    /// Data that the front end gets back verbatim, at most 64 KiB.
    pub front_end_data: Vec<u8>,
}

/// A snapshot that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Which snapshot.
    pub id: SnapshotId,
    /// Its name.
    pub name: SnapshotName,
    /// The schema of the table when it was taken, with the name of the table.
    pub schema: Arc<TableSchema>,
    /// Wall-clock microseconds at which the snapshot was begun.
    pub created_micros: i64,
    /// Wall-clock microseconds at which it was complete.
    pub completed_micros: i64,
    /// Wall-clock microseconds from which on the server deletes it; `None` for never.
    pub expires_micros: Option<i64>,
    /// Its tablets.
    pub tablets: u64,
    /// Bytes of the rows that it refers to, roughly.
    pub bytes: u64,
    /// Why the server has taken it by itself; `None` if a client has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Data of the front end.
    pub front_end_data: Bytes,
}

/// A change of a snapshot; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotUpdate {
    /// When the server deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub expires_micros: Option<Option<i64>>,
    /// Data of the front end.
    pub front_end_data: Option<Vec<u8>>,
}

/// A copy of a snapshot to be made, which holds the same files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotCopy {
    /// The snapshot that is copied.
    pub source: SnapshotName,
    /// The name of the copy.
    pub name: SnapshotName,
    /// When the server deletes the copy; `None` for never.
    pub expires_micros: Option<i64>,
    /// Data of the front end for the copy.
    pub front_end_data: Vec<u8>,
}

/// A tablet that is to be made over the files of one of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotTablet {
    /// The part of the snapshot that has the manifest.
    pub part: u32,
    /// The place of the manifest in the part.
    pub place: u32,
    /// The new tablet.
    pub tablet: TabletId,
}

/// The extent of the files of a snapshot, as a tablet server has written their list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFiles {
    /// Files with the list.
    pub parts: u32,
    /// Bytes of the rows that it refers to, roughly.
    pub bytes: u64,
}
