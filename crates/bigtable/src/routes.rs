//! The routing table: the path of every call that is served, and its handler.
//!
//! A handler gets the bytes of a request whose decoded form has been charged to the call. ReadRows, MutateRow and
//! MutateRows are nearly all of the load and read those bytes themselves ([`crate::data_plane`]). All others are decoded
//! by prost here. Their futures are boxed, so that their size does not add to that of the three.

use crate::accounting::Call;
use crate::context::Context;
use crate::data_plane::{conditional, mutate_rows, read_rows, samples};
use crate::features::Client;
use crate::messages::{decode, time_limit};
use crate::pb::{admin, iam as iam_v1, longrunning, own, v2};
use crate::response::Response;
use crate::size_estimate::SizeEstimate;
use crate::{
    access_rules, app_profiles, backups, cluster, clusters, destinations, explain, groups, iam, instances, operations,
    settings, snapshots, tables, tablets, views, wire,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::Arc;
use tonic::Status;
use tonic::codegen::http;

/// Serves the calls of one method.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    ReadRows,
    MutateRow,
    MutateRows,
    Decoded(DecodedHandler),
}

/// A handler of requests that prost decodes.
#[derive(Clone, Copy)]
pub(crate) struct DecodedHandler {
    /// It changes rows.
    is_write: bool,
    /// Memory of a decoded request.
    decoded_bytes: fn(&[u8]) -> Result<usize, Status>,
    handle: Handle,
}

type Handle = for<'c> fn(&'c Arc<Context>, &'c Call, Bytes) -> BoxFuture<'c, Result<Response, Status>>;

impl Handler {
    /// Whether its calls change rows.
    pub fn is_write(self) -> bool {
        match self {
            Handler::ReadRows => false,
            Handler::MutateRow | Handler::MutateRows => true,
            Handler::Decoded(handler) => handler.is_write,
        }
    }

    /// Memory of the decoded form of a request, which is charged before it is decoded. 0 for handlers that charge it
    /// themselves.
    pub fn decoded_bytes(self, bytes: &[u8]) -> Result<usize, Status> {
        match self {
            Handler::ReadRows | Handler::MutateRow | Handler::MutateRows => Ok(0),
            Handler::Decoded(handler) => (handler.decoded_bytes)(bytes),
        }
    }

    /// Handles a request.
    pub async fn handle(
        self,
        context: &Arc<Context>,
        call: &Call,
        headers: &http::HeaderMap,
        bytes: Bytes,
    ) -> Result<Response, Status> {
        match self {
            Handler::ReadRows => {
                let deadline = time_limit(headers).map(|limit| call.started().saturating_add(limit));
                read_rows::read_rows(context, call, bytes, Client::of(headers), deadline).await
            }
            Handler::MutateRow => mutate_rows::mutate_row(context, call, bytes).await,
            Handler::MutateRows => mutate_rows::mutate_rows(context, call, bytes).await,
            Handler::Decoded(handler) => (handler.handle)(context, call, bytes).await,
        }
    }
}

/// A handler that takes a decoded request. `unary` ones return one message, `stream` ones a response, and `write` is
/// `unary` for calls that change rows.
macro_rules! decoded {
    (unary $handler:path, $request:ty) => {
        decoded!(false, $request, |context, call, bytes| Box::pin(async move {
            Response::unary(&$handler(context, call, decode::<$request>(bytes)?).await?)
        }))
    };
    (write $handler:path, $request:ty) => {
        decoded!(true, $request, |context, call, bytes| Box::pin(async move {
            Response::unary(&$handler(context, call, decode::<$request>(bytes)?).await?)
        }))
    };
    (stream $handler:path, $request:ty) => {
        decoded!(false, $request, |context, call, bytes| Box::pin(async move {
            $handler(context, call, decode::<$request>(bytes)?).await
        }))
    };
    ($is_write:literal, $request:ty, $handle:expr) => {
        Handler::Decoded(DecodedHandler {
            is_write: $is_write,
            decoded_bytes: |bytes| Ok(SizeEstimate::of::<$request>(bytes)?.cost()),
            handle: $handle,
        })
    };
}

/// The routes of one service: method, kind of handler, handler and request message.
macro_rules! service {
    ($name:literal, $($method:literal => $kind:ident $handler:path, $request:ty;)*) => {
        &[$((concat!("/", $name, "/", $method), decoded!($kind $handler, $request))),*]
    };
}

