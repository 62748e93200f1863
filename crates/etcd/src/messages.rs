//! The messages of etcd's API, version 3, that this crate sends and receives.
//!
//! Written by hand from the numbers and types in `rpc.proto` and `kv.proto` of etcd 3.4, with their names. A field that
//! is missing here is skipped by the decoder, as protobuf does with unknown fields. Generated code would need `protoc` on
//! every machine that builds Stele.

use bytes::Bytes;

/// Every response begins with it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// Of the whole store; after a transaction that wrote, its own.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Of the last change; in an event of a deletion, of the deletion.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// Asks for the token of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub token: String,
}

/// A linearisable read of one key, or of a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty for one key.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Zero for the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// The key keeps the lease that it has.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub request: Option<Operation>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResponseOp {
    /// Only the responses of reads are looked at.
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Comparison {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

/// The number of a key that a condition compares. A key that does not exist has zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Target {
    Version = 0,
    Create = 1,
    Mod = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Compare {
    #[prost(enumeration = "Comparison", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "Number", tags = "4, 5, 6")]
    pub number: Option<Number>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Number {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantRequest {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds; at least the requested ones.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    #[prost(string, tag = "4")]
    pub error: String,
}

/// Names a lease to revoke, to keep alive or to look at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// The response to keeping a lease alive and to looking at one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Seconds left; not positive when there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    #[prost(oneof = "WatchKind", tags = "1, 3")]
    pub request: Option<WatchKind>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchKind {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Large responses come in pieces.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Positive if the watch is to begin at a revision that was compacted.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// More pieces follow.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Event {
    /// 0 is a put, 1 a deletion.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// The kind of an event of a deletion.
pub const EVENT_DELETE: i32 = 1;

/// Responses with a header.
pub trait Headed {
    fn header(&self) -> Option<&ResponseHeader>;

    /// The revision of the header; zero if there is none.
    fn revision(&self) -> i64 {
        self.header().map_or(0, |header| header.revision)
    }
}

macro_rules! headed {
    ($($message:ty),*) => {
        $(impl Headed for $message {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

headed!(
    RangeResponse,
    TxnResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseResponse,
    WatchResponse
);
