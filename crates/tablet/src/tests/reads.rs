//! The ways of reading a row against each other.

use super::*;
use crate::held::{HeldFile, ReadOptions, Times};
use crate::{FileRef, PointRead, SpaceLimit, TabletError};
use proptest::prelude::*;
use stele_filter::{CompiledFilter, Filter};
use stele_types::{AggregateKind, Cell, KeepDeleted, RowRange, lifetime};

/// Rows in a few columns and at a few timestamps, so that writes meet.
#[derive(Clone, Debug)]
enum Action {
    Write(u8, Vec<Change>),
    /// Enough versions of all columns that reads seek past them, and so large that columns begin in other blocks.
    Fill(u8, i64),
    /// Enough writes of one version that reads seek past them.
    Overwrite(u8, i64, u8),
    Freeze,
    Flush,
    /// Files are merged into one, with any tombstones above it.
    Merge,
    Compact,
}

#[derive(Clone, Debug)]
enum Change {
    Put(u8, i64),
    /// With a lifetime, which is over or never will be.
    Expiring(u8, i64, bool),
    /// Into the family that keeps deleted cells, as are the next two.
    Keep(u8, i64),
    DeleteKept(u8, i64, i64),
    DeleteKeptFamily(i64),
    Add(i64),
    DeleteVersion(u8, i64),
    DeleteColumn(u8, i64, i64),
    DeleteFamily,
    DeleteRow(i64),
}

/// Microseconds between timestamps: eleven days, so that age rules say the same all through a test.
const STEP: i64 = 1_000_000_000_000;

fn at(t: i64) -> Timestamp {
    Timestamp(t * STEP)
}

/// A rule by which cells at 2 have expired, and cells at 3 have not.
fn age_rule() -> GcRule {
    GcRule::MaxAgeMicros(TokioRuntime::current().wall_micros() - 2 * STEP - STEP / 2)
}

/// The criteria of the first family's garbage collection rule.
#[derive(Clone, Copy, Debug)]
enum Rule {
    None,
    Versions(u32),
    Age,
    Both(u32),
    Either(u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0u8..3, 0i64..6).prop_map(|(q, t)| Change::Put(q, t)),
        1 => (0u8..3, 0i64..6, any::<bool>()).prop_map(|(q, t, is_over)| Change::Expiring(q, t, is_over)),
        2 => (0u8..2, 0i64..6).prop_map(|(q, t)| Change::Keep(q, t)),
        1 => (0u8..2, 0i64..6, 0i64..6).prop_map(|(q, a, b)| Change::DeleteKept(q, a.min(b), a.max(b))),
        1 => (0i64..6).prop_map(Change::DeleteKeptFamily),
        2 => (0i64..6).prop_map(Change::Add),
        1 => (0u8..3, 0i64..6).prop_map(|(q, t)| Change::DeleteVersion(q, t)),
        1 => (0u8..3, 0i64..6, 0i64..6).prop_map(|(q, a, b)| Change::DeleteColumn(q, a.min(b), a.max(b))),
        1 => Just(Change::DeleteFamily),
        1 => (0i64..6).prop_map(Change::DeleteRow),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (0u8..6, prop::collection::vec(change(), 1..6)).prop_map(|(row, changes)| Action::Write(row, changes)),
        1 => (0u8..6, 18i64..24).prop_map(|(row, versions)| Action::Fill(row, versions)),
        1 => (0u8..6, 0i64..6, 18u8..24).prop_map(|(row, t, writes)| Action::Overwrite(row, t, writes)),
        1 => Just(Action::Freeze),
        2 => Just(Action::Flush),
        1 => Just(Action::Merge),
        1 => Just(Action::Compact),
    ]
}

fn mutation(change: &Change) -> Mutation {
    let qualifier = |q: &u8| Bytes::copy_from_slice(&[b'q', *q]);
    let family = FamilyId(1);
    match change {
        Change::Put(q, t) => Mutation::Put {
            family,
            qualifier: qualifier(q),
            timestamp: at(*t),
            value: Bytes::from(format!("value {t}")),
        },
        Change::Expiring(q, t, is_over) => Mutation::ExpiringPut {
            family,
            qualifier: qualifier(q),
            timestamp: at(*t),
            stored: lifetime::stored(if *is_over { 1 } else { 1 << 50 }, b"expiring"),
        },
        Change::Keep(q, t) => Mutation::Put {
            family: KEEPING,
            qualifier: qualifier(q),
            timestamp: at(*t),
            value: Bytes::from(format!("kept {t}")),
        },
        Change::DeleteKept(q, from, to) => Mutation::DeleteColumn {
            family: KEEPING,
            qualifier: qualifier(q),
            from: at(*from),
            to: at(*to),
        },
        Change::DeleteKeptFamily(t) => Mutation::DeleteFamily {
            family: KEEPING,
            up_to: at(*t),
        },
        Change::Add(t) => Mutation::Merge {
            family: FamilyId(2),
            qualifier: qualifier(&0),
            timestamp: at(*t),
            operand: Bytes::copy_from_slice(&1i64.to_be_bytes()),
        },
        Change::DeleteVersion(q, t) => Mutation::DeleteVersion {
            family,
            qualifier: qualifier(q),
            timestamp: at(*t),
        },
        Change::DeleteColumn(q, from, to) => Mutation::DeleteColumn {
            family,
            qualifier: qualifier(q),
            from: at(*from),
            to: at(*to),
        },
        Change::DeleteFamily => Mutation::DeleteFamily {
            family,
            up_to: Timestamp::MAX,
        },
        Change::DeleteRow(t) => Mutation::DeleteRow { up_to: at(*t) },
    }
}

