//! The memory governor moves one budget between memtables, block cache and row cache.
//!
//! The decision is a pure function in [`policy`]; this module observes, applies, and shows its outcome. It runs once a second:
//! the work is some hundred microseconds, and it follows a change of the load within a few seconds.
//!
//! Not divided are indexes and filters of open files, the queue of the log, requests in flight, and the allocator's slack. The
//! first two are measured and subtracted; the others have a sixteenth of the budget. When calls in flight or large writes
//! take more than that, the caches shrink immediately (`claims`). Where the process can see its own size, all pools
//! shrink when it is past the budget and [`policy`]'s slack.

mod claims;
pub mod policy;

use crate::options::{GiveBack, MemoryBudget, MemtableLimits};
use crate::parts::Parts;
use crate::row_cache::RowCache;
use crate::stopping::Stopping;
use crate::tablets::Tablets;
use claims::{Claims, Freed};
use policy::{Decision, Division, Governor, GovernorPlan, Observation};
use std::sync::Arc;
use std::time::Duration;
use stele_cache::ProfilePlan;
use stele_env::Env;
use stele_env::metrics::{IntCounter, IntGaugeVec, Metrics};
use stele_memory::shares::SHARES;
use stele_memory::{Part, Pool};
use stele_sstable::Cache;
use stele_tablet::{FileRegistry, MemoryAccount, TabletMetrics};

/// Approximate weights of blocks and rows, for choosing how many keys the profiles sample. Blocks by default are
/// smaller, and twice as many are sampled: with half of them rows that are read by Zipf's law were two to three times
/// slower to get their cache.
const BLOCK_BYTES: usize = 16 << 10;
/// Small rows with their overhead.
const ROW_BYTES: usize = 512;
/// Reads after which it can be told whether the row cache helps.
const ROW_READS_MIN: u64 = 1_000;
/// Steps without a write or a read after which the numbers that take a walk over all tablets are brought up to date
/// anyway.
const STEPS_STALE_MAX: u32 = 30;
/// Steps without a write for which memory that memtables gave back is kept for them.
const STEPS_SPARE_MAX: u32 = 30;

/// Instruments of the governor.
#[derive(Clone, Debug)]
pub struct GovernorMetrics {
    granted: IntGaugeVec,
    gain: IntGaugeVec,
    loss: IntGaugeVec,
    moves: IntCounter,
}

impl GovernorMetrics {
    /// Registers the instruments.
    pub fn new(m: &Metrics) -> Self {
        let pools = ["pool"];
        GovernorMetrics {
            granted: m.gauges(
                "stele_memory_granted_bytes",
                "Bytes that each pool of the memory budget may take.",
                &pools,
            ),
            gain: m.gauges(
                "stele_memory_gain_nanoseconds_per_second",
                "Work that a 64th of the divided memory more would save the pool's users.",
                &pools,
            ),
            loss: m.gauges(
                "stele_memory_loss_nanoseconds_per_second",
                "Work that a 64th of the divided memory less would cost the pool's users.",
                &pools,
            ),
            moves: m.counter("stele_memory_moves_total", "Changes of the division of memory."),
        }
    }

    fn show(&self, decision: &Decision) {
        let Division {
            memtables,
            blocks,
            rows,
        } = decision.granted;
        let pools = [("memtables", memtables), ("blocks", blocks), ("rows", rows)];
        for ((pool, bytes), (gain, loss)) in pools.into_iter().zip(decision.marginal) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.granted.with_label_values(&[pool]).set(bytes);
            self.gain.with_label_values(&[pool]).set(gain as i64);
            self.loss.with_label_values(&[pool]).set(loss as i64);
        }
        self.moves.inc_by(u64::from(decision.moved));
    }
}

/// Bytes that are reserved below the front ends, by consumer.
pub(crate) fn reserved_below(pool: &Pool) -> impl Iterator<Item = (&'static str, u64)> {
    const BELOW: [Part; 9] = [
        Part::Readahead,
        Part::Batches,
        Part::WriteRows,
        Part::Values,
        Part::Peers,
        Part::PeerRows,
        Part::Heat,
        Part::Archive,
        Part::Restores,
    ];
    BELOW
        .into_iter()
        .map(|part| (SHARES[part as usize].name, pool.of(part).used() as u64))
}

