//! Friends and inviters of users: the expected contents of reads, and candidates for updates.
//!
//! Terms: a *tie* is one column: friend or inviter `other` in the row of `user`. A *change* is one write of a tie. It
//! is *settled* once it has been acknowledged, and in doubt until then; for ever if it failed.
//!
//! The rule, for each tie: a read must show the result of the last change if that was acknowledged before the read was
//! sent. If a change was in progress or began later, either result is right. BG's validation phase finds the same from
//! logs: it searches for a count that some order of overlapping updates explains. Here each tie is judged by itself
//! during the run, so that two errors never add up to a right count.
//!
//! Invariants:
//! * A tie has at most one change in progress: a step that changes ties between two users has *reserved* both of them.
//!   BG's clients likewise never emulate one member twice at a time. Reading needs no reservation.
//! * Only users of this worker's block are changed, and only with each other. No other worker changes them.
//! * `changed_at` is in ticks of `clock`, which ticks with every acknowledgement. A read that noted the clock at `t`
//!   before it was sent was sent after every acknowledgement with a tick up to `t`.
//! * No lock is held while another one is taken, or across an await.
//!
//! On a store whose rows are linearizable no read is stale. (HBase may hide a put behind a delete of the same
//! millisecond. This is found if a pair of users is quick enough.)
//!
//! A change may begin after the response to a read and before its judgement. The read is then not judged in that tie.
//! The `Ledger` may thus miss an error in such a moment, and never reports one that does not exist.

mod change;

use super::network::Network;
use crate::outcome::Verdict;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use change::Reserved;
pub use change::{Change, Pair};

/// Parts with a lock each: more than the threads of any worker.
const SHARDS: usize = 64;
/// Users that an update tries before it gives up.
const PROBES: u64 = 64;
/// Length of the list of users who may have invitations. It is a hint, and older ones are forgotten.
const INVITED_MAX: usize = 1 << 16;
/// Ended ties of one user that are remembered, only to call a read stale rather than unexpected.
const PAST_TIES_MAX: usize = 4096;
/// A change that is in doubt.
const IN_DOUBT: u64 = u64::MAX;

/// One of a user's two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Friends.
    Confirmed,
    /// Inviters.
    Pending,
}

#[derive(Debug, Clone, Copy)]
struct Tie {
    other: u64,
    /// The state after the last change.
    present: bool,
    /// Whether it has ever existed.
    ever: bool,
    /// Tick of the last change's acknowledgement. Zero if it is as loaded, [`IN_DOUBT`] before and without it.
    changed_at: u64,
}

impl Tie {
    fn settled(&self) -> bool {
        self.changed_at != IN_DOUBT
    }
}

/// Both lists of a user, ascending by the other user.
#[derive(Debug, Default)]
struct Member {
    confirmed: Vec<Tie>,
    pending: Vec<Tie>,
    /// Whether a step has reserved this user.
    reserved: bool,
}

impl Member {
    fn list(&self, list: List) -> &Vec<Tie> {
        match list {
            List::Confirmed => &self.confirmed,
            List::Pending => &self.pending,
        }
    }

    fn list_mut(&mut self, list: List) -> &mut Vec<Tie> {
        match list {
            List::Confirmed => &mut self.confirmed,
            List::Pending => &mut self.pending,
        }
    }

    /// Whether this side knows for certain that there is no tie between the two.
    fn is_stranger(&self, other: u64) -> bool {
        [&self.confirmed, &self.pending]
            .into_iter()
            .all(|ties| match find(ties, other) {
                Ok(at) => ties.get(at).is_some_and(|tie| tie.settled() && !tie.present),
                Err(_) => true,
            })
    }
}

fn find(ties: &[Tie], other: u64) -> Result<usize, usize> {
    ties.binary_search_by_key(&other, |tie| tie.other)
}

