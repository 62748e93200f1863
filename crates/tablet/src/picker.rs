//! Picks the next compaction of one locality group.
//!
//! A group is a list of sorted runs, oldest first. The oldest is the *bottom level*: one run of several files of bounded
//! size, which holds most of the data. The runs above are *upper runs*: whole flushes, and compacted flushes. Upper runs
//! of about equal size, adjacent in age, form a *tier*.
//!
//! * The runs of a tier are merged with each other, so an entry is rewritten once per tier (Bigtable §5.4 bounds the
//!   number of files this way).
//! * All upper runs are merged into the bottom level when that is expected to free enough. Of their bytes those of rows
//!   that older runs have are expected to be garbage, in the measure that earlier compactions have found; past a quarter
//!   of the whole the compaction is due. Tombstones that go, expired cells and those of dropped families are known garbage: of
//!   these a fifth is enough, Hypertable's threshold. A table that is overwritten is thus compacted at a third of its
//!   size; one that only grows waits until the bottom level is about as large as the upper runs. Once writes have stopped,
//!   a tenth is enough, once, and the bytes that compressing uncompressed flushes would save count as well.
//! * Such a compaction is carried out in bounded jobs, from the first row to the last. An upper run is *advanced* when
//!   its front has gone into the bottom level already; the compaction goes on with the upper runs it began with.
//! * Reads that had to open more than one run have paid for it. When they have paid as much as merging the runs costs,
//!   the compaction is due (the ski rental rule: never more than twice the cost of knowing the future). Tablets with
//!   many reads are compacted eagerly, those that are only written lazily.
//! * Drops of rows cut references to files. Where the bounds of these references take too much of the manifest, their
//!   files are rewritten. Files of the bottom level are rewritten one by one, like files that are mostly garbage; an
//!   upper run is merged into the bottom level.
//! * Runs that a job has claimed are *busy*. A concurrent pick lies on one side of them: upper runs behind a compaction
//!   into the bottom level, other upper runs, or older runs into the bottom level.
//!
//! The trade between bytes written and bytes of space is in `docs/adr/0007-tiered-runs-above-a-leveled-bottom.md`; the test
//! `twenty_gigabytes_overwritten` computes it.
//!
//! Pure: `tabletserver::maintenance` decides *when* to compact, this module picks the inputs.

use std::ops::Range;

/// The summary of a run that the picker works with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// About how many bytes are referenced.
    pub bytes: u64,
    /// About how many entries that are.
    pub cells: u64,
    /// About how many of these are tombstones, expired, or of families that were dropped.
    pub garbage: u64,
    /// About how many of these only a major compaction drops: tombstones, where some hide by timestamp.
    pub lasting_tombstones: u64,
    /// About how many bytes are of rows that older runs have, too; all of those of which it is not known.
    pub overlapping: u64,
    /// About how many bytes are known to be of such rows.
    pub known_overlapping: u64,
    /// Bytes of the whole files, each once.
    pub file_bytes: u64,
    /// The most references to one file that are neighbours.
    pub partial_rows: u64,
    /// Bytes of their bounds, where the manifest has more bounds than it should.
    pub bounds: u64,
    /// About how many bytes a merge would save by compressing uncompressed blocks.
    pub compressible: u64,
    /// A compaction into the bottom level has taken its front already.
    pub advanced: bool,
    /// A job has claimed it.
    pub busy: bool,
}

/// Statistics of a group, gathered while it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickerStats {
    /// Of the entries of overlapping rows that compactions took to the bottom level, the percentage that replaced older
    /// entries.
    pub replaced_percent: u64,
    /// Runs beyond the first that reads have opened since the last merge.
    pub extra_runs_read: u64,
    /// Nobody writes any more, as it seems.
    pub is_quiet: bool,
}

impl Default for PickerStats {
    fn default() -> Self {
        PickerStats {
            replaced_percent: 100,
            extra_runs_read: 0,
            is_quiet: false,
        }
    }
}

/// Runs to merge, as a range of positions, oldest first. With the oldest run among them it is a compaction into the
/// bottom level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which runs.
    pub runs: Range<usize>,
    /// All of them, and everything that can go shall go.
    pub major: bool,
}

