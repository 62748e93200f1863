//! What other capacities would have done: miniature simulations (Waldspurger et al., ATC 2017).
//!
//! One key in so many is *sampled*, by its hash. For every capacity in question a cache of keys alone, with the real policy
//! and as much smaller as keys are fewer, sees the accesses to sampled keys. Its hits, scaled up, are those of a cache of
//! that capacity. Unlike a ghost list behind the real cache this also tells what a smaller one would lose, and what a much
//! larger one would gain, and it holds for a policy without the stack property.
//!
//! An access counts when its weight is known: a hit at once, a miss when the value comes. The time in between, of sampled
//! misses, is what a miss costs.
//!
//! Cost: unsampled accesses a shift and a mask; sampled ones about 30 ns for each capacity. When two threads come at once,
//! one of the accesses goes uncounted, so nobody waits here.

use crate::policy::{Admission, CacheKey, S3Fifo};
use parking_lot::Mutex;
use std::time::Duration;

/// Sampled misses whose values are on their way: more than readers that wait at once on a small server, and a miss that
/// is forgotten is only not timed.
const AWAITED_MAX: usize = 64;

/// What to find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePlan {
    /// The capacities in question, ascending.
    pub capacities: Vec<usize>,
    /// One key in `1 << sample_shift` is sampled.
    pub sample_shift: u32,
}

/// What was found, since the beginning, scaled up to all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileCounts {
    /// Accesses.
    pub accesses: u64,
    /// Hits of each capacity.
    pub hits: Vec<u64>,
    /// Misses that were timed (not scaled).
    pub timed: u64,
    /// How long they took, nanoseconds in all.
    pub timed_nanos: u64,
    /// As many misses of the cache itself as those stand for.
    pub missed: u64,
}

/// The simulations of one cache.
#[derive(Debug)]
pub struct Profile {
    shift: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    simulated: Vec<S3Fifo<SampledKey, ()>>,
    counts: ProfileCounts,
    /// Sampled misses and when they happened; the oldest is overwritten.
    awaited: [(u64, Duration); AWAITED_MAX],
    next_awaited: usize,
}

/// The hash of a sampled key stands for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampledKey(u64);

impl CacheKey for SampledKey {
    fn hash64(self) -> u64 {
        self.0
    }
}

impl ProfilePlan {
    /// Capacities from a 32nd of `budget` to nearly all of it, closer together where curves bend most, and as many samples
    /// as make the largest simulation hold two thousand entries of `entry_bytes` or more; never more than one key in
    /// sixteen, at which the simulations add some 25 ns to an access.
    pub fn for_budget(budget: usize, entry_bytes: usize) -> Self {
        let parts = [1, 2, 4, 8, 14, 20, 28];
        let entries = budget / entry_bytes.max(1);
        ProfilePlan {
            capacities: parts.iter().map(|part| budget / 32 * part).collect(),
            sample_shift: (entries / 2048).max(1).ilog2().clamp(4, 12),
        }
    }
}

impl Profile {
    /// Begins with empty simulations.
    pub fn new(plan: &ProfilePlan, admission: Admission) -> Self {
        assert!(plan.capacities.is_sorted(), "the capacities of a plan ascend");
        let simulated = plan
            .capacities
            .iter()
            .map(|c| S3Fifo::new(c >> plan.sample_shift, admission));
        Profile {
            shift: plan.sample_shift,
            inner: Mutex::new(Inner {
                simulated: simulated.collect(),
                counts: ProfileCounts {
                    hits: vec![0; plan.capacities.len()],
                    ..ProfileCounts::default()
                },
                awaited: [(0, Duration::ZERO); AWAITED_MAX],
                next_awaited: 0,
            }),
        }
    }

    /// Whether accesses to the key of this hash are to be told.
    pub fn samples(&self, hash: u64) -> bool {
        (hash >> 24) & ((1 << self.shift) - 1) == 0
    }

    /// A sampled key was accessed and found; its value holds on to `weight` bytes.
    pub fn accessed(&self, hash: u64, weight: usize) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.access(hash, weight, self.shift);
        }
    }

    /// A sampled key was accessed and not found.
    pub fn missed(&self, hash: u64, now: Duration) {
        if let Some(mut inner) = self.inner.try_lock() {
            let next = inner.next_awaited % AWAITED_MAX;
            inner.awaited[next] = (hash, now);
            inner.next_awaited = next + 1;
        }
    }

    /// The value of a sampled key that was not found came.
    pub fn loaded(&self, hash: u64, weight: usize, now: Duration) {
        let Some(mut inner) = self.inner.try_lock() else { return };
        let inner = &mut *inner;
        let missed = inner.awaited.iter_mut().find(|(h, at)| *h == hash && !at.is_zero());
        if let Some((_, at)) = missed {
            let took = now.saturating_sub(std::mem::take(at));
            inner.counts.timed += 1;
            inner.counts.missed += 1 << self.shift;
            inner.counts.timed_nanos += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 16);
        }
        inner.access(hash, weight, self.shift);
    }

    /// What was found so far.
    pub fn counts(&self) -> ProfileCounts {
        self.inner.lock().counts.clone()
    }
}

impl Inner {
    fn access(&mut self, hash: u64, weight: usize, shift: u32) {
        let key = SampledKey(hash);
        self.counts.accesses += 1 << shift;
        for (cache, hits) in self.simulated.iter_mut().zip(&mut self.counts.hits) {
            if cache.get(key).is_some() {
                *hits += 1 << shift;
            } else {
                cache.insert(key, (), weight);
            }
        }
    }
}
