//! Makes tables of a backup.
//!
//! 1. Of each table, the files get numbers of this data root and are copied, and its tablets are listed as a snapshot. The record
//!    of the snapshot in the catalog holds the files from then on.
//! 2. When all tables are there as snapshots, each is made a table: one change of the catalog.
//! 3. The snapshots are deleted, and then the marks of the tables.
//!
//! Interrupted, it goes on with the tables that are not there as snapshots yet. A table that it has made has a mark that names the
//! restore; a table without it is another one, and is never touched. Files of a table that is not complete are
//! deleted: after an error immediately, after a crash by the next start, in a cluster by the sweep.
//!
//! Sequence numbers of cells stay as they are. So that later writes are newer, the tablets get an epoch above all epochs of the
//! backup, and so will the next start of the server.

use crate::archive::changes_of::ChangesMemory;
use crate::copy;
use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{ListedFile, Record, TableOf};
use crate::restore_at::{self, Moment, Plan};
use crate::root::DataRoot;
use crate::work::Work;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_catalog::{CatalogError, SnapshotEntry};
use stele_client::{SnapshotName, TableAdmin};
use stele_tablet::manifest::FileRef;
use stele_tablet::{ImportJob, Manifest, StoredFile};
use stele_types::{FileId, SnapshotId, TableName, TableSchema};

/// A table of a backup, and the name that it gets.
struct Wanted {
    /// Its place in the record.
    index: u32,
    table: TableOf,
    schema: TableSchema,
    target: TableName,
    /// The snapshot that it passes through.
    snapshot: SnapshotName,
}

/// A file with its new number and length.
#[derive(Clone, Copy)]
struct Restored {
    id: FileId,
    len: u64,
}

/// Makes tables of a backup: all of them, or one, perhaps under another name. Their names.
pub async fn restore(
    root: &DataRoot,
    destination: &Destination,
    name: &str,
    (table, target): (Option<&TableName>, Option<&TableName>),
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    work.begin("reading the backup")?;
    let attempt = Destination::complete(&destination.state().await?, name)?.attempt();
    let record = destination.record(attempt).await?;
    let wanted = wanted(&record, table, target)?;
    restore_tables(root, destination, &record, wanted, None, work).await
}

/// The same as of a moment after the backup. Without a name it is the newest backup from which the moment can be restored.
pub async fn restore_to(
    root: &DataRoot,
    destination: &Destination,
    name: Option<&str>,
    (table, target): (Option<&TableName>, Option<&TableName>),
    moment: &Moment<'_>,
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    let memory = ChangesMemory::new(root.env().clone(), root.server().pool());
    let plan = restore_at::plan(destination, (moment, &memory), (name, table), work).await?;
    let mut wanted = wanted(&plan.record, table, target)?;
    wanted.retain(|table| plan.has(table.index));
    for table in &mut wanted {
        table.schema = plan.schema_over(table.index, &table.schema);
        // Restores to several moments have snapshots of their own.
        table.snapshot.name = format!("{}-{:x}", table.snapshot.name, moment.at);
    }
    let record = plan.record.clone();
    restore_tables(root, destination, &record, wanted, Some((&plan, moment)), work).await
}

