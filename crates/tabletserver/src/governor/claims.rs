//! Claims of calls in flight on memory that caches were granted.
//!
//! The governor divides once a second, and a request of 100 MB comes and goes within one. So the memory of requests, responses and
//! large writes is a claim on the budget from the moment that it is known. The call that makes the claim shrinks the caches;
//! they may grow again when it ends.
//!
//! Memory read ahead for scans, and memory of writes and large values in flight, is in pools that grow with the budget. Their
//! sizes are read whenever anything else changes, and once a second.
//!
//! Invariants:
//! * Caches have their grant less the claims beyond the memory set aside for calls, and a sixteenth of their grant at least.
//! * Memory of memtables beyond their share is subtracted once: the part that the governor knew of when it granted is not
//!   claimed.

use super::policy::Division;
use crate::row_cache::RowCache;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_memory::Usage;
use stele_sstable::Cache;

/// Bytes that calls may take beyond the budget's part for them before caches shrink: a part of the excess over the
/// budget that a process may have. The rest of that is the program's, and the allocator's.
const FREE_BYTES: u64 = 32 << 20;
/// Bytes that the other pools may hold before caches shrink: about the most that they hold with the smallest budgets.
const RESERVED_FREE: u64 = 64 << 20;
/// Part of their grant that caches keep: without indexes' blocks nothing would work.
const KEPT_PART: u64 = 16;
/// Freed bytes from which on the claim waits for the allocator: less is negligible against the memory that it retains
/// all the time.
const FREED_BYTES_MIN: u64 = 8 << 20;
/// How long the allocator takes to return freed memory, by budget and at most. The program configures that; see its
/// settings in the server.
const SETTLE_MAX: Duration = Duration::from_millis(400);
const SETTLE_BYTES_PER_MILLI: u64 = 1_342_177;

/// Called when enough was freed that the claiming call waits for it. Otherwise the allocator returns it on its next
/// occasion, which may be after that.
pub(super) type Freed = Box<dyn Fn() + Send + Sync>;

/// The grants of caches, and the claims on them.
pub(super) struct Claims {
    free: u64,
    settle: Duration,
    freed: Option<Freed>,
    cache: Arc<Cache>,
    rows: Arc<RowCache>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    granted: Division,
    /// Bytes that memtables took beyond their share when that was granted.
    known: u64,
    usage: Usage,
    /// Bytes that the caches may take now: blocks and rows.
    given: (u64, u64),
}

impl Claims {
    /// With nothing claimed.
    pub(super) fn new(
        budget: u64,
        begin: Division,
        cache: Arc<Cache>,
        rows: Arc<RowCache>,
        freed: Option<Freed>,
    ) -> Self {
        let settle = Duration::from_millis(budget / SETTLE_BYTES_PER_MILLI).min(SETTLE_MAX);
        Claims {
            free: budget / 16 + FREE_BYTES,
            settle,
            freed,
            cache,
            rows,
            state: Mutex::new(State {
                granted: begin,
                given: (begin.blocks, begin.rows),
                ..State::default()
            }),
        }
    }

    /// Caches may take `granted`; memtables take `known` beyond their share.
    pub(super) fn grant(&self, granted: Division, known: u64, usage: &dyn Fn() -> Usage) {
        let mut state = self.state.lock();
        (state.granted, state.known, state.usage) = (granted, known, usage());
        self.apply(&mut state);
    }

    /// Reserved memory has changed; returns how long the allocator takes to return the memory that caches lose.
    /// `usage` is evaluated under the lock, so that the second of two callers does not apply an old value.
    pub(super) fn claim(&self, usage: &dyn Fn() -> Usage) -> Duration {
        let mut state = self.state.lock();
        state.usage = usage();
        let evicted = self.apply(&mut state);
        drop(state);
        self.gone_after(evicted)
    }

    /// How long evicted memory takes to be returned. The allocator is told of a large amount, so that it does return
    /// it.
    fn gone_after(&self, evicted: u64) -> Duration {
        if evicted < FREED_BYTES_MIN {
            return Duration::ZERO;
        }
        self.freed.iter().for_each(|freed| freed());
        self.settle
    }

