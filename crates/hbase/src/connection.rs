//! Serves connections of HBase clients.
//!
//! One task drives a connection and all of its calls. In each poll it takes the frames that have arrived, starts and
//! continues calls, and gathers their responses, in the order in which they are ready. When none of these makes
//! progress, it writes the gathered output. A call that is ready when it is first polled costs no task.
//!
//! Bounds: a connection has at most [`CALLS_MAX`] calls and gathers at most [`OUTPUT_BYTES_MAX`] before it stops to read
//! and to poll calls. The bytes of a request are charged to the memory of requests before they are received. A request
//! that does not fit is refused as the protocol has it, and skipped.

mod input;
mod opening;
mod output;

use crate::call::{Call, Client, Reply, failed};
use crate::failure::Failure;
use crate::front_end::{HBaseFrontEnd, Shared};
use crate::services::{self, Service};
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

/// The reason for which a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It did not begin in time.
    #[error("the connection did not begin within {BEGIN_WAIT:?}")]
    NotBegun,
    /// The client takes no responses.
    #[error("the client took no response for {OUTPUT_WAIT:?}")]
    NotTaken,
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
        let Opened { opening, service } = match opened {
            Some(opened) => opened,
            None => return Ok(()),
        };
        let client = match opening {
            Opening::Calls(client) => client,
            Opening::Answered(frame) => return opening::answer(&mut socket, &shared, frame).await,
        };
        let mut connection = Connection {
            socket,
            input,
            output: Output::default(),
            calls: FuturesUnordered::new(),
            client,
            service,
            stalled: None,
            shared,
            draining: false,
        };
        let mut drain = pin!(drain);
        poll_fn(|cx| {
            if !connection.draining && drain.as_mut().poll(cx).is_ready() {
                connection.draining = true;
            }
            connection.poll(cx)
        })
        .await
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
    service: Service,
    /// Ends the connection if the client takes no output.
    stalled: Option<(u64, BoxFuture<'static, ()>)>,
    shared: Arc<Shared>,
    draining: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    /// Makes all progress that is possible. Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            let mut progress = false;
            while self.output.len() < OUTPUT_BYTES_MAX
                && let Poll::Ready(Some(reply)) = self.calls.poll_next_unpin(cx)
            {
                self.output.push(reply);
                progress = true;
            }
            if let Poll::Ready(taken) = self.poll_input(cx) {
                match taken {
                    Ok(true) => progress = true,
                    Ok(false) if self.calls.is_empty() => return self.poll_end(cx),
                    Ok(false) => {}
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
                return if progress { Poll::Ready(Ok(true)) } else { Poll::Pending };
            }
            match self.input.take()? {
                Some(Arrived::Request(request, memory)) => {
                    progress = true;
                    let call = Call {
                        client: self.client,
                        request,
                        memory,
                    };
                    self.start(call, cx);
                }
                Some(Arrived::Refused(call_id, failure)) => {
                    progress = true;
                    self.output.push(failed(call_id, &failure));
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

    /// Starts a call and polls it once.
    fn start(&mut self, call: Call, cx: &mut Context<'_>) {
        let mut serving: BoxFuture<'static, Reply> = Box::pin(run(Arc::clone(&self.shared), self.service, call));
        match serving.as_mut().poll(cx) {
            Poll::Ready(reply) => self.output.push(reply),
            Poll::Pending => self.calls.push(serving),
        }
    }

    /// Writes the rest of the output of a connection whose client sends no more.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        match self.output.poll_write(&mut self.socket, cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => self.poll_stalled(cx),
        }
    }

    /// Ready when the client has taken none of the output for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if self.output.is_empty() {
            self.stalled = None;
            return Poll::Pending;
        }
        let sent = self.output.sent();
        let (since, sleep) = match &mut self.stalled {
            Some((since, sleep)) if *since == sent => (*since, sleep),
            _ => {
                let env = self.shared.env.clone();
                let sleep: BoxFuture<'static, ()> = Box::pin(async move { env.sleep(OUTPUT_WAIT).await });
                let (since, sleep) = self.stalled.insert((sent, sleep));
                (*since, sleep)
            }
        };
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) if since == sent => Poll::Ready(Err(ConnectionError::NotTaken)),
            _ => Poll::Pending,
        }
    }
}

/// Serves a call to its response.
async fn run(shared: Arc<Shared>, service: Service, mut call: Call) -> Reply {
    let started = shared.env.now();
    let call_id = call.request.header.call_id;
    let unpacked = call.unpack_cells();
    let outcome = match unpacked {
        Ok(()) => services::serve(&shared, service, &call).await,
        Err(failure) => Err(failure),
    };
    let took = shared.env.now().saturating_sub(started);
    let method = call.request.header.method_name.clone().unwrap_or_default();
    shared.metrics.count(&method, outcome.is_err(), took);
    let Call { memory, .. } = call;
    match outcome {
        Ok(mut reply) => {
            // The memory of the request now counts for its response.
            if reply.memory.is_none() && memory.counted() > 0 {
                reply.memory = Some(memory);
            }
            reply
        }
        Err(failure) => {
            tracing::debug!(class = failure.class, message = %failure.message, "a call failed");
            failed(call_id, &failure)
        }
    }
}

/// The server has no memory for a request.
fn no_memory(bytes: usize) -> Failure {
    Failure::overloaded(format!(
        "Call queue is full, is hbase.ipc.server.max.callqueue.size too small? The request has {bytes} bytes"
    ))
}
