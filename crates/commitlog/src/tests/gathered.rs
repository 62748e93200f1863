//! Tests of small writes that share an append. Their writers let each other queue first.
#![allow(clippy::panic, reason = "panics are what one of them tests")]

use super::*;
use crate::Gathered;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stele_storage::faulty::{FaultPlan, FaultyStorage};

type Outcome = Result<(), LogError>;

/// A log with an open segment that holds record 0, and its storage.
struct Counted {
    log: Log,
    faulty: Arc<FaultyStorage>,
    storage: Arc<dyn Storage>,
    /// Appends before the test.
    appends: u64,
}

impl Counted {
    async fn begun() -> Counted {
        let faulty = FaultyStorage::new(env(1));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        log.write(0, Durability::Sync).await.unwrap();
        step().await;
        let appends = faulty.counts().appends;
        Counted {
            log,
            faulty,
            storage,
            appends,
        }
    }

    fn appends(&self) -> u64 {
        self.faulty.counts().appends - self.appends
    }

    fn completed(&self) -> Vec<u64> {
        self.log.completed.lock().iter().map(|(n, _)| *n).collect()
    }

    /// Submits record `n` of tablet 1, which must be gathered.
    fn gather(&self, n: u64, durability: Durability) -> (Gathered<'_, Done>, oneshot::Receiver<Outcome>) {
        let slot = self.log.stream.slot(100).now_or_never().unwrap().unwrap();
        let (append, answered) = self.log.append(1, n, durability);
        match slot.submit(append, durability, |append| (append, ())) {
            Submitted::Gathered(gathered, ()) => (gathered, answered),
            Submitted::Lead(..) => panic!("record {n} leads"),
            Submitted::Queued(()) => panic!("record {n} is queued"),
            Submitted::Closed => panic!("the stream is closed"),
        }
    }

    /// A writer as the tablet server has it.
    fn writer(&self, n: u64) -> BoxFuture<'_, Outcome> {
        let write = async move {
            let (gathered, answered) = self.gather(n, Durability::Flush);
            env(0).yield_to_neighbours().await;
            drop(gathered);
            answered.await.expect("every record is answered")
        };
        write.boxed()
    }

    async fn replayed(&self) -> Vec<u64> {
        replayed(&self.storage).await.unwrap()
    }
}

/// Lets the stream's task run until it waits.
async fn step() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn writers_of_one_task_share_an_append() {
    let counted = Counted::begun().await;
    let mut writers: Vec<_> = (1..=33).map(|n| counted.writer(n)).collect();
    for writer in &mut writers {
        assert!(writer.as_mut().now_or_never().is_none(), "they let each other queue");
    }
    assert_eq!((counted.appends(), counted.completed()), (0, vec![0]));
    for writer in writers {
        // No task of the log has run.
        writer.now_or_never().expect("all are answered").unwrap();
    }
    assert_eq!(counted.appends(), 1);
    let all: Vec<u64> = (0..=33).collect();
    assert_eq!(counted.completed(), all);
    assert_eq!(counted.replayed().await, all);
}

#[tokio::test]
async fn a_writer_alone_needs_no_task() {
    let counted = Counted::begun().await;
    for n in 1..=3 {
        let mut writer = counted.writer(n);
        assert!(writer.as_mut().now_or_never().is_none());
        writer.now_or_never().expect("it leads by itself").unwrap();
        assert_eq!(counted.appends(), n);
    }
}

#[tokio::test]
async fn a_writer_that_goes_away_holds_up_no_other() {
    for gone in [0, 1, 2] {
        let counted = Counted::begun().await;
        let mut writers: Vec<_> = (1..=3).map(|n| counted.writer(n)).collect();
        for writer in &mut writers {
            assert!(writer.as_mut().now_or_never().is_none());
        }
        drop(writers.remove(gone));
        assert_eq!(
            counted.completed(),
            [0, 1, 2, 3],
            "the record of the one that is gone, too"
        );
        for writer in writers {
            writer.now_or_never().expect("all are answered").unwrap();
        }
        assert_eq!(counted.appends(), 1);
        assert_eq!(counted.replayed().await, [0, 1, 2, 3]);
    }
}

#[tokio::test]
async fn records_of_writers_that_all_go_away_are_committed() {
    let counted = Counted::begun().await;
    let mut writers: Vec<_> = (1..=3).map(|n| counted.writer(n)).collect();
    for writer in &mut writers {
        assert!(writer.as_mut().now_or_never().is_none());
    }
    drop(writers);
    assert_eq!((counted.appends(), counted.completed()), (1, vec![0, 1, 2, 3]));
    counted.writer(4).await.unwrap();
    assert_eq!(counted.replayed().await, [0, 1, 2, 3, 4]);
}

