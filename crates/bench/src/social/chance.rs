//! Pseudo-random numbers that depend only on a seed and an operation's number.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"): each operation has its own
//! short stream, so that its content does not depend on place or order of its execution.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

/// The odd constant that SplitMix64 adds between outputs: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scatters a number over all 64 bits; different numbers stay different.
pub const fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Chance {
    /// The stream of operation `index` in a run with this seed.
    pub fn new(seed: u64, index: u64) -> Self {
        Self(scatter(seed) ^ scatter(index.wrapping_mul(STEP)))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let bits = scatter(self.0);
        self.0 = self.0.wrapping_add(STEP);
        bits
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `[0, end)`, zero if that is empty. The bias is below `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_index_only_and_is_uniform() {
        let draw = |seed, index| Chance::new(seed, index).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(1, 2), draw(1, 3));
        let mut tens = [0u32; 10];
        for index in 0..100_000 {
            let mut chance = Chance::new(7, index);
            chance.bits();
            let ten = chance.below(10);
            assert!(ten < 10);
            tens[ten as usize] += 1;
            assert!((0.0..1.0).contains(&chance.unit()));
        }
        // Three standard deviations of a binomial with mean 10,000 are 285.
        assert!(tens.iter().all(|&n| n.abs_diff(10_000) < 400), "{tens:?}");
        assert_eq!(Chance::new(1, 1).below(0), 0);
    }
}
