//! Compares the cache with a map that forgets nothing. The cache may forget, but it never lies and never exceeds its
//! capacity.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn key(file: u64, offset: u64) -> BlockKey {
    BlockKey { file, offset }
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64, u64),
    Insert(u64, u64, usize),
    Keep(u64, u64, usize),
    Resize(usize),
    RemoveFile(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u64..3, 0u64..20).prop_map(|(f, o)| Op::Get(f, o)),
        8 => (0u64..3, 0u64..20, 0usize..3_000).prop_map(|(f, o, w)| Op::Insert(f, o, w)),
        3 => (0u64..3, 0u64..20, 0usize..3_000).prop_map(|(f, o, w)| Op::Keep(f, o, w)),
        1 => (0usize..12_000).prop_map(Op::Resize),
        1 => (0u64..3).prop_map(Op::RemoveFile),
    ]
}

proptest! {
    #[test]
    fn never_lies_and_never_overflows(
        capacity in 0usize..12_000, shards in 1usize..5, ops in prop::collection::vec(op(), 1..200),
    ) {
        let cache = BlockCache::with_shards(capacity, shards);
        let mut model: HashMap<BlockKey, u64> = HashMap::new();
        let mut capacity = capacity;
        for (version, op) in ops.into_iter().enumerate() {
            match op {
                Op::Get(f, o) => {
                    if let Some(found) = cache.get(&key(f, o)) {
                        prop_assert_eq!(model.get(&key(f, o)), Some(&found));
                    }
                }
                Op::Insert(f, o, weight) | Op::Keep(f, o, weight) => {
                    match op {
                        Op::Keep(..) => cache.insert_kept(key(f, o), version as u64, weight),
                        _ => cache.insert(key(f, o), version as u64, weight),
                    }
                    model.insert(key(f, o), version as u64);
                    let share = capacity / shards.next_power_of_two();
                    let fits = weight + ENTRY_OVERHEAD_BYTES <= share;
                    prop_assert_eq!(cache.get(&key(f, o)), fits.then_some(version as u64));
                }
                Op::Resize(bytes) => {
                    capacity = bytes;
                    cache.set_capacity(bytes);
                }
                Op::RemoveFile(f) => {
                    cache.remove_file(f);
                    model.retain(|k, _| k.file != f);
                }
            }
            let stats = cache.stats();
            prop_assert!(stats.used_bytes <= stats.capacity && stats.capacity <= capacity as u64);
            prop_assert!(stats.kept_bytes <= stats.used_bytes && stats.kept_bytes <= stats.capacity / 4 * 3);
            prop_assert_eq!(stats.inserted_bytes - stats.evicted_bytes, stats.used_bytes);
        }
    }
}

#[test]
fn a_long_scan_leaves_the_hot_set() {
    const BLOCK: usize = 4096 - ENTRY_OVERHEAD_BYTES;
    let cache = BlockCache::with_shards(4096 * 1000, 4);
    let hot = 500;
    for _ in 0..4 {
        for offset in 0..hot {
            if cache.get(&key(1, offset)).is_none() {
                cache.insert(key(1, offset), offset, BLOCK);
            }
        }
    }
    for offset in 0..20_000 {
        assert_eq!(cache.get(&key(2, offset)), None);
        cache.insert(key(2, offset), offset, BLOCK);
    }
    let kept = (0..hot).filter(|&o| cache.get(&key(1, o)).is_some()).count();
    assert_eq!(kept as u64, hot, "a FIFO or LRU cache would keep none");
}

#[test]
fn what_is_to_be_kept_stays_without_being_used_and_leaves_room() {
    const WEIGHT: usize = 1000 - ENTRY_OVERHEAD_BYTES;
    let cache = BlockCache::with_shards(100 * 1000, 1);
    for offset in 0..200 {
        cache.insert_kept(key(1, offset), offset, WEIGHT);
        // The newest entries are used: they replace those that never were.
        assert_eq!(cache.get(&key(1, offset)), Some(offset));
    }
    assert_eq!((cache.stats().kept_bytes, cache.retained_space()), (75_000, 0));
    let kept = || (0..200).filter(|offset| cache.peek(&key(1, *offset)).is_some()).count();
    for offset in 0..1_000 {
        cache.insert(key(2, offset), offset, WEIGHT);
    }
    assert_eq!(kept(), 75, "a scan displaces none of them");
    assert!(
        (900..1_000).any(|offset| cache.peek(&key(2, offset)).is_some()),
        "and fits itself"
    );
    cache.set_capacity(40_000);
    assert_eq!(
        (kept(), cache.stats().used_bytes <= 40_000),
        (30, true),
        "the budget wins"
    );
    cache.remove_file(1);
    assert_eq!((kept(), cache.stats().kept_bytes), (0, 0));
}

