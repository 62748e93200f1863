//! Reads of a small tablet agree with the model of a table.
//!
//! The model knows of every write and of the changes that flushes and compactions may make. Reads go forward, backward,
//! in partial rows, to a visitor, and row by row; before and after memtables are flushed and all runs are compacted. A
//! filter gives the same result on rows that were read whole as in the engine, which skips cells because of it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::cell::OnceCell;
use std::sync::Arc;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_filter::CompiledFilter;
use stele_fuzz::trees::Tree;
use stele_fuzz::{schema, storage};
use stele_sim::model::Model;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tablet::values::load::ValueMemory;
use stele_tablet::{
    BatchBuilder, FileRegistry, Manifest, MemoryAccount, ScanSpec, Tablet, TabletContext, TabletMetrics, TabletScanner,
};
use stele_types::{
    Cell, FamilyId, GcRule, GroupId, LocalityGroup, Mutation, RowMutation, RowRange, RowSet, TimeUnit, Timestamp,
};
use tokio::runtime::Runtime;

/// Steps of a history, and filters that multiply cells are bounded elsewhere.
const STEPS_MAX: usize = 40;

/// Values from this size on are in value files.
const SEPARATE_BYTES: usize = 24;

/// Few rows, columns and versions, so that changes meet.
const ROWS: [&[u8]; 5] = [b"a", b"b", b"\0", b"a\0b", b"\xff"];
const QUALIFIERS: [&[u8]; 3] = [b"", b"q", b"q\0"];
const TIMESTAMPS: i8 = 6;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Families `b` and `c` are in a locality group of their own.
    groups: bool,
    by_timestamp: bool,
    /// Of how many versions, about, each family but `c` keeps the newest.
    versions: Option<u8>,
    /// Rows, by their place in [`ROWS`], that some reads begin and end with, and how many they ask for.
    part: (u8, u8, u8),
    steps: Vec<Action<'a>>,
    tree: Tree<'a>,
}

#[derive(Arbitrary, Debug)]
enum Action<'a> {
    Write(u8, u8, Change<'a>),
    Flush,
    Compact,
    CompactAll,
}

#[derive(Arbitrary, Debug)]
enum Change<'a> {
    Put(u8, i8, &'a [u8]),
    Merge(u8, i8, i64),
    DeleteRow(i8),
    DeleteFamily(i8),
    DeleteFamilyVersion(i8),
    DeleteColumn(u8, i8, i8),
    DeleteVersion(u8, i8),
}

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

fuzz_target!(|input: Input<'_>| {
    RUNTIME.with(|cell| {
        let runtime = cell.get_or_init(|| {
            let builder = tokio::runtime::Builder::new_current_thread().enable_time().build();
            builder.expect("a runtime without threads")
        });
        runtime.block_on(run(&input));
    });
});

async fn run(input: &Input<'_>) {
    let mut table = Table::new(input).await;
    for step in input.steps.iter().take(STEPS_MAX) {
        table.act(step).await;
    }
    let compiled = input.tree.filter().filter(|_| !input.tree.is_random());
    let filter = compiled.and_then(|filter| filter.compile(&table.tablet.schema()).ok());
    let filter = filter.map(Arc::new);
    table.check(input.part, filter.as_ref()).await;
    for step in [Action::Flush, Action::CompactAll] {
        table.act(&step).await;
        table.check(input.part, filter.as_ref()).await;
    }
}

/// A tablet and its expected content.
struct Table {
    tablet: Arc<Tablet>,
    model: Model,
    /// The newest write in files, as the model numbers them.
    flushed: u64,
}

impl Table {
    async fn new(input: &Input<'_>) -> Table {
        let tablet = tablet(input).await;
        let model = Model::new(stele_types::TableSchema::clone(&tablet.schema()));
        Table {
            tablet,
            model,
            flushed: 0,
        }
    }

    async fn act(&mut self, step: &Action<'_>) {
        if let Action::Write(row, family, change) = step {
            return self.write(ROWS[usize::from(*row) % ROWS.len()], *family, change);
        }
        let before = scan(&self.tablet, &spec(None, false)).await;
        match step {
            Action::Compact => {
                let done = self.tablet.compact_next().await.expect("memory does not fail");
                if let Some(done) = done.filter(|done| done.major) {
                    self.model.compact_major(&done.rows, done.group, self.flushed);
                }
            }
            Action::CompactAll => {
                self.tablet.compact_all().await.expect("memory does not fail");
                self.flushed = self.model.newest();
                for group in self.tablet.schema().groups.iter() {
                    self.model.compact_major(&RowRange::all(), group.id, self.flushed);
                }
            }
            _ => {
                self.tablet.flush().await.expect("memory does not fail");
                self.flushed = self.model.newest();
            }
        }
        let after = scan(&self.tablet, &spec(None, false)).await;
        self.check_model(&after.rows);
        if !before.unstable {
            assert_eq!(after.rows, before.rows, "before and after {step:?}");
        }
    }

