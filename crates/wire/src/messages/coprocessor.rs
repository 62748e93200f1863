//! Calls of coprocessors: services of a region, found by name.
//!
//! The messages of the services that HBase ships are here, too.

use super::basic::{NameBytesPair, RegionSpecifier};
use super::client::{Condition, MutationProto};
use super::scan::Scan;
use bytes::Bytes;

/// One call of a service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CoprocessorServiceCall {
    /// A row of the region.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    /// The service.
    #[prost(string, required, tag = "2")]
    pub service_name: String,
    /// Its method.
    #[prost(string, required, tag = "3")]
    pub method_name: String,
    /// The method's own message.
    #[prost(bytes = "bytes", required, tag = "4")]
    pub request: Bytes,
}

/// Argument of `ExecService`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CoprocessorServiceRequest {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// The call.
    #[prost(message, required, tag = "2")]
    pub call: CoprocessorServiceCall,
}

/// Response of `ExecService`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CoprocessorServiceResponse {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Class and bytes of the method's response.
    #[prost(message, required, tag = "2")]
    pub value: NameBytesPair,
}

/// Argument of every method of `AggregateService`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AggregateRequest {
    /// Java class that makes numbers of cells.
    #[prost(string, required, tag = "1")]
    pub interpreter_class_name: String,
    /// The cells.
    #[prost(message, required, tag = "2")]
    pub scan: Scan,
    /// Settings of the interpreter.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub interpreter_specific_bytes: Option<Bytes>,
    /// Whether the client continues after a response with `next_chunk_start_row`.
    #[prost(bool, optional, tag = "4")]
    pub client_supports_partial_result: Option<bool>,
}

/// Response of every method of `AggregateService`. It is empty when there were no numbers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AggregateResponse {
    /// Messages of the interpreter; of `GetRowNum` a big-endian number of 8 bytes.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub first_part: Vec<Bytes>,
    /// The number of rows, big-endian in 8 bytes.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub second_part: Option<Bytes>,
    /// The row from which the client continues.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub next_chunk_start_row: Option<Bytes>,
    /// The time in ms after which it does.
    #[prost(uint64, optional, tag = "4")]
    pub wait_interval_ms: Option<u64>,
}

/// A number of `LongColumnInterpreter`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LongMsg {
    /// The number.
    #[prost(int64, required, tag = "1")]
    pub long_msg: i64,
}

/// A number of `DoubleColumnInterpreter`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct DoubleMsg {
    /// The number.
    #[prost(double, required, tag = "1")]
    pub double_msg: f64,
}

/// A number of `BigDecimalColumnInterpreter`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BigDecimalMsg {
    /// 4 bytes of scale, then the unscaled number in two's complement, big-endian.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bigdecimal_msg: Bytes,
}

/// Argument of `MultiRowMutationService.MutateRows`. The cells are in the mutations.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MutateRowsRequest {
    /// Mutations of rows of one region, all carried out or none.
    #[prost(message, repeated, tag = "1")]
    pub mutation_request: Vec<MutationProto>,
    /// With `nonce`: makes the call safe to repeat.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// See `nonce_group`.
    #[prost(uint64, optional, tag = "3")]
    pub nonce: Option<u64>,
    /// The region.
    #[prost(message, optional, tag = "4")]
    pub region: Option<RegionSpecifier>,
    /// Conditions that must all hold.
    #[prost(message, repeated, tag = "5")]
    pub condition: Vec<Condition>,
}

/// Response of `MultiRowMutationService.MutateRows`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MutateRowsResponse {
    /// Whether the conditions held.
    #[prost(bool, optional, tag = "1")]
    pub processed: Option<bool>,
}
