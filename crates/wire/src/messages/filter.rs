//! The messages of filters, each named after its Java class.
//!
//! [`super::client`] has [`Filter`], which carries them. `FirstKeyOnlyFilter` and `FilterAllFilter` have empty messages.
//! Classes with equal messages share a type: see [`ComparingFilter`] and [`WrappingFilter`].

use super::basic::BytesBytesPair;
use super::client::{Comparator, CompareType, Filter};
use bytes::Bytes;

/// The first columns of a row.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ColumnCountGetFilter {
    /// Most columns.
    #[prost(int32, required, tag = "1")]
    pub limit: i32,
}

/// A page of the columns of a row.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnPaginationFilter {
    /// Most columns.
    #[prost(int32, required, tag = "1")]
    pub limit: i32,
    /// Columns that are skipped before those.
    #[prost(int32, optional, tag = "2")]
    pub offset: Option<i32>,
    /// Replaces the offset: qualifier that the page begins at.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub column_offset: Option<Bytes>,
}

/// Columns whose qualifier begins with a prefix.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnPrefixFilter {
    /// The prefix.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub prefix: Bytes,
}

/// Columns whose qualifier lies in a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnRangeFilter {
    /// Smallest qualifier; unbounded when absent.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub min_column: Option<Bytes>,
    /// Whether the smallest belongs to the range.
    #[prost(bool, optional, tag = "2")]
    pub min_column_inclusive: Option<bool>,
    /// Largest qualifier; unbounded when absent.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub max_column: Option<Bytes>,
    /// Whether the largest belongs to the range.
    #[prost(bool, optional, tag = "4")]
    pub max_column_inclusive: Option<bool>,
}

/// A comparison of stored bytes, which stand left of the operator.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CompareFilter {
    /// See [`CompareType`].
    #[prost(enumeration = "CompareType", required, tag = "1")]
    pub compare_op: i32,
    /// The value compared with.
    #[prost(message, optional, tag = "2")]
    pub comparator: Option<Comparator>,
}

/// Message of `FamilyFilter`, `QualifierFilter`, `RowFilter` and `ValueFilter`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ComparingFilter {
    /// The comparison.
    #[prost(message, required, tag = "1")]
    pub compare_filter: CompareFilter,
}

/// Cells with the timestamp of a cell of one column.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DependentColumnFilter {
    /// Condition on the column's value; any value when it has no comparator.
    #[prost(message, required, tag = "1")]
    pub compare_filter: CompareFilter,
    /// Family of the column.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub column_family: Option<Bytes>,
    /// Its qualifier.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub column_qualifier: Option<Bytes>,
    /// Whether the column itself is left out.
    #[prost(bool, optional, tag = "4")]
    pub drop_dependent_column: Option<bool>,
}

/// Several filters.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FilterList {
    /// See [`ListOperator`].
    #[prost(enumeration = "ListOperator", required, tag = "1")]
    pub operator: i32,
    /// The filters.
    #[prost(message, repeated, tag = "2")]
    pub filters: Vec<Filter>,
}

/// Meanings of a [`FilterList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ListOperator {
    /// All filters must let a cell pass.
    MustPassAll = 1,
    /// One filter must.
    MustPassOne = 2,
}

/// Message of `FilterWrapper`, `SkipFilter` and `WhileMatchFilter`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WrappingFilter {
    /// The inner filter.
    #[prost(message, required, tag = "1")]
    pub filter: Filter,
}

/// Cells of a row up to the first with one of these qualifiers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FirstKeyValueMatchingQualifiersFilter {
    /// The qualifiers.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub qualifiers: Vec<Bytes>,
}

/// Rows that match a key but for some of its bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FuzzyRowFilter {
    /// Keys, each with a mask of the same length that tells its fixed bytes.
    #[prost(message, repeated, tag = "1")]
    pub fuzzy_keys_data: Vec<BytesBytesPair>,
    /// Whether masks denote a free byte by 2; by 0 otherwise.
    #[prost(bool, optional, tag = "2")]
    pub is_mask_v2: Option<bool>,
}

/// Rows up to one, which is included.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InclusiveStopFilter {
    /// The last row.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub stop_row_key: Option<Bytes>,
}

/// Cells without values.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct KeyOnlyFilter {
    /// Whether a value is replaced with its length, 4 bytes big-endian.
    #[prost(bool, required, tag = "1")]
    pub len_as_val: bool,
}

/// Columns whose qualifier begins with one of several prefixes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultipleColumnPrefixFilter {
    /// The prefixes.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub sorted_prefixes: Vec<Bytes>,
}

/// A number of rows of each region.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PageFilter {
    /// Most rows.
    #[prost(int64, required, tag = "1")]
    pub page_size: i64,
}

/// Rows that begin with a prefix.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PrefixFilter {
    /// The prefix; no row passes when absent.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub prefix: Option<Bytes>,
}

/// A random sample of the rows.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct RandomRowFilter {
    /// Probability that a row passes.
    #[prost(float, required, tag = "1")]
    pub chance: f32,
}

/// Rows in which the value of one column passes, without that column.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SingleColumnValueExcludeFilter {
    /// The condition.
    #[prost(message, required, tag = "1")]
    pub single_column_value_filter: SingleColumnValueFilter,
}

/// Rows in which the value of one column passes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SingleColumnValueFilter {
    /// Family of the column.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub column_family: Option<Bytes>,
    /// Its qualifier.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub column_qualifier: Option<Bytes>,
    /// See [`CompareType`].
    #[prost(enumeration = "CompareType", required, tag = "3")]
    pub compare_op: i32,
    /// The value compared with.
    #[prost(message, required, tag = "4")]
    pub comparator: Comparator,
    /// Whether rows without the column are left out.
    #[prost(bool, optional, tag = "5")]
    pub filter_if_missing: Option<bool>,
    /// Whether only the newest version counts.
    #[prost(bool, optional, tag = "6")]
    pub latest_version_only: Option<bool>,
}

/// Cells of certain times.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TimestampsFilter {
    /// The times.
    #[prost(int64, repeated, packed = "true", tag = "1")]
    pub timestamps: Vec<i64>,
    /// Whether the scan may seek from one time to the next.
    #[prost(bool, optional, tag = "2")]
    pub can_hint: Option<bool>,
}

/// A range of rows.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RowRange {
    /// First row; unbounded when absent or empty.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub start_row: Option<Bytes>,
    /// Whether the first row belongs to the range.
    #[prost(bool, optional, tag = "2")]
    pub start_row_inclusive: Option<bool>,
    /// Last row; unbounded when absent or empty.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub stop_row: Option<Bytes>,
    /// Whether the last row belongs to the range.
    #[prost(bool, optional, tag = "4")]
    pub stop_row_inclusive: Option<bool>,
}

/// Rows of several ranges.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MultiRowRangeFilter {
    /// The ranges.
    #[prost(message, repeated, tag = "1")]
    pub row_range_list: Vec<RowRange>,
}

/// Cells of one column whose value passes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnValueFilter {
    /// Family of the column.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    /// Its qualifier.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub qualifier: Bytes,
    /// See [`CompareType`].
    #[prost(enumeration = "CompareType", required, tag = "3")]
    pub compare_op: i32,
    /// The value compared with.
    #[prost(message, required, tag = "4")]
    pub comparator: Comparator,
}
