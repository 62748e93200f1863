//! Serves `MasterService`: calls about tables, namespaces and the cluster.
//!
//! A change is complete when its call returns, and an error ends the call that it belongs to. HBase reports some of
//! these errors later, with the result of the procedure; clients throw the same exception in both cases.

mod changes;
mod cluster;
mod decommissions;
mod groups;
mod listing;
mod modify;
mod moves;
mod namespaces;
mod patterns;
mod positions;
mod procedure_calls;
mod region_calls;
pub(crate) mod snapshots;
mod tables;

use crate::access_control;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::log_entries;
use std::sync::Arc;
use stele_wire::exception;
use stele_wire::messages::{
    Empty, GetProcedureResultRequest, IsMasterRunningResponse, OneBool, SecurityCapabilitiesResponse,
    SecurityCapability,
};

/// Serves a call.
pub(crate) async fn master(shared: &Arc<Shared>, call: &Call, method: &[u8]) -> Outcome<Reply> {
    match method {
        b"IsMasterRunning" => call.reply(&IsMasterRunningResponse {
            is_master_running: true,
        }),
        b"getProcedureResult" => {
            let request: GetProcedureResultRequest = call.message("GetProcedureResultRequest")?;
            call.reply(&shared.procedures.state(request.proc_id, shared.env.wall_micros()))
        }
        b"CreateTable" => tables::create(shared, call).await,
        b"DeleteTable" => tables::delete(shared, call).await,
        b"EnableTable" => tables::set_enabled(shared, call, true).await,
        b"DisableTable" => tables::set_enabled(shared, call, false).await,
        b"truncateTable" => tables::truncate(shared, call).await,
        b"FlushTable" => tables::flush(shared, call).await,
        b"ModifyTable" => modify::table(shared, call).await,
        b"AddColumn" => modify::add_family(shared, call).await,
        b"ModifyColumn" => modify::modify_family(shared, call).await,
        b"DeleteColumn" => modify::delete_family(shared, call).await,
        b"GetSchemaAlterStatus" => modify::alter_status(shared, call),
        b"GetTableNames" | b"ListTableNamesByState" | b"ListTableNamesByNamespace" | b"GetTableState" => {
            listing::names(shared, call, method).await
        }
        b"GetTableDescriptors" | b"ListTableDescriptorsByState" | b"ListTableDescriptorsByNamespace" => {
            listing::descriptors(shared, call, method).await
        }
        b"CreateNamespace" => namespaces::create(shared, call).await,
        b"ModifyNamespace" => namespaces::modify(shared, call).await,
        b"DeleteNamespace" => namespaces::delete(shared, call).await,
        b"GetNamespaceDescriptor" => namespaces::get(shared, call).await,
        b"ListNamespaces" => namespaces::list(shared, call).await,
        b"ListNamespaceDescriptors" => namespaces::list_descriptors(shared, call).await,
        b"SplitRegion" => region_calls::split(shared, call).await,
        b"MergeTableRegions" => region_calls::merge(shared, call).await,
        b"TruncateRegion" => region_calls::truncate(shared, call).await,
        b"MoveRegion" => moves::move_to(shared, call).await,
        b"AssignRegion" | b"UnassignRegion" => moves::assign(shared, call).await,
        b"getLastMajorCompactionTimestamp" | b"getLastMajorCompactionTimestampForRegion" => {
            region_calls::last_major_compaction(shared, call, method).await
        }
        _ => of_the_cluster(shared, call, method).await,
    }
}

/// Serves a call that is not about one table, namespace or region.
async fn of_the_cluster(shared: &Arc<Shared>, call: &Call, method: &[u8]) -> Outcome<Reply> {
    match method {
        b"GetClusterStatus" => cluster::status(shared, call).await,
        b"IsMasterInMaintenanceMode" | b"AbortProcedure" => call.reply(&OneBool { value: false }),
        b"getSecurityCapabilities" => call.reply(&SecurityCapabilitiesResponse {
            capabilities: capabilities(shared),
        }),
        b"Grant" | b"Revoke" | b"GetUserPermissions" | b"HasUserPermissions" => {
            access_control::of_master(shared, call, method).await
        }
        b"ListDecommissionedRegionServers" => decommissions::list(shared, call).await,
        b"DecommissionRegionServers" => decommissions::decommission(shared, call).await,
        b"RecommissionRegionServer" => decommissions::recommission(shared, call).await,
        // All of these are empty lists: no call leaves a procedure or a lock behind, and no server is listed as dead, copied
        // from, or limited by a quota.
        b"GetProcedures"
        | b"GetLocks"
        | b"ClearDeadServers"
        | b"ListReplicationPeers"
        | b"GetReplicationPeerModificationProcedures"
        | b"GetSpaceQuotaRegionSizes"
        | b"GetQuotaStates" => call.reply(&Empty {}),
        b"GetLogEntries" => log_entries::log_entries(call),
        b"GetCompletedSnapshots" | b"IsSnapshotDone" | b"Snapshot" | b"DeleteSnapshot" | b"RestoreSnapshot" => {
            snapshots::snapshots(shared, call, method).await
        }
        b"ExecProcedure" | b"ExecProcedureWithRet" => procedure_calls::execute(shared, call).await,
        b"IsProcedureDone" => procedure_calls::is_done(call),
        b"ExecMasterService" => {
            let message = "No registered Master Coprocessor Endpoint found";
            Err(Failure::new(exception::UNKNOWN_PROTOCOL, message))
        }
        _ => match positions::positions(shared, call, method).await {
            Some(reply) => reply,
            None => Err(Failure::not_served(format!("MasterService.{}", method.escape_ascii()))),
        },
    }
}

/// The parts of HBase's security that are there. The shell changes rights only where they count.
fn capabilities(shared: &Shared) -> Vec<i32> {
    let mut all = vec![SecurityCapability::SimpleAuthentication as i32];
    if shared.guard.is_some() {
        all.push(SecurityCapability::Authorization as i32);
    }
    all
}
