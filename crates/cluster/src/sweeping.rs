//! Deletes files that no tablet or snapshot needs, while this server leads.

use crate::checking::strangers;
use crate::election;
use crate::leader::{Leader, TermEnd};
use crate::members;
use crate::messages::Request;
use crate::records::NUMBERS;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_coord::next_epoch;
use stele_env::{Env, PlantedBug};
use stele_tablet::TabletError;
use stele_tablet::sweep::{self, Knowledge, NamedTablet, Round, Sweep};
use stele_types::{Epoch, ErrorKind, FilesInUse, ServerId, SnapshotId};

/// Time for an answer of a server.
const CALL_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for snapshots that are being taken: the leader waits up to a minute for a tablet that moves, and a large table takes
/// minutes to flush.
const SNAPSHOTS_WAIT: Duration = Duration::from_secs(600);
/// Pause between two checks of that.
const PAUSE: Duration = Duration::from_millis(20);

/// How often files are swept, and which.
#[derive(Clone, Copy, Debug)]
pub struct SweepPace {
    /// Pause between two rounds. A round reads the newest manifests of all tablets.
    pub interval: Duration,
    /// Time for which a file must be unneeded: readers of servers that were given up have ended by then.
    pub grace: Duration,
}

impl Default for SweepPace {
    fn default() -> Self {
        SweepPace {
            interval: Duration::from_secs(60),
            grace: Duration::from_secs(300),
        }
    }
}

/// Sweeps until the term ends.
pub(crate) async fn run(leader: Arc<Leader>, pace: SweepPace, ended: TermEnd) {
    let mut sweep = Sweep::new(pace.grace);
    let env = leader.local.env.clone();
    if env.planted(PlantedBug::SweepSnapshots) {
        sweep.forget_snapshots();
    }
    loop {
        tokio::select! {
            biased;
            () = ended.clone() => return,
            () = env.sleep(pace.interval) => {}
        }
        let began = env.now();
        let round = tokio::select! {
            biased;
            round = sweep.round(&leader.data, began, &*leader) => round,
            () = ended.clone() => return,
        };
        let strangers = strangers(&leader.local.catalog.view(), &leader.reports());
        leader.checks.note(began, &round, sweep.checked(), strangers);
        match round {
            Ok(Round::Swept {
                files: 0,
                manifests: 0,
                parts: 0,
            }) => {}
            Ok(Round::Swept {
                files,
                manifests,
                parts,
            }) => {
                tracing::info!(files, manifests, parts, "unneeded files are deleted");
            }
            Ok(void) => tracing::debug!(?void, "no file was deleted in this round"),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                tracing::error!(%error, "no file is deleted as long as this one cannot be read: it may name any file");
            }
            Err(error) => tracing::debug!(%error, "no file was deleted in this round"),
        }
    }
}

fn unknown(detail: &'static str) -> TabletError {
    TabletError::Busy { detail }
}

/// Waits until none of the snapshots is being taken that are at the beginning. Others that begin meanwhile are not awaited: where
/// one follows the other closely, there may be no moment without any.
async fn await_taken(env: &Env, being_taken: impl Fn() -> BTreeSet<SnapshotId> + Sync) -> sweep::Result<()> {
    let waiting = async {
        let mut awaited = being_taken();
        while !awaited.is_empty() {
            env.sleep(PAUSE).await;
            let now = being_taken();
            awaited.retain(|snapshot| now.contains(snapshot));
        }
    };
    let waited = env.timeout(SNAPSHOTS_WAIT, waiting).await;
    waited.map_err(|_| unknown("a snapshot is being taken"))
}

#[async_trait]
impl sweep::Leader for Leader {
    async fn knowledge(&self) -> sweep::Result<Knowledge> {
        let next = next_epoch(&*self.coord, NUMBERS).await;
        let next = next.map_err(|_| unknown("the coordinator does not answer"))?;
        // Of the coordinator: the view that follows it may not have a server yet that was announced before this number.
        let members = members::list(&*self.coord).await;
        let members = members.map_err(|_| unknown("the coordinator does not answer"))?;
        let mut servers: BTreeMap<ServerId, FilesInUse> = BTreeMap::new();
        // Concurrently: servers that have ended do not answer, and there may be many while their logs are archived.
        let asked = members.logs.iter().map(|(server, log)| async move {
            let files = self.local.order(self.term, *server, Request::FilesInUse, CALL_WAIT);
            (server, log, files.await)
        });
        for (server, log, files) in futures::future::join_all(asked).await {
            match files {
                Ok(files) => drop(servers.insert(*server, files)),
                // If it owns no tablet any more: see below.
                Err(_) if log.sealed => {}
                Err(_) => return Err(unknown("a server does not answer")),
            }
        }
        // Before the catalog: a tablet that is not coming any more has its record.
        let coming = self.control.coming();
        let view = self.catalog.view();
        let tablets = view.tables.values().flat_map(|table| table.tablets());
        // A server that is sealed can still commit a manifest of a tablet that nobody else has claimed.
        let mut owners = tablets.clone().filter_map(|tablet| tablet.assignment.owner);
        if owners.any(|owner| !servers.contains_key(&owner.server)) {
            return Err(unknown("the owner of a tablet was not asked"));
        }
        let tablets = tablets.map(|tablet| {
            let owner = tablet.assignment.owner;
            let named = NamedTablet {
                epoch: owner.map(|owner| owner.epoch).unwrap_or(Epoch::default()),
                range: tablet.range.clone(),
            };
            (tablet.id, named)
        });
        Ok(Knowledge {
            servers,
            next_server: ServerId(u32::try_from(next).unwrap_or(u32::MAX)),
            tablets: tablets.collect(),
            coming,
        })
    }

    async fn snapshots(&self) -> sweep::Result<BTreeMap<SnapshotId, u32>> {
        await_taken(&self.local.env, || self.control.being_taken()).await?;
        // Behind the wait: a snapshot that is complete by now is in the view, one that began meanwhile is read by the next round.
        let view = self.catalog.view();
        Ok(view.snapshots.values().map(|entry| (entry.id, entry.parts)).collect())
    }

    async fn confirm(&self) -> sweep::Result<()> {
        match election::leads(&*self.coord, self.term).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(unknown("another server leads")),
            Err(_) => Err(unknown("the coordinator does not answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use stele_env::tokio_env::TokioRuntime;

    /// Each begins before the former one has ended, so that there is always one.
    #[tokio::test(start_paused = true)]
    async fn a_round_does_not_wait_for_snapshots_that_begin_later() {
        let env = TokioRuntime::current();
        let asked = AtomicU64::new(0);
        let being_taken = || {
            let time = asked.fetch_add(1, Ordering::Relaxed);
            BTreeSet::from([SnapshotId(time / 3), SnapshotId(time / 3 + 1)])
        };
        assert!(await_taken(&env, being_taken).await.is_ok());
        let asked = asked.into_inner();
        assert_eq!(asked, 7, "the first two have ended by the seventh look");
        assert!(await_taken(&env, BTreeSet::new).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_that_takes_too_long_ends_the_round() {
        let env = TokioRuntime::current();
        let refused = await_taken(&env, || BTreeSet::from([SnapshotId(7)])).await;
        assert!(matches!(refused, Err(TabletError::Busy { .. })), "{refused:?}");
    }
}
