//! Locality groups: their settings, the reads that they save, and moves of families.

mod restored;

use super::*;
use crate::values::load::ValueMemory;
use stele_filter::Filter;
use stele_sstable::Properties;
use stele_types::{AggregateKind, GroupOptions};

/// Families 1 and 2 in groups 0 and 1.
pub(super) fn two_groups(options: [GroupOptions; 2]) -> TableSchema {
    let mut schema = TableSchema::clone(&schema(DeleteRule::BySequence, None));
    let second = Family {
        name: "g".to_owned(),
        group: GroupId(1),
        ..schema.families[&FamilyId(1)].clone()
    };
    schema.families.insert(FamilyId(2), second);
    schema.groups = (0..)
        .zip(options)
        .map(|(id, options)| LocalityGroup {
            options,
            ..LocalityGroup::new(GroupId(id), format!("g{id}"), Compression::None)
        })
        .collect();
    schema
}

/// As the master does it.
pub(super) fn moved(schema: &TableSchema, family: FamilyId, to: GroupId) -> Arc<TableSchema> {
    let mut schema = schema.clone();
    let from = schema.group_of(family);
    for group in &mut schema.groups {
        group.left.remove(&family);
        if group.id == from {
            group.left.insert(family);
        }
    }
    schema.families.get_mut(&family).unwrap().group = to;
    Arc::new(schema)
}

fn put_in(family: u32, timestamp: i64, value: Vec<u8>) -> Mutation {
    Mutation::Put {
        family: FamilyId(family),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        value: value.into(),
    }
}

fn delete_family(family: u32) -> Mutation {
    Mutation::DeleteFamily {
        family: FamilyId(family),
        up_to: Timestamp::MAX,
    }
}

fn properties(tablet: &Tablet, group: u32) -> Vec<Properties> {
    let state = tablet.state();
    let files = &state.group(GroupId(group)).unwrap().files;
    files.iter().map(|file| file.sstable.properties().clone()).collect()
}

fn families(tablet: &Tablet, group: u32) -> Vec<Vec<u32>> {
    properties(tablet, group).into_iter().map(|p| p.families).collect()
}

async fn scan(tablet: &Arc<Tablet>, family: Option<&'static str>) -> usize {
    let filter = family.map(|name| {
        let filter = Filter::FamilyRegex(Bytes::from_static(name.as_bytes()));
        Arc::new(filter.compile(&tablet.schema()).unwrap())
    });
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut cells = 0;
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        cells += batch.rows().map(|(_, cells)| cells.len()).sum::<usize>();
    }
    cells
}

/// Each group drops its copy of a row's tombstone at its own time: until the last has, it must not hide newer cells.
#[tokio::test]
async fn a_marker_that_one_group_still_has_hides_nothing_newer_in_another() {
    let tablet = tablet(Arc::new(two_groups(Default::default()))).await;
    // Enough rows that a tombstone is negligible.
    for row in 0..500 {
        write_row(&tablet, Bytes::from(format!("s{row}")), vec![put_in(2, 1, Vec::new())]);
    }
    tablet.flush().await.unwrap();
    write(&tablet, vec![Mutation::DeleteRow { up_to: Timestamp::MAX }]);
    for _ in 0..12 {
        write(&tablet, vec![put_in(1, 1, b"new".to_vec())]);
        tablet.flush().await.unwrap();
    }
    while tablet.compact_if_due().await.unwrap() {}
    // Of the first group all was merged, of the second there is a run above the bottom.
    let deletes = |group| properties(&tablet, group).iter().map(Properties::deletes).sum::<u64>();
    assert_eq!((deletes(0), deletes(1)), (0, 1));
    assert_eq!(read(&tablet).await.matches("1=new").count(), 1);
    // A second group is made of a tablet that had but one: cells written before are older than all tombstones it gets.
    let mut two = two_groups(Default::default());
    let mut one = two.clone();
    one.groups.truncate(1);
    one.families.get_mut(&FamilyId(2)).unwrap().group = GroupId(0);
    let tablet = super::tablet(Arc::new(one)).await;
    write(
        &tablet,
        vec![put_in(1, 1, b"old".to_vec()), put_in(2, 1, b"old".to_vec())],
    );
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    assert_eq!(properties(&tablet, 0)[0].seq_max, 0);
    two.families.get_mut(&FamilyId(2)).unwrap().group = GroupId(0);
    tablet.set_schema(Arc::new(two));
    write(&tablet, vec![Mutation::DeleteRow { up_to: Timestamp::MAX }]);
    write(&tablet, vec![put_in(1, 1, b"new".to_vec())]);
    assert_eq!(read(&tablet).await, "1=new");
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "1=new");
    tablet.compact_all().await.unwrap();
    assert!(properties(&tablet, 0)[0].seq_max > 0);
    assert_eq!(read(&tablet).await, "1=new");
}

