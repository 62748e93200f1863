//! The rights that calls need.
//!
//! Most calls are made of calls of the service interface, which checks the rights of a known caller. This list says so of each
//! call, and has the right for the others. A call that is not in it is refused to known callers.

use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::services::Service;
use stele_access::Note;
use stele_types::{Resource, Rights};
use stele_wire::exception;

/// The right that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The service interface checks it: all that the call reads or changes is there.
    Checked,
    /// Any known caller may make it: it tells nothing about tables.
    Known,
    /// To administer the cluster. The audit log has the call with its outcome.
    Admin,
    /// To administer the cluster. The service interface makes the changes of the call, and writes them to the audit log.
    AdminChecked,
}

/// The calls of a service.
type Calls = &'static [(&'static str, Needs)];

const CLIENT: Calls = &[
    ("Get", Needs::Checked),
    ("Mutate", Needs::Checked),
    ("Multi", Needs::Checked),
    ("Scan", Needs::Checked),
    ("BulkLoadHFile", Needs::Checked),
    ("PrepareBulkLoad", Needs::Checked),
    ("CleanupBulkLoad", Needs::Known),
    ("ExecService", Needs::Checked),
    ("ExecRegionServerService", Needs::Known),
];

const REGISTRY: Calls = &[
    ("GetClusterId", Needs::Known),
    ("GetActiveMaster", Needs::Known),
    ("GetMasters", Needs::Known),
    ("GetMetaRegionLocations", Needs::Known),
    ("GetBootstrapNodes", Needs::Known),
];

const MASTER: Calls = &[
    ("IsMasterRunning", Needs::Known),
    ("getProcedureResult", Needs::Known),
    ("CreateTable", Needs::Checked),
    ("DeleteTable", Needs::Checked),
    ("EnableTable", Needs::Checked),
    ("DisableTable", Needs::Checked),
    ("truncateTable", Needs::Checked),
    ("FlushTable", Needs::Checked),
    ("TruncateRegion", Needs::Checked),
    ("ModifyTable", Needs::Checked),
    ("AddColumn", Needs::Checked),
    ("ModifyColumn", Needs::Checked),
    ("DeleteColumn", Needs::Checked),
    ("GetSchemaAlterStatus", Needs::Checked),
    ("GetTableNames", Needs::Checked),
    ("ListTableNamesByState", Needs::Checked),
    ("ListTableNamesByNamespace", Needs::Checked),
    ("GetTableState", Needs::Checked),
    ("GetTableDescriptors", Needs::Checked),
    ("ListTableDescriptorsByState", Needs::Checked),
    ("ListTableDescriptorsByNamespace", Needs::Checked),
    ("CreateNamespace", Needs::Checked),
    ("ModifyNamespace", Needs::Checked),
    ("DeleteNamespace", Needs::Checked),
    ("GetNamespaceDescriptor", Needs::Checked),
    ("ListNamespaces", Needs::Checked),
    ("ListNamespaceDescriptors", Needs::Checked),
    ("SplitRegion", Needs::Checked),
    ("MergeTableRegions", Needs::Checked),
    ("MoveRegion", Needs::AdminChecked),
    ("AssignRegion", Needs::Admin),
    ("UnassignRegion", Needs::Admin),
    ("getLastMajorCompactionTimestamp", Needs::Checked),
    ("getLastMajorCompactionTimestampForRegion", Needs::Checked),
    ("GetClusterStatus", Needs::Checked),
    ("IsMasterInMaintenanceMode", Needs::Known),
    ("AbortProcedure", Needs::Admin),
    ("getSecurityCapabilities", Needs::Known),
    ("Grant", Needs::Checked),
    ("Revoke", Needs::Checked),
    ("GetUserPermissions", Needs::Checked),
    ("HasUserPermissions", Needs::Checked),
    ("GetProcedures", Needs::Known),
    ("GetLocks", Needs::Known),
    ("ListDecommissionedRegionServers", Needs::Checked),
    ("DecommissionRegionServers", Needs::AdminChecked),
    ("RecommissionRegionServer", Needs::AdminChecked),
    ("ClearDeadServers", Needs::Admin),
    ("ListReplicationPeers", Needs::Known),
    ("GetReplicationPeerModificationProcedures", Needs::Known),
    ("GetSpaceQuotaRegionSizes", Needs::Known),
    ("GetQuotaStates", Needs::Known),
    ("GetLogEntries", Needs::Known),
    ("GetCompletedSnapshots", Needs::Checked),
    ("IsSnapshotDone", Needs::Checked),
    ("Snapshot", Needs::Checked),
    ("DeleteSnapshot", Needs::Checked),
    ("RestoreSnapshot", Needs::Checked),
    ("ExecProcedure", Needs::Checked),
    ("ExecProcedureWithRet", Needs::Checked),
    ("IsProcedureDone", Needs::Known),
    ("ExecMasterService", Needs::Known),
    ("SetBalancerRunning", Needs::AdminChecked),
    ("IsBalancerEnabled", Needs::Known),
    ("Balance", Needs::Admin),
    ("SetSplitOrMergeEnabled", Needs::AdminChecked),
    ("IsSplitOrMergeEnabled", Needs::Known),
    ("SetNormalizerRunning", Needs::Admin),
    ("IsNormalizerEnabled", Needs::Known),
    ("Normalize", Needs::Admin),
    ("EnableCatalogJanitor", Needs::Admin),
    ("IsCatalogJanitorEnabled", Needs::Known),
    ("RunCatalogScan", Needs::Admin),
    ("SetCleanerChoreRunning", Needs::Admin),
    ("IsCleanerChoreEnabled", Needs::Known),
    ("RunCleanerChore", Needs::Admin),
    ("SwitchSnapshotCleanup", Needs::AdminChecked),
    ("IsSnapshotCleanupEnabled", Needs::Known),
    ("IsRpcThrottleEnabled", Needs::Known),
];

