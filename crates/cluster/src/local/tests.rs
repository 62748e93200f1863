use super::*;
use crate::testing::World;
use stele_assignment::Owner;
use stele_catalog::Reassignment;
use stele_types::{Durability, RowRange, TableId, TableName};

const TABLET: TabletId = TabletId(7);

fn schema() -> TableSchema {
    TableSchema::new(TableId(1), TableName::new("n", "t"))
}

fn all_rows() -> Vec<(TabletId, RowRange)> {
    vec![(TABLET, RowRange::all())]
}

/// The call waited until the server served its port, and the table was changed meanwhile.
#[tokio::test(start_paused = true)]
async fn a_tablet_is_opened_with_the_schema_of_the_catalog_if_that_is_newer() {
    let world = World::new().await;
    let maker = world.follow(1).await;
    let made = maker.server.create_tablets(Arc::new(schema()), all_rows()).await;
    made.expect("made");
    let tables = Catalog::load(world.coord.clone()).await.expect("loaded");
    tables.create_table(schema(), all_rows()).await.expect("created");
    let changed = TableSchema {
        version: 2,
        durability: Some(Durability::Flush),
        ..schema()
    };
    let changed = tables.update_schema(changed, |_| async {}).await;
    drop(changed.expect("changed"));
    let member = world.follow(2).await;
    assert_eq!(member.open(vec![opening(2)]).await, [Ok(())]);
    let served = member.server.served(TABLET).expect("served");
    assert_eq!(served.tablet.schema().version, 2);
}

/// A server that has abandoned the tablet.
async fn with_abandoned(world: &World) -> Arc<Local> {
    let member = world.follow(1).await;
    let made = member.server.create_tablets(Arc::new(schema()), all_rows()).await;
    made.expect("made");
    let closed = member.close(TABLET, Epoch(1), Closing::Abandon).await;
    closed.expect("abandoned");
    member
}

/// The call that drops it did not reach the server, and the next round has the server abandon it.
#[tokio::test(start_paused = true)]
async fn the_log_retains_nothing_of_an_abandoned_tablet_that_is_dropped() {
    let world = World::new().await;
    let tables = Catalog::load(world.coord.clone()).await.expect("loaded");
    tables.create_table(schema(), all_rows()).await.expect("created");
    let member = with_abandoned(&world).await;
    let report = || async {
        let call = Call {
            term: 0,
            request: Request::Report(0),
        };
        drop(member.answer(call).await.expect("reported"));
        world.env.sleep(Duration::from_secs(1)).await;
        member.server.abandoned_tablets()
    };
    assert_eq!(report().await, [TABLET], "its next owner replays the log");
    tables.delete_table(&schema().name).await.expect("dropped");
    world.env.sleep(Duration::from_secs(1)).await;
    world.reached.is_away.store(true, Ordering::Relaxed);
    assert_eq!(report().await, [TABLET], "the catalog here may be behind");
    world.reached.is_away.store(false, Ordering::Relaxed);
    assert!(report().await.is_empty());
}

/// The record of the tablet is left over. It counts only while some table may have the tablet without being known here.
#[tokio::test(start_paused = true)]
async fn the_log_retains_nothing_for_a_record_that_no_table_names() {
    let world = World::new().await;
    let tables = Catalog::load(world.coord.clone()).await.expect("loaded");
    tables.create_table(schema(), all_rows()).await.expect("created");
    let owner = Owner {
        server: ServerId(2),
        epoch: Epoch(2),
    };
    let change = Reassignment {
        tablet: TABLET,
        seen: stele_assignment::Assignment::default(),
        next: stele_assignment::Assignment {
            owner: Some(owner),
            ..stele_assignment::Assignment::default()
        },
    };
    assert_eq!(tables.reassign(&[change]).await.expect("changed"), 1);
    let record = world.coord.list("catalog/tablet/").await.expect("listed");
    let member = with_abandoned(&world).await;
    tables.delete_table(&schema().name).await.expect("dropped");
    for (key, left_over) in record {
        world.put(key, left_over.value).await;
    }
    let unknown = || async {
        world.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(member.catalog.owner_of(TABLET), Some(owner));
        member.unknown_of(member.server.abandoned_tablets())
    };
    assert_eq!(unknown().await, [TABLET]);
    // Of a newer version, which the leader may be of.
    let table = "catalog/table/n/u".to_owned();
    world.put(table, bytes::Bytes::from_static(b"\x63")).await;
    assert!(unknown().await.is_empty());
}

