//! Serves connections of HBase clients.
//!
//! One task drives a connection and all of its calls. In each poll it takes the frames that have arrived, starts and
//! continues calls, and gathers their responses, in the order in which they are ready. When none of these makes
//! progress, it writes the gathered output. A call that is ready when it is first polled costs no task, and a Get of a row
//! in memory not even a future.
//!
//! Bounds: a connection has at most [`CALLS_MAX`] calls. Once it has gathered [`OUTPUT_BYTES_MAX`] it takes no more
//! frames. The bytes of a request are charged to the memory of requests before they are received, and those of a
//! response until they are sent. A request that does not fit is refused as the protocol has it, and skipped. A client
//! that neither takes its responses nor sends the rest of a frame loses its connection.
//!
//! Invariant: a call that has begun is polled until it ends, also if its client takes no responses. It may hold the latch
//! of a row or a lock, and calls of other connections wait for that. Calls end early with their connection, or two minutes
//! after their client has sent the last of its requests: it has probably closed the connection, and nobody waits.

mod ending;
mod input;
mod opening;
mod output;
mod refusing;

use crate::call::{Call, Client, Reply, failed};
use crate::failure::{Failure, Outcome};
use crate::front_end::{HBaseFrontEnd, Shared};
use crate::get::{self, Tried};
use crate::metrics::Method;
use crate::permissions;
use crate::region_cache::RegionCache;
use crate::services::{self, Service};
use crate::trace_context::{self, SYSTEM};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use input::{Arrived, Input};
use opening::{Opened, Opening};
use output::Output;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stele_env::trace::{self, Trace};
use stele_memory::Reservation;
use stele_serving::Progress;
use stele_wire::WireError;
use tokio::io::{AsyncRead, AsyncWrite};

/// Concurrent calls of one connection: a client has one connection for all of its threads.
const CALLS_MAX: usize = 2048;
/// Bytes of responses that a connection gathers.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Time in which a connection must begin.
const BEGIN_WAIT: Duration = Duration::from_secs(20);
/// Time in which a client must take some of the output.
const OUTPUT_WAIT: Duration = Duration::from_secs(60);
/// Time that the calls of a client may go on running once it sends no more: twice as long as HBase's clients wait for a response
/// unless they are told otherwise.
const LAST_CALLS_WAIT: Duration = Duration::from_secs(120);
/// Time in which a client must send more of a frame that it has begun.
const INPUT_WAIT: Duration = Duration::from_secs(60);

/// The reason for which a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It did not begin in time.
    #[error("the connection did not begin within {BEGIN_WAIT:?}")]
    NotBegun,
    /// The client takes no responses.
    #[error("the client took no response for {OUTPUT_WAIT:?}")]
    NotTaken,
    /// The client does not send the rest of a request.
    #[error("the client sent no more of a request for {INPUT_WAIT:?}")]
    NotSent,
    /// The client sent nothing for as long as its session lasts.
    #[error("the client was silent for {0:?}")]
    Silent(Duration),
    /// The client broke the protocol.
    #[error(transparent)]
    Protocol(#[from] WireError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HBaseFrontEnd {
    /// Serves a connection to its end. Once `drain` completes no more calls are taken, and the connection ends when
    /// those in flight have ended.
    pub async fn serve<T>(&self, socket: T, drain: impl Future<Output = ()>) -> Result<(), ConnectionError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let shared = Arc::clone(&self.shared);
        let mut input = Input::new(&shared.requests);
        let mut socket = socket;
        let opened = shared.env.timeout(BEGIN_WAIT, opening::open(&mut socket, &mut input));
        let opened = match opened.await {
            Ok(opened) => opened?,
            Err(_) => return Err(ConnectionError::NotBegun),
        };
        let Opened {
            opening,
            service,
            user,
            token,
        } = match opened {
            Some(opened) => opened,
            None => return Ok(()),
        };
        let client = match opening {
            Opening::Calls(client) => client,
            Opening::Answered(frame) => return opening::answer(&mut socket, &shared, frame).await,
        };
        let shared = match self.shared_of(user.as_deref(), token) {
            Ok(shared) => shared,
            Err(failure) => {
                tracing::debug!(class = failure.class, message = %failure.message, "a caller was refused");
                let env = &shared.env;
                return Box::pin(refusing::refuse(&mut socket, &mut input, env, &failure, drain)).await;
            }
        };
        let mut connection = Connection {
            socket,
            input,
            output: Output::default(),
            calls: FuturesUnordered::new(),
            client,
            regions: Arc::default(),
            service,
            sends: Progress::within(INPUT_WAIT),
            takes: Progress::within(OUTPUT_WAIT),
            pauses: 0,
            shared,
            draining: false,
            last_calls: None,
        };
        let mut drain = pin!(drain);
        let ended = poll_fn(|cx| {
            if !connection.draining && drain.as_mut().poll(cx).is_ready() {
                connection.draining = true;
            }
            connection.poll(cx)
        })
        .await;
        if ended.is_ok() && connection.draining {
            ending::close(&mut connection.socket, &connection.shared.env).await;
        }
        ended
    }
}

