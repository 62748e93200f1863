//! Tests of failing storages: refused records do not come back, and the log goes on.

use super::*;
use stele_storage::faulty::{FaultPlan, FaultyStorage};

fn appends_fail() -> FaultPlan {
    FaultPlan {
        append_error: 1.0,
        ..FaultPlan::default()
    }
}

fn syncs_fail() -> FaultPlan {
    FaultPlan {
        sync_error: 1.0,
        ..FaultPlan::default()
    }
}

/// Writes 0 and 1, then refuses those from 2 on, one by one, under each of the plans, then writes 100.
async fn refuse_under(plans: Vec<FaultPlan>) {
    // Randomness decides on the bytes whose sync failed.
    for seed in 0..20 {
        let faulty = FaultyStorage::new(env(seed));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        log.write(0, Durability::Sync).await.unwrap();
        log.write(1, Durability::Sync).await.unwrap();
        for (n, plan) in (2..).zip(&plans) {
            faulty.set_plan(plan.clone());
            log.write(n, Durability::Sync).await.unwrap_err();
        }
        faulty.set_plan(FaultPlan::default());
        log.write(100, Durability::Sync).await.unwrap();
        assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 100], "as the process sees it");
        faulty.crash();
        let storage: Arc<dyn Storage> = faulty.reopen();
        assert_eq!(replayed(&storage).await.unwrap(), [0, 1, 100], "after a power loss");
    }
}

#[tokio::test]
async fn a_group_whose_append_failed_does_not_come_back() {
    refuse_under(vec![appends_fail()]).await;
}

#[tokio::test]
async fn a_group_whose_sync_failed_does_not_come_back() {
    refuse_under(vec![syncs_fail()]).await;
}

#[tokio::test]
async fn groups_refused_one_after_the_other_do_not_come_back() {
    refuse_under(vec![syncs_fail(), syncs_fail()]).await;
    refuse_under(vec![syncs_fail(), appends_fail(), syncs_fail()]).await;
    let puts_fail = FaultPlan {
        put_error: 1.0,
        ..FaultPlan::default()
    };
    refuse_under(vec![syncs_fail(), puts_fail, syncs_fail()]).await;
}

/// A storage that is out of reach takes minutes to report it: no writer waits once for each group before its own.
#[tokio::test]
async fn what_queued_up_while_no_segment_could_be_begun_is_refused_at_once() {
    let faulty = FaultyStorage::new(env(3));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    faulty.set_plan(FaultPlan {
        put_error: 1.0,
        ..FaultPlan::default()
    });
    let mut outcomes = Vec::new();
    // Three groups.
    for n in 0..2_500 {
        outcomes.push(log.submit(n, Durability::Sync).await);
    }
    for outcome in outcomes {
        outcome.await.unwrap().unwrap_err();
    }
    assert_eq!(faulty.counts().faults, 1, "asked once");
    faulty.set_plan(FaultPlan::default());
    log.write(2_500, Durability::Sync).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), [2_500]);
    // The same order as for records that come one by one.
    assert!(
        log.completed.lock().iter().map(|(n, _)| *n).eq(0..2_501),
        "in their order"
    );
}

/// The segment that states the end of the one before is not deleted while that one exists.
#[tokio::test]
async fn flushing_another_tablet_does_not_bring_back_what_was_refused() {
    for seed in 0..20 {
        let faulty = FaultyStorage::new(env(seed));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        log.write(0, Durability::Sync).await.unwrap();
        faulty.set_plan(syncs_fail());
        log.write(1, Durability::Sync).await.unwrap_err();
        faulty.set_plan(FaultPlan::default());
        log.submit_for(2, 2, Durability::Sync).await.await.unwrap().unwrap();
        log.stream.rotate().await;
        log.stream
            .delete_unneeded(|tablet, _| tablet == TabletId(2))
            .await
            .unwrap();
        faulty.crash();
        let storage: Arc<dyn Storage> = faulty.reopen();
        assert_eq!(replayed(&storage).await.unwrap(), [0, 2]);
    }
}

/// Storage that another process may take over.
struct Owned(Arc<FaultyStorage>);

#[async_trait::async_trait]
impl stele_storage::Layer for Owned {
    fn below(&self) -> &dyn Storage {
        &*self.0
    }

    fn owner_epoch(&self) -> Option<u64> {
        Some(1)
    }
}

