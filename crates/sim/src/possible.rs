//! The possible contents of a row after many writes, some of unknown outcome.
//!
//! The registers of [`crate::history`] are overwritten as a whole, so one write explains a result. Here writes put some
//! versions and delete others, in families with and without a rule of garbage collection. So for each row there is a
//! list of *possible states*, and a result is right if at least one of them gives exactly it:
//!
//! * A write may be conditional, and its result tells whether the condition matched: that is a read, too.
//! * One write at a time goes to a row; reads run concurrently with it. An acknowledged write is part of every state,
//!   and a refused one of none. A write under way or without a response is *in doubt*: a read finds it or not.
//! * After a write of unknown outcome nothing is written to the row before the next recovery, which ends the doubt:
//!   from then on the write has taken effect, or never will. Until a read tells which, both are possible. The same
//!   holds for a write whose client still waits then, because its server was killed or replaced.
//! * A read without a concurrent write leaves only the states that explain it: cells that were read once stay.
//!
//! A rule applies to reads, so versions beyond the newest of a column are never shown. For a version that was beyond
//! them after some write, it is unknown whether a compaction has dropped it (`docs/data-model.md`): such a version is
//! *droppable*. When newer ones are deleted, it shows or not, and if not it never comes back. It stays droppable as
//! long as it exists, because a running compaction may not have seen the delete.
//!
//! [`view`] computes the result of a filter.
//!
//! The module has no time, no sequence number and no file: it shares only the data types with the engine.

mod state;
pub mod view;

use crate::history::{Moment, Outcome};
use state::{State, add};
use std::collections::BTreeMap;
use stele_types::{Cell, FamilyId, Mutation};
use view::View;

/// How many versions of a column a family's rule keeps; `None` is all.
pub type Keeps = fn(FamilyId) -> Option<usize>;

/// Most states of a row that is still written to. A doubt doubles them, at most once in a life of the server, and reads
/// end doubts: a row with this many states waits for reads.
const STATES_MAX: usize = 32;

/// Most states that a violation shows.
const STATES_SHOWN: usize = 4;

/// The effect of one request on a row.
#[derive(Clone, Debug)]
pub struct Change {
    /// Applies the first list if this view of the row has any cell, else the second. Without a view it applies the
    /// first.
    pub condition: Option<View>,
    /// In order.
    pub on_match: Vec<Mutation>,
    /// In order.
    pub otherwise: Vec<Mutation>,
}

impl From<Vec<Mutation>> for Change {
    fn from(mutations: Vec<Mutation>) -> Change {
        Change {
            condition: None,
            on_match: mutations,
            otherwise: Vec::new(),
        }
    }
}

impl Change {
    /// The mutations for a condition that has, or has not, matched.
    pub fn branch(&self, matched: bool) -> &[Mutation] {
        if matched { &self.on_match } else { &self.otherwise }
    }
}

/// The possible contents of one row.
#[derive(Debug)]
pub struct Row {
    keeps: Keeps,
    /// The possible states without the write in doubt. Never empty; no state covers another.
    states: Vec<State>,
    in_doubt: Option<InDoubt>,
    writing: Writing,
    /// Number of the newest write.
    write: u64,
    /// Grows with every write and every gain of knowledge.
    changes: u64,
    reads: BTreeMap<u64, Read>,
    next_read: u64,
}

/// A write that may have taken effect, or may yet.
#[derive(Debug)]
struct InDoubt {
    change: Change,
    /// The time at which its client learned of its failure, in the same life of the server.
    failed: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// A client may write.
    Idle,
    /// A client is writing.
    UnderWay,
    /// A client is writing and has not learned of a recovery since: the write has taken effect, or never will.
    Outlived,
    /// The same, and a read after that recovery has not found it.
    Lost,
    /// The outcome of a write is unknown: nothing is written before the next recovery.
    Resting,
}

