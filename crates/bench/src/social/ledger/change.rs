//! Reserved users, and changes in progress.
//!
//! A step that ends early leaves its reservations undone and its changes in doubt.

use super::{IN_DOUBT, Ledger, List, Member, PAST_TIES_MAX, Tie, find};
use std::sync::atomic::Ordering;

/// A user whom no other step may change until this is dropped.
#[derive(Debug)]
pub(super) struct Reserved<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) user: u64,
}

impl Reserved<'_> {
    /// Reads the user's state. `look` must not await or lock.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Member) -> T) -> T {
        let shard = self.ledger.shard(self.user).lock();
        look(shard.get(&self.user).unwrap_or(&Member::default()))
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.ledger.shard(self.user).lock().get_mut(&self.user) {
            member.reserved = false;
        }
    }
}

/// Two users whose ties with each other may be changed until this is dropped.
#[derive(Debug)]
pub struct Pair<'a> {
    pub(super) user: Reserved<'a>,
    pub(super) other: Reserved<'a>,
}

impl<'a> Pair<'a> {
    /// The user who is invited, has been invited, or ends the friendship.
    pub fn user(&self) -> u64 {
        self.user.user
    }

    /// The inviter, or the other friend.
    pub fn other(&self) -> u64 {
        self.other.user
    }

    /// Announces a change of the user's list. From now on either state is right.
    pub fn change_user(&self, list: List, present: bool) -> Change<'a> {
        self.user.ledger.begin(self.user(), list, self.other(), present)
    }

    /// The same for the other one's list.
    pub fn change_other(&self, list: List, present: bool) -> Change<'a> {
        self.other.ledger.begin(self.other(), list, self.user(), present)
    }
}

impl Ledger {
    pub(super) fn begin(&self, user: u64, list: List, other: u64, present: bool) -> Change<'_> {
        if let Some(member) = self.shard(user).lock().get_mut(&user) {
            let ties = member.list_mut(list);
            let tie = Tie {
                other,
                present,
                ever: present,
                changed_at: IN_DOUBT,
            };
            match find(ties, other) {
                Ok(at) => {
                    if let Some(old) = ties.get_mut(at) {
                        *old = Tie {
                            ever: old.ever || present,
                            ..tie
                        };
                    }
                }
                Err(at) => {
                    ties.insert(at, tie);
                    forget_one(ties);
                }
            }
        }
        Change {
            ledger: self,
            user,
            list,
            other,
        }
    }
}

/// Drops the tie that ended longest ago if too many are remembered.
fn forget_one(ties: &mut Vec<Tie>) {
    if ties.len() <= PAST_TIES_MAX {
        return;
    }
    let past = ties.iter().enumerate().filter(|(_, tie)| !tie.present && tie.settled());
    if let Some((at, _)) = past.min_by_key(|(_, tie)| tie.changed_at) {
        ties.remove(at);
    }
}

/// A change in progress. If it is dropped without acknowledgement, its outcome stays in doubt: reads of that tie are no
/// longer judged, and no update uses it again.
#[derive(Debug)]
#[must_use = "an unacknowledged change stays in doubt"]
pub struct Change<'a> {
    ledger: &'a Ledger,
    user: u64,
    list: List,
    other: u64,
}

impl Change<'_> {
    /// Records that the server has acknowledged the change: reads sent from now on must show it.
    pub fn acknowledge(self) {
        let mut shard = self.ledger.shard(self.user).lock();
        let Some(member) = shard.get_mut(&self.user) else {
            return;
        };
        let ties = member.list_mut(self.list);
        if let Ok(at) = find(ties, self.other)
            && let Some(tie) = ties.get_mut(at)
        {
            tie.changed_at = self.ledger.clock.fetch_add(1, Ordering::SeqCst) + 1;
        }
    }
}
