//! Descriptions of snapshots, their names, and repeated calls.

use super::*;
use crate::test_service::{Client, Model, message};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use stele_memory::Pool;
use stele_types::{DeleteRule, SnapshotId, TableId, TableSchema, TimeUnit};
use stele_wire::messages::{
    ConnectionHeader, ExecProcedureRequest, MASTER_SERVICE, NameStringPair, OneBool, ProcedureDescription,
    ProcedureResponse, SetSwitchRequest,
};

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

async fn client(model: &Arc<Model>, front_end: &crate::HBaseFrontEnd) -> (Client, crate::test_service::Served) {
    assert!(model.schema.enabled);
    let header = ConnectionHeader {
        service_name: Some(MASTER_SERVICE.to_owned()),
        ..ConnectionHeader::default()
    };
    Client::open(front_end, 1 << 16, &header).await
}

fn request(name: &str, table: Option<&str>) -> SnapshotRequest {
    SnapshotRequest {
        snapshot: Some(SnapshotDescription {
            name: name.to_owned(),
            table: table.map(str::to_owned),
            ..SnapshotDescription::default()
        }),
        nonce_group: Some(7),
        nonce: Some(9),
    }
}

#[tokio::test]
async fn a_name_that_another_front_end_gave_too_means_the_snapshot_of_hbase() {
    let kept = SnapshotDescription {
        name: "s".to_owned(),
        version: Some(LAYOUT_VERSION),
        ..SnapshotDescription::default()
    };
    let (own, foreign) = (kept.encode_to_vec(), b"\xca\x3e\x01c".to_vec());
    for (snapshots, expected) in [
        ([("default", own.clone()), ("a", foreign.clone())], "default/s"),
        ([("a", foreign.clone()), ("n", own)], "n/s"),
    ] {
        let model = Model::new(&[""]);
        let of = |(namespace, data)| Arc::new(snapshot(namespace, None, data));
        *model.snapshots.lock() = snapshots.map(of).into();
        let (mut client, _served) = client(&model, &model.front_end(&Pool::default())).await;
        message::<Empty>(&client.call("DeleteSnapshot", &request("s", None)).await);
        let restore = SnapshotRequest {
            nonce: Some(10),
            ..request("s", Some("new"))
        };
        let clone = client.call("RestoreSnapshot", &restore).await;
        message::<ProcedureResponse>(&clone);
        let named = [format!("delete {expected}"), format!("clone {expected}")];
        assert_eq!(*model.named.lock(), named);
    }
}

#[tokio::test]
async fn of_several_snapshots_of_others_a_restore_means_that_of_its_table() {
    let model = Model::new(&[""]);
    *model.snapshots.lock() = ["a", "n"]
        .map(|namespace| Arc::new(snapshot(namespace, None, Vec::new())))
        .into();
    let (mut client, _served) = client(&model, &model.front_end(&Pool::default())).await;
    let response = client.call("RestoreSnapshot", &request("s", Some("new"))).await;
    assert!(response.header.exception.is_some(), "ambiguous");
    let response = client.call("RestoreSnapshot", &request("s", Some("n:t"))).await;
    message::<ProcedureResponse>(&response);
    assert_eq!(*model.named.lock(), ["clone n/s"]);
}

/// The switch is that of the service, so it outlives this server.
#[tokio::test]
async fn expired_snapshots_are_shown_and_restored_while_the_cleanup_is_off() {
    let model = Model::new(&[""]);
    *model.snapshots.lock() = vec![Arc::new(snapshot("default", Some(6_000_001), Vec::new()))];
    let (mut client, _served) = client(&model, &model.front_end(&Pool::default())).await;
    let is_on = async |client: &mut Client| {
        let answer = client.call("IsSnapshotCleanupEnabled", &Empty {}).await;
        message::<OneBool>(&answer).value
    };
    let set = async |client: &mut Client, on| {
        let request = SetSwitchRequest { on, synchronous: None };
        message::<OneBool>(&client.call("SwitchSnapshotCleanup", &request).await).value
    };
    let shown = async |client: &mut Client| {
        let answer = client.call("GetCompletedSnapshots", &Empty {}).await;
        message::<GetCompletedSnapshotsResponse>(&answer).snapshots.len()
    };
    assert!(is_on(&mut client).await);
    assert_eq!(shown(&mut client).await, 0, "it is about to be deleted");
    assert!(set(&mut client, false).await, "the former position");
    assert!(!model.switches.lock().snapshot_cleanup && !is_on(&mut client).await);
    assert!(!set(&mut client, false).await);
    assert_eq!(shown(&mut client).await, 1);
    let clone = client.call("RestoreSnapshot", &request("s", Some("new"))).await;
    message::<ProcedureResponse>(&clone);
    assert_eq!(*model.named.lock(), ["clone default/s"]);
    assert!(!set(&mut client, true).await);
    assert!(model.switches.lock().snapshot_cleanup);
}

