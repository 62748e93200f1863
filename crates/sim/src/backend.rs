//! What simulated servers keep their data on: a disk of one server, or a bucket that several reach at once.

use crate::bucket::{Bucket, Network};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_objects::ObjectStorage;
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};

/// Where in the bucket the data is.
const PREFIX: &str = "data";

/// How much longer everything takes than on a disk, and so does all that is to happen in a life of the server.
const BUCKET_PACE: u32 = 30;

/// Looks at a bucket on which no server runs, a second between two: longer than any request is under way.
const CHECKS_MAX: u32 = 100;

/// The medium.
pub enum Backend {
    /// As the node that runs now sees it.
    Disk(Mutex<Arc<FaultyStorage>>),
    /// Whoever opens it is its owner until the next one does.
    Bucket(Bucket),
}

/// What a server gets of it.
pub struct Opened {
    /// Its files.
    pub storage: Arc<dyn Storage>,
    /// The same, where another server may take it over.
    pub shared: Option<Arc<ObjectStorage>>,
}

/// What has gone wrong so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Faults injected.
    pub faults: u64,
    /// Puts that a life's end cut off: before they had their effect, and after.
    pub puts_cut: (u64, u64),
}

impl Backend {
    /// An empty disk.
    pub fn disk(env: Env) -> Backend {
        Backend::Disk(Mutex::new(FaultyStorage::new(env)))
    }

    /// An empty bucket; the environment is that of a process that nobody kills.
    pub fn bucket(env: Env) -> Backend {
        Backend::Bucket(Bucket::new(env))
    }

    /// Whether several servers reach it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Backend::Bucket(_))
    }

    /// How much longer everything takes than on a disk.
    pub fn pace(&self) -> u32 {
        match self {
            Backend::Disk(_) => 1,
            Backend::Bucket(_) => BUCKET_PACE,
        }
    }

    /// Opens it for a server.
    pub async fn open(&self, env: Env) -> Result<Opened, String> {
        match self {
            Backend::Disk(disk) => Ok(Opened {
                storage: disk.lock().clone(),
                shared: None,
            }),
            Backend::Bucket(bucket) => {
                let opened = ObjectStorage::open_client(Arc::new(bucket.clone()), PREFIX, env).await;
                let objects = opened.map_err(|e| format!("the bucket: {e}"))?;
                Ok(Opened {
                    storage: objects.clone(),
                    shared: Some(objects),
                })
            }
        }
    }

    /// Nothing goes wrong from now on.
    pub fn calm(&self) {
        match self {
            Backend::Disk(disk) => disk.lock().set_plan(FaultPlan::default()),
            Backend::Bucket(bucket) => bucket.set_network(Network::default()),
        }
    }

    /// Whether nothing goes wrong. One that is slow, or has nothing in memory, is healthy: else no start with latency would ever
    /// have to succeed.
    pub fn is_calm(&self) -> bool {
        match self {
            Backend::Disk(disk) => disk.lock().plan().is_harmless(),
            Backend::Bucket(bucket) => bucket.network().is_harmless(),
        }
    }

    /// Chooses what goes wrong from now on.
    pub async fn trouble(&self, env: &Env, steady_power: bool) {
        match self {
            Backend::Disk(disk) => {
                let disk = disk.lock().clone();
                let mut plan = disk_faults(env, &disk).await;
                if steady_power {
                    // A failed sync may lose what was written before, as power loss does.
                    plan.sync_error = 0.0;
                }
                disk.set_plan(plan);
            }
            Backend::Bucket(bucket) => bucket.set_network(network_faults(env)),
        }
    }

    /// The process that wrote is gone, perhaps with the power.
    pub fn lose_process(&self, power_lost: bool) {
        let Backend::Disk(disk) = self else { return };
        let mut disk = disk.lock();
        match power_lost {
            true => disk.crash(),
            false => disk.kill(),
        }
        *disk = disk.reopen();
    }

    /// What of it looks damaged.
    pub async fn damage(&self, env: Env) -> Result<Vec<String>, String> {
        match self {
            Backend::Disk(disk) => {
                let disk = disk.lock().clone();
                let plan = disk.plan();
                disk.set_plan(FaultPlan::default());
                let found = damage(disk.clone()).await;
                disk.set_plan(plan);
                found
            }
            Backend::Bucket(bucket) => {
                let network = bucket.network();
                bucket.set_network(Network::default());
                let looked = ObjectStorage::checked_client(Arc::new(bucket.clone()), PREFIX, env.clone()).await;
                let found = match looked {
                    Ok(looked) => steady_damage(looked, &env).await,
                    Err(error) => Err(format!("the bucket: {error}")),
                };
                bucket.set_network(network);
                found
            }
        }
    }

    /// What has gone wrong so far.
    pub fn happened(&self) -> Happened {
        match self {
            Backend::Disk(disk) => {
                let counts = disk.lock().counts();
                Happened {
                    faults: counts.faults,
                    puts_cut: (counts.puts_cut_before, counts.puts_cut_after),
                }
            }
            Backend::Bucket(bucket) => Happened {
                faults: bucket.counts().faults,
                ..Happened::default()
            },
        }
    }
}

