//! The routing table: the path of every call that is served, and its handler.
//!
//! A handler gets the bytes of a request whose decoded form has been charged to the call. ReadRows, MutateRow and
//! MutateRows are nearly all of the load and read those bytes themselves ([`crate::data_plane`]). All others are decoded
//! by prost here. Their futures are boxed, so that their size does not add to that of the three.

use crate::accounting::Call;
use crate::context::Context;
use crate::data_plane::{conditional, mutate_rows, read_rows, samples};
use crate::features::Client;
use crate::messages::decode;
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
use std::time::Duration;
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
    kind: Kind,
    /// Memory of a decoded request.
    decoded_bytes: fn(&[u8]) -> Result<usize, Status>,
    handle: Handle,
}

/// The effect of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It changes nothing.
    Read,
    /// It changes rows.
    Write,
    /// It changes something else.
    Change,
}

type Handle = for<'c> fn(&'c Arc<Context>, &'c Call, Bytes) -> BoxFuture<'c, Result<Response, Status>>;

impl Handler {
    /// Whether its calls change rows.
    pub fn is_write(self) -> bool {
        match self {
            Handler::ReadRows => false,
            Handler::MutateRow | Handler::MutateRows => true,
            Handler::Decoded(handler) => handler.kind == Kind::Write,
        }
    }