/// The family that keeps deleted cells.
const KEEPING: FamilyId = FamilyId(3);

fn three_families(delete_rule: DeleteRule, rule: Option<GcRule>) -> Arc<TableSchema> {
    let mut schema = TableSchema::clone(&schema(delete_rule, rule));
    let mut keeping = schema.families[&FamilyId(1)].clone();
    keeping.name = "kept".to_owned();
    keeping.deletes.keep = KeepDeleted::Yes;
    schema.families.insert(KEEPING, keeping);
    let mut sums = schema.families[&FamilyId(1)].clone();
    sums.name = "sums".to_owned();
    sums.gc_rule = None;
    sums.value_type = ValueType::Aggregate(AggregateKind::Sum);
    schema.families.insert(FamilyId(2), sums);
    schema.next_family = FamilyId(4);
    Arc::new(schema)
}

type Rows = Vec<(Bytes, Vec<Cell>)>;

async fn scan(tablet: &Arc<Tablet>, rows: RowSet, reversed: bool, rows_limit: Option<u64>) -> Rows {
    scan_filtered(tablet, rows, reversed, rows_limit, None).await
}

async fn scan_filtered(
    tablet: &Arc<Tablet>,
    rows: RowSet,
    reversed: bool,
    rows_limit: Option<u64>,
    filter: Option<Arc<CompiledFilter>>,
) -> Rows {
    let spec = ScanSpec {
        rows,
        filter,
        reversed,
        raw: false,
        rows_limit,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec.clone());
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    found
}

/// Whether cells of a row may be more than one read returns, though all of it is in memory.
fn is_large(cells: &[Cell]) -> bool {
    let cost = |cell: &Cell| cell.weight() + size_of::<Cell>() + 40;
    cells.iter().map(cost).sum::<usize>() > 1 << 20
}

/// A filter gives the same result as over all cells, though families, versions and files are left out because of it.
async fn check_filters(tablet: &Arc<Tablet>, filters: impl IntoIterator<Item = Filter>) {
    let all = scan(tablet, RowSet::all(), false, None).await;
    for filter in filters {
        let shown = format!("{filter:?}");
        let filter = Arc::new(filter.compile(&tablet.schema()).unwrap());
        let mut expected = Rows::new();
        for (row, cells) in &all {
            let is_large = is_large(cells);
            let cells = filter.apply(row, cells.clone(), &mut || 0.5).unwrap();
            match tablet.get_row(row, Some(&filter)).unwrap() {
                Some(read) => assert_eq!(read.into_cells(), cells, "{shown}"),
                None => assert!(is_large, "all is in memory"),
            }
            if !cells.is_empty() {
                expected.push((row.clone(), cells));
            }
        }
        let found = scan_filtered(tablet, RowSet::all(), false, None, Some(filter.clone())).await;
        assert_eq!(found, expected, "{shown}");
        check_partial_rows(tablet, Some(filter), &expected).await;
    }
}

/// Rows that are given in pieces, of a cell each and of some, are the same.
async fn check_partial_rows(tablet: &Arc<Tablet>, filter: Option<Arc<CompiledFilter>>, expected: &Rows) {
    for (reversed, bytes) in [(false, 0), (false, 600), (true, 600)] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: filter.clone(),
            reversed,
            raw: false,
            rows_limit: None,
        };
        let mut found = super::partial_rows::in_partial_rows(tablet, spec, bytes).await.unwrap();
        if reversed {
            found.reverse();
        }
        assert_eq!(&found, expected);
    }
}

/// Filters of times, by which files are left out.
fn times(step: i64) -> Vec<Filter> {
    let bounds = [(0, Some(2)), (2, Some(4)), (3, None), (5, Some(6)), (i64::MIN, Some(1))];
    let filter = |(start, end): (i64, Option<i64>)| Filter::TimestampRange {
        start: start.saturating_mul(step),
        end: end.map(|end| end * step),
    };
    bounds.map(filter).into()
}

