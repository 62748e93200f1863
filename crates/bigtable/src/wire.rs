//! Messages of the data API whose published Rust definitions lack fields that clients send today.
//!
//! prost drops unknown fields. A filter kind that it does not know would arrive as "no filter" and return everything.
//! So the messages that contain filters and mutations are declared here in full, over published parts. Field numbers
//! are those of `google/bigtable/v2/{bigtable,data,feature_flags}.proto`. `ReadRowsResponse` is here because the
//! published one copies every qualifier.

use crate::pb::v2;
use bytes::Bytes;

/// `google.bigtable.v2.ReadRowsRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRowsRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "9")]
    pub authorized_view_name: String,
    #[prost(string, tag = "11")]
    pub materialized_view_name: String,
    #[prost(string, tag = "5")]
    pub app_profile_id: String,
    #[prost(message, optional, tag = "2")]
    pub rows: Option<v2::RowSet>,
    #[prost(message, optional, tag = "3")]
    pub filter: Option<RowFilter>,
    #[prost(int64, tag = "4")]
    pub rows_limit: i64,
    #[prost(enumeration = "v2::read_rows_request::RequestStatsView", tag = "6")]
    pub request_stats_view: i32,
    #[prost(bool, tag = "7")]
    pub reversed: bool,
}

/// `google.bigtable.v2.ReadRowsResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRowsResponse {
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<CellChunk>,
    #[prost(bytes = "bytes", tag = "2")]
    pub last_scanned_row_key: Bytes,
    #[prost(message, optional, tag = "3")]
    pub request_stats: Option<v2::RequestStats>,
}

/// `google.bigtable.v2.ReadRowsResponse.CellChunk`, with the `row_status` oneof as two flags: at most one is set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CellChunk {
    #[prost(bytes = "bytes", tag = "1")]
    pub row_key: Bytes,
    #[prost(message, optional, tag = "2")]
    pub family_name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    #[prost(int64, tag = "4")]
    pub timestamp_micros: i64,
    #[prost(string, repeated, tag = "5")]
    pub labels: Vec<String>,
    #[prost(bytes = "bytes", tag = "6")]
    pub value: Bytes,
    #[prost(int32, tag = "7")]
    pub value_size: i32,
    #[prost(bool, tag = "8")]
    pub reset_row: bool,
    #[prost(bool, tag = "9")]
    pub commit_row: bool,
}

/// `google.bigtable.v2.SampleRowKeysRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SampleRowKeysRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "4")]
    pub authorized_view_name: String,
    #[prost(string, tag = "5")]
    pub materialized_view_name: String,
    #[prost(string, tag = "2")]
    pub app_profile_id: String,
    #[prost(message, optional, tag = "6")]
    pub row_range: Option<v2::RowRange>,
}

/// `google.bigtable.v2.MutateRowRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutateRowRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "6")]
    pub authorized_view_name: String,
    #[prost(string, tag = "4")]
    pub app_profile_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub row_key: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub mutations: Vec<Mutation>,
    #[prost(message, optional, tag = "8")]
    pub idempotency: Option<v2::Idempotency>,
}

/// `google.bigtable.v2.MutateRowsRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutateRowsRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "5")]
    pub authorized_view_name: String,
    #[prost(string, tag = "3")]
    pub app_profile_id: String,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<MutateRowsEntry>,
}

/// `google.bigtable.v2.MutateRowsRequest.Entry`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutateRowsEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub row_key: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub mutations: Vec<Mutation>,
    #[prost(message, optional, tag = "3")]
    pub idempotency: Option<v2::Idempotency>,
}

/// `google.bigtable.v2.CheckAndMutateRowRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckAndMutateRowRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(string, tag = "9")]
    pub authorized_view_name: String,
    #[prost(string, tag = "7")]
    pub app_profile_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub row_key: Bytes,
    #[prost(message, optional, tag = "6")]
    pub predicate_filter: Option<RowFilter>,
    #[prost(message, repeated, tag = "4")]
    pub true_mutations: Vec<Mutation>,
    #[prost(message, repeated, tag = "5")]
    pub false_mutations: Vec<Mutation>,
}

