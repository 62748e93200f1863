//! A run against the sorted keys it stands for.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::held::Times;
use crate::manifest::FileRef;
use crate::merging::{MergingIterator, run_source};
use proptest::prelude::*;
use std::sync::Arc;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::{Cache, Sstable, SstableWriter, WriteOptions};
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_types::{CellKind, FamilyId, FileId, KeyBuf, SeqNo, Timestamp, key};

const READ: ReadOptions = ReadOptions {
    fill_cache: false,
    readahead_bytes: 0,
    single_row: false,
    times: Times::ALL,
};

fn cell(row: u32) -> Vec<u8> {
    let mut buffer = KeyBuf::new();
    let row = format!("{row:04}");
    buffer.set(row.as_bytes(), FamilyId(1), b"q", Timestamp(1), SeqNo(1), CellKind::Put);
    buffer.as_slice().to_vec()
}

fn bound(row: u32) -> Bytes {
    Bytes::from(key::row_prefix(format!("{row:04}").as_bytes()))
}

/// Files of ten rows each, every second row, so that there is something to miss: file n has the rows 20 n, 20 n + 2, …
/// and is cut down to `cuts[n]` within.
async fn files(storage: &Arc<FaultyStorage>, cuts: &[(u32, u32)]) -> Vec<HeldFile> {
    let mut files = Vec::new();
    for (n, &(lower, upper)) in (0u32..).zip(cuts) {
        let id = FileId(u64::from(n) + 1);
        let file = storage.create(&FileRef::path(id)).await.unwrap();
        let mut options = WriteOptions::new(id);
        options.block_bytes = 64;
        let mut writer = SstableWriter::new(file, options);
        for row in 0..10 {
            writer.add(&cell(20 * n + 2 * row), b"value").unwrap();
        }
        let meta = writer.finish().await.unwrap();
        let open = storage.open(&FileRef::path(id)).await.unwrap();
        files.push(HeldFile {
            reference: FileRef {
                file: id.0,
                len: meta.file_bytes,
                lower: (lower > 0).then(|| bound(20 * n + lower)),
                upper: (upper < 20).then(|| bound(20 * n + upper)),
                run: 1,
                ..FileRef::default()
            },
            sstable: Sstable::open(open, id, Arc::new(Cache::new(0))).await.unwrap(),
            values: Arc::default(),
        });
    }
    files
}

async fn settle(merge: &mut MergingIterator, mut step: Step) -> Step {
    while step == Step::Pending {
        step = merge.load().await.unwrap();
    }
    step
}

async fn check(cuts: &[(u32, u32)], read_miss: f64, range: (u32, u32), targets: &[u32]) {
    let storage = FaultyStorage::new(TokioRuntime::current());
    let files = files(&storage, cuts).await;
    storage.set_plan(FaultPlan {
        read_miss,
        ..FaultPlan::default()
    });
    let within = |n: u32, row: u32| cuts[n as usize].0 <= 2 * row && 2 * row < cuts[n as usize].1;
    let every = (0..cuts.len() as u32).flat_map(|n| (0..10).map(move |row| (n, row)));
    let all: Vec<u32> = every
        .filter(|&(n, row)| within(n, row))
        .map(|(n, row)| 20 * n + 2 * row)
        .collect();
    let (lower, upper) = (bound(range.0), bound(range.1));
    let Some(source) = run_source(&files, &lower, Some(&upper), None, READ) else {
        assert!(!all.iter().any(|row| (range.0..range.1).contains(row)));
        return;
    };
    let mut merge = MergingIterator::new(vec![source]);
    for &target in targets.iter().filter(|t| (range.0..range.1).contains(t)) {
        let step = merge.seek(&bound(target)).unwrap();
        let mut step = settle(&mut merge, step).await;
        for row in all.iter().filter(|&&row| (target..range.1).contains(&row)) {
            assert_eq!(
                (step, merge.key()),
                (Step::Ready, &cell(*row)[..]),
                "from {target}, at {row}"
            );
            let next = merge.advance().unwrap();
            step = settle(&mut merge, next).await;
        }
        let step = merge.seek_before(&bound(target)).unwrap();
        let mut step = settle(&mut merge, step).await;
        for row in all.iter().rev().filter(|&&row| (range.0..target).contains(&row)) {
            assert_eq!(
                (step, merge.key()),
                (Step::Ready, &cell(*row)[..]),
                "before {target}, at {row}"
            );
            let previous = merge.retreat().unwrap();
            step = settle(&mut merge, previous).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_run_is_its_files_one_after_the_other(
        cuts in prop::collection::vec((0u32..21, 0u32..21), 1..5),
        read_miss in prop::sample::select(vec![0.0, 0.5, 1.0]),
        (a, b) in (0u32..100, 0u32..100),
        targets in prop::collection::vec(0u32..100, 1..6),
    ) {
        let cuts: Vec<(u32, u32)> = cuts.into_iter().map(|(a, b)| (a.min(b).min(18), a.max(b))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&cuts, read_miss, (a.min(b), a.max(b)), &targets));
    }
}
