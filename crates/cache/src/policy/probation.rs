//! Whether what is new is asked for again while it is in the small queue.
//!
//! Of every new entry it is noted how many had come before it. One that is used before as many others have come as the small
//! queue has places for would have been used there, also if all these had been let in: so entries that get in while most are
//! turned away, and stay much longer for it, are judged as if none were.

/// New entries that are remembered. What they tell is a few hundredths from the truth.
const JUDGED_MAX: u32 = 256;
/// Fewer say nothing.
const JUDGED_MIN: u32 = 64;
/// One new entry in so many must be used for the small queue to be worth its trouble. A block of some kilobytes that is read from
/// memory of the system takes 3 µs, and half of that again if another has to go for it.
const USEFUL_ONE_IN: u32 = 8;
/// While it is not, one new entry in so many gets in all the same, to judge it by.
const TRIED_ONE_IN: u32 = 16;

/// What is known of new entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probation {
    /// Those that came to the small queue, or were turned away; wraps.
    arrivals: u32,
    /// Of those that came to it lately.
    judged: u32,
    /// Of these, how many were used in time.
    useful: u32,
}

impl Probation {
    /// How many have come: what a new entry is to remember.
    pub(super) fn arrivals(&self) -> u32 {
        self.arrivals
    }

    /// One has come to the small queue.
    pub(super) fn arrived(&mut self) {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.judged += 1;
        if self.judged > JUDGED_MAX {
            self.judged /= 2;
            self.useful /= 2;
        }
    }

    /// One in the small queue, which came after so many, is used for the first time.
    pub(super) fn used(&mut self, arrival: u32, places: usize) {
        let since = self.arrivals.wrapping_sub(arrival) as usize;
        self.useful = self.judged.min(self.useful + u32::from(since <= places));
        debug_assert!(
            self.useful <= self.judged && self.judged <= JUDGED_MAX,
            "useful entries are among the judged ones"
        );
    }

    /// Whether a new one is to be turned away.
    pub(super) fn turns_away(&mut self) -> bool {
        let is_worth_it = self.judged < JUDGED_MIN || self.useful.saturating_mul(USEFUL_ONE_IN) >= self.judged;
        if is_worth_it || self.arrivals.is_multiple_of(TRIED_ONE_IN) {
            return false;
        }
        self.arrivals = self.arrivals.wrapping_add(1);
        true
    }
}
