//! Decides whether new entries are reused while they are in the small queue.
//!
//! Every new entry records the number of entries before it. It counts as useful if it is used before a full small queue
//! of others has arrived: it would then have been used even if all of those had been admitted. Entries that are
//! admitted while most are rejected stay much longer, and are thus judged as if all were admitted.

/// New entries that the decision considers. Its precision is a few hundredths.
const JUDGED_MAX: u32 = 256;
/// With fewer entries there is no decision.
const JUDGED_MIN: u32 = 64;
/// One new entry in this many must be used for the small queue to pay. A block of some kilobytes takes 3 µs to read
/// from the page cache, and half of that again if an insertion evicts another.
const USEFUL_ONE_IN: u32 = 8;
/// While the queue does not pay, one new entry in this many is admitted nevertheless, to be judged.
const TRIED_ONE_IN: u32 = 16;

/// The statistics of new entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probation {
    /// New entries, whether admitted to the small queue or rejected; wraps.
    arrivals: u32,
    /// Recent entries that were admitted to it.
    judged: u32,
    /// Number of these that were used early enough.
    useful: u32,
}

impl Probation {
    /// The number of arrivals, which a new entry records.
    pub(super) fn arrivals(&self) -> u32 {
        self.arrivals
    }

    /// Counts an entry that was admitted to the small queue.
    pub(super) fn arrived(&mut self) {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.judged += 1;
        if self.judged > JUDGED_MAX {
            self.judged /= 2;
            self.useful /= 2;
        }
    }

    /// Counts the first use of an entry in the small queue; `arrival` is the number it recorded.
    pub(super) fn used(&mut self, arrival: u32, places: usize) {
        let since = self.arrivals.wrapping_sub(arrival) as usize;
        self.useful = self.judged.min(self.useful + u32::from(since <= places));
        debug_assert!(
            self.useful <= self.judged && self.judged <= JUDGED_MAX,
            "useful entries are among the judged ones"
        );
    }

    /// Whether to reject a new entry.
    pub(super) fn turns_away(&mut self) -> bool {
        let is_worth_it = self.judged < JUDGED_MIN || self.useful.saturating_mul(USEFUL_ONE_IN) >= self.judged;
        if is_worth_it || self.arrivals.is_multiple_of(TRIED_ONE_IN) {
            return false;
        }
        self.arrivals = self.arrivals.wrapping_add(1);
        true
    }
}
