//! Tablets that are replaced by others, and owners that end in between. The catalog alone says which there are at a start.

use super::*;
use stele_client::{TabletControl, TabletRead, TabletService};
use stele_types::{ErrorKind, RowSet};

const MERGED: TabletId = TabletId(21);

/// The catalog with these tablets.
async fn catalog_of(tablets: Vec<(TabletId, RowRange)>) -> Catalog {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    let catalog = Catalog::load(coord.await.unwrap()).await.unwrap();
    catalog.create_table(schema(None), tablets).await.unwrap();
    catalog
}

/// The values of rows of a tablet, as far as it has them.
async fn values(server: &TabletServer, tablet: TabletId, rows: &[&str]) -> Vec<Option<Bytes>> {
    let mut values = Vec::new();
    for row in rows {
        let request = TabletRead {
            rows: RowSet::new(vec![RowRange::single(&Bytes::copy_from_slice(row.as_bytes()))]),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
            waits: false,
        };
        let mut stream = TabletService::read(server, tablet, request).await.unwrap();
        let mut cells = Vec::new();
        while let Some(batch) = stream.next().await.unwrap() {
            cells.extend(batch.into_cells());
        }
        values.push(cells.into_iter().next().map(|cell| cell.value));
    }
    values
}

/// A server with rows in several runs of both tablets, and in memtables.
async fn filled(device: &Arc<Watched>) -> Arc<TabletServer> {
    let server = first(device, None).await;
    for value in ["first", "second", "last"] {
        for (tablet, row) in [
            (TABLETS[0], "a"),
            (TABLETS[0], "c"),
            (TABLETS[1], "m"),
            (TABLETS[1], "z"),
        ] {
            write(&server, tablet, row, value).await;
        }
        if value != "last" {
            server.served(TABLETS[0]).unwrap().tablet.flush().await.unwrap();
            server.served(TABLETS[1]).unwrap().tablet.flush().await.unwrap();
        }
    }
    write(&server, TABLETS[1], "p", "only").await;
    server
}

fn all_rows() -> [Option<Bytes>; 5] {
    ["last", "last", "last", "only", "last"].map(|value| Some(Bytes::from_static(value.as_bytes())))
}

const ROWS: [&str; 5] = ["a", "c", "m", "p", "z"];

#[tokio::test]
async fn a_merged_tablet_has_the_rows_of_all_and_survives_its_owner() {
    let device = Watched::over(MemoryStorage::new());
    let server = filled(&device).await;
    server.prepare_merge(TABLETS.to_vec(), MERGED).await.unwrap();
    server.finish_replacement(TABLETS[0], true).await;
    for tablet in TABLETS {
        let refused = server.served(tablet).map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(ErrorKind::Unavailable));
        assert!(device.paths(&manifest::directory(tablet)).await.is_empty());
    }
    assert_eq!(server.served(MERGED).unwrap().tablet.range(), &RowRange::all());
    assert_eq!(values(&server, MERGED, &ROWS).await, all_rows());
    let runs = |server: &TabletServer| server.served(MERGED).unwrap().tablet.state().groups[0].runs().count();
    assert!(runs(&server) <= 3, "as many as one of the two had");
    // Writes and compactions go on.
    write(&server, MERGED, "c", "newer").await;
    write(&server, MERGED, "q", "newer").await;
    let newer = ["last", "newer", "last", "only", "newer"].map(|value| Some(Bytes::from_static(value.as_bytes())));
    let rows = ["a", "c", "m", "p", "q"];
    assert_eq!(values(&server, MERGED, &rows).await, newer);
    server.served(MERGED).unwrap().tablet.compact_all().await.unwrap();
    assert_eq!(
        (values(&server, MERGED, &rows).await, runs(&server)),
        (newer.to_vec(), 1)
    );
    write(&server, MERGED, "z", "in the log").await;
    drop(server);

    let again = start(&device, &catalog_of(vec![(MERGED, RowRange::all())]).await, 2)
        .await
        .unwrap();
    assert_eq!(values(&again, MERGED, &rows).await, newer);
    assert_eq!(
        values(&again, MERGED, &["z"]).await,
        [Some(Bytes::from_static(b"in the log"))]
    );
    again.shut_down().await;
}

