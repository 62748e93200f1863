//! Compactions of one tablet: what is due, in parts of bounded size.
//!
//! A merge of tiers is one job. A merge into the bottom is one job for every few files of the bottom, from the first row
//! to the last; each commits. Its output takes the place of the files it read, and the tiers are cut to begin behind it:
//! so the space for it is that of a job, and an owner that stops half-way leaves a state like any other, from which the
//! picker goes on.
//!
//! Invariants:
//! * A job into the bottom begins and ends between rows, and reads all that the merged tiers have up to its end: what
//!   they have before its first bottom file went down with earlier jobs.
//! * No row is in two files of the bottom.

use super::learnt::{Learnt, overlap_with};
use super::values::{carried, value_shares, value_units};
use super::{Progress, READ};
use crate::compaction::{self, Carried, Job, JobReport};
use crate::error::Result;
use crate::manifest::{FileRef, Manifest};
use crate::merge::{Merge, Source, Step};
use crate::picker::{self, Pick, RunSummary};
use crate::run;
use crate::state::{GroupState, HeldFile, ReadOptions, State};
use crate::tablet::Tablet;
use crate::values::collect;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stele_sstable::WriteOptions;
use stele_types::key::{decode_row, row_prefix, row_prefix_len};
use stele_types::{FileId, GcRule, GcView, GroupId, RowRange, TableSchema, TimeUnit, Timestamp};

/// A compaction that was carried out, or a part of one.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// Of which group.
    pub group: GroupId,
    /// All rows it concerned.
    pub rows: RowRange,
    /// Everything of these rows that was in files when it began was merged.
    pub major: bool,
}

/// Files of the bottom, in bytes of a file, that one job rewrites: some seconds of work at most, and several files, so
/// that few are left smaller than they should be.
const JOB_FILES: u64 = 4;

/// Bytes after which a file above the bottom is ended, where those of the bottom are larger: a merge into the bottom gives a
/// file of the tiers back when it has read all of it, so a flush of 100 MB goes a few parts at a time instead of at the end.
const TIER_FILE_BYTES: u64 = 16 << 20;

/// Bytes that all runs of a merge together are read ahead: half a megabyte of each of the most that are merged at once, which
/// still is a thousandth of a second of a disk that reads 500 MB/s.
const READAHEAD_BYTES_MAX: usize = 32 << 20;

/// What a job replaces. Positions are of the group's list of files.
pub(super) struct Plan {
    pub(super) sources: Vec<Source>,
    /// Replaced by the output.
    pub(super) inputs: Range<usize>,
    /// Files of the tiers that lose what the job takes; behind `inputs`, or empty.
    pub(super) cut: Range<usize>,
    /// Keys from this on are not the job's.
    pub(super) upper: Option<Bytes>,
    pub(super) rows: RowRange,
    pub(super) bottom: bool,
    pub(super) major: bool,
    /// Value files whose values are moved.
    pub(super) collected: BTreeSet<FileId>,
}

/// A plan, and what it comes to.
struct Weighed {
    plan: Plan,
    /// What is left of the files of the tiers that are cut.
    left: Vec<FileRef>,
    /// Bytes of sstables to be read.
    bytes_in: u64,
    /// Bytes that are written at most, about: those, and the values that are moved.
    needs: u64,
}

/// Bytes that a compaction may write. What it reads is deleted when it is done, not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of any kind.
    pub any: u64,
    /// Into the bottom: such a job makes garbage go, so it may have of the reserve, which nothing else brings back.
    pub into_bottom: u64,
}

impl Room {
    /// As on a medium without an end.
    pub const UNLIMITED: Room = Room {
        any: u64::MAX,
        into_bottom: u64::MAX,
    };
}

/// A pick, and where its runs are in the list of files.
struct Due {
    pick: Pick,
    /// The list's runs that the picker saw, as positions of files.
    runs: Vec<Range<usize>>,
    /// The first of these runs is the oldest.
    has_bottom: bool,
}

impl Due {
    fn is_into_bottom(&self) -> bool {
        self.has_bottom && self.pick.runs.start == 0
    }

    fn files(&self) -> Range<usize> {
        let runs = self.runs.get(self.pick.runs.clone()).unwrap_or_default();
        match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }
}

