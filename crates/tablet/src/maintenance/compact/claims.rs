//! Which runs the jobs of a tablet are at, so that several go on at once.
//!
//! A job *claims* the files that its commit replaces or cuts: the runs it merges, or, of a merge into the bottom, the bottom
//! and the tiers that go into it. What is claimed is nobody else's until the claim is dropped, which a job does when its state
//! is published, or when it fails.
//!
//! Invariants, and why two jobs of a group need no more than these:
//! * Claims of a group have no file in common, and what a job claims is adjacent in age. Each job puts its output where its
//!   inputs were, so newer runs stay above older ones whichever commits first; only positions move, and a commit looks for
//!   its inputs by what they are.
//! * One job of a group at most is at the bottom: it claims all of it. A job that makes markers go claims everything that is
//!   older than its inputs, so nobody brings anything to where the markers were.
//! * A claim is made together with a look at a state that all former holders have published to. What it names is still
//!   there, unchanged, when the job commits.

use super::plan::{Due, Plan};
use crate::maintenance::values;
use crate::state::{GroupState, State};
use crate::tablet::Tablet;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::{FileId, GroupId};

/// The claims of a tablet.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
}

/// Claims by number. There are as many as jobs, whose number the server bounds.
#[derive(Debug, Default)]
pub(in crate::maintenance) struct Held {
    claims: BTreeMap<u64, (GroupId, BTreeSet<FileId>)>,
    last: u64,
}

impl Held {
    /// Files of a group that jobs are at.
    pub(in crate::maintenance) fn files(&self, group: GroupId) -> BTreeSet<FileId> {
        let of_group = self.claims.values().filter(|(of, _)| *of == group);
        of_group.flat_map(|(_, files)| files.iter().copied()).collect()
    }
}

/// A claim; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
    /// Whether others were held when this one was made.
    pub(super) is_concurrent: bool,
}

impl Claims {
    /// Looks at what is claimed. `look` is short, and claims nothing.
    pub(super) fn with<R>(&self, look: impl FnOnce(&Held) -> R) -> R {
        look(&self.held.lock())
    }

    /// Claims the files that `choose` names, if it does; with whatever else it found. Nothing is claimed or given back
    /// meanwhile.
    pub(super) fn make<R>(
        &self,
        group: GroupId,
        choose: impl FnOnce(&Held) -> Option<(BTreeSet<FileId>, R)>,
    ) -> Option<(Claim<'_>, R)> {
        let mut held = self.held.lock();
        let (files, found) = choose(&held)?;
        debug_assert!(held.files(group).is_disjoint(&files), "a run is claimed twice");
        let is_concurrent = !held.claims.is_empty();
        held.last += 1;
        let number = held.last;
        held.claims.insert(number, (group, files));
        let claim = Claim {
            claims: self,
            number,
            is_concurrent,
        };
        Some((claim, found))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.held.lock().claims.remove(&self.number);
    }
}

/// A compaction that is due, its runs claimed.
pub(super) struct Claimed<'a> {
    pub(super) claim: Claim<'a>,
    /// As it was when they were, without memtables: a job takes seconds, and must not keep those that are flushed meanwhile.
    pub(super) group: GroupState,
    pub(super) due: Due,
}

impl Tablet {
    /// What is due in a group beside what runs.
    pub(super) fn claim_due(&self, group: GroupId) -> Option<Claimed<'_>> {
        self.claim(group, |state, group, claimed| self.due(state, group, claimed))
    }

    /// The merge into the bottom, due or not.
    pub(super) fn claim_bottom(&self, group: GroupId) -> Option<Claimed<'_>> {
        self.claim(group, |state, group, claimed| self.due_bottom(state, group, claimed))
    }

    fn claim(
        &self,
        id: GroupId,
        choose: impl FnOnce(&State, &GroupState, &BTreeSet<FileId>) -> Option<Due>,
    ) -> Option<Claimed<'_>> {
        let chosen = self.claims.make(id, |held| {
            let state = self.state();
            let group = state.group(id)?;
            let due = choose(&state, group, &held.files(id))?;
            Some((due.claimed(group), (self.without_memtables(group), due)))
        });
        let (claim, (group, due)) = chosen?;
        Some(Claimed { claim, group, due })
    }

    /// The next step of collecting value files.
    pub(super) fn claim_collection(&self) -> Option<(Claim<'_>, (GroupState, Plan))> {
        let group = self.claims.with(|held| {
            let state = self.state();
            self.collection_due(&state, held).map(|(group, _)| group.id)
        })?;
        self.claims.make(group, |held| {
            let state = self.state();
            // It may have changed in between.
            let (found, plan) = self
                .collection_due(&state, held)
                .filter(|(found, _)| found.id == group)?;
            let claimed = found
                .files
                .get(values::claimed(found, &plan.inputs))
                .unwrap_or_default();
            let claimed = claimed.iter().map(|file| file.reference.id()).collect();
            Some((claimed, (self.without_memtables(found), plan)))
        })
    }

    fn without_memtables(&self, group: &GroupState) -> GroupState {
        group.of_files(&self.context.memory)
    }
}
