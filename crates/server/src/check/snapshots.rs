//! Checks the parts of snapshots and collects the files that they name.

use super::report::{Report, unreadable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_storage::{Storage, StorageError};
use stele_tablet::snapshot;
use stele_tablet::{StoredFile, TabletError};
use stele_types::{ErrorKind, SnapshotId};

/// A snapshot that the catalog names.
pub struct NamedSnapshot {
    /// Its name, with that of its table.
    pub shown: String,
    /// Which snapshot.
    pub id: SnapshotId,
    /// Its parts.
    pub parts: u32,
    /// Its tablets.
    pub tablets: u64,
}

/// The files that snapshots name.
#[derive(Default)]
pub struct Snapshots {
    /// The bytes of each file as the snapshots expect them, and the first snapshot that names it.
    pub files: BTreeMap<StoredFile, (u64, Arc<str>)>,
    /// Whether some part cannot be read, which may name more files.
    pub is_incomplete: bool,
    /// Parts of snapshots that the catalog does not name, if it can be read.
    pub unnamed: BTreeSet<(SnapshotId, u32)>,
}

impl Snapshots {
    /// Whether a snapshot names a file.
    pub fn names(&self, file: StoredFile) -> bool {
        self.files.contains_key(&file)
    }
}

/// Reads the parts of all snapshots. Without a catalog it reads every part in storage.
pub async fn check(
    storage: &Arc<dyn Storage>,
    named: Option<&[NamedSnapshot]>,
    report: &mut Report,
) -> anyhow::Result<Snapshots> {
    let mut snapshots = Snapshots::default();
    let mut left: BTreeSet<(SnapshotId, u32)> = BTreeSet::new();
    for file in storage.list(snapshot::DIRECTORY).await? {
        left.extend(snapshot::parse_path(&file.path));
    }
    for one in named.into_iter().flatten() {
        let mut tablets = 0;
        for part in 0..one.parts {
            left.remove(&(one.id, part));
            tablets += check_part(storage, (one.id, part), &one.shown, &mut snapshots, report).await?;
        }
        if tablets != one.tablets && !snapshots.is_incomplete {
            let what = format!(
                "{tablets} tablets of snapshot {}, the catalog says {}",
                one.shown, one.tablets
            );
            report.damage(&snapshot::directory(one.id), None, what, Vec::new());
        }
    }
    for (id, part) in left {
        match named {
            Some(_) => {
                snapshots.unnamed.insert((id, part));
                report.note(
                    &snapshot::path(id, part),
                    "of a snapshot that is no more; the next start removes it",
                );
            }
            None => drop(check_part(storage, (id, part), &id.to_string(), &mut snapshots, report).await?),
        }
    }
    Ok(snapshots)
}

/// Adds the files of a part; how many tablets it has.
async fn check_part(
    storage: &Arc<dyn Storage>,
    (id, part): (SnapshotId, u32),
    shown: &str,
    snapshots: &mut Snapshots,
    report: &mut Report,
) -> anyhow::Result<u64> {
    let path = snapshot::path(id, part);
    let found = match snapshot::read(&**storage, id, part).await {
        Ok(found) => found,
        Err(error) => {
            snapshots.is_incomplete = true;
            note_unreadable(&path, shown, error, report)?;
            return Ok(0);
        }
    };
    let name: Arc<str> = Arc::from(shown);
    for (file, bytes) in found.stored() {
        snapshots.files.entry(file).or_insert_with(|| (bytes, name.clone()));
    }
    Ok(found.tablets.len() as u64)
}

/// Adds the damage of a part. A transient error of the storage ends the check.
fn note_unreadable(path: &str, shown: &str, error: TabletError, report: &mut Report) -> anyhow::Result<()> {
    match error {
        TabletError::Storage(StorageError::Unreadable { path, offset, message }) => {
            report.damage(&path, Some(offset), unreadable(&message), Vec::new());
        }
        TabletError::TooNew { ref path, .. } => report.damage(path, Some(8), error.to_string(), Vec::new()),
        error if error.kind() == ErrorKind::Corruption => {
            let what = format!("snapshot {shown} cannot be used, delete it: {error}");
            report.damage(path, None, what, Vec::new());
        }
        error => return Err(error.into()),
    }
    Ok(())
}
