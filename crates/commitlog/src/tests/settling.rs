//! Tests of records that are durable enough while older segments are synced for others.

use super::unsynced::{Slow, begun, pause, start, write_flushed};
use super::*;

/// Longer than everything else in a test.
const SYNC_STEPS: usize = 1000;

#[tokio::test]
async fn a_record_that_needs_no_sync_does_not_wait_for_older_segments() {
    let storage = Slow::with_syncs(SYNC_STEPS);
    let log = start(&storage);
    write_flushed(&log, 0..150).await;
    assert!(log.stream.unsynced_segments() > 1);
    let mut bound = log.submit(150, Durability::Sync).await;
    let mut free = log.submit_for(2, 151, Durability::Flush).await;
    pause().await;
    assert!(log.stream.unsynced_segments() > 0, "all of them are synced");
    assert!(
        matches!(free.try_recv(), Ok(Ok(()))),
        "waits for syncs of other records"
    );
    bound.try_recv().unwrap_err();
    bound.await.unwrap().unwrap();
}

/// The first of two records fills a segment; before the second can be written, that segment is synced once more, and so is
/// the beginning of the next.
#[tokio::test]
async fn a_synced_record_does_not_wait_for_the_end_of_its_segment() {
    let storage = Slow::with_syncs(SYNC_STEPS);
    let log = start(&storage);
    let mut filled = 0;
    for n in (0..600).step_by(3) {
        // The file of the next segment is made only where not everything is synced.
        write_flushed(&log, n..n + 1).await;
        let segments = begun(&storage).await;
        let mut first = log.submit(n + 1, Durability::Sync).await;
        // Its sync begins. A record behind it is in the next group.
        pause().await;
        let second = log.submit(n + 2, Durability::Sync).await;
        let mut steps = 0;
        while first.try_recv().is_err() {
            tokio::task::yield_now().await;
            steps += 1;
        }
        if begun(&storage).await > segments {
            filled += 1;
            assert!(steps < 2 * SYNC_STEPS, "record {} took {steps} steps", n + 1);
        }
        second.await.unwrap().unwrap();
    }
    assert!(filled > 1, "{filled} segments were filled by the first of two records");
}

/// A takeover of the log reads nothing of it where each segment stands alone, and all of it otherwise.
#[tokio::test]
async fn a_log_tells_whether_its_segments_depend_on_each_other() {
    for (durability, is_independent) in [(Durability::Sync, true), (Durability::Flush, false)] {
        let storage = Slow::with_syncs(0);
        let log = start(&storage);
        for n in 0..200 {
            log.submit(n, durability).await.await.unwrap().unwrap();
        }
        assert!(begun(&storage).await > 1);
        let report = crate::replay::<LogError>(&*storage, |_| Ok(())).await.unwrap();
        let bytes = crate::independent_bytes(&*storage).await.unwrap();
        assert_eq!(bytes, is_independent.then_some(report.bytes), "{durability:?}");
    }
}
