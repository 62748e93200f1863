//! The gate of the row cache rejects results that have not seen a write.
//!
//! It consists of a count of writes, and a flag that says whether there are rows to remove. The argument is in the header of
//! [`super`].
//!
//! Compiled twice: with the atomics of the standard library, and in tests with those of a model checker that tries all
//! orders and all values that a load may see. Hence no order here is stronger than the checker can show to be needed.

use super::sync::{AtomicBool, AtomicU64, Ordering};

/// Lower bits of a stripe: writes in progress, of which there are fewer than rows fit into the log's queues. The others
/// count 10^12 writes, and a reading that takes that long is not met by the one number it noted.
const IN_PROGRESS_BITS: u32 = 24;
const IN_PROGRESS: u64 = (1 << IN_PROGRESS_BITS) - 1;

/// Writes that have begun to apply, and in the lowest [`IN_PROGRESS_BITS`] those that have not finished.
#[derive(Default)]
pub(super) struct Stripe(AtomicU64);

impl Stripe {
    /// A write begins: from here on no reading that began before is installed.
    pub(super) fn begin(&self) {
        let before = self.0.fetch_add((1 << IN_PROGRESS_BITS) + 1, Ordering::AcqRel);
        assert!(
            before & IN_PROGRESS < IN_PROGRESS,
            "writes in progress do not run over into the count of those that began"
        );
    }

    /// A write is visible: a reading that notes the count from here on sees it.
    pub(super) fn end(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        assert!(before & IN_PROGRESS > 0, "a write ends once");
    }

    /// Writes that have begun; `None` while some have not finished.
    pub(super) fn quiet(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        (word & IN_PROGRESS == 0).then_some(word >> IN_PROGRESS_BITS)
    }

    /// Whether no write has begun since `begun` had, when none was in progress. A read-modify-write that changes
    /// nothing: a write that begins later synchronises with it, and sees all that was done before; a load would not
    /// guarantee that.
    pub(super) fn is_still(&self, begun: u64) -> bool {
        self.0.fetch_add(0, Ordering::AcqRel) == begun << IN_PROGRESS_BITS
    }
}

/// Whether a shard may have rows.
#[derive(Default)]
pub(super) struct Holds(AtomicBool);

impl Holds {
    /// Asked without the shard's lock: by a write after it has begun, and by lookups.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Set under the shard's lock: before a row is installed, and when there is none left.
    pub(super) fn set(&self, any: bool) {
        self.0.store(any, Ordering::Release);
    }
}
