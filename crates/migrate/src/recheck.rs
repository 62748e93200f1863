//! Decides about rows that differed in a comparison.
//!
//! In a live system the target follows the source by the time that replication takes, so such rows are read several
//! times, with growing pauses. A row is equal when both sides have the same cells in one of the attempts. If its source
//! keeps changing, it is watched: it is enough that the target has cells that the source had a moment before.

use crate::compare::digests;
use crate::digest::RowDigest;
use crate::ends::Ends;
use anyhow::Result;
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Duration;
use stele_hbaseclient::Cluster;
use stele_hbaseclient::scan::Rows;

/// The pause before the first attempt. Each is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// How often a changing row is read on both sides, and the pauses meanwhile. As many states of the source are kept. It is a
/// number and no time: a row that changes many times between two reads needs as many reads on a slow machine.
const WATCHES: usize = 500;
const WATCH_PAUSE: Duration = Duration::from_millis(10);

/// Rows read at a time.
const PARALLEL: usize = 16;

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its key.
    pub row: Bytes,
    /// The source's cells.
    pub source: RowDigest,
    /// The target's.
    pub target: RowDigest,
    /// Whether the source changed between the last two attempts. The target then did not follow while it was watched.
    pub changing: bool,
}

/// A row between attempts.
#[derive(Debug, Clone)]
struct Suspect {
    row: Bytes,
    /// The source's cells in the attempt before.
    before: RowDigest,
}

/// Both sides of a row in one attempt.
struct Read {
    suspect: Suspect,
    source: RowDigest,
    target: RowDigest,
}

/// Reads rows until they are equal, and returns those that are not after all attempts. Each comes with the source's
/// cells when it was found to differ.
///
/// # Errors
/// Those of the reads.
pub async fn settle(ends: &Ends, table: &str, rows: Vec<(Bytes, RowDigest)>, attempts: u8) -> Result<Vec<Difference>> {
    let new = |(row, before)| Suspect { row, before };
    let mut suspects: Vec<Suspect> = rows.into_iter().map(new).collect();
    let mut pause = PAUSE;
    for left in (0..attempts.max(1)).rev() {
        if suspects.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        let differing = attempt(ends, table, suspects).await?;
        if left == 0 {
            return conclude(ends, table, differing).await;
        }
        let kept = |read: Read| Suspect {
            before: read.source,
            ..read.suspect
        };
        suspects = differing.into_iter().map(kept).collect();
    }
    Ok(Vec::new())
}

/// Reads all rows on both sides, and returns those that differ, in order.
async fn attempt(ends: &Ends, table: &str, suspects: Vec<Suspect>) -> Result<Vec<Read>> {
    let read = |suspect: Suspect| async move {
        let source = digest(&ends.source, table, &suspect.row);
        let target = digest(&ends.target, table, &suspect.row);
        let (source, target) = futures::try_join!(source, target)?;
        Ok::<_, anyhow::Error>(Read {
            suspect,
            source,
            target,
        })
    };
    let reads = futures::stream::iter(suspects).map(read).buffered(PARALLEL);
    let differs = |read: &Read| std::future::ready(read.source != read.target);
    reads.try_filter(differs).try_collect().await
}

async fn digest(cluster: &Arc<Cluster>, table: &str, row: &Bytes) -> Result<RowDigest> {
    let found = digests(cluster, table, Rows::one(row.clone())).next().await?;
    Ok(found.map(|(_, digest)| digest).unwrap_or_default())
}

/// The verdicts after the last attempt: rows that change are watched before.
async fn conclude(ends: &Ends, table: &str, differing: Vec<Read>) -> Result<Vec<Difference>> {
    let verdict = |read: Read| async move {
        let changing = read.suspect.before != read.source;
        if changing && follows(ends, table, &read).await? {
            return Ok::<_, anyhow::Error>(None);
        }
        Ok(Some(Difference {
            row: read.suspect.row,
            source: read.source,
            target: read.target,
            changing,
        }))
    };
    let verdicts = futures::stream::iter(differing).map(verdict).buffered(PARALLEL);
    let differences: Vec<Option<Difference>> = verdicts.try_collect().await?;
    Ok(differences.into_iter().flatten().collect())
}

/// Whether the target comes to have cells that the source had a moment before.
async fn follows(ends: &Ends, table: &str, read: &Read) -> Result<bool> {
    let mut seen = vec![read.source];
    for _ in 0..WATCHES {
        if seen.contains(&digest(&ends.target, table, &read.suspect.row).await?) {
            return Ok(true);
        }
        tokio::time::sleep(WATCH_PAUSE).await;
        let source = digest(&ends.source, table, &read.suspect.row).await?;
        if seen.last() != Some(&source) {
            seen.push(source);
        }
    }
    Ok(false)
}
