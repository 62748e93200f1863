//! How random histories are made: few rows, columns and timestamps, so that everything collides.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt;
use stele_filter::Filter;
use stele_sim::runtime::WALL_ORIGIN_MICROS;
use stele_types::{
    AggregateKind, Compression, DeleteRule, Family, FamilyId, GcRule, GroupId, GroupOptions, LocalityGroup, RowRange,
    TableId, TableName, TableSchema, Timestamp, ValueType,
};

/// The table and its storage.
#[derive(Clone)]
pub struct Setup {
    pub schema: TableSchema,
    /// Share of reads that find nothing in memory.
    pub read_miss: f64,
    pub cache_bytes: usize,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            schema,
            read_miss,
            cache_bytes,
        } = self;
        let rules: Vec<_> = schema.families.values().map(|family| &family.gc_rule).collect();
        let groups = schema.groups.len();
        let options: Vec<_> = schema.groups.iter().map(|group| &group.options).collect();
        write!(
            f,
            "{:?}, rules {rules:?}, {groups} groups of {options:?}, read_miss {read_miss}, cache {cache_bytes}",
            schema.delete_rule
        )
    }
}

/// A history; shown one step a line.
#[derive(Clone)]
pub struct Steps(pub Vec<Step>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "\n    {step:?}"))
    }
}

/// A step.
#[derive(Clone, Debug)]
pub enum Step {
    Write(Vec<(Bytes, Vec<Change>)>),
    Flush,
    CompactIfDue,
    /// Several concurrent compactions, after reads that have paid for some: this many opened a run too many.
    CompactConcurrently(usize),
    CompactAll,
    /// Rows at about this distance in bytes, while everything is compacted.
    SampleConcurrently(u64),
    DropRows(RowRange),
    Divide(Bytes),
    Reopen,
    Scan {
        range: RowRange,
        reversed: bool,
    },
    Filtered {
        range: RowRange,
        reversed: bool,
        filter: Filter,
    },
    Raw(RowRange),
    Advance(u64),
    DropFamily(FamilyId),
    /// To the group of this number, counted round; a group of these options is made if there are few.
    MoveFamily(FamilyId, usize, GroupOptions),
    AlterGroup(usize, GroupOptions),
    /// This number of files from one on cannot be read any more, whole or at one place, and perhaps the process ends.
    Outage {
        first: usize,
        count: usize,
        from_end: Option<u64>,
        reopens: bool,
    },
    /// All but this number of them can be read again.
    OutageEnds(usize),
}

impl Step {
    /// The rows that it reads, if it does nothing else, and whether backward.
    pub fn reads(&self) -> Option<(&RowRange, bool)> {
        match self {
            Step::Scan { range, reversed } | Step::Filtered { range, reversed, .. } => Some((range, *reversed)),
            Step::Raw(range) => Some((range, false)),
            _ => None,
        }
    }
}

/// A mutation without its value, which is made up when it is applied: each is unlike any other.
#[derive(Clone, Debug)]
pub enum Change {
    Put {
        family: FamilyId,
        qualifier: Bytes,
        timestamp: Timestamp,
        long: bool,
    },
    Add {
        family: FamilyId,
        qualifier: Bytes,
        timestamp: Timestamp,
        operand: i64,
    },
    DeleteRow(Timestamp),
    DeleteFamily(FamilyId, Timestamp),
    DeleteFamilyVersion(FamilyId, Timestamp),
    DeleteColumn(FamilyId, Bytes, Timestamp, Timestamp),
    DeleteVersion(FamilyId, Bytes, Timestamp),
}

/// Distance between timestamps, large against the virtual time a history takes.
const TICK: i64 = 100_000_000;

