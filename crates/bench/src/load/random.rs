//! Random numbers that follow from seed and operation alone.
//!
//! Any worker can therefore carry out any operation.
//!
//! Terms: a *stream* is the sequence of random numbers of one operation; a *permutation* renumbers `[0, n)` one to one.
//!
//! Source: the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), a
//! bijection of 64-bit words whose every output bit depends on every input bit. Nothing here is secret or cryptographic.

/// 2^64 divided by the golden ratio, odd: SplitMix64's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles a word; a bijection, undone by [`unmix64`].
pub fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Undoes [`mix64`].
pub fn unmix64(mut z: u64) -> u64 {
    // The multipliers' inverses modulo 2^64; a shift of s bits is undone by adding the shifts of 2s.
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// The random numbers of one operation.
#[derive(Debug, Clone, Copy)]
pub struct Stream(u64);

impl Stream {
    /// The stream of operation `index` under `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        // Scrambled twice: neighbouring indexes and seeds must not start near each other on the generator's one cycle.
        Self(mix64(mix64(seed ^ GOLDEN).wrapping_add(index.wrapping_mul(GOLDEN))))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix64(self.0)
    }

    /// A number in `[0, n)`; zero when `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        scale(self.bits(), n)
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

/// Maps 64 random bits to `[0, n)`. The bias is below `n / 2^64`, which no experiment here could measure.
pub fn scale(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

/// Maps 64 random bits to [0, 1) in steps of 2^-53.
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A one-to-one renumbering of `[0, n)`.
///
/// Works on the smallest power of two that holds `n`, with steps that each are bijections of it (odd multiplication, xor,
/// shift-xor). It repeats them while the result is outside `[0, n)`: fewer than two walks on average.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
}

impl Permutation {
    /// Of `[0, n)`.
    pub fn new(n: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self {
            n,
            mask: if bits == 64 { u64::MAX } else { (1 << bits) - 1 },
            shift: bits.div_ceil(2).max(1),
        }
    }

    /// The new number of `x`, below `n`, under `key`. Each key gives another permutation.
    pub fn apply(&self, x: u64, key: u64) -> u64 {
        if self.n <= 1 {
            return 0;
        }
        let mut x = x;
        loop {
            x = self.scramble(x, key);
            // Terminates: the walk follows a cycle of a bijection that started inside `[0, n)`.
            if x < self.n {
                return x;
            }
        }
    }

    fn scramble(&self, mut x: u64, key: u64) -> u64 {
        x = (x ^ key) & self.mask;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93) & self.mask;
        x ^= x >> self.shift;
        x = (x ^ key.rotate_left(21)) & self.mask;
        x = x.wrapping_mul(0xa076_1d64_78bd_642f) & self.mask;
        x ^= x >> self.shift;
        x = (x ^ key.rotate_left(42)) & self.mask;
        x = x.wrapping_mul(0xe703_7ed1_a0b4_28db) & self.mask;
        x ^ (x >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmix_undoes_mix() {
        for i in 0..10_000u64 {
            let word = i.wrapping_mul(0x0123_4567_89ab_cdef);
            assert_eq!(unmix64(mix64(word)), word);
            assert_eq!(mix64(unmix64(word)), word);
        }
    }

    #[test]
    fn a_permutation_hits_every_number_once() {
        for n in [1, 2, 3, 5, 64, 65, 1_000, 4_097] {
            for key in [0, 1, u64::MAX, 0xfeed_face_dead_beef] {
                let permutation = Permutation::new(n);
                let mut hit = vec![false; n as usize];
                for x in 0..n {
                    let y = permutation.apply(x, key) as usize;
                    assert!(!hit[y], "n {n} key {key:x}: {y} twice");
                    hit[y] = true;
                }
            }
        }
    }

    #[test]
    fn a_permutation_scatters_neighbours() {
        let n = 1_000_000;
        let permutation = Permutation::new(n);
        // The 1 % lowest numbers must be spread evenly: 100 intervals with about 100 of them each.
        let mut counts = [0u32; 100];
        for x in 0..10_000 {
            counts[(permutation.apply(x, 7) / 10_000) as usize] += 1;
        }
        let chi_square: f64 = counts.iter().map(|&c| (f64::from(c) - 100.0).powi(2) / 100.0).sum();
        // 99 degrees of freedom: mean 99, standard deviation 14; 149 is exceeded once in a thousand.
        assert!(chi_square < 149.0, "chi-square {chi_square}");
    }

    #[test]
    fn streams_of_neighbours_are_unrelated() {
        // Pairs (bit of operation i, bit of operation i + 1) over all bit positions agree half the time.
        let mut agreeing = 0;
        for i in 0..10_000 {
            agreeing += (!(Stream::new(1, i).bits() ^ Stream::new(1, i + 1).bits())).count_ones();
            agreeing += (!(Stream::new(i, 1).bits() ^ Stream::new(i + 1, 1).bits())).count_ones();
        }
        let share = f64::from(agreeing) / (2.0 * 10_000.0 * 64.0);
        assert!((share - 0.5).abs() < 0.002, "share {share}");
    }
}
