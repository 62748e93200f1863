use super::*;
use crate::testing::World;
use std::sync::atomic::Ordering;
use stele_client::TabletControl;
use stele_types::{RowRange, TableId, TableName};

/// Nobody could open the tablet before the coordinator is back.
#[tokio::test(start_paused = true)]
async fn no_tablet_is_handed_over_while_the_coordinator_is_away() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let leader = world.elect(&local).await;
    let (tablet, owner) = (
        TabletId(7),
        Owner {
            server: ServerId(1),
            epoch: Epoch(1),
        },
    );
    let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let made = local
        .server
        .create_tablets(Arc::new(schema), vec![(tablet, RowRange::all())]);
    made.await.expect("made");
    let close = || async {
        let order = Order::Close { tablet, owner };
        leader.orders.begin(&leader, order, &View::default());
        while !leader.orders.running.lock().is_empty() {
            world.env.sleep(Duration::from_millis(10)).await;
        }
        local.server.served(tablet).is_ok()
    };
    world.reached.is_away.store(true, Ordering::Relaxed);
    assert!(close().await, "it is served on");
    world.reached.is_away.store(false, Ordering::Relaxed);
    assert!(!close().await, "it is handed over");
}
