//! The calls of one connection, shared by their callers and the connection's task.
//!
//! Invariants:
//! * Every call in `calls` gets exactly one answer, or is removed by its caller.
//! * While `phase` is `Running` there is a task that answers all calls when it ends.
//! * A request in the queue is not sent; one that the socket has taken is marked in its slot.

use super::Shared;
use super::driver;
use crate::error::ProtocolError;
use crate::frame::{Encoded, FrameKind};
use crate::handshake::{TRACES_SINCE, WORK_SINCE};
use crate::limits::{BACKOFF, CALLS_IN_FLIGHT_MAX, CREDIT_EXCESS_BYTES};
use crate::messages::{CallHeader, CallKind};
use crate::segments::Segments;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::work::Work;
use stele_types::ErrorKind;
use tokio::sync::{mpsc, oneshot};

/// One connection at a time, and its calls.
#[derive(Default)]
pub(super) struct Lane(Mutex<State>);

#[derive(Default)]
struct State {
    phase: Phase,
    /// Frames that the connection has not taken.
    queue: VecDeque<Queued>,
    calls: BTreeMap<u64, Slot>,
    /// Number of the last call.
    last: u64,
    /// Failures since a connection was open.
    failures: u32,
    /// The version of the connection; 0 while none is open.
    version: u16,
    /// The task of the connection, when it waits for frames.
    task: Option<Waker>,
    /// Nobody will call any more.
    closed: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    /// A task connects, or is connected.
    Running,
    /// The server takes no more calls on this connection.
    Draining,
    /// There is no connection before this time.
    Paused(Duration, String),
}

/// A frame to be sent.
pub(super) struct Queued {
    pub frame: Encoded,
    /// Set if it is the request of a call.
    pub request_of: Option<u64>,
}

/// A call that waits for its answer.
struct Slot {
    reply: Reply,
    writes: bool,
    /// The socket has taken the whole request: it may be executed.
    sent: bool,
    /// Bytes of rows that may still arrive.
    credit: i64,
}

/// Where the answer goes.
pub(super) enum Reply {
    One(oneshot::Sender<ServiceResult<Bytes>>),
    /// Bounded by the credit.
    Many(mpsc::UnboundedSender<Arrival>),
}

/// Part of a stream that has arrived.
pub(super) enum Arrival {
    Rows {
        body: Bytes,
        last: bool,
    },
    /// The work of the whole read.
    Work(Box<Work>),
    Need(u64),
    Failed(ServiceError),
}

/// A call that was started. Dropping it gives the call up.
pub(super) struct Started {
    lane: Arc<Lane>,
    pub call: u64,
}

impl Lane {
    /// Queues a request, and sees that there is a connection for it.
    pub fn start(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        header: &CallHeader,
        body: Segments,
        reply: Reply,
    ) -> ServiceResult<Started> {
        // The checksum of a large request takes its time, without the lock.
        let frame = Encoded::new(FrameKind::Request, 0, 0, &header.encode(), body);
        let mut frame = frame.ok_or_else(|| {
            let message = "the request is longer than a frame may be";
            ServiceError::new(ErrorKind::ResourceExhausted, message)
        })?;
        let slot = Slot {
            reply,
            writes: header.kind.is_ok_and(CallKind::writes),
            sent: false,
            credit: i64::try_from(header.credit).unwrap_or(i64::MAX),
        };
        let (call, connects) = {
            let mut state = self.0.lock();
            // The request was encoded for a connection that has ended meanwhile. The next one may be of an older version.
            if header.version() > state.version {
                return Err(unavailable(shared, "the connection was lost"));
            }
            let connects = state.admit(shared)?;
            // Numbers ascend in the order of the queue, as the server wants them.
            state.last += 1;
            let call = state.last;
            frame.set_call(call);
            state.calls.insert(call, slot);
            state.push(frame, Some(call));
            (call, connects)
        };
        if connects {
            // A runtime that ends drops the task, which answers the call.
            let task = driver::run(Arc::clone(shared), Arc::clone(self));
            shared.env.spawn_here("peer connection", task);
        }
        Ok(Started {
            lane: Arc::clone(self),
            call,
        })
    }

