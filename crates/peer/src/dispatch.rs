//! Calls the server that owns a tablet: this one directly, others over the protocol.

use crate::handshake::Identity;
use crate::remote::{Losses, Peer, RemoteOptions, RemoteTablets};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::{
    LoadSource, Loaded, RowOutcome, RowStream, ServiceError, ServiceResult, TabletFigures, TabletRead,
    TabletRowOperation, TabletRowsOperation, TabletSample, TabletService,
};
use stele_env::Env;
use stele_filter::Filter;
use stele_memory::Pool;
use stele_types::{Durability, ErrorKind, RowBatch, RowWrites, TabletId};

/// The server that serves a tablet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This one.
    Here,
    /// Another one.
    There(Arc<Peer>),
}

/// Finds owners. Called for every request, so it must be a lookup in memory.
pub trait Owners: Send + Sync + 'static {
    /// The owner of a tablet as far as it is known here; `None` while it has none.
    fn owner_of(&self, tablet: TabletId) -> Option<Owner>;

    /// Whether a server is a member of the cluster.
    fn is_member(&self, server: u64) -> bool;
}

/// Tablets of all servers of a cluster.
///
/// An owner that is out of date costs an answer `Unavailable`, with which the router repeats its lookup.
pub struct Dispatcher {
    env: Env,
    pool: Pool,
    own: Identity,
    options: RemoteOptions,
    losses: Losses,
    local: Arc<dyn TabletService>,
    owners: Arc<dyn Owners>,
    /// By number of the server. Each life of a server has its own number: entries of former members go with the next new one.
    peers: RwLock<BTreeMap<u64, Arc<RemoteTablets>>>,
}

impl Dispatcher {
    /// A dispatcher of the server `own` with these tablets.
    pub fn new(
        (env, pool): (Env, Pool),
        own: Identity,
        local: Arc<dyn TabletService>,
        owners: Arc<dyn Owners>,
        options: RemoteOptions,
    ) -> Self {
        Dispatcher {
            env,
            pool,
            own,
            options,
            losses: Losses::default(),
            local,
            owners,
            peers: RwLock::default(),
        }
    }

    /// The same, which notes the connections that it loses.
    #[must_use]
    pub fn noting(self, losses: Losses) -> Self {
        Dispatcher { losses, ..self }
    }

    /// Has later calls use new connections, say because other servers are trusted now.
    pub fn renew(&self) {
        self.peers.read().values().for_each(|remote| remote.renew());
    }

    /// Number of servers that it has called and not forgotten.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.peers.read().len()
    }

    fn owner(&self, tablet: TabletId) -> ServiceResult<Owner> {
        self.owners.owner_of(tablet).ok_or_else(|| {
            let message = format!("tablet {tablet} has no server now");
            ServiceError::new(ErrorKind::Unavailable, message)
        })
    }

    fn remote(&self, peer: &Peer) -> Arc<RemoteTablets> {
        let server = peer.identity.server;
        if let Some(known) = self.peers.read().get(&server).filter(|known| known.peer() == peer) {
            return Arc::clone(known);
        }
        let mut peers = self.peers.write();
        match peers.get(&server) {
            Some(known) if known.peer() == peer => Arc::clone(known),
            _ => {
                let (parts, losses) = ((self.env.clone(), &self.pool), self.losses.clone());
                let remote = RemoteTablets::noting(parts, self.own, peer.clone(), self.options, losses);
                let remote = Arc::new(remote);
                peers.insert(server, Arc::clone(&remote));
                peers.retain(|known, _| *known == server || self.owners.is_member(*known));
                remote
            }
        }
    }
}

#[async_trait]
impl TabletService for Dispatcher {
    async fn read(&self, tablet: TabletId, request: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        match self.owner(tablet)? {
            Owner::Here => self.local.read(tablet, request).await,
            Owner::There(peer) => self.remote(&peer).read(tablet, request).await,
        }
    }

    fn try_read_row(
        &self,
        tablet: TabletId,
        row: &Bytes,
        filter: Option<&Arc<Filter>>,
    ) -> ServiceResult<Option<RowBatch>> {
        match self.owner(tablet)? {
            Owner::Here => self.local.try_read_row(tablet, row, filter),
            Owner::There(_) => Ok(None),
        }
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, durability: Option<Durability>) -> ServiceResult<()> {
        match self.owner(tablet)? {
            Owner::Here => self.local.mutate(tablet, rows, durability).await,
            Owner::There(peer) => self.remote(&peer).mutate(tablet, rows, durability).await,
        }
    }

    async fn row_operation(&self, tablet: TabletId, request: TabletRowOperation) -> ServiceResult<RowOutcome> {
        match self.owner(tablet)? {
            Owner::Here => self.local.row_operation(tablet, request).await,
            Owner::There(peer) => self.remote(&peer).row_operation(tablet, request).await,
        }
    }

    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        match self.owner(tablet)? {
            Owner::Here => self.local.rows_operation(tablet, request).await,
            Owner::There(peer) => self.remote(&peer).rows_operation(tablet, request).await,
        }
    }

    async fn bulk_load(&self, tablet: TabletId, sources: Vec<LoadSource>) -> ServiceResult<Loaded> {
        match self.owner(tablet)? {
            Owner::Here => self.local.bulk_load(tablet, sources).await,
            Owner::There(peer) => self.remote(&peer).bulk_load(tablet, sources).await,
        }
    }

    async fn sample(&self, tablet: TabletId, every: u64) -> ServiceResult<TabletSample> {
        match self.owner(tablet)? {
            Owner::Here => self.local.sample(tablet, every).await,
            Owner::There(peer) => self.remote(&peer).sample(tablet, every).await,
        }
    }

    async fn figures(&self, tablet: TabletId) -> ServiceResult<TabletFigures> {
        match self.owner(tablet)? {
            Owner::Here => self.local.figures(tablet).await,
            Owner::There(peer) => self.remote(&peer).figures(tablet).await,
        }
    }
}
