//! The task of one connection: connects, shakes hands, sends requests and distributes answers.

use super::lane::{Arrival, Lane};
use super::{Peer, Shared};
use crate::error::ProtocolError;
use crate::frame::{Encoded, Frame, FrameKind, Head, LAST, OUTCOME_UNKNOWN, WORK};
use crate::handshake::{ANSWER_BYTES, Answer, Hello, Refusal, VERSIONS};
use crate::input::Input;
use crate::limits::{CONNECT_WAIT, GIVE_UP_AFTER, OUTPUT_BYTES_MAX, PING_EVERY, QUIET_AFTER, STANDSTILL_MAX};
use crate::messages;
use crate::output::Output;
use crate::worked::decode_work;
use futures::future::BoxFuture;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stele_env::network::Connection;
use stele_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Time between checks for silence.
const TICK: Duration = Duration::from_secs(1);

/// The reason for which there is no connection any more.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("it did not answer within {CONNECT_WAIT:?}")]
    NotBegun,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("it closed the connection")]
    Closed,
    #[error("it gives no sign of life")]
    Silent,
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Answers the calls of a lane when the task ends in any way.
struct Answering {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    reason: String,
}

impl Answering {
    fn end(mut self, reason: String) {
        self.reason = reason;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.lane.ended(&self.shared, &self.reason);
    }
}

/// Runs one connection of a lane to its end.
pub(super) fn run(shared: Arc<Shared>, lane: Arc<Lane>) -> impl Future<Output = ()> + Send + 'static {
    // It is made before the first poll: a task may be dropped before that.
    let answering = Answering {
        shared: Arc::clone(&shared),
        lane: Arc::clone(&lane),
        reason: "the task of the connection was dropped".to_owned(),
    };
    async move {
        let reason = match drive(&shared, &lane).await {
            Ok(()) => "it is shutting down".to_owned(),
            Err(error) => {
                let Peer { identity, address } = &shared.peer;
                tracing::debug!(peer = %identity, address, %error, "no connection to a server");
                error.to_string()
            }
        };
        answering.end(reason);
    }
}

async fn drive(shared: &Arc<Shared>, lane: &Arc<Lane>) -> Result<(), Ended> {
    let opening = shared.env.timeout(CONNECT_WAIT, open(shared)).await;
    let (socket, version) = opening.map_err(|_| Ended::NotBegun)??;
    lane.opened(version);
    let now = shared.env.now();
    let mut open = Open {
        socket,
        shared: Arc::clone(shared),
        lane: Arc::clone(lane),
        input: Input::default(),
        output: Output::new(),
        heard: now,
        sent: (0, now),
        asked: now,
        unanswered: 0,
        stood_still: false,
        tick: tick(shared),
    };
    poll_fn(|cx| open.poll(cx)).await
}

/// Connects and shakes hands; the connection and its version.
async fn open(shared: &Shared) -> Result<(Connection, u16), Ended> {
    let mut socket = shared.env.connect(&shared.peer.address).await?;
    let hello = Hello {
        versions: VERSIONS,
        caller: shared.own,
        owner: shared.peer.identity,
    };
    socket.write_all(&hello.encode()).await?;
    socket.flush().await?;
    let mut answer = [0; ANSWER_BYTES];
    socket.read_exact(&mut answer).await?;
    let version = Answer::decode(&answer)?.accept(&hello)?;
    Ok((socket, version))
}

/// A connection that is open.
struct Open {
    socket: Connection,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    input: Input,
    /// Marks are the calls whose requests these are.
    output: Output<u64>,
    /// When something arrived last, or was received at the other end.
    heard: Duration,
    /// Bytes that the socket has taken, and when it took the last.
    sent: (u64, Duration),
    /// When the last ping was sent.
    asked: Duration,
    /// Pings without an answer.
    unanswered: u64,
    /// This server stood still, and not all pings have been answered since.
    stood_still: bool,
    tick: BoxFuture<'static, ()>,
}

