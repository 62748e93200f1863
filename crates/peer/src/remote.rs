//! The tablets of another server as a [`TabletService`].
//!
//! Terms: a *lane* is one connection at a time, with the calls that wait for it. A server has as many lanes to another as it has
//! event loops, and a loop's calls take the same lane, whose connection then runs on that loop.
//!
//! **Outcome rule.** A call that was certainly not executed is `Unavailable`: there was no connection, or the last byte of its
//! request was not handed to the socket. The router repeats it. A write whose answer was lost after that is `Aborted`: its outcome is
//! unknown, and it must not be repeated blindly. A read or sample has no outcome, so it is `Unavailable` then.
//!
//! Bounds: a request's copy is charged to the memory for peers until it is answered. A lane has at most 8,192 calls. Rows arrive only as
//! far as their reader has memory for them, and one batch more that is charged to the memory for readahead.

mod driver;
mod lane;
mod losses;
mod rows;

use crate::handshake::Identity;
use crate::limits::{CALL_BYTES, MEMORY_WAIT};
use crate::messages::{self, CallHeader, CallKind};
use crate::origin::encode_caller;
use crate::segments::Segments;
use crate::traced::with_trace;
use crate::writes;
use async_trait::async_trait;
use bytes::Bytes;
use lane::{Lane, Reply};
use parking_lot::RwLock;
use rows::RemoteRows;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stele_access::NamedCaller;
use stele_client::{
    RowOutcome, RowStream, ServiceError, ServiceResult, TabletFigures, TabletRead, TabletRowOperation,
    TabletRowsOperation, TabletSample, TabletService,
};
use stele_env::Env;
use stele_env::trace::{self, Stage};
use stele_memory::{Consumer, Part, Pool, Reservation};
use stele_types::{Durability, ErrorKind, RowWrites, TabletId};
use tokio::sync::oneshot;

pub use losses::{LossWatch, Losses};

/// Lanes at most: the cores of a large machine.
const LANES_MAX: usize = 64;

/// Numbers of threads, in the order in which they made their first call.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A server to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity; an epoch of 0 stands for any.
    pub identity: Identity,
    /// Where it listens.
    pub address: String,
}

/// Choices of the caller.
#[derive(Clone, Copy, Debug)]
pub struct RemoteOptions {
    /// Connections at most: one for each event loop.
    pub lanes: usize,
    /// Time that a call, or the next batch of a stream, may take.
    pub call_wait: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions {
            lanes: 1,
            // Longer than a write waits for memory or for a busy disk, shorter than clients wait.
            call_wait: Duration::from_secs(20),
        }
    }
}

/// The tablets of one other server.
pub struct RemoteTablets {
    shared: Arc<Shared>,
    /// A lane that takes no more calls, and still has some, is replaced.
    lanes: Vec<RwLock<Arc<Lane>>>,
}

/// Everything that calls use.
struct Shared {
    env: Env,
    own: Identity,
    peer: Peer,
    call_wait: Duration,
    /// Where connections that were lost are noted.
    losses: Losses,
    requests: Consumer,
    readahead: Consumer,
}

impl Shared {
    /// Begins the stage of a traced request in which this server is called.
    fn hop(&self, tablet: TabletId) -> Stage {
        let mut hop = trace::stage("call server");
        hop.note(|facts| (facts.tablet, facts.server) = (Some(tablet.0), Some(self.peer.identity.server)));
        hop
    }

    /// Memory of a request's copy. One that is larger than the share waits for all of it: the client's request may have the overdraft.
    async fn reserve(&self, body: &Segments) -> ServiceResult<Reservation> {
        let bytes = body.copied() + CALL_BYTES;
        let reserved = self.requests.reserve(&self.env, bytes, MEMORY_WAIT).await;
        reserved.map_err(|_| {
            let message = "too many requests wait for other servers";
            ServiceError::new(ErrorKind::Busy, message)
        })
    }
}

impl RemoteTablets {
    /// The tablets of `peer`, called by `own`. Nothing is connected before the first call.
    pub fn new(env: Env, pool: &Pool, own: Identity, peer: Peer, options: RemoteOptions) -> Self {
        Self::noting((env, pool), own, peer, options, Losses::default())
    }

    /// The same, which notes the connections that it loses.
    pub fn noting(
        (env, pool): (Env, &Pool),
        own: Identity,
        peer: Peer,
        options: RemoteOptions,
        losses: Losses,
    ) -> Self {
        let shared = Arc::new(Shared {
            env,
            own,
            peer,
            call_wait: options.call_wait,
            losses,
            requests: pool.of(Part::Peers),
            readahead: pool.of(Part::Readahead),
        });
        let lanes = (0..options.lanes.clamp(1, LANES_MAX))
            .map(|_| RwLock::default())
            .collect();
        RemoteTablets { shared, lanes }
    }

    /// The server that is called.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Has later calls use new connections. The present ones end with their calls.
    pub fn renew(&self) {
        for lane in &self.lanes {
            std::mem::take(&mut *lane.write()).close();
        }
    }

