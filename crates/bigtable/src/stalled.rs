//! Gives up responses that their clients do not take while other calls are refused.
//!
//! A call keeps its place among the calls in flight until its response has been sent. A client that opens no window would keep it
//! for ever, and a few connections could have all places. A *stalled* response is one that waits for its client. It is harmless
//! until a call is refused for want of a place. Each refusal gives up the response that has stalled longest, if that is at least
//! [`PATIENCE`]. Its stream is reset, and a repetition of the refused call finds the place.

use crate::response_memory::PATIENCE;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// All stalled responses. Each is of a call in flight, which bounds their number.
#[derive(Default)]
pub(crate) struct StalledResponses(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// Since when each has stalled, and the task that sends it. In the order in which they stalled.
    by_number: BTreeMap<u64, (Duration, Waker)>,
}

/// A stalled response, until this is dropped.
pub(crate) struct Stalled {
    waiting: Arc<Mutex<Waiting>>,
    number: u64,
}

impl StalledResponses {
    /// Adds a response that stalls from now on.
    pub fn add(&self, now: Duration) -> Stalled {
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_number.insert(number, (now, Waker::noop().clone()));
        Stalled {
            waiting: Arc::clone(&self.0),
            number,
        }
    }

    /// Gives up the response that has stalled longest, if its client has had its time.
    pub fn give_up_one(&self, now: Duration) {
        let mut waiting = self.0.lock();
        let overdue = waiting
            .by_number
            .first_entry()
            .filter(|oldest| now >= oldest.get().0 + PATIENCE);
        let given_up = overdue.map(|oldest| oldest.remove());
        drop(waiting);
        if let Some((_, waker)) = given_up {
            waker.wake();
        }
    }
}

impl Stalled {
    /// Ready when the response is given up.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.waiting.lock().by_number.get_mut(&self.number) {
            Some((_, waker)) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.waiting.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_that_has_stalled_longest_is_given_up_after_a_while() {
        let at = Duration::from_secs;
        let mut context = Context::from_waker(Waker::noop());
        let all = StalledResponses::default();
        let (first, second, third) = (all.add(at(1)), all.add(at(2)), all.add(at(3)));
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
        assert!(all.0.lock().by_number.is_empty());
    }
}
