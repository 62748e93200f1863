//! These tests run two processes that both believe to be the master. They also check the records that failed changes
//! leave behind.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use async_trait::async_trait;
use stele_coord::{CoordError, EmbeddedCoord};
use stele_env::tokio_env::TokioRuntime;
use stele_storage::StorageError;
use stele_storage::memory::MemoryStorage;

/// A coordinator that carries out the next transaction, or does not, and then says that nobody knows.
struct Unsure {
    coord: Arc<dyn Coord>,
    fails: AtomicBool,
    carries_out: bool,
    transactions: AtomicBool,
}

#[async_trait]
impl stele_coord::Layer for Unsure {
    fn below(&self) -> &dyn Coord {
        &*self.coord
    }

    async fn txn(&self, txn: Txn) -> stele_coord::Result<TxnOutcome> {
        self.transactions.store(true, Ordering::Relaxed);
        if !self.fails.swap(false, Ordering::Relaxed) {
            return self.coord.txn(txn).await;
        }
        if self.carries_out {
            let _ = self.coord.txn(txn).await?;
        }
        Err(CoordError::Storage(StorageError::Io {
            path: "coord".to_owned(),
            operation: "sync",
            message: "planted".to_owned(),
        }))
    }
}

async fn coord() -> Arc<dyn Coord> {
    EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current())
        .await
        .unwrap()
}

pub(crate) fn schema(id: u64, version: u64) -> TableSchema {
    TableSchema {
        version,
        ..TableSchema::new(TableId(id), TableName::new("n", "t"))
    }
}

/// The halves of all rows.
fn halves(left: u64, right: u64) -> Vec<(TabletId, RowRange)> {
    let middle = Bytes::from_static(b"m");
    let (mut below, mut above) = (RowRange::all(), RowRange::all());
    (below.end, above.start) = (Some(middle.clone()), middle);
    vec![(TabletId(left), below), (TabletId(right), above)]
}

/// Two catalogs over one coordinator, which know of a table with tablet 1.
async fn two() -> (Arc<dyn Coord>, Catalog, Catalog) {
    let coord = coord().await;
    let first = Catalog::load(coord.clone()).await.unwrap();
    let tablets = vec![(TabletId(1), RowRange::all())];
    first.create_table(schema(1, 1), tablets).await.unwrap();
    let second = Catalog::load(coord.clone()).await.unwrap();
    (coord, first, second)
}

fn is_conflict<T>(outcome: Result<T>) -> bool {
    matches!(outcome, Err(CatalogError::Conflict { .. }))
}

async fn tablets(coord: &Arc<dyn Coord>) -> Vec<u64> {
    let catalog = Catalog::load(coord.clone()).await.unwrap();
    let table = catalog.table(&TableName::new("n", "t")).unwrap();
    table.tablets().iter().map(|tablet| tablet.id.0).collect()
}

#[tokio::test]
async fn a_table_does_not_take_the_place_of_one_made_meanwhile() {
    let coord = coord().await;
    let first = Catalog::load(coord.clone()).await.unwrap();
    let second = Catalog::load(coord.clone()).await.unwrap();
    first.create_table(schema(1, 1), halves(1, 2)).await.unwrap();
    assert!(is_conflict(second.create_table(schema(2, 1), halves(3, 4)).await));
    assert_eq!(tablets(&coord).await, [1, 2]);
    // The second one wrote records of its tablets before it failed.
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_tablet_is_replaced_once() {
    let (coord, first, second) = two().await;
    let name = TableName::new("n", "t");
    first
        .replace_tablets(&name, &[TabletId(1)], halves(2, 3))
        .await
        .unwrap();
    assert!(is_conflict(
        second.replace_tablets(&name, &[TabletId(1)], halves(4, 5)).await
    ));
    assert!(is_conflict(
        first.replace_tablets(&name, &[TabletId(1)], halves(4, 5)).await
    ));
    assert_eq!(tablets(&coord).await, [2, 3]);
}

#[tokio::test]
async fn a_schema_does_not_undo_one_that_it_has_not_seen() {
    let (coord, first, second) = two().await;
    let name = TableName::new("n", "t");
    first.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    assert!(is_conflict(second.update_schema(schema(1, 3), |_| async {}).await));
    assert!(is_conflict(second.delete_table(&name).await));
    assert_eq!(
        second.table(&name).unwrap().schema.version,
        1,
        "nothing has changed here"
    );
    let now = Catalog::load(coord).await.unwrap();
    assert_eq!(now.table(&name).unwrap().schema.version, 2);
}

#[tokio::test]
async fn a_schema_is_told_when_it_is_durable_and_before_it_is_shown() {
    let (coord, catalog, _) = two().await;
    let name = TableName::new("n", "t");
    let version_of = |catalog: &Catalog| catalog.table(&name).unwrap().schema.version;
    let seen = std::cell::Cell::new((0, 0));
    let tell = |_: Arc<TableSchema>| async {
        let durable = Catalog::load(coord.clone()).await.unwrap();
        seen.set((version_of(&durable), version_of(&catalog)));
    };
    catalog.update_schema(schema(1, 2), tell).await.unwrap();
    assert_eq!((seen.get(), version_of(&catalog)), ((2, 1), 2));
}

#[tokio::test]
async fn identifiers_are_never_given_twice() {
    let (_, first, second) = two().await;
    let mut given = Vec::new();
    for count in [1, 3, 1_000, 2] {
        given.extend(first.allocate_ids(count).await.unwrap());
        given.extend(second.allocate_ids(count).await.unwrap());
    }
    assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
}

/// A start removes them: a later table of the same number would have them, too.
#[tokio::test]
async fn tablets_of_no_table_are_removed() {
    let (coord, first, _) = two().await;
    let key = record::table_key(&TableName::new("n", "t"));
    let writes = vec![Write::Delete { key }];
    first.commit(Vec::new(), writes).await.unwrap();
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 1);
    let catalog = Catalog::load(coord.clone()).await.unwrap();
    assert!(catalog.table(&TableName::new("n", "t")).is_err());
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 0);
}