/// Others of which something is pushed down.
fn pushed_down() -> Vec<Filter> {
    let column = Filter::ColumnRange {
        family: "f".to_owned(),
        start: std::ops::Bound::Included(Bytes::from_static(b"q\x01")),
        end: std::ops::Bound::Unbounded,
    };
    vec![
        Filter::CellsPerColumn(1),
        Filter::CellsPerRow(2),
        Filter::FamilyRegex(Bytes::from_static(b"sums")),
        Filter::RowKeyRegex(Bytes::from_static(b"a.*")),
        Filter::Chain(vec![column, Filter::StripValue]),
        Filter::BlockAll,
    ]
}

/// All ways of reading agree.
async fn check(tablet: &Arc<Tablet>, names: &[Bytes]) {
    let forward = scan(tablet, RowSet::all(), false, None).await;
    let mut backward = scan(tablet, RowSet::all(), true, None).await;
    backward.reverse();
    assert_eq!(forward, backward);
    check_partial_rows(tablet, None, &forward).await;
    for row in names {
        let expected = forward
            .iter()
            .find(|(name, _)| name == row)
            .map(|(_, cells)| cells.clone());
        if let Some(read) = tablet.get_row(row, None).unwrap() {
            let found: Rows = read.shared_rows().map(|(row, cells)| (row, cells.to_vec())).collect();
            let wanted: Rows = expected.iter().map(|cells| (row.clone(), cells.clone())).collect();
            assert_eq!(found, wanted);
            assert_eq!(read.seen.cells, expected.as_ref().map_or(0, Vec::len) as u64);
        } else {
            assert!(is_large(expected.as_deref().unwrap_or_default()), "all is in memory");
        }
        for reversed in [false, true] {
            let single = RowSet::new(vec![RowRange::single(row)]);
            let one = scan(tablet, single, reversed, Some(1)).await;
            assert_eq!(one.into_iter().next().map(|(_, cells)| cells), expected);
            let upto = RowRange {
                start: Bytes::new(),
                end: Some(row.clone()),
            };
            let some = scan(tablet, RowSet::new(vec![upto]), reversed, None).await;
            assert_eq!(some.len(), forward.iter().filter(|(name, _)| name < row).count());
        }
    }
}

/// Reads of the past agree, in which later deletes have not acted.
async fn check_past(tablet: &Arc<Tablet>, names: &[Bytes]) {
    for end in [at(2), at(4)] {
        let filter = Filter::Chain(vec![
            Filter::FamiliesBefore(vec![(KEEPING, end)]),
            Filter::TimestampRange {
                start: i64::MIN,
                end: Some(end.0),
            },
        ]);
        let filter = Arc::new(filter.compile(&tablet.schema()).unwrap());
        let forward = scan_filtered(tablet, RowSet::all(), false, None, Some(filter.clone())).await;
        let mut backward = scan_filtered(tablet, RowSet::all(), true, None, Some(filter.clone())).await;
        backward.reverse();
        assert_eq!(forward, backward);
        check_partial_rows(tablet, Some(filter.clone()), &forward).await;
        for row in names {
            let expected = forward.iter().find(|(name, _)| name == row);
            let expected = expected.map(|(_, cells)| cells.clone()).unwrap_or_default();
            match tablet.get_row(row, Some(&filter)).unwrap() {
                Some(read) => assert_eq!(read.into_cells(), expected),
                None => assert!(is_large(&expected), "all is in memory"),
            }
        }
    }
}

/// Reads of single rows of which the tablet says that only writes change their result.
fn stable(tablet: &Tablet, names: &[Bytes]) -> Vec<(Bytes, Option<Arc<CompiledFilter>>, Vec<Cell>)> {
    let mut found = Vec::new();
    for filter in [None, Some(Filter::CellsPerColumn(1)), Some(Filter::CellsPerRow(2))] {
        let filter = filter.map(|filter| Arc::new(filter.compile(&tablet.schema()).unwrap()));
        for row in names {
            let read = tablet.get_row(row, filter.as_ref()).unwrap();
            if let Some(batch) = read.filter(|batch| !batch.unstable) {
                found.push((row.clone(), filter.clone(), batch.into_cells()));
            }
        }
    }
    found
}