pub fn setup(delete_rule: DeleteRule) -> impl Strategy<Value = Setup> {
    // Under the by-timestamp rule a row's tombstone hides cells for as long as any group of the read still has it. The
    // result of a read would then depend on its families. So there is one group.
    let groups_max = if delete_rule == DeleteRule::ByTimestamp { 1 } else { 2 };
    let rules = (rule(), rule(), rule());
    let media = prop_oneof![Just(0.0), Just(0.3), Just(1.0)];
    (
        rules,
        1u32..=groups_max,
        media,
        prop_oneof![Just(0usize), Just(1 << 20)],
        (options(), options()),
    )
        .prop_map(move |(rules, groups, read_miss, cache_bytes, options)| Setup {
            schema: schema(
                delete_rule,
                [rules.0, rules.1, rules.2, None],
                groups,
                [options.0, options.1],
            ),
            read_miss,
            cache_bytes,
        })
}

fn rule() -> impl Strategy<Value = Option<GcRule>> {
    let versions = || GcRule::MaxVersions(1);
    let age = || GcRule::MaxAgeMicros(5 * TICK);
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(versions())),
        1 => Just(Some(GcRule::MaxVersions(2))),
        1 => Just(Some(age())),
        1 => Just(Some(GcRule::Union(vec![GcRule::MaxVersions(2), age()]))),
        1 => Just(Some(GcRule::Intersection(vec![versions(), age()]))),
    ]
}

/// Families 1 and 3 hold bytes, 2 sums and 4 maxima; 3 and 4 are in the last group.
fn schema(delete_rule: DeleteRule, rules: [Option<GcRule>; 4], groups: u32, options: [GroupOptions; 2]) -> TableSchema {
    let types = [
        ValueType::Bytes,
        ValueType::Aggregate(AggregateKind::Sum),
        ValueType::Bytes,
        ValueType::Aggregate(AggregateKind::Max),
    ];
    let family = |(i, (value_type, gc_rule)): (u32, (ValueType, Option<GcRule>))| {
        let group = GroupId(if i < 2 { 0 } else { groups - 1 });
        (
            FamilyId(i + 1),
            Family {
                name: format!("f{}", i + 1),
                gc_rule,
                value_type,
                deletes: Default::default(),
                group,
                front_end_data: Vec::new(),
            },
        )
    };
    let group = |(id, options)| LocalityGroup {
        options,
        ..LocalityGroup::new(GroupId(id), format!("g{id}"), Compression::Lz4)
    };
    TableSchema {
        delete_rule,
        families: (0..)
            .zip(types.into_iter().zip(rules))
            .map(family)
            .collect::<BTreeMap<_, _>>(),
        next_family: FamilyId(5),
        groups: (0..groups).zip(options).map(group).collect(),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}

pub fn steps(most: usize) -> impl Strategy<Value = Steps> {
    vec(step(), 1..most).prop_map(Steps)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => vec((row(), vec(change(), 1..6)), 1..4).prop_map(Step::Write),
        5 => Just(Step::Flush),
        4 => Just(Step::CompactIfDue),
        2 => prop_oneof![0usize..4, Just(1000)].prop_map(Step::CompactConcurrently),
        1 => Just(Step::CompactAll),
        2 => (1u64..300).prop_map(Step::SampleConcurrently),
        1 => range().prop_map(Step::DropRows),
        1 => row().prop_map(Step::Divide),
        2 => Just(Step::Reopen),
        6 => (range(), any::<bool>()).prop_map(|(range, reversed)| Step::Scan { range, reversed }),
        4 => (range(), any::<bool>(), filter())
            .prop_map(|(range, reversed, filter)| Step::Filtered { range, reversed, filter }),
        1 => range().prop_map(Step::Raw),
        2 => (1u64..4).prop_map(|ticks| Step::Advance(ticks * TICK as u64)),
        1 => (1u32..=4).prop_map(|id| Step::DropFamily(FamilyId(id))).boxed(),
        3 => (family(), 0usize..4, options()).prop_map(|(f, group, options)| Step::MoveFamily(f, group, options)),
        1 => (0usize..4, options()).prop_map(|(group, options)| Step::AlterGroup(group, options)),
    ]
}

