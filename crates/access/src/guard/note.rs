//! A call that is written to the audit log with its outcome.
//!
//! A client that resets its stream drops the call, while other tasks may go on to carry it out. So the note is made before the call,
//! and one that is dropped without an outcome is written, too.

use super::Guard;
use crate::audit::{GIVEN_UP, Outcome};
use std::fmt::Display;
use stele_client::ServiceError;

/// A call that has begun. It is written once: with its outcome, or when it is dropped.
#[must_use = "a note that is dropped says that the call was given up"]
pub struct Note<'g> {
    guard: &'g Guard,
    operation: &'static str,
    on: String,
    is_settled: bool,
}

impl<'g> Note<'g> {
    pub(super) fn new(guard: &'g Guard, operation: &'static str, on: &dyn Display) -> Self {
        Note {
            guard,
            operation,
            on: on.to_string(),
            is_settled: false,
        }
    }

    /// Writes it with its outcome.
    pub fn write(self, error: Option<&ServiceError>) {
        self.write_outcome(error.map(|error| &*error.message));
    }

    /// Writes that it is done, or why it failed.
    pub fn write_outcome(mut self, why: Option<&str>) {
        match why {
            None => self.put(Outcome::Done, ""),
            Some(why) => self.put(Outcome::Failed, why),
        }
    }

    /// Writes nothing: the call was denied, which is in the log already.
    pub fn leave_out(mut self) {
        self.is_settled = true;
    }

    fn put(&mut self, outcome: Outcome, why: &str) {
        self.is_settled = true;
        self.guard.note(self.operation, &self.on, outcome, why);
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.put(Outcome::Failed, GIVEN_UP);
        }
    }
}
