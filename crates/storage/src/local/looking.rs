//! A read-only view of a data root. On a failing disk, or one mounted read-only, nothing may be written, and a command
//! that promises to change nothing must not be able to.

use super::LocalStorage;
use crate::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Looking(pub(super) LocalStorage);

fn refused<T>(path: &str, operation: &'static str) -> Result<T> {
    Err(StorageError::Io {
        path: path.to_owned(),
        operation,
        message: "opened read-only".to_owned(),
    })
}

#[async_trait]
impl Storage for Looking {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        refused(path, "create")
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.0.open(path).await
    }

    async fn put_if_absent(&self, path: &str, _: Bytes) -> Result<()> {
        refused(path, "put")
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        self.0.list(prefix).await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        refused(path, "delete")
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        refused(path, "sync")
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        self.0.free_bytes().await
    }
}
