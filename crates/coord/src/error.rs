//! What can go wrong with coordination.

use crate::session::SessionId;
use stele_storage::StorageError;
use stele_types::ErrorKind;

/// Result of a coordination operation.
pub type Result<T> = std::result::Result<T, CoordError>;

/// What a caller can tell apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordError {
    /// A limit or rule is broken; the same call never succeeds.
    #[error("{message}")]
    InvalidArgument {
        /// Which one, with numbers.
        message: String,
    },
    /// A limit on everything together is reached.
    #[error("coordination is full: {message}")]
    Full {
        /// Which one, with numbers.
        message: String,
    },
    /// The session has ended; its keys are gone or about to go.
    #[error("session {session} has ended")]
    SessionEnded {
        /// Which session.
        session: SessionId,
    },
    /// Others were faster every time.
    #[error("{key}: gave up after {attempts} attempts against concurrent changes")]
    Contended {
        /// The key fought over.
        key: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// A stored value is not what its owner writes.
    #[error("{key}: expected {expected}, found {found}")]
    BadValue {
        /// The key.
        key: String,
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A file is not as it was written.
    #[error("{file} at byte {offset}: expected {expected}, found {found}")]
    Corruption {
        /// Storage path.
        file: String,
        /// Where in it.
        offset: u64,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Somebody else writes the same coordination files; this object has become useless.
    #[error("{file} was written by another owner of this data")]
    Fenced {
        /// The file that should not have been there.
        file: String,
    },
    /// The medium failed.
    #[error("coordination: {0}")]
    Storage(#[from] StorageError),
    /// The coordinator was shut down.
    #[error("coordination is shut down")]
    Closed,
}

impl CoordError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CoordError::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            CoordError::Full { .. } => ErrorKind::ResourceExhausted,
            CoordError::SessionEnded { .. } | CoordError::Fenced { .. } => ErrorKind::FailedPrecondition,
            CoordError::Contended { .. } => ErrorKind::Busy,
            CoordError::BadValue { .. } | CoordError::Corruption { .. } => ErrorKind::Corruption,
            CoordError::Storage(error) => match error.kind() {
                kind @ (ErrorKind::ResourceExhausted | ErrorKind::Corruption) => kind,
                // That a file of ours is missing or taken is no answer to a question about keys.
                _ => ErrorKind::Internal,
            },
            CoordError::Closed => ErrorKind::Unavailable,
        }
    }

    /// Whether the transaction that ended so may have happened, or may yet, until another one succeeds.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, CoordError::Storage(_) | CoordError::Fenced { .. })
    }
}
