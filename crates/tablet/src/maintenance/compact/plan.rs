//! Plans the next job of a compaction: its inputs, its range of rows, its size.

use super::SpaceLimit;
use super::cut::cut_to;
use crate::error::Result;
use crate::held::{HeldFile, ReadOptions};
use crate::maintenance::READ;
use crate::maintenance::context::CompactionContext;
use crate::maintenance::values::gathered;
use crate::manifest::FileRef;
use crate::merging::{MergingIterator, Source, Step, run_source};
use crate::picker::{self, Pick, RunSummary};
use crate::state::{GroupState, State};
use crate::summary::{Expiry, bounds_to_spare, has_bottom, mark_busy, summaries, summarize};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use stele_types::key::{decode_row, row_prefix_len};
use stele_types::{FileId, RowRange};

/// Files of the bottom level, in bytes of a file, that one job rewrites; it reads as much of the upper runs. A job is
/// some seconds of work at most. It writes several files, so that few are left smaller than they should be.
const JOB_FILES: u64 = 4;

/// Read-ahead bytes of all runs of a compaction together: half a megabyte for each run of the largest compaction. That
/// still is a thousandth of a second of a disk that reads 500 MB/s.
const READAHEAD_BYTES_MAX: usize = 32 << 20;

/// The files that a job replaces. Positions are of the group's list of files.
pub(in crate::maintenance) struct Plan {
    pub(in crate::maintenance) sources: Vec<Source>,
    /// Replaced by the output.
    pub(in crate::maintenance) inputs: Range<usize>,
    /// Files of the upper runs that the job consumes in part or as a whole; behind `inputs`, or empty.
    pub(in crate::maintenance) cut: Range<usize>,
    /// Keys from this on are not the job's.
    pub(in crate::maintenance) upper: Option<Bytes>,
    pub(in crate::maintenance) rows: RowRange,
    pub(in crate::maintenance) bottom: bool,
    pub(in crate::maintenance) major: bool,
    /// Value files whose values are moved.
    pub(in crate::maintenance) collected: BTreeSet<FileId>,
}

/// A plan, and its cost.
pub(in crate::maintenance) struct Weighed {
    pub(in crate::maintenance) plan: Plan,
    /// The rest of the files of the upper runs that are cut.
    pub(in crate::maintenance) left: Vec<FileRef>,
    /// The rest of the last input, if the job ends within it.
    pub(in crate::maintenance) kept: Option<FileRef>,
    /// Bytes of sstables to be read.
    pub(in crate::maintenance) bytes_in: u64,
    /// Bytes that are written at most, about: those, and the values that are moved.
    pub(in crate::maintenance) needs: u64,
}

/// A pick, and where its runs are in the list of files.
pub(in crate::maintenance) struct Due {
    pub(in crate::maintenance) pick: Pick,
    /// The list's runs that the picker saw, as positions of files.
    pub(in crate::maintenance) runs: Vec<Range<usize>>,
    /// The first of these runs is the oldest.
    pub(in crate::maintenance) has_bottom: bool,
}

impl Due {
    pub(in crate::maintenance) fn is_into_bottom(&self) -> bool {
        self.has_bottom && self.pick.runs.start == 0
    }

    /// The files that its job replaces or cuts.
    pub(in crate::maintenance) fn claimed(&self, group: &GroupState) -> BTreeSet<FileId> {
        // Those of the first runs are the bottom's.
        let files = group.files.get(self.files()).unwrap_or_default();
        files.iter().map(|file| file.reference.id()).collect()
    }

    fn files(&self) -> Range<usize> {
        let runs = self.runs.get(self.pick.runs.clone()).unwrap_or_default();
        match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }
}

