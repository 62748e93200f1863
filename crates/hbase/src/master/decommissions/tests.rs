use crate::test_service::{Client, Model, failure, message};
use std::sync::Arc;
use stele_client::{ClusterCheck, ClusterStatus, ServerStatus};
use stele_memory::Pool;
use stele_types::ServerId;
use stele_wire::exception;
use stele_wire::messages::{
    DecommissionRegionServersRequest, Empty, MASTER_SERVICE, RecommissionRegionServerRequest, RegionSpecifier,
    ServerName, ServerNames,
};

fn server(number: u32, hbase: &str) -> ServerStatus {
    ServerStatus {
        server: ServerId(number),
        lives: true,
        sealed: false,
        drains: false,
        addresses: ["", "", hbase, ""].map(str::to_owned),
        version: String::new(),
        tablets: 0,
        memtable_bytes: 0,
        log_bytes: 0,
    }
}

/// The model's server, `other:2`, and one that serves no HBase clients and drains.
fn cluster() -> Arc<Model> {
    let model = Model::new(&["", "m"]).with_another_server(1);
    let mut hidden = server(3, "");
    hidden.drains = true;
    *model.cluster.lock() = Some(ClusterStatus {
        leader: ServerId(1),
        servers: vec![server(1, "localhost:1"), server(2, "other:2"), hidden],
        tablets: Vec::new(),
        check: ClusterCheck::default(),
    });
    model
}

fn name(host: &str, port: u32, start_code: u64) -> ServerName {
    ServerName {
        host_name: host.to_owned(),
        port: Some(port),
        start_code: Some(start_code),
    }
}

async fn client(model: &Arc<Model>) -> Client {
    Client::of_service(&model.front_end(&Pool::default()), MASTER_SERVICE).await
}

async fn listed(client: &mut Client) -> Vec<ServerName> {
    let found: ServerNames = message(&client.call("ListDecommissionedRegionServers", &Empty {}).await);
    found.server_name
}

fn decommission(server_name: Vec<ServerName>, offload: bool) -> DecommissionRegionServersRequest {
    DecommissionRegionServersRequest { server_name, offload }
}

#[tokio::test]
async fn servers_that_drain_are_decommissioned() {
    let model = cluster();
    let mut client = client(&model).await;
    assert_eq!(listed(&mut client).await, []);
    let (this, other) = (name("localhost", 1, 9), name("other", 2, 8));
    let request = decommission(vec![other.clone(), other.clone()], true);
    let _: Empty = message(&client.call("DecommissionRegionServers", &request).await);
    assert_eq!(listed(&mut client).await, std::slice::from_ref(&other));
    // Without `offload`, too.
    let _: Empty = message(
        &client
            .call("DecommissionRegionServers", &decommission(vec![this.clone()], false))
            .await,
    );
    assert_eq!(listed(&mut client).await, [this.clone(), other.clone()]);
    let request = RecommissionRegionServerRequest {
        server_name: this,
        region: Vec::new(),
    };
    let _: Empty = message(&client.call("RecommissionRegionServer", &request).await);
    assert_eq!(listed(&mut client).await, [other]);
    assert_eq!(*model.changes.lock(), ["drain 2 true", "drain 1 true", "drain 1 false"]);
}

#[tokio::test]
async fn regions_that_are_named_move_to_a_server_that_returns() {
    let model = cluster();
    let mut client = client(&model).await;
    let request = RecommissionRegionServerRequest {
        server_name: name("other", 2, 8),
        region: vec![model.region("a"), RegionSpecifier::named("gone,,1.x.".into())],
    };
    let _: Empty = message(&client.call("RecommissionRegionServer", &request).await);
    let moved = format!("move {} to 2", model.places[0].id);
    assert_eq!(*model.changes.lock(), ["drain 2 false".to_owned(), moved]);
}

#[tokio::test]
async fn no_server_drains_for_a_name_of_none() {
    let model = cluster();
    let mut client = client(&model).await;
    // The second one has restarted since.
    for unknown in [name("nowhere", 2, 8), name("other", 2, 7)] {
        let request = decommission(vec![name("localhost", 1, 9), unknown.clone()], true);
        let refused = client.call("DecommissionRegionServers", &request).await;
        assert_eq!(failure(&refused), exception::DO_NOT_RETRY);
        let request = RecommissionRegionServerRequest {
            server_name: unknown,
            region: Vec::new(),
        };
        let refused = client.call("RecommissionRegionServer", &request).await;
        assert_eq!(failure(&refused), exception::DO_NOT_RETRY);
    }
    assert!(model.changes.lock().is_empty());
}

#[tokio::test]
async fn a_single_server_is_not_decommissioned() {
    let model = Model::new(&[""]);
    let mut client = client(&model).await;
    assert_eq!(listed(&mut client).await, []);
    let request = decommission(vec![name("localhost", 1, 9)], true);
    let refused = client.call("DecommissionRegionServers", &request).await;
    let text = refused.header.exception.unwrap().stack_trace.unwrap();
    assert!(
        text.contains("MasterService.DecommissionRegionServers is not supported"),
        "{text}"
    );
    assert!(model.changes.lock().is_empty());
}