/// Or a few scans of one group of many would leave nothing of it to others.
#[tokio::test]
async fn a_scan_has_a_share_of_reading_ahead_for_the_files_that_it_reads() {
    let tablet = tablet(Arc::new(two_groups(Default::default()))).await;
    for row in 0..1_000 {
        let value = vec![b'v'; 2_000];
        write_row(
            &tablet,
            Bytes::from(format!("{row:04}")),
            vec![put_in(1, 1, value.clone()), put_in(2, 1, value)],
        );
    }
    let filter = Filter::FamilyRegex(Bytes::from_static(b"f"));
    let filter = Arc::new(filter.compile(&tablet.schema()).unwrap());
    for (is_flushed, filter, runs) in [(false, None, 0), (true, None, 2), (true, Some(filter), 1)] {
        if is_flushed {
            tablet.flush().await.unwrap();
        }
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let batch = scanner.next_batch().await.unwrap().unwrap();
        assert!(batch.len() < 1_000, "it waits for its reader");
        assert_eq!(tablet.context.files.scan_ahead().taken(), runs * (256 << 10));
    }
}

#[tokio::test]
async fn files_are_written_as_their_group_says_and_follow_a_change() {
    let small = GroupOptions {
        compression: Compression::Zstd,
        zstd_level: 5,
        block_bytes: Some(1 << 10),
        filter_bits_per_row: Some(4),
        file_bytes: Some(8 << 10),
        ..GroupOptions::default()
    };
    let schema = two_groups([GroupOptions::default(), small.clone()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    for row in 0..100 {
        let value = format!("{row:0500}").into_bytes();
        write_row(
            &tablet,
            Bytes::from(format!("{row:03}")),
            vec![put_in(1, 1, value.clone()), put_in(2, 1, value)],
        );
    }
    tablet.flush().await.unwrap();
    let [plain] = &properties(&tablet, 0)[..] else {
        unreachable!("one file of the first group")
    };
    assert_eq!(
        (
            plain.compression,
            plain.zstd_level,
            plain.filter_bits_per_row,
            &plain.families[..]
        ),
        (Compression::Lz4 as u32, 0, 10, &[1, 1][..])
    );
    let of_small = properties(&tablet, 1);
    assert!(of_small.iter().map(|p| p.data_blocks).sum::<u64>() >= 45);
    for p in &of_small {
        assert_eq!(
            (p.compression, p.zstd_level, p.block_bytes),
            (Compression::Zstd as u32, 5, 1 << 10)
        );
        assert_eq!((p.filter_bits_per_row, &p.families[..]), (4, &[2, 2][..]));
    }
    let mut altered = schema;
    altered.groups[1].options = GroupOptions {
        filter_bits_per_row: Some(0),
        ..GroupOptions::default()
    };
    tablet.set_schema(Arc::new(altered));
    assert_eq!(properties(&tablet, 1)[0].zstd_level, 5, "a file does not change");
    tablet.compact_all().await.unwrap();
    let after = properties(&tablet, 1);
    assert_eq!(
        (after[0].compression, after[0].filter_bits_per_row),
        (Compression::Lz4 as u32, 0)
    );
    assert_eq!(scan(&tablet, None).await, 200);
}

fn uncompressed() -> GroupOptions {
    GroupOptions {
        compression: Compression::None,
        ..GroupOptions::default()
    }
}

fn context(storage: &Arc<dyn Storage>, cache: &Arc<Cache>, epoch: u32) -> TabletContext {
    TabletContext {
        env: TokioRuntime::current(),
        storage: storage.clone(),
        files: Arc::new(FileRegistry::new(storage.clone(), cache.clone(), epoch)),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    }
}

/// A thousand rows in files: a kilobyte each in the first group, some bytes in the second.
async fn large_and_small(storage: &Arc<dyn Storage>, schema: &Arc<TableSchema>) {
    let cache = Arc::new(Cache::new(0));
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let tablet = Tablet::create(context(storage, &cache, 1), schema.clone(), manifest)
        .await
        .unwrap();
    for row in 0..1000 {
        let mutations = vec![put_in(1, 1, vec![7; 1000]), put_in(2, 1, vec![8; 10])];
        write_row(&tablet, Bytes::from(format!("{row:04}")), mutations);
    }
    tablet.flush().await.unwrap();
}

async fn reopened(
    storage: &Arc<dyn Storage>,
    cache: &Arc<Cache>,
    schema: &Arc<TableSchema>,
    epoch: u32,
) -> Arc<Tablet> {
    let context = context(storage, cache, epoch);
    let (tablet, epoch) = (stele_types::TabletId(1), stele_types::Epoch(epoch));
    Tablet::open(context, schema.clone(), tablet, epoch).await.unwrap()
}

/// Blocks read ahead stay although no reader asks for them, and blocks that do not fit are read as usual.
#[tokio::test]
async fn a_group_in_memory_is_there_before_it_is_asked_for() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let in_memory = GroupOptions {
        in_memory: true,
        ..uncompressed()
    };
    let schema = Arc::new(two_groups([uncompressed(), in_memory]));
    large_and_small(&storage, &schema).await;
    // The first group is larger than that.
    let cache = Arc::new(Cache::with_shards(600 << 10, 1));
    let tablet = reopened(&storage, &cache, &schema, 2).await;
    assert!(tablet.wants_warming() && tablet.warm_next().await.unwrap());
    assert!(!tablet.wants_warming() && !tablet.warm_next().await.unwrap());
    let kept = cache.stats().kept_bytes;
    assert!(kept > 0 && kept == cache.stats().used_bytes);
    for _ in 0..3 {
        assert_eq!(scan(&tablet, Some("f")).await, 1000);
    }
    let before = cache.stats().misses;
    assert_eq!(scan(&tablet, Some("g")).await, 1000);
    assert_eq!((cache.stats().misses, cache.stats().kept_bytes), (before, kept));
    // Both groups: more than three quarters of the cache.
    let mut both = TableSchema::clone(&schema);
    both.groups[0].options.in_memory = true;
    tablet.set_schema(Arc::new(both));
    while tablet.warm_next().await.unwrap() {}
    let stats = cache.stats();
    assert!(
        stats.kept_bytes <= stats.capacity / 4 * 3 && stats.used_bytes <= stats.capacity,
        "{stats:?}"
    );
    assert_eq!(scan(&tablet, None).await, 2000);
}

/// Counted blocks are those requested from the cache that it did not have.
#[tokio::test]
async fn a_read_of_families_touches_no_block_of_other_groups() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let schema = Arc::new(two_groups([uncompressed(), uncompressed()]));
    large_and_small(&storage, &schema).await;
    let mut touched = Vec::new();
    for (epoch, family, cells) in [(2, Some("f"), 1000), (3, Some("g"), 1000), (4, None, 2000)] {
        let cache = Arc::new(Cache::new(16 << 20));
        let tablet = reopened(&storage, &cache, &schema, epoch).await;
        assert_eq!(scan(&tablet, family).await, cells);
        touched.push(cache.stats().misses);
    }
    let [large, small, both] = touched[..] else {
        unreachable!("three reads")
    };
    assert_eq!(large + small, both, "each block is of one group");
    assert!(
        large > 15 * small,
        "{large} blocks of large values, {small} of small ones"
    );
}

