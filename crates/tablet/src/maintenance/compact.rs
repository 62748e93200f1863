//! Compactions of one tablet, in parts of bounded size.
//!
//! A compaction of upper runs is one job. A compaction into the bottom level is a sequence of jobs from the first row to
//! the last; so is a compaction of everything. Each job covers a few files of the bottom level, or as many bytes of the
//! upper runs. Each job commits: its output replaces the files it read, and the upper runs are cut to begin behind it.
//! So the compaction needs free space for one job only, and an owner that stops half-way leaves a valid state, from
//! which the picker goes on.
//!
//! Jobs of a tablet without a run in common run concurrently (`claims`), as many as the server starts.
//!
//! Invariants:
//! * A job into the bottom begins and ends between rows, and reads all entries of the compacted runs up to its end. Their
//!   entries before its first bottom file went down with earlier jobs.
//! * No row is in two files of the bottom.

mod cut;
mod job;
mod plan;

pub(super) use job::{Shape, number_run, write_options};
pub(super) use plan::{Due, Plan};

use super::context::{Claimed, CompactionContext};
use super::overlap::overlap_with;
use super::values::{carried, value_shares, value_units};
use crate::claims::Claim;
use crate::error::Result;
use crate::held::HeldFile;
use crate::manifest::FileRef;
use crate::picker::Pick;
use crate::progress::Progress;
use crate::state::{GroupState, State};
use crate::tablet::Tablet;
use crate::values::collect;
use bytes::Bytes;
use job::{cells_in, learn, replacement};
use plan::Weighed;
use std::collections::BTreeSet;
use std::ops::Range;
use stele_types::{FileId, GroupId, RowRange};

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

/// Bytes that a compaction may write. Its inputs are deleted when it is done, not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimit {
    /// Of any kind.
    pub any: u64,
    /// Into the bottom: such a job makes garbage go, so it may have of the reserve, which nothing else brings back.
    pub into_bottom: u64,
}

impl SpaceLimit {
    /// No bound.
    pub const UNLIMITED: SpaceLimit = SpaceLimit {
        any: u64::MAX,
        into_bottom: u64::MAX,
    };
}

/// Bounds of a compaction of everything, asked for before each of its parts.
pub struct MajorBounds<'a> {
    /// Bytes that the next part may write.
    pub space: &'a (dyn Fn() -> SpaceLimit + Send + Sync),
    /// Whether it goes on. Others may wait for its end.
    pub goes_on: &'a (dyn Fn() -> bool + Send + Sync),
}

/// How a compaction of everything ended. Parts that it has committed stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MajorEnd {
    /// Each group is one run.
    Done,
    /// It was not to go on.
    Stopped,
    /// The next part needs more space than there is.
    NoSpace,
}

impl MajorBounds<'_> {
    /// Why a part that writes this many bytes, into the bottom level or not, is not begun.
    fn end_before(&self, needs: u64, into_bottom: bool) -> Option<MajorEnd> {
        if !(self.goes_on)() {
            return Some(MajorEnd::Stopped);
        }
        let space = (self.space)();
        let most = if into_bottom { space.into_bottom } else { space.any };
        (needs > most).then_some(MajorEnd::NoSpace)
    }
}

impl Tablet {
    /// Runs the compaction that is most due, or a part of it; whether one was.
    pub async fn compact_if_due(&self) -> Result<bool> {
        Ok(self.compact_next().await?.is_some())
    }

    /// Runs the compaction that is most due, or a part of it.
    pub async fn compact_next(&self) -> Result<Option<Compacted>> {
        self.compact_within(SpaceLimit::UNLIMITED).await
    }

    /// Runs the compaction that is most due, or a part of it, of those for which there is enough free space. Where there
    /// is little, compactions into the bottom level are cut smaller. They are then made instead of compactions of upper
    /// runs, which are not cut.
    pub async fn compact_within(&self, reservation: SpaceLimit) -> Result<Option<Compacted>> {
        let context = CompactionContext::of(self);
        if self
            .with_state(State::movable_bytes)
            .is_some_and(|bytes| bytes <= reservation.any)
        {
            // It is next when the running jobs have ended; if jobs always began concurrently with it, they might never
            // all end.
            let Ok(_alone) = self.compacting.try_write() else {
                return Ok(None);
            };
            if let Some(moved) = self.migrate_next().await? {
                return Ok(Some(moved));
            }
        }
        let Ok(_compacting) = self.compacting.try_read() else {
            return Ok(None);
        };
        for id in self.group_ids() {
            let Some(mut job) = context.claim_due(id) else { continue };
            if !job.due.is_into_bottom() {
                let plan = context.plan_upper_runs(&job.group, &job.due);
                let weighed = context.weigh(&job.group, plan, reservation.any).await?;
                if weighed.needs <= reservation.any {
                    return self.carry_out_claimed(&job.claim, &job.group, weighed).await;
                }
                drop(job);
                // There may be space for a compaction that is cut into parts.
                let Some(bottom) = context.claim_bottom(id) else {
                    continue;
                };
                job = bottom;
            }
            if let Some(weighed) = self.weighed_bottom(&job, reservation).await? {
                return self.carry_out_claimed(&job.claim, &job.group, weighed).await;
            }
        }
        if let Some((claim, (group, plan))) = context.claim_collection() {
            let weighed = context.weigh(&group, plan, reservation.any).await?;
            if weighed.needs <= reservation.into_bottom {
                return self.carry_out_claimed(&claim, &group, weighed).await;
            }
        }
        Ok(None)
    }

