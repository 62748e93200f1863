//! A directory of HDFS whose files may be read.

use crate::HdfsMetrics;
use crate::address::HdfsAddress;
use crate::cluster::Cluster;
use crate::located::Located;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::foreign::{ForeignRoot, below};
use stele_storage::{ReadFile, Result, StorageError, check_range};

/// The directory of an address.
pub struct ForeignDirectory {
    address: HdfsAddress,
    cluster: Cluster,
}

impl ForeignDirectory {
    /// Files below an address. Connects at the first one.
    pub fn new(address: &HdfsAddress, env: Env) -> std::result::Result<ForeignDirectory, StorageError> {
        Ok(ForeignDirectory {
            cluster: address.cluster(env, HdfsMetrics::default())?,
            address: address.clone(),
        })
    }
}

#[async_trait]
impl ForeignRoot for ForeignDirectory {
    fn path_of<'u>(&self, url: &'u str) -> Option<&'u str> {
        let own = self.address.authority().to_ascii_lowercase();
        below(url, self.address.root(), |scheme, authority| {
            scheme == "hdfs" && authority == own
        })
    }

    async fn open(&self, path: &str, url: &str) -> Result<Arc<dyn ReadFile>> {
        let status = self.cluster.file_status(path).await?;
        Ok(Arc::new(ForeignFile {
            file: Located::open(&self.cluster, path, status.len).await?,
            url: url.to_owned(),
        }))
    }
}

/// A file that is read without a cache: each byte is read once.
struct ForeignFile {
    file: Located,
    url: String,
}

#[async_trait]
impl ReadFile for ForeignFile {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(&self.url, offset, len, self.len())?;
        let bytes = self.file.read(offset, len).await?;
        assert_eq!(bytes.len(), len, "a range within a file is read whole");
        Ok(bytes)
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        check_range(&self.url, offset, len, self.len()).err().map(Err)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        &self.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn urls_name_the_cluster_and_the_directory() {
        let address = HdfsAddress::parse("hdfs://NameNode:8020/stage", &[]).unwrap();
        let root = ForeignDirectory::new(&address, TokioRuntime::current()).unwrap();
        assert_eq!(root.path_of("hdfs://namenode:8020/stage/cf/f"), Some("cf/f"));
        for other in [
            "hdfs://namenode:9000/stage/f",
            "hdfs:///stage/f",
            "hdfs://namenode:8020/other/f",
        ] {
            assert_eq!(root.path_of(other), None);
        }
    }
}