#[test]
fn a_key_that_returns_soon_goes_to_main_and_is_counted() {
    let cache = BlockCache::with_shards(10 * (1000 + ENTRY_OVERHEAD_BYTES), 1);
    for offset in 0..11 {
        cache.insert(key(1, offset), offset, 1000);
    }
    assert_eq!(cache.get(&key(1, 0)), None, "the oldest unused entry went first");
    cache.insert(key(1, 0), 0, 1000);
    assert_eq!(cache.stats().ghost_hits, 1);
    for offset in 100..200 {
        cache.insert(key(1, offset), offset, 1000);
    }
    assert_eq!(cache.get(&key(1, 0)), Some(0), "main outlives a scan through small");
}

#[test]
fn peeking_does_not_save_from_a_scan() {
    let cache = BlockCache::with_shards(10 * (1000 + ENTRY_OVERHEAD_BYTES), 1);
    cache.insert(key(1, 0), 0, 1000);
    cache.insert(key(1, 1), 1, 1000);
    for _ in 0..3 {
        assert_eq!(cache.peek(&key(1, 0)), Some(0));
        assert_eq!(cache.get(&key(1, 1)), Some(1));
    }
    for offset in 100..200 {
        cache.insert(key(1, offset), offset, 1000);
    }
    assert_eq!((cache.peek(&key(1, 0)), cache.peek(&key(1, 1))), (None, Some(1)));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (3, 0));
}

#[test]
fn an_entry_above_the_share_is_refused_and_displaces_nothing() {
    let cache = BlockCache::with_shards(8_000, 2);
    cache.insert(key(1, 1), 1, 100);
    cache.insert(key(1, 2), 2, 4_000);
    assert_eq!(cache.get(&key(1, 2)), None);
    assert_eq!(cache.get(&key(1, 1)), Some(1));
}

/// Keys 0.. with Zipf-distributed probabilities.
fn skewed(draw: u64, keys: u64) -> u64 {
    let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
    ((keys as f64).powf(uniform) - 1.0) as u64
}

fn next_draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key(*state, 1).hash64()
}

#[test]
fn the_profile_tells_what_other_capacities_do() {
    const WEIGHT: usize = 1024 - ENTRY_OVERHEAD_BYTES;
    let plan = ProfilePlan {
        capacities: vec![1 << 20, 4 << 20, 16 << 20],
        sample_shift: 3,
    };
    let profiled = BlockCache::with_shards(2 << 20, 1);
    profiled.start_profile(&plan, Arc::new(|| Duration::ZERO));
    let real: Vec<BlockCache<()>> = plan.capacities.iter().map(|c| BlockCache::with_shards(*c, 1)).collect();
    let mut state = 7;
    for _ in 0..400_000 {
        let key = key(1, skewed(next_draw(&mut state), 60_000));
        for cache in real.iter().chain([&profiled]) {
            if cache.get(&key).is_none() {
                cache.insert(key, (), WEIGHT);
            }
        }
    }
    let found = profiled.profile().expect("it was started");
    let rate = |hits: u64, of: u64| hits as f64 / of as f64;
    for (cache, hits) in real.iter().zip(&found.hits) {
        let stats = cache.stats();
        let (real, told) = (rate(stats.hits, stats.hits + stats.misses), rate(*hits, found.accesses));
        assert!((real - told).abs() < 0.05, "hit rate {real}, the profile says {told}");
    }
}