    /// Whether its calls change nothing.
    pub fn is_read(self) -> bool {
        match self {
            Handler::ReadRows => true,
            Handler::MutateRow | Handler::MutateRows => false,
            Handler::Decoded(handler) => handler.kind == Kind::Read,
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

    /// Handles a request. A response that is read while it is sent ends at the deadline.
    pub async fn handle(
        self,
        context: &Arc<Context>,
        call: &Call,
        (headers, bytes): (&http::HeaderMap, Bytes),
        deadline: Option<Duration>,
    ) -> Result<Response, Status> {
        match self {
            Handler::ReadRows => read_rows::read_rows(context, call, bytes, Client::of(headers), deadline).await,
            Handler::MutateRow => mutate_rows::mutate_row(context, call, bytes).await,
            Handler::MutateRows => mutate_rows::mutate_rows(context, call, bytes).await,
            Handler::Decoded(handler) => (handler.handle)(context, call, bytes).await,
        }
    }
}

/// A handler that takes a decoded request. `read`, `write` and `change` ones return one message, and say which effect the call has.
/// `stream` ones read, and return a response.
macro_rules! decoded {
    (read $handler:path, $request:ty) => {
        decoded!(Kind::Read, $request, |context, call, bytes| Box::pin(async move {
            Response::unary(&$handler(context, call, decode::<$request>(bytes)?).await?)
        }))
    };
    (write $handler:path, $request:ty) => {
        decoded!(Kind::Write, $request, |context, call, bytes| Box::pin(async move {
            Response::unary(&$handler(context, call, decode::<$request>(bytes)?).await?)
        }))
    };
    (change $handler:path, $request:ty) => {
        decoded!(Kind::Change, $request, |context, call, bytes| Box::pin(async move {
            Response::unary(&$handler(context, call, decode::<$request>(bytes)?).await?)
        }))
    };
    (stream $handler:path, $request:ty) => {
        decoded!(Kind::Read, $request, |context, call, bytes| Box::pin(async move {
            $handler(context, call, decode::<$request>(bytes)?).await
        }))
    };
    ($kind:expr, $request:ty, $handle:expr) => {
        Handler::Decoded(DecodedHandler {
            kind: $kind,
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
    "PingAndWarm" => read samples::ping_and_warm, v2::PingAndWarmRequest;
};

const TABLE_ADMIN: &[Route] = service! { "google.bigtable.admin.v2.BigtableTableAdmin",
    "CreateTable" => change tables::create_table, admin::CreateTableRequest;
    "ListTables" => read tables::list_tables, admin::ListTablesRequest;
    "GetTable" => read tables::get_table, admin::GetTableRequest;
    "UpdateTable" => change tables::update_table, admin::UpdateTableRequest;
    "DeleteTable" => change tables::delete_table, admin::DeleteTableRequest;
    "ModifyColumnFamilies" => change tables::modify_column_families, admin::ModifyColumnFamiliesRequest;
    "UndeleteTable" => change tables::undelete_table, admin::UndeleteTableRequest;
    "DropRowRange" => change tables::drop_row_range, admin::DropRowRangeRequest;
    "GenerateConsistencyToken" => read tables::generate_consistency_token, admin::GenerateConsistencyTokenRequest;
    "CheckConsistency" => read tables::check_consistency, admin::CheckConsistencyRequest;
    "CreateBackup" => change backups::create_backup, admin::CreateBackupRequest;
    "GetBackup" => read backups::get_backup, admin::GetBackupRequest;
    "UpdateBackup" => change backups::update_backup, admin::UpdateBackupRequest;
    "DeleteBackup" => change backups::delete_backup, admin::DeleteBackupRequest;
    "ListBackups" => read backups::list_backups, admin::ListBackupsRequest;
    "CopyBackup" => change backups::copy_backup, admin::CopyBackupRequest;
    "RestoreTable" => change backups::restore_table, admin::RestoreTableRequest;
    "CreateAuthorizedView" => change views::create_view, admin::CreateAuthorizedViewRequest;
    "ListAuthorizedViews" => read views::list_views, admin::ListAuthorizedViewsRequest;
    "GetAuthorizedView" => read views::get_view, admin::GetAuthorizedViewRequest;
    "UpdateAuthorizedView" => change views::update_view, admin::UpdateAuthorizedViewRequest;
    "DeleteAuthorizedView" => change views::delete_view, admin::DeleteAuthorizedViewRequest;
    "GetIamPolicy" => read iam::get_policy, iam_v1::GetIamPolicyRequest;
    "SetIamPolicy" => change iam::set_policy, iam_v1::SetIamPolicyRequest;
    "TestIamPermissions" => read iam::test_permissions, iam_v1::TestIamPermissionsRequest;
};

const INSTANCE_ADMIN: &[Route] = service! { "google.bigtable.admin.v2.BigtableInstanceAdmin",
    "CreateInstance" => change instances::create_instance, admin::CreateInstanceRequest;
    "GetInstance" => read instances::get_instance, admin::GetInstanceRequest;
    "ListInstances" => read instances::list_instances, admin::ListInstancesRequest;
    "UpdateInstance" => change instances::update_instance, admin::Instance;
    "PartialUpdateInstance" => change instances::partial_update_instance, admin::PartialUpdateInstanceRequest;
    "DeleteInstance" => change instances::delete_instance, admin::DeleteInstanceRequest;
    "CreateCluster" => change clusters::create_cluster, admin::CreateClusterRequest;
    "GetCluster" => read clusters::get_cluster, admin::GetClusterRequest;
    "ListClusters" => read clusters::list_clusters, admin::ListClustersRequest;
    "UpdateCluster" => change clusters::update_cluster, admin::Cluster;
    "PartialUpdateCluster" => change clusters::partial_update_cluster, admin::PartialUpdateClusterRequest;
    "DeleteCluster" => change clusters::delete_cluster, admin::DeleteClusterRequest;
    "CreateAppProfile" => change app_profiles::create_app_profile, admin::CreateAppProfileRequest;
    "GetAppProfile" => read app_profiles::get_app_profile, admin::GetAppProfileRequest;
    "ListAppProfiles" => read app_profiles::list_app_profiles, admin::ListAppProfilesRequest;
    "UpdateAppProfile" => change app_profiles::update_app_profile, admin::UpdateAppProfileRequest;
    "DeleteAppProfile" => change app_profiles::delete_app_profile, admin::DeleteAppProfileRequest;
    "GetIamPolicy" => read iam::get_policy, iam_v1::GetIamPolicyRequest;
    "SetIamPolicy" => change iam::set_policy, iam_v1::SetIamPolicyRequest;
    "TestIamPermissions" => read iam::test_permissions, iam_v1::TestIamPermissionsRequest;
};

const OPERATIONS: &[Route] = service! { "google.longrunning.Operations",
    "GetOperation" => read operations::get_operation, longrunning::GetOperationRequest;
    "ListOperations" => read operations::list_operations, longrunning::ListOperationsRequest;
    "CancelOperation" => change operations::cancel_operation, longrunning::CancelOperationRequest;
    "DeleteOperation" => change operations::delete_operation, longrunning::DeleteOperationRequest;
    "WaitOperation" => read operations::wait_operation, longrunning::WaitOperationRequest;
};

const LOCALITY_GROUPS: &[Route] = service! { "stele.admin.v1.LocalityGroups",
    "GetLocalityGroups" => read groups::get_locality_groups, own::GetLocalityGroupsRequest;
    "ModifyLocalityGroups" => change groups::modify_locality_groups, own::ModifyLocalityGroupsRequest;
};

const CLUSTER: &[Route] = service! { "stele.admin.v1.Cluster",
    "GetStatus" => read cluster::get_status, own::GetClusterStatusRequest;
    "MoveTablet" => change cluster::move_tablet, own::MoveTabletRequest;
    "DrainServer" => change cluster::drain_server, own::DrainServerRequest;
    "SplitTablet" => change tablets::split_tablet, own::SplitTabletRequest;
    "MergeTablets" => change tablets::merge_tablets, own::MergeTabletsRequest;
    "GetSwitches" => read tablets::get_switches, own::GetSwitchesRequest;
    "SetSwitches" => change tablets::set_switches, own::SetSwitchesRequest;
};

const READS: &[Route] = service! { "stele.admin.v1.Reads",
    "ExplainRead" => read explain::explain_read, own::ExplainReadRequest;
};

const SNAPSHOTS: &[Route] = service! { "stele.admin.v1.Snapshots",
    "CreateSnapshot" => change snapshots::create_snapshot, own::CreateSnapshotRequest;
    "ListSnapshots" => read snapshots::list_snapshots, own::ListSnapshotsRequest;
    "ListKeptTables" => read snapshots::list_kept_tables, own::ListKeptTablesRequest;
    "RestoreSnapshot" => change snapshots::restore_snapshot, own::RestoreSnapshotRequest;
    "DeleteSnapshot" => change snapshots::delete_snapshot, own::DeleteSnapshotRequest;
};

const DESTINATIONS: &[Route] = service! { "stele.admin.v1.Backups",
    "BeginWork" => change destinations::begin_work, own::BeginBackupWorkRequest;
    "GetWork" => read destinations::get_work, own::GetBackupWorkRequest;
    "CancelWork" => change destinations::cancel_work, own::CancelBackupWorkRequest;
    "ListBackups" => read destinations::list_backups, own::ListDestinationRequest;
};

const ACCESS: &[Route] = service! { "stele.admin.v1.Access",
    "ListRules" => read access_rules::list_rules, own::ListRulesRequest;
    "ModifyRules" => change access_rules::modify_rules, own::ModifyRulesRequest;
};

const TABLE_SETTINGS: &[Route] = service! { "stele.admin.v1.TableSettings",
    "GetTableSettings" => read settings::get_table_settings, own::GetTableSettingsRequest;
    "UpdateTableSettings" => change settings::update_table_settings, own::UpdateTableSettingsRequest;
};