const ADMIN: Calls = &[
    ("FlushRegion", Needs::Checked),
    ("CompactRegion", Needs::Checked),
    ("GetRegionInfo", Needs::Checked),
    ("GetRegionLoad", Needs::Checked),
    ("GetOnlineRegion", Needs::Checked),
    ("ReplicateWALEntry", Needs::Checked),
    ("GetServerInfo", Needs::Known),
    ("RollWALWriter", Needs::Admin),
    ("ClearRegionBlockCache", Needs::Admin),
    ("CompactionSwitch", Needs::Admin),
    ("UpdateConfiguration", Needs::Admin),
    ("ClearCompactionQueues", Needs::Admin),
    ("GetSlowLogResponses", Needs::Known),
    ("GetLargeLogResponses", Needs::Known),
    ("GetLogEntries", Needs::Known),
    ("GetSpaceQuotaSnapshots", Needs::Known),
    ("GetCachedFilesList", Needs::Known),
    ("ClearSlowLogsResponses", Needs::Admin),
];

/// A call as its list has it; `None` for one that is not served.
fn find(service: Service, method: &[u8]) -> Option<(&'static str, Needs)> {
    let mut calls = calls(service).iter();
    calls.find(|(name, _)| name.as_bytes() == method).copied()
}

fn calls(service: Service) -> Calls {
    match service {
        Service::Client => CLIENT,
        Service::Registry => REGISTRY,
        Service::Master => MASTER,
        Service::Admin => ADMIN,
    }
}

/// Checks the right of a known caller to make a call, as far as the service interface does not. The note is for the outcome of the
/// call, where that is not written to the audit log otherwise.
pub(crate) fn check<'s>(shared: &'s Shared, service: Service, method: &[u8]) -> Outcome<Option<Note<'s>>> {
    let Some(guard) = &shared.guard else {
        return Ok(None);
    };
    match find(service, method) {
        Some((_, Needs::Checked | Needs::Known)) => Ok(None),
        Some((name, Needs::Admin)) => Ok(Some(guard.begin_change(name, &Resource::Cluster)?)),
        Some((name, Needs::AdminChecked)) => {
            guard.check_cluster(name, Rights::ADMIN)?;
            Ok(None)
        }
        None => {
            let message = format!("{} is not supported by this server", method.escape_ascii());
            Err(Failure::new(exception::DO_NOT_RETRY, message))
        }
    }
}

#[cfg(test)]
mod tests;
