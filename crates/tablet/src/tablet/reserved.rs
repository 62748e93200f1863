//! Sequence numbers of runs that come from outside.
//!
//! Every entry of such a run has its sequence number in its key, so the number is needed when the file is written. Its place
//! in the commit order is where the run is added, which is minutes later, and the tablet takes writes meanwhile. So numbers
//! are *reserved* ahead: far above those of the writes that will come. When the run is added, and no writer is at work, the
//! tablet goes on behind them. If more writes came than were expected, nothing is added, and the next attempt reserves
//! numbers further ahead.
//!
//! Invariant: reserved numbers that are taken are above those of all batches before, and below those of all batches after.

use super::Tablet;
use crate::error::{Result, TabletError};
use std::sync::atomic::{AtomicU64, Ordering};
use stele_types::SeqNo;

/// Mutations that may come while a run is written: those of 20 seconds at 50,000 a second. An epoch has numbers for a million
/// such runs of a tablet.
const AHEAD_MIN: u64 = 1 << 20;
/// The same at most: no tablet takes as many in a day.
const AHEAD_MAX: u64 = 1 << 34;
/// How much further ahead the next attempt reserves.
const AHEAD_FACTOR: u64 = 16;

/// How far ahead numbers are reserved.
#[derive(Debug)]
pub(super) struct Ahead(AtomicU64);

impl Default for Ahead {
    fn default() -> Self {
        Ahead(AtomicU64::new(AHEAD_MIN))
    }
}

impl Ahead {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn grow(&self) {
        let next = self.get().saturating_mul(AHEAD_FACTOR).min(AHEAD_MAX);
        self.0.store(next, Ordering::Relaxed);
    }

    fn shrink(&self) {
        self.0.store((self.get() / 2).max(AHEAD_MIN), Ordering::Relaxed);
    }
}

impl Tablet {
    /// The first of `count` reserved numbers. One run is written at a time, so no number is reserved twice.
    pub(crate) fn reserve_numbers(&self, count: u64) -> Result<SeqNo> {
        self.check_open()?;
        let next = self.next_sequence();
        match next.counter().checked_add(self.ahead.get() + count) {
            Some(last) if last <= SeqNo::COUNTER_MAX => Ok(next.plus(self.ahead.get())),
            _ => Err(TabletError::Closed { tablet: self.id() }),
        }
    }

    /// Gives reserved numbers their place in the commit order. Fails when writes have come up to them. The caller keeps
    /// writers out.
    pub(crate) fn take_numbers(&self, first: SeqNo, count: u64) -> Result<()> {
        let mut next = self.sequencer.lock();
        if *next > first {
            drop(next);
            self.ahead.grow();
            return Err(TabletError::Busy {
                detail: "more writes than expected came during a bulk load",
            });
        }
        assert_eq!(next.epoch(), first.epoch(), "all numbers of an owner are of its epoch");
        *next = first.plus(count);
        drop(next);
        self.ahead.shrink();
        Ok(())
    }

    /// Everything up to this number is visible from now on. Called while the state is changed that makes it so.
    pub(crate) fn show_through(&self, seq: SeqNo) {
        self.visible.fetch_max(seq.0, Ordering::AcqRel);
    }
}
