use super::orders::Death;
use super::*;
use crate::codec;
use crate::local::Control;
use crate::messages::Call;
use crate::records::{self, DRAINING, LOGS, LogRecord, NUMBERS};
use crate::testing::World;
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stele_assignment::{Assignment, Owner};
use stele_catalog::{Homes, Reassignment};
use stele_client::{Closing, TabletControl};
use stele_coord::next_epoch;
use stele_peer::{ControlService, Origin};
use stele_storage::memory::MemoryStorage;
use stele_types::{Epoch, RowRange, TableId, TableName, TableSchema};

const OLD: TabletId = TabletId(7);
const NEW: TabletId = TabletId(8);

/// All tablets are made by this server.
struct MadeBy(u32);

impl Homes for MadeBy {
    fn home_of(&self, _: TabletId) -> Option<Owner> {
        Some(Owner {
            server: ServerId(self.0),
            epoch: Epoch(self.0),
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
    let tables = local.catalog.lead(leader.fence.clone(), Arc::new(MadeBy(1))).await;
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
    world.put(unreadable.clone(), Bytes::from_static(b"\x63")).await;
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

/// Until its lease is over, it would answer reads that its successor's rows make stale.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_a_new_session_is_not_given_up_for_the_end_of_the_former() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let leader = world.elect(&local).await;
    let returned = ServerId(2);
    world
        .put(records::key(LOGS, returned), records::encode(&LogRecord::default()))
        .await;
    world.note_member(2).await;
    world.env.sleep(Duration::from_secs(1)).await;
    let is_member = async || {
        let record = world.coord.get(&records::key(records::SERVERS, returned)).await;
        record.expect("read").is_some()
    };
    leader.seal(returned, Death::Session).await.expect_err("it is back");
    assert!(is_member().await);
    // Its process is gone, before its session ends.
    leader.seal(returned, Death::Evidence).await.expect("sealed");
    assert!(!is_member().await);
}

/// Its process may live, and answer reads as long as it trusts its session.
#[tokio::test(start_paused = true)]
async fn the_log_of_a_silent_server_is_sealed_when_its_session_is_over() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let leader = world.elect(&local).await;
    let known = LogRecord {
        session_millis: 20_000,
        streams: 1,
        ..LogRecord::default()
    };
    let log_of = async |server| {
        let found = world.coord.get(&records::key(LOGS, server)).await;
        records::decode::<LogRecord>(&found.expect("read").expect("a log").value).expect("decoded")
    };
    // The second one was given up by a leader that has ended since.
    for (number, before, death) in [
        (2, known.clone(), Death::Silence),
        (
            3,
            LogRecord {
                given_up: true,
                may_live: true,
                ..known
            },
            Death::Session,
        ),
    ] {
        let server = ServerId(number);
        world.put(records::key(LOGS, server), records::encode(&before)).await;
        if number == 2 {
            world.note_member(number).await;
        }
        world.env.sleep(Duration::from_secs(1)).await;
        let sealing = leader.clone();
        let sealed = world
            .env
            .spawn_join(stele_env::Priority::Foreground, "seal", async move {
                sealing.seal(server, death).await
            });
        let mut sealed = std::pin::pin!(sealed);
        assert!(world.env.timeout(Duration::from_secs(21), &mut sealed).await.is_err());
        let log = log_of(server).await;
        assert_eq!((log.given_up, log.may_live, log.sealed), (true, true, false));
        let record = world.coord.get(&records::key(records::SERVERS, server)).await;
        assert!(record.expect("read").is_none(), "it extends its lease no more");
        sealed.await.expect("not stopped").expect("sealed");
        let log = log_of(server).await;
        assert!(log.sealed && log.streams == 1);
    }
}

/// A member that counts the calls by which it opens tablets.
struct Counting {
    control: Control,
    opens: AtomicU64,
}

#[async_trait]
impl ControlService for Counting {
    async fn control(&self, origin: Origin, request: Bytes) -> ServiceResult<Bytes> {
        let (_, call) = codec::untimed(&request)?;
        if let Request::Open(_) = codec::decode::<Call>(call)?.request {
            self.opens.fetch_add(1, Ordering::Relaxed);
        }
        self.control.control(origin, request).await
    }
}

/// Server 1, which leads and has its storage, and server 2, which owns a tablet and has lost its storage.
async fn with_unopened(world: &World) -> (Arc<Local>, Arc<Leader>, Arc<Counting>) {
    let local = world.follow(1).await;
    let other = world.follow_over(2, MemoryStorage::new()).await;
    let counting = Arc::new(Counting {
        control: Control {
            local: other.clone(),
            forwarded: None,
        },
        opens: AtomicU64::new(0),
    });
    world.serve_by(2, &other, counting.clone());
    for server in [1, 2] {
        world.note_member(server).await;
        let log = records::encode(&LogRecord::default());
        world.put(records::key(LOGS, ServerId(server)), log).await;
    }
    let leader = world.elect(&local).await;
    let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let whole = vec![(OLD, RowRange::all())];
    let made = local.server.create_tablets(Arc::new(schema.clone()), whole.clone());
    made.await.expect("made");
    let closed = local.close(OLD, Epoch(1), Closing::HandOver).await;
    closed.expect("closed");
    let tables = local.catalog.lead(leader.fence.clone(), Arc::new(MadeBy(1))).await;
    let tables = tables.expect("it leads");
    tables.create_table(schema, whole).await.expect("created");
    let owner = |server, epoch| Assignment {
        owner: Some(Owner {
            server: ServerId(server),
            epoch: Epoch(epoch),
        }),
        ..Assignment::default()
    };
    let change = Reassignment {
        tablet: OLD,
        seen: owner(1, 1),
        next: owner(2, 2),
    };
    assert_eq!(tables.reassign(&[change]).await.expect("changed"), 1);
    world.env.sleep(Duration::from_secs(1)).await;
    (local, leader, counting)
}

async fn lead_for(world: &World, leader: &Arc<Leader>, time: Duration) {
    let env = world.env.clone();
    let ended = async move { env.sleep(time).await }.boxed().shared();
    leader.clone().lead(ended).await;
}

#[tokio::test(start_paused = true)]
async fn a_tablet_goes_to_a_server_that_can_open_it() {
    let world = World::new().await;
    let (local, leader, counting) = with_unopened(&world).await;
    // Epochs are above that of the assignment.
    for _ in 0..5 {
        next_epoch(&*world.coord, NUMBERS).await.expect("drawn");
    }
    lead_for(&world, &leader, Duration::from_secs(10)).await;
    assert_eq!(counting.opens.load(Ordering::Relaxed), 2, "two attempts are enough");
    assert!(local.server.served(OLD).is_ok());
    assert_eq!(leader.errors(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_tablet_that_nobody_can_open_is_tried_at_a_pace() {
    let world = World::new().await;
    let (_, leader, counting) = with_unopened(&world).await;
    world.put(records::key(DRAINING, ServerId(1)), Bytes::new()).await;
    world.env.sleep(Duration::from_secs(1)).await;
    lead_for(&world, &leader, Duration::from_secs(60)).await;
    let opens = counting.opens.load(Ordering::Relaxed);
    assert!(
        (7..=9).contains(&opens),
        "{opens} attempts, after 0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75 and 31.75 s"
    );
    let errors = leader.errors();
    assert!(errors.contains_key(&OLD), "{errors:?}");
    lead_for(&world, &leader, Duration::from_secs(600)).await;
    let more = counting.opens.load(Ordering::Relaxed) - opens;
    assert!((9..=11).contains(&more), "{more} attempts, one a minute");
}

/// A member that fails to close tablets until it is mended, and counts the attempts.
struct Unflushable {
    control: Control,
    closes: AtomicU64,
    is_mended: AtomicBool,
}

#[async_trait]
impl ControlService for Unflushable {
    async fn control(&self, origin: Origin, request: Bytes) -> ServiceResult<Bytes> {
        let (_, call) = codec::untimed(&request)?;
        if let Request::Close { .. } = codec::decode::<Call>(call)?.request {
            self.closes.fetch_add(1, Ordering::Relaxed);
            if !self.is_mended.load(Ordering::Relaxed) {
                return Err(ServiceError::new(ErrorKind::ResourceExhausted, "no data key"));
            }
        }
        self.control.control(origin, request).await
    }
}

/// Server 1, which leads, and server 2, which is drained and does not close its tablet.
async fn with_unflushable(world: &World) -> (Arc<Local>, Arc<Leader>, Arc<Unflushable>) {
    let (local, other) = (world.follow(1).await, world.follow(2).await);
    let unflushable = Arc::new(Unflushable {
        control: Control {
            local: other.clone(),
            forwarded: None,
        },
        closes: AtomicU64::new(0),
        is_mended: AtomicBool::new(false),
    });
    world.serve_by(2, &other, unflushable.clone());
    for server in [1, 2] {
        world.note_member(server).await;
        let log = records::encode(&LogRecord::default());
        world.put(records::key(LOGS, ServerId(server)), log).await;
        // Epochs are above that of the assignment.
        next_epoch(&*world.coord, NUMBERS).await.expect("drawn");
    }
    let leader = world.elect(&local).await;
    let schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let whole = vec![(OLD, RowRange::all())];
    let made = other.server.create_tablets(Arc::new(schema.clone()), whole.clone());
    made.await.expect("made");
    let tables = local.catalog.lead(leader.fence.clone(), Arc::new(MadeBy(2))).await;
    let tables = tables.expect("it leads");
    tables.create_table(schema, whole).await.expect("created");
    world.put(records::key(DRAINING, ServerId(2)), Bytes::new()).await;
    world.env.sleep(Duration::from_secs(1)).await;
    (local, leader, unflushable)
}

#[tokio::test(start_paused = true)]
async fn a_tablet_that_cannot_be_closed_is_tried_at_a_pace_and_moves_once_it_can() {
    let world = World::new().await;
    let (local, leader, unflushable) = with_unflushable(&world).await;
    lead_for(&world, &leader, Duration::from_secs(60)).await;
    let closes = unflushable.closes.load(Ordering::Relaxed);
    assert!(
        (8..=10).contains(&closes),
        "{closes} attempts, two, and then after 0.25, 0.75, 1.75, 3.75, 7.75, 15.75 and 31.75 s"
    );
    let errors = leader.closing_errors();
    assert!(errors[&OLD].contains("no data key"), "{errors:?}");
    unflushable.is_mended.store(true, Ordering::Relaxed);
    lead_for(&world, &leader, Duration::from_secs(60)).await;
    assert!(local.server.served(OLD).is_ok(), "it has moved");
    assert_eq!(leader.closing_errors(), BTreeMap::new());
}

/// The next one begins without a pause.
#[tokio::test(start_paused = true)]
async fn failures_of_a_move_that_is_called_off_do_not_count_for_the_next_one() {
    let world = World::new().await;
    let (_local, leader, _unflushable) = with_unflushable(&world).await;
    lead_for(&world, &leader, Duration::from_secs(10)).await;
    assert_eq!(leader.closing_errors().len(), 1);
    // Its target gets no tablets any more.
    world.put(records::key(DRAINING, ServerId(1)), Bytes::new()).await;
    lead_for(&world, &leader, Duration::from_secs(10)).await;
    let moving = target_of_move(&leader);
    assert_eq!((moving, leader.closing_errors()), (None, BTreeMap::new()));
}

/// The target of the tablet that moves.
fn target_of_move(leader: &Leader) -> Option<ServerId> {
    let view = leader.local.catalog.view();
    let mut tablets = view.tables.values().flat_map(|table| table.tablets());
    tablets.find_map(|tablet| tablet.assignment.moving_to)
}

/// Servers 1 to 3, of which the first is returned; the others answer.
async fn three_servers(world: &World) -> Arc<Local> {
    for server in 1..=3 {
        world.note_member(server).await;
        let log = records::encode(&LogRecord::default());
        world.put(records::key(LOGS, ServerId(server)), log).await;
    }
    for server in [2, 3] {
        world.serve(server, &world.follow(server).await);
    }
    world.follow(1).await
}

/// How long a server stays a member after its process has ended, which the first server leads without.
async fn given_up_after(world: &World, killed: u32) -> Duration {
    world.kill(killed);
    let begun = world.env.now();
    let key = records::key(records::SERVERS, ServerId(killed));
    while world.coord.get(&key).await.expect("read").is_some() {
        assert!(world.env.now() - begun < Duration::from_secs(5), "it is dead");
        world.env.sleep(Duration::from_millis(1)).await;
    }
    world.env.now() - begun
}

/// Long before the next round is due.
#[tokio::test(start_paused = true)]
async fn a_server_that_closes_its_connections_and_its_port_is_soon_given_up() {
    let world = World::new().await;
    let local = three_servers(&world).await;
    let leader = world.elect(&local).await;
    let ended = futures::future::pending().boxed().shared();
    world.env.spawn("leader", leader.clone().lead(ended));
    // Behind a round, by less than the pause after it.
    world.env.sleep(Duration::from_millis(1_010)).await;
    let after = given_up_after(&world, 3).await;
    assert!(after < Duration::from_millis(100), "{after:?}");
}

/// One lost connection is no evidence: the process answers.
#[tokio::test(start_paused = true)]
async fn a_server_that_lost_its_connections_only_stays() {
    let world = World::new().await;
    let local = three_servers(&world).await;
    let leader = world.elect(&local).await;
    let ended = futures::future::pending().boxed().shared();
    world.env.spawn("leader", leader.clone().lead(ended));
    for _ in 0..20 {
        world.env.sleep(Duration::from_millis(130)).await;
        world.disconnect(3);
    }
    world.env.sleep(Duration::from_secs(2)).await;
    let record = world.coord.get(&records::key(records::SERVERS, ServerId(3))).await;
    assert!(record.expect("read").is_some());
    assert!(leader.reports().contains_key(&ServerId(3)), "it reports again");
}