impl Open {
    /// Makes all progress that is possible. Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let now = self.shared.env.now();
        if self.output.is_empty() && now.saturating_sub(self.sent.1) >= STANDSTILL_MAX {
            self.stood_still = true;
            self.ping(now);
        }
        loop {
            let mut progress = match self.poll_input(cx) {
                Poll::Ready(Ok(progress)) => progress,
                Poll::Ready(Err(ended)) => return Poll::Ready(Err(ended)),
                Poll::Pending => false,
            };
            while self.output.len() < OUTPUT_BYTES_MAX
                && !self.is_quiet(now)
                && let Some(queued) = self.lane.next_frame(cx.waker())
            {
                self.output.push(queued.frame, queued.request_of);
                progress = true;
            }
            let before = self.output.len();
            let written = self.poll_write(now, cx);
            while let Some(call) = self.output.take_mark() {
                self.lane.sent(call);
            }
            match written {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                // There was no space for more frames before.
                Poll::Ready(Ok(())) if before >= OUTPUT_BYTES_MAX => progress = true,
                _ => {}
            }
            if !progress {
                break;
            }
        }
        if self.lane.is_over() {
            return Poll::Ready(Ok(()));
        }
        self.poll_life(cx)
    }

    /// Distributes the frames that have arrived; whether there were any.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Ended>> {
        let mut progress = false;
        loop {
            if let Some(head) = self.input.head()? {
                self.check(&head)?;
                if let Some(frame) = self.input.take()? {
                    progress = true;
                    self.frame(frame)?;
                    continue;
                }
            }
            match self.input.poll_read(&mut self.socket, cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Ended::Closed)),
                Poll::Ready(Ok(_)) => self.heard = self.shared.env.now(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Ready(Ok(progress)),
            }
        }
    }

    /// Refuses frames that are not an owner's before memory is allocated for them. Rows are bounded by credit.
    fn check(&mut self, head: &Head) -> Result<(), ProtocolError> {
        match head.kind {
            FrameKind::Rows => self.lane.allows(head.call, head.body_bytes()),
            FrameKind::Response | FrameKind::Error | FrameKind::Need | FrameKind::Drain | FrameKind::Pong => Ok(()),
            kind => Err(ProtocolError::FrameKind(kind as u8)),
        }
    }

    fn frame(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        let call = frame.call;
        match frame.kind {
            FrameKind::Response => self.lane.answer(call, Ok(frame.body)),
            FrameKind::Rows => {
                self.lane.spend(call);
                let last = frame.flags & LAST != 0;
                let mut body = frame.body;
                if frame.flags & WORK != 0 {
                    let work = decode_work(std::mem::take(&mut body))?;
                    self.lane.arrived(call, Arrival::Work(Box::new(work)));
                }
                self.lane.arrived(call, Arrival::Rows { body, last });
            }
            FrameKind::Error => {
                let is_unknown = frame.flags & OUTCOME_UNKNOWN != 0;
                let mut error = messages::decode_error(frame.header, frame.body)?;
                if is_unknown {
                    error.kind = ErrorKind::Aborted;
                }
                self.lane.answer(call, Err(error));
            }
            FrameKind::Need => self.lane.arrived(call, Arrival::Need(frame.amount()?)),
            FrameKind::Drain => self.lane.drain(&self.shared),
            FrameKind::Pong => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.stood_still &= self.unanswered > 0;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether requests wait until the server gives a sign of life.
    fn is_quiet(&self, now: Duration) -> bool {
        self.stood_still || now.saturating_sub(self.heard) >= QUIET_AFTER
    }

    fn ping(&mut self, now: Duration) {
        self.asked = now;
        self.unanswered += 1;
        self.output.push(Encoded::bare(FrameKind::Ping, 0, &[]), None);
    }

    fn poll_write(&mut self, now: Duration, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.output.poll_write(&mut self.socket, cx);
        if self.output.sent() != self.sent.0 {
            self.sent = (self.output.sent(), now);
        }
        written
    }

    /// Asks the server for signs of life, and ends the connection when none come.
    fn poll_life(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        while self.tick.as_mut().poll(cx).is_ready() {
            self.tick = tick(&self.shared);
            let now = self.shared.env.now();
            // The server answers nothing while it receives a large request.
            if self.output.has_moved() {
                if self.is_quiet(now) {
                    cx.waker().wake_by_ref();
                }
                self.heard = now;
            }
            if now.saturating_sub(self.heard) >= GIVE_UP_AFTER {
                return Poll::Ready(Err(Ended::Silent));
            }
            // While something waits to be sent, the server hears that.
            if now.saturating_sub(self.asked) >= PING_EVERY && self.output.is_empty() {
                self.ping(now);
                if let Poll::Ready(Err(error)) = self.poll_write(now, cx) {
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        Poll::Pending
    }
}

fn tick(shared: &Shared) -> BoxFuture<'static, ()> {
    let env = shared.env.clone();
    Box::pin(async move { env.sleep(TICK).await })
}
