//! Calls of Stele's own services.
//!
//! Other servers of the Bigtable API do not have them.

use super::super::{MESSAGE_BYTES_MAX, Stub, describe};
use anyhow::anyhow;
use stele_adminapi::{
    BEGIN_BACKUP_WORK_PATH, BackupWork, BeginBackupWorkRequest, CANCEL_BACKUP_WORK_PATH, CREATE_SNAPSHOT_PATH,
    CancelBackupWorkRequest, ClusterStatus, CreateSnapshotRequest, DELETE_SNAPSHOT_PATH, DRAIN_SERVER_PATH,
    DeleteSnapshotRequest, DrainServerRequest, EXPLAIN_READ_PATH, ExplainReadRequest, ExplainReadResponse,
    GET_BACKUP_WORK_PATH, GET_CLUSTER_STATUS_PATH, GET_GROUPS_PATH, GET_SETTINGS_PATH, GET_SWITCHES_PATH,
    GetBackupWorkRequest, GetClusterStatusRequest, GetLocalityGroupsRequest, GetSwitchesRequest,
    GetTableSettingsRequest, LIST_BACKUPS_PATH, LIST_KEPT_TABLES_PATH, LIST_RULES_PATH, LIST_SNAPSHOTS_PATH,
    ListDestinationRequest, ListDestinationResponse, ListKeptTablesRequest, ListKeptTablesResponse, ListRulesRequest,
    ListRulesResponse, ListSnapshotsRequest, ListSnapshotsResponse, LocalityGroupsResponse, MERGE_TABLETS_PATH,
    MODIFY_GROUPS_PATH, MODIFY_RULES_PATH, MOVE_TABLET_PATH, MergeTabletsRequest, MergeTabletsResponse,
    ModifyLocalityGroupsRequest, ModifyRulesRequest, MoveTabletRequest, RESTORE_SNAPSHOT_PATH, ResourceRules,
    RestoreSnapshotRequest, SET_SWITCHES_PATH, SPLIT_TABLET_PATH, SetSwitchesRequest, Settings, Snapshot,
    SplitTabletRequest, SplitTabletResponse, Switches, UPDATE_SETTINGS_PATH, UpdateTableSettingsRequest,
};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// Their stub.
#[derive(Clone)]
pub struct OwnClient(Stub);

type Answer<A> = Result<Response<A>, Status>;

impl OwnClient {
    pub(in crate::client) fn new(stub: Stub) -> Self {
        OwnClient(stub)
    }

    pub(super) async fn get_groups(
        &mut self,
        request: Request<GetLocalityGroupsRequest>,
    ) -> Answer<LocalityGroupsResponse> {
        self.unary(GET_GROUPS_PATH, request).await
    }

    pub(super) async fn modify_groups(
        &mut self,
        request: Request<ModifyLocalityGroupsRequest>,
    ) -> Answer<LocalityGroupsResponse> {
        self.unary(MODIFY_GROUPS_PATH, request).await
    }

    pub(super) async fn get_settings(&mut self, request: Request<GetTableSettingsRequest>) -> Answer<Settings> {
        self.unary(GET_SETTINGS_PATH, request).await
    }

    pub(super) async fn update_settings(&mut self, request: Request<UpdateTableSettingsRequest>) -> Answer<Settings> {
        self.unary(UPDATE_SETTINGS_PATH, request).await
    }

    pub(super) async fn create_snapshot(&mut self, request: Request<CreateSnapshotRequest>) -> Answer<Snapshot> {
        self.unary(CREATE_SNAPSHOT_PATH, request).await
    }

    pub(super) async fn list_snapshots(
        &mut self,
        request: Request<ListSnapshotsRequest>,
    ) -> Answer<ListSnapshotsResponse> {
        self.unary(LIST_SNAPSHOTS_PATH, request).await
    }

    pub(super) async fn list_kept_tables(
        &mut self,
        request: Request<ListKeptTablesRequest>,
    ) -> Answer<ListKeptTablesResponse> {
        self.unary(LIST_KEPT_TABLES_PATH, request).await
    }

