//! Tests of writers on several threads: leaders, followers and the task keep the order.

use super::*;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;

const TABLETS: u64 = 3;
const WRITERS: u64 = 8;
const RECORDS: u64 = 300;

/// The outcomes that one tablet was told, and the number of those out of order.
#[derive(Default)]
struct Tablet {
    /// Held while a record is numbered and submitted.
    next: Mutex<u64>,
    /// The numbers that were applied.
    applied: Mutex<Vec<u64>>,
}

/// One record of a tablet, applied when the log has it.
struct Apply {
    tablet: Arc<Tablet>,
    append: Append<Done>,
}

impl Apply {
    fn new(tablet: &Arc<Tablet>, id: u64, n: u64, durability: Durability, answer: oneshot::Sender<bool>) -> Apply {
        let to = tablet.clone();
        let done = Done(Box::new(move |outcome| {
            if outcome.is_ok() {
                to.applied.lock().push(n);
            }
            let _ = answer.send(outcome.is_ok());
        }));
        Apply {
            tablet: tablet.clone(),
            append: Append {
                record: record(id, n),
                durability,
                done,
            },
        }
    }
}

/// Writes the tablet's next record; its number, and whether it was acknowledged.
async fn write(log: &LogStream<Done>, tablet: &Arc<Tablet>, id: u64, durability: Durability) -> (u64, bool) {
    let (answer, answered) = oneshot::channel();
    let slot = log.slot(100).await.unwrap();
    let (n, submitted) = {
        let mut next = tablet.next.lock();
        let n = *next;
        *next += 1;
        let apply = Apply::new(tablet, id, n, durability, answer);
        (n, slot.submit(apply, durability, |apply| (apply.append, ())))
    };
    match submitted {
        Submitted::Lead(mut lead, apply) => match lead.try_commit(apply.append.record.borrowed(), durability) {
            Some(outcome) => {
                assert!(apply.tablet.applied.lock().last() < Some(&n), "a leader overtaken");
                apply.append.done.complete(outcome);
            }
            None => lead.hand_over(apply.append),
        },
        Submitted::Gathered(gathered, ()) => {
            // Some writers are in no hurry, so that others lead for them.
            for _ in 0..n % 3 {
                tokio::task::yield_now().await;
            }
            drop(gathered);
        }
        Submitted::Queued(()) | Submitted::Closed => {}
    }
    (n, answered.await.unwrap())
}

/// Runs all writers; every tablet's acknowledged records, in order.
async fn run(storage: Arc<dyn Storage>, durabilities: &'static [Durability]) -> Vec<Vec<u64>> {
    let log = Arc::new(Log::start(&storage, &Numbers::default(), 4 << 10, Vec::new()));
    let tablets: Arc<Vec<Arc<Tablet>>> = Arc::new((0..TABLETS).map(|_| Arc::default()).collect());
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (log, tablets) = (log.clone(), tablets.clone());
        writers.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for i in 0..RECORDS {
                let id = (writer + i) % TABLETS;
                let durability = durabilities[(writer * 7 + i) as usize % durabilities.len()];
                let (n, good) = write(&log.stream, &tablets[id as usize], id, durability).await;
                if good {
                    acknowledged.push((id, n));
                }
            }
            acknowledged
        }));
    }
    let mut acknowledged = vec![Vec::new(); TABLETS as usize];
    for writer in writers {
        for (id, n) in writer.await.unwrap() {
            acknowledged[id as usize].push(n);
        }
    }
    // The last refused record may come back, so another one is written behind it.
    loop {
        let (n, good) = write(&log.stream, &tablets[0], 0, Durability::Sync).await;
        if good {
            acknowledged[0].push(n);
            break;
        }
    }
    log.stream.close().await;
    for (tablet, mine) in tablets.iter().zip(&mut acknowledged) {
        mine.sort_unstable();
        assert_eq!(
            *tablet.applied.lock(),
            *mine,
            "applied out of order, twice, or not acknowledged"
        );
    }
    acknowledged
}

/// The numbers of every tablet's records that a recovery would find.
async fn recovered(storage: &Arc<dyn Storage>) -> Vec<Vec<u64>> {
    let mut found = vec![Vec::new(); TABLETS as usize];
    let visit = |record: Record| {
        found[record.tablet.0 as usize].push(number_of(&record));
        Ok::<(), LogError>(())
    };
    crate::replay(&**storage, visit).await.unwrap();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_of_a_tablet_are_applied_and_logged_in_order() {
    use Durability::{Flush, Sync};
    for durabilities in [&[Flush][..], &[Sync], &[Flush, Flush, Flush, Sync]] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let applied = run(storage.clone(), durabilities).await;
        assert_eq!(
            applied.iter().map(Vec::len).sum::<usize>() as u64,
            WRITERS * RECORDS + 1
        );
        assert_eq!(recovered(&storage).await, applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_fails_under_concurrent_writers_does_not_come_back() {
    use Durability::{Flush, Sync};
    for seed in 0..10 {
        let faulty = FaultyStorage::new(env(seed));
        faulty.set_plan(FaultPlan {
            append_error: 0.01,
            append_wait: 0.1,
            ..FaultPlan::default()
        });
        let storage: Arc<dyn Storage> = faulty.clone();
        let applied = run(storage.clone(), &[Flush, Flush, Sync]).await;
        faulty.set_plan(FaultPlan::default());
        assert!(faulty.counts().faults > 0);
        assert_eq!(recovered(&storage).await, applied);
    }
}
