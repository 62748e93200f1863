//! When tablets are flushed and compacted, and files deleted.
//!
//! One loop starts flushes, a few compact, one deletes obsolete files, one looks after disk space, log segments and gauges. Each does
//! the most urgent thing, and sleeps when there is none; none looks at every tablet unless something presses. What to flush is decided by a plain function over a snapshot of
//! sizes ([`pick_flush`]); what to compact by `stele_tablet::picker`.

mod filters;
mod flushes;
mod compactions;
mod pinned;
mod unread;

pub(crate) use filters::Choice;
pub(crate) use compactions::Compactions;
pub(crate) use unread::Unread;

use crate::governor::reserved_outside;
use crate::server::TabletServer;
use std::sync::Arc;
use std::time::Duration;
use stele_tablet::TabletError;
use stele_types::TabletId;

/// How often a loop looks when nothing wakes it.
const IDLE: Duration = Duration::from_millis(200);
/// Looks between two reports: a second.
const CHECKS_PER_REPORT: u32 = 5;
/// Looks after which devices are asked again for what they could not read: a minute.
const PROBES_PER_TRY: u32 = 60 * CHECKS_PER_REPORT;
/// Looks after which filters in memory are chosen anew, where there is no room for all: five seconds.
const PROBES_PER_CHOICE: u32 = 5 * CHECKS_PER_REPORT;
/// How long what was read ahead for a scan is kept while its reader does not come for more: a client that only computes
/// between two batches mostly does sooner.
const READER_IDLE: Duration = Duration::from_secs(2);
/// Pause after a failure, so that a full disk is not hammered.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the flush decision looks at.
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
    /// Whether there is disk space for small files nevertheless: what is short is room for what is in memory.
    pub has_reserve: bool,
}

/// Where a disk is all but full, the part of all memtables' bytes below which one is not flushed: its files would take more
/// than it gives back.
const FULL_DISK_PART: u64 = 64;

impl FlushPressure {
    /// Whether memtables take so much that some must go, however small: of memory, or of the disk space that is kept free
    /// for them. Flushed, they take less of it, and the log gives back the rest.
    fn is_memory_short(&self) -> bool {
        self.memory_bytes > self.memory_bytes_max / 2 || (self.is_disk_full && self.has_reserve)
    }

    /// Whether a memtable of so many bytes is to be flushed whatever the log says.
    fn asks_for(&self, active_bytes: u64) -> bool {
        let worth = self.tablet_bytes.saturating_add(1);
        let least = if self.is_memory_short() {
            1
        } else if self.is_disk_full {
            (self.memory_bytes / FULL_DISK_PART).clamp(1, worth)
        } else {
            worth
        };
        active_bytes >= least
    }
}

/// The tablet to flush next. Frozen memtables first (a flush failed); then, under memory pressure or past its own size,
/// the largest; then, what the log has failed to make durable; then, when the log is too long, the largest of those that hold
/// its oldest part. A full disk presses like full memory.
pub fn pick_flush(candidates: &[FlushCandidate], pressure: FlushPressure) -> Option<TabletId> {
    let pick = |wanted: &dyn Fn(&FlushCandidate) -> bool| {
        let found = candidates.iter().filter(|c| wanted(c));
        found
            .max_by_key(|c| (c.active_bytes + c.frozen_bytes, c.tablet))
            .map(|c| c.tablet)
    };
    pick(&|c| c.frozen_bytes > 0)
        .or_else(|| pick(&|c| pressure.asks_for(c.active_bytes)))
        .or_else(|| pick(&|c| c.is_forsaken && c.active_bytes > 0).filter(|_| !pressure.is_disk_full))
        .or_else(|| {
            pick(&|c| c.holds_log && c.active_bytes > 0).filter(|_| pressure.log_bytes > pressure.log_bytes_max)
        })
}

impl TabletServer {
    /// Starts the loops; they end when the server stops.
    pub(crate) fn start_maintenance(self: &Arc<Self>) {
        let server = self.clone();
        self.env
            .spawn_background("flush", async move { server.flush_loop().await });
        for _ in 0..self.options.compactions_max {
            let server = self.clone();
            self.env
                .spawn_background("compact", async move { server.compact_loop().await });
        }
        let server = self.clone();
        self.env
            .spawn_background("delete", async move { server.delete_loop().await });
        let server = self.clone();
        self.env
            .spawn_background("housekeeping", async move { server.housekeeping_loop().await });
    }

