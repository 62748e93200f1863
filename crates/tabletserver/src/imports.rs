//! Files from outside of the data root, and snapshots over them.
//!
//! An importer writes complete, durable files under numbers from here, then lists manifests that name them as a snapshot.
//! From then on the registry holds the files. The master records the snapshot in the catalog, and makes tables of it as of any
//! other. A start deletes files and lists that no record names.
//!
//! Where several servers share the data root, nothing is held here. An import is a job ([`TabletServer::begin_import`]) until the
//! catalog names its snapshot, so the sweep leaves its files alone until then; it deletes those of an import that failed.
//!
//! Invariant: the files of an import are held before its snapshot is in the catalog, or their job runs until then.

use crate::error::from_tablet;
use crate::server::TabletServer;
use std::sync::Arc;
use stele_client::{ServiceResult, SnapshotFiles};
use stele_storage::Storage;
use stele_tablet::snapshot::{self, SnapshotWriter};
use stele_tablet::{FileRegistry, ImportJob, Manifest, Ownership, StoredFile};
use stele_types::{FileId, SnapshotId};

impl TabletServer {
    /// The storage of sstables, value files, manifests and lists of snapshots.
    pub fn data_storage(&self) -> &Arc<dyn Storage> {
        &self.parts.context.storage
    }

    /// Begins an import: before it takes the first number, and to the moment at which the catalog names its snapshot, or never will.
    pub fn begin_import(&self) -> ImportJob {
        self.parts.context.files.begin_import()
    }

    /// A number for a file that is to be written to the data storage.
    pub fn new_file(&self) -> FileId {
        self.parts.context.files.allocate()
    }

    /// Deletes a file that was written under such a number, in the background, and that no import lists.
    pub fn discard_file(&self, file: StoredFile) {
        self.parts.context.files.discard(file);
    }

    /// Begins a snapshot over files that were written under such numbers.
    pub fn import_snapshot(&self, snapshot: SnapshotId) -> SnapshotImport {
        let context = &self.parts.context;
        SnapshotImport {
            files: context.files.clone(),
            storage: context.storage.clone(),
            snapshot,
            writer: SnapshotWriter::new(context.storage.clone(), snapshot),
            held: Vec::new(),
            bytes: 0,
        }
    }
}

/// A snapshot that is listed tablet by tablet.
pub struct SnapshotImport {
    files: Arc<FileRegistry>,
    storage: Arc<dyn Storage>,
    snapshot: SnapshotId,
    writer: SnapshotWriter,
    /// Each reference so far, with the bytes of the file.
    held: Vec<(StoredFile, u64)>,
    bytes: u64,
}

impl SnapshotImport {
    /// Adds the next tablet in row order. After an error the import is to be abandoned.
    pub async fn add(&mut self, manifest: Manifest) -> ServiceResult<()> {
        let stored: Vec<_> = snapshot::stored(&manifest).collect();
        assert!(
            manifest.flushed_through().epoch().0 < manifest.epoch,
            "cells of an import are older than the writes of its tablets"
        );
        if self.files.ownership() == Ownership::Sole {
            self.files.hold(stored.iter().map(|(file, _)| *file));
            self.held.extend(stored);
        }
        self.bytes += manifest
            .all_files()
            .map(|file| file.referenced + file.value_bytes())
            .sum::<u64>();
        self.writer.add(manifest).await.map_err(from_tablet)
    }

    /// Completes the list. After an error nothing is left of it, and its files are deleted.
    pub async fn finish(self) -> ServiceResult<SnapshotFiles> {
        let SnapshotImport {
            files,
            storage,
            snapshot,
            writer,
            held,
            bytes,
        } = self;
        assert!(
            bytes == 0 || !held.is_empty() || files.ownership() == Ownership::Shared,
            "files with rows are held"
        );
        match writer.finish().await {
            Ok(parts) => Ok(SnapshotFiles { parts, bytes }),
            Err(error) => {
                give_up((&files, &*storage), snapshot, held).await;
                Err(from_tablet(error))
            }
        }
    }

    /// Gives the list up, and its files.
    pub async fn abandon(self) {
        give_up((&self.files, &*self.storage), self.snapshot, self.held).await;
    }
}

async fn give_up((files, storage): (&FileRegistry, &dyn Storage), snapshot: SnapshotId, held: Vec<(StoredFile, u64)>) {
    if let Err(error) = snapshot::delete(storage, snapshot).await {
        tracing::warn!(%snapshot, %error, "parts of an import are left to the next start");
    }
    files.let_go(held);
}