    pub(super) async fn restore_snapshot(&mut self, request: Request<RestoreSnapshotRequest>) -> Answer<()> {
        self.unary(RESTORE_SNAPSHOT_PATH, request).await
    }

    pub(super) async fn delete_snapshot(&mut self, request: Request<DeleteSnapshotRequest>) -> Answer<()> {
        self.unary(DELETE_SNAPSHOT_PATH, request).await
    }

    pub(super) async fn begin_backup_work(&mut self, request: Request<BeginBackupWorkRequest>) -> Answer<BackupWork> {
        self.unary(BEGIN_BACKUP_WORK_PATH, request).await
    }

    pub(super) async fn backup_work(&mut self, request: Request<GetBackupWorkRequest>) -> Answer<BackupWork> {
        self.unary(GET_BACKUP_WORK_PATH, request).await
    }

    pub(super) async fn cancel_backup_work(&mut self, request: Request<CancelBackupWorkRequest>) -> Answer<()> {
        self.unary(CANCEL_BACKUP_WORK_PATH, request).await
    }

    pub(super) async fn list_destination(
        &mut self,
        request: Request<ListDestinationRequest>,
    ) -> Answer<ListDestinationResponse> {
        self.unary(LIST_BACKUPS_PATH, request).await
    }

    pub(super) async fn list_rules(&mut self, request: Request<ListRulesRequest>) -> Answer<ListRulesResponse> {
        self.unary(LIST_RULES_PATH, request).await
    }

    pub(super) async fn modify_rules(&mut self, request: Request<ModifyRulesRequest>) -> Answer<ResourceRules> {
        self.unary(MODIFY_RULES_PATH, request).await
    }

    pub(super) async fn cluster_status(&mut self, request: Request<GetClusterStatusRequest>) -> Answer<ClusterStatus> {
        self.unary(GET_CLUSTER_STATUS_PATH, request).await
    }

    pub(super) async fn move_tablet(&mut self, request: Request<MoveTabletRequest>) -> Answer<()> {
        self.unary(MOVE_TABLET_PATH, request).await
    }

    pub(super) async fn drain_server(&mut self, request: Request<DrainServerRequest>) -> Answer<()> {
        self.unary(DRAIN_SERVER_PATH, request).await
    }

    pub(super) async fn split_tablet(&mut self, request: Request<SplitTabletRequest>) -> Answer<SplitTabletResponse> {
        self.unary(SPLIT_TABLET_PATH, request).await
    }

    pub(super) async fn merge_tablets(
        &mut self,
        request: Request<MergeTabletsRequest>,
    ) -> Answer<MergeTabletsResponse> {
        self.unary(MERGE_TABLETS_PATH, request).await
    }

    pub(super) async fn switches(&mut self, request: Request<GetSwitchesRequest>) -> Answer<Switches> {
        self.unary(GET_SWITCHES_PATH, request).await
    }

    pub(super) async fn set_switches(&mut self, request: Request<SetSwitchesRequest>) -> Answer<Switches> {
        self.unary(SET_SWITCHES_PATH, request).await
    }

    pub(super) async fn explain_read(&mut self, request: Request<ExplainReadRequest>) -> Answer<ExplainReadResponse> {
        self.unary(EXPLAIN_READ_PATH, request).await
    }

    async fn unary<Q, A>(&mut self, path: &'static str, request: Request<Q>) -> Answer<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let calls = tonic::client::Grpc::new(self.0.clone());
        let mut calls = calls.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let ready = calls.ready().await;
        ready.map_err(|error| Status::unavailable(format!("the connection is lost: {error}")))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        calls.unary(request, PathAndQuery::from_static(path), codec).await
    }
}

/// The error of a call that was refused, for the user.
pub(super) fn refusal(what: &str, status: &Status) -> anyhow::Error {
    match status.code() {
        Code::Unimplemented => anyhow!("this server has no {what}: it is not Stele, or an older one"),
        _ => describe(status),
    }
}

/// The error of a change that failed, for the user.
pub(super) fn not_made(what: &str, status: &Status, change: &str, look: &str) -> anyhow::Error {
    super::not_made(refusal(what, status), status, change, look)
}
