//! One atomic operation on one row: an optional condition, and the steps of either outcome.
//!
//! Conditional writes, increments, appends, deletes of the newest version and combinations of these are all row operations.
//! The condition and the steps see the row as it was before the operation. A rule also sees earlier rules of the same column.

use crate::error::ServiceResult;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{Cell, Durability, FamilyId, Mutation, RequestToken, TableId, TableName, TableSchema, Timestamp};

/// An operation on one row, atomic over its reads and its writes.
#[derive(Clone, Debug)]
pub struct RowOperation {
    /// Which table.
    pub table: TableName,
    /// As in [`MutateRows`](crate::MutateRows).
    pub id: Option<TableId>,
    /// Which row.
    pub row: Bytes,
    /// `None` applies `steps`.
    pub condition: Option<Condition>,
    /// Applied in order if the condition holds; may be empty.
    pub steps: Vec<Step>,
    /// Applied in order if it does not; may be empty.
    pub otherwise: Vec<Step>,
    /// `None` takes the table's.
    pub durability: Option<Durability>,
    /// With a token the operation takes effect once, however often it is asked for; each repetition gets the answer of the
    /// first. A repetition that comes so late that it may be forgotten is `FailedPrecondition` if the token has a date.
    pub token: Option<RequestToken>,
}

/// An operation on rows of one tablet, atomic over its reads and its writes.
#[derive(Clone, Debug)]
pub struct RowsOperation {
    /// Which table.
    pub table: TableName,
    /// As in [`MutateRows`](crate::MutateRows).
    pub id: Option<TableId>,
    /// Rows and conditions on them. If one does not hold, nothing is written.
    pub conditions: Vec<(Bytes, Condition)>,
    /// Rows and their steps, in the order in which those of one row apply. They see the rows as they were before the operation.
    pub rows: Vec<(Bytes, Vec<Step>)>,
    /// `None` takes the table's.
    pub durability: Option<Durability>,
}

/// A condition on one row.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The cells that the condition checks: visible ones, in the order of a read. `None` for all.
    pub reads: Option<Arc<Filter>>,
    /// When it holds.
    pub test: ConditionTest,
}

impl Condition {
    /// Holds when the filter lets any cell of the row through; `None` lets all cells through.
    pub fn any_cell(reads: Option<Arc<Filter>>) -> Self {
        Condition {
            reads,
            test: ConditionTest::AnyCell,
        }
    }
}

/// When a condition holds.
#[derive(Clone)]
pub enum ConditionTest {
    /// When `reads` yields any cell. The values of the cells may not be read.
    AnyCell,
    /// Decides over all cells that `reads` yields, of which the row may have none. It is called under the row's latch, and more
    /// than once if the operation has to wait for memory. Its error ends the operation, which writes nothing then. Cells that
    /// take more memory than one write may read are `ResourceExhausted`.
    Cells(Arc<dyn CellsTest>),
    /// Such a decision from another server, which the server of the row decodes first ([`TestDecoder`]).
    Encoded(EncodedTest),
}

/// A decision over the cells of one row.
pub trait CellsTest: Send + Sync {
    /// Whether the condition holds, and the time of the first cell that decided it, which a test that leaves out cells knows.
    fn decide(&self, cells: &[Cell]) -> ServiceResult<(bool, Option<Timestamp>)>;

    /// The test for the server of the row, if that is another one. `None` for a test that stays on this server.
    fn encoded(&self) -> Option<EncodedTest> {
        None
    }
}

/// A decision that leaves out no cell.
impl<F: Fn(&[Cell]) -> ServiceResult<bool> + Send + Sync> CellsTest for F {
    fn decide(&self, cells: &[Cell]) -> ServiceResult<(bool, Option<Timestamp>)> {
        Ok((self(cells)?, cells.first().map(|cell| cell.timestamp)))
    }
}

/// A test in the language of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTest {
    /// Which front end: 1 is HBase. The number is part of the protocol between servers.
    pub language: u8,
    /// The test, as that front end writes it.
    pub test: Bytes,
}