/// A read under way.
#[derive(Debug)]
struct Read {
    /// The possible states when it began.
    before: Vec<State>,
    /// The possible states since then, because of the write of this number.
    since: Vec<(u64, State)>,
    /// [`Row::changes`] when it began.
    changes: u64,
}

impl Row {
    /// A row without cells.
    pub fn new(keeps: Keeps) -> Row {
        Row {
            keeps,
            states: vec![State::default()],
            in_doubt: None,
            writing: Writing::Idle,
            write: 0,
            changes: 0,
            reads: BTreeMap::new(),
            next_read: 0,
        }
    }

    /// Begins a write, unless there is another, or too much is in doubt. Returns whether it begins.
    pub fn begin_write(&mut self, change: &Change) -> bool {
        if self.writing != Writing::Idle || self.states.len() > STATES_MAX {
            return false;
        }
        debug_assert!(self.in_doubt.is_none(), "a row in doubt rests until the next recovery");
        self.writing = Writing::UnderWay;
        self.write += 1;
        self.changes += 1;
        self.in_doubt = Some(InDoubt {
            change: change.clone(),
            failed: None,
        });
        let since = self.states_since(None);
        for read in self.reads.values_mut() {
            read.since.extend(since.iter().cloned());
        }
        true
    }

    /// Ends the write. Its client learned of it at `now`, and perhaps whether the condition has matched.
    pub fn end_write(&mut self, outcome: Outcome, matched: Option<bool>, now: Moment) -> Result<(), String> {
        self.changes += 1;
        let was = self.writing;
        self.writing = match outcome {
            Outcome::Failed | Outcome::Unknown if was == Writing::UnderWay => Writing::Resting,
            _ => Writing::Idle,
        };
        let Some(doubt) = &mut self.in_doubt else {
            // A read has seen it, or has shown that it never takes effect.
            return match (was, outcome) {
                (Writing::Lost, Outcome::Acknowledged) => {
                    Err("a write was acknowledged that a read after the recovery had not found".to_owned())
                }
                (Writing::Lost, _) => Ok(()),
                (_, Outcome::Refused) => Err("a write has been read, and was refused then".to_owned()),
                _ => Ok(()),
            };
        };
        match outcome {
            Outcome::Acknowledged => return self.acknowledged(matched),
            Outcome::Refused => self.forget_doubt(),
            Outcome::Failed | Outcome::Unknown if was == Writing::Outlived => self.settle_either_way(),
            Outcome::Failed => doubt.failed = Some(now),
            Outcome::Unknown => {}
        }
        Ok(())
    }

    fn acknowledged(&mut self, matched: Option<bool>) -> Result<(), String> {
        let states = self.happened(matched);
        if states.is_empty() {
            let held: Vec<String> = self.states.iter().take(STATES_SHOWN).map(State::show).collect();
            let held = held.join("] [");
            return Err(format!(
                "told that its condition matched: {matched:?}; the row held any of [{held}]"
            ));
        }
        self.states = states;
        Ok(())
    }

    /// Begins a read; the result names it. Writes that failed before `settled` never take effect.
    pub fn begin_read(&mut self, settled: Moment) -> u64 {
        self.settle(settled);
        let read = Read {
            before: self.states.clone(),
            since: self.states_since(None),
            changes: self.changes,
        };
        self.next_read += 1;
        self.reads.insert(self.next_read, read);
        self.next_read
    }

    /// Ends the read, which found these cells in this view or had no response.
    pub fn end_read(&mut self, read: u64, view: &View, cells: Option<&[Cell]>) -> Result<(), String> {
        let (Some(read), Some(cells)) = (self.reads.remove(&read), cells) else {
            return Ok(());
        };
        let before = self.explaining(read.before.iter(), view, cells);
        let since = self.explaining(read.since.iter().map(|(_, state)| state), view, cells);
        if before.is_empty() && since.is_empty() {
            return Err(explain(&read));
        }
        if self.changes != read.changes {
            return Ok(());
        }
        let learned = match (before.is_empty(), since.is_empty()) {
            // The write in doubt has taken effect.
            (true, _) => {
                self.in_doubt = None;
                since
            }
            // It never will.
            (false, true) if self.writing == Writing::Outlived && self.in_doubt.is_some() => {
                self.writing = Writing::Lost;
                self.in_doubt = None;
                before
            }
            // It has not, so far.
            (false, true) => before,
            (false, false) => return Ok(()),
        };
        if learned != self.states {
            self.states = learned;
            self.changes += 1;
        }
        Ok(())
    }

