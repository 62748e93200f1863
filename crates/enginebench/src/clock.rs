//! Wall time and CPU time of the whole process.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Starts of both.
pub struct Clock {
    wall: Instant,
    cpu: Duration,
}

/// The time that a piece of work took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of all threads, in user and kernel mode.
    pub cpu: Duration,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Clock {
            wall: Instant::now(),
            cpu: cpu_of_process(),
        }
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.wall
    }

    /// Since the start.
    pub fn took(&self) -> Took {
        Took {
            wall: self.wall.elapsed(),
            cpu: cpu_of_process().saturating_sub(self.cpu),
        }
    }
}

/// Ended threads included.
fn cpu_of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