/// Upper runs that make a compaction worth its writes while the group is written. With 8, an entry is rewritten
/// log8(size) times, two thirds of log4. A reader merges at most about 8 runs per tier.
pub const UPPER_RUNS: usize = 8;
/// The same when writes have ended, for there will be no more runs in the next round of the same compaction. It also
/// holds where the group is read about as much as it is written. Reads that open runs pay for compactions. They do not
/// pay for the filters of runs that they need not open, nor for requests that wait behind a slow read.
const UPPER_RUNS_READ: usize = 4;
/// The same where it is hardly read at all, while there are no more than [`RUNS_UNREAD_MAX`] in all. Nobody gains by
/// fewer runs then, and the merge that reads ask for later, or a time of quiet, writes each entry once however many
/// there are. Not as many as a merge takes: the first reads, until they are no longer rare, probe the filters of all.
const UPPER_RUNS_UNREAD: usize = 24;
/// Half of the number that slows writers: tiers of very different sizes do not gather to that.
const RUNS_UNREAD_MAX: usize = RUNS_EASY as usize / 2;
/// Entries written for each further run that reads have opened, above which a group is rather written than read.
const WRITES_PER_RUN_READ: u64 = 2;
/// The same from which on it is hardly read.
const WRITES_PER_RUN_READ_RARELY: u64 = 128;
/// Runs that gather behind a compaction into the bottom level before they are merged among themselves first. The next
/// such merge takes them all, so to merge them before that writes each of their bytes once more, and holds up the merge
/// that frees space: only reads gain by it.
const RUNS_BEHIND_COMPACTION: usize = 32;
/// The most runs that one compaction merges, twice [`RUNS_BEHIND_COMPACTION`]; bounds open readers and memory.
const RUNS_MAX: usize = 64;
/// A run joins a tier when it is at most this much larger than the largest newer one of the tier. (It is not compared
/// with the sum of them: the output of eight flushes would be merged again with the next four.)
const UPPER_RUN_RATIO: u64 = 2;
/// Known garbage as a share of everything, in percent, that is worth a compaction into the bottom level: Hypertable's
/// threshold.
const GARBAGE_PERCENT: u64 = 20;
/// The same of garbage that is expected, while the group is written: each percent less is bought with more bytes written
/// than the last, and entries that are merged now have to be merged again.
const EXPECTED_PERCENT: u64 = 25;
/// The same when nobody writes any more: RocksDB's leveled trees keep as much when settled.
const EXPECTED_PERCENT_QUIET: u64 = 10;
/// Bytes that compressing must save to be a reason by itself: of ten thousand small tablets that were loaded and left alone, each
/// would be rewritten for a few kilobytes.
const COMPRESSIBLE_MIN: u64 = 256 << 10;
/// Space as a percentage of the bytes expected to be live: writers are slowed from the first value on, and much at the
/// second. Compactions that keep up stay below the first. Those that do not settle about half way, and the bytes they
/// are writing are added. Below 134 writers would have no compaction to wait for: see [`EXPECTED_PERCENT`].
const PRESSURE_FULL_PERCENT: Range<u64> = 135..235;
/// Garbage that slows nobody, however little is live: there are disks for that.
const PRESSURE_BYTES_MIN: u64 = 256 << 20;
/// Sorted runs of a group up to which writers are not slowed: those that a compaction into the bottom level takes, and
/// those that gather behind it meanwhile. At twice as many they are slowed much.
const RUNS_EASY: u64 = 64;
/// Compaction debt at which writers are slowed much: see [`compaction_pressure`].
pub const PRESSURE_FULL: u64 = 1000;
/// Files that are this many times larger than their referenced bytes are worth rewriting: two splits, say, or most rows
/// dropped.
const OTHER_FAMILY_RATIO: u64 = 4;
/// Pieces of a file from which on it is worth rewriting, however little was dropped between them: each has its bounds in every
/// manifest that is written, of up to two rows. So a file of 64 MiB is written once for as many drops of a few rows.
const PIECES_MAX: u64 = 64;
/// Bytes of merging that opening one more run costs a read: a seek takes some 2 µs, in which a merge moves as much at
/// 250 MB/s.
const BYTES_PER_RUN_READ: u64 = 512;

