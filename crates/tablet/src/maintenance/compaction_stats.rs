//! What has been learnt of a locality group while it was served: compactions go by it.
//!
//! The *overlap* of a run is how many in a hundred of its rows older runs have, too, as the row filters of these say of a
//! sample, or a look into those whose filters are not in memory. It bounds what a merge of the run makes go: rows that are new replace nothing. How much of the rest is replaced
//! is learnt from merges: all of it in a table of single values, nothing where rows get ever more columns.
//!
//! Nothing of this is stored: after a start it is learnt again. The halves of a tablet that is split take over what was known
//! of the whole: their runs are parts of its runs.

use crate::error::Result;
use crate::merging::Step;
use crate::picker::PickerStats;
use crate::run::RunCursor;
use crate::run::fences::RowLookup;
use crate::state::{GroupState, HeldFile, ReadOptions, Times};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_types::FileId;

/// Time without a flush after which a group may be quiet: longer than a pause between two batches of a load.
const QUIET: Duration = Duration::from_secs(10);
/// Rows that are kept of a job at least, if there are so many; twice as many at most. Their share is off by 6 in a hundred
/// as a rule.
const SAMPLES: usize = 64;
/// Rows that are looked for in files whose filters are not in memory: each costs an index block and a data block.
const SEARCHED_MAX: usize = 16;
/// How long that may take: an object store answers within some tenths of that, and whoever waits for a flush waits for this.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How that is read.
const LOOK: ReadOptions = ReadOptions {
    fill_cache: false,
    readahead_bytes: 0,
    single_row: true,
    times: Times::ALL,
};
/// Of what a merge moves, the part in a hundred that must be of rows older runs have, or nothing is learnt from it: each filter takes
/// one row in a hundred for one it knows, so of 24 tiers of new rows an eighth seems to be in older ones. To learn from those
/// that nothing is replaced would keep a table from being merged that is loaded first and then overwritten. While a group is
/// written, below this share no merge is due for the sake of what was replaced.
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

/// When the tiers came to be.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    /// The first of those since tiers were merged into the bottom, or the last before that.
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
        PickerStats {
            replaced_percent: self.replaced_percent.load(Ordering::Relaxed),
            extra_runs_read: self.extra_runs_read.load(Ordering::Relaxed),
            is_quiet: self.is_quiet(now),
        }
    }

    /// Whether nothing was flushed for twice as long as it took the tiers to gather, or the last of them. Who writes steadily is
    /// never quiet, also when a merge has just taken the tiers; nor is what was not written since the start, or all tablets would
    /// be merged after it.
    fn is_quiet(&self, now: Duration) -> bool {
        let Flushes { first, last, apart } = *self.flushes.lock();
        let (Some(first), Some(last)) = (first, last) else {
            return false;
        };
        let gathered_in = last.saturating_sub(first).max(apart);
        now.saturating_sub(last) >= QUIET.max(2 * gathered_in)
    }

    /// Takes over what is known of a group that this one is a part of, with parts of the same files.
    pub(super) fn take_over(&self, whole: &CompactionStats) {
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
    pub(super) fn flushed(&self, now: Duration) {
        let mut flushes = self.flushes.lock();
        flushes.first.get_or_insert(now);
        let before = flushes.last.replace(now);
        flushes.apart = before.map_or(Duration::ZERO, |before| now.saturating_sub(before));
    }

    /// The tiers have been merged into the bottom, but for those that were flushed meanwhile.
    pub(super) fn gathered(&self) {
        let mut flushes = self.flushes.lock();
        // It may have ended while the merge went on.
        flushes.first = flushes.last;
    }

    /// A merge took to the bottom so many entries of rows that older runs had, of `moved` in all, and made `dropped` go.
    /// Half of what was known before stays.
    pub(super) fn compacted(&self, overlapping: u64, moved: u64, dropped: u64) {
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

    /// Notes the overlap of a new run; `group` is as it is now, and what is known of other files than its own is forgotten.
    pub(super) fn note_overlap(&self, group: &GroupState, made: impl Iterator<Item = FileId>, percent: u64) {
        let held: BTreeSet<FileId> = group.files.iter().map(|file| file.reference.id()).collect();
        let mut overlaps = self.overlaps.lock();
        overlaps.retain(|file, _| held.contains(file));
        overlaps.extend(made.map(|file| (file, percent)));
    }
}

/// How many in a hundred of the sampled rows are in the runs among the first `files` files of a group. Takes [`PROBE_MAX`] at most.
pub(super) async fn overlap_with(env: &Env, group: &GroupState, files: usize, rows: &[Bytes]) -> u64 {
    let (mut known, mut unknown) = (0, Vec::new());
    for row in rows {
        let row_lookup = RowLookup::new(row);
        let is_left_out = |file: &&HeldFile| file.sstable.filter_bytes() > 0 && !file.sstable.holds_filter();
        let (left_out, others): (Vec<_>, Vec<_>) = group.older_holders(&row_lookup, files).partition(is_left_out);
        if others
            .iter()
            .any(|file| file.sstable.may_contain_hash(row_lookup.hash()))
        {
            known += 1;
        } else if !left_out.is_empty() {
            unknown.push((row, left_out));
        }
    }
    let every = unknown.len().div_ceil(SEARCHED_MAX).max(1);
    let probes = unknown.iter().step_by(every);
    let probes = probes.map(|(row, files)| env.timeout(PROBE_MAX, is_in(row, files)));
    let probes = futures::future::join_all(probes).await;
    let found: Vec<bool> = probes.into_iter().filter_map(|look| look.ok()?.ok()).collect();
    // Where nothing could be found out, all of them count.
    let are_there = found.iter().filter(|is_there| **is_there).count();
    known += (unknown.len() * are_there)
        .checked_div(found.len())
        .unwrap_or(unknown.len());
    (known as u64 * 100).checked_div(rows.len() as u64).unwrap_or(100)
}

/// Whether one of the files has cells of the row.
async fn is_in(row: &[u8], files: &[&HeldFile]) -> Result<bool> {
    for file in files {
        let mut cursor = RunCursor::new(vec![(*file).clone()], LOOK);
        let step = match cursor.seek(row)? {
            Step::Pending => cursor.load().await?,
            step => step,
        };
        if step == Step::Ready && cursor.key().starts_with(row) {
            return Ok(true);
        }
    }
    Ok(false)
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
