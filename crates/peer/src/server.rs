//! Serves the tablets of this server to others.
//!
//! One task drives a connection and all of its calls. In each poll it takes the frames that have arrived, starts and continues
//! calls, and gathers their answers. When none of these makes progress, it writes the gathered output. A call that is ready when it
//! is first polled costs no task.
//!
//! Bounds: a connection has at most 16,384 calls. Once it has gathered a megabyte of output it takes no more frames. The bytes of a
//! request are charged to the memory of requests before they are received; one that is larger than all of it takes the overdraft,
//! or is refused. A batch of rows is read under a reservation of the memory for peers, which waits for nothing but this
//! connection's socket.
//!
//! Invariant: a call that has begun is polled until it ends, also if its caller takes no answers. It may hold the latch of a row
//! or the gate of a tablet, and calls of other connections wait for that.

mod calls;
mod connection;
mod room;
mod rows;

use crate::control::{ControlService, NoControl};
use crate::error::ProtocolError;
use crate::handshake::{Answer, HELLO_BYTES, Hello, Identity, Refusal, VERSIONS};
use crate::limits::{CONNECT_WAIT, OUTPUT_WAIT, SILENCE_MAX};
use crate::origin::Origin;
use connection::Connection;
use futures::FutureExt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use stele_access::{Forwarded, NamedCaller};
use stele_client::TabletService;
use stele_env::Env;
use stele_memory::{Consumer, Part, Pool};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The reason for which a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It did not begin in time.
    #[error("the connection did not begin within {CONNECT_WAIT:?}")]
    NotBegun,
    /// This caller is not served.
    #[error("{0} was refused: {1}")]
    Refused(Identity, Refusal),
    /// The caller takes no answers.
    #[error("the caller took no answer for {OUTPUT_WAIT:?}")]
    NotTaken,
    /// The caller gives no sign of life.
    #[error("nothing arrived for {SILENCE_MAX:?}")]
    Silent,
    /// The caller broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The other end of a connection, and the parts that its calls need.
struct Caller {
    identity: Identity,
    is_proven: bool,
    control: Arc<dyn ControlService>,
    forwarded: Option<Arc<Forwarded>>,
}

impl Caller {
    /// The origin of a call for this caller of a client's call.
    fn origin(&self, caller: Option<NamedCaller>) -> Origin {
        Origin {
            from: self.identity,
            is_proven: self.is_proven,
            caller,
        }
    }
}

/// Serves connections of other servers. Cloning shares it.
#[derive(Clone)]
pub struct PeerServer {
    own: Identity,
    shared: Arc<Shared>,
    control: Arc<dyn ControlService>,
    forwarded: Option<Arc<Forwarded>>,
    is_proven: bool,
}

/// Everything that calls use.
struct Shared {
    env: Env,
    tablets: Arc<dyn TabletService>,
    requests: Consumer,
    batches: Consumer,
}

impl PeerServer {
    /// Serves these tablets as this server.
    pub fn new(env: Env, pool: &Pool, own: Identity, tablets: Arc<dyn TabletService>) -> Self {
        let shared = Arc::new(Shared {
            env,
            tablets,
            requests: pool.of(Part::Requests),
            batches: pool.of(Part::PeerRows),
        });
        PeerServer {
            own,
            shared,
            control: Arc::new(NoControl),
            forwarded: None,
            is_proven: false,
        }
    }

    /// Has control calls answered.
    #[must_use]
    pub fn with_control(mut self, control: Arc<dyn ControlService>) -> Self {
        self.control = control;
        self
    }

    /// Writes calls that are forwarded to the audit log.
    #[must_use]
    pub fn forwarded_to(mut self, log: Option<Arc<Forwarded>>) -> Self {
        self.forwarded = log;
        self
    }

    /// The same for a connection whose other end has shown that it is a server of the cluster.
    #[must_use]
    pub fn proven(mut self) -> Self {
        self.is_proven = true;
        self
    }

    /// Serves a connection to its end. Once `drain` completes no more calls are taken, and the connection ends when those in
    /// flight have ended.
    pub async fn serve<T>(&self, mut socket: T, drain: impl Future<Output = ()>) -> Result<(), ConnectionError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let mut drain = pin!(drain.fuse());
        let draining = (&mut drain).now_or_never().is_some();
        let begun = self.shared.env.timeout(CONNECT_WAIT, self.begin(&mut socket, draining));
        let caller = begun.await.map_err(|_| ConnectionError::NotBegun)??;
        let mut connection = Connection::new(
            socket,
            Arc::clone(&self.shared),
            Caller {
                identity: caller,
                is_proven: self.is_proven,
                control: Arc::clone(&self.control),
                forwarded: self.forwarded.clone(),
            },
        );
        poll_fn(|cx| {
            // A fused future is pending once it has completed.
            if drain.as_mut().poll(cx).is_ready() {
                connection.drain();
            }
            connection.poll(cx)
        })
        .await
    }

    /// Shakes hands; the caller.
    async fn begin<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: &mut T,
        draining: bool,
    ) -> Result<Identity, ConnectionError> {
        let mut hello = [0; HELLO_BYTES];
        socket.read_exact(&mut hello).await?;
        let hello = Hello::decode(&hello)?;
        let version = self.judge(&hello, draining);
        let answer = Answer {
            version,
            versions: VERSIONS,
            owner: self.own,
        };
        socket.write_all(&answer.encode()).await?;
        socket.flush().await?;
        match version {
            Ok(_) => Ok(hello.caller),
            Err(refusal) => {
                socket.shutdown().await?;
                Err(ConnectionError::Refused(hello.caller, refusal))
            }
        }
    }

    fn judge(&self, hello: &Hello, draining: bool) -> Result<u16, Refusal> {
        let version = hello.judge(&self.own, &VERSIONS)?;
        match draining {
            true => Err(Refusal::Draining),
            false => Ok(version),
        }
    }
}
