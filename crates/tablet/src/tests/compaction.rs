//! A bottom level of several files, and compactions into it.
//!
//! The tests cover the files that such compactions rewrite, and that these lose and uncover nothing.

use super::*;
use crate::SpaceLimit;
use crate::held::{HeldFile, ReadOptions, Times};
use crate::merging::{MergingIterator, Step};
use stele_types::{RowRange, SeqNo, TabletId, key};

/// Small enough that some hundred rows are several files.
const FILE_BYTES: u64 = 4 << 10;

async fn small_files(schema: Arc<TableSchema>) -> Arc<Tablet> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1).with_file_bytes(FILE_BYTES);
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage,
        files: Arc::new(files),
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
    Tablet::create(context, schema, manifest).await.unwrap()
}

fn row(n: usize) -> Bytes {
    Bytes::from(format!("{n:05}"))
}

fn write_rows(tablet: &Tablet, rows: impl IntoIterator<Item = usize>, value: &'static str) {
    for n in rows {
        write_row(tablet, row(n), vec![put(1, value)]);
    }
}

fn delete_rows(tablet: &Tablet, rows: impl IntoIterator<Item = usize>) {
    for n in rows {
        write_row(
            tablet,
            row(n),
            vec![Mutation::DeleteRow {
                up_to: Timestamp(1_000),
            }],
        );
    }
}

/// A bottom of 1,000 rows in several files.
async fn with_bottom() -> Arc<Tablet> {
    let tablet = small_files(schema(DeleteRule::BySequence, None)).await;
    write_rows(&tablet, 0..1000, "a value that is somewhat longer");
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    check_runs(&tablet, 1);
    assert!(files(&tablet).len() > 5);
    tablet
}

fn files(tablet: &Tablet) -> Vec<HeldFile> {
    tablet.state().groups[0].files.clone()
}

fn ids(tablet: &Tablet) -> Vec<u64> {
    files(tablet).iter().map(|file| file.reference.file).collect()
}

/// There are `expected` runs, and in none a row is in two files.
fn check_runs(tablet: &Tablet, expected: usize) {
    let state = tablet.state();
    let runs: Vec<_> = state.groups[0].runs().collect();
    assert_eq!(runs.len(), expected);
    for pair in runs.iter().flat_map(|run| run.windows(2)) {
        let first = pair[1].first_key();
        let row = stele_types::key::row_prefix_len(first).unwrap();
        assert!(pair[0].ends_before(&first[..row]));
    }
}

async fn merge_all(tablet: &Tablet) -> usize {
    let mut parts = 0;
    while tablet.compact_if_due().await.unwrap() {
        parts += 1;
        assert!(parts < 100, "compactions do not come to an end");
    }
    parts
}

#[tokio::test]
async fn a_merge_rewrites_only_the_files_it_overlaps() {
    let tablet = with_bottom().await;
    let before = ids(&tablet);
    write_rows(&tablet, 500..503, "new");
    tablet.flush().await.unwrap();
    assert!(!tablet.compaction_due());
    // One million reads probed both runs.
    tablet.state().groups[0].compaction_stats.read(1_000_000);
    assert_eq!(merge_all(&tablet).await, 1);
    check_runs(&tablet, 1);
    let after = ids(&tablet);
    let kept = before.iter().filter(|file| after.contains(file)).count();
    assert!(before.len() - kept <= 2, "{before:?} {after:?}");
    assert_eq!(read(&tablet).await.matches("=new").count(), 3);
}

#[tokio::test]
async fn where_there_is_little_room_tiers_go_into_the_bottom_in_small_parts() {
    let tablet = with_bottom().await;
    for n in 0..8 {
        write_rows(&tablet, (0..1000).filter(|row| row % 50 == n), "new");
        tablet.flush().await.unwrap();
    }
    check_runs(&tablet, 9);
    // Where nobody reads, more would gather.
    tablet.state().groups[0].compaction_stats.read(3);
    let none = SpaceLimit {
        any: 1000,
        into_bottom: 1000,
    };
    assert!(tablet.compaction_due() && tablet.compact_within(none).await.unwrap().is_none());
    let little = SpaceLimit {
        into_bottom: 5 * FILE_BYTES,
        ..none
    };
    let read_bytes = &tablet.context.metrics.compaction_read_bytes;
    let (mut parts, mut before) = (0, read_bytes.get());
    while tablet.compact_within(little).await.unwrap().is_some() {
        assert!(read_bytes.get() - before <= little.into_bottom);
        before = read_bytes.get();
        parts += 1;
        assert!(parts < 100, "compactions do not come to an end");
    }
    assert!(parts > 2, "{parts} parts");
    check_runs(&tablet, 1);
    let found = read(&tablet).await;
    assert_eq!((found.matches('=').count(), found.matches("=new").count()), (1000, 160));
}

