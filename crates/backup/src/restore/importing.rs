//! Copies the files of a table of a backup, and records them as a snapshot.
//!
//! Files get new numbers, and manifests with them a new epoch.

use super::Wanted;
use crate::copy;
use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{ListedFile, Record};
use crate::paths;
use crate::root::DataRoot;
use crate::work::Work;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_catalog::{SnapshotEntry, check_joined};
use stele_tablet::manifest::FileRef;
use stele_tablet::{ImportJob, Manifest, StoredFile};
use stele_types::{FileId, RowRange, SnapshotId, TabletId};

/// A file with its new number and length.
#[derive(Clone, Copy)]
struct Restored {
    id: FileId,
    len: u64,
}

/// The files of a backup.
async fn lists(destination: &Destination, record: &Record) -> Result<BTreeMap<StoredFile, ListedFile>> {
    let mut files = BTreeMap::new();
    for number in 0..record.lists {
        for listed in destination.list(record.attempt(), number).await? {
            files.extend(listed.stored().map(|stored| (stored, listed)));
        }
    }
    Ok(files)
}

/// Files of a backup on their way into the data root.
pub(super) struct Importing<'a> {
    root: &'a DataRoot,
    destination: &'a Destination,
    attempt: u64,
    work: &'a Arc<Work>,
    listed: BTreeMap<StoredFile, ListedFile>,
    /// Files that are here. Several tables may share them.
    done: BTreeMap<StoredFile, Restored>,
    /// New files that no snapshot holds yet.
    fresh: BTreeSet<StoredFile>,
    /// Where servers share the data root, keeps the sweep from the files.
    _job: ImportJob,
}

impl<'a> Importing<'a> {
    /// Begins with the files of a backup.
    pub(super) async fn of(
        root: &'a DataRoot,
        destination: &'a Destination,
        record: &Record,
        work: &'a Arc<Work>,
    ) -> Result<Importing<'a>> {
        Ok(Importing {
            root,
            destination,
            attempt: record.attempt(),
            work,
            listed: lists(destination, record).await?,
            done: BTreeMap::new(),
            fresh: BTreeSet::new(),
            _job: root.server().begin_import(),
        })
    }

    /// Copies the files of a table and records it as a snapshot.
    pub(super) async fn table(&mut self, wanted: &Wanted) -> Result<()> {
        self.work.begin("reading the tablets of a table")?;
        let (mut needed, mut epoch) = (BTreeSet::new(), 0);
        for part in 0..wanted.table.parts {
            for manifest in self.destination.part(self.attempt, wanted.index, part).await?.tablets {
                needed.extend(manifest.stored());
                epoch = epoch.max(manifest.epoch).max(manifest.flushed_through().epoch().0);
            }
        }
        needed.retain(|file| !self.done.contains_key(file));
        let mut files = Vec::with_capacity(needed.len());
        for file in needed {
            let listed = self.listed.get(&file);
            let listed = listed.ok_or_else(|| damaged(&file.path(), "no list of the backup names it".to_owned()))?;
            files.push((file, *listed));
        }
        let bytes = files.iter().map(|(_, listed)| listed.len).sum();
        self.check_space(bytes).await?;
        self.work.expect(files.len() as u64, bytes);
        self.work.begin("copying")?;
        // Value files first: references in sstables get their new numbers.
        let (values, sstables) = files
            .into_iter()
            .partition(|(file, _)| matches!(file, StoredFile::Values(_)));
        self.copy(values).await?;
        self.copy(sstables).await?;
        let epoch = self.root.catalog().raise_epochs(u64::from(epoch)).await?;
        self.record(wanted, epoch).await
    }

    /// Fails before anything is copied that would not fit: a full disk stops the writes of all tables.
    async fn check_space(&self, bytes: u64) -> Result<()> {
        let free = self.root.storage().free_bytes().await.map_err(BackupError::Data)?;
        match free {
            Some(free) if free < bytes => {
                let message = format!("a table of the backup takes {bytes} bytes, and the data have space for {free}");
                Err(BackupError::TooMuch(message))
            }
            _ => Ok(()),
        }
    }

    async fn copy(&mut self, files: Vec<(StoredFile, ListedFile)>) -> Result<()> {
        let values = self.done.iter().filter_map(|(file, restored)| match file {
            StoredFile::Values(file) => Some((*file, restored.id)),
            StoredFile::Sstable(_) => None,
        });
        let values: BTreeMap<FileId, FileId> = values.collect();
        let with_numbers = files
            .into_iter()
            .map(|(file, listed)| (file, listed, self.root.server().new_file()));
        let with_numbers: Vec<_> = with_numbers.collect();
        self.fresh
            .extend(with_numbers.iter().map(|(file, _, id)| renumbered(*file, *id)));
        let (root, destination, work, values) = (self.root, self.destination, self.work, &values);
        let copying = with_numbers.into_iter().map(|(file, listed, id)| async move {
            work.check()?;
            let storage = &**root.storage();
            let len = match file {
                StoredFile::Values(_) => copy::restore_values(work, destination, storage, listed, id).await?,
                StoredFile::Sstable(_) => copy::restore_sstable(work, destination, storage, listed, id, values).await?,
            };
            Ok::<_, BackupError>((file, Restored { id, len }))
        });
        let mut copying = futures::stream::iter(copying).buffer_unordered(work.parallel());
        while let Some(copied) = copying.next().await {
            let (file, restored) = copied?;
            self.done.insert(file, restored);
        }
        Ok(())
    }

    /// Lists the tablets of a table, and records them as a snapshot.
    async fn record(&mut self, wanted: &Wanted, epoch: u32) -> Result<()> {
        let id = self.root.master().begin_import().await?;
        let mut import = self.root.server().import_snapshot(id);
        let (mut listed, mut tablets) = (Ok(()), Vec::new());
        for part in 0..wanted.table.parts {
            listed = self.list_part(wanted, part, epoch, (&mut import, &mut tablets)).await;
            if listed.is_err() {
                break;
            }
        }
        let count = tablets.len() as u64;
        if listed.is_ok() {
            listed = check_tablets(tablets).map_err(|detail| BackupError::Damaged {
                path: paths::part(self.attempt, wanted.index, 0),
                detail,
            });
        }
        if let Err(error) = listed {
            import.abandon().await;
            self.root.master().abandon_import(id).await;
            return Err(error);
        }
        let files = match import.finish().await {
            Ok(files) => files,
            Err(error) => {
                self.root.master().abandon_import(id).await;
                return Err(error.into());
            }
        };
        let entry = SnapshotEntry {
            id: SnapshotId(id.0),
            name: (wanted.snapshot.namespace.clone(), wanted.snapshot.name.clone()),
            schema: Arc::new(wanted.schema.clone()),
            tablet_set: wanted.schema.id,
            created_micros: wanted.table.created_micros,
            completed_micros: wanted.table.completed_micros,
            expires_micros: None,
            front_end_data: bytes::Bytes::new(),
            parts: files.parts,
            tablets: count,
            bytes: files.bytes,
            kept: None,
            rules: Default::default(),
            version: 0,
        };
        self.root.master().import_snapshot(entry).await?;
        Ok(())
    }

    async fn list_part(
        &mut self,
        wanted: &Wanted,
        part: u32,
        epoch: u32,
        (import, tablets): (&mut stele_tabletserver::SnapshotImport, &mut Vec<(TabletId, RowRange)>),
    ) -> Result<()> {
        for mut manifest in self.destination.part(self.attempt, wanted.index, part).await?.tablets {
            renumber(&mut manifest, epoch, &self.done)?;
            // From here on the import holds them.
            for file in manifest.stored() {
                self.fresh.remove(&file);
            }
            tablets.push((TabletId(manifest.tablet), manifest.range()));
            import.add(manifest).await?;
        }
        Ok(())
    }

    /// Deletes the files that no snapshot holds.
    pub(super) fn discard(&mut self) {
        for file in std::mem::take(&mut self.fresh) {
            self.root.server().discard_file(file);
        }
    }
}

