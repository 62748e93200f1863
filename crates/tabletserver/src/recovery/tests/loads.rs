//! Bulk loads and their repetitions, after restarts and in halves of splits.

use super::*;
use stele_client::{LoadSource, Loaded, ServiceError, ServiceResult, SortedCells, TabletControl, TabletService};
use stele_types::{Epoch, ErrorKind, RequestToken, RowMutation, SnapshotId};

const HALVES: (TabletId, TabletId) = (TabletId(11), TabletId(12));

type Cells = Vec<(Bytes, Mutation)>;

/// Cells, and then an error if there is one.
struct Fixed(Option<Cells>, Option<ServiceError>);

#[async_trait]
impl SortedCells for Fixed {
    async fn next(&mut self) -> ServiceResult<Option<Cells>> {
        match (self.0.take(), self.1.take()) {
            (Some(cells), error) => {
                self.1 = error;
                Ok(Some(cells))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }
}

fn put(value: &'static str) -> Mutation {
    Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(value.as_bytes()),
    }
}

fn source(rows: &[&'static str], value: &'static str, nonce: u64) -> LoadSource {
    let cells = rows.iter().map(|row| (Bytes::from_static(row.as_bytes()), put(value)));
    LoadSource {
        family: FamilyId(1),
        token: Some(RequestToken::Nonce { group: 1, nonce }),
        cells: Box::new(Fixed(Some(cells.collect()), None)),
    }
}

async fn write_to(server: &TabletServer, tablet: TabletId, row: &str, value: &'static str) {
    let row = RowMutation {
        row: Bytes::copy_from_slice(row.as_bytes()),
        mutations: vec![put(value)],
    };
    server.mutate(tablet, vec![row].into(), None).await.unwrap();
}

async fn write(server: &TabletServer, row: &str, value: &'static str) {
    write_to(server, TABLETS[0], row, value).await;
}

/// The value of a row, through the row cache.
fn value(server: &TabletServer, tablet: TabletId, row: &str) -> Option<Bytes> {
    let batch = server
        .get_row(tablet, row.as_bytes(), None)
        .unwrap()
        .expect("it is in memory");
    batch.into_batch().into_cells().first().map(|cell| cell.value.clone())
}

#[tokio::test]
async fn a_load_is_seen_immediately_and_after_a_restart() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    write(&server, "a", "written").await;
    write(&server, "c", "written").await;
    for _ in 0..3 {
        // Into the row cache.
        assert_eq!(value(&server, TABLETS[0], "a").unwrap(), "written");
        assert_eq!(value(&server, TABLETS[0], "b"), None);
    }
    let loaded = server
        .bulk_load(TABLETS[0], vec![source(&["a", "b"], "loaded", 1)])
        .await;
    assert_eq!(loaded, Ok(Loaded::All));
    let check = |server: &TabletServer| {
        for (row, expected) in [("a", "loaded"), ("b", "loaded"), ("c", "written")] {
            assert_eq!(value(server, TABLETS[0], row).unwrap(), expected);
        }
    };
    check(&server);
    // The answer was lost, and another client has written meanwhile.
    write(&server, "a", "later").await;
    let again = server
        .bulk_load(TABLETS[0], vec![source(&["a", "b"], "loaded", 1)])
        .await;
    assert_eq!(again, Ok(Loaded::All));
    assert_eq!(value(&server, TABLETS[0], "a").unwrap(), "later");
    drop(server);
    let server = start(&device, &catalog, 2).await.unwrap();
    let again = server
        .bulk_load(TABLETS[0], vec![source(&["a", "b"], "loaded", 1)])
        .await;
    assert_eq!(again, Ok(Loaded::All));
    assert_eq!(value(&server, TABLETS[0], "a").unwrap(), "later");
    server
        .bulk_load(TABLETS[0], vec![source(&["a"], "loaded", 2)])
        .await
        .unwrap();
    check(&server);
}

#[tokio::test]
async fn concurrent_repetitions_of_a_load_load_once() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let repeated = (0..8).map(|_| server.bulk_load(TABLETS[0], vec![source(&["a"], "v", 1)]));
    let answers = futures::future::join_all(repeated).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Loaded::All)), "{answers:?}");
    let state = server.served(TABLETS[0]).unwrap().tablet.state();
    assert_eq!(state.groups[0].files.len(), 1);
}

#[tokio::test]
async fn a_load_that_does_not_fit_or_fails_leaves_nothing() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let rows = vec![source(&["a", "z"], "v", 1)];
    assert_eq!(server.bulk_load(TABLETS[0], rows).await, Ok(Loaded::DoesNotFit));
    let broken = ServiceError::new(ErrorKind::InvalidArgument, "damaged");
    let mut failing = source(&["a"], "v", 2);
    failing.cells = Box::new(Fixed(
        Some(vec![(Bytes::from_static(b"a"), put("v"))]),
        Some(broken.clone()),
    ));
    let both = vec![source(&["b"], "v", 3), failing];
    assert_eq!(server.bulk_load(TABLETS[0], both).await, Err(broken));
    assert_eq!(value(&server, TABLETS[0], "b"), None);
    let elsewhere = server.bulk_load(TabletId(77), vec![source(&["a"], "v", 4)]).await;
    assert_eq!(elsewhere.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(server.parts.context.files.open_files().0, 0);
}

