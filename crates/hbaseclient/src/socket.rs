//! One TCP connection to one service of one server, shared by all its callers.
//!
//! Calls are pipelined: a caller appends its request to the unsent bytes and waits. The socket's task sends all
//! requests that were appended since it last ran in one system call, and distributes responses as they arrive, in any
//! order. One task does both directions, so a call costs two wakeups: the task's and the caller's.
//!
//! Invariants:
//! * Values are never copied: a response refers to the buffer that it was read into.
//! * A socket that has failed once stays dead, and every call on it ends with [`Failure::Lost`].
//! * Nothing is sent twice.

use crate::failure::Failure;
use crate::settings::{Settings, Token};
use crate::slots::{Answer, Slots};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stele_wire::frame::{self, CellBlock};
use stele_wire::messages::{ConnectionHeader, NameBytesPair, RequestHeader, UserInformation, VersionInfo};
use task::Task;

mod task;

/// Precision of deadlines. They are for servers that have stopped responding, not for measuring.
const TICK: Duration = Duration::from_millis(100);

/// Longest time for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests are gathered in buffers of this size. Larger ones have a buffer of their own.
const GATHER_BYTES: usize = 64 << 10;

/// Most unsent bytes. A few hundred clients with two batches of 2 MiB each need that; more is an error.
const UNSENT_BYTES_MAX: usize = 1 << 30;

/// The version that the client claims, since a server's responses depend on it: the version that it was written for.
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
    /// Empty buffers for later requests.
    spares: Vec<BytesMut>,
    /// The socket's task, unless it has been woken since it last ran.
    task: Option<Waker>,
    /// Deadlines are counted in these.
    tick: u32,
    /// Set once, when the socket is dead.
    dead: Option<Failure>,
}

/// The properties of a call besides its message.
#[derive(Clone, Copy)]
pub struct Method {
    /// Name in the service.
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
    /// A server that cannot be reached, or must not get the token.
    pub async fn connect(address: &str, service: &str, settings: &Settings) -> Result<Self, Failure> {
        let token = settings.token_for(address)?;
        let lost = |why: String| Failure::Lost(format!("{address}: {why}").into());
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, settings.dial.connect(address)).await;
        let stream = stream
            .map_err(|_| lost("no connection in time".into()))?
            .map_err(|e| lost(e.to_string()))?;
        let mut opening = BytesMut::with_capacity(GATHER_BYTES);
        frame::encode_preamble(&mut opening, &connection_header(service, token, settings));
        let state = State {
            unsent_bytes: opening.len(),
            unsent: [opening].into(),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            timeout: settings.timeout,
            state: Mutex::new(state),
        });
        tokio::spawn(count_ticks(Arc::downgrade(&shared)));
        let mut task = Task::new(stream);
        let last = LastWord(shared.clone());
        tokio::spawn(async move {
            let failure = poll_fn(|cx| task.run(&last.0, cx)).await;
            last.0.die(&failure);
        });
        Ok(Self { shared })
    }

    /// Whether the socket takes calls.
    pub fn is_alive(&self) -> bool {
        self.shared.state.lock().dead.is_none()
    }

    /// Begins a call. The request is sent whether or not the caller waits for the response.
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
            let failure = shared.lost("too many calls without a response");
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

/// Held by the socket's task. However the task ends, this fails all waiting calls.
struct LastWord(Arc<Shared>);

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.die(&self.0.lost("the runtime that it was made on has ended"));
    }
}

impl State {
    /// Provides a buffer for encoding a request: the last one if it fits there, otherwise another one.
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

/// The attribute of a connection with its token.
fn authorization(token: &Token) -> NameBytesPair {
    NameBytesPair {
        name: "authorization".to_owned(),
        value: Some(token.value()),
    }
}

fn connection_header(service: &str, token: Option<&Token>, settings: &Settings) -> ConnectionHeader {
    let (major, minor, version) = CLIENT_VERSION;
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    ConnectionHeader {
        user_info: Some(UserInformation {
            effective_user: user.unwrap_or_else(|| settings.user.into()),
            real_user: None,
        }),
        service_name: Some(service.to_owned()),
        cell_block_codec_class: Some(settings.codec.to_owned()),
        cell_block_compressor_class: None,
        version_info: Some(VersionInfo {
            version: version.to_owned(),
            version_major: Some(major),
            version_minor: Some(minor),
            ..VersionInfo::default()
        }),
        attribute: token.into_iter().map(authorization).collect(),
    }
}

/// A call in progress. Dropping it gives up the response, not the call.
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
