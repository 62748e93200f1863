//! Tablets whose large values are in value files.

use super::*;
use crate::SpaceLimit;
use crate::manifest::{FileRef, StoredFile};
use crate::values::load::ValueMemory;
use std::collections::BTreeSet;
use std::ops::Bound;
use stele_filter::Filter;
use stele_storage::faulty::FaultyStorage;
use stele_types::{Cell, Epoch, ErrorKind, RowRange, TabletId};

/// Values of at least this are kept apart here.
const APART: usize = 1_000;
const MEMORY: usize = 1 << 20;

fn context(storage: &Arc<dyn Storage>, epoch: u32, separate_bytes: usize) -> TabletContext {
    context_with(storage, epoch, separate_bytes, Cache::new(0))
}

fn context_with(storage: &Arc<dyn Storage>, epoch: u32, separate_bytes: usize, cache: Cache) -> TabletContext {
    let files = FileRegistry::new(storage.clone(), Arc::new(cache), epoch)
        .with_values(separate_bytes, ValueMemory::new(MEMORY));
    TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    }
}

async fn create(storage: &Arc<dyn Storage>, separate_bytes: usize) -> Arc<Tablet> {
    create_in(context(storage, 1, separate_bytes)).await
}

async fn create_in(context: TabletContext) -> Arc<Tablet> {
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let schema = schema(DeleteRule::BySequence, None);
    Tablet::create(context, schema, manifest).await.unwrap()
}

async fn open(storage: &Arc<dyn Storage>, epoch: u32, separate_bytes: usize) -> Arc<Tablet> {
    let schema = schema(DeleteRule::BySequence, None);
    let context = context(storage, epoch, separate_bytes);
    Tablet::open(context, schema, TabletId(1), Epoch(epoch)).await.unwrap()
}

fn memory() -> Arc<dyn Storage> {
    MemoryStorage::new()
}

fn value(row: u64, version: u8) -> Bytes {
    Bytes::from(vec![version ^ row as u8; APART + row as usize % 7])
}

fn name(row: u64) -> Bytes {
    Bytes::from(format!("{row:04}"))
}

fn write_value(tablet: &Tablet, row: u64, qualifier: &'static str, value: Bytes) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp: Timestamp(1),
        value,
    };
    write_row(tablet, name(row), vec![put]);
}

async fn write_all(tablet: &Tablet, rows: impl IntoIterator<Item = u64>, version: u8) {
    for row in rows {
        write_value(tablet, row, "large", value(row, version));
        write_value(tablet, row, "small", Bytes::from_static(b"small"));
    }
    tablet.flush().await.unwrap();
}

async fn cells(tablet: &Arc<Tablet>, filter: Option<Filter>, reversed: bool) -> crate::Result<Vec<(Bytes, Vec<Cell>)>> {
    cells_in(tablet, RowSet::all(), filter, reversed).await
}

async fn cells_of(tablet: &Arc<Tablet>, row: u64) -> crate::Result<Vec<(Bytes, Vec<Cell>)>> {
    let rows = RowSet::new(vec![RowRange::single(&name(row))]);
    cells_in(tablet, rows, None, false).await
}

