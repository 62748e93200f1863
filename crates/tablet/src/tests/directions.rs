//! Scans in both directions against a sorted map, and against each other.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use stele_filter::Filter;
use stele_types::{Cell, GroupOptions, RowRange};

/// Of a row: newest versions first within a column, as they are read.
type Columns = BTreeMap<(u32, u8, Reverse<i64>), Vec<u8>>;
type Model = BTreeMap<Bytes, Columns>;
type Rows = Vec<(Bytes, Vec<Cell>)>;

/// Rows of this many names.
const NAMES: u16 = 400;

/// The name of number `n`: short ones, prefixes of others, ones with bytes that are escaped, long ones.
fn name(n: u16) -> Bytes {
    let n = n % NAMES;
    Bytes::from(match n % 8 {
        0..4 => format!("row{n:04}").into_bytes(),
        4 => format!("row{:04}", n - 4)
            .into_bytes()
            .into_iter()
            .chain(*b"\0x")
            .collect(),
        5 => format!("row{:04}", n - 5)
            .into_bytes()
            .into_iter()
            .chain(*b"\0")
            .collect(),
        6 => [&[b'x'; 300][..], format!("{n:04}").as_bytes()].concat(),
        _ => [&[0; 20][..], format!("{n:04}").as_bytes()].concat(),
    })
}

#[derive(Clone, Debug)]
enum Action {
    /// From this name on, this many rows of one cell of this many bytes.
    Plain(u16, u16, usize),
    Put(u16, u32, u8, i64),
    /// A value that goes to a value file.
    Large(u16),
    DeleteRow(u16),
    /// Where no rule may have dropped the versions that it uncovers.
    DeleteVersion(u16, i64),
    DeleteColumn(u16, u32, u8),
    /// One row of this many versions.
    Deep(u16, i64),
    Flush,
    Compact,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..NAMES, 1..NAMES, prop_oneof![Just(0usize), 1usize..12, Just(100), Just(1500)])
            .prop_map(|(from, count, len)| Action::Plain(from, count, len)),
        6 => (0..NAMES, 1u32..4, 0u8..3, 0i64..4).prop_map(|(row, f, q, t)| Action::Put(row, f, q, t)),
        1 => (0..NAMES).prop_map(Action::Large),
        2 => (0..NAMES).prop_map(Action::DeleteRow),
        2 => (0..NAMES, 0i64..2).prop_map(|(row, t)| Action::DeleteVersion(row, t)),
        2 => (0..NAMES, 1u32..4, 0u8..3).prop_map(|(row, f, q)| Action::DeleteColumn(row, f, q)),
        1 => (0..NAMES, prop_oneof![2i64..40, Just(5000)]).prop_map(|(row, n)| Action::Deep(row, n)),
        3 => Just(Action::Flush),
        1 => Just(Action::Compact),
    ]
}

/// Families 1 and 2 in one group, family 3 in another.
fn three_families(block_bytes: u32, rule: Option<GcRule>) -> Arc<TableSchema> {
    let mut schema = TableSchema::clone(&schema(DeleteRule::BySequence, rule));
    let first = schema.families[&FamilyId(1)].clone();
    for (id, group) in [(2, 0), (3, 1)] {
        let family = Family {
            name: format!("f{id}"),
            group: GroupId(group),
            ..first.clone()
        };
        schema.families.insert(FamilyId(id), family);
    }
    schema.next_family = FamilyId(4);
    schema.groups = [0, 1]
        .map(|id| LocalityGroup {
            options: GroupOptions {
                block_bytes: Some(block_bytes),
                ..GroupOptions::default()
            },
            ..LocalityGroup::new(GroupId(id), format!("g{id}"), Compression::Snappy)
        })
        .into();
    Arc::new(schema)
}

fn put_at(family: u32, qualifier: u8, timestamp: i64, value: Vec<u8>) -> Mutation {
    Mutation::Put {
        family: FamilyId(family),
        qualifier: Bytes::copy_from_slice(&[qualifier]),
        timestamp: Timestamp(timestamp),
        value: value.into(),
    }
}