/// Otherwise two event loops would cut each other's groups into single records.
#[tokio::test]
async fn a_writer_whose_record_is_committed_leaves_later_ones_alone() {
    let counted = Counted::begun().await;
    let (first, _) = counted.gather(1, Durability::Flush);
    let (second, _) = counted.gather(2, Durability::Flush);
    drop(first);
    assert_eq!(counted.completed(), [0, 1, 2]);
    let (third, _) = counted.gather(3, Durability::Flush);
    drop(second);
    assert_eq!((counted.appends(), counted.completed()), (1, vec![0, 1, 2]));
    drop(third);
    assert_eq!((counted.appends(), counted.completed()), (2, vec![0, 1, 2, 3]));
}

#[tokio::test]
async fn a_record_without_log_keeps_its_place_among_gathered_ones() {
    let counted = Counted::begun().await;
    let (first, _) = counted.gather(1, Durability::Flush);
    let (second, _) = counted.gather(2, Durability::None);
    let (_third, _) = counted.gather(3, Durability::Flush);
    drop(second);
    assert_eq!((counted.appends(), counted.completed()), (1, vec![0, 1, 2, 3]));
    drop(first);
    assert_eq!(counted.replayed().await, [0, 1, 3]);
}

#[tokio::test]
async fn a_sync_behind_gathered_records_goes_to_the_task_with_them() {
    let counted = Counted::begun().await;
    let (first, answered) = counted.gather(1, Durability::Flush);
    let synced = counted.log.submit(2, Durability::Sync).await;
    // The writer of the first has not gone on, and is not waited for.
    synced.await.unwrap().unwrap();
    answered.await.unwrap().unwrap();
    step().await;
    drop(first);
    assert_eq!(counted.completed(), [0, 1, 2]);
    assert_eq!(counted.replayed().await, [0, 1, 2]);
}

#[tokio::test]
async fn a_failed_append_refuses_all_that_were_gathered() {
    let counted = Counted::begun().await;
    let writers = join_all((1..=3).map(|n| counted.writer(n)));
    counted.faulty.set_plan(FaultPlan {
        append_error: 1.0,
        ..FaultPlan::default()
    });
    let outcomes = writers.await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Err(LogError::Storage(_)))),
        "{outcomes:?}"
    );
    counted.faulty.set_plan(FaultPlan::default());
    counted.writer(4).await.unwrap();
    counted.log.write(5, Durability::Sync).await.unwrap();
    assert_eq!(counted.replayed().await, [0, 4, 5]);
}

#[tokio::test]
async fn closing_completes_gathered_records() {
    let counted = Counted::begun().await;
    let (first, answered) = counted.gather(1, Durability::Flush);
    counted.log.stream.close().await;
    answered.await.unwrap().unwrap();
    drop(first);
    assert_eq!(counted.completed(), [0, 1]);
    assert_eq!(counted.replayed().await, [0, 1]);
}

#[tokio::test]
async fn a_panic_leaves_gathered_records_to_the_task() {
    let counted = Counted::begun().await;
    let (first, answered) = counted.gather(1, Durability::Flush);
    let (second, follows) = counted.gather(2, Durability::Flush);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _first = first;
        panic!("planted");
    }));
    assert!(panicked.is_err());
    assert_eq!(counted.completed(), [0], "a thread that panics commits nothing");
    answered.await.unwrap().unwrap();
    follows.await.unwrap().unwrap();
    drop(second);
    assert_eq!(counted.replayed().await, [0, 1, 2]);
}

/// Gathered records of more than one inline append are several groups; the leader needs no task for them.
#[tokio::test]
async fn more_than_an_append_may_hold_takes_several() {
    let counted = Counted::begun().await;
    let payload = Bytes::from(vec![7; 16 << 10]);
    let mut waiting = Vec::new();
    for n in 1..=40 {
        let slot = counted.log.stream.slot(payload.len()).await.unwrap();
        let (mut append, answered) = counted.log.append(1, n, Durability::Flush);
        append.record.payload = Payload::new(payload.clone());
        let Submitted::Gathered(gathered, ()) = slot.submit(append, Durability::Flush, |append| (append, ())) else {
            panic!("record {n} is not gathered");
        };
        waiting.push((gathered, answered));
    }
    let (first, _) = waiting.remove(0);
    drop(first);
    // 15 of them and their headers fit into 256 KiB.
    assert_eq!(counted.appends(), 3);
    assert_eq!(counted.completed(), (0..=40).collect::<Vec<_>>());
    for (_, answered) in waiting {
        answered.now_or_never().expect("all are answered").unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_large_record_leads_and_waits_for_no_neighbour() {
    let counted = Counted::begun().await;
    let slot = counted.log.stream.slot(LARGE_BYTES).await.unwrap();
    let (append, _) = counted.log.append(1, 1, Durability::Flush);
    let submitted = slot.submit(append, Durability::Flush, |append| (append, ()));
    assert!(matches!(submitted, Submitted::Lead(..)));
}
