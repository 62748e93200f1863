//! Owners that take a tablet from each other keep all acknowledged commits.
//!
//! Each may pause anywhere. A commit that returned `Ok` lets its owner delete the files that it replaced: log,
//! sstables. So the next owner must have started from it. Each commit here adds an id to the manifest; every id of a
//! commit that returned `Ok` must be in the last manifest.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_sim::runtime::Sim;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_storage::{FileInfo, ReadFile, Result, Storage};
use stele_tablet::TabletError;
use stele_tablet::manifest::{FileRef, Manifest, ManifestLog};
use stele_types::{Epoch, GroupId, TabletId};

const SEEDS: u64 = 400;
const TABLET: TabletId = TabletId(7);
const OWNERS: u32 = 4;

/// Falls asleep before some operations, for longer than several takeovers take.
struct Drowsy {
    inner: Arc<FaultyStorage>,
    env: Env,
}

impl Drowsy {
    async fn nod(&self) {
        if self.env.random_below(12) == 0 {
            self.env
                .sleep(Duration::from_millis(self.env.random_below(60_000)))
                .await;
        }
    }
}

#[async_trait]
impl stele_storage::Layer for Drowsy {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.nod().await;
        self.inner.open(path).await
    }
    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.nod().await;
        self.inner.put_if_absent(path, content).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.nod().await;
        self.inner.list(prefix).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.nod().await;
        self.inner.delete(path).await
    }
}

fn with_id(manifest: &Manifest, id: u64) -> Manifest {
    let mut next = manifest.clone();
    let mut files = next.files(GroupId(0)).to_vec();
    files.push(FileRef {
        file: id,
        ..FileRef::default()
    });
    next.set_files(GroupId(0), files);
    next
}

/// One owner from its claim to its replacement, or to the end of its patience.
async fn own(storage: Arc<dyn Storage>, env: Env, epoch: u32, done: Arc<Mutex<Vec<u64>>>) {
    env.sleep(Duration::from_millis(env.random_below(100_000))).await;
    let (mut log, mut manifest) = loop {
        match ManifestLog::claim(storage.clone(), TABLET, Epoch(epoch), 0).await {
            Ok(claimed) => break claimed,
            Err(TabletError::Fenced { .. }) => return,
            Err(_) => env.sleep(Duration::from_millis(100)).await,
        }
    };
    let mut unsettled = false;
    for n in 1..=20 {
        env.sleep(Duration::from_millis(env.random_below(5_000))).await;
        // As the tablet does: after an unknown outcome the manifest as it was is committed, which decides.
        let id = u64::from(epoch) << 32 | n;
        let next = if unsettled {
            manifest.clone()
        } else {
            with_id(&manifest, id)
        };
        match log.commit(&next).await {
            Ok(()) if unsettled => unsettled = false,
            Ok(()) => {
                done.lock().push(id);
                manifest = next;
            }
            Err(TabletError::Fenced { .. }) => return,
            Err(_) => unsettled = true,
        }
    }
}

fn run(seed: u64) {
    let sim = Sim::new(seed, 5_000_000);
    let env = sim.process().env();
    let backend = FaultyStorage::new(env.clone());
    let done = Arc::new(Mutex::new(Vec::new()));
    let acknowledged = done.clone();
    let last = sim
        .run(async move {
            let first = Manifest {
                tablet: TABLET.0,
                ..Manifest::default()
            };
            ManifestLog::create(backend.clone(), &first)
                .await
                .expect("no faults yet");
            backend.set_plan(FaultPlan {
                put_error: if seed.is_multiple_of(2) { 0.1 } else { 0.0 },
                latency_max: Duration::from_millis(500),
                ..FaultPlan::default()
            });
            let owners = (1..=OWNERS).map(|epoch| {
                let drowsy = Drowsy {
                    inner: backend.clone(),
                    env: env.clone(),
                };
                own(Arc::new(drowsy), env.clone(), epoch, done.clone())
            });
            futures::future::join_all(owners).await;
            backend.set_plan(FaultPlan::default());
            ManifestLog::open(backend, TABLET).await.expect("no faults any more").1
        })
        .expect("the run ends");
    let kept: Vec<u64> = last.files(GroupId(0)).iter().map(|f| f.file).collect();
    for id in acknowledged.lock().iter() {
        assert!(kept.contains(id), "seed {seed}: commit {id:x} is lost; kept {kept:x?}");
    }
}

#[test]
fn no_commit_that_was_acknowledged_is_lost() {
    (0..SEEDS).for_each(run);
}

/// Lives of one owner each, which the power ends at any point, while puts fail with and without effect.
async fn lives(backend: Arc<FaultyStorage>, env: Env, put_error: f64) -> (Vec<u64>, Manifest) {
    let done = Arc::new(Mutex::new(Vec::new()));
    let first = Manifest {
        tablet: TABLET.0,
        ..Manifest::default()
    };
    ManifestLog::create(backend.clone(), &first)
        .await
        .expect("no faults yet");
    let mut backend = backend;
    for epoch in 1..=OWNERS {
        backend.set_plan(FaultPlan {
            put_error,
            put_unlinked: put_error,
            sync_error: put_error,
            latency_max: Duration::from_millis(5),
            ..FaultPlan::default()
        });
        let living = own_for_one_life(backend.clone(), epoch, done.clone());
        let at_most = Duration::from_micros(env.random_below(400_000));
        let _ = env.timeout(at_most, living).await;
        backend.set_plan(FaultPlan::default());
        backend.crash();
        backend = backend.reopen();
        let newest = ManifestLog::open(backend.clone(), TABLET)
            .await
            .expect("a whole manifest")
            .1;
        let kept: Vec<u64> = newest.files(GroupId(0)).iter().map(|f| f.file).collect();
        for id in done.lock().iter() {
            assert!(
                kept.contains(id),
                "commit {id:x} is lost in life {epoch}; kept {kept:x?}"
            );
        }
    }
    let last = ManifestLog::open(backend, TABLET).await.expect("a whole manifest").1;
    let done = done.lock().clone();
    (done, last)
}

/// Commits one after the other, without a pause.
async fn own_for_one_life(storage: Arc<dyn Storage>, epoch: u32, done: Arc<Mutex<Vec<u64>>>) {
    let (mut log, mut manifest) = loop {
        match ManifestLog::claim(storage.clone(), TABLET, Epoch(epoch), 0).await {
            Ok(claimed) => break claimed,
            Err(TabletError::Fenced { .. }) => return,
            Err(_) => {}
        }
    };
    let mut unsettled = false;
    for n in 1..=40 {
        let id = u64::from(epoch) << 32 | n;
        let next = if unsettled {
            manifest.clone()
        } else {
            with_id(&manifest, id)
        };
        match log.commit(&next).await {
            Ok(()) if unsettled => unsettled = false,
            Ok(()) => {
                done.lock().push(id);
                manifest = next;
            }
            Err(TabletError::Fenced { .. }) => return,
            Err(_) => unsettled = true,
        }
    }
}

#[test]
fn power_loss_at_any_point_of_a_switch_loses_no_commit() {
    let mut commits = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, 5_000_000);
        let env = sim.process().env();
        let backend = FaultyStorage::new(env.clone());
        let put_error = [0.0, 0.1, 0.4][seed as usize % 3];
        let (done, _) = sim.run(lives(backend, env, put_error)).expect("the run ends");
        commits += done.len();
    }
    assert!(commits > 1_000, "{commits}");
}
