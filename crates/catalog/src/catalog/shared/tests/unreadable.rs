//! Listings with records that cannot be read, as of a newer program.

use super::*;
use stele_coord::watch::Watchers;

/// No listing is followed in this time.
const LIMIT: Duration = Duration::from_secs(10);
/// Of a version that there is not.
const UNREADABLE: Bytes = Bytes::from_static(b"\x63");

/// A coordinator of which every watch loses its events.
struct Losing {
    coord: Arc<dyn Coord>,
    watchers: Mutex<Watchers>,
}

#[async_trait]
impl stele_coord::Layer for Losing {
    fn below(&self) -> &dyn Coord {
        &*self.coord
    }

    async fn txn(&self, txn: Txn) -> stele_coord::Result<TxnOutcome> {
        let outcome = self.coord.txn(txn).await;
        self.watchers.lock().send(&WatchEvent::Resync);
        outcome
    }

    async fn watch(&self, prefix: &str) -> stele_coord::Result<Watch> {
        self.watchers.lock().watch(prefix)
    }
}

async fn losing() -> Arc<dyn Coord> {
    Arc::new(Losing {
        coord: coord().await,
        watchers: Mutex::default(),
    })
}

/// Writes unreadable records under keys.
async fn spoil(coord: &Arc<dyn Coord>, keys: &[&str]) {
    let keys = keys.iter().map(|key| ((*key).to_owned(), UNREADABLE));
    let mark = (CHANGED.to_owned(), Bytes::new());
    let writes = keys.chain([mark]).map(|(key, value)| Write::Put { key, value });
    let txn = Txn {
        conditions: Vec::new(),
        writes: writes.collect(),
    };
    let written = coord.txn(txn).await.unwrap();
    assert!(matches!(written, TxnOutcome::Committed { .. }), "{written:?}");
}

async fn within<T>(action: impl Future<Output = T>) -> T {
    let done = TokioRuntime::current().timeout(LIMIT, action).await;
    done.expect("the catalog is followed")
}

/// Has tablet 10, which is that of the table, move to server 4.
async fn move_to_fourth(leader: &Catalog) {
    let of = |owner| Assignment {
        owner: Some(owner),
        ..Assignment::default()
    };
    let change = Reassignment {
        tablet: TabletId(10),
        seen: of(owner(3, 3)),
        next: of(owner(4, 7)),
    };
    assert_eq!(leader.reassign(&[change]).await.unwrap(), 1);
}

#[tokio::test]
async fn unreadable_rules_and_switches_stop_no_listing() {
    let coord = losing().await;
    let (leader, other) = (process(&coord).await, process(&coord).await);
    let leading = leader.leading(&coord).await.catalog;
    within(leading.create_table(schema(1, 1), whole(10))).await.unwrap();
    let rules = vec![AccessRule::whole(Member::Authenticated, Rights::ALL)];
    within(leading.set_rules(&Resource::Cluster, rules, None))
        .await
        .unwrap();
    let switches = stele_types::Switches {
        balance: false,
        ..stele_types::Switches::default()
    };
    within(leading.set_switches(switches)).await.unwrap();
    let spoiled = ["catalog/access/cluster", "catalog/access/planet", "catalog/switches"];
    spoil(&coord, &spoiled).await;
    within(move_to_fourth(&leading)).await;
    within(other.catalog.catch_up()).await.unwrap();
    assert_eq!(other.catalog.owner_of(TabletId(10)), Some(owner(4, 7)));
    let view = other.catalog.view();
    assert!(
        view.access.is_empty(),
        "the former rules may give a right that was taken"
    );
    assert_eq!(view.switches, switches, "the former ones stay in force");
    // A server starts, and leads.
    let late = process(&coord).await.leading(&coord).await.catalog;
    assert_eq!(late.owner_of(TabletId(10)), Some(owner(4, 7)));
    assert!(late.view().access.is_empty());
}

#[tokio::test]
async fn an_unreadable_record_leaves_the_former_one_in_force() {
    let coord = losing().await;
    let (leader, other) = (process(&coord).await, process(&coord).await);
    let leading = leader.leading(&coord).await.catalog;
    within(leading.create_table(schema(1, 1), whole(10))).await.unwrap();
    let seen = other.catalog.clone();
    within(seen.catch_up()).await.unwrap();
    let table = seen.table(&name()).unwrap();
    assert!(!seen.view().is_outdated);
    let tablet = record::tablet_key(TableId(1), TabletId(10));
    let spoiled = [&tablet, "catalog/table/n/t", "catalog/namespace/n", "catalog/table/n/u"];
    spoil(&coord, &spoiled).await;
    within(leading.create_namespace("m", Bytes::new())).await.unwrap();
    within(seen.catch_up()).await.unwrap();
    let view = seen.view();
    assert!(view.namespaces.contains_key("m") && view.namespaces.contains_key("n"));
    assert_eq!(view.table(&name()).unwrap().tablets(), table.tablets());
    assert_eq!(seen.owner_of(TabletId(10)), Some(owner(3, 3)));
    assert!(view.table(&TableName::new("n", "u")).is_none());
    assert!(
        view.is_outdated,
        "a table may have other tablets than those in the view"
    );
}

/// A leader would take the files that such a record names for nobody's.
#[tokio::test]
async fn nobody_leads_with_an_unreadable_record_that_may_name_files() {
    let tablet = record::tablet_key(TableId(1), TabletId(10));
    for key in [
        &tablet,
        "catalog/table/n/t",
        "catalog/snapshot/n/s",
        "catalog/namespace/n",
    ] {
        let coord = coord().await;
        let leader = process(&coord).await;
        let leading = leader.leading(&coord).await.catalog;
        leading.create_table(schema(1, 1), whole(10)).await.unwrap();
        spoil(&coord, &[key]).await;
        let next = leader.catalog.lead(elect(&coord).await, Arc::new(Third)).await;
        let error = next.err().expect("refused");
        assert!(matches!(error, CatalogError::Corruption { .. }), "{key}: {error:?}");
        assert!(Catalog::follow(coord).await.is_err(), "{key}");
    }
}

/// A newer program reads them, and would give rights on another table of the name.
#[tokio::test]
async fn unreadable_rules_go_with_their_table() {
    let coord = coord().await;
    let leader = process(&coord).await.leading(&coord).await.catalog;
    leader.create_table(schema(1, 1), whole(10)).await.unwrap();
    spoil(&coord, &["catalog/access/table/n/t"]).await;
    let rules = vec![AccessRule::whole(Member::Authenticated, Rights::READ)];
    let replaced = leader.set_rules(&Resource::Table(name()), rules, None).await;
    assert!(matches!(replaced, Err(CatalogError::Conflict { .. })), "{replaced:?}");
    leader.delete_table(&name()).await.unwrap();
    assert!(coord.list("catalog/access/").await.unwrap().is_empty());
}
