//! Servers and regions have figures of their own, or none.

use super::*;
use crate::front_end::HBaseFrontEnd;
use crate::test_service::{Client, Model, message};
use std::time::Duration;
use stele_client::{TabletFigures, TabletOperations, TabletStorage};
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_wire::messages::{
    ClusterOption, Empty, GetClusterStatusRequest, GetClusterStatusResponse, LiveServerInfo, MASTER_SERVICE,
};

/// The servers, by their hosts.
async fn live_servers(front_end: &HBaseFrontEnd) -> BTreeMap<String, LiveServerInfo> {
    let mut client = Client::of_service(front_end, MASTER_SERVICE).await;
    client.call("IsMasterRunning", &Empty {}).await;
    let request = GetClusterStatusRequest {
        options: vec![ClusterOption::LiveServers as i32],
    };
    let found: GetClusterStatusResponse = message(&client.call("GetClusterStatus", &request).await);
    let servers = found.cluster_status.live_servers.into_iter();
    servers.map(|live| (live.server.host_name.clone(), live)).collect()
}

#[tokio::test]
async fn another_server_has_none_of_the_figures_of_this_one() {
    let model = Model::new(&["", "m"]).with_another_server(1);
    let servers = live_servers(&model.front_end(&Pool::default())).await;
    let (this, other) = (&servers["localhost"].server_load, &servers["other"].server_load);
    assert!(this.total_number_of_requests.unwrap() >= 1);
    assert!(this.max_heap_mb.unwrap() > 0);
    let (requests, heap) = (other.number_of_requests, (other.used_heap_mb, other.max_heap_mb));
    assert_eq!(
        (requests, other.total_number_of_requests, heap),
        (None, None, (None, None))
    );
    assert_eq!(other.report_start_time, None);
    // With `hbase:meta`.
    assert_eq!((this.region_loads.len(), other.region_loads.len()), (2, 1));
    let region = RegionSpecifier::named(region::name(&regions::info(&model.schema.name, &model.places[1])));
    assert_eq!(other.region_loads[0].region_specifier, region);
}

#[tokio::test(start_paused = true)]
async fn requests_are_a_rate_and_a_total() {
    let front_end = Model::new(&[""]).front_end(&Pool::default());
    let mut client = Client::of_service(&front_end, MASTER_SERVICE).await;
    for _ in 0..1_000 {
        client.call("IsMasterRunning", &Empty {}).await;
    }
    let load = async || live_servers(&front_end).await.remove("localhost").unwrap().server_load;
    let busy = load().await;
    assert!(busy.total_number_of_requests >= Some(1_000));
    // Of the last seconds, of which nobody has asked for the first ones.
    TokioRuntime::current().sleep(Duration::from_secs(35)).await;
    let idle = load().await;
    assert!(idle.total_number_of_requests >= busy.total_number_of_requests);
    assert_eq!(idle.number_of_requests, Some(0));
}

/// The load of the region of another server.
async fn elsewhere(figures: Option<TabletFigures>) -> RegionLoad {
    let model = Model::new(&["", "m"]).with_another_server(1);
    *model.figures.lock() = figures;
    let mut servers = live_servers(&model.front_end(&Pool::default())).await;
    servers.remove("other").unwrap().server_load.region_loads.remove(0)
}

#[tokio::test]
async fn regions_have_the_figures_of_their_tablets() {
    let load = elsewhere(Some(TabletFigures {
        bytes: 5 << 20,
        storage: Some(TabletStorage {
            file_bytes: 3 << 20,
            files: 4,
            memtable_bytes: 2 << 20,
        }),
        operations: Some(TabletOperations { reads: 6, writes: 7 }),
    }))
    .await;
    assert_eq!((load.storefiles, load.storefile_size_mb), (Some(4), Some(3)));
    assert_eq!((load.mem_store_size_mb, load.region_size_mb), (Some(2), Some(5)));
    assert_eq!(
        (load.read_requests_count, load.write_requests_count),
        (Some(6), Some(7))
    );
}

#[tokio::test]
async fn figures_that_are_not_known_are_no_zeros() {
    // Of a server of an earlier version, and of none.
    for (figures, size) in [(Some(TabletFigures::of_bytes(1 << 20)), Some(1)), (None, None)] {
        let load = elsewhere(figures).await;
        assert_eq!(load.region_size_mb, size);
        let sizes = (load.storefiles, load.storefile_size_mb, load.mem_store_size_mb);
        assert_eq!(sizes, (None, None, None));
        assert_eq!((load.read_requests_count, load.write_requests_count), (None, None));
        assert_eq!(
            (load.store_uncompressed_size_mb, load.last_major_compaction_ts),
            (None, None)
        );
    }
}
