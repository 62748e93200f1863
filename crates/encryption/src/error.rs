//! Failures of encryption, and how the storage layer above sees them.

use crate::service::KeyError;
use stele_storage::StorageError;
use stele_types::ErrorKind;

/// A failure with the keys of a data root.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The storage below failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A data key cannot be wrapped or unwrapped.
    #[error("{path}: {error}")]
    Key {
        /// The file of the data key.
        path: String,
        /// The cause.
        error: KeyError,
    },
    /// The file of a data key is damaged.
    #[error("{path}: the file of a data key is damaged: {detail}")]
    Damaged {
        /// The file.
        path: String,
        /// Description of the damage.
        detail: String,
    },
    /// A data key is gone.
    #[error("{path}: the data key is missing, and the files that are encrypted with it cannot be read")]
    Missing {
        /// The beginning of its path.
        path: String,
    },
    /// A data key is gone that files are encrypted with. Another one in its place would keep it from being restored.
    #[error("{path}: the data key is missing; no other one is made, because files are encrypted with it: restore it")]
    Needed {
        /// The beginning of its path.
        path: String,
    },
}

impl EncryptionError {
    /// Whether it is the state of one data key, which says nothing about others: its files are as good as lost until the key is
    /// restored. Settings and networks are the same for all keys.
    pub(crate) fn is_of_one_key(&self) -> bool {
        match self {
            EncryptionError::Storage(error) => error.kind() == ErrorKind::Corruption,
            EncryptionError::Key { error, .. } => matches!(error, KeyError::Refused { .. }),
            EncryptionError::Damaged { .. } | EncryptionError::Missing { .. } | EncryptionError::Needed { .. } => true,
        }
    }

    /// Whether the content of a file of a key is damaged. Another file of the key may help.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            EncryptionError::Storage(error) => error.kind() == ErrorKind::Corruption,
            EncryptionError::Damaged { .. } => true,
            EncryptionError::Key { .. } | EncryptionError::Missing { .. } | EncryptionError::Needed { .. } => false,
        }
    }

    /// The failure of an operation on a file that needed the key.
    pub(crate) fn into_storage(self) -> StorageError {
        match self {
            // Another server may rotate the keys: it says nothing about the file that needs one.
            EncryptionError::Storage(StorageError::NotFound { path }) => StorageError::Io {
                path,
                operation: "data key",
                message: "the file of a data key went while it was read".to_owned(),
            },
            EncryptionError::Storage(error) => error,
            EncryptionError::Damaged { path, .. } => StorageError::Lost {
                path,
                detail: "the file of a data key is damaged",
            },
            EncryptionError::Missing { path } => StorageError::Lost {
                path,
                detail: "the data key is missing",
            },
            EncryptionError::Needed { path } => StorageError::Lost {
                path,
                detail: "the data key is missing, and no other one is made: restore it",
            },
            EncryptionError::Key {
                path,
                error: KeyError::Refused { .. },
            } => StorageError::Lost {
                path,
                detail: "the key service refuses the data key",
            },
            // The key may be there with other settings, so the data are not lost.
            EncryptionError::Key { path, error } => StorageError::Io {
                path,
                operation: "data key",
                message: error.to_string(),
            },
        }
    }
}
