//! Storage backends of simulated servers.
//!
//! A backend is a disk of one server, or storage that several servers reach concurrently: a bucket or HDFS.

use crate::bucket::Bucket;
use crate::hdfs::Hdfs;
use crate::requests::Network;
use crate::shared::{Owned, SharedStorage};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_encryption::{EncryptedStorage, KeyFile, KeyRing, RandomBytes};
use stele_env::Env;
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};

/// The directory of the data in shared storage.
const PREFIX: &str = "data";

/// The factor by which operations on shared storage are slower than on a disk. Lives of the server are longer by the same
/// factor.
const SHARED_PACE: u32 = 30;

/// Most checks of shared storage on which no server runs, a second apart: longer than any request is under way.
const CHECKS_MAX: u32 = 100;

/// A backend.
pub enum Backend {
    /// The disk as the current node sees it, and whether the node encrypts it.
    Disk(Mutex<Arc<FaultyStorage>>, bool),
    /// Each process that opens it becomes its owner until the next one does.
    Shared(SharedStorage),
}

/// A backend opened for a server.
pub struct Opened {
    /// Its files.
    pub storage: Arc<dyn Storage>,
    /// The same storage, where another server may take it over.
    pub shared: Option<Owned>,
}

/// Counts of injected faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Faults injected.
    pub faults: u64,
    /// Puts interrupted by the end of a life: before their effect, and after it.
    pub puts_cut: (u64, u64),
}

impl Backend {
    /// An empty disk.
    pub fn disk(env: Env) -> Backend {
        Backend::Disk(Mutex::new(FaultyStorage::new(env)), false)
    }

    /// An empty disk that is encrypted from the first start on.
    pub fn encrypted_disk(env: Env) -> Backend {
        Backend::Disk(Mutex::new(FaultyStorage::new(env)), true)
    }

    /// An empty bucket. The environment is that of a process that is never killed.
    pub fn bucket(env: Env) -> Backend {
        Backend::Shared(SharedStorage::Bucket(Bucket::new(env)))
    }

    /// The same for an empty HDFS.
    pub fn hdfs(env: Env) -> Backend {
        Backend::Shared(SharedStorage::Hdfs(Hdfs::new(env)))
    }

