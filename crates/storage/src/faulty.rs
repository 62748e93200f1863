//! A storage that fails as real ones do, for simulation.
//!
//! It remembers for every file its written and its synced bytes. A [`FaultyStorage::crash`] is power loss: unsynced
//! bytes survive in part, torn, with gaps or not at all, and so do files never synced. A [`FaultyStorage::kill`] is the
//! end of the process alone: written bytes stay, though still not durable. Either ends a *generation*: from then on all
//! its handles, and the storage itself, return `Io`. Tasks of the dead process can thus change nothing any more.
//! [`FaultyStorage::reopen`] is the storage as the next process finds it.
//!
//! A [`FaultPlan`] sets errors, a space limit and latency at any time. Operations that reach the device take effect
//! between two pauses, so a crash finds some that are done but not acknowledged.
//!
//! All randomness and all waiting come from the [`Env`], and files are ordered, so one seed gives one history.

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

/// Faults and their frequencies. Probabilities are per operation, from 0 (never) to 1. The default is a storage without
/// faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// An append fails after writing part of its bytes.
    pub append_error: f64,
    /// An append would have to wait, so that [`AppendFile::try_append`] gives `None`.
    pub append_wait: f64,
    /// A sync fails, with a random effect on the unsynced bytes.
    pub sync_error: f64,
    /// A read fails.
    pub read_error: f64,
    /// A create, put or delete fails, with or without its effect; an open or listing fails.
    pub put_error: f64,
    /// A put creates its file and fails to make the name durable, as on a full disk.
    pub put_unlinked: f64,
    /// A read finds its bytes not in the page cache, so that [`ReadFile::try_read_at`] gives `None`.
    pub read_miss: f64,
    /// Largest sum of the files' bytes.
    pub space_limit: Option<u64>,
    /// Shortest duration of all operations but appends.
    pub latency_min: Duration,
    /// Longest duration of all operations but appends.
    pub latency_max: Duration,
}

impl FaultPlan {
    /// Whether no operation fails under this plan, however long it takes.
    pub fn is_harmless(&self) -> bool {
        // Lists all fields, so that a new kind of fault is not forgotten here.
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

/// Counts of operations, over all generations.
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
    /// Errors injected, including lack of space.
    pub faults: u64,
    /// Power losses.
    pub crashes: u64,
    /// Ends of the process.
    pub kills: u64,
    /// Puts during which the process ended, before they had their effect.
    pub puts_cut_before: u64,
    /// Puts during which the process ended, after they had their effect and before they were acknowledged.
    pub puts_cut_after: u64,
}

#[derive(Debug)]
struct Shared {
    device: Mutex<Device>,
    env: Env,
}

/// The part that all handles of one generation share.
#[derive(Clone, Debug)]
struct Mount {
    shared: Arc<Shared>,
    generation: u64,
}

/// A simulated storage as one process sees it.
#[derive(Debug)]
pub struct FaultyStorage {
    mount: Mount,
}

impl FaultyStorage {
    /// An empty storage without faults.
    pub fn new(env: Env) -> Arc<FaultyStorage> {
        let shared = Arc::new(Shared {
            device: Mutex::new(Device::default()),
            env,
        });
        Arc::new(FaultyStorage {
            mount: Mount { shared, generation: 0 },
        })
    }

    /// The same storage for the process that starts after a crash or kill. (Without one in between, both work.)
    pub fn reopen(&self) -> Arc<FaultyStorage> {
        let generation = self.device().generation;
        Arc::new(FaultyStorage {
            mount: Mount {
                shared: Arc::clone(&self.mount.shared),
                generation,
            },
        })
    }

    /// Sets the faults from now on.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.device().plan = plan;
    }

    /// The present faults.
    pub fn plan(&self) -> FaultPlan {
        self.device().plan.clone()
    }

    /// Power loss. Of each file a random length between synced and written stays, sometimes with garbage in its
    /// unsynced part. Files never synced may vanish, and so may puts that failed or had not returned. Files come back
    /// if their deletion failed or had not returned. Puts that had no effect yet never have one.
    pub fn crash(&self) {
        self.device().crash(&self.mount.shared.env);
    }

    /// The process ends and the machine does not: the next process can read all written bytes, which are no more
    /// durable than before.
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

    /// Makes reads of these bytes of a file fail like reads of a bad sector, also for open readers.
    pub fn make_unreadable(&self, path: &str, bytes: Range<u64>) {
        self.device().unreadable.insert(path.to_owned(), bytes);
    }

    /// Makes the file readable again.
    pub fn make_readable(&self, path: &str) {
        self.device().unreadable.remove(path);
    }

    /// Counts of operations so far.
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

    /// The device, unless the generation is over.
    fn enter(&self, path: &str, operation: &'static str) -> Result<MutexGuard<'_, Device>> {
        let device = self.shared.device.lock();
        if device.generation != self.generation {
            let message = "the process using this storage has ended".to_owned();
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
                // The device's own refusal is returned even then.
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
