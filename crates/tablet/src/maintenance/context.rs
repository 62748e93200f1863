//! The parts of a tablet that planning and running a compaction needs.
//!
//! A job commits through its tablet; until then it sees no more of it than this.

use crate::claims::{Claim, Claims};
use crate::files::FileRegistry;
use crate::state::{GroupState, State};
use crate::tablet::Tablet;
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_env::Env;
use stele_memtable::MemoryAccount;
use stele_types::{FileId, GroupId, RowRange, TableSchema};

use super::compact::{Due, Plan};
use super::values;

/// The parts of a tablet that a compaction uses.
#[derive(Clone, Copy)]
pub(super) struct CompactionContext<'a> {
    /// The rows of the tablet.
    pub(super) range: &'a RowRange,
    /// Clock, randomness, tasks.
    pub(super) env: &'a Env,
    /// Opens and names files.
    pub(super) files: &'a FileRegistry,
    /// For the empty memtables of states that jobs keep.
    pub(super) memory: &'a MemoryAccount,
    /// The files that running compactions have claimed.
    pub(super) claims: &'a Claims,
    /// The current state.
    states: &'a ArcSwap<State>,
}

/// A compaction that is due, its runs claimed.
pub(super) struct Claimed<'a> {
    pub(super) claim: Claim<'a>,
    /// The group when its runs were claimed, without memtables: a job takes seconds, and must not hold memtables that are
    /// flushed meanwhile.
    pub(super) group: GroupState,
    pub(super) due: Due,
}

impl<'a> CompactionContext<'a> {
    /// The context of compactions of a tablet.
    pub(super) fn of(tablet: &'a Tablet) -> Self {
        CompactionContext {
            range: tablet.range(),
            env: tablet.env(),
            files: &tablet.context.files,
            memory: &tablet.context.memory,
            claims: &tablet.claims,
            states: tablet.states(),
        }
    }

    /// The current state.
    pub(super) fn state(&self) -> Arc<State> {
        self.states.load_full()
    }

    /// The current schema.
    pub(super) fn schema(&self) -> Arc<TableSchema> {
        self.states.load().schema.clone()
    }

    /// Claims the compaction that is due in a group concurrently with those that run.
    pub(super) fn claim_due(&self, group: GroupId) -> Option<Claimed<'a>> {
        self.claim(group, |state, group, claimed| self.due(state, group, claimed))
    }

    /// The compaction into the bottom level, due or not.
    pub(super) fn claim_bottom(&self, group: GroupId) -> Option<Claimed<'a>> {
        self.claim(group, |state, group, claimed| self.due_bottom(state, group, claimed))
    }

    fn claim(
        &self,
        id: GroupId,
        choose: impl FnOnce(&State, &GroupState, &BTreeSet<FileId>) -> Option<Due>,
    ) -> Option<Claimed<'a>> {
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
    pub(super) fn claim_collection(&self) -> Option<(Claim<'a>, (GroupState, Plan))> {
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
        group.of_files(self.memory)
    }
}
