//! The simulated storage over many seeds.

use super::*;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_env::{BlockingWork, Priority, Runtime};

/// A seed and no clock: sleeping yields once.
struct Seeded(AtomicU64);

impl Runtime for Seeded {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn wall_micros(&self) -> i64 {
        0
    }
    /// SplitMix64.
    fn random_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::task::yield_now())
    }
    fn spawn(&self, _: Priority, _: &'static str, _: BoxFuture<'static, ()>) {}
    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

fn env(seed: u64) -> Env {
    Env::new(Arc::new(Seeded(AtomicU64::new(seed))))
}

async fn write(storage: &FaultyStorage, path: &str, synced: &[u8], unsynced: &[u8]) {
    let mut file = storage.create(path).await.unwrap();
    if !synced.is_empty() {
        file.append(&[Bytes::copy_from_slice(synced)]).await.unwrap();
        file.sync().await.unwrap();
    }
    file.append(&[Bytes::copy_from_slice(unsynced)]).await.unwrap();
}

#[tokio::test]
async fn conforms_without_faults() {
    crate::conformance::run_all(|| FaultyStorage::new(env(1))).await;
}

#[tokio::test]
async fn conforms_when_slow_and_uncached() {
    crate::conformance::run_all(|| {
        let storage = FaultyStorage::new(env(2));
        let latency_max = Duration::from_millis(1);
        storage.set_plan(FaultPlan {
            latency_max,
            read_miss: 0.5,
            ..FaultPlan::default()
        });
        storage
    })
    .await;
}

/// Over many seeds a crash retains synced bytes, and each possible effect on the rest happens at least once.
#[tokio::test]
async fn a_crash_keeps_synced_bytes_and_any_part_of_the_rest() {
    let (mut lost, mut kept, mut partial, mut torn, mut vanished) = (0, 0, 0, 0, 0);
    for seed in 0..200 {
        let storage = FaultyStorage::new(env(seed));
        write(&storage, "f", b"synced", b"unsynced").await;
        write(&storage, "never", b"", b"unsynced").await;
        storage
            .put_if_absent("put", Bytes::from_static(b"whole"))
            .await
            .unwrap();
        storage.crash();
        let storage = storage.reopen();
        assert_eq!(storage.read_all("put").await.unwrap(), "whole");
        vanished += usize::from(storage.open("never").await.is_err());
        let found = storage.read_all("f").await.unwrap();
        assert!(found.starts_with(b"synced") && found.len() <= 14, "{found:?}");
        lost += usize::from(found.len() == 6);
        kept += usize::from(found == "syncedunsynced");
        let whole = b"syncedunsynced".starts_with(&found);
        partial += usize::from(whole && (7..14).contains(&found.len()));
        torn += usize::from(!whole);

        // A second crash finds the result of the first one.
        storage.crash();
        assert_eq!(storage.reopen().read_all("f").await.unwrap(), found);
    }
    let all = [lost, kept, partial, torn, vanished];
    assert!(all.iter().all(|n| *n > 10), "{all:?}");
}

#[tokio::test]
async fn a_crash_may_lose_the_middle_and_keep_the_end() {
    let mut holes = 0;
    for seed in 0..400 {
        let storage = FaultyStorage::new(env(seed));
        write(&storage, "f", &[1; 700], &[2; 20_000]).await;
        storage.crash();
        let found = storage.reopen().read_all("f").await.unwrap();
        assert_eq!(&found[..700], [1; 700], "seed {seed}: synced bytes stay");
        let lost: Vec<usize> = (700..found.len()).filter(|&at| found[at] != 2).collect();
        let (Some(first), Some(last)) = (lost.first(), lost.last()) else {
            continue;
        };
        if last + 1 < found.len() && found.len() == 20_700 {
            // Random bytes at its ends may equal the original ones.
            assert!(last - first < 8 * 512, "seed {seed}: {first}..={last}");
            holes += 1;
        }
    }
    assert!(holes > 10, "{holes}");
}

#[tokio::test]
async fn a_kill_keeps_everything_but_makes_nothing_durable() {
    let mut lost_later = 0;
    for seed in 0..50 {
        let storage = FaultyStorage::new(env(seed));
        write(&storage, "f", b"synced", b"unsynced").await;
        storage.kill();
        let storage = storage.reopen();
        assert_eq!(storage.read_all("f").await.unwrap(), "syncedunsynced");
        storage.crash();
        let found = storage.reopen().read_all("f").await.unwrap();
        lost_later += usize::from(found != "syncedunsynced");
    }
    assert!(lost_later > 10, "{lost_later}");
}

