//! Commits: manifests, and the states that they describe.
//!
//! A commit opens the new files, writes a manifest with the next number, and publishes the state. Two commits never
//! overlap ([`Committer`]), and each changes the manifest of that time. A commit whose outcome is unknown is *settled*
//! before anything else is made: the manifest as it was is written again, which decides.
//!
//! Files that could not be opened when the tablet was are exchanged here as well, once the device reads them again
//! ([`Tablet::hold_opened`]): to readers that is a change like a commit.
//!
//! Invariants:
//! * Each file of the committed manifest has one reference in the registry, and so has each file of a manifest whose commit
//!   has an unknown outcome (`limbo`).
//! * A released tablet takes no references any more.

use super::Tablet;
use crate::error::{Result, TabletError};
use crate::held::{HeldFile, hold_manifest};
use crate::manifest::{Manifest, ManifestLog, StoredFile};
use crate::state::State;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_storage::StorageError;
use stele_types::TableSchema;

/// Writes the tablet's manifests.
pub struct Committer {
    log: ManifestLog,
    /// The newest committed version.
    manifest: Manifest,
    /// Files of commits whose outcome is unknown: storage may hold a manifest that refers to them, until a later one is
    /// durable.
    limbo: Vec<StoredFile>,
    /// The tablet is no more: work that still runs for it must not take references again.
    released: bool,
}

impl Committer {
    pub(super) fn new(log: ManifestLog, manifest: Manifest) -> Self {
        Committer {
            log,
            manifest,
            limbo: Vec::new(),
            released: false,
        }
    }
}

impl Tablet {
    /// Commits a changed manifest and publishes the state it describes. `change` edits the manifest, and `publish` edits
    /// the parts of the state that the manifest does not describe. `made` are the new files, with the schema that they
    /// were made under: those that no manifest can come to refer to are discarded.
    pub(crate) async fn commit(
        &self,
        (made, made_under): (&[StoredFile], Option<&Arc<TableSchema>>),
        change: impl FnOnce(&mut Manifest),
        publish: impl FnOnce(&mut State),
    ) -> Result<()> {
        let mut committer = self.committer.lock().await;
        let files = &self.context.files;
        if committer.released {
            made.iter().for_each(|file| files.discard(*file));
            return Err(TabletError::Closed { tablet: self.id() });
        }
        let Committer {
            log, manifest, limbo, ..
        } = &mut *committer;
        let mut next = manifest.clone();
        change(&mut next);
        next.written_micros = self.wall_micros();
        assert_eq!(
            (next.tablet, next.epoch),
            (manifest.tablet, manifest.epoch),
            "an owner commits for its tablet and under its epoch"
        );
        assert_eq!(
            (next.table, &next.start, &next.end),
            (manifest.table, &manifest.start, &manifest.end),
            "the rows of a tablet never change"
        );
        assert!(
            next.flushed_through >= manifest.flushed_through,
            "files never hold less than before"
        );
        let used: BTreeSet<StoredFile> = next.stored().collect();
        let unused = |file: &&StoredFile| !used.contains(file);
        made.iter().filter(unused).for_each(|file| files.discard(*file));
        let held = match hold_manifest(&next, files, made).await {
            Ok(held) => held,
            Err(error) => {
                made.iter().for_each(|file| files.discard(*file));
                return Err(error);
            }
        };
        if let Err(error) = log.commit(&next).await {
            let references = next.stored();
            match &error {
                TabletError::Storage(StorageError::NoSpace { .. }) | TabletError::ManifestTooLarge { .. } => {
                    references.for_each(|file| files.release(file));
                }
                // The new manifest may be in storage: its files must stay until a later one replaces it.
                _ => limbo.extend(references),
            }
            return Err(self.not_committed(error));
        }
        debug_assert_eq!(
            held.iter().map(|(_, files)| files.len()).sum::<usize>(),
            next.all_files().count(),
            "each reference of the manifest is held"
        );
        self.update_state(made_under, |state| {
            state.replace_files(held);
            publish(state);
        });
        let replaced = std::mem::replace(manifest, next);
        let released = replaced.stored().chain(limbo.drain(..));
        released.for_each(|file| files.release(file));
        Ok(())
    }

