//! The calls in progress on one socket: their responses and the waiting callers.
//!
//! Terms: a *slot* holds one call. A *tick* is the unit of time of deadlines, counted by the socket, so that a call
//! need not read the clock.
//!
//! Invariants:
//! * A slot is used again only when the response to its call has arrived, or the socket is dead. A response that
//!   arrives after its caller has left can therefore never be taken for the response to another call.
//! * At most [`SLOTS_MAX`] calls are in progress or without a response.
//!
//! Pure: no clock, no sockets.

use crate::failure::Failure;
use std::task::{Poll, Waker};
use stele_wire::frame::Response;

/// Most calls in progress on one socket. A generator thread has at most a few hundred clients with two requests each.
/// If there are more, the server has forgotten calls, and the socket is given up.
pub const SLOTS_MAX: usize = 8192;

/// Bits of a call's id that hold its slot. The others count its uses. Ids are signed in Java: 15 bits are left.
const INDEX_BITS: u32 = 16;
const GENERATION_MAX: u32 = (1 << (31 - INDEX_BITS)) - 1;

/// A response, or the failure that replaces it.
pub type Answer = Result<Response, Failure>;

/// All slots of a socket.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// 1 to [`GENERATION_MAX`]: an id of 0 could be taken for a response to the whole connection.
    generation: u32,
    /// Tick after which the call is given up.
    deadline: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// No response yet. There is no waker until the caller has polled for the first time.
    Waiting(Option<Waker>),
    /// To be fetched by the caller. `answered` is false if the server's response may still arrive.
    Done {
        answer: Answer,
        answered: bool,
    },
    /// The caller has left, and the response has not arrived.
    Abandoned,
}

impl Slots {
    /// Begins a call, and returns its id; `None` if there are too many.
    pub fn begin(&mut self, deadline: u32) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot {
                    generation: 0,
                    deadline,
                    state: State::Free,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.generation = slot.generation % GENERATION_MAX + 1;
        slot.deadline = deadline;
        slot.state = State::Waiting(None);
        Some(slot.generation << INDEX_BITS | index)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Slot> {
        let index = id & ((1 << INDEX_BITS) - 1);
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == id >> INDEX_BITS).then_some(slot)
    }

    fn release(&mut self, id: u32) {
        if let Some(slot) = self.slot(id) {
            slot.state = State::Free;
            self.free.push(id & ((1 << INDEX_BITS) - 1));
        }
    }

    /// Stores a response, and returns the caller's waker. A response without a call is dropped.
    pub fn answer(&mut self, id: u32, response: Response) -> Option<Waker> {
        let slot = self.slot(id)?;
        match &mut slot.state {
            State::Free | State::Done { answered: true, .. } => None,
            State::Waiting(waker) => {
                let waker = waker.take();
                slot.state = State::Done {
                    answer: Ok(response),
                    answered: true,
                };
                waker
            }
            // It arrived after all, and before the caller knew that it was late.
            State::Done { .. } => {
                slot.state = State::Done {
                    answer: Ok(response),
                    answered: true,
                };
                None
            }
            State::Abandoned => {
                self.release(id);
                None
            }
        }
    }