/// A connection that has begun.
struct Connection<T> {
    socket: T,
    input: Input,
    output: Output,
    /// The calls that were not ready when they were first polled.
    calls: FuturesUnordered<BoxFuture<'static, Reply>>,
    client: Client,
    regions: Arc<RegionCache>,
    service: Service,
    /// Ends the connection if the client sends no more of a frame.
    sends: Progress,
    /// Ends the connection if the client takes no output.
    takes: Progress,
    /// How often no input was read, because there was too much output or too many calls.
    pauses: u64,
    shared: Arc<Shared>,
    draining: bool,
    /// Ends the calls of a client that sends no more. Set once that is known.
    last_calls: Option<BoxFuture<'static, ()>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    /// Makes all progress that is possible. Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            let mut progress = false;
            while let Poll::Ready(Some(reply)) = self.calls.poll_next_unpin(cx) {
                self.output.push(reply);
                progress = true;
            }
            if let Poll::Ready(taken) = self.poll_input(cx) {
                match taken {
                    Ok(true) => progress = true,
                    Ok(false) if self.calls.is_empty() => return self.poll_end(cx),
                    Ok(false) => progress |= self.poll_last_calls(cx),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            let before = self.output.len();
            if !progress || before >= OUTPUT_BYTES_MAX {
                match self.output.poll_write(&mut self.socket, cx) {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Ready(Ok(())) if before >= OUTPUT_BYTES_MAX => progress = true,
                    _ => {}
                }
            }
            if !progress {
                break;
            }
        }
        if self.draining && self.calls.is_empty() && self.output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_stalled(cx)
    }

    /// Takes the frames that have arrived and starts their calls. Whether there were any; `false` at the end.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ConnectionError>> {
        let mut progress = false;
        loop {
            if self.draining || self.calls.len() >= CALLS_MAX || self.output.len() >= OUTPUT_BYTES_MAX {
                self.pauses += 1;
                return if progress { Poll::Ready(Ok(true)) } else { Poll::Pending };
            }
            match self.input.take()? {
                Some(Arrived::Request(request, memory)) => {
                    progress = true;
                    let call = Call {
                        client: self.client,
                        regions: Arc::clone(&self.regions),
                        request,
                        memory,
                    };
                    self.start(call, cx);
                }
                Some(Arrived::Refused(call_id, failure)) => {
                    progress = true;
                    self.output.push(failed(Some(call_id), &failure));
                }
                None => match self.input.poll_read(&mut self.socket, cx) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending if progress => return Poll::Ready(Ok(true)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    /// Starts a call and polls it once. A Get of a row in memory ends here, without a task.
    fn start(&mut self, call: Call, cx: &mut Context<'_>) {
        let header = &call.request.header;
        let method = Method::named(header.method_name.as_deref().unwrap_or_default());
        let env = &self.shared.env;
        let running = Running {
            started: env.now(),
            trace: env.trace(SYSTEM, method.label(), || trace_context::parent(header)),
            method,
            shared: Arc::clone(&self.shared),
            call,
        };
        if let Some(token) = &self.shared.token
            && let Err(failure) = token.check(&self.shared.env)
        {
            return self.output.push(running.end(Err(failure)));
        }
        let is_get = self.service == Service::Client && running.method == Method::Get;
        let tried = match is_get && self.client.compression.is_none() {
            false => None,
            true => match running.try_now() {
                Ok(Tried::Found(reply)) => return self.output.push(running.end(Ok(reply))),
                Err(failure) => return self.output.push(running.end(Err(failure))),
                Ok(waits) => Some(waits),
            },
        };
        let mut serving: BoxFuture<'static, Reply> = Box::pin(run(running, self.service, tried));
        match serving.as_mut().poll(cx) {
            Poll::Ready(reply) => self.output.push(reply),
            Poll::Pending => self.calls.push(serving),
        }
    }

    /// Ends calls that run for too long after the client has sent the last of its requests; whether it did. Responses that
    /// wait are still written: the client may have closed only its own direction.
    fn poll_last_calls(&mut self, cx: &mut Context<'_>) -> bool {
        let env = &self.shared.env;
        let end = self.last_calls.get_or_insert_with(|| {
            let env = env.clone();
            Box::pin(async move { env.sleep(LAST_CALLS_WAIT).await })
        });
        if end.as_mut().poll(cx).is_pending() {
            return false;
        }
        tracing::debug!(
            calls = self.calls.len(),
            "calls of a client that sends no more ended early"
        );
        self.calls.clear();
        true
    }

    /// Writes the rest of the output of a connection whose client sends no more.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        match self.output.poll_write(&mut self.socket, cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => self.poll_stalled(cx),
        }
    }

    /// Ready when the client has sent or taken nothing for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let env = &self.shared.env;
        let takes = self
            .takes
            .poll_stalled(self.output.sent(), !self.output.is_empty(), env, cx);
        if takes.is_ready() {
            return Poll::Ready(Err(ConnectionError::NotTaken));
        }
        // After a pause the client has a whole period again.
        let received = self.input.taken().wrapping_add(self.pauses);
        if self
            .sends
            .poll_stalled(received, self.input.is_within_frame(), env, cx)
            .is_ready()
        {
            return Poll::Ready(Err(ConnectionError::NotSent));
        }
        Poll::Pending
    }
}

