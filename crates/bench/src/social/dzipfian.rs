//! BG's `dzipfian` distribution of users: the choice of the acting and the viewed member.
//!
//! Users are ranks. With mean `m`, BG gives rank `r` (from 1) a weight of `r^-(1-m)`: a Zipf distribution with exponent
//! `1 - m`. Its default of 0.27 is the exponent 0.73. The busiest fifth of many users has about `0.2^0.27` = 65 % of the
//! actions (62 % among 10,000, 59 % among 1000), the busiest percent 29 % of many (24 % of 10,000).
//!
//! The `d` is for decentralised: BG cuts the users into one fragment for each client such that all clients together
//! sample the same distribution. Here worker `w` of `W` samples the ranks `w + 1`, `w + 1 + W`, …. Their total weights
//! differ a little. BG compensates for that with unequal rates; this module does not.
//!
//! Discrete and exact, as BG's is: a table of cumulated weights and a binary search. (BG's rounds weights to integers.)

use super::chance::Chance;

/// Most ranks of a table: 16 M, whose cumulated weights take 128 MB.
pub const RANKS_MAX: u64 = 1 << 24;

/// One worker's fragment of the distribution.
#[derive(Debug)]
pub struct Dzipfian {
    /// Sum of the weights of this and all lower members of the fragment; constant.
    cumulated: Vec<f64>,
}

impl Dzipfian {
    /// The distribution of `members` users, being the fragment `worker` of `workers`.
    ///
    /// # Errors
    /// A mean outside [0, 1], no members, or more of them than [`RANKS_MAX`].
    pub fn new(members: u64, mean: f64, worker: u32, workers: u32) -> anyhow::Result<Self> {
        anyhow::ensure!((0.0..=1.0).contains(&mean), "dzipfian mean {mean}: expected 0 to 1");
        anyhow::ensure!(
            (1..=RANKS_MAX).contains(&members),
            "{members} members: expected 1 to {RANKS_MAX} per worker"
        );
        let exponent = 1.0 - mean;
        let mut sum = 0.0;
        let cumulated = (0..members)
            .map(|member| {
                let rank = member * u64::from(workers) + u64::from(worker) + 1;
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        Ok(Self { cumulated })
    }

    /// Samples a member of the fragment: a number below that of its members, the busiest being 0.
    pub fn sample(&self, chance: &mut Chance) -> u64 {
        let total = self.cumulated.last().copied().unwrap_or_default();
        let point = chance.unit() * total;
        let member = self.cumulated.partition_point(|&sum| sum <= point);
        // Rounding can put the point on the total itself.
        member.min(self.cumulated.len().saturating_sub(1)) as u64
    }

    /// Probability of a member.
    pub fn probability(&self, member: u64) -> f64 {
        let at = |index: Option<u64>| {
            index
                .and_then(|i| self.cumulated.get(i as usize))
                .copied()
                .unwrap_or_default()
        };
        let total = self.cumulated.last().copied().unwrap_or(1.0);
        ((at(Some(member)) - at(member.checked_sub(1))) / total).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of `r^-s` for `r` from 1 to `n` by Euler and Maclaurin: nothing shared with the table.
    fn harmonic(n: f64, s: f64) -> f64 {
        let head: f64 = (1..10).map(|r| f64::from(r).powf(-s)).sum();
        let f = |x: f64| x.powf(-s);
        let slope = |x: f64| -s * x.powf(-s - 1.0);
        head + (n.powf(1.0 - s) - 10f64.powf(1.0 - s)) / (1.0 - s)
            + (f(10.0) + f(n)) / 2.0
            + (slope(n) - slope(10.0)) / 12.0
    }

    #[test]
    fn samples_follow_the_closed_form() {
        let (members, draws) = (10_000u64, 400_000u64);
        let dzipfian = Dzipfian::new(members, 0.27, 0, 1).unwrap();
        let mut counts = vec![0u64; members as usize];
        for index in 0..draws {
            counts[dzipfian.sample(&mut Chance::new(11, index)) as usize] += 1;
        }
        let whole = harmonic(members as f64, 0.73);
        let share = |top: usize| counts[..top].iter().sum::<u64>() as f64 / draws as f64;
        for top in [1, 10, 100, 1000, 2000, 5000] {
            let expected = match top {
                1 => 1.0 / whole,
                _ => harmonic(top as f64, 0.73) / whole,
            };
            let tolerance = 5.0 * (expected * (1.0 - expected) / draws as f64).sqrt();
            assert!(
                (share(top) - expected).abs() < tolerance,
                "top {top}: {} for {expected}",
                share(top)
            );
        }
        // The figures in this module's description.
        assert!((0.61..0.63).contains(&share(2000)), "{}", share(2000));
        assert!((0.23..0.25).contains(&share(100)), "{}", share(100));
    }

    #[test]
    fn a_mean_of_one_is_uniform_and_one_of_zero_is_zipf() {
        let uniform = Dzipfian::new(100, 1.0, 0, 1).unwrap();
        assert!((0..100).all(|m| (uniform.probability(m) - 0.01).abs() < 1e-12));
        let zipf = Dzipfian::new(100, 0.0, 0, 1).unwrap();
        assert!((zipf.probability(0) / zipf.probability(9) - 10.0).abs() < 1e-9);
        assert_eq!(zipf.probability(100), 0.0);
    }

    #[test]
    fn fragments_together_are_about_the_whole() {
        let whole = Dzipfian::new(10_000, 0.27, 0, 1).unwrap();
        let parts: Vec<_> = (0..4).map(|w| Dzipfian::new(2500, 0.27, w, 4).unwrap()).collect();
        for rank in [40u64, 400, 4001, 9999] {
            let part = parts[(rank % 4) as usize].probability(rank / 4) / 4.0;
            let expected = whole.probability(rank);
            assert!(
                (part / expected - 1.0).abs() < 0.07,
                "rank {rank}: {part} for {expected}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Dzipfian::new(0, 0.27, 0, 1).is_err());
        assert!(Dzipfian::new(10, 1.5, 0, 1).is_err());
        assert!(Dzipfian::new(10, f64::NAN, 0, 1).is_err());
        assert!(Dzipfian::new(RANKS_MAX + 1, 0.27, 0, 1).is_err());
    }
}