    /// After a commit of unknown outcome: commits the manifest as it was, which decides. Before that no new file is made,
    /// or storage that fails for long would fill up with files that must stay.
    pub(crate) async fn settle(&self) -> Result<()> {
        let mut committer = self.committer.lock().await;
        let Committer {
            log,
            manifest,
            limbo,
            released,
        } = &mut *committer;
        if limbo.is_empty() || *released {
            return Ok(());
        }
        log.commit(manifest).await.map_err(|error| self.not_committed(error))?;
        limbo.drain(..).for_each(|file| self.context.files.release(file));
        Ok(())
    }

    fn not_committed(&self, error: TabletError) -> TabletError {
        if matches!(error, TabletError::Fenced { .. }) {
            self.close();
        }
        error
    }

    /// Acquires its files again, if one that could not be opened is open by now; whether one is.
    pub async fn hold_opened(&self) -> Result<bool> {
        let files = &self.context.files;
        let is_opened = |file: &HeldFile| file.unopened().any(|file| files.is_open(file));
        let is_concerned = self.with_state(|state| state.groups.iter().any(|group| group.files.iter().any(is_opened)));
        if !is_concerned {
            return Ok(false);
        }
        // No commit comes between: the state has the files of the manifest, once more.
        let committer = self.committer.lock().await;
        if committer.released {
            return Ok(false);
        }
        let held = hold_manifest(&committer.manifest, files, &[]).await?;
        self.update_state(None, |state| state.replace_files(held));
        committer.manifest.stored().for_each(|file| files.release(file));
        drop(committer);
        self.note_debt();
        Ok(true)
    }

    /// Whether it holds a file that could not be opened. It may be open by now.
    pub fn holds_unopened(&self) -> bool {
        let is_unopened = |file: &HeldFile| file.unopened().next().is_some();
        self.with_state(|state| state.groups.iter().any(|group| group.files.iter().any(is_unopened)))
    }

    /// Gives up all files; for a tablet that is no more, after the catalog has forgotten it.
    pub async fn release_files(&self) {
        let mut committer = self.committer.lock().await;
        let Committer {
            manifest,
            limbo,
            released,
            ..
        } = &mut *committer;
        *released = true;
        let files: Vec<StoredFile> = manifest.stored().collect();
        manifest.groups.clear();
        files
            .into_iter()
            .chain(limbo.drain(..))
            .for_each(|file| self.context.files.release(file));
    }

    /// The newest committed manifest, whose files are held for a snapshot from now on: the caller lets them go.
    pub async fn hold_manifest(&self) -> Result<Manifest> {
        // No commit comes between, so the files have references still.
        let committer = self.committer.lock().await;
        if committer.released {
            return Err(TabletError::Closed { tablet: self.id() });
        }
        self.context.files.hold(committer.manifest.stored());
        Ok(committer.manifest.clone())
    }

    /// The newest committed manifest.
    pub async fn manifest(&self) -> Manifest {
        self.committer.lock().await.manifest.clone()
    }

    /// Fails when a listing of the tablet's manifests shows that another owner has it. Otherwise returns the superseded
    /// versions, which only the present owner may delete.
    pub async fn superseded(&self, listed: &[u64]) -> Result<Vec<String>> {
        let mut committer = self.committer.lock().await;
        committer.log.check_newest(listed)?;
        Ok(committer.log.take_stale())
    }

    /// Fails when another owner has claimed the tablet, as far as storage shows now.
    pub async fn check_claim(&self) -> Result<()> {
        // Else a version of one's own, whose commit failed after it took effect, would count as another owner's.
        self.settle().await?;
        let committer = self.committer.lock().await;
        let checked = committer.log.check_claim().await;
        checked.map_err(|error| self.not_committed(error))
    }

    /// Changes the first row of the committed manifest in memory: a large one makes commits fail.
    #[cfg(test)]
    pub(crate) async fn set_committed_start(&self, start: bytes::Bytes) {
        self.committer.lock().await.manifest.start = start;
    }
}