/// On a full storage everything is merged, with as little space as one file of the bottom level and two upper runs
/// take.
#[tokio::test]
async fn for_the_sake_of_space_what_is_not_due_is_merged_a_few_tiers_at_a_time() {
    let tablet = with_bottom().await;
    let wanted = "a value that is longer, too";
    for n in 0..3 {
        write_rows(&tablet, (0..1000).filter(|row| row % 40 == n), wanted);
        tablet.flush().await.unwrap();
    }
    assert!(!tablet.compaction_due() && tablet.may_shrink() && tablet.garbage_share() > 30);
    let before = tablet.state().file_bytes();
    let mut reservation = SpaceLimit {
        any: 0,
        into_bottom: FILE_BYTES,
    };
    assert!(tablet.compact_for_space(reservation).await.unwrap().is_none());
    reservation.into_bottom = FILE_BYTES * 3 / 2;
    let mut parts = 0;
    while tablet.compact_for_space(reservation).await.unwrap().is_some() {
        parts += 1;
        assert!(parts < 100, "compactions do not come to an end");
    }
    check_runs(&tablet, 1);
    assert_eq!((tablet.may_shrink(), tablet.garbage_share()), (false, 0));
    assert!(tablet.state().file_bytes() < before);
    let found = read(&tablet).await;
    assert_eq!((found.matches('=').count(), found.matches("too").count()), (1000, 75));
}

#[tokio::test]
async fn a_merge_goes_on_in_parts_while_flushes_arrive() {
    let tablet = with_bottom().await;
    write_rows(&tablet, (0..1000).filter(|n| n % 2 == 0), "even, of the first time");
    tablet.flush().await.unwrap();
    let mut parts = 0;
    while tablet.compact_if_due().await.unwrap() {
        parts += 1;
        assert!(parts < 100);
        write_rows(&tablet, [parts * 7], "while it ran");
        tablet.flush().await.unwrap();
        let found = read(&tablet).await;
        assert_eq!(found.matches('=').count(), 1000);
        assert_eq!(found.matches("=while it ran").count(), parts.min(142));
        let opened = Manifest::decode_file("m", &tablet.manifest().await.encode_file()).unwrap();
        assert_eq!(opened, tablet.manifest().await);
    }
    assert!(parts > 1, "one job for all of it");
    let advanced = files(&tablet).iter().any(|file| file.reference.lower.is_some());
    assert!(!advanced, "the merge has ended half-way");
}

/// A tablet with a bottom of few rows and a tier of many between, before and behind them.
async fn with_much_above() -> Arc<Tablet> {
    let mut small_blocks = schema(DeleteRule::BySequence, None).as_ref().clone();
    small_blocks.groups[0].options.block_bytes = Some(256);
    let tablet = small_files(Arc::new(small_blocks)).await;
    write_rows(&tablet, [500, 1500], "of the bottom");
    tablet.flush().await.unwrap();
    write_rows(
        &tablet,
        (0..3000).filter(|row| *row != 500),
        "a value that is somewhat longer",
    );
    tablet.flush().await.unwrap();
    check_runs(&tablet, 2);
    tablet
}

