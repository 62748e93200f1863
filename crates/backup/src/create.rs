//! Makes a backup.
//!
//! 1. The backup enters the state of the destination, unfinished, with the number of this attempt. An attempt writes below its
//!    own number alone.
//! 2. A snapshot of each table is taken on the server. It holds the files, so nothing deletes them while they are copied. Snapshots of
//!    earlier attempts are deleted first: they lack writes since.
//! 3. Files that earlier attempts have listed, and those of complete backups of the same root, are taken over after a comparison, if
//!    they are still there. All others are copied, each with its checksum into a list.
//! 4. The parts of the snapshots and the record are written.
//! 5. One change of the state makes the backup complete, and names the attempt. Another attempt can come first: then this one fails.
//! 6. The snapshots are deleted, and files of other attempts that the backup does not need.
//!
//! Interrupted at any point it is continued by the same order, as another attempt. The entry of the state has the number of the
//! backup, and the snapshots on the server have names made of that.
//!
//! Two servers can make the backup at one time: data roots that are copies have the same identity, and so has a server that was
//! replaced without knowing it. Both write files of the same number with other bytes, and neither sees a path of the other's.

use crate::copying::{Copying, Needed};
use crate::delete::sweep_attempts;
use crate::destination::Destination;
use crate::digest::{Digesting, TableDigest};
use crate::error::{BackupError, Result};
use crate::format::{Document, Entry, Record, State, TableOf};
use crate::paths;
use crate::root::DataRoot;
use crate::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_catalog::SnapshotEntry;
use stele_client::{NewSnapshot, SnapshotName, TableAdmin};
use stele_tablet::snapshot;
use stele_types::TableName;

/// Longest name of a backup.
const NAME_BYTES_MAX: usize = 128;
/// Most backups of a destination.
const BACKUPS_MAX: usize = 10_000;
/// Most attempts at one backup. Each reads the lists of all earlier ones.
const ATTEMPTS_MAX: usize = 100;

/// An attempt at a backup.
struct Attempt<'a> {
    root: &'a DataRoot,
    destination: &'a Destination,
    name: &'a str,
    of_root: &'a [u8],
    /// The number of the backup.
    backup: u64,
    /// Its own.
    number: u64,
    /// Wall-clock microseconds at which it was begun: its snapshots are taken afterwards.
    begun_micros: i64,
    work: &'a Arc<Work>,
    /// Whether the digests of the rows are noted.
    digests: bool,
}

/// Makes a backup of tables, or of all tables if there are none, with the digests of their rows if these are wanted; its entry.
pub async fn create(
    root: &DataRoot,
    destination: &Destination,
    name: &str,
    (tables, digests): (&[TableName], bool),
    work: &Arc<Work>,
) -> Result<Entry> {
    check_name(name)?;
    work.begin("beginning")?;
    let of_root = root.id().await?;
    let (number, begun_micros) = (root.env().random_u64().max(1), root.moment().await?);
    let (state, backup) = match begin(root, destination, name, (&of_root, number, begun_micros)).await {
        Err(BackupError::Exists(name)) => {
            // It may have been completed by an attempt that ended before it deleted its snapshots.
            let own = destination.settled_state().await?.backups.into_iter();
            for entry in own.filter(|entry| entry.name == name && entry.root == of_root) {
                delete_snapshots(root, entry.id).await?;
            }
            return Err(BackupError::Exists(name));
        }
        begun => begun?,
    };
    let attempt = Attempt {
        root,
        destination,
        name,
        of_root: &of_root,
        backup,
        number,
        begun_micros,
        work,
        digests,
    };
    let (entry, others) = match attempt.run(&state, tables).await {
        Ok(made) => made,
        Err(error) => return Err(attempt.failed(error).await),
    };
    delete_snapshots(root, backup).await?;
    attempt.sweep(&entry, &others).await;
    Ok(entry)
}

