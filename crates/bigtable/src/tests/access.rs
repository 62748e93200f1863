//! Every call as callers with different rights. The list below has the right that each call needs.

mod administration;
mod destinations;
mod hidden;
mod views;

use super::*;
use crate::pb::{iam, longrunning, own};
use crate::routes::routes;
use bytes::{Buf, BufMut};
use std::collections::{BTreeMap, HashSet};
use stele_access::testing::{AuditLog, MemoryRules};
use stele_access::{Access, AccessOptions, Rules, tokens};
use stele_client::AccessAdmin;
use stele_types::{AccessRule, Member, Resource, Rights, TableName};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;

/// The right that a call needs on the table, or on the resources that contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// Any known caller may make it. Lists have the entries that the caller may see.
    Known,
    /// To see or read the table.
    Reads,
    /// To write the table, and to read it where the call does.
    Writes,
    /// To administer.
    Administers,
}

const CLUSTER: &str = "projects/p/instances/i/clusters/c";
const BACKUP: &str = "projects/p/instances/i/clusters/c/backups/b";
const OTHER_PROFILE: &str = "projects/p/instances/i/appProfiles/other";
const PROFILE: &str = "projects/p/instances/i/appProfiles/default";

/// A valid request of every call.
fn calls() -> BTreeMap<&'static str, (Needs, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for (prefix, calls) in [
        ("/google.bigtable.v2.Bigtable/", data()),
        ("/google.bigtable.admin.v2.BigtableTableAdmin/", tables()),
        ("/google.bigtable.admin.v2.BigtableInstanceAdmin/", instances()),
        ("/google.longrunning.Operations/", operations()),
        ("/stele.admin.v1.", own_services()),
        ("/stele.admin.v1.Cluster/", cluster()),
        ("/stele.admin.v1.Reads/", reads()),
        ("/stele.admin.v1.", destinations::calls()),
    ] {
        for (name, needs, request) in calls {
            let path: &'static str = format!("{prefix}{name}").leak();
            assert!(all.insert(path, (needs, request)).is_none(), "{path} twice");
        }
    }
    all
}

