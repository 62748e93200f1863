//! How much log a server keeps for an archive that is slow, or hangs.

use super::hindrance::Hindrance;
use super::server::{Archiving, open};
use super::{ATTEMPTS_MAX, STEPS_MAX};
use crate::bucket::Bucket;
use crate::runtime::Sim;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Priority;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;

/// Bytes of log that may wait.
pub const WAITING_BYTES_MAX: u64 = 64 << 10;

/// A run with an archive that is hindered.
#[derive(Clone, Copy, Debug)]
pub struct BoundPlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// How long each new file of the archive takes.
    pub takes: Duration,
    /// Writes of some 350 bytes of log each, and the time between two.
    pub writes: u64,
    /// The time between two writes.
    pub every: Duration,
}

/// The log that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of segments that waited for the archive.
    pub waiting_bytes: u64,
    /// Ranges of the archive, when it was reached again.
    pub ranges: usize,
}

/// Writes while the archive is hindered, and completes it afterwards. An error says which write was refused, or why the archive was
/// not completed.
pub fn run(plan: BoundPlan) -> Result<Bounds, String> {
    let sim = Sim::new(plan.seed, STEPS_MAX);
    let ran = sim.run(live(sim.clone(), plan));
    ran.map_err(|stalled| stalled.to_string())?
}

async fn live(sim: Sim, plan: BoundPlan) -> Result<Bounds, String> {
    let process = sim.process();
    let (client, env) = (sim.process().env(), process.env());
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let hindrance = Hindrance::default();
    let archiving = Archiving {
        waiting_bytes_max: WAITING_BYTES_MAX,
        hindrance: hindrance.clone(),
    };
    let bucket = Bucket::new(sim.process().env());
    let opening = open(process, env.clone(), storage, bucket, Some(archiving));
    let opened = env.spawn_join(Priority::Foreground, "start", opening).await;
    let server = Arc::new(opened.map_err(|_| "the start was dropped".to_owned())??);
    server.make_table().await?;
    server.complete_archive(&client, ATTEMPTS_MAX).await?;
    hindrance.set(plan.takes);
    let mut waiting_bytes = 0;
    for version in 1..=plan.writes {
        server.write(&client, version % 20, version).await?;
        client.sleep(plan.every).await;
        waiting_bytes = waiting_bytes.max(server.waiting_bytes());
    }
    hindrance.set(Duration::ZERO);
    // A file that is under way takes as long as it was told.
    client.sleep(plan.takes.min(Duration::from_secs(700))).await;
    server.complete_archive(&client, ATTEMPTS_MAX).await?;
    Ok(Bounds {
        waiting_bytes,
        ranges: server.ranges().await?,
    })
}