    /// Nobody will call any more.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.wake();
    }

    /// Whether the server takes no more calls on the connection.
    pub fn is_draining(&self) -> bool {
        matches!(self.0.lock().phase, Phase::Draining)
    }

    /// Whether the connection is not needed any more.
    pub fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.calls.is_empty() && (state.closed || matches!(state.phase, Phase::Draining))
    }

    /// The connection is open, with this version of the protocol.
    pub fn opened(&self, version: u16) {
        let mut state = self.0.lock();
        state.failures = 0;
        state.version = version;
    }

    /// Whether a request may carry a trace now.
    pub fn carries_traces(&self) -> bool {
        self.0.lock().version >= TRACES_SINCE
    }

    /// Whether a read may be asked for its work now.
    pub fn tells_work(&self) -> bool {
        self.0.lock().version >= WORK_SINCE
    }

    /// The next frame to send; later the task `task` is woken.
    pub fn next_frame(&self, task: &Waker) -> Option<Queued> {
        let mut state = self.0.lock();
        let next = state.queue.pop_front();
        if next.is_none() && !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
        next
    }

    /// The socket has taken a request.
    pub fn sent(&self, call: u64) {
        if let Some(slot) = self.0.lock().calls.get_mut(&call) {
            slot.sent = true;
        }
    }

    /// Whether this many bytes of rows may arrive for a call.
    pub fn allows(&self, call: u64, bytes: usize) -> Result<(), ProtocolError> {
        // Rows of a call that its caller has cancelled are received and dropped.
        let Some(granted) = self.0.lock().calls.get(&call).map(|slot| slot.credit) else {
            return Ok(());
        };
        let most = granted.saturating_add(CREDIT_EXCESS_BYTES as i64);
        match i64::try_from(bytes).is_ok_and(|bytes| bytes <= most) {
            true => Ok(()),
            false => Err(ProtocolError::Credit {
                call,
                bytes: bytes as u64,
                granted: u64::try_from(granted).unwrap_or(0),
            }),
        }
    }

    /// Rows have arrived: a batch takes all credit.
    pub fn spend(&self, call: u64) {
        if let Some(slot) = self.0.lock().calls.get_mut(&call) {
            slot.credit = 0;
        }
    }

    /// Credit of a stream that is left.
    pub fn credit(&self, call: u64) -> i64 {
        self.0.lock().calls.get(&call).map_or(0, |slot| slot.credit)
    }

    /// Lets a stream send more.
    pub fn grant(&self, call: u64, bytes: u64) {
        let mut state = self.0.lock();
        if let Some(slot) = state.calls.get_mut(&call) {
            slot.credit = slot.credit.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
            state.push(Encoded::bare(FrameKind::Credit, call, &bytes.to_le_bytes()), None);
        }
    }

    /// The last answer of a call.
    pub fn answer(&self, call: u64, answer: ServiceResult<Bytes>) {
        let slot = self.0.lock().calls.remove(&call);
        if let Some(slot) = slot {
            slot.reply.answer(answer);
        }
    }

    /// A part of a stream.
    pub fn arrived(&self, call: u64, arrival: Arrival) {
        let is_last = matches!(arrival, Arrival::Rows { last: true, .. });
        let mut state = self.0.lock();
        if let Some(slot) = state.calls.get(&call)
            && let Reply::Many(to) = &slot.reply
        {
            // The reader may be about to cancel.
            let _ = to.send(arrival);
        }
        if is_last {
            state.calls.remove(&call);
        }
    }

    /// The server takes no more calls: those that are not sent are certainly not executed.
    pub fn drain(&self, shared: &Shared) {
        let unsent = {
            let mut state = self.0.lock();
            state.phase = Phase::Draining;
            state.take_unsent()
        };
        let error = unavailable(shared, "it is shutting down");
        unsent
            .into_iter()
            .for_each(|slot| slot.reply.answer(Err(error.clone())));
    }

    /// The connection has ended, or there was none. All its calls are answered.
    pub fn ended(&self, shared: &Shared, reason: &str) {
        let (was_lost, calls) = {
            let mut state = self.0.lock();
            // Not one that was never open, or that one of the two ends has closed.
            let was_lost = state.version > 0 && !state.closed && !matches!(state.phase, Phase::Draining);
            state.queue.clear();
            state.task = None;
            state.version = 0;
            let pause = match state.phase {
                Phase::Draining => BACKOFF.0,
                _ => BACKOFF.0.saturating_mul(1 << state.failures.min(16)).min(BACKOFF.1),
            };
            state.failures = state.failures.saturating_add(1);
            state.phase = Phase::Paused(shared.env.now().saturating_add(pause), reason.to_owned());
            (was_lost, std::mem::take(&mut state.calls))
        };
        if was_lost {
            shared.losses.note();
        }
        for slot in calls.into_values() {
            let error = match slot.sent && slot.writes {
                true => lost(shared, reason),
                false => unavailable(shared, reason),
            };
            slot.reply.answer(Err(error));
        }
    }
}

