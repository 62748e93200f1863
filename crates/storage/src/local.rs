//! The local disk as a storage backend.
//!
//! A data root is a directory with one owner: [`LocalStorage::open`] takes an exclusive `flock` on `LOCK` in it. The
//! lock lives as long as any handle that can still change a file. Unfinished puts are in `tmp` and deleted at the next
//! open.
//!
//! This is how the promises of the trait hold (`docs/storage.md` has the table):
//! * *sync*: `fdatasync` of the file, then, the first time, `fsync` of its directory. Directories are made durable one
//!   by one before a file is created in them. After a failed sync the next one writes the bytes again, in the next
//!   process, too (`unsynced`).
//! * *put*: written and synced under a name in `tmp`, then moved into place, then `fsync` of the directory. The move is
//!   `renameat2(RENAME_NOREPLACE)`, or a hard link where the file system lacks that.
//! * *delete*: `unlink`, then `fsync` of the directory; of several files, of each directory once.
//! * *discard*: `unlink` alone.
//! * *inherit*: the lock is exclusive, and `syncfs` writes back the page cache of the last holder.
//!
//! Small appends are written inline: they copy into the page cache. Every call that waits for the device goes through
//! [`Env::blocking`]. Reads first try the page cache without waiting (`preadv2(RWF_NOWAIT)`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is where the seam meets the real file system"
)]

mod file;
mod foreign;
mod looking;
mod root;
mod syncs;
mod unsynced;

use crate::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError, check_path};
use async_trait::async_trait;
use bytes::Bytes;
use file::{LocalAppend, LocalRead};
pub use foreign::ForeignFolder;
use root::Root;
pub(crate) use root::make_private_directory;
use std::path::Path;
use std::sync::Arc;
use stele_env::Env;

/// Bytes kept free by default. When tables fill the disk, manifests, the coordination log and the deletions that free
/// space still need some: 64 MiB is a full commit log segment and thousands of manifests.
pub const RESERVE_BYTES_DEFAULT: u64 = 64 << 20;

/// Settings of a data root.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// [`Storage::free_bytes`] reports this many bytes less than the file system has.
    pub reserve_bytes: u64,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions {
            reserve_bytes: RESERVE_BYTES_DEFAULT,
        }
    }
}

/// A directory of the local file system.
#[derive(Debug)]
pub struct LocalStorage {
    root: Arc<Root>,
    env: Env,
    options: LocalOptions,
}

impl LocalStorage {
    /// Opens a data root, and creates it when needed. `Locked` when another process has it open.
    pub fn open(root: &Path, env: Env) -> Result<Arc<LocalStorage>> {
        Self::open_with(root, env, LocalOptions::default())
    }

    /// Opens a data root with settings.
    pub fn open_with(root: &Path, env: Env, options: LocalOptions) -> Result<Arc<LocalStorage>> {
        let root = Arc::new(Root::open(root)?);
        Ok(Arc::new(LocalStorage { root, env, options }))
    }

    /// Opens an existing data root read-only: changes are refused. `Locked` when another process has it open.
    pub fn look(root: &Path, env: Env) -> Result<Arc<dyn Storage>> {
        let root = Arc::new(Root::look(root)?);
        let options = LocalOptions::default();
        Ok(Arc::new(looking::Looking(LocalStorage { root, env, options })))
    }

    /// Runs file system calls that may wait. The closure holds the root and with it the lock, also when its caller has
    /// stopped waiting.
    async fn blocking<T: Send + 'static>(
        &self,
        path: &str,
        operation: &'static str,
        work: impl FnOnce(&Arc<Root>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let root = Arc::clone(&self.root);
        blocking(&self.env, path, operation, move || work(&root)).await
    }
}

async fn blocking<T: Send + 'static>(
    env: &Env,
    path: &str,
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let gone = |_| StorageError::Io {
        path: path.to_owned(),
        operation,
        message: "the runtime is shutting down".to_owned(),
    };
    env.blocking(work).await.map_err(gone)?
}

#[async_trait]
impl Storage for LocalStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        check_path(path)?;
        let name = path.to_owned();
        let file = self.blocking(path, "create", move |root| root.create(&name)).await?;
        Ok(Box::new(LocalAppend::new(
            file,
            path,
            Arc::clone(&self.root),
            self.env.clone(),
        )))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        let name = path.to_owned();
        let (file, len) = self.blocking(path, "open", move |root| root.open_file(&name)).await?;
        Ok(Arc::new(LocalRead::new(file, len, path, self.env.clone())))
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_path(path)?;
        let name = path.to_owned();
        self.blocking(path, "put", move |root| root.put_if_absent(&name, &content))
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        let name = prefix.to_owned();
        self.blocking(prefix, "list", move |root| root.list(&name)).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        let name = path.to_owned();
        self.blocking(path, "delete", move |root| root.delete(&name)).await
    }

    async fn delete_all(&self, paths: &[String]) -> Result<()> {
        paths.iter().try_for_each(|path| check_path(path))?;
        let Some(first) = paths.first() else { return Ok(()) };
        let names = paths.to_vec();
        self.blocking(first, "delete", move |root| root.delete_all(&names))
            .await
    }

    async fn discard(&self, path: &str) -> Result<()> {
        check_path(path)?;
        let name = path.to_owned();
        self.blocking(path, "delete", move |root| root.discard(&name)).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        check_path(path)?;
        let name = path.to_owned();
        self.blocking(path, "sync", move |root| root.sync_file(&name)).await
    }

    async fn inherit(&self) -> Result<bool> {
        self.blocking("", "sync all", |root| root.sync_all()).await?;
        Ok(true)
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        let free = self.blocking("", "statvfs", |root| root.free_bytes()).await?;
        Ok(Some(free.saturating_sub(self.options.reserve_bytes)))
    }
}

#[cfg(test)]
mod tests;