async fn log_files(storage: &Arc<FaultyStorage>) -> usize {
    storage.list("log/").await.unwrap().len()
}

/// Another process may have taken the log over before the next header, and serve the refused record.
#[tokio::test]
async fn a_segment_that_was_given_up_stays_until_a_header_states_its_end() {
    for may_be_taken in [true, false] {
        let faulty = FaultyStorage::new(env(1));
        let storage: Arc<dyn Storage> = match may_be_taken {
            true => Arc::new(Owned(faulty.clone())),
            false => faulty.clone(),
        };
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        let delete_all = || async { log.stream.delete_unneeded(|_, _| true).await.unwrap() };
        log.write(0, Durability::Sync).await.unwrap();
        faulty.set_plan(syncs_fail());
        log.write(1, Durability::Sync).await.unwrap_err();
        if may_be_taken {
            assert_eq!(delete_all().await, 0);
            // A process that took the log over may have read the header of the second one, and leave the refused record out.
            log.write(2, Durability::Sync).await.unwrap_err();
            assert_eq!((delete_all().await, log_files(&faulty).await), (0, 2));
            faulty.set_plan(FaultPlan::default());
            log.write(3, Durability::Sync).await.unwrap();
            assert_eq!(delete_all().await, 2);
        } else {
            // Nobody else has seen anything, and the space may be needed.
            assert_eq!(delete_all().await, 1);
        }
    }
}

#[tokio::test]
async fn failed_beginnings_leave_a_bounded_number_of_segments() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = Arc::new(Owned(faulty.clone()));
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    log.write(0, Durability::Sync).await.unwrap();
    faulty.set_plan(syncs_fail());
    for n in 1..60 {
        log.write(n, Durability::Sync).await.unwrap_err();
    }
    let left = log_files(&faulty).await;
    assert!((2..=10).contains(&left), "{left} segments are left");
    faulty.set_plan(FaultPlan::default());
    log.write(60, Durability::Sync).await.unwrap();
    log.stream.delete_unneeded(|_, _| true).await.unwrap();
    assert_eq!(log_files(&faulty).await, 1);
    assert_eq!(replayed(&storage).await.unwrap(), [60]);
}

/// A segment is never synced again if its sync has failed, or if it was given up for another reason.
#[tokio::test]
async fn it_is_known_whose_records_will_never_be_synced() {
    let holders = |log: &Log| log.stream.forsaken_holders(|_, seq| seq < record(1, 1).last);
    for plan in [syncs_fail(), appends_fail()] {
        let faulty = FaultyStorage::new(env(1));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
        log.write(0, Durability::Sync).await.unwrap();
        log.write(1, Durability::Flush).await.unwrap();
        faulty.set_plan(plan);
        log.submit_for(2, 2, Durability::Sync).await.await.unwrap().unwrap_err();
        faulty.set_plan(FaultPlan::default());
        assert!(holders(&log).into_iter().eq([TabletId(1)]));
        log.write(3, Durability::Sync).await.unwrap();
        assert!(holders(&log).into_iter().eq([TabletId(1)]));
        log.stream.delete_unneeded(|_, _| true).await.unwrap();
        assert_eq!(holders(&log).len(), 0);
        // All acknowledged records had been synced.
        faulty.set_plan(syncs_fail());
        log.write(4, Durability::Sync).await.unwrap_err();
        assert_eq!(holders(&log).len(), 0);
    }
}

#[tokio::test]
async fn a_failed_deletion_does_not_bring_back_what_was_refused() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    for n in 0..41 {
        faulty.set_plan(if n % 2 == 1 { syncs_fail() } else { FaultPlan::default() });
        assert_eq!(log.write(n, Durability::Sync).await.is_err(), n % 2 == 1);
    }
    faulty.set_plan(FaultPlan {
        put_error: 0.5,
        ..FaultPlan::default()
    });
    while log.stream.delete_unneeded(|_, _| true).await.is_err() {
        faulty.set_plan(FaultPlan::default());
        let found = replayed(&storage).await.unwrap();
        assert!(found.iter().all(|n| n % 2 == 0), "{found:?}");
        faulty.set_plan(FaultPlan {
            put_error: 0.5,
            ..FaultPlan::default()
        });
    }
}