fn run(actions: Vec<Action>, delete_rule: DeleteRule, rule: Rule, file_bytes: u64) {
    // The second begins like the first, and the encoding of the third is longer than it.
    let names: Vec<Bytes> = ["a", "ab", "a\0b", "b", "", "\u{7f}"]
        .map(|name| Bytes::from_static(name.as_bytes()))
        .into();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let rule = match rule {
            Rule::None => None,
            Rule::Versions(n) => Some(GcRule::MaxVersions(n)),
            Rule::Age => Some(age_rule()),
            Rule::Both(n) => Some(GcRule::Intersection(vec![GcRule::MaxVersions(n), age_rule()])),
            Rule::Either(n) => Some(GcRule::Union(vec![GcRule::MaxVersions(n), age_rule()])),
        };
        let tablet = tablet_of_files(three_families(delete_rule, rule), file_bytes).await;
        for action in actions {
            let before = match action {
                Action::Write(..) | Action::Fill(..) | Action::Overwrite(..) => Vec::new(),
                Action::Freeze | Action::Flush | Action::Merge | Action::Compact => stable(&tablet, &names),
            };
            match action {
                Action::Write(row, changes) => {
                    let row = names[usize::from(row)].clone();
                    write_row(&tablet, row, changes.iter().map(mutation).collect());
                }
                Action::Fill(row, versions) => {
                    let version = |(q, t)| Mutation::Put {
                        family: FamilyId(1),
                        qualifier: Bytes::copy_from_slice(&[b'q', q]),
                        timestamp: at(t),
                        value: Bytes::from(format!("{t:016384}")),
                    };
                    let columns = (0..3).flat_map(|q| (0..versions).map(move |t| (q, t)));
                    let row = names[usize::from(row)].clone();
                    write_row(&tablet, row, columns.map(version).collect());
                }
                Action::Overwrite(row, t, writes) => {
                    for _ in 0..writes {
                        write_row(
                            &tablet,
                            names[usize::from(row)].clone(),
                            vec![mutation(&Change::Put(0, t))],
                        );
                    }
                }
                Action::Freeze => {
                    tablet.freeze();
                }
                Action::Flush => {
                    tablet.flush().await.unwrap();
                }
                Action::Merge => while tablet.compact_for_space(SpaceLimit::UNLIMITED).await.unwrap().is_some() {},
                Action::Compact => tablet.compact_all().await.unwrap(),
            }
            for (row, filter, cells) in before {
                let after = tablet.get_row(&row, filter.as_ref()).unwrap();
                assert!(
                    after.is_none_or(|batch| batch.into_cells() == cells),
                    "{row:?} has changed"
                );
            }
        }
        let absent = ["a\0", "aa", "a\0c", "\u{7f}\u{7f}"].map(|name| Bytes::from_static(name.as_bytes()));
        let all: Vec<Bytes> = names.iter().chain(&absent).cloned().collect();
        check(&tablet, &all).await;
        check_past(&tablet, &all).await;
        check_filters(&tablet, times(STEP)).await;
        check_filters(&tablet, pushed_down()).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]
    #[test]
    fn a_row_is_the_same_however_it_is_read(
        actions in prop::collection::vec(action(), 1..40), by_timestamp: bool,
        rule in prop_oneof![
            Just(Rule::None), (1u32..3).prop_map(Rule::Versions), Just(Rule::Age), (1u32..3).prop_map(Rule::Both),
            (1u32..3).prop_map(Rule::Either),
        ],
        // Of one row each, of some, or in one piece.
        file_bytes in prop::sample::select(vec![1, 2_000, 64 << 20]),
    ) {
        let delete_rule = if by_timestamp { DeleteRule::ByTimestamp } else { DeleteRule::BySequence };
        run(actions, delete_rule, rule, file_bytes);
    }
}

