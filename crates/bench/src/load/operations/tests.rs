//! Shapes of key choice against closed form. Limits are those of chi-square at 99.9 %, seeds are fixed.

use super::*;
use crate::plan::Keys;
use std::collections::HashSet;

fn operations(mix: Vec<(Operation, f64)>, records: u64, order: KeyOrder) -> Operations {
    let keys = Keys {
        records,
        order,
        ..Keys::default()
    };
    let workload = Workload {
        mix,
        keys,
        ..Workload::default()
    };
    Operations::new(&workload, 42).unwrap()
}

fn gets(records: u64, order: KeyOrder) -> Operations {
    operations(vec![(Operation::Get, 1.0)], records, order)
}

fn counts(operations: &Operations, samples: u64, cells: usize, cell: impl Fn(Chosen) -> usize) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for i in 0..samples {
        counts[cell(operations.at(i))] += 1;
    }
    counts
}

fn chi_square(counts: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
    let term = |(i, &count): (usize, &u64)| (count as f64 - expected(i)).powi(2) / expected(i);
    counts.iter().enumerate().map(term).sum()
}

#[test]
fn sequential_goes_through_the_keys_in_order_and_around() {
    let operations = gets(10, KeyOrder::Sequential);
    let keys: Vec<u64> = (8..12).map(|i| operations.at(i).key).collect();
    assert_eq!(keys, [8, 9, 0, 1]);
}

#[test]
fn uniform_is_uniform_with_repetitions() {
    let counts = counts(&gets(1_000, KeyOrder::Uniform), 1_000_000, 1_000, |o| o.key as usize);
    let statistic = chi_square(&counts, |_| 1_000.0);
    // 999 degrees of freedom: 1143 is exceeded once in a thousand, and 862 undercut as rarely (too even to be random).
    assert!((862.0..1_143.0).contains(&statistic), "{statistic}");
}

#[test]
fn zipf_keys_are_scattered_and_the_same_under_every_seed() {
    let operations = gets(1_000, KeyOrder::Zipf { exponent: 0.99 });
    let counts = counts(&operations, 1_000_000, 1_000, |o| o.key as usize);
    let scatter = Permutation::new(1_000);
    let zipf = Zipf::new(1_000, 0.99);
    let by_rank: Vec<u64> = (0..1_000)
        .map(|rank| counts[scatter.apply(rank, SCATTER) as usize])
        .collect();
    let statistic = chi_square(&by_rank, |rank| 1_000_000.0 * zipf.probability(rank as u64));
    assert!(statistic < 1_143.0, "{statistic}");
    let hottest: Vec<u64> = (0..10).map(|rank| scatter.apply(rank, SCATTER)).collect();
    assert!(
        hottest.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > 100),
        "{hottest:?} are neighbours"
    );
}

#[test]
fn hotspot_gives_each_side_its_share_evenly() {
    let order = KeyOrder::Hotspot {
        keys: 0.2,
        operations: 0.8,
    };
    let operations = gets(1_000, order);
    let counts = counts(&operations, 1_000_000, 1_000, |o| o.key as usize);
    let scatter = Permutation::new(1_000);
    let by_rank: Vec<u64> = (0..1_000)
        .map(|rank| counts[scatter.apply(rank, SCATTER) as usize])
        .collect();
    let statistic = chi_square(&by_rank, |rank| if rank < 200 { 4_000.0 } else { 250.0 });
    assert!(statistic < 1_143.0, "{statistic}");
}

#[test]
fn latest_prefers_the_newest() {
    let operations = gets(500, KeyOrder::Latest { exponent: 0.8 });
    let counts = counts(&operations, 1_000_000, 500, |o| {
        assert_eq!(o.age, Some(499 - o.key));
        (499 - o.key) as usize
    });
    let zipf = Zipf::new(500, 0.8);
    let statistic = chi_square(&counts, |age| 1_000_000.0 * zipf.probability(age as u64));
    assert!(statistic < 602.0, "{statistic}");
}

#[test]
fn kinds_have_their_weights() {
    let mix = vec![
        (Operation::Get, 7.0),
        (Operation::Put, 2.0),
        (Operation::Increment, 1.0),
    ];
    let counts = counts(&operations(mix, 10, KeyOrder::Uniform), 100_000, 3, |o| {
        usize::from(o.kind)
    });
    let statistic = chi_square(&counts, |kind| [70_000.0, 20_000.0, 10_000.0][kind]);
    assert!(statistic < 13.8, "{statistic}: {counts:?}");
}

#[test]
fn a_kind_says_nothing_about_the_key() {
    let mix = vec![(Operation::Get, 1.0), (Operation::Put, 1.0)];
    let counts = counts(&operations(mix, 50, KeyOrder::Uniform), 1_000_000, 100, |o| {
        usize::from(o.kind) * 50 + o.key as usize
    });
    let statistic = chi_square(&counts, |_| 10_000.0);
    assert!(statistic < 149.0, "{statistic}");
}

#[test]
fn inserts_are_numbered_without_gaps_and_have_their_share() {
    let mix = vec![(Operation::Get, 0.95), (Operation::Insert, 0.05)];
    let operations = operations(mix, 100, KeyOrder::Latest { exponent: 0.99 });
    let inserted: Vec<u64> = (0..20_000)
        .map(|i| operations.at(i))
        .filter(|o| o.kind == 1)
        .map(|o| o.key)
        .collect();
    assert_eq!(inserted.len(), 1_000);
    let distinct: HashSet<u64> = inserted.iter().copied().collect();
    assert_eq!(distinct, (100..1_100).collect::<HashSet<u64>>());
    for end in [0, 1, 999, 1_000, 1_234] {
        let counted = (0..end).filter(|&i| operations.at(i).kind == 1).count() as u64;
        assert_eq!(operations.inserts_before(end), counted);
    }
    // Slots differ from block to block.
    let slots = |block: u64| {
        (0..BLOCK)
            .filter(|i| operations.at(block * BLOCK + i).kind == 1)
            .collect::<Vec<u64>>()
    };
    assert_ne!(slots(0), slots(1));
}

#[test]
fn a_load_by_inserts_is_in_order() {
    let operations = operations(vec![(Operation::Insert, 1.0)], 10, KeyOrder::Sequential);
    assert!((0..2_000).all(|i| operations.at(i).key == 10 + i));
}

#[test]
fn senseless_workloads_are_refused() {
    let order = KeyOrder::Uniform;
    let workload = |mix: Vec<(Operation, f64)>, records, order| Workload {
        mix,
        keys: Keys {
            records,
            order,
            ..Keys::default()
        },
        ..Workload::default()
    };
    let get = || vec![(Operation::Get, 1.0)];
    let hotspot = |keys, operations| KeyOrder::Hotspot { keys, operations };
    for bad in [
        workload(vec![], 10, order),
        workload(get(), 0, order),
        workload(vec![(Operation::Get, -1.0)], 10, order),
        workload(vec![(Operation::Get, f64::NAN)], 10, order),
        workload(vec![(Operation::Get, 0.0)], 10, order),
        workload(vec![(Operation::Insert, 1.0), (Operation::Insert, 1.0)], 10, order),
        workload(get(), 10, KeyOrder::Zipf { exponent: 0.0 }),
        workload(
            get(),
            10,
            KeyOrder::Latest {
                exponent: f64::INFINITY,
            },
        ),
        workload(get(), 10, hotspot(0.0, 0.5)),
        workload(get(), 10, hotspot(0.5, 1.0)),
        workload(get(), 1, hotspot(0.5, 0.5)),
    ] {
        assert!(Operations::new(&bad, 1).is_err(), "{bad:?}");
    }
}
