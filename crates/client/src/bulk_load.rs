//! Bulk loads: sorted cells that become files of a tablet, without the commit log.

use crate::error::ServiceResult;
use async_trait::async_trait;
use bytes::Bytes;
use stele_types::{FamilyId, Mutation, RequestToken, RowRange, TableId, TableName, TabletId};

/// The cells that a load is about to bring.
pub struct LoadTarget {
    /// Which table.
    pub table: TableName,
    /// The rows of the tablet.
    pub range: RowRange,
    /// The families of the cells.
    pub families: Vec<FamilyId>,
}

/// Cells for one tablet. All become visible together, and after a crash all of them are there or none. They are newer than
/// everything that was written before the load ended.
pub struct BulkLoad {
    /// Which table.
    pub table: TableName,
    /// As in [`MutateRows`](crate::MutateRows).
    pub id: Option<TableId>,
    /// Which tablet, and its rows.
    pub tablet: (TabletId, RowRange),
    /// The cells. Of equal cells those of the later source count; a delete hides cells of all of them.
    pub sources: Vec<LoadSource>,
}

/// Cells of one family.
pub struct LoadSource {
    /// Which family.
    pub family: FamilyId,
    /// The same for every attempt to load these cells: a source that was loaded before is left out. It is remembered as long as
    /// other tokens.
    pub token: Option<RequestToken>,
    /// The cells.
    pub cells: Box<dyn SortedCells>,
}

/// Cells of one family in HBase's order: row, qualifier, timestamp (newest first), and at one timestamp deletes of the family,
/// of the column, of the version of the family, of the version, and puts.
#[async_trait]
pub trait SortedCells: Send + 'static {
    /// The next cells with their rows, some at a time; `None` at the end. Puts and deletes, each with its own time.
    async fn next(&mut self) -> ServiceResult<Option<Vec<(Bytes, Mutation)>>>;
}

/// The outcome of a bulk load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The cells are there.
    All,
    /// A source has a row that is not the tablet's. Nothing was loaded.
    DoesNotFit,
}
