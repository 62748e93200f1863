//! Bulk loads: their order among writes, their tokens, and files of failed ones.

use super::*;
use crate::{CellSource, NewCells, StoredFile, TabletError};
use async_trait::async_trait;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stele_types::{Epoch, ErrorKind, GroupOptions, RequestToken, TabletId};

/// Gives out its cells in pieces.
struct Fixed(VecDeque<Vec<(Bytes, Mutation)>>);

#[async_trait]
impl CellSource<TabletError> for Fixed {
    async fn next(&mut self) -> Result<Option<Vec<(Bytes, Mutation)>>, TabletError> {
        Ok(self.0.pop_front())
    }
}

type Cells = Vec<(Bytes, Mutation)>;

fn source(family: u32, cells: Cells, token: Option<u64>) -> NewCells<TabletError> {
    let pieces = cells.chunks(3).map(<[_]>::to_vec).collect();
    NewCells {
        family: FamilyId(family),
        token: token.map(|nonce| RequestToken::Nonce { group: 1, nonce }),
        cells: Box::new(Fixed(pieces)),
    }
}

/// Whether anything was loaded.
async fn load(tablet: &Tablet, sources: Vec<NewCells<TabletError>>) -> Result<bool, TabletError> {
    let loading = tablet.begin_load().await;
    let runs = tablet.write_runs(loading, sources).await?;
    if runs.is_empty() {
        return Ok(false);
    }
    tablet.flush().await?;
    tablet.add_runs(runs).await?;
    Ok(true)
}

fn row(cells: Vec<Mutation>) -> Cells {
    let row = Bytes::from_static(b"r");
    cells.into_iter().map(|cell| (row.clone(), cell)).collect()
}

#[tokio::test]
async fn a_load_is_newer_than_writes_before_it_and_older_than_writes_after_it() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = tablet(schema(rule, None)).await;
        write(&tablet, vec![put(5, "a"), put(1, "a")]);
        load(&tablet, vec![source(1, row(vec![put(9, "b"), put(5, "b")]), None)])
            .await
            .unwrap();
        assert_eq!(read(&tablet).await, "9=b 5=b 1=a");
        assert_eq!(tablet.visible(), tablet.flushed_through());
        write(&tablet, vec![put(9, "c")]);
        load(&tablet, vec![source(1, row(vec![put(5, "d")]), None)])
            .await
            .unwrap();
        assert_eq!(read(&tablet).await, "9=c 5=d 1=a");
        write(&tablet, vec![put(5, "e")]);
        for _ in 0..2 {
            assert_eq!(read(&tablet).await, "9=c 5=e 1=a", "{rule:?}");
            tablet.flush().await.unwrap();
            tablet.compact_all().await.unwrap();
        }
    }
}

#[tokio::test]
async fn of_equal_cells_the_last_source_counts_and_in_a_source_the_first_cell() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let first = row(vec![put(5, "a"), put(5, "never"), put(3, "a")]);
    let second = row(vec![put(5, "b"), put(2, "b")]);
    load(&tablet, vec![source(1, first, None), source(1, second, None)])
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(read(&tablet).await, "5=b 3=a 2=b");
        tablet.compact_all().await.unwrap();
    }
}

/// A file of HBase has such cells if one of two writes of a cell had a lifetime.
#[tokio::test]
async fn of_equal_cells_the_first_counts_whether_it_expires_or_not() {
    let expiring = |value: &'static str| Mutation::ExpiringPut {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(5),
        stored: stele_types::lifetime::stored(i64::MAX, value.as_bytes()),
    };
    for cells in [vec![expiring("a"), put(5, "b")], vec![put(5, "a"), expiring("b")]] {
        let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
        load(&tablet, vec![source(1, row(cells), None)]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(read(&tablet).await, "5=a");
            tablet.compact_all().await.unwrap();
        }
    }
}

