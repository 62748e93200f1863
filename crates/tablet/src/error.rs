//! Errors of a tablet.

use std::sync::Arc;
use stele_sstable::SstableError;
use stele_storage::StorageError;
use stele_types::{ErrorKind, TabletId};

/// Result of a tablet operation.
pub type Result<T> = std::result::Result<T, TabletError>;

/// The failure that an operation reports.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TabletError {
    /// Stored bytes differ from those that were written.
    #[error("{path}: damaged: {detail}")]
    Corruption {
        /// The file.
        path: Arc<str>,
        /// The expected and the found content.
        detail: String,
    },
    /// A file was written by a newer version.
    #[error("{path}: format {found}, this version reads up to {supported}")]
    TooNew {
        /// The file.
        path: Arc<str>,
        /// Its version.
        found: u32,
        /// The newest this binary knows.
        supported: u32,
    },
    /// Another owner has taken the tablet.
    #[error("tablet {tablet} is owned by a newer epoch")]
    Fenced {
        /// Which tablet.
        tablet: TabletId,
    },
    /// The tablet was closed, split or dropped.
    #[error("tablet {tablet} is closed")]
    Closed {
        /// Which tablet.
        tablet: TabletId,
    },
    /// The tablet would have more files, or more parts of files, than can be read back. Nothing has changed; compactions make
    /// them fewer.
    #[error(
        "tablet {tablet} would be described by {bytes} bytes, at most {limit} are allowed: retry when it is compacted"
    )]
    ManifestTooLarge {
        /// Which tablet.
        tablet: TabletId,
        /// Bytes of the description.
        bytes: usize,
        /// The limit of these bytes.
        limit: usize,
    },
    /// The row is larger than a read will assemble.
    #[error("a row of more than {limit} bytes cannot be read in full; its key begins with {row_start:?}")]
    RowTooLarge {
        /// The first bytes of the row key, escaped.
        row_start: String,
        /// The limit.
        limit: usize,
    },
    /// The row takes more memory than was reserved for the read. No part of it has been returned: the same call returns
    /// the row once more memory is reserved.
    #[error("a row takes {bytes} bytes of memory and more, which is more than its reservation")]
    NeedsMemory {
        /// Bytes found so far.
        bytes: usize,
    },
    /// The server cannot do it now.
    #[error("{detail}: retry later")]
    Busy {
        /// The resource that is exhausted.
        detail: &'static str,
    },
    /// Cells that were to be added are not sorted, or larger than cells may be.
    #[error("{detail}")]
    NotAddable {
        /// The violation.
        detail: String,
    },
    /// A row that was to be added is not one of the tablet.
    #[error("tablet {tablet} does not have the row \"{row}\"")]
    OtherRow {
        /// Which tablet.
        tablet: TabletId,
        /// The row, escaped.
        row: String,
    },
    /// A filter refused the row.
    #[error("{0}")]
    Filter(#[from] stele_filter::FilterError),
    /// An sstable failed.
    #[error(transparent)]
    Sstable(#[from] SstableError),
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl TabletError {
    /// The kind of error, which tells a caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TabletError::Corruption { .. } => ErrorKind::Corruption,
            TabletError::TooNew { .. } | TabletError::RowTooLarge { .. } => ErrorKind::FailedPrecondition,
            TabletError::Fenced { .. } | TabletError::Closed { .. } => ErrorKind::Unavailable,
            TabletError::Busy { .. } => ErrorKind::Busy,
            TabletError::NotAddable { .. } => ErrorKind::InvalidArgument,
            TabletError::OtherRow { .. } => ErrorKind::FailedPrecondition,
            TabletError::NeedsMemory { .. } | TabletError::ManifestTooLarge { .. } => ErrorKind::ResourceExhausted,
            TabletError::Filter(e) => e.kind(),
            TabletError::Sstable(e) => e.kind(),
            TabletError::Storage(e) => e.kind(),
        }
    }
}