/// Nothing is known of it in memory, and a transaction of its own settles it before the catalog is relied on.
#[tokio::test]
async fn a_change_of_unknown_outcome_is_settled() {
    for carries_out in [false, true] {
        let coord = Arc::new(Unsure {
            coord: coord().await,
            fails: AtomicBool::new(false),
            carries_out,
            transactions: AtomicBool::new(false),
        });
        let catalog = Catalog::load(coord.clone()).await.unwrap();
        catalog.settle().await.unwrap();
        assert!(!coord.transactions.load(Ordering::Relaxed), "nothing to settle");
        coord.fails.store(true, Ordering::Relaxed);
        let error = catalog.create_namespace("n", Bytes::new()).await.unwrap_err();
        assert!(error.is_ambiguous());
        assert!(catalog.view().namespaces.is_empty(), "not known to have happened");
        coord.fails.store(true, Ordering::Relaxed);
        catalog.settle().await.unwrap_err();
        coord.transactions.store(false, Ordering::Relaxed);
        catalog.settle().await.unwrap();
        assert!(coord.transactions.swap(false, Ordering::Relaxed), "not settled");
        catalog.settle().await.unwrap();
        assert!(!coord.transactions.load(Ordering::Relaxed), "settled once");
    }
}

/// Tablets between rows of four kilobytes, from this identifier on.
fn many(first: u64) -> Vec<(TabletId, RowRange)> {
    let row = |n: u64| match n {
        0 => Bytes::new(),
        n => Bytes::from(format!("{n:04096}")),
    };
    let range = |n: u64| RowRange {
        start: row(n),
        end: (n < 299).then(|| row(n + 1)),
    };
    (0..300).map(|n| (TabletId(first + n), range(n))).collect()
}

#[tokio::test]
async fn a_table_may_have_many_long_splits() {
    let coord = coord().await;
    let catalog = Catalog::load(coord.clone()).await.unwrap();
    catalog.create_table(schema(1, 1), many(1)).await.unwrap();
    assert_eq!(tablets(&coord).await.len(), 300);
}

#[tokio::test]
async fn a_table_that_is_refused_leaves_no_records_of_its_tablets() {
    let coord = coord().await;
    let catalog = Catalog::load(coord.clone()).await.unwrap();
    let mut large = schema(1, 1);
    large.front_end_data = vec![7; TXN_BYTES_MAX];
    let refused = catalog.create_table(large, many(1)).await.unwrap_err();
    assert_eq!(refused.kind(), stele_types::ErrorKind::InvalidArgument);
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 0);
    assert!(catalog.view().table(&TableName::new("n", "t")).is_none());
}

/// The tablets of a table, and records of tablets in all.
async fn tablets_and_records(coord: &Arc<dyn Coord>) -> (Vec<u64>, usize) {
    let records = coord.list(record::TABLETS).await.unwrap().len();
    (tablets(coord).await, records)
}