    /// The lane of the calling thread.
    fn lane(&self) -> Arc<Lane> {
        let thread = THREAD.get().unwrap_or_else(|| {
            let next = THREADS.fetch_add(1, Ordering::Relaxed);
            THREAD.set(Some(next));
            next
        });
        let place = &self.lanes[thread % self.lanes.len()];
        let lane = Arc::clone(&*place.read());
        if !lane.is_draining() {
            return lane;
        }
        // The server may go on to serve: it also ends the connections of callers that it trusted before.
        let mut lane = place.write();
        if lane.is_draining() {
            *lane = Arc::default();
        }
        Arc::clone(&*lane)
    }

    /// Asks for something about the cluster, and waits for the answer at most this long. A lost answer is `Aborted`: the call
    /// may have been carried out.
    pub async fn control(&self, request: Bytes, wait: Duration) -> ServiceResult<Bytes> {
        let body = messages::encode_control(&request);
        self.call_within(CallKind::Control, TabletId(0), body, wait).await
    }

    /// Calls and waits for the answer.
    async fn call(&self, kind: CallKind, tablet: TabletId, body: Segments) -> ServiceResult<Bytes> {
        self.call_within(kind, tablet, body, self.shared.call_wait).await
    }

    async fn call_within(
        &self,
        kind: CallKind,
        tablet: TabletId,
        body: Segments,
        wait: Duration,
    ) -> ServiceResult<Bytes> {
        let (shared, lane) = (&self.shared, self.lane());
        let hop = shared.hop(tablet);
        // A control call is not repeated, so its connection must not matter.
        let carried = hop
            .carried()
            .filter(|_| kind != CallKind::Control && lane.carries_traces());
        let (has_caller, body) = with_caller(body);
        let body = with_trace(carried, body);
        let _reserved = shared.reserve(&body).await?;
        let header = CallHeader {
            kind: Ok(kind),
            takes_partial_rows: false,
            has_caller,
            has_trace: carried.is_some(),
            tells_work: false,
            left: Some(wait),
            tablet,
            credit: 0,
        };
        let (tell, told) = oneshot::channel();
        let started = lane.start(shared, &header, body, Reply::One(tell))?;
        match shared.env.timeout(wait, told).await {
            Ok(Ok(answer)) => answer,
            // The lane answers every call, also when its connection's task is dropped.
            Ok(Err(_)) => Err(ServiceError::new(ErrorKind::Aborted, "the call was given up")),
            Err(_) => Err(started.late(kind.writes(), wait)),
        }
    }
}

/// The body behind the caller on whose behalf the task works, if there is one.
fn with_caller(body: Segments) -> (bool, Segments) {
    match NamedCaller::current() {
        Some(caller) => (true, encode_caller(&caller, body)),
        None => (false, body),
    }
}

impl Drop for RemoteTablets {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.read().close());
    }
}

#[async_trait]
impl TabletService for RemoteTablets {
    /// The read begins with the first batch that is asked for: only then is known how much memory there is for it.
    async fn read(&self, tablet: TabletId, mut request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        // Caches were probed here, not at the owner.
        request.waits = false;
        let body = messages::encode_read(&request)?;
        let lane = self.lane();
        Ok(Box::new(RemoteRows::new(Arc::clone(&self.shared), lane, tablet, body)))
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        writes::check(&rows)?;
        let plain = async || {
            let body = messages::encode_mutate(&rows, durability);
            self.call(CallKind::Mutate, tablet, body).await
        };
        let answered = match rows.server_time() {
            None => plain().await,
            Some(time) => {
                let body = messages::encode_timed_mutate(&rows, durability, time.at);
                match self.call(CallKind::TimedMutate, tablet, body).await {
                    // An earlier version, which keeps the time of this server.
                    Err(error) if error.kind == ErrorKind::Unimplemented => plain().await,
                    answered => answered,
                }
            }
        };
        match answered?.is_empty() {
            true => Ok(()),
            false => Err(ServiceError::new(
                ErrorKind::Aborted,
                "the answer to a write is malformed",
            )),
        }
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        let (kind, body) = messages::encode_row_operation(&request)?;
        let answer = self.call(kind, tablet, body).await?;
        messages::decode_outcome(answer).map_err(|e| ServiceError::new(ErrorKind::Aborted, e.to_string()))
    }

    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        let body = messages::encode_rows_operation(&request)?;
        let answer = self.call(CallKind::RowsOperation, tablet, body).await?;
        messages::decode_held(answer).map_err(|e| ServiceError::new(ErrorKind::Aborted, e.to_string()))
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        let body = messages::encode_sample_request(every);
        let answer = self.call(CallKind::Sample, tablet, body).await?;
        messages::decode_sample(answer).map_err(|e| ServiceError::new(ErrorKind::Internal, e.to_string()))
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        match self.call(CallKind::Figures, tablet, Segments::default()).await {
            Ok(answer) => {
                messages::decode_figures(answer).map_err(|e| ServiceError::new(ErrorKind::Internal, e.to_string()))
            }
            // An earlier version.
            Err(error) if error.kind == ErrorKind::Unimplemented => {
                let sample = self.sample(tablet, u64::MAX).await?;
                Ok(TabletFigures::of_bytes(sample.bytes))
            }
            Err(error) => Err(error),
        }
    }
}
