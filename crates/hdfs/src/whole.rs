//! Files that do not grow are one HDFS file each. A file is written as a stream and closed by its first `sync`.
//!
//! Until then the file is visible under its name with a part of its content. No manifest refers to such a file, and the
//! next owner deletes it as an orphan.

use crate::client::FileWriter;
use crate::located::Located;
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::remote::cache::Object;
use stele_storage::{AppendFile, ReadFile, Result, StorageError, check_range};

/// Begins a file; `AlreadyExists` when it exists.
pub(crate) async fn create(shared: &Arc<Shared>, path: &str) -> Result<WholeAppend> {
    let writer = shared.cluster.create(path, true).await?;
    Ok(WholeAppend {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        state: State::Open(writer),
        len: 0,
    })
}

enum State {
    /// Takes bytes.
    Open(Box<dyn FileWriter>),
    /// Complete.
    Finished,
    /// An operation failed or was abandoned.
    Broken,
}

pub(crate) struct WholeAppend {
    shared: Arc<Shared>,
    path: String,
    state: State,
    len: u64,
}

impl WholeAppend {
    /// Takes the writer; an operation that succeeds gives it back.
    fn take(&mut self, operation: &'static str) -> Result<Box<dyn FileWriter>> {
        self.shared.fence.check(&self.path)?;
        let message = match std::mem::replace(&mut self.state, State::Broken) {
            State::Open(writer) => return Ok(writer),
            State::Finished => {
                self.state = State::Finished;
                "refused, because the file was finished by its first sync"
            }
            State::Broken => "refused, because an earlier write of this file failed or was abandoned",
        };
        Err(StorageError::Io {
            path: self.path.clone(),
            operation,
            message: message.to_owned(),
        })
    }
}

#[async_trait]
impl AppendFile for WholeAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        let mut writer = self.take("append")?;
        self.shared.cluster.write(&self.path, &mut *writer, slices).await?;
        self.len += slices.iter().map(Bytes::len).sum::<usize>() as u64;
        assert!(matches!(self.state, State::Broken), "an operation owns the stream");
        self.state = State::Open(writer);
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        if matches!(self.state, State::Finished) {
            return self.shared.fence.check(&self.path);
        }
        let mut writer = self.take("sync")?;
        self.shared.cluster.close(&self.path, &mut *writer).await?;
        assert!(matches!(self.state, State::Broken), "a file is finished once");
        self.state = State::Finished;
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for WholeAppend {
    /// Closes an unfinished file: it is useless, but its pipeline would stay as long as the process.
    fn drop(&mut self) {
        if let State::Open(mut writer) = std::mem::replace(&mut self.state, State::Broken) {
            let (cluster, path) = (self.shared.cluster.clone(), self.path.clone());
            self.shared.env.spawn("hdfs file given up", async move {
                // It may have been deleted in the meantime; otherwise the next owner deletes it.
                let _ = cluster.close(&path, &mut *writer).await;
            });
        }
    }
}

/// Opens a file with two NameNode calls.
pub(crate) async fn open(shared: &Arc<Shared>, path: &str) -> Result<WholeRead> {
    let status = shared.cluster.file_status(path).await?;
    Ok(WholeRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        file: Located::open(&shared.cluster, path, status.len).await?,
        tag: format!("{:x}", status.modified_millis),
    })
}

pub(crate) struct WholeRead {
    shared: Arc<Shared>,
    path: String,
    file: Located,
    /// Distinguishes this file from another one that had its path.
    tag: String,
}

impl WholeRead {
    fn object(&self) -> Object<'_> {
        Object {
            path: &self.path,
            tag: &self.tag,
            len: self.file.len(),
        }
    }
}

#[async_trait]
impl ReadFile for WholeRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        check_range(&self.path, offset, len, self.file.len())?;
        let cache = &self.shared.cache;
        cache.read(&self.file, self.object(), offset, len).await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        if let Err(error) = check_range(&self.path, offset, len, self.file.len()) {
            return Some(Err(error));
        }
        let cache = &self.shared.cache;
        cache.try_read(&self.file, self.object(), offset, len).map(Ok)
    }

    fn around(&self, offset: u64) -> Option<(u64, Bytes)> {
        self.shared.cache.around(self.object(), offset)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        &self.path
    }
}
