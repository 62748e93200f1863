//! Responses of a ZooKeeper server.

use super::Code;
use super::jute::{Reader, put_buffer, put_text, put_texts};
use crate::WireError;
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a session's password.
const PASSWORD_BYTES: usize = 16;

/// The permission to read.
const READ_PERMISSION: i32 = 1;

/// The response to the first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// The time in ms after which a silent session ends; 0 for a session that has ended.
    pub timeout_ms: i32,
    /// The session; 0 for one that has ended.
    pub session_id: i64,
    /// Whether the client asked in a way that expects the flag of read-only servers.
    pub has_read_only: bool,
}

impl ConnectResponse {
    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut record = BytesMut::new();
        record.put_i32(0);
        record.put_i32(self.timeout_ms);
        record.put_i64(self.session_id);
        put_buffer(&mut record, &[0; PASSWORD_BYTES]);
        if self.has_read_only {
            // A client that does not take read-only servers would look for another one.
            record.put_u8(0);
        }
        put_buffer(out, &record);
    }

    /// Reads the content of a frame.
    pub fn decode(frame: Bytes) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        reader.i32("protocol version")?;
        let (timeout_ms, session_id) = (reader.i32("session timeout")?, reader.i64("session id")?);
        reader.buffer("session password")?;
        Ok(ConnectResponse {
            timeout_ms,
            session_id,
            has_read_only: !reader.is_at_end(),
        })
    }
}

/// The state of a node that never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// When it was made, in ms since 1970.
    pub made_ms: i64,
    /// The session whose end removes the node; 0 for a node that stays.
    pub owner: i64,
    /// Bytes of its data.
    pub data_bytes: i32,
    /// Nodes directly below it.
    pub children: i32,
}

/// State of a server whose nodes never change: that of its first and only transaction.
const ZXID: i64 = 1;

impl Stat {
    fn encode(&self, out: &mut BytesMut) {
        out.put_i64(ZXID);
        out.put_i64(ZXID);
        out.put_i64(self.made_ms);
        out.put_i64(self.made_ms);
        // Versions of data, children and access rules.
        out.put_slice(&[0; 12]);
        out.put_i64(self.owner);
        out.put_i32(self.data_bytes);
        out.put_i32(self.children);
        out.put_i64(ZXID);
    }
}

/// The record of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing: a request without an answer, or one that failed.
    Empty,
    /// The state of a node.
    Stat(Stat),
    /// Data and state of a node.
    Data(Bytes, Stat),
    /// Everybody may read the node, and nobody may change it.
    Acl(Stat),
    /// Names of nodes, with the state of the one above if it was asked for.
    Children(Vec<String>, Option<Stat>),
    /// A number.
    Number(i32),
    /// The path of the request.
    Path(String),
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// That of the request.
    pub xid: i32,
    /// How it went.
    pub code: Code,
    /// Only if it went well.
    pub body: Body,
}

impl Response {
    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut record = BytesMut::new();
        record.put_i32(self.xid);
        record.put_i64(ZXID);
        record.put_i32(self.code as i32);
        match &self.body {
            Body::Empty => {}
            Body::Stat(stat) => stat.encode(&mut record),
            Body::Data(data, stat) => {
                put_buffer(&mut record, data);
                stat.encode(&mut record);
            }
            Body::Acl(stat) => {
                record.put_i32(1);
                record.put_i32(READ_PERMISSION);
                put_text(&mut record, "world");
                put_text(&mut record, "anyone");
                stat.encode(&mut record);
            }
            Body::Children(names, stat) => {
                put_texts(&mut record, names);
                if let Some(stat) = stat {
                    stat.encode(&mut record);
                }
            }
            Body::Number(number) => record.put_i32(*number),
            Body::Path(path) => put_text(&mut record, path),
        }
        put_buffer(out, &record);
    }
}