impl EncodedTest {
    /// HBase: a message `Condition` of its protocol.
    pub const HBASE: u8 = 1;
}

/// Decodes tests of conditions that came from another server.
pub trait TestDecoder: Send + Sync + 'static {
    /// The test, for a row of a table. `Unimplemented` for an unknown language, `InvalidArgument` for a test that cannot be
    /// decoded, or that does not fit the table.
    fn decode(&self, schema: &Arc<TableSchema>, encoded: &EncodedTest) -> ServiceResult<Arc<dyn CellsTest>>;
}

impl fmt::Debug for ConditionTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionTest::AnyCell => f.write_str("AnyCell"),
            ConditionTest::Cells(_) => f.write_str("Cells(..)"),
            ConditionTest::Encoded(encoded) => f.debug_tuple("Encoded").field(encoded).finish(),
        }
    }
}

/// One step of a row operation.
#[derive(Clone, Debug)]
pub enum Step {
    /// A plain change.
    Mutate(Mutation),
    /// A plain change at the time of the operation, which replaces its own ([`Mutation::at`]). That is the server's time under the
    /// row's latch. It is never before the first cell that [`ConditionTest::Cells`] has tested, or else the change could hide
    /// behind that cell.
    MutateNow(Mutation),
    /// Deletes the newest version that a column has before the operation, the second such step of the column the one behind it, and
    /// so on. Where there is none, it is a delete of the version at the server's time, as in HBase. That
    /// hides a cell that the operation itself writes at that time, and by timestamp also later writes at it. `NotFound` when the schema lacks the family.
    DeleteNewest {
        /// Which family.
        family: FamilyId,
        /// Which column.
        qualifier: Bytes,
    },
    /// An increment or append on the newest cell of a column.
    Modify(RmwRule),
}

/// An increment or append on one column. `NotFound` when the schema lacks the family.
///
/// The new cell is never older than the newest one of the column, unless `timestamp` or `is_new_version` says so. Where several rules of an
/// operation change one column, each continues with the cell of the one before it. The column is then written once, at the place of the
/// last of them.
#[derive(Clone, Debug)]
pub struct RmwRule {
    /// Which family.
    pub family: FamilyId,
    /// Which column.
    pub qualifier: Bytes,
    /// What to do with its newest cell.
    pub operation: RmwOperation,
    /// The first timestamp of the cells to choose the newest from, and the one behind the last, in the table's unit. `None` for
    /// all cells.
    pub times: Option<(i64, i64)>,
    /// The timestamp of the new cell. `None` for the server's time or that of the column's newest cell, the later of both; of the
    /// operand with `is_new_version`.
    pub timestamp: Option<Timestamp>,
    /// The new cell is later than the cell that it operates on, so that it never replaces it: HBase's increments and appends. Cells
    /// outside of `times` do not matter. Then `timestamp` is for a column without a cell to operate on.
    pub is_new_version: bool,
    /// Milliseconds from its timestamp after which the new cell expires by itself; `None` for never.
    pub lifetime_ms: Option<i64>,
}

impl RmwRule {
    /// A rule on the newest cell of a column, with the server's timestamp.
    pub fn new(family: FamilyId, qualifier: Bytes, operation: RmwOperation) -> Self {
        RmwRule {
            family,
            qualifier,
            operation,
            times: None,
            timestamp: None,
            is_new_version: false,
            lifetime_ms: None,
        }
    }
}

/// The change that a rule makes to a value.
#[derive(Clone, Debug)]
pub enum RmwOperation {
    /// Appends bytes; a missing cell counts as empty.
    Append(Bytes),
    /// Adds to a big-endian signed 64-bit value, wrapping; a missing cell counts as 0; any other length is an error.
    Increment(i64),
}

/// The outcome of a row operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOutcome {
    /// Whether the condition held; true without a condition.
    pub matched: bool,
    /// The cells that [`Step::Modify`] wrote: one per column, ascending by family and qualifier.
    pub written: Vec<Cell>,
}
