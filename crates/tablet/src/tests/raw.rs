//! Raw reads, which return tombstones and deleted cells.

use super::{put, schema, tablet, write};
use crate::Tablet;
use crate::scan::{ScanSpec, TabletScanner};
use bytes::Bytes;
use futures::poll;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use stele_filter::{CompiledFilter, Filter};
use stele_types::{
    CellKind, DeleteRule, Family, FamilyId, GcRule, Mutation, RowBatch, RowSet, TableSchema, Timestamp, lifetime,
};

fn scanner(tablet: &Arc<Tablet>) -> TabletScanner {
    scanner_with(tablet, None)
}

fn scanner_with(tablet: &Arc<Tablet>, filter: Option<Arc<CompiledFilter>>) -> TabletScanner {
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter,
        reversed: false,
        raw: true,
        rows_limit: None,
    };
    TabletScanner::new(tablet.clone(), spec)
}

fn timestamps(batch: &RowBatch) -> impl Iterator<Item = i64> {
    batch.rows().flat_map(|(_, cells)| cells).map(|cell| cell.timestamp.0)
}

/// The timestamps of all entries.
async fn raw(tablet: &Arc<Tablet>) -> Vec<i64> {
    let (mut scanner, mut found) = (scanner(tablet), Vec::new());
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        found.extend(timestamps(&batch));
    }
    found
}

#[tokio::test]
async fn a_raw_read_returns_no_half_of_a_write() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    const CELLS: i64 = 20_000;
    for from in (0..CELLS).step_by(1000) {
        write(&tablet, (from..from + 1000).map(|at| put(at, "v")).collect());
    }
    let mut scanner = scanner(&tablet);
    let batch = {
        let mut next = pin!(scanner.next_batch());
        assert!(poll!(&mut next).is_pending(), "it pauses within the row");
        // Before the entries that have been read, and behind them.
        write(&tablet, vec![put(CELLS, "v"), put(-1, "v")]);
        next.await.unwrap().unwrap()
    };
    assert!(timestamps(&batch).eq((0..CELLS).rev()));
}

#[tokio::test]
async fn a_raw_read_returns_nothing_of_dropped_families() {
    let kept = schema(DeleteRule::BySequence, None);
    let tablet = tablet(kept.clone()).await;
    write(&tablet, vec![put(1, "v"), Mutation::DeleteRow { up_to: Timestamp(5) }]);
    let delete = Mutation::DeleteFamily {
        family: FamilyId(1),
        up_to: Timestamp(4),
    };
    write(&tablet, vec![delete]);
    assert_eq!(raw(&tablet).await, [5, 4, 1]);
    let mut dropped = TableSchema::clone(&kept);
    dropped.families.clear();
    tablet.set_schema(Arc::new(dropped));
    assert_eq!(raw(&tablet).await, [5], "a tombstone of the row is of no family");
}

#[tokio::test]
async fn a_raw_read_of_some_families_returns_tombstones_of_rows() {
    let mut of_two = TableSchema::clone(&schema(DeleteRule::BySequence, None));
    let family = of_two.families[&FamilyId(1)].clone();
    of_two.families.insert(
        FamilyId(2),
        Family {
            name: "g".to_owned(),
            ..family
        },
    );
    of_two.next_family = FamilyId(3);
    let of_two = Arc::new(of_two);
    let tablet = tablet(of_two.clone()).await;
    let in_other = Mutation::Put {
        family: FamilyId(2),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(3),
        value: Bytes::from_static(b"v"),
    };
    write(
        &tablet,
        vec![put(1, "v"), in_other, Mutation::DeleteRow { up_to: Timestamp(5) }],
    );
    let range = |family: &str| Filter::ColumnRange {
        family: family.to_owned(),
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    };
    let absent = Filter::FamilyRegex(Bytes::from_static(b"x"));
    for (filter, expected) in [
        (range("f"), &[(CellKind::DeleteRow, 5), (CellKind::Put, 1)][..]),
        // As the rights of a caller narrow a read.
        (
            Filter::FamilyRegex(Bytes::from_static(b"g")),
            &[(CellKind::DeleteRow, 5), (CellKind::Put, 3)],
        ),
        (absent, &[]),
    ] {
        let filter = Arc::new(filter.compile(&of_two).unwrap());
        let mut scanner = scanner_with(&tablet, Some(filter));
        let batch = scanner.next_batch().await.unwrap();
        let cells = batch.iter().flat_map(RowBatch::rows).flat_map(|(_, cells)| cells);
        let found: Vec<_> = cells.map(|cell| (cell.kind, cell.timestamp.0)).collect();
        assert_eq!(found, expected);
    }
}

/// Tombstones come before the cells of their column, also of newer ones, and filters take them as they come.
#[tokio::test]
async fn a_raw_read_with_a_filter_takes_tombstones_before_newer_cells() {
    let of_one = schema(DeleteRule::ByTimestamp, None);
    let tablet = tablet(of_one.clone()).await;
    let delete = Mutation::DeleteColumn {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        from: Timestamp::MIN,
        to: Timestamp(5),
    };
    write(&tablet, vec![put(3, "v"), put(10, "v"), delete]);
    let filter = Filter::ColumnRange {
        family: "f".to_owned(),
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    };
    for partial in [None, Some(1)] {
        let filter = Arc::new(filter.compile(&of_one).unwrap());
        let mut scanner = scanner_with(&tablet, Some(filter));
        scanner.set_partial_rows(partial);
        let mut found = Vec::new();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            found.extend(timestamps(&batch));
        }
        assert_eq!(found, [5, 10, 3]);
    }
}

#[tokio::test]
async fn a_raw_read_returns_no_expired_cells() {
    let minute = Some(GcRule::MaxAgeMicros(60_000_000));
    let tablet = tablet(schema(DeleteRule::BySequence, minute)).await;
    let now = tablet.env().wall_micros();
    let expiring = |timestamp, lifetime_ms| Mutation::ExpiringPut {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        stored: lifetime::stored(lifetime_ms, b"v"),
    };
    write(&tablet, vec![put(now, "young"), put(now - 120_000_000, "old")]);
    write(
        &tablet,
        vec![expiring(now - 2, 3_600_000), expiring(now - 1_000_000, 1)],
    );
    assert_eq!(raw(&tablet).await, [now, now - 2]);
}