/// The master takes the snapshot to its end, and the client does not hear of that.
#[tokio::test]
async fn a_snapshot_whose_client_went_away_is_not_refused_to_its_repetition() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let latch = model.latch.lock().await;
    let (mut first, served) = client(&model, &front_end).await;
    first.send("Snapshot", &request("s", Some("t")), &()).await;
    while model.snapshots_begun.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    // As after an error of its socket.
    served.abort();
    assert!(served.await.is_err());
    drop(latch);
    let (mut second, _served) = client(&model, &front_end).await;
    let response = second.call("Snapshot", &request("s", Some("t"))).await;
    assert_eq!(message::<SnapshotResponse>(&response).proc_id, Some(1));
    assert_eq!(model.snapshots_begun.load(Ordering::Relaxed), 1);
}

/// Otherwise clients that leave could have any number of requests wait, of which no memory is counted.
#[tokio::test]
async fn the_request_of_a_change_is_charged_until_the_change_ends_or_is_called_off() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let latch = model.latch.lock().await;
    let (mut first, first_served) = client(&model, &front_end).await;
    first.send("Snapshot", &request("s", Some("t")), &()).await;
    while model.snapshots_begun.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let (mut second, second_served) = client(&model, &front_end).await;
    let other = SnapshotRequest {
        nonce: Some(10),
        ..request("u", Some("t"))
    };
    let of_first = front_end.shared.requests.used();
    second.send("Snapshot", &other, &()).await;
    while front_end.shared.requests.used() == of_first {
        tokio::task::yield_now().await;
    }
    second_served.abort();
    assert!(second_served.await.is_err());
    assert_eq!(front_end.shared.requests.used(), of_first, "it is called off");
    first_served.abort();
    assert!(first_served.await.is_err());
    assert!(front_end.shared.requests.used() > 0, "the change goes on");
    drop(latch);
    let turn = front_end.shared.changes.lock().await;
    drop(turn);
    assert_eq!(front_end.shared.requests.used(), 0);
    assert_eq!(model.snapshots_begun.load(Ordering::Relaxed), 1);
}

/// The next change must not find it half made, and it may take longer than its client waits.
#[tokio::test]
async fn a_change_whose_client_went_away_keeps_its_turn_to_its_end() {
    let procedure = ExecProcedureRequest {
        procedure: Some(ProcedureDescription {
            signature: "online-snapshot".to_owned(),
            instance: Some("u".to_owned()),
            configuration: vec![NameStringPair {
                name: "table".to_owned(),
                value: "t".to_owned(),
            }],
            ..ProcedureDescription::default()
        }),
    };
    for is_deletion in [false, true] {
        let model = Model::new(&[""]);
        *model.snapshots.lock() = vec![Arc::new(snapshot("default", None, Vec::new()))];
        let front_end = model.front_end(&Pool::default());
        let latch = model.latch.lock().await;
        let (mut first, served) = client(&model, &front_end).await;
        match is_deletion {
            true => first.send("DeleteSnapshot", &request("s", None), &()).await,
            false => first.send("ExecProcedure", &procedure, &()).await,
        };
        while model.snapshots_begun.load(Ordering::Relaxed) == 0 && model.named.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        served.abort();
        assert!(served.await.is_err());
        assert!(front_end.shared.changes.try_lock().is_none(), "deletion: {is_deletion}");
        drop(latch);
        let turn = front_end.shared.changes.lock().await;
        drop(turn);
        // The repetition is recognised by its nonce.
        if is_deletion {
            let (mut second, _served) = client(&model, &front_end).await;
            message::<Empty>(&second.call("DeleteSnapshot", &request("s", None)).await);
            assert_eq!(*model.named.lock(), ["delete default/s"]);
        }
    }
}