/// What looks damaged once nothing changes any more: what a dead server has sent may still be on its way, and takes effect under
/// the eyes of who looks.
async fn steady_damage(backend: Arc<dyn Storage>, env: &Env) -> Result<Vec<String>, String> {
    let list = || async { backend.list("").await.map_err(|e| format!("listing the bucket: {e}")) };
    for _ in 0..CHECKS_MAX {
        let before = list().await?;
        let found = damage(backend.clone()).await;
        if list().await? == before {
            return found;
        }
        env.sleep(Duration::from_secs(1)).await;
    }
    Err(format!(
        "the bucket still changes after {CHECKS_MAX} looks, and no server runs"
    ))
}

async fn damage(backend: Arc<dyn Storage>) -> Result<Vec<String>, String> {
    let segments = stele_commitlog::salvage::damaged_segments(&*backend).await;
    let segments = segments.map_err(|e| format!("looking at the log: {e}"))?;
    let mut found: Vec<String> = segments.into_iter().map(|segment| segment.path).collect();
    let coord = stele_coord::embedded::salvage::salvage(&backend).await;
    let coord = coord.map_err(|e| format!("looking at the coordinator: {e}"))?;
    found.extend(coord.map(|salvaged| salvaged.damaged.join(", ")));
    Ok(found)
}

/// Nothing for half of the time, then errors, a full disk, or slowness.
async fn disk_faults(env: &Env, disk: &FaultyStorage) -> FaultPlan {
    let micros = |n| Duration::from_micros(n);
    let mut plan = FaultPlan {
        latency_min: micros(20),
        latency_max: micros(400),
        ..FaultPlan::default()
    };
    plan.read_miss = [0.0, 0.2, 1.0][env.random_below(3) as usize];
    plan.append_wait = [0.0, 0.1, 1.0][env.random_below(3) as usize];
    match env.random_below(8) {
        0 => plan.append_error = 0.02,
        1 => plan.sync_error = 0.02,
        2 => plan.put_error = 0.05,
        3 => {
            plan = FaultPlan {
                append_error: 0.01,
                sync_error: 0.01,
                put_error: 0.02,
                read_error: 0.005,
                ..plan
            };
        }
        4 => plan.space_limit = Some(stored_bytes(disk).await + 4_000 + env.random_below(40_000)),
        5 => (plan.latency_min, plan.latency_max) = (micros(500), micros(8_000)),
        _ => {}
    }
    plan
}

async fn stored_bytes(disk: &FaultyStorage) -> u64 {
    // Should the listing fail, the disk is full at once, which happens too.
    let files = disk.list("").await.unwrap_or_default();
    files.iter().map(|file| file.len).sum()
}

/// Nothing for a third of the time, then requests that get lost or come late, answers that get lost, or slowness.
fn network_faults(env: &Env) -> Network {
    let millis = |n| Duration::from_millis(n);
    let calm = Network::default();
    match env.random_below(7) {
        0 => Network { lost: 30, ..calm },
        1 => Network { unanswered: 30, ..calm },
        2 => Network { late: 10, ..calm },
        3 => Network {
            lost: 10,
            unanswered: 10,
            late: 5,
            ..calm
        },
        4 => Network {
            way: (millis(20), millis(400)),
            ..calm
        },
        _ => calm,
    }
}