/// The next compaction, if one is due, of runs that no job is at. `runs` is ordered oldest first; the first is the bottom.
pub fn pick(runs: &[RunSummary], picker_stats: PickerStats) -> Option<Pick> {
    let free = runs.iter().take_while(|run| !run.busy).count();
    let is_under_way = free == 0 && !runs.is_empty();
    let taken = is_under_way.then(|| runs.iter().take_while(|run| run.busy).count());
    if let Some(end) = begun(runs).or(taken) {
        let behind = runs.get(end..).unwrap_or_default();
        let mut upper_run = pick_behind(behind);
        if is_under_way {
            // The next such merge takes the runs that gather meanwhile, but reads may have paid for not waiting.
            upper_run = upper_run.or_else(|| pick_upper_runs(behind, usize::MAX, runs.len(), picker_stats));
        }
        return match upper_run {
            Some(upper_run) => Some(shifted(upper_run, end)),
            None if is_under_way => None,
            // One that is at upper runs among them began when nothing here was the bottom: then with those below it.
            None => Some(down_to_bottom(runs, end.min(free))),
        };
    }
    if free > 0 && runs.first().is_some_and(|bottom| bottom.bounds > 0) {
        // First, because drops of rows may be waiting; alone, because the runs above need not be read for that.
        return Some(down_to_bottom(runs, 1));
    }
    if is_worth_compacting(runs.get(..free).unwrap_or_default(), free == runs.len(), picker_stats) {
        return Some(down_to_bottom(runs, free));
    }
    let pick = pick_upper_runs(runs, upper_run_count(runs, picker_stats), runs.len(), picker_stats)?;
    let major = pick.start == 0 && pick.end == runs.len();
    Some(Pick { runs: pick, major })
}

/// The next compaction when the oldest runs, `runs` not among them, cannot be touched: nothing is the bottom.
pub fn pick_above(runs: &[RunSummary]) -> Option<Pick> {
    pick_upper_runs(runs, UPPER_RUNS, runs.len(), PickerStats::default()).map(|upper_run| shifted(upper_run, 0))
}

/// The compaction into the bottom level that is under way, or one of all runs: it can be done in small parts, where
/// there is no space for anything else. Of no runs when a job is at the bottom level.
pub fn pick_bottom(runs: &[RunSummary]) -> Pick {
    let free = runs.iter().take_while(|run| !run.busy).count();
    down_to_bottom(runs, begun(runs).unwrap_or(free).min(free))
}

/// Behind the upper runs that a compaction into the bottom level has begun with, if one is under way.
fn begun(runs: &[RunSummary]) -> Option<usize> {
    runs.iter().skip(1).rposition(|run| run.advanced).map(|at| at + 2)
}

/// Whether a file of a group of which something is due is worth rewriting by itself. Of files that together are due one at
/// least is, so everything here is a share, and nothing a number of bytes.
pub fn is_worth_rewriting(file: &RunSummary, picker_stats: PickerStats) -> bool {
    is_mostly_dead(file)
        || picker_stats.is_quiet
            && file.compressible.saturating_mul(100) > file.bytes.saturating_mul(EXPECTED_PERCENT_QUIET)
}

impl RunSummary {
    /// The summary for a compaction that is major or not: one that is not writes lasting tombstones again. If they were garbage for
    /// it, it would be due again whenever it ends.
    pub fn of_compaction(self, major: bool) -> Self {
        let lasting_tombstones = if major { self.lasting_tombstones } else { 0 };
        debug_assert!(
            self.lasting_tombstones <= self.garbage,
            "they are a part of the garbage"
        );
        RunSummary {
            garbage: self.garbage - (self.lasting_tombstones - lasting_tombstones).min(self.garbage),
            lasting_tombstones,
            ..self
        }
    }
}

/// Whether enough of it is known to be garbage, or not referenced, or it is in too many parts, or its bounds take too
/// much of the manifest.
fn is_mostly_dead(run: &RunSummary) -> bool {
    run.garbage * 100 > run.cells * GARBAGE_PERCENT
        || run.bytes.saturating_mul(OTHER_FAMILY_RATIO) < run.file_bytes
        || run.partial_rows > PIECES_MAX
        || run.bounds > 0
}

/// Bytes that compressing a run would save, if that is worth a commit.
fn worth_compressing(run: &RunSummary) -> u64 {
    match run.compressible {
        small if small < COMPRESSIBLE_MIN => 0,
        bytes => bytes,
    }
}

/// Bytes that compactions are behind: to be read so that nothing is due any more. Grows with every flush that finds them
/// behind already, by about the bytes that the flush will cost them.
pub fn debt(runs: &[RunSummary], picker_stats: PickerStats) -> u64 {
    let bytes = |runs: &[RunSummary]| runs.iter().map(|run| run.bytes).sum::<u64>();
    pick(runs, picker_stats).map_or(0, |pick| {
        let behind = bytes(runs.get(pick.runs.end..).unwrap_or_default());
        bytes(runs.get(pick.runs).unwrap_or_default()) + behind
    })
}

