//! One TCP connection to one service of one server, shared by all clients of a thread.
//!
//! Calls are pipelined: a caller appends its request to what is to be sent and waits; the socket's task sends what all
//! callers have appended since it last ran, in one system call, and hands answers out as they come, in any order. One
//! task does both directions, so a call costs two wakeups: the task's and the caller's.
//!
//! Invariants:
//! * Values are never copied: an answer refers to the buffer that it was read into.
//! * A socket that has failed once stays dead, and every call on it ends with [`Failure::Lost`].
//! * Nothing is sent twice.

use super::failure::Failure;
use super::slots::{Answer, Slots};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stele_wire::frame::{self, CellBlock, Response};
use stele_wire::messages::{ConnectionHeader, KEY_VALUE_CODEC, RequestHeader, UserInformation, VersionInfo};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// How exactly deadlines are kept: they are for servers that have stopped answering, not for measuring.
const TICK: Duration = Duration::from_millis(100);

/// For how long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests are gathered in buffers of this size; larger ones have a buffer of their own.
const GATHER_BYTES: usize = 64 << 10;

/// Written buffers kept for later requests: two batches under way and one being filled.
const SPARES_MAX: usize = 3;

/// Largest buffer kept; a rare giant need not stay.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// Bytes that may wait to be sent. A few hundred clients with two batches of 2 MiB each need that; more is a mistake.
const UNSENT_BYTES_MAX: usize = 1 << 30;

/// Room for each read: hundreds of point reads, a tenth of a scan's answer.
const READ_BYTES: usize = 256 << 10;

/// Below this much room, another buffer is taken before reading.
const READ_BYTES_MIN: usize = 32 << 10;

/// Largest answer: a scan's is 2 MiB unless one row is larger, which HBase allows.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The version that the driver claims, since servers answer old clients differently: the one that it was written for.
const CLIENT_VERSION: (u32, u32, &str) = (2, 6, "2.6.4");

/// One TCP connection. Closed when dropped.
#[derive(Debug)]
pub struct Socket {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: Slots,
    /// Encoded requests in order; the last one may still grow.
    unsent: VecDeque<BytesMut>,
    unsent_bytes: usize,
    /// Empty buffers for requests to come.
    spares: Vec<BytesMut>,
    /// The socket's task, unless it has been woken since it last ran.
    task: Option<Waker>,
    /// Deadlines are counted in these.
    tick: u32,
    /// Set once, when the socket is dead.
    dead: Option<Failure>,
}

/// What a call is, besides its message.
#[derive(Clone, Copy)]
pub struct Method {
    /// Name, as the service has it.
    pub name: &'static str,
    /// 0, or 200 for reads of `hbase:meta`.
    pub priority: u32,
}

impl Method {
    /// A method called with the usual priority.
    pub const fn named(name: &'static str) -> Self {
        Self { name, priority: 0 }
    }
}

impl Socket {
    /// Connects to a service. The socket's task is spawned on the runtime of the caller.
    ///
    /// # Errors
    /// A server that cannot be reached.
    pub async fn connect(address: &str, service: &str, timeout: Duration) -> Result<Self, Failure> {
        let lost = |why: String| Failure::Lost(format!("{address}: {why}").into());
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream = stream
            .map_err(|_| lost("no connection in time".into()))?
            .map_err(|e| lost(e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| lost(e.to_string()))?;
        let mut opening = BytesMut::with_capacity(GATHER_BYTES);
        frame::encode_preamble(&mut opening, &connection_header(service));
        let state = State {
            unsent_bytes: opening.len(),
            unsent: [opening].into(),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            timeout,
            state: Mutex::new(state),
        });
        tokio::spawn(count_ticks(Arc::downgrade(&shared)));
        let mut task = Task {
            stream,
            incoming: BytesMut::new(),
            writing: None,
            written: 0,
        };
        let its = shared.clone();
        tokio::spawn(async move {
            let failure = poll_fn(|cx| task.run(&its, cx)).await;
            its.die(&failure);
        });
        Ok(Self { shared })
    }

    /// Whether calls can be made.
    pub fn is_alive(&self) -> bool {
        self.shared.state.lock().dead.is_none()
    }

