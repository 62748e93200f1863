//! Deletes parts of an archive that no backup needs.
//!
//! A backup needs the parts from the moment at which it was begun. One of another data root needs nothing of this archive. While a
//! destination has no backup of the root, everything stays.
//!
//! Order: documents first, then pieces. Files are deleted in any order within these. So an interruption leaves old documents with holes
//! between them, and pieces below the first part that is needed. These documents are ranges of their own, and no
//! range that a backup needs has a hole. The next run deletes the rest.

use super::format::{self, parse_piece};
use super::store::{Archive, Range};
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::work::Work;
use std::sync::Arc;

/// Files deleted in one call.
const DELETED_TOGETHER: usize = 1_000;

/// Deletes the parts that no backup at the destination needs; their number.
pub async fn prune(archive: &Archive, destination: &Destination, work: &Arc<Work>) -> Result<u64> {
    work.begin("finding old parts")?;
    let ranges = archive.ranges().await?;
    let Some(newest) = ranges.last() else { return Ok(0) };
    // Unfinished ones, too: they may be completed.
    let state = destination.state().await?;
    let of_root = state.backups.iter().filter(|entry| entry.root == newest.root);
    let Some(oldest) = of_root.map(|entry| entry.begun_micros).min() else {
        let message = "the destination has no backup of the data whose log is archived, so no part of the archive is known to be old";
        return Err(BackupError::Moment(message.to_owned()));
    };
    let first_kept = first_kept(archive, &ranges, oldest).await?;
    let old: Vec<u64> = archive
        .numbers()
        .await?
        .into_iter()
        .filter(|number| *number < first_kept)
        .collect();
    work.expect(old.len() as u64, 0);
    work.begin("deleting old parts")?;
    let paths: Vec<String> = old.iter().map(|number| format::part_path(*number)).collect();
    delete_all(archive, &paths, work).await?;
    work.begin("deleting the log in them")?;
    let listed = archive
        .storage()
        .list(format::PIECES)
        .await
        .map_err(BackupError::Archive)?;
    let pieces: Vec<String> = listed
        .into_iter()
        .map(|file| file.path)
        .filter(|path| parse_piece(path).is_some_and(|part| part < first_kept))
        .collect();
    delete_all(archive, &pieces, work).await?;
    Ok(old.len() as u64)
}

/// The first part that a backup needs which was begun at this moment, or later. The newest part always stays.
async fn first_kept(archive: &Archive, ranges: &[Range], oldest: i64) -> Result<u64> {
    for range in ranges {
        if range.to_micros <= oldest {
            continue;
        }
        return match range.from_micros >= oldest {
            true => Ok(range.first),
            // A record may be in the part after the moment of its group.
            false => archive.part_before(range, oldest).await,
        };
    }
    Ok(ranges.last().map_or(0, |range| range.last))
}

async fn delete_all(archive: &Archive, paths: &[String], work: &Arc<Work>) -> Result<()> {
    for some in paths.chunks(DELETED_TOGETHER) {
        work.check()?;
        archive.storage().delete_all(some).await.map_err(BackupError::Archive)?;
    }
    Ok(())
}
