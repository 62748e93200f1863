//! Credit of a stream at the owner: the bytes of rows that the caller takes.
//!
//! The stream's own task waits for credit; the connection adds it. Both run in one task, so the lock is never contended.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Credit that streams of a connection need and that their caller has not been told of: calls and bytes. A call has one need at a
/// time.
pub(crate) type Needs = Arc<Mutex<Vec<(u64, u64)>>>;

/// Shared by a stream and its connection.
#[derive(Debug)]
pub(crate) struct Credit {
    call: u64,
    needs: Needs,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u64,
    waiter: Option<Waker>,
}

impl Credit {
    pub fn new(call: u64, bytes: u64, needs: Needs) -> Self {
        let state = State {
            left: bytes,
            waiter: None,
        };
        Credit {
            call,
            needs,
            state: Mutex::new(state),
        }
    }

    /// The caller takes more.
    pub fn add(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.left = state.left.saturating_add(bytes);
        if let Some(waiter) = state.waiter.take() {
            waiter.wake();
        }
    }

    /// A batch is sent: it takes all credit.
    pub fn spend(&self) {
        self.state.lock().left = 0;
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        usize::try_from(self.state.lock().left).unwrap_or(usize::MAX)
    }

    /// Waits until at least `bytes` are left, of which the caller learns if `tell`.
    pub async fn wait(&self, bytes: usize, tell: bool) {
        let wanted = (bytes as u64).max(1);
        let mut told = !tell;
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.left >= wanted {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut told, true) {
                self.needs.lock().push((self.call, wanted));
            }
            state.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