/// Divides the memory of one server.
pub(crate) struct MemoryGovernor {
    env: Env,
    files: Arc<FileRegistry>,
    memory: MemoryAccount,
    /// Instruments of tablets: bytes flushed and compacted, and the time that took.
    work: TabletMetrics,
    /// Writes that waited for memory.
    delayed: IntCounter,
    tablets: Arc<Tablets>,
    cache: Arc<Cache>,
    row_cache: Arc<RowCache>,
    memtables: MemtableLimits,
    row_cache_bytes: usize,
    log_queues_bytes: u64,
    pool: Pool,
    metrics: GovernorMetrics,
    stopping: Stopping,
}

impl MemoryGovernor {
    /// Of a server.
    pub(crate) fn new(parts: &Parts, metrics: GovernorMetrics) -> Self {
        let options = &parts.options;
        MemoryGovernor {
            env: parts.context.env.clone(),
            files: parts.context.files.clone(),
            memory: parts.context.memory.clone(),
            work: parts.context.metrics.clone(),
            delayed: parts.metrics.admission.delayed_memory.clone(),
            tablets: parts.tablets.clone(),
            cache: parts.cache.clone(),
            row_cache: parts.row_cache.clone(),
            memtables: options.memtables.clone(),
            row_cache_bytes: options.row_cache_bytes,
            log_queues_bytes: options.log_queues_bytes(),
            pool: options.pool.clone(),
            metrics,
            stopping: parts.stopping.clone(),
        }
    }

    /// Starts to divide a budget.
    pub(crate) fn start(self, budget: MemoryBudget) {
        let bytes = usize::try_from(budget.bytes).unwrap_or(usize::MAX);
        let blocks = ProfilePlan::for_budget(bytes, BLOCK_BYTES);
        let env = self.env.clone();
        self.cache.start_profile(&blocks, Arc::new(move || env.now()));
        self.row_cache.start_profile(&ProfilePlan::for_budget(bytes, ROW_BYTES));
        let plan = GovernorPlan {
            budget: budget.bytes,
            capacities: blocks.capacities,
            flush_bytes: crate::options::flush_bytes,
            has_rows: self.row_cache_bytes > 0,
        };
        let begin = Division {
            memtables: self.memtables.bytes_max(),
            blocks: self.cache.stats().capacity,
            rows: self.row_cache_bytes as u64,
        };
        let governor = Governor::new(plan, begin);
        let freed = budget.give_back.clone().map(|give_back| self.giving_back(give_back));
        let (cache, rows) = (self.cache.clone(), self.row_cache.clone());
        let claims = Arc::new(Claims::new(budget.bytes, begin, cache, rows, freed));
        let made = Arc::clone(&claims);
        self.pool.on_change(Arc::new(move |usage| made.claim(usage)));
        let env = self.env.clone();
        env.spawn_background("govern memory", async move {
            self.govern(governor, budget, &claims).await;
        });
    }

    /// Returns memory to the system in a task of its own.
    fn giving_back(&self, give_back: GiveBack) -> Freed {
        let env = self.env.clone();
        Box::new(move || {
            let (blocking, give_back) = (env.clone(), Arc::clone(&give_back));
            env.spawn("give memory back", async move {
                // It ends, and only with the process before that.
                let _ = blocking.blocking(move || give_back()).await;
            });
        })
    }