#[tokio::test]
async fn a_job_takes_no_more_of_the_tiers_than_it_may_of_the_bottom() {
    let tablet = with_much_above().await;
    let read_bytes = &tablet.context.metrics.compaction_read_bytes;
    let (mut parts, mut before, mut all) = (0, read_bytes.get(), tablet.state().file_bytes());
    assert!(all > 20 * FILE_BYTES);
    tablet.state().groups[0].compaction_stats.read(1_000_000);
    while tablet.compact_if_due().await.unwrap() {
        // The last file of the part before, if it is small, comes on top.
        let taken = read_bytes.get() - before;
        assert!(taken <= 5 * FILE_BYTES, "{taken} bytes in one job");
        before = read_bytes.get();
        parts += 1;
        all += FILE_BYTES;
        assert_eq!(read(&tablet).await.matches('=').count(), 3000);
        check_runs(&tablet, tablet.state().groups[0].runs().count());
    }
    assert!(parts > 6 && before < all, "{parts} parts, {before} bytes read");
    check_runs(&tablet, 1);
    assert_eq!(read(&tablet).await.matches("=of the bottom").count(), 1);
}

#[tokio::test]
async fn a_compaction_of_everything_is_one_of_parts() {
    let tablet = with_much_above().await;
    delete_rows(&tablet, 700..800);
    tablet.compact_all().await.unwrap();
    let jobs = &tablet.context.metrics.compactions;
    assert!(jobs.get() > 6, "{} jobs", jobs.get());
    check_runs(&tablet, 1);
    let tombstones: u64 = files(&tablet).iter().map(|file| file.reference.deletes).sum();
    assert_eq!((tombstones, read(&tablet).await.matches('=').count()), (0, 2900));
    // Every file is rewritten, though nothing lies above it.
    let before = ids(&tablet);
    tablet.compact_all().await.unwrap();
    let after = ids(&tablet);
    assert!(!before.iter().any(|file| after.contains(file)), "{before:?} {after:?}");
    assert_eq!(
        (files(&tablet).len(), read(&tablet).await.matches('=').count()),
        (after.len(), 2900)
    );
    check_runs(&tablet, 1);
}

#[tokio::test]
async fn sequential_rows_leave_the_bottom_alone() {
    let tablet = with_bottom().await;
    let before = ids(&tablet);
    write_rows(&tablet, 2000..3000, "a value that is somewhat longer");
    tablet.flush().await.unwrap();
    assert!(!tablet.compaction_due(), "of what is new nothing is garbage");
    tablet.state().groups[0].compaction_stats.read(1_000_000);
    merge_all(&tablet).await;
    check_runs(&tablet, 1);
    let after = ids(&tablet);
    let kept = before.iter().filter(|file| after.contains(file)).count();
    assert!(kept + 1 >= before.len(), "{before:?} {after:?}");
    assert_eq!(read(&tablet).await.matches('=').count(), 2000);
}

#[tokio::test]
async fn deletes_give_space_back_by_themselves() {
    let tablet = with_bottom().await;
    let before = tablet.state().file_bytes();
    delete_rows(&tablet, 0..700);
    tablet.flush().await.unwrap();
    merge_all(&tablet).await;
    let after = tablet.state().file_bytes();
    assert!(after * 2 < before, "{before} {after}");
    let tombstones: u64 = files(&tablet).iter().map(|file| file.reference.deletes).sum();
    assert_eq!(tombstones, 0);
    assert_eq!(read(&tablet).await.matches('=').count(), 300);
}

#[tokio::test]
async fn a_cold_tablet_of_expired_cells_becomes_empty() {
    let tablet = with_bottom().await;
    assert!(!tablet.compaction_due());
    tablet.set_schema(schema(DeleteRule::BySequence, Some(GcRule::MaxAgeMicros(1_000_000))));
    assert!(tablet.compaction_due());
    merge_all(&tablet).await;
    assert_eq!(ids(&tablet), []);
}

fn with_families(ids: &[u32]) -> Arc<TableSchema> {
    let mut with = TableSchema::clone(&schema(DeleteRule::BySequence, None));
    let family = with.families.remove(&FamilyId(1)).unwrap();
    with.families = ids.iter().map(|id| (FamilyId(*id), family.clone())).collect();
    with.next_family = FamilyId(4);
    Arc::new(with)
}