/// A worker's knowledge about its users.
#[derive(Debug)]
pub struct Ledger {
    network: Arc<Network>,
    /// Users that this worker acts for.
    block: Range<u64>,
    clock: AtomicU64,
    /// Users that have ever been reserved. All others are as loaded.
    shards: Vec<Mutex<HashMap<u64, Member>>>,
    /// Users that have got an invitation, oldest first. Some may have answered it already.
    invited: Mutex<VecDeque<u64>>,
}

/// A read's result in one list, and scratch memory. Reused from read to read.
#[derive(Debug, Default)]
pub struct Shown {
    /// Users that the read showed.
    pub users: Vec<u64>,
    ring: Vec<u64>,
}

impl Ledger {
    /// The `Ledger` of one worker of a network that is as loaded.
    pub fn new(network: Arc<Network>, worker: u32, workers: u32) -> Self {
        let edge = |of: u32| (u128::from(network.users) * u128::from(of) / u128::from(workers.max(1))) as u64;
        let block = edge(worker)..edge(worker.saturating_add(1));
        Self {
            network,
            block,
            clock: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            invited: Mutex::default(),
        }
    }

    /// Users that this worker acts for.
    pub fn block(&self) -> Range<u64> {
        self.block.clone()
    }

    /// The clock, which must be read before a read is sent, for [`Self::judge`].
    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn shard(&self, user: u64) -> &Mutex<HashMap<u64, Member>> {
        &self.shards[user as usize % SHARDS]
    }

    /// Judges the users that a read, sent at `sent`, showed in a user's list.
    pub fn judge(&self, user: u64, list: List, sent: u64, shown: &mut Shown, verdict: &mut Verdict) {
        shown.users.sort_unstable();
        let shard = self.shard(user).lock();
        if let Some(member) = shard.get(&user) {
            return compare(user, member.list(list).iter().copied(), sent, &shown.users, verdict);
        }
        // No step had reserved the user when this lock was taken, so the response contains nothing of another change.
        drop(shard);
        match list {
            List::Confirmed => self.network.ring(user, &mut shown.ring),
            List::Pending => shown.ring.clear(),
        }
        compare(
            user,
            shown.ring.iter().copied().map(loaded),
            sent,
            &shown.users,
            verdict,
        );
    }