    fn write(&mut self, row: &[u8], family: u8, change: &Change<'_>) {
        let operand;
        let mutation = match change {
            Change::Merge(.., by) => {
                operand = by.to_be_bytes();
                mutation(family, change, &operand)
            }
            change => mutation(family, change, &[]),
        };
        self.model.apply(&[RowMutation {
            row: Bytes::copy_from_slice(row),
            mutations: vec![mutation.map(|bytes| Bytes::copy_from_slice(bytes))],
        }]);
        let mut builder = BatchBuilder::default();
        builder.push(row, mutation);
        let batch = builder.finish();
        let first = self.tablet.sequence(batch.len(), |first| first).expect("open");
        self.tablet.apply(&batch, first);
    }

    fn check_model(&self, rows: &Rows) {
        assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "rows in their order");
        for row in ROWS {
            let found = rows.iter().find(|(found, _)| found == row);
            let cells = found.map_or(&[][..], |(_, cells)| cells);
            let checked = self.model.check_row(row, cells, self.tablet.wall_micros());
            checked.unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// Reads in all ways.
    async fn check(&self, part: (u8, u8, u8), filter: Option<&Arc<CompiledFilter>>) {
        let tablet = &self.tablet;
        let whole = scan(tablet, &spec(None, false)).await.rows;
        self.check_model(&whole);
        agree(tablet, None, part, &whole).await;
        let Some(filter) = filter else {
            return;
        };
        let mut expected = Rows::new();
        for (row, cells) in &whole {
            let Ok(left) = filter.apply(row, cells.clone(), &mut || 0.5) else {
                return;
            };
            if !left.is_empty() {
                expected.push((row.clone(), left));
            }
        }
        agree(tablet, Some(filter), part, &expected).await;
    }
}

/// That all ways to read give these rows.
async fn agree(tablet: &Arc<Tablet>, filter: Option<&Arc<CompiledFilter>>, part: (u8, u8, u8), expected: &Rows) {
    let [start, end] = [part.0, part.1].map(|at| Bytes::from_static(ROWS[usize::from(at) % ROWS.len()]));
    let range = RowRange { start, end: Some(end) };
    let (rows, limit) = (RowSet::new(vec![range.clone()]), u64::from(part.2 % 4) + 1);
    let within = expected.iter().filter(|(row, _)| range.contains(row));
    let within: Rows = within.cloned().collect();
    for reversed in [false, true] {
        let in_order = |rows: &Rows| {
            if reversed {
                rows.iter().rev().cloned().collect()
            } else {
                rows.clone()
            }
        };
        let mut spec = spec(filter, reversed);
        let what = format!("reversed: {reversed}, filter: {filter:?}");
        assert_eq!(scan(tablet, &spec).await.rows, in_order(expected), "{what}");
        assert_eq!(
            in_partial_rows(tablet, &spec).await,
            in_order(expected),
            "in pieces, {what}"
        );
        spec.rows = rows.clone();
        assert_eq!(
            scan(tablet, &spec).await.rows,
            in_order(&within),
            "of {range:?}, {what}"
        );
        spec.rows_limit = Some(limit);
        let first: Rows = in_order(&within).into_iter().take(limit as usize).collect();
        assert_eq!(scan(tablet, &spec).await.rows, first, "{limit} of {range:?}, {what}");
    }
    for row in ROWS {
        let found = expected.iter().find(|(found, _)| found == row);
        let cells = found.map_or(&[][..], |(_, cells)| cells);
        assert_eq!(get(tablet, row, filter).await, cells, "{row:?} by itself");
    }
}

async fn tablet(input: &Input<'_>) -> Arc<Tablet> {
    let mut schema = schema(TimeUnit::Micros, 1);
    if input.by_timestamp {
        schema.delete_rule = stele_types::DeleteRule::ByTimestamp;
    }
    if let Some(versions) = input.versions {
        for id in [1, 2, 4] {
            if let Some(family) = schema.families.get_mut(&FamilyId(id)) {
                family.gc_rule = Some(GcRule::MaxVersions(u32::from(versions % 3) + 1));
            }
        }
    }
    // A table that deletes by timestamp has one group.
    if input.groups && !input.by_timestamp {
        schema
            .groups
            .push(LocalityGroup::new(GroupId(1), "other", stele_types::Compression::Lz4));
        for id in [2, 3] {
            if let Some(family) = schema.families.get_mut(&FamilyId(id)) {
                family.group = GroupId(1);
            }
        }
    }
    let storage: Arc<dyn Storage> = storage([]);
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(1 << 20)), 1);
    let context = TabletContext {
        env: TokioRuntime::current(),
        storage,
        files: Arc::new(
            files
                .with_file_bytes(1 << 10)
                .with_values(SEPARATE_BYTES, ValueMemory::new(1 << 20)),
        ),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: stele_tablet::TokenMemory::default(),
    };
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let tablet = Tablet::create(context, Arc::new(schema), manifest).await;
    tablet.expect("memory does not fail")
}

