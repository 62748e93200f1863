//! The places of archives, of single servers and of clusters.
//!
//! The place of a cluster has an archive of its tables below `tables`, which the leader writes, and one of each server below `servers`.

use super::format::{self, CLUSTER_TEXT, FORMAT, FORMAT_TEXT, SERVER_TEXT, TABLES_TEXT};
use super::store::{Archive, check_format};
use crate::error::{BackupError, Result};
use crate::places::Places;
use std::sync::Arc;
use stele_client::BackupDestination;
use stele_storage::StorageError;

/// The place of one archive.
#[derive(Clone)]
pub(crate) struct Site {
    places: Arc<Places>,
    place: BackupDestination,
    text: &'static str,
    /// The place of the cluster that it is of.
    of: Option<BackupDestination>,
}

impl Site {
    /// Of a single server.
    pub(crate) fn single(places: Arc<Places>, place: BackupDestination) -> Site {
        Site {
            places,
            place,
            text: FORMAT_TEXT,
            of: None,
        }
    }

    /// The archive, which is made if it is new and `make` is set.
    pub(crate) async fn open(&self, make: bool) -> Result<Archive> {
        if let Some(of) = self.of.clone().filter(|_| make) {
            check_format(&self.places.open(of, make).await?, CLUSTER_TEXT, make).await?;
        }
        let storage = self.places.open(self.place.clone(), make).await?;
        Archive::open_kind(storage, self.text, make).await
    }
}

/// The archives of a cluster.
#[derive(Clone)]
pub struct ClusterArchive {
    pub(crate) places: Arc<Places>,
    pub(crate) place: BackupDestination,
}

impl ClusterArchive {
    /// At a place.
    pub fn new(places: Arc<Places>, place: BackupDestination) -> ClusterArchive {
        ClusterArchive { places, place }
    }

    /// The address of the place.
    pub fn address(&self) -> &str {
        &self.place.address
    }

    /// The archive of its tables.
    pub(crate) fn tables(&self) -> Site {
        self.site(format::TABLES.to_owned(), TABLES_TEXT)
    }

    /// The archive of a server.
    pub(crate) fn server(&self, server: u32) -> Site {
        self.site(format::server_place(server), SERVER_TEXT)
    }

    fn site(&self, below: String, text: &'static str) -> Site {
        let BackupDestination { address, options } = &self.place;
        Site {
            places: self.places.clone(),
            place: BackupDestination {
                address: format!("{}/{below}", address.trim_end_matches('/')),
                options: options.clone(),
            },
            text,
            of: Some(self.place.clone()),
        }
    }
}

/// An archive that a work reads.
pub enum AnyArchive {
    /// Of a single server.
    Single(Archive),
    /// Of a cluster, and its archive of tables.
    Cluster(ClusterArchive, Archive),
}

impl AnyArchive {
    /// Opens the archive at a place.
    pub async fn open(places: &Arc<Places>, place: BackupDestination) -> Result<AnyArchive> {
        let storage = places.open(place.clone(), false).await?;
        match storage.read_all(FORMAT).await {
            Ok(text) if text == CLUSTER_TEXT.as_bytes() => {
                let cluster = ClusterArchive::new(places.clone(), place);
                let tables = cluster.tables().open(false).await?;
                Ok(AnyArchive::Cluster(cluster, tables))
            }
            Ok(_) | Err(StorageError::NotFound { .. }) => Archive::open(storage, false).await.map(AnyArchive::Single),
            Err(error) => Err(BackupError::Archive(error)),
        }
    }

    /// The archive that has the changes of tables, and the ranges of moments.
    pub(crate) fn tables(&self) -> &Archive {
        match self {
            AnyArchive::Single(archive) | AnyArchive::Cluster(_, archive) => archive,
        }
    }
}
