//! Backups, restores, copies, and their operations, through the published clients.

use super::*;
use crate::context::timestamp_of;
use crate::pb::longrunning;
use crate::pb::longrunning::operation;
use admin::backup::{BackupType, State};
use admin::restore_table_request::Source;
use prost_types::{FieldMask, Timestamp};

const CLUSTER: &str = "projects/p/instances/i/clusters/stele";
const BACKUP: &str = "projects/p/instances/i/clusters/stele/backups/b";

/// The time some hours from now.
fn hours(hours: i64) -> Option<Timestamp> {
    let now = TokioRuntime::current().wall_micros();
    Some(timestamp_of(now + hours * 3_600_000_000))
}

fn request(backup: admin::Backup) -> admin::CreateBackupRequest {
    admin::CreateBackupRequest {
        parent: CLUSTER.to_owned(),
        backup_id: "b".to_owned(),
        backup: Some(admin::Backup {
            source_table: TABLE.to_owned(),
            expire_time: backup.expire_time.or(hours(7)),
            ..backup
        }),
    }
}

fn unpacked<M: prost::Message + Default>(operation: &longrunning::Operation) -> M {
    assert!(operation.done);
    match &operation.result {
        Some(operation::Result::Response(any)) => M::decode(any.value.as_slice()).unwrap(),
        other => unreachable!("no response: {other:?}"),
    }
}

/// The name of the operation that optimizes the table which this one restored.
fn optimizing_name(restored: &longrunning::Operation) -> String {
    let metadata = restored.metadata.as_ref().unwrap();
    assert!(metadata.type_url.ends_with("RestoreTableMetadata"));
    let metadata: admin::RestoreTableMetadata = prost::Message::decode(&metadata.value[..]).unwrap();
    metadata.optimize_table_operation_name
}

async fn with_backup() -> (Harness, longrunning::Operation) {
    let harness = Harness::with_table().await;
    let made = harness.tables().create_backup(request(admin::Backup::default())).await;
    let operation = made.unwrap().into_inner();
    (harness, operation)
}

fn get(name: &str) -> admin::GetBackupRequest {
    admin::GetBackupRequest { name: name.to_owned() }
}

#[tokio::test]
async fn a_backup_is_made_shown_changed_and_deleted() {
    let (harness, operation) = with_backup().await;
    let made: admin::Backup = unpacked(&operation);
    assert_eq!((made.name.as_str(), made.source_table.as_str()), (BACKUP, TABLE));
    assert_eq!(
        (made.state(), made.backup_type(), made.size_bytes),
        (State::Ready, BackupType::Standard, 7)
    );
    let mut tables = harness.tables();
    assert_eq!(tables.get_backup(get(BACKUP)).await.unwrap().into_inner(), made);
    let again = tables.create_backup(request(admin::Backup::default())).await;
    assert_eq!(code(again), Code::AlreadyExists);
    let other = "projects/p/instances/i/clusters/other/backups/b";
    assert_eq!(code(tables.get_backup(get(other)).await), Code::NotFound);
    let update = |expire_time, path: &str| admin::UpdateBackupRequest {
        backup: Some(admin::Backup {
            name: BACKUP.to_owned(),
            expire_time,
            ..admin::Backup::default()
        }),
        update_mask: Some(FieldMask {
            paths: vec![path.to_owned()],
        }),
    };
    let later = hours(24 * 80);
    let updated = tables.update_backup(update(later, "expire_time")).await.unwrap();
    assert_eq!(updated.into_inner().expire_time, later);
    for (time, path) in [
        (hours(1), "expire_time"),
        (None, "expire_time"),
        (later, "source_table"),
    ] {
        let refused = tables.update_backup(update(time, path)).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{path}");
    }
    // A table that is dropped leaves its backups.
    let name = TABLE.to_owned();
    tables.delete_table(admin::DeleteTableRequest { name }).await.unwrap();
    let delete = || admin::DeleteBackupRequest {
        name: BACKUP.to_owned(),
    };
    tables.delete_backup(delete()).await.unwrap();
    assert_eq!(code(tables.delete_backup(delete()).await), Code::NotFound);
}

