//! Tests of segments that took over without a sync, and of power loss among them.
#![allow(clippy::panic, reason = "a test says so when it fails")]

use super::*;
use crate::format;
use crate::salvage::damaged_segments;
use crate::segment::UNSYNCED_MAX;
use async_trait::async_trait;
use bytes::Bytes;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, FileInfo};

const SEGMENT_BYTES: u64 = 4 << 10;

/// Lets background tasks finish.
pub(super) async fn pause() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn write_flushed(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        log.write(n, Durability::Flush).await.unwrap();
        pause().await;
    }
}

/// Segments with content; others are made before they are needed.
pub(super) async fn begun(storage: &Arc<dyn Storage>) -> usize {
    let files = storage.list("log/").await.unwrap();
    files.iter().filter(|file| file.len > 0).count()
}

pub(super) fn start(storage: &Arc<dyn Storage>) -> Log {
    Log::start(storage, &Numbers::default(), SEGMENT_BYTES, Vec::new())
}

#[tokio::test]
async fn what_nobody_syncs_costs_a_sync_for_each_file() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = start(&storage);
    write_flushed(&log, 0..180).await;
    let files = segments(&storage).await.len() as u64;
    assert!((5..=8).contains(&files), "{files} segments");
    // The first file is synced with its header, the others when there is nothing in them.
    let lazy = faulty.counts().syncs;
    assert!(lazy <= files, "{lazy} syncs of {files} segments");
    write_flushed(&log, 180..1000).await;
    let unsynced = log.stream.unsynced_segments();
    assert_eq!(unsynced, UNSYNCED_MAX, "a backlog that is not bounded");
    let files = segments(&storage).await.len();
    let syncs = faulty.counts().syncs as usize;
    assert!(
        syncs >= files + (files - 2 - UNSYNCED_MAX),
        "{syncs} syncs of {files} segments"
    );
    assert_eq!(replayed(&storage).await.unwrap(), (0..1000).collect::<Vec<_>>());
}

/// Replay drops the segments behind a gap.
#[tokio::test]
async fn what_follows_a_segment_that_cannot_be_synced_is_as_lost() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = start(&storage);
    write_flushed(&log, 0..60).await;
    log.submit_for(2, 60, Durability::Flush).await.await.unwrap().unwrap();
    write_flushed(&log, 61..120).await;
    assert!(log.stream.unsynced_segments() > 2);
    faulty.set_plan(FaultPlan {
        sync_error: 1.0,
        ..FaultPlan::default()
    });
    log.write(120, Durability::Sync).await.unwrap_err();
    faulty.set_plan(FaultPlan::default());
    log.write(121, Durability::Sync).await.unwrap();
    assert_eq!(log.stream.unsynced_segments(), 0);
    let holders = log.stream.forsaken_holders(|tablet, _| tablet == TabletId(1));
    assert!(holders.into_iter().eq([TabletId(2)]));
}

/// A device that is slower than its writers.
#[derive(Default)]
pub(super) struct Slow {
    device: Arc<MemoryStorage>,
    made: AtomicU64,
    /// Steps of the sync of a file that has content.
    sync_steps: usize,
    /// Steps of making a file, except for the first few.
    make_steps: usize,
}

impl Slow {
    /// Only syncs are slow.
    pub(super) fn with_syncs(sync_steps: usize) -> Arc<dyn Storage> {
        Arc::new(Slow {
            sync_steps,
            ..Slow::default()
        })
    }
}

/// The open one, and the one asked for when half of it is full.
const QUICKLY_MADE: u64 = 2;

struct SlowFile {
    file: Box<dyn AppendFile>,
    sync_steps: usize,
    make_steps: usize,
}