/// A path and its handler.
type Route = (&'static str, Handler);

/// The routes of all calls that are served.
pub(crate) fn routes() -> impl Iterator<Item = Route> {
    let services = [
        DATA_PLANE,
        DATA,
        TABLE_ADMIN,
        INSTANCE_ADMIN,
        OPERATIONS,
        LOCALITY_GROUPS,
        TABLE_SETTINGS,
        SNAPSHOTS,
        DESTINATIONS,
        ACCESS,
        CLUSTER,
        READS,
    ];
    services.into_iter().flatten().copied()
}

const DATA_PLANE: &[Route] = &[
    ("/google.bigtable.v2.Bigtable/ReadRows", Handler::ReadRows),
    ("/google.bigtable.v2.Bigtable/MutateRow", Handler::MutateRow),
    ("/google.bigtable.v2.Bigtable/MutateRows", Handler::MutateRows),
];

const DATA: &[Route] = service! { "google.bigtable.v2.Bigtable",
    "SampleRowKeys" => stream samples::sample_row_keys, wire::SampleRowKeysRequest;
    "CheckAndMutateRow" => write conditional::check_and_mutate_row, wire::CheckAndMutateRowRequest;
    "ReadModifyWriteRow" => write conditional::read_modify_write_row, v2::ReadModifyWriteRowRequest;
    "PingAndWarm" => unary samples::ping_and_warm, v2::PingAndWarmRequest;
};

const TABLE_ADMIN: &[Route] = service! { "google.bigtable.admin.v2.BigtableTableAdmin",
    "CreateTable" => unary tables::create_table, admin::CreateTableRequest;
    "ListTables" => unary tables::list_tables, admin::ListTablesRequest;
    "GetTable" => unary tables::get_table, admin::GetTableRequest;
    "UpdateTable" => unary tables::update_table, admin::UpdateTableRequest;
    "DeleteTable" => unary tables::delete_table, admin::DeleteTableRequest;
    "ModifyColumnFamilies" => unary tables::modify_column_families, admin::ModifyColumnFamiliesRequest;
    "UndeleteTable" => unary tables::undelete_table, admin::UndeleteTableRequest;
    "DropRowRange" => unary tables::drop_row_range, admin::DropRowRangeRequest;
    "GenerateConsistencyToken" => unary tables::generate_consistency_token, admin::GenerateConsistencyTokenRequest;
    "CheckConsistency" => unary tables::check_consistency, admin::CheckConsistencyRequest;
    "CreateBackup" => unary backups::create_backup, admin::CreateBackupRequest;
    "GetBackup" => unary backups::get_backup, admin::GetBackupRequest;
    "UpdateBackup" => unary backups::update_backup, admin::UpdateBackupRequest;
    "DeleteBackup" => unary backups::delete_backup, admin::DeleteBackupRequest;
    "ListBackups" => unary backups::list_backups, admin::ListBackupsRequest;
    "CopyBackup" => unary backups::copy_backup, admin::CopyBackupRequest;
    "RestoreTable" => unary backups::restore_table, admin::RestoreTableRequest;
    "CreateAuthorizedView" => unary views::create_view, admin::CreateAuthorizedViewRequest;
    "ListAuthorizedViews" => unary views::list_views, admin::ListAuthorizedViewsRequest;
    "GetAuthorizedView" => unary views::get_view, admin::GetAuthorizedViewRequest;
    "UpdateAuthorizedView" => unary views::update_view, admin::UpdateAuthorizedViewRequest;
    "DeleteAuthorizedView" => unary views::delete_view, admin::DeleteAuthorizedViewRequest;
    "GetIamPolicy" => unary iam::get_policy, iam_v1::GetIamPolicyRequest;
    "SetIamPolicy" => unary iam::set_policy, iam_v1::SetIamPolicyRequest;
    "TestIamPermissions" => unary iam::test_permissions, iam_v1::TestIamPermissionsRequest;
};

const INSTANCE_ADMIN: &[Route] = service! { "google.bigtable.admin.v2.BigtableInstanceAdmin",
    "CreateInstance" => unary instances::create_instance, admin::CreateInstanceRequest;
    "GetInstance" => unary instances::get_instance, admin::GetInstanceRequest;
    "ListInstances" => unary instances::list_instances, admin::ListInstancesRequest;
    "UpdateInstance" => unary instances::update_instance, admin::Instance;
    "PartialUpdateInstance" => unary instances::partial_update_instance, admin::PartialUpdateInstanceRequest;
    "DeleteInstance" => unary instances::delete_instance, admin::DeleteInstanceRequest;
    "CreateCluster" => unary clusters::create_cluster, admin::CreateClusterRequest;
    "GetCluster" => unary clusters::get_cluster, admin::GetClusterRequest;
    "ListClusters" => unary clusters::list_clusters, admin::ListClustersRequest;
    "UpdateCluster" => unary clusters::update_cluster, admin::Cluster;
    "PartialUpdateCluster" => unary clusters::partial_update_cluster, admin::PartialUpdateClusterRequest;
    "DeleteCluster" => unary clusters::delete_cluster, admin::DeleteClusterRequest;
    "CreateAppProfile" => unary app_profiles::create_app_profile, admin::CreateAppProfileRequest;
    "GetAppProfile" => unary app_profiles::get_app_profile, admin::GetAppProfileRequest;
    "ListAppProfiles" => unary app_profiles::list_app_profiles, admin::ListAppProfilesRequest;
    "UpdateAppProfile" => unary app_profiles::update_app_profile, admin::UpdateAppProfileRequest;
    "DeleteAppProfile" => unary app_profiles::delete_app_profile, admin::DeleteAppProfileRequest;
    "GetIamPolicy" => unary iam::get_policy, iam_v1::GetIamPolicyRequest;
    "SetIamPolicy" => unary iam::set_policy, iam_v1::SetIamPolicyRequest;
    "TestIamPermissions" => unary iam::test_permissions, iam_v1::TestIamPermissionsRequest;
};

const OPERATIONS: &[Route] = service! { "google.longrunning.Operations",
    "GetOperation" => unary operations::get_operation, longrunning::GetOperationRequest;
    "ListOperations" => unary operations::list_operations, longrunning::ListOperationsRequest;
    "CancelOperation" => unary operations::cancel_operation, longrunning::CancelOperationRequest;
    "DeleteOperation" => unary operations::delete_operation, longrunning::DeleteOperationRequest;
    "WaitOperation" => unary operations::wait_operation, longrunning::WaitOperationRequest;
};

const LOCALITY_GROUPS: &[Route] = service! { "stele.admin.v1.LocalityGroups",
    "GetLocalityGroups" => unary groups::get_locality_groups, own::GetLocalityGroupsRequest;
    "ModifyLocalityGroups" => unary groups::modify_locality_groups, own::ModifyLocalityGroupsRequest;
};

const CLUSTER: &[Route] = service! { "stele.admin.v1.Cluster",
    "GetStatus" => unary cluster::get_status, own::GetClusterStatusRequest;
    "MoveTablet" => unary cluster::move_tablet, own::MoveTabletRequest;
    "DrainServer" => unary cluster::drain_server, own::DrainServerRequest;
    "SplitTablet" => unary tablets::split_tablet, own::SplitTabletRequest;
    "MergeTablets" => unary tablets::merge_tablets, own::MergeTabletsRequest;
    "GetSwitches" => unary tablets::get_switches, own::GetSwitchesRequest;
    "SetSwitches" => unary tablets::set_switches, own::SetSwitchesRequest;
};

const READS: &[Route] = service! { "stele.admin.v1.Reads",
    "ExplainRead" => unary explain::explain_read, own::ExplainReadRequest;
};

const SNAPSHOTS: &[Route] = service! { "stele.admin.v1.Snapshots",
    "CreateSnapshot" => unary snapshots::create_snapshot, own::CreateSnapshotRequest;
    "ListSnapshots" => unary snapshots::list_snapshots, own::ListSnapshotsRequest;
    "ListKeptTables" => unary snapshots::list_kept_tables, own::ListKeptTablesRequest;
    "RestoreSnapshot" => unary snapshots::restore_snapshot, own::RestoreSnapshotRequest;
    "DeleteSnapshot" => unary snapshots::delete_snapshot, own::DeleteSnapshotRequest;
};

const DESTINATIONS: &[Route] = service! { "stele.admin.v1.Backups",
    "BeginWork" => unary destinations::begin_work, own::BeginBackupWorkRequest;
    "GetWork" => unary destinations::get_work, own::GetBackupWorkRequest;
    "CancelWork" => unary destinations::cancel_work, own::CancelBackupWorkRequest;
    "ListBackups" => unary destinations::list_backups, own::ListDestinationRequest;
};

const ACCESS: &[Route] = service! { "stele.admin.v1.Access",
    "ListRules" => unary access_rules::list_rules, own::ListRulesRequest;
    "ModifyRules" => unary access_rules::modify_rules, own::ModifyRulesRequest;
};

const TABLE_SETTINGS: &[Route] = service! { "stele.admin.v1.TableSettings",
    "GetTableSettings" => unary settings::get_table_settings, own::GetTableSettingsRequest;
    "UpdateTableSettings" => unary settings::update_table_settings, own::UpdateTableSettingsRequest;
};
