//! A medium that fails the way media do, for simulation.
//!
//! It remembers of every file how much was written and how much of that was synced. A [`FaultyStorage::crash`] is power
//! loss: unsynced bytes survive in part, torn, with holes or not at all, and so do files never synced. A [`FaultyStorage::kill`] is
//! the end of the process alone: what was written stays, though still not durable. Either ends a *generation*: every
//! handle of it, the storage included, answers `Io` from then on, so that tasks of the dead process can change nothing
//! any more. [`FaultyStorage::reopen`] is the medium as the next process finds it.
//!
//! Errors, a space limit and latency are set by a [`FaultPlan`] at any time. Operations that reach the device have their
//! effect somewhere between two pauses, so a crash finds some done but not acknowledged.
//!
//! All chance and all waiting come from the [`Env`], and files are kept in order, so one seed gives one history.

mod device;
mod handle;

use crate::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path, check_range};
use async_trait::async_trait;
use bytes::Bytes;
use device::{Device, Fault};
use handle::{FaultyAppend, FaultyRead};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;

/// What goes wrong, and how often. Probabilities are per operation, from 0 (never) to 1. The default is a medium without
/// faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// An append fails after writing part of its bytes.
    pub append_error: f64,
    /// An append cannot be done without waiting, so that [`AppendFile::try_append`] gives `None`.
    pub append_wait: f64,
    /// A sync fails, and what becomes of the unsynced bytes is random.
    pub sync_error: f64,
    /// A read fails.
    pub read_error: f64,
    /// A create, put or delete fails, with or without its effect; an open or listing fails.
    pub put_error: f64,
    /// A put puts its file there and fails to make the name durable, as on a full disk.
    pub put_unlinked: f64,
    /// A read finds its bytes not in the page cache, so that [`ReadFile::try_read_at`] gives `None`.
    pub read_miss: f64,
    /// Most bytes the files may have together.
    pub space_limit: Option<u64>,
    /// Shortest duration of anything but an append.
    pub latency_min: Duration,
    /// Longest duration of anything but an append.
    pub latency_max: Duration,
}

impl FaultPlan {
    /// Whether nothing fails under it, however long it takes.
    pub fn is_harmless(&self) -> bool {
        // Named one by one, so that a new kind of fault is thought of here.
        let FaultPlan {
            append_error,
            append_wait: _,
            sync_error,
            read_error,
            put_error,
            put_unlinked,
            read_miss: _,
            space_limit,
            latency_min: _,
            latency_max: _,
        } = self;
        let errors = [append_error, sync_error, read_error, put_error, put_unlinked];
        errors.into_iter().all(|chance| *chance <= 0.0) && space_limit.is_none()
    }
}

/// How often what was done, over all generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Files created for writing.
    pub creates: u64,
    /// Files opened for reading.
    pub opens: u64,
    /// Appends.
    pub appends: u64,
    /// Bytes handed to appends and puts.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Puts.
    pub puts: u64,
    /// Reads, from the page cache or not.
    pub reads: u64,
    /// Deletes.
    pub deletes: u64,
    /// Listings.
    pub lists: u64,
    /// Errors injected, running out of space included.
    pub faults: u64,
    /// Power losses.
    pub crashes: u64,
    /// Ends of the process.
    pub kills: u64,
    /// Puts during which the process ended, before they had their effect.
    pub puts_cut_before: u64,
    /// Puts during which the process ended, after they had their effect and before anybody knew.
    pub puts_cut_after: u64,
}

#[derive(Debug)]
struct Shared {
    device: Mutex<Device>,
    env: Env,
}

/// What every handle of one generation has in common.
#[derive(Clone, Debug)]
struct Mount {
    shared: Arc<Shared>,
    generation: u64,
}

/// A simulated medium as one process sees it.
#[derive(Debug)]
pub struct FaultyStorage {
    mount: Mount,
}

impl FaultyStorage {
    /// An empty medium without faults.
    pub fn new(env: Env) -> Arc<FaultyStorage> {
        let shared = Arc::new(Shared {
            device: Mutex::new(Device::default()),
            env,
        });
        Arc::new(FaultyStorage {
            mount: Mount { shared, generation: 0 },
        })
    }

    /// The same medium for the process that starts after a crash or kill. (Without one in between, both work.)
    pub fn reopen(&self) -> Arc<FaultyStorage> {
        let generation = self.device().generation;
        Arc::new(FaultyStorage {
            mount: Mount {
                shared: Arc::clone(&self.mount.shared),
                generation,
            },
        })
    }

    /// Changes what goes wrong from now on.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.device().plan = plan;
    }

    /// What goes wrong now.
    pub fn plan(&self) -> FaultPlan {
        self.device().plan.clone()
    }

    /// Power loss. Of each file a random length between synced and written stays, sometimes with garbage in its unsynced
    /// part; files never synced may vanish, and so may puts that failed or had not returned; files come back whose deletion
    /// failed or had not returned; puts not yet effective never are.
    pub fn crash(&self) {
        self.device().crash(&self.mount.shared.env);
    }

    /// The process ends, the machine does not: everything written can be read by the next process, and is as little
    /// durable as before.
    pub fn kill(&self) {
        self.device().kill();
    }

    /// Flips one bit of a file, which open readers see too.
    pub fn corrupt(&self, path: &str, offset: u64) -> Result<()> {
        let device = self.device();
        let file = device.file(path)?;
        let mut file = file.lock();
        check_range(path, offset, 1, file.content.len() as u64)?;
        if let Some(byte) = file.content.growing().get_mut(offset as usize) {
            *byte ^= 1 << (offset % 8);
        }
        Ok(())
    }

    /// Has reads of these bytes of a file fail as those of a bad sector do, for those who have it open, too.
    pub fn make_unreadable(&self, path: &str, bytes: Range<u64>) {
        self.device().unreadable.insert(path.to_owned(), bytes);
    }

    /// Ends that.
    pub fn make_readable(&self, path: &str) {
        self.device().unreadable.remove(path);
    }

    /// How often what was done so far.
    pub fn counts(&self) -> OpCounts {
        self.device().counts
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.mount.shared.device.lock()
    }
}