async fn cells_in(
    tablet: &Arc<Tablet>,
    rows: RowSet,
    filter: Option<Filter>,
    reversed: bool,
) -> crate::Result<Vec<(Bytes, Vec<Cell>)>> {
    let spec = ScanSpec {
        rows,
        filter: filter.map(|filter| Arc::new(filter.compile(&tablet.schema()).unwrap())),
        reversed,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec.clone());
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_batch().await? {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    assert_eq!(
        super::partial_rows::in_partial_rows(tablet, spec, APART / 2).await?,
        found
    );
    Ok(found)
}

/// The rows have the large values of this version, and their small ones, whichever way they are read.
async fn check_rows(tablet: &Arc<Tablet>, rows: impl Iterator<Item = u64>, version: u8) {
    let rows: Vec<u64> = rows.collect();
    for reversed in [false, true] {
        let mut found = cells(tablet, None, reversed).await.unwrap();
        if reversed {
            found.reverse();
        }
        assert_eq!(found.len(), rows.len());
        for (row, (key, cells)) in rows.iter().zip(found) {
            let values: Vec<&[u8]> = cells.iter().map(|cell| &cell.value[..]).collect();
            assert_eq!(
                (&key, &values[..]),
                (&name(*row), &[&value(*row, version)[..], b"small"][..])
            );
        }
    }
}

/// A filter that checks values gets them before a row of a list is at its end.
#[tokio::test]
async fn lists_of_rows_wait_for_values() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..30, 1).await;
    let large = value(8, 1)[..1].to_vec();
    let filter = Filter::ValueRange {
        start: Bound::Included(Bytes::from(large)),
        end: Bound::Unbounded,
    };
    let expected = cells(&tablet, Some(filter.clone()), false).await.unwrap();
    assert!(!expected.is_empty());
    let spec = ScanSpec {
        rows: RowSet::new((0..30).map(|row| RowRange::single(&name(row))).collect()),
        filter: Some(Arc::new(filter.compile(&tablet.schema()).unwrap())),
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let (mut scanner, mut found) = (TabletScanner::new(tablet.clone(), spec), Vec::new());
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    assert_eq!(found, expected);
}

/// Value files on the storage.
async fn value_files(storage: &Arc<dyn Storage>) -> BTreeSet<String> {
    let files = storage.list("sst/").await.unwrap();
    let values = files
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.ends_with(".val"));
    values.collect()
}

async fn value_bytes(storage: &Arc<dyn Storage>) -> u64 {
    let files = storage.list("sst/").await.unwrap();
    files
        .iter()
        .filter(|file| file.path.ends_with(".val"))
        .map(|file| file.len)
        .sum()
}

/// Takes the value files away; they can be brought back.
async fn hide(storage: &Arc<dyn Storage>) -> Vec<(String, Bytes)> {
    let mut hidden = Vec::new();
    for path in value_files(storage).await {
        let content = storage.read_all(&path).await.unwrap();
        storage.delete(&path).await.unwrap();
        hidden.push((path, content));
    }
    hidden
}

#[tokio::test]
async fn values_are_found_from_files_of_both_kinds() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..30, 1).await;
    assert_eq!(value_files(&storage).await.len(), 1);
    check_rows(&tablet, 0..30, 1).await;
    tablet.compact_all().await.unwrap();
    check_rows(&tablet, 0..30, 1).await;
    let tablet = open(&storage, 2, APART).await;
    check_rows(&tablet, 0..30, 1).await;
    // A read of one row on the calling thread leaves it to a scan.
    assert_eq!(tablet.get_row(&name(7), None).unwrap(), None);
    assert!(tablet.get_row(b"none", None).unwrap().is_some());
}

#[tokio::test]
async fn the_size_counts_the_values() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..100, 1).await;
    let all = value_bytes(&storage).await;
    let size = tablet.state().file_bytes();
    assert!(size > all && size < all + 20_000, "{size} for values of {all}");
    let before = tablet.state().bytes_before(b"\xff").await.unwrap();
    assert!(before > all / 2 && before <= size, "{before} of {size}");
}

/// The device can no longer read the values: those in the cache are served, and those too large for it are not.
#[tokio::test]
async fn values_are_cached_unless_they_are_bulky() {
    let device = FaultyStorage::new(TokioRuntime::current());
    let storage: Arc<dyn Storage> = device.clone();
    // A shard of 64 KiB, so values up to 2 KiB.
    let tablet = create_in(context_with(&storage, 1, APART, Cache::new(1 << 20))).await;
    write_all(&tablet, 0..20, 1).await;
    write_value(&tablet, 20, "large", Bytes::from(vec![1; 3_000]));
    tablet.flush().await.unwrap();
    assert_eq!(cells(&tablet, None, false).await.unwrap().len(), 21);
    for path in value_files(&storage).await {
        device.make_unreadable(&path, 0..u64::MAX);
    }
    for row in 0..20 {
        let found = cells_of(&tablet, row).await.unwrap();
        assert_eq!(found[0].1[0].value, value(row, 1));
    }
    assert!(cells_of(&tablet, 20).await.is_err());
}

