//! The interface of a tablet server, called by the router, local or one hop away.

use crate::bulk_load::{LoadSource, Loaded};
use crate::error::{ServiceError, ServiceResult};
use crate::figures::TabletFigures;
use crate::request::CompactionState;
use crate::row_operation::{Condition, RowOutcome, Step};
use crate::service::RowStream;
use crate::snapshot::SnapshotFiles;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{
    Durability, ErrorKind, FamilyId, RequestToken, RowBatch, RowRange, RowSet, RowWrites, SnapshotId, TableId,
    TableSchema, TabletId,
};

/// A read of rows of one tablet.
#[derive(Clone, Debug)]
pub struct TabletRead {
    /// Which rows; those outside the tablet are ignored.
    pub rows: RowSet,
    /// What to return of each row.
    pub filter: Option<Arc<Filter>>,
    /// Descending rows.
    pub reversed: bool,
    /// Everything stored.
    pub raw: bool,
    /// Rows wanted at most; all of them when absent.
    pub rows_limit: Option<u64>,
    /// [`TabletService::try_read_row`] was called and would have had to wait: the caches that it probes need not
    /// be probed again.
    pub waits: bool,
}

/// An operation on one row of one tablet. The fields are those of [`RowOperation`](crate::RowOperation).
#[derive(Clone, Debug)]
pub struct TabletRowOperation {
    /// Which row.
    pub row: Bytes,
    /// `None` applies `steps`.
    pub condition: Option<Condition>,
    /// Applied if the condition holds.
    pub steps: Vec<Step>,
    /// Applied if it does not.
    pub otherwise: Vec<Step>,
    /// `None` takes the table's.
    pub durability: Option<Durability>,
    /// Makes it safe to repeat.
    pub token: Option<RequestToken>,
}

/// An operation on rows of one tablet. The fields are those of [`RowsOperation`](crate::RowsOperation).
#[derive(Clone, Debug)]
pub struct TabletRowsOperation {
    /// Rows and conditions on them.
    pub conditions: Vec<(Bytes, Condition)>,
    /// Rows and their steps.
    pub rows: Vec<(Bytes, Vec<Step>)>,
    /// `None` takes the table's.
    pub durability: Option<Durability>,
}

/// Data of tablets. A tablet that is not (or no longer) here, and a row that is not the tablet's, are `Unavailable`:
/// nothing has happened, and the caller repeats the lookup of the row.
#[async_trait]
pub trait TabletService: Send + Sync + 'static {
    /// Starts a read.
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>>;

    /// The row, resolved and filtered, when it can be read on the calling thread; `None` when that would have to wait:
    /// [`TabletService::read`] gives the same answer then.
    fn try_read_row(
        &self,
        tablet: TabletId,
        row: &Bytes,
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<RowBatch>> {
        let _ = (tablet, row, filter);
        Ok(None)
    }

    /// Writes rows as one batch, which is one record of the log: they become visible together, and after a crash all of
    /// them are there or none. An error means that none of them was acknowledged.
    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()>;

    /// Reads and writes one row, atomically.
    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome>;

    /// Reads and writes rows, atomically; whether all conditions held.
    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        let _ = (tablet, request);
        let message = "operations on several rows of a tablet are not supported here";
        Err(ServiceError::new(ErrorKind::Unimplemented, message))
    }

    /// Loads sorted cells. It goes on when its caller goes away. The protocol between servers has no such call: clients load at
    /// the owner.
    async fn bulk_load(&self, tablet: TabletId, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        let _ = sources;
        let message = format!("tablet {tablet} is on another server: load it there");
        Err(ServiceError::new(ErrorKind::Unavailable, message))
    }

    /// Bytes of the tablet, and rows within it about every `every` bytes with the bytes before each.
    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample>;

    /// The size of the tablet, and the operations on it.
    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        let sample = self.sample(tablet, u64::MAX).await?;
        Ok(TabletFigures::of_bytes(sample.bytes))
    }
}

/// How a tablet's bytes are distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletSample {
    /// All of them, roughly.
    pub bytes: u64,
    /// Rows and the bytes of the tablet before them, ascending.
    pub rows: Vec<(Bytes, u64)>,
}

/// When tablets are split, as far as the number of servers decides it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPolicy {
    /// Servers that may have tablets.
    pub servers: usize,
    /// Tables with few tablets for this number of servers: their limit is divided by this.
    pub divisors: BTreeMap<TableId, u64>,
}

