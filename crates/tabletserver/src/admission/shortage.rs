//! When a full disk is more than back-pressure.
//!
//! Writes are refused early, while the space for flushes is still there. A flush and the log that it frees then bring space
//! back. A *shortage* lasts, so that kept tables are given up for it.
//!
//! Pure: no I/O, no clock.

use std::time::Duration;

/// A flush takes of the reserve until the log gives its bytes back. Many times longer than that takes.
const LASTING: Duration = Duration::from_secs(5);

/// How long a write that met a full disk counts. A quota shows in nothing else. Four rounds of the master, which gives up
/// one kept table in each.
const MET: Duration = Duration::from_secs(2);

/// The known lack of space that flushes do not bring back. Times are of the environment's clock.
#[derive(Default)]
pub(super) struct Shortage {
    /// From when on every check of free space has found too little for flushes.
    since: Option<Duration>,
    /// When a write last met a full disk.
    met: Option<Duration>,
}

impl Shortage {
    /// Notes a check of free space.
    pub(super) fn checked(&mut self, now: Duration, is_short: bool) {
        assert!(
            self.since.is_none_or(|since| since <= now),
            "checks are noted in their order"
        );
        self.since = is_short.then(|| self.since.unwrap_or(now));
    }

    /// Notes a write that met a full disk.
    pub(super) fn met(&mut self, now: Duration) {
        assert!(self.met.is_none_or(|met| met <= now), "writes are noted in their order");
        self.met = Some(now);
    }

    /// Whether space is short for longer than flushes take.
    pub(super) fn lasts(&self, now: Duration) -> bool {
        let lasts = self.since.is_some_and(|since| now.saturating_sub(since) >= LASTING);
        lasts || self.met.is_some_and(|met| now.saturating_sub(met) < MET)
    }
}