    /// The response to a call, which ends the call. Without a response, remembers the waker.
    pub fn poll(&mut self, id: u32, waker: &Waker) -> Poll<Answer> {
        let Some(slot) = self.slot(id) else {
            return Poll::Ready(Err(Failure::Protocol("a call was asked for after its end".into())));
        };
        if let State::Waiting(waiting) = &mut slot.state {
            if !waiting.as_ref().is_some_and(|w| w.will_wake(waker)) {
                *waiting = Some(waker.clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut slot.state, State::Abandoned) {
            State::Done { answer, answered } => {
                if answered {
                    self.release(id);
                }
                Poll::Ready(answer)
            }
            State::Free | State::Waiting(_) | State::Abandoned => Poll::Pending,
        }
    }

    /// Records that the caller of a call has left.
    pub fn abandon(&mut self, id: u32) {
        let Some(slot) = self.slot(id) else { return };
        match slot.state {
            State::Done { answered: true, .. } => self.release(id),
            State::Free => {}
            State::Waiting(_) | State::Done { .. } | State::Abandoned => slot.state = State::Abandoned,
        }
    }

    /// Ends all calls whose deadline is over, and returns their wakers.
    pub fn expire(&mut self, tick: u32, waited_ms: u64) -> Vec<Waker> {
        let late = |slot: &Slot| slot.deadline < tick;
        self.end(late, &Failure::Timeout(waited_ms), false)
    }

    /// Ends all calls, because no response can arrive any more, and returns their wakers.
    pub fn fail(&mut self, failure: &Failure) -> Vec<Waker> {
        self.end(|_| true, failure, true)
    }

    fn end(&mut self, which: impl Fn(&Slot) -> bool, failure: &Failure, answered: bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| which(slot)) {
            if let State::Waiting(waker) = &mut slot.state {
                wakers.extend(waker.take());
                slot.state = State::Done {
                    answer: Err(failure.clone()),
                    answered,
                };
            }
        }
        wakers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use stele_wire::messages::ResponseHeader;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn response(text: &'static str) -> Response {
        Response {
            header: ResponseHeader::default(),
            message: Bytes::from_static(text.as_bytes()),
            cells: Bytes::new(),
        }
    }

    fn text(answer: Poll<Answer>) -> Option<Bytes> {
        match answer {
            Poll::Ready(Ok(response)) => Some(response.message),
            _ => None,
        }
    }

    #[test]
    fn answers_find_their_calls_in_any_order() {
        let mut slots = Slots::default();
        let waker = Waker::noop();
        let (a, b) = (slots.begin(9).unwrap(), slots.begin(9).unwrap());
        assert!(a != b && a != 0 && i32::try_from(a).is_ok());
        slots.answer(b, response("b"));
        slots.answer(a, response("a"));
        assert_eq!(text(slots.poll(a, waker)).unwrap(), "a");
        assert_eq!(text(slots.poll(b, waker)).unwrap(), "b");
        let again = slots.begin(9).unwrap();
        assert!(again != a && again != b, "ids are not used twice in a row");
        assert!(slots.answer(b, response("late")).is_none());
        assert!(slots.poll(again, waker).is_pending());
    }

    #[test]
    fn who_waits_is_woken_once() {
        let mut slots = Slots::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let id = slots.begin(9).unwrap();
        assert!(slots.poll(id, &waker).is_pending());
        slots.answer(id, response("x")).unwrap().wake();
        assert!(slots.answer(id, response("y")).is_none());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(text(slots.poll(id, &waker)).unwrap(), "x");
    }

    #[test]
    fn a_slot_left_by_its_caller_is_free_when_the_answer_has_come() {
        let mut slots = Slots::default();
        let id = slots.begin(1).unwrap();
        assert!(slots.poll(id, Waker::noop()).is_pending());
        assert_eq!(slots.expire(1, 5).len(), 0, "not yet late");
        assert_eq!(slots.expire(2, 5).len(), 1);
        assert_eq!(slots.poll(id, Waker::noop()), Poll::Ready(Err(Failure::Timeout(5))));
        slots.abandon(id);
        let other = slots.begin(9).unwrap();
        assert_ne!(other & 0xffff, id & 0xffff, "the answer may still come");
        slots.answer(id, response("late"));
        assert_eq!(slots.begin(9).unwrap() & 0xffff, id & 0xffff);
    }

    #[test]
    fn a_dead_socket_fails_all_calls() {
        let mut slots = Slots::default();
        let ids: Vec<u32> = (0..3).filter_map(|_| slots.begin(9)).collect();
        slots.answer(ids[1], response("in time"));
        let lost = Failure::Lost("gone".into());
        slots.fail(&lost);
        assert_eq!(slots.poll(ids[0], Waker::noop()), Poll::Ready(Err(lost)));
        assert_eq!(text(slots.poll(ids[1], Waker::noop())).unwrap(), "in time");
    }

    #[test]
    fn there_is_a_limit_and_ids_stay_positive() {
        let mut slots = Slots::default();
        let all: Vec<u32> = std::iter::from_fn(|| slots.begin(9)).collect();
        assert_eq!(all.len(), SLOTS_MAX);
        let mut id = all[0];
        for _ in 0..=GENERATION_MAX {
            slots.answer(id, response("x"));
            assert!(slots.poll(id, Waker::noop()).is_ready());
            id = slots.begin(9).unwrap();
            assert!(id > 0 && i32::try_from(id).is_ok());
        }
    }
}