/// `google.bigtable.v2.Mutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mutation {
    #[prost(enumeration = "TimestampOrigin", tag = "7")]
    pub timestamp_origin: i32,
    #[prost(oneof = "v2::mutation::Mutation", tags = "1, 5, 6, 2, 3, 4")]
    pub mutation: Option<v2::mutation::Mutation>,
}

/// `google.bigtable.v2.Mutation.TimestampOrigin`: the origin of a cell's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TimestampOrigin {
    Unspecified = 0,
    UserSpecified = 1,
    ClientAutoGenerated = 2,
}

/// `google.bigtable.v2.RowFilter`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RowFilter {
    #[prost(
        oneof = "FilterKind",
        tags = "1, 2, 3, 16, 17, 18, 4, 14, 5, 6, 7, 8, 9, 15, 10, 11, 12, 13, 19, 20"
    )]
    pub filter: Option<FilterKind>,
}

/// `google.bigtable.v2.RowFilter.Chain`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chain {
    #[prost(message, repeated, tag = "1")]
    pub filters: Vec<RowFilter>,
}

/// `google.bigtable.v2.RowFilter.Interleave`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Interleave {
    #[prost(message, repeated, tag = "1")]
    pub filters: Vec<RowFilter>,
}

/// `google.bigtable.v2.RowFilter.Condition`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Condition {
    #[prost(message, optional, boxed, tag = "1")]
    pub predicate_filter: Option<Box<RowFilter>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub true_filter: Option<Box<RowFilter>>,
    #[prost(message, optional, boxed, tag = "3")]
    pub false_filter: Option<Box<RowFilter>>,
}

/// `google.bigtable.v2.ValueBitmask`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueBitmask {
    #[prost(bytes = "bytes", tag = "1")]
    pub mask: Bytes,
}

/// The `filter` oneof of [`RowFilter`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum FilterKind {
    #[prost(message, tag = "1")]
    Chain(Chain),
    #[prost(message, tag = "2")]
    Interleave(Interleave),
    #[prost(message, tag = "3")]
    Condition(Box<Condition>),
    #[prost(bool, tag = "16")]
    Sink(bool),
    #[prost(bool, tag = "17")]
    PassAllFilter(bool),
    #[prost(bool, tag = "18")]
    BlockAllFilter(bool),
    #[prost(bytes, tag = "4")]
    RowKeyRegexFilter(Bytes),
    #[prost(double, tag = "14")]
    RowSampleFilter(f64),
    #[prost(string, tag = "5")]
    FamilyNameRegexFilter(String),
    #[prost(bytes, tag = "6")]
    ColumnQualifierRegexFilter(Bytes),
    #[prost(message, tag = "7")]
    ColumnRangeFilter(v2::ColumnRange),
    #[prost(message, tag = "8")]
    TimestampRangeFilter(v2::TimestampRange),
    #[prost(bytes, tag = "9")]
    ValueRegexFilter(Bytes),
    #[prost(message, tag = "15")]
    ValueRangeFilter(v2::ValueRange),
    #[prost(int32, tag = "10")]
    CellsPerRowOffsetFilter(i32),
    #[prost(int32, tag = "11")]
    CellsPerRowLimitFilter(i32),
    #[prost(int32, tag = "12")]
    CellsPerColumnLimitFilter(i32),
    #[prost(bool, tag = "13")]
    StripValueTransformer(bool),
    #[prost(string, tag = "19")]
    ApplyLabelTransformer(String),
    #[prost(message, tag = "20")]
    ValueBitmaskFilter(ValueBitmask),
}

/// `google.bigtable.v2.FeatureFlags`, the fields that matter to a server.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FeatureFlags {
    #[prost(bool, tag = "1")]
    pub reverse_scans: bool,
    #[prost(bool, tag = "4")]
    pub last_scanned_row_responses: bool,
}
