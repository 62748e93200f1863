//! Which tablet is flushed next: a pure decision over a snapshot of sizes.

use stele_types::TabletId;

/// A tablet as the flush decision sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushCandidate {
    /// Which tablet.
    pub tablet: TabletId,
    /// Bytes in active memtables that hold anything.
    pub active_bytes: u64,
    /// Bytes in frozen ones.
    pub frozen_bytes: u64,
    /// Keeps the oldest log segment.
    pub holds_log: bool,
    /// Something of it that was acknowledged is in the log, but will not survive power loss there.
    pub is_forsaken: bool,
}

/// The server-wide state the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct FlushPressure {
    /// Bytes of all memtables.
    pub memory_bytes: u64,
    /// Their limit.
    pub memory_bytes_max: u64,
    /// Bytes of one tablet's memtables that are worth a file.
    pub tablet_bytes: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// Their limit.
    pub log_bytes_max: u64,
    /// Whether writes are refused for want of disk space.
    pub is_disk_full: bool,
    /// Whether there is disk space for small files nevertheless, because the reserve for memtables is all that is
    /// short.
    pub has_reserve: bool,
    /// Whether a tablet is being flushed that keeps the oldest log segment, or has records that the log could not make durable.
    pub flushes_for_log: bool,
}

/// Where a disk is all but full, the part of all memtables' bytes below which one is not flushed: its files would take more
/// than it gives back.
const FULL_DISK_PART: u64 = 64;

impl FlushPressure {
    /// Whether memtables take enough that some must be flushed, however small: of memory, or of the disk space that is
    /// kept free for them. Flushed, they take less of it, and the log gives back the rest.
    pub(super) fn is_memory_short(&self) -> bool {
        self.memory_bytes > self.memory_bytes_max / 2 || (self.is_disk_full && self.has_reserve)
    }

    /// Whether a flush can wait for a few seconds: the memory that is left is enough for as long. Half of it is free normally.
    pub(super) fn can_wait(&self) -> bool {
        !self.is_disk_full && self.memory_bytes < self.memory_bytes_max / 8 * 7
    }

    /// Whether the log is a quarter above its limit. Up to there flushes for memory come first: most shorten the log, too.
    fn is_log_far_too_long(&self) -> bool {
        self.log_bytes > self.log_bytes_max.saturating_add(self.log_bytes_max / 4)
    }

    /// Whether a memtable of this many bytes is to be flushed regardless of the log.
    fn asks_for(&self, active_bytes: u64) -> bool {
        let worth = self.tablet_bytes.saturating_add(1);
        let least = if self.is_memory_short() {
            1
        } else if self.is_disk_full {
            (self.memory_bytes / FULL_DISK_PART).clamp(1, worth)
        } else {
            worth
        };
        assert!(least > 0, "an empty memtable is never worth a file");
        active_bytes >= least
    }
}

/// All that a decision goes by, taken at one moment.
#[derive(Clone, Debug)]
pub struct FlushView {
    /// The tablets that may be flushed now.
    pub candidates: Vec<FlushCandidate>,
    /// The server-wide pressure.
    pub pressure: FlushPressure,
    /// Bytes of large writes that are let in or wait for it, and are not in memtables yet.
    pub expected_bytes: u64,
    /// Tablets whose last flush failed, to be tried again when nothing else is due.
    pub retried: Vec<TabletId>,
}

impl FlushView {
    /// The tablet to flush next.
    pub fn pick(&self) -> Option<TabletId> {
        let mut pressure = self.pressure;
        if pressure.is_memory_short() {
            // Readers may hold on to memtables that are flushed already: flushing the little that is in others would free as
            // little.
            let there: u64 = self.candidates.iter().map(|c| c.active_bytes + c.frozen_bytes).sum();
            pressure.memory_bytes = pressure.memory_bytes.min(there + self.expected_bytes);
        }
        // Last the tablets whose flush failed, however little they hold, and if another has flushed them since: then they are
        // no longer unflushable.
        let picked = pick_flush(&self.candidates, pressure);
        debug_assert!(
            picked.is_none_or(|id| self
                .candidates
                .iter()
                .any(|c| c.tablet == id && c.active_bytes + c.frozen_bytes > 0)),
            "the picked tablet may be flushed, and has something to flush"
        );
        picked.or_else(|| self.retried.first().copied())
    }
}

