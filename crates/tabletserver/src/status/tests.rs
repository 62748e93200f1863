#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::heat::map::HeatQuery;
use crate::recovery::tests::{TABLETS, Watched, first};
use bytes::Bytes;
use stele_client::TabletService;
use stele_storage::memory::MemoryStorage;
use stele_types::{FamilyId, Mutation, RowMutation, Timestamp};

fn put(row: &'static str) -> RowMutation {
    RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"v"),
        }],
    }
}

#[tokio::test]
async fn a_page_tells_what_a_tablet_holds() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let tablet = TABLETS[0];
    server.mutate(tablet, vec![put("left")].into(), None).await.unwrap();
    let before = server.page(tablet, 10).unwrap();
    assert!(before.line.memtable_bytes > 0 && before.line.files == 0);
    assert_eq!(
        (before.mutations, before.content.groups.len(), before.groups.len()),
        (1, 1, 1)
    );
    server.served(tablet).unwrap().tablet.flush().await.unwrap();
    let page = server.page(tablet, 10).unwrap();
    assert_eq!((page.line.runs, page.line.files, page.line.memtable_bytes), (1, 1, 0));
    let run = &page.content.groups[0].runs[0];
    let file = &run.first_files[0];
    assert_eq!((run.files, run.cells, file.rows, file.is_damaged), (1, 1, 1, false));
    let row = Bytes::from_static(b"left");
    assert_eq!(file.rows_within, Some((row.clone(), row)));
    assert_eq!(page.line.bytes, file.referenced);
    assert!(server.page(TabletId(12_345), 10).is_none());
}

#[tokio::test]
async fn figures_tell_where_the_bytes_are() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let tablet = TABLETS[0];
    server.mutate(tablet, vec![put("left")].into(), None).await.unwrap();
    let before = server.figures(tablet).await.unwrap();
    // Nothing counts operations before the first tick.
    assert_eq!(before.operations, None);
    let storage = before.storage.unwrap();
    assert!(storage.memtable_bytes > 0);
    assert_eq!(
        (storage.files, storage.file_bytes, before.bytes),
        (0, 0, storage.memtable_bytes)
    );
    server.served(tablet).unwrap().tablet.flush().await.unwrap();
    server.tick_heat(Duration::from_secs(1));
    let after = server.figures(tablet).await.unwrap();
    let storage = after.storage.unwrap();
    assert!(storage.file_bytes > 0 && after.operations.is_some());
    assert_eq!(
        (storage.files, storage.memtable_bytes, after.bytes),
        (1, 0, storage.file_bytes)
    );
    assert!(server.figures(TabletId(12_345)).await.is_err());
}

#[tokio::test]
async fn lines_are_of_the_tables_that_are_wanted() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let all = server.lines(|_, _| true);
    assert_eq!(all.len(), TABLETS.len());
    let table = all[0].table.clone();
    assert_eq!(server.lines(|_, name| *name == table).len(), TABLETS.len());
    assert!(server.lines(|_, name| *name != table).is_empty());
    assert_eq!(server.line_of(TABLETS[1]).unwrap().range, all[1].range);
}

#[tokio::test]
async fn operations_are_counted_from_the_first_tick_on() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let (tablet, row) = (TABLETS[0], Bytes::from_static(b"left"));
    server.tick_heat(Duration::from_secs(1));
    // The thread may have some thousand operations to go until it notices the first tick.
    for _ in 0..10_000 {
        let _ = server.try_read_row(tablet, &row, None).unwrap();
    }
    server.tick_heat(Duration::from_secs(1));
    for _ in 0..20 {
        server.mutate(tablet, vec![put("left")].into(), None).await.unwrap();
    }
    for _ in 0..30 {
        let _ = server.try_read_row(tablet, &row, None).unwrap();
    }
    server.tick_heat(Duration::from_secs(1));
    let page = server.page(tablet, 10).unwrap();
    assert!(
        page.operations.0 >= 30 && page.operations.1 > 0,
        "{:?}",
        page.operations
    );
    let operations = server.figures(tablet).await.unwrap().operations.unwrap();
    assert_eq!((operations.reads, operations.writes), page.operations);
    assert!(page.line.reads_per_second > 0.0 && page.line.writes_per_second > 0.0);
    let grid = server.heat().with_map(|map| {
        map.grid(&HeatQuery {
            table: server.served(tablet).unwrap().tablet.schema().id,
            rows: page.line.range.clone(),
            from: 0,
            to: i64::MAX / 2,
            columns_max: 10,
            ranges_max: 10,
        })
    });
    assert!(grid.starts.contains(&b"left".to_vec()), "{:?}", grid.starts);
}

#[tokio::test]
async fn memtables_that_wait_for_a_flush_are_told() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    assert_eq!(server.waiting(), []);
    server.mutate(TABLETS[0], vec![put("left")].into(), None).await.unwrap();
    server
        .parts
        .admission
        .unflushable
        .failed(TABLETS[0], "no space".to_owned());
    assert_eq!(server.waiting(), [(TABLETS[0], vec![Wait::FlushFailing])]);
    assert_eq!(
        server.page(TABLETS[0], 1).unwrap().flush_error.as_deref(),
        Some("no space")
    );
}
