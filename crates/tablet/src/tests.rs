//! Tablets without a server: cases that the simulation has found, in small, and golden files.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

mod commits;
mod compaction;
mod concurrent;
mod damage;
mod directions;
mod family_options;
mod filters;
mod golden;
mod groups;
mod hidden;
mod ingest;
mod partial_rows;
mod raw;
mod readahead;
mod reads;
mod rows;
mod samples;
mod urgent;
mod values;

use crate::manifest::Manifest;
use crate::scan::{ScanSpec, TabletScanner};
use crate::{BatchBuilder, FileRegistry, MemoryAccount, Tablet, TabletContext, TabletMetrics};
use bytes::Bytes;
use std::sync::Arc;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{
    Compression, DeleteRule, Family, FamilyId, GcRule, GroupId, LocalityGroup, Mutation, RowMutation, RowSet, TableId,
    TableName, TableSchema, Timestamp, ValueType,
};

pub(crate) fn schema(delete_rule: DeleteRule, gc_rule: Option<GcRule>) -> Arc<TableSchema> {
    let family = Family {
        name: "f".to_owned(),
        gc_rule,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    let group = LocalityGroup::new(GroupId(0), "default", Compression::None);
    Arc::new(TableSchema {
        delete_rule,
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        groups: vec![group],
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    })
}

pub(crate) async fn tablet(schema: Arc<TableSchema>) -> Arc<Tablet> {
    tablet_of_files(schema, 64 << 20).await
}

/// A tablet whose files end at this many bytes.
async fn tablet_of_files(schema: Arc<TableSchema>, file_bytes: u64) -> Arc<Tablet> {
    tablet_on(MemoryStorage::new(), schema, file_bytes).await
}

async fn tablet_on(storage: Arc<dyn Storage>, schema: Arc<TableSchema>, file_bytes: u64) -> Arc<Tablet> {
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(0)), 1);
    tablet_with(storage, schema, files.with_file_bytes(file_bytes)).await
}

async fn tablet_with(storage: Arc<dyn Storage>, schema: Arc<TableSchema>, files: FileRegistry) -> Arc<Tablet> {
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

pub(crate) fn put(timestamp: i64, value: &'static str) -> Mutation {
    Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(timestamp),
        value: Bytes::from_static(value.as_bytes()),
    }
}

pub(crate) fn write(tablet: &Tablet, mutations: Vec<Mutation>) {
    write_row(tablet, Bytes::from_static(b"r"), mutations);
}

pub(crate) fn write_row(tablet: &Tablet, row: Bytes, mutations: Vec<Mutation>) {
    let mut builder = BatchBuilder::default();
    builder.push_row(&RowMutation { row, mutations });
    let batch = builder.finish();
    let first = tablet.sequence(batch.len(), |first| first).unwrap();
    tablet.apply(&batch, first);
}

/// Everything a scan finds, as `timestamp=value`.
pub(crate) async fn read(tablet: &Arc<Tablet>) -> String {
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        for (_, cells) in batch.rows() {
            found.extend(
                cells
                    .iter()
                    .map(|c| format!("{}={}", c.timestamp, c.value.escape_ascii())),
            );
        }
    }
    found.join(" ")
}

/// A batch may hold a megabyte; a reader of three small rows must not pay for the rest of it.
#[tokio::test]
async fn a_scan_with_a_limit_looks_at_no_more_rows_than_it_gives() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for row in 0..100 {
        write_row(&tablet, Bytes::from(format!("{row:03}")), vec![put(1, "v")]);
    }
    for (reversed, expected) in [(false, ["000", "001", "002"]), (true, ["099", "098", "097"])] {
        let spec = ScanSpec {
            rows: RowSet::all(),
            filter: None,
            reversed,
            raw: false,
            rows_limit: Some(3),
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let batch = scanner.next_batch().await.unwrap().unwrap();
        let rows: Vec<_> = batch.shared_rows().map(|(row, _)| row).collect();
        assert_eq!((rows, batch.seen.rows), (expected.map(Bytes::from).to_vec(), 3));
        assert!(scanner.next_batch().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn deleting_a_row_hides_all_of_it() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = tablet(schema(rule, None)).await;
        write(&tablet, vec![put(1, "a"), put(2, "b"), put(3, "c")]);
        write(&tablet, vec![Mutation::DeleteRow { up_to: Timestamp(2) }]);
        assert_eq!(read(&tablet).await, "3=c", "{rule:?}");
        tablet.compact_all().await.unwrap();
        assert_eq!(read(&tablet).await, "3=c", "{rule:?} after a compaction");
        write(&tablet, vec![Mutation::DeleteRow { up_to: Timestamp::MAX }]);
        assert_eq!(read(&tablet).await, "", "{rule:?}");
    }
}

/// The flush sees two versions and may keep one; but the other hides an older entry in the file below.
#[tokio::test]
async fn what_a_rule_drops_does_not_uncover_what_was_overwritten() {
    let tablet = tablet(schema(DeleteRule::BySequence, Some(GcRule::MaxVersions(1)))).await;
    write(&tablet, vec![put(1, "old")]);
    tablet.flush().await.unwrap();
    write(&tablet, vec![put(1, "new"), put(2, "newest")]);
    tablet.flush().await.unwrap();
    assert_eq!(read(&tablet).await, "2=newest");
    let (family, qualifier) = (FamilyId(1), Bytes::from_static(b"q"));
    write(
        &tablet,
        vec![Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp: Timestamp(2),
        }],
    );
    assert_eq!(read(&tablet).await, "1=new");
}
