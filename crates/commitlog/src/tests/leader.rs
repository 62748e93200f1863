//! Tests of the parties that commit, and of their order, one step at a time.

use super::*;
use crate::{Lead, Slot};
use futures::FutureExt as _;
use std::time::Duration;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;

impl Log {
    /// Record `n` of a tablet as it is submitted, and the channel of its outcome.
    pub(super) fn append(
        &self,
        tablet: u64,
        n: u64,
        durability: Durability,
    ) -> (Append<Done>, oneshot::Receiver<Result<(), LogError>>) {
        let (answer, answered) = oneshot::channel();
        let completed = self.completed.clone();
        let done = Done(Box::new(move |outcome| {
            completed.lock().push((n, outcome.is_ok()));
            let _ = answer.send(outcome);
        }));
        let record = record(tablet, n);
        let append = Append {
            record,
            durability,
            done,
        };
        (append, answered)
    }

    fn order(&self) -> Vec<u64> {
        self.completed.lock().iter().map(|(n, _)| *n).collect()
    }
}

/// A log that has an open segment.
async fn begun(storage: &Arc<dyn Storage>) -> Log {
    let log = Log::start(storage, &Numbers::default(), 1 << 20, Vec::new());
    log.write(0, Durability::Sync).await.unwrap();
    log
}

/// Submits a record as the stream's leader.
fn lead<'a>(slot: Slot<'a, Done>, append: Append<Done>) -> Option<(Lead<'a, Done>, Append<Done>)> {
    let durability = append.durability;
    match slot.submit(append, durability, |append| (append, ())) {
        Submitted::Lead(lead, append) => Some((lead, append)),
        Submitted::Gathered(..) | Submitted::Queued(()) | Submitted::Closed => None,
    }
}

/// Lets the stream's task run until it waits.
async fn step() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_leader_needs_no_task_and_commits_for_its_followers() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = begun(&storage).await;
    step().await;
    let first = log.stream.slot(LARGE_BYTES).await.unwrap();
    let second = log.stream.slot(10).await.unwrap();
    let (leading, _answer) = log.append(1, 1, Durability::Flush);
    let (mut lead, leading) = lead(first, leading).expect("the stream was idle");
    let (following, followed) = log.append(1, 2, Durability::Flush);
    assert!(matches!(
        second.submit(following, Durability::Flush, |append| (append, ())),
        Submitted::Queued(())
    ));
    lead.try_commit(leading.record.borrowed(), Durability::Flush)
        .unwrap()
        .unwrap();
    leading.done.complete(Ok(()));
    assert_eq!(log.order(), [0, 1]);
    drop(lead);
    assert_eq!(log.order(), [0, 1, 2], "without a task having run");
    followed.await.unwrap().unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn a_record_handed_over_stays_ahead_of_those_behind_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = begun(&storage).await;
    step().await;
    let slots = [log.stream.slot(10).await.unwrap(), log.stream.slot(10).await.unwrap()];
    let [first, second] = slots;
    let (leading, _answer) = log.append(1, 1, Durability::Sync);
    let (mut lead, leading) = lead(first, leading).expect("the stream was idle");
    let (following, followed) = log.append(1, 2, Durability::Sync);
    assert!(matches!(
        second.submit(following, Durability::Sync, |append| (append, ())),
        Submitted::Queued(())
    ));
    assert!(
        lead.try_commit(leading.record.borrowed(), Durability::Sync).is_none(),
        "a leader does not sync"
    );
    lead.hand_over(leading);
    followed.await.unwrap().unwrap();
    assert_eq!(log.order(), [0, 1, 2]);
    assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn a_leader_whose_append_fails_leaves_a_usable_stream() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = begun(&storage).await;
    step().await;
    faulty.set_plan(FaultPlan {
        append_error: 1.0,
        ..FaultPlan::default()
    });
    let refused = log.submit(1, Durability::Flush).await.now_or_never();
    assert!(matches!(refused, Some(Ok(Err(LogError::Storage(_))))));
    faulty.set_plan(FaultPlan::default());
    log.write(2, Durability::Flush).await.unwrap();
    log.write(3, Durability::Flush).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [0, 2, 3]);
}

/// While the sync of record 1 runs, a record that wants none and one that wants another queue up.
async fn during_a_sync(tablet: u64) -> (Vec<u64>, Vec<(u64, bool)>) {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = begun(&storage).await;
    step().await;
    let pause = Duration::from_millis(20);
    faulty.set_plan(FaultPlan {
        latency_min: pause,
        latency_max: pause,
        ..FaultPlan::default()
    });
    let first = log.submit_for(1, 1, Durability::Sync).await;
    step().await;
    let second = log.submit_for(1, 2, Durability::Sync).await;
    let flushed = log.submit_for(tablet, 3, Durability::Flush).await;
    let third = log.submit_for(1, 4, Durability::Sync).await;
    first.await.unwrap().unwrap();
    step().await;
    let early = log.order();
    for answer in [second, flushed, third] {
        answer.await.unwrap().unwrap();
    }
    let all = log.completed.lock().clone();
    (early, all)
}

#[tokio::test]
async fn what_wants_no_sync_waits_for_none_that_begins_after_it() {
    let (early, all) = during_a_sync(2).await;
    assert_eq!(
        early,
        [0, 1, 3],
        "the other tablet's record waited for the sync of 2 and 4"
    );
    assert_eq!(all, [(0, true), (1, true), (3, true), (2, true), (4, true)]);
}

#[tokio::test]
async fn a_tablets_records_are_applied_in_order_whatever_they_want() {
    let (early, all) = during_a_sync(1).await;
    assert_eq!(early, [0, 1], "3 overtook 2, a record of the same tablet");
    assert_eq!(all, [(0, true), (1, true), (2, true), (3, true), (4, true)]);
}

/// A failed sync does not harm records that were acknowledged before it began, nor bring back those it refused.
#[tokio::test]
async fn the_free_part_of_a_group_outlives_a_failed_sync() {
    let mut kept = 0;
    for seed in 0..20 {
        let faulty = FaultyStorage::new(env(seed));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = begun(&storage).await;
        step().await;
        let pause = Duration::from_millis(2);
        let slow = FaultPlan {
            latency_min: pause,
            latency_max: pause,
            ..FaultPlan::default()
        };
        faulty.set_plan(slow.clone());
        let first = log.submit_for(1, 1, Durability::Sync).await;
        step().await;
        let bound = log.submit_for(1, 2, Durability::Sync).await;
        let free = log.submit_for(2, 3, Durability::Flush).await;
        first.await.unwrap().unwrap();
        faulty.set_plan(FaultPlan {
            sync_error: 1.0,
            ..slow
        });
        free.await.unwrap().unwrap();
        bound.await.unwrap().unwrap_err();
        faulty.set_plan(FaultPlan::default());
        log.write(4, Durability::Sync).await.unwrap();
        let found = replayed(&storage).await.unwrap();
        // After a failed sync the unsynced bytes survive at random, so 3 may be gone from the log: "flush" promises no more.
        assert!(found == [0, 1, 3, 4] || found == [0, 1, 4], "{found:?}");
        kept += usize::from(found.contains(&3));
    }
    assert!(kept > 0, "what was acknowledged does not count");
}
