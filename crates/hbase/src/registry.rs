//! Serves `ClientMetaService`: how a client that knows one server finds the others.

use crate::call::{Call, Reply};
use crate::context::name_of;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use stele_wire::messages::{
    GetActiveMasterResponse, GetBootstrapNodesResponse, GetClusterIdResponse, GetMastersResponse,
    GetMastersResponseEntry, GetMetaRegionLocationsResponse, RegionInfo, RegionLocation, ServerName,
};
use stele_wire::region::{META_TABLE, table_name};

/// Servers that a client is told at most, this one among them. Clients ask again every five minutes and after a failed
/// connection, so they need only as many as do not all end within that time.
const NODES_MAX: usize = 16;

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
            master_servers: masters(shared),
        }),
        b"GetMetaRegionLocations" => call.reply(&GetMetaRegionLocationsResponse {
            meta_locations: vec![RegionLocation {
                region_info: meta_region(),
                server_name: Some(server),
                seq_num: -1,
            }],
        }),
        b"GetBootstrapNodes" => call.reply(&GetBootstrapNodesResponse {
            server_name: nodes(shared),
        }),
        _ => Err(Failure::not_served(format!(
            "ClientMetaService.{}",
            method.escape_ascii()
        ))),
    }
}

/// This server, and others of its cluster.
///
/// A client replaces the servers that it was configured with by these. With this one alone it would depend on it, and
/// after the end of this server find no other.
fn nodes(shared: &Shared) -> Vec<ServerName> {
    let mut others = shared.service.other_servers();
    if others.len() >= NODES_MAX {
        // Clients of a large cluster spread over all servers.
        let first = shared.env.random_u64() % others.len() as u64;
        others.rotate_left(first as usize);
    }
    let others = others.iter().take(NODES_MAX - 1).map(|other| name_of(other));
    std::iter::once(shared.server_name()).chain(others).collect()
}

/// The same as masters. Clients take them for their registry, and call the only active one: any server will do.
fn masters(shared: &Shared) -> Vec<GetMastersResponseEntry> {
    let entry = |(at, server_name): (usize, ServerName)| GetMastersResponseEntry {
        server_name,
        is_active: at == 0,
    };
    nodes(shared).into_iter().enumerate().map(entry).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::{Client, Model, message};
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use stele_client::ServerPlace;
    use stele_memory::Pool;
    use stele_wire::messages::{CLIENT_META_SERVICE, ConnectionHeader, Empty};

    /// A client of a server that has this many others.
    async fn client(others: u16) -> Client {
        let model = Model::new(&[""]);
        let place = |port| {
            Arc::new(ServerPlace {
                host: "other".to_owned(),
                port,
                start_code: 1,
            })
        };
        *model.others.lock() = (1..=others).map(place).collect();
        let header = ConnectionHeader {
            service_name: Some(CLIENT_META_SERVICE.to_owned()),
            ..ConnectionHeader::default()
        };
        let (client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &header).await;
        client
    }

    /// The servers that a client is told.
    async fn told(client: &mut Client) -> Vec<ServerName> {
        let found: GetBootstrapNodesResponse = message(&client.call("GetBootstrapNodes", &Empty {}).await);
        found.server_name
    }

    #[tokio::test]
    async fn a_client_is_told_the_other_servers() {
        let mut client = client(2).await;
        let nodes = told(&mut client).await;
        let hosts: Vec<&str> = nodes.iter().map(|node| &*node.host_name).collect();
        assert_eq!(hosts, ["localhost", "other", "other"]);
        let found: GetMastersResponse = message(&client.call("GetMasters", &Empty {}).await);
        let (masters, active): (Vec<ServerName>, Vec<bool>) = found
            .master_servers
            .into_iter()
            .map(|master| (master.server_name, master.is_active))
            .unzip();
        assert_eq!((masters, active), (nodes, vec![true, false, false]));
    }

    #[tokio::test]
    async fn clients_of_a_large_cluster_are_told_different_servers() {
        let mut client = client(100).await;
        let mut all = BTreeSet::new();
        for _ in 0..100 {
            let nodes = told(&mut client).await;
            let ports: BTreeSet<Option<u32>> = nodes.iter().skip(1).map(|node| node.port).collect();
            assert_eq!((nodes.len(), ports.len()), (NODES_MAX, NODES_MAX - 1));
            assert_eq!(nodes[0].host_name, "localhost");
            all.extend(ports);
        }
        assert!(all.len() > 50, "{}", all.len());
    }

    #[tokio::test]
    async fn a_single_server_is_alone() {
        assert_eq!(told(&mut client(0).await).await.len(), 1);
    }
}
