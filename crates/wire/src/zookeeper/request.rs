//! Requests of a ZooKeeper client.

use super::jute::{Reader, put_buffer, put_text, put_texts};
use crate::WireError;
use bytes::{BufMut, Bytes, BytesMut};

/// The first frame of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Version of the protocol, 0.
    pub protocol_version: i32,
    /// The newest state that the client has seen.
    pub last_zxid_seen: i64,
    /// Time in ms without a sign of life after which the session may end.
    pub timeout_ms: i32,
    /// The session that goes on; 0 for a new one.
    pub session_id: i64,
    /// Its password.
    pub password: Bytes,
    /// Whether the client takes a server that only answers reads. Absent in clients before 3.4, which do not expect
    /// the field in the response either.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Reads the content of a frame.
    pub fn decode(frame: Bytes) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        Ok(ConnectRequest {
            protocol_version: reader.i32("protocol version")?,
            last_zxid_seen: reader.i64("last zxid")?,
            timeout_ms: reader.i32("session timeout")?,
            session_id: reader.i64("session id")?,
            password: reader.buffer("session password")?,
            read_only: match reader.is_at_end() {
                true => None,
                false => Some(reader.bool("read-only flag")?),
            },
        })
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut record = BytesMut::new();
        record.put_i32(self.protocol_version);
        record.put_i64(self.last_zxid_seen);
        record.put_i32(self.timeout_ms);
        record.put_i64(self.session_id);
        put_buffer(&mut record, &self.password);
        if let Some(read_only) = self.read_only {
            record.put_u8(u8::from(read_only));
        }
        put_buffer(out, &record);
    }
}

/// Number and operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Repeated by the response; below 0 for requests that the client makes on its own.
    pub xid: i32,
    /// Number of the operation.
    pub operation: i32,
}

/// The watches of a client that has connected again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    /// Their number.
    pub count: usize,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Is there a node?
    Exists(String),
    /// The data of a node.
    GetData(String),
    /// The access rules of a node.
    GetAcl(String),
    /// The names of the nodes below a node.
    GetChildren(String),
    /// The same with the state of the node.
    GetChildren2(String),
    /// The number of all nodes below a node.
    GetAllChildrenNumber(String),
    /// Waits until the server has seen all changes so far.
    Sync(String),
    /// A sign of life.
    Ping,
    /// Names the user: scheme and credentials.
    Auth(String, Bytes),
    /// The watches of a session that goes on.
    SetWatches(Watches),
    /// The end of the session.
    Close,
    /// An operation that changes nodes.
    Write(i32),
    /// Another operation.
    Other(i32),
}

const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const GET_ACL: i32 = 6;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const PING: i32 = 11;
const GET_CHILDREN2: i32 = 12;
const AUTH: i32 = 100;
const SET_WATCHES: i32 = 101;
const GET_ALL_CHILDREN_NUMBER: i32 = 104;
const SET_WATCHES2: i32 = 105;
const CLOSE: i32 = -11;

/// create, delete, setData, setACL, check, multi, create2, reconfig, createContainer, deleteContainer, createTTL.
const WRITES: [i32; 11] = [1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21];

impl Request {
    /// Reads the content of a frame after the first. Records of operations that are not served are not read.
    ///
    /// # Errors
    /// A record that is not of its operation; its header, if that was there.
    pub fn decode(frame: Bytes) -> Result<(RequestHeader, Self), (Option<RequestHeader>, WireError)> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::read(&mut reader).map_err(|error| (None, error))?;
        match Self::read(header.operation, &mut reader) {
            Ok(request) => Ok((header, request)),
            Err(error) => Err((Some(header), error)),
        }
    }

    fn read(operation: i32, reader: &mut Reader) -> Result<Self, WireError> {
        let mut path = || reader.text("path of a node");
        Ok(match operation {
            // Whether a watch is wanted follows the path; a server whose nodes never change need not know.
            EXISTS => Request::Exists(path()?),
            GET_DATA => Request::GetData(path()?),
            GET_ACL => Request::GetAcl(path()?),
            GET_CHILDREN => Request::GetChildren(path()?),
            GET_CHILDREN2 => Request::GetChildren2(path()?),
            GET_ALL_CHILDREN_NUMBER => Request::GetAllChildrenNumber(path()?),
            SYNC => Request::Sync(path()?),
            PING => Request::Ping,
            AUTH => {
                reader.i32("kind of credentials")?;
                Request::Auth(reader.text("scheme of credentials")?, reader.buffer("credentials")?)
            }
            SET_WATCHES | SET_WATCHES2 => {
                reader.i64("zxid of watches")?;
                let lists = if operation == SET_WATCHES { 3 } else { 5 };
                let mut watches = Watches::default();
                for _ in 0..lists {
                    watches.count += reader.skip_texts("watched nodes")?;
                }
                Request::SetWatches(watches)
            }
            CLOSE => Request::Close,
            write if WRITES.contains(&write) => Request::Write(write),
            other => Request::Other(other),
        })
    }

    /// Appends the frame of a request about nodes, of a ping, or of the end of a session. Others are empty records.
    pub fn encode(&self, xid: i32, out: &mut BytesMut) {
        let mut record = BytesMut::new();
        let (operation, path) = match self {
            Request::Exists(path) => (EXISTS, Some(path)),
            Request::GetData(path) => (GET_DATA, Some(path)),
            Request::GetAcl(path) => (GET_ACL, Some(path)),
            Request::GetChildren(path) => (GET_CHILDREN, Some(path)),
            Request::GetChildren2(path) => (GET_CHILDREN2, Some(path)),
            Request::GetAllChildrenNumber(path) => (GET_ALL_CHILDREN_NUMBER, Some(path)),
            Request::Sync(path) => (SYNC, Some(path)),
            Request::Ping => (PING, None),
            Request::Auth(..) => (AUTH, None),
            Request::SetWatches(_) => (SET_WATCHES, None),
            Request::Close => (CLOSE, None),
            Request::Write(operation) | Request::Other(operation) => (*operation, None),
        };
        record.put_i32(xid);
        record.put_i32(operation);
        if let Some(path) = path {
            put_text(&mut record, path);
            if !matches!(operation, GET_ACL | GET_ALL_CHILDREN_NUMBER | SYNC) {
                record.put_u8(0);
            }
        }
        match self {
            Request::Auth(scheme, credentials) => {
                record.put_i32(0);
                put_text(&mut record, scheme);
                put_buffer(&mut record, credentials);
            }
            Request::SetWatches(watches) => {
                record.put_i64(0);
                put_texts(&mut record, &vec![String::new(); watches.count]);
                put_texts(&mut record, &[]);
                put_texts(&mut record, &[]);
            }
            _ => {}
        }
        put_buffer(out, &record);
    }
}

impl RequestHeader {
    fn read(reader: &mut Reader) -> Result<Self, WireError> {
        Ok(RequestHeader {
            xid: reader.i32("number of a request")?,
            operation: reader.i32("operation")?,
        })
    }
}
