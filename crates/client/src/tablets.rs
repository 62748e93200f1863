//! The interface of a tablet server, called by the router, local or one hop away.

use crate::error::ServiceResult;
use crate::request::RmwRule;
use crate::service::RowStream;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{
    Cell, Durability, FamilyId, RowBatch, RowMutation, RowRange, RowSet, RowWrites, TableSchema, TabletId,
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

/// A conditional write to one row of one tablet.
#[derive(Clone, Debug)]
pub struct TabletCheckAndMutate {
    /// Which row.
    pub row: Bytes,
    /// `None` matches a row that has any cell.
    pub predicate: Option<Arc<Filter>>,
    /// Applied on a match.
    pub on_match: Option<RowMutation>,
    /// Applied otherwise.
    pub otherwise: Option<RowMutation>,
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

    /// Writes rows. Each row is atomic; an error means that none of them was acknowledged.
    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()>;

    /// Whether the predicate matched.
    async fn check_and_mutate(&self, tablet: TabletId, request: TabletCheckAndMutate) -> ServiceResult<bool>;

    /// The cells written.
    async fn read_modify_write(
        &self,
        tablet: TabletId,
        row: Bytes,
        rules: Vec<RmwRule>,
        durability: Option<Durability>,
    ) -> ServiceResult<Vec<Cell>>;

    /// Bytes of the tablet, and rows within it about every `every` bytes with the bytes before each.
    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample>;
}

/// How a tablet's bytes are distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletSample {
    /// All of them, roughly.
    pub bytes: u64,
    /// Rows and the bytes of the tablet before them, ascending.
    pub rows: Vec<(Bytes, u64)>,
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
    /// halves of a split the answer is about the tablet, and not about its successors.
    fn unsettled(&self, tablet: TabletId) -> ServiceResult<BTreeSet<FamilyId>>;

    /// Drops the rows of a range.
    async fn drop_rows(&self, tablet: TabletId, range: RowRange) -> ServiceResult<()>;

    /// Tablets past their split size.
    fn split_candidates(&self) -> Vec<TabletId>;

    /// First half of a split: stops writes to the tablet, flushes it, and makes two tablets over its files that are
    /// not served yet. Returns the first row of the right one; `None` when the tablet cannot be divided (and goes on as
    /// before).
    async fn prepare_split(&self, tablet: TabletId, left: TabletId, right: TabletId) -> ServiceResult<Option<Bytes>>;

    /// Second half: the catalog holds the halves (`committed`) or still the tablet. Serves accordingly.
    async fn finish_split(&self, tablet: TabletId, committed: bool);
}
