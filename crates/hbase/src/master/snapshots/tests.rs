//! Descriptions of snapshots.

use super::*;
use bytes::Bytes;
use stele_types::{DeleteRule, SnapshotId, TableId, TableSchema, TimeUnit};

fn snapshot(namespace: &str, expires_micros: Option<i64>, front_end_data: Vec<u8>) -> SnapshotInfo {
    let schema = TableSchema {
        time_unit: TimeUnit::Millis,
        delete_rule: DeleteRule::ByTimestamp,
        ..TableSchema::new(TableId(1), TableName::new(namespace, "t"))
    };
    SnapshotInfo {
        kept: None,
        id: SnapshotId(1),
        name: SnapshotName::new(namespace, "s"),
        schema: Arc::new(schema),
        created_micros: 5_000_000,
        completed_micros: 6_000_000,
        expires_micros,
        tablets: 1,
        bytes: 0,
        front_end_data: Bytes::from(front_end_data),
    }
}

#[test]
fn a_description_is_kept_and_completed() {
    let kept = SnapshotDescription {
        name: "s".to_owned(),
        r#type: Some(SnapshotType::SkipFlush as i32),
        owner: Some("o".to_owned()),
        ttl: Some(30),
        ..SnapshotDescription::default()
    };
    let shown = description(&snapshot("default", Some(35_000_000), kept.encode_to_vec()));
    assert_eq!(shown.table.as_deref(), Some("t"));
    assert_eq!((shown.creation_time, shown.ttl), (Some(5_000), Some(30)));
    assert_eq!(
        (shown.r#type(), shown.owner.as_deref()),
        (SnapshotType::SkipFlush, Some("o"))
    );
}

#[test]
fn a_snapshot_of_another_front_end_has_a_description() {
    let shown = description(&snapshot("n", Some(5_000_001), b"\xff\xff".to_vec()));
    assert_eq!((shown.name.as_str(), shown.table.as_deref()), ("s", Some("n:t")));
    assert_eq!((shown.r#type(), shown.ttl), (SnapshotType::Flush, Some(1)));
    let never = description(&snapshot("n", None, Vec::new()));
    assert_eq!(never.ttl, Some(0));
}
