//! The measurements of large clusters, at the smallest size.

use std::time::Duration;
use stele_sim::fleet::scale::{self, ScalePlan};
use stele_sim::fleet::throughput::{self, Load, ThroughputPlan};

#[test]
fn tablets_of_a_dead_server_are_served_again_in_seconds() {
    let plan = ScalePlan {
        seed: 1,
        servers: 5,
        tables: 2,
        tablets: 40,
    };
    let scale = scale::run(plan).unwrap();
    assert!(scale.leader_change < Duration::from_secs(5), "{scale:?}");
    assert!(
        scale.tablets > 0 && scale.failover < Duration::from_secs(3),
        "{scale:?}"
    );
    assert_eq!(scale, scale::run(plan).unwrap(), "a seed gives one history");
}

/// Not how fast: that is the real time of a machine that may be busy.
#[test]
fn servers_with_processors_serve_their_callers() {
    for load in [Load::Reads, Load::Writes] {
        let plan = ThroughputPlan {
            seed: 1,
            servers: 2,
            callers: 32,
            load,
            time: Duration::from_millis(20),
        };
        let measured = throughput::run(plan).unwrap();
        assert_eq!(measured.tablets, (16, 16), "the tablets are balanced");
        let (least, most) = measured.occupied;
        assert!(
            measured.per_second > 0.0 && least > 0.0 && most >= least,
            "{measured:?}"
        );
    }
}