#[tokio::test]
async fn handles_of_a_dead_process_change_nothing() {
    for end in [FaultyStorage::crash, FaultyStorage::kill] {
        let storage = FaultyStorage::new(env(3));
        let mut writer = storage.create("w").await.unwrap();
        writer.sync().await.unwrap();
        storage.put_if_absent("r", Bytes::from_static(b"r")).await.unwrap();
        let reader = storage.open("r").await.unwrap();
        end(&storage);
        assert!(writer.append(&[Bytes::from_static(b"x")]).await.is_err());
        assert!(writer.sync().await.is_err());
        assert!(reader.read_at(0, 1).await.is_err());
        assert!(reader.try_read_at(0, 1).unwrap().is_err());
        assert!(storage.create("n").await.is_err());
        assert!(storage.put_if_absent("n", Bytes::new()).await.is_err());
        assert!(storage.delete("r").await.is_err());
        assert!(storage.list("").await.is_err());
        let next = storage.reopen();
        let listed: Vec<String> = next.list("").await.unwrap().into_iter().map(|f| f.path).collect();
        assert_eq!(listed, ["r", "w"]);
        assert_eq!(next.read_all("w").await.unwrap(), "");
    }
}

/// A put that a crash interrupts is there whole or not at all, and its caller never learns of success.
#[tokio::test]
async fn an_interrupted_put_is_all_or_nothing() {
    let (mut there, mut absent) = (0, 0);
    for seed in 0..40 {
        let storage = FaultyStorage::new(env(seed));
        storage.set_plan(FaultPlan {
            latency_max: Duration::from_millis(1),
            ..FaultPlan::default()
        });
        let put = storage.put_if_absent("p", Bytes::from_static(b"whole"));
        let crash = async {
            for _ in 0..seed % 2 {
                tokio::task::yield_now().await;
            }
            storage.crash();
        };
        let (outcome, ()) = futures::future::join(put, crash).await;
        assert!(outcome.is_err());
        match storage.reopen().read_all("p").await {
            Ok(content) => {
                assert_eq!(content, "whole");
                there += 1;
            }
            Err(error) => {
                assert!(matches!(error, StorageError::NotFound { .. }));
                absent += 1;
            }
        }
    }
    assert!(there > 0 && absent > 0, "{there} {absent}");
}

#[tokio::test]
async fn a_failed_sync_leaves_any_of_four_fates() {
    let mut fates = [0; 4];
    for seed in 0..200 {
        let storage = FaultyStorage::new(env(seed));
        let mut file = storage.create("f").await.unwrap();
        file.append(&[Bytes::from_static(b"synced")]).await.unwrap();
        file.sync().await.unwrap();
        file.append(&[Bytes::from_static(b"doubtful")]).await.unwrap();
        storage.set_plan(FaultPlan {
            sync_error: 1.0,
            ..FaultPlan::default()
        });
        assert!(file.sync().await.is_err());
        storage.set_plan(FaultPlan::default());
        assert!(file.sync().await.is_err(), "a second sync must not succeed");
        assert!(file.append(&[Bytes::from_static(b"x")]).await.is_err());
        let found = storage.read_all("f").await.unwrap();
        assert!(found.starts_with(b"synced"));
        storage.crash();
        let after = storage.reopen().read_all("f").await.unwrap();
        assert!(after.starts_with(b"synced"));
        fates[0] += usize::from(found == "synceddoubtful" && after == found);
        fates[1] += usize::from(found == "synceddoubtful" && after != found);
        fates[2] += usize::from(found.len() < 14);
        fates[3] += usize::from(found.len() == 14 && found != "synceddoubtful");
    }
    assert!(fates.iter().all(|n| *n > 10), "{fates:?}");
}

#[tokio::test]
async fn a_full_medium_takes_part_of_an_append_and_nothing_of_a_put() {
    let storage = FaultyStorage::new(env(5));
    storage.set_plan(FaultPlan {
        space_limit: Some(10),
        ..FaultPlan::default()
    });
    storage.put_if_absent("a", Bytes::from_static(b"12345")).await.unwrap();
    assert_eq!(storage.free_bytes().await.unwrap(), Some(5));
    let put = storage.put_if_absent("b", Bytes::from_static(b"123456")).await;
    assert_eq!(put, Err(StorageError::NoSpace { path: "b".to_owned() }));
    let mut file = storage.create("c").await.unwrap();
    file.append(&[Bytes::from_static(b"123")]).await.unwrap();
    let append = file.append(&[Bytes::from_static(b"456")]).await;
    assert_eq!(append, Err(StorageError::NoSpace { path: "c".to_owned() }));
    file.sync().await.unwrap();
    assert!(storage.read_all("c").await.unwrap().starts_with(b"123"));
    assert!(storage.free_bytes().await.unwrap() <= Some(2));
    storage.delete("a").await.unwrap();
    assert!(storage.free_bytes().await.unwrap() >= Some(5));
}