#[tokio::test]
async fn neighbours_are_replaced_by_one() {
    let (coord, first, second) = two().await;
    let name = TableName::new("n", "t");
    first
        .replace_tablets(&name, &[TabletId(1)], halves(2, 3))
        .await
        .unwrap();
    let whole = || vec![(TabletId(4), RowRange::all())];
    let both = [TabletId(2), TabletId(3)];
    assert!(is_conflict(second.replace_tablets(&name, &both, whole()).await));
    first.replace_tablets(&name, &both, whole()).await.unwrap();
    assert!(is_conflict(first.replace_tablets(&name, &both, whole()).await));
    assert_eq!(tablets_and_records(&coord).await, (vec![4], 1));
}

#[tokio::test]
async fn all_tablets_of_a_table_are_replaced_together() {
    let (coord, first, second) = two().await;
    let name = TableName::new("n", "t");
    let table = (&name, TableId(1));
    // More than one transaction takes.
    let row = |n: usize| Bytes::from(format!("{n:04}"));
    let many = |count: usize, from: u64| -> Vec<(TabletId, RowRange)> {
        let start = |n: usize| if n == 0 { Bytes::new() } else { row(n) };
        let end = |n: usize| (n + 1 < count).then(|| row(n + 1));
        let range = |n| RowRange {
            start: start(n),
            end: end(n),
        };
        (0..count).map(|n| (TabletId(from + n as u64), range(n))).collect()
    };
    first
        .replace_all_tablets(table, TableId(90), many(300, 100), None)
        .await
        .unwrap();
    let (found, records) = tablets_and_records(&coord).await;
    assert_eq!((found.len(), records), (300, 300));
    let refused = second.replace_all_tablets(table, TableId(91), many(2, 500), None).await;
    assert!(is_conflict(refused), "it has not seen the change");
    let other = first.replace_all_tablets((&name, TableId(7)), TableId(92), many(2, 500), None);
    assert!(is_conflict(other.await), "another table had the name");
    assert_eq!(tablets_and_records(&coord).await.1, 300);
    // Changes of the schema and of single tablets go on with them.
    first.update_schema(schema(1, 2), |_| async {}).await.unwrap();
    let two = [TabletId(100), TabletId(101)];
    let one = vec![(
        TabletId(600),
        RowRange {
            start: Bytes::new(),
            end: Some(row(2)),
        },
    )];
    first.replace_tablets(&name, &two, one).await.unwrap();
    let (found, records) = tablets_and_records(&coord).await;
    assert_eq!((found[0], found.len(), records), (600, 299, 299));
    first
        .replace_all_tablets(table, TableId(93), many(1, 700), None)
        .await
        .unwrap();
    assert_eq!(tablets_and_records(&coord).await, (vec![700], 1));
    first.delete_table(&name).await.unwrap();
    assert_eq!(coord.list(record::TABLETS).await.unwrap().len(), 0);
}

#[tokio::test]
async fn the_version_changes_with_every_change() {
    let catalog = Catalog::load(coord().await).await.unwrap();
    let empty = catalog.version();
    let tablets = vec![(TabletId(1), RowRange::all())];
    catalog.create_table(schema(1, 1), tablets).await.unwrap();
    let created = catalog.version();
    assert!(created > empty);
    // A read changes nothing, and neither does a change that fails.
    catalog.table(&TableName::new("n", "t")).unwrap();
    let again = vec![(TabletId(2), RowRange::all())];
    catalog.create_table(schema(2, 1), again).await.unwrap_err();
    assert_eq!(catalog.version(), created);
}

#[test]
fn a_transaction_takes_as_many_records_as_fit() {
    let change = |key: usize, value_bytes: usize| {
        let key = format!("k{key:05}");
        let value = Bytes::from(vec![b'v'; value_bytes]);
        (Some(Condition::absent(&key)), Write::Put { key, value })
    };
    let sizes = |records: usize, value_bytes: usize| {
        let mut changes = (0..records).map(|key| change(key, value_bytes)).peekable();
        let mut sizes = Vec::new();
        while changes.peek().is_some() {
            let (conditions, writes) = next_part(&mut changes);
            assert_eq!(conditions.len(), writes.len());
            sizes.push(writes.len());
        }
        sizes
    };
    assert_eq!(sizes(0, 1), [0; 0]);
    assert_eq!(sizes(RECORDS_TOGETHER + 1, 1), [RECORDS_TOGETHER, 1]);
    // The key counts in the condition and in the write.
    let third = RECORDS_BYTES_TOGETHER / 3 - 12;
    assert_eq!(sizes(7, third), [3, 3, 1]);
    assert_eq!(sizes(7, third + 1), [2, 2, 2, 1]);
    assert_eq!(sizes(2, RECORDS_BYTES_TOGETHER), [1, 1]);
}
