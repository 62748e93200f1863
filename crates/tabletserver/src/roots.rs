//! The storages of a server that shares its data with others.
//!
//! Each server writes a log of its own, below a root with an owner of its own ([`stele_storage::servers`]). The log of a
//! server that was given up passes through these steps, in this order:
//!
//! 1. *Sealed*: another process becomes the owner of the log root. From then on the server acknowledges no logged write.
//! 2. *Settled* ([`settle_log`]): segments that do not count are deleted, and the others are durable.
//! 3. *Read* by each server that takes up a tablet with records in it.
//! 4. *Deleted* ([`delete_log`]), when no tablet needs it. Where the storage keeps seals, they stay: the server may still
//!    run.

use crate::error::ServerError;
use crate::recovery::delete_dropped;
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::ServiceResult;
use stele_commitlog::{LogError, independent_bytes, replay};
use stele_storage::Storage;
use stele_types::ServerId;

/// The storages of a server that shares its data.
#[derive(Clone)]
pub struct SharedRoots {
    /// Tablets, sstables and value files of all servers.
    pub data: Arc<dyn Storage>,
    /// The root of this server's log, which this process owns.
    pub log: Arc<dyn Storage>,
    /// The logs of other servers.
    pub sealed: Arc<dyn SealedLogs>,
    /// Keep the times of logs that are archived in the order of writes; `None` where no log is archived.
    pub moments: Option<Arc<dyn Moments>>,
}

/// Finds the logs of servers that were given up.
#[async_trait]
pub trait SealedLogs: Send + Sync + 'static {
    /// The root of a server's log, for reading. The caller knows that the log is sealed and settled.
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>>;
}

/// Moments that all servers know, in wall-clock microseconds.
///
/// The clocks of two servers differ, and a tablet moves between them. So that its later records have no earlier times, a server notes a
/// moment before a tablet leaves it, and the next one moves its clock to the noted moment before it serves the tablet.
#[async_trait]
pub trait Moments: Send + Sync + 'static {
    /// The newest moment that any server has noted.
    async fn noted(&self) -> ServiceResult<i64>;

    /// Notes a moment, unless a newer one is noted.
    async fn note(&self, micros: i64) -> ServiceResult<()>;
}

/// Settles a log of which the caller has become the owner; its bytes. It may be repeated.
pub async fn settle_log(log: &dyn Storage) -> Result<u64, ServerError> {
    // Tablets wait meanwhile. Where every group is synced no segment depends on another one, and none is read.
    let bytes = match independent_bytes(log).await? {
        Some(bytes) => bytes,
        None => {
            let report = replay::<LogError>(log, |_| Ok(())).await?;
            assert!(
                report.bytes >= report.segments.iter().map(|(_, _, segment)| segment.len).sum(),
                "segments that count are a part of the log"
            );
            delete_dropped(log, &report.dropped).await?;
            for (_, _, segment) in &report.segments {
                log.sync_file(&segment.path).await?;
            }
            report.bytes
        }
    };
    // Yet another owner would settle it as well, but may have deleted it since.
    log.confirm_owner().await?;
    Ok(bytes)
}

/// Deletes a log that no tablet needs, and of which the caller is the owner; the number of its segments. It may be repeated.
pub async fn delete_log(log: &dyn Storage) -> Result<usize, ServerError> {
    let segments = log.list("log/").await?;
    log.confirm_owner().await?;
    let paths: Vec<String> = segments.into_iter().map(|segment| segment.path).collect();
    log.delete_all(&paths).await?;
    Ok(paths.len())
}