/// Killed between the halves: the catalog names the old tablets, or the new one.
#[tokio::test]
async fn an_owner_that_ends_during_a_merge_leaves_all_rows() {
    for is_committed in [false, true] {
        let device = Watched::over(MemoryStorage::new());
        let server = filled(&device).await;
        server.prepare_merge(TABLETS.to_vec(), MERGED).await.unwrap();
        drop(server);
        let tablets = match is_committed {
            true => vec![(MERGED, RowRange::all())],
            false => ranges(),
        };
        let again = start(&device, &catalog_of(tablets).await, 2).await.unwrap();
        let found = match is_committed {
            true => values(&again, MERGED, &ROWS).await,
            false => {
                let mut found = values(&again, TABLETS[0], &ROWS[..2]).await;
                found.extend(values(&again, TABLETS[1], &ROWS[2..]).await);
                found
            }
        };
        assert_eq!(found, all_rows(), "committed: {is_committed}");
        // Those that the catalog does not name are removed.
        let gone = if is_committed { TABLETS.to_vec() } else { vec![MERGED] };
        for tablet in gone {
            for _ in 0..500 {
                if device.paths(&manifest::directory(tablet)).await.is_empty() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            assert!(device.paths(&manifest::directory(tablet)).await.is_empty(), "{tablet}");
        }
        again.shut_down().await;
    }
}

#[tokio::test]
async fn a_merge_that_is_not_committed_leaves_the_tablets_as_they_were() {
    let device = Watched::over(MemoryStorage::new());
    let server = filled(&device).await;
    server.prepare_merge(TABLETS.to_vec(), MERGED).await.unwrap();
    // Writers wait in between.
    let rows = writes("a", "later");
    let mut write = Box::pin(server.write(TABLETS[0], &rows, None));
    for _ in 0..10 {
        assert!(futures::poll!(&mut write).is_pending());
        tokio::task::yield_now().await;
    }
    server.finish_replacement(TABLETS[0], false).await;
    write.await.unwrap();
    assert!(server.served(MERGED).is_err());
    assert!(device.paths(&manifest::directory(MERGED)).await.is_empty());
    assert_eq!(
        values(&server, TABLETS[0], &["a"]).await,
        [Some(Bytes::from_static(b"later"))]
    );
    // Once more, over files that were released once.
    server.prepare_merge(TABLETS.to_vec(), TabletId(22)).await.unwrap();
    server.finish_replacement(TABLETS[0], true).await;
    assert_eq!(
        values(&server, TabletId(22), &["p"]).await,
        [Some(Bytes::from_static(b"only"))]
    );
    server.shut_down().await;
}

/// The halves share files, of which the merged tablet refers to both parts again.
#[tokio::test]
async fn halves_are_merged_again() {
    let device = Watched::over(MemoryStorage::new());
    let server = filled(&device).await;
    let halves = (TabletId(11), TabletId(12));
    let at = Bytes::from_static(b"b");
    let row = server
        .prepare_split(TABLETS[0], halves, Some(at.clone()))
        .await
        .unwrap();
    assert_eq!(row, Some(at));
    server.finish_replacement(TABLETS[0], true).await;
    // One has another run at the bottom then.
    server.served(halves.1).unwrap().tablet.compact_all().await.unwrap();
    write(&server, halves.0, "a", "newer").await;
    let parts = vec![halves.0, halves.1, TABLETS[1]];
    server.prepare_merge(parts, MERGED).await.unwrap();
    server.finish_replacement(halves.0, true).await;
    let mut expected = all_rows();
    expected[0] = Some(Bytes::from_static(b"newer"));
    assert_eq!(values(&server, MERGED, &ROWS).await, expected);
    server.served(MERGED).unwrap().tablet.compact_all().await.unwrap();
    assert_eq!(values(&server, MERGED, &ROWS).await, expected);
    server.shut_down().await;
}

#[tokio::test]
async fn a_truncated_table_is_empty_and_stays_so() {
    for is_committed in [false, true] {
        let device = Watched::over(MemoryStorage::new());
        let server = filled(&device).await;
        let empty = vec![(MERGED, RowRange::all())];
        server
            .prepare_truncation(Arc::new(schema(None)), TABLETS.to_vec(), empty.clone())
            .await
            .unwrap();
        if is_committed {
            server.finish_replacement(TABLETS[0], true).await;
            assert!(TABLETS.into_iter().all(|tablet| server.served(tablet).is_err()));
            assert_eq!(values(&server, MERGED, &ROWS).await, [const { None }; 5]);
            write(&server, MERGED, "c", "new").await;
        }
        drop(server);
        // Killed behind the commit of the catalog: at the next start it is done.
        let again = start(&device, &catalog_of(empty).await, 2).await.unwrap();
        let found = values(&again, MERGED, &ROWS).await;
        let expected = is_committed.then_some(Bytes::from_static(b"new"));
        assert_eq!(found, [None, expected, None, None, None]);
        again.shut_down().await;
    }
}