/// A compaction does not read values that it does not need: it succeeds without the files.
#[tokio::test]
async fn merges_and_filters_without_values_read_none() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..30, 1).await;
    write_all(&tablet, 30..60, 1).await;
    tablet.close();
    drop(tablet);
    let hidden = hide(&storage).await;
    assert_eq!(hidden.len(), 2);
    let tablet = open(&storage, 2, APART).await;
    assert_eq!(tablet.context.files.damaged().len(), 2);
    tablet.compact_all().await.unwrap();
    let stripped = cells(&tablet, Some(Filter::StripValue), false).await.unwrap();
    let is_empty = |(_, cells): &(Bytes, Vec<Cell>)| cells.len() == 2 && cells.iter().all(|cell| cell.value.is_empty());
    assert!(stripped.len() == 60 && stripped.iter().all(is_empty));
    let small = Filter::QualifierRegex(Bytes::from_static(b"small"));
    assert_eq!(cells(&tablet, Some(small), true).await.unwrap().len(), 60);
    // The last cell of each row is the small one; the first has to pass the filter before it is known that it goes.
    let last = Filter::Chain(vec![Filter::PassAll, Filter::CellsPerRowOffset(1)]);
    assert_eq!(cells(&tablet, Some(last), false).await.unwrap().len(), 60);
    let error = cells(&tablet, None, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains(".val"), "{error}");
    tablet.close();
    for (path, content) in hidden {
        storage.put_if_absent(&path, content).await.unwrap();
    }
    check_rows(&open(&storage, 3, APART).await, 0..60, 1).await;
}

#[tokio::test]
async fn filters_that_look_at_values_see_them() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..30, 1).await;
    let range = Filter::ValueRange {
        start: Bound::Included(value(3, 1)),
        end: Bound::Included(value(3, 1)),
    };
    for reversed in [false, true] {
        let found = cells(&tablet, Some(range.clone()), reversed).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].0, &found[0].1[0].value), (&name(3), &value(3, 1)));
    }
    // Two cells of one.
    let twice = Filter::Interleave(vec![Filter::CellsPerRow(1), Filter::CellsPerRow(1)]);
    let found = cells(&tablet, Some(twice), false).await.unwrap();
    assert!(
        found
            .iter()
            .all(|(_, cells)| cells.len() == 2 && cells[0] == cells[1] && cells[0].value.len() >= APART)
    );
}

/// Values written before there were value files move to one with the first compaction.
#[tokio::test]
async fn values_in_older_files_move_with_a_compaction() {
    let storage = memory();
    let tablet = create(&storage, usize::MAX).await;
    write_all(&tablet, 0..30, 1).await;
    assert_eq!(value_files(&storage).await.len(), 0);
    tablet.close();
    drop(tablet);
    let tablet = open(&storage, 2, APART).await;
    check_rows(&tablet, 0..30, 1).await;
    tablet.compact_all().await.unwrap();
    assert_eq!(value_files(&storage).await.len(), 1);
    check_rows(&tablet, 0..30, 1).await;
}

