//! A finished file with the places of its blocks, for any number of readers.
//!
//! Blocks move, and DataNodes die. A failed read is retried: first with the knowledge that the client gained from the
//! failure, then with block places from a new request.

use crate::client::FileReader;
use crate::cluster::Cluster;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_storage::remote::cache::Source;
use stele_storage::{Result, StorageError};

/// Attempts at reading bytes that may be lost.
const PROBES: u32 = 3;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Located {
    cluster: Cluster,
    key: Arc<str>,
    len: u64,
    /// Replaced as a whole; held only to clone it.
    reader: Arc<Mutex<Arc<dyn FileReader>>>,
}

impl Located {
    /// Opens a finished file, `len` bytes long by its directory entry. While a file is written, the places do not cover
    /// its last block: acknowledged bytes would seem missing, so that is an error.
    pub(crate) async fn open(cluster: &Cluster, key: &str, len: u64) -> Result<Located> {
        let reader = finished(cluster, key, len).await?;
        Ok(Located {
            cluster: cluster.clone(),
            key: key.into(),
            len,
            reader: Arc::new(Mutex::new(reader)),
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads bytes within the file.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        stele_storage::check_range(&self.key, offset, len, self.len)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let mut failed = 0;
        loop {
            let reader = Arc::clone(&self.reader.lock());
            let fault = match self.cluster.read(&*reader, offset, len).await {
                Ok(bytes) if bytes.len() == len => return Ok(bytes),
                Ok(bytes) => crate::fault::Fault::Unknown(format!("{} of {len} bytes from {offset} came", bytes.len())),
                Err(fault) => fault,
            };
            failed += 1;
            if !self.cluster.pause(failed).await {
                return Err(fault.on(&self.key, "read"));
            }

            if failed > 1 {
                let reader = finished(&self.cluster, &self.key, self.len).await?;
                *self.reader.lock() = reader;
            }
        }
    }
}

/// Whether bytes within a finished file can be read, by a few attempts of which each asks for the places of its blocks.
pub(crate) async fn is_readable(cluster: &Cluster, key: &str, len: u64, (offset, count): (u64, usize)) -> Result<bool> {
    stele_storage::check_range(key, offset, count, len)?;
    assert!(count > 0, "nothing can always be read");
    let mut failed = 0;
    loop {
        let reader = finished(cluster, key, len).await?;
        match cluster.read(&*reader, offset, count).await {
            Ok(bytes) if bytes.len() == count => return Ok(true),
            _ => failed += 1,
        }
        if failed == PROBES || !cluster.pause(failed).await {
            return Ok(false);
        }
    }
}

async fn finished(cluster: &Cluster, key: &str, len: u64) -> Result<Arc<dyn FileReader>> {
    let reader = cluster.open(key).await?;
    if reader.length() == len {
        Ok(Arc::from(reader))
    } else {
        Err(StorageError::Io {
            path: key.to_owned(),
            operation: "open",
            message: format!(
                "the file is still being written: {} of {len} bytes are in finished blocks",
                reader.length()
            ),
        })
    }
}

#[async_trait]
impl Source for Located {
    async fn fetch(&self, _path: &str, offset: u64, len: usize) -> Result<Bytes> {
        self.read(offset, len).await
    }

    fn count(&self, found: bool) {
        if found {
            self.cluster.metrics.chunk_hits.inc()
        } else {
            self.cluster.metrics.chunk_misses.inc()
        }
    }
}