#[tokio::test]
async fn bad_backups_are_refused() {
    let harness = Harness::with_table().await;
    let with = |change: fn(&mut admin::CreateBackupRequest)| {
        let mut request = request(admin::Backup::default());
        change(&mut request);
        request
    };
    let cases: [(admin::CreateBackupRequest, Code); 9] = [
        (with(|r| r.backup = None), Code::InvalidArgument),
        (with(|r| r.backup_id = "-b".to_owned()), Code::InvalidArgument),
        (with(|r| r.backup_id = "b".repeat(51)), Code::InvalidArgument),
        (with(|r| r.parent = "x".to_owned()), Code::InvalidArgument),
        (with(|r| r.parent = format!("{INSTANCE}/clusters/none")), Code::NotFound),
        (
            with(|r| r.backup.as_mut().unwrap().expire_time = None),
            Code::InvalidArgument,
        ),
        (
            with(|r| r.backup.as_mut().unwrap().expire_time = hours(24 * 91)),
            Code::InvalidArgument,
        ),
        (
            with(|r| r.backup.as_mut().unwrap().source_table = "projects/p/instances/j/tables/t".to_owned()),
            Code::InvalidArgument,
        ),
        (
            with(|r| r.backup.as_mut().unwrap().source_table = format!("{INSTANCE}/tables/none")),
            Code::NotFound,
        ),
    ];
    for (number, (request, expected)) in cases.into_iter().enumerate() {
        let refused = harness.tables().create_backup(request).await;
        assert_eq!(code(refused), expected, "case {number}");
    }
    let standard = admin::Backup {
        hot_to_standard_time: hours(48),
        ..admin::Backup::default()
    };
    assert_eq!(
        code(harness.tables().create_backup(request(standard)).await),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_hot_backup_says_when_it_becomes_standard() {
    let harness = Harness::with_table().await;
    let hot = |hot_to_standard_time| admin::Backup {
        backup_type: BackupType::Hot as i32,
        hot_to_standard_time,
        expire_time: hours(24 * 9),
        ..admin::Backup::default()
    };
    let soon = harness.tables().create_backup(request(hot(hours(23)))).await;
    assert_eq!(code(soon), Code::InvalidArgument);
    let later = hours(30);
    let made = harness.tables().create_backup(request(hot(later))).await.unwrap();
    let made: admin::Backup = unpacked(&made.into_inner());
    assert_eq!(
        (made.backup_type(), made.hot_to_standard_time),
        (BackupType::Hot, later)
    );
}

#[tokio::test]
async fn a_table_is_restored_and_says_of_which_backup() {
    let (harness, _) = with_backup().await;
    let restore = |table: &str| admin::RestoreTableRequest {
        parent: "projects/p/instances/j".to_owned(),
        table_id: table.to_owned(),
        source: Some(Source::Backup(BACKUP.to_owned())),
    };
    let mut tables = harness.tables();
    let operation = tables.restore_table(restore("r")).await.unwrap().into_inner();
    let table: admin::Table = unpacked(&operation);
    assert_eq!(table.name, "projects/p/instances/j/tables/r");
    let info = table.restore_info.clone().unwrap();
    let Some(admin::restore_info::SourceInfo::BackupInfo(source)) = info.source_info else {
        unreachable!("no backup: {info:?}");
    };
    assert_eq!((source.backup.as_str(), source.source_table.as_str()), (BACKUP, TABLE));
    let request = longrunning::GetOperationRequest {
        name: optimizing_name(&operation),
    };
    let optimizing = harness.operations().get_operation(request).await.unwrap().into_inner();
    assert!(
        optimizing.done
            && optimizing
                .metadata
                .unwrap()
                .type_url
                .ends_with("OptimizeRestoredTableMetadata")
    );
    assert_eq!(code(tables.restore_table(restore("r")).await), Code::AlreadyExists);
    assert_eq!(code(tables.restore_table(restore("a/b")).await), Code::InvalidArgument);
    let absent = admin::RestoreTableRequest {
        source: Some(Source::Backup(format!("{BACKUP}-none"))),
        ..restore("s")
    };
    assert_eq!(code(tables.restore_table(absent).await), Code::NotFound);
}

#[tokio::test]
async fn a_copy_names_its_source_and_is_not_copied() {
    let (harness, _) = with_backup().await;
    let copy = |source: &str, id: &str, hours_left| admin::CopyBackupRequest {
        parent: CLUSTER.to_owned(),
        backup_id: id.to_owned(),
        source_backup: source.to_owned(),
        expire_time: hours(hours_left),
    };
    let mut tables = harness.tables();
    let operation = tables.copy_backup(copy(BACKUP, "c", 7)).await.unwrap().into_inner();
    let made: admin::Backup = unpacked(&operation);
    assert_eq!(
        (made.source_backup.as_str(), made.source_table.as_str()),
        (BACKUP, TABLE)
    );
    assert_eq!(
        code(tables.copy_backup(copy(BACKUP, "d", 24 * 31)).await),
        Code::InvalidArgument
    );
    let again = tables.copy_backup(copy(&made.name, "d", 7)).await;
    assert_eq!(code(again), Code::FailedPrecondition);
    let absent = tables.copy_backup(copy(&format!("{BACKUP}-none"), "d", 7)).await;
    assert_eq!(code(absent), Code::NotFound);
}

#[tokio::test]
async fn backups_are_listed_with_filter_order_and_pages() {
    let harness = Harness::with_table().await;
    let mut tables = harness.tables();
    for id in ["a", "b", "c"] {
        let request = admin::CreateBackupRequest {
            backup_id: id.to_owned(),
            ..request(admin::Backup::default())
        };
        tables.create_backup(request).await.unwrap();
    }
    let list = |cluster: &str, filter: &str, page_size, page_token: &str| admin::ListBackupsRequest {
        parent: format!("{INSTANCE}/clusters/{cluster}"),
        filter: filter.to_owned(),
        order_by: "name desc".to_owned(),
        page_size,
        page_token: page_token.to_owned(),
    };
    let mut names = async |request| {
        let listed = tables.list_backups(request).await.unwrap().into_inner();
        let ids = listed
            .backups
            .iter()
            .map(|backup| backup.name.rsplit('/').next().unwrap_or_default().to_owned());
        (ids.collect::<String>(), listed.next_page_token)
    };
    assert_eq!(names(list("-", "", 0, "")).await.0, "cba");
    assert_eq!(names(list("stele", "NOT name:\"b\"", 0, "")).await.0, "ca");
    assert_eq!(names(list("none", "", 0, "")).await.0, "");
    let (first, token) = names(list("-", "", 2, "")).await;
    assert_eq!(first, "cb");
    assert_eq!(names(list("-", "", 2, &token)).await, ("a".to_owned(), String::new()));
    let bad = harness.tables().list_backups(list("-", "labels:x", 0, "")).await;
    assert_eq!(code(bad), Code::InvalidArgument);
}

/// The log of another process knows none of them.
#[tokio::test]
async fn operations_are_found_after_a_restart() {
    let (harness, created) = with_backup().await;
    let restore = admin::RestoreTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: "r".to_owned(),
        source: Some(Source::Backup(BACKUP.to_owned())),
    };
    let restored = harness.tables().restore_table(restore).await.unwrap().into_inner();
    let harness = harness.restarted();
    let mut operations = harness.operations();
    for operation in [&created, &restored] {
        let name = operation.name.clone();
        let found = operations
            .get_operation(longrunning::GetOperationRequest { name })
            .await;
        let found = found.unwrap().into_inner();
        assert_eq!((&found.name, found.done), (&operation.name, true));
        assert_eq!(found.metadata, operation.metadata);
    }
    let list = || longrunning::ListOperationsRequest {
        name: format!("operations/{INSTANCE}"),
        ..Default::default()
    };
    let listed = operations.list_operations(list()).await.unwrap().into_inner();
    let names: Vec<&String> = listed.operations.iter().map(|operation| &operation.name).collect();
    assert_eq!(names, [&created.name, &restored.name, &optimizing_name(&restored)]);
    for operation in [&created, &restored] {
        let delete = || longrunning::DeleteOperationRequest {
            name: operation.name.clone(),
        };
        operations.delete_operation(delete()).await.unwrap();
        assert_eq!(code(operations.delete_operation(delete()).await), Code::NotFound);
    }
    let listed = operations.list_operations(list()).await.unwrap().into_inner();
    assert!(listed.operations.is_empty());
    let shown = harness.tables().get_backup(get(BACKUP)).await;
    assert_eq!(shown.unwrap().into_inner().name, BACKUP, "the backup itself stays");
}

/// The HBase front end keeps its descriptor in the same bytes.
#[tokio::test]
async fn an_operation_is_forgotten_without_a_loss_of_what_another_server_wrote_meanwhile() {
    let (harness, _) = with_backup().await;
    let restore = admin::RestoreTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: "r".to_owned(),
        source: Some(Source::Backup(BACKUP.to_owned())),
    };
    let restored = harness.tables().restore_table(restore).await.unwrap().into_inner();
    let data = || {
        let name = stele_types::TableName::new("i", "r");
        let schema = stele_client::TableService::schema(&*harness.fake, &name);
        schema.unwrap().front_end_data.clone()
    };
    let descriptor: &[u8] = b"\x12\x02ab";
    harness.fake.overtake_next([descriptor, &data()[..]].concat());
    let mut operations = harness.restarted().operations();
    let delete = || longrunning::DeleteOperationRequest {
        name: restored.name.clone(),
    };
    operations.delete_operation(delete()).await.unwrap();
    assert!(data().starts_with(descriptor), "it stays");
    assert_eq!(code(operations.delete_operation(delete()).await), Code::NotFound);
}
