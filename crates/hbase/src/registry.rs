//! Serves `ClientMetaService`: how a client that knows one server finds the others.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use stele_wire::messages::{
    GetActiveMasterResponse, GetBootstrapNodesResponse, GetClusterIdResponse, GetMastersResponse,
    GetMastersResponseEntry, GetMetaRegionLocationsResponse, RegionInfo, RegionLocation,
};
use stele_wire::region::{META_TABLE, table_name};

/// The response to a client that asks for the cluster id before it opens a connection for calls.
pub(crate) fn cluster_id(shared: &Shared) -> GetClusterIdResponse {
    GetClusterIdResponse {
        cluster_id: Some(shared.identity.cluster_id.clone()),
    }
}

/// Serves a call.
pub(crate) fn registry(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    let server = shared.server_name();
    match method {
        b"GetClusterId" => call.reply(&cluster_id(shared)),
        b"GetActiveMaster" => call.reply(&GetActiveMasterResponse {
            server_name: Some(server),
        }),
        b"GetMasters" => call.reply(&GetMastersResponse {
            master_servers: vec![GetMastersResponseEntry {
                server_name: server,
                is_active: true,
            }],
        }),
        b"GetMetaRegionLocations" => call.reply(&GetMetaRegionLocationsResponse {
            meta_locations: vec![RegionLocation {
                region_info: meta_region(),
                server_name: Some(server),
                seq_num: -1,
            }],
        }),
        b"GetBootstrapNodes" => call.reply(&GetBootstrapNodesResponse {
            server_name: vec![server],
        }),
        _ => Err(Failure::not_served(format!(
            "ClientMetaService.{}",
            method.escape_ascii()
        ))),
    }
}

/// The only region of `hbase:meta`.
pub(crate) fn meta_region() -> RegionInfo {
    RegionInfo {
        region_id: 1,
        table_name: table_name(&META_TABLE.into()),
        start_key: Some(bytes::Bytes::new()),
        end_key: Some(bytes::Bytes::new()),
        offline: Some(false),
        split: Some(false),
        replica_id: Some(0),
    }
}