/// Overwritten again and again, values take no more than about twice their space, and the rest of it is given back.
#[tokio::test]
async fn garbage_is_collected() {
    let storage = memory();
    let mut context = context(&storage, 1, APART);
    // Of files so small that those of a flush are not, and stay as long as there is no garbage in them.
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1).with_file_bytes(128 << 10);
    context.files = Arc::new(files.with_values(APART, ValueMemory::new(MEMORY)));
    let tablet = create_in(context).await;
    let (rows, rounds) = (200u64, 60u64);
    write_all(&tablet, 0..rows, 0).await;
    let mut most = 0;
    let mut written = 0;
    for round in 1..=rounds {
        // An eighth of the rows, spread over all of them, and two that stay: each file keeps these for good.
        let some = (0..rows).filter(|row| row * 7 % 8 == round % 8);
        let lasting = [2 * round, 2 * round + 1].map(|n| rows + n);
        let before = value_bytes(&storage).await;
        write_all(&tablet, some.chain(lasting), round as u8 / 8).await;
        written += value_bytes(&storage).await - before;
        while tablet.compact_if_due().await.unwrap() {}
        tablet.context.files.delete_obsolete().await.unwrap();
        most = most.max(value_bytes(&storage).await);
    }
    let live = written / (rows / 8 + 2) / rounds * (rows + 2 * rounds);
    assert!(most < live * 5 / 2, "{most} bytes of values of which {live} are live");
    let moved = tablet.context.metrics.compaction_written_bytes.get();
    assert!(
        moved < written * 2,
        "{moved} written to collect what {written} replaced"
    );
    let found = cells(&tablet, None, false).await.unwrap();
    for (row, (key, cells)) in (0..rows).zip(found) {
        let last = (1..=rounds)
            .rev()
            .find(|round| row * 7 % 8 == round % 8)
            .unwrap_or_default();
        assert_eq!((&key, &cells[0].value), (&name(row), &value(row, last as u8 / 8)));
    }
    tablet.compact_all().await.unwrap();
    tablet.context.files.delete_obsolete().await.unwrap();
    let left = value_bytes(&storage).await;
    assert!(
        left < live * 5 / 4,
        "{left} bytes left of values of which {live} are live"
    );
    let all = rows + 2 * rounds + 2;
    write_row(&tablet, name(all), vec![put(1, "small")]);
    for row in 0..all {
        write_row(&tablet, name(row), vec![Mutation::DeleteRow { up_to: Timestamp::MAX }]);
    }
    tablet.compact_all().await.unwrap();
    tablet.context.files.delete_obsolete().await.unwrap();
    assert_eq!(value_bytes(&storage).await, 0);
}

/// Where many tablets are written to, a flush has a few values of each. Values that are never overwritten would stay in
/// as many files as there were flushes.
#[tokio::test]
async fn small_value_files_are_gathered() {
    for (flushes, left) in [(7u64, 7usize), (20, 1)] {
        let storage = memory();
        let tablet = create(&storage, APART).await;
        for n in 0..flushes {
            write_all(&tablet, [2 * n, 2 * n + 1], 1).await;
        }
        assert_eq!(value_files(&storage).await.len() as u64, flushes);
        let values = value_bytes(&storage).await;
        let moved = || tablet.context.metrics.compaction_written_bytes.get();
        tablet.compact_all().await.unwrap();
        tablet.context.files.delete_obsolete().await.unwrap();
        assert_eq!(value_files(&storage).await.len(), left);
        check_rows(&tablet, 0..2 * flushes, 1).await;
        let before = moved();
        assert!(before < 2 * values, "{before} written for values of {values}");
        tablet.compact_all().await.unwrap();
        let more = moved() - before;
        assert!(more < values / 2, "{more} more written for values of {values}");
    }
}

/// The reserve is for work that frees space. Values that are gathered take their space twice, until nothing refers to
/// their old places: the other half of a tablet may for long.
#[tokio::test]
async fn nothing_is_gathered_in_the_reserve() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    let flushes = 20;
    for row in 0..flushes {
        write_all(&tablet, [row], 1).await;
    }
    let reserve = SpaceLimit {
        any: 0,
        into_bottom: 1 << 30,
    };
    while tablet.compact_for_space(reserve).await.unwrap().is_some() {}
    tablet.context.files.delete_obsolete().await.unwrap();
    assert_eq!(tablet.state().groups[0].runs().count(), 1, "merged");
    assert_eq!(value_files(&storage).await.len() as u64, flushes, "as they were");
    check_rows(&tablet, 0..flushes, 1).await;
}

