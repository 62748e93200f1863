use super::*;
use crate::testing::World;
use stele_assignment::Owner;
use stele_catalog::Homes;
use stele_client::TabletControl;
use stele_types::{Epoch, RowRange, TableId, TableName, TableSchema, TabletId};

const OLD: TabletId = TabletId(7);
const NEW: TabletId = TabletId(8);

/// All tablets are made by server 1.
struct First;

impl Homes for First {
    fn home_of(&self, _: TabletId) -> Option<Owner> {
        Some(Owner {
            server: ServerId(1),
            epoch: Epoch(1),
        })
    }
}

/// The server would delete the new tablet, which the catalog has, and serve the old one.
#[tokio::test(start_paused = true)]
async fn a_replacement_is_committed_although_the_record_of_an_old_tablet_is_left_over() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let leader = world.elect(&local).await;
    let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let whole = |tablet| vec![(tablet, RowRange::all())];
    let made = local.server.create_tablets(Arc::new(schema.clone()), whole(OLD)).await;
    made.expect("made");
    let tables = local.catalog.lead(leader.fence.clone(), Arc::new(First)).await;
    let tables = tables.expect("it leads");
    let created = tables.create_table(schema.clone(), whole(OLD)).await;
    created.expect("created");
    let records = world.coord.list("catalog/tablet/").await.expect("listed");
    let prepared = local
        .server
        .prepare_truncation(Arc::new(schema.clone()), vec![OLD], whole(NEW));
    prepared.await.expect("prepared");
    let of_table = (&schema.name, schema.id);
    let replaced = tables.replace_all_tablets(of_table, TableId(2), whole(NEW), None).await;
    replaced.expect("replaced");
    for (key, left_over) in records {
        world.put(key, left_over.value).await;
    }
    // It may be a table with the old tablet.
    let unreadable = "catalog/table/n/u".to_owned();
    world.put(unreadable.clone(), bytes::Bytes::from_static(b"\x63")).await;
    world.env.sleep(Duration::from_secs(1)).await;
    assert!(local.catalog.owner_of(OLD).is_some(), "its record is left over");

    let undo = || async {
        let report = local.report().await.expect("reported");
        leader.undo_abandoned(&BTreeMap::from([(ServerId(1), Arc::new(report))]));
        world.env.sleep(Duration::from_secs(1)).await;
        local.server.prepared_replacements().len()
    };
    assert_eq!(undo().await, 1, "the leader waits until it knows all tables");
    let delete = stele_coord::Txn {
        conditions: Vec::new(),
        writes: vec![stele_coord::Write::Delete { key: unreadable }],
    };
    let _ = world.coord.txn(delete).await.expect("deleted");
    world.env.sleep(Duration::from_secs(1)).await;
    assert_eq!(undo().await, 0);
    assert!(local.server.served(NEW).is_ok(), "the catalog names it");
}
