//! Flushes and compactions that a client asks for.

use super::*;

/// Runs of the first tablet's only group, and its entries.
fn runs_and_cells(server: &TabletServer) -> (usize, u64) {
    let state = server.served(TABLETS[0]).unwrap().tablet.state();
    let cells = state.groups[0].files.iter().map(|file| file.reference.cells).sum();
    (state.groups[0].runs().count(), cells)
}

/// Five rows, and then the deletion of all but one, each in a file of its own. Rows go to the first tablet.
async fn write_and_delete(server: &TabletServer) {
    let row = |n: usize| Bytes::from(format!("a{n}"));
    for n in 0..5 {
        server
            .mutate(TABLETS[0], vec![put(&row(n))].into(), None)
            .await
            .unwrap();
    }
    server.flush(TABLETS[0]).await.unwrap();
    for n in 1..5 {
        let mut delete = put(&row(n));
        delete.mutations = vec![Mutation::DeleteRow { up_to: Timestamp::MAX }];
        server.mutate(TABLETS[0], vec![delete].into(), None).await.unwrap();
    }
    server.flush(TABLETS[0]).await.unwrap();
}

/// Waits until no compaction of the first tablet runs or was requested.
async fn wait_for_compactions(server: &TabletServer) {
    for _ in 0..1_000 {
        if server.compaction(TABLETS[0]).await.unwrap() == CompactionState::None {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("a compaction of ten rows takes ten seconds");
}

#[tokio::test]
async fn a_flush_leaves_nothing_in_memtables() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    let row = Bytes::from_static(b"left");
    server.mutate(TABLETS[0], vec![put(&row)].into(), None).await.unwrap();
    let state = || server.served(TABLETS[0]).unwrap().tablet.state();
    assert!(state().memtable_bytes() > 0);
    server.flush(TABLETS[0]).await.unwrap();
    let flushed = server.served(TABLETS[0]).unwrap().tablet.flushed_through();
    assert_eq!((state().memtable_bytes(), state().groups[0].files.len()), (0, 1));
    assert!(flushed >= server.served(TABLETS[0]).unwrap().tablet.visible());
    assert_eq!(kind(server.flush(TabletId(77)).await), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn a_major_compaction_leaves_one_run_without_deleted_cells() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    write_and_delete(&server).await;
    wait_for_compactions(&server).await;
    for _ in 0..2 {
        server.compact(TABLETS[0], true).await.unwrap();
        assert_eq!(server.compaction(TABLETS[0]).await.unwrap(), CompactionState::Major);
    }
    wait_for_compactions(&server).await;
    assert_eq!(runs_and_cells(&server), (1, 1));
    assert_eq!(scan(&server, TABLETS[0], RowSet::all()).await, 1);
    assert_eq!(
        kind(server.compact(TabletId(77), true).await),
        Some(ErrorKind::Unavailable)
    );
}

#[tokio::test]
async fn a_requested_check_counts_as_a_compaction_until_it_is_made() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    wait_for_compactions(&server).await;
    server.compact(TABLETS[0], false).await.unwrap();
    assert_eq!(server.compaction(TABLETS[0]).await.unwrap(), CompactionState::Minor);
    server.compact(TABLETS[0], true).await.unwrap();
    assert_eq!(
        server.compaction(TABLETS[0]).await.unwrap(),
        CompactionState::MajorAndMinor
    );
    assert_eq!(server.compaction(TABLETS[1]).await.unwrap(), CompactionState::None);
    wait_for_compactions(&server).await;
}

/// A split that waits for compactions waits for none that rewrites everything, nor does that wait in a worker's place.
#[tokio::test]
async fn a_major_compaction_waits_while_a_tablet_is_divided() {
    let server = first(&Watched::over(MemoryStorage::new()), None).await;
    write_and_delete(&server).await;
    wait_for_compactions(&server).await;
    let held = server.parts.compactions.hold_majors(TABLETS[0]);
    server.compact(TABLETS[0], true).await.unwrap();
    // Another tablet's has its turn meanwhile, and by then this one was looked at.
    server.compact(TABLETS[1], true).await.unwrap();
    while server.compaction(TABLETS[1]).await.unwrap() != CompactionState::None {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.compaction(TABLETS[0]).await.unwrap(), CompactionState::Major);
    drop(held);
    wait_for_compactions(&server).await;
    assert_eq!(runs_and_cells(&server), (1, 1));
}
