//! Replays a log that exceeds the memory for memtables, a few tablets at a time.
//!
//! The records of the log were in memtables once, several times as large as in the log, but a server with more memory may have
//! written them. So they are replayed as far as they fit. If they do not, all of them are forgotten. The log is read again
//! for as many tablets at a time as fit, which are flushed before the next ones have their turn. A tablet that does not
//! fit by itself has a turn alone.
//!
//! Invariant: a tablet is flushed here only after all its records were replayed. A manifest says up to which number its files
//! hold everything, and records of a tablet need not come in the order of their numbers.

use super::source::{Source, tablets_of};
use crate::error::ServerError;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stele_commitlog::{LogError, ReplayReport};
use stele_tablet::{Batch, MemoryAccount, Tablet};
use stele_types::{SeqNo, TabletId};

/// Approximate memory of an entry in a memtable in addition to key and value: their lengths, and its place in the
/// tree.
const ENTRY_BYTES: usize = 24;

/// Tablets flushed concurrently: each takes a few megabytes.
const FLUSHES_CONCURRENT: usize = 4;

/// By tablet, about how many bytes of memtables its part of the log comes to.
pub(super) type Sizes = BTreeMap<TabletId, u64>;

/// Replays logs into all tablets, whose memtables have this account. If the account comes to more than `bytes_max`, nothing of the
/// logs is in memtables afterwards, and it is said how much it would be. Returns a report for each log.
pub(super) async fn replay_within(
    sources: &[Source<'_>],
    memory: &MemoryAccount,
    bytes_max: u64,
) -> Result<(Vec<ReplayReport>, Option<Sizes>), LogError> {
    let mut left_out = Sizes::new();
    let mut is_full = false;
    let mut visit = |tablet: &Tablet, batch: &Batch, first: SeqNo, last: SeqNo| {
        if !is_full {
            tablet.replay(batch, first, last);
            is_full = memory.bytes() > bytes_max;
        } else if last > tablet.flushed_through() {
            *left_out.entry(tablet.id()).or_default() += size_of_batch(batch, first);
        }
    };
    let mut reports = Vec::with_capacity(sources.len());
    for source in sources {
        reports.push(source.replay(|_| true, &mut visit).await?);
    }
    assert_eq!(reports.len(), sources.len(), "each log is replayed once");
    if !is_full {
        return Ok((reports, None));
    }
    let mut sizes = left_out;
    for (id, tablet) in tablets_of(sources) {
        *sizes.entry(id).or_default() += tablet.state().memtable_bytes();
        tablet.forget_replayed();
        debug_assert_eq!(
            tablet.state().memtable_bytes(),
            0,
            "nothing of a tablet is in memory before it is replayed again"
        );
    }
    Ok((reports, Some(sizes)))
}

/// Replays logs into some tablets after the others, and flushes these. A tablet that cannot be flushed stays in
/// memory, as it does while a server serves. This fails where such tablets take more than half of the memory, and
/// more are to come: then nothing can be served.
pub(super) async fn replay_in_parts(
    sources: &[Source<'_>],
    sizes: &Sizes,
    memory: &MemoryAccount,
    bytes_max: u64,
) -> Result<(), ServerError> {
    let (tablets, parts) = (tablets_of(sources), parts(sizes, bytes_max));
    tracing::warn!(
        parts = parts.len(),
        bytes = sizes.values().sum::<u64>(),
        bytes_max,
        "the log comes to more than memtables may take; it is replayed and flushed in parts"
    );
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let some: BTreeMap<TabletId, Arc<Tablet>> = part.iter().map(|id| (*id, tablets[id].clone())).collect();
        for source in sources {
            source.replay(|id| some.contains_key(id), Tablet::replay).await?;
        }
        let flush = |tablet: Arc<Tablet>| async move { (tablet.id(), tablet.flush().await) };
        let mut flushed = futures::stream::iter(some.into_values())
            .map(flush)
            .buffer_unordered(FLUSHES_CONCURRENT);
        let mut failed = None;
        while let Some((tablet, outcome)) = flushed.next().await {
            if let Err(error) = outcome {
                tracing::warn!(%tablet, %error, "not flushed at the start; the log has it");
                failed = Some(ServerError::Tablet { tablet, error });
            }
        }
        let has_reservation = parts.peek().is_none() || memory.bytes() <= bytes_max / 2;
        if let Some(failed) = failed.filter(|_| !has_reservation) {
            tracing::error!(
                bytes_max,
                "the log comes to more than memory, and there is no room for what follows; a start with more memory may help, or disk space"
            );
            return Err(failed);
        }
    }
    Ok(())
}

fn size_of_batch(batch: &Batch, first: SeqNo) -> u64 {
    let mut bytes = 0;
    batch.entries(first, |key, value| bytes += key.len() + value.len() + ENTRY_BYTES);
    bytes as u64
}

/// Tablets that have their turn together: as many as fit, one at least.
fn parts(sizes: &Sizes, bytes_max: u64) -> Vec<BTreeSet<TabletId>> {
    let mut parts: Vec<BTreeSet<TabletId>> = Vec::new();
    let mut left = 0;
    for (tablet, bytes) in sizes.iter().filter(|(_, bytes)| **bytes > 0) {
        match parts.last_mut().filter(|_| *bytes <= left) {
            Some(part) => {
                part.insert(*tablet);
                left -= bytes;
            }
            None => {
                parts.push(BTreeSet::from([*tablet]));
                left = bytes_max.saturating_sub(*bytes);
            }
        }
    }
    debug_assert_eq!(
        parts.iter().map(BTreeSet::len).sum::<usize>(),
        sizes.values().filter(|bytes| **bytes > 0).count(),
        "each tablet with something to replay has its turn once"
    );
    debug_assert!(
        parts
            .iter()
            .all(|part| part.len() == 1 || part.iter().map(|id| sizes[id]).sum::<u64>() <= bytes_max),
        "tablets that have their turn together fit"
    );
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_tablets_have_their_turn_as_fit() {
        let of = |sizes: &[u64]| -> Vec<Vec<u64>> {
            let sizes = (0..).map(TabletId).zip(sizes.iter().copied()).collect();
            let parts = parts(&sizes, 10);
            parts
                .iter()
                .map(|part| part.iter().map(|tablet| tablet.0).collect())
                .collect()
        };
        assert_eq!(of(&[]), Vec::<Vec<u64>>::new());
        assert_eq!(of(&[4, 0, 6, 1]), [vec![0, 2], vec![3]]);
        assert_eq!(of(&[11, 11, 3, 7]), [vec![0], vec![1], vec![2, 3]]);
    }
}