/// Deletes make the result of a read one that compactions may change only where they stand above visible cells.
#[tokio::test]
async fn few_rows_with_deletes_are_unstable() {
    let (family, qualifier) = (FamilyId(1), Bytes::from_static(b"q"));
    let delete_version = |timestamp: i64| Mutation::DeleteVersion {
        family,
        qualifier: qualifier.clone(),
        timestamp: Timestamp(timestamp),
    };
    let delete_row = |up_to: i64| Mutation::DeleteRow {
        up_to: Timestamp(up_to),
    };
    let (by_sequence, by_timestamp) = (DeleteRule::BySequence, DeleteRule::ByTimestamp);
    let (any, one, two) = (None, Some(GcRule::MaxVersions(1)), Some(GcRule::MaxVersions(2)));
    let cases = [
        (
            by_sequence,
            &one,
            vec![put(1, "a"), put(3, "b"), delete_version(3)],
            true,
        ),
        (
            by_timestamp,
            &one,
            vec![put(1, "a"), put(3, "b"), delete_version(3)],
            true,
        ),
        (
            by_sequence,
            &any,
            vec![put(1, "a"), put(3, "b"), delete_version(3)],
            false,
        ),
        (by_sequence, &one, vec![put(1, "a"), put(3, "b"), delete_row(9)], false),
        (by_timestamp, &one, vec![put(1, "a"), put(3, "b"), delete_row(9)], false),
        (by_sequence, &one, vec![put(3, "a"), delete_row(3), put(4, "b")], false),
        (by_sequence, &two, vec![put(3, "a"), delete_row(3), put(4, "b")], false),
        (by_timestamp, &two, vec![put(3, "a"), delete_row(3), put(4, "b")], false),
        // Written late, it is older than the deleted cells.
        (by_sequence, &one, vec![put(3, "a"), delete_row(3), put(2, "b")], true),
        (by_sequence, &any, vec![put(3, "a"), delete_row(3), put(2, "b")], false),
        // A major compaction brings it back.
        (by_timestamp, &any, vec![put(3, "a"), delete_row(3), put(2, "b")], true),
        (
            by_timestamp,
            &any,
            vec![put(3, "a"), delete_version(3), put(3, "b")],
            true,
        ),
        (
            by_timestamp,
            &any,
            vec![delete_row(3), put(2, "b"), delete_row(4)],
            false,
        ),
    ];
    for (n, (rule, versions, mutations, unstable)) in cases.into_iter().enumerate() {
        let tablet = tablet(schema(rule, versions.clone())).await;
        mutations
            .into_iter()
            .for_each(|mutation| write(&tablet, vec![mutation]));
        let read = tablet.get_row(b"r", None).unwrap().unwrap();
        assert_eq!(read.unstable, unstable, "case {n}");
        // The mark is of one batch.
        write_row(&tablet, Bytes::from_static(b"s"), vec![put(1, "a")]);
        assert!(!tablet.get_row(b"s", None).unwrap().unwrap().unstable);
    }
}

/// Files without tombstones whose cells are all too old or, where no rule counts versions, all too new are not read.
#[tokio::test]
async fn files_of_other_times_are_left_out() {
    for (rule, sources) in [
        (None, [1, 2, 1]),
        (Some(GcRule::MaxAgeMicros(i64::MAX)), [1, 2, 1]),
        (Some(GcRule::MaxVersions(9)), [3, 2, 2]),
    ] {
        let tablet = tablet(schema(DeleteRule::BySequence, rule)).await;
        for timestamp in [1, 2, 3] {
            write(&tablet, vec![put(timestamp, "v")]);
            tablet.flush().await.unwrap();
        }
        let bounds = [(1, Some(2)), (2, None), (2, Some(3))];
        for ((start, end), expected) in bounds.into_iter().zip(sources) {
            let filter = Filter::TimestampRange { start, end };
            let filter = filter.compile(&tablet.schema()).unwrap();
            let options = ReadOptions {
                fill_cache: false,
                readahead_bytes: 0,
                single_row: false,
                times: Times::of(Some(&filter), &tablet.schema()),
            };
            let mut sources = Vec::new();
            tablet.state().add_sources(None, &[], None, None, options, &mut sources);
            assert_eq!(sources.len(), expected, "{start}..{end:?}");
        }
        check_filters(&tablet, times(1)).await;
        let family = FamilyId(1);
        let up_to = Timestamp(1);
        write(&tablet, vec![Mutation::DeleteFamily { family, up_to }]);
        tablet.flush().await.unwrap();
        check_filters(&tablet, times(1)).await;
    }
}

const LONG: &str = match std::str::from_utf8(&[b'x'; 2_000]) {
    Ok(text) => text,
    Err(_) => "",
};

/// So of a run's files, as when keys begin with a time: the other files cost no reads.
#[tokio::test]
async fn files_of_other_times_are_left_out_of_their_run() {
    let storage = MemoryStorage::new();
    let tablet = tablet_on(storage.clone(), schema(DeleteRule::BySequence, None), 64 << 10).await;
    let row = |n: i64| Bytes::from(format!("{n:05}"));
    for n in 0..400 {
        write_row(&tablet, row(n), vec![put(n, LONG)]);
    }
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    let state = tablet.state();
    assert!(state.groups[0].runs().count() == 1 && state.groups[0].files.len() > 5);
    let (first, last) = (100, 140);
    let filter = Filter::TimestampRange {
        start: first,
        end: Some(last),
    };
    let filter = Arc::new(filter.compile(&tablet.schema()).unwrap());
    let is_other = |file: &HeldFile| {
        let properties = file.sstable.properties();
        properties.timestamp_max.unwrap() < first || properties.timestamp_min.unwrap() >= last
    };
    let files = &state.groups[0].files;
    let others: Vec<&HeldFile> = files.iter().filter(|file| is_other(file)).collect();
    assert!(
        others.len() >= 3 && others.len() < files.len(),
        "{} of {}",
        others.len(),
        files.len()
    );
    for file in others {
        // A reader of all of its cells fails.
        storage.make_unreadable(&FileRef::path(file.reference.id()), 0..1);
    }
    let device: Arc<dyn Storage> = storage;
    let context = TabletContext {
        files: Arc::new(FileRegistry::new(device, Arc::new(Cache::new(0)), 2)),
        ..tablet.context.clone()
    };
    let opened = Tablet::open(context, tablet.schema(), tablet.id(), stele_types::Epoch(2)).await;
    let tablet = opened.unwrap();
    for reversed in [false, true] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: Some(filter.clone()),
            reversed,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let mut found = Vec::new();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            found.extend(batch.rows().map(|(row, _)| Bytes::copy_from_slice(row)));
        }
        if reversed {
            found.reverse();
        }
        assert_eq!(found, (first..last).map(row).collect::<Vec<_>>());
    }
}