    /// Whether several servers reach it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Backend::Shared(_))
    }

    /// Whether it may lose something with its power.
    pub fn loses_power(&self) -> bool {
        !matches!(self, Backend::Shared(SharedStorage::Bucket(_)))
    }

    /// The factor by which operations are slower than on a disk.
    pub fn pace(&self) -> u32 {
        match self {
            Backend::Disk(..) => 1,
            Backend::Shared(_) => SHARED_PACE,
        }
    }

    /// Opens it for a server.
    pub async fn open(&self, env: Env) -> Result<Opened, String> {
        match self {
            Backend::Disk(disk, is_encrypted) => {
                let disk = disk.lock().clone();
                Ok(Opened {
                    storage: if *is_encrypted {
                        encrypted(disk, env).await?
                    } else {
                        disk
                    },
                    shared: None,
                })
            }
            Backend::Shared(shared) => {
                let owned = shared.own(PREFIX, env).await;
                let owned = owned.map_err(|e| format!("the shared storage: {e}"))?;
                Ok(Opened {
                    storage: owned.storage(),
                    shared: Some(owned),
                })
            }
        }
    }

    /// Stops all faults.
    pub fn calm(&self) {
        match self {
            Backend::Disk(disk, _) => disk.lock().set_plan(FaultPlan::default()),
            Backend::Shared(shared) => shared.requests().set_network(Network::default()),
        }
    }

    /// Whether there are no faults. A slow backend, or one that caches nothing, counts as healthy. Otherwise no start
    /// with latency would ever have to succeed.
    pub fn is_calm(&self) -> bool {
        match self {
            Backend::Disk(disk, _) => disk.lock().plan().is_harmless(),
            Backend::Shared(shared) => shared.requests().network().is_harmless(),
        }
    }

    /// Chooses the faults from now on.
    pub async fn trouble(&self, env: &Env, steady_power: bool) {
        match self {
            Backend::Disk(disk, _) => {
                let disk = disk.lock().clone();
                let mut plan = disk_faults(env, &disk).await;
                if steady_power {
                    // A failed sync may lose earlier writes, as a power loss does.
                    plan.sync_error = 0.0;
                }
                disk.set_plan(plan);
            }
            Backend::Shared(shared) => shared.requests().set_network(network_faults(env)),
        }
    }

    /// Ends the writing process, perhaps with a power loss.
    pub fn lose_process(&self, power_lost: bool) {
        let disk = match self {
            Backend::Disk(disk, _) => disk,
            Backend::Shared(shared) if power_lost => return shared.lose_power(),
            Backend::Shared(_) => return,
        };
        let mut disk = disk.lock();
        if power_lost {
            disk.crash()
        } else {
            disk.kill()
        }
        *disk = disk.reopen();
    }

    /// The findings of a check.
    pub async fn damage(&self, env: Env) -> Result<Vec<String>, String> {
        match self {
            Backend::Disk(disk, is_encrypted) => {
                let disk = disk.lock().clone();
                let plan = disk.plan();
                disk.set_plan(FaultPlan::default());
                let found = match is_encrypted {
                    true => damage(encrypted(disk.clone(), env).await?).await,
                    false => damage(disk.clone()).await,
                };
                disk.set_plan(plan);
                found
            }
            Backend::Shared(shared) => {
                let network = shared.requests().network();
                shared.requests().set_network(Network::default());
                let looked = match shared {
                    SharedStorage::Bucket(_) => shared.look(PREFIX, env.clone()).await,
                    // Files of a killed server can be read when the next owner has sealed them.
                    SharedStorage::Hdfs(_) => shared.own(PREFIX, env.clone()).await.map(|owned| owned.storage()),
                };
                let found = match looked {
                    Ok(looked) => steady_damage(looked, &env).await,
                    Err(error) => Err(format!("the shared storage: {error}")),
                };
                shared.requests().set_network(network);
                found
            }
        }
    }

    /// Counts of the faults so far.
    pub fn happened(&self) -> Happened {
        match self {
            Backend::Disk(disk, _) => {
                let counts = disk.lock().counts();
                Happened {
                    faults: counts.faults,
                    puts_cut: (counts.puts_cut_before, counts.puts_cut_after),
                }
            }
            Backend::Shared(shared) => Happened {
                faults: shared.requests().counts().faults,
                ..Happened::default()
            },
        }
    }
}

/// Keys from the seed.
struct Seeded(Env);

impl RandomBytes for Seeded {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), String> {
        bytes.fill_with(|| self.0.random_u64() as u8);
        Ok(())
    }
}

/// The disk as a server with a key file sees it. Each process has another random sequence, and the same key file.
async fn encrypted(disk: Arc<FaultyStorage>, env: Env) -> Result<Arc<dyn Storage>, String> {
    let random = Arc::new(Seeded(env));
    let keys = KeyFile::parse(&format!("k {}", "5a".repeat(32)), random.clone());
    let keys = Arc::new(keys.map_err(|e| e.to_string())?);
    let ring = KeyRing::open(disk.clone(), keys, random).await;
    Ok(EncryptedStorage::of_root(
        disk,
        ring.map_err(|e| format!("the keys: {e}"))?,
    ))
}

/// The findings of a check once nothing changes any more. A request of a dead server may still be under way and take
/// effect during the check.
async fn steady_damage(backend: Arc<dyn Storage>, env: &Env) -> Result<Vec<String>, String> {
    let list = || async {
        backend
            .list("")
            .await
            .map_err(|e| format!("listing the shared storage: {e}"))
    };
    for _ in 0..CHECKS_MAX {
        let before = list().await?;
        let found = damage(backend.clone()).await;
        if list().await? == before {
            return found;
        }
        env.sleep(Duration::from_secs(1)).await;
    }
    Err(format!(
        "the shared storage still changes after {CHECKS_MAX} looks, and no server runs"
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

/// No faults for half of the time; else errors, a full disk, or latency.
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
    // If the listing fails, the disk is full immediately, which happens too.
    let files = disk.list("").await.unwrap_or_default();
    files.iter().map(|file| file.len).sum()
}

/// No faults for a third of the time; else lost or late requests, lost responses, or latency.
pub(crate) fn network_faults(env: &Env) -> Network {
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
