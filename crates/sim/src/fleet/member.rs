//! One life of a server of the fleet.

use super::{Fleet, ROOT, STREAMS};
use crate::cluster::{CACHE_BYTES, options_at};
use crate::runtime::Process;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use stele_env::metrics::Metrics;
use stele_env::{Env, Priority};
use stele_objects::{Client, ObjectStorage};
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_storage::servers::log_root;
use stele_tabletserver::{SealedLogs, ServerOptions, SharedRoots, TabletServer};
use stele_types::ServerId;

/// Longest virtual time of a call.
const PATIENCE: Duration = Duration::from_secs(60);
/// A bucket is slower than a disk by this factor.
const PACE: u32 = 30;

/// A server, in a process of its own.
pub(super) struct Member {
    pub(super) id: ServerId,
    pub(super) process: Process,
    env: Env,
    pub(super) server: Arc<TabletServer>,
}

/// The process ended before it responded, or took too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoAnswer;

impl Member {
    /// Starts a server under a new number. Faults of the network may make it fail.
    pub(super) async fn start(fleet: &Fleet) -> Result<Arc<Member>, String> {
        let id = ServerId(fleet.next_number());
        let process = fleet.sim.process();
        let env = process.env();
        let client: Arc<dyn Client> = Arc::new(fleet.bucket.clone());
        let ends_when_replaced = fleet.below(2) == 0;
        let opening = open(client, process.clone(), id, ends_when_replaced);
        let starting = env.spawn_join(Priority::Foreground, "start", opening);
        match fleet.env.timeout(PATIENCE, starting).await {
            Ok(Ok(Ok(server))) => Ok(Arc::new(Member {
                id,
                process,
                env,
                server,
            })),
            outcome => {
                process.kill();
                Err(format!(
                    "server {id} did not start: {:?}",
                    outcome.map(|o| o.map(|s| s.err()).ok())
                ))
            }
        }
    }

    /// Runs a request in the process of the member.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        caller: &Env,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let answer = self.env.spawn_join(Priority::Foreground, "request", request);
        match caller.timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(NoAnswer),
        }
    }
}

/// The root of a server's log in the bucket.
pub(super) fn root_of(server: ServerId) -> String {
    format!("{ROOT}/{}", log_root(server))
}

async fn open(
    client: Arc<dyn Client>,
    process: Process,
    id: ServerId,
    ends_when_replaced: bool,
) -> Result<Arc<TabletServer>, String> {
    let env = process.env();
    let data = ObjectStorage::shared_client(client.clone(), ROOT, env.clone()).await;
    let log = ObjectStorage::open_client(client.clone(), &root_of(id), env.clone()).await;
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
        log,
        sealed: Arc::new(Sealed {
            client,
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

/// The logs of other servers, as one process reads them.
struct Sealed {
    client: Arc<dyn Client>,
    env: Env,
}

#[async_trait]
impl SealedLogs for Sealed {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        let log = ObjectStorage::sealed_client(self.client.clone(), &root_of(server), self.env.clone()).await?;
        Ok(log)
    }
}
