//! The errors of coordination, and the kind of each.

use crate::session_id::SessionId;
use stele_storage::StorageError;
use stele_types::ErrorKind;

/// Result of a coordination operation.
pub type Result<T> = std::result::Result<T, CoordError>;

/// An error of a coordination operation.
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
    /// Concurrent changes won every time.
    #[error("{key}: gave up after {attempts} attempts against concurrent changes")]
    Contended {
        /// The key fought over.
        key: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// A stored value is not one that its owner writes.
    #[error("{key}: expected {expected}, found {found}")]
    BadValue {
        /// The key.
        key: String,
        /// The expected content.
        expected: &'static str,
        /// The found content.
        found: String,
    },
    /// A file is not as it was written.
    #[error("{file} at byte {offset}: expected {expected}, found {found}")]
    Corruption {
        /// Storage path.
        file: String,
        /// The offset in it.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The found content.
        found: String,
    },
    /// Another owner writes the same coordination files; this object is of no further use.
    #[error("{file} was written by another owner of this data")]
    Fenced {
        /// The file that should not have been there.
        file: String,
    },
    /// The service that coordinates cannot be reached, or does not answer. Nothing happened.
    #[error("coordination is not available: {message}")]
    Unavailable {
        /// The reason.
        message: String,
    },
    /// The service that coordinates was asked and did not answer.
    #[error("the outcome of a transaction is unknown: {message}")]
    OutcomeUnknown {
        /// The reason.
        message: String,
    },
    /// The service that coordinates does not allow this.
    #[error("coordination is denied: {message}")]
    Denied {
        /// The reason.
        message: String,
    },
    /// The storage failed.
    #[error("coordination: {0}")]
    Storage(#[from] StorageError),
    /// The coordinator was shut down.
    #[error("coordination is shut down")]
    Closed,
}

impl CoordError {
    /// The kind, which tells a caller how to act on it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CoordError::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            CoordError::Full { .. } => ErrorKind::ResourceExhausted,
            CoordError::SessionEnded { .. } | CoordError::Fenced { .. } => ErrorKind::FailedPrecondition,
            CoordError::Contended { .. } => ErrorKind::Busy,
            CoordError::BadValue { .. } | CoordError::Corruption { .. } => ErrorKind::Corruption,
            CoordError::Storage(error) => match error.kind() {
                kind @ (ErrorKind::ResourceExhausted | ErrorKind::Corruption) => kind,
                // A missing or colliding file says nothing about keys.
                _ => ErrorKind::Internal,
            },
            CoordError::Closed | CoordError::Unavailable { .. } => ErrorKind::Unavailable,
            // A change that may have happened must not be repeated blindly, as a call that was `Unavailable` is.
            CoordError::OutcomeUnknown { .. } => ErrorKind::Aborted,
            CoordError::Denied { .. } => ErrorKind::PermissionDenied,
        }
    }

    /// Whether the transaction that ended so may have happened, or may yet, until another one succeeds.
    pub fn is_ambiguous(&self) -> bool {
        matches!(
            self,
            CoordError::Storage(_) | CoordError::Fenced { .. } | CoordError::OutcomeUnknown { .. }
        )
    }
}
