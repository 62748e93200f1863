//! Properties of backups and of restored tables that only this API knows.
//!
//! They are front-end data of snapshots and tables. The HBase front end keeps its own description in the same bytes, with
//! lower field numbers; each ignores the fields of the other. Numbers are never reused.

use crate::context::timestamp_of;
use crate::names::{BackupName, InstanceName};
use crate::pb::admin;
use prost::Message as _;
use stele_client::SnapshotInfo;

/// The number of [`TableData::restored`].
const RESTORED_FIELD: u32 = 1_000;

/// Front-end data of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BackupData {
    /// The cluster that the backup is said to be in; empty for the first one of the instance.
    #[prost(string, tag = "1001")]
    pub cluster: String,
    /// A number of `Backup.BackupType`.
    #[prost(int32, tag = "1002")]
    pub backup_type: i32,
    /// Microseconds since 1970 at which a hot backup becomes a standard one.
    #[prost(int64, optional, tag = "1003")]
    pub hot_to_standard_micros: Option<i64>,
    /// The backup that it is a copy of.
    #[prost(message, optional, tag = "1004")]
    pub source: Option<StoredBackupName>,
    /// Nobody asks for the operation any more that made it.
    #[prost(bool, tag = "1005")]
    pub operation_deleted: bool,
    /// Microseconds since 1970 at which a copy was requested.
    #[prost(int64, optional, tag = "1006")]
    pub copied_micros: Option<i64>,
}

/// The name of a backup without its project, which is not stored.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredBackupName {
    #[prost(string, tag = "1")]
    pub instance: String,
    #[prost(string, tag = "2")]
    pub cluster: String,
    #[prost(string, tag = "3")]
    pub backup: String,
}

/// Front-end data of a table.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TableData {
    /// The backup that the table was made of.
    #[prost(message, optional, tag = "1000")]
    pub restored: Option<RestoredFrom>,
}

/// The backup that a table was made of.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RestoredFrom {
    #[prost(message, optional, tag = "1")]
    pub backup: Option<StoredBackupName>,
    /// Microseconds since 1970.
    #[prost(int64, tag = "2")]
    pub start_micros: i64,
    /// Microseconds since 1970.
    #[prost(int64, tag = "3")]
    pub end_micros: i64,
    /// The table of the backup, in the instance of the backup.
    #[prost(string, tag = "4")]
    pub source_table: String,
    /// The backup that that was a copy of.
    #[prost(message, optional, tag = "5")]
    pub source_backup: Option<StoredBackupName>,
    /// The number of the operation that restored the table; 0 when nobody asks for it any more.
    #[prost(uint64, tag = "6")]
    pub operation: u64,
    /// Microseconds since 1970 at which the restore was requested, and at which it was complete.
    #[prost(int64, tag = "7")]
    pub requested_micros: i64,
}

impl StoredBackupName {
    pub fn of(name: &BackupName) -> Self {
        StoredBackupName {
            instance: name.instance.instance.clone(),
            cluster: name.cluster.clone(),
            backup: name.backup.clone(),
        }
    }

    /// The full name, in the project of a request.
    pub fn shown(&self, project: &str) -> String {
        let instance = InstanceName {
            project: project.to_owned(),
            instance: self.instance.clone(),
        };
        let name = BackupName {
            instance,
            cluster: self.cluster.clone(),
            backup: self.backup.clone(),
        };
        name.to_string()
    }
}

impl BackupData {
    /// Of a snapshot; all defaults if another front end took it.
    pub fn of(snapshot: &SnapshotInfo) -> Self {
        BackupData::decode(snapshot.front_end_data.clone()).unwrap_or_default()
    }
}

impl TableData {
    /// Of a table; empty if another front end has written other bytes.
    pub fn of(front_end_data: &[u8]) -> Self {
        TableData::decode(front_end_data).unwrap_or_default()
    }

    /// The data of a table with `restored` in place of a former one. The fields of other front ends stay.
    pub fn with_restored(front_end_data: &[u8], restored: RestoredFrom) -> Vec<u8> {
        let mut data = without_field(front_end_data, RESTORED_FIELD).unwrap_or_default();
        let own = TableData {
            restored: Some(restored),
        };
        data.extend(own.encode_to_vec());
        data
    }
}

impl RestoredFrom {
    /// The backup as a restored table shows it.
    pub fn backup_info(&self, project: &str) -> admin::BackupInfo {
        let shown = |name: &Option<StoredBackupName>| name.as_ref().map(|name| name.shown(project));
        let instance = InstanceName {
            project: project.to_owned(),
            instance: self
                .backup
                .as_ref()
                .map(|name| name.instance.clone())
                .unwrap_or_default(),
        };
        admin::BackupInfo {
            backup: shown(&self.backup).unwrap_or_default(),
            start_time: Some(timestamp_of(self.start_micros)),
            end_time: Some(timestamp_of(self.end_micros)),
            source_table: instance.table(&self.source_table),
            source_backup: shown(&self.source_backup).unwrap_or_default(),
        }
    }
}

/// A message without one of its fields; `None` when it is no message.
fn without_field(mut bytes: &[u8], unwanted: u32) -> Option<Vec<u8>> {
    use prost::encoding::{DecodeContext, decode_key, skip_field};
    let mut kept = Vec::with_capacity(bytes.len());
    while !bytes.is_empty() {
        let before = bytes;
        let (number, wire_type) = decode_key(&mut bytes).ok()?;
        skip_field(wire_type, number, &mut bytes, DecodeContext::default()).ok()?;
        if number != unwanted {
            kept.extend_from_slice(before.get(..before.len() - bytes.len())?);
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_other_front_ends_stay() {
        // Field 2 of HBase's descriptor.
        let descriptor = b"\x12\x02ab";
        let restored = |table: &str| RestoredFrom {
            source_table: table.to_owned(),
            ..RestoredFrom::default()
        };
        let once = TableData::with_restored(descriptor, restored("t"));
        let twice = TableData::with_restored(&once, restored("u"));
        assert!(twice.starts_with(descriptor));
        assert_eq!(TableData::of(&twice).restored, Some(restored("u")));
        assert_eq!(without_field(&twice, RESTORED_FIELD).unwrap(), descriptor);
        assert_eq!(TableData::of(b"\xff"), TableData::default());
        assert!(TableData::with_restored(b"\xff", restored("t")).len() > 2);
    }
}
