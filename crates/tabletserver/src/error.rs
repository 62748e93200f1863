//! Errors of the layers below, mapped to those of the service interface.

use stele_client::ServiceError;
use stele_commitlog::LogError;
use stele_storage::StorageError;
use stele_tablet::TabletError;
use stele_types::{ErrorKind, SnapshotId, TabletId};

/// The tablet is not served here: nothing has happened, look it up again.
pub fn not_here(tablet: TabletId) -> ServiceError {
    ServiceError::new(ErrorKind::Unavailable, format!("tablet {tablet} is not served here"))
}

/// A tablet's error.
pub fn from_tablet(error: TabletError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

/// The commit log's error. A failed record may still turn up after a crash, so the error is no `Unavailable`. One with the kind `Busy`
/// does not: the storage has refused it for the time of this machine.
pub fn from_log(error: LogError) -> ServiceError {
    let kind = match error.kind() {
        ErrorKind::Unavailable => ErrorKind::Aborted,
        kind => kind,
    };
    ServiceError::new(kind, error.to_string())
}

/// Why a server could not start or stop.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// The coordinator or the catalog failed.
    #[error("{0}")]
    Catalog(#[from] stele_catalog::CatalogError),
    /// A tablet failed.
    #[error("tablet {tablet}: {error}")]
    Tablet {
        /// Which.
        tablet: TabletId,
        /// Why.
        error: TabletError,
    },
    /// The files of a snapshot cannot be used.
    #[error("snapshot {snapshot}: {error}")]
    Snapshot {
        /// Which.
        snapshot: SnapshotId,
        /// Why.
        error: TabletError,
    },
    /// The commit log failed.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The storage failed.
    #[error("{0}")]
    Storage(#[from] StorageError),
}

impl ServerError {
    /// The class of the failure for a caller that asked a running server for something.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ServerError::Catalog(error) => error.kind(),
            ServerError::Tablet { error, .. } | ServerError::Snapshot { error, .. } => error.kind(),
            ServerError::Log(error) => error.kind(),
            ServerError::Storage(error) => error.kind(),
        }
    }
}
