//! Control calls to other servers.

use crate::clocks::Clocks;
use crate::codec;
use crate::members::Members;
use crate::messages::{Call, Request};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_memory::Pool;
use stele_peer::{Identity, Losses, Peer, Probe, RemoteOptions, RemoteTablets, probe};
use stele_types::{ErrorKind, ServerId};

/// Time for a process to answer a probe. A host without a process refuses immediately.
const PROBE_WAIT: Duration = Duration::from_millis(500);

/// Connections for control calls: one to each server, apart from those of rows.
pub(crate) struct Peers {
    env: Env,
    pool: Pool,
    own: Identity,
    members: Arc<Members>,
    clocks: Clocks,
    /// Also of the connections of rows.
    losses: Losses,
    remotes: Mutex<BTreeMap<ServerId, Arc<RemoteTablets>>>,
}

impl Peers {
    /// Of the server `own`.
    pub(crate) fn new(env: Env, pool: Pool, own: Identity, members: Arc<Members>, metrics: &Metrics) -> Arc<Peers> {
        Arc::new(Peers {
            clocks: Clocks::new(env.clone(), metrics),
            env,
            pool,
            own,
            members,
            losses: Losses::default(),
            remotes: Mutex::default(),
        })
    }

    /// The number of this server.
    pub(crate) fn own(&self) -> ServerId {
        ServerId(u32::try_from(self.own.server).unwrap_or_default())
    }

    /// Has later calls use new connections.
    pub(crate) fn renew(&self) {
        self.remotes.lock().values().for_each(|remote| remote.renew());
    }

    fn remote(&self, server: ServerId) -> ServiceResult<Arc<RemoteTablets>> {
        let peer = self.members.peer(server).ok_or_else(|| {
            let message = format!("server {server} is not a member of the cluster now");
            ServiceError::new(ErrorKind::Unavailable, message)
        })?;
        let mut remotes = self.remotes.lock();
        if let Some(known) = remotes.get(&server).filter(|known| *known.peer() == peer) {
            return Ok(known.clone());
        }
        let view = self.members.view();
        remotes.retain(|server, _| view.servers.contains_key(server));
        let (parts, losses) = ((self.env.clone(), &self.pool), self.losses.clone());
        let remote = RemoteTablets::noting(parts, self.own, peer, RemoteOptions::default(), losses);
        let remote = Arc::new(remote);
        remotes.insert(server, remote.clone());
        Ok(remote)
    }

    /// Calls another server, and decodes its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        server: ServerId,
        call: &Call,
        wait: Duration,
    ) -> ServiceResult<T> {
        let remote = self.remote(server)?;
        let request = codec::timed(self.clocks.now_micros(), &codec::encode(call)?);
        let answer = remote.control(request, wait).await?;
        let (time, answer) = codec::untimed(&answer)?;
        self.clocks.follow(u64::from(server.0), time);
        codec::decode(answer)
    }

    /// Connections to other servers that this one loses.
    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The clocks of servers.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Whether the process of a server is there.
    pub(crate) async fn probe(&self, server: ServerId) -> Probe {
        match self.members.peer(server) {
            Some(peer) => self.probe_peer(&peer).await,
            None => Probe::Silent,
        }
    }

    async fn probe_peer(&self, peer: &Peer) -> Probe {
        probe(&self.env, self.own, peer, PROBE_WAIT).await
    }

    /// The other servers that were called for their opinion and find the process of a server gone.
    pub(crate) async fn witnesses(&self, suspect: ServerId) -> Vec<ServerId> {
        let view = self.members.view();
        let others = view.servers.keys().filter(|id| **id != suspect && **id != self.own());
        let asked = others.map(|other| async move {
            let call = Call {
                term: 0,
                request: Request::Probe(suspect),
            };
            let answer = self.call::<bool>(*other, &call, 2 * PROBE_WAIT).await;
            answer.is_ok_and(|is_gone| is_gone).then_some(*other)
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }
}
