//! Replacements of tablets that servers prepare for the leader, and how they learn the outcome.
//!
//! Each server numbers its preparations. The outcome of one is told under its number, so an order that arrives late or twice
//! does not end a later preparation of the same tablets. A server whose answer was lost, and with it the number, reports the
//! preparation, and the leader has it undone then (`leader`).
//!
//! A split and a merge are conditional on the records of the old tablets. A truncation and a restore replace the whole set
//! without such conditions. So the old tablets *keep* their owners from before the owners are asked for until the outcome is
//! known. An owner that is asked keeps writers out; nobody else serves such a tablet.

use super::{ClusterControl, PAUSE};
use crate::messages::Request;
use crate::tablet_calls::TabletCall;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_types::{ErrorKind, ServerId, TabletId};

/// Longest time of a call that ends a preparation: new tablets are served, or discarded.
const END_WAIT: Duration = Duration::from_secs(120);

/// The replacements under way, by their first tablet.
#[derive(Default)]
pub(super) struct Replacing {
    all: Mutex<BTreeMap<TabletId, Replacement>>,
    /// Held while tablets get other owners.
    assigning: tokio::sync::Mutex<()>,
}

/// A replacement that servers prepare, or have prepared.
#[derive(Default)]
struct Replacement {
    /// Each with the first of its tablets, and with the number of its preparation once that is known.
    parts: Vec<(ServerId, TabletId, Option<u64>)>,
    /// Tablets that keep their owners.
    kept: BTreeSet<TabletId>,
    /// The tablets that are to replace the others.
    new: Vec<TabletId>,
}

impl ClusterControl {
    /// Whether a replacement was prepared for this leader, which will tell its outcome.
    pub(crate) fn is_replacing(&self, server: ServerId, first: TabletId) -> bool {
        let replacing = self.replacing.all.lock();
        let mut parts = replacing.values().flat_map(|replacement| &replacement.parts);
        parts.any(|(of, tablet, _)| (*of, *tablet) == (server, first))
    }

    /// Whether a tablet keeps its owner for now.
    pub(crate) fn keeps_owner(&self, tablet: TabletId) -> bool {
        let replacing = self.replacing.all.lock();
        replacing.values().any(|replacement| replacement.kept.contains(&tablet))
    }

    /// The turn for giving tablets other owners: none begins to keep its owner meanwhile.
    pub(crate) async fn assigning(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.replacing.assigning.lock().await
    }

    /// Has all tablets of a table keep their owners.
    pub(super) async fn keep_owners(&self, old: &[TabletId]) {
        if let Some(first) = old.first() {
            let mut replacing = self.replacing.all.lock();
            replacing.entry(*first).or_default().kept = old.iter().copied().collect();
        }
        // An assignment that has begun ends.
        drop(self.assigning().await);
    }

    /// Has servers prepare a replacement that begins with the tablet `first`: each by its call, with the first of its own
    /// tablets. Notes it before any of them does, because a preparation of which the leader does not know is undone.
    pub(super) async fn prepare(
        &self,
        first: TabletId,
        calls: Vec<(ServerId, TabletId, TabletCall)>,
        new: Vec<TabletId>,
    ) -> ServiceResult<()> {
        {
            let mut replacing = self.replacing.all.lock();
            let replacement = replacing.entry(first).or_default();
            replacement.parts = calls.iter().map(|(server, first, _)| (*server, *first, None)).collect();
            replacement.new = new;
        }
        let asked = calls.into_iter().map(|(server, _, call)| async move {
            let number: ServiceResult<u64> = self.call(server, call).await;
            (server, number)
        });
        // All are awaited: none must be prepared after a failure is known.
        let mut outcome = Ok(());
        for (server, prepared) in futures::future::join_all(asked).await {
            match prepared {
                Ok(number) => self.note_prepared(first, server, number),
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_err() {
            self.end_replacement(first, false).await;
        }
        outcome
    }

    pub(super) fn note_prepared(&self, first: TabletId, server: ServerId, number: u64) {
        let mut replacing = self.replacing.all.lock();
        let parts = replacing.get_mut(&first).map(|replacement| &mut replacement.parts);
        for part in parts.into_iter().flatten().filter(|part| part.0 == server) {
            part.2 = Some(number);
        }
    }

    /// Notes that a server is about to prepare a replacement of one tablet.
    pub(super) fn note_preparing(&self, first: TabletId, server: ServerId, new: Vec<TabletId>) {
        let replacement = Replacement {
            parts: vec![(server, first, None)],
            new,
            ..Replacement::default()
        };
        self.replacing.all.lock().insert(first, replacement);
    }

    /// Tells all servers that have prepared a replacement its outcome.
    pub(super) async fn end_replacement(&self, first: TabletId, committed: bool) {
        let (parts, new) = {
            let replacing = self.replacing.all.lock();
            let replacement = replacing.get(&first);
            replacement.map_or_else(Default::default, |known| (known.parts.clone(), known.new.clone()))
        };
        let told = parts.into_iter().filter_map(|(server, first, number)| {
            let number = number?;
            Some(self.tell_outcome(server, (first, number), committed))
        });
        futures::future::join_all(told).await;
        // The catalog has them by now, or never will. It may have replaced them again before anybody asks which ones are coming.
        self.homes.forget(&new);
        self.replacing.all.lock().remove(&first);
    }

    /// Tells a server the outcome of a preparation until it knows, or is no member any more: then its tablets get other owners,
    /// by the catalog. After the term the next leader tells it.
    async fn tell_outcome(&self, server: ServerId, (first, number): (TabletId, u64), committed: bool) {
        loop {
            let end = Request::EndPreparation {
                first,
                number,
                committed,
            };
            let told: ServiceResult<bool> = self.local.order(self.term, server, end, END_WAIT).await;
            match told {
                Ok(_) => return,
                Err(error) if is_of_later_term(&error) => {
                    tracing::info!(%server, tablet = %first, "the next leader tells the outcome of a replacement");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%server, tablet = %first, %error, "the outcome of a replacement is not told yet")
                }
            }
            if self.has_ended() || !self.local.members.view().servers.contains_key(&server) {
                return;
            }
            self.local.env.sleep(PAUSE).await;
        }
    }
}

/// The server has heard of a later leader, which ends its preparations.
fn is_of_later_term(error: &ServiceError) -> bool {
    error.kind == ErrorKind::FailedPrecondition
}

#[cfg(test)]
mod tests;