/// Control of tablets, by the master.
#[async_trait]
pub trait TabletControl: Send + Sync + 'static {
    /// Makes and serves empty tablets. Nothing refers to them yet; should the caller give up, the next start removes them.
    async fn create_tablets(&self, schema: Arc<TableSchema>, tablets: Vec<(TabletId, RowRange)>) -> ServiceResult<()>;

    /// Stops serving tablets and gives up their files. The catalog has forgotten them.
    async fn drop_tablets(&self, tablets: Vec<TabletId>);

    /// Tells the tablets of a table their new schema; when this returns every later request obeys it.
    async fn set_schema(&self, schema: Arc<TableSchema>);

    /// Families of which a tablet still has misplaced cells, in a group that they were moved out of. Between the two
    /// halves of a split the answer is about the tablet, and not about its successors. `Unavailable` if the tablet does not know this
    /// version of the schema yet: it cannot tell of moves that it does not know.
    async fn unsettled(&self, tablet: TabletId, version: u64) -> ServiceResult<BTreeSet<FamilyId>>;

    /// Drops the rows of a range.
    async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()>;

    /// Writes everything in the memtables of a tablet to files; returns when they are durable.
    async fn flush(&self, tablet: TabletId) -> ServiceResult<()>;

    /// Requests a compaction of a tablet, of all its files if it is `major`. A tablet has at most one request of a kind.
    /// `ResourceExhausted` for a major one while the disk is full.
    async fn compact(&self, tablet: TabletId, major: bool) -> ServiceResult<()>;

    /// The compactions of a tablet that run or were requested.
    async fn compaction(&self, tablet: TabletId) -> ServiceResult<CompactionState>;

    /// Whether space is wanted that flushes do not bring back: then nothing is kept that can go. Not while writes are only refused
    /// until memtables are flushed.
    async fn is_short_of_space(&self) -> bool {
        false
    }

    /// Servers that may have tablets; 1 where there is no cluster.
    fn servers(&self) -> usize {
        1
    }

    /// Tablets past their split size, or too busy.
    async fn split_candidates(&self, policy: &SplitPolicy) -> Vec<TabletId>;

    /// First half of a split: stops writes to the tablet, flushes it, and makes two tablets over its files, `left` and
    /// `right`, that are not served yet. They meet at the row `at`, which is inside of the tablet, or in its middle. Returns
    /// the first row of the right one; `None` when the tablet cannot be divided (and goes on as before).
    async fn prepare_split(
        &self,
        tablet: TabletId,
        halves: (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>>;

    /// First half of a merge: stops writes to the tablets, which are neighbours in row order, flushes them, and makes a
    /// tablet over their files that is not served yet.
    async fn prepare_merge(&self, tablets: Vec<TabletId>, merged: TabletId) -> ServiceResult<()>;

    /// First half of a truncation: stops writes to the tablets, and makes empty ones that are not served yet.
    async fn prepare_truncation(
        &self,
        schema: Arc<TableSchema>,
        tablets: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()>;

    /// Lists the files of a snapshot in storage: those of some tablets, in row order, each at one moment, after a flush if
    /// `flush`. They stay until the snapshot is dropped. After an error nothing is left of it.
    async fn take_snapshot(
        &self,
        snapshot: SnapshotId,
        tablets: Vec<TabletId>,
        flush: bool,
    ) -> ServiceResult<SnapshotFiles>;

    /// Lists the files of a snapshot, with the number of its parts, once more, as those of another one.
    async fn copy_snapshot(&self, from: (SnapshotId, u32), to: SnapshotId) -> ServiceResult<SnapshotFiles>;

    /// Parts of a snapshot are about to be written, by another than [`TabletControl::take_snapshot`]. They must stay until the
    /// catalog names the snapshot, or [`TabletControl::drop_snapshot`] gives it up.
    fn expect_snapshot(&self, snapshot: SnapshotId) {
        let _ = snapshot;
    }

    /// The catalog names a snapshot, and its view has it: the snapshot is not being taken any more.
    fn note_snapshot(&self, snapshot: SnapshotId) {
        let _ = snapshot;
    }

    /// Gives up the files of a snapshot, with the number of its parts, that the catalog does not name, or not any more.
    async fn drop_snapshot(&self, snapshot: SnapshotId, parts: u32);

    /// Makes and serves tablets over the files of a snapshot, with these identifiers in row order; their rows. Nothing refers
    /// to them yet. After an error none is left.
    async fn clone_snapshot(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        tablets: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>>;

    /// First half of a restore: makes such tablets that are not served yet, and stops writes to the old ones.
    async fn prepare_restore(
        &self,
        schema: Arc<TableSchema>,
        snapshot: (SnapshotId, u32),
        old: Vec<TabletId>,
        new: Vec<TabletId>,
    ) -> ServiceResult<Vec<(TabletId, RowRange)>>;

    /// Second half of a replacement, by the first of the old tablets: the catalog holds the new tablets (`committed`) or
    /// still the old ones. Serves accordingly, and removes the others.
    async fn finish_replacement(&self, first: TabletId, committed: bool);
}
