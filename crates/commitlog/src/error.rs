//! The errors of the commit log, and the kind of each.

use std::sync::Arc;
use stele_storage::StorageError;
use stele_types::ErrorKind;

/// An error of the log. Cheap to clone: one failed group answers all its writers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Acknowledged bytes are damaged.
    #[error("{path}: damaged at offset {offset}: {detail}")]
    Corruption {
        /// The segment.
        path: Arc<str>,
        /// The offset in it.
        offset: u64,
        /// The expected and the found content.
        detail: String,
    },
    /// The segment was written by a newer version.
    #[error("{path}: log format {found}, this version reads up to {supported}")]
    TooNew {
        /// The segment.
        path: Arc<str>,
        /// Its version.
        found: u32,
        /// The newest this binary knows.
        supported: u32,
    },
    /// The record is larger than the format allows.
    #[error("a log record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Its body.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The storage failed.
    #[error("commit log: {0}")]
    Storage(#[from] StorageError),
    /// The stream has been closed.
    #[error("the commit log is closed")]
    Closed,
}

impl LogError {
    /// The kind, which tells a caller how to act on it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogError::Corruption { .. } => ErrorKind::Corruption,
            LogError::TooNew { .. } => ErrorKind::FailedPrecondition,
            LogError::TooLarge { .. } => ErrorKind::InvalidArgument,
            LogError::Storage(e) => e.kind(),
            LogError::Closed => ErrorKind::Unavailable,
        }
    }
}

/// Whether an error means that the storage is full.
pub fn is_no_space(error: &LogError) -> bool {
    matches!(error, LogError::Storage(StorageError::NoSpace { .. }))
}