impl Mount {
    fn env(&self) -> &Env {
        &self.shared.env
    }

    /// The medium, unless the generation is over.
    fn enter(&self, path: &str, operation: &'static str) -> Result<MutexGuard<'_, Device>> {
        let device = self.shared.device.lock();
        if device.generation != self.generation {
            let message = "the process using this medium has ended".to_owned();
            return Err(StorageError::Io {
                path: path.to_owned(),
                operation,
                message,
            });
        }
        Ok(device)
    }

    /// Half of an operation's duration.
    async fn pause(&self) {
        let (min, max) = {
            let device = self.shared.device.lock();
            (device.plan.latency_min, device.plan.latency_max)
        };
        if !max.is_zero() {
            let spread = max.saturating_sub(min).as_nanos() as u64;
            let duration = min + Duration::from_nanos(self.env().random_below(spread.saturating_add(1)));
            self.env().sleep(duration / 2).await;
        }
    }

    /// Runs an operation that reaches the device.
    async fn run<T>(
        &self,
        path: &str,
        operation: &'static str,
        effect: impl FnOnce(&mut Device) -> Result<T>,
    ) -> Result<T> {
        self.pause().await;
        let outcome = effect(&mut *self.enter(path, operation)?);
        self.pause().await;
        drop(self.enter(path, operation)?);
        outcome
    }

    /// Runs an operation on a name, which may fail with or without its effect.
    async fn run_on_name<T>(
        &self,
        path: &str,
        operation: &'static str,
        effect: impl FnOnce(&mut Device) -> Result<T>,
    ) -> Result<T> {
        self.run(path, operation, |device| {
            match device.fault_on_name(self.env()) {
                Fault::None => effect(device),
                Fault::Before => Err(injected(path, operation)),
                // A refusal by the medium is an answer even then.
                Fault::After => effect(device).and_then(|_| Err(injected(path, operation))),
            }
        })
        .await
    }
}

/// A put on its way. Dropped before it has ended when its process ends.
struct PutUnderway<'a> {
    mount: &'a Mount,
    /// It has had its effect.
    took_effect: bool,
    ended: bool,
}

impl Drop for PutUnderway<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let counts = &mut self.mount.shared.device.lock().counts;
        if self.took_effect {
            counts.puts_cut_after += 1
        } else {
            counts.puts_cut_before += 1
        }
    }
}

fn injected(path: &str, operation: &'static str) -> StorageError {
    StorageError::Io {
        path: path.to_owned(),
        operation,
        message: "injected error".to_owned(),
    }
}

#[async_trait]
impl Storage for FaultyStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        check_path(path)?;
        let create = |device: &mut Device| device.create(path);
        let file = self.mount.run_on_name(path, "create", create).await?;
        Ok(Box::new(FaultyAppend::new(self.mount.clone(), path, file)))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        let open = |device: &mut Device| {
            device.counts.opens += 1;
            device.file(path)
        };
        let file = self.mount.run_on_name(path, "open", open).await?;
        Ok(Arc::new(FaultyRead::new(self.mount.clone(), path, file)))
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_path(path)?;
        let mut underway = PutUnderway {
            mount: &self.mount,
            took_effect: false,
            ended: false,
        };
        let took_effect = &mut underway.took_effect;
        let put = |device: &mut Device| {
            let outcome = device.put(path, content);
            *took_effect = outcome.is_ok();
            outcome?;
            device.fail_to_link(self.mount.env(), path)
        };
        let outcome = self.mount.run_on_name(path, "put", put).await;
        underway.ended = true;
        outcome.inspect(|()| self.mount.shared.device.lock().settle_name(path))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.mount
            .run_on_name(prefix, "list", |device| Ok(device.list(prefix)))
            .await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        let delete = |device: &mut Device| {
            device.delete(path);
            Ok(())
        };
        let outcome = self.mount.run_on_name(path, "delete", delete).await;
        outcome.inspect(|()| self.mount.shared.device.lock().settle_name(path))
    }

    async fn discard(&self, path: &str) -> Result<()> {
        check_path(path)?;
        let discard = |device: &mut Device| {
            device.discard(path);
            Ok(())
        };
        self.mount.run_on_name(path, "delete", discard).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        let sync = |device: &mut Device| {
            let file = device.file(path)?;
            device.sync(self.mount.env(), path, &file)
        };
        self.mount.run(path, "sync", sync).await
    }

    async fn inherit(&self) -> Result<bool> {
        let sync = |device: &mut Device| device.sync_all(self.mount.env());
        self.mount.run("", "sync all", sync).await?;
        Ok(true)
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(self.mount.enter("", "free bytes")?.free_bytes())
    }
}

#[cfg(test)]
mod tests;
