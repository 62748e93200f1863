//! Deletes files that no tablet needs, for as long as this server leads.

use crate::leader::Leader;
use crate::messages::Request;
use crate::records::NUMBERS;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::next_epoch;
use stele_tablet::TabletError;
use stele_tablet::sweep::{self, Knowledge, Round, Sweep};
use stele_types::{Epoch, FilesInUse, ServerId};
use tokio::sync::watch;

/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a file must be unneeded: readers of servers that were given up have ended by then.
const GRACE: Duration = Duration::from_secs(300);
/// Time for an answer of a server.
const CALL_WAIT: Duration = Duration::from_secs(10);

/// Sweeps until the term ends.
pub(crate) async fn run(leader: Arc<Leader>, mut ended: watch::Receiver<bool>) {
    let mut sweep = Sweep::new(GRACE);
    let env = leader.local.env.clone();
    loop {
        tokio::select! {
            biased;
            () = env.sleep(INTERVAL) => {}
            _ = ended.wait_for(|ended| *ended) => return,
        }
        match sweep.round(&leader.data, env.now(), knowledge(&leader)).await {
            Ok(Round::Swept { files: 0, manifests: 0 }) => {}
            Ok(Round::Swept { files, manifests }) => tracing::info!(files, manifests, "unneeded files are deleted"),
            Ok(void) => tracing::debug!(?void, "no file was deleted in this round"),
            Err(error) => tracing::debug!(%error, "no file was deleted in this round"),
        }
    }
}

async fn knowledge(leader: &Leader) -> sweep::Result<Knowledge> {
    let unknown = |detail: &'static str| TabletError::Busy { detail };
    let next = next_epoch(&*leader.coord, NUMBERS).await;
    let next = next.map_err(|_| unknown("the coordinator does not answer"))?;
    let members = leader.local.members.view();
    let mut servers: BTreeMap<ServerId, FilesInUse> = BTreeMap::new();
    for (server, log) in &members.logs {
        let files = leader
            .local
            .order(leader.term, *server, Request::FilesInUse, CALL_WAIT)
            .await;
        match files {
            Ok(files) => drop(servers.insert(*server, files)),
            // Its tablets are claimed by others, or the round is void for one that is not.
            Err(_) if log.sealed => {}
            Err(_) => return Err(unknown("a server does not answer")),
        }
    }
    let view = leader.local.catalog.view();
    let tablets = view.tables.values().flat_map(|table| table.tablets());
    let tablets = tablets.map(|tablet| {
        let owner = tablet.assignment.owner;
        (tablet.id, owner.map(|owner| owner.epoch).unwrap_or(Epoch::default()))
    });
    Ok(Knowledge {
        servers,
        next_server: ServerId(u32::try_from(next).unwrap_or(u32::MAX)),
        tablets: tablets.collect(),
        coming: leader.control.coming(),
    })
}
