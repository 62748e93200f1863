//! Makes a backup.
//!
//! 1. The backup enters the state of the destination, unfinished.
//! 2. A snapshot of each table is taken on the server. It holds the files, so nothing deletes them while they are copied.
//! 3. Files that complete backups of the same root have are taken over; all others are copied, each with its checksum into a list.
//! 4. The parts of the snapshots and the record are written.
//! 5. One change of the state makes the backup complete.
//! 6. The snapshots are deleted.
//!
//! Interrupted at any point it is continued by the same order. The entry of the state has its number, and the snapshots on the
//! server have names made of that. The lists name the files that are there.

use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::{Document, Entry, LISTED_FILES_MAX, ListedFile, Record, State, TableOf};
use crate::root::DataRoot;
use crate::work::Work;
use crate::{copy, paths};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_catalog::SnapshotEntry;
use stele_client::{NewSnapshot, SnapshotName, TableAdmin};
use stele_tablet::{StoredFile, snapshot};
use stele_types::TableName;

/// Longest name of a backup.
const NAME_BYTES_MAX: usize = 128;
/// Most backups of a destination.
const BACKUPS_MAX: usize = 10_000;
/// Copied bytes after which a list is written, unless a hundredth of all is more: as many are copied again after a crash.
const LIST_EVERY_BYTES: u64 = 256 << 20;
/// Files that are compared concurrently with those of earlier backups; each is a small read.
const COMPARED_CONCURRENTLY: usize = 32;

/// Files with their bytes.
type Needed = BTreeMap<StoredFile, u64>;

/// Makes a backup of tables, or of all tables if there are none; its entry.
pub async fn create(
    root: &DataRoot,
    destination: &Destination,
    name: &str,
    tables: &[TableName],
    work: &Arc<Work>,
) -> Result<Entry> {
    check_name(name)?;
    work.begin("beginning")?;
    let of_root = root.id().await?;
    let (state, id) = match begin(root, destination, name, &of_root).await {
        Err(BackupError::Exists(name)) => {
            // It may have been completed by an attempt that ended before it deleted its snapshots.
            let own = destination.state().await?.backups.into_iter();
            for entry in own.filter(|entry| entry.name == name && entry.root == of_root) {
                delete_snapshots(root, entry.id).await?;
            }
            return Err(BackupError::Exists(name));
        }
        begun => begun?,
    };
    work.begin("taking snapshots")?;
    let snapshots = take_snapshots(root, id, tables, work).await?;
    let parts = copy_parts(root, destination, id, &snapshots).await?;
    work.expect(parts.len() as u64, parts.values().sum());
    work.begin("comparing with earlier backups")?;
    let mut copying = Copying::resume(root, destination, id, parts, work).await?;
    copying.take_over(&state, &of_root).await?;
    work.begin("copying")?;
    copying.copy().await?;
    work.begin("completing")?;
    let (files, bytes, copied_bytes, lists) = copying.finish().await?;
    let record = Record {
        id,
        name: name.to_owned(),
        root: of_root.clone(),
        tables: snapshots.iter().map(|entry| table_of(entry)).collect(),
        lists,
        created_by: concat!("stele ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let path = paths::record(id);
    destination.put(&path, record.encode_file(&path)?).await?;
    let completed_micros = root.env().wall_micros().max(1);
    let (_, entry) = destination
        .change(|state| {
            let entry = state.backups.iter_mut().find(|entry| entry.id == id);
            let entry = entry.ok_or_else(|| BackupError::DeletedMeanwhile(name.to_owned()))?;
            if !entry.is_complete() {
                entry.completed_micros = completed_micros;
                entry.tables = snapshots.len() as u64;
                (entry.files, entry.bytes, entry.copied_bytes) = (files, bytes, copied_bytes);
            }
            Ok(entry.clone())
        })
        .await?;
    delete_snapshots(root, id).await?;
    Ok(entry)
}

fn check_name(name: &str) -> Result<()> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sound) {
        let message = format!("a backup has a name of 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`");
        return Err(BackupError::Invalid(message));
    }
    Ok(())
}

/// Enters the backup into the state, or finds the one that was begun; the state and its number.
async fn begin(root: &DataRoot, destination: &Destination, name: &str, of_root: &[u8]) -> Result<(State, u64)> {
    let (id, now) = (root.env().random_u64().max(1), root.env().wall_micros());
    let changed = destination.change(|state| {
        match state.backups.iter().find(|entry| entry.name == name) {
            Some(entry) if entry.is_complete() => return Err(BackupError::Exists(name.to_owned())),
            Some(entry) if entry.root != of_root => return Err(BackupError::OfAnother(name.to_owned())),
            Some(entry) => return Ok(entry.id),
            None => {}
        }
        if state.backups.len() >= BACKUPS_MAX {
            let message = format!("the destination has {BACKUPS_MAX} backups, which is the limit: delete some");
            return Err(BackupError::TooMuch(message));
        }
        state.backups.push(Entry {
            id,
            name: name.to_owned(),
            root: of_root.to_vec(),
            begun_micros: now,
            since: state.number,
            ..Entry::default()
        });
        Ok(id)
    });
    changed.await
}