/// As during a compaction: memtables flushed meanwhile give their memory back.
#[tokio::test]
async fn memtables_flushed_during_a_relocation_are_freed_at_once() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    for row in 0..16_000 {
        write_row(
            &tablet,
            Bytes::from(format!("{row:05}")),
            vec![put_in(1, 1, b"a value".to_vec())],
        );
    }
    tablet.flush().await.unwrap();
    tablet.set_schema(moved(&schema, FamilyId(1), GroupId(1)));
    write_row(
        &tablet,
        Bytes::from("00000"),
        vec![put_in(1, 1, b"another value".to_vec())],
    );
    let mut migrating = Box::pin(tablet.compact_next());
    assert!(futures::poll!(&mut migrating).is_pending());
    tablet.flush().await.unwrap();
    assert_eq!(tablet.context.memory.bytes(), 0);
    assert!(migrating.await.unwrap().is_some());
    assert_eq!((families(&tablet, 0).len(), tablet.state().misplaced().len()), (0, 0));
    assert_eq!(scan(&tablet, None).await, 16_000);
}

#[tokio::test]
async fn a_family_moves_with_what_it_has() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(
        &tablet,
        vec![put_in(1, 1, b"old".to_vec()), put_in(2, 1, b"x".to_vec())],
    );
    tablet.flush().await.unwrap();
    write(&tablet, vec![put_in(1, 2, b"unflushed".to_vec())]);
    let schema = moved(&schema, FamilyId(1), GroupId(1));
    assert!(tablet.set_schema(schema.clone()), "what is in memory waits for a flush");
    write(&tablet, vec![put_in(1, 3, b"new".to_vec())]);
    let all = "3=new 2=unflushed 1=old 1=x";
    assert_eq!(read(&tablet).await, all);
    assert_eq!(scan(&tablet, Some("f")).await, 3);
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, all);
    assert_eq!(
        (families(&tablet, 0), families(&tablet, 1)),
        (vec![vec![1, 1]; 2], vec![vec![2, 2], vec![1, 1]])
    );
    assert!(!tablet.state().is_settled(FamilyId(1)) && tablet.compaction_due());
    assert!(tablet.compact_if_due().await.unwrap());
    assert!(tablet.state().is_settled(FamilyId(1)));
    assert_eq!(families(&tablet, 0), Vec::<Vec<u32>>::new());
    assert_eq!(families(&tablet, 1), [[1, 1], [2, 2], [1, 1]]);
    assert_eq!(read(&tablet).await, all);
    let reopened = Tablet::open(tablet.context.clone(), schema, tablet.id(), stele_types::Epoch(2))
        .await
        .unwrap();
    assert!(reopened.state().is_settled(FamilyId(1)), "the files say so");
    assert_eq!(read(&reopened).await, all);
}