    /// Begins a call; the request is on its way whether or not the answer is waited for.
    ///
    /// # Errors
    /// A dead socket, or a request that cannot be encoded.
    pub fn call(
        &self,
        method: Method,
        message: &impl prost::Message,
        cells: &impl CellBlock,
    ) -> Result<Call<'_>, Failure> {
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        if let Some(dead) = &state.dead {
            return Err(dead.clone());
        }
        let ticks = (shared.timeout.as_millis() / TICK.as_millis()) as u32;
        let deadline = state.tick.saturating_add(ticks);
        let id = if state.unsent_bytes < UNSENT_BYTES_MAX {
            state.slots.begin(deadline)
        } else {
            None
        };
        let Some(id) = id else {
            drop(state);
            let failure = shared.lost("too many calls without an answer");
            shared.die(&failure);
            return Err(failure);
        };
        let header = RequestHeader {
            call_id: Some(id),
            method_name: Some(Bytes::from_static(method.name.as_bytes())),
            priority: (method.priority > 0).then_some(method.priority),
            timeout: Some(shared.timeout.as_millis() as u32),
            ..RequestHeader::default()
        };
        let room = message.encoded_len() + cells.encoded_len();
        if let Err(e) = state.append(room, |out| frame::encode_request(out, header, message, cells)) {
            state.slots.abandon(id);
            return Err(e.into());
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        Ok(Call {
            shared,
            id,
            over: false,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.die(&self.shared.lost("closed by its owner"));
    }
}

impl State {
    /// Lets a request be encoded into the last buffer if it fits there, else into another one.
    fn append<E>(&mut self, room: usize, encode: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
        // Header and lengths in front of the message have far less.
        let room = room + 256;
        let fits = self.unsent.back().is_some_and(|last| last.len() + room <= GATHER_BYTES);
        if !fits {
            let spare = self.spares.iter().position(|spare| spare.capacity() >= room);
            let buffer = spare.map(|at| self.spares.swap_remove(at));
            self.unsent
                .push_back(buffer.unwrap_or_else(|| BytesMut::with_capacity(room.max(GATHER_BYTES))));
        }
        let Some(out) = self.unsent.back_mut() else {
            return Ok(());
        };
        let before = out.len();
        let result = encode(out);
        self.unsent_bytes += out.len() - before;
        result
    }
}

impl Shared {
    fn lost(&self, why: &str) -> Failure {
        Failure::Lost(format!("{}: {why}", self.address).into())
    }

    /// Ends all calls and the task.
    fn die(&self, failure: &Failure) {
        let mut state = self.state.lock();
        state.dead.get_or_insert_with(|| failure.clone());
        state.unsent.clear();
        state.unsent_bytes = 0;
        let mut wakers = state.slots.fail(failure);
        wakers.extend(state.task.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn next_tick(&self) -> bool {
        let mut state = self.state.lock();
        if state.dead.is_some() {
            return false;
        }
        state.tick = state.tick.saturating_add(1);
        let tick = state.tick;
        let late = state.slots.expire(tick, self.timeout.as_millis() as u64);
        drop(state);
        late.into_iter().for_each(Waker::wake);
        true
    }
}

async fn count_ticks(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        if !shared.upgrade().is_some_and(|shared| shared.next_tick()) {
            return;
        }
    }
}

fn connection_header(service: &str) -> ConnectionHeader {
    let (major, minor, version) = CLIENT_VERSION;
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    ConnectionHeader {
        user_info: Some(UserInformation {
            effective_user: user.unwrap_or_else(|| "stele-bench".into()),
            real_user: None,
        }),
        service_name: Some(service.to_owned()),
        cell_block_codec_class: Some(KEY_VALUE_CODEC.to_owned()),
        cell_block_compressor_class: None,
        version_info: Some(VersionInfo {
            version: version.to_owned(),
            version_major: Some(major),
            version_minor: Some(minor),
            ..VersionInfo::default()
        }),
    }
}

/// A call under way. Dropping it gives the answer up, not the call.
pub struct Call<'a> {
    shared: &'a Shared,
    id: u32,
    over: bool,
}

impl Future for Call<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let answer = self.shared.state.lock().slots.poll(self.id, cx.waker());
        self.over = answer.is_ready();
        match answer {
            Poll::Ready(Ok(response)) => Poll::Ready(match &response.header.exception {
                Some(e) => Err(Failure::exception(e)),
                None => Ok(response),
            }),
            other => other,
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.shared.state.lock().slots.abandon(self.id);
        }
    }
}

