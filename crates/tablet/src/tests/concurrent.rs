//! Concurrent jobs of one tablet: they lose nothing and bring nothing back.
//!
//! The jobs may end in any order.

use super::*;
use crate::Compacted;
use crate::error::Result;
use crate::values::load::ValueMemory;
use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt, poll};
use stele_storage::AppendFile;

/// A storage on which every operation that makes a file takes a while: its caller goes on after the given number of
/// polls.
struct Slow(Arc<MemoryStorage>, usize);

impl Slow {
    async fn wait(&self) {
        for _ in 0..self.1 {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl stele_storage::Layer for Slow {
    fn below(&self) -> &dyn Storage {
        &*self.0
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        self.wait().await;
        self.0.create(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        self.wait().await;
        self.0.put_if_absent(path, content).await
    }
}

async fn slow_tablet(waits: usize, file_bytes: u64) -> (Arc<Slow>, Arc<Tablet>) {
    let storage = Arc::new(Slow(MemoryStorage::new(), waits));
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(
            files
                .with_file_bytes(file_bytes)
                .with_values(40, ValueMemory::new(1 << 20)),
        ),
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
    let tablet = Tablet::create(context, schema(DeleteRule::BySequence, None), manifest);
    (storage, tablet.await.unwrap())
}

fn runs(tablet: &Tablet) -> usize {
    tablet.state().groups[0].runs().count()
}

fn concurrent(tablet: &Tablet) -> u64 {
    tablet.context.metrics.concurrent_compactions.get()
}

fn write_rows(tablet: &Tablet, rows: impl IntoIterator<Item = usize>, value: &'static str) {
    for n in rows {
        write_row(tablet, Bytes::from(format!("{n:05}")), vec![put(1, value)]);
    }
}

async fn flush_rows(tablet: &Tablet, rows: impl IntoIterator<Item = usize>, value: &'static str) {
    write_rows(tablet, rows, value);
    tablet.flush().await.unwrap();
}

/// A merge of many flushes does not wait for the merge into the bottom that they came behind, in whichever order they end.
#[tokio::test]
async fn tiers_are_merged_behind_a_merge_into_the_bottom() {
    for upper_runs_first in [false, true] {
        let (_, tablet) = slow_tablet(1, 2 << 10).await;
        flush_rows(&tablet, 0..2000, "one").await;
        flush_rows(&tablet, 0..1500, "two").await;
        let mut down = tablet.compact_next().boxed();
        // Past the claim, in the middle of its files, which are small.
        assert!(poll!(&mut down).is_pending());
        assert!(poll!(&mut down).is_pending());
        assert!(tablet.compact_next().await.unwrap().is_none());
        for n in 0..32 {
            flush_rows(&tablet, [n, 100 + n], "three").await;
        }
        assert_eq!((runs(&tablet), concurrent(&tablet)), (34, 0));
        let mut upper_runs = tablet.compact_next().boxed();
        assert!(poll!(&mut upper_runs).is_pending());
        assert_eq!(concurrent(&tablet), 1);
        flush_rows(&tablet, [10], "four").await;
        let jobs = if upper_runs_first {
            [upper_runs, down]
        } else {
            [down, upper_runs]
        };
        for job in jobs {
            assert!(job.await.unwrap().is_some());
        }
        // The bottom level, the remainder for its next part, the 32 as one, and the last.
        assert_eq!(runs(&tablet), 4);
        let found = read(&tablet).await;
        let count = |value| found.matches(value).count();
        assert_eq!(["=one", "=two", "=three", "=four"].map(count), [500, 1436, 63, 1]);
        tablet.compact_all().await.unwrap();
        assert_eq!((runs(&tablet), read(&tablet).await), (1, found));
    }
}

/// Running jobs keep out a job that needs the tablet exclusively, and none is let in before that one.
#[tokio::test]
async fn who_stops_compactions_waits_for_all_and_is_next() {
    let (_, tablet) = slow_tablet(1, 2 << 10).await;
    flush_rows(&tablet, 0..2000, "one").await;
    flush_rows(&tablet, 0..1500, "two").await;
    let mut down = tablet.compact_next().boxed();
    assert!(poll!(&mut down).is_pending());
    let mut stopping = tablet.stop_compactions().boxed();
    assert!(poll!(&mut stopping).is_pending());
    for n in 0..32 {
        flush_rows(&tablet, [n], "three").await;
    }
    assert!(tablet.compact_next().await.unwrap().is_none());
    assert!(down.await.unwrap().is_some());
    let stopped = stopping.await;
    assert!(tablet.compact_next().await.unwrap().is_none());
    drop(stopped);
    assert!(tablet.compact_next().await.unwrap().is_some());
}

/// A job that is given up gives its runs back.
#[tokio::test]
async fn a_job_that_ends_early_claims_nothing() {
    let (_, tablet) = slow_tablet(1, 2 << 10).await;
    flush_rows(&tablet, 0..2000, "one").await;
    flush_rows(&tablet, 0..1500, "two").await;
    let mut down = tablet.compact_next().boxed();
    assert!(poll!(&mut down).is_pending());
    assert!(!tablet.compaction_due());
    drop(down);
    assert!(tablet.compaction_due() && tablet.compact_next().await.unwrap().is_some());
}

/// The parts that are left have nothing of its first rows, which must not go for that.
#[tokio::test]
async fn what_is_flushed_during_a_compaction_of_everything_stays_above() {
    let (_, tablet) = slow_tablet(1, 2 << 10).await;
    flush_rows(&tablet, 0..3000, "one").await;
    let jobs = &tablet.context.metrics.compactions;
    let mut compacting = tablet.compact_all().boxed();
    while jobs.get() < 2 {
        assert!(poll!(&mut compacting).is_pending());
    }
    flush_rows(&tablet, (0..3000).step_by(3), "new").await;
    compacting.await.unwrap();
    assert_eq!(runs(&tablet), 2);
    let found = read(&tablet).await;
    assert_eq!(["=one", "=new"].map(|value| found.matches(value).count()), [2000, 1000]);
}

/// Completed work stays done, and the next job merges the rest.
#[tokio::test]
async fn a_compaction_of_everything_can_be_stopped_between_parts() {
    let (_, tablet) = slow_tablet(1, 2 << 10).await;
    flush_rows(&tablet, 0..3000, "one").await;
    flush_rows(&tablet, (0..3000).step_by(2), "two").await;
    let jobs = &tablet.context.metrics.compactions;
    let mut compacting = tablet.compact_all().boxed();
    while jobs.get() < 2 {
        assert!(poll!(&mut compacting).is_pending());
    }
    // The third is at its first file, of which nobody knows yet.
    write_rows(&tablet, (0..3000).step_by(3), "new");
    tablet.flush().await.unwrap();
    drop(compacting);
    assert!(
        tablet.state().groups[0]
            .files
            .iter()
            .any(|file| file.reference.lower.is_some())
    );
    let count = |found: &str| ["=one", "=two", "=new"].map(|value| found.matches(value).count());
    assert_eq!(count(&read(&tablet).await), [1000, 1000, 1000]);
    while tablet.compact_if_due().await.unwrap() {}
    let begun = tablet.state().groups[0]
        .files
        .iter()
        .any(|file| file.reference.lower.is_some());
    assert!(!begun, "what was begun is not ended");
    tablet.compact_all().await.unwrap();
    assert_eq!((runs(&tablet), count(&read(&tablet).await)), (1, [1000, 1000, 1000]));
}

/// A job goes by the rule that it began with. Cells that it drops may have been read meanwhile under a looser rule. A
/// reader that retains such cells goes by the mark.
#[tokio::test]
async fn what_a_job_drops_by_a_former_rule_changes_the_mark() {
    let (_, tablet) = slow_tablet(1, 64 << 20).await;
    let ruled = |version, gc_rule| {
        let mut next = TableSchema::clone(&schema(DeleteRule::BySequence, gc_rule));
        next.version = version;
        Arc::new(next)
    };
    tablet.set_schema(ruled(2, Some(GcRule::MaxVersions(1))));
    for (timestamp, value) in [(1, "old"), (2, "new")] {
        write(&tablet, vec![put(timestamp, value)]);
        tablet.flush().await.unwrap();
    }
    let mut job = tablet.compact_all().boxed();
    assert!(poll!(&mut job).is_pending(), "it waits for its first file");
    tablet.set_schema(ruled(3, None));
    let mark = tablet.schema_mark();
    assert_eq!(read(&tablet).await, "2=new 1=old");
    job.await.unwrap();
    assert_eq!(read(&tablet).await, "2=new");
    let renewed = tablet.schema_mark();
    assert!(mark != renewed && renewed.is_of(&tablet.schema()) && renewed.row_cache());
    tablet.set_schema(ruled(3, None));
    assert_eq!(tablet.schema_mark(), renewed, "the former one would be met again");
    // A job that begins now drops nothing that was read since.
    write(&tablet, vec![put(3, "newest")]);
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "3=newest 2=new");
    assert_eq!(tablet.schema_mark(), renewed);
}

/// One of many concurrent activities.
enum Going {
    Flush(BoxFuture<'static, Result<bool>>),
    Job(BoxFuture<'static, Result<Option<Compacted>>>),
}

impl Going {
    async fn step(&mut self) -> bool {
        match self {
            Going::Flush(flush) => poll!(flush).map(Result::unwrap).is_ready(),
            Going::Job(job) => poll!(job).map(Result::unwrap).is_ready(),
        }
    }
}

/// Numbers that look random.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn change_row(tablets: [&Tablet; 2], noise: &mut Noise) {
    let row = Bytes::from(format!("{:03}", noise.below(200)));
    let timestamp = Timestamp(noise.below(3) as i64);
    let (family, qualifier) = (FamilyId(1), Bytes::from_static(b"q"));
    // Some are kept apart.
    let value = format!(
        "{:0width$}",
        noise.below(1 << 30),
        width = [9, 100][noise.below(2) as usize]
    );
    let mutation = match noise.below(8) {
        0 => Mutation::DeleteRow {
            up_to: [timestamp, Timestamp::MAX][noise.below(2) as usize],
        },
        1 => Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
        _ => Mutation::Put {
            family,
            qualifier,
            timestamp,
            value: value.into(),
        },
    };
    for tablet in tablets {
        write_row(tablet, row.clone(), vec![mutation.clone()]);
    }
}

/// Random writes, flushes and jobs, each of which goes a step when chance has it: the tablet reads as one that is never
/// compacted.
async fn mingle(seed: u64) -> u64 {
    let ((storage, tablet), (_, plain)) = (slow_tablet(2, 1000).await, slow_tablet(0, 1000).await);
    let mut noise = Noise(seed);
    let mut going: Vec<Going> = Vec::new();
    for _ in 0..3000 {
        // Or the runtime finds that this task has had its share, and lets nothing of it go on.
        tokio::task::yield_now().await;
        match noise.below(60) {
            0..4 => {
                for _ in 0..noise.below(20) {
                    change_row([&tablet, &plain], &mut noise);
                }
            }
            4..14 if !going.iter().any(|going| matches!(going, Going::Flush(_))) => {
                change_row([&tablet, &plain], &mut noise);
                let tablet = tablet.clone();
                going.push(Going::Flush(async move { tablet.flush().await }.boxed()));
            }
            14..20 if going.len() < 4 => {
                tablet.state().groups[0]
                    .compaction_stats
                    .read([0, 2, 5, 10, 1000][noise.below(5) as usize]);
                let tablet = tablet.clone();
                going.push(Going::Job(async move { tablet.compact_next().await }.boxed()));
            }
            20 => assert_eq!(read(&tablet).await, read(&plain).await, "seed {seed}"),
            _ if !going.is_empty() => {
                let at = noise.below(going.len() as u64) as usize;
                if going[at].step().await {
                    drop(going.swap_remove(at));
                }
            }
            _ => {}
        }
    }
    while let Some(mut last) = going.pop() {
        tokio::task::yield_now().await;
        if !last.step().await {
            going.insert(0, last);
        }
    }
    assert_eq!(read(&tablet).await, read(&plain).await, "seed {seed}");
    // All files that are there are referred to.
    tablet.context.files.delete_obsolete().await.unwrap();
    let stored: Vec<String> = storage
        .list("sst/")
        .await
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect();
    let manifest = tablet.manifest().await;
    let named: std::collections::BTreeSet<String> = manifest.stored().map(|file| file.path()).collect();
    assert_eq!(stored, named.into_iter().collect::<Vec<_>>(), "seed {seed}");
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, read(&plain).await, "seed {seed}");
    concurrent(&tablet)
}

#[tokio::test]
async fn whatever_goes_on_at_once_the_answers_are_the_same() {
    let mut pairs = 0;
    for seed in 0..6 {
        pairs += mingle(seed).await;
    }
    assert!(pairs > 50, "{pairs} jobs were begun beside others");
}
