//! Deletes parts of an archive that no backup needs.
//!
//! A backup needs the parts from the moment at which it was begun. One of another data root needs nothing of this archive. While a
//! destination has no backup of the root, everything stays. In a cluster the parts of the tables also stay from the last statement of all
//! tables on. The logs have writes of tables that a backup lacks, and a restore must know that these are of other tables.
//!
//! Order: documents first, then pieces. Files are deleted in any order within these. So an interruption leaves old documents with holes
//! between them, and pieces below the first part that is needed. These documents are ranges of their own, and no
//! range that a backup needs has a hole. The next run deletes the rest.

use super::format::{self, parse_piece};
use super::site::{AnyArchive, ClusterArchive};
use super::store::{Archive, Range};
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files deleted in one call.
const DELETED_TOGETHER: usize = 1_000;
/// The archive of a server that has ended stays for this time before the begin of the oldest backup. Its end is noted elsewhere a little
/// later than here, and a backup that was begun in between needs the archive.
const KEPT_MICROS: i64 = 3_600_000_000;

/// Deletes the parts that no backup at the destination needs; their number. Of a cluster also whole archives of servers that have ended.
pub async fn prune(archive: &AnyArchive, destination: &Destination, work: &Arc<Work>) -> Result<u64> {
    work.begin("finding old parts")?;
    let ranges = archive.tables().ranges().await?;
    let Some(newest) = ranges.last() else { return Ok(0) };
    // Unfinished ones, too: they may be completed.
    let state = destination.state().await?;
    let of_root = state.backups.iter().filter(|entry| entry.root == newest.root);
    let Some(oldest) = of_root.map(|entry| entry.begun_micros).min() else {
        let message = "the destination has no backup of the data whose log is archived, so no part of the archive is known to be old";
        return Err(BackupError::Moment(message.to_owned()));
    };
    let mut deleted = 0;
    if let AnyArchive::Cluster(cluster, _) = archive {
        for server in servers(cluster).await? {
            let of_server = cluster.server(server).open(false).await?;
            deleted += match is_over(&of_server, oldest).await? {
                true => delete_before(&of_server, u64::MAX, work).await?,
                false => {
                    let first_kept = first_kept(&of_server, &of_server.ranges().await?, oldest).await?;
                    delete_before(&of_server, first_kept, work).await?
                }
            };
        }
    }
    let tables = archive.tables();
    let mut kept = first_kept(tables, &ranges, oldest).await?;
    if let AnyArchive::Cluster(..) = archive
        && let Some(range) = ranges.iter().find(|range| (range.first..=range.last).contains(&kept))
    {
        kept = tables.statement_before(range, kept).await?;
    }
    Ok(deleted + delete_before(tables, kept, work).await?)
}

/// The servers of a cluster that have archives.
async fn servers(cluster: &ClusterArchive) -> Result<BTreeSet<u32>> {
    let storage = cluster.places.open(cluster.place.clone(), false).await?;
    let listed = storage.list(format::SERVERS).await.map_err(BackupError::Archive)?;
    // One that has been deleted but for its mark is left.
    let has_parts = listed.iter().filter(|file| file.path.contains(format::PARTS));
    Ok(has_parts.filter_map(|file| format::parse_server(&file.path)).collect())
}

/// Whether a server had ended long before a moment.
async fn is_over(archive: &Archive, oldest: i64) -> Result<bool> {
    let Some(last) = archive.numbers().await?.last().copied() else {
        return Ok(false);
    };
    let last = archive.part(last).await?;
    Ok(last.is_last && last.to_micros.saturating_add(KEPT_MICROS) < oldest)
}

/// Deletes the parts before one, and then their pieces.
async fn delete_before(archive: &Archive, first_kept: u64, work: &Arc<Work>) -> Result<u64> {
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
        if range.to_micros < oldest {
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