/// A merge that moves values meets damage that nobody knew of. The next one leaves that file alone.
#[tokio::test]
async fn a_damaged_value_holds_up_those_beside_it_once() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    for row in 0..20 {
        write_all(&tablet, [row], 1).await;
    }
    tablet.close();
    drop(tablet);
    let damaged = value_files(&storage).await.pop_first().unwrap();
    super::damage::flip(&storage, &damaged, 100).await;
    let tablet = open(&storage, 2, APART).await;
    let error = tablet.compact_all().await.unwrap_err();
    assert!(error.to_string().contains(&damaged), "{error}");
    tablet.compact_all().await.unwrap();
    tablet.context.files.delete_obsolete().await.unwrap();
    let left = value_files(&storage).await;
    assert!(left.len() == 2 && left.contains(&damaged), "{left:?}");
}

/// Or it would be collected, and so would the file its value moves to, for ever.
#[tokio::test]
async fn the_header_of_a_value_file_is_no_garbage() {
    let tablet = create(&memory(), 4).await;
    write_value(&tablet, 1, "large", Bytes::from_static(b"tiny"));
    tablet.compact_all().await.unwrap();
    assert_eq!(
        tablet.context.metrics.compactions.get(),
        1,
        "nothing was left to collect"
    );
}

/// Both halves read the parent's values, neither takes the other's part for garbage, and the file goes with the last.
#[tokio::test]
async fn halves_of_a_tablet_share_its_value_files() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..2_000, 1).await;
    let files = value_files(&storage).await;
    let (left, right) = tablet.divide(&name(1_000), TabletId(2), TabletId(3)).await.unwrap();
    let mut halves = Vec::new();
    for manifest in [left, right] {
        let half = Tablet::create(tablet.context.clone(), tablet.schema(), manifest).await;
        halves.push(half.unwrap());
    }
    tablet.close();
    tablet.release_files().await;
    assert!(!halves[0].compaction_due() && !halves[1].compaction_due());
    check_rows(&halves[0], 0..1_000, 1).await;
    check_rows(&halves[1], 1_000..2_000, 1).await;
    halves[0].compact_all().await.unwrap();
    halves[0].context.files.delete_obsolete().await.unwrap();
    assert_eq!(value_files(&storage).await, files);
    for half in [&halves[1], &halves[0]] {
        let stopped = half.stop_compactions().await;
        half.drop_rows(&RowRange::all(), &stopped).await.unwrap();
    }
    drop(tablet);
    halves[0].context.files.delete_obsolete().await.unwrap();
    assert_eq!(value_files(&storage).await.len(), 0);
}

