//! The task of one connection of a caller.

use super::calls::{self, Answer, Done, Started, Step, failed, go_on, rows_frame};
use super::{Caller, ConnectionError, Shared};
use crate::credit::{Credit, Needs};
use crate::error::ProtocolError;
use crate::frame::{Encoded, Frame, FrameKind, Head};
use crate::input::Input;
use crate::limits::{CALL_BYTES, CALLS_MAX, DRAIN_WAIT, OUTPUT_BYTES_MAX, OUTPUT_WAIT, SILENCE_MAX, SMALL_FRAME_BYTES};
use crate::output::Output;
use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_memory::Reservation;
use stele_types::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite};

/// Time between checks for silence, stalled output and the end of a drain.
const TICK: Duration = Duration::from_secs(1);

/// A connection that has begun.
pub(super) struct Connection<T> {
    socket: T,
    shared: Arc<Shared>,
    caller: Caller,
    input: Input,
    output: Output<Reservation>,
    /// Steps that were not ready when they were first polled.
    steps: FuturesUnordered<Abortable<Step>>,
    /// Calls without an answer.
    calls: BTreeMap<u64, Live>,
    /// Of streams.
    needs: Needs,
    /// The last call that began.
    last: u64,
    /// Memory of the request that is being received.
    reserved: Option<Reservation>,
    /// Until this is ready nothing is read: caches return the memory of a request that has the overdraft.
    settling: Option<BoxFuture<'static, ()>>,
    drained: Option<Duration>,
    life: Life,
}

/// A call that runs.
struct Live {
    abort: AbortHandle,
    credit: Option<Arc<Credit>>,
}