/// The beginning of the names of the snapshots that a backup has on the server.
pub(crate) fn snapshot_prefix(backup: u64) -> String {
    format!("backup-{backup:016x}-")
}

/// The snapshots of a backup that are there.
fn snapshots_of(root: &DataRoot, backup: u64) -> Vec<Arc<SnapshotEntry>> {
    let prefix = snapshot_prefix(backup);
    let view = root.catalog().view();
    let found = view
        .snapshots
        .values()
        .filter(|entry| entry.name.1.starts_with(&prefix));
    found.cloned().collect()
}

/// Takes a snapshot of each table that has none yet, and returns all.
async fn take_snapshots(
    root: &DataRoot,
    backup: u64,
    tables: &[TableName],
    work: &Work,
) -> Result<Vec<Arc<SnapshotEntry>>> {
    let mut there: BTreeMap<TableName, Arc<SnapshotEntry>> = BTreeMap::new();
    for entry in snapshots_of(root, backup) {
        there.insert(entry.schema.name.clone(), entry);
    }
    let view = root.catalog().view();
    let wanted: BTreeSet<TableName> = match tables {
        [] => view.tables.keys().cloned().collect(),
        tables => tables.iter().cloned().collect(),
    };
    for table in wanted {
        work.check()?;
        if there.contains_key(&table) {
            continue;
        }
        let id = root.catalog().table(&table)?.schema.id;
        let name = SnapshotName::new(
            table.namespace.clone(),
            format!("{}{:016x}", snapshot_prefix(backup), id.0),
        );
        let new = NewSnapshot {
            name: name.clone(),
            table: table.clone(),
            flush: true,
            expires_micros: None,
            front_end_data: Vec::new(),
        };
        root.master().create_snapshot(new).await?;
        there.insert(table, root.catalog().snapshot(&name.namespace, &name.name)?);
    }
    match there.is_empty() {
        true => Err(BackupError::Invalid("there is no table to back up".to_owned())),
        false => Ok(there.into_values().collect()),
    }
}

/// Deletes the snapshots that a backup has on the server.
pub(crate) async fn delete_snapshots(root: &DataRoot, backup: u64) -> Result<()> {
    for entry in snapshots_of(root, backup) {
        let (namespace, name) = entry.name.clone();
        root.master()
            .delete_snapshot(&SnapshotName::new(namespace, name))
            .await?;
    }
    Ok(())
}

/// Copies the parts of the snapshots; the files that they name.
async fn copy_parts(
    root: &DataRoot,
    destination: &Destination,
    backup: u64,
    snapshots: &[Arc<SnapshotEntry>],
) -> Result<Needed> {
    let mut needed = Needed::new();
    for (table, entry) in (0..).zip(snapshots) {
        for part in 0..entry.parts {
            let path = snapshot::path(entry.id, part);
            let content = root.storage().read_all(&path).await.map_err(BackupError::Data)?;
            let decoded = snapshot::SnapshotPart::decode_file(&path, &content)?;
            needed.extend(decoded.stored());
            destination.put(&paths::part(backup, table, part), content).await?;
        }
    }
    Ok(needed)
}

fn table_of(entry: &SnapshotEntry) -> TableOf {
    TableOf {
        table: stele_catalog::record::encode_table(&entry.schema, entry.schema.id).to_vec(),
        created_micros: entry.created_micros,
        completed_micros: entry.completed_micros,
        parts: entry.parts,
        tablets: entry.tablets,
        bytes: entry.bytes,
    }
}

/// The files of a backup on their way to the destination.
struct Copying<'a> {
    root: &'a DataRoot,
    destination: &'a Destination,
    id: u64,
    work: &'a Arc<Work>,
    /// All files.
    needed: Needed,
    /// Those that no list names yet.
    missing: Needed,
    /// Entries of the next list.
    unlisted: Vec<ListedFile>,
    unlisted_bytes: u64,
    /// Number of the next list.
    next_list: u32,
    copied_bytes: u64,
}

impl<'a> Copying<'a> {
    /// With the lists of an interrupted attempt.
    async fn resume(
        root: &'a DataRoot,
        destination: &'a Destination,
        id: u64,
        needed: Needed,
        work: &'a Arc<Work>,
    ) -> Result<Self> {
        let mut copying = Copying {
            root,
            destination,
            id,
            work,
            missing: needed.clone(),
            needed,
            unlisted: Vec::new(),
            unlisted_bytes: 0,
            next_list: 0,
            copied_bytes: 0,
        };
        for number in destination.list_numbers(id).await? {
            if number != copying.next_list {
                let detail = format!("list {} is missing", copying.next_list);
                return Err(crate::destination::damaged(&paths::documents(id), detail));
            }
            for listed in destination.list(id, number).await? {
                copying.note_listed(listed);
            }
            copying.next_list += 1;
        }
        Ok(copying)
    }

