use super::*;
use crate::node::ClusterNode;
use crate::records::{self, SERVERS};
use crate::testing::World;
use stele_coord::election::election_key;
use stele_coord::{Txn, Write};
use stele_types::ServerId;

const SECOND: Duration = Duration::from_secs(1);

async fn leading(world: &World) -> Option<ServerId> {
    election::current(&*world.coord).await
}

/// Waits until a server leads, or nobody; how long that took.
async fn time_until(world: &World, wanted: Option<ServerId>) -> Duration {
    let began = world.env.now();
    while leading(world).await != wanted {
        world.env.sleep(SECOND / 10).await;
        assert!(world.env.now() - began < 120 * SECOND, "not {wanted:?}");
    }
    world.env.now() - began
}

/// A server that leads, and two others whose processes are not there.
async fn alone() -> (World, ClusterNode) {
    let world = World::new().await;
    let node = world.join(1).await;
    time_until(&world, Some(node.number)).await;
    world.note_member(102).await;
    world.note_member(103).await;
    (world, node)
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_reaches_too_few_leaves_its_place_and_leads_again_if_nobody_else_does() {
    let (world, node) = alone().await;
    let reached = world.follow(102).await;
    world.serve(102, &reached);
    world.env.sleep(60 * SECOND).await;
    assert_eq!(leading(&world).await, Some(node.number), "it reaches one of two others");
    // The other does not reach the leader: calls of its clients do not arrive.
    reached.note_unreached(Some(node.number));
    let led = time_until(&world, None).await;
    assert!((14 * SECOND..20 * SECOND).contains(&led), "{led:?}");
    // It reaches half of the servers itself.
    let aside = time_until(&world, Some(node.number)).await;
    assert!((2 * SECOND..6 * SECOND).contains(&aside), "{aside:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_leader_leads_as_the_last_resort() {
    let (world, node) = alone().await;
    let led = time_until(&world, None).await;
    assert!((15 * SECOND..20 * SECOND).contains(&led), "{led:?}");
    let aside = time_until(&world, Some(node.number)).await;
    assert!((9 * SECOND..20 * SECOND).contains(&aside), "{aside:?}");
    // Another might be better by now.
    let led = time_until(&world, None).await;
    assert!((59 * SECOND..70 * SECOND).contains(&led), "{led:?}");
    time_until(&world, Some(node.number)).await;
    // The others are dead: their sessions end.
    let delete = |server| Write::Delete {
        key: records::key(SERVERS, ServerId(server)),
    };
    let ended = Txn {
        conditions: Vec::new(),
        writes: vec![delete(102), delete(103)],
    };
    let _ = world.coord.txn(ended).await.expect("deleted");
    world.env.sleep(120 * SECOND).await;
    assert_eq!(leading(&world).await, Some(node.number));
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_leader_stands_aside_for_another() {
    let (world, node) = alone().await;
    time_until(&world, None).await;
    let key = election_key(ELECTION);
    world.put(key.clone(), election::value(ServerId(102))).await;
    world.env.sleep(60 * SECOND).await;
    let delete = Txn {
        conditions: Vec::new(),
        writes: vec![Write::Delete { key }],
    };
    let _ = world.coord.txn(delete).await.expect("deleted");
    world.env.sleep(5 * SECOND).await;
    assert_eq!(leading(&world).await, None, "it does not wait for the place");
    // A server comes that it reaches.
    world.serve(102, &world.follow(102).await);
    time_until(&world, Some(node.number)).await;
    world.env.sleep(60 * SECOND).await;
    assert_eq!(leading(&world).await, Some(node.number));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_retires_leaves_its_place_at_once_and_is_not_elected_again() {
    let world = World::new().await;
    let first = world.join(1).await;
    time_until(&world, Some(first.number)).await;
    let second = world.join(2).await;
    world.env.sleep(20 * SECOND).await;
    assert_eq!(leading(&world).await, Some(first.number));
    first.admin.retire().await;
    let change = time_until(&world, Some(second.number)).await;
    assert!(change < SECOND, "{change:?}");
    second.admin.retire().await;
    world.env.sleep(60 * SECOND).await;
    assert_eq!(leading(&world).await, None);
    let third = world.join(3).await;
    time_until(&world, Some(third.number)).await;
}
