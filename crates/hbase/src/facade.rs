//! A façade of ZooKeeper: the nodes that name a cluster's servers.
//!
//! It is for clients that can set nothing but a ZooKeeper quorum, and for the sources of HBase's replication. It answers
//! reads of the nodes in [`nodes`] and refuses all changes as a read-only server does. There is no ensemble behind it,
//! and nothing is stored.
//!
//! The nodes do not change while the process runs, so no watch ever fires. Session ids begin with a mark of the process:
//! a client of an earlier one is told that its session has expired, and reads everything again.
//!
//! Bounds: a connection has one request at a time, of at most [`FRAME_BYTES_MAX`] bytes. A client that is silent for the
//! time of its session, or takes no response, loses the connection.

mod nodes;

use crate::connection::ConnectionError;
use crate::context::Identity;
use crate::front_end::HBaseFrontEnd;
use bytes::BytesMut;
use futures::future::{Either, select};
use nodes::Nodes;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;
use stele_env::Env;
use stele_wire::zookeeper::{
    ARE_YOU_OK, Body, Code, ConnectRequest, ConnectResponse, FRAME_BYTES_MAX, I_AM_OK, Request, Response, take_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Time of a session at least and at most: those of a ZooKeeper whose tick is two seconds.
const SESSION_MS: (i32, i32) = (4_000, 40_000);
/// Time in which a connection must begin.
const BEGIN_WAIT: Duration = Duration::from_secs(20);
/// Time in which a client must take a response.
const RESPONSE_WAIT: Duration = Duration::from_secs(20);
/// Bits of a session id that tell the sessions of a process apart.
const OWN_BITS: u32 = 24;

impl HBaseFrontEnd {
    /// Serves a connection of ZooKeeper's protocol to its end. `drain` ends it.
    ///
    /// # Errors
    /// A connection that ends in another way than by its client or by `drain`.
    pub async fn serve_zookeeper<T>(&self, socket: T, drain: impl Future<Output = ()>) -> Result<(), ConnectionError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let serving = pin!(serve(&self.shared.env, &self.shared.identity, socket));
        match select(serving, pin!(drain)).await {
            Either::Left((ended, _)) => ended,
            // Requests only read: a client repeats one that gets no response.
            Either::Right(((), _)) => Ok(()),
        }
    }
}

/// The bytes of a connection.
struct Wire<'a, T> {
    env: &'a Env,
    socket: T,
    received: BytesMut,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<'_, T> {
    /// Receives some bytes within a time. `false` at the end of the connection.
    async fn receive(&mut self, wait: Duration) -> Result<bool, ConnectionError> {
        self.received.reserve(1 << 10);
        let read = self.socket.read_buf(&mut self.received);
        match self.env.timeout(wait, read).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Err(ConnectionError::Silent(wait)),
        }
    }

    /// The next frame. `None` at the end of the connection.
    async fn frame(&mut self, wait: Duration) -> Result<Option<bytes::Bytes>, ConnectionError> {
        loop {
            if let Some(frame) = take_frame(&mut self.received)? {
                return Ok(Some(frame));
            }
            debug_assert!(self.received.len() <= 2 * FRAME_BYTES_MAX, "no more than a frame waits");
            if !self.receive(wait).await? {
                return Ok(None);
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        let written = async {
            self.socket.write_all(bytes).await?;
            self.socket.flush().await
        };
        match self.env.timeout(RESPONSE_WAIT, written).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(ConnectionError::Io(io::ErrorKind::TimedOut.into())),
        }
    }
}

async fn serve<T>(env: &Env, identity: &Identity, socket: T) -> Result<(), ConnectionError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire {
        env,
        socket,
        received: BytesMut::new(),
    };
    while wire.received.len() < ARE_YOU_OK.len() {
        if !wire.receive(BEGIN_WAIT).await? {
            return Ok(());
        }
    }
    if wire.received.starts_with(ARE_YOU_OK) {
        return wire.send(I_AM_OK).await;
    }
    let Some(frame) = wire.frame(BEGIN_WAIT).await? else {
        return Ok(());
    };
    let connected = connect(env, identity, &ConnectRequest::decode(frame)?);
    let mut out = BytesMut::new();
    connected.encode(&mut out);
    wire.send(&out).await?;
    if connected.session_id == 0 {
        return Ok(());
    }
    let nodes = Nodes::of(identity, connected.session_id);
    let wait = Duration::from_millis(u64::try_from(connected.timeout_ms).unwrap_or(0));
    while let Some(frame) = wire.frame(wait).await? {
        let (response, ends) = match Request::decode(frame) {
            Ok((header, request)) => answer(&nodes, header.xid, &request),
            Err((Some(header), _)) => (response(header.xid, Err(Code::BadArguments)), false),
            Err((None, error)) => return Err(error.into()),
        };
        let mut out = BytesMut::new();
        response.encode(&mut out);
        wire.send(&out).await?;
        if ends {
            return Ok(());
        }
    }
    Ok(())
}

/// Opens a session, or goes on with one of this process.
fn connect(env: &Env, identity: &Identity, request: &ConnectRequest) -> ConnectResponse {
    let mark = i64::try_from(identity.start_code & 0x7f_ffff_ffff).unwrap_or(1);
    let has_read_only = request.read_only.is_some();
    let session_id = match request.session_id {
        0 => (mark << OWN_BITS) | (env.random_u64() & ((1 << OWN_BITS) - 1)) as i64,
        known if known >> OWN_BITS == mark => known,
        _ => {
            return ConnectResponse {
                timeout_ms: 0,
                session_id: 0,
                has_read_only,
            };
        }
    };
    ConnectResponse {
        timeout_ms: request.timeout_ms.clamp(SESSION_MS.0, SESSION_MS.1),
        session_id,
        has_read_only,
    }
}

fn response(xid: i32, outcome: Result<Body, Code>) -> Response {
    let (code, body) = match outcome {
        Ok(body) => (Code::Ok, body),
        Err(code) => (code, Body::Empty),
    };
    Response { xid, code, body }
}

/// The response to a request, and whether it is the last one.
fn answer(nodes: &Nodes, xid: i32, request: &Request) -> (Response, bool) {
    let node = |path: &str| nodes.get(path).ok_or(Code::NoNode);
    let outcome = match request {
        Request::Exists(path) => node(path).map(|node| Body::Stat(node.stat)),
        Request::GetData(path) => node(path).map(|node| Body::Data(node.data.clone(), node.stat)),
        Request::GetAcl(path) => node(path).map(|node| Body::Acl(node.stat)),
        Request::GetChildren(path) => node(path).map(|node| Body::Children(node.children.clone(), None)),
        Request::GetChildren2(path) => node(path).map(|node| Body::Children(node.children.clone(), Some(node.stat))),
        Request::GetAllChildrenNumber(path) => node(path).map(|_| Body::Number(nodes.below(path))),
        Request::Sync(path) => Ok(Body::Path(path.clone())),
        // Every user may read, so no credentials are refused.
        Request::Ping | Request::Auth(..) | Request::SetWatches(_) | Request::Close => Ok(Body::Empty),
        Request::Write(_) => Err(Code::NotReadOnly),
        Request::Other(_) => Err(Code::Unimplemented),
    };
    (response(xid, outcome), *request == Request::Close)
}

#[cfg(test)]
mod tests;
