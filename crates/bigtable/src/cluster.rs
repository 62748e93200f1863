//! Handlers of `stele.admin.v1.Cluster`, a service that the Bigtable API does not have.

use crate::accounting::Call;
use crate::context::Context;
use crate::pb::own as pb;
use crate::status::status;
use stele_client::{ClusterCheck, ServerStatus, TabletStatus};
use stele_types::{ServerId, TabletId};
use tonic::Status;

/// Memory of a server or a tablet in a response.
const ENTRY_BYTES: usize = 512;

pub(crate) async fn get_status(
    context: &Context,
    call: &Call,
    request: pb::GetClusterStatusRequest,
) -> Result<pb::ClusterStatus, Status> {
    let found = context.admin.cluster_status().await.map_err(status)?;
    let unsettled = found
        .tablets
        .iter()
        .filter(|tablet| !tablet.waits_for.is_empty())
        .count();
    let tablets = if request.tablets { found.tablets } else { Vec::new() };
    let entries = found.servers.len() + tablets.len() + found.check.findings.len();
    call.charge(entries.saturating_mul(ENTRY_BYTES))?;
    Ok(pb::ClusterStatus {
        leader: found.leader.0,
        servers: found.servers.into_iter().map(server).collect(),
        tablets: tablets.into_iter().map(tablet).collect(),
        unsettled: unsettled as u64,
        check: Some(check(found.check)),
    })
}

fn check(check: ClusterCheck) -> pb::ClusterCheck {
    pb::ClusterCheck {
        began_millis_ago: check.began_millis_ago,
        tablets: check.tablets,
        files: check.files,
        bytes: check.bytes,
        unneeded: check.unneeded,
        findings: check.findings,
        more: check.more,
        waits_for: check.waits_for,
    }
}

fn server(server: ServerStatus) -> pb::Server {
    let [peer, bigtable, hbase, http] = server.addresses;
    pb::Server {
        server: server.server.0,
        lives: server.lives,
        sealed: server.sealed,
        drains: server.drains,
        peer,
        bigtable,
        hbase,
        http,
        version: server.version,
        tablets: server.tablets as u64,
        memtable_bytes: server.memtable_bytes,
        log_bytes: server.log_bytes,
    }
}

fn tablet(tablet: TabletStatus) -> pb::Tablet {
    pb::Tablet {
        table: tablet.table,
        tablet: tablet.tablet.0,
        start: tablet.start,
        owner: tablet.owner.map_or(0, |owner| owner.0),
        bytes: tablet.bytes,
        waits_for: tablet.waits_for,
        waited_millis: tablet.waited_millis,
    }
}

pub(crate) async fn move_tablet(context: &Context, _: &Call, request: pb::MoveTabletRequest) -> Result<(), Status> {
    let moved = context
        .admin
        .move_tablet(TabletId(request.tablet), ServerId(request.server));
    moved.await.map_err(status)
}

pub(crate) async fn drain_server(context: &Context, _: &Call, request: pb::DrainServerRequest) -> Result<(), Status> {
    let drained = context.admin.drain_server(ServerId(request.server), !request.undo);
    drained.await.map_err(status)
}
