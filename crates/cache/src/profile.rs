//! Simulates a cache at other capacities by miniature simulations (Waldspurger et al., ATC 2017).
//!
//! One key in `1 << sample_shift` is *sampled*, by its hash. For every capacity of the plan a cache of keys alone sees
//! the accesses to sampled keys. It has the real policy, and its capacity is reduced by the sampling rate. Its hits,
//! scaled up, are those of a cache of that capacity. A ghost list behind the real cache could not tell the losses of a
//! smaller cache or the gains of a much larger one. The simulation also holds for a policy without the stack property.
//!
//! An access counts when its weight is known: a hit immediately, a miss when the value arrives. The time in between, of
//! sampled misses, is the cost of a miss.
//!
//! Cost: a shift and a mask for unsampled accesses; about 30 ns per capacity for sampled ones. When two threads arrive
//! concurrently, one of the accesses is not counted, so no thread waits here.

use crate::policy::{Admission, CacheKey, S3Fifo};
use parking_lot::Mutex;
use std::time::Duration;

/// Sampled misses whose values are being loaded: more than the concurrent waits of a small server. A miss that is
/// overwritten is only not timed.
const AWAITED_MAX: usize = 64;

/// The parameters of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePlan {
    /// The simulated capacities, ascending.
    pub capacities: Vec<usize>,
    /// One key in `1 << sample_shift` is sampled.
    pub sample_shift: u32,
}

/// The results since the beginning, scaled up to all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileCounts {
    /// Accesses.
    pub accesses: u64,
    /// Hits of each capacity.
    pub hits: Vec<u64>,
    /// Misses that were timed (not scaled).
    pub timed: u64,
    /// Their duration, nanoseconds in all.
    pub timed_nanos: u64,
    /// The number of misses of the cache itself that the timed ones represent.
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

/// A sampled key, represented by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampledKey(u64);

impl CacheKey for SampledKey {
    fn hash64(self) -> u64 {
        self.0
    }
}

impl ProfilePlan {
    /// Capacities from a 32nd of `budget` to nearly all of it, closer together where curves bend most. The sampling
    /// rate makes the largest simulation hold at least two thousand entries of `entry_bytes`. It is at most one key in
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
    /// A profile with empty simulations.
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

    /// Whether accesses to the key of this hash are to be reported.
    pub fn samples(&self, hash: u64) -> bool {
        (hash >> 24) & ((1 << self.shift) - 1) == 0
    }

    /// Reports a hit of a sampled key whose value takes `weight` bytes.
    pub fn accessed(&self, hash: u64, weight: usize) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.access(hash, weight, self.shift);
        }
    }

    /// Reports a miss of a sampled key.
    pub fn missed(&self, hash: u64, now: Duration) {
        if let Some(mut inner) = self.inner.try_lock() {
            let next = inner.next_awaited % AWAITED_MAX;
            inner.awaited[next] = (hash, now);
            inner.next_awaited = next + 1;
        }
    }

    /// Reports that the value of a missed sampled key was loaded.
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

    /// The results so far.
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
