//! What one request at a time may take beyond what there is for all.
//!
//! Requests, answers and rows that are read for writes each have room of their own, a part of the budget. A single value may be
//! larger than any of these, whatever the budget, and must nevertheless be written and read. So whoever has waited for all of
//! its room may go beyond it, up to the size of the largest value, but only one does so at a time, whichever room it comes
//! from: the allowance is on top of the budget, and two of them would be more than the budget may be exceeded by.
//!
//! Nobody who holds the allowance waits for it, and who waits for it holds no room. Who has it and does nothing with it, as an
//! answer whose client has stopped reading, asks now and then whether it is [wanted](Alone::is_wanted).
//!
//! Large values of stored rows have a room of their own, below the front ends, and go to clients in answers; those of a memtable
//! keep memory of it. So it is known here whether somebody waits for either, and whoever holds such values and does nothing with them
//! can let go of them.
//!
//! What is in flight is known here too, each kind as far as its part tells, so that who divides the budget can have caches give
//! way the moment that more is taken than was set aside: [`Overdraft::on_change`].

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stele_types::limits::VALUE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What whoever has the allowance may take, room included: a value of the largest size and what it comes in.
pub const OVERDRAFT_BYTES: usize = VALUE_BYTES_MAX + (4 << 20);

/// Changes of what is in flight that are worth telling of. Below it are all small requests, which come and go by the
/// thousand.
const STEP_BYTES: usize = 4 << 20;

/// The allowance. Cloning shares it.
#[derive(Clone)]
pub struct Overdraft(Arc<Shared>);

struct Shared {
    permit: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Somebody who does not wait was refused since it was taken; a client comes again after a while.
    refused: AtomicBool,
    in_flight: [AtomicUsize; KINDS],
    /// Bytes of large values that readers wait for, and of memtables that writers do.
    values_wanted: Arc<AtomicUsize>,
    /// Who is told of changes.
    listener: Mutex<Option<Arc<Listener>>>,
}

impl std::fmt::Debug for Overdraft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Alone").field(&self.in_flight()).finish()
    }
}

/// What is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests from their first byte to their answer.
    Requests,
    /// Answers from before they are read until they are sent.
    Answers,
    /// What memtables take, or are about to, beyond their share.
    Memtables,
}

const KINDS: usize = Kind::Memtables as usize + 1;

/// Bytes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Of [`Kind::Requests`] and [`Kind::Answers`], and of who has the allowance.
    pub calls: usize,
    /// Of [`Kind::Memtables`].
    pub memtables: usize,
}

/// Makes room for what is in flight, which it asks for, at once; how long what it has freed takes to be gone.
pub type Listener = dyn Fn(&dyn Fn() -> InFlight) -> Duration + Send + Sync;

/// Counts who waits, as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to go beyond, until it is dropped.
#[derive(Debug)]
pub struct OverdraftPermit {
    permit: Option<OwnedSemaphorePermit>,
    overdraft: Overdraft,
    settles: Duration,
}

impl OverdraftPermit {
    /// How long to wait before anything is taken: until what has made room for it is gone.
    pub fn settles(&self) -> Duration {
        self.settles
    }
}

impl Drop for OverdraftPermit {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.overdraft.changed();
    }
}

impl Default for Overdraft {
    fn default() -> Self {
        Overdraft(Arc::new(Shared {
            permit: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            in_flight: Default::default(),
            values_wanted: Arc::default(),
            listener: Mutex::default(),
        }))
    }
}

impl Overdraft {
    /// Waits for it, in order of arrival.
    pub async fn take(&self) -> OverdraftPermit {
        let _waits = Waiting::new(&self.0.waiting);
        // Never closed.
        let permit = Arc::clone(&self.0.permit).acquire_owned().await.ok();
        self.granted(permit)
    }

