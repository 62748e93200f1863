use super::*;
use stele_client::TabletStatus;
use stele_types::{Epoch, TabletId};

fn server(number: u32, tablets: usize) -> ServerStatus {
    ServerStatus {
        server: ServerId(number),
        lives: true,
        sealed: false,
        drains: false,
        addresses: ["p", "b", "h:1", "w"].map(str::to_owned),
        version: String::new(),
        tablets,
        memtable_bytes: 0,
        log_bytes: 0,
    }
}

fn status(servers: Vec<ServerStatus>) -> ClusterStatus {
    let region = crate::meta_table::region();
    let tablet = TabletStatus {
        table: String::new(),
        tablet: region.tablet,
        start: Vec::new(),
        owner: Some(ServerId(1)),
        epoch: Epoch(1),
        moving_to: None,
        serves: true,
        logs: Vec::new(),
        bytes: 0,
        waits_for: String::new(),
        waited_millis: 0,
    };
    ClusterStatus {
        leader: ServerId(1),
        servers,
        tablets: vec![tablet],
        check: stele_client::ClusterCheck::default(),
    }
}

#[test]
fn without_a_destination_the_other_server_with_the_fewest_tablets_is_chosen() {
    let region = crate::meta_table::region();
    let chosen = |servers: Vec<ServerStatus>| other_server(&status(servers), &region).map(|server| server.0);
    assert_eq!(chosen(vec![server(1, 0), server(2, 9), server(3, 4)]), Some(3));
    assert_eq!(chosen(vec![server(1, 0)]), None);
    let (mut dead, mut sealed, mut drained, mut silent) = (server(2, 0), server(3, 0), server(4, 0), server(5, 0));
    (dead.lives, sealed.sealed, drained.drains) = (false, true, true);
    silent.addresses[2].clear();
    let others = vec![server(1, 0), dead, sealed, drained, silent];
    assert_eq!(chosen(others.clone()), None);
    assert_eq!(chosen([others, vec![server(6, 99)]].concat()), Some(6));
    let mut homeless = status(vec![server(1, 3), server(2, 4)]);
    homeless.tablets.clear();
    let other = Region {
        tablet: TabletId(99),
        ..region
    };
    assert_eq!(other_server(&homeless, &other), Some(ServerId(1)));
}