#[async_trait]
impl AppendFile for SlowFile {
    async fn append(&mut self, slices: &[Bytes]) -> stele_storage::Result<()> {
        self.file.append(slices).await
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<stele_storage::Result<()>> {
        self.file.try_append(slices)
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        let steps = if self.file.is_empty() {
            self.make_steps
        } else {
            self.sync_steps
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        self.file.sync().await
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}

#[async_trait]
impl stele_storage::Layer for Slow {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(SlowFile {
            file: self.device.create(path).await?,
            sync_steps: self.sync_steps,
            make_steps: if nth < QUICKLY_MADE { 0 } else { self.make_steps },
        }))
    }
}

#[tokio::test]
async fn writers_ahead_of_the_device_wait_for_one_segment_at_a_time() {
    let storage = Slow::with_syncs(1000);
    let log = start(&storage);
    let (mut most, mut fell_to) = (0, usize::MAX);
    for n in 0..3000 {
        log.write(n, Durability::Flush).await.unwrap();
        pause().await;
        let unsynced = log.stream.unsynced_segments();
        most = most.max(unsynced);
        if most == UNSYNCED_MAX {
            fell_to = fell_to.min(unsynced);
        }
    }
    assert_eq!(most, UNSYNCED_MAX);
    assert!(
        fell_to >= UNSYNCED_MAX - 1,
        "only {fell_to} are left unsynced after a wait"
    );
    assert_eq!(replayed(&storage).await.unwrap(), (0..3000).collect::<Vec<_>>());
}

/// Each file takes longer to make than a segment takes to fill: some 35 records, and as many pauses. It is asked for when the
/// open one is half full, and that one may grow to twice its size.
#[tokio::test]
async fn files_that_take_long_to_make_keep_nobody_waiting() {
    let storage: Arc<dyn Storage> = Arc::new(Slow {
        make_steps: 400,
        ..Slow::default()
    });
    let log = start(&storage);
    let mut waited = Vec::new();
    for n in 0..1000 {
        let mut answer = log.submit(n, Durability::Flush).await;
        // The first segment is made for the first record.
        if answer.try_recv().is_err() && n > 0 {
            waited.push(n);
            answer.await.unwrap().unwrap();
        }
        pause().await;
    }
    assert_eq!(waited, []);
    let files = begun(&storage).await;
    assert!((15..40).contains(&files), "{files} segments");
    log.stream.close().await;
    let files = storage.list("log/").await.unwrap();
    assert!(
        files.iter().all(|file| file.len > 0),
        "a file made beforehand stays: {files:?}"
    );
    assert_eq!(replayed(&storage).await.unwrap(), (0..1000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_made_beforehand_that_an_end_left_behind_is_deleted() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let numbers = Numbers::default();
    let log = Log::start(&storage, &numbers, SEGMENT_BYTES, Vec::new());
    write_flushed(&log, 0..100).await;
    faulty.kill();
    drop(log);
    let storage: Arc<dyn Storage> = faulty.reopen();
    let (files, begun) = (segments(&storage).await.len(), begun(&storage).await);
    assert_eq!(files - begun, 1, "of {files} files");
    let mut found = Vec::new();
    let report = crate::replay(&*storage, |record| {
        found.push(number_of(&record));
        Ok::<(), LogError>(())
    });
    let segments_found = report.await.unwrap().segments.into_iter();
    assert_eq!(found, (0..100).collect::<Vec<_>>());
    let replayed = segments_found.map(|(_, number, info)| (number, info)).collect();
    let log = Log::start(&storage, &numbers, SEGMENT_BYTES, replayed);
    // The last record is not flushed.
    let last = record(1, 99).last;
    log.stream.delete_unneeded(|_, seq| seq < last).await.unwrap();
    let left = storage.list("log/").await.unwrap();
    assert!(left.len() == 1 && left[0].len > 0, "{left:?}");
}

#[tokio::test]
async fn deleted_segments_are_synced_no_more_and_let_go_of() {
    let faulty = FaultyStorage::new(env(1));
    let storage: Arc<dyn Storage> = faulty.clone();
    let log = start(&storage);
    for n in (0..1000).step_by(20) {
        write_flushed(&log, n..n + 20).await;
        let through = record(1, n).last;
        log.stream.delete_unneeded(|_, seq| seq < through).await.unwrap();
        let unsynced = log.stream.unsynced_segments();
        assert!(unsynced < 3, "{unsynced} unsynced, though all but the last are flushed");
    }
    let (syncs, creates) = (faulty.counts().syncs, faulty.counts().creates);
    assert!(
        creates > 20 && syncs <= creates + 2,
        "{syncs} syncs of {creates} segments"
    );
}

/// The first segment has a record of a tablet that is not flushed. Those behind it are unneeded, but power loss could take the
/// end of the first, and then they would have to go with it.
#[tokio::test]
async fn unneeded_segments_behind_a_needed_one_go_once_that_is_synced() {
    let storage: Arc<dyn Storage> = FaultyStorage::new(env(1));
    let log = start(&storage);
    log.submit_for(2, 0, Durability::Flush).await.await.unwrap().unwrap();
    write_flushed(&log, 1..300).await;
    let flushed = |tablet, _| tablet == TabletId(1);
    assert_eq!(log.stream.delete_unneeded(flushed).await.unwrap(), 0);
    let before = log.stream.unsynced_segments();
    assert!(before > 5, "{before} unsynced");
    write_flushed(&log, 300..400).await;
    let after = log.stream.unsynced_segments();
    assert!(after < before, "{after} unsynced, {before} before");
    assert!(log.stream.delete_unneeded(flushed).await.unwrap() > 5);
    let left = segments(&storage).await.len();
    // The first, the one that states its length, the open one, and the file of the next.
    assert!(left <= 4, "{left} segments");
    let found = replayed_all(&storage).await;
    assert!(found.contains(&(2, 0)), "{found:?}");
}

async fn replayed_all(storage: &Arc<dyn Storage>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let replay = crate::replay(&**storage, |record| {
        found.push((record.tablet.0, number_of(&record)));
        Ok::<(), LogError>(())
    });
    replay.await.unwrap();
    found
}

/// Power loss at any point takes a suffix of the records, and none from before the last acknowledged sync. Lost records do not
/// come back later.
#[tokio::test]
async fn power_loss_takes_only_the_end() {
    let (mut dropped, mut unsynced) = (0, 0);
    for seed in 0..300u64 {
        let env = env(seed);
        let mut device = FaultyStorage::new(env.clone());
        let numbers = Numbers::default();
        let mut n = 0;
        for _ in 0..3 {
            let storage: Arc<dyn Storage> = device.clone();
            let log = Log::start(&storage, &numbers, 600, Vec::new());
            device.set_plan(FaultPlan {
                append_wait: if seed % 3 == 0 { 0.2 } else { 0.0 },
                ..FaultPlan::default()
            });
            let mut promised = n;
            for _ in 0..env.random_below(120) {
                let sync = env.random_below(60) == 0;
                let durability = if sync { Durability::Sync } else { Durability::Flush };
                log.write(n, durability).await.unwrap();
                n += 1;
                if sync {
                    promised = n;
                }
                for _ in 0..env.random_below(8) {
                    tokio::task::yield_now().await;
                }
            }
            unsynced += log.stream.unsynced_segments();
            device.crash();
            drop(log);
            device = device.reopen();
            let storage: Arc<dyn Storage> = device.clone();
            let mut found = Vec::new();
            let report = crate::replay(&*storage, |record| {
                found.push(number_of(&record));
                Ok::<(), LogError>(())
            });
            let report = report.await.unwrap();
            assert!(damaged_segments(&*storage).await.unwrap().is_empty(), "seed {seed}");
            let left = found.len() as u64;
            assert!(
                (promised..=n).contains(&left),
                "seed {seed}: {promised} of {n} promised, found {left}"
            );
            assert_eq!(found, (0..left).collect::<Vec<_>>(), "seed {seed}: a gap");
            dropped += report.dropped.len();
            for path in &report.dropped {
                storage.delete(path).await.unwrap();
            }
            for (_, _, segment) in &report.segments {
                storage.sync_file(&segment.path).await.unwrap();
            }
            n = left;
        }
    }
    assert!(dropped > 20, "{dropped} segments dropped");
    assert!(unsynced > 100, "{unsynced} segments that were not synced");
}

/// The same with syncs that fail: records acknowledged with a sync survive; others are lost in any order.
#[tokio::test]
async fn what_was_synced_survives_failing_syncs_of_other_segments() {
    let mut failures = 0;
    for seed in 0..300u64 {
        let env = env(seed);
        let device = FaultyStorage::new(env.clone());
        let storage: Arc<dyn Storage> = device.clone();
        let log = Log::start(&storage, &Numbers::default(), 600, Vec::new());
        device.set_plan(FaultPlan {
            sync_error: 0.1,
            put_error: 0.1,
            ..FaultPlan::default()
        });
        let mut promised = Vec::new();
        for n in 0..150 {
            let sync = env.random_below(10) == 0;
            let durability = if sync { Durability::Sync } else { Durability::Flush };
            match log.write(n, durability).await {
                Ok(()) if sync => promised.push(n),
                Ok(()) => {}
                Err(_) => failures += 1,
            }
            for _ in 0..env.random_below(8) {
                tokio::task::yield_now().await;
            }
        }
        device.crash();
        let storage: Arc<dyn Storage> = device.reopen();
        device.set_plan(FaultPlan::default());
        let found = replayed(&storage).await.unwrap();
        let lost: Vec<_> = promised.iter().filter(|n| !found.contains(n)).collect();
        assert!(
            lost.is_empty() && found.is_sorted(),
            "seed {seed}: lost {lost:?} of {promised:?}, found {found:?}"
        );
    }
    assert!(failures > 100, "{failures} failures");
}

/// Three segments, two of which took over, then a write that had to be durable: paths and contents.
async fn took_over_then_synced() -> Vec<(String, Vec<u8>)> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage);
    let mut n = 0;
    while begun(&storage).await < 3 {
        write_flushed(&log, n..n + 1).await;
        n += 1;
    }
    write_flushed(&log, n..n + 15).await;
    log.write(n + 15, Durability::Sync).await.unwrap();
    let mut files = Vec::new();
    for path in segments(&storage).await {
        let content = storage.read_all(&path).await.unwrap().to_vec();
        files.push((path, content));
    }
    files.retain(|(_, content)| content.len() > format::SEGMENT_HEADER_BYTES);
    assert_eq!(files.len(), 3);
    files
}

async fn device_with(files: &[(String, Vec<u8>)]) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    for (path, content) in files {
        storage.put_if_absent(path, content.clone().into()).await.unwrap();
    }
    storage
}

