use super::*;
use crate::records::{ARCHIVED_CHAIN, LIVES, LifeRecord};
use crate::roots::LogRoots;
use crate::testing::World;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use stele_catalog::Homes;
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

/// The archive of the tables names the end of the server, so its life has no record any more.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_deleted_already_does_not_end_the_archive() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let leader = world.elect(&local).await;
    let ended = ServerId(5);
    let sealed = LogRecord {
        sealed: true,
        given_up: true,
        ..LogRecord::default()
    };
    let life = LifeRecord {
        ended_micros: 7,
        ..LifeRecord::default()
    };
    world.put(records::key(LOGS, ended), records::encode(&sealed)).await;
    world.put(records::key(LIVES, ended), records::encode(&life)).await;
    let chain = ARCHIVED_CHAIN.to_owned();
    world.put(chain.clone(), Bytes::from_static(&[7; 16])).await;
    // By records that are followed with a delay, the leader has it deleted again and again.
    for round in 0..3 {
        leader.orders.begin(&leader, Order::DeleteLog(ended), &View::default());
        while !leader.orders.running.lock().is_empty() {
            world.env.sleep(Duration::from_millis(10)).await;
        }
        let has = async |key: &str| world.coord.get(key).await.expect("read").is_some();
        assert!(!has(&records::key(LOGS, ended)).await);
        assert!(has(&chain).await, "round {round}");
        assert_eq!(world.roots.forget(ended), round == 0, "it is claimed once");
        let key = records::key(LIVES, ended);
        let delete = Txn {
            conditions: Vec::new(),
            writes: vec![Write::Delete { key }],
        };
        let _ = world.coord.txn(delete).await.expect("deleted");
    }
    leader.seal(ended, Death::Session).await.expect_err("it has no log");
    assert!(
        world
            .coord
            .get(&records::key(LOGS, ended))
            .await
            .expect("read")
            .is_none()
    );
    assert!(!world.roots.forget(ended));
    // The log had its record shortly before.
    let log = world.roots.take_over(ended).await.expect("opened");
    let refused = leader.rests.end(ended, &*log, 0).await;
    assert_eq!(refused.expect_err("it has no log").kind, ErrorKind::Unavailable);
    assert!(world.coord.get(&chain).await.expect("read").is_some());
}

/// A tablet whose owner has an epoch.
fn owned(epoch: u32) -> Assignment {
    Assignment {
        owner: Some(Owner {
            server: ServerId(2),
            epoch: Epoch(epoch),
        }),
        ..Assignment::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_was_drawn_ahead_is_given_out_once_and_only_to_tablets_of_older_ones() {
    let world = World::new().await;
    let leader = world.elect(&world.follow(1).await).await;
    let drawn = async || {
        leader.draw_ahead().await;
        (*leader.drawn.lock()).expect("it is drawn")
    };
    let first = drawn().await;
    assert_eq!(drawn().await, first, "one is enough");
    let older = owned(first.0 - 1);
    assert_eq!(leader.take_drawn([&older, &older].into_iter()), Some(first));
    assert_eq!(leader.take_drawn([&older].into_iter()), None, "it is given out");
    let later = drawn().await;
    assert!(later > first);
    // It got another owner meanwhile, or has none.
    for other in [owned(later.0), owned(later.0 + 1), Assignment::default()] {
        let drawn = drawn().await;
        assert_eq!(leader.take_drawn([&older, &other].into_iter()), None);
        assert_eq!(
            leader.take_drawn([&older].into_iter()),
            None,
            "{drawn} is not given out later"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_epoch_is_drawn_while_a_log_is_sealed() {
    let world = World::new().await;
    let leader = world.elect(&world.follow(1).await).await;
    world
        .put(records::key(LOGS, ServerId(2)), records::encode(&LogRecord::default()))
        .await;
    world.note_member(2).await;
    world.env.sleep(Duration::from_secs(1)).await;
    leader.seal(ServerId(2), Death::Evidence).await.expect("sealed");
    assert!(leader.drawn.lock().is_some());
}

/// Tablets by the servers that have made them.
struct Makers;

impl Homes for Makers {
    fn home_of(&self, tablet: TabletId) -> Option<Owner> {
        let maker = u32::try_from(tablet.0).unwrap_or_default() / 10;
        Some(Owner {
            server: ServerId(maker),
            epoch: Epoch(maker),
        })
    }
}

/// The number of the server is above the epoch, and so is the epoch of the tablets that it makes.
#[tokio::test(start_paused = true)]
async fn a_server_that_joins_after_an_epoch_was_drawn_ahead_gets_tablets_and_gives_them_away() {
    let (older, newer) = (TabletId(10), TabletId(30));
    for moved in [older, newer] {
        let world = World::new().await;
        let first = world.follow(1).await;
        let leader = world.elect(&first).await;
        assert_eq!(leader.draw_epoch().await.expect("drawn"), Epoch(1), "the first server");
        leader.draw_ahead().await;
        let drawn = (*leader.drawn.lock()).expect("it is drawn");
        assert_eq!((drawn, leader.draw_epoch().await.expect("drawn")), (Epoch(2), Epoch(3)));
        let third = world.follow(3).await;
        world.serve(3, &third);
        world.note_member(3).await;
        let middle = Bytes::from_static(b"m");
        let (mut below, mut above) = (RowRange::all(), RowRange::all());
        (below.end, above.start) = (Some(middle.clone()), middle);
        let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
        for (maker, made) in [(&first, (older, below.clone())), (&third, (newer, above.clone()))] {
            let made = maker.server.create_tablets(Arc::new(schema.clone()), vec![made]);
            made.await.expect("made");
        }
        let tables = first.catalog.lead(leader.fence.clone(), Arc::new(Makers)).await;
        let tables = tables.expect("it leads");
        let created = tables.create_table(schema, vec![(older, below), (newer, above)]);
        created.await.expect("created");
        world.env.sleep(Duration::from_secs(1)).await;
        let (from, to, target) = match moved == older {
            true => (&first, &third, ServerId(3)),
            false => (&third, &first, ServerId(1)),
        };
        let owner = first.catalog.owner_of(moved).expect("it has one");
        from.close(moved, owner.epoch, Closing::HandOver).await.expect("closed");
        let seen = Assignment {
            owner: Some(owner),
            ..Assignment::default()
        };
        let assigned = leader
            .assign(&[(moved, seen, target, Vec::new())])
            .await
            .expect("assigned");
        for (server, tablets) in assigned {
            leader.open(server, tablets).await.expect("asked");
        }
        let served = to.server.served(moved).expect("it is served there");
        let epoch = served.tablet.epoch();
        assert!(epoch > owner.epoch && (epoch == drawn) == (moved == older), "{epoch}");
    }
}