#[test]
fn the_profile_times_misses() {
    let now = Arc::new(parking_lot::Mutex::new(Duration::from_secs(1)));
    let clock = now.clone();
    let cache = BlockCache::with_shards(1 << 20, 1);
    let plan = ProfilePlan {
        capacities: vec![1 << 20],
        sample_shift: 0,
    };
    cache.start_profile(&plan, Arc::new(move || *clock.lock()));
    assert_eq!(cache.get(&key(1, 1)), None);
    *now.lock() += Duration::from_micros(30);
    cache.insert(key(1, 1), (), 100);
    cache.insert(key(1, 2), (), 100);
    assert!(cache.has_space(&key(1, 3), 100) && !cache.contains(&key(1, 3)));
    cache.insert_ahead(key(1, 3), (), 100);
    assert!(cache.contains(&key(1, 3)), "nobody has asked for it");
    let found = cache.profile().expect("it was started");
    assert_eq!((found.timed, found.timed_nanos, found.accesses), (1, 30_000, 2));
    assert_eq!(found.missed, 1, "every key is sampled");
}

#[test]
fn what_must_return_is_kept_when_it_does() {
    let mut cache = S3Fifo::new(3 * (1000 + ENTRY_OVERHEAD_BYTES), Admission::Returning);
    for offset in 0..3 {
        assert!(cache.admits(key(1, offset), 1000), "it fits");
        assert_eq!(cache.insert(key(1, offset), offset, 1000), vec![]);
    }
    assert!(!cache.admits(key(1, 3), 1000), "never seen");
    assert!(cache.admits(key(1, 3), 1000));
    assert_eq!(cache.insert(key(1, 3), 3, 1000), vec![0]);
    assert_eq!(cache.insert(key(1, 4), 4, 1000), vec![4], "refused, remembered");
    assert_eq!(cache.insert(key(1, 4), 4, 1000), vec![1]);
    assert_eq!((cache.peek(key(1, 3)), cache.peek(key(1, 4))), (Some(&3), Some(&4)));
    assert_eq!((cache.remove(key(1, 3)), cache.get(key(1, 3))), (Some(3), None));
    assert!(cache.admits(key(1, 9), 1000), "it fits again");
}

proptest! {
    /// Compares the policy with a map that may forget, with removals, under both kinds of admission. Queues stay short.
    #[test]
    fn the_policy_never_lies(
        returning in any::<bool>(), share in 0usize..8_000,
        ops in prop::collection::vec((0u8..8, 0u64..12, 0usize..1_500), 1..600),
    ) {
        let admission = if returning { Admission::Returning } else { Admission::Probation };
        let mut cache = S3Fifo::new(share, admission);
        let mut model: HashMap<BlockKey, usize> = HashMap::new();
        for (version, (op, offset, weight)) in ops.into_iter().enumerate() {
            let key = key(1, offset);
            match op {
                0 => if let Some(found) = cache.get(key) {
                    prop_assert_eq!(model.get(&key), Some(found));
                },
                1 | 2 => {
                    match op {
                        1 => cache.insert(key, version, weight),
                        _ => cache.insert_kept(key, version, weight),
                    };
                    model.insert(key, version);
                }
                3 => {
                    let removed = cache.remove(key);
                    let known = model.remove(&key);
                    prop_assert!(removed.is_none() || removed == known);
                    prop_assert_eq!(cache.get(key), None);
                }
                4 => drop(cache.set_share(weight * 6)),
                5 => {
                    let all = |cache: &S3Fifo<BlockKey, usize>| -> Vec<Option<usize>> {
                        (0..12).map(|offset| cache.peek(self::key(1, offset)).copied()).collect()
                    };
                    let before = all(&cache);
                    cache.compact();
                    prop_assert_eq!(all(&cache), before);
                }
                6 => { cache.admits(key, weight); }
                _ => { cache.is_worth_keeping(key, weight); }
            }
            let mut stats = CacheStats::default();
            cache.add_stats(&mut stats);
            prop_assert!(stats.used_bytes <= stats.capacity);
            prop_assert_eq!(stats.inserted_bytes - stats.evicted_bytes, stats.used_bytes);
            prop_assert!(cache.places() <= 2 * stats.entries as usize + 64);
        }
    }
}

