//! Statistics of a locality group, gathered while it is served, that compactions go by.
//!
//! The *overlap* of a run is the percentage of its rows that older runs have, too, estimated from a sample
//! (`maintenance::overlap`). It bounds the garbage that a compaction of the run can drop: new rows replace nothing. The part of the
//! overlap that is replaced is measured by compactions: all of it in a table of single values, nothing where rows get ever more
//! columns.
//!
//! Nothing of this is stored: after a start it is measured again. The halves of a split tablet inherit the statistics of the
//! whole: their runs are parts of its runs.

use crate::picker::PickerStats;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_types::FileId;

/// Time without a flush after which a group may be quiet: longer than a pause between two batches of a load.
const QUIET: Duration = Duration::from_secs(10);
/// Sampled rows of a job at least, if it has as many; twice as many at most. Their share is off by 6 in a hundred as a
/// rule.
const SAMPLES: usize = 64;
/// The least share, in percent, of overlapping rows among the entries that a compaction moves; below it nothing is
/// measured. Each filter reports one row in a hundred as present although it is not, so of 24 runs of new rows an eighth
/// seems to overlap. Measuring with those that nothing is replaced would keep a table from being compacted that is loaded
/// first and then overwritten. While a group is written, no compaction is due below this share for the sake of replaced
/// entries.
const OVERLAP_MIN: u64 = 25;

/// Shared by all states of the tablet.
#[derive(Debug)]
pub struct CompactionStats {
    replaced_percent: AtomicU64,
    extra_runs_read: AtomicU64,
    /// By file of the runs above the bottom. One that is not there is taken to overlap entirely.
    overlaps: Mutex<BTreeMap<FileId, u64>>,
    flushes: Mutex<Flushes>,
}

/// When the upper runs came to be.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    /// The first of those since upper runs were merged into the bottom level, or the last before that.
    first: Option<Duration>,
    last: Option<Duration>,
    /// From the last but one to the last; 0 while there was only one.
    apart: Duration,
}

impl Default for CompactionStats {
    fn default() -> Self {
        let PickerStats {
            replaced_percent,
            extra_runs_read,
            ..
        } = PickerStats::default();
        CompactionStats {
            replaced_percent: AtomicU64::new(replaced_percent),
            extra_runs_read: AtomicU64::new(extra_runs_read),
            overlaps: Mutex::default(),
            flushes: Mutex::default(),
        }
    }
}

impl CompactionStats {
    /// As the picker takes it.
    pub fn picker_stats(&self, now: Duration) -> PickerStats {
        debug_assert!(
            self.replaced_percent.load(Ordering::Relaxed) <= 100,
            "a share is a part of a hundred"
        );
        PickerStats {
            replaced_percent: self.replaced_percent.load(Ordering::Relaxed),
            extra_runs_read: self.extra_runs_read.load(Ordering::Relaxed),
            is_quiet: self.is_quiet(now),
        }
    }

    /// Whether nothing was flushed for twice the time in which the upper runs gathered, or the last of them. A group that
    /// is written steadily is never quiet, also when a compaction has just consumed its upper runs. Nor is a group that was
    /// not written since the start, or all tablets would be compacted after it.
    fn is_quiet(&self, now: Duration) -> bool {
        let Flushes { first, last, apart } = *self.flushes.lock();
        let (Some(first), Some(last)) = (first, last) else {
            return false;
        };
        let gathered_in = last.saturating_sub(first).max(apart);
        now.saturating_sub(last) >= QUIET.max(2 * gathered_in)
    }

    /// Inherits the statistics of a group that this one is a part of, with parts of the same files.
    pub(crate) fn take_over(&self, whole: &CompactionStats) {
        let PickerStats {
            replaced_percent,
            extra_runs_read,
            ..
        } = whole.picker_stats(Duration::ZERO);
        self.replaced_percent.store(replaced_percent, Ordering::Relaxed);
        // Each of two halves has about half of the reads to come, and half as much to merge.
        self.extra_runs_read.store(extra_runs_read / 2, Ordering::Relaxed);
        self.overlaps.lock().clone_from(&whole.overlaps.lock());
        *self.flushes.lock() = *whole.flushes.lock();
    }

    /// Adds the statistics of a group that has become a part of this one, with its files.
    pub(crate) fn join(&self, part: &CompactionStats) {
        let before = self.replaced_percent.load(Ordering::Relaxed);
        let of_part = part.replaced_percent.load(Ordering::Relaxed);
        // The initial value says that nothing is known.
        self.replaced_percent.store(before.min(of_part), Ordering::Relaxed);
        let known: Vec<(FileId, u64)> = part
            .overlaps
            .lock()
            .iter()
            .map(|(file, percent)| (*file, *percent))
            .collect();
        self.overlaps.lock().extend(known);
        let flushes = *part.flushes.lock();
        let mut own = self.flushes.lock();
        if own.last < flushes.last {
            *own = flushes;
        }
    }

    /// A reader opened this many runs of files.
    pub fn read(&self, runs: usize) {
        if runs > 1 {
            self.extra_runs_read.fetch_add(runs as u64 - 1, Ordering::Relaxed);
        }
    }

    /// The runs that reads paid for are merged.
    pub fn forget_reads(&self) {
        self.extra_runs_read.store(0, Ordering::Relaxed);
    }

    /// A flush of the group has ended.
    pub(crate) fn flushed(&self, now: Duration) {
        let mut flushes = self.flushes.lock();
        flushes.first.get_or_insert(now);
        let before = flushes.last.replace(now);
        flushes.apart = before.map_or(Duration::ZERO, |before| now.saturating_sub(before));
    }

    /// The upper runs have been merged into the bottom level, but for those that were flushed meanwhile.
    pub(crate) fn gathered(&self) {
        let mut flushes = self.flushes.lock();
        // It may have ended while the merge went on.
        flushes.first = flushes.last;
    }