/// Bytes of runs above the bottom that merges into it are expected to free.
pub fn expected_garbage(runs: &[RunSummary], picker_stats: PickerStats) -> u64 {
    let overlapping: u64 = runs.iter().skip(1).map(|run| run.overlapping).sum();
    overlapping.saturating_mul(picker_stats.replaced_percent.min(100)) / 100
}

/// How much a group slows its writers, in thousandths: nothing while compactions keep up, [`PRESSURE_FULL`] where
/// writers are slowed much, and more beyond. It grows linearly with the number of sorted runs, or with the space that
/// they take beyond the bytes expected to be live; the larger value counts. Space counts where the first run
/// `is_bottom`: where nothing can be merged into it, waiting frees no space.
pub fn compaction_pressure(runs: &[RunSummary], picker_stats: PickerStats, is_bottom: bool) -> u64 {
    let excess = (runs.len() as u64).saturating_sub(RUNS_EASY);
    let by_runs = excess * PRESSURE_FULL / RUNS_EASY;
    if is_bottom {
        by_runs.max(pressure_by_space(runs, picker_stats))
    } else {
        by_runs
    }
}

fn pressure_by_space(runs: &[RunSummary], picker_stats: PickerStats) -> u64 {
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    // A file that is half merged is there as a whole until the merge is through. One that is shared with the other half of a
    // split tablet goes when it is worth rewriting, and no waiting brings that nearer.
    let held = |run: &RunSummary| {
        if run.advanced {
            run.file_bytes.max(run.bytes)
        } else {
            run.bytes
        }
    };
    let space: u64 = runs.iter().map(held).sum();
    // Bytes that compactions may turn out to free justify an attempt, but no writer is to wait for it.
    let overlapping: u64 = runs.iter().skip(1).map(|run| run.known_overlapping).sum();
    let garbage = overlapping.saturating_mul(picker_stats.replaced_percent.min(100)) / 100;
    let live = bytes.saturating_sub(garbage).max(1);
    if space.saturating_sub(live) < PRESSURE_BYTES_MIN {
        return 0;
    }
    // In thousandths of a percent, so that it does not jump.
    let percent = u128::from(space) * u128::from(100 * PRESSURE_FULL) / u128::from(live);
    let over = percent.saturating_sub(u128::from(PRESSURE_FULL_PERCENT.start * PRESSURE_FULL));
    let compaction_pressure = over / u128::from(PRESSURE_FULL_PERCENT.end - PRESSURE_FULL_PERCENT.start);
    u64::try_from(compaction_pressure).unwrap_or(u64::MAX)
}

fn shifted(upper_run: Range<usize>, by: usize) -> Pick {
    Pick {
        runs: upper_run.start + by..upper_run.end + by,
        major: false,
    }
}

fn down_to_bottom(runs: &[RunSummary], end: usize) -> Pick {
    debug_assert!(end <= runs.len(), "a compaction takes runs that are there");
    let end = end.min(RUNS_MAX);
    Pick {
        runs: 0..end,
        major: end == runs.len(),
    }
}

/// Whether merging these into the bottom frees enough, or spares reads enough. It is major if there are no others.
fn is_worth_compacting(runs: &[RunSummary], major: bool, picker_stats: PickerStats) -> bool {
    let Some((bottom, upper_runs)) = runs.split_first() else {
        return false;
    };
    if runs.len() > RUNS_MAX {
        return false;
    }
    let mut all = *bottom;
    for run in upper_runs {
        all.bytes += run.bytes;
        all.cells += run.cells;
        all.garbage += run.garbage;
        all.lasting_tombstones += run.lasting_tombstones;
        all.file_bytes += run.file_bytes;
        all.partial_rows = all.partial_rows.max(run.partial_rows);
        all.bounds += run.bounds;
        all.compressible += run.compressible;
    }
    if is_mostly_dead(&all.of_compaction(major)) {
        return true;
    }
    let expected = expected_garbage(runs, picker_stats);
    let (freed, percent) = if picker_stats.is_quiet {
        (expected + worth_compressing(&all), EXPECTED_PERCENT_QUIET)
    } else {
        // The next compaction of any kind compresses its inputs, so nothing is due for that while there are writes.
        (expected, EXPECTED_PERCENT)
    };
    freed.saturating_mul(100) > all.bytes.saturating_mul(percent)
        || is_paid_for(&all, runs.len(), runs.len(), picker_stats)
}