#[tokio::test]
async fn what_dropped_families_take_is_given_back() {
    let tablet = small_files(with_families(&[1, 2])).await;
    let of = |family| Mutation::Put {
        family: FamilyId(family),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"a value that is somewhat longer"),
    };
    for n in 0..1000 {
        write_row(&tablet, row(n), vec![of(1), of(2)]);
    }
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    let before = tablet.state().file_bytes();
    assert!(!tablet.compaction_due());
    tablet.set_schema(with_families(&[1]));
    assert!(tablet.compaction_due(), "half of it is garbage");
    merge_all(&tablet).await;
    let after = tablet.state().file_bytes();
    assert!(after * 4 < before * 3, "{before} {after}");
    assert_eq!(read(&tablet).await.matches('=').count(), 1000);
    // Another of the same name.
    tablet.set_schema(with_families(&[3]));
    merge_all(&tablet).await;
    assert_eq!(ids(&tablet), []);
}

#[tokio::test]
async fn a_tablet_of_many_files_is_divided_in_the_middle() {
    let tablet = with_bottom().await;
    let at = tablet.split_row().await.unwrap().unwrap();
    assert!(row(400) < at && at < row(600), "{at:?}");
    // Files may be a little smaller than the bytes at which they are ended, before they are complete.
    let (_, samples) = tablet.sample(FILE_BYTES / 4 * 3, usize::MAX).await.unwrap();
    assert!(
        samples.len() + 2 >= files(&tablet).len() && samples.is_sorted(),
        "{samples:?}"
    );
    let state = tablet.state();
    let range = RowRange {
        start: row(300),
        end: Some(row(310)),
    };
    let stopped = tablet.stop_compactions().await;
    tablet.drop_rows(&range, &stopped).await.unwrap();
    drop(stopped);
    check_runs(&tablet, 1);
    assert_eq!(read(&tablet).await.matches('=').count(), 990);
    drop(state);
}

/// The row takes most of the tablet, is its first, and has a file to itself.
#[tokio::test]
async fn a_tablet_that_begins_with_a_huge_row_is_divided_behind_it() {
    let tablet = small_files(schema(DeleteRule::BySequence, None)).await;
    let version = |timestamp| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        value: Bytes::from(vec![b'v'; 1_000]),
    };
    write_row(&tablet, row(0), (0..100).map(version).collect());
    write_rows(&tablet, 1..400, "a value that is somewhat longer");
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    let sizes: Vec<u64> = files(&tablet).iter().map(HeldFile::size).collect();
    assert!(
        sizes.len() > 2 && sizes[0] > sizes[1..].iter().sum::<u64>() * 2,
        "{sizes:?}"
    );
    assert_eq!(tablet.split_row().await.unwrap(), Some(row(1)));
}

/// Files that have none of the rows stay as they are, and nothing is merged because of them.
#[tokio::test]
async fn rows_that_are_dropped_do_not_concern_files_without_them() {
    let tablet = with_bottom().await;
    write_rows(&tablet, 500..520, "new");
    tablet.flush().await.unwrap();
    assert!(!tablet.compaction_due());
    let references = || {
        files(&tablet)
            .into_iter()
            .map(|file| file.reference)
            .collect::<Vec<_>>()
    };
    let before = references();
    let range = |start: usize, end: usize| RowRange {
        start: row(start),
        end: Some(row(end)),
    };
    let stopped = tablet.stop_compactions().await;
    tablet.drop_rows(&range(2000, 2010), &stopped).await.unwrap();
    assert_eq!(references(), before);
    // Before those of the tier.
    tablet.drop_rows(&range(100, 110), &stopped).await.unwrap();
    drop(stopped);
    assert_eq!(references().last(), before.last());
    assert!(!tablet.compaction_due());
    assert_eq!(read(&tablet).await.matches('=').count(), 990);
}

/// It may be in the log all the same: the part of it that counts is written when the next segment begins, and the
/// process may end before.
#[tokio::test]
async fn what_was_refused_does_not_come_back_behind_a_drop() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let batch = |n, value| {
        let mut builder = BatchBuilder::default();
        builder.push_row(&RowMutation {
            row: row(n),
            mutations: vec![put(1, value)],
        });
        builder.finish()
    };
    let refused = batch(1, "refused");
    let first = tablet.sequence(refused.len(), |first| first).unwrap();
    drop_single_rows(&tablet, [1]).await;
    let later = batch(2, "later");
    let behind = tablet.sequence(later.len(), |first| first).unwrap();
    assert!(first <= tablet.flushed_through() && tablet.flushed_through() < behind);
    tablet.apply(&later, behind);
    let next = Tablet::open(
        tablet.context.clone(),
        tablet.schema(),
        tablet.id(),
        stele_types::Epoch(2),
    );
    let next = next.await.unwrap();
    for (batch, first) in [(&refused, first), (&later, behind)] {
        next.replay(batch, first, first.plus(batch.len() - 1));
    }
    assert_eq!(read(&next).await, "1=later");
}

