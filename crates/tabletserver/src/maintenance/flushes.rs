//! The flush loop flushes several tablets concurrently. So none waits while a core is idle.
//!
//! Memtables that are being flushed count as memory until that is done, but no further tablet need be flushed for their sake:
//! the decision treats them as freed.

use super::pinned::PinnedMemtables;
use super::{AFTER_FAILURE, FlushCandidate, FlushPressure, FlushView, IDLE, note_failure};
use crate::admission::Admission;
use crate::error::from_tablet;
use crate::log::CommitLog;
use crate::options::MemtableLimits;
use crate::parts::Parts;
use crate::stopping::Stopping;
use crate::tablets::{Served, Tablets};
use crate::work::{Compactions, FlushDemand};
use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stele_client::ServiceResult;
use stele_env::metrics::{IntCounter, IntGauge};
use stele_env::{Env, Priority};
use stele_tablet::{MemoryAccount, TabletError};
use stele_types::TabletId;
use tokio::sync::Notify;

/// Tablets flushed concurrently: enough to use the cores while some wait for storage; each takes a few megabytes.
const FLUSHES_MAX: usize = 4;
/// How often all tablets are checked although nothing presses, for memtables that no write has announced: those
/// larger than they should be after a recovery, or set aside by a flush that failed.
const ROUND: Duration = Duration::from_secs(10);

/// A flush that ended.
type Flushed = (TabletId, Result<(), TabletError>);

/// The state of the loop between checks.
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

/// Flushes tablets.
pub(crate) struct Flusher {
    env: Env,
    tablets: Arc<Tablets>,
    log: Arc<CommitLog>,
    admission: Arc<Admission>,
    flushes: Arc<FlushDemand>,
    compactions: Arc<Compactions>,
    pinned: PinnedMemtables,
    memory: MemoryAccount,
    memtables: MemtableLimits,
    log_bytes_max: u64,
    running: IntGauge,
    failures: IntCounter,
    stopping: Stopping,
    /// Told when a flush has made log segments superfluous.
    tidy: Arc<Notify>,
}

/// A check of the loop.
struct Sight {
    view: FlushView,
    /// All tablets that were considered, those included that are being flushed.
    served: Vec<Arc<Served>>,
    /// Tablets that are worth a file, as they were when the loop began to check.
    ripe: BTreeSet<TabletId>,
}

impl Board {
    /// Whether a flush of a tablet may begin.
    fn is_free(&self, tablet: &TabletId) -> bool {
        !self.busy.contains_key(tablet) && !self.failed.contains(tablet)
    }
}

impl Flusher {
    /// Of a server. Tells `tidy` of each flush that ended.
    pub(crate) fn new(parts: &Parts, tidy: Arc<Notify>) -> Self {
        Flusher {
            env: parts.context.env.clone(),
            tablets: parts.tablets.clone(),
            log: parts.log.clone(),
            admission: parts.admission.clone(),
            flushes: parts.flushes.clone(),
            compactions: parts.compactions.clone(),
            pinned: PinnedMemtables::new(parts),
            memory: parts.context.memory.clone(),
            memtables: parts.options.memtables.clone(),
            log_bytes_max: parts.options.log_bytes_max,
            running: parts.metrics.running_flushes.clone(),
            failures: parts.metrics.maintenance_failures.clone(),
            stopping: parts.stopping.clone(),
            tidy,
        }
    }

    /// Starts the loop; it ends when the server stops.
    pub(crate) fn start(self: &Arc<Self>) {
        let flusher = self.clone();
        self.env
            .spawn_background("flush", async move { flusher.flush_loop().await });
    }

    async fn flush_loop(self: Arc<Self>) {
        let mut running: FuturesUnordered<BoxFuture<'static, Flushed>> = FuturesUnordered::new();
        let mut board = Board::default();
        while !self.stopping.is_stopping() {
            while running.len() < FLUSHES_MAX
                && let Some((tablet, bytes)) = self.flush_due(&mut board)
            {
                self.flushes.begun(tablet);
                let former = board.busy.insert(tablet, bytes);
                assert!(
                    former.is_none(),
                    "a tablet has one flush at a time: {tablet} is being flushed"
                );
                running.push(self.clone().begin_flush(tablet));
            }
            assert_eq!(
                running.len(),
                board.busy.len(),
                "the board has the flushes that are running, and no others"
            );
            self.running.set(running.len() as i64);
            if let Some(ended) = self.flush_event(&mut running).await {
                self.flush_ended(ended, &mut board);
            }
        }
    }

