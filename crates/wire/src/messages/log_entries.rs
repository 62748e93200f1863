//! `GetLogEntries`, a call of `AdminService` and of `MasterService`. It is one call for all kinds of logs in memory, and wraps
//! the messages of each.

use bytes::Bytes;

/// The requests and the responses of the kinds, by the ends of their Java classes' names.
const KINDS: [(&str, &str); 3] = [
    (
        "SlowLogResponseRequest",
        "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponses",
    ),
    (
        "BalancerDecisionsRequest",
        "org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos$BalancerDecisionsResponse",
    ),
    (
        "BalancerRejectionsRequest",
        "org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos$BalancerRejectionsResponse",
    ),
];

/// Argument of `GetLogEntries`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LogRequest {
    /// The Java class of the message.
    #[prost(string, required, tag = "1")]
    pub log_class_name: String,
    /// A message of that class.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub log_message: Bytes,
}

/// Response of `GetLogEntries`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LogEntry {
    /// The Java class of the message.
    #[prost(string, required, tag = "1")]
    pub log_class_name: String,
    /// A message of that class, which lists the entries.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub log_message: Bytes,
}

impl LogEntry {
    /// No entries, in the message that a request of this class wants; `None` for a class that no server knows.
    pub fn none_for(request: &LogRequest) -> Option<LogEntry> {
        let mut kinds = KINDS.iter();
        let (_, response) = kinds.find(|(class, _)| request.log_class_name.ends_with(class))?;
        Some(LogEntry {
            log_class_name: (*response).to_owned(),
            log_message: Bytes::new(),
        })
    }
}