    /// Runs the job of a plan, and commits its output.
    async fn carry_out(&self, group: &GroupState, weighed: Weighed) -> Result<Compacted> {
        let Weighed {
            mut plan,
            left,
            kept,
            bytes_in,
            ..
        } = weighed;
        assert!(
            plan.upper.is_some() || (left.is_empty() && kept.is_none()),
            "a job without an upper bound takes all of its inputs"
        );
        self.settle().await?;
        let _job = self.context.files.begin_job();
        let context = CompactionContext::of(self);
        let (start, schema) = (self.env().now(), self.schema());
        let files = &group.files;
        let carried = carried(group, std::mem::take(&mut plan.collected));
        let sources = std::mem::take(&mut plan.sources);
        let progress = Progress::of_compaction(
            &self.context.metrics.moved,
            bytes_in,
            cells_in(files, &plan, left.iter().chain(&kept)),
        );
        let reach = self.state().newest_before(group, plan.inputs.start);
        let report = context
            .run_job(
                group.id,
                schema.clone(),
                sources,
                plan.upper.clone(),
                Shape {
                    bottom: plan.bottom,
                    major: plan.major,
                    older_until: reach,
                    loose: false,
                },
                (carried, Some(progress)),
            )
            .await?;
        let metrics = &self.context.metrics;
        metrics.compaction_read_bytes.inc_by(bytes_in);
        metrics.compaction_written_bytes.inc_by(report.bytes());
        learn(group, &plan, &left, &report);
        let upper_run_files: Vec<FileId> = report.files.iter().map(FileRef::id).collect();
        let (made, older) = (report.made(), plan.inputs.start);
        let mut output = report.files;
        output.extend(kept);
        let change = replacement(group.id, files, (plan.inputs, plan.cut), output, left, plan.bottom);
        self.commit((&made, Some(&schema)), change, |_| {}).await?;
        metrics.compactions.inc();
        metrics
            .compaction_seconds
            .observe((self.env().now() - start).as_secs_f64());
        if !plan.bottom {
            let percent = overlap_with(self.env(), group, older, report.sample.rows()).await;
            if let Some(now) = self.state().group(group.id) {
                group
                    .compaction_stats
                    .note_overlap(&now.file_ids(), upper_run_files.into_iter(), percent);
            }
        }
        self.note_debt();
        Ok(Compacted {
            group: group.id,
            rows: plan.rows,
            major: plan.major,
        })
    }

    async fn carry_out_claimed(
        &self,
        claim: &Claim<'_>,
        group: &GroupState,
        weighed: Weighed,
    ) -> Result<Option<Compacted>> {
        if claim.is_concurrent {
            self.context.metrics.concurrent_compactions.inc();
        }
        self.carry_out(group, weighed).await.map(Some)
    }

    /// The next part of a claimed compaction into the bottom level, if there is one and free space for it.
    async fn weighed_bottom(&self, job: &Claimed<'_>, reservation: SpaceLimit) -> Result<Option<Weighed>> {
        let context = CompactionContext::of(self);
        let Some(plan) = context.plan_bottom(&job.group, &job.due, reservation, None).await? else {
            return Ok(None);
        };
        let weighed = context.weigh(&job.group, plan, reservation.any).await?;
        Ok((weighed.needs <= reservation.into_bottom).then_some(weighed))
    }

    fn group_ids(&self) -> Vec<GroupId> {
        self.with_state(|state| state.groups.iter().map(|group| group.id).collect())
    }

    /// As [`Tablet::compact_within`]. Where nothing is due for which there is free space, it runs the next part of a
    /// compaction of all runs into the bottom level. It is for storage that is full: most of its bytes may be garbage,
    /// too little in each tablet to be worth a compaction otherwise. It ends when each group is one run.
    pub async fn compact_for_space(&self, reservation: SpaceLimit) -> Result<Option<Compacted>> {
        let context = CompactionContext::of(self);
        if let Some(compacted) = self.compact_within(reservation).await? {
            return Ok(Some(compacted));
        }
        let Ok(_compacting) = self.compacting.try_read() else {
            return Ok(None);
        };
        for id in self.group_ids() {
            let Some(mut job) = context.claim_bottom(id) else {
                continue;
            };
            // Rather a few of the upper runs than none.
            while job.due.pick.runs.len() > 1 {
                if let Some(weighed) = self.weighed_bottom(&job, reservation).await? {
                    return self.carry_out_claimed(&job.claim, &job.group, weighed).await;
                }
                job.due.pick.runs.end -= 1;
                job.due.pick.major = false;
            }
        }
        Ok(None)
    }

