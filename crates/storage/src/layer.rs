//! A storage over another one that differs from it in a few calls.

use crate::{AppendFile, FileInfo, ReadFile, Result, Storage};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// A storage whose calls go to another one, those excepted that it implements itself. It is a [`Storage`].
///
/// The variants of a call, such as `open_known` and `delete_all`, go through the basic calls of the layer, so that these see every
/// file.
#[async_trait]
pub trait Layer: Send + Sync + 'static {
    /// The other storage.
    fn below(&self) -> &dyn Storage;

    /// See [`Storage::create`].
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.below().create(path).await
    }

    /// See [`Storage::open`].
    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.below().open(path).await
    }

    /// See [`Storage::put_if_absent`].
    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        self.below().put_if_absent(path, content).await
    }

    /// See [`Storage::list`].
    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.below().list(prefix).await
    }

    /// See [`Storage::delete`].
    async fn delete(&self, path: &str) -> Result<()> {
        self.below().delete(path).await
    }

    /// See [`Storage::sync_file`].
    async fn sync_file(&self, path: &str) -> Result<()> {
        self.below().sync_file(path).await
    }

    /// See [`Storage::inherit`].
    async fn inherit(&self) -> Result<bool> {
        self.below().inherit().await
    }

    /// See [`Storage::free_bytes`].
    async fn free_bytes(&self) -> Result<Option<u64>> {
        self.below().free_bytes().await
    }

    /// See [`Storage::keeps_appends`].
    fn keeps_appends(&self) -> bool {
        self.below().keeps_appends()
    }

    /// See [`Storage::owner_epoch`].
    fn owner_epoch(&self) -> Option<u64> {
        self.below().owner_epoch()
    }

    /// See [`Storage::confirm_owner`].
    async fn confirm_owner(&self) -> Result<()> {
        self.below().confirm_owner().await
    }
}

#[async_trait]
impl<L: Layer> Storage for L {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        Layer::create(self, path).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        Layer::open(self, path).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        Layer::put_if_absent(self, path, content).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        Layer::list(self, prefix).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        Layer::delete(self, path).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        Layer::sync_file(self, path).await
    }

    async fn inherit(&self) -> Result<bool> {
        Layer::inherit(self).await
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        Layer::free_bytes(self).await
    }

    fn keeps_appends(&self) -> bool {
        Layer::keeps_appends(self)
    }

    fn owner_epoch(&self) -> Option<u64> {
        Layer::owner_epoch(self)
    }

    async fn confirm_owner(&self) -> Result<()> {
        Layer::confirm_owner(self).await
    }
}