    async fn govern(&self, mut governor: Governor, budget: MemoryBudget, claims: &Claims) {
        let (mut last, mut stale) = (self.env.now(), 0);
        let mut seen = Observation::default();
        let mut row_reads = (0, 0);
        while !self.stopping.is_stopping() {
            let now = self.env.now();
            let changed = self.observe(&mut seen, &budget, stale >= STEPS_STALE_MAX);
            stale = if changed { 0 } else { stale + 1 };
            let decision = governor.step(seen.clone(), (now - last).as_secs_f64());
            last = now;
            assert!(
                decision.granted.sum() <= budget.bytes.max(policy::UNITS),
                "the shares of the memory budget sum to at most the budget: {:?} of {}",
                decision.granted,
                budget.bytes
            );
            self.divide(&decision, &seen, claims);
            let is_written = stale < STEPS_SPARE_MAX;
            self.memory
                .keep_spare(if is_written { decision.granted.memtables } else { 0 });
            self.weigh_row_cache(&mut row_reads);
            self.env.sleep(budget.interval).await;
        }
    }

    /// Brings the observation up to date; whether anything was written. Tablets are looked at only then.
    fn observe(&self, seen: &mut Observation, budget: &MemoryBudget, thorough: bool) -> bool {
        let metrics = &self.work;
        let nanos = |seconds: f64| Duration::try_from_secs_f64(seconds).map_or(0, |d| d.as_nanos() as u64);
        let flushed = metrics.flush_bytes.get();
        let memtable_bytes = self.memory.bytes();
        // Written bytes are not counted; they are in memtables until they are in flushed files.
        let written = (flushed + memtable_bytes).max(seen.written_bytes);
        let changed =
            written > seen.written_bytes || flushed + metrics.compaction_written_bytes.get() > seen.rewritten_bytes;
        seen.written_bytes = written;
        seen.rewritten_bytes = flushed + metrics.compaction_written_bytes.get();
        seen.rewriting_nanos =
            nanos(metrics.flush_seconds.get_sample_sum()) + nanos(metrics.compaction_seconds.get_sample_sum());
        seen.delayed_writes = self.delayed.get();
        seen.block_profile = self.cache.profile().unwrap_or_default();
        seen.row_profile = self.row_cache.profile().unwrap_or_default();
        seen.memtable_bytes = memtable_bytes;
        seen.resident_bytes = budget.resident.as_ref().and_then(|probe| probe());
        seen.spare_bytes = self.memory.spare_bytes();
        if changed || thorough {
            let (mut files, mut written) = (0, 0);
            for served in self.tablets.all() {
                let state = served.tablet.state();
                files += state.file_bytes();
                written += u64::from(state.groups.iter().any(|g| !g.active.is_empty()));
            }
            (seen.file_bytes, seen.written_tablets) = (files, written);
            let pinned = self.files.open_files().1 as u64;
            seen.other_bytes = pinned + self.log_queues_bytes;
        }
        changed
    }

    /// Whether the row cache answered one in fifty of the reads that it might have since the last time.
    fn weigh_row_cache(&self, before: &mut (u64, u64)) {
        let stats = self.row_cache.stats();
        // Two readers that miss concurrently may lose a count, or even those of a while: the sum may fall.
        let (hits, misses) = (
            stats.hits.saturating_sub(before.0),
            stats.misses.saturating_sub(before.1),
        );
        if hits + misses > ROW_READS_MIN {
            self.row_cache.set_helpful(hits * 50 > misses);
            *before = (stats.hits, stats.misses);
        }
    }

    fn divide(&self, decision: &Decision, seen: &Observation, claims: &Claims) {
        let Division {
            memtables,
            blocks,
            rows,
        } = decision.granted;
        if memtables != self.memtables.bytes_max() {
            self.memtables.set_share(memtables);
        }
        let excess = seen.memtable_bytes.saturating_sub(memtables);
        claims.grant(decision.granted, excess, &|| self.pool.usage());
        self.metrics.show(decision);
        if decision.moved {
            let [m, b, r] = decision.marginal;
            tracing::debug!(
                memtables,
                blocks,
                rows,
                divisible = decision.divisible,
                "memory divided anew; nanoseconds per second that a 64th more saves and less costs: memtables {:.0} {:.0}, \
                 blocks {:.0} {:.0}, rows {:.0} {:.0}",
                m.0,
                m.1,
                b.0,
                b.1,
                r.0,
                r.1,
            );
        }
    }
}

#[cfg(test)]
mod tests;
