mod unreadable;

use super::*;
use crate::catalog::tests::schema;
use async_trait::async_trait;
use parking_lot::Mutex;
use stele_coord::{EmbeddedCoord, Txn, TxnOutcome};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::memory::MemoryStorage;
use stele_types::{AccessRule, Epoch, Member, Resource, Rights, RowRange, ServerId, TableName, TableSchema};

/// All new tablets are on server 3.
struct Third;

impl Homes for Third {
    fn home_of(&self, _: TabletId) -> Option<Owner> {
        Some(owner(3, 3))
    }
}

fn owner(server: u32, epoch: u32) -> Owner {
    Owner {
        server: ServerId(server),
        epoch: Epoch(epoch),
    }
}

/// Notes the versions that it is told of, and those that the view had then.
#[derive(Default)]
struct Noting {
    catalog: Mutex<Option<Arc<Catalog>>>,
    told: Mutex<Vec<(u64, u64)>>,
}

#[async_trait]
impl SchemaListener for Noting {
    async fn changed(&self, schema: Arc<TableSchema>) {
        let catalog = self.catalog.lock().clone();
        let shown = catalog.and_then(|catalog| catalog.table(&schema.name).ok());
        let shown = shown.map_or(0, |table| table.schema.version);
        self.told.lock().push((schema.version, shown));
    }
}

struct Process {
    catalog: Arc<Catalog>,
    listener: Arc<Noting>,
}

impl Process {
    /// The same process, as the leader of a new term.
    async fn leading(&self, coord: &Arc<dyn Coord>) -> Process {
        let catalog = self.catalog.lead(elect(coord).await, Arc::new(Third)).await;
        Process {
            catalog: catalog.expect("elected"),
            listener: self.listener.clone(),
        }
    }
}

async fn process(coord: &Arc<dyn Coord>) -> Process {
    let (catalog, follower) = Catalog::follow(coord.clone()).await.expect("followed");
    let listener = Arc::new(Noting::default());
    *listener.catalog.lock() = Some(catalog.clone());
    let env = TokioRuntime::current();
    env.spawn("follower", follower.run(env.clone(), listener.clone()));
    Process { catalog, listener }
}

async fn coord() -> Arc<dyn Coord> {
    EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current())
        .await
        .expect("opened")
}

/// Another process becomes the leader.
async fn elect(coord: &Arc<dyn Coord>) -> Condition {
    let put = Write::Put {
        key: "election/test".to_owned(),
        value: Bytes::new(),
    };
    let elected = coord.txn(Txn {
        conditions: Vec::new(),
        writes: vec![put],
    });
    match elected.await.expect("elected") {
        TxnOutcome::Committed { revision } => Condition::version("election/test", revision),
        TxnOutcome::Conflict { key } => unreachable!("no condition fails: {key}"),
    }
}

fn whole(tablet: u64) -> Vec<(TabletId, RowRange)> {
    vec![(TabletId(tablet), RowRange::all())]
}

fn halves() -> Vec<(TabletId, RowRange)> {
    let row = Bytes::from_static(b"m");
    let below = RowRange {
        start: Bytes::new(),
        end: Some(row.clone()),
    };
    let above = RowRange { start: row, end: None };
    vec![(TabletId(11), below), (TabletId(12), above)]
}

fn name() -> TableName {
    TableName::new("n", "t")
}

#[tokio::test]
async fn every_process_sees_the_changes_of_the_leader() {
    let coord = coord().await;
    let (leader, other) = (process(&coord).await, process(&coord).await);
    let early = leader.catalog.create_table(schema(1, 1), whole(10)).await;
    assert!(matches!(early, Err(CatalogError::NotLeader)), "{early:?}");
    let leader = leader.leading(&coord).await;
    leader.catalog.create_table(schema(1, 1), whole(10)).await.unwrap();
    assert_eq!(leader.catalog.owner_of(TabletId(10)), Some(owner(3, 3)));
    other.catalog.wait_applied(leader.catalog.applied()).await;
    let table = other.catalog.table(&name()).unwrap();
    assert_eq!(table.tablets().iter().map(|t| t.id).collect::<Vec<_>>(), [TabletId(10)]);
    leader
        .catalog
        .replace_tablets(&name(), &[TabletId(10)], halves())
        .await
        .unwrap();
    other.catalog.wait_applied(leader.catalog.applied()).await;
    let table = other.catalog.table(&name()).unwrap();
    let ids: Vec<TabletId> = table.tablets().iter().map(|t| t.id).collect();
    assert_eq!(ids, [TabletId(11), TabletId(12)]);
    assert_eq!(other.catalog.owner_of(TabletId(10)), None);
    assert_eq!(other.catalog.owner_of(TabletId(12)), Some(owner(3, 3)));
    let switches = stele_types::Switches {
        balance: false,
        ..stele_types::Switches::default()
    };
    leader.catalog.set_switches(switches).await.unwrap();
    leader.catalog.delete_table(&name()).await.unwrap();
    other.catalog.wait_applied(leader.catalog.applied()).await;
    assert!(other.catalog.table(&name()).is_err());
    assert_eq!(other.catalog.view().switches, switches);
    let late = process(&coord).await;
    assert!(late.catalog.table(&name()).is_err());
    assert!(late.catalog.view().namespaces.contains_key("n"));
    assert_eq!(late.catalog.view().switches, switches);
}

