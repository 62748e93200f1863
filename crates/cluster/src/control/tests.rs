//! Calls that arrive after they were made again, and after later changes.

use super::*;
use crate::leader::Leader;
use crate::messages::Call;
use crate::testing::World;
use stele_client::{NewTable, TableAdmin, TabletRead, TabletService};
use stele_types::{Family, GroupId, Mutation, RowMutation, RowSet, TableId, TableName, Timestamp, ValueType};

const TABLET: TabletId = TabletId(7);

/// All tablets are made by server 2.
struct Second;

impl Homes for Second {
    fn home_of(&self, _: TabletId) -> Option<Owner> {
        Some(Owner {
            server: ServerId(2),
            epoch: Epoch(2),
        })
    }
}

/// Server 1, which leads, and server 2, which owns a tablet and is connected.
async fn leading(world: &World) -> (Arc<Leader>, Arc<Local>) {
    let (local, owner) = (world.follow(1).await, world.follow(2).await);
    world.serve(2, &owner);
    world.note_member(2).await;
    let leader = world.elect(&local).await;
    let mut schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    schema.families.insert(FamilyId(1), family);
    schema.next_family = FamilyId(2);
    let whole = vec![(TABLET, RowRange::all())];
    let made = owner.server.create_tablets(Arc::new(schema.clone()), whole.clone());
    made.await.expect("made");
    let tables = local.catalog.lead(leader.fence.clone(), Arc::new(Second)).await;
    let created = tables.expect("it leads").create_table(schema, whole).await;
    created.expect("created");
    world.env.sleep(Duration::from_secs(1)).await;
    leader.control.flush(TABLET).await.expect("flushed");
    (leader, owner)
}

async fn write(owner: &Local) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    };
    let row = RowMutation {
        row: Bytes::from_static(b"r"),
        mutations: vec![put],
    };
    let written = owner.server.mutate(TABLET, vec![row].into(), None).await;
    written.expect("written");
}

async fn has_row(owner: &Local) -> bool {
    let read = TabletRead {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
        waits: true,
    };
    let mut rows = owner.server.read(TABLET, read).await.expect("begun");
    while let Some(batch) = rows.next().await.expect("read") {
        if !batch.is_empty() {
            return true;
        }
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_drop_leaves_rows_that_were_written_meanwhile() {
    let world = World::new().await;
    let (leader, owner) = leading(&world).await;
    write(&owner).await;
    world.wires.hold("server-2");
    // The first attempt is held back. The second one, on another connection, is answered.
    let dropped = leader.control.drop_rows(TABLET, RowRange::all()).await;
    dropped.expect("dropped");
    assert!(!has_row(&owner).await);
    write(&owner).await;
    world.wires.release();
    world.env.sleep(Duration::from_secs(20)).await;
    assert!(has_row(&owner).await, "the first attempt has arrived");
}

#[tokio::test(start_paused = true)]
async fn an_owner_carries_out_the_drops_of_its_epoch_in_their_order() {
    let world = World::new().await;
    let (leader, owner) = leading(&world).await;
    let drop_rows = |epoch, number| {
        let call = TabletCall::DropRows {
            tablet: TABLET,
            epoch: Epoch(epoch),
            number,
            range: RowRange::all(),
        };
        let call = Call {
            term: leader.term,
            request: Request::Tablets(call),
        };
        let answer = owner.answer(call);
        async { answer.await.map(drop).map_err(|error| error.kind) }
    };
    assert_eq!(drop_rows(2, (5, 9)).await, Ok(()));
    write(&owner).await;
    for late in [(5, 9), (5, 8), (4, 10)] {
        assert_eq!(drop_rows(2, late).await, Err(ErrorKind::FailedPrecondition));
    }
    assert_eq!(drop_rows(1, (6, 1)).await, Err(ErrorKind::Unavailable));
    assert!(has_row(&owner).await);
    assert_eq!(drop_rows(2, (6, 1)).await, Ok(()));
    assert!(!has_row(&owner).await);
}

fn new_table(name: &TableName) -> NewTable {
    NewTable::new(name.clone())
}

/// It arrived in time. The leader asks the coordinator whether it leads still, whose answer takes long.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_at_the_leader_is_called_off_when_its_caller_gives_up() {
    let world = World::new().await;
    let _leader = world.join(1).await;
    world.env.sleep(Duration::from_secs(20)).await;
    let admin = world.join(2).await.admin;
    let name = TableName::new("n", "t");
    admin.create_table(new_table(&name)).await.expect("made");
    world.reached.is_slow.send_replace(true);
    let hold = async {
        world.env.sleep(Duration::from_secs(1)).await;
        world.wires.hold("process-1");
    };
    let (lost, ()) = tokio::join!(admin.delete_table(&name), hold);
    assert_eq!(lost.expect_err("there is no answer").kind, ErrorKind::Aborted);
    // As if its client had made the call again, and then a table of the name.
    world.reached.is_slow.send_replace(false);
    world.wires.release();
    world.env.sleep(Duration::from_secs(20)).await;
    let tables = admin.list_tables("n").await.expect("listed");
    assert_eq!(tables.len(), 1, "the first call was carried out");
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_deletion_leaves_a_table_that_was_made_meanwhile() {
    let world = World::new().await;
    let _leader = world.join(1).await;
    world.env.sleep(Duration::from_secs(20)).await;
    let admin = world.join(2).await.admin;
    let name = TableName::new("n", "t");
    let make = || admin.create_table(new_table(&name));
    make().await.expect("made");
    world.wires.hold("process-1");
    let lost = admin.delete_table(&name).await.expect_err("there is no answer");
    assert_eq!(lost.kind, ErrorKind::Aborted, "{lost}");
    // On another connection, as its client does.
    admin.delete_table(&name).await.expect("deleted");
    make().await.expect("made again");
    world.wires.release();
    world.env.sleep(Duration::from_secs(20)).await;
    let tables = admin.list_tables("n").await.expect("listed");
    assert_eq!(tables.len(), 1, "the first call has arrived");
}