/// Values on their way to a reader hold reserved memory until the last slice of them is dropped; others wait for it.
#[tokio::test]
async fn values_on_their_way_are_bounded() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    for row in 0..3 {
        write_value(&tablet, row, "large", Bytes::from(vec![row as u8; 2 * MEMORY]));
    }
    tablet.flush().await.unwrap();
    let reservation = tablet.context.files.value_memory().clone();
    let scan = |row: u64| {
        let spec = ScanSpec {
            rows: RowSet::new(vec![RowRange::single(&name(row))]),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        TabletScanner::new(tablet.clone(), spec)
    };
    let batch = scan(0).next_batch().await.unwrap().unwrap();
    let slice = batch.rows().next().unwrap().1[0].value.slice(5..6);
    drop(batch);
    assert_eq!(reservation.taken(), MEMORY as u64);
    let mut other = scan(1);
    let mut waiting = std::pin::pin!(other.next_batch());
    for _ in 0..10 {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    drop(slice);
    assert!(waiting.await.unwrap().is_some());
    assert_eq!(reservation.taken(), 0);
    let batch = scan(2).next_batch().await.unwrap().unwrap();
    assert_eq!(batch.rows().next().unwrap().1[0].value.len(), 2 * MEMORY);
}

/// Jobs that move values keep to the same memory budget as those who read them.
#[tokio::test]
async fn values_that_are_moved_reserve_memory() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    for row in 0..4 {
        write_value(&tablet, row, "large", Bytes::from(vec![row as u8; 2 * MEMORY]));
    }
    tablet.flush().await.unwrap();
    for row in 0..2 {
        write_value(&tablet, row, "large", Bytes::from_static(b"small"));
    }
    tablet.flush().await.unwrap();
    let reservation = tablet.context.files.value_memory().clone();
    let held = reservation.take_to_move(2 * MEMORY, tablet.env()).await;
    assert_eq!((held.is_some(), reservation.taken()), (true, MEMORY as u64));
    let mut compacting = std::pin::pin!(tablet.compact_all());
    for _ in 0..1_000 {
        assert!(futures::poll!(&mut compacting).is_pending(), "moved without room");
        tokio::task::yield_now().await;
    }
    drop(held);
    compacting.await.unwrap();
    assert_eq!(reservation.taken(), 0);
    tablet.context.files.delete_obsolete().await.unwrap();
    let left = value_bytes(&storage).await;
    assert!(left < 5 * MEMORY as u64, "half of it is gone: {left}");
    for row in 2..4 {
        // One after the other: each takes all the memory of the budget.
        let spec = ScanSpec {
            rows: RowSet::new(vec![RowRange::single(&name(row))]),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let batch = TabletScanner::new(tablet.clone(), spec).next_batch().await.unwrap();
        let found = batch.unwrap().rows().next().unwrap().1[0].value.clone();
        assert!(found.len() == 2 * MEMORY && found.iter().all(|byte| u64::from(*byte) == row));
    }
}

#[tokio::test]
async fn manifests_name_what_sstables_refer_to() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_all(&tablet, 0..30, 1).await;
    let manifest = tablet.manifest().await;
    let [file]: [FileRef; 1] = manifest.all_files().cloned().collect::<Vec<_>>().try_into().unwrap();
    let [link] = &file.values[..] else {
        unreachable!("one value file")
    };
    let path = StoredFile::Values(link.id()).path();
    assert_eq!(value_files(&storage).await, BTreeSet::from([path]));
    assert_eq!((link.len, link.share), (value_bytes(&storage).await, link.len));
    assert_eq!(link.bytes, link.len - crate::values::HEADER_BYTES as u64);
    let bytes = manifest.encode_file();
    assert_eq!(bytes[8], 2, "what does not know value files must not read it");
    assert_eq!(Manifest::decode_file("m", &bytes).unwrap(), manifest);
}

/// References to values are small, for values of any size: in one block of an sstable, or in few enough entries to be
/// gathered.
#[tokio::test]
async fn a_row_of_many_values_comes_in_pieces_backward() {
    for (cells, bytes) in [(50, 100_000), (3_000, 2_000)] {
        let tablet = create(&memory(), APART).await;
        for row in [1, 2, 3] {
            let cells = if row == 2 { cells } else { 1 };
            let put = |n: u32| Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from(format!("{n:05}")),
                timestamp: Timestamp(1),
                value: Bytes::from(vec![n as u8; bytes]),
            };
            write_row(&tablet, name(row), (0..cells).map(put).collect());
        }
        tablet.flush().await.unwrap();
        for reversed in [false, true] {
            let spec = ScanSpec {
                rows: RowSet::all(),
                filter: None,
                reversed,
                raw: false,
                rows_limit: None,
            };
            let mut scanner = TabletScanner::new(tablet.clone(), spec);
            let (mut found, mut batches) = (0, 0);
            loop {
                scanner.set_partial_rows(Some(1 << 20));
                scanner.set_reservation(2 << 20);
                let Some(batch) = scanner.next_batch().await.unwrap() else {
                    break;
                };
                found += batch.rows().map(|(_, cells)| cells.len()).sum::<usize>();
                batches += 1;
            }
            assert_eq!(found, cells as usize + 2);
            assert!(
                batches > 3,
                "{batches} with cells of {bytes} bytes, reversed: {reversed}"
            );
        }
    }
}