async fn drop_single_rows(tablet: &Tablet, rows: impl IntoIterator<Item = usize>) {
    let stopped = tablet.stop_compactions().await;
    for n in rows {
        let range = RowRange {
            start: row(n),
            end: Some(row(n + 1)),
        };
        tablet.drop_rows(&range, &stopped).await.unwrap();
    }
}

/// Drops leave one run of a file's parts, and the file is there once.
#[tokio::test]
async fn small_drops_within_one_file_make_no_merge_due() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    write_rows(&tablet, 0..3000, "a value that is somewhat longer");
    tablet.flush().await.unwrap();
    let file = ids(&tablet)[0];
    drop_single_rows(&tablet, (1..=10).map(|n| 100 * n)).await;
    check_runs(&tablet, 1);
    assert_eq!(ids(&tablet), [file; 11]);
    assert!(!tablet.compaction_due());
    assert_eq!(read(&tablet).await.matches('=').count(), 2990);
    // More than a manifest should have to say of one file.
    drop_single_rows(&tablet, (1..=60).map(|n| 1500 + 10 * n)).await;
    assert!(tablet.compaction_due());
    assert_eq!(merge_all(&tablet).await, 1);
    let after = ids(&tablet);
    assert!(after.len() == 1 && after[0] != file, "{after:?}");
    assert_eq!(read(&tablet).await.matches('=').count(), 2930);
}

/// Nor where there are others next to it.
#[tokio::test]
async fn small_drops_do_not_make_a_bottom_look_mostly_dead() {
    let tablet = with_bottom().await;
    drop_single_rows(&tablet, (0..80).map(|n| 200 + 2 * n)).await;
    check_runs(&tablet, 1);
    assert!(!tablet.compaction_due());
    assert_eq!(read(&tablet).await.matches('=').count(), 920);
}

/// Nor is a tier of which something was dropped in the middle one that a merge has begun with.
#[tokio::test]
async fn a_drop_within_an_upper_run_begins_no_compaction() {
    let tablet = with_bottom().await;
    write_rows(&tablet, 500..520, "new");
    tablet.flush().await.unwrap();
    drop_single_rows(&tablet, [510]).await;
    check_runs(&tablet, 2);
    assert!(!tablet.compaction_due());
    assert_eq!(read(&tablet).await.matches('=').count(), 999);
    // It goes on to be one tier, of one age.
    tablet.state().groups[0].compaction_stats.read(1_000_000);
    merge_all(&tablet).await;
    check_runs(&tablet, 1);
    let found = read(&tablet).await;
    assert_eq!((found.matches('=').count(), found.matches("=new").count()), (999, 19));
}

/// A long sequential read compares no key with bounds that cut nothing off.
#[tokio::test]
async fn files_that_a_split_leaves_whole_are_read_as_before() {
    let tablet = with_bottom().await;
    let begins = files(&tablet)[3].first_key().to_vec();
    let len = key::row_prefix_len(&begins).unwrap();
    let at = Bytes::from(key::decode_row(&begins[..len]).unwrap().into_owned());
    let (left, right) = tablet.divide(&at, TabletId(2), TabletId(3)).await.unwrap();
    let options = ReadOptions {
        fill_cache: false,
        readahead_bytes: 0,
        single_row: false,
        times: Times::ALL,
    };
    for (manifest, backward) in [(left, false), (right, true)] {
        let half = Tablet::create(tablet.context.clone(), tablet.schema(), manifest).await;
        let held = files(&half.unwrap());
        let has_bound = |file: &HeldFile| file.reference.lower.is_some() || file.reference.upper.is_some();
        assert!(held.len() > 1 && held.iter().all(has_bound));
        // A run, and a file by itself.
        for some in [&held[..], &held[..1]] {
            let source = crate::merging::run_source(some, &[], None, None, options).unwrap();
            let mut merge = MergingIterator::new(vec![source]);
            let step = match backward {
                true => merge.seek_before(&[0xff]),
                false => merge.seek(&[]),
            };
            assert_eq!(step.unwrap(), Step::Ready);
            assert!(merge.lone_cursor().is_some(), "each key is compared with a bound");
        }
    }
}

