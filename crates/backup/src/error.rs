//! Errors of backups.

use stele_catalog::CatalogError;
use stele_client::ServiceError;
use stele_sstable::SstableError;
use stele_storage::StorageError;
use stele_tablet::TabletError;
use stele_types::ErrorKind;

/// Result of an operation on backups.
pub type Result<T> = std::result::Result<T, BackupError>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The storage of the destination failed.
    #[error("destination: {0}")]
    Destination(StorageError),
    /// The storage of the server's data failed.
    #[error("data: {0}")]
    Data(StorageError),
    /// A file is damaged, or its storage failed.
    #[error(transparent)]
    Tablet(#[from] TabletError),
    /// The same of an sstable.
    #[error(transparent)]
    Sstable(#[from] SstableError),
    /// A document of the destination is damaged, or of a later version.
    #[error("destination: {0}")]
    Document(TabletError),
    /// A file of the destination is damaged.
    #[error("destination: {path}: {detail}")]
    Damaged {
        /// Which file.
        path: String,
        /// The damage.
        detail: String,
    },
    /// The storage of the archive of logs failed.
    #[error("archive: {0}")]
    Archive(StorageError),
    /// A document of the archive is damaged, or of a later version.
    #[error("archive: {0}")]
    ArchiveDocument(TabletError),
    /// A file of the archive is damaged or missing.
    #[error("archive: {path}: {detail}")]
    ArchiveDamaged {
        /// Which file.
        path: String,
        /// The damage.
        detail: String,
    },
    /// A moment cannot be restored.
    #[error("{0}")]
    Moment(String),
    /// The log comes faster than the archive takes it.
    #[error("archive: it is too slow: the log comes faster than it is copied")]
    ArchiveTooSlow,
    /// Another server archives its log there.
    #[error("archive: another server (epoch {0}) archives its log there")]
    OtherArchiver(u32),
    /// There is no backup of this name.
    #[error("there is no backup {0} at the destination")]
    NoBackup(String),
    /// The name is taken.
    #[error("there is a backup {0} at the destination already")]
    Exists(String),
    /// The backup is not complete.
    #[error("backup {0} is not complete: create it once more, or delete it")]
    Unfinished(String),
    /// The digests of rows were not noted.
    #[error("backup {0} has no digests of rows: it was made without --digest")]
    NoDigests(String),
    /// A table of the name was begun by another restore.
    #[error(
        "table {0} exists already, unfinished by another restore: give the order of that one again, or delete the table"
    )]
    OtherRestore(String),
    /// Another root is making a backup of this name.
    #[error("another server has begun a backup {0} at the destination and has not completed it")]
    OfAnother(String),
    /// The backup was deleted while it was made.
    #[error("backup {0} was deleted while it was made")]
    DeletedMeanwhile(String),
    /// The backup has no table of this name.
    #[error("backup {backup} has no table {table}")]
    NoTable {
        /// Which backup.
        backup: String,
        /// The table asked for.
        table: String,
    },
    /// Something is larger than the format allows.
    #[error("{0}")]
    TooMuch(String),
    /// Other writers of the destination were faster, again and again.
    #[error("destination: its state changes all the time; try again later")]
    Contended,
    /// The order is not a sound one.
    #[error("{0}")]
    Invalid(String),
    /// The catalog refused a change, or failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The server refused a call, or failed.
    #[error("{}", .0.message)]
    Service(#[from] ServiceError),
    /// The client has called the work off, or the server stops.
    #[error("cancelled")]
    Cancelled,
}

impl BackupError {
    /// The class of the failure for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BackupError::Destination(error) | BackupError::Data(error) | BackupError::Archive(error) => error.kind(),
            BackupError::Tablet(error) | BackupError::Document(error) | BackupError::ArchiveDocument(error) => {
                error.kind()
            }
            BackupError::Sstable(error) => error.kind(),
            BackupError::Damaged { .. } | BackupError::ArchiveDamaged { .. } => ErrorKind::Corruption,
            BackupError::NoBackup(_) | BackupError::NoTable { .. } => ErrorKind::NotFound,
            BackupError::Exists(_) | BackupError::OtherRestore(_) => ErrorKind::AlreadyExists,
            BackupError::Moment(_) | BackupError::OtherArchiver(_) => ErrorKind::FailedPrecondition,
            BackupError::Unfinished(_) | BackupError::NoDigests(_) | BackupError::OfAnother(_) => {
                ErrorKind::FailedPrecondition
            }
            BackupError::DeletedMeanwhile(_) => ErrorKind::Aborted,
            BackupError::Cancelled => ErrorKind::Cancelled,
            BackupError::TooMuch(_) => ErrorKind::ResourceExhausted,
            BackupError::Contended | BackupError::ArchiveTooSlow => ErrorKind::Unavailable,
            BackupError::Invalid(_) => ErrorKind::InvalidArgument,
            BackupError::Catalog(error) => error.kind(),
            BackupError::Service(error) => error.kind,
        }
    }
}

impl From<BackupError> for ServiceError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Service(error) => error,
            other => ServiceError::new(other.kind(), other.to_string()),
        }
    }
}
