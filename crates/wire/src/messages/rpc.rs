//! The header of a connection, and the headers of requests and responses.

use super::basic::NameBytesPair;
use bytes::Bytes;

/// Codec class of the cell blocks that [`crate::cell`] reads and writes.
pub const KEY_VALUE_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

/// The same, with tags behind the values of cells that have some.
pub const KEY_VALUE_CODEC_WITH_TAGS: &str = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags";

/// The user behind a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UserInformation {
    /// The user on whose behalf calls are made.
    #[prost(string, required, tag = "1")]
    pub effective_user: String,
    /// The user that makes them, if it is another one.
    #[prost(string, optional, tag = "2")]
    pub real_user: Option<String>,
}

/// Version of a program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionInfo {
    /// In readable form.
    #[prost(string, required, tag = "1")]
    pub version: String,
    /// Place of its source.
    #[prost(string, required, tag = "2")]
    pub url: String,
    /// Revision of the source.
    #[prost(string, required, tag = "3")]
    pub revision: String,
    /// The user that built it.
    #[prost(string, required, tag = "4")]
    pub user: String,
    /// Time of the build.
    #[prost(string, required, tag = "5")]
    pub date: String,
    /// Checksum of the source.
    #[prost(string, required, tag = "6")]
    pub src_checksum: String,
    /// First number of the version.
    #[prost(uint32, optional, tag = "7")]
    pub version_major: Option<u32>,
    /// Second number of the version.
    #[prost(uint32, optional, tag = "8")]
    pub version_minor: Option<u32>,
}

/// Sent once by a client, after the preamble.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConnectionHeader {
    /// The user.
    #[prost(message, optional, tag = "1")]
    pub user_info: Option<UserInformation>,
    /// Short name of the service that all calls of the connection are for, such as `ClientService`.
    #[prost(string, optional, tag = "2")]
    pub service_name: Option<String>,
    /// Class of the codec of cell blocks; without it, cells travel inside messages.
    #[prost(string, optional, tag = "3")]
    pub cell_block_codec_class: Option<String>,
    /// Class that compresses cell blocks; absent for none.
    #[prost(string, optional, tag = "4")]
    pub cell_block_compressor_class: Option<String>,
    /// The client's version. Some of a server's responses depend on it.
    #[prost(message, optional, tag = "5")]
    pub version_info: Option<VersionInfo>,
    /// Attributes that the program gave the connection.
    #[prost(message, repeated, tag = "7")]
    pub attribute: Vec<NameBytesPair>,
}

/// Length of the cell block that follows the message.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CellBlockMeta {
    /// Bytes.
    #[prost(uint32, optional, tag = "1")]
    pub length: Option<u32>,
}

/// Precedes every request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestHeader {
    /// Repeated in the response.
    #[prost(uint32, optional, tag = "1")]
    pub call_id: Option<u32>,
    /// A [`TraceInfo`], which is decoded only where somebody wants it.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub trace_info: Option<Bytes>,
    /// Method of the connection's service.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub method_name: Option<Bytes>,
    /// Whether a message follows; always true.
    #[prost(bool, optional, tag = "4")]
    pub request_param: Option<bool>,
    /// Length of the cell block, if there is one.
    #[prost(message, optional, tag = "5")]
    pub cell_block_meta: Option<CellBlockMeta>,
    /// 0 for most calls, 200 for reads of `hbase:meta`.
    #[prost(uint32, optional, tag = "6")]
    pub priority: Option<u32>,
    /// Milliseconds that the client waits.
    #[prost(uint32, optional, tag = "7")]
    pub timeout: Option<u32>,
}

/// The trace of a request (`RPCTInfo`). Clients from version 2.5 on send the headers of their propagator, `traceparent` by default,
/// if they trace, and none otherwise. The numbers that older clients send have no meaning today.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TraceInfo {
    /// Entries of a map.
    #[prost(message, repeated, tag = "3")]
    pub headers: Vec<TraceHeader>,
}

/// A header of a [`TraceInfo`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TraceHeader {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Precedes every response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    /// The request's. -1 as an unsigned number when the response is for the whole connection.
    #[prost(uint32, optional, tag = "1")]
    pub call_id: Option<u32>,
    /// Set if the call failed; no message follows then.
    #[prost(message, optional, tag = "2")]
    pub exception: Option<ExceptionResponse>,
    /// Length of the cell block, if there is one.
    #[prost(message, optional, tag = "3")]
    pub cell_block_meta: Option<CellBlockMeta>,
}

/// A Java exception.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExceptionResponse {
    /// Its class ([`crate::exception`]).
    #[prost(string, optional, tag = "1")]
    pub exception_class_name: Option<String>,
    /// Text that begins with its message.
    #[prost(string, optional, tag = "2")]
    pub stack_trace: Option<String>,
    /// New host of the region, if it has moved.
    #[prost(string, optional, tag = "3")]
    pub hostname: Option<String>,
    /// See `hostname`.
    #[prost(int32, optional, tag = "4")]
    pub port: Option<i32>,
    /// Whether another try cannot help.
    #[prost(bool, optional, tag = "5")]
    pub do_not_retry: Option<bool>,
    /// Whether the server asks the client to slow down.
    #[prost(bool, optional, tag = "6")]
    pub server_overloaded: Option<bool>,
}