/// Rows that no older run had replace nothing, which the halves cannot find out by themselves.
#[tokio::test]
async fn halves_of_a_tablet_of_new_rows_are_not_rewritten() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    // Each of several blocks, of which alone parts of files are made.
    for n in 0..5 {
        let rows = (0..5000).filter(|row| row % 5 == n);
        write_rows(&tablet, rows, "a value that is somewhat longer");
        tablet.flush().await.unwrap();
    }
    assert!(!tablet.compaction_due());
    let (left, right) = tablet.divide(&row(2500), TabletId(2), TabletId(3)).await.unwrap();
    for manifest in [left, right] {
        let half = Tablet::create(tablet.context.clone(), tablet.schema(), manifest).await;
        let half = half.unwrap();
        assert!(half.compaction_due(), "who knows nothing expects garbage");
        half.learn_from(&tablet);
        assert!(!half.compaction_due());
        assert_eq!(half.compaction_debt(), 0);
        check_runs(&half, 5);
        assert_eq!(read(&half).await.matches('=').count(), 2500);
    }
}

/// The state that reaches an entry directly, and the state that the resolver derives, must be the same wherever a row
/// changes hands.
#[tokio::test]
async fn a_row_may_begin_plain_and_go_on_with_markers() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = small_files(schema(rule, Some(GcRule::MaxVersions(3)))).await;
        let (family, qualifier) = (FamilyId(1), Bytes::from_static(b"q"));
        let delete = |timestamp| Mutation::DeleteVersion {
            family,
            qualifier: qualifier.clone(),
            timestamp: Timestamp(timestamp),
        };
        for timestamp in 1..=6 {
            write(&tablet, vec![put(timestamp, "old")]);
        }
        write(&tablet, vec![delete(5), delete(4)]);
        write(&tablet, vec![put(6, "new")]);
        let expected = "6=new 3=old 2=old";
        assert_eq!(read(&tablet).await, expected, "{rule:?}");
        tablet.flush().await.unwrap();
        assert_eq!(read(&tablet).await, expected, "{rule:?} after a flush");
        tablet.compact_all().await.unwrap();
        assert_eq!(read(&tablet).await, expected, "{rule:?} after a compaction");
    }
}

/// So that a merge into the bottom gives them back one after the other, while those of the bottom are as large as is asked.
#[tokio::test]
async fn what_is_flushed_above_a_bottom_is_in_smaller_files() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    write_rows(&tablet, 0..1, "a value");
    tablet.flush().await.unwrap();
    let mut noise = 1u64;
    let mut word = || {
        noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (noise >> 32) as u32
    };
    for n in 0..2000 {
        let value: Vec<u8> = (0..5000).flat_map(|_| word().to_le_bytes()).collect();
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(1),
            value: value.into(),
        };
        write_row(&tablet, row(n), vec![put]);
    }
    tablet.flush().await.unwrap();
    check_runs(&tablet, 2);
    let flushed: Vec<u64> = files(&tablet).iter().skip(1).map(HeldFile::bytes).collect();
    assert_eq!(flushed.len(), 3, "{flushed:?}");
    assert!(flushed.iter().all(|bytes| *bytes < 17 << 20), "{flushed:?}");
    tablet.compact_all().await.unwrap();
    assert_eq!(files(&tablet).len(), 1);
}

/// A job takes seconds; memtables flushed meanwhile are in files, and their memory counts against writers.
#[tokio::test]
async fn memtables_flushed_during_a_compaction_are_freed_at_once() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for _ in 0..8 {
        write_rows(&tablet, 0..2000, "a value");
        tablet.flush().await.unwrap();
    }
    write_rows(&tablet, 0..2000, "a value");
    assert!(tablet.context.memory.bytes() > 0);
    let mut compacting = Box::pin(tablet.compact_next());
    assert!(
        futures::poll!(&mut compacting).is_pending(),
        "sixteen thousand entries are merged without a pause"
    );
    tablet.flush().await.unwrap();
    assert_eq!(tablet.context.memory.bytes(), 0);
    assert!(compacting.await.unwrap().is_some());
}