/// The task that sends and receives.
struct Task {
    stream: TcpStream,
    incoming: BytesMut,
    /// The buffer being sent, and how much of it has been.
    writing: Option<BytesMut>,
    written: usize,
}

impl Task {
    /// Sends and receives until neither is possible; ready only when the socket is dead.
    fn run(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Failure> {
        {
            let mut state = shared.state.lock();
            if let Some(dead) = &state.dead {
                return Poll::Ready(dead.clone());
            }
            state.task = Some(cx.waker().clone());
        }
        if let Err(failure) = self.send(shared, cx) {
            return Poll::Ready(failure);
        }
        match self.receive(shared, cx) {
            Err(failure) => Poll::Ready(failure),
            Ok(()) => Poll::Pending,
        }
    }

    fn send(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            if self.writing.is_none() {
                let mut state = shared.state.lock();
                self.writing = state.unsent.pop_front();
                let taken = self.writing.as_ref().map_or(0, BytesMut::len);
                state.unsent_bytes -= taken;
                self.written = 0;
            }
            let Some(buffer) = &self.writing else { return Ok(()) };
            let rest = buffer.get(self.written..).unwrap_or_default();
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(e)) => return Err(shared.lost(&e.to_string())),
                Poll::Ready(Ok(0)) => return Err(shared.lost("the connection takes no more")),
                Poll::Ready(Ok(n)) => self.written += n,
            }
            if self.written == buffer.len() {
                self.keep_spare(shared);
            }
        }
    }

    /// Keeps the buffer that has been sent for requests to come.
    fn keep_spare(&mut self, shared: &Shared) {
        let Some(mut buffer) = self.writing.take() else { return };
        buffer.clear();
        let mut state = shared.state.lock();
        if state.spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            state.spares.push(buffer);
        }
    }

    fn receive(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            self.make_room()?;
            let read = pin!(self.stream.read_buf(&mut self.incoming)).poll(cx);
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(e)) => return Err(shared.lost(&e.to_string())),
                Poll::Ready(Ok(0)) => return Err(shared.lost("closed by the server")),
                Poll::Ready(Ok(_)) => self.hand_out(shared)?,
            }
        }
    }

    /// Makes room for a read: for the rest of a large answer step by step, so that a length alone allocates little.
    fn make_room(&mut self) -> Result<(), Failure> {
        let have = self.incoming.len();
        let frame = frame::frame_bytes(&self.incoming, ANSWER_BYTES_MAX)?.unwrap_or_default();
        let missing = frame.saturating_sub(have);
        if self.incoming.capacity() - have < READ_BYTES_MIN.max(missing.min(READ_BYTES)) {
            let step = missing.min(have.max(4 << 20));
            self.incoming.reserve(step.max(READ_BYTES));
        }
        Ok(())
    }

    /// Gives all whole answers to their callers.
    fn hand_out(&mut self, shared: &Shared) -> Result<(), Failure> {
        let mut state = shared.state.lock();
        while let Some(frame) = frame::take_frame(&mut self.incoming, ANSWER_BYTES_MAX)? {
            let response = frame::decode_response(frame)?;
            // Ids of calls are positive in Java; others mark an answer to the whole connection.
            let id = response.header.call_id.unwrap_or_default();
            if id == 0 || i32::try_from(id).is_err() {
                return Err(refusal(shared, &response));
            }
            if let Some(waker) = state.slots.answer(id, response) {
                waker.wake();
            }
        }
        Ok(())
    }
}

/// An answer that is for the whole connection: the server does not want it.
fn refusal(shared: &Shared, response: &Response) -> Failure {
    match &response.header.exception {
        Some(e) => shared.lost(&Failure::exception(e).to_string()),
        None => shared.lost("an answer to no call"),
    }
}