/// No header states that the end of the first segment was synced; synced bytes in a later one prove it.
#[tokio::test]
async fn a_gap_before_something_synced_is_damage() {
    let files = took_over_then_synced().await;
    for damaged in 0..2 {
        let mut files = files.clone();
        let last = files[damaged].1.len() - 1;
        files[damaged].1[last] ^= 1;
        let storage = device_with(&files).await;
        match replayed(&storage).await {
            Err(LogError::Corruption { path, .. }) => assert_eq!(*path, *files[damaged].0),
            other => panic!("{other:?}"),
        }
        let salvage = damaged_segments(&*storage).await.unwrap();
        assert_eq!(salvage.len(), 1);
        assert_eq!(salvage[0].path, files[damaged].0);
        assert_eq!(salvage[0].lost.len(), 1);
    }
}

#[tokio::test]
async fn a_gap_before_what_nobody_synced_takes_that_along() {
    let mut files = took_over_then_synced().await;
    let mut third = files.pop().unwrap();
    // It has only its header and its first group, written before anything in it was synced.
    let first = format::GroupHeader::decode(3, &third.1[format::SEGMENT_HEADER_BYTES..]).unwrap();
    third
        .1
        .truncate(format::SEGMENT_HEADER_BYTES + format::GROUP_HEADER_BYTES + first.records_len as usize);
    files.push(third);
    let whole = replayed(&device_with(&files).await).await.unwrap();
    let last = files[0].1.len() - 1;
    files[0].1[last] ^= 1;
    let storage = device_with(&files).await;
    let mut found = Vec::new();
    let report = crate::replay(&*storage, |record| {
        found.push(number_of(&record));
        Ok::<(), LogError>(())
    });
    let report = report.await.unwrap();
    assert!(whole.starts_with(&found) && !found.is_empty() && found.len() < whole.len() / 2);
    assert_eq!(report.dropped, [files[2].0.clone(), files[1].0.clone()], "newest first");
    assert_eq!(report.segments.len(), 1);
    // If the process ends between the deletions, the rest is dropped again.
    storage.delete(&report.dropped[0]).await.unwrap();
    assert_eq!(replayed(&storage).await.unwrap(), found);
    // A segment that is missing was flushed: there is no gap.
    files.remove(0);
    assert!(!replayed(&device_with(&files).await).await.unwrap().is_empty());
}