/// A cache that shrinks frees the memory of its places, and the remaining entries are found.
#[test]
fn a_share_that_shrinks_frees_the_places_of_entries() {
    const ENTRIES: u64 = 100_000;
    for admission in [Admission::Probation, Admission::Returning] {
        let mut cache = S3Fifo::new(24 << 20, admission);
        for offset in 0..ENTRIES {
            drop(cache.insert(key(1, offset), offset, 128));
        }
        let before = cache.memory_of_places();
        drop(cache.set_share(3 << 19));
        let after = cache.memory_of_places();
        assert!(after < before / 4, "{after} of {before}");
        let found: Vec<u64> = (0..ENTRIES)
            .filter(|offset| cache.peek(key(1, *offset)) == Some(offset))
            .collect();
        let mut stats = CacheStats::default();
        cache.add_stats(&mut stats);
        assert_eq!(found.len() as u64, stats.entries);
        assert!(stats.entries > 4_000, "{}", stats.entries);
        // They are evicted in the order of their insertion.
        assert_eq!(cache.set_share(0), found);
    }
}

/// Reads blocks, and inserts a missing one if it is worth caching. Returns the numbers of hits and of rejected blocks.
fn read_all(cache: &BlockCache<u64>, keys: impl Iterator<Item = u64>, asks: bool) -> (u64, u64) {
    const WEIGHT: usize = 4096 - ENTRY_OVERHEAD_BYTES;
    let before = cache.stats().turned_away;
    let (mut hits, mut turned_away) = (0, 0);
    for offset in keys {
        let key = key(1, offset);
        if cache.get(&key).is_some() {
            hits += 1;
        } else if !asks || cache.is_worth_keeping(key, WEIGHT) {
            cache.insert(key, offset, WEIGHT);
        } else {
            turned_away += 1;
        }
    }
    assert_eq!(cache.stats().turned_away - before, turned_away);
    (hits, turned_away)
}

/// Uniformly distributed random numbers below `keys`.
fn alike(keys: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || next_draw(&mut state) % keys)
}

#[test]
fn what_is_not_asked_for_again_is_turned_away_without_loss() {
    let reads = 200_000;
    let hits = |asks| {
        let cache = BlockCache::with_shards(4096 * 2_000, 2);
        read_all(&cache, alike(8_000, 7).take(reads), asks)
    };
    let (all, none) = hits(false);
    let (some, turned_away) = hits(true);
    assert_eq!(none, 0);
    let misses = reads as u64 - some;
    assert!(turned_away > misses * 3 / 5, "{turned_away} of {misses}");
    assert!(some > all * 97 / 100, "{some} hits, {all} with all that is new");
}

#[test]
fn what_is_asked_for_again_soon_is_let_in() {
    let cache = BlockCache::with_shards(4096 * 2_000, 2);
    // Twice in a row, and never again.
    let (hits, turned_away) = read_all(&cache, (0..100_000).map(|n| n / 2), true);
    assert_eq!((hits, turned_away), (50_000, 0));
    // A quarter of them twice, with fifty others in between, while all others are read once.
    let twice = (1 << 20..)
        .step_by(100)
        .take(500)
        .flat_map(|first| (0..100).chain(50..75).map(move |n| first + n));
    let (hits, turned_away) = read_all(&cache, twice, true);
    assert_eq!((hits, turned_away), (500 * 25, 0));
}

#[test]
fn a_load_that_changes_is_followed() {
    let cache = BlockCache::with_shards(4096 * 2_000, 2);
    let (_, turned_away) = read_all(&cache, alike(1 << 20, 7).take(100_000), true);
    assert!(turned_away > 80_000, "{turned_away}");
    // All blocks fit: each is rejected once at most, except for a few whose ghosts are forgotten.
    let few = || alike(1_000, 8).map(|n| n + (1 << 30));
    let (_, turned_away) = read_all(&cache, few().take(20_000), true);
    assert!(turned_away < 1_100, "{turned_away}");
    let (hits, _) = read_all(&cache, few().take(20_000), true);
    assert!(hits > 19_900, "{hits}");
    // No block twice, so that most are rejected; then each block twice.
    let (_, turned_away) = read_all(&cache, 1 << 32..(1 << 32) + 50_000, true);
    assert!(turned_away > 40_000, "{turned_away}");
    let (hits, turned_away) = read_all(&cache, (1 << 34..(1u64 << 34) + 50_000).flat_map(|n| [n, n]), true);
    assert!(
        hits > 47_000 && turned_away < 3_000,
        "{hits} hits, {turned_away} turned away"
    );
}
