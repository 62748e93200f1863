//! Rights that the handlers of administrative calls check.

use super::*;
use crate::context::timestamp_of;
use stele_types::ErrorKind;

/// A policy is read only for a caller who may set it, and no further than its limit.
#[tokio::test]
async fn a_policy_of_others_is_not_read() {
    let secured = secured().await;
    let mut members: Vec<String> = (0..40_000).map(|number| format!("user:{number}")).collect();
    members.push("allUsers".into());
    let policy = iam::Policy {
        bindings: vec![iam::Binding {
            role: "roles/bigtable.reader".into(),
            members,
            condition: None,
        }],
        ..Default::default()
    };
    let set = || iam::SetIamPolicyRequest {
        resource: TABLE.into(),
        policy: Some(policy.clone()),
        ..Default::default()
    };
    let of = |name: &str| BigtableTableAdminClient::new(secured.service.for_connection(Some(name.to_owned())));
    assert_eq!(code(of("alice").set_iam_policy(set()).await), Code::PermissionDenied);
    let refused = of("root").set_iam_policy(set()).await.unwrap_err();
    assert!(refused.message().contains("more than 256 rules"), "{refused}");
}

#[tokio::test]
async fn operations_are_deleted_by_administrators_of_their_instance() {
    let secured = secured().await;
    let instance = || Resource::Namespace("i".into());
    secured.give(rule(Rights::VIEW), instance()).await;
    let of = |name: &str| secured.service.for_connection(Some(name.to_owned()));
    let protected = admin::UpdateTableRequest {
        table: Some(admin::Table {
            name: TABLE.into(),
            deletion_protection: true,
            ..Default::default()
        }),
        update_mask: mask(&["deletion_protection"]),
        ..Default::default()
    };
    let made = BigtableTableAdminClient::new(of("root")).update_table(protected).await;
    let name = made.unwrap().into_inner().name;
    let delete = || longrunning::DeleteOperationRequest { name: name.clone() };
    let get = || longrunning::GetOperationRequest { name: name.clone() };
    let mut alice = OperationsClient::new(of("alice"));
    assert_eq!(code(alice.delete_operation(delete()).await), Code::PermissionDenied);
    assert_eq!(code(alice.get_operation(get()).await), Code::Ok);
    secured.give(rule(Rights::ADMIN), instance()).await;
    assert_eq!(code(alice.delete_operation(delete()).await), Code::Ok);
    assert_eq!(code(alice.get_operation(get()).await), Code::NotFound);
    let lines = secured.log.lines().await;
    let deletions: Vec<_> = lines.iter().filter(|line| line.contains("delete_operation")).collect();
    assert_eq!(
        deletions,
        ["alice delete_operation denied", "alice delete_operation done"]
    );
}

/// The audit log does not say that a call is done before it is.
#[tokio::test]
async fn a_deletion_of_an_operation_that_fails_is_in_the_audit_log_as_failed() {
    let secured = secured().await;
    let root = || secured.service.for_connection(Some("root".to_owned()));
    let hours = 7 * 3_600_000_000;
    let backup = admin::CreateBackupRequest {
        parent: CLUSTER.into(),
        backup_id: "b".into(),
        backup: Some(admin::Backup {
            source_table: TABLE.into(),
            expire_time: Some(timestamp_of(TokioRuntime::current().wall_micros() + hours)),
            ..Default::default()
        }),
    };
    let made = BigtableTableAdminClient::new(root()).create_backup(backup).await;
    let name = made.unwrap().into_inner().name;
    secured.fake.fail_next(ErrorKind::Internal);
    let delete = longrunning::DeleteOperationRequest { name };
    let failed = OperationsClient::new(root()).delete_operation(delete).await;
    assert_eq!(code(failed), Code::Internal);
    let lines = secured.log.lines().await;
    let deletions: Vec<_> = lines.iter().filter(|line| line.contains("delete_operation")).collect();
    assert_eq!(deletions, ["root delete_operation failed"]);
}

#[tokio::test]
async fn operations_of_others_are_not_seen() {
    let secured = secured().await;
    secured.give(rule(Rights::READ), table()).await;
    let of = |name: &str| secured.service.for_connection(Some(name.to_owned()));
    let instance = admin::PartialUpdateInstanceRequest {
        instance: Some(admin::Instance {
            name: INSTANCE.into(),
            display_name: "secret".into(),
            ..Default::default()
        }),
        update_mask: mask(&["display_name"]),
    };
    let made = BigtableInstanceAdminClient::new(of("root"))
        .partial_update_instance(instance)
        .await;
    let name = made.unwrap().into_inner().name;
    let get = longrunning::GetOperationRequest { name: name.clone() };
    let list = longrunning::ListOperationsRequest::default();
    let (mut root, mut alice) = (OperationsClient::new(of("root")), OperationsClient::new(of("alice")));
    assert_eq!(code(alice.get_operation(get.clone()).await), Code::NotFound);
    assert!(
        alice
            .list_operations(list.clone())
            .await
            .unwrap()
            .into_inner()
            .operations
            .is_empty()
    );
    assert!(root.get_operation(get).await.is_ok());
    let seen = root.list_operations(list).await.unwrap().into_inner().operations;
    assert!(seen.iter().any(|operation| operation.name == name));
    let delete = longrunning::DeleteOperationRequest { name };
    assert_eq!(code(alice.delete_operation(delete).await), Code::NotFound);
}