/// More entries than a reversed scan gathers, in one of three rows.
#[tokio::test]
async fn a_row_of_very_many_entries_is_read_backward() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let names: Vec<Bytes> = ["a", "b", "c"].map(|name| Bytes::from_static(name.as_bytes())).into();
    for row in &names {
        let count = if row == "b" { 10_000 } else { 3 };
        write_row(&tablet, row.clone(), (0..count).map(|t| put(t, "v")).collect());
        tablet.flush().await.unwrap();
    }
    write_row(&tablet, names[1].clone(), vec![put(7, "newer")]);
    check(&tablet, &names).await;
}

/// Another batch begins behind the last one, in the same state and in a newer one.
#[tokio::test]
async fn batches_go_on_where_the_last_one_ended() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let name = |n: u32| Bytes::from(format!("{n:05}"));
    for n in 0..10_000 {
        write_row(&tablet, name(n), vec![put(1, "v")]);
    }
    for (reversed, disturbed) in [(false, false), (false, true), (true, false), (true, true)] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: None,
            reversed,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let mut found: Vec<Bytes> = Vec::new();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            found.extend(batch.shared_rows().map(|(row, _)| row));
            if disturbed {
                write_row(&tablet, name(0), vec![put(2, "v")]);
                tablet.flush().await.unwrap();
            }
        }
        if reversed {
            found.reverse();
        }
        assert_eq!(found, (0..10_000).map(name).collect::<Vec<_>>());
    }
}

/// A read of one row seeks past versions that nobody wants, to a column that begins in the next block.
#[tokio::test]
async fn what_follows_skipped_versions_in_another_block_is_found() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let cell = |qualifier: &'static str, timestamp| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp: Timestamp(timestamp),
        value: Bytes::from(vec![7; 30_000]),
    };
    let mut mutations: Vec<Mutation> = (0..40).map(|timestamp| cell("a", timestamp)).collect();
    mutations.push(cell("b", 0));
    write(&tablet, mutations);
    tablet.flush().await.unwrap();
    let filter = Arc::new(Filter::CellsPerColumn(1).compile(&tablet.schema()).unwrap());
    let columns = |cells: &[Cell]| cells.iter().map(|cell| cell.qualifier.clone()).collect::<Vec<_>>();
    let row = Bytes::from_static(b"r");
    for rows in [RowSet::all(), RowSet::new(vec![RowRange::single(&row)])] {
        let found = scan_filtered(&tablet, rows, false, None, Some(filter.clone())).await;
        assert_eq!(columns(&found[0].1), ["a", "b"]);
    }
    let read = tablet.get_row(&row, Some(&filter)).unwrap();
    assert_eq!(columns(&read.expect("all is in memory").into_cells()), ["a", "b"]);
}

/// A row that takes more memory than there is is read, with all that belongs to its batch, once there is more.
#[tokio::test]
async fn a_batch_begins_again_with_more_memory() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let name = |n: u32| Bytes::from(format!("{n:05}"));
    let wide = |row: u32| {
        let cell = |n: u32| Mutation::Put {
            family: FamilyId(1),
            qualifier: name(n),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"v"),
        };
        write_row(&tablet, name(row), (0..20_000).map(cell).collect());
    };
    for row in 0..10 {
        write_row(&tablet, name(row), vec![put(1, "v")]);
    }
    wide(5);
    assert_eq!(
        tablet.get(&name(5), None).unwrap(),
        PointRead::WouldBlock,
        "more than is read at once"
    );
    for reversed in [false, true] {
        // Each row is a range of its own: those that were finished come again, too.
        let ranges = (0..10).map(|row| RowRange::single(&name(row))).collect();
        let spec = ScanSpec {
            rows: RowSet::new(ranges),
            filter: None,
            reversed,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_reservation(2 << 20);
        for _ in 0..2 {
            let error = scanner.next_batch().await.unwrap_err();
            assert!(
                matches!(error, TabletError::NeedsMemory { bytes } if bytes > 1 << 20),
                "{error}"
            );
        }
        scanner.drop_batch();
        scanner.set_reservation(32 << 20);
        let batch = scanner.next_batch().await.unwrap().unwrap();
        let mut rows: Vec<_> = batch.shared_rows().map(|(row, cells)| (row, cells.len())).collect();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.len())));
        }
        if reversed {
            rows.reverse();
        }
        let expected = (0..10).map(|row| (name(row), if row == 5 { 20_001 } else { 1 }));
        assert_eq!(rows, expected.collect::<Vec<_>>());
    }
}