impl CompactionContext<'_> {
    pub(in crate::maintenance) fn plan_all(
        &self,
        state: &State,
        group: &GroupState,
        collected: BTreeSet<FileId>,
    ) -> Plan {
        let runs = group.runs();
        let is_bottom = !state.is_above_misplaced(group.id);
        Plan {
            sources: runs.filter_map(|run| run_source(run, &[], None, None, READ)).collect(),
            inputs: 0..group.files.len(),
            cut: group.files.len()..group.files.len(),
            upper: None,
            rows: self.range.clone(),
            bottom: is_bottom,
            major: is_bottom,
            collected,
        }
    }

    /// The group's runs that can be compacted.
    pub(in crate::maintenance) fn summaries(
        &self,
        state: &State,
        group: &GroupState,
    ) -> (Vec<RunSummary>, Vec<Range<usize>>) {
        summaries(state, group, &self.range.start, self.env.wall_micros())
    }

    /// The compaction that is due in a group of which jobs have claimed these files.
    pub(in crate::maintenance) fn due(
        &self,
        state: &State,
        group: &GroupState,
        claimed: &BTreeSet<FileId>,
    ) -> Option<Due> {
        if state.is_entangled(group.id) {
            return None;
        }
        let (mut summaries, runs) = self.summaries(state, group);
        mark_busy(&mut summaries, &runs, group, claimed);
        let has_bottom = has_bottom(state, group, &runs);
        let pick = if has_bottom {
            picker::pick(&summaries, group.compaction_stats.picker_stats(self.env.now()))
        } else {
            picker::pick_above(&summaries)
        };
        if let Some(pick) = &pick {
            let picked = summaries.get(pick.runs.clone());
            debug_assert!(
                picked.is_some_and(|picked| !picked.is_empty() && picked.iter().all(|run| !run.busy)),
                "a compaction takes runs that no other has claimed"
            );
            assert!(!pick.major || has_bottom, "a major compaction is at the bottom");
        }
        pick.map(|pick| Due { pick, runs, has_bottom })
    }

    /// The compaction into the bottom level that is in progress, or one of all runs, unless a job has claimed them.
    pub(in crate::maintenance) fn due_bottom(
        &self,
        state: &State,
        group: &GroupState,
        claimed: &BTreeSet<FileId>,
    ) -> Option<Due> {
        let (mut summaries, runs) = self.summaries(state, group);
        mark_busy(&mut summaries, &runs, group, claimed);
        if !has_bottom(state, group, &runs) || state.is_entangled(group.id) {
            return None;
        }
        let pick = picker::pick_bottom(&summaries);
        (pick.runs.len() > 1).then_some(Due {
            pick,
            runs,
            has_bottom: true,
        })
    }

    /// A merge of whole runs above the bottom.
    pub(in crate::maintenance) fn plan_upper_runs(&self, group: &GroupState, due: &Due) -> Plan {
        let inputs = due.files();
        let files = group.files.get(inputs.clone()).unwrap_or_default();
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let read = read_of(due.pick.runs.len());
        Plan {
            sources: runs.filter_map(|run| run_source(run, &[], None, None, read)).collect(),
            cut: inputs.end..inputs.end,
            inputs,
            upper: None,
            rows: self.range.clone(),
            bottom: false,
            major: false,
            collected: BTreeSet::new(),
        }
    }

    /// The next part of a compaction into the bottom level; `None` when there is nothing to do after all. Bottom files
    /// that no upper run overlaps are left unchanged, unless everything is to be rewritten from the row `all_from` on.
    pub(in crate::maintenance) async fn plan_bottom(
        &self,
        group: &GroupState,
        due: &Due,
        reservation: SpaceLimit,
        all_from: Option<&[u8]>,
    ) -> Result<Option<Plan>> {
        let bottom_len = due.runs.first().map_or(0, |run| run.end);
        assert!(bottom_len <= group.files.len(), "the bottom is a part of its group");
        let (bottom, above) = group.files.split_at(bottom_len);
        let cut = bottom_len..due.files().end;
        let upper_runs = above.get(..cut.len()).unwrap_or_default();
        let mut next = match all_from {
            None => UpperRuns::new(upper_runs),
            Some(_) => UpperRuns::new(group.files.get(..cut.end).unwrap_or_default()),
        };
        let begins = next.row_from(all_from.unwrap_or(&[])).await?;
        let (inputs, upper) = match &begins {
            Some(row) => {
                let file_bytes = self.file_bytes(group.id);
                // As much of the upper runs may come on top.
                let bytes_max = (JOB_FILES * file_bytes).min(reservation.into_bottom / 2);
                let part = self.part_from(bottom, &mut next, row, (file_bytes, bytes_max)).await?;
                cut_to(bottom, part, (upper_runs, row), bytes_max).await?
            }
            None if all_from.is_some() => return Ok(None),
            // Nothing is left of the upper runs.
            None if !upper_runs.is_empty() => (0..0, None),
            None => match self.most_garbage(group, bottom, due.pick.major) {
                Some(file) => (file, None),
                None => return Ok(None),
            },
        };
        let runs = upper_runs.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let mut sources: Vec<Source> = Vec::new();
        let replaced = bottom.get(inputs.clone()).unwrap_or_default();
        let read = read_of(due.pick.runs.len());
        sources.extend(run_source(replaced, &[], upper.as_deref(), None, read));
        sources.extend(runs.filter_map(|run| run_source(run, &[], upper.as_deref(), None, read)));
        let first = replaced.first().map(|file| row_of(file.first_key()));
        let first = match (begins, first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let next = || bottom.get(inputs.end).map(|file| row_of(file.first_key()));
        let end = upper.clone().or_else(next);
        Ok(Some(Plan {
            sources,
            inputs,
            cut,
            upper,
            rows: rows_between(self.range, first.as_deref(), end.as_deref()),
            bottom: true,
            major: due.pick.major,
            collected: BTreeSet::new(),
        }))
    }

    /// The files of the bottom that a job rewrites that begins with `row`, the first of the upper runs, and where it
    /// ends: before the next file when it has `bytes_max`.
    async fn part_from(
        &self,
        bottom: &[HeldFile],
        upper_runs: &mut UpperRuns,
        row: &[u8],
        (file_bytes, bytes_max): (u64, u64),
    ) -> Result<(Range<usize>, Option<Bytes>)> {
        let after = bottom.partition_point(|file| &row_of(file.first_key())[..] <= row);
        let before = after.checked_sub(1).and_then(|at| bottom.get(at));
        // A file that ends before the row is left alone, unless it is small: the rows behind it may fill it up.
        let takes_before = before.is_some_and(|file| !file.ends_before(row) || file.bytes() < file_bytes / 2);
        debug_assert!(
            bottom
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.first_key() <= b.first_key())),
            "files of the bottom ascend"
        );
        let start = after - usize::from(takes_before);
        let mut bytes = before.filter(|_| takes_before).map_or(0, HeldFile::bytes);
        let mut end = after;
        while let Some(next) = bottom.get(end) {
            let begins = row_of(next.first_key());
            if bytes >= bytes_max {
                return Ok((start..end, Some(begins)));
            }
            match upper_runs.row_from(&begins).await? {
                None => return Ok((start..end, None)),
                Some(row) if next.ends_before(&row) => return Ok((start..end, Some(begins))),
                Some(_) => {}
            }
            bytes += next.bytes();
            end += 1;
        }
        Ok((start..end, None))
    }

    /// The file of the bottom most worth rewriting by itself, in a compaction that is major or not: all its pieces that are
    /// neighbours.
    fn most_garbage(&self, group: &GroupState, bottom: &[HeldFile], major: bool) -> Option<Range<usize>> {
        let state = self.state();
        let expiry = Expiry::of(&state, group.id, self.env.wall_micros());
        let picker_stats = group.compaction_stats.picker_stats(self.env.now());
        let is_cut_up = state.is_cut_up();
        let share = |partial_rows: &[HeldFile]| {
            let run = RunSummary {
                bounds: bounds_to_spare(partial_rows, is_cut_up),
                ..summarize(partial_rows, &expiry, &[], &group.compaction_stats)
            };
            let run = run.of_compaction(major);
            let garbage = run.garbage * 1000 / run.cells.max(1);
            let bounds = run.bounds.saturating_mul(1000) / run.bytes.max(1);
            let is_worth_it = picker::is_worth_rewriting(&run, picker_stats);
            is_worth_it.then(|| garbage + bounds + run.file_bytes / run.bytes.max(1))
        };
        let mut end = 0;
        let mut best: Option<(u64, usize, usize)> = None;
        for partial_rows in bottom.chunk_by(|a, b| a.reference.file == b.reference.file) {
            let start = end;
            end += partial_rows.len();
            best = best.max(share(partial_rows).map(|share| (share, start, end)));
        }
        best.map(|(_, start, end)| start..end)
    }

    /// Measures how much a job has to read. Where `reservation` of any kind covers that, too, the job also gathers small
    /// value files. It does not gather in the reserve, even if the job may use the reserve. Gathered files are freed
    /// only when other parts of the compaction have moved their values, and the other half of a split tablet has, too.
    /// For these nothing would be left of the reserve.
    pub(in crate::maintenance) async fn weigh(
        &self,
        group: &GroupState,
        mut plan: Plan,
        reservation: u64,
    ) -> Result<Weighed> {
        let files = &group.files;
        assert!(
            plan.inputs.end <= plan.cut.start && plan.cut.end <= files.len(),
            "a plan names files of its group, tiers behind inputs"
        );
        assert!(plan.bottom || !plan.major, "a major compaction is at the bottom");
        let mut left = Vec::new();
        if let Some(upper) = &plan.upper {
            for file in files.get(plan.cut.clone()).unwrap_or_default() {
                left.extend(file.narrowed(Some(upper), None).await?);
            }
        }
        let inputs = files.get(plan.inputs.clone()).unwrap_or_default();
        let mut kept = None;
        if let Some((upper, last)) = plan.upper.as_ref().zip(inputs.last()) {
            kept = last.narrowed(Some(upper), None).await?;
        }
        let read = [plan.inputs.clone(), plan.cut.clone()];
        let read = read.into_iter().filter_map(|range| files.get(range)).flatten();
        let read: Vec<&HeldFile> = read.collect();
        let before: u64 = read.iter().map(|file| file.bytes()).sum();
        let bytes_in = before.saturating_sub(left.iter().chain(&kept).map(|file| file.referenced).sum());
        let links = inputs.iter().flat_map(|file| &file.reference.values);
        let moved = links.filter(|link| plan.collected.contains(&link.id()));
        let mut needs = bytes_in.saturating_add(moved.map(|link| link.bytes).sum());
        let gathered = gathered(&read, self.file_bytes(group.id));
        let with_those = needs.saturating_add(gathered.values().sum());
        if with_those <= reservation {
            debug_assert!(with_those >= needs, "gathering adds to what a job needs");
            needs = with_those;
            plan.collected.extend(gathered.into_keys());
        }
        Ok(Weighed {
            plan,
            left,
            kept,
            bytes_in,
            needs,
        })
    }
}

