//! Tests of a storage that fails once, at every operation in turn.
//!
//! The segment is given up and replaced. All acknowledged records survive, and no refused record comes back.
#![allow(clippy::panic, reason = "a test says so when it fails")]

use super::*;
use async_trait::async_trait;
use stele_storage::AppendFile;
use stele_storage::faulty::{FaultPlan, FaultyStorage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Append,
    Sync,
}

/// Makes the n-th operation of one sort on a storage fail, in the way in which that storage fails.
struct FailsOnce {
    device: Arc<FaultyStorage>,
    which: Operation,
    left: Arc<AtomicU64>,
    plan: FaultPlan,
    failed_paths: Arc<Mutex<Vec<String>>>,
}

impl Clone for FailsOnce {
    fn clone(&self) -> Self {
        FailsOnce {
            device: self.device.clone(),
            which: self.which,
            left: self.left.clone(),
            plan: self.plan.clone(),
            failed_paths: self.failed_paths.clone(),
        }
    }
}

impl FailsOnce {
    fn new(device: &Arc<FaultyStorage>, which: Operation, nth: u64) -> Arc<FailsOnce> {
        let plan = match which {
            Operation::Create => FaultPlan {
                put_error: 1.0,
                ..FaultPlan::default()
            },
            Operation::Append => FaultPlan {
                append_error: 1.0,
                ..FaultPlan::default()
            },
            Operation::Sync => FaultPlan {
                sync_error: 1.0,
                ..FaultPlan::default()
            },
        };
        Arc::new(FailsOnce {
            device: device.clone(),
            which,
            left: Arc::new(AtomicU64::new(nth)),
            plan,
            failed_paths: Arc::default(),
        })
    }

    /// Called before an operation; arms the failure if this is the one.
    fn arm(&self, operation: Operation, path: &str) {
        let fails = self.which == operation && self.left.fetch_sub(1, Ordering::Relaxed) == 0;
        if fails {
            self.failed_paths.lock().push(path.to_owned());
            self.device.set_plan(self.plan.clone());
        }
    }

    fn disarm(&self) {
        self.device.set_plan(FaultPlan::default());
    }

    fn has_failed(&self) -> bool {
        !self.failed_paths.lock().is_empty()
    }
}

struct FailingFile {
    storage: FailsOnce,
    path: String,
    file: Box<dyn AppendFile>,
}

#[async_trait]
impl AppendFile for FailingFile {
    async fn append(&mut self, slices: &[Bytes]) -> stele_storage::Result<()> {
        self.storage.arm(Operation::Append, &self.path);
        let outcome = self.file.append(slices).await;
        self.storage.disarm();
        outcome
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<stele_storage::Result<()>> {
        self.storage.arm(Operation::Append, &self.path);
        let outcome = self.file.try_append(slices);
        self.storage.disarm();
        outcome
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        self.storage.arm(Operation::Sync, &self.path);
        let outcome = self.file.sync().await;
        self.storage.disarm();
        // Other tasks run while a device syncs.
        tokio::task::yield_now().await;
        outcome
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}

#[async_trait]
impl stele_storage::Layer for FailsOnce {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        self.arm(Operation::Create, path);
        let file = self.device.create(path).await;
        self.disarm();
        Ok(Box::new(FailingFile {
            storage: self.clone(),
            path: path.to_owned(),
            file: file?,
        }))
    }
    async fn sync_file(&self, path: &str) -> stele_storage::Result<()> {
        self.arm(Operation::Sync, path);
        let outcome = self.device.sync_file(path).await;
        self.disarm();
        outcome
    }
}

/// The result of a run.
struct Ran {
    /// For each record, by number: its durability, and whether it was acknowledged.
    outcomes: Vec<(Durability, bool)>,
    storage: Arc<FailsOnce>,
}

/// Writes over several segments with one failure on the way.
async fn run(device: &Arc<FaultyStorage>, which: Operation, nth: u64, durabilities: &[Durability]) -> Ran {
    let failing = FailsOnce::new(device, which, nth);
    let storage: Arc<dyn Storage> = failing.clone();
    let log = Log::start(&storage, &Numbers::default(), 1500, Vec::new());
    let mut outcomes = Vec::new();
    let cycle = durabilities.iter().cycle();
    for (n, durability) in (0..80).zip(cycle) {
        let acknowledged = log.write(n, *durability).await.is_ok();
        outcomes.push((*durability, acknowledged));
        for _ in 0..n % 4 {
            tokio::task::yield_now().await;
        }
    }
    // The header of the segment behind a refused record says that it does not count.
    while log.write(outcomes.len() as u64, Durability::Sync).await.is_err() {
        outcomes.push((Durability::Sync, false));
    }
    outcomes.push((Durability::Sync, true));
    let failed: Vec<usize> = (0..outcomes.len()).filter(|n| !outcomes[*n].1).collect();
    assert!(failed.len() <= 1, "one failure refused {failed:?}");
    log.stream.close().await;
    Ran {
        outcomes,
        storage: failing,
    }
}

/// Every operation of each sort fails in turn, until there is none left to fail.
async fn fail_every(which: Operation, durabilities: &[Durability]) -> u64 {
    for nth in 0.. {
        // Randomness decides on the bytes that a failure leaves behind.
        for seed in 0..2 {
            let device = FaultyStorage::new(env(seed));
            let ran = run(&device, which, nth, durabilities).await;
            if !ran.storage.has_failed() {
                return nth;
            }
            check(&device, &ran, &format!("{which:?} {nth}, seed {seed}")).await;
        }
    }
    0
}

async fn check(device: &Arc<FaultyStorage>, ran: &Ran, what: &str) {
    let numbers = |durability: Option<Durability>, acknowledged: bool| {
        let wanted = move |of: &(Durability, bool)| of.1 == acknowledged && durability.is_none_or(|d| d == of.0);
        (0..)
            .zip(&ran.outcomes)
            .filter(move |(_, of)| wanted(of))
            .map(|(n, _)| n)
    };
    let storage: Arc<dyn Storage> = device.clone();
    let found = replayed(&storage)
        .await
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    // A failed sync may cost the records in its file that asked for no sync; no other failure costs anything.
    if ran.storage.which != Operation::Sync {
        assert_eq!(found, numbers(None, true).collect::<Vec<_>>(), "{what}");
    }
    device.crash();
    let storage: Arc<dyn Storage> = device.reopen();
    let found = replayed(&storage)
        .await
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(found.is_sorted(), "{what}: {found:?}");
    for n in numbers(Some(Durability::Sync), true) {
        assert!(found.contains(&n), "{what}: {n} was lost");
    }
    for n in numbers(None, false) {
        assert!(!found.contains(&n), "{what}: {n} came back");
    }
}

#[tokio::test]
async fn any_one_failure_costs_at_most_what_it_refused() {
    use Durability::{Flush, Sync};
    let mixes: [&[Durability]; 4] = [
        &[Sync],
        &[Flush],
        &[Flush, Flush, Sync],
        &[
            Flush, Flush, Flush, Flush, Flush, Flush, Flush, Flush, Flush, Flush, Flush, Sync,
        ],
    ];
    let mut operations = 0;
    for mix in mixes {
        for which in [Operation::Create, Operation::Append, Operation::Sync] {
            operations += fail_every(which, mix).await;
        }
    }
    assert!(operations > 200, "{operations} operations");
}
