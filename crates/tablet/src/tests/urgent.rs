//! Flushes that leave it to merges to compress.

use super::*;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_types::GroupOptions;

/// The real clock, some hours later.
struct Later {
    env: Env,
    hours: Arc<AtomicU64>,
}

impl Runtime for Later {
    fn now(&self) -> Duration {
        self.env.now() + Duration::from_secs(3600 * self.hours.load(Ordering::Relaxed))
    }

    fn wall_micros(&self) -> i64 {
        self.env.wall_micros()
    }

    fn random_u64(&self) -> u64 {
        self.env.random_u64()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let env = self.env.clone();
        Box::pin(async move { env.sleep(duration).await })
    }

    fn spawn(&self, priority: Priority, name: &'static str, task: BoxFuture<'static, ()>) {
        match priority {
            Priority::Foreground => self.env.spawn(name, task),
            Priority::Background => self.env.spawn_background(name, task),
        }
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

/// A tablet of this codec, and the hours its clock is ahead.
async fn tablet_of(compression: Compression) -> (Arc<Tablet>, Arc<AtomicU64>) {
    let mut schema = TableSchema::clone(&schema(DeleteRule::BySequence, None));
    schema.groups[0].options = GroupOptions {
        compression,
        ..GroupOptions::default()
    };
    let hours = Arc::new(AtomicU64::new(0));
    let later = Later {
        env: TokioRuntime::current(),
        hours: hours.clone(),
    };
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let context = TabletContext {
        env: Env::new(Arc::new(later)),
        files: Arc::new(FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1)),
        storage,
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    };
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    (
        Tablet::create(context, Arc::new(schema), manifest).await.unwrap(),
        hours,
    )
}

/// Writes rows of which half can be compressed away, or nothing.
fn write_rows(tablet: &Tablet, is_noise: bool) {
    write_values(tablet, 2000, if is_noise { 400 } else { 200 });
}

/// Writes rows of 400 bytes, of which `noise_bytes` cannot be compressed.
fn write_values(tablet: &Tablet, rows: usize, noise_bytes: usize) {
    let mut x = 1u64;
    let mut noise = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) as u8
    };
    for n in 0..rows {
        let value: Vec<u8> = (0..400)
            .map(|at| if at < noise_bytes { noise() } else { b'-' })
            .collect();
        let value = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: value.into(),
        };
        write_row(tablet, Bytes::from(format!("{n:06}")), vec![value]);
    }
}

fn sizes(tablet: &Tablet) -> Vec<(u64, u64)> {
    let state = tablet.state();
    let files = state.groups[0].files.iter();
    files.map(|file| (file.bytes(), file.compressible_bytes())).collect()
}

#[tokio::test]
async fn what_was_flushed_in_haste_is_compressed_when_nobody_writes_any_more() {
    for compression in [Compression::Lz4, Compression::Snappy, Compression::Zstd] {
        let (tablet, hours) = tablet_of(compression).await;
        write_rows(&tablet, false);
        let before = read(&tablet).await;
        assert!(tablet.flush_urgently().await.unwrap());
        let &[(bytes, compressible)] = &sizes(&tablet)[..] else {
            unreachable!("one file")
        };
        assert!(bytes > 800_000, "{bytes}");
        assert!(!tablet.compaction_due());
        hours.store(1, Ordering::Relaxed);
        assert!(tablet.compaction_due(), "{compression:?}: {compressible} of {bytes}");
        while tablet.compact_if_due().await.unwrap() {}
        let &[(after, rest)] = &sizes(&tablet)[..] else {
            unreachable!("one file")
        };
        assert!(after < 520_000 && rest == 0, "{after} {rest}");
        // The saving was known in advance.
        assert!(
            compressible.abs_diff(bytes - after) < bytes / 20,
            "{bytes} {after} {compressible}"
        );
        assert!(!tablet.compaction_due() && read(&tablet).await == before);
    }
}

#[tokio::test]
async fn what_cannot_be_compressed_is_left_alone() {
    for (compression, is_noise) in [(Compression::Lz4, true), (Compression::None, false)] {
        let (tablet, hours) = tablet_of(compression).await;
        write_rows(&tablet, is_noise);
        tablet.flush_urgently().await.unwrap();
        hours.store(1, Ordering::Relaxed);
        let [(_, compressible)] = sizes(&tablet)[..] else {
            unreachable!("one file")
        };
        assert!(compressible == 0 && !tablet.compaction_due(), "{compression:?}");
    }
}

#[tokio::test]
async fn who_has_time_compresses() {
    let (tablet, _) = tablet_of(Compression::Lz4).await;
    write_rows(&tablet, false);
    tablet.flush().await.unwrap();
    assert!(
        sizes(&tablet)
            .iter()
            .all(|(bytes, rest)| *bytes < 520_000 && *rest == 0)
    );
}

/// Each of the files would save too little by itself to be worth the trouble, all of them together are.
#[tokio::test]
async fn many_small_files_that_were_not_compressed_are_in_the_end() {
    let (tablet, hours) = tablet_of(Compression::Lz4).await;
    let mut schema = TableSchema::clone(&tablet.schema());
    schema.groups[0].options.file_bytes = Some(1 << 20);
    tablet.set_schema(Arc::new(schema));
    write_values(&tablet, 8000, 320);
    let before = read(&tablet).await;
    tablet.flush_urgently().await.unwrap();
    let loose = sizes(&tablet);
    assert!(
        loose.len() > 2 && loose.iter().all(|(_, rest)| *rest < 256 << 10),
        "{loose:?}"
    );
    hours.store(1, Ordering::Relaxed);
    assert!(tablet.compaction_due(), "{loose:?}");
    while tablet.compact_if_due().await.unwrap() {}
    assert!(!tablet.compaction_due(), "due, and nothing done: {:?}", sizes(&tablet));
    assert!(read(&tablet).await == before);
}
