//! Storage of a process that is killed after some changes: no later change happens. And of one that pauses there, or cannot open files.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_storage::{AppendFile, ReadFile, Result, Storage, StorageError};
use tokio::sync::watch;

/// When the changes of a storage happen, and which files open.
#[async_trait]
pub(super) trait Turns: Clone + Send + Sync + 'static {
    /// Before a change; an error if it does not happen.
    async fn change(&self, path: &str) -> Result<()>;

    /// After a change that happened: whether its caller hears of it.
    async fn changed(&self, path: &str) -> Result<()>;

    /// Before a file is opened; an error if it cannot be.
    fn open(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

/// Changes that are left, of all storages of a process.
#[derive(Clone)]
pub(super) struct Life(Arc<AtomicU64>);

impl Life {
    pub(super) fn of(changes: u64) -> Life {
        Life(Arc::new(AtomicU64::new(changes)))
    }

    /// Gives it more changes.
    pub(super) fn renew(&self, changes: u64) {
        self.0.store(changes, Ordering::Relaxed);
    }

    /// Ends it: tasks of the process may still run.
    pub(super) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[async_trait]
impl Turns for Life {
    async fn change(&self, path: &str) -> Result<()> {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(1..) => Ok(()),
            _ => Err(StorageError::Io {
                path: path.to_owned(),
                operation: "change",
                message: "the process was killed".to_owned(),
            }),
        }
    }

    async fn changed(&self, path: &str) -> Result<()> {
        // The last one may be heard of or not.
        match self.is_over() {
            true => self.change(path).await,
            false => Ok(()),
        }
    }
}

/// A process that stands still after some changes, as one does that is cut off, and goes on later.
#[derive(Clone)]
pub(super) struct Pause {
    left: Arc<AtomicU64>,
    stands: Arc<watch::Sender<bool>>,
    goes_on: Arc<watch::Sender<bool>>,
}

impl Pause {
    pub(super) fn after(changes: u64) -> Pause {
        Pause {
            left: Arc::new(AtomicU64::new(changes)),
            stands: Arc::new(watch::channel(false).0),
            goes_on: Arc::new(watch::channel(false).0),
        }
    }

    pub(super) fn stands(&self) -> bool {
        *self.stands.borrow()
    }

    pub(super) fn go_on(&self) {
        self.goes_on.send_replace(true);
    }
}

#[async_trait]
impl Turns for Pause {
    async fn change(&self, _: &str) -> Result<()> {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() {
            self.stands.send_replace(true);
            let _ = self.goes_on.subscribe().wait_for(|goes_on| *goes_on).await;
        }
        Ok(())
    }

    async fn changed(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

/// A storage whose changes wait for their turns.
pub(super) struct Mortal<T> {
    inner: Arc<dyn Storage>,
    life: T,
}

impl<T: Turns> Mortal<T> {
    pub(super) fn over(inner: &Arc<dyn Storage>, life: &T) -> Arc<dyn Storage> {
        Arc::new(Mortal {
            inner: inner.clone(),
            life: life.clone(),
        })
    }
}

#[async_trait]
impl<T: Turns> stele_storage::Layer for Mortal<T> {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.life.change(path).await?;
        let file = self.inner.create(path).await?;
        Ok(Box::new(MortalFile {
            file,
            life: self.life.clone(),
            path: path.to_owned(),
        }))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.life.open(path)?;
        self.inner.open(path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.life.change(path).await?;
        self.inner.put_if_absent(path, content).await?;
        self.life.changed(path).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.life.change(path).await?;
        self.inner.delete(path).await
    }
}

struct MortalFile<T> {
    file: Box<dyn AppendFile>,
    life: T,
    path: String,
}

#[async_trait]
impl<T: Turns> AppendFile for MortalFile<T> {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.life.change(&self.path).await?;
        self.file.append(slices).await
    }

    async fn sync(&mut self) -> Result<()> {
        self.life.change(&self.path).await?;
        self.file.sync().await
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}
