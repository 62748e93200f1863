//! Streams whose log is archived: groups have times, and segments stay until they are archived.

use super::*;
use crate::mark::{BarrierCause, LogClock, Mark};
use stele_storage::memory::MemoryStorage;

const GOLDEN: &[u8] = include_bytes!("../../testdata/v1-marks.log");
const TIME: i64 = 1_600_000_000_000_001;

/// The clock of the environment is at 0, so times are the floor.
fn start(storage: &Arc<dyn Storage>, segment_bytes: u64) -> Log {
    let numbers = Numbers::default();
    let options = LogOptions {
        clock: Some(LogClock::new(env(0), TIME)),
        ..options(segment_bytes)
    };
    let next = Arc::new(move || numbers.fetch_add(1, Ordering::Relaxed) + 1);
    let metrics = LogMetrics::new(&Metrics::new());
    let stream = LogStream::start(storage.clone(), env(0), 0, options, next, Vec::new(), metrics);
    Log {
        stream,
        completed: Arc::default(),
    }
}

#[tokio::test]
async fn groups_begin_with_their_times() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage, 1 << 20);
    log.write(1, Durability::Sync).await.unwrap();
    let barrier = Mark::Barrier {
        micros: TIME,
        tablet: TabletId(9),
        cause: BarrierCause::DroppedRows,
    };
    log.stream.mark(barrier).await.unwrap();
    log.write(2, Durability::Sync).await.unwrap();
    let path = crate::format::segment_path(0, 1);
    let content = storage.read_all(&path).await.unwrap();
    assert!(content == GOLDEN, "the bytes of marks have changed");
    let report = crate::replay(&*storage, |_| Ok::<(), LogError>(())).await.unwrap();
    assert_eq!((report.records, report.last_micros), (2, TIME));
    assert_eq!(report.segments[0].2.end, GOLDEN.len() as u64);
    assert_eq!(replayed(&storage).await.unwrap(), [1, 2]);
    let file = storage.open(&path).await.unwrap();
    let shown = crate::inspect(file, |_| String::new()).await.unwrap();
    assert_eq!(shown.matches("Time { micros: 1600000000000001 }").count(), 3, "{shown}");
    assert_eq!(shown.matches("Barrier").count(), 1, "{shown}");
}

/// Groups of leaders, and of several records, have one time each.
#[tokio::test]
async fn every_group_has_one_time() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage, 1 << 20);
    let mut answers = Vec::new();
    for n in 1..40 {
        let durability = if n % 5 == 0 {
            Durability::Sync
        } else {
            Durability::Flush
        };
        answers.push(log.submit_for(1 + n % 3, n, durability).await);
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let mut found = replayed(&storage).await.unwrap();
    found.sort_unstable();
    assert_eq!(found, (1..40).collect::<Vec<u64>>());
    let open = log.stream.positions().remove(0);
    let content = storage.read_all(&open.path).await.unwrap();
    assert_eq!((open.end, open.is_closed), (content.len() as u64, false));
    let mut pieces = crate::Pieces::new(0, open.number, 0);
    pieces.push(&content);
    pieces.take_header().unwrap();
    while let Some(group) = pieces.next_group().unwrap() {
        let marks = group.iter().filter(|record| Mark::of(record).is_some()).count();
        assert!(marks == 1 && Mark::of(&group[0]).is_some() && group.len() > 1);
    }
}

/// Under load some groups always wait. A mark is written before them, or its caller would wait as long as the load lasts.
#[tokio::test]
async fn a_mark_precedes_groups_that_wait() {
    const RECORDS: u64 = 6_000;
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage, 1 << 20);
    let mut answers = Vec::new();
    for n in 1..=RECORDS {
        answers.push(log.submit(n, Durability::Sync).await);
    }
    let barrier = Mark::Barrier {
        micros: TIME,
        tablet: TabletId(9),
        cause: BarrierCause::BulkLoad,
    };
    log.stream.mark(barrier).await.unwrap();
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let open = log.stream.positions().remove(0);
    let content = storage.read_all(&open.path).await.unwrap();
    let mut pieces = crate::Pieces::new(0, open.number, 0);
    pieces.push(&content);
    pieces.take_header().unwrap();
    let (mut records, mut before) = (0, None);
    while let Some(group) = pieces.next_group().unwrap() {
        for record in &group {
            match Mark::of(record) {
                Some(Mark::Barrier { .. }) => before = Some(records),
                Some(Mark::Time { .. }) => {}
                None => records += 1,
            }
        }
    }
    assert_eq!(records, RECORDS);
    let before = before.expect("the mark is in the log");
    assert!(before < RECORDS, "all records precede the mark");
}

#[tokio::test]
async fn segments_stay_until_they_are_archived() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage, 300);
    for n in 1..20 {
        log.write(n, Durability::Sync).await.unwrap();
    }
    let positions = log.stream.positions();
    let closed: Vec<u64> = positions.iter().filter(|at| at.is_closed).map(|at| at.number).collect();
    assert!(closed.len() > 3 && closed.is_sorted(), "{positions:?}");
    for at in &positions {
        let len = storage.open(&at.path).await.unwrap().len();
        assert_eq!(at.end, len, "every write was synced and acknowledged");
    }
    let all_flushed = |_, _| true;
    assert_eq!(log.stream.delete_unneeded(all_flushed).await.unwrap(), 0);
    assert!(log.stream.bytes_kept_for_archive(all_flushed) > 300);
    assert_eq!(log.stream.bytes_kept_for_archive(|_, _| false), 0);
    log.stream.archived(closed[0]);
    log.stream.archived(closed[1]);
    // The second states the end of the first, and the third that of the second.
    assert_eq!(log.stream.delete_unneeded(all_flushed).await.unwrap(), 2);
    closed.iter().for_each(|number| log.stream.archived(*number));
    assert_eq!(log.stream.delete_unneeded(all_flushed).await.unwrap(), closed.len() - 2);
    assert_eq!(log.stream.positions().len(), 1);
}
