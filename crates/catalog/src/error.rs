//! Errors of the catalog.

use stele_coord::CoordError;
use stele_types::{ErrorKind, TableName};

/// The kind of failure.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CatalogError {
    /// No such table.
    #[error("table {0} does not exist")]
    NoTable(TableName),
    /// The name is taken.
    #[error("table {0} exists already")]
    TableExists(TableName),
    /// No such namespace.
    #[error("namespace {0} does not exist")]
    NoNamespace(String),
    /// The name is taken.
    #[error("namespace {0} exists already")]
    NamespaceExists(String),
    /// No such view.
    #[error("table {0} has no view {1}")]
    NoView(TableName, String),
    /// No such snapshot.
    #[error("snapshot {1} does not exist in namespace {0}")]
    NoSnapshot(String, String),
    /// The name is taken.
    #[error("snapshot {1} exists already in namespace {0}")]
    SnapshotExists(String, String),
    /// Somebody else changed the same record first.
    #[error("the catalog changed meanwhile ({key})")]
    Conflict {
        /// The record.
        key: String,
    },
    /// Another server leads the cluster: it changes the catalog.
    #[error("this server does not lead the cluster")]
    NotLeader,
    /// A record differs from the one that was written, or the records contradict each other.
    #[error("catalog record {key}: {detail}")]
    Corruption {
        /// The record.
        key: String,
        /// The expected and the found content.
        detail: String,
    },
    /// The coordinator failed.
    #[error(transparent)]
    Coord(#[from] CoordError),
}

impl CatalogError {
    /// The kind of the error, by the reaction that a caller has.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CatalogError::NoTable(_)
            | CatalogError::NoNamespace(_)
            | CatalogError::NoView(..)
            | CatalogError::NoSnapshot(..) => ErrorKind::NotFound,
            CatalogError::TableExists(_) | CatalogError::NamespaceExists(_) | CatalogError::SnapshotExists(..) => {
                ErrorKind::AlreadyExists
            }
            CatalogError::Conflict { .. } => ErrorKind::Aborted,
            CatalogError::NotLeader => ErrorKind::Unavailable,
            CatalogError::Corruption { .. } => ErrorKind::Corruption,
            CatalogError::Coord(e) => e.kind(),
        }
    }

    /// Whether the change may have happened all the same.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, CatalogError::Coord(e) if e.is_ambiguous())
    }
}