impl Attempt<'_> {
    /// The entry of the complete backup, and the other attempts at it.
    async fn run(&self, state: &State, tables: &[TableName]) -> Result<(Entry, Vec<u64>)> {
        let (destination, work) = (self.destination, self.work);
        work.begin("taking snapshots")?;
        // So that the log from the begin of the attempt on has every write that its snapshots lack.
        self.root.level(self.begun_micros).await?;
        let snapshots = take_snapshots(self.root, self.backup, tables, work).await?;
        let parts = copy_parts(self.root, destination, self.number, &snapshots).await?;
        work.expect(parts.len() as u64, parts.values().sum());
        work.begin("comparing with earlier backups")?;
        let begun = state.backups.iter().find(|entry| entry.id == self.backup);
        let attempts = begun.map(Entry::all_attempts).unwrap_or_default();
        let mut copying = Copying::new(self.root, destination, (self.number, attempts), parts, work);
        copying.resume().await?;
        copying.take_over(state, self.of_root).await?;
        work.begin("copying")?;
        copying.copy().await?;
        let mut of_tables: Vec<TableOf> = snapshots.iter().map(|entry| table_of(entry)).collect();
        if self.digests {
            work.begin("reading rows")?;
            for (entry, table) in snapshots.iter().zip(&mut of_tables) {
                let digest = digest_of(self.root, entry, work).await?;
                (table.rows, table.cells, table.sha256) = (digest.rows, digest.cells, digest.sha256);
            }
        }
        work.begin("completing")?;
        self.root.level(0).await?;
        let (files, bytes, copied_bytes, lists) = copying.finish().await?;
        let record = Record {
            id: self.backup,
            name: self.name.to_owned(),
            root: self.of_root.to_vec(),
            tables: of_tables,
            lists,
            created_by: concat!("stele ", env!("CARGO_PKG_VERSION")).to_owned(),
            attempt: self.number,
            of_some: !tables.is_empty(),
        };
        let path = paths::record(self.number);
        destination.put(&path, record.encode_file(&path)?).await?;
        let complete = Entry {
            completed_micros: self.root.moment().await?.max(1),
            tables: snapshots.len() as u64,
            files,
            bytes,
            copied_bytes,
            attempts: vec![self.number],
            ..Entry::default()
        };
        self.complete(complete).await
    }

    /// Makes the backup complete by this attempt, unless another has completed it.
    async fn complete(&self, complete: Entry) -> Result<(Entry, Vec<u64>)> {
        let mut others = Vec::new();
        let (_, entry) = self
            .destination
            .change(|state| {
                let entry = state.backups.iter_mut().find(|entry| entry.id == self.backup);
                let entry = entry.ok_or_else(|| BackupError::DeletedMeanwhile(self.name.to_owned()))?;
                if entry.is_complete() {
                    return match entry.attempt() == self.number {
                        true => Ok(entry.clone()),
                        false => Err(BackupError::Exists(self.name.to_owned())),
                    };
                }
                assert!(
                    entry.attempts.contains(&self.number),
                    "the files of an attempt that the state does not name may have been deleted"
                );
                others = entry.all_attempts().to_vec();
                others.retain(|attempt| *attempt != self.number);
                *entry = Entry {
                    id: entry.id,
                    name: std::mem::take(&mut entry.name),
                    root: std::mem::take(&mut entry.root),
                    // Restores to moments follow the log from here on. Changes since the begin of an earlier attempt are in the snapshots.
                    begun_micros: self.begun_micros,
                    since: entry.since,
                    ..complete.clone()
                };
                Ok(entry.clone())
            })
            .await?;
        Ok((entry, others))
    }

    /// Deletes the files that other attempts than the one that completed the backup have left.
    async fn sweep(&self, entry: &Entry, others: &[u64]) {
        if let Err(error) = sweep_attempts(self.destination, entry, others, self.work).await {
            tracing::warn!(backup = self.name, %error, "files of other attempts are left to the next deletion");
        }
    }

    /// The error of this attempt: if another one has completed the backup meanwhile, that, since it has deleted the files of this one.
    /// The same if the backup was deleted.
    async fn failed(&self, error: BackupError) -> BackupError {
        let Ok(state) = self.destination.settled_state().await else {
            return error;
        };
        let entry = state.backups.iter().find(|entry| entry.id == self.backup);
        // Nothing continues the backup, also if another server has deleted it, which does not see these snapshots.
        if entry.is_none_or(Entry::is_complete)
            && let Err(error) = delete_snapshots(self.root, self.backup).await
        {
            tracing::warn!(backup = self.name, %error, "snapshots of a backup are left");
        }
        match entry {
            Some(entry) if entry.is_complete() => {
                if entry.attempt() != self.number {
                    self.sweep(entry, &[self.number]).await;
                }
                BackupError::Exists(self.name.to_owned())
            }
            Some(_) => error,
            None => BackupError::DeletedMeanwhile(self.name.to_owned()),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sound) {
        let message = format!("a backup has a name of 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`");
        return Err(BackupError::Invalid(message));
    }
    Ok(())
}

