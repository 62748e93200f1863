//! How long a thread was ready to run and had no core.
//!
//! That part of a long operation is not due to the engine.

use std::time::Duration;

/// Operations between two checks: reading the account costs some microseconds, so not after each.
const OPERATIONS_PER_CHECK: u32 = 1024;

/// The account of the thread that makes it.
#[derive(Debug, Default)]
pub struct Descheduled {
    before: Duration,
    since: u32,
}

impl Descheduled {
    /// Begins to look.
    pub fn start() -> Self {
        Descheduled {
            before: waited_for_core(),
            since: 0,
        }
    }

    /// To be called after every operation that was not long. Returns whether a check was made, which took time of its
    /// own.
    pub fn note_short(&mut self) -> bool {
        self.since += 1;
        let due = self.since >= OPERATIONS_PER_CHECK;
        if due {
            self.note_long();
        }
        due
    }

    /// After a long one: how long the thread has waited for a core, in it or in the few operations since the last look.
    pub fn note_long(&mut self) -> Duration {
        let now = waited_for_core();
        self.since = 0;
        now.saturating_sub(std::mem::replace(&mut self.before, now))
    }
}

/// Of this thread since it began; zero where the system does not say.
fn waited_for_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|waited| waited.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