/// Only a tombstone in the family's new group hides cells that are still in the old one.
#[tokio::test]
async fn what_was_deleted_after_a_move_does_not_come_back() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![put_in(1, 1, b"old".to_vec())]);
    tablet.flush().await.unwrap();
    tablet.set_schema(moved(&schema, FamilyId(1), GroupId(1)));
    write(&tablet, vec![delete_family(1)]);
    // The first flush of a group is its bottom level otherwise, and would drop the tombstone.
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "");
    assert_eq!(families(&tablet, 1), [[1, 1]]);
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "");
    assert_eq!(
        (families(&tablet, 0).len(), families(&tablet, 1).len()),
        (0, 0),
        "nothing is left of either"
    );
}

/// A tombstone that hides by timestamp hides cells that come later, too: those are in the new group only.
#[tokio::test]
async fn a_tombstone_moves_along_with_its_family() {
    let mut schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    schema.delete_rule = DeleteRule::ByTimestamp;
    let tablet = tablet(Arc::new(schema.clone())).await;
    let delete = Mutation::DeleteColumn {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        from: Timestamp::MIN,
        to: Timestamp(100),
    };
    write(&tablet, vec![put_in(1, 10, b"old".to_vec()), delete]);
    tablet.flush().await.unwrap();
    tablet.set_schema(moved(&schema, FamilyId(1), GroupId(1)));
    write(&tablet, vec![put_in(1, 20, b"late".to_vec())]);
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "");
    assert!(tablet.compact_if_due().await.unwrap());
    assert!(tablet.state().misplaced().is_empty());
    assert_eq!(read(&tablet).await, "");
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "");
    assert_eq!((families(&tablet, 0).len(), families(&tablet, 1).len()), (0, 0));
}

/// A tablet that learns of the move and of its end together. The catalog says no longer that the family has left a group, whose memtable
/// has all its cells.
#[tokio::test]
async fn a_move_that_the_catalog_takes_for_ended_does_not_hide_memtables() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![put_in(1, 1, b"old".to_vec())]);
    let mut ended = TableSchema::clone(&moved(&schema, FamilyId(1), GroupId(1)));
    ended.groups.iter_mut().for_each(|group| group.left.clear());
    assert!(tablet.set_schema(Arc::new(ended)), "the memtable is set aside");
    assert_eq!(scan(&tablet, Some("f")).await, 1);
    write(&tablet, vec![delete_family(1)]);
    tablet.flush().await.unwrap();
    assert_eq!(
        read(&tablet).await,
        "",
        "the deletion is not at the bottom of its group"
    );
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "");
}