    /// A compaction moved `moved` entries to the bottom, of which `overlapping` are of rows that older runs had, and
    /// dropped `dropped`. The former estimate counts for half.
    pub(crate) fn compacted(&self, overlapping: u64, moved: u64, dropped: u64) {
        if overlapping.saturating_mul(100) < moved.saturating_mul(OVERLAP_MIN) {
            return;
        }
        if let Some(percent) = dropped.saturating_mul(100).checked_div(overlapping) {
            let before = self.replaced_percent.load(Ordering::Relaxed);
            self.replaced_percent
                .store((before + percent.min(100)) / 2, Ordering::Relaxed);
        }
    }

    /// The overlap of a file, in percent, if it was noted.
    pub(crate) fn known_overlap(&self, file: FileId) -> Option<u64> {
        self.overlaps.lock().get(&file).copied()
    }

    /// Notes the overlap of a new run; the group has the files `held` now, and the overlaps of other files are forgotten.
    pub(crate) fn note_overlap(&self, held: &BTreeSet<FileId>, made: impl Iterator<Item = FileId>, percent: u64) {
        assert!(percent <= 100, "an overlap is a part of a hundred");
        let mut overlaps = self.overlaps.lock();
        overlaps.retain(|file, _| held.contains(file));
        overlaps.extend(made.map(|file| (file, percent)));
    }
}

/// Some of the rows that a job reads, evenly spread.
#[derive(Clone, Debug)]
pub struct RowSample {
    rows: Vec<Bytes>,
    /// Rows from one that is kept to the next.
    every: u64,
    /// Rows until the next.
    skipped: u64,
}

impl Default for RowSample {
    fn default() -> Self {
        RowSample {
            rows: Vec::new(),
            every: 1,
            skipped: 0,
        }
    }
}

impl RowSample {
    /// Whether the next row is to be [`kept`](RowSample::keep); asked once for each.
    #[inline]
    pub fn wants_row(&mut self) -> bool {
        let wants = self.skipped == 0;
        self.skipped = if wants { self.every - 1 } else { self.skipped - 1 };
        wants
    }

    /// Keeps a row, given as an encoded prefix.
    #[cold]
    pub fn keep(&mut self, row: &[u8]) {
        self.rows.push(Bytes::copy_from_slice(row));
        if self.rows.len() >= 2 * SAMPLES {
            let mut at = 0;
            self.rows.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
        debug_assert!(self.rows.len() < 2 * SAMPLES, "a sample is bounded");
    }

    /// The encoded prefixes of those that were kept.
    pub fn rows(&self) -> &[Bytes] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_bounded_and_evenly_spread() {
        let mut sample = RowSample::default();
        for n in 0..100_000u32 {
            if sample.wants_row() {
                sample.keep(&n.to_be_bytes());
            }
        }
        let kept: Vec<u32> = sample
            .rows()
            .iter()
            .map(|row| u32::from_be_bytes(row[..].try_into().unwrap()))
            .collect();
        assert!((SAMPLES..2 * SAMPLES).contains(&kept.len()), "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == kept[1]), "{kept:?}");
    }

    #[test]
    fn quiet_is_what_was_written_and_is_not_any_more() {
        let compaction_stats = CompactionStats::default();
        let at = |seconds| compaction_stats.picker_stats(Duration::from_secs(seconds)).is_quiet;
        assert!(!at(1000));
        compaction_stats.flushed(Duration::from_secs(100));
        assert_eq!((at(109), at(110)), (false, true));
        compaction_stats.flushed(Duration::from_secs(150));
        assert_eq!((at(249), at(250)), (false, true));
        compaction_stats.gathered();
        assert_eq!((at(249), at(250)), (false, true));
    }

    #[test]
    fn who_writes_steadily_is_not_quiet_after_a_merge() {
        let compaction_stats = CompactionStats::default();
        let at = |seconds| compaction_stats.picker_stats(Duration::from_secs(seconds)).is_quiet;
        for flush in 0..20 {
            compaction_stats.flushed(Duration::from_secs(20 * flush));
            if flush % 4 == 3 {
                compaction_stats.gathered();
            }
            let quiet = (20 * flush..20 * flush + 20).find(|seconds| flush > 0 && at(*seconds));
            assert_eq!(quiet, None, "flush {flush}");
        }
        assert_eq!((at(19 * 20 + 39), at(19 * 20 + 40)), (false, true));
    }

    #[test]
    fn a_half_knows_what_the_whole_knew() {
        let (whole, half) = (CompactionStats::default(), CompactionStats::default());
        whole.compacted(50, 100, 20);
        whole.read(9);
        whole.overlaps.lock().insert(FileId(1), 30);
        whole.flushed(Duration::from_secs(100));
        half.take_over(&whole);
        let of_half = half.picker_stats(Duration::from_secs(110));
        let expected = PickerStats {
            replaced_percent: 70,
            extra_runs_read: 4,
            is_quiet: true,
        };
        assert_eq!((of_half, half.known_overlap(FileId(1))), (expected, Some(30)));
    }

    #[test]
    fn merges_teach_what_is_replaced_of_known_rows() {
        let compaction_stats = CompactionStats::default();
        let percent = || compaction_stats.picker_stats(Duration::ZERO).replaced_percent;
        compaction_stats.compacted(24, 100, 0);
        assert_eq!(percent(), 100);
        compaction_stats.compacted(50, 100, 50);
        assert_eq!(percent(), 100);
        compaction_stats.compacted(50, 100, 0);
        assert_eq!(percent(), 50);
        // Filters were wrong about some.
        compaction_stats.compacted(50, 100, 70);
        assert_eq!(percent(), 75);
    }
}
