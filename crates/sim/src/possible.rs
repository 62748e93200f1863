//! What a row may hold, when an answer follows from many writes and some of these went unanswered.
//!
//! The registers of [`crate::history`] are overwritten as a whole, so one write explains an answer. Here writes put some
//! versions and delete others, in families with and without a rule of garbage collection. So for each row there is a list
//! of *possible states*, and an answer is right if one of them gives exactly it:
//!
//! * A write may be conditional, and its answer tells what it found: that is a read, too.
//! * One write at a time goes to a row; reads go on beside it. What was acknowledged is part of every state, what was
//!   refused of none, and what is under way or went unanswered is *in doubt*: a read finds it or not.
//! * After a write of unknown outcome nothing is written to the row before the next recovery. There the doubt ends: from
//!   then on it has happened, or never will. Until a read tells which, both are possible. The same holds of a write that is
//!   still waited for then: whom it was sent to was killed, or is outlived.
//! * A read that nothing was written beside leaves only the states that explain it: what was read once stays read.
//!
//! A rule counts when reading, so the versions beyond the newest of a column are never shown. Of those that were beyond them
//! after some write it is not known whether a compaction has dropped them (`docs/data-model.md`): such a version is
//! *droppable*. When newer ones are deleted it shows, or not, and if not it never comes back. It is kept as long as it is
//! there, and may still go: a compaction may be at work that has not met the delete.
//!
//! What a filter makes of an answer, [`view`] says.
//!
//! There is no time in any of this, no sequence number and no file: it shares with the engine the data types alone.

mod state;
pub mod view;

use crate::history::{Moment, Outcome};
use state::{State, add};
use std::collections::BTreeMap;
use stele_types::{Cell, FamilyId, Mutation};
use view::View;

/// How many versions of a column a family's rule keeps; `None` is all.
pub type Keeps = fn(FamilyId) -> Option<usize>;

/// States of a row that is still written to. Doubts double them, once in a life of the server at most, and reads end
/// doubts: a row that has so many waits for those.
const STATES_MAX: usize = 32;

/// States that a violation shows.
const STATES_SHOWN: usize = 4;

/// What one request does to a row.
#[derive(Clone, Debug)]
pub struct Change {
    /// Chooses the first list if this view of the row has any cell, else the second. The first without any.
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
    /// What is written if the condition has, or has not, matched.
    pub fn branch(&self, matched: bool) -> &[Mutation] {
        match matched {
            true => &self.on_match,
            false => &self.otherwise,
        }
    }
}

/// What may be said of one row.
#[derive(Debug)]
pub struct Row {
    keeps: Keeps,
    /// What the row may hold, without what is in doubt. Never empty; none covers another.
    states: Vec<State>,
    in_doubt: Option<InDoubt>,
    writing: Writing,
    /// Number of the newest write.
    write: u64,
    /// Grows whenever something is written or learned.
    changes: u64,
    reads: BTreeMap<u64, Read>,
    next_read: u64,
}

/// A write that may have happened, or may yet.
#[derive(Debug)]
struct InDoubt {
    change: Change,
    /// When its client learned that it had failed, in the life of the server in which it did.
    failed: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Somebody may write.
    Idle,
    /// Somebody does.
    UnderWay,
    /// Somebody does, who has not learned of a recovery since: it has happened, or never will.
    Outlived,
    /// The same, and a read after that recovery has not found it.
    Lost,
    /// Somebody did, and nobody knows what came of it: nothing is written before the next recovery.
    Resting,
}

/// A read that has no answer yet.
#[derive(Debug)]
struct Read {
    /// What the row may have held when it began.
    before: Vec<State>,
    /// What it may have held since, because of the write of this number.
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

    /// A write begins, unless there is another, or too much is in doubt; whether it does.
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

    /// The write ends; its client learned so at `now`, and perhaps whether the condition has matched.
    pub fn end_write(&mut self, outcome: Outcome, matched: Option<bool>, now: Moment) -> Result<(), String> {
        self.changes += 1;
        let was = self.writing;
        self.writing = match outcome {
            Outcome::Failed | Outcome::Unknown if was == Writing::UnderWay => Writing::Resting,
            _ => Writing::Idle,
        };
        let Some(doubt) = &mut self.in_doubt else {
            // A read has seen it, or has shown that it never happens.
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

    /// A read begins; the result names it. What failed before `settled` never happens.
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

    /// The read ends: it found these cells in this view, or had no answer.
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
            // What was in doubt has happened.
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

    /// The server has recovered: what is in doubt and is over has happened by now, or never will. What failed before
    /// `settled` never does.
    pub fn recovered(&mut self, settled: Moment) {
        self.settle(settled);
        if self.writing == Writing::UnderWay {
            // Whoever waits for its answer has yet to learn of it, and may be told that it has happened. A read that began
            // before is no proof that it has not.
            self.writing = Writing::Outlived;
            self.changes += 1;
            return;
        }
        if self.writing == Writing::Resting {
            self.writing = Writing::Idle;
            self.settle_either_way();
        }
    }

    /// What is in doubt, if anything is, has happened or never will.
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

    /// What is in doubt has not happened and never will.
    fn forget_doubt(&mut self) {
        self.in_doubt = None;
        self.changes += 1;
        let write = self.write;
        for read in self.reads.values_mut() {
            read.since.retain(|(of, _)| *of != write);
        }
    }

    /// The states once what is in doubt has happened, and was told this; the doubt is over.
    fn happened(&mut self, matched: Option<bool>) -> Vec<State> {
        let states = self.states_since(matched).into_iter().map(|(_, state)| state).collect();
        self.in_doubt = None;
        states
    }

    /// The states if what is in doubt has happened and was told this, each with the number of that write.
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

    /// Those of the states that give these cells in this view, with what that says of them.
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
