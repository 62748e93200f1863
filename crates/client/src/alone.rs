//! What one request at a time may take beyond what there is for all.
//!
//! Requests, answers and rows that are read for writes each have room of their own, a part of the budget. A single value may be
//! larger than any of these, whatever the budget, and must nevertheless be written and read. So whoever has waited for all of
//! its room may go beyond it, up to the size of the largest value, but only one does so at a time, whichever room it comes
//! from: the allowance is on top of the budget, and two of them would be more than the budget may be exceeded by.
//!
//! Nobody who holds the allowance waits for it, and who waits for it holds no room. Who has it and does nothing with it, as an
//! answer whose client has stopped reading, asks now and then whether it is [wanted](Alone::is_wanted).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stele_types::limits::VALUE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What whoever has the allowance may take, room included: a value of the largest size and what it comes in.
pub const ALONE_BYTES: usize = VALUE_BYTES_MAX + (4 << 20);

/// The allowance. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Alone(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    permit: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Somebody who does not wait was refused since it was taken; a client comes again after a while.
    refused: AtomicBool,
}

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
pub struct GoesBeyond {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for Alone {
    fn default() -> Self {
        Alone(Arc::new(Shared {
            permit: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
        }))
    }
}

impl Alone {
    /// Waits for it, in order of arrival.
    pub async fn take(&self) -> GoesBeyond {
        let _waits = Waiting::new(&self.0.waiting);
        // Never closed.
        let permit = Arc::clone(&self.0.permit).acquire_owned().await.ok();
        self.granted(permit)
    }

    /// The allowance, if nobody has it and nobody waits for it.
    pub fn try_take(&self) -> Option<GoesBeyond> {
        match Arc::clone(&self.0.permit).try_acquire_owned() {
            Ok(permit) => Some(self.granted(Some(permit))),
            Err(_) => {
                self.0.refused.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn granted(&self, _permit: Option<OwnedSemaphorePermit>) -> GoesBeyond {
        self.0.refused.store(false, Ordering::Relaxed);
        GoesBeyond { _permit }
    }

    /// Whether somebody has it.
    pub fn is_taken(&self) -> bool {
        self.0.permit.available_permits() == 0
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
    async fn one_at_a_time_goes_beyond() {
        let alone = Alone::default();
        let first = alone.take().await;
        assert!(alone.is_taken() && !alone.is_wanted());
        assert!(alone.try_take().is_none() && alone.is_wanted());
        let other = alone.clone();
        let mut waits = Box::pin(async move { other.take().await });
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        let second = waits.await;
        assert!(alone.is_taken() && !alone.is_wanted(), "as long as nobody else comes");
        {
            let mut third = Box::pin(alone.take());
            assert!(futures::poll!(&mut third).is_pending() && alone.is_wanted());
        }
        assert!(!alone.is_wanted(), "it no longer waits");
        drop(second);
        assert!(!alone.is_taken() && alone.try_take().is_some());
    }
}