/// Manifests that are put wait until they may be.
struct Gated {
    device: Arc<MemoryStorage>,
    open: tokio::sync::watch::Sender<bool>,
}

#[async_trait]
impl stele_storage::Layer for Gated {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the gate is there");
        self.device.put_if_absent(path, content).await
    }
}

/// The load finds the family in its group, and the family moves before the load is in the manifest.
#[tokio::test]
async fn a_family_that_moves_during_a_load_keeps_the_deletes_of_the_load() {
    let storage = Arc::new(Gated {
        device: MemoryStorage::new(),
        open: tokio::sync::watch::Sender::new(true),
    });
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
    let schema = groups::two_groups([GroupOptions::default(), GroupOptions::default()]);
    let tablet = tablet_with(storage.clone(), Arc::new(schema.clone()), files).await;
    write(&tablet, vec![put(1, "old")]);
    tablet.flush().await.unwrap();
    let delete = Mutation::DeleteColumn {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        from: Timestamp::MIN,
        to: Timestamp(5),
    };
    let loading = tablet.begin_load().await;
    let runs = tablet
        .write_runs(loading, vec![source(1, row(vec![delete]), None)])
        .await
        .unwrap();
    storage.open.send_replace(false);
    let mut adding = std::pin::pin!(tablet.add_runs(runs));
    assert!(futures::poll!(&mut adding).is_pending());
    tablet.set_schema(groups::moved(&schema, FamilyId(1), GroupId(1)));
    let mut migrating = std::pin::pin!(tablet.compact_if_due());
    assert!(futures::poll!(&mut migrating).is_pending());
    storage.open.send_replace(true);
    let (added, migrated) = futures::join!(adding, migrating);
    added.unwrap();
    assert!(migrated.unwrap(), "the family has misplaced cells");
    while tablet.compact_if_due().await.unwrap() {}
    assert_eq!(read(&tablet).await, "");
}

/// A delete of a version is above the puts of all sources, and below later writes.
#[tokio::test]
async fn deletes_of_a_load_hide_its_cells() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let (family, qualifier) = (FamilyId(1), Bytes::from_static(b"q"));
    let delete = Mutation::DeleteVersion {
        family,
        qualifier: qualifier.clone(),
        timestamp: Timestamp(5),
    };
    let column = Mutation::DeleteColumn {
        family,
        qualifier,
        from: Timestamp::MIN,
        to: Timestamp(2),
    };
    let first = row(vec![delete, column]);
    let second = row(vec![put(5, "x"), put(3, "y"), put(2, "z"), put(1, "z")]);
    load(&tablet, vec![source(1, first, None), source(1, second, None)])
        .await
        .unwrap();
    assert_eq!(read(&tablet).await, "3=y");
    write(&tablet, vec![put(5, "again"), put(1, "again")]);
    for _ in 0..2 {
        assert_eq!(read(&tablet).await, "5=again 3=y 1=again");
        tablet.flush().await.unwrap();
        tablet.compact_all().await.unwrap();
    }
}

fn sstables(tablet: &Tablet) -> usize {
    tablet.state().groups.iter().map(|group| group.files.len()).sum()
}