/// Histories for outages: a run of several files of several rows, which are cut, cannot be read, and are changed all the same.
pub fn steps_with_outages(most: usize) -> impl Strategy<Value = Steps> {
    let place = option::weighted(0.5, 0u64..200);
    let outage = (0usize..12, 1usize..5, place, prop::bool::weighted(0.8));
    let step = prop_oneof![
        8 => step(),
        4 => vec((numbered(), vec(change(), 1..3)), 1..5).prop_map(Step::Write),
        2 => Just(Step::Flush),
        4 => numbered_range().prop_map(Step::DropRows),
        1 => numbered().prop_map(Step::Divide),
        3 => (numbered_range(), any::<bool>()).prop_map(|(range, reversed)| Step::Scan { range, reversed }),
        3 => outage
            .prop_map(|(first, count, from_end, reopens)| Step::Outage { first, count, from_end, reopens }),
        2 => (0usize..3).prop_map(Step::OutageEnds),
    ];
    let put = |number| {
        let change = Change::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(WALL_ORIGIN_MICROS + TICK / 2),
            long: false,
        };
        (numbered_row(number), vec![change])
    };
    vec(step, 1..most).prop_map(move |steps| {
        let filled = [Step::Write((0..NUMBERED).map(put).collect()), Step::CompactAll];
        Steps(filled.into_iter().chain(steps).collect())
    })
}

/// Rows for a run of several files.
const NUMBERED: u8 = 24;

fn numbered_row(number: u8) -> Bytes {
    Bytes::from(format!("n{number:02}"))
}

fn numbered() -> impl Strategy<Value = Bytes> {
    (0..NUMBERED).prop_map(numbered_row)
}

fn numbered_range() -> impl Strategy<Value = RowRange> {
    (0..NUMBERED, 1..6u8).prop_map(|(start, rows)| RowRange {
        start: numbered_row(start),
        end: Some(numbered_row(start + rows)),
    })
}

/// The same table with files of a few rows.
pub fn setup_of_small_files() -> impl Strategy<Value = Setup> {
    setup(DeleteRule::BySequence).prop_map(|mut setup| {
        let groups = setup.schema.groups.iter_mut();
        groups.for_each(|group| group.options.file_bytes = Some(SMALL_FILE_BYTES));
        setup
    })
}

/// A few rows of one small cell.
const SMALL_FILE_BYTES: u64 = 150;

/// Options of a locality group. Blocks and files may be smaller than a user can have them, so that there are many.
pub fn options() -> impl Strategy<Value = GroupOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Snappy),
        Just(Compression::Zstd)
    ];
    let level = prop_oneof![Just(1u8), Just(3), Just(12)];
    let dictionary = prop_oneof![2 => Just(0u32), 1 => Just(1 << 10), 1 => Just(4 << 10)];
    let block = prop_oneof![Just(None), Just(Some(64u32)), Just(Some(1 << 10)), Just(Some(1 << 20))];
    let filter = prop_oneof![Just(None), Just(Some(0u32)), Just(Some(2)), Just(Some(16))];
    let file = prop_oneof![2 => Just(None), 1 => Just(Some(200u64)), 1 => Just(Some(1 << 20))];
    (compression, level, dictionary, block, filter, any::<bool>(), file).prop_map(
        |(compression, zstd_level, dictionary_bytes, block_bytes, filter_bits_per_row, in_memory, file_bytes)| {
            GroupOptions {
                compression,
                zstd_level,
                dictionary_bytes,
                block_bytes,
                filter_bits_per_row,
                in_memory,
                file_bytes,
            }
        },
    )
}

/// Rows that are prefixes of each other, and bytes that the key encoding escapes.
pub fn row() -> impl Strategy<Value = Bytes> {
    const ROWS: [&[u8]; 9] = [
        b"\0",
        b"a",
        b"a\0",
        b"a\0\x01",
        b"a\0\xff",
        b"a\x01",
        b"ab",
        b"b",
        b"\xff\xff",
    ];
    prop::sample::select(&ROWS[..]).prop_map(Bytes::from_static)
}

