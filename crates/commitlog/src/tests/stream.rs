//! Tests of order, groups, rotation, retention and the end of a stream.

use super::*;
use std::time::Duration;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;

#[tokio::test]
async fn records_complete_and_come_back_in_order() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 10, Vec::new());
    let durabilities = [Durability::Sync, Durability::Flush];
    let mut answers = Vec::new();
    for n in 0..200 {
        answers.push(log.submit(n, durabilities[n as usize % 2]).await);
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let expected: Vec<u64> = (0..200).collect();
    assert_eq!(
        log.completed.lock().iter().map(|(n, _)| *n).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(replayed(&storage).await.unwrap(), expected);
}

#[tokio::test]
async fn writers_that_wait_share_a_sync() {
    let faulty = FaultyStorage::new(env(1));
    let pause = Duration::from_millis(5);
    faulty.set_plan(FaultPlan {
        latency_min: pause,
        latency_max: pause,
        ..FaultPlan::default()
    });
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    let mut answers = Vec::new();
    for n in 0..100 {
        answers.push(log.submit(n, Durability::Sync).await);
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert!(
        faulty.counts().syncs <= 3,
        "{} syncs for records that were all there",
        faulty.counts().syncs
    );
}

#[tokio::test]
async fn what_needs_no_log_is_not_in_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    log.write(0, Durability::None).await.unwrap();
    assert_eq!(segments(&storage).await.len(), 0);
    log.write(1, Durability::Flush).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [1]);
}

#[tokio::test]
async fn segments_rotate_and_go_when_flushed() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 200, Vec::new());
    for n in 0..30 {
        log.submit_for(1 + n % 2, n, Durability::Sync)
            .await
            .await
            .unwrap()
            .unwrap();
    }
    let before = segments(&storage).await;
    assert!(before.len() > 5, "{before:?}");
    let on_storage: u64 = storage.list("log/").await.unwrap().iter().map(|file| file.len).sum();
    assert_eq!(log.stream.retained_bytes(), on_storage);

    // Only tablet 1 has flushed: every segment of more than one record has records of tablet 2, too.
    let holders = log.stream.oldest_holders(|tablet, _| tablet == TabletId(1));
    assert!(holders.is_empty() || holders == [TabletId(2)], "{holders:?}");
    let through = record(1, 9).last;
    log.stream.delete_unneeded(|_, seq| seq <= through).await.unwrap();
    let left = replayed(&storage).await.unwrap();
    assert!(
        left.contains(&10) && left.last() == Some(&29) && !left.contains(&0),
        "{left:?}"
    );

    log.stream.rotate().await;
    log.stream.delete_unneeded(|_, _| true).await.unwrap();
    assert_eq!(segments(&storage).await, Vec::<String>::new());
    assert_eq!(log.stream.retained_bytes(), 0);
    log.write(30, Durability::Sync).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [30]);
}

#[tokio::test]
async fn replayed_segments_are_kept_until_flushed() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let numbers = Numbers::default();
    let log = Log::start(&storage, &numbers, 200, Vec::new());
    for n in 0..10 {
        log.write(n, Durability::Sync).await.unwrap();
    }
    drop(log);
    let report = crate::replay(&*storage, |_| Ok::<(), LogError>(())).await.unwrap();
    let old = report
        .segments
        .into_iter()
        .map(|(_, number, info)| (number, info))
        .collect();
    let log = Log::start(&storage, &numbers, 200, old);
    log.write(10, Durability::Sync).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), (0..=10).collect::<Vec<_>>());
    let through = record(1, 9).last;
    log.stream.delete_unneeded(|_, seq| seq <= through).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [10]);
}

#[tokio::test]
async fn a_closed_stream_has_answered_all_and_takes_no_more() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    let answers = [
        log.submit(0, Durability::Sync).await,
        log.submit(1, Durability::Flush).await,
    ];
    log.stream.close().await;
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert!(matches!(log.stream.slot(1).await, Err(LogError::Closed)));
    assert!(matches!(
        log.stream.slot(usize::MAX).await,
        Err(LogError::TooLarge { .. })
    ));
}

/// Tablets that take turns: neither the stream nor a recovery may give a segment up for the first record of one of them.
#[tokio::test]
async fn a_segment_stays_until_the_newest_record_of_every_tablet_is_flushed() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    for n in 0..6 {
        let answer = log.submit_for(1 + n % 2, n, Durability::Flush).await;
        answer.await.unwrap().unwrap();
    }
    log.stream.rotate().await;
    let report = crate::replay(&*storage, |_| Ok::<(), LogError>(())).await.unwrap();
    let found = report
        .segments
        .into_iter()
        .map(|(_, number, info)| (number, info))
        .collect();
    let recovered = Log::start(&storage, &Numbers::default(), 1 << 20, found);
    let newest = [record(1, 4).last, record(2, 5).last];
    let flushed = |through: [SeqNo; 2]| move |tablet: TabletId, seq| seq <= through[tablet.0 as usize - 1];
    for stream in [&recovered.stream, &log.stream] {
        for (behind, tablet) in [(0, TabletId(1)), (1, TabletId(2))] {
            let mut through = newest;
            through[behind] = SeqNo(newest[behind].0 - 1);
            assert_eq!(stream.oldest_holders(flushed(through)), [tablet]);
            assert_eq!(stream.delete_unneeded(flushed(through)).await.unwrap(), 0);
        }
    }
    assert_eq!(log.stream.delete_unneeded(flushed(newest)).await.unwrap(), 1);
}