/// The tablet to flush next, by urgency:
/// * a tablet with frozen memtables (a flush failed);
/// * one tablet at a time for a log that is far too long, or that has failed to make records durable;
/// * under memory pressure or past its own size, the largest;
/// * a tablet with records that the log has failed to make durable;
/// * when the log is too long, the largest tablet that holds its oldest part.
///
/// Writers that never let memory pressure end would otherwise keep tablets with few writes from being flushed, and the log would
/// grow for as long. The other flushes are for memory.
///
/// A full disk presses like full memory, and writers do not keep that up.
pub fn pick_flush(candidates: &[FlushCandidate], pressure: FlushPressure) -> Option<TabletId> {
    let pick = |wanted: &dyn Fn(&FlushCandidate) -> bool| {
        let found = candidates.iter().filter(|c| wanted(c));
        found
            .max_by_key(|c| (c.active_bytes + c.frozen_bytes, c.tablet))
            .map(|c| c.tablet)
    };
    let is_for_log = |c: &FlushCandidate| c.is_forsaken || (c.holds_log && pressure.is_log_far_too_long());
    pick(&|c| c.frozen_bytes > 0)
        .or_else(|| {
            pick(&|c| is_for_log(c) && c.active_bytes > 0)
                .filter(|_| !pressure.is_disk_full && !pressure.flushes_for_log)
        })
        .or_else(|| pick(&|c| pressure.asks_for(c.active_bytes)))
        .or_else(|| pick(&|c| c.is_forsaken && c.active_bytes > 0).filter(|_| !pressure.is_disk_full))
        .or_else(|| {
            pick(&|c| c.holds_log && c.active_bytes > 0).filter(|_| pressure.log_bytes > pressure.log_bytes_max)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(candidates: &[(u64, u64, bool)], memory: u64, log: u64, disk: (bool, bool)) -> Option<u64> {
        let candidates: Vec<FlushCandidate> = candidates
            .iter()
            .enumerate()
            .map(|(i, &(active_bytes, frozen_bytes, holds_log))| FlushCandidate {
                tablet: TabletId(i as u64),
                active_bytes,
                frozen_bytes,
                holds_log,
                is_forsaken: false,
            })
            .collect();
        let pressure = FlushPressure {
            memory_bytes: memory,
            memory_bytes_max: 1000,
            tablet_bytes: 250,
            log_bytes: log,
            log_bytes_max: 2000,
            is_disk_full: disk.0,
            has_reserve: disk.1,
            flushes_for_log: false,
        };
        pick_flush(&candidates, pressure).map(|t| t.0)
    }

    fn check(candidates: &[(u64, u64, bool)], memory: u64, log: u64) -> Option<u64> {
        pick(candidates, memory, log, (false, true))
    }

    #[test]
    fn the_most_urgent_is_flushed_first() {
        assert_eq!(check(&[(200, 0, false), (100, 0, true)], 300, 0), None);
        assert_eq!(check(&[(200, 0, false), (300, 0, false)], 500, 0), Some(1));
        assert_eq!(check(&[(200, 0, false), (100, 0, false)], 501, 0), Some(0));
        assert_eq!(check(&[(200, 0, false), (0, 10, false)], 900, 0), Some(1));
        assert_eq!(check(&[(200, 0, false), (100, 0, true)], 300, 2001), Some(1));
        assert_eq!(check(&[(200, 0, false), (0, 0, true)], 200, 2001), None);
    }

    #[test]
    fn what_the_log_could_not_make_durable_is_flushed_however_small() {
        let of = |is_forsaken, active_bytes| FlushCandidate {
            tablet: TabletId(u64::from(is_forsaken)),
            active_bytes,
            frozen_bytes: 0,
            holds_log: false,
            is_forsaken,
        };
        let mut pressure = FlushPressure {
            memory_bytes: 101,
            memory_bytes_max: 1000,
            tablet_bytes: 250,
            log_bytes: 0,
            log_bytes_max: 2000,
            is_disk_full: false,
            has_reserve: true,
            flushes_for_log: false,
        };
        assert_eq!(pick_flush(&[of(false, 100), of(true, 1)], pressure), Some(TabletId(1)));
        assert_eq!(pick_flush(&[of(false, 100), of(true, 0)], pressure), None);
        // Writes refused for want of space were not acknowledged; earlier ones will be written back.
        (pressure.is_disk_full, pressure.has_reserve) = (true, false);
        assert_eq!(
            pick_flush(
                &[of(true, 1)],
                FlushPressure {
                    memory_bytes: 400,
                    ..pressure
                }
            ),
            None
        );
    }

    #[test]
    fn one_flush_at_a_time_is_for_the_log_while_memory_is_short() {
        let candidates = [(300, 0, false), (1, 0, true), (2, 0, true), (0, 0, true)];
        assert_eq!(check(&candidates, 900, 2_500), Some(0));
        assert_eq!(check(&candidates, 900, 20_000), Some(2));
        assert_eq!(pick(&candidates, 900, 20_000, (true, true)), Some(0));
        let of = |id, active_bytes, is_forsaken| FlushCandidate {
            tablet: TabletId(id),
            active_bytes,
            frozen_bytes: 0,
            holds_log: id > 0,
            is_forsaken,
        };
        let mut pressure = FlushPressure {
            memory_bytes: 900,
            memory_bytes_max: 1000,
            tablet_bytes: 250,
            log_bytes: 20_000,
            log_bytes_max: 2_000,
            is_disk_full: false,
            has_reserve: true,
            flushes_for_log: true,
        };
        let candidates = [of(0, 300, false), of(1, 1, true)];
        assert_eq!(pick_flush(&candidates, pressure), Some(TabletId(0)));
        (pressure.log_bytes, pressure.flushes_for_log) = (0, false);
        assert_eq!(pick_flush(&candidates, pressure), Some(TabletId(1)));
    }

    #[test]
    fn memory_that_readers_hold_is_not_flushed_for() {
        let of = |id, active_bytes| FlushCandidate {
            tablet: TabletId(id),
            active_bytes,
            frozen_bytes: 0,
            holds_log: false,
            is_forsaken: false,
        };
        let mut view = FlushView {
            candidates: vec![of(1, 100), of(2, 90)],
            pressure: FlushPressure {
                memory_bytes: 900,
                memory_bytes_max: 1000,
                tablet_bytes: 250,
                log_bytes: 0,
                log_bytes_max: 2000,
                is_disk_full: false,
                has_reserve: true,
                flushes_for_log: false,
            },
            expected_bytes: 0,
            retried: Vec::new(),
        };
        assert_eq!(view.pick(), None, "flushes would free 190 of 900 bytes");
        view.retried = vec![TabletId(7)];
        assert_eq!(view.pick(), Some(TabletId(7)));
        view.expected_bytes = 400;
        assert_eq!(view.pick(), Some(TabletId(1)), "a large write waits");
    }

    #[test]
    fn a_full_disk_presses() {
        let on_full_disk = |candidates: &[_], memory, has_reserve| pick(candidates, memory, 0, (true, has_reserve));
        assert_eq!(on_full_disk(&[(100, 0, false), (200, 0, false)], 300, false), Some(1));
        // Too small to be worth a file of its own, unless memory is the shortage.
        assert_eq!(on_full_disk(&[(4, 0, true), (4, 0, false)], 400, false), None);
        assert_eq!(on_full_disk(&[(4, 0, true), (5, 0, false)], 400, true), Some(1));
        assert_eq!(on_full_disk(&[(0, 0, true)], 0, true), None);
    }

    #[test]
    fn flushes_wait_for_a_replay_unless_memory_or_disk_is_short() {
        let pressure = |memory_bytes, is_disk_full| FlushPressure {
            memory_bytes,
            memory_bytes_max: 800,
            tablet_bytes: 100,
            log_bytes: 5_000,
            log_bytes_max: 2_000,
            is_disk_full,
            has_reserve: true,
            flushes_for_log: false,
        };
        assert!(pressure(699, false).can_wait(), "a long log can wait");
        assert!(!pressure(700, false).can_wait());
        assert!(!pressure(0, true).can_wait());
    }
}
