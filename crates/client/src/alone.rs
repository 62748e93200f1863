//! What one request at a time may take beyond what there is for all.
//!
//! Requests, answers and rows that are read for writes each have room of their own, a part of the budget. A single value may be
//! larger than any of these, whatever the budget, and must nevertheless be written and read. So whoever has waited for all of
//! its room may go beyond it, up to the size of the largest value, but only one does so at a time, whichever room it comes
//! from: the allowance is on top of the budget, and two of them would be more than the budget may be exceeded by.
//!
//! Nobody who holds the allowance waits for it, and who waits for it holds no room.

use std::sync::Arc;
use stele_types::limits::VALUE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What whoever has the allowance may take, room included: a value of the largest size and what it comes in.
pub const ALONE_BYTES: usize = VALUE_BYTES_MAX + (4 << 20);

/// The allowance. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Alone(Arc<Semaphore>);

/// The right to go beyond, until it is dropped.
#[derive(Debug)]
pub struct GoesBeyond {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for Alone {
    fn default() -> Self {
        Alone(Arc::new(Semaphore::new(1)))
    }
}

impl Alone {
    /// Waits for it, in order of arrival.
    pub async fn take(&self) -> GoesBeyond {
        // Never closed.
        let _permit = self.0.clone().acquire_owned().await.ok();
        GoesBeyond { _permit }
    }

    /// The allowance, if nobody has it and nobody waits for it.
    pub fn try_take(&self) -> Option<GoesBeyond> {
        let permit = self.0.clone().try_acquire_owned().ok()?;
        Some(GoesBeyond { _permit: Some(permit) })
    }

    /// Whether somebody has it.
    pub fn is_taken(&self) -> bool {
        self.0.available_permits() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_goes_beyond() {
        let alone = Alone::default();
        let first = alone.take().await;
        assert!(alone.is_taken() && alone.try_take().is_none());
        let other = alone.clone();
        let mut waits = Box::pin(async move { other.take().await });
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        let second = waits.await;
        assert!(alone.is_taken());
        drop(second);
        assert!(!alone.is_taken() && alone.try_take().is_some());
    }
}
