//! Waiters of one consumer, in order of arrival.
//!
//! A waiter is granted its bytes by the caller that releases some, under the queue's lock, so no later caller can take
//! them first. A waiter that gives up removes itself.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// Bytes in use of a limit, and the callers that wait for more.
#[derive(Debug)]
pub(crate) struct Queue {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Length of `waiters`, written under its lock.
    waiting: AtomicUsize,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bytes: usize,
    granted: oneshot::Sender<()>,
}

/// A place in the queue. Dropping it gives up the place, and the bytes if they were granted already.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    queue: &'a Queue,
    number: u64,
    bytes: usize,
    granted: Option<oneshot::Receiver<()>>,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Queue {
        Queue {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::default(),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: usize) {
        assert_eq!(
            (self.used(), self.waiting()),
            (0, 0),
            "a limit is set before anything is reserved"
        );
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Callers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds to the bytes in use without a check; the bytes that were in use before.
    pub(crate) fn add(&self, bytes: usize) -> usize {
        let before = self.used.fetch_add(bytes, Ordering::SeqCst);
        assert!(before.checked_add(bytes).is_some(), "bytes in use do not overflow");
        before
    }

    /// Adds to the bytes in use if they stay within the limit and nobody waits; the bytes that were in use before.
    pub(crate) fn try_add(&self, bytes: usize) -> Option<usize> {
        // A caller that comes later does not pass a waiter. The order matters to `release`, see there.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return None;
        }
        self.add_within(bytes)
    }

    fn add_within(&self, bytes: usize) -> Option<usize> {
        let limit = self.limit();
        let with = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, with).ok()
    }

    /// Subtracts from the bytes in use and grants waiters theirs; the bytes that were in use before.
    ///
    /// A waiter first makes itself known, then checks the bytes in use; a release first lowers them, then checks for
    /// waiters.
    /// In any order of the four steps one of the two sees the other.
    pub(crate) fn release(&self, bytes: usize) -> usize {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "only bytes that are in use are released");
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.grant();
        }
        before
    }

    /// Waits in the queue from now on.
    pub(crate) fn wait(&self, bytes: usize) -> Place<'_> {
        assert!(bytes <= self.limit(), "a waiter never wants more than the limit");
        let (granted, receiver) = oneshot::channel();
        let number = {
            let mut waiters = self.waiters.lock();
            waiters.next += 1;
            let number = waiters.next;
            waiters.queue.push_back(Waiter { number, bytes, granted });
            self.waiting.store(waiters.queue.len(), Ordering::SeqCst);
            number
        };
        self.grant();
        Place {
            queue: self,
            number,
            bytes,
            granted: Some(receiver),
        }
    }

    /// Grants the first waiters their bytes as far as there are any.
    fn grant(&self) {
        let mut waiters = self.waiters.lock();
        while let Some(first) = waiters.queue.front() {
            if self.add_within(first.bytes).is_none() {
                break;
            }
            let first = waiters.queue.pop_front().expect("there is a first waiter");
            self.waiting.store(waiters.queue.len(), Ordering::SeqCst);
            // A waiter removes itself under this lock before its receiver goes.
            first.granted.send(()).expect("a waiter in the queue has its receiver");
        }
    }
}

impl Place<'_> {
    /// Waits until the bytes are granted. They belong to the caller then.
    pub(crate) async fn granted(&mut self) {
        let receiver = self.granted.as_mut().expect("a place is granted once");
        receiver.await.expect("a waiter in the queue has its sender");
        self.granted = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.granted.take() else {
            return;
        };
        let was_waiting = {
            let mut waiters = self.queue.waiters.lock();
            let at = waiters.queue.iter().position(|waiter| waiter.number == self.number);
            if let Some(at) = at {
                waiters.queue.remove(at);
                self.queue.waiting.store(waiters.queue.len(), Ordering::SeqCst);
            }
            at.is_some()
        };
        if was_waiting {
            // The next one may want less.
            self.queue.grant();
        } else {
            assert!(receiver.try_recv().is_ok(), "a place that left the queue was granted");
            self.queue.release(self.bytes);
        }
    }
}
