//! One life of a server of the fleet.

use super::host::{self, NoAnswer, PACE, Remote, Sealed, root_of};
use super::{Fleet, ROOT, STREAMS};
use crate::cluster::{CACHE_BYTES, options_at};
use crate::runtime::Process;
use crate::shared::SharedStorage;
use std::sync::Arc;
use stele_client::{RowStream, ServiceResult};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_sstable::Cache;
use stele_tabletserver::{ServerOptions, SharedRoots, TabletServer};
use stele_types::ServerId;

/// A server, in a process of its own.
pub(super) struct Member {
    pub(super) id: ServerId,
    pub(super) process: Process,
    env: Env,
    pub(super) server: Arc<TabletServer>,
}

impl Member {
    /// Starts a server under a new number. Faults of the network may make it fail.
    pub(super) async fn start(fleet: &Fleet) -> Result<Arc<Member>, String> {
        let id = ServerId(fleet.next_number());
        let process = fleet.sim.process();
        let env = process.env();
        let ends_when_replaced = fleet.below(2) == 0;
        let opening = open(fleet.shared.clone(), process.clone(), id, ends_when_replaced);
        let server = host::start(fleet, (&process, &env), opening).await?;
        Ok(Arc::new(Member {
            id,
            process,
            env,
            server,
        }))
    }

    /// Runs a request in the process of the member.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        caller: &Env,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        host::call(&self.env, caller, request).await
    }

    /// Begins a read in the process of the member.
    pub(super) async fn stream(
        &self,
        caller: &Env,
        read: impl Future<Output = ServiceResult<Box<dyn RowStream>>> + Send + 'static,
    ) -> ServiceResult<Box<dyn RowStream>> {
        Remote::begin(&self.env, caller, read).await
    }
}

async fn open(
    shared: SharedStorage,
    process: Process,
    id: ServerId,
    ends_when_replaced: bool,
) -> Result<Arc<TabletServer>, String> {
    let env = process.env();
    let data = shared.share(ROOT, env.clone()).await;
    let log = shared.own(&root_of(id), env.clone()).await;
    let log = log.map_err(|e| e.to_string())?;
    if ends_when_replaced {
        let log = log.clone();
        env.spawn("until replaced", async move {
            log.replaced().await;
            process.kill();
        });
    }
    let roots = SharedRoots {
        data: data.map_err(|e| e.to_string())?,
        log: log.storage(),
        sealed: Arc::new(Sealed {
            shared,
            env: env.clone(),
        }),
        moments: None,
    };
    let cache = Arc::new(Cache::with_shards(CACHE_BYTES, 1));
    let options = ServerOptions {
        log_streams: STREAMS,
        ..options_at(PACE)
    };
    let joined = TabletServer::join(env, roots, id, cache, options, &Metrics::new()).await;
    joined.map_err(|e| e.to_string())
}
