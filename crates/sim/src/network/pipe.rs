//! One direction of a connection, and the two ends.

use super::{Network, delay, one_in};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stele_env::Env;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes under way at most, as in the buffers of two sockets.
const PIPE_BYTES: usize = 64 << 10;

/// Bytes from one process to another.
pub(super) struct Pipe {
    from: u64,
    to: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Parts under way, with the times at which they arrive; ascending.
    parts: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    /// The writer sends no more.
    ended: bool,
    /// The reader takes no more.
    unread: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    pub fn new(from: u64, to: u64) -> Arc<Pipe> {
        let state = Mutex::default();
        Arc::new(Pipe { from, to, state })
    }

    /// Drops all bytes, and fails both ends.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        state.reset = true;
        state.parts.clear();
        drop(state);
        self.wake();
    }

    /// Wakes both ends.
    pub fn wake(&self) {
        let wakers = {
            let mut state = self.state.lock();
            [state.reader.take(), state.writer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// An end of a connection.
pub(super) struct End {
    network: Network,
    /// That of its process, once the process has it.
    pub env: Option<Env>,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    /// Ends when the next part arrives.
    arrival: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl End {
    pub fn new(network: Network, env: Option<Env>, incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> End {
        End {
            network,
            env,
            incoming,
            outgoing,
            arrival: None,
        }
    }

    /// Ready when this time has come.
    fn poll_arrival(&mut self, due: Duration, env: &Env, cx: &mut Context<'_>) -> Poll<()> {
        let now = env.now();
        if now >= due {
            self.arrival = None;
            return Poll::Ready(());
        }
        let is_same = self.arrival.as_ref().is_some_and(|(at, _)| *at == due);
        if !is_same {
            let env = env.clone();
            let sleep = Box::pin(async move { env.sleep(due.saturating_sub(now)).await });
            self.arrival = Some((due, sleep));
        }
        match &mut self.arrival {
            Some((_, sleep)) => sleep.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }

    fn env(&self) -> io::Result<Env> {
        self.env.clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let env = self.env()?;
        let pipe = Arc::clone(&self.incoming);
        loop {
            let mut state = pipe.state.lock();
            if state.reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            state.reader = Some(cx.waker().clone());
            // Neither bytes nor an end pass a cut.
            if self.network.is_cut(pipe.from, pipe.to) {
                return Poll::Pending;
            }
            let Some((due, part)) = state.parts.front_mut() else {
                return if state.ended {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            };
            let due = *due;
            if env.now() < due {
                drop(state);
                if self.poll_arrival(due, &env, cx).is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            let taken = part.len().min(buffer.remaining());
            buffer.put_slice(&part[..taken]);
            part.drain(..taken);
            if part.is_empty() {
                state.parts.pop_front();
            }
            state.bytes -= taken;
            let writer = state.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let env = self.env()?;
        let faults = self.network.faults();
        if one_in(&env, faults.reset_one_in) {
            self.outgoing.reset();
            self.incoming.reset();
        }
        let mut state = self.outgoing.state.lock();
        if state.reset || state.unread || state.ended {
            let kind = if state.reset {
                io::ErrorKind::ConnectionReset
            } else {
                io::ErrorKind::BrokenPipe
            };
            return Poll::Ready(Err(kind.into()));
        }
        if state.bytes >= PIPE_BYTES {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let most = bytes.len().min(PIPE_BYTES - state.bytes);
        // Some writes are short.
        let taken = match one_in(&env, 4) {
            true => 1 + env.random_below(most as u64) as usize,
            false => most,
        };
        let taken = taken.min(most);
        let last = state.parts.back().map_or(Duration::ZERO, |(due, _)| *due);
        let due = last.max(env.now().saturating_add(delay(&env, faults)));
        state.parts.push_back((due, bytes[..taken].to_vec()));
        state.bytes += taken;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.state.lock().ended = true;
        self.outgoing.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A system that has unread bytes resets a connection; otherwise the end follows the bytes under way.
        let was_unread = {
            let mut state = self.incoming.state.lock();
            state.unread = true;
            !state.parts.is_empty()
        };
        if was_unread {
            self.outgoing.reset();
            self.incoming.reset();
        }
        self.outgoing.state.lock().ended = true;
        self.outgoing.wake();
        self.incoming.wake();
    }
}
