//! Skew of a run's keys, counted on the keys that it really used.
//!
//! The parameter of a "Zipf 0.8" does not determine the skew alone. The share of operations on the busiest fifth of the
//! keys depends on the number of keys and, in a short run, on chance. So keys are replayed and counted. The counts are
//! exact while they fit in memory ([`COUNTERS_MAX`] keys, or as many operations). Beyond that, evenly spaced operations
//! are counted, as many as fit, and [`Skew::operations`] is their number.
//!
//! Operations on whole ranges have no key of their own and are not counted. Short scans count their first key. Under
//! [`crate::plan::KeyOrder::Latest`] inserts are assumed to be acknowledged in their order.

use super::Written;
use super::operations::Operations;
use crate::outcome::Skew;
use crate::plan::Operation;

/// Counters of 4 bytes, or sampled keys of 8: at most 256 or 512 MiB.
const COUNTERS_MAX: u64 = 1 << 26;

/// Counts the keys of these operations.
pub fn measure(done: &Written) -> Skew {
    let mix = &done.workload.mix;
    let is_range = |(operation, _): &(Operation, f64)| matches!(operation, Operation::Scan { .. });
    let operations = match Operations::new(&done.workload, done.seed) {
        Ok(operations) if !mix.iter().any(is_range) => operations,
        _ => return Skew::default(),
    };
    let total: u64 = done.spans.iter().map(|span| span.end.saturating_sub(span.start)).sum();
    let last = done.spans.iter().map(|span| span.end).max().unwrap_or_default();
    let key_space = done.workload.keys.records + operations.inserts_before(last);
    let mut counts = if key_space <= COUNTERS_MAX {
        count_all(done, &operations, key_space)
    } else {
        count_sorted(done, &operations, total.div_ceil(COUNTERS_MAX).max(1))
    };
    shares(&mut counts, key_space)
}

fn count_all(done: &Written, operations: &Operations, key_space: u64) -> Vec<u32> {
    let mut counts = vec![0u32; key_space as usize];
    for index in done.spans.iter().cloned().flatten() {
        // Inserts of a block that is not complete may have numbers beyond those counted so far: they are the newest.
        let key = key(operations, index).min(key_space.saturating_sub(1));
        if let Some(count) = counts.get_mut(key as usize) {
            *count = count.saturating_add(1);
        }
    }
    counts.retain(|&count| count > 0);
    counts
}

fn count_sorted(done: &Written, operations: &Operations, every: u64) -> Vec<u32> {
    let indexes = done.spans.iter().cloned().flatten().step_by(every as usize);
    let mut keys: Vec<u64> = indexes.map(|index| key(operations, index)).collect();
    keys.sort_unstable();
    keys.chunk_by(|a, b| a == b).map(|same| same.len() as u32).collect()
}

fn key(operations: &Operations, index: u64) -> u64 {
    let chosen = operations.at(index);
    match chosen.age {
        Some(_) => chosen.key + operations.inserts_before(index),
        None => chosen.key,
    }
}

/// Shares of the busiest keys; `counts` are those above zero.
fn shares(counts: &mut [u32], key_space: u64) -> Skew {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    let operations = sum(counts);
    let share = |percent: f64| {
        let top = ((key_space as f64 * percent / 100.0).round() as usize).clamp(1, counts.len().max(1));
        match operations {
            0 => 0.0,
            _ => sum(counts.get(..top).unwrap_or_default()) as f64 / operations as f64,
        }
    };
    Skew {
        top_1_percent: share(1.0),
        top_10_percent: share(10.0),
        top_20_percent: share(20.0),
        distinct: counts.len() as u64,
        operations,
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of one")]
mod tests {
    use super::*;
    use crate::load::zipf::Zipf;
    use crate::plan::{KeyOrder, Keys, Workload};

    fn gets(records: u64, order: KeyOrder, operations: u64) -> Written {
        let keys = Keys {
            records,
            order,
            ..Keys::default()
        };
        Written {
            workload: Workload {
                mix: vec![(Operation::Get, 1.0)],
                keys,
                ..Workload::default()
            },
            seed: 1,
            spans: vec![0..operations / 3, operations / 2..operations / 2 + operations / 3],
            ..Written::default()
        }
    }

    #[test]
    fn every_key_once_is_even() {
        let mut done = gets(1_000, KeyOrder::Sequential, 0);
        done.spans = vec![0..500, 500..1_000];
        let skew = measure(&done);
        assert_eq!((skew.distinct, skew.operations), (1_000, 1_000));
        assert_eq!(
            (skew.top_1_percent, skew.top_10_percent, skew.top_20_percent),
            (0.01, 0.1, 0.2)
        );
    }

    #[test]
    fn zipf_has_the_shares_of_its_closed_form() {
        let skew = measure(&gets(10_000, KeyOrder::Zipf { exponent: 0.8 }, 1_500_000));
        let zipf = Zipf::new(10_000, 0.8);
        assert_eq!(skew.operations, 1_000_000);
        // A million operations on 10 000 keys: chance lifts the tail's share by little more than a hundredth.
        for (measured, top) in [
            (skew.top_1_percent, 100),
            (skew.top_10_percent, 1_000),
            (skew.top_20_percent, 2_000),
        ] {
            let exact = zipf.share(top);
            assert!(
                (0.0..0.015).contains(&(measured - exact)),
                "{measured} against {exact} for {top}"
            );
        }
    }

    #[test]
    fn both_ways_of_counting_agree() {
        let done = gets(5_000, KeyOrder::Zipf { exponent: 0.99 }, 60_000);
        let operations = Operations::new(&done.workload, done.seed).unwrap();
        let mut sorted = count_sorted(&done, &operations, 1);
        assert_eq!(shares(&mut sorted, 5_000), measure(&done));
        assert_eq!(count_sorted(&done, &operations, 4).iter().sum::<u32>(), 10_000);
    }

    #[test]
    fn latest_with_inserts_moves_with_them() {
        let mut done = gets(1_000, KeyOrder::Latest { exponent: 0.99 }, 0);
        done.workload.mix.push((Operation::Insert, 0.1));
        done.spans = vec![0..10_000];
        let skew = measure(&done);
        assert_eq!(skew.operations, 10_000);
        assert!(skew.top_20_percent < 0.75, "popularity moves on: {skew:?}");
    }

    #[test]
    fn ranges_and_nonsense_have_no_skew() {
        let mut done = gets(10, KeyOrder::Sequential, 30);
        done.workload.mix = vec![(Operation::Scan { rows_per_fetch: None }, 1.0)];
        assert_eq!(measure(&done), Skew::default());
        done.workload.mix.clear();
        assert_eq!(measure(&done), Skew::default());
    }
}