    fn reserve(&self, user: u64) -> Option<Reserved<'_>> {
        let mut shard = self.shard(user).lock();
        let member = shard.entry(user).or_insert_with(|| {
            let mut ring = Vec::with_capacity(self.network.friends as usize);
            self.network.ring(user, &mut ring);
            Member {
                confirmed: ring.into_iter().map(loaded).collect(),
                ..Member::default()
            }
        });
        if std::mem::replace(&mut member.reserved, true) {
            return None;
        }
        Some(Reserved { ledger: self, user })
    }

    /// The block's users from one on, around its end, up to the limit of tries.
    fn probe(&self, user: u64) -> impl Iterator<Item = u64> + use<> {
        let Range { start, end } = self.block;
        let users = end - start;
        (0..users.min(PROBES)).map(move |step| start + (user.saturating_sub(start) + step) % users)
    }

    /// Reserves a pair of strangers: an inviter, `wanted` if possible, and the user to invite.
    pub fn strangers(&self, wanted: u64, chance: u64) -> Option<Pair<'_>> {
        let inviter = self.probe(wanted).find_map(|user| self.reserve(user))?;
        let users = self.block.end - self.block.start;
        let first = self.block.start + chance % users.max(1);
        let invitee = self
            .probe(first)
            .filter(|&user| user != inviter.user)
            .find_map(|user| {
                let invitee = self.reserve(user)?;
                let strangers = inviter.with(|m| m.is_stranger(user)) && invitee.with(|m| m.is_stranger(inviter.user));
                strangers.then_some(invitee)
            })?;
        Some(Pair {
            user: invitee,
            other: inviter,
        })
    }

    /// Reserves a user with an invitation, `wanted` if possible, and the inviter.
    pub fn invited(&self, wanted: u64, chance: u64) -> Option<Pair<'_>> {
        if let Some(pair) = self.tied(wanted, List::Pending, chance) {
            return Some(pair);
        }
        for _ in 0..PROBES {
            let user = self.invited.lock().pop_front()?;
            match self.tied(user, List::Pending, chance) {
                Some(pair) => return Some(pair),
                // A step has reserved the user, or the invitation has been answered. The latter are dropped when they
                // come up again.
                None if self.may_have_invitation(user) => self.note_invited(user),
                None => {}
            }
        }
        None
    }

    /// Reserves two friends, one of them `wanted` if possible.
    pub fn friends(&self, wanted: u64, chance: u64) -> Option<Pair<'_>> {
        self.probe(wanted)
            .find_map(|user| self.tied(user, List::Confirmed, chance))
    }

    /// Reserves a user and another who is certainly in the list and belongs to this worker.
    fn tied(&self, user: u64, list: List, chance: u64) -> Option<Pair<'_>> {
        let user = self.reserve(user)?;
        let mut others: Vec<u64> = user.with(|member| {
            let ties = member.list(list).iter().filter(|tie| tie.present && tie.settled());
            ties.map(|tie| tie.other)
                .filter(|other| self.block.contains(other))
                .take(PROBES as usize)
                .collect()
        });
        if !others.is_empty() {
            let turn = (chance % others.len() as u64) as usize;
            others.rotate_left(turn);
        }
        let other = others.into_iter().find_map(|other| self.reserve(other))?;
        Some(Pair { user, other })
    }

    fn may_have_invitation(&self, user: u64) -> bool {
        let shard = self.shard(user).lock();
        shard
            .get(&user)
            .is_some_and(|m| m.pending.iter().any(|tie| tie.present && tie.settled()))
    }

    /// Remembers that a user has an unanswered invitation.
    pub fn note_invited(&self, user: u64) {
        let mut invited = self.invited.lock();
        if invited.len() >= INVITED_MAX {
            invited.pop_front();
        }
        invited.push_back(user);
    }
}

fn loaded(other: u64) -> Tie {
    Tie {
        other,
        present: true,
        ever: true,
        changed_at: 0,
    }
}

/// Compares ties with the shown users, both ascending.
fn compare(user: u64, ties: impl Iterator<Item = Tie>, sent: u64, shown: &[u64], verdict: &mut Verdict) {
    let mut shown = shown.iter().copied().peekable();
    let unexpected = |other: u64, verdict: &mut Verdict| {
        verdict.unexpected += 1;
        verdict.example(|| format!("user {user}: {other} is listed and has never been, or is listed twice"));
    };
    for tie in ties {
        while let Some(stranger) = shown.next_if(|&other| other < tie.other) {
            unexpected(stranger, verdict);
        }
        let is_shown = shown.next_if_eq(&tie.other).is_some();
        while let Some(twice) = shown.next_if_eq(&tie.other) {
            unexpected(twice, verdict);
        }
        if tie.changed_at <= sent && is_shown != tie.present {
            judge_tie(user, tie, sent, verdict);
        }
    }
    for stranger in shown {
        unexpected(stranger, verdict);
    }
}

/// Records a settled tie that was shown wrongly.
fn judge_tie(user: u64, tie: Tie, sent: u64, verdict: &mut Verdict) {
    let Tie {
        other,
        present,
        ever,
        changed_at,
    } = tie;
    if changed_at == 0 && present {
        verdict.missing += 1;
        verdict.example(|| format!("user {user}: {other}, there since the load, is not listed"));
    } else if present || ever {
        verdict.stale += 1;
        let what = if present {
            "is not listed, and was added"
        } else {
            "is listed, and was deleted"
        };
        verdict.example(|| format!("user {user}: {other} {what} at tick {changed_at}, before the read at {sent}"));
    } else {
        verdict.unexpected += 1;
        verdict.example(|| format!("user {user}: {other} is listed and has never been"));
    }
}

#[cfg(test)]
mod tests;
