//! Calls of coprocessors: services of a region, found by name.

use super::basic::{NameBytesPair, RegionSpecifier};
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
