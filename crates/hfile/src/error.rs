//! Errors of reading a file.

use std::borrow::Cow;
use stele_storage::StorageError;
use stele_types::ErrorKind;

/// Result of reading a file.
pub type Result<T> = std::result::Result<T, HFileError>;

/// A failure, with the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HFileError {
    /// The content is not as the format says.
    #[error("{path}: damaged at offset {offset}: {detail}")]
    Corrupt {
        /// The file.
        path: String,
        /// Of the block, or of the trailer.
        offset: u64,
        /// The violation.
        detail: Cow<'static, str>,
    },
    /// The file uses something that this reader does not know.
    #[error("{path}: {detail}")]
    Unsupported {
        /// The file.
        path: String,
        /// The feature.
        detail: String,
    },
    /// There is no memory for a block at the moment.
    #[error("{path}: no memory for a block of {bytes} bytes")]
    NoMemory {
        /// The file.
        path: String,
        /// Bytes that the block takes.
        bytes: usize,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl HFileError {
    /// The class of the failure for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HFileError::Corrupt { .. } => ErrorKind::InvalidArgument,
            HFileError::Unsupported { .. } => ErrorKind::Unimplemented,
            HFileError::NoMemory { .. } => ErrorKind::Busy,
            HFileError::Storage(error) => error.kind(),
        }
    }
}

/// A violation of the format, without its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) Cow<'static, str>);

/// Result of a decoder.
pub(crate) type Decoded<T> = std::result::Result<T, Malformed>;

impl Malformed {
    pub(crate) fn new<T>(detail: impl Into<Cow<'static, str>>) -> Decoded<T> {
        Err(Malformed(detail.into()))
    }

    /// The error for a caller.
    pub(crate) fn at(self, path: &str, offset: u64) -> HFileError {
        HFileError::Corrupt {
            path: path.to_owned(),
            offset,
            detail: self.0,
        }
    }
}