impl Tablet {
    /// Runs the compaction that is most due, or a part of it; whether one was.
    pub async fn compact_if_due(&self) -> Result<bool> {
        Ok(self.compact_next().await?.is_some())
    }

    /// Runs the compaction that is most due, or a part of it.
    pub async fn compact_next(&self) -> Result<Option<Compacted>> {
        self.compact_within(Room::UNLIMITED).await
    }

    /// Runs the compaction that is most due, or a part of it, of those for which there is room. Merges into the bottom
    /// are cut smaller where there is little, and made instead of merges of tiers, which are not cut.
    pub async fn compact_within(&self, room: Room) -> Result<Option<Compacted>> {
        let Ok(_compacting) = self.compacting.try_lock() else {
            return Ok(None);
        };
        if self
            .with_state(State::movable_bytes)
            .is_some_and(|bytes| bytes <= room.any)
            && let Some(moved) = self.relocate_next().await?
        {
            return Ok(Some(moved));
        }
        let state = self.files_state();
        for group in &state.groups {
            if let Some(weighed) = self.plan_within(&state, group, room).await? {
                return self.carry_out(group, weighed).await.map(Some);
            }
        }
        if let Some((group, plan)) = self.collection_due(&state) {
            let weighed = self.weigh(group, plan).await?;
            if weighed.needs <= room.into_bottom {
                return self.carry_out(group, weighed).await.map(Some);
            }
        }
        Ok(None)
    }

    /// What a job goes by. It takes seconds, and must not keep the memtables that are flushed meanwhile.
    fn files_state(&self) -> State {
        self.with_state(|state| state.of_files(&self.context.memory))
    }

    /// As [`Tablet::compact_within`]; where nothing is due for which there is room, the next part of merging what there is into
    /// the bottom. For a medium that is full: most of what is on it may be garbage, too little in each tablet to be worth
    /// a merge otherwise. It ends when each group is one run.
    pub async fn compact_for_space(&self, room: Room) -> Result<Option<Compacted>> {
        if let Some(compacted) = self.compact_within(room).await? {
            return Ok(Some(compacted));
        }
        let Ok(_compacting) = self.compacting.try_lock() else {
            return Ok(None);
        };
        let state = self.files_state();
        for group in &state.groups {
            let (summaries, runs) = self.summaries(group);
            let has_bottom = has_bottom(&state, group, &runs);
            if !has_bottom || runs.len() < 2 || state.is_entangled(group.id) {
                continue;
            }
            let pick = picker::pick_bottom(&summaries);
            let mut due = Due { pick, runs, has_bottom };
            // Rather a few of the tiers than none.
            while due.pick.runs.len() > 1 {
                if let Some(plan) = self.plan_bottom(group, &due, room).await? {
                    let weighed = self.weigh(group, plan).await?;
                    if weighed.needs <= room.into_bottom {
                        return self.carry_out(group, weighed).await.map(Some);
                    }
                }
                due.pick.runs.end -= 1;
                due.pick.major = false;
            }
        }
        Ok(None)
    }

    /// Whether [`Tablet::compact_for_space`] may find something to do.
    pub fn may_shrink(&self) -> bool {
        self.state().groups.iter().any(|group| group.runs().nth(1).is_some())
    }

    /// Of a thousand bytes of files, how many merges are expected to free. As of the last flush or compaction.
    pub fn garbage_share(&self) -> u64 {
        self.garbage_share.load(Ordering::Relaxed)
    }

    /// What is due in a group, if there is room for it.
    async fn plan_within(&self, state: &State, group: &GroupState, room: Room) -> Result<Option<Weighed>> {
        let Some(mut due) = self.due(state, group) else {
            return Ok(None);
        };
        if !due.is_into_bottom() {
            let weighed = self.weigh(group, self.plan_tier(group, &due)).await?;
            if weighed.needs <= room.any {
                return Ok(Some(weighed));
            }
            if !due.has_bottom {
                return Ok(None);
            }
            due.pick = picker::pick_bottom(&self.summaries(group).0);
        }
        let Some(plan) = self.plan_bottom(group, &due, room).await? else {
            return Ok(None);
        };
        let weighed = self.weigh(group, plan).await?;
        Ok((weighed.needs <= room.into_bottom).then_some(weighed))
    }

