//! Errors for front ends have a kind and a message. A front end maps the kind to its protocol's code; the message is a
//! sentence for people.

use stele_types::ErrorKind;

/// Result of a service call.
pub type ServiceResult<T> = Result<T, ServiceError>;

/// The failure, in words that a client may be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    /// The kind of the error, by the reaction that a caller has.
    pub kind: ErrorKind,
    /// One sentence, without internals.
    pub message: String,
}

impl ServiceError {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ServiceError {
            kind,
            message: message.into(),
        }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// The named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Whether the same request may succeed later without anybody acting.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}
