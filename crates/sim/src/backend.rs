//! Storage backends of simulated servers.
//!
//! A backend is a disk of one server, or a bucket that several servers reach concurrently.

use crate::bucket::{Bucket, Network};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_encryption::{EncryptedStorage, KeyFile, KeyRing, RandomBytes};
use stele_env::Env;
use stele_objects::ObjectStorage;
use stele_storage::Storage;
use stele_storage::faulty::{FaultPlan, FaultyStorage};

/// The prefix of the data in the bucket.
const PREFIX: &str = "data";

/// The factor by which operations on a bucket are slower than on a disk. Lives of the server are longer by the same
/// factor.
const BUCKET_PACE: u32 = 30;

/// Most checks of a bucket on which no server runs, a second apart: longer than any request is under way.
const CHECKS_MAX: u32 = 100;

/// A backend.
pub enum Backend {
    /// The disk as the current node sees it, and whether the node encrypts it.
    Disk(Mutex<Arc<FaultyStorage>>, bool),
    /// Each process that opens it becomes its owner until the next one does.
    Bucket(Bucket),
}

/// A backend opened for a server.
pub struct Opened {
    /// Its files.
    pub storage: Arc<dyn Storage>,
    /// The same storage, where another server may take it over.
    pub shared: Option<Arc<ObjectStorage>>,
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
        Backend::Bucket(Bucket::new(env))
    }

    /// Whether several servers reach it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Backend::Bucket(_))
    }

    /// The factor by which operations are slower than on a disk.
    pub fn pace(&self) -> u32 {
        match self {
            Backend::Disk(..) => 1,
            Backend::Bucket(_) => BUCKET_PACE,
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

    /// Stops all faults.
    pub fn calm(&self) {
        match self {
            Backend::Disk(disk, _) => disk.lock().set_plan(FaultPlan::default()),
            Backend::Bucket(bucket) => bucket.set_network(Network::default()),
        }
    }

    /// Whether there are no faults. A slow backend, or one that caches nothing, counts as healthy. Otherwise no start
    /// with latency would ever have to succeed.
    pub fn is_calm(&self) -> bool {
        match self {
            Backend::Disk(disk, _) => disk.lock().plan().is_harmless(),
            Backend::Bucket(bucket) => bucket.network().is_harmless(),
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
            Backend::Bucket(bucket) => bucket.set_network(network_faults(env)),
        }
    }

    /// Ends the writing process, perhaps with a power loss.
    pub fn lose_process(&self, power_lost: bool) {
        let Backend::Disk(disk, _) = self else { return };
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
            Backend::Bucket(bucket) => Happened {
                faults: bucket.counts().faults,
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