    /// Flushes, then rewrites all files of every group into one run. What value files lose by that is given back at once.
    pub async fn compact_all(&self) -> Result<()> {
        self.flush().await?;
        let _compacting = self.compacting.lock().await;
        while self.relocate_next().await?.is_some() {}
        for collects in [false, true] {
            let state = self.files_state();
            let collected = match collects {
                true => collect::when_asked(&value_units(&state), &value_shares(&state)),
                false => BTreeSet::new(),
            };
            let free = |group: &&GroupState| !group.files.is_empty() && !state.is_entangled(group.id);
            for group in state.groups.iter().filter(free) {
                let links = || group.files.iter().flat_map(|file| &file.reference.values);
                if !collects || links().any(|link| collected.contains(&link.id())) {
                    let plan = self.plan_all(&state, group, collected.clone());
                    let weighed = self.weigh(group, plan).await?;
                    self.carry_out(group, weighed).await?;
                }
            }
        }
        Ok(())
    }

    fn plan_all(&self, state: &State, group: &GroupState, collected: BTreeSet<FileId>) -> Plan {
        let runs = group.runs();
        let is_bottom = !state.is_above_residue(group.id);
        Plan {
            sources: runs.filter_map(|run| run::source(run, &[], None, None, READ)).collect(),
            inputs: 0..group.files.len(),
            cut: group.files.len()..group.files.len(),
            upper: None,
            rows: self.range().clone(),
            bottom: is_bottom,
            major: is_bottom,
            collected,
        }
    }

    /// Whether a compaction is due.
    pub fn compaction_due(&self) -> bool {
        let state = self.state();
        let due = |group: &GroupState| self.is_due(&state, group);
        state.movable_bytes().is_some() || state.groups.iter().any(due) || self.collection_due(&state).is_some()
    }

    /// Bytes that compactions are behind: what they have to read until nothing is due any more. As of the last flush or
    /// compaction.
    pub fn compaction_debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    /// Works out what writers are slowed by, after a change of files.
    pub(crate) fn note_debt(&self) {
        let state = self.state();
        let (mut debt, mut crowding) = (0, 0);
        let (mut garbage, mut bytes) = (0, 0);
        for group in &state.groups {
            let (runs, places) = self.summaries(group);
            let experience = group.learnt.experience(self.env().now());
            debt += picker::debt(&runs, experience);
            garbage += picker::expected_garbage(&runs, experience);
            bytes += runs.iter().map(|run| run.bytes).sum::<u64>();
            let is_bottom = has_bottom(&state, group, &places) && !state.is_entangled(group.id);
            crowding = crowding.max(picker::crowding(&runs, experience, is_bottom));
        }
        self.debt.store(debt, Ordering::Relaxed);
        let share = garbage.saturating_mul(1000) / bytes.max(1);
        self.garbage_share.store(share, Ordering::Relaxed);
        self.crowding.store(crowding, Ordering::Relaxed);
    }

    /// The runs behind the newest damaged file's, and where they are. A damaged file stays where it is, with all that is
    /// older: merging over it would make markers and versions go that still decide over what is in it, and trying to
    /// merge it would fail again and again.
    fn summaries(&self, group: &GroupState) -> (Vec<RunSummary>, Vec<Range<usize>>) {
        let schema = self.schema();
        let expiry = Expiry::new(&schema, group.id, self.wall_micros());
        let start = row_prefix(&self.range().start);
        let (mut summaries, mut places) = (Vec::new(), Vec::new());
        let mut at = 0;
        for run in group.runs() {
            let place = at..at + run.len();
            at = place.end;
            if run.iter().any(HeldFile::is_damaged) {
                summaries.clear();
                places.clear();
                continue;
            }
            summaries.push(summarize(run, &expiry, &start, &group.learnt));
            places.push(place);
        }
        (summaries, places)
    }

    /// Whether a merge is due in a group.
    pub(super) fn is_due(&self, state: &State, group: &GroupState) -> bool {
        self.due(state, group).is_some()
    }

