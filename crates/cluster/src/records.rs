//! Records of servers and of their logs in the coordinator (`docs/formats/cluster.md`).

use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use stele_types::ServerId;

/// Prefix of everything here.
pub(crate) const ALL: &str = "cluster/";
/// The number of the cluster, 16 bytes.
pub(crate) const ID: &str = "cluster/id";
/// The place of the logs of all servers, as text.
pub(crate) const LOG_PLACE: &str = "cluster/log-place";
/// The data of a single server that are made those of the cluster, or were.
pub(crate) const PROMOTION: &str = "cluster/promotion";
/// Prefix of servers: bound to their sessions.
pub(crate) const SERVERS: &str = "cluster/server/";
/// Prefix of logs: from the start of a server until its log is deleted.
pub(crate) const LOGS: &str = "cluster/log/";
/// Prefix of servers that are to give their tablets up.
pub(crate) const DRAINING: &str = "cluster/draining/";
/// Prefix of servers that archive their logs: from their start until the archive names their end.
pub(crate) const LIVES: &str = "cluster/archived/";
/// The chain of the archive of the tables, 16 bytes. A server that does not archive its log deletes it when it joins, and when it leads.
pub(crate) const ARCHIVED_CHAIN: &str = "cluster/archived-chain";
/// The counter of server numbers and epochs.
pub(crate) const NUMBERS: &str = "server";
/// The election of the leader.
pub(crate) const ELECTION: &str = "leader";

/// Version byte of the records.
const VERSION: u8 = 1;

/// A server that lives.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ServerRecord {
    /// Where other servers connect.
    #[prost(string, tag = "1")]
    pub peer: String,
    /// Where Bigtable clients connect.
    #[prost(string, tag = "2")]
    pub bigtable: String,
    /// Where HBase clients connect; empty for nowhere.
    #[prost(string, tag = "3")]
    pub hbase: String,
    /// Health, metrics, status.
    #[prost(string, tag = "4")]
    pub http: String,
    /// Wall-clock microseconds of its start.
    #[prost(int64, tag = "5")]
    pub started_micros: i64,
    /// Version of the program.
    #[prost(string, tag = "6")]
    pub version: String,
}

/// The log of a server that lives, or that some tablet still needs.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LogRecord {
    /// Storage refuses every further append.
    #[prost(bool, tag = "1")]
    pub sealed: bool,
    /// Its bytes when it was sealed.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// The server was given up, and its log is being sealed: it is no member any more, and does not become one again.
    #[prost(bool, tag = "4")]
    pub given_up: bool,
    /// How many streams it has; 0 if that is not known. Field 3 had the same, of a log whose streams have other tablets.
    #[prost(uint32, tag = "5")]
    pub streams: u32,
    /// How long its server trusts a session that it has renewed, in ms. 0 of an earlier version.
    #[prost(uint32, tag = "6")]
    pub session_millis: u32,
    /// The server was given up though its process may live: its session has to be over before its log is sealed.
    #[prost(bool, tag = "7")]
    pub may_live: bool,
}

/// The time for which a server of an earlier version may trust its session: the longest one that can be set.
const SESSION_UNKNOWN: Duration = Duration::from_secs(600);

impl LogRecord {
    /// Longest time from the end of the server's record until it trusts its session no more.
    pub(crate) fn session(&self) -> Duration {
        match self.session_millis {
            0 => SESSION_UNKNOWN,
            millis => Duration::from_millis(millis.into()),
        }
    }
}

/// A server that archives its log.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LifeRecord {
    /// The address of the archive of the cluster.
    #[prost(string, tag = "1")]
    pub place: String,
    /// A moment before its first write, in wall-clock microseconds.
    #[prost(int64, tag = "2")]
    pub from_micros: i64,
    /// How often it has let log go that the archive does not have. Counted before the log goes.
    #[prost(uint32, tag = "3")]
    pub gaps: u32,
    /// A moment after its last write; 0 while its log is there.
    #[prost(int64, tag = "4")]
    pub ended_micros: i64,
    /// A leader archives the rest of its log: the server itself counts no gap any more.
    #[prost(bool, tag = "5")]
    pub closing: bool,
}

/// The data root of a single server that becomes that of a cluster.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PromotionRecord {
    /// The number of the data root.
    #[prost(bytes = "bytes", tag = "1")]
    pub root: Bytes,
    /// The place that the data come from.
    #[prost(string, tag = "2")]
    pub source: String,
    /// The place where servers of the cluster find them.
    #[prost(string, tag = "3")]
    pub target: String,
    /// The cluster has the data, and the single server has not.
    #[prost(bool, tag = "4")]
    pub finished: bool,
}