pub fn range() -> impl Strategy<Value = RowRange> {
    let start = prop_oneof![1 => Just(Bytes::new()), 2 => row()];
    prop_oneof![
        (start, option::of(row())).prop_map(|(start, end)| RowRange { start, end }),
        row().prop_map(|row| RowRange::single(&row)),
    ]
}

pub fn qualifier() -> impl Strategy<Value = Bytes> {
    const QUALIFIERS: [&[u8]; 4] = [b"", b"q", b"q\0", b"r"];
    prop::sample::select(&QUALIFIERS[..]).prop_map(Bytes::from_static)
}

/// Between ticks, so that no age limit falls on one.
fn timestamp() -> impl Strategy<Value = Timestamp> {
    (-4i64..4).prop_map(|tick| Timestamp(WALL_ORIGIN_MICROS + tick * TICK + TICK / 2))
}

fn bound() -> impl Strategy<Value = Timestamp> {
    prop_oneof![1 => Just(Timestamp::MAX), 2 => timestamp()]
}

fn family() -> impl Strategy<Value = FamilyId> {
    (1u32..=4).prop_map(FamilyId)
}

pub fn change() -> impl Strategy<Value = Change> {
    let place = || (family(), qualifier(), timestamp());
    prop_oneof![
        12 => (place(), prop::bool::weighted(0.1))
            .prop_map(|((family, qualifier, timestamp), long)| Change::Put { family, qualifier, timestamp, long }),
        5 => (place(), prop_oneof![-3i64..10, Just(i64::MAX)], any::<bool>()).prop_map(
            |((_, qualifier, timestamp), operand, sum)| {
                Change::Add { family: FamilyId(if sum { 2 } else { 4 }), qualifier, timestamp, operand }
            }
        ),
        1 => bound().prop_map(Change::DeleteRow),
        1 => (family(), bound()).prop_map(|(f, t)| Change::DeleteFamily(f, t)),
        1 => (family(), timestamp()).prop_map(|(f, t)| Change::DeleteFamilyVersion(f, t)),
        2 => (family(), qualifier(), prop_oneof![Just(Timestamp::MIN), timestamp()], bound())
            .prop_map(|(f, q, from, to)| Change::DeleteColumn(f, q, from, to)),
        2 => place().prop_map(|(f, q, t)| Change::DeleteVersion(f, q, t)),
    ]
}

pub fn filter() -> impl Strategy<Value = Filter> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let leaf = prop_oneof![
        Just(Filter::PassAll),
        (1i32..3).prop_map(Filter::CellsPerColumn),
        (1i32..4).prop_map(Filter::CellsPerRow),
        (1i32..4).prop_map(Filter::CellsPerRowOffset),
        Just(Filter::StripValue),
        Just(Filter::RowKeyRegex(Bytes::from_static(b"a\\C*"))),
        Just(Filter::FamilyRegex(Bytes::from_static(b"f[13]"))),
        Just(Filter::QualifierRegex(Bytes::from_static(b"q"))),
        (timestamp(), option::of(timestamp())).prop_map(|(from, to)| Filter::TimestampRange {
            start: from.0,
            end: to.map(|t| t.0.max(from.0))
        }),
        (family(), qualifier()).prop_map(|(f, q)| Filter::ColumnRange {
            family: format!("f{f}"),
            start: Included(q),
            end: Unbounded
        }),
        (family(), qualifier()).prop_map(|(f, q)| Filter::ColumnRange {
            family: format!("f{f}"),
            start: Unbounded,
            end: Excluded([&q[..], b"x"].concat().into())
        }),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(Filter::Chain),
            vec(inner.clone(), 2..3).prop_map(Filter::Interleave),
            (inner.clone(), option::of(inner)).prop_map(|(predicate, branch)| Filter::Condition {
                predicate: Box::new(predicate),
                on_true: branch.map(Box::new),
                on_false: Some(Box::new(Filter::CellsPerColumn(1))),
            }),
        ]
    })
}
