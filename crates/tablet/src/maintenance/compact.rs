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

mod job;
mod plan;
mod summary;

pub(super) use job::number_run;
pub(super) use plan::Plan;

use super::values::{value_shares, value_units};
use crate::error::Result;
use crate::picker;
use crate::state::{GroupState, State};
use crate::tablet::Tablet;
use crate::values::collect;
use plan::Due;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use stele_types::{GroupId, RowRange};
use summary::has_bottom;

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

    /// Whether a merge is due in a group.
    pub(super) fn is_due(&self, state: &State, group: &GroupState) -> bool {
        self.due(state, group).is_some()
    }
}