    /// Sets the capacities of the caches; returns the bytes that they have lost.
    fn apply(&self, state: &mut State) -> u64 {
        let calls = (state.usage.calls as u64).saturating_sub(self.free);
        let memtables = (state.usage.memtables as u64).saturating_sub(state.known);
        let reserved = (state.usage.other as u64).saturating_sub(RESERVED_FREE);
        let given = left(state.granted, calls + memtables + reserved);
        if given == state.given {
            return 0;
        }
        let used = || self.cache.stats().used_bytes + self.rows.stats().used_bytes;
        let before = used();
        state.given = given;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        self.cache.set_capacity(bytes(given.0));
        self.rows.set_capacity(bytes(given.1));
        before.saturating_sub(used())
    }
}

/// The rest of a grant for blocks and for rows, each reduced in proportion.
fn left(granted: Division, claimed: u64) -> (u64, u64) {
    let all = granted.blocks + granted.rows;
    let left = all.saturating_sub(claimed).max(all / KEPT_PART);
    let part = |bytes: u64| (u128::from(bytes) * u128::from(left) / u128::from(all.max(1))) as u64;
    let (blocks, rows) = (part(granted.blocks), part(granted.rows));
    assert!(
        blocks <= granted.blocks && rows <= granted.rows && blocks + rows <= left,
        "caches get at most their grant less what is claimed of it"
    );
    (blocks, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use stele_env::tokio_env::TokioRuntime;

    const MIB: u64 = 1 << 20;

    fn division(blocks: u64, rows: u64) -> Division {
        Division {
            memtables: 7,
            blocks: blocks * MIB,
            rows: rows * MIB,
        }
    }

    #[test]
    fn what_is_claimed_is_taken_from_both_caches() {
        let of = |claimed: u64| {
            let (blocks, rows) = left(division(60, 20), claimed * MIB);
            (blocks / MIB, rows / MIB)
        };
        assert_eq!(of(0), (60, 20));
        assert_eq!(of(40), (30, 10));
        assert_eq!((of(75), of(76), of(1_000)), ((3, 1), (3, 1), (3, 1)));
        assert_eq!(left(Division::default(), 5), (0, 0));
    }

    #[tokio::test]
    async fn caches_shrink_immediately_and_grow_again() {
        let cache = Arc::new(Cache::new(64 << 20));
        let rows = RowCache::new(TokioRuntime::current(), 16 << 20);
        let claims = Claims::new(128 * MIB, division(64, 16), cache.clone(), rows.clone(), None);
        let capacities = || (cache.stats().capacity / MIB, rows.stats().capacity / MIB);
        let usage = |calls: u64, memtables: u64, other: u64| {
            let [calls, memtables, other] = [calls, memtables, other].map(|mib| (mib * MIB) as usize);
            move || Usage {
                calls,
                memtables,
                other,
            }
        };
        // A sixteenth and 32 MiB are nobody's.
        assert_eq!(claims.claim(&usage(40, 0, 0)), Duration::ZERO);
        assert_eq!(capacities(), (64, 16));
        assert_eq!(
            claims.claim(&usage(80, 0, 0)),
            Duration::ZERO,
            "there was nothing in them"
        );
        assert_eq!(capacities(), (32, 8));
        claims.claim(&usage(0, 60, 0));
        assert_eq!(capacities(), (16, 4));
        // The governor does not grant the usage that it has seen.
        claims.grant(division(24, 6), 40 * MIB, &usage(0, 60, 0));
        assert_eq!(capacities(), (8, 2));
        claims.claim(&Usage::default);
        assert_eq!(capacities(), (24, 6));
        // Reservations below the front ends have a part of their own that is free.
        claims.claim(&usage(0, 0, 64));
        assert_eq!(capacities(), (24, 6));
        claims.grant(division(24, 6), 0, &usage(0, 0, 79));
        assert_eq!(capacities(), (12, 3));
    }

    /// Otherwise waiters may still find it in memory.
    #[tokio::test]
    async fn what_much_was_freed_for_is_told() {
        let cache = Arc::new(Cache::new(64 << 20));
        let rows = RowCache::new(TokioRuntime::current(), 16 << 20);
        let told = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&told);
        let freed: Freed = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let claims = Claims::new(128 * MIB, division(64, 16), cache, rows, Some(freed));
        for (evicted, settles, times) in [(0, 0, 0), (8 * MIB - 1, 0, 0), (8 * MIB, 100, 1), (90 * MIB, 100, 2)] {
            assert_eq!(claims.gone_after(evicted), Duration::from_millis(settles), "{evicted}");
            assert_eq!(told.load(Ordering::Relaxed), times, "{evicted}");
        }
    }
}
