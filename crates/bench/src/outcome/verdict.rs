//! A verdict counts the responses that were checked and the errors found in them.

use serde::{Deserialize, Serialize};

/// What was found in the answers of a step. All counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Answers that were compared with what had been written.
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
    /// Examples kept of each run; more would say nothing new.
    pub const EXAMPLES_MAX: usize = 10;

    /// Whether every answer was right.
    pub fn is_right(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.wrong == 0 && self.stale == 0
    }

    /// Adds another one's counts, and its examples while there is room.
    pub fn merge(&mut self, other: &Self) {
        self.checked += other.checked;
        self.missing += other.missing;
        self.unexpected += other.unexpected;
        self.wrong += other.wrong;
        self.stale += other.stale;
        let room = Self::EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    /// Notes an example if there is room.
    pub fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < Self::EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}