/// A put that age makes garbage, above an older one of the same version that was written before there was a rule.
#[tokio::test]
async fn age_uncovers_nothing_that_was_overwritten() {
    let none = |version| {
        let mut none = TableSchema::clone(&schema(DeleteRule::BySequence, None));
        none.version = version;
        Arc::new(none)
    };
    let mut ages = TableSchema::clone(&schema(DeleteRule::BySequence, Some(GcRule::MaxAgeMicros(1_000_000))));
    ages.version = 5;
    let tablet = tablet(none(4)).await;
    write(&tablet, vec![put(1, "old")]);
    tablet.flush().await.unwrap();
    write(&tablet, vec![put(1, "new"), put(2, "later")]);
    tablet.set_schema(Arc::new(ages));
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "", "all of it is past the rule");
    tablet.set_schema(none(6));
    assert_eq!(
        read(&tablet).await,
        "1=new",
        "2 is behind everything older, and may be gone"
    );
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "1=new");
}

/// The lowest and the highest sequence number in each file.
fn sequences(tablet: &Tablet) -> Vec<(u64, u64)> {
    let files = files(tablet);
    let properties = files.iter().map(|file| file.sstable.properties());
    properties.map(|p| (p.seq_min, p.seq_max)).collect()
}

#[tokio::test]
async fn sequences_are_forgotten_where_they_decide_nothing() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = small_files(schema(rule, None)).await;
        write_rows(&tablet, 0..20, "old");
        tablet.flush().await.unwrap();
        assert!(sequences(&tablet)[0].0 > 0, "a flush merges no files");
        tablet.compact_all().await.unwrap();
        assert_eq!(sequences(&tablet), [(0, 0)]);
        // The same versions, some of them twice, and some deleted: above a bottom it counts which is newer.
        write_rows(&tablet, 0..10, "overwritten");
        delete_rows(&tablet, 5..8);
        write_rows(&tablet, 0..10, "new");
        tablet.flush().await.unwrap();
        let upper = *sequences(&tablet).last().unwrap();
        assert!(upper.0 > 0 && upper.1 > upper.0, "{upper:?}");
        let before = read(&tablet).await;
        let deleted = if rule == DeleteRule::BySequence { 0 } else { 3 };
        assert_eq!(before.matches("=new").count(), 10 - deleted);
        assert_eq!(
            (before.matches("=old").count(), before.matches("=overwritten").count()),
            (10, 0)
        );
        tablet.compact_all().await.unwrap();
        assert!(sequences(&tablet).iter().all(|of_file| *of_file == (0, 0)));
        assert_eq!(read(&tablet).await, before);
        // All later writes are newer.
        delete_rows(&tablet, 18..19);
        write_rows(&tablet, 0..5, "newest");
        for flushed in [false, true] {
            if flushed {
                tablet.flush().await.unwrap();
            }
            let after = read(&tablet).await;
            assert_eq!(
                (after.matches("=newest").count(), after.matches("=old").count()),
                (5, 9)
            );
        }
    }
}

/// Records of a log need not come in the order of their numbers, and one that comes late may be needed below the
/// flushed data.
#[tokio::test]
async fn what_was_replayed_is_flushed_together() {
    let tablet = small_files(schema(DeleteRule::BySequence, None)).await;
    let replay = |value: &'static str, number: u64| {
        let mut builder = BatchBuilder::default();
        let (row, mutations) = (row(1), vec![put(1, value)]);
        builder.push_row(&RowMutation { row, mutations });
        tablet.replay(&builder.finish(), SeqNo(number), SeqNo(number));
    };
    replay("new", 20);
    // As when a memtable is full.
    tablet.freeze();
    replay("old", 10);
    tablet.flush().await.unwrap();
    assert_eq!((files(&tablet).len(), tablet.flushed_through()), (1, SeqNo(20)));
    assert_eq!(read(&tablet).await, "1=new");
}
