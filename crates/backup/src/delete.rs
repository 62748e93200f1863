//! Deletes a backup, and then files that no other backup needs. `docs/formats/backup.md` has the rules.
//!
//! Invariant: a file is deleted only if no backup can ever need it again, judged by one state of the destination.

use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::{Deleted, Entry, ListedFile, State};
use crate::paths;
use crate::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_types::ErrorKind;

/// Files deleted in one call.
const DELETED_TOGETHER: usize = 1_000;
/// Attempts at a sweep while other deletions run.
const ATTEMPTS_MAX: usize = 10;

/// Deletes a backup, complete or not; its entry.
pub async fn delete(destination: &Destination, name: &str, work: &Arc<Work>) -> Result<Entry> {
    work.begin("deleting")?;
    let mut removed = None;
    destination
        .change(|state| {
            let at = state.backups.iter().position(|entry| entry.name == name);
            match (at, &removed) {
                (Some(at), _) => {
                    let entry = state.backups.remove(at);
                    // Nothing takes files over from an unfinished one.
                    if entry.is_complete() {
                        state.deleted.push(Deleted {
                            id: entry.attempt(),
                            since: state.number,
                        });
                    }
                    removed = Some(entry);
                }
                // An earlier attempt of this change has happened.
                (None, Some(_)) => {}
                (None, None) => return Err(BackupError::NoBackup(name.to_owned())),
            }
            Ok(())
        })
        .await?;
    let entry = removed.ok_or_else(|| BackupError::NoBackup(name.to_owned()))?;
    work.begin("deleting files")?;
    sweep(destination, work).await?;
    Ok(entry)
}

/// Deletes the files that no backup needs, and forgets deleted backups whose files nobody uses any more.
pub async fn sweep(destination: &Destination, work: &Arc<Work>) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        // Listed before the state is read: a backup that is not in the state by then has none of these files.
        let files = list(destination, paths::FILES).await?;
        let documents = list(destination, paths::DOCUMENTS).await?;
        let state = destination.settled_state().await?;
        match sweep_listed(destination, (files, documents), &state, work).await {
            // Another deletion may have removed a backup since, with its documents.
            Err(error) if error.kind() == ErrorKind::Corruption && destination.state().await? != state => {}
            swept => return swept,
        }
    }
    Err(BackupError::Contended)
}

async fn list(destination: &Destination, prefix: &str) -> Result<Vec<String>> {
    let listed = destination
        .storage()
        .list(prefix)
        .await
        .map_err(BackupError::Destination)?;
    Ok(listed.into_iter().map(|file| file.path).collect())
}

async fn sweep_listed(
    destination: &Destination,
    (files, documents): (Vec<String>, Vec<String>),
    state: &State,
    work: &Arc<Work>,
) -> Result<()> {
    let unfinished = || state.backups.iter().filter(|entry| !entry.is_complete());
    let oldest = unfinished().map(|entry| entry.since).min();
    let is_blocked = |deleted: &&Deleted| oldest.is_some_and(|oldest| oldest < deleted.since);
    let (blocked, free): (Vec<&Deleted>, Vec<&Deleted>) = state.deleted.iter().partition(is_blocked);
    let needed = needed(destination, state, &blocked).await?;
    let unfinished: BTreeSet<u64> = unfinished().flat_map(Entry::all_attempts).copied().collect();
    let is_garbage = |path: &String| {
        let found = paths::parse_file(path);
        found.is_some_and(|(by, _)| !unfinished.contains(&by) && !needed.contains(path))
    };
    let named = state.backups.iter().flat_map(Entry::all_attempts).copied();
    let named: BTreeSet<u64> = named.chain(blocked.iter().map(|deleted| deleted.id)).collect();
    let is_nobodys = |path: &String| paths::parse_document(path).is_some_and(|attempt| !named.contains(&attempt));
    let garbage: Vec<String> = files.into_iter().filter(is_garbage).collect();
    let nobodys: Vec<String> = documents.into_iter().filter(is_nobodys).collect();
    work.expect((garbage.len() + nobodys.len()) as u64, 0);
    delete_all(destination, &garbage, work).await?;
    delete_all(destination, &nobodys, work).await?;
    let gone: BTreeSet<u64> = free.iter().map(|deleted| deleted.id).collect();
    let forget = |state: &mut State| {
        state.deleted.retain(|deleted| !gone.contains(&deleted.id));
        Ok(())
    };
    destination.change(forget).await.map(drop)
}

/// The paths of all files that complete backups name, or deleted ones whose files an unfinished one may have taken over.
async fn needed(destination: &Destination, state: &State, blocked: &[&Deleted]) -> Result<BTreeSet<String>> {
    let mut needed = BTreeSet::new();
    for entry in state.backups.iter().filter(|entry| entry.is_complete()) {
        // A list that cannot be read ends the sweep: nobody knows the files that it names.
        note_backup(destination, entry.attempt(), &mut needed).await?;
    }
    // Programs that knew no attempts noted unfinished ones, too, which have no record.
    for deleted in blocked {
        for number in destination.list_numbers(deleted.id).await? {
            note(&mut needed, destination.list(deleted.id, number).await?);
        }
    }
    Ok(needed)
}

/// Notes the files that a complete backup names.
async fn note_backup(destination: &Destination, attempt: u64, needed: &mut BTreeSet<String>) -> Result<()> {
    for number in 0..destination.record(attempt).await?.lists {
        note(needed, destination.list(attempt, number).await?);
    }
    Ok(())
}

/// Deletes the documents of other attempts at a backup that was completed just now, and the files of these that it does not
/// name. No other backup will ever name them: only attempts at this backup take files of such attempts over.
pub(crate) async fn sweep_attempts(
    destination: &Destination,
    entry: &Entry,
    others: &[u64],
    work: &Arc<Work>,
) -> Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    let mut needed = BTreeSet::new();
    note_backup(destination, entry.attempt(), &mut needed).await?;
    for attempt in others {
        let mut paths = list(destination, &paths::files_of(*attempt)).await?;
        paths.retain(|path| !needed.contains(path));
        paths.extend(list(destination, &paths::documents(*attempt)).await?);
        work.expect(paths.len() as u64, 0);
        delete_all(destination, &paths, work).await?;
    }
    Ok(())
}

fn note(needed: &mut BTreeSet<String>, files: Vec<ListedFile>) {
    let paths = files
        .into_iter()
        .filter_map(|file| Some(paths::file(file.copied_by, file.stored()?)));
    needed.extend(paths);
}

async fn delete_all(destination: &Destination, paths: &[String], work: &Arc<Work>) -> Result<()> {
    for some in paths.chunks(DELETED_TOGETHER) {
        work.check()?;
        destination
            .storage()
            .delete_all(some)
            .await
            .map_err(BackupError::Destination)?;
        some.iter().for_each(|_| work.was_read());
    }
    Ok(())
}