type Calls = Vec<(&'static str, Needs, Vec<u8>)>;

fn data() -> Calls {
    use Needs::{Known, Reads, Writes};
    let mutations = || vec![set("f", "q", 1_000, "v")];
    let table_name = || TABLE.to_owned();
    vec![
        (
            "ReadRows",
            Reads,
            v2::ReadRowsRequest {
                table_name: table_name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "SampleRowKeys",
            Reads,
            v2::SampleRowKeysRequest {
                table_name: table_name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "PingAndWarm",
            Known,
            v2::PingAndWarmRequest {
                name: INSTANCE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "MutateRow",
            Writes,
            v2::MutateRowRequest {
                table_name: table_name(),
                row_key: "a".into(),
                mutations: mutations(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "MutateRows",
            Writes,
            v2::MutateRowsRequest {
                table_name: table_name(),
                entries: vec![v2::mutate_rows_request::Entry {
                    row_key: "a".into(),
                    mutations: mutations(),
                    ..Default::default()
                }],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "CheckAndMutateRow",
            Writes,
            v2::CheckAndMutateRowRequest {
                table_name: table_name(),
                row_key: "a".into(),
                true_mutations: mutations(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "ReadModifyWriteRow",
            Writes,
            v2::ReadModifyWriteRowRequest {
                table_name: table_name(),
                row_key: "a".into(),
                rules: vec![v2::ReadModifyWriteRule {
                    family_name: "f".into(),
                    column_qualifier: "q".into(),
                    rule: Some(v2::read_modify_write_rule::Rule::AppendValue("x".into())),
                }],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ]
}

fn policies(resource: &str) -> Calls {
    use Needs::{Administers, Known};
    let resource = || resource.to_owned();
    vec![
        (
            "GetIamPolicy",
            Administers,
            iam::GetIamPolicyRequest {
                resource: resource(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "SetIamPolicy",
            Administers,
            iam::SetIamPolicyRequest {
                resource: resource(),
                policy: Some(Default::default()),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "TestIamPermissions",
            Known,
            iam::TestIamPermissionsRequest {
                resource: resource(),
                permissions: vec!["bigtable.tables.readRows".into()],
            }
            .encode_to_vec(),
        ),
    ]
}

fn tables() -> Calls {
    use Needs::{Administers, Known, Reads, Writes};
    let name = || TABLE.to_owned();
    let protected = admin::Table {
        name: name(),
        deletion_protection: true,
        ..Default::default()
    };
    let modification = admin::modify_column_families_request::Modification {
        id: "h".into(),
        r#mod: Some(admin::modify_column_families_request::modification::Mod::Create(
            Default::default(),
        )),
        ..Default::default()
    };
    let rows = admin::drop_row_range_request::Target::RowKeyPrefix("a".into());
    let mut all: Calls = vec![
        ("CreateTable", Administers, table_request("new").encode_to_vec()),
        (
            "ListTables",
            Known,
            admin::ListTablesRequest {
                parent: INSTANCE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "GetTable",
            Reads,
            admin::GetTableRequest {
                name: name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "UpdateTable",
            Administers,
            admin::UpdateTableRequest {
                table: Some(protected),
                update_mask: mask(&["deletion_protection"]),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "DeleteTable",
            Administers,
            admin::DeleteTableRequest { name: name() }.encode_to_vec(),
        ),
        (
            "ModifyColumnFamilies",
            Administers,
            admin::ModifyColumnFamiliesRequest {
                name: name(),
                modifications: vec![modification],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "DropRowRange",
            Writes,
            admin::DropRowRangeRequest {
                name: name(),
                target: Some(rows),
            }
            .encode_to_vec(),
        ),
        (
            "GenerateConsistencyToken",
            Reads,
            admin::GenerateConsistencyTokenRequest { name: name() }.encode_to_vec(),
        ),
        (
            "CheckConsistency",
            Reads,
            admin::CheckConsistencyRequest {
                name: name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ];
    all.extend(views::calls());
    all.extend(backups());
    all.extend(policies(TABLE));
    all
}

fn backups() -> Calls {
    use Needs::{Administers, Reads};
    let in_a_week = Some(prost_types::Timestamp {
        seconds: TokioRuntime::current().wall_micros() / 1_000_000 + 7 * 86_400,
        nanos: 0,
    });
    let backup = admin::Backup {
        source_table: TABLE.into(),
        expire_time: in_a_week,
        ..Default::default()
    };
    let renewed = admin::Backup {
        name: BACKUP.into(),
        expire_time: in_a_week,
        ..Default::default()
    };
    let copy = admin::CopyBackupRequest {
        parent: CLUSTER.into(),
        backup_id: "copy".into(),
        source_backup: BACKUP.into(),
        expire_time: in_a_week,
    };
    let restore = admin::RestoreTableRequest {
        parent: INSTANCE.into(),
        table_id: "restored".into(),
        source: Some(admin::restore_table_request::Source::Backup(BACKUP.into())),
    };
    vec![
        (
            "CreateBackup",
            Administers,
            admin::CreateBackupRequest {
                parent: CLUSTER.into(),
                backup_id: "b2".into(),
                backup: Some(backup),
            }
            .encode_to_vec(),
        ),
        (
            "GetBackup",
            Administers,
            admin::GetBackupRequest { name: BACKUP.into() }.encode_to_vec(),
        ),
        (
            "UpdateBackup",
            Administers,
            admin::UpdateBackupRequest {
                backup: Some(renewed),
                update_mask: mask(&["expire_time"]),
            }
            .encode_to_vec(),
        ),
        (
            "DeleteBackup",
            Administers,
            admin::DeleteBackupRequest { name: BACKUP.into() }.encode_to_vec(),
        ),
        (
            "ListBackups",
            Reads,
            admin::ListBackupsRequest {
                parent: CLUSTER.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        ("CopyBackup", Administers, copy.encode_to_vec()),
        ("RestoreTable", Administers, restore.encode_to_vec()),
        (
            "UndeleteTable",
            Administers,
            admin::UndeleteTableRequest { name: TABLE.into() }.encode_to_vec(),
        ),
    ]
}

fn profile(name: &str) -> admin::AppProfile {
    admin::AppProfile {
        name: name.into(),
        routing_policy: Some(admin::app_profile::RoutingPolicy::MultiClusterRoutingUseAny(
            Default::default(),
        )),
        ..Default::default()
    }
}

fn instances() -> Calls {
    use Needs::{Administers, Known, Reads};
    let instance = || admin::Instance {
        name: INSTANCE.into(),
        display_name: "shown".into(),
        ..Default::default()
    };
    let mut all: Calls = vec![
        (
            "CreateInstance",
            Administers,
            admin::CreateInstanceRequest {
                parent: "projects/p".into(),
                instance_id: "new".into(),
                instance: Some(Default::default()),
                clusters: [("c1".to_owned(), Default::default())].into(),
            }
            .encode_to_vec(),
        ),
        (
            "GetInstance",
            Reads,
            admin::GetInstanceRequest { name: INSTANCE.into() }.encode_to_vec(),
        ),
        (
            "ListInstances",
            Known,
            admin::ListInstancesRequest {
                parent: "projects/p".into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        ("UpdateInstance", Administers, instance().encode_to_vec()),
        (
            "PartialUpdateInstance",
            Administers,
            admin::PartialUpdateInstanceRequest {
                instance: Some(instance()),
                update_mask: mask(&["display_name"]),
            }
            .encode_to_vec(),
        ),
        (
            "DeleteInstance",
            Administers,
            admin::DeleteInstanceRequest { name: INSTANCE.into() }.encode_to_vec(),
        ),
    ];
    all.extend(clusters());
    all.extend(app_profiles());
    all.extend(policies(INSTANCE));
    all
}

fn clusters() -> Calls {
    use Needs::{Administers, Reads};
    let cluster = || admin::Cluster {
        name: CLUSTER.into(),
        serve_nodes: 2,
        ..Default::default()
    };
    vec![
        (
            "CreateCluster",
            Administers,
            admin::CreateClusterRequest {
                parent: INSTANCE.into(),
                cluster_id: "e".into(),
                cluster: Some(cluster()),
            }
            .encode_to_vec(),
        ),
        (
            "GetCluster",
            Reads,
            admin::GetClusterRequest { name: CLUSTER.into() }.encode_to_vec(),
        ),
        (
            "ListClusters",
            Reads,
            admin::ListClustersRequest {
                parent: INSTANCE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        ("UpdateCluster", Administers, cluster().encode_to_vec()),
        (
            "PartialUpdateCluster",
            Administers,
            admin::PartialUpdateClusterRequest {
                cluster: Some(cluster()),
                update_mask: mask(&["serve_nodes"]),
            }
            .encode_to_vec(),
        ),
        (
            "DeleteCluster",
            Administers,
            admin::DeleteClusterRequest { name: CLUSTER.into() }.encode_to_vec(),
        ),
    ]
}

fn app_profiles() -> Calls {
    use Needs::{Administers, Reads};
    vec![
        (
            "CreateAppProfile",
            Administers,
            admin::CreateAppProfileRequest {
                parent: INSTANCE.into(),
                app_profile_id: "p".into(),
                app_profile: Some(profile("")),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "GetAppProfile",
            Reads,
            admin::GetAppProfileRequest { name: PROFILE.into() }.encode_to_vec(),
        ),
        (
            "ListAppProfiles",
            Reads,
            admin::ListAppProfilesRequest {
                parent: INSTANCE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "UpdateAppProfile",
            Administers,
            admin::UpdateAppProfileRequest {
                app_profile: Some(profile(PROFILE)),
                update_mask: mask(&["description"]),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "DeleteAppProfile",
            Administers,
            admin::DeleteAppProfileRequest {
                name: OTHER_PROFILE.into(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ]
}

fn operations() -> Calls {
    let name = || "operations/projects/p/instances/i/tables/t/operations/1".to_owned();
    vec![
        (
            "GetOperation",
            Needs::Known,
            longrunning::GetOperationRequest { name: name() }.encode_to_vec(),
        ),
        (
            "ListOperations",
            Needs::Known,
            longrunning::ListOperationsRequest {
                name: name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "CancelOperation",
            Needs::Known,
            longrunning::CancelOperationRequest { name: name() }.encode_to_vec(),
        ),
        (
            "DeleteOperation",
            Needs::Known,
            longrunning::DeleteOperationRequest { name: name() }.encode_to_vec(),
        ),
        (
            "WaitOperation",
            Needs::Known,
            longrunning::WaitOperationRequest {
                name: name(),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
    ]
}

fn reads() -> Calls {
    let read = v2::ReadRowsRequest {
        table_name: TABLE.to_owned(),
        ..Default::default()
    };
    let request = own::ExplainReadRequest {
        read: read.encode_to_vec().into(),
    };
    vec![("ExplainRead", Needs::Reads, request.encode_to_vec())]
}

fn own_services() -> Calls {
    use Needs::{Administers, Known, Reads};
    let name = || TABLE.to_owned();
    let settings = own::Settings {
        row_cache: Some(false),
        ..Default::default()
    };
    let group = own::Modification {
        group: "cold".into(),
        change: Some(own::Change::Create(Default::default())),
    };
    let rule = own::AccessRule {
        member: "user:a".into(),
        rights: vec!["read".into()],
        ..Default::default()
    };
    vec![
        (
            "LocalityGroups/GetLocalityGroups",
            Reads,
            own::GetLocalityGroupsRequest { name: name() }.encode_to_vec(),
        ),
        (
            "LocalityGroups/ModifyLocalityGroups",
            Administers,
            own::ModifyLocalityGroupsRequest {
                name: name(),
                modifications: vec![group],
            }
            .encode_to_vec(),
        ),
        (
            "TableSettings/GetTableSettings",
            Reads,
            own::GetTableSettingsRequest { name: name() }.encode_to_vec(),
        ),
        (
            "TableSettings/UpdateTableSettings",
            Administers,
            own::UpdateTableSettingsRequest {
                name: name(),
                settings: Some(settings),
            }
            .encode_to_vec(),
        ),
        (
            "Snapshots/CreateSnapshot",
            Administers,
            own::CreateSnapshotRequest {
                table: name(),
                snapshot: "s2".into(),
                ttl_seconds: 0,
            }
            .encode_to_vec(),
        ),
        (
            "Snapshots/ListSnapshots",
            Known,
            own::ListSnapshotsRequest {
                parent: INSTANCE.into(),
            }
            .encode_to_vec(),
        ),
        (
            "Snapshots/RestoreSnapshot",
            Administers,
            own::RestoreSnapshotRequest {
                parent: INSTANCE.into(),
                snapshot: "s".into(),
                table: format!("{INSTANCE}/tables/n"),
                in_place: false,
            }
            .encode_to_vec(),
        ),
        (
            "Snapshots/DeleteSnapshot",
            Administers,
            own::DeleteSnapshotRequest {
                parent: INSTANCE.into(),
                snapshot: "s".into(),
            }
            .encode_to_vec(),
        ),
        (
            "Access/ListRules",
            Administers,
            own::ListRulesRequest { resource: name() }.encode_to_vec(),
        ),
        (
            "Access/ModifyRules",
            Administers,
            own::ModifyRulesRequest {
                resource: name(),
                grant: vec![rule],
                revoke: vec![],
            }
            .encode_to_vec(),
        ),
    ]
}

fn cluster() -> Calls {
    use Needs::{Administers, Known};
    let split = own::SplitTabletRequest {
        name: TABLE.to_owned(),
        tablet: 1,
        row: Vec::new(),
    };
    let merge = own::MergeTabletsRequest {
        name: TABLE.to_owned(),
        tablets: vec![1, 2],
    };
    // A message of defaults has no bytes.
    vec![
        ("GetStatus", Administers, Vec::new()),
        ("MoveTablet", Administers, Vec::new()),
        ("DrainServer", Administers, Vec::new()),
        ("SplitTablet", Administers, split.encode_to_vec()),
        ("MergeTablets", Administers, merge.encode_to_vec()),
        ("GetSwitches", Known, Vec::new()),
        ("SetSwitches", Administers, Vec::new()),
    ]
}

/// A front end that knows its callers, with table `t`.
struct Secured {
    service: BigtableService,
    rules: Arc<MemoryRules>,
    token: String,
    expired: String,
    log: AuditLog,
    fake: Arc<Fake>,
}

async fn secured() -> Secured {
    let fake = Arc::new(Fake::default());
    let rules = Arc::new(MemoryRules::default());
    let alice = tokens::make("alice", &[1; tokens::RANDOM_BYTES], None).unwrap();
    let late = tokens::make("alice", &[2; tokens::RANDOM_BYTES], Some(1)).unwrap();
    let options = AccessOptions {
        superusers: HashSet::from(["root".to_owned()]),
        tokens: tokens::Tokens::parse(&format!("{}\n{}", alice.line, late.line)).unwrap(),
        ..AccessOptions::default()
    };
    let env = TokioRuntime::current();
    let log = AuditLog::start(env.clone()).await;
    let access = Access::new(rules.clone(), options, Some(log.audit()), env.clone());
    let front_end = BigtableFrontEnd::new(fake.clone(), fake.clone(), env, &Metrics::new());
    let front_end = front_end.with_rules(Rules::open(rules.clone())).with_access(access);
    let secured = Secured {
        service: front_end.into_service(),
        rules,
        token: alice.token,
        expired: late.token,
        log,
        fake,
    };
    let root = secured.service.for_connection(Some("root".into()));
    let mut tables = BigtableTableAdminClient::new(root.clone());
    tables.create_table(table_request("t")).await.unwrap();
    tables.create_authorized_view(views::create("v")).await.unwrap();
    let mut instances = BigtableInstanceAdminClient::new(root);
    for cluster_id in ["c", "d"] {
        let request = admin::CreateClusterRequest {
            parent: INSTANCE.into(),
            cluster_id: cluster_id.into(),
            cluster: Some(Default::default()),
        };
        instances.create_cluster(request).await.unwrap();
    }
    let request = admin::CreateAppProfileRequest {
        parent: INSTANCE.into(),
        app_profile_id: "other".into(),
        app_profile: Some(profile("")),
        ..Default::default()
    };
    instances.create_app_profile(request).await.unwrap();
    secured
}

impl Secured {
    async fn give(&self, rule: AccessRule, resource: Resource) {
        self.rules.set_rules(&resource, vec![rule], None).await.unwrap();
    }

    /// The code of a call by a caller with this name by its certificate, or without any.
    async fn call(&self, name: Option<&str>, path: &'static str, request: &[u8], token: Option<&str>) -> Code {
        let service = self.service.for_connection(name.map(str::to_owned));
        let mut client = tonic::client::Grpc::new(service);
        client.ready().await.unwrap();
        let mut request = Request::new(Bytes::copy_from_slice(request));
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
        }
        let called = client.server_streaming(request, PathAndQuery::from_static(path), Raw);
        let mut stream = match called.await {
            Ok(response) => response.into_inner(),
            Err(status) => return status.code(),
        };
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }
}

fn rule(rights: Rights) -> AccessRule {
    AccessRule::whole(Member::User("alice".into()), rights)
}

fn table() -> Resource {
    Resource::Table(TableName::new("i", "t"))
}

#[tokio::test]
async fn every_call_has_its_right() {
    let served: Vec<&str> = routes().map(|(path, _)| path).collect();
    let listed: Vec<&str> = calls().into_keys().collect();
    let (served, listed): (HashSet<_>, HashSet<_>) = (served.into_iter().collect(), listed.into_iter().collect());
    assert_eq!(
        served.symmetric_difference(&listed).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
}

#[tokio::test]
async fn nobody_may_call_anything() {
    let secured = secured().await;
    for (path, (_, request)) in calls() {
        let wrong = format!("{}x", secured.token);
        for token in [None, Some(""), Some("stele_"), Some(&*wrong), Some(&*secured.expired)] {
            let code = secured.call(None, path, &request, token).await;
            assert_eq!(code, Code::Unauthenticated, "{path} {token:?}");
        }
        // A wrong token is not made good by a certificate.
        let code = secured.call(Some("root"), path, &request, Some(&wrong)).await;
        assert_eq!(code, Code::Unauthenticated, "{path}");
    }
}

#[tokio::test]
async fn each_call_needs_its_right() {
    let roles = [
        (None, Needs::Known),
        (Some((Rights::READ, table())), Needs::Reads),
        (Some((Rights::READ.and(Rights::WRITE), table())), Needs::Writes),
        (Some((Rights::ALL, Resource::Cluster)), Needs::Administers),
    ];
    let mut wrong = Vec::new();
    for (path, (needs, request)) in calls() {
        for (given, up_to) in &roles {
            let secured = secured().await;
            if let Some((rights, resource)) = given {
                secured.give(rule(*rights), resource.clone()).await;
            }
            let is_denied = |code: Code| matches!(code, Code::PermissionDenied | Code::Unauthenticated);
            let by_certificate = secured.call(Some("alice"), path, &request, None).await;
            // A call as somebody else by certificate, with her token.
            let by_token = secured.call(Some("bob"), path, &request, Some(&secured.token)).await;
            for code in [by_certificate, by_token] {
                if is_denied(code) != (needs > *up_to) {
                    wrong.push(format!("{path} {given:?}: {code:?}"));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_writer_of_another_prefix_gets_nowhere() {
    let secured = secured().await;
    let of_z = AccessRule {
        row_prefix: Bytes::from_static(b"z"),
        ..rule(Rights::READ.and(Rights::WRITE))
    };
    secured.give(of_z, table()).await;
    for (path, (_, request)) in calls() {
        if path.starts_with("/google.bigtable.v2.Bigtable/") && !path.ends_with("PingAndWarm") {
            let code = secured.call(Some("alice"), path, &request, None).await;
            assert_eq!(code, Code::PermissionDenied, "{path}");
        }
    }
    let mut request = v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: "z1".into(),
        mutations: vec![set("f", "q", 1_000, "v")],
        ..Default::default()
    };
    let path = "/google.bigtable.v2.Bigtable/MutateRow";
    assert_eq!(
        secured.call(Some("alice"), path, &request.encode_to_vec(), None).await,
        Code::Ok
    );
    request.row_key = "y".into();
    assert_eq!(
        secured.call(Some("alice"), path, &request.encode_to_vec(), None).await,
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn policies_are_rules() {
    let secured = secured().await;
    let of = |name: &str| BigtableTableAdminClient::new(secured.service.for_connection(Some(name.to_owned())));
    let (mut root, mut alice) = (of("root"), of("alice"));
    let reader = iam::Policy {
        bindings: vec![iam::Binding {
            role: "roles/bigtable.reader".into(),
            members: vec!["user:alice".into()],
            condition: None,
        }],
        ..Default::default()
    };
    let set = |policy: iam::Policy| iam::SetIamPolicyRequest {
        resource: TABLE.into(),
        policy: Some(policy),
        ..Default::default()
    };
    let narrow = AccessRule {
        families: vec!["g".into()],
        ..rule(Rights::WRITE)
    };
    secured.give(narrow.clone(), table()).await;
    assert_eq!(
        code(alice.set_iam_policy(set(reader.clone())).await),
        Code::PermissionDenied
    );
    let made = root.set_iam_policy(set(reader.clone())).await.unwrap().into_inner();
    assert_eq!(made.bindings, reader.bindings);
    assert!(
        secured.rules.rules()[&table()].rules.contains(&narrow),
        "narrowed rules stay"
    );
    let test = iam::TestIamPermissionsRequest {
        resource: TABLE.into(),
        permissions: ["readRows", "mutateRows", "get", "delete"]
            .map(|name| format!("bigtable.tables.{name}"))
            .into(),
    };
    let tested = alice.test_iam_permissions(test.clone()).await.unwrap().into_inner();
    assert_eq!(tested.permissions, ["bigtable.tables.readRows", "bigtable.tables.get"]);
    assert_eq!(
        root.test_iam_permissions(test)
            .await
            .unwrap()
            .into_inner()
            .permissions
            .len(),
        4
    );
    // The etag of an older policy.
    let other = iam::Policy {
        etag: made.etag.clone(),
        ..Default::default()
    };
    root.set_iam_policy(set(other.clone())).await.unwrap();
    assert_eq!(code(root.set_iam_policy(set(other)).await), Code::Aborted);
    let missing = iam::GetIamPolicyRequest {
        resource: format!("{INSTANCE}/tables/none"),
        ..Default::default()
    };
    assert_eq!(code(root.get_iam_policy(missing.clone()).await), Code::NotFound);
    assert_eq!(code(alice.get_iam_policy(missing).await), Code::PermissionDenied);
}

/// Bytes in, bytes out.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}
