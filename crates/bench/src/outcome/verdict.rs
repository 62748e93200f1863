//! A verdict counts the responses that were checked and the errors found in them.

use serde::{Deserialize, Serialize};

/// Errors found in the responses of a step, as counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Responses that were compared with the record of writes.
    pub checked: u64,
    /// Rows that must exist and were not returned.
    pub missing: u64,
    /// Rows returned that cannot exist, or out of order, or twice.
    pub unexpected: u64,
    /// Values that were never written there.
    pub wrong: u64,
    /// Values older than a write acknowledged before the read began.
    pub stale: u64,
    /// The first few of these, described.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Examples of each run; more would add no information.
    pub const EXAMPLES_MAX: usize = 10;

    /// Whether every response was right.
    pub fn is_right(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.wrong == 0 && self.stale == 0
    }

    /// Adds the counts of another verdict, and its examples up to the limit.
    pub fn merge(&mut self, other: &Self) {
        self.checked += other.checked;
        self.missing += other.missing;
        self.unexpected += other.unexpected;
        self.wrong += other.wrong;
        self.stale += other.stale;
        let room = Self::EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    /// Records an example, up to the limit.
    pub fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < Self::EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}