/// Does it to the tablet and to the model.
async fn act(tablet: &Arc<Tablet>, model: &mut Model, action: &Action) {
    let mut put = |row: &Bytes, family, qualifier, timestamp, value: Vec<u8>| {
        let columns = model.entry(row.clone()).or_default();
        columns.insert((family, qualifier, Reverse(timestamp)), value.clone());
        put_at(family, qualifier, timestamp, value)
    };
    match *action {
        Action::Plain(from, count, len) => {
            for n in 0..count {
                let row = name(from.wrapping_add(n));
                let change = put(&row, 1, 0, i64::from(n % 2), vec![n as u8; len]);
                write_row(tablet, row, vec![change]);
            }
        }
        Action::Put(row, family, qualifier, timestamp) => {
            let row = name(row);
            let change = put(&row, family, qualifier, timestamp, b"put".to_vec());
            write_row(tablet, row, vec![change]);
        }
        Action::Deep(row, versions) => {
            let row = name(row);
            let version = |t: i64| put(&row, 2, 1, t, t.to_be_bytes().to_vec());
            let changes = (0..versions).map(version).collect();
            write_row(tablet, row, changes);
        }
        Action::Large(row) => {
            let row = name(row);
            let change = put(&row, 1, 0, 1, vec![7; 40_000]);
            write_row(tablet, row, vec![change]);
        }
        Action::DeleteVersion(row, timestamp) => {
            let row = name(row);
            if let Some(columns) = model.get_mut(&row) {
                columns.remove(&(1, 0, Reverse(timestamp)));
            }
            let change = Mutation::DeleteVersion {
                family: FamilyId(1),
                qualifier: Bytes::from_static(&[0]),
                timestamp: Timestamp(timestamp),
            };
            write_row(tablet, row, vec![change]);
        }
        Action::DeleteRow(row) => {
            let row = name(row);
            model.remove(&row);
            let up_to = Timestamp::MAX;
            write_row(tablet, row, vec![Mutation::DeleteRow { up_to }]);
        }
        Action::DeleteColumn(row, family, qualifier) => {
            let row = name(row);
            if let Some(columns) = model.get_mut(&row) {
                columns.retain(|(f, q, _), _| (*f, *q) != (family, qualifier));
            }
            let change = Mutation::DeleteColumn {
                family: FamilyId(family),
                qualifier: Bytes::copy_from_slice(&[qualifier]),
                from: Timestamp::MIN,
                to: Timestamp::MAX,
            };
            write_row(tablet, row, vec![change]);
        }
        Action::Flush => {
            tablet.flush().await.unwrap();
        }
        Action::Compact => tablet.compact_all().await.unwrap(),
    }
}

/// The visible cells of the rows in these ranges, of at most `versions` versions each column.
fn expected(model: &Model, ranges: &RowSet, versions: u32) -> Rows {
    let mut found = Rows::new();
    for (row, columns) in model {
        let mut cells: Vec<Cell> = Vec::new();
        let mut before = (0, 0, 0);
        for ((family, qualifier, Reverse(timestamp)), value) in columns {
            before = match before {
                (f, q, n) if (f, q) == (*family, *qualifier) => (f, q, n + 1),
                _ => (*family, *qualifier, 1),
            };
            if before.2 <= versions {
                cells.push(Cell::put(
                    FamilyId(*family),
                    Bytes::copy_from_slice(&[*qualifier]),
                    Timestamp(*timestamp),
                    Bytes::copy_from_slice(value),
                ));
            }
        }
        if !cells.is_empty() && ranges.ranges().iter().any(|range| range.contains(row)) {
            found.push((row.clone(), cells));
        }
    }
    found
}

async fn scan(tablet: &Arc<Tablet>, spec: ScanSpec) -> Rows {
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut found = Rows::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    found
}

/// Ranges from name to name, from within a row to within another, and of single rows.
fn ranges(chosen: &[(u16, u16, u8)]) -> RowSet {
    let range = |&(from, to, how): &(u16, u16, u8)| {
        let (mut start, mut end) = (name(from), name(to));
        match how {
            0 => return RowRange::single(&start),
            1 => {
                start.truncate(start.len() - 1);
                end.truncate(end.len() - 1);
            }
            2 => return RowRange { start, end: None },
            _ => {}
        }
        if end < start {
            std::mem::swap(&mut start, &mut end);
        }
        RowRange { start, end: Some(end) }
    };
    RowSet::new(chosen.iter().map(range).collect())
}