#[tokio::test]
async fn discarded_files_may_come_back_and_deleted_ones_do_not() {
    let mut back = 0;
    for seed in 0..64 {
        let storage = FaultyStorage::new(env(seed));
        for path in ["discarded", "deleted", "both"] {
            storage.put_if_absent(path, Bytes::from_static(b"x")).await.unwrap();
        }
        storage.discard("discarded").await.unwrap();
        storage.discard("both").await.unwrap();
        storage.delete("both").await.unwrap();
        storage.delete("deleted").await.unwrap();
        assert!(storage.list("").await.unwrap().is_empty());
        storage.crash();
        let storage = storage.reopen();
        let found = storage.list("").await.unwrap();
        assert!(found.iter().all(|f| f.path == "discarded"), "{found:?}");
        back += found.len();
    }
    assert!((16..48).contains(&back), "{back}");
}

#[test]
fn what_only_waits_is_harmless() {
    let slow = FaultPlan {
        append_wait: 1.0,
        read_miss: 1.0,
        latency_max: Duration::from_secs(1),
        ..FaultPlan::default()
    };
    assert!(slow.is_harmless());
    let full = FaultPlan {
        space_limit: Some(u64::MAX),
        ..slow.clone()
    };
    let failing = FaultPlan {
        read_error: 0.001,
        ..slow
    };
    assert!(!full.is_harmless() && !failing.is_harmless());
}

#[tokio::test]
async fn errors_come_as_often_as_asked() {
    let storage = FaultyStorage::new(env(6));
    storage.put_if_absent("f", Bytes::from_static(b"x")).await.unwrap();
    let file = storage.open("f").await.unwrap();
    storage.set_plan(FaultPlan {
        read_error: 0.25,
        ..FaultPlan::default()
    });
    let mut failures = 0;
    for _ in 0..1000 {
        failures += u64::from(file.read_at(0, 1).await.is_err());
    }
    assert!((200..300).contains(&failures), "{failures}");
    assert_eq!(storage.counts().faults, failures);
    assert_eq!(storage.counts().reads, 1000);

    // A failed put happened or did not.
    storage.set_plan(FaultPlan {
        put_error: 1.0,
        ..FaultPlan::default()
    });
    for i in 0..50 {
        assert!(storage.put_if_absent(&format!("p/{i}"), Bytes::new()).await.is_err());
    }
    storage.set_plan(FaultPlan::default());
    assert!((10..40).contains(&storage.list("p/").await.unwrap().len()));
}

#[tokio::test]
async fn corruption_reaches_open_readers() {
    let storage = FaultyStorage::new(env(7));
    storage.put_if_absent("f", Bytes::from_static(b"\0\0\0")).await.unwrap();
    let file = storage.open("f").await.unwrap();
    storage.corrupt("f", 1).unwrap();
    assert_eq!(file.read_at(0, 3).await.unwrap(), &[0u8, 2, 0][..]);
    assert!(storage.corrupt("f", 3).is_err());
    assert!(storage.corrupt("g", 0).is_err());
}

#[tokio::test]
async fn one_seed_one_history() {
    async fn history(seed: u64) -> (OpCounts, Vec<Bytes>) {
        let storage = FaultyStorage::new(env(seed));
        storage.set_plan(FaultPlan {
            append_error: 0.1,
            sync_error: 0.1,
            put_error: 0.1,
            ..FaultPlan::default()
        });
        for i in 0..50 {
            if let Ok(mut file) = storage.create(&format!("f{i}")).await {
                let _ = file.append(&[Bytes::from(vec![i; 100])]).await;
                if i % 2 == 0 {
                    let _ = file.sync().await;
                }
            }
        }
        storage.crash();
        storage.set_plan(FaultPlan::default());
        let storage = storage.reopen();
        let mut contents = Vec::new();
        for file in storage.list("").await.unwrap() {
            contents.push(storage.read_all(&file.path).await.unwrap());
        }
        (storage.counts(), contents)
    }
    assert_eq!(history(8).await, history(8).await);
    assert_ne!(history(8).await, history(9).await);
}

#[tokio::test]
async fn bad_sectors_come_and_go() {
    let storage = FaultyStorage::new(env(3));
    let content = Bytes::from_static(b"abcdef");
    storage.put_if_absent("a", content).await.unwrap();
    let before = storage.open("a").await.unwrap();
    storage.make_unreadable("a", 2..3);
    let since = storage.reopen().open("a").await.unwrap();
    for file in [&before, &since] {
        let failed = file.read_at(1, 3).await;
        assert!(matches!(failed, Err(StorageError::Unreadable { offset: 2, .. })));
        assert!(file.try_read_at(2, 1).is_none());
        assert_eq!(file.read_at(3, 2).await.unwrap(), &b"de"[..]);
    }
    storage.make_readable("a");
    for file in [&before, &since] {
        assert_eq!(file.read_at(1, 3).await.unwrap(), &b"bcd"[..]);
    }
}
