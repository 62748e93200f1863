//! The filter tree as front ends build it.

use bytes::Bytes;
use std::ops::Bound;
use stele_types::{FamilyId, Timestamp};

/// A function from the cells of a row to the cells of a row. Cells are ordered by family, qualifier and timestamp
/// (newest first), and may occur more than once.
///
/// Patterns are RE2 over bytes and must match the whole subject; see `docs/filters.md`.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Each member filters the output of the member before it. At least two members.
    Chain(Vec<Filter>),
    /// Each member filters a copy of the input; the results are pooled and sorted, duplicates stay. At least two members.
    Interleave(Vec<Filter>),
    /// Filters the input with one branch, chosen by whether the predicate lets any cell through. A missing branch lets
    /// nothing through. Must not contain a sink.
    Condition {
        /// Decides; its output is thrown away.
        predicate: Box<Filter>,
        /// Used when the predicate's output has a cell.
        on_true: Option<Box<Filter>>,
        /// Used when it has none.
        on_false: Option<Box<Filter>>,
    },
    /// Sends its input to the final result, past all enclosing filters, and lets nothing through to the next one.
    Sink,
    /// Lets everything through.
    PassAll,
    /// Lets everything through, of the time before: in each of these families that keeps deleted cells, neither cells nor
    /// deletes at its timestamp or later exist for the read. Only as the filter itself, or as a member of chains.
    FamiliesBefore(Vec<(FamilyId, Timestamp)>),
    /// Lets nothing through.
    BlockAll,
    /// The whole row if its key matches, else nothing.
    RowKeyRegex(Bytes),
    /// The whole row with this probability, which is between 0 and 1 exclusive; else nothing.
    RowSample(f64),
    /// Cells of families whose name matches.
    FamilyRegex(Bytes),
    /// Cells of these families. Only servers make such filters, for the one table that a read is of: the names of
    /// very many families would be larger than a filter may be.
    Families(Vec<FamilyId>),
    /// Cells whose qualifier matches.
    QualifierRegex(Bytes),
    /// Cells of one family whose qualifier is in a range.
    ColumnRange {
        /// The family's name; without such a family there are no cells.
        family: String,
        /// First qualifier.
        start: Bound<Bytes>,
        /// Last qualifier.
        end: Bound<Bytes>,
    },
    /// Cells with a timestamp in a range, in the table's unit.
    TimestampRange {
        /// Lowest timestamp, inclusive.
        start: i64,
        /// Lowest timestamp that is too high; `None` is no limit.
        end: Option<i64>,
    },
    /// Cells whose value matches.
    ValueRegex(Bytes),
    /// Cells whose value is in a range.
    ValueRange {
        /// Lowest value.
        start: Bound<Bytes>,
        /// Highest value.
        end: Bound<Bytes>,
    },
    /// Cells whose value is as long as the mask and has all bits of the mask set.
    ValueBitmask(Bytes),
    /// All but the first cells of the row, copies counted.
    CellsPerRowOffset(i32),
    /// The first cells of the row, copies counted.
    CellsPerRow(i32),
    /// The first (newest) cells of each column, copies counted.
    CellsPerColumn(i32),
    /// Replaces every value by an empty one.
    StripValue,
    /// Adds a label to every cell.
    ApplyLabel(String),
}
