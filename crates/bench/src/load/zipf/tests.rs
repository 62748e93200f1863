//! Samples against closed form. Chi-square limits are the 99.9 % points (Wilson and Hilferty's formula); seeds are fixed,
//! so a test that passes once always passes.

use super::*;
use crate::load::random::Stream;

fn counts(zipf: &Zipf, ranks: u64, samples: u64, seed: u64) -> Vec<u64> {
    let mut counts = vec![0u64; ranks as usize];
    for i in 0..samples {
        let mut stream = Stream::new(seed, i);
        counts[zipf.sample(&mut || stream.bits()) as usize] += 1;
    }
    counts
}

/// Chi-square of counts against exact probabilities, and its limit.
fn chi_square(counts: &[u64], exponent: f64) -> (f64, f64) {
    let samples: u64 = counts.iter().sum();
    let total: f64 = (1..=counts.len()).map(|k| (k as f64).powf(-exponent)).sum();
    let statistic = counts
        .iter()
        .enumerate()
        .map(|(rank, &count)| {
            let expected = samples as f64 * ((rank + 1) as f64).powf(-exponent) / total;
            assert!(expected > 5.0, "too few samples for the chi-square approximation");
            (count as f64 - expected).powi(2) / expected
        })
        .sum();
    (statistic, limit(counts.len() - 1))
}

fn limit(freedom: usize) -> f64 {
    let k = freedom as f64;
    k * (1.0 - 2.0 / (9.0 * k) + 3.09 * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

#[test]
fn small_distributions_match_closed_form() {
    for exponent in [0.1, 0.8, 0.99, 1.0, 1.000_001, 1.5] {
        for ranks in [2, 100] {
            let counts = counts(&Zipf::new(ranks, exponent), ranks, 400_000, 1);
            let (statistic, limit) = chi_square(&counts, exponent);
            assert!(statistic < limit, "s {exponent}, n {ranks}: {statistic} above {limit}");
        }
    }
}

#[test]
fn an_exponent_that_is_3_percent_off_is_noticed() {
    for exponent in [0.5, 0.8, 1.0] {
        let counts = counts(&Zipf::new(100, exponent * 1.03), 100, 400_000, 1);
        let (statistic, limit) = chi_square(&counts, exponent);
        assert!(statistic > limit, "s {exponent}: {statistic} within {limit}");
    }
}

#[test]
fn the_busiest_fifth_of_a_million_ranks_has_its_share() {
    // Zipf 0.8 is often called "20 % of keys, 80 % of accesses"; over a million keys it is 71 %.
    for (exponent, published) in [(0.8, 0.709), (0.99, 0.884)] {
        let ranks = 1_000_000;
        let zipf = Zipf::new(ranks, exponent);
        let all: f64 = (1..=ranks).map(|k| (k as f64).powf(-exponent)).sum();
        let top: f64 = (1..=ranks / 5).map(|k| (k as f64).powf(-exponent)).sum();
        let samples = 400_000u64;
        let mut hits = 0;
        for i in 0..samples {
            let mut stream = Stream::new(5, i);
            hits += u64::from(zipf.sample(&mut || stream.bits()) < ranks / 5);
        }
        let (measured, exact) = (hits as f64 / samples as f64, top / all);
        // Five standard deviations of a binomial share.
        let tolerance = 5.0 * (exact * (1.0 - exact) / samples as f64).sqrt();
        assert!(
            (measured - exact).abs() < tolerance,
            "s {exponent}: {measured} against {exact}"
        );
        assert!((exact - published).abs() < 0.005, "s {exponent}: {exact}");
        assert!((zipf.share(ranks / 5) - exact).abs() < 1e-9);
    }
}

#[test]
fn probabilities_sum_to_one_and_match_plain_sums() {
    for exponent in [0.3, 0.8, 1.0, 1.7] {
        let zipf = Zipf::new(5_000, exponent);
        let total: f64 = (1..=5_000).map(|k| f64::from(k).powf(-exponent)).sum();
        for rank in [0u64, 1, 999, 1_000, 4_999] {
            let exact = ((rank + 1) as f64).powf(-exponent) / total;
            assert!((zipf.probability(rank) / exact - 1.0).abs() < 1e-11);
        }
        let sum: f64 = (0..5_000).map(|rank| zipf.probability(rank)).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert_eq!(zipf.probability(5_000), 0.0);
    }
}

#[test]
fn samples_stay_within_the_ranks_at_the_extremes() {
    for (ranks, exponent) in [
        (0, 1.0),
        (1, 0.8),
        (2, 1e-12),
        (u64::MAX, 0.5),
        (1 << 60, 1.0),
        (10, 50.0),
        (7, f64::NAN),
    ] {
        let zipf = Zipf::new(ranks, exponent);
        for i in 0..1_000 {
            let mut stream = Stream::new(3, i);
            assert!(zipf.sample(&mut || stream.bits()) < ranks.max(1));
        }
    }
}