/// The cells of a batch, and a cell that is held back for the next one, keep the memory reserved for their values:
/// later cells do not wait for it.
#[tokio::test]
async fn values_do_not_wait_for_those_before_them_in_an_answer() {
    let tablet = create(&memory(), APART).await;
    let filled = |byte: u8, bytes: usize| Bytes::from(vec![byte; bytes]);
    // These take all of the budget, and the values that pass the filter keep a little of it.
    write_value(&tablet, 1, "a", filled(7, 40_000));
    write_value(&tablet, 1, "b", filled(1, 2 * MEMORY));
    for qualifier in ["a", "b", "c"] {
        write_value(&tablet, 2, qualifier, filled(7, 2 * MEMORY));
    }
    tablet.flush().await.unwrap();
    let filter = Filter::ValueRange {
        start: Bound::Included(Bytes::from_static(&[7])),
        end: Bound::Unbounded,
    };
    let filter = Arc::new(filter.compile(&tablet.schema()).unwrap());
    for partial_rows in [None, Some(APART)] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: Some(filter.clone()),
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let mut found = 0;
        loop {
            scanner.set_partial_rows(partial_rows);
            let Some(batch) = scanner.next_batch().await.unwrap() else {
                break;
            };
            let cells = batch.rows().flat_map(|(_, cells)| cells);
            found += cells.map(|cell| cell.value.len()).sum::<usize>();
        }
        assert_eq!(found, 40_000 + 6 * MEMORY, "pieces of {partial_rows:?} bytes");
    }
}

/// A call that is dropped while the first partial row waits for values leaves none of its reserved memory behind.
#[tokio::test]
async fn a_dropped_call_has_set_nothing_aside() {
    let storage = memory();
    let tablet = create(&storage, APART).await;
    write_value(&tablet, 1, "all the room", Bytes::from(vec![1; 2 * MEMORY]));
    let written = [("a", MEMORY + 1), ("b", MEMORY + 1), ("c", 5 * MEMORY)];
    for (qualifier, len) in written {
        write_value(&tablet, 2, qualifier, Bytes::from(vec![2; len]));
    }
    tablet.flush().await.unwrap();
    let scan = |row: u64, filter: Option<Filter>| {
        let spec = ScanSpec {
            rows: RowSet::new(vec![RowRange::single(&name(row))]),
            filter: filter.map(|filter| Arc::new(filter.compile(&tablet.schema()).unwrap())),
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        TabletScanner::new(tablet.clone(), spec)
    };
    let holder = scan(1, None).next_batch().await.unwrap();
    let mut scanner = scan(2, Some(Filter::ValueRegex(Bytes::from_static(b"(?s).*"))));
    scanner.set_partial_rows(Some(4 * MEMORY));
    // For the first two values, not for the third next to them.
    scanner.set_reservation(4 * MEMORY);
    let waits = tokio::time::timeout(std::time::Duration::from_millis(50), scanner.next_batch()).await;
    assert!(waits.is_err(), "for the room of the values");
    drop(holder);
    let mut found = Vec::new();
    loop {
        match scanner.next_batch().await {
            Ok(Some(batch)) => {
                let cells = batch.into_cells().into_iter();
                found.extend(cells.map(|cell| (cell.qualifier, cell.value.len())));
            }
            Ok(None) => break,
            Err(crate::TabletError::NeedsMemory { bytes }) => {
                scanner.drop_batch();
                scanner.set_reservation(bytes + 2 * MEMORY);
            }
            Err(error) => unreachable!("{error}"),
        }
    }
    assert_eq!(found, written.map(|(qualifier, len)| (Bytes::from(qualifier), len)));
}