#[tokio::test]
async fn a_full_disk_refuses_until_there_is_space() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = Log::start(&storage, &Numbers::default(), 1 << 20, Vec::new());
    log.write(0, Durability::Sync).await.unwrap();
    let used: u64 = storage.list("").await.unwrap().iter().map(|file| file.len).sum();
    faulty.set_plan(FaultPlan {
        space_limit: Some(used + 100),
        ..FaultPlan::default()
    });
    let mut accepted = vec![0];
    let mut refused = 0;
    for n in 1..10 {
        match log.write(n, Durability::Sync).await {
            Ok(()) => accepted.push(n),
            Err(error) => {
                assert!(crate::is_no_space(&error), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 5, "{accepted:?}");
    faulty.set_plan(FaultPlan::default());
    log.write(10, Durability::Sync).await.unwrap();
    accepted.push(10);
    assert_eq!(replayed(&storage).await.unwrap(), accepted);
    faulty.crash();
    let storage: Arc<dyn Storage> = faulty.reopen();
    assert_eq!(replayed(&storage).await.unwrap(), accepted);
}

/// Random writes with errors and power losses: records acknowledged with a sync come back, in order. Refused records come
/// back at most where the process ended before it wrote anything more.
#[tokio::test]
async fn acknowledged_records_survive_faults_and_power_loss() {
    for round in 0..60u64 {
        let env = env(round);
        let faulty = FaultyStorage::new(env.clone());
        let mut storage: Arc<dyn Storage> = faulty.clone();
        let mut device = faulty;
        let numbers = Numbers::default();
        let (mut n, mut acknowledged, mut maybe) = (0, Vec::new(), Vec::new());
        for _ in 0..5 {
            device.set_plan(FaultPlan {
                append_error: 0.05,
                sync_error: 0.05,
                put_error: 0.1,
                ..FaultPlan::default()
            });
            let log = Log::start(&storage, &numbers, 300, Vec::new());
            let mut refused_last = Vec::new();
            for _ in 0..env.random_below(30) {
                match log.write(n, Durability::Sync).await {
                    Ok(()) => {
                        acknowledged.push(n);
                        refused_last.clear();
                    }
                    Err(_) => refused_last.push(n),
                }
                n += 1;
            }
            maybe.append(&mut refused_last);
            device.crash();
            drop(log);
            device = device.reopen();
            storage = device.clone();
            device.set_plan(FaultPlan::default());
            let found = replayed(&storage).await.unwrap();
            assert!(found.is_sorted(), "round {round}: {found:?}");
            let lost: Vec<_> = acknowledged.iter().filter(|n| !found.contains(n)).collect();
            assert!(lost.is_empty(), "round {round}: lost {lost:?}");
            let back: Vec<_> = found
                .iter()
                .filter(|n| !acknowledged.contains(n) && !maybe.contains(n))
                .collect();
            assert!(back.is_empty(), "round {round}: {back:?} came back");
        }
    }
}

/// A closed segment that could not be synced: nothing that is promised later may rest on it.
#[tokio::test]
async fn a_failed_sync_of_a_closed_segment_costs_the_open_one() {
    for seed in 0..30 {
        let faulty = FaultyStorage::new(env(seed));
        let storage: Arc<dyn Storage> = faulty.clone();
        let log = Log::start(&storage, &Numbers::default(), 4 << 10, Vec::new());
        for n in 0..2 {
            log.write(n, Durability::Sync).await.unwrap();
        }
        let n = 120;
        for n in 2..n {
            log.write(n, Durability::Flush).await.unwrap();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        assert!(log.stream.unsynced_segments() > 1, "segments took over");
        faulty.set_plan(syncs_fail());
        log.write(n, Durability::Sync).await.unwrap_err();
        assert_eq!(log.stream.unsynced_segments(), 0, "the others are given up as well");
        assert!(log.stream.forsaken_holders(|_, _| false).into_iter().eq([TabletId(1)]));
        faulty.set_plan(FaultPlan::default());
        for n in n + 1..n + 4 {
            log.write(n, Durability::Sync).await.unwrap();
        }
        faulty.crash();
        let storage: Arc<dyn Storage> = faulty.reopen();
        let found = replayed(&storage).await.unwrap();
        assert!(found.is_sorted() && found.starts_with(&[0, 1]), "{found:?}");
        assert!(found.ends_with(&[n + 1, n + 2, n + 3]), "{found:?}");
        assert!(!found.contains(&n), "{found:?}");
    }
}