fn renumbered(file: StoredFile, id: FileId) -> StoredFile {
    match file {
        StoredFile::Sstable(_) => StoredFile::Sstable(id),
        StoredFile::Values(_) => StoredFile::Values(id),
    }
}

/// Puts the new numbers of files and the new epoch into a manifest.
fn renumber(manifest: &mut Manifest, epoch: u32, files: &BTreeMap<StoredFile, Restored>) -> Result<()> {
    let missing = |file: StoredFile| damaged(&file.path(), "a tablet names it, and it was not copied".to_owned());
    let find = |file: StoredFile| files.get(&file).copied().ok_or_else(|| missing(file));
    manifest.epoch = epoch;
    for group in &mut manifest.groups {
        for file in &mut group.files {
            let restored = find(StoredFile::Sstable(file.id()))?;
            let share = u128::from(file.referenced) * u128::from(restored.len) / u128::from(file.len.max(1));
            file.referenced = u64::try_from(share).unwrap_or(restored.len);
            (file.file, file.len) = (restored.id.0, restored.len);
            for link in &mut file.values {
                link.file = find(StoredFile::Values(link.id()))?.id.0;
            }
        }
        let mut taken = BTreeSet::new();
        for run in group.files.chunk_by_mut(FileRef::continues_in) {
            number_run(run, &mut taken);
        }
    }
    Ok(())
}

/// Gives a run a number of this data root: of one of its files, which later runs cannot have. If all are taken, each of its
/// files is a run of its own.
fn number_run(run: &mut [FileRef], taken: &mut BTreeSet<u64>) {
    let number = match run.len() {
        0 | 1 => 0,
        _ => run
            .iter()
            .map(|file| file.file)
            .find(|number| !taken.contains(number))
            .unwrap_or(0),
    };
    taken.insert(number);
    run.iter_mut().for_each(|file| file.run = number);
}

/// Fails unless these are the tablets of a whole table. The record of a backup may say anything: only checksums protect it.
fn check_tablets(mut tablets: Vec<(TabletId, RowRange)>) -> std::result::Result<(), String> {
    tablets.sort_by(|a, b| a.1.start.cmp(&b.1.start));
    check_joined(tablets.iter().map(|(id, range)| (*id, range)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_of_a_table_join() {
        let range = |start: &'static str, end: Option<&'static str>| {
            let range = RowRange {
                start: start.into(),
                end: end.map(Into::into),
            };
            (TabletId(1), range)
        };
        let whole = vec![range("m", None), range("", Some("b")), range("b", Some("m"))];
        assert_eq!(check_tablets(whole), Ok(()));
        for bad in [
            vec![],
            vec![range("b", None)],
            vec![range("", Some("b"))],
            vec![range("", Some("b")), range("c", None)],
            vec![range("", Some("c")), range("b", None)],
            vec![range("", None), range("b", None)],
        ] {
            assert!(check_tablets(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