    /// Records a recovery: a write in doubt that has ended has taken effect by now, or never will. Writes that failed
    /// before `settled` never do.
    pub fn recovered(&mut self, settled: Moment) {
        self.settle(settled);
        if self.writing == Writing::UnderWay {
            // A client that still waits has yet to learn of it and may be told that the write took effect. A read that
            // began before is no proof that it has not.
            self.writing = Writing::Outlived;
            self.changes += 1;
            return;
        }
        if self.writing == Writing::Resting {
            self.writing = Writing::Idle;
            self.settle_either_way();
        }
    }

    /// Settles that the write in doubt, if there is one, has taken effect or never will.
    fn settle_either_way(&mut self) {
        if self.in_doubt.is_some() {
            let unchanged = self.states.clone();
            self.states = self.happened(None);
            unchanged.into_iter().for_each(|state| add(&mut self.states, state));
            self.changes += 1;
        }
    }

    fn settle(&mut self, settled: Moment) {
        let failed = self.in_doubt.as_ref().and_then(|doubt| doubt.failed);
        if failed.is_some_and(|at| at < settled) {
            self.forget_doubt();
        }
    }

    /// Settles that the write in doubt has not taken effect and never will.
    fn forget_doubt(&mut self) {
        self.in_doubt = None;
        self.changes += 1;
        let write = self.write;
        for read in self.reads.values_mut() {
            read.since.retain(|(of, _)| *of != write);
        }
    }

    /// The states after the write in doubt took effect with this result; the doubt is over.
    fn happened(&mut self, matched: Option<bool>) -> Vec<State> {
        let states = self.states_since(matched).into_iter().map(|(_, state)| state).collect();
        self.in_doubt = None;
        states
    }

    /// The states if the write in doubt took effect with this result, each with the number of that write.
    fn states_since(&self, told: Option<bool>) -> Vec<(u64, State)> {
        let Some(InDoubt { change, .. }) = &self.in_doubt else {
            return Vec::new();
        };
        let mut since = Vec::new();
        for found in &self.states {
            let Some(condition) = &change.condition else {
                let mut state = found.clone();
                state.apply(&change.on_match, self.keeps);
                add(&mut since, state);
                continue;
            };
            for (mut state, cells) in found.answers(self.keeps) {
                let matched = !condition.of(cells).is_empty();
                if told.is_none_or(|told| told == matched) {
                    state.apply(change.branch(matched), self.keeps);
                    add(&mut since, state);
                }
            }
        }
        since.into_iter().map(|state| (self.write, state)).collect()
    }

    /// The states that give these cells in this view, narrowed by this result.
    fn explaining<'a>(&self, states: impl Iterator<Item = &'a State>, view: &View, cells: &[Cell]) -> Vec<State> {
        let mut explaining = Vec::new();
        for (state, shown) in states.flat_map(|state| state.answers(self.keeps)) {
            if view.of(shown) == cells {
                add(&mut explaining, state);
            }
        }
        explaining
    }
}

fn explain(read: &Read) -> String {
    let show = |states: Vec<&State>| {
        let shown: Vec<String> = states.iter().take(STATES_SHOWN).map(|state| state.show()).collect();
        format!("any of {} states as [{}]", states.len(), shown.join("] ["))
    };
    let before = show(read.before.iter().collect());
    let since = show(read.since.iter().map(|(_, state)| state).collect());
    format!("it may have held {before}; with what was written since, {since}")
}

#[cfg(test)]
mod tests;