    fn due(&self, state: &State, group: &GroupState) -> Option<Due> {
        if state.is_entangled(group.id) {
            return None;
        }
        let (summaries, runs) = self.summaries(group);
        let has_bottom = has_bottom(state, group, &runs);
        let pick = if has_bottom {
            picker::pick(&summaries, group.learnt.experience(self.env().now()))
        } else {
            picker::pick_above(&summaries)
        };
        pick.map(|pick| Due { pick, runs, has_bottom })
    }

    /// A merge of whole runs above the bottom.
    fn plan_tier(&self, group: &GroupState, due: &Due) -> Plan {
        let inputs = due.files();
        let files = group.files.get(inputs.clone()).unwrap_or_default();
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let read = read_of(due.pick.runs.len());
        Plan {
            sources: runs.filter_map(|run| run::source(run, &[], None, None, read)).collect(),
            cut: inputs.end..inputs.end,
            inputs,
            upper: None,
            rows: self.range().clone(),
            bottom: false,
            major: false,
            collected: BTreeSet::new(),
        }
    }

    /// The next part of a merge into the bottom; `None` when there is nothing to do after all.
    async fn plan_bottom(&self, group: &GroupState, due: &Due, room: Room) -> Result<Option<Plan>> {
        let bottom_len = due.runs.first().map_or(0, |run| run.end);
        let (bottom, above) = group.files.split_at_checked(bottom_len).unwrap_or_default();
        let cut = bottom_len..due.files().end;
        let tiers = above.get(..cut.len()).unwrap_or_default();
        let mut next = Tiers::new(tiers);
        let begins = next.row_from(&[]).await?;
        let (inputs, upper) = match &begins {
            Some(row) => {
                let file_bytes = self.file_bytes(group.id);
                // As much of the tiers may come on top.
                let bytes_max = (JOB_FILES * file_bytes).min(room.into_bottom / 2);
                self.part_from(bottom, &mut next, row, (file_bytes, bytes_max)).await?
            }
            // Nothing is left of the tiers.
            None if !tiers.is_empty() => (0..0, None),
            None => match self.most_garbage(group, bottom) {
                Some(at) => (at..at + 1, None),
                None => return Ok(None),
            },
        };
        let runs = tiers.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let mut sources: Vec<Source> = Vec::new();
        let replaced = bottom.get(inputs.clone()).unwrap_or_default();
        let read = read_of(due.pick.runs.len());
        sources.extend(run::source(replaced, &[], None, None, read));
        sources.extend(runs.filter_map(|run| run::source(run, &[], upper.as_deref(), None, read)));
        let first = replaced.first().map(|file| row_of(file.first_key()));
        let first = match (begins, first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let end = bottom.get(inputs.end).map(|file| row_of(file.first_key()));
        Ok(Some(Plan {
            sources,
            inputs,
            cut,
            upper,
            rows: rows_between(self.range(), first.as_deref(), end.as_deref()),
            bottom: true,
            major: due.pick.major,
            collected: BTreeSet::new(),
        }))
    }

    /// The files of the bottom that a job rewrites that begins with `row`, the first of the tiers, and where it ends: before
    /// the next file when it has `bytes_max`.
    async fn part_from(
        &self,
        bottom: &[HeldFile],
        tiers: &mut Tiers,
        row: &[u8],
        (file_bytes, bytes_max): (u64, u64),
    ) -> Result<(Range<usize>, Option<Bytes>)> {
        let after = bottom.partition_point(|file| &row_of(file.first_key())[..] <= row);
        let before = after.checked_sub(1).and_then(|at| bottom.get(at));
        // A file that ends before the row is left alone, unless it is small: what comes behind it may fill it up.
        let takes_before = before.is_some_and(|file| !file.ends_before(row) || file.bytes() < file_bytes / 2);
        let start = after - usize::from(takes_before);
        let mut bytes = before.filter(|_| takes_before).map_or(0, HeldFile::bytes);
        let mut end = after;
        while let Some(next) = bottom.get(end) {
            let begins = row_of(next.first_key());
            if bytes >= bytes_max {
                return Ok((start..end, Some(begins)));
            }
            match tiers.row_from(&begins).await? {
                None => return Ok((start..end, None)),
                Some(row) if next.ends_before(&row) => return Ok((start..end, Some(begins))),
                Some(_) => {}
            }
            bytes += next.bytes();
            end += 1;
        }
        Ok((start..end, None))
    }

    /// Bytes at which a file of the group is ended.
    fn file_bytes(&self, group: GroupId) -> u64 {
        let own = self.with_schema(|schema| schema.group_options(group).file_bytes);
        own.unwrap_or_else(|| self.context.files.file_bytes())
    }

    /// The file of the bottom most worth rewriting by itself.
    fn most_garbage(&self, group: &GroupState, bottom: &[HeldFile]) -> Option<usize> {
        let schema = self.schema();
        let expiry = Expiry::new(&schema, group.id, self.wall_micros());
        let share = |file: &HeldFile| {
            let run = summarize(std::slice::from_ref(file), &expiry, &[], &group.learnt);
            let garbage = run.garbage * 1000 / run.cells.max(1);
            let is_worth_it = picker::is_worth_rewriting(&run);
            is_worth_it.then(|| garbage + run.file_bytes / run.bytes.max(1))
        };
        let worth = bottom
            .iter()
            .enumerate()
            .filter_map(|(at, file)| Some((share(file)?, at)));
        worth.max().map(|(_, at)| at)
    }

    /// Looks how much a job has to read.
    async fn weigh(&self, group: &GroupState, plan: Plan) -> Result<Weighed> {
        let files = &group.files;
        let mut left = Vec::new();
        if let Some(upper) = &plan.upper {
            for file in files.get(plan.cut.clone()).unwrap_or_default() {
                left.extend(file.narrowed(Some(upper), None).await?);
            }
        }
        let read = [plan.inputs.clone(), plan.cut.clone()];
        let read = read.into_iter().filter_map(|range| files.get(range)).flatten();
        let before: u64 = read.map(HeldFile::bytes).sum();
        let bytes_in = before.saturating_sub(left.iter().map(|file| file.referenced).sum());
        let inputs = files.get(plan.inputs.clone()).unwrap_or_default();
        let links = inputs.iter().flat_map(|file| &file.reference.values);
        let moved = links.filter(|link| plan.collected.contains(&link.id()));
        let needs = bytes_in.saturating_add(moved.map(|link| link.bytes).sum());
        Ok(Weighed {
            plan,
            left,
            bytes_in,
            needs,
        })
    }

    async fn carry_out(&self, group: &GroupState, weighed: Weighed) -> Result<Compacted> {
        let Weighed {
            mut plan,
            left,
            bytes_in,
            ..
        } = weighed;
        self.settle().await?;
        let start = self.env().now();
        let files = &group.files;
        let carried = carried(group, std::mem::take(&mut plan.collected));
        let sources = std::mem::take(&mut plan.sources);
        let progress = Progress::of_merge(&self.context.metrics.moved, bytes_in, cells_in(files, &plan, &left));
        let report = self
            .run_job(
                group.id,
                self.schema(),
                sources,
                plan.upper.clone(),
                (plan.bottom, plan.major),
                (carried, Some(progress)),
            )
            .await?;
        let metrics = &self.context.metrics;
        metrics.compaction_read_bytes.inc_by(bytes_in);
        metrics.compaction_written_bytes.inc_by(report.bytes());
        learn(group, &plan, &left, &report);
        let tier = (!plan.bottom).then(|| overlap_with(group, plan.inputs.start, report.sample.rows()));
        let tier_files: Vec<FileId> = report.files.iter().map(FileRef::id).collect();
        let made = report.made();
        let change = replacement(
            group.id,
            files,
            (plan.inputs, plan.cut),
            report.files,
            left,
            plan.bottom,
        );
        self.commit(&made, change, |_| {}).await?;
        let state = self.state();
        if let Some((percent, now)) = tier.zip(state.group(group.id)) {
            group.learnt.note_overlap(now, tier_files.into_iter(), percent);
        }
        self.note_debt();
        metrics.compactions.inc();
        metrics
            .compaction_seconds
            .observe((self.env().now() - start).as_secs_f64());
        Ok(Compacted {
            group: group.id,
            rows: plan.rows,
            major: plan.major,
        })
    }

    /// Runs a job over `sources` up to `upper`, into files of `group`, of the families of `schema`; `(bottom, major)` as in
    /// [`Job`].
    pub(super) async fn run_job(
        &self,
        group: GroupId,
        schema: Arc<TableSchema>,
        sources: Vec<Source>,
        upper: Option<Bytes>,
        (bottom, major): (bool, bool),
        (carried, progress): (Carried, Option<Arc<Progress>>),
    ) -> Result<JobReport> {
        let options = schema.group_options(group);
        // The writer gives every file its own id.
        let mut write = WriteOptions::new(FileId(0));
        write.created_micros = self.wall_micros();
        write.compression = options.compression;
        write.zstd_level = options.zstd_level;
        write.dictionary_bytes = options.dictionary_bytes as usize;
        write.block_bytes = options.block_bytes.map_or(write.block_bytes, |bytes| bytes as usize);
        write.filter_bits_per_row = options.filter_bits_per_row.unwrap_or(write.filter_bits_per_row);
        let file_bytes = options.file_bytes.unwrap_or_else(|| self.context.files.file_bytes());
        let job = Job {
            schema,
            sources,
            lower: None,
            upper,
            bottom,
            major,
            write,
            file_bytes: match bottom {
                true => file_bytes,
                false => file_bytes.min(TIER_FILE_BYTES),
            },
            progress,
            carried,
        };
        let mut report = compaction::run(job, self.env(), &self.context.files).await?;
        number_run(&mut report.files, 0);
        Ok(report)
    }
}

/// How so many runs are read together.
fn read_of(runs: usize) -> ReadOptions {
    ReadOptions {
        readahead_bytes: (READAHEAD_BYTES_MAX / runs.max(1)).min(READ.readahead_bytes),
        ..READ
    }
}

/// Whether the first of these runs is the oldest of all: what a family has left in another group is below all that is here.
fn has_bottom(state: &State, group: &GroupState, runs: &[Range<usize>]) -> bool {
    runs.first().is_some_and(|first| first.start == 0) && !state.is_above_residue(group.id)
}

/// Takes what a job has shown to the experience with the group.
fn learn(group: &GroupState, plan: &Plan, left: &[FileRef], report: &JobReport) {
    let learnt = &group.learnt;
    learnt.forget_reads();
    if plan.bottom && !plan.cut.is_empty() {
        let tiers = group.files.get(plan.cut.clone()).unwrap_or_default();
        let overlapping = |file: &FileRef| cells_of(file) * learnt.known_overlap(file.id()).unwrap_or(100) / 100;
        let moved = |cells: &dyn Fn(&FileRef) -> u64| {
            let before: u64 = tiers.iter().map(|file| cells(&file.reference)).sum();
            before.saturating_sub(left.iter().map(cells).sum())
        };
        let dropped = report.entries_in.saturating_sub(report.entries_out);
        learnt.merged(moved(&overlapping), moved(&cells_of), dropped);
    }
    // The last part of a merge, or one of everything.
    if plan.bottom && left.is_empty() && (plan.major || !plan.cut.is_empty()) {
        learnt.gathered();
    }
}

/// The change of a manifest that puts a job's output into place. Only flushes have changed the list since the job began,
/// and they append.
fn replacement(
    group: GroupId,
    files: &[HeldFile],
    (inputs, cut): (Range<usize>, Range<usize>),
    output: Vec<FileRef>,
    left: Vec<FileRef>,
    bottom: bool,
) -> impl FnOnce(&mut Manifest) {
    let read = if bottom { 0..cut.end } else { inputs.clone() };
    let expected = files.get(read.clone()).unwrap_or_default().iter();
    let expected: Vec<FileRef> = expected.map(|file| file.reference.clone()).collect();
    move |manifest| {
        let mut now = manifest.files(group).to_vec();
        if now.get(read) != Some(&expected[..]) {
            return;
        }
        now.splice(cut.clone(), left);
        let last_of_bottom = cut.start - inputs.len() + output.len();
        now.splice(inputs, output);
        if bottom && let Some(run) = now.get_mut(..last_of_bottom) {
            let number = run.iter().map(|file| file.run).find(|number| *number != 0);
            number_run(run, number.unwrap_or(0));
        }
        manifest.set_files(group, now);
    }
}

/// Makes the references one run under `number`, or a number of their own for 0; a single one needs none.
pub(super) fn number_run(run: &mut [FileRef], number: u64) {
    let number = match run {
        [] | [_] => 0,
        [first, ..] if number == 0 => first.file,
        _ => number,
    };
    run.iter_mut().for_each(|file| file.run = number);
}

/// Where the merged tiers have rows.
struct Tiers {
    merge: Merge,
}

impl Tiers {
    fn new(files: &[HeldFile]) -> Self {
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let sources = runs.filter_map(|run| run::source(run, &[], None, None, READ));
        Tiers {
            merge: Merge::new(sources.collect()),
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
fn row_of(key: &[u8]) -> Bytes {
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

/// About how many entries a job reads.
fn cells_in(files: &[HeldFile], plan: &Plan, left: &[FileRef]) -> u64 {
    let read = [plan.inputs.clone(), plan.cut.clone()].into_iter();
    let read = read.filter_map(|range| files.get(range)).flatten();
    let before: u64 = read.map(|file| cells_of(&file.reference)).sum();
    before.saturating_sub(left.iter().map(cells_of).sum())
}

/// About how many entries are referenced.
fn cells_of(file: &FileRef) -> u64 {
    scaled(file.cells, file)
}

/// The part of a number about the whole file that falls to what is referenced.
fn scaled(number: u64, file: &FileRef) -> u64 {
    let part = u128::from(number) * u128::from(file.referenced) / u128::from(file.len.max(1));
    u64::try_from(part).unwrap_or(number).min(number)
}

fn summarize(run: &[HeldFile], expiry: &Expiry, tablet_start: &[u8], learnt: &Learnt) -> RunSummary {
    let mut all = RunSummary::default();
    for file in run {
        let reference = &file.reference;
        let cells = cells_of(reference);
        let properties = file.sstable.properties();
        let expired = match (properties.timestamp_min, properties.timestamp_max) {
            (Some(min), Some(max)) => expiry.percent(min, max),
            _ => 0,
        };
        all.bytes += reference.referenced;
        all.cells += cells;
        all.garbage += (scaled(reference.deletes, reference) + cells * expired / 100).min(cells);
        let overlapping = |percent: u64| reference.referenced * percent / 100;
        let known = learnt.known_overlap(reference.id());
        all.overlapping += overlapping(known.unwrap_or(100));
        all.known_overlapping += overlapping(known.unwrap_or(0));
        all.file_bytes += reference.len;
        all.advanced |= reference.lower.as_deref().is_some_and(|lower| lower > tablet_start);
    }
    all
}

/// What a group's rules say of age.
struct Expiry {
    /// Of all families; empty when one has none, or there are too many to look at.
    rules: Vec<GcRule>,
    unit: TimeUnit,
    now_micros: i64,
}

/// Different rules looked at: a group of more is left to other reasons to be compacted.
const RULES_MAX: usize = 8;

impl Expiry {
    fn new(schema: &TableSchema, group: GroupId, now_micros: i64) -> Self {
        let mut rules: Vec<GcRule> = Vec::new();
        for family in schema.families.values().filter(|family| family.group == group) {
            match &family.gc_rule {
                Some(rule) if rules.contains(rule) => {}
                Some(rule) if rules.len() < RULES_MAX => rules.push(rule.clone()),
                _ => {
                    rules.clear();
                    break;
                }
            }
        }
        Expiry {
            rules,
            unit: schema.time_unit,
            now_micros,
        }
    }

    /// How many in a hundred of cells spread evenly between two timestamps are certainly expired. By the mildest rule: it
    /// is not known which family they are of.
    fn percent(&self, min: i64, max: i64) -> u64 {
        let expired = |rule: &GcRule, timestamp: i128| {
            rule.is_garbage(&GcView {
                version_index: 0,
                timestamp: Timestamp(i64::try_from(timestamp).unwrap_or(i64::MAX)),
                unit: self.unit,
                now_micros: self.now_micros,
            })
        };
        let (min, width) = (i128::from(min), i128::from(max) - i128::from(min));
        let percent = |rule: &GcRule| {
            if expired(rule, i128::from(max)) {
                return 100;
            }
            let (mut low, mut high) = (0, 100);
            while high - low > 1 {
                let middle = (low + high) / 2;
                if expired(rule, min + width * middle / 100) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            low as u64
        };
        self.rules.iter().map(percent).min().unwrap_or(0)
    }
}