/// Enters an attempt at the backup into the state; the state and the number of the backup.
async fn begin(
    root: &DataRoot,
    destination: &Destination,
    name: &str,
    (of_root, attempt, begun_micros): (&[u8], u64, i64),
) -> Result<(State, u64)> {
    let id = root.env().random_u64().max(1);
    let changed = destination.change(|state| {
        match state.backups.iter_mut().find(|entry| entry.name == name) {
            Some(entry) if entry.is_complete() => return Err(BackupError::Exists(name.to_owned())),
            Some(entry) if entry.root != of_root => return Err(BackupError::OfAnother(name.to_owned())),
            Some(entry) if entry.attempts.contains(&attempt) => return Ok(entry.id),
            Some(entry) if entry.attempts.len() >= ATTEMPTS_MAX => {
                let message = format!("backup {name} was begun {ATTEMPTS_MAX} times and never completed: delete it");
                return Err(BackupError::TooMuch(message));
            }
            Some(entry) => {
                entry.attempts = [entry.all_attempts(), &[attempt]].concat();
                return Ok(entry.id);
            }
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
            begun_micros,
            since: state.number,
            attempts: vec![attempt],
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

/// Takes a snapshot of each table, of all tables if none are named. Those of earlier attempts go first: they lack writes that were
/// acknowledged since, and some may be of tables that are gone or not wanted.
async fn take_snapshots(
    root: &DataRoot,
    backup: u64,
    tables: &[TableName],
    work: &Work,
) -> Result<Vec<Arc<SnapshotEntry>>> {
    delete_snapshots(root, backup).await?;
    let view = root.catalog().view();
    let wanted: BTreeSet<TableName> = match tables {
        // A table that a restore has not completed is no table yet.
        [] => {
            let complete = view.tables.iter().filter(|(_, entry)| !entry.schema.is_unfinished());
            complete.map(|(name, _)| name.clone()).collect()
        }
        tables => tables.iter().cloned().collect(),
    };
    let mut taken = Vec::with_capacity(wanted.len());
    for table in wanted {
        work.check()?;
        let id = root.catalog().table(&table)?.schema.id;
        let name = SnapshotName::new(
            table.namespace.clone(),
            format!("{}{:016x}", snapshot_prefix(backup), id.0),
        );
        let new = NewSnapshot {
            name: name.clone(),
            table,
            flush: true,
            only_of_name: false,
            expires_micros: None,
            front_end_data: Vec::new(),
        };
        root.master().create_snapshot(new).await?;
        taken.push(root.catalog().snapshot(&name.namespace, &name.name)?);
    }
    match taken.is_empty() {
        true => Err(BackupError::Invalid("there is no table to back up".to_owned())),
        false => Ok(taken),
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
    attempt: u64,
    snapshots: &[Arc<SnapshotEntry>],
) -> Result<Needed> {
    let mut needed = Needed::new();
    for (table, entry) in (0..).zip(snapshots) {
        for part in 0..entry.parts {
            let path = snapshot::path(entry.id, part);
            let content = root.storage().read_all(&path).await.map_err(BackupError::Data)?;
            let decoded = snapshot::SnapshotPart::decode_file(&path, &content)?;
            needed.extend(decoded.stored());
            destination.put(&paths::part(attempt, table, part), content).await?;
        }
    }
    Ok(needed)
}

fn table_of(entry: &SnapshotEntry) -> TableOf {
    TableOf {
        table: stele_catalog::record::encode_table(&entry.schema, entry.tablet_set).to_vec(),
        created_micros: entry.created_micros,
        completed_micros: entry.completed_micros,
        parts: entry.parts,
        tablets: entry.tablets,
        bytes: entry.bytes,
        ..TableOf::default()
    }
}

/// The digest of the rows of a snapshot in the data root.
async fn digest_of(root: &DataRoot, entry: &SnapshotEntry, work: &Arc<Work>) -> Result<TableDigest> {
    work.expect(0, entry.bytes);
    let mut digesting = Digesting::of_root(work, root.storage(), entry.schema.clone(), entry.completed_micros);
    for part in 0..entry.parts {
        for manifest in snapshot::read(&**root.storage(), entry.id, part).await?.tablets {
            digesting.add(manifest).await?;
        }
    }
    Ok(digesting.finish())
}
