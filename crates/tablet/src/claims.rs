//! Claims reserve the files that one compaction works on, so that several can run concurrently.
//!
//! A job *claims* the files that its commit replaces or cuts: the runs it compacts or, for a compaction into the bottom, the
//! bottom and the runs that go into it. No other job takes claimed files. A job drops its claim when its state is published, or
//! when it fails.
//!
//! Invariants, and why two jobs of a group need no more than these:
//! * Claims of a group have no file in common, and the files of a claim are adjacent in age. Each job puts its output in
//!   the place of its inputs, so newer runs stay above older ones whichever commits first. Only positions move, and a
//!   commit finds its inputs by their references.
//! * At most one job of a group is at the bottom: it claims all of it. A job that drops tombstones claims everything
//!   older than its inputs, so no other job brings entries below the dropped tombstones.
//! * A claim is made under the lock of all claims, on a state that all former holders have published to. Its files are
//!   still there, unchanged, when the job commits.

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
pub(crate) struct Held {
    claims: BTreeMap<u64, (GroupId, BTreeSet<FileId>)>,
    last: u64,
}

impl Held {
    /// Files of a group that jobs are at.
    pub(crate) fn files(&self, group: GroupId) -> BTreeSet<FileId> {
        let of_group = self.claims.values().filter(|(of, _)| *of == group);
        of_group.flat_map(|(_, files)| files.iter().copied()).collect()
    }
}

/// A claim; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
    /// Whether others were held when this one was made.
    pub(crate) is_concurrent: bool,
}

impl Claims {
    /// Calls `look` with the claims. It is short, and claims nothing.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Held) -> R) -> R {
        look(&self.held.lock())
    }

    /// Claims the files that `choose` names, if it names any, and returns its other result with the claim. Claims do not
    /// change meanwhile.
    pub(crate) fn make<R>(
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
        let claim = self.claims.held.lock().claims.remove(&self.number);
        debug_assert!(claim.is_some(), "a claim ends once");
    }
}