/// After events were lost, the watch goes on where it was, and the listing is of a later revision.
#[tokio::test]
async fn an_event_before_the_listing_brings_no_deleted_record_back() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await;
    leader.catalog.create_table(schema(1, 1), whole(10)).await.unwrap();
    let before = coord.list(ALL).await.unwrap();
    leader.catalog.delete_table(&name()).await.unwrap();
    let (catalog, mut follower) = Catalog::follow(coord.clone()).await.unwrap();
    let events = before
        .into_iter()
        .map(|(key, current)| WatchEvent::Put { key, current });
    follower.take_in(&events.collect::<Vec<_>>());
    catalog.change_view(|view| follower.records.update(view));
    assert!(catalog.table(&name()).is_err(), "the table is deleted");
}

#[tokio::test]
async fn tablets_learn_of_a_schema_before_the_view_has_it() {
    let coord = coord().await;
    let (leader, other) = (process(&coord).await, process(&coord).await);
    let leader = leader.leading(&coord).await;
    leader.catalog.create_table(schema(1, 1), whole(10)).await.unwrap();
    leader.catalog.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    other.catalog.wait_applied(leader.catalog.applied()).await;
    for process in [&leader, &other] {
        assert_eq!(process.catalog.table(&name()).unwrap().schema.version, 2);
        assert_eq!(*process.listener.told.lock(), vec![(1, 0), (2, 1)]);
    }
}

/// The server may have made tablets of the table under its first schema.
#[tokio::test]
async fn tablets_learn_of_a_schema_that_comes_together_with_the_creation_of_the_table() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await;
    let (catalog, mut follower) = Catalog::follow(coord.clone()).await.unwrap();
    leader.catalog.create_table(schema(1, 1), whole(10)).await.unwrap();
    leader.catalog.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    let records = coord.list(ALL).await.unwrap().into_iter();
    let events: Vec<_> = records.map(|(key, current)| WatchEvent::Put { key, current }).collect();
    follower.take_in(&events);
    let told = follower.records.changed_schemas(&catalog.view());
    assert_eq!(told.iter().map(|schema| schema.version).collect::<Vec<_>>(), [2]);
    catalog.change_view(|view| follower.records.update(view));
    assert!(follower.records.changed_schemas(&catalog.view()).is_empty());
}

#[tokio::test]
async fn a_former_leader_changes_nothing() {
    let coord = coord().await;
    let (former, next) = (process(&coord).await, process(&coord).await);
    let former = former.leading(&coord).await;
    former.catalog.create_table(schema(1, 1), whole(10)).await.unwrap();
    let next = next.leading(&coord).await;
    let late = former.catalog.delete_table(&name()).await;
    assert!(matches!(late, Err(CatalogError::NotLeader)), "{late:?}");
    next.catalog.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    // The process of the former leader leads again; a change of its first term is late all the same.
    let again = former.leading(&coord).await;
    let late = former.catalog.delete_table(&name()).await;
    assert!(matches!(late, Err(CatalogError::NotLeader)), "{late:?}");
    again.catalog.delete_table(&name()).await.unwrap();
}

#[tokio::test]
async fn an_assignment_is_replaced_only_if_it_is_the_expected_one() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await.catalog;
    leader.create_table(schema(1, 1), whole(10)).await.unwrap();
    let seen = Assignment {
        owner: Some(owner(3, 3)),
        ..Assignment::default()
    };
    let next = Assignment {
        owner: Some(owner(4, 7)),
        moving_to: None,
        logs: vec![ServerId(3)],
    };
    let change = Reassignment {
        tablet: TabletId(10),
        seen,
        next: next.clone(),
    };
    assert_eq!(leader.reassign(std::slice::from_ref(&change)).await.unwrap(), 1);
    assert_eq!(leader.owner_of(TabletId(10)), Some(owner(4, 7)));
    assert_eq!(leader.reassign(&[change]).await.unwrap(), 0);
    let table = leader.table(&name()).unwrap();
    assert_eq!(table.tablets()[0].assignment, next);
}

/// The files of the halves lack the writes that the other owner has taken.
#[tokio::test]
async fn a_tablet_that_has_another_owner_is_not_replaced() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await.catalog;
    leader.create_table(schema(1, 1), whole(10)).await.unwrap();
    let to = |owner| Assignment {
        owner: Some(owner),
        ..Assignment::default()
    };
    // To another server, and back to the first in a later epoch.
    for (seen, next) in [(owner(3, 3), owner(4, 7)), (owner(4, 7), owner(3, 8))] {
        let change = Reassignment {
            tablet: TabletId(10),
            seen: to(seen),
            next: to(next),
        };
        assert_eq!(leader.reassign(&[change]).await.unwrap(), 1);
        let replaced = leader.replace_tablets(&name(), &[TabletId(10)], halves()).await;
        assert!(matches!(replaced, Err(CatalogError::Conflict { .. })), "{replaced:?}");
    }
}