impl State {
    /// Whether a call may begin, and has to start the connection.
    fn admit(&mut self, shared: &Shared) -> ServiceResult<bool> {
        if self.calls.len() >= CALLS_IN_FLIGHT_MAX {
            let message = format!("too many calls wait for {}", shared.peer.identity);
            return Err(ServiceError::new(ErrorKind::Busy, message));
        }
        let connects = match &self.phase {
            Phase::Running => false,
            Phase::Idle => true,
            Phase::Paused(until, _) if shared.env.now() >= *until => true,
            Phase::Paused(..) | Phase::Draining => return Err(self.unavailable(shared)),
        };
        if connects {
            self.phase = Phase::Running;
        }
        Ok(connects)
    }

    /// The reason for which there is no connection.
    fn unavailable(&self, shared: &Shared) -> ServiceError {
        match &self.phase {
            Phase::Paused(_, reason) => unavailable(shared, reason),
            _ => unavailable(shared, "it is shutting down"),
        }
    }

    fn push(&mut self, frame: Encoded, request_of: Option<u64>) {
        self.queue.push_back(Queued { frame, request_of });
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Removes a call, or cancels it if its request has left the queue. Whether it was removed from the queue.
    fn give_up(&mut self, call: u64) -> bool {
        if self.calls.remove(&call).is_none() {
            return false;
        }
        let unsent = self.queue.iter().position(|queued| queued.request_of == Some(call));
        match unsent {
            Some(at) => drop(self.queue.remove(at)),
            None => self.push(Encoded::bare(FrameKind::Cancel, call, &[]), None),
        }
        if self.closed {
            self.wake();
        }
        unsent.is_some()
    }

    /// Calls whose requests are in the queue, without the requests.
    fn take_unsent(&mut self) -> Vec<Slot> {
        let unsent: Vec<u64> = self.queue.iter().filter_map(|queued| queued.request_of).collect();
        self.queue.retain(|queued| queued.request_of.is_none());
        unsent.iter().filter_map(|call| self.calls.remove(call)).collect()
    }
}

impl Reply {
    fn answer(self, answer: ServiceResult<Bytes>) {
        // The caller may have given up at this moment.
        match (self, answer) {
            (Reply::One(to), answer) => drop(to.send(answer)),
            (Reply::Many(to), Err(error)) => drop(to.send(Arrival::Failed(error))),
            (Reply::Many(to), Ok(_)) => {
                let message = "the server answered a read with something else than rows";
                drop(to.send(Arrival::Failed(ServiceError::new(ErrorKind::Internal, message))));
            }
        }
    }
}

impl Started {
    /// The lane.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The error of a call whose time is over.
    pub fn late(self, writes: bool, waited: Duration) -> ServiceError {
        // One that is not in the queue may have been sent in part, and the rest will follow.
        let was_unsent = self.lane.0.lock().give_up(self.call);
        match writes && !was_unsent {
            true => ServiceError::new(
                ErrorKind::Aborted,
                format!("the server did not answer within {waited:?}: the outcome is unknown"),
            ),
            false => ServiceError::new(ErrorKind::Busy, format!("the server did not answer within {waited:?}")),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.lane.0.lock().give_up(self.call);
    }
}

/// A call that was certainly not executed.
fn unavailable(shared: &Shared, reason: &str) -> ServiceError {
    let message = format!("{} is not reachable: {reason}", shared.peer.identity);
    ServiceError::new(ErrorKind::Unavailable, message)
}

/// A write that may have been executed.
fn lost(shared: &Shared, reason: &str) -> ServiceError {
    let message = format!(
        "the answer of {} was lost, so the outcome is unknown: {reason}",
        shared.peer.identity
    );
    ServiceError::new(ErrorKind::Aborted, message)
}