/// A filter that makes many cells of one reserves memory for them before it makes them.
#[tokio::test]
async fn what_a_filter_multiplies_counts() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let cells = (0..4_000).map(|n: u32| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(n.to_string()),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"v"),
    });
    write_row(&tablet, Bytes::from_static(b"r"), cells.collect());
    let labels = |n: u32| Filter::Interleave((0..n).map(|i| Filter::ApplyLabel(format!("l{i}"))).collect());
    let read = async |filter: Option<Filter>| {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: filter.map(|filter| Arc::new(filter.compile(&tablet.schema()).unwrap())),
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_reservation(2 << 20);
        let batch = scanner.next_batch().await?;
        Ok::<_, TabletError>(batch.map_or(0, |batch| batch.into_cells().len()))
    };
    assert_eq!(read(None).await.unwrap(), 4_000);
    let error = read(Some(labels(8))).await.unwrap_err();
    // Eight times 4,000 cells, and as many twice to put them together.
    let least = 3 * 8 * 4_000 * size_of::<Cell>();
    assert!(
        matches!(error, TabletError::NeedsMemory { bytes } if bytes < least),
        "found out before it has all: {error}"
    );
}

/// A long chain of alternatives, each of which copies a cell once at most, needs no memory for copies that it could make.
#[tokio::test]
async fn alternatives_need_memory_for_actual_copies_only() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let cells = (0..3_000).map(|n: u32| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(n.to_string()),
        timestamp: Timestamp(1),
        value: Bytes::from_static(b"x"),
    });
    write_row(&tablet, Bytes::from_static(b"many"), cells.collect());
    write_row(&tablet, Bytes::from_static(b"one"), vec![put(1, "x")]);
    let value = |text: &'static str| Filter::ValueRegex(Bytes::from_static(text.as_bytes()));
    let either = Filter::Interleave(vec![value("x"), value("y")]);
    let filter = Filter::Chain(vec![either; 60]);
    let filter = Some(Arc::new(filter.compile(&tablet.schema()).unwrap()));
    for partial in [None, Some(1 << 20)] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: filter.clone(),
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_reservation(4 << 20);
        scanner.set_partial_rows(partial);
        let (mut cells, mut batches) = (0, 0);
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            cells += batch.into_cells().len();
            batches += 1;
        }
        assert_eq!(cells, 3_001);
        assert!(batches < 40, "{batches}");
    }
}

/// A batch ends where its filter has had much to do, however much it has let through. Otherwise no other caller would
/// have a turn for as long as a thousand rows take.
#[tokio::test]
async fn a_batch_ends_where_a_filter_has_looked_through_much() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let name = |n: u32| Bytes::from(format!("{n:05}"));
    let value = Bytes::from(vec![b'v'; 30_000]);
    for n in 0..40 {
        let cell = |t| Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::new(),
            timestamp: Timestamp(t),
            value: value.clone(),
        };
        write_row(&tablet, name(n), (0..10).map(cell).collect());
    }
    // Some three hundred kilobytes a row, which it takes one look to refuse.
    let refuses = || Filter::ValueRegex(Bytes::from_static(b"w[v]*x"));
    for (patterns, batches) in [(1, 3..=8), (100, 40..=41)] {
        let filter = match patterns {
            1 => refuses(),
            _ => Filter::Interleave((0..patterns).map(|_| refuses()).collect()),
        };
        for reversed in [false, true] {
            let spec = ScanSpec {
                rows: RowSet::all(),
                filter: Some(Arc::new(filter.compile(&tablet.schema()).unwrap())),
                reversed,
                raw: false,
                rows_limit: None,
            };
            let mut scanner = TabletScanner::new(tablet.clone(), spec);
            let (mut found, mut seen, mut last) = (0, 0, None);
            while let Some(batch) = scanner.next_batch().await.unwrap() {
                assert!(batch.is_empty());
                found += 1;
                seen += batch.seen.rows;
                last = batch.scanned_through.or(last);
            }
            assert!(batches.contains(&found), "{patterns} patterns, {reversed}: {found}");
            assert_eq!((seen, last), (40, Some(name(if reversed { 0 } else { 39 }))));
        }
    }
}