/// A transaction takes a megabyte, and a record has two rows of up to 32 KiB.
#[tokio::test]
async fn tablets_with_long_rows_get_other_owners() {
    const TABLETS: u64 = 40;
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await.catalog;
    let row = |n: u64| Bytes::from([&n.to_be_bytes()[..], &[b'r'; 32_000]].concat());
    let range = |n: u64| RowRange {
        start: if n == 0 { Bytes::new() } else { row(n) },
        end: (n + 1 < TABLETS).then(|| row(n + 1)),
    };
    let tablets = (0..TABLETS).map(|n| (TabletId(10 + n), range(n))).collect();
    leader.create_table(schema(1, 1), tablets).await.unwrap();
    let change = |n: u64| Reassignment {
        tablet: TabletId(10 + n),
        seen: Assignment {
            owner: Some(owner(3, 3)),
            ..Assignment::default()
        },
        next: Assignment {
            owner: Some(owner(4, 7)),
            ..Assignment::default()
        },
    };
    let changes: Vec<Reassignment> = (0..TABLETS).map(change).collect();
    assert_eq!(leader.reassign(&changes).await.unwrap(), 40);
    let at = |n: u64| leader.owner_of(TabletId(10 + n));
    assert!((0..TABLETS).all(|n| at(n) == Some(owner(4, 7))));
}

#[tokio::test]
async fn a_new_leader_removes_records_of_tablets_without_a_table() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await.catalog;
    leader.create_table(schema(1, 1), whole(10)).await.unwrap();
    leader.put_tablets(TableId(99), &whole(50)).await.unwrap();
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 2);
    let next = process(&coord).await.leading(&coord).await.catalog;
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 1);
    assert_eq!(next.owner_of(TabletId(50)), None);
}

#[tokio::test]
async fn every_process_obeys_the_same_rules() {
    let coord = coord().await;
    let (leader, other) = (process(&coord).await, process(&coord).await);
    let leading = leader.catalog.lead(elect(&coord).await, Arc::new(Third)).await.unwrap();
    leading.create_table(schema(1, 1), whole(10)).await.unwrap();
    let table = Resource::Table(name());
    let rule = |user: &str| vec![AccessRule::whole(Member::User(user.to_owned()), Rights::READ)];
    let first = leading.set_rules(&table, rule("alice"), Some(0)).await.unwrap();
    other.catalog.catch_up().await.unwrap();
    let seen = other.catalog.view().access.clone();
    let found = seen.get(&table).unwrap();
    assert_eq!((&found.rules[..], found.version), (&rule("alice")[..], first));
    // The pointer stays while other records change: callers keep their rights by it.
    leading.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    other.catalog.catch_up().await.unwrap();
    assert!(Arc::ptr_eq(&seen, &other.catalog.view().access));
    let stale = leading.set_rules(&table, rule("bob"), Some(first - 1)).await;
    assert!(matches!(stale, Err(CatalogError::Conflict { .. })), "{stale:?}");
    leading.set_rules(&table, rule("bob"), Some(first)).await.unwrap();
    other.catalog.catch_up().await.unwrap();
    assert_eq!(other.catalog.view().access[&table].rules[..], rule("bob")[..]);
    let late = process(&coord).await;
    assert_eq!(late.catalog.view().access, other.catalog.view().access);
    // They go with the table, at every process in the moment in which its name is free.
    leading.delete_table(&name()).await.unwrap();
    other.catalog.catch_up().await.unwrap();
    assert!(other.catalog.view().access.is_empty() && leader.catalog.view().access.is_empty());
    let refused = other.catalog.set_rules(&Resource::Cluster, rule("mallory"), None).await;
    assert!(matches!(refused, Err(CatalogError::NotLeader)), "{refused:?}");
}

#[tokio::test]
async fn rules_that_cannot_be_read_give_no_right() {
    let coord = coord().await;
    let leader = process(&coord).await;
    let leading = leader.catalog.lead(elect(&coord).await, Arc::new(Third)).await.unwrap();
    let rules = vec![AccessRule::whole(Member::Authenticated, Rights::ALL)];
    leading.set_rules(&Resource::Cluster, rules, None).await.unwrap();
    // As a newer program might write them.
    let strange = Write::Put {
        key: "catalog/access/cluster".to_owned(),
        value: Bytes::from_static(b"\x02"),
    };
    let mark = Write::Put {
        key: CHANGED.to_owned(),
        value: Bytes::new(),
    };
    let txn = Txn {
        conditions: Vec::new(),
        writes: vec![strange, mark],
    };
    let written = coord.txn(txn).await.unwrap();
    assert!(matches!(written, TxnOutcome::Committed { .. }), "{written:?}");
    leader.catalog.catch_up().await.unwrap();
    assert!(leader.catalog.view().access.is_empty());
}
