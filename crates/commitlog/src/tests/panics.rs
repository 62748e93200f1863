//! Tests of completions that panic, where a panic does not end the process.
//!
//! No writer hangs, and none is told of success whose record was not applied.
#![allow(clippy::panic, reason = "panics are what is tested")]

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stele_storage::memory::MemoryStorage;

/// Record `n` of tablet 1, whose completion panics, and the channel of its outcome.
fn bomb(n: u64, durability: Durability) -> (Append<Done>, oneshot::Receiver<Result<(), LogError>>) {
    let (answer, answered) = oneshot::channel::<Result<(), LogError>>();
    let done = Done(Box::new(move |outcome| {
        let _answer = answer;
        if outcome.is_ok() {
            panic!("planted: record {n} cannot be applied");
        }
    }));
    let append = Append {
        record: record(1, n),
        durability,
        done,
    };
    (append, answered)
}

/// Submits a bomb as any writer would.
async fn throw(log: &Log, n: u64, durability: Durability) -> oneshot::Receiver<Result<(), LogError>> {
    let (append, answered) = bomb(n, durability);
    let slot = log.stream.slot(100).await.unwrap();
    match slot.submit(append, durability, |append| (append, ())) {
        Submitted::Lead(mut lead, append) => match lead.try_commit(append.record.borrowed(), durability) {
            Some(outcome) => append.done.complete(outcome),
            None => lead.hand_over(append),
        },
        Submitted::Gathered(gathered, ()) => drop(gathered),
        Submitted::Queued(()) | Submitted::Closed => {}
    }
    answered
}

async fn begun() -> (Arc<dyn Storage>, Log) {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    log.write(0, Durability::Sync).await.unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    (storage, log)
}

/// Every outcome that is still due arrives, and none is a success; the same holds for later records.
async fn ended(log: &Log, due: Vec<oneshot::Receiver<Result<(), LogError>>>) {
    for answer in due {
        let outcome = tokio::time::timeout(Duration::from_secs(10), answer).await;
        let outcome = outcome.expect("a writer that is kept waiting");
        assert!(!matches!(outcome, Ok(Ok(()))), "told of success: {outcome:?}");
    }
    let late = tokio::time::timeout(Duration::from_secs(10), log.stream.slot(1)).await;
    assert!(matches!(late, Ok(Err(LogError::Closed))), "the stream goes on");
    let closing = tokio::time::timeout(Duration::from_secs(10), log.stream.close()).await;
    closing.expect("closing waits for nobody");
}

#[tokio::test]
async fn a_leader_that_panics_ends_the_stream() {
    let (storage, log) = begun().await;
    let mut due = Vec::new();
    {
        let slot = log.stream.slot(LARGE_BYTES).await.unwrap();
        let (append, _) = bomb(1, Durability::Flush);
        let Submitted::Lead(mut lead, append) = slot.submit(append, Durability::Flush, |append| (append, ())) else {
            panic!("the stream was idle");
        };
        for (n, durability) in [(2, Durability::Flush), (3, Durability::None), (4, Durability::Sync)] {
            due.push(log.submit(n, durability).await);
        }
        let outcome = lead.try_commit(append.record.borrowed(), Durability::Flush).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _lead = lead;
            append.done.complete(outcome);
        }));
        assert!(panicked.is_err());
    }
    ended(&log, due).await;
    let applied: Vec<_> = log
        .completed
        .lock()
        .iter()
        .filter(|(_, ok)| *ok)
        .map(|(n, _)| *n)
        .collect();
    assert_eq!(applied, [0]);
    assert_eq!(
        replayed(&storage).await.unwrap(),
        [0, 1],
        "what is in the log stays in it"
    );
}

#[tokio::test]
async fn a_follower_that_panics_takes_its_leader_along_and_no_other() {
    let (_storage, log) = begun().await;
    let slot = log.stream.slot(LARGE_BYTES).await.unwrap();
    let (append, answered) = log.append(1, 1, Durability::Flush);
    let Submitted::Lead(mut lead, append) = slot.submit(append, Durability::Flush, |append| (append, ())) else {
        panic!("the stream was idle");
    };
    let before = log.submit(2, Durability::Flush).await;
    let mut due = vec![throw(&log, 3, Durability::Flush).await];
    due.push(log.submit(4, Durability::Flush).await);
    let outcome = lead.try_commit(append.record.borrowed(), Durability::Flush).unwrap();
    append.done.complete(outcome);
    assert!(catch_unwind(AssertUnwindSafe(move || drop(lead))).is_err());
    answered.await.unwrap().unwrap();
    before.await.unwrap().unwrap();
    ended(&log, due).await;
}

#[tokio::test]
async fn a_task_that_panics_ends_the_stream() {
    for durability in [Durability::Sync, Durability::Flush] {
        let (_storage, log) = begun().await;
        let slot = log.stream.slot(100).await.unwrap();
        // Held by this one while the others queue up, then handed to the task.
        let (append, first) = log.append(1, 1, Durability::Sync);
        let Submitted::Lead(lead, append) = slot.submit(append, Durability::Sync, |append| (append, ())) else {
            panic!("the stream was idle");
        };
        let mut due = vec![throw(&log, 2, durability).await];
        for n in 3..6 {
            due.push(log.submit(n, durability).await);
        }
        lead.hand_over(append);
        let first = tokio::time::timeout(Duration::from_secs(10), first).await.unwrap();
        let applied = log.completed.lock().contains(&(1, true));
        assert_eq!(matches!(first, Ok(Ok(()))), applied);
        ended(&log, due).await;
    }
}