/// Times of the last progress.
struct Life {
    /// When something arrived last, or was received at the other end.
    heard: Duration,
    /// When the last tick was.
    ticked: Duration,
    /// Bytes of output that were sent at that time.
    sent: (u64, Duration),
    tick: BoxFuture<'static, ()>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    pub fn new(socket: T, shared: Arc<Shared>, caller: Caller) -> Self {
        let now = shared.env.now();
        let life = Life {
            heard: now,
            ticked: now,
            sent: (0, now),
            tick: tick(&shared),
        };
        Connection {
            socket,
            shared,
            caller,
            input: Input::default(),
            output: Output::new(),
            steps: FuturesUnordered::new(),
            calls: BTreeMap::new(),
            needs: Needs::default(),
            last: 0,
            reserved: None,
            settling: None,
            drained: None,
            life,
        }
    }

    /// Takes no more calls from now on.
    pub fn drain(&mut self) {
        self.drained = Some(self.shared.env.now());
        self.output.push(Encoded::bare(FrameKind::Drain, 0, &[]), None);
    }

    /// Makes all progress that is possible. Ready when the connection has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            let mut progress = self.poll_steps(cx);
            match self.poll_input(cx) {
                Poll::Ready(Ok(true)) => progress = true,
                // The caller is gone, and nobody waits for the answers.
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
            self.tell_needs();
            let before = self.output.len();
            if !progress || before >= OUTPUT_BYTES_MAX {
                match self.output.poll_write(&mut self.socket, cx) {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Ready(Ok(())) if before >= OUTPUT_BYTES_MAX => progress = true,
                    _ => {}
                }
                while self.output.take_mark().is_some() {}
            }
            if !progress {
                return self.poll_life(cx);
            }
        }
    }

    /// Continues calls, however much output waits; whether any made progress. A stream has one batch for each credit, and takes no
    /// credit while input stops.
    fn poll_steps(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some(done)) = self.steps.poll_next_unpin(cx) {
            progress = true;
            // Otherwise it was cancelled.
            if let Ok(done) = done {
                self.done(done, cx);
            }
        }
        progress
    }

    fn done(&mut self, done: Done, cx: &mut Context<'_>) {
        match done {
            Done::Answered(answer) => self.answer(answer),
            Done::Batch(call, rows, batch) => {
                if self.drained.is_some() {
                    self.send(rows_frame(call, 0, batch.body, batch.memory));
                    return self.answer(failed(call, &shutting_down()));
                }
                self.send(rows_frame(call, 0, batch.body, batch.memory));
                self.run(call, go_on(call, rows, None), None, cx);
            }
        }
    }

    fn send(&mut self, answer: Answer) {
        self.output.push(answer.frame, answer.memory);
    }

    /// Sends the last frame of a call.
    fn answer(&mut self, answer: Answer) {
        self.calls.remove(&answer.call);
        self.send(answer);
    }

    /// Polls a step once, and keeps it if it is not ready. A batch that is ready immediately is kept, too: other calls come first.
    fn run(&mut self, call: u64, mut step: Step, credit: Option<Arc<Credit>>, cx: &mut Context<'_>) {
        let is_new = credit.is_some() || !self.calls.contains_key(&call);
        if is_new && let Poll::Ready(done) = step.as_mut().poll(cx) {
            match done {
                Done::Answered(answer) => return self.answer(answer),
                batch => step = Box::pin(std::future::ready(batch)),
            }
        }
        let (abort, registration) = AbortHandle::new_pair();
        let kept = self.calls.remove(&call).and_then(|live| live.credit);
        let credit = credit.or(kept);
        self.calls.insert(call, Live { abort, credit });
        self.steps.push(Abortable::new(step, registration));
    }

    /// Takes the frames that have arrived. Whether there were any; `false` at the end.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ConnectionError>> {
        let mut progress = false;
        loop {
            // Also before frames that have waited for space in the output.
            self.expect_heard()?;
            if self.output.len() >= OUTPUT_BYTES_MAX {
                return if progress { Poll::Ready(Ok(true)) } else { Poll::Pending };
            }
            if let Some(head) = self.input.head()? {
                if !is_of_caller(head.kind) {
                    return Poll::Ready(Err(ProtocolError::FrameKind(head.kind as u8).into()));
                }
                if !self.admit(&head) {
                    progress = true;
                    continue;
                }
                if let Some(frame) = self.input.take()? {
                    progress = true;
                    self.frame(frame, cx)?;
                    continue;
                }
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(_)) => self.life.heard = self.expect_heard()?,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if progress => return Poll::Ready(Ok(true)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Fails after a silence. The caller may have given the connection up meanwhile, and have made its calls again: requests that arrive
    /// only now are not carried out.
    fn expect_heard(&self) -> Result<Duration, ConnectionError> {
        let now = self.shared.env.now();
        match now.saturating_sub(self.life.heard) >= SILENCE_MAX {
            true => Err(ConnectionError::Silent),
            false => Ok(now),
        }
    }

    /// Reserves memory for a frame. Without it the request is refused and skipped.
    fn admit(&mut self, head: &Head) -> bool {
        if head.kind != FrameKind::Request || self.reserved.is_some() {
            return true;
        }
        match self.reserve(head.length) {
            Ok(reserved) => {
                let (env, settles) = (self.shared.env.clone(), reserved.settles());
                if !settles.is_zero() {
                    self.settling = Some(Box::pin(async move { env.sleep(settles).await }));
                }
                self.reserved = Some(reserved);
                true
            }
            Err(error) => {
                self.input.skip();
                self.last = self.last.max(head.call);
                self.send(failed(head.call, &error));
                false
            }
        }
    }

    /// Memory of a request whose frame has this length. One that is larger than the limit of all requests takes the overdraft.
    fn reserve(&self, length: usize) -> ServiceResult<Reservation> {
        let requests = &self.shared.requests;
        let bytes = length + CALL_BYTES;
        let no_memory = || busy(format!("the server has no memory for a request of {length} bytes"));
        if self.drained.is_some() {
            return Err(shutting_down());
        }
        if self.calls.len() >= CALLS_MAX {
            return Err(busy(format!("the connection has {CALLS_MAX} calls")));
        }
        if length <= SMALL_FRAME_BYTES {
            let reserved = requests.empty();
            return reserved.grow(bytes).map(|()| reserved).map_err(|_| no_memory());
        }
        if bytes > requests.bytes_max() {
            let message = format!(
                "a request of {length} bytes needs more memory than the server of its tablet spares, {} bytes: send less at \
                 once or raise that server's memory budget",
                requests.bytes_max()
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let reserved = match bytes > requests.limit() {
            true => requests.try_overdraft(),
            false => requests.try_reserve(bytes),
        };
        reserved.ok_or_else(no_memory)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(settling) = &mut self.settling {
            ready!(settling.as_mut().poll(cx));
            self.settling = None;
        }
        self.input.poll_read(&mut self.socket, cx)
    }

    fn frame(&mut self, frame: Frame, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        match frame.kind {
            FrameKind::Request => self.request(frame, cx)?,
            FrameKind::Cancel => {
                if let Some(live) = self.calls.remove(&frame.call) {
                    live.abort.abort();
                }
            }
            FrameKind::Credit => {
                let amount = frame.amount()?;
                if let Some(credit) = self.calls.get(&frame.call).and_then(|live| live.credit.as_ref()) {
                    credit.add(amount);
                }
            }
            FrameKind::Ping => self.output.push(Encoded::bare(FrameKind::Pong, 0, &[]), None),
            kind => return Err(ProtocolError::FrameKind(kind as u8).into()),
        }
        Ok(())
    }

    fn request(&mut self, frame: Frame, cx: &mut Context<'_>) -> Result<(), ProtocolError> {
        let call = frame.call;
        if call <= self.last {
            return Err(ProtocolError::CallNumber(call));
        }
        self.last = call;
        let memory = self.reserved.take().unwrap_or_else(|| self.shared.requests.empty());
        match calls::start(&self.shared, &self.caller, &self.needs, frame, memory)? {
            Started::Answered(answer) => self.send(answer),
            Started::Running(step, credit) => self.run(call, step, credit, cx),
        }
        Ok(())
    }

    /// Tells the caller of rows that need more credit.
    fn tell_needs(&mut self) {
        for (call, bytes) in self.needs.lock().drain(..) {
            if self.calls.contains_key(&call) {
                self.output
                    .push(Encoded::bare(FrameKind::Need, call, &bytes.to_le_bytes()), None);
            }
        }
    }

    /// Ends a connection that is drained, silent or stalled.
    fn poll_life(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        while self.life.tick.as_mut().poll(cx).is_ready() {
            self.life.tick = tick(&self.shared);
            let now = self.shared.env.now();
            // The caller hears the answers, but its pings wait while it sends a large request. The answers left after the tick before.
            if self.output.has_moved() {
                self.life.heard = self.life.heard.max(self.life.ticked);
            }
            self.life.ticked = now;
            if self.output.is_empty() || self.output.sent() != self.life.sent.0 {
                self.life.sent = (self.output.sent(), now);
            }
            if now.saturating_sub(self.life.sent.1) >= OUTPUT_WAIT {
                return Poll::Ready(Err(ConnectionError::NotTaken));
            }
            self.expect_heard()?;
            let has_drained = |since: Duration| now.saturating_sub(since) >= DRAIN_WAIT;
            if self.calls.is_empty() && self.output.is_empty() && self.drained.is_some_and(has_drained) {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }
}

/// Whether callers send frames of a kind. Memory is reserved for requests only, and other frames of callers have no body.
fn is_of_caller(kind: FrameKind) -> bool {
    matches!(
        kind,
        FrameKind::Request | FrameKind::Cancel | FrameKind::Credit | FrameKind::Ping
    )
}

fn tick(shared: &Shared) -> BoxFuture<'static, ()> {
    let env = shared.env.clone();
    Box::pin(async move { env.sleep(TICK).await })
}

fn busy(message: String) -> ServiceError {
    ServiceError::new(ErrorKind::Busy, message)
}

fn shutting_down() -> ServiceError {
    ServiceError::new(ErrorKind::Unavailable, "the server is shutting down")
}
