//! The candidacy of a server: it campaigns, leads, and campaigns again.
//!
//! A leader that stayed cut off from the other servers stands aside: another one may reach them. It stands again when it reaches half of the
//! servers. It also does when nobody leads for a while: then no other is better, and somebody must lead. A server that was never elected
//! does not look before it stands. If it is cut off, it finds out in its term.
//!
//! A server that is about to stop stands no more ([`crate::retirement`]).

use crate::election;
use crate::leader::Patience;
use crate::local::Local;
use crate::records::ELECTION;
use crate::session::CurrentSession;
use crate::term::{self, End, Places};
use std::sync::Arc;
use std::time::Duration;
use stele_coord::{Coord, CoordError, Leadership, campaign, election::leader};
use stele_peer::Probe;

/// Pause before another election.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause of a server whose term did not begin: another may be able to lead, and is elected meanwhile.
const FAILED_PAUSE: Duration = Duration::from_secs(3);
/// Pause between two checks of a server that stands aside. Others that wait for the place have it within a second.
const ASIDE_PAUSE: Duration = Duration::from_secs(3);
/// Checks in a row that find no leader, after which nobody else can lead: twelve seconds, longer than a failed term and an election.
const VACANT_CHECKS: u32 = 4;

/// How a server comes to its next candidacy.
#[derive(Clone, Copy, Debug)]
enum Next {
    Stand(Duration),
    Aside,
}

/// Campaigns, leads, and campaigns again, until the server retires. A server that does not lead has no record that says so: others would
/// wait for its end.
pub(crate) async fn lead_when_elected(
    local: Arc<Local>,
    coord: Arc<dyn Coord>,
    places: Places,
    session: Arc<CurrentSession>,
) {
    let mut next = Next::Stand(Duration::ZERO);
    loop {
        let elected = tokio::select! {
            biased;
            () = local.retirement.is_asked() => break,
            elected = until_elected(&local, &*coord, &session, next) => elected,
        };
        let Some((leadership, patience)) = elected else {
            return;
        };
        next = match term::lead(&local, &coord, &places, (&leadership, patience)).await {
            Ok(End::CutOff) => {
                tracing::warn!("this leader reaches fewer than half of the servers: it leaves its place to another");
                Next::Aside
            }
            Ok(End::Over | End::Retired) => {
                tracing::info!("the term of this leader is over");
                Next::Stand(PAUSE)
            }
            Err(error) => {
                tracing::warn!(error, "this server was elected and cannot lead");
                Next::Stand(FAILED_PAUSE)
            }
        };
        local.set_leader(None);
        if let Err(error) = leadership.resign(&*coord).await {
            tracing::debug!(%error, "not resigned yet");
        }
    }
    retire(&local, &*coord).await;
}

/// Waits until this server may stand, and campaigns until it is elected. `None` if the coordinator is shut down.
async fn until_elected(
    local: &Local,
    coord: &dyn Coord,
    session: &CurrentSession,
    mut next: Next,
) -> Option<(Leadership, Patience)> {
    let own = local.peers.own();
    loop {
        let is_last_resort = match next {
            Next::Stand(pause) => {
                local.env.sleep(pause).await;
                false
            }
            Next::Aside => !stand_aside(local, coord).await,
        };
        let current = session.get();
        let outcome = match election::withdraw(coord, own).await {
            Ok(()) => campaign(coord, ELECTION, &current, election::value(own)).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(leadership) => {
                // It may have waited for the place for long, and reach others by now.
                let patience = match is_last_resort && !reaches_half(local).await {
                    true => Patience::of_last_resort(current.ttl()),
                    false => Patience::of_session(current.ttl()),
                };
                return Some((leadership, patience));
            }
            Err(CoordError::Closed) => return None,
            Err(error) => tracing::debug!(%error, "no election"),
        }
        next = Next::Stand(PAUSE);
    }
}

/// Waits until this server reaches half of the servers, or nobody leads; whether it reaches them.
async fn stand_aside(local: &Local, coord: &dyn Coord) -> bool {
    let own = local.peers.own();
    let mut vacant = 0;
    loop {
        local.env.sleep(ASIDE_PAUSE).await;
        // The answer to its resignation may have been lost, and its record would keep others out.
        if let Err(error) = election::withdraw(coord, own).await {
            tracing::debug!(%error, "the record of this server is not withdrawn yet");
        }
        if reaches_half(local).await {
            return true;
        }
        vacant = match leader(coord, ELECTION).await {
            Ok(None) => vacant + 1,
            Ok(Some(_)) | Err(_) => 0,
        };
        if vacant >= VACANT_CHECKS {
            return false;
        }
    }
}

/// Whether at least half of the servers with a session answer this one, which is one of them.
async fn reaches_half(local: &Local) -> bool {
    let (view, own) = (local.members.view(), local.peers.own());
    let others = view.servers.keys().filter(|server| **server != own);
    let probes = others.map(|server| local.peers.probe(*server));
    let probes = futures::future::join_all(probes).await;
    let answered = probes.iter().filter(|probe| **probe == Probe::Answered).count();
    2 * (answered + 1) > probes.len()
}

/// Sees to it that this server cannot be elected any more: an election under way may have happened, or may yet happen.
async fn retire(local: &Local, coord: &dyn Coord) {
    loop {
        match election::withdraw(coord, local.peers.own()).await {
            Ok(()) => return local.retirement.complete(),
            Err(CoordError::Closed) => return,
            Err(error) => tracing::debug!(%error, "the candidacy of this server is not withdrawn yet"),
        }
        local.env.sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