fn filters() -> Vec<Filter> {
    let columns = Filter::ColumnRange {
        family: "f".to_owned(),
        start: Bound::Included(Bytes::from_static(b"\x01")),
        end: Bound::Unbounded,
    };
    vec![
        Filter::CellsPerColumn(1),
        Filter::CellsPerRow(1),
        Filter::FamilyRegex(Bytes::from_static(b"f[23]")),
        Filter::RowKeyRegex(Bytes::from_static(b"row00.[37]")),
        Filter::TimestampRange { start: 1, end: Some(3) },
        Filter::StripValue,
        columns,
    ]
}

fn run(
    actions: &[Action],
    block_bytes: u32,
    file_bytes: u64,
    versions: Option<u32>,
    chosen: &[(u16, u16, u8)],
    limit: u64,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let schema = three_families(block_bytes, versions.map(GcRule::MaxVersions));
        let tablet = tablet_of_files(schema.clone(), file_bytes).await;
        let mut model = Model::new();
        for action in actions {
            if versions.is_some() && matches!(action, Action::DeleteVersion(..)) {
                continue;
            }
            act(&tablet, &mut model, action).await;
        }
        let spec = |rows: &RowSet, reversed| ScanSpec {
            rows: rows.clone(),
            filter: None,
            reversed,
            raw: false,
            rows_limit: None,
        };
        for rows in [RowSet::all(), ranges(chosen)] {
            let mut wanted = expected(&model, &rows, versions.unwrap_or(u32::MAX));
            for reversed in [false, true] {
                assert_eq!(
                    scan(&tablet, spec(&rows, reversed)).await,
                    wanted,
                    "reversed: {reversed}"
                );
                let rows_limit = Some(limit);
                let limited = scan(
                    &tablet,
                    ScanSpec {
                        rows_limit,
                        ..spec(&rows, reversed)
                    },
                )
                .await;
                let most = wanted.len().min(limit as usize);
                assert_eq!(limited, wanted[..most], "reversed: {reversed}");
                wanted.reverse();
            }
            for filter in filters() {
                let compiled = Arc::new(filter.compile(&schema).unwrap());
                let mut left = Rows::new();
                for (row, cells) in &wanted {
                    let cells = compiled.apply(row, cells.clone(), &mut || 0.5).unwrap();
                    left.extend((!cells.is_empty()).then(|| (row.clone(), cells)));
                }
                for reversed in [false, true] {
                    let filter = Some(compiled.clone());
                    let found = scan(
                        &tablet,
                        ScanSpec {
                            filter,
                            ..spec(&rows, reversed)
                        },
                    )
                    .await;
                    assert_eq!(found, left, "reversed: {reversed}, {compiled:?}");
                    left.reverse();
                }
            }
            let raw = true;
            let forward = scan(
                &tablet,
                ScanSpec {
                    raw,
                    ..spec(&rows, false)
                },
            )
            .await;
            let mut backward = scan(
                &tablet,
                ScanSpec {
                    raw,
                    ..spec(&rows, true)
                },
            )
            .await;
            backward.reverse();
            assert_eq!(forward, backward);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]
    #[test]
    fn scans_find_what_was_written_in_both_directions(
        actions in prop::collection::vec(action(), 1..25),
        // Of a few entries each, of some intervals, and of many.
        block_bytes in prop::sample::select(vec![64, 1_500, 8 << 10, 64 << 10]),
        file_bytes in prop::sample::select(vec![4_000, 64 << 20]),
        versions in prop_oneof![Just(None), (1u32..3).prop_map(Some)],
        chosen in prop::collection::vec((0..NAMES, 0..NAMES, 0u8..4), 1..5),
        limit in 1u64..300,
    ) {
        run(&actions, block_bytes, file_bytes, versions, &chosen, limit);
    }
}