/// A server that has made a tablet of a table of the catalog, and another one.
async fn with_made(world: &World) -> (Arc<Local>, Arc<Local>) {
    let (maker, member) = (world.follow(1).await, world.follow(2).await);
    let made = maker.server.create_tablets(Arc::new(schema()), all_rows()).await;
    made.expect("made");
    let tables = Catalog::load(world.coord.clone()).await.expect("loaded");
    tables.create_table(schema(), all_rows()).await.expect("created");
    (maker, member)
}

fn owned_by(server: u32, epoch: u32) -> stele_assignment::Assignment {
    stele_assignment::Assignment {
        owner: Some(Owner {
            server: ServerId(server),
            epoch: Epoch(epoch),
        }),
        ..stele_assignment::Assignment::default()
    }
}

/// The order to open the tablet under an epoch.
fn opening(epoch: u32) -> Assignment {
    Assignment {
        tablet: TABLET,
        epoch: Epoch(epoch),
        schema: Arc::new(schema()),
        logs: Vec::new(),
        streams: BTreeMap::new(),
    }
}

/// Its mark of the former epoch is gone, as the catalog names a newer owner: only the catalog says that the order is late.
#[tokio::test(start_paused = true)]
async fn a_late_order_to_open_a_tablet_is_refused_once_the_catalog_has_a_newer_owner() {
    let world = World::new().await;
    let (_maker, member) = with_made(&world).await;
    let mut seen = stele_assignment::Assignment::default();
    for next in [owned_by(2, 2), owned_by(3, 3)] {
        let change = Reassignment {
            tablet: TABLET,
            seen,
            next: next.clone(),
        };
        let newest = Catalog::load(world.coord.clone()).await.expect("loaded");
        assert_eq!(newest.reassign(&[change]).await.expect("changed"), 1);
        seen = next;
    }
    world.env.sleep(Duration::from_secs(1)).await;
    let open = async |epoch| {
        let opened = member.open(vec![opening(epoch)]).await.remove(0);
        opened.map_err(|(kind, _)| ErrorKind::of_number(kind))
    };
    assert_eq!(open(2).await, Err(ErrorKind::FailedPrecondition));
    assert!(member.server.served(TABLET).is_err(), "it would have two servers");
    assert_eq!(open(4).await, Ok(()), "the catalog here may be behind");
}

/// It would not open the tablet, say because its version does not know the files. Another server can have the tablet then.
#[tokio::test(start_paused = true)]
async fn a_tablet_that_is_to_leave_unopened_is_not_opened_any_more() {
    let world = World::new().await;
    let (_maker, member) = with_made(&world).await;
    let tables = Catalog::load(world.coord.clone()).await.expect("loaded");
    let change = Reassignment {
        tablet: TABLET,
        seen: stele_assignment::Assignment::default(),
        next: owned_by(2, 2),
    };
    assert_eq!(tables.reassign(&[change]).await.expect("changed"), 1);
    world.env.sleep(Duration::from_secs(1)).await;
    let open = async |epoch| {
        let outcomes = member.open(vec![opening(epoch)]).await;
        outcomes.into_iter().all(|opened| opened.is_ok())
    };
    let states = || async {
        let report = member.report().await.expect("reported");
        let tablets = report.tablets.expect("all tablets").into_iter();
        let states = tablets.map(|tablet| (tablet.epoch.0, tablet.state));
        states.collect::<Vec<_>>()
    };
    // The order may come twice.
    for _ in 0..2 {
        let closed = member.close(TABLET, Epoch(2), Closing::HandOver).await;
        closed.expect("declined");
        assert_eq!(states().await, [(2, TabletState::Unopened)]);
    }
    assert!(!open(2).await, "a late order would give it two servers");
    assert!(open(3).await, "it comes back");
    let late = member.close(TABLET, Epoch(2), Closing::HandOver).await;
    late.expect("it has left under that epoch");
    assert!(member.server.served(TABLET).is_ok());
}