    /// The allowance, if nobody has it and nobody waits for it.
    pub fn try_take(&self) -> Option<OverdraftPermit> {
        match Arc::clone(&self.0.permit).try_acquire_owned() {
            Ok(permit) => Some(self.granted(Some(permit))),
            Err(_) => {
                self.0.refused.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn granted(&self, permit: Option<OwnedSemaphorePermit>) -> OverdraftPermit {
        self.0.refused.store(false, Ordering::Relaxed);
        OverdraftPermit {
            permit,
            overdraft: self.clone(),
            settles: self.changed(),
        }
    }

    /// Tells somebody of changes of what is in flight, in place of who was told before. It is called by whoever changes it.
    pub fn on_change(&self, listener: Arc<Listener>) {
        *self.0.listener.lock() = Some(listener);
        self.changed();
    }

    /// What is in flight.
    pub fn in_flight(&self) -> InFlight {
        let of = |kind: Kind| self.0.in_flight[kind as usize].load(Ordering::Relaxed);
        let beyond = if self.is_taken() { OVERDRAFT_BYTES } else { 0 };
        InFlight {
            calls: of(Kind::Requests) + of(Kind::Answers) + beyond,
            memtables: of(Kind::Memtables),
        }
    }

    /// So much more is in flight.
    pub fn add(&self, kind: Kind, bytes: usize) {
        let before = self.0.in_flight[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        self.moved(before, before.saturating_add(bytes));
    }

    /// So much of it has gone.
    pub fn sub(&self, kind: Kind, bytes: usize) {
        let before = self.0.in_flight[kind as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.moved(before, before.saturating_sub(bytes));
    }

    /// So much it is now.
    pub fn set(&self, kind: Kind, bytes: usize) {
        let before = self.0.in_flight[kind as usize].swap(bytes, Ordering::Relaxed);
        self.moved(before, bytes);
    }

    fn moved(&self, before: usize, now: usize) {
        if before / STEP_BYTES != now / STEP_BYTES {
            self.changed();
        }
    }

    fn changed(&self) -> Duration {
        let listener = self.0.listener.lock().clone();
        listener.map_or(Duration::ZERO, |listener| listener(&|| self.in_flight()))
    }

    /// Whether somebody has it.
    pub fn is_taken(&self) -> bool {
        self.0.permit.available_permits() == 0
    }

    /// For whoever has the room for large values on their way to readers, or memtables, to say how many bytes are waited for that
    /// answers may hold.
    pub fn values_wanted(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.values_wanted)
    }

    /// Whether somebody waits for it, or was refused since it was taken last.
    pub fn is_wanted(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0 || self.0.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_overdraft_at_a_time() {
        let overdraft = Overdraft::default();
        let first = overdraft.take().await;
        assert!(overdraft.is_taken() && !overdraft.is_wanted());
        assert!(overdraft.try_take().is_none() && overdraft.is_wanted());
        let other = overdraft.clone();
        let mut waits = Box::pin(async move { other.take().await });
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        let second = waits.await;
        assert!(
            overdraft.is_taken() && !overdraft.is_wanted(),
            "as long as nobody else comes"
        );
        {
            let mut third = Box::pin(overdraft.take());
            assert!(futures::poll!(&mut third).is_pending() && overdraft.is_wanted());
        }
        assert!(!overdraft.is_wanted(), "it no longer waits");
        drop(second);
        assert!(!overdraft.is_taken() && overdraft.try_take().is_some());
    }

    #[test]
    fn who_makes_room_hears_of_what_is_in_flight() {
        let overdraft = Overdraft::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        overdraft.on_change(Arc::new(move |in_flight: &dyn Fn() -> InFlight| {
            let in_flight = in_flight();
            tells.lock().push((in_flight.calls, in_flight.memtables));
            Duration::from_millis(7)
        }));
        overdraft.add(Kind::Requests, STEP_BYTES - 1);
        overdraft.add(Kind::Answers, 1);
        assert_eq!(*told.lock(), [(0, 0)], "steps of each kind");
        overdraft.add(Kind::Requests, 1);
        overdraft.set(Kind::Memtables, 2 * STEP_BYTES);
        let beyond = overdraft.try_take().unwrap();
        assert_eq!(beyond.settles(), Duration::from_millis(7));
        drop(beyond);
        overdraft.sub(Kind::Requests, STEP_BYTES);
        overdraft.set(Kind::Memtables, 0);
        let calls = STEP_BYTES + 1;
        let expected = [
            (0, 0),
            (calls, 0),
            (calls, 2 * STEP_BYTES),
            (calls + OVERDRAFT_BYTES, 2 * STEP_BYTES),
            (calls, 2 * STEP_BYTES),
            (1, 2 * STEP_BYTES),
            (1, 0),
        ];
        assert_eq!(*told.lock(), expected);
    }
}