/// A key with the number of a server.
pub(crate) fn key(prefix: &str, server: ServerId) -> String {
    format!("{prefix}{:08x}", server.0)
}

/// The server of a key.
pub(crate) fn server_of(prefix: &str, key: &str) -> Option<ServerId> {
    let digits = key.strip_prefix(prefix)?;
    let server = ServerId(u32::from_str_radix(digits, 16).ok()?);
    (self::key(prefix, server) == key).then_some(server)
}

/// Encodes a record.
pub(crate) fn encode(record: &impl Message) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&record.encode_to_vec());
    out.into()
}

/// Decodes a record; the error says why not.
pub(crate) fn decode<R: Message + Default>(bytes: &[u8]) -> Result<R, String> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => R::decode(rest).map_err(|error| error.to_string()),
        Some((version, _)) => Err(format!("record version {version}, this program reads {VERSION}")),
        None => Err("empty record".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_as_they_were() {
        let server = ServerRecord {
            peer: "p:1".to_owned(),
            bigtable: "b".to_owned(),
            hbase: String::new(),
            http: "h".to_owned(),
            started_micros: 5,
            version: "1".to_owned(),
        };
        let bytes = b"\x01\x0a\x03p:1\x12\x01b\"\x01h(\x05\x32\x011";
        assert_eq!(
            encode(&server).escape_ascii().to_string(),
            bytes.escape_ascii().to_string()
        );
        assert_eq!(decode(bytes), Ok(server));
        let log = LogRecord {
            sealed: true,
            bytes: 300,
            ..LogRecord::default()
        };
        assert_eq!(encode(&log), b"\x01\x08\x01\x10\xac\x02"[..]);
        assert_eq!(decode(b"\x01\x08\x01\x10\xac\x02"), Ok(log.clone()));
        let log = LogRecord { streams: 2, ..log };
        assert_eq!(encode(&log), b"\x01\x08\x01\x10\xac\x02\x28\x02"[..]);
        assert_eq!(decode(b"\x01\x08\x01\x10\xac\x02\x28\x02"), Ok(log));
        let log = LogRecord {
            streams: 2,
            given_up: true,
            ..LogRecord::default()
        };
        assert_eq!(encode(&log), b"\x01\x20\x01\x28\x02"[..]);
        assert_eq!(decode(b"\x01\x20\x01\x28\x02"), Ok(log.clone()));
        let silent = LogRecord {
            session_millis: 10_000,
            may_live: true,
            ..log.clone()
        };
        assert_eq!(encode(&silent), b"\x01\x20\x01\x28\x02\x30\x90\x4e\x38\x01"[..]);
        assert_eq!(decode(b"\x01\x20\x01\x28\x02\x30\x90\x4e\x38\x01"), Ok(silent));
        let unknown = LogRecord { streams: 0, ..log };
        assert_eq!(
            decode(b"\x01\x18\x02\x20\x01"),
            Ok(unknown),
            "streams that have other tablets"
        );
        let promotion = PromotionRecord {
            root: Bytes::from_static(b"r"),
            source: "s".to_owned(),
            target: "t".to_owned(),
            finished: true,
        };
        let bytes = b"\x01\x0a\x01r\x12\x01s\x1a\x01t\x20\x01";
        assert_eq!(
            encode(&promotion).escape_ascii().to_string(),
            bytes.escape_ascii().to_string()
        );
        assert_eq!(decode(bytes), Ok(promotion));
        let life = LifeRecord {
            place: "p".to_owned(),
            from_micros: 5,
            gaps: 1,
            ended_micros: 7,
            closing: true,
        };
        let bytes = b"\x01\x0a\x01p\x10\x05\x18\x01\x20\x07\x28\x01";
        assert_eq!(
            encode(&life).escape_ascii().to_string(),
            bytes.escape_ascii().to_string()
        );
        assert_eq!(decode(bytes), Ok(life));
        assert!(decode::<LogRecord>(b"\x02").is_err() && decode::<LogRecord>(b"").is_err());
    }

    #[test]
    fn keys_have_one_spelling() {
        let key = key(LOGS, ServerId(0x1f));
        assert_eq!(key, "cluster/log/0000001f");
        assert_eq!(server_of(LOGS, &key), Some(ServerId(0x1f)));
        for other in [
            "cluster/log/1f",
            "cluster/log/0000001F",
            "cluster/server/0000001f",
            "cluster/log/+000001f",
        ] {
            assert_eq!(server_of(LOGS, other), None, "{other}");
        }
    }
}