/// The readahead of each run when this many are read together.
fn read_of(runs: usize) -> ReadOptions {
    ReadOptions {
        readahead_bytes: (READAHEAD_BYTES_MAX / runs.max(1)).min(READ.readahead_bytes),
        ..READ
    }
}

/// Where the merged upper runs have rows.
struct UpperRuns {
    merge: MergingIterator,
}

impl UpperRuns {
    fn new(files: &[HeldFile]) -> Self {
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let sources = runs.filter_map(|run| run_source(run, &[], None, None, READ));
        UpperRuns {
            merge: MergingIterator::new(sources.collect()),
        }
    }

    /// The first row at or after this one, as an encoded prefix.
    async fn row_from(&mut self, row: &[u8]) -> Result<Option<Bytes>> {
        let mut step = self.merge.seek(row)?;
        while step == Step::Pending {
            step = self.merge.load().await?;
        }
        Ok((step == Step::Ready).then(|| row_of(self.merge.key())))
    }
}

/// The encoded row a key begins with. A bound is one by itself.
pub(in crate::maintenance) fn row_of(key: &[u8]) -> Bytes {
    let len = row_prefix_len(key).unwrap_or(key.len());
    Bytes::copy_from_slice(key.get(..len).unwrap_or(key))
}

/// The rows of `all` between two encoded rows.
fn rows_between(all: &RowRange, first: Option<&[u8]>, end: Option<&[u8]>) -> RowRange {
    let row = |prefix: &[u8]| decode_row(prefix).map(|row| Bytes::copy_from_slice(&row));
    let within = RowRange {
        start: first.and_then(row).unwrap_or_default(),
        end: end.and_then(row),
    };
    all.intersect(&within)
}