#[tokio::test]
async fn cells_that_are_not_sorted_or_of_others_are_refused_and_leave_nothing() {
    let storage = MemoryStorage::new();
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
    let tablet = tablet_with(storage.clone(), schema(DeleteRule::ByTimestamp, None), files).await;
    let delete_family = |up_to| Mutation::DeleteFamily {
        family: FamilyId(1),
        up_to: Timestamp(up_to),
    };
    let other_family = Mutation::DeleteFamily {
        family: FamilyId(2),
        up_to: Timestamp(1),
    };
    let whole_row = Mutation::DeleteRow { up_to: Timestamp(1) };
    let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
    for cells in [
        vec![(b.clone(), put(1, "x")), (a.clone(), put(1, "x"))],
        row(vec![put(1, "x"), put(2, "x")]),
        row(vec![put(1, "x"), delete_family(1)]),
        row(vec![delete_family(1), delete_family(2)]),
        row(vec![put(9, "x"), other_family]),
        row(vec![put(9, "x"), whole_row]),
        vec![(Bytes::new(), put(1, "x"))],
        vec![(Bytes::from(vec![7; 40_000]), put(1, "x"))],
    ] {
        let refused = load(&tablet, vec![source(1, cells, None)]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
    assert_eq!((read(&tablet).await, sstables(&tablet)), (String::new(), 0));
    tablet.context.files.delete_obsolete().await.unwrap();
    assert_eq!(storage.list("sst/").await.unwrap(), []);
}

#[tokio::test]
async fn a_row_of_another_tablet_is_told() {
    let storage = MemoryStorage::new();
    let whole = tablet_on(storage, schema(DeleteRule::ByTimestamp, None), 1 << 20).await;
    let manifest = Manifest {
        tablet: 2,
        start: Bytes::from_static(b"m"),
        ..whole.manifest().await
    };
    let half = Tablet::create(whole.context.clone(), whole.schema(), manifest)
        .await
        .unwrap();
    assert!(half.range().contains(b"r"));
    let cells = vec![
        (Bytes::from_static(b"a"), put(1, "x")),
        (Bytes::from_static(b"r"), put(1, "x")),
    ];
    let refused = load(&half, vec![source(1, cells, None)]).await.unwrap_err();
    assert!(
        matches!(
            refused,
            TabletError::OtherRow {
                tablet: TabletId(2),
                ..
            }
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn a_source_with_a_known_token_is_left_out() {
    let storage = MemoryStorage::new();
    let tablet = tablet_on(storage.clone(), schema(DeleteRule::BySequence, None), 1 << 20).await;
    let cells = |value| row(vec![put(5, value)]);
    assert!(load(&tablet, vec![source(1, cells("a"), Some(7))]).await.unwrap());
    write(&tablet, vec![put(5, "later")]);
    assert!(!load(&tablet, vec![source(1, cells("a"), Some(7))]).await.unwrap());
    assert_eq!(read(&tablet).await, "5=later");
    // Another file of the call was not loaded before.
    let more = row(vec![put(6, "more")]);
    let both = vec![source(1, cells("a"), Some(7)), source(1, more, Some(8))];
    assert!(load(&tablet, both).await.unwrap());
    assert_eq!(read(&tablet).await, "6=more 5=later");
    // The records are in the manifest.
    tablet.flush().await.unwrap();
    let (context, schema) = (tablet.context.clone(), tablet.schema());
    tablet.close();
    let again = Tablet::open(context, schema, TabletId(1), Epoch(2)).await.unwrap();
    assert!(!load(&again, vec![source(1, cells("a"), Some(7))]).await.unwrap());
    assert!(!load(&again, vec![source(1, cells("a"), Some(8))]).await.unwrap());
    assert_eq!(read(&again).await, "6=more 5=later");
}

/// Its cells may have been loaded, or not: neither may be claimed.
#[tokio::test]
async fn a_source_whose_token_is_too_old_or_of_the_future_is_refused() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let now = tablet.wall_micros();
    for start_micros in [now - 365 * 86_400_000_000, now + 3_600_000_000] {
        let token = RequestToken::Dated {
            token: Bytes::from_static(b"t"),
            start_micros,
        };
        let dated = NewCells {
            token: Some(token),
            ..source(1, row(vec![put(5, "a")]), None)
        };
        let refused = load(&tablet, vec![dated]).await.unwrap_err();
        assert!(matches!(refused, TabletError::NotAddable { .. }), "{refused}");
    }
    assert_eq!(read(&tablet).await, "");
}

/// The process ends when the files are written, and when they are in the manifest.
#[tokio::test]
async fn a_crash_leaves_all_of_a_load_or_none() {
    let storage = MemoryStorage::new();
    let tablet = tablet_on(storage.clone(), schema(DeleteRule::ByTimestamp, None), 1 << 20).await;
    write(&tablet, vec![put(1, "a")]);
    tablet.flush().await.unwrap();
    let cells = || row(vec![put(5, "b")]);
    let loading = tablet.begin_load().await;
    let runs = tablet
        .write_runs(loading, vec![source(1, cells(), None)])
        .await
        .unwrap();
    let in_use = tablet.context.files.in_use().settled_below;
    assert!(
        runs.made().iter().all(|file| file.id() >= in_use),
        "a sweep leaves them alone"
    );
    let made = runs.made().to_vec();
    std::mem::forget(runs);
    let reopen = async |epoch| {
        let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), epoch);
        let context = TabletContext {
            files: Arc::new(files),
            ..tablet.context.clone()
        };
        let schema = schema(DeleteRule::ByTimestamp, None);
        let tablet = Tablet::open(context, schema, TabletId(1), Epoch(epoch)).await.unwrap();
        let named: BTreeSet<StoredFile> = tablet.manifest().await.stored().collect();
        let swept = tablet.context.files.sweep(&named).await.unwrap();
        (tablet, swept)
    };
    let (second, swept) = reopen(2).await;
    assert_eq!((read(&second).await, swept), ("1=a".to_owned(), made.len()));
    load(&second, vec![source(1, cells(), None)]).await.unwrap();
    let (third, swept) = reopen(3).await;
    assert_eq!((read(&third).await, swept), ("5=b 1=a".to_owned(), 0));
}

/// The numbers of a load are reserved ahead of the writes that come while its files are written.
#[tokio::test]
async fn a_load_that_is_overtaken_by_writes_is_refused_and_the_next_one_is_not() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let cells = || row(vec![put(5, "b")]);
    let overtake = async |numbers: u64| {
        let loading = tablet.begin_load().await;
        let runs = tablet.write_runs(loading, vec![source(1, cells(), None)]).await?;
        tablet.sequence(numbers, |_| ()).unwrap();
        tablet.add_runs(runs).await
    };
    let refused = overtake(2 << 20).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert_eq!(read(&tablet).await, "");
    overtake(2 << 20).await.unwrap();
    write(&tablet, vec![put(6, "c")]);
    assert_eq!(read(&tablet).await, "6=c 5=b");
}

/// Groups get runs of their own in one commit, and large values are in value files.
#[tokio::test]
async fn families_of_several_groups_are_loaded_together() {
    let mut schema = TableSchema::clone(&schema(DeleteRule::ByTimestamp, None));
    let second = Family {
        name: "g".to_owned(),
        group: GroupId(1),
        ..schema.families[&FamilyId(1)].clone()
    };
    schema.families.insert(FamilyId(2), second);
    let second = LocalityGroup {
        options: GroupOptions::default(),
        ..LocalityGroup::new(GroupId(1), "g", Compression::Lz4)
    };
    schema.groups.push(second);
    let tablet = tablet(Arc::new(schema)).await;
    let large = Bytes::from(vec![7; 40_000]);
    let cells = |family: u32, rows: u32| -> Cells {
        let cell = |n: u32| {
            let put = Mutation::Put {
                family: FamilyId(family),
                qualifier: Bytes::new(),
                timestamp: Timestamp(1),
                value: if n == 0 {
                    large.clone()
                } else {
                    Bytes::from_static(b"v")
                },
            };
            (Bytes::from(format!("{n:04}")), put)
        };
        (0..rows).map(cell).collect()
    };
    load(
        &tablet,
        vec![source(1, cells(1, 1_000), None), source(2, cells(2, 500), None)],
    )
    .await
    .unwrap();
    let state = tablet.state();
    let of_group = |group| {
        let files = &state.group(GroupId(group)).unwrap().files;
        files.iter().map(|file| file.reference.cells).sum::<u64>()
    };
    assert_eq!((of_group(0), of_group(1)), (1_000, 500));
    assert!(state.has_values_apart());
    assert_eq!(read(&tablet).await.split(' ').count(), 1_500);
    tablet.compact_all().await.unwrap();
    assert_eq!(read(&tablet).await.split(' ').count(), 1_500);
}

/// The order of a source.
fn place(row: &Bytes, cell: &Mutation) -> (Bytes, Bytes, Reverse<i64>, u8) {
    let (qualifier, time, rank) = match cell {
        Mutation::DeleteFamily { up_to, .. } => (Bytes::new(), up_to, 0),
        Mutation::DeleteColumn { qualifier, to, .. } => (qualifier.clone(), to, 1),
        Mutation::DeleteFamilyVersion { timestamp, .. } => (Bytes::new(), timestamp, 2),
        Mutation::DeleteVersion {
            qualifier, timestamp, ..
        } => (qualifier.clone(), timestamp, 3),
        Mutation::Put {
            qualifier, timestamp, ..
        } => (qualifier.clone(), timestamp, 4),
        _ => unreachable!("not loaded"),
    };
    (row.clone(), qualifier, Reverse(time.0), rank)
}

fn cell() -> impl Strategy<Value = (Bytes, Mutation)> {
    let parts = (0..3u8, 0..3usize, 0..6i64, 0..8u8, 0..3u8);
    parts.prop_map(|(row, qualifier, time, kind, value)| {
        let (family, timestamp) = (FamilyId(1), Timestamp(time));
        let qualifier = Bytes::from_static([&b""[..], b"p", b"q"][qualifier]);
        let cell = match kind {
            0 => Mutation::DeleteFamily {
                family,
                up_to: timestamp,
            },
            1 => Mutation::DeleteColumn {
                family,
                qualifier,
                from: Timestamp::MIN,
                to: timestamp,
            },
            2 => Mutation::DeleteFamilyVersion { family, timestamp },
            3 => Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            },
            _ => Mutation::Put {
                family,
                qualifier,
                timestamp,
                value: Bytes::from(vec![b'a' + value]),
            },
        };
        (Bytes::from(vec![b'a' + row]), cell)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Where deletes act by timestamp, a load is the same as writing its cells: of equal ones that of the last source.
    #[test]
    fn a_load_is_the_same_as_writes(
        before in prop::collection::vec(cell(), 0..12),
        sources in prop::collection::vec(prop::collection::vec(cell(), 0..15), 1..4),
        after in prop::collection::vec(cell(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let loaded = tablet(schema(DeleteRule::ByTimestamp, None)).await;
            let written = tablet(schema(DeleteRule::ByTimestamp, None)).await;
            let write = |tablet: &Tablet, cells: &[(Bytes, Mutation)]| {
                cells.iter().for_each(|(row, cell)| write_row(tablet, row.clone(), vec![cell.clone()]));
            };
            write(&loaded, &before);
            write(&written, &before);
            let mut sorted: Vec<NewCells<TabletError>> = Vec::new();
            for cells in &sources {
                // The first of equal cells.
                let mut by_place = BTreeMap::new();
                for (row, cell) in cells {
                    by_place.entry(place(row, cell)).or_insert_with(|| (row.clone(), cell.clone()));
                }
                let cells: Cells = by_place.into_values().collect();
                write(&written, &cells);
                sorted.push(source(1, cells, None));
            }
            load(&loaded, sorted).await.unwrap();
            write(&loaded, &after);
            write(&written, &after);
            for _ in 0..2 {
                assert_eq!(read(&loaded).await, read(&written).await);
                loaded.flush().await.unwrap();
                written.flush().await.unwrap();
                assert_eq!(read(&loaded).await, read(&written).await);
                loaded.compact_all().await.unwrap();
                written.compact_all().await.unwrap();
            }
        });
    }
}
