//! Compares the rows of a range in source and target.
//!
//! Both sides are scanned at the same time, and their rows merged by key. Only digests are kept. A row that differs is a
//! *suspect*: in a live system one side may simply be later than the other, so [`crate::recheck`] decides.

use crate::digest::{RowDigest, RowDigests};
use crate::ends::Ends;
use crate::pace::Pace;
use anyhow::Result;
use bytes::Bytes;
use std::sync::Arc;
use stele_hbaseclient::Cluster;
use stele_hbaseclient::scan::{Rows, Scanner, View};

/// Most suspects of a range, whose keys are kept. With more, the range is given up: something is wrong that a list of
/// rows does not explain.
pub const SUSPECTS_MAX: usize = 10_000;

/// Rows between calls of `seen`.
const STEP_ROWS: u64 = 1024;

/// Rows compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rows that one side has, or both.
    pub rows: u64,
    /// Cells of the source.
    pub cells: u64,
    /// Bytes of the source's cells on the wire.
    pub bytes: u64,
}

/// Result of comparing a range.
#[derive(Debug, Default)]
pub struct Compared {
    /// Rows that differ, with the source's cells.
    pub suspects: Vec<(Bytes, RowDigest)>,
    /// Whether there were too many of them, so that the rest of the range was not compared.
    pub gave_up: bool,
}

/// The side that has the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Both,
    Source,
    Target,
    Neither,
}

fn next(source: Option<&Bytes>, target: Option<&Bytes>) -> Next {
    match (source, target) {
        (None, None) => Next::Neither,
        (Some(_), None) => Next::Source,
        (None, Some(_)) => Next::Target,
        (Some(a), Some(b)) if a == b => Next::Both,
        (Some(a), Some(b)) if a < b => Next::Source,
        _ => Next::Target,
    }
}

/// The visible cells of some rows, as digests.
pub fn digests(cluster: &Arc<Cluster>, table: &str, rows: Rows) -> RowDigests {
    RowDigests::new(Scanner::new(Arc::clone(cluster), table, rows, View::Visible))
}

/// Compares a range. `seen` gets the numbers of rows compared since its last call.
///
/// # Errors
/// Those of the scans.
pub async fn compare(ends: &Ends, table: &str, rows: Rows, pace: &Pace, seen: impl Fn(Seen)) -> Result<Compared> {
    let mut source = digests(&ends.source, table, rows.clone());
    let mut target = digests(&ends.target, table, rows);
    let (first, second) = futures::join!(source.next(), target.next());
    let (mut a, mut b) = (first?, second?);
    let (mut compared, mut step) = (Compared::default(), Seen::default());
    let mut bytes = 0;
    loop {
        let turn = next(a.as_ref().map(|(row, _)| row), b.as_ref().map(|(row, _)| row));
        let of_source: Option<(Bytes, RowDigest)> = a.take_if(|_| matches!(turn, Next::Both | Next::Source));
        let of_target: Option<(Bytes, RowDigest)> = b.take_if(|_| matches!(turn, Next::Both | Next::Target));
        if turn == Next::Neither || compared.gave_up {
            step.bytes = source.bytes - bytes;
            seen(step);
            return Ok(compared);
        }
        step.rows += 1;
        step.cells += of_source.as_ref().map_or(0, |(_, digest)| digest.cells);
        if of_source != of_target
            && let Some((row, _)) = of_source.as_ref().or(of_target.as_ref())
        {
            compared.gave_up = compared.suspects.len() >= SUSPECTS_MAX;
            // A copy: the row is a slice of a whole response.
            let row = Bytes::copy_from_slice(row);
            let digest = of_source.as_ref().map(|(_, digest)| *digest).unwrap_or_default();
            compared.suspects.push((row, digest));
        }
        match turn {
            Next::Source => a = source.next().await?,
            Next::Target => b = target.next().await?,
            Next::Both | Next::Neither => {
                let (first, second) = futures::join!(source.next(), target.next());
                (a, b) = (first?, second?);
            }
        }
        if step.rows >= STEP_ROWS {
            step.bytes = source.bytes - bytes;
            bytes = source.bytes;
            pace.take(step.bytes).await;
            seen(std::mem::take(&mut step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_row_is_next() {
        let row = |text: &'static str| Some(Bytes::from(text));
        for (source, target, expected) in [
            (None, None, Next::Neither),
            (row("a"), None, Next::Source),
            (None, row("a"), Next::Target),
            (row("a"), row("a"), Next::Both),
            (row("a"), row("b"), Next::Source),
            (row("b"), row("a"), Next::Target),
        ] {
            assert_eq!(next(source.as_ref(), target.as_ref()), expected);
        }
    }
}
