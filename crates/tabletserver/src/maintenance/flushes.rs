//! Flushes: several tablets at once, so that none waits behind another while there is a core.
//!
//! What is being flushed still counts as memory until it is done, but no further tablet need be flushed for its sake:
//! the decision is made as if it were gone.

use super::{AFTER_FAILURE, FlushCandidate, FlushPressure, IDLE, pick_flush};
use crate::server::{Served, Stream, TabletServer};
use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stele_env::Priority;
use stele_tablet::TabletError;
use stele_types::TabletId;

/// Tablets flushed at once: enough to use the cores while some wait for the medium; each takes a few megabytes.
const FLUSHES_MAX: usize = 4;
/// How often all tablets are looked at though nothing presses, for what no write has announced: memtables that are
/// larger than they should be after a recovery, or were set aside by a flush that failed.
const ROUND: Duration = Duration::from_secs(10);

/// A flush that ended.
type Flushed = (TabletId, Result<(), TabletError>);

/// What the loop keeps in mind.
#[derive(Default)]
struct Board {
    /// Being flushed, with the bytes that frees.
    busy: BTreeMap<TabletId, u64>,
    /// Their flush failed: the others come first, or one bad file would stop them all.
    failed: BTreeSet<TabletId>,
    /// When that is forgotten.
    retry_at: Duration,
    /// When all tablets are looked at.
    round_at: Duration,
}

impl TabletServer {
    pub(super) async fn flush_loop(self: Arc<Self>) {
        let mut running: FuturesUnordered<BoxFuture<'static, Flushed>> = FuturesUnordered::new();
        let mut board = Board::default();
        while !self.is_stopping() {
            while running.len() < FLUSHES_MAX
                && let Some((tablet, bytes)) = self.flush_due(&mut board)
            {
                self.ripe.lock().remove(&tablet);
                board.busy.insert(tablet, bytes);
                running.push(self.clone().begin_flush(tablet));
            }
            self.metrics.running_flushes.set(running.len() as i64);
            if let Some(ended) = self.flush_event(&mut running).await {
                self.flush_ended(ended, &mut board);
            }
        }
    }

