//! Decides about rows that differed in a comparison.
//!
//! In a live system the target follows the source by the time that replication takes, so such rows are read several
//! times, with growing pauses. A row is equal when both sides have the same cells in one of the attempts. If its source
//! keeps changing, it is enough that the target has the source's cells of the attempt before.

use crate::compare::digests;
use crate::digest::RowDigest;
use crate::ends::Ends;
use anyhow::Result;
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use std::time::Duration;
use stele_hbaseclient::scan::Rows;

/// The pause before the first attempt. Each is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(16);

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
    /// Whether the source changed between the last two attempts, so that the difference may be one of time only.
    pub changing: bool,
}

/// A row between attempts.
#[derive(Debug, Clone)]
struct Suspect {
    row: Bytes,
    /// The source's cells in the attempt before.
    before: Option<RowDigest>,
}

/// Reads rows until they are equal, and returns those that are not after all attempts.
///
/// # Errors
/// Those of the reads.
pub async fn settle(ends: &Ends, table: &str, rows: Vec<Bytes>, attempts: u8) -> Result<Vec<Difference>> {
    let new = |row| Suspect { row, before: None };
    let mut suspects: Vec<Suspect> = rows.into_iter().map(new).collect();
    let mut pause = PAUSE;
    for attempt in 1..=attempts.max(1) {
        if suspects.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        let differences = attempt_all(ends, table, suspects).await?;
        pause = (pause * 2).min(PAUSE_MAX);
        if attempt == attempts.max(1) {
            return Ok(differences.into_iter().filter_map(judge).collect());
        }
        let kept = |(suspect, source, _): (Suspect, RowDigest, RowDigest)| Suspect {
            before: Some(source),
            ..suspect
        };
        suspects = differences.into_iter().map(kept).collect();
    }
    Ok(Vec::new())
}

/// Reads all rows on both sides, and returns those that differ, in order.
async fn attempt_all(ends: &Ends, table: &str, suspects: Vec<Suspect>) -> Result<Vec<(Suspect, RowDigest, RowDigest)>> {
    let read = |suspect: Suspect| async move {
        let source = row(&ends.source, table, &suspect.row);
        let target = row(&ends.target, table, &suspect.row);
        let (source, target) = futures::try_join!(source, target)?;
        Ok::<_, anyhow::Error>((suspect, source, target))
    };
    let reads = futures::stream::iter(suspects).map(read).buffered(PARALLEL);
    let differs = |read: &(Suspect, RowDigest, RowDigest)| std::future::ready(read.1 != read.2);
    reads.try_filter(differs).try_collect().await
}

async fn row(cluster: &std::sync::Arc<stele_hbaseclient::Cluster>, table: &str, row: &Bytes) -> Result<RowDigest> {
    let found = digests(cluster, table, Rows::one(row.clone())).next().await?;
    Ok(found.map(|(_, digest)| digest).unwrap_or_default())
}

/// The verdict after the last attempt; `None` if the target follows.
fn judge((suspect, source, target): (Suspect, RowDigest, RowDigest)) -> Option<Difference> {
    let changing = suspect.before.is_some_and(|before| before != source);
    if changing && suspect.before == Some(target) {
        return None;
    }
    Some(Difference {
        row: suspect.row,
        source,
        target,
        changing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(before: u64, source: u64, target: u64) -> Option<bool> {
        let digest = |cells| RowDigest {
            cells,
            ..RowDigest::default()
        };
        let suspect = Suspect {
            row: "r".into(),
            before: Some(digest(before)),
        };
        judge((suspect, digest(source), digest(target))).map(|difference| difference.changing)
    }

    #[test]
    fn only_a_source_that_changes_may_be_ahead() {
        assert_eq!(judged(1, 2, 1), None, "the target follows");
        assert_eq!(judged(1, 2, 3), Some(true));
        assert_eq!(judged(2, 2, 1), Some(false));
    }
}
