//! Gives up calls that wait for their clients while other calls are refused.
//!
//! A call keeps its place among the calls in flight from its first header until its response has been written. A client that does not
//! send the rest of its request, or takes nothing of the response, would keep it for long, and a few connections could have all
//! places. A *stalled* call is one that waits for its client. It is harmless until a call is refused for want of a place. Each refusal
//! gives up the call that has stalled longest, if that is at least [`PATIENCE`]. It gets UNAVAILABLE, or its stream is reset once its
//! response has begun. A repetition of the refused call finds the place.

use crate::response_memory::PATIENCE;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// All stalled calls. They are calls in flight, which bounds their number.
#[derive(Default)]
pub(crate) struct StalledCalls(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// The task of each. In the order in which they stalled.
    by_time: BTreeMap<Since, Waker>,
}

/// The time since which a call has stalled, and its number.
type Since = (Duration, u64);

/// A stalled call, until this is dropped.
pub(crate) struct Stalled {
    waiting: Arc<Mutex<Waiting>>,
    since: Since,
}

impl StalledCalls {
    /// Adds a call that has stalled since then.
    pub fn add(&self, since: Duration) -> Stalled {
        let mut waiting = self.0.lock();
        let since = (since, waiting.next);
        waiting.next += 1;
        waiting.by_time.insert(since, Waker::noop().clone());
        Stalled {
            waiting: Arc::clone(&self.0),
            since,
        }
    }

    /// Gives up the call that has stalled longest, if its client has had its time.
    pub fn give_up_one(&self, now: Duration) {
        let mut waiting = self.0.lock();
        let overdue = waiting
            .by_time
            .first_entry()
            .filter(|oldest| now >= oldest.key().0 + PATIENCE);
        let given_up = overdue.map(|oldest| oldest.remove());
        drop(waiting);
        if let Some(waker) = given_up {
            waker.wake();
        }
    }
}

impl Stalled {
    /// Ready when the call is given up.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.waiting.lock().by_time.get_mut(&self.since) {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.waiting.lock().by_time.remove(&self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_has_stalled_longest_is_given_up_after_a_while() {
        let at = Duration::from_secs;
        let mut context = Context::from_waker(Waker::noop());
        let all = StalledCalls::default();
        // They are added in another order.
        let (third, first, second) = (all.add(at(3)), all.add(at(1)), all.add(at(2)));
        let mut given_up = || [&second, &third].map(|stalled| stalled.poll(&mut context).is_ready());
        all.give_up_one(at(5));
        assert_eq!(given_up(), [false, false]);
        // The first goes on.
        drop(first);
        all.give_up_one(at(7));
        assert_eq!(given_up(), [true, false]);
        all.give_up_one(at(7));
        assert_eq!(given_up(), [true, false], "the third has a second left");
        drop((second, third));
        assert!(all.0.lock().by_time.is_empty());
    }
}
