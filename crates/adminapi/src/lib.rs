//! Messages of administration that the Bigtable API lacks.
//!
//! They are about locality groups, settings of tables, snapshots, backups, access rules, clusters, and the work behind reads.
//!
//! They belong to gRPC services on the same port as Google's. The messages are defined here for both sides. Most modules
//! name the document that describes them for clients in other languages; those of access rules and clusters are described only
//! here. Numbers are never reused.
#![forbid(unsafe_code)]

mod access;
mod backups;
mod cluster;
mod explain;
mod groups;
mod settings;
mod snapshots;

pub use access::{
    AccessRule, LIST_RULES_PATH, ListRulesRequest, ListRulesResponse, MODIFY_RULES_PATH, ModifyRulesRequest,
    ResourceRules,
};
pub use backups::{
    BEGIN_BACKUP_WORK_PATH, BackupDestination, BackupWork, BeginBackupWorkRequest, CANCEL_BACKUP_WORK_PATH,
    CancelBackupWorkRequest, DestinationBackup, DestinationOption, GET_BACKUP_WORK_PATH, GetBackupWorkRequest,
    LIST_BACKUPS_PATH, ListDestinationRequest, ListDestinationResponse, RestorableTime,
};
pub use cluster::{
    ClusterCheck, ClusterStatus, DRAIN_SERVER_PATH, DrainServerRequest, GET_CLUSTER_STATUS_PATH, GET_SWITCHES_PATH,
    GetClusterStatusRequest, GetSwitchesRequest, MERGE_TABLETS_PATH, MOVE_TABLET_PATH, MergeTabletsRequest,
    MergeTabletsResponse, MoveTabletRequest, SET_SWITCHES_PATH, SPLIT_TABLET_PATH, Server, SetSwitchesRequest,
    SplitTabletRequest, SplitTabletResponse, Switches, Tablet,
};
pub use explain::{EXPLAIN_READ_PATH, ExplainReadRequest, ExplainReadResponse, TabletWork};
pub use groups::{
    Change, GET_GROUPS_PATH, GetLocalityGroupsRequest, LocalityGroup, LocalityGroupsResponse, MODIFY_GROUPS_PATH,
    Modification, ModifyLocalityGroupsRequest, Options,
};
pub use settings::{
    GET_SETTINGS_PATH, GetTableSettingsRequest, Settings, UPDATE_SETTINGS_PATH, UpdateTableSettingsRequest,
};
pub use snapshots::{
    CREATE_SNAPSHOT_PATH, CreateSnapshotRequest, DELETE_SNAPSHOT_PATH, DeleteSnapshotRequest, KeptTable,
    LIST_KEPT_TABLES_PATH, LIST_SNAPSHOTS_PATH, ListKeptTablesRequest, ListKeptTablesResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, RESTORE_SNAPSHOT_PATH, RestoreSnapshotRequest, Snapshot,
};