async fn restore_tables(
    root: &DataRoot,
    destination: &Destination,
    record: &Record,
    wanted: Vec<Wanted>,
    to: Option<(&Plan, &Moment<'_>)>,
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    let attempt = record.attempt();
    let made: Vec<(TableName, SnapshotName)> = wanted
        .iter()
        .map(|table| (table.target.clone(), table.snapshot.clone()))
        .collect();
    let todo = unmade(root, wanted).await?;
    let listed = lists(destination, record).await?;
    let mut importing = Importing {
        root,
        destination,
        attempt,
        work,
        listed,
        done: BTreeMap::new(),
        fresh: BTreeSet::new(),
        _job: root.server().begin_import(),
    };
    for table in &todo {
        if root
            .catalog()
            .snapshot(&table.snapshot.namespace, &table.snapshot.name)
            .is_err()
        {
            let imported = importing.table(table).await;
            if imported.is_err() {
                importing.discard();
            }
            imported?;
        }
    }
    work.begin("making tables")?;
    match to {
        None => {
            for table in &todo {
                root.master()
                    .clone_restored(&table.snapshot, &table.target, false)
                    .await?;
            }
        }
        Some((plan, moment)) => follow(root, (plan, moment), &todo, work).await?,
    }
    root.tell_all().await;
    // Those of tables that an earlier attempt has made, too.
    for (_, snapshot) in &made {
        delete_if_there(root, snapshot).await?;
    }
    // Last: while a snapshot is there, the same order finds the tables by their marks.
    for (target, snapshot) in &made {
        root.master().release_restored(target, &snapshot.name).await?;
    }
    Ok(todo.into_iter().map(|table| table.target).collect())
}

/// Makes disabled tables, writes the log into them, and enables them.
async fn follow(
    root: &DataRoot,
    (plan, moment): (&Plan, &Moment<'_>),
    todo: &[Wanted],
    work: &Arc<Work>,
) -> Result<()> {
    for table in todo {
        root.master()
            .clone_restored(&table.snapshot, &table.target, true)
            .await?;
    }
    let targets = todo.iter().map(|table| (table.index, table.target.clone())).collect();
    plan.replay(root, moment, &targets, work).await?;
    work.begin("enabling tables")?;
    for table in todo {
        root.master().flush(&table.target, None).await?;
        root.master()
            .complete_restored(&table.target, &table.snapshot.name)
            .await?;
    }
    Ok(())
}

fn wanted(record: &Record, only: Option<&TableName>, target: Option<&TableName>) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for (index, table) in (0..).zip(&record.tables) {
        let decoded = stele_catalog::record::decode_table(&table.table);
        let (schema, _) =
            decoded.map_err(|why| damaged(&crate::paths::record(record.attempt()), format!("a table: {why}")))?;
        if only.is_some_and(|only| *only != schema.name) {
            continue;
        }
        let target = target.unwrap_or(&schema.name).clone();
        wanted.push(Wanted {
            index,
            table: table.clone(),
            snapshot: SnapshotName::new(
                target.namespace.clone(),
                // As long for every name of a table.
                format!(
                    "restore-{:016x}-{index:x}-{:08x}",
                    record.id,
                    crc32fast::hash(target.table.as_bytes())
                ),
            ),
            schema,
            target,
        });
    }
    match (only, wanted.is_empty()) {
        (Some(table), true) => Err(BackupError::NoTable {
            backup: record.name.clone(),
            table: table.to_string(),
        }),
        _ => Ok(wanted),
    }
}

/// The tables that are still to be made. Nothing is changed if another table has the name of one.
async fn unmade(root: &DataRoot, wanted: Vec<Wanted>) -> Result<Vec<Wanted>> {
    let made: Vec<Made> = wanted
        .iter()
        .map(|table| is_restored(root, table))
        .collect::<Result<_>>()?;
    let mut todo = Vec::new();
    for (table, made) in wanted.into_iter().zip(made) {
        if let Made::Partly = made {
            root.master()
                .delete_unfinished(&table.target, &table.snapshot.name)
                .await?;
        }
        if !matches!(made, Made::Yes) {
            todo.push(table);
        }
    }
    Ok(todo)
}

/// How far an interrupted restore has come with a table.
enum Made {
    No,
    /// It is there, and lacks a part of the log.
    Partly,
    Yes,
}

/// Whether an interrupted restore has made the table. Fails if another table has the name.
fn is_restored(root: &DataRoot, wanted: &Wanted) -> Result<Made> {
    let Ok(there) = root.catalog().table(&wanted.target) else {
        return Ok(Made::No);
    };
    match &there.schema.restoring {
        Some(restore) if *restore != wanted.snapshot.name && there.schema.is_unfinished() => {
            Err(BackupError::OtherRestore(wanted.target.to_string()))
        }
        Some(restore) if *restore == wanted.snapshot.name => match there.schema.is_unfinished() {
            true => Ok(Made::Partly),
            false => Ok(Made::Yes),
        },
        _ => Err(CatalogError::TableExists(wanted.target.clone()).into()),
    }
}

/// Deletes a snapshot that an earlier attempt may have deleted.
async fn delete_if_there(root: &DataRoot, snapshot: &SnapshotName) -> Result<()> {
    match root.catalog().snapshot(&snapshot.namespace, &snapshot.name) {
        Ok(_) => Ok(root.master().delete_snapshot(snapshot).await?),
        Err(_) => Ok(()),
    }
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
struct Importing<'a> {
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

impl Importing<'_> {
    /// Copies the files of a table and records it as a snapshot.
    async fn table(&mut self, wanted: &Wanted) -> Result<()> {
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
        let mut listed = Ok(());
        for part in 0..wanted.table.parts {
            listed = self.list_part(wanted, part, epoch, &mut import).await;
            if listed.is_err() {
                break;
            }
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
            created_micros: wanted.table.created_micros,
            completed_micros: wanted.table.completed_micros,
            expires_micros: None,
            front_end_data: bytes::Bytes::new(),
            parts: files.parts,
            tablets: wanted.table.tablets,
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
        import: &mut stele_tabletserver::SnapshotImport,
    ) -> Result<()> {
        for mut manifest in self.destination.part(self.attempt, wanted.index, part).await?.tablets {
            renumber(&mut manifest, epoch, &self.done)?;
            // From here on the import holds them.
            for file in manifest.stored() {
                self.fresh.remove(&file);
            }
            import.add(manifest).await?;
        }
        Ok(())
    }

    /// Deletes the files that no snapshot holds.
    fn discard(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use stele_tablet::manifest::{GroupFiles, ValueLink};

    fn file(number: u64, run: u64) -> FileRef {
        FileRef {
            file: number,
            len: 100,
            referenced: 50,
            run,
            ..FileRef::default()
        }
    }

    #[test]
    fn files_runs_and_links_get_new_numbers() {
        let mut with_values = file(3, 9);
        with_values.values = vec![ValueLink {
            file: 7,
            len: 10,
            share: 10,
            bytes: 4,
        }];
        let mut manifest = Manifest {
            groups: vec![GroupFiles {
                group: 0,
                files: vec![file(1, 8), file(2, 8), with_values, file(1, 9), file(4, 0)],
            }],
            ..Manifest::default()
        };
        let mut files = BTreeMap::new();
        for number in 1..=4 {
            let restored = Restored {
                id: FileId(10 + number),
                len: 200,
            };
            files.insert(StoredFile::Sstable(FileId(number)), restored);
        }
        assert!(
            renumber(&mut manifest.clone(), 5, &files).is_err(),
            "the value file is missing"
        );
        let values = Restored {
            id: FileId(17),
            len: 10,
        };
        files.insert(StoredFile::Values(FileId(7)), values);
        renumber(&mut manifest, 5, &files).unwrap();
        let found: Vec<_> = manifest.all_files().map(|file| (file.file, file.run)).collect();
        assert_eq!(found, [(11, 11), (12, 11), (13, 13), (11, 13), (14, 0)]);
        assert_eq!(manifest.epoch, 5);
        let all: Vec<&FileRef> = manifest.all_files().collect();
        assert_eq!((all[0].len, all[0].referenced, all[2].values[0].file), (200, 100, 17));
    }
}
