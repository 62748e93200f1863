//! Processors of processes: the real time of their steps becomes virtual time.
//!
//! A process with a processor runs in *turns*: all its tasks that are runnable run one after the other, as on an event loop. Then it is
//! paused for the time that this really took, while other processes run. Turns keep the processor's caches warm, as if each process had
//! a processor alone. Within a turn the process sees the time of its beginning, and others see its effects from then on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Processes with a processor.
#[derive(Default)]
pub(super) struct Processors {
    /// How long each has worked.
    worked: BTreeMap<u64, Duration>,
    turn: Option<Current>,
}

struct Current {
    process: u64,
    tasks: Vec<u64>,
    worked: Duration,
}

/// How a turn goes on.
pub(super) enum Turn {
    /// With this task.
    Goes(u64),
    /// It has ended: its process, and the time of its work.
    Ends(u64, Duration),
}

impl Processors {
    pub(super) fn add(&mut self, process: u64) {
        self.worked.insert(process, Duration::ZERO);
    }

    pub(super) fn has(&self, process: u64) -> bool {
        self.worked.contains_key(&process)
    }

    pub(super) fn are_none(&self) -> bool {
        self.worked.is_empty()
    }

    pub(super) fn worked(&self, process: u64) -> Duration {
        self.worked.get(&process).copied().unwrap_or_default()
    }

    pub(super) fn begin_turn(&mut self, process: u64, tasks: Vec<u64>) {
        self.turn = Some(Current {
            process,
            tasks,
            worked: Duration::ZERO,
        });
    }

    pub(super) fn have_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// `None` when no process has its turn.
    pub(super) fn next(&mut self) -> Option<Turn> {
        match self.turn.as_mut()?.tasks.pop() {
            Some(task) => Some(Turn::Goes(task)),
            None => self.turn.take().map(|turn| Turn::Ends(turn.process, turn.worked)),
        }
    }

    /// A step of the turn took this long.
    pub(super) fn work(&mut self, time: Duration) {
        if let Some(turn) = &mut self.turn {
            turn.worked += time;
            *self.worked.entry(turn.process).or_default() += time;
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the time of real work is measured, not simulated"
)]
pub(super) fn real_time() -> Instant {
    Instant::now()
}