/// A manifest that cannot be written: the load is not acknowledged, and the next attempt is.
#[tokio::test]
async fn a_load_counts_when_its_manifest_is_there() {
    let device = Watched::over(MemoryStorage::new());
    let catalog = catalog(None).await;
    let server = first(&device, None).await;
    device.refuses_manifests.store(true, Ordering::Relaxed);
    let refused = server.bulk_load(TABLETS[0], vec![source(&["a"], "v", 1)]).await;
    assert!(refused.is_err());
    assert_eq!(value(&server, TABLETS[0], "a"), None);
    device.refuses_manifests.store(false, Ordering::Relaxed);
    let files = |paths: Vec<String>| paths.len();
    let before = files(device.paths("sst/").await);
    assert!(
        before >= 1,
        "the files of the refused load are there until the next manifest"
    );
    // A start finds the manifest without the files, and deletes them.
    drop(server);
    let server = start(&device, &catalog, 2).await.unwrap();
    assert_eq!(value(&server, TABLETS[0], "a"), None);
    let again = server.bulk_load(TABLETS[0], vec![source(&["a"], "v", 1)]).await;
    assert_eq!(again, Ok(Loaded::All));
    assert_eq!(value(&server, TABLETS[0], "a").unwrap(), "v");
}

#[tokio::test]
async fn a_load_and_a_split_wait_for_each_other() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    server
        .bulk_load(TABLETS[0], vec![source(&["a", "c"], "v", 1)])
        .await
        .unwrap();
    let at = Some(Bytes::from_static(b"b"));
    assert_eq!(server.prepare_split(TABLETS[0], HALVES, at.clone()).await.unwrap(), at);
    // The split has stopped the writers of the tablet, and ends while the load waits for its turn.
    let (late, ()) = tokio::join!(
        server.bulk_load(TABLETS[0], vec![source(&["d"], "v", 2)]),
        server.finish_replacement(TABLETS[0], true)
    );
    assert_eq!(late.unwrap_err().kind, ErrorKind::Unavailable);
    // The halves know the loads of the whole.
    write_to(&server, HALVES.0, "a", "later").await;
    let again = server.bulk_load(HALVES.0, vec![source(&["a"], "v", 1)]).await;
    assert_eq!(
        (again, value(&server, HALVES.0, "a").unwrap()),
        (Ok(Loaded::All), Bytes::from_static(b"later"))
    );
    server.bulk_load(HALVES.1, vec![source(&["d"], "v", 2)]).await.unwrap();
    assert_eq!(value(&server, HALVES.1, "d").unwrap(), "v");
}

/// Writers wait for a moment only, and none of their writes is lost.
#[tokio::test]
async fn writes_go_on_during_loads() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let writes = async {
        for n in 0..200 {
            write(&server, &format!("aw{n:03}"), "w").await;
            tokio::task::yield_now().await;
        }
    };
    let loads = async {
        for nonce in 0..10 {
            server
                .bulk_load(TABLETS[0], vec![source(&["a", "b", "c"], "v", nonce)])
                .await
                .unwrap();
        }
    };
    tokio::join!(writes, loads);
    for n in 0..200 {
        let row = format!("aw{n:03}");
        assert_eq!(value(&server, TABLETS[0], &row).unwrap(), "w", "{row}");
    }
    assert_eq!(value(&server, TABLETS[0], "b").unwrap(), "v");
}

/// A snapshot in between would be younger than the barrier, and lack the change: a restore would take it for one that has it. In a
/// cluster another process reads the manifest, after the flush.
#[tokio::test]
async fn no_snapshot_lists_files_between_a_barrier_and_the_change_behind_it() {
    for drops in [false, true] {
        let server = first(&Watched::over(MemoryStorage::new()), None).await;
        write(&server, "a", "v").await;
        server.flush(TABLETS[0]).await.unwrap();
        let served = server.served(TABLETS[0]).unwrap();
        let barring = served.barring.lock().await;
        let snapshot = server.take_snapshot(SnapshotId(5), vec![TABLETS[0]], true);
        let flush = server.flush_for_snapshot(TABLETS[0], served.tablet.epoch());
        let change = async {
            match drops {
                true => server.drop_rows(TABLETS[0], RowRange::all()).await,
                false => {
                    let load = vec![source(&["b"], "v", 1)];
                    server.bulk_load(TABLETS[0], load).await.map(drop)
                }
            }
        };
        let (mut snapshot, mut flush, mut change) = (Box::pin(snapshot), Box::pin(flush), Box::pin(change));
        for _ in 0..1_000 {
            assert!(futures::poll!(&mut snapshot).is_pending());
            assert!(futures::poll!(&mut flush).is_pending());
            assert!(futures::poll!(&mut change).is_pending());
            tokio::task::yield_now().await;
        }
        let parts = server.parts.context.storage.list("snapshots/").await.unwrap();
        assert!(parts.is_empty(), "the snapshot waits");
        assert!(value(&server, TABLETS[0], "a").is_some(), "nothing is dropped");
        assert_eq!(value(&server, TABLETS[0], "b"), None, "nothing is loaded");
        drop(barring);
        let (snapshot, flushed, changed) = tokio::join!(snapshot, flush, change);
        assert_eq!((snapshot.unwrap().parts, changed), (1, Ok(())));
        assert_eq!(flushed, Ok(()));
        let other = Epoch(served.tablet.epoch().0 + 1);
        let refused = server.flush_for_snapshot(TABLETS[0], other).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable);
    }
}
