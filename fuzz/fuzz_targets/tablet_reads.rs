//! Reads of a small tablet: a filter gives the same answer where it is applied to rows that were read whole as where the
//! engine goes by it; forward, backward, and row by row; whatever was flushed and merged in between.
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
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tablet::values::load::ValueRoom;
use stele_tablet::{
    BatchBuilder, FileRegistry, Manifest, MemoryAccount, ScanSpec, Tablet, TabletContext, TabletMetrics, TabletScanner,
};
use stele_types::{Cell, FamilyId, GroupId, LocalityGroup, Mutation, RowSet, TimeUnit, Timestamp};
use tokio::runtime::Runtime;

/// Steps of a history, and filters that multiply cells are bounded elsewhere.
const STEPS_MAX: usize = 40;

/// Values from this size on are in value files.
const SEPARATE_BYTES: usize = 24;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Families `b` and `c` are in a locality group of their own.
    groups: bool,
    by_timestamp: bool,
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
    Put(&'a [u8], i8, &'a [u8]),
    Merge(&'a [u8], i8, i64),
    DeleteRow(i8),
    DeleteFamily(i8),
    DeleteFamilyVersion(i8),
    DeleteColumn(&'a [u8], i8, i8),
    DeleteVersion(&'a [u8], i8),
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
    let tablet = tablet(input).await;
    for step in input.steps.iter().take(STEPS_MAX) {
        match step {
            Action::Write(row, family, change) => write(&tablet, *row, *family, change),
            Action::Flush => drop(tablet.flush().await.expect("memory does not fail")),
            Action::Compact => drop(tablet.compact_if_due().await.expect("memory does not fail")),
            Action::CompactAll => tablet.compact_all().await.expect("memory does not fail"),
        }
    }
    let whole = scan(&tablet, None, false).await;
    let mut reversed = scan(&tablet, None, true).await;
    reversed.reverse();
    assert_eq!(reversed, whole, "backward");
    for (row, cells) in &whole {
        assert_eq!(&get(&tablet, row, None).await, cells, "by itself");
    }
    let compiled = input.tree.filter().filter(|_| !input.tree.is_random());
    let Some(Ok(filter)) = compiled.map(|filter| filter.compile(&tablet.schema())) else {
        return;
    };
    let filter = Arc::new(filter);
    let mut expected = Rows::new();
    for (row, cells) in &whole {
        let Ok(left) = filter.apply(row, cells.clone(), &mut || 0.5) else {
            return;
        };
        assert_eq!(get(&tablet, row, Some(&filter)).await, left, "by itself, filtered");
        if !left.is_empty() {
            expected.push((row.clone(), left));
        }
    }
    assert_eq!(scan(&tablet, Some(&filter), false).await, expected, "filtered");
    let mut reversed = scan(&tablet, Some(&filter), true).await;
    reversed.reverse();
    assert_eq!(reversed, expected, "filtered, backward");
}

async fn tablet(input: &Input<'_>) -> Arc<Tablet> {
    let mut schema = schema(TimeUnit::Micros, 1);
    if input.by_timestamp {
        schema.delete_rule = stele_types::DeleteRule::ByTimestamp;
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
        files: Arc::new(files.with_file_bytes(1 << 10).with_values(SEPARATE_BYTES, ValueRoom::new(1 << 20))),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
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

fn write(tablet: &Tablet, row: u8, family: u8, change: &Change<'_>) {
    let row = [b"a", b"b", b"\0", &b"a\0b"[..], b"\xff"][usize::from(row % 5)];
    let sum = FamilyId(4);
    let family = FamilyId(u32::from(family % 3) + 1);
    let at = |timestamp: &i8| Timestamp(i64::from(*timestamp));
    let operand;
    let mutation: Mutation<&[u8]> = match change {
        Change::Put(qualifier, timestamp, value) => Mutation::Put {
            family,
            qualifier,
            timestamp: at(timestamp),
            value,
        },
        Change::Merge(qualifier, timestamp, by) => {
            operand = by.to_be_bytes();
            Mutation::Merge {
                family: sum,
                qualifier,
                timestamp: at(timestamp),
                operand: &operand,
            }
        }
        Change::DeleteRow(up_to) => Mutation::DeleteRow { up_to: at(up_to) },
        Change::DeleteFamily(up_to) => Mutation::DeleteFamily {
            family,
            up_to: at(up_to),
        },
        Change::DeleteFamilyVersion(timestamp) => Mutation::DeleteFamilyVersion {
            family,
            timestamp: at(timestamp),
        },
        Change::DeleteColumn(qualifier, from, to) => Mutation::DeleteColumn {
            family,
            qualifier,
            from: at(from.min(to)),
            to: at(from.max(to)),
        },
        Change::DeleteVersion(qualifier, timestamp) => Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp: at(timestamp),
        },
    };
    let mut builder = BatchBuilder::default();
    builder.push(row, mutation);
    let batch = builder.finish();
    let first = tablet.sequence(batch.len(), |first| first).expect("open");
    tablet.apply(&batch, first);
}

type Rows = Vec<(Bytes, Vec<Cell>)>;

async fn scan(tablet: &Arc<Tablet>, filter: Option<&Arc<CompiledFilter>>, reversed: bool) -> Rows {
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: filter.cloned(),
        reversed,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut rows = Rows::new();
    while let Some(batch) = scanner.next_batch().await.expect("memory does not fail") {
        rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    rows
}

/// The row, read on this thread, or by a scan where its values are elsewhere.
async fn get(tablet: &Arc<Tablet>, row: &Bytes, filter: Option<&Arc<CompiledFilter>>) -> Vec<Cell> {
    if let Some(batch) = tablet.get_row(row, filter).expect("memory does not fail") {
        return batch.rows().flat_map(|(_, cells)| cells.to_vec()).collect();
    }
    let rows = scan(tablet, filter, false).await;
    let row = rows.into_iter().find(|(found, _)| found == row);
    row.map(|(_, cells)| cells).unwrap_or_default()
}
