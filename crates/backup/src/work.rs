//! A running work: its progress, its rate, and whether it was called off.

use crate::error::{BackupError, Result};
use async_trait::async_trait;
use bytes::Bytes;
use crc32fast::Hasher;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stele_client::BackupProgress;
use stele_env::Env;
use stele_storage::{AppendFile, StorageError};

/// Files that are copied concurrently unless said otherwise: enough to hide the latency of object stores. Each takes some
/// 10 MiB of memory: a window of the source, and pieces on their way to the destination.
pub const PARALLEL_DEFAULT: usize = 4;
/// Most of them.
pub const PARALLEL_MAX: usize = 64;
/// The time for which unused rate is kept.
const BURST: Duration = Duration::from_millis(250);

/// The state of a work that others may look at.
pub struct Work {
    env: Env,
    bytes_per_second: Option<u64>,
    parallel: usize,
    is_cancelled: AtomicBool,
    step: Mutex<&'static str>,
    /// When the bytes moved so far would have been moved at the rate.
    paid_until: Mutex<Duration>,
    files: AtomicU64,
    files_done: AtomicU64,
    bytes: AtomicU64,
    bytes_done: AtomicU64,
    files_copied: AtomicU64,
    bytes_copied: AtomicU64,
}

impl Work {
    /// A work that has not begun. 0 parallel files are the default.
    pub fn new(env: Env, bytes_per_second: Option<u64>, parallel: u32) -> Arc<Work> {
        let parallel = match usize::try_from(parallel).unwrap_or(PARALLEL_MAX) {
            0 => PARALLEL_DEFAULT,
            some => some.min(PARALLEL_MAX),
        };
        Arc::new(Work {
            env,
            bytes_per_second,
            parallel,
            is_cancelled: AtomicBool::new(false),
            step: Mutex::new("waiting"),
            paid_until: Mutex::default(),
            files: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            files_copied: AtomicU64::new(0),
            bytes_copied: AtomicU64::new(0),
        })
    }

    /// Files that are copied or read concurrently.
    pub fn parallel(&self) -> usize {
        self.parallel
    }

    /// The environment.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Calls it off.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails once it is called off.
    pub fn check(&self) -> Result<()> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(BackupError::Cancelled),
            false => Ok(()),
        }
    }

    /// Begins a step.
    pub fn begin(&self, step: &'static str) -> Result<()> {
        *self.step.lock() = step;
        self.check()
    }

    /// How far it is.
    pub fn progress(&self) -> BackupProgress {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        BackupProgress {
            step: self.step.lock().to_string(),
            files: read(&self.files),
            files_done: read(&self.files_done),
            bytes: read(&self.bytes),
            bytes_done: read(&self.bytes_done),
            files_copied: read(&self.files_copied),
            bytes_copied: read(&self.bytes_copied),
        }
    }

    /// Files that are to be copied or read, with their bytes.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file that need not be copied.
    pub fn skip(&self, bytes: u64) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file is copied; its bytes were counted as they moved.
    pub fn copied(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
        self.files_copied.fetch_add(1, Ordering::Relaxed);
    }

    /// A file is read.
    pub fn was_read(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that move, and waits until the rate allows more.
    pub async fn moved(&self, bytes: u64, is_copy: bool) -> Result<()> {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        if is_copy {
            self.bytes_copied.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) {
            let now = self.env.now();
            let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
            let wait = {
                let mut paid_until = self.paid_until.lock();
                *paid_until = (*paid_until).max(now.saturating_sub(BURST)) + cost;
                paid_until.saturating_sub(now)
            };
            self.sleep(wait).await?;
        }
        self.check()
    }

    /// Sleeps, but not for long once the work is called off.
    async fn sleep(&self, mut left: Duration) -> Result<()> {
        const SLICE: Duration = Duration::from_millis(200);
        while left > Duration::ZERO {
            self.check()?;
            let slice = left.min(SLICE);
            self.env.sleep(slice).await;
            left -= slice;
        }
        Ok(())
    }
}

/// A file that is copied at the rate of a work, with the checksum of its bytes.
pub struct Metered {
    file: Box<dyn AppendFile>,
    work: Arc<Work>,
    crc: Hasher,
    path: String,
}

impl Metered {
    /// Over an empty file; `path` is for errors.
    pub fn new(file: Box<dyn AppendFile>, work: Arc<Work>, path: &str) -> Metered {
        Metered {
            file,
            work,
            crc: Hasher::new(),
            path: path.to_owned(),
        }
    }

    /// The checksum of all bytes.
    pub fn crc(&self) -> u32 {
        self.crc.clone().finalize()
    }
}

#[async_trait]
impl AppendFile for Metered {
    async fn append(&mut self, slices: &[Bytes]) -> stele_storage::Result<()> {
        let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        if self.work.moved(bytes, true).await.is_err() {
            return Err(StorageError::Io {
                path: self.path.clone(),
                operation: "append",
                message: "the work was called off".to_owned(),
            });
        }
        for slice in slices {
            self.crc.update(slice);
        }
        self.file.append(slices).await
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        self.file.sync().await
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}