    /// Whether [`Tablet::compact_for_space`] may find something to do.
    pub fn may_shrink(&self) -> bool {
        self.state().groups.iter().any(|group| group.runs().nth(1).is_some())
    }

    /// Flushes, then rewrites all files of every group into one run, in parts that commit. Space of value files that
    /// becomes garbage by that is freed immediately.
    pub async fn compact_all(&self) -> Result<()> {
        self.flush().await?;
        let bounds = MajorBounds {
            space: &|| SpaceLimit::UNLIMITED,
            goes_on: &|| true,
        };
        let end = self.compact_files(&bounds).await?;
        assert_eq!(end, MajorEnd::Done, "nothing bounds it");
        Ok(())
    }

    /// As [`Tablet::compact_all`] without the flush, within bounds. Keeps other compactions of the tablet out.
    pub async fn compact_files(&self, bounds: &MajorBounds<'_>) -> Result<MajorEnd> {
        let _alone = self.compacting.write().await;
        while let Some(bytes) = self.with_state(State::movable_bytes) {
            if let Some(end) = bounds.end_before(bytes, false) {
                return Ok(end);
            }
            if self.migrate_next().await?.is_none() {
                break;
            }
        }
        for collects in [false, true] {
            let state = self.with_state(|state| state.of_files(&self.context.memory));
            let collected = match collects {
                true => collect::when_asked(&value_units(&state), &value_shares(&state)),
                false => BTreeSet::new(),
            };
            let free = |group: &&GroupState| !group.files.is_empty() && !state.is_entangled(group.id);
            for group in state.groups.iter().filter(free) {
                let links = || group.files.iter().flat_map(|file| &file.reference.values);
                if !collects || links().any(|link| collected.contains(&link.id())) {
                    let end = self.rewrite_all(group, &collected, bounds).await?;
                    if end != MajorEnd::Done {
                        return Ok(end);
                    }
                }
            }
        }
        Ok(MajorEnd::Done)
    }

    /// Rewrites a group; no compaction runs meanwhile.
    async fn rewrite_all(
        &self,
        group: &GroupState,
        collected: &BTreeSet<FileId>,
        bounds: &MajorBounds<'_>,
    ) -> Result<MajorEnd> {
        let context = CompactionContext::of(self);
        // Files that are flushed meanwhile have rows that the loop has passed.
        let ids = |files: &[HeldFile]| files.iter().map(|file| file.reference.id()).collect::<Vec<FileId>>();
        let known: BTreeSet<FileId> = ids(&group.files).into_iter().collect();
        let mut from = Bytes::new();
        loop {
            let state = self.state();
            let Some(group) = state.group(group.id).map(|group| group.of_files(&self.context.memory)) else {
                return Ok(MajorEnd::Done);
            };
            let space = (bounds.space)();
            // Of a damaged file nobody may know which rows it has.
            if state.is_above_misplaced(group.id) || group.files.iter().any(HeldFile::is_damaged) {
                let plan = context.plan_all(&state, &group, collected.clone());
                let weighed = context.weigh(&group, plan, space.any).await?;
                return match bounds.end_before(weighed.needs, weighed.plan.bottom) {
                    Some(end) => Ok(end),
                    None => self.carry_out(&group, weighed).await.map(|_| MajorEnd::Done),
                };
            }
            let (_, runs) = context.summaries(&state, &group);
            let is_known = |run: &&Range<usize>| {
                let files = group.files.get((*run).clone()).unwrap_or_default();
                run.start == 0 || ids(files).iter().all(|file| known.contains(file))
            };
            let pick = Pick {
                runs: 0..runs.iter().take_while(is_known).count(),
                major: true,
            };
            let has_bottom = true;
            let due = Due { pick, runs, has_bottom };
            let part = context.plan_bottom(&group, &due, space, Some(&from)).await?;
            let Some(mut plan) = part else {
                return Ok(MajorEnd::Done);
            };
            plan.collected = collected.clone();
            let upper = plan.upper.clone();
            debug_assert!(
                upper.as_ref().is_none_or(|upper| *upper > from),
                "each part begins behind the one before"
            );
            let weighed = context.weigh(&group, plan, space.any).await?;
            if let Some(end) = bounds.end_before(weighed.needs, true) {
                return Ok(end);
            }
            self.carry_out(&group, weighed).await?;
            let Some(upper) = upper else {
                return Ok(MajorEnd::Done);
            };
            from = upper;
        }
    }

    /// Whether a compaction is due in addition to those that run.
    pub fn compaction_due(&self) -> bool {
        let context = CompactionContext::of(self);
        self.claims.with(|held| {
            let state = self.state();
            let due = |group: &GroupState| context.due(&state, group, &held.files(group.id)).is_some();
            state.movable_bytes().is_some()
                || state.groups.iter().any(due)
                || context.collection_due(&state, held).is_some()
        })
    }
}
