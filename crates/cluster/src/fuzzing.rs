//! Checks of decoders for fuzz targets.
//!
//! Any bytes are refused or decoded, and decode to the same again once encoded. The checks are here, because records and control calls
//! are no interface of the crate.

use crate::backup_calls::{SentOrdered, SentWork};
use crate::codec::{self, Outcome};
use crate::messages::{Call, ClusterCall, Request, ServerReport, TabletReport, TabletState};
use crate::openings::Openings;
use crate::records::{self, LifeRecord, LogRecord, PromotionRecord, ServerRecord};
use crate::tablet_calls::TabletCall;
use crate::{admin_calls::AdminCall, backup_calls::BackupCall};
use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use stele_client::{
    Assignment, BackupDestination, BackupProgress, BackupWork, ClusterStatus, ServiceError, SnapshotInfo, TableUpdate,
};
use stele_types::{Epoch, RowRange, ServerId, TableId, TableName, TableSchema, TabletId};

/// Checks a value of the coordinator as each kind of record, and a key.
pub fn records(bytes: &[u8]) {
    record::<ServerRecord>(bytes);
    record::<LogRecord>(bytes);
    record::<LifeRecord>(bytes);
    record::<PromotionRecord>(bytes);
    let Ok(key) = std::str::from_utf8(bytes) else { return };
    for prefix in [records::SERVERS, records::LOGS, records::DRAINING, records::LIVES] {
        if let Some(server) = records::server_of(prefix, key) {
            assert_eq!(records::key(prefix, server), key);
        }
    }
}

/// Checks a control call and the answers to them.
pub fn control(bytes: &[u8]) {
    if let Some(Call { request, .. }) = message::<Call>(bytes) {
        // The audit log has an entry before the call is carried out.
        let _ = request.audited();
        if let Request::Open(openings) = request {
            opened(openings);
        }
    }
    message::<ServerReport>(bytes);
    message::<Vec<Outcome>>(bytes);
    message::<SentWork>(bytes);
    message::<Vec<SentOrdered>>(bytes);
    message::<ClusterStatus>(bytes);
    message::<SnapshotInfo>(bytes);
    message::<TableSchema>(bytes);
}

/// Valid records and keys, and valid control calls and answers, from which fuzzing starts.
pub fn seeds() -> (Vec<Bytes>, Vec<Bytes>) {
    (records_seeds(), control_seeds())
}

fn record<R: Message + Default + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(record) = records::decode::<R>(bytes) {
        assert_eq!(records::decode::<R>(&records::encode(&record)).as_ref(), Ok(&record));
    }
}

/// Some types have no equality, and some show no secrets: the bytes that are sent are compared, too.
fn message<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Option<T> {
    let message: T = codec::decode(bytes).ok()?;
    let sent = codec::encode(&message).expect("what was decoded can be sent");
    let again: T = codec::decode(&sent).expect("what was sent can be decoded");
    assert_eq!(codec::encode(&again).expect("it was sent before"), sent);
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
    Some(message)
}

/// Tablets keep their schemas when they are distributed over calls again.
fn opened(openings: Openings) {
    let Ok(assignments) = openings.into_assignments() else {
        return;
    };
    // A table has one schema in all calls of a leader; a call that has several is not distributed to the same again.
    let mut schemas: BTreeMap<TableId, Arc<TableSchema>> = BTreeMap::new();
    let is_one = |assignment: &Assignment| {
        let schema = schemas.entry(assignment.schema.id).or_insert(assignment.schema.clone());
        *schema == assignment.schema
    };
    if !assignments.iter().all(is_one) {
        return;
    }
    let calls = Openings::of(assignments.clone()).expect("what was decoded can be sent");
    let again = calls
        .into_iter()
        .map(|call| call.into_assignments().expect("a schema for each"));
    assert_eq!(
        format!("{:?}", again.flatten().collect::<Vec<_>>()),
        format!("{assignments:?}")
    );
}

fn records_seeds() -> Vec<Bytes> {
    let server = ServerRecord {
        peer: "h:1".to_owned(),
        bigtable: "h:2".to_owned(),
        hbase: "h:3".to_owned(),
        http: "h:4".to_owned(),
        started_micros: 5,
        version: "1".to_owned(),
    };
    let log = LogRecord {
        sealed: true,
        bytes: 300,
        streams: 2,
        given_up: true,
        session_millis: 10_000,
        may_live: true,
    };
    let life = LifeRecord {
        place: "p".to_owned(),
        from_micros: 5,
        gaps: 1,
        ended_micros: 7,
        closing: true,
    };
    let promotion = PromotionRecord {
        root: Bytes::from_static(&[7; 16]),
        source: "s".to_owned(),
        target: "t".to_owned(),
        finished: true,
    };
    vec![
        records::encode(&server),
        records::encode(&log),
        records::encode(&life),
        records::encode(&promotion),
        records::key(records::LOGS, ServerId(0x1f)).into(),
    ]
}

fn control_seeds() -> Vec<Bytes> {
    let name = TableName::new("n", "t");
    let schema = Arc::new(TableSchema::new(TableId(7), name.clone()));
    let range = RowRange {
        start: Bytes::from_static(b"a"),
        end: None,
    };
    let assignment = Assignment {
        tablet: TabletId(1),
        epoch: Epoch(2),
        schema: schema.clone(),
        logs: vec![ServerId(3)],
        streams: BTreeMap::from([(ServerId(3), 2)]),
    };
    let mut requests: Vec<Request> = Openings::of(vec![assignment])
        .expect("it can be sent")
        .into_iter()
        .map(Request::Open)
        .collect();
    let destination = BackupDestination {
        address: "s3://bucket/b".to_owned(),
        options: vec![("k".to_owned(), "v".to_owned())],
    };
    requests.extend([
        Request::Report(1),
        Request::Tablets(TabletCall::Create {
            schema: schema.clone(),
            tablets: vec![(TabletId(1), range.clone())],
        }),
        Request::Tablets(TabletCall::DropRows {
            tablet: TabletId(1),
            epoch: Epoch(2),
            number: (3, 4),
            range: range.clone(),
        }),
        Request::Admin(AdminCall::UpdateTable(name.clone(), Box::default())),
        Request::Admin(AdminCall::DropRowRange(name, range)),
        Request::Cluster(ClusterCall::Drain {
            server: ServerId(3),
            drains: true,
        }),
        Request::Backups(BackupCall::List(destination)),
    ]);
    let report = ServerReport {
        version: 1,
        tablets: Some(vec![TabletReport {
            tablet: TabletId(1),
            epoch: Epoch(2),
            state: TabletState::Serving,
            bytes: 3,
            requests: 4,
        }]),
        prepared: vec![(TabletId(1), 2)],
        ..ServerReport::default()
    };
    let work = SentWork::from(BackupWork {
        number: 1,
        progress: BackupProgress::default(),
        outcome: Some(Err(ServiceError::not_found("gone"))),
    });
    let calls = requests
        .into_iter()
        .map(|request| codec::encode(&Call { term: 1, request }));
    let answers = [
        codec::encode(&report),
        codec::encode(&work),
        codec::encode(&*schema),
        codec::encode(&TableUpdate::default()),
    ];
    calls.chain(answers).map(|sent| sent.expect("it can be sent")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_survive_their_checks() {
        let (kept, sent) = seeds();
        for bytes in &kept {
            records(bytes);
        }
        for bytes in &sent {
            control(bytes);
        }
        let is_call = |bytes: &&Bytes| codec::decode::<Call>(bytes).is_ok();
        assert_eq!(sent.iter().filter(is_call).count(), 8);
    }
}