    /// A flush that ended, or nothing when a write has woken the loop or time has passed.
    async fn flush_event(&self, running: &mut FuturesUnordered<BoxFuture<'static, Flushed>>) -> Option<Flushed> {
        let woken = pin!(self.work.notified());
        let event = async {
            if running.is_empty() {
                woken.await;
                return None;
            }
            match select(running.next(), woken).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => None,
            }
        };
        self.env.timeout(IDLE, event).await.ok().flatten()
    }

    fn begin_flush(self: Arc<Self>, tablet: TabletId) -> BoxFuture<'static, Flushed> {
        Box::pin(async move {
            let server = self.clone();
            let flush = async move { server.flush_tablet(tablet).await };
            let flushed = self.env.spawn_join(Priority::Background, "flush", flush).await;
            // A task that is gone took its error with it, and the runtime is about to.
            (tablet, flushed.unwrap_or(Ok(())))
        })
    }

    fn flush_ended(&self, (tablet, flushed): Flushed, board: &mut Board) {
        board.busy.remove(&tablet);
        match flushed {
            Ok(()) => {
                self.admission.unflushable.ended(tablet);
                self.compactions.announce(tablet);
            }
            Err(error) => {
                match &error {
                    TabletError::Closed { .. } => self.admission.unflushable.ended(tablet),
                    error => self.admission.unflushable.failed(tablet, error.to_string()),
                }
                self.note_failure("flush", &error);
                self.ripe.lock().insert(tablet);
                board.failed.insert(tablet);
                board.retry_at = self.env.now() + AFTER_FAILURE;
            }
        }
    }

    /// The tablet whose flush is most due, and the bytes it frees.
    fn flush_due(&self, board: &mut Board) -> Option<(TabletId, u64)> {
        // First: what grows while this looks is new.
        let checked = self.context.memory.bytes();
        self.probed_bytes.store(checked, Ordering::Relaxed);
        let now = self.env.now();
        if now >= board.retry_at {
            board.failed.clear();
        }
        let unflushable = self.find_unflushable();
        let log_bytes = self.log_bytes(&unflushable);
        // What cannot go would have all others flushed for nothing.
        let is_gone = |id: &TabletId| !unflushable.contains(id);
        let going: u64 = board
            .busy
            .iter()
            .filter(|(id, _)| is_gone(id))
            .map(|(_, bytes)| bytes)
            .sum();
        let gone = going + self.admission.unflushable.memory_bytes();
        let mut pressure = FlushPressure {
            memory_bytes: self.context.memory.bytes().saturating_sub(gone) + self.admission.expected_bytes(),
            memory_bytes_max: self.options.memtables.bytes_max(),
            tablet_bytes: self.options.memtables.tablet_bytes(),
            log_bytes,
            log_bytes_max: self.options.log_bytes_max,
            is_disk_full: self.admission.is_disk_full(),
            has_reserve: self.admission.has_reserve(),
        };
        let holders = if log_bytes > pressure.log_bytes_max {
            self.log_holders(&unflushable)
        } else {
            BTreeSet::new()
        };
        let forsaken = self.forsaken_holders();
        let ripe = self.ripe.lock().clone();
        let served = if pressure.is_memory_short() || pressure.is_disk_full || now >= board.round_at {
            self.all_served()
        } else {
            let some: BTreeSet<&TabletId> = ripe.iter().chain(&holders).chain(&forsaken).collect();
            some.into_iter()
                .filter_map(|tablet| self.served(*tablet).ok())
                .collect()
        };
        self.ask_readers(&served, pressure.is_memory_short());
        let is_free = |id: &TabletId| !board.busy.contains_key(id) && !board.failed.contains(id);
        let free = served.iter().filter(|served| is_free(&served.tablet.id()));
        let candidates: Vec<FlushCandidate> = free.map(|served| candidate(served, &holders, &forsaken)).collect();
        if pressure.is_memory_short() {
            // Readers may hold on to memtables that are flushed already: flushing what little is there now would free as little.
            let there: u64 = candidates.iter().map(|c| c.active_bytes + c.frozen_bytes).sum();
            pressure.memory_bytes = pressure.memory_bytes.min(there + self.admission.expected_bytes());
        }
        let picked = pick_flush(&candidates, pressure).or_else(|| {
            // However little there is of it, and if another has flushed it since: then it is no longer stuck.
            unflushable.iter().copied().find(is_free)
        });
        if picked.is_none() {
            if now >= board.round_at {
                board.round_at = now + ROUND;
            }
            // Looked at, and nothing is to be done for those that can be flushed.
            self.ripe.lock().retain(|id| !ripe.contains(id) || !is_free(id));
        }
        let picked = self.served(picked?).ok()?;
        Some((picked.tablet.id(), picked.memtable_bytes()))
    }

    /// The tablets of which the last flush failed, those that are not served any more left out; notes what memory they take.
    fn find_unflushable(&self) -> BTreeSet<TabletId> {
        let mut unflushable = self.admission.unflushable.tablets();
        if unflushable.is_empty() {
            return unflushable;
        }
        let mut bytes = 0;
        unflushable.retain(|tablet| match self.served(*tablet) {
            Ok(served) => {
                bytes += served.memtable_bytes();
                true
            }
            Err(_) => {
                self.admission.unflushable.ended(*tablet);
                false
            }
        });
        self.admission.unflushable.set_memory(bytes);
        unflushable
    }

    /// Bytes of log that flushes can make superfluous. What is kept for a tablet that cannot be flushed, now or ever, is not:
    /// flushing others for its sake would make ever smaller files, and free nothing.
    fn log_bytes(&self, failed: &BTreeSet<TabletId>) -> u64 {
        let retained: u64 = self.streams.iter().map(|s| s.retained_bytes()).sum();
        if retained <= self.options.log_bytes_max {
            return retained;
        }
        retained.saturating_sub(self.unflushable_log_bytes(failed))
    }

    /// Bytes of log kept for tablets that are not served, or of which the flush `failed`.
    pub(super) fn unflushable_log_bytes(&self, failed: &BTreeSet<TabletId>) -> u64 {
        if failed.is_empty() && self.strays.is_empty() && self.damaged.read().is_empty() {
            return 0;
        }
        let is_unflushable =
            |tablet, seq| !self.is_flushed(tablet, seq) && (failed.contains(&tablet) || !self.is_served(tablet));
        self.streams.iter().map(|stream| stream.bytes_kept_by(is_unflushable)).sum()
    }

    /// Sees whether the log keeps more than it may for tablets whose flush fails. What is kept for those that are not served
    /// does not grow: nobody writes to them.
    pub(super) fn check_unflushable_log(&self) {
        let failing = self.admission.unflushable.tablets();
        let is_unflushable = |tablet, seq| failing.contains(&tablet) && !self.is_flushed(tablet, seq);
        let kept = match failing.is_empty() {
            true => 0,
            false => self.streams.iter().map(|stream| stream.bytes_kept_by(is_unflushable)).sum(),
        };
        self.admission.unflushable.set_kept(kept, self.options.log_bytes_max);
    }

    /// The tablets that are to be flushed for the log. Of one stream: a large tablet that holds a short one would be flushed
    /// again and again, and the small one that holds the longest would never be. It is the stream that keeps most, of
    /// those for which something can be done.
    fn log_holders(&self, failed: &BTreeSet<TabletId>) -> BTreeSet<TabletId> {
        let mut streams: Vec<_> = self.streams.iter().collect();
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.retained_bytes()));
        let can_be_flushed = |tablet: &TabletId| !failed.contains(tablet) && self.is_served(*tablet);
        // What nothing can be done for is passed over: behind it others keep what can go.
        let is_done = |tablet, seq| !can_be_flushed(&tablet) || self.is_flushed(tablet, seq);
        let holders = streams
            .into_iter()
            .map(|stream| stream.oldest_holders(is_done).into_iter().collect::<BTreeSet<_>>());
        let mut holders = holders.filter(|holders| !holders.is_empty());
        holders.next().unwrap_or_default()
    }

    /// The tablets with something that was acknowledged and that the log has failed to make durable.
    fn forsaken_holders(&self) -> BTreeSet<TabletId> {
        let holders = |stream: &Arc<Stream>| stream.forsaken_holders(|tablet, seq| self.is_flushed(tablet, seq));
        self.streams.iter().flat_map(holders).collect()
    }

    async fn flush_tablet(&self, tablet: TabletId) -> Result<(), TabletError> {
        if let Ok(served) = self.served(tablet) {
            match self.admission.has_ample_space() {
                true => served.tablet.flush_urgently().await?,
                false => served.tablet.flush().await?,
            };
        }
        self.admission.memory_freed();
        // Beside the next flush: a device may take a tenth of a second for a segment.
        self.tidy.notify_one();
        Ok(())
    }
}

fn candidate(served: &Served, holders: &BTreeSet<TabletId>, forsaken: &BTreeSet<TabletId>) -> FlushCandidate {
    let state = served.tablet.state();
    let active = state.groups.iter().filter(|g| !g.active.is_empty());
    FlushCandidate {
        tablet: served.tablet.id(),
        active_bytes: active.map(|g| g.active.bytes()).sum(),
        frozen_bytes: state.frozen_bytes(),
        holds_log: holders.contains(&served.tablet.id()),
        is_forsaken: forsaken.contains(&served.tablet.id()),
    }
}

#[cfg(test)]
mod tests;