/// As above, where nothing had been written into the segment when its beginning was synced.
#[tokio::test]
async fn a_gap_before_a_segment_that_begins_with_something_synced_is_damage() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let log = start(&storage);
    let header_only = |files: Vec<FileInfo>| files.iter().any(|file| file.len == format::SEGMENT_HEADER_BYTES as u64);
    let mut n = 0;
    while !header_only(storage.list("log/").await.unwrap()) {
        write_flushed(&log, n..n + 1).await;
        n += 1;
    }
    log.write(n, Durability::Sync).await.unwrap();
    let mut files = Vec::new();
    for path in segments(&storage).await {
        let content = storage.read_all(&path).await.unwrap().to_vec();
        files.push((path, content));
    }
    files.retain(|(_, content)| !content.is_empty());
    assert_eq!(files.len(), 2);
    assert_eq!(replayed(&device_with(&files).await).await.unwrap().len() as u64, n + 1);
    let last = files[0].1.len() - 1;
    files[0].1[last] ^= 1;
    let storage = device_with(&files).await;
    match replayed(&storage).await {
        Err(LogError::Corruption { path, .. }) => assert_eq!(*path, *files[0].0),
        other => panic!("{other:?}"),
    }
    let salvage = damaged_segments(&*storage).await.unwrap();
    assert_eq!(salvage.len(), 1);
    assert_eq!(salvage[0].path, files[0].0);
}