/// A call that has begun.
struct Running {
    started: Duration,
    method: Method,
    shared: Arc<Shared>,
    call: Call,
    /// Its trace, if it is sampled.
    trace: Option<Trace>,
}

/// Serves a call to its response.
async fn run(mut running: Running, service: Service, tried: Option<Tried>) -> Reply {
    let outcome = {
        let Running {
            shared,
            method,
            call,
            trace,
            ..
        } = &mut running;
        let mut serving = pin!(serve(shared, (service, *method), call, tried));
        trace::within(trace.as_ref(), serving.as_mut()).await
    };
    running.end(outcome)
}

/// Unpacks and serves a call, and packs its response.
async fn serve(
    shared: &Arc<Shared>,
    (service, method): (Service, Method),
    call: &mut Call,
    tried: Option<Tried>,
) -> Outcome<Reply> {
    let unpacked = match call.has_packed_cells() {
        true => Box::pin(call.unpack_cells(&shared.env)).await,
        false => Ok(()),
    };
    let name = call.request.header.method_name.as_deref().unwrap_or_default();
    let (mut outcome, note) = match unpacked.and_then(|()| permissions::check(shared, service, name)) {
        Ok(note) => (services::serve(shared, service, method, call, tried).await, note),
        Err(failure) => (Err(failure), None),
    };
    if let Some(note) = note {
        note.write_outcome(outcome.as_ref().err().map(|failure| &*failure.message));
    }
    if let Ok(reply) = &mut outcome
        && reply.unpacked.is_some()
        && let Err(failure) = Box::pin(call.pack_cells(reply, &shared.env)).await
    {
        outcome = Err(failure);
    }
    outcome
}

impl Running {
    /// Tries a Get on the calling thread.
    fn try_now(&self) -> Outcome<Tried> {
        let _entered = trace::enter(self.trace.as_ref());
        get::try_now(&self.shared, &self.call)
    }

    /// Counts the call; its response.
    fn end(self, outcome: Outcome<Reply>) -> Reply {
        let took = self.shared.env.now().saturating_sub(self.started);
        self.shared.metrics.count(self.method, outcome.is_err(), took);
        if let Some(trace) = &self.trace {
            let request = &self.call.request;
            trace.note(|facts| {
                facts.request_bytes = (request.message.len() + request.cells.len()) as u64;
                match &outcome {
                    Ok(reply) => (facts.outcome, facts.response_bytes) = ("ok", reply.frame.len() as u64),
                    Err(failure) => {
                        (facts.outcome, facts.is_error) = (failure.class, trace_context::is_error(failure));
                    }
                }
            });
        }
        let Call { memory, request, .. } = self.call;
        match outcome {
            Ok(mut reply) => {
                let bytes = reply.frame.len();
                match &mut reply.memory {
                    // The call reserved as much as its rows took, or as a response may have.
                    Some(reserved) => keep_for_response(reserved, bytes),
                    None => {
                        // The memory of the request now counts for its response, which exists already.
                        let _ = memory.grow(bytes.saturating_sub(memory.counted()));
                        reply.memory = Some(memory);
                    }
                }
                reply
            }
            Err(failure) => {
                tracing::debug!(class = failure.class, message = %failure.message, "a call failed");
                failed(request.header.call_id, &failure)
            }
        }
    }
}

/// Gives back the memory of a call but that of its response. That exists already, so it counts also where it is above its limit.
fn keep_for_response(reserved: &mut Reservation, bytes: usize) {
    reserved.shrink_to(bytes);
    if bytes <= reserved.counted() {
        reserved.return_overdraft();
    }
    let _ = reserved.grow(bytes.saturating_sub(reserved.bytes()));
}

/// The server has no memory for a request.
fn no_memory(bytes: usize) -> Failure {
    Failure::overloaded(format!(
        "Call queue is full, is hbase.ipc.server.max.callqueue.size too small? The request has {bytes} bytes"
    ))
}

#[cfg(test)]
mod tests;