/// The change as the tablet takes it; `operand` is that of a merge.
fn mutation<'a>(family: u8, change: &'a Change<'_>, operand: &'a [u8]) -> Mutation<&'a [u8]> {
    let sum = FamilyId(4);
    // The deleted cells may be sums.
    let [family, deleted] = [3, 4].map(|families| FamilyId(u32::from(family % families) + 1));
    let at = |timestamp: &i8| match *timestamp {
        i8::MIN => Timestamp::MIN,
        i8::MAX => Timestamp::MAX,
        timestamp => Timestamp(i64::from(timestamp % TIMESTAMPS)),
    };
    let name = |qualifier: &u8| QUALIFIERS[usize::from(*qualifier) % QUALIFIERS.len()];
    match change {
        Change::Put(qualifier, timestamp, value) => Mutation::Put {
            family,
            qualifier: name(qualifier),
            timestamp: at(timestamp),
            value,
        },
        Change::Merge(qualifier, timestamp, _) => Mutation::Merge {
            family: sum,
            qualifier: name(qualifier),
            timestamp: at(timestamp),
            operand,
        },
        Change::DeleteRow(up_to) => Mutation::DeleteRow { up_to: at(up_to) },
        Change::DeleteFamily(up_to) => Mutation::DeleteFamily {
            family: deleted,
            up_to: at(up_to),
        },
        Change::DeleteFamilyVersion(timestamp) => Mutation::DeleteFamilyVersion {
            family: deleted,
            timestamp: at(timestamp),
        },
        Change::DeleteColumn(qualifier, from, to) => Mutation::DeleteColumn {
            family: deleted,
            qualifier: name(qualifier),
            from: at(from).min(at(to)),
            to: at(from).max(at(to)),
        },
        Change::DeleteVersion(qualifier, timestamp) => Mutation::DeleteVersion {
            family: deleted,
            qualifier: name(qualifier),
            timestamp: at(timestamp),
        },
    }
}

type Rows = Vec<(Bytes, Vec<Cell>)>;

fn spec(filter: Option<&Arc<CompiledFilter>>, reversed: bool) -> ScanSpec {
    ScanSpec {
        rows: RowSet::all(),
        filter: filter.cloned(),
        reversed,
        raw: false,
        rows_limit: None,
    }
}

struct Found {
    rows: Rows,
    /// A flush or a compaction may change them.
    unstable: bool,
}

async fn scan(tablet: &Arc<Tablet>, spec: &ScanSpec) -> Found {
    let mut scanner = TabletScanner::new(tablet.clone(), spec.clone());
    let (mut rows, mut unstable) = (Rows::new(), false);
    while let Some(batch) = scanner.next_batch().await.expect("memory does not fail") {
        rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
        unstable |= batch.unstable;
    }
    Found { rows, unstable }
}

/// The same in pieces of a cell or two.
async fn in_partial_rows(tablet: &Arc<Tablet>, spec: &ScanSpec) -> Rows {
    let mut scanner = TabletScanner::new(tablet.clone(), spec.clone());
    let (mut rows, mut goes_on) = (Rows::new(), false);
    loop {
        scanner.set_partial_rows(Some(1));
        let Some(batch) = scanner.next_batch().await.expect("memory does not fail") else {
            break;
        };
        assert!(goes_on || !batch.continues, "what goes on has begun");
        assert!(!goes_on || batch.continues, "nothing is void where nothing is slow");
        for (row, cells) in batch.shared_rows() {
            match rows.last_mut().filter(|_| std::mem::take(&mut goes_on)) {
                Some((open, before)) => {
                    assert_eq!(*open, row, "the row that goes on comes first");
                    before.extend_from_slice(cells);
                }
                None => rows.push((row, cells.to_vec())),
            }
        }
        goes_on |= batch.unfinished;
    }
    assert!(!goes_on, "a scan ends behind a row");
    rows
}

/// The row, read on this thread, or by a scan where its values are elsewhere.
async fn get(tablet: &Arc<Tablet>, row: &'static [u8], filter: Option<&Arc<CompiledFilter>>) -> Vec<Cell> {
    if let Some(batch) = tablet.get_row(row, filter).expect("memory does not fail") {
        return batch.into_cells();
    }
    let rows = RowSet::new(vec![RowRange::single(&Bytes::from_static(row))]);
    let spec = ScanSpec {
        rows,
        ..spec(filter, false)
    };
    let mut rows = scan(tablet, &spec).await.rows;
    rows.pop().map(|(_, cells)| cells).unwrap_or_default()
}