/// Whether reads have paid for merging `compacted` of `runs` runs, which together are `all`.
fn is_paid_for(all: &RunSummary, compacted: usize, runs: usize, picker_stats: PickerStats) -> bool {
    let spared = compacted.saturating_sub(1) as u64;
    let paid = picker_stats.extra_runs_read.saturating_mul(BYTES_PER_RUN_READ);
    spared > 0 && paid / (runs.saturating_sub(1).max(1) as u64) * spared >= all.bytes
}

/// Runs of a tier that make a merge worth its writes.
fn upper_run_count(runs: &[RunSummary], picker_stats: PickerStats) -> usize {
    let written: u64 = runs.iter().skip(1).map(|run| run.cells).sum();
    let read = picker_stats.extra_runs_read.saturating_mul(WRITES_PER_RUN_READ);
    let is_read_rarely = picker_stats.extra_runs_read.saturating_mul(WRITES_PER_RUN_READ_RARELY) <= written;
    if picker_stats.is_quiet || read > written {
        UPPER_RUNS_READ
    } else if is_read_rarely && runs.len() <= RUNS_UNREAD_MAX {
        UPPER_RUNS_UNREAD
    } else {
        UPPER_RUNS
    }
}

/// The runs that no job is at, as stretches of neighbours, the newest first.
fn free_stretches(runs: &[RunSummary]) -> impl Iterator<Item = Range<usize>> {
    let mut end = runs.len();
    std::iter::from_fn(move || {
        while end > 0 && runs.get(end - 1)?.busy {
            end -= 1;
        }
        let len = runs.get(..end)?.iter().rev().take_while(|run| !run.busy).count();
        let stretch = end - len..end;
        debug_assert!(stretch.end <= runs.len(), "a stretch lies within the runs");
        end = stretch.start;
        (len > 0).then_some(stretch)
    })
}

/// The bytes of a run once it is compressed: an uncompressed flush is compared with compressed ones by that.
fn lasting(run: &RunSummary) -> u64 {
    run.bytes.saturating_sub(run.compressible)
}

/// The longest sequence of similar runs, counted from the newest, that has at least that many runs, or has been paid for
/// by reads of all the `opened` runs.
fn pick_upper_runs(
    runs: &[RunSummary],
    runs_min: usize,
    opened: usize,
    picker_stats: PickerStats,
) -> Option<Range<usize>> {
    free_stretches(runs).find_map(|stretch| {
        let mut end = stretch.end;
        while end > stretch.start {
            let mut start = end - 1;
            let mut upper_run = runs.get(start).copied()?;
            let mut largest = lasting(&upper_run);
            while let Some(older) = start.checked_sub(1).and_then(|at| runs.get(at))
                && start > stretch.start
                && end - start < RUNS_MAX
                && lasting(older) <= largest.saturating_mul(UPPER_RUN_RATIO)
            {
                start -= 1;
                upper_run.bytes += older.bytes;
                largest = largest.max(lasting(older));
            }
            debug_assert!(
                stretch.start <= start && end - start <= RUNS_MAX,
                "a tier lies in a free stretch"
            );
            if end - start >= runs_min || is_paid_for(&upper_run, end - start, opened, picker_stats) {
                return Some(start..end);
            }
            end = start;
        }
        None
    })
}

/// Runs of about equal size among those behind a compaction into the bottom level, when there are too many. They must be
/// half of them at least: that merge goes on between two such merges, or it would never end while flushes come fast.
fn pick_behind(behind: &[RunSummary]) -> Option<Range<usize>> {
    free_stretches(behind).find_map(|stretch| {
        let free = behind.get(stretch.clone())?;
        pick_similar(free).map(|upper_run| upper_run.start + stretch.start..upper_run.end + stretch.start)
    })
}

fn pick_similar(behind: &[RunSummary]) -> Option<Range<usize>> {
    if behind.len() < RUNS_BEHIND_COMPACTION {
        return None;
    }
    let mut end = behind.len();
    while end > 0 {
        let mut start = end - 1;
        let mut largest = lasting(behind.get(start)?);
        while let Some(older) = start.checked_sub(1).and_then(|at| behind.get(at))
            && end - start < RUNS_MAX
            && lasting(older) <= largest.saturating_mul(UPPER_RUN_RATIO)
        {
            start -= 1;
            largest = largest.max(lasting(older));
        }
        debug_assert!(end - start <= RUNS_MAX, "a compaction takes a bounded number of runs");
        if 2 * (end - start) >= behind.len().min(RUNS_MAX) {
            return Some(start..end);
        }
        end = start;
    }
    None
}

#[cfg(test)]
mod tests;