    /// A list of this backup names the file.
    fn note_listed(&mut self, listed: ListedFile) {
        let Some(stored) = listed.stored() else {
            return;
        };
        if listed.copied_by == self.id {
            self.copied_bytes += listed.len;
        }
        if self.missing.get(&stored) == Some(&listed.len) {
            self.missing.remove(&stored);
            self.work.skip(listed.len);
        }
    }

    /// Takes files over from complete backups of the same root, the newest first.
    async fn take_over(&mut self, state: &State, of_root: &[u8]) -> Result<()> {
        let earlier = state
            .backups
            .iter()
            .filter(|entry| entry.is_complete() && entry.root == of_root);
        let mut earlier: Vec<&Entry> = earlier.collect();
        earlier.sort_by_key(|entry| std::cmp::Reverse(entry.completed_micros));
        for entry in earlier {
            for number in 0..self.destination.record(entry.id).await?.lists {
                if self.missing.is_empty() {
                    return self.list_all().await;
                }
                self.work.check()?;
                let listed = self.destination.list(entry.id, number).await?;
                let candidates = listed.into_iter().filter(|listed| self.is_missing(listed));
                let same: Vec<ListedFile> = {
                    let comparing = candidates.map(|listed| self.compared(listed));
                    let comparing: Vec<_> = comparing.collect();
                    let mut comparing = futures::stream::iter(comparing).buffer_unordered(COMPARED_CONCURRENTLY);
                    let mut same = Vec::new();
                    while let Some(compared) = comparing.next().await {
                        same.extend(compared?);
                    }
                    same
                };
                for listed in same {
                    self.take(listed).await?;
                }
            }
        }
        self.list_all().await
    }

    fn is_missing(&self, listed: &ListedFile) -> bool {
        listed
            .stored()
            .is_some_and(|stored| self.missing.get(&stored) == Some(&listed.len))
    }

    /// The file, if that of the server is the same.
    async fn compared(&self, listed: ListedFile) -> Result<Option<ListedFile>> {
        let Some(stored) = listed.stored() else {
            return Ok(None);
        };
        let source = self
            .root
            .storage()
            .open(&stored.path())
            .await
            .map_err(BackupError::Data)?;
        let is_same = source.len() == listed.len
            && copy::tail_checksum(&*source).await.map_err(BackupError::Data)? == listed.tail_crc;
        Ok(is_same.then_some(listed))
    }

    async fn take(&mut self, listed: ListedFile) -> Result<()> {
        if let Some(stored) = listed.stored()
            && self.missing.remove(&stored).is_some()
        {
            self.work.skip(listed.len);
            self.unlisted.push(listed);
            if self.unlisted.len() >= LISTED_FILES_MAX {
                self.list_all().await?;
            }
        }
        Ok(())
    }

    /// Copies all files that are missing.
    async fn copy(&mut self) -> Result<()> {
        let every = LIST_EVERY_BYTES.max(self.missing.values().sum::<u64>() / 100);
        let (root, destination, id, work) = (self.root, self.destination, self.id, self.work);
        let missing = std::mem::take(&mut self.missing);
        let copying = missing.into_iter().map(|file| async move {
            work.check()?;
            copy::back_up(work, &**root.storage(), destination, id, file).await
        });
        let mut copying = futures::stream::iter(copying).buffer_unordered(work.parallel());
        let mut outcome = Ok(());
        while let Some(copied) = copying.next().await {
            match copied {
                Ok(listed) => {
                    self.copied_bytes += listed.len;
                    self.unlisted_bytes += listed.len;
                    self.unlisted.push(listed);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if self.unlisted_bytes >= every || self.unlisted.len() >= LISTED_FILES_MAX {
                self.list_all().await?;
            }
        }
        // Also after an error: the next attempt need not copy them again.
        self.list_all().await?;
        outcome
    }

    /// Writes a list of the files that none names yet.
    async fn list_all(&mut self) -> Result<()> {
        if !self.unlisted.is_empty() {
            let files = std::mem::take(&mut self.unlisted);
            self.destination.put_list(self.id, self.next_list, files).await?;
            self.next_list += 1;
            self.unlisted_bytes = 0;
        }
        Ok(())
    }

    /// Files, their bytes, the bytes that this backup copied, and lists.
    async fn finish(self) -> Result<(u64, u64, u64, u32)> {
        assert!(
            self.missing.is_empty() && self.unlisted.is_empty(),
            "a list names each file of a complete backup"
        );
        let bytes = self.needed.values().sum();
        Ok((self.needed.len() as u64, bytes, self.copied_bytes, self.next_list))
    }
}