    /// Deletes obsolete files as they become obsolete, or as their last readers let go. Beside everything else: a device may
    /// take a tenth of a second for a file, and compactions make many at once.
    async fn delete_loop(self: Arc<Self>) {
        let files = &self.context.files;
        while !self.is_stopping() {
            match files.delete_obsolete().await {
                // Writers may be waiting for the space.
                Ok(1..) if self.admission.is_disk_full() => self.tidy.notify_one(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "obsolete sstables left over");
                    self.env.sleep(AFTER_FAILURE).await;
                }
            }
            let _ = self.env.timeout(IDLE, files.obsolete_noted()).await;
        }
    }

    async fn housekeeping_loop(self: Arc<Self>) {
        let mut looks = 0u32;
        while !self.is_stopping() {
            self.admission.check_disk(&self.context.storage).await;
            if let Err(error) = self.delete_unneeded_log().await {
                tracing::warn!(%error, "log segment left over");
            }
            self.check_unflushable_log();
            self.check_some();
            // What takes a look at every file or tablet, less often.
            if looks.is_multiple_of(CHECKS_PER_REPORT) {
                self.update_gauges();
                self.report_damage();
                self.check_space();
                for served in self.all_served() {
                    served.tablet.drop_readahead(READER_IDLE);
                }
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(PROBES_PER_CHOICE) {
                self.choose_filters();
            }
            if looks.is_multiple_of(PROBES_PER_TRY) {
                self.try_unreadable();
            }
            let _ = self.env.timeout(IDLE, self.tidy.notified()).await;
        }
    }

    /// Counts what readers met of damage since the last look, and logs each damaged file once.
    fn report_damage(&self) {
        for damaged in self.context.files.damaged() {
            let path = damaged.file.path();
            let counter = self.metrics.corruption.with_label_values(&[&path]);
            if counter.get() == 0 {
                tracing::error!(error = %damaged.error, "a file is damaged; `stele check` says more");
            }
            counter.inc_by(damaged.times_met.saturating_sub(counter.get()));
        }
    }

    fn note_failure(&self, what: &'static str, error: &TabletError) {
        // A tablet that was split or dropped meanwhile is nobody's problem.
        if !matches!(error, TabletError::Closed { .. }) {
            self.metrics.maintenance_failures.inc();
            tracing::error!(%error, "{what} failed; it will be tried again");
        }
    }

    /// Brings the gauges up to date.
    pub fn update_gauges(&self) {
        let cache = self.cache.stats();
        let (open_files, pinned) = self.context.files.open_files();
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.memtable_bytes.set(gauge(self.context.memory.bytes()));
        self.metrics.cache_bytes.set(gauge(cache.used_bytes));
        self.metrics.cache_kept_bytes.set(gauge(cache.kept_bytes));
        self.metrics.cache_hits.set(gauge(cache.hits));
        self.metrics.cache_misses.set(gauge(cache.misses));
        self.metrics.cache_turned_away.set(gauge(cache.turned_away));
        let rows = self.row_cache.stats();
        self.metrics.row_cache_bytes.set(gauge(rows.used_bytes));
        self.metrics.row_cache_hits.set(gauge(rows.hits));
        self.metrics.row_cache_misses.set(gauge(rows.misses));
        self.metrics
            .obsolete_bytes
            .set(gauge(self.context.files.obsolete_bytes()));
        self.metrics.pinned_bytes.set(gauge(pinned as u64));
        let filters = self.context.files.bloom_memory();
        for (place, bytes) in [("memory", filters.taken()), ("left_out", filters.left_out())] {
            self.metrics
                .filter_bytes
                .with_label_values(&[place])
                .set(gauge(bytes as u64));
        }
        let spare = ("spare", self.context.memory.spare_bytes());
        let reserved = reserved_outside(&self.context.files, &self.admission);
        for (of, bytes) in std::iter::once(spare).chain(reserved) {
            self.metrics.held_bytes.with_label_values(&[of]).set(gauge(bytes));
        }
        self.metrics.open_files.set(gauge(open_files as u64));
        let served = self.all_served();
        let debt = served.iter().map(|served| served.tablet.compaction_debt()).sum();
        self.metrics.compaction_debt_bytes.set(gauge(debt));
        let compaction_pressure = served.iter().map(|served| served.tablet.write_load().compaction_pressure).max();
        self.metrics.admission.compaction_pressure.set(gauge(compaction_pressure.unwrap_or(0)));
        self.metrics
            .running_compactions
            .set(gauge(self.compactions.running() as u64));
        self.metrics
            .damaged_tablets
            .set(gauge(self.damaged.read().len() as u64));
        let failing = self.admission.unflushable.tablets();
        self.metrics.log_unflushable_bytes.set(gauge(self.unflushable_log_bytes(&failing)));
    }
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
        };
        assert_eq!(pick_flush(&[of(false, 100), of(true, 1)], pressure), Some(TabletId(1)));
        assert_eq!(pick_flush(&[of(false, 100), of(true, 0)], pressure), None);
        // What was refused for want of space was not acknowledged; what was before will be written back.
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
    fn a_full_disk_presses() {
        let on_full_disk = |candidates: &[_], memory, has_reserve| pick(candidates, memory, 0, (true, has_reserve));
        assert_eq!(on_full_disk(&[(100, 0, false), (200, 0, false)], 300, false), Some(1));
        // Too small to be worth a file of its own, unless memory is what is in the way.
        assert_eq!(on_full_disk(&[(4, 0, true), (4, 0, false)], 400, false), None);
        assert_eq!(on_full_disk(&[(4, 0, true), (5, 0, false)], 400, true), Some(1));
        assert_eq!(on_full_disk(&[(0, 0, true)], 0, true), None);
    }
}