/// Two families that change places: each group has something older in the other.
#[tokio::test]
async fn families_may_change_places() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![put_in(1, 1, b"a".to_vec()), put_in(2, 1, b"b".to_vec())]);
    tablet.flush().await.unwrap();
    let swapped = moved(&moved(&schema, FamilyId(1), GroupId(1)), FamilyId(2), GroupId(0));
    tablet.set_schema(swapped);
    write(&tablet, vec![delete_family(1), put_in(2, 2, b"c".to_vec())]);
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "2=c 1=b");
    assert!(tablet.compact_if_due().await.unwrap() && tablet.compact_if_due().await.unwrap());
    assert!(tablet.state().misplaced().is_empty());
    assert_eq!(read(&tablet).await, "2=c 1=b");
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await, "2=c 1=b");
    assert_eq!((families(&tablet, 0), families(&tablet, 1)), (vec![vec![2, 2]], vec![]));
}

/// Values stay where they are when families part: values that one group does not refer to, the other does, and none of
/// them is garbage.
#[tokio::test]
async fn what_groups_share_of_value_files_is_not_garbage() {
    const LARGE: usize = 10_000;
    let mut together = two_groups([GroupOptions::default(), GroupOptions::default()]);
    together.families.get_mut(&FamilyId(2)).unwrap().group = GroupId(0);
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let mut context = context(&storage, &Arc::new(Cache::new(0)), 1);
    let files =
        FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1).with_values(LARGE, ValueMemory::new(1 << 20));
    context.files = Arc::new(files);
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let tablet = Tablet::create(context, Arc::new(together.clone()), manifest)
        .await
        .unwrap();
    for row in 0..20u64 {
        let noise =
            |seed: u64| (0..LARGE as u64).map(move |n| ((n + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8);
        let both = vec![
            put_in(1, 1, noise(row * 7919).collect()),
            put_in(2, 1, noise(row * 104_729).collect()),
        ];
        write_row(&tablet, Bytes::from(format!("{row:04}")), both);
    }
    tablet.flush().await.unwrap();
    tablet.set_schema(moved(&together, FamilyId(2), GroupId(1)));
    assert!(tablet.compact_if_due().await.unwrap());
    assert_eq!(
        (families(&tablet, 0), families(&tablet, 1)),
        (vec![vec![1, 1]], vec![vec![2, 2]])
    );
    let metrics = &tablet.context.metrics;
    let written = metrics.compaction_written_bytes.get();
    assert!(written < LARGE as u64, "{written} bytes to part the families");
    while tablet.compact_if_due().await.unwrap() {}
    assert_eq!(metrics.compaction_written_bytes.get(), written, "moved without need");
    // Values that become garbage are found nevertheless, whichever group they were of.
    let value_bytes = async || {
        let files = storage.list("sst/").await.unwrap();
        let values = files.iter().filter(|file| file.path.ends_with(".val"));
        values.map(|file| file.len).sum::<u64>()
    };
    let before = value_bytes().await;
    for row in (0..20).filter(|row| row % 4 > 0) {
        let deletes = vec![delete_family(1), delete_family(2)];
        write_row(&tablet, Bytes::from(format!("{row:04}")), deletes);
    }
    tablet.flush().await.unwrap();
    while tablet.compact_if_due().await.unwrap() {}
    tablet.context.files.delete_obsolete().await.unwrap();
    let left = value_bytes().await;
    assert!(left < before / 2, "{left} bytes of a quarter of {before}");
}

/// A catalog that was restored to an older state has forgotten that a family was moved: it says that the family is still in its
/// former group, or no longer that it has left it. The group that it does not know of has older entries then, or newer ones.
#[tokio::test]
async fn what_the_catalog_forgot_is_found_in_the_files() {
    let schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let moved = moved(&schema, FamilyId(1), GroupId(1));
    let mut without = TableSchema::clone(&moved);
    without.groups.iter_mut().for_each(|group| group.left.clear());
    for (forgetful, at) in [(schema.clone(), 0), (without, 1)] {
        let tablet = tablet(Arc::new(schema.clone())).await;
        write(
            &tablet,
            vec![put_in(1, 1, b"old".to_vec()), put_in(2, 1, b"other".to_vec())],
        );
        tablet.flush().await.unwrap();
        tablet.set_schema(moved.clone());
        write(&tablet, vec![delete_family(1), put_in(1, 2, b"new".to_vec())]);
        tablet.flush().await.unwrap();
        tablet.set_schema(Arc::new(forgetful));
        let found: Vec<_> = tablet
            .state()
            .misplaced()
            .iter()
            .map(|r| (r.family, r.group, r.is_oldest))
            .collect();
        assert_eq!(found, [(FamilyId(1), GroupId(at), false)]);
        for _ in 0..2 {
            assert_eq!(
                scan(&tablet, Some("f")).await,
                1,
                "the marker counts, and the newest entry"
            );
            assert_eq!(scan(&tablet, None).await, 2);
            // Later writes are newer than all of it.
            tablet.flush().await.unwrap();
            write(&tablet, vec![delete_family(2), put_in(2, 1, b"other".to_vec())]);
        }
        assert!(tablet.compact_if_due().await.unwrap());
        assert_eq!(tablet.state().misplaced(), []);
        assert_eq!((scan(&tablet, Some("f")).await, scan(&tablet, None).await), (1, 2));
        assert_eq!(families(&tablet, at).concat()[0], 1);
        tablet.compact_all().await.unwrap();
        assert_eq!((scan(&tablet, Some("f")).await, scan(&tablet, None).await), (1, 2));
    }
}

/// A thousand families, of one group and the other by turns: misplaced cells of a group are described in little memory,
/// and found all the same.
#[tokio::test]
async fn strays_are_found_among_scattered_families() {
    let mut schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    let family = schema.families[&FamilyId(1)].clone();
    for id in 1..=1_000 {
        let (name, group) = (format!("f{id}"), GroupId(1 - id % 2));
        let family = Family {
            name,
            group,
            ..family.clone()
        };
        schema.families.insert(FamilyId(id), family);
    }
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, (290..=510).map(|id| put_in(id, 1, b"v".to_vec())).collect());
    tablet.flush().await.unwrap();
    assert_eq!(tablet.state().misplaced(), []);
    for (id, group) in [(301, 1), (500, 0), (700, 0)] {
        schema.families.get_mut(&FamilyId(id)).unwrap().group = GroupId(group);
    }
    tablet.set_schema(Arc::new(schema));
    let state = tablet.state();
    let found: Vec<_> = state
        .misplaced()
        .iter()
        .map(|r| (r.family.0, r.left.0, r.group.0))
        .collect();
    assert_eq!(found, [(301, 0, 1), (500, 1, 0)]);
    assert!(state.other_family_ranges() <= 128, "{}", state.other_family_ranges());
}