    /// A flush that ended, or nothing when a write has woken the loop or time has passed.
    async fn flush_event(&self, running: &mut FuturesUnordered<BoxFuture<'static, Flushed>>) -> Option<Flushed> {
        let woken = pin!(self.flushes.woken());
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
            let flusher = self.clone();
            let flush = async move { flusher.flush_tablet(tablet).await };
            let flushed = self.env.spawn_join(Priority::Background, "flush", flush).await;
            // A task that is gone took its error with it, and the runtime is about to.
            (tablet, flushed.unwrap_or(Ok(())))
        })
    }

    fn flush_ended(&self, (tablet, flushed): Flushed, board: &mut Board) {
        let was_busy = board.busy.remove(&tablet);
        assert!(was_busy.is_some(), "a flush ends once: {tablet} is not being flushed");
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
                note_failure(&self.failures, "flush", &error);
                self.flushes.ripen(tablet);
                board.failed.insert(tablet);
                board.retry_at = self.env.now() + AFTER_FAILURE;
            }
        }
    }

    /// The tablet whose flush is most due, and the bytes it frees.
    fn flush_due(&self, board: &mut Board) -> Option<(TabletId, u64)> {
        let now = self.env.now();
        if now >= board.retry_at {
            board.failed.clear();
        }
        let sight = self.see(board, now);
        self.pinned
            .ask_readers(&sight.served, sight.view.pressure.is_memory_short());
        if self.flushes.are_held() && sight.view.pressure.can_wait() {
            return None;
        }
        let Some(tablet) = sight.view.pick() else {
            if now >= board.round_at {
                board.round_at = now + ROUND;
            }
            // Checked, and nothing is to be done for those that can be flushed.
            self.flushes.forget(&sight.ripe, |id| board.is_free(id));
            return None;
        };
        assert!(
            board.is_free(&tablet),
            "a flush begins of a tablet that is not being flushed, and has not just failed"
        );
        // It may have been dropped or split meanwhile.
        let picked = self.tablets.served(tablet).ok()?;
        Some((tablet, picked.memtable_bytes()))
    }

    /// Gathers all that the decision goes by.
    fn see(&self, board: &Board, now: Duration) -> Sight {
        // First: memory that grows while this goes on is new.
        self.flushes.begin_check();
        let unflushable = self.unflushable();
        let mut pressure = self.pressure(board, &unflushable);
        let holders = match pressure.log_bytes > pressure.log_bytes_max {
            true => self.log.oldest_holders(&unflushable),
            false => BTreeSet::new(),
        };
        let forsaken = self.log.forsaken_holders();
        let is_for_log = |tablet: &TabletId| holders.contains(tablet) || forsaken.contains(tablet);
        pressure.flushes_for_log = board.busy.keys().any(is_for_log);
        let ripe = self.flushes.ripe();
        let served = if pressure.is_memory_short() || pressure.is_disk_full || now >= board.round_at {
            self.tablets.all()
        } else {
            let some: BTreeSet<&TabletId> = ripe.iter().chain(&holders).chain(&forsaken).collect();
            some.into_iter()
                .filter_map(|tablet| self.tablets.served(*tablet).ok())
                .collect()
        };
        let free = served.iter().filter(|served| board.is_free(&served.tablet.id()));
        let view = FlushView {
            candidates: free.map(|served| candidate(served, &holders, &forsaken)).collect(),
            pressure,
            expected_bytes: self.admission.expected_bytes(),
            retried: unflushable.into_iter().filter(|id| board.is_free(id)).collect(),
        };
        Sight { view, served, ripe }
    }

    fn pressure(&self, board: &Board, unflushable: &BTreeSet<TabletId>) -> FlushPressure {
        // Memory that cannot go would have all others flushed for nothing; that of unflushable tablets is counted once.
        let going = board.busy.iter().filter(|(id, _)| !unflushable.contains(id));
        let gone = going.map(|(_, bytes)| bytes).sum::<u64>() + self.admission.unflushable.memory_bytes();
        FlushPressure {
            memory_bytes: self.memory.bytes().saturating_sub(gone) + self.admission.expected_bytes(),
            memory_bytes_max: self.memtables.bytes_max(),
            tablet_bytes: self.memtables.tablet_bytes(),
            log_bytes: self.log.flushable_bytes(unflushable),
            log_bytes_max: self.log_bytes_max,
            is_disk_full: self.admission.is_disk_full(),
            has_reserve: self.admission.has_reserve(),
            flushes_for_log: false,
        }
    }

    /// The tablets whose last flush failed, without those that are not served any more. Records the memory that they
    /// take.
    fn unflushable(&self) -> BTreeSet<TabletId> {
        let mut unflushable = self.admission.unflushable.tablets();
        if unflushable.is_empty() {
            return unflushable;
        }
        let mut bytes = 0;
        unflushable.retain(|tablet| match self.tablets.served(*tablet) {
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

    /// Flushes a tablet at a client's request; its files are durable then.
    pub(crate) async fn flush_now(&self, tablet: TabletId) -> ServiceResult<()> {
        let served = self.tablets.served(tablet)?;
        served.tablet.flush().await.map_err(from_tablet)?;
        self.admission.memory_freed();
        self.tidy.notify_one();
        self.compactions.announce(tablet);
        Ok(())
    }

    async fn flush_tablet(&self, tablet: TabletId) -> Result<(), TabletError> {
        if let Ok(served) = self.tablets.served(tablet) {
            match self.admission.has_ample_space() {
                true => served.tablet.flush_urgently().await?,
                false => served.tablet.flush().await?,
            };
        }
        self.admission.memory_freed();
        // Concurrently with the next flush: a device may take a tenth of a second for a segment.
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