/// A batch retains not much more memory than its size: neither blocks of which a filter, or a rule, lets little
/// through, nor those of rows far from each other. Within a row of many cells as well.
#[tokio::test]
async fn a_batch_of_small_values_keeps_no_large_ones_in_memory() {
    let cell = |qualifier: String, bytes: usize| Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(qualifier),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![7; bytes]),
    };
    let filter = Filter::QualifierRegex(Bytes::from_static(b".*a"));
    for is_wide in [false, true] {
        let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
        for n in 0..1_000u32 {
            let (row, column) = match is_wide {
                false => (format!("{n:05}"), String::new()),
                true => ("row".to_owned(), format!("{n:05}")),
            };
            let mutations = vec![cell(format!("{column}a"), 10), cell(format!("{column}b"), 31 << 10)];
            write_row(&tablet, Bytes::from(row), mutations);
        }
        tablet.flush().await.unwrap();
        let filter = Some(Arc::new(filter.compile(&tablet.schema()).unwrap()));
        let single = |n: u32| RowRange::single(&Bytes::from(format!("{n:05}")));
        let mut ways = vec![RowSet::all()];
        if !is_wide {
            ways.push(RowSet::new((0..1_000).map(single).collect()));
        }
        for (n, rows) in ways.into_iter().enumerate() {
            let spec = ScanSpec {
                rows,
                filter: filter.clone(),
                reversed: false,
                raw: false,
                rows_limit: None,
            };
            let mut scanner = TabletScanner::new(tablet.clone(), spec);
            let mut cells = Vec::new();
            while let Some(batch) = scanner.next_batch().await.unwrap() {
                cells.extend(batch.into_cells());
            }
            assert_eq!(cells.len(), 1_000);
            drop(scanner);
            // The bytes behind a value in its memory, if no other holds that memory.
            let kept = |cell: Cell| cell.value.try_into_mut().map_or(0, |alone| alone.capacity());
            let kept: usize = cells.into_iter().map(kept).sum();
            assert!(kept < 4 << 20, "{is_wide} {n}: {kept}");
        }
    }
}

/// Nor does it keep names of columns that a filter leaves out, which are copied together with those of others.
#[tokio::test]
async fn a_batch_of_few_columns_keeps_no_names_of_others_in_memory() {
    const ROWS: u32 = 400;
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for row in 0..ROWS {
        let cell = |n: u32| Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from(format!("column-{row:03}-{n:03}")),
            timestamp: Timestamp(1),
            value: Bytes::from(vec![if n == 50 { 9 } else { 7 }; 40]),
        };
        write_row(&tablet, Bytes::from(format!("{row:05}")), (0..100).map(cell).collect());
    }
    tablet.flush().await.unwrap();
    let filter = Filter::ValueRange {
        start: std::ops::Bound::Included(Bytes::from_static(&[9])),
        end: std::ops::Bound::Unbounded,
    };
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: Some(Arc::new(filter.compile(&tablet.schema()).unwrap())),
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut cells = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        cells.extend(batch.into_cells());
    }
    drop(scanner);
    assert_eq!(cells.len(), ROWS as usize);
    // The bytes behind a name in its memory, if no other holds that memory.
    let kept = |cell: Cell| cell.qualifier.try_into_mut().map_or(0, |alone| alone.capacity());
    let kept: usize = cells.into_iter().map(kept).sum();
    assert!(kept < 100_000, "{kept}");
}

/// Values of blocks that go into the batch for the most part are not copied.
#[tokio::test]
async fn values_of_dense_blocks_stay_where_they_are() {
    for (bytes, runs) in [(10, 1), (100, 1), (1_000, 1), (100, 3)] {
        let value: &'static str = Box::leak("v".repeat(bytes).into_boxed_str());
        let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
        for run in 0..runs {
            for n in (run..3_000).step_by(runs) {
                write_row(&tablet, Bytes::from(format!("{n:05}")), vec![put(1, value)]);
            }
            tablet.flush().await.unwrap();
        }
        for reversed in [false, true] {
            let spec = ScanSpec {
                rows: RowSet::all(),
                filter: None,
                reversed,
                raw: false,
                rows_limit: None,
            };
            let mut scanner = TabletScanner::new(tablet.clone(), spec);
            let batch = scanner.next_batch().await.unwrap().unwrap();
            let cells = batch.into_cells();
            let copied = cells.iter().filter(|cell| cell.value.is_unique()).count();
            assert_eq!((cells.len() > 500, copied), (true, 0), "{bytes} {runs} {reversed}");
        }
    }
}