/// Operands of an aggregate are summed up in the order of age, so nothing is merged before it is sorted out.
#[tokio::test]
async fn operands_of_a_forgotten_move_are_summed_once() {
    let mut schema = two_groups([GroupOptions::default(), GroupOptions::default()]);
    schema.families.get_mut(&FamilyId(1)).unwrap().value_type = ValueType::Aggregate(AggregateKind::Sum);
    let add = |n: i64| Mutation::Merge {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        operand: Bytes::copy_from_slice(&n.to_be_bytes()),
    };
    let tablet = tablet(Arc::new(schema.clone())).await;
    write(&tablet, vec![add(1)]);
    tablet.flush().await.unwrap();
    tablet.set_schema(moved(&schema, FamilyId(1), GroupId(1)));
    write(&tablet, vec![delete_family(1), add(10)]);
    tablet.flush().await.unwrap();
    tablet.set_schema(Arc::new(schema));
    for _ in 0..12 {
        write(&tablet, vec![add(100)]);
        tablet.flush().await.unwrap();
    }
    let sum = format!("1={}", 1_210i64.to_be_bytes().escape_ascii());
    assert_eq!(read(&tablet).await, sum);
    assert!(tablet.state().is_entangled(GroupId(0)) && tablet.state().is_entangled(GroupId(1)));
    while tablet.compact_if_due().await.unwrap() {}
    assert!(!tablet.state().is_entangled(GroupId(0)));
    assert_eq!(read(&tablet).await, sum);
}
