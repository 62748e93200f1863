//! Keys and values, the same for both engines.
//!
//! A key is `user` and 16 hexadecimal digits of a bijection of the row's number: 20 bytes, no two the same, in random
//! order. Values are pieces of a pool in which every second half of 32 bytes repeats the first, so that a block
//! compresses to about half its size, as in RocksDB's own `db_bench`.

use bytes::Bytes;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bytes of a key.
pub const KEY_BYTES: usize = 20;
/// Larger than any last-level cache, so that values do not become hot; small enough to be made without a noticeable
/// wait.
const POOL_BYTES: usize = 8 << 20;

/// Writes the key of row `number`.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mixed = mix(number);
    let mut key = *b"user0000000000000000";
    for (at, digit) in key[4..].iter_mut().enumerate() {
        *digit = DIGITS[(mixed >> (60 - 4 * at)) as usize & 15];
    }
    key
}

/// The finalizer of SplitMix64: a bijection.
fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Gives values of one length.
pub struct Values {
    pool: Bytes,
    len: usize,
    at: usize,
}

impl Values {
    /// Values of `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut random = generator(1);
        let mut pool = vec![0; POOL_BYTES];
        for piece in pool.chunks_mut(32) {
            random.fill_bytes(&mut piece[..16]);
            piece.copy_within(..16, 16);
        }
        let pool = pool.into();
        Values { pool, len, at: 0 }
    }

    /// For each of some writers the same values out of the same memory, beginning elsewhere in it. Making a pool takes as long
    /// as writing a thousand rows, so writers do not each make one.
    pub fn for_writers(len: usize, writers: u64) -> impl Iterator<Item = Values> {
        let all = Values::new(len);
        let each = all.pool.len() / writers.max(1) as usize;
        (0..writers as usize).map(move |writer| Values {
            pool: all.pool.clone(),
            len,
            at: writer * each,
        })
    }

    /// The next value.
    pub fn next(&mut self) -> &[u8] {
        if self.at + self.len > self.pool.len() {
            self.at = 0;
        }
        let value = &self.pool[self.at..self.at + self.len];
        self.at += self.len;
        value
    }

    /// The value that [`Values::next`] gives after this many others, if it began at the beginning.
    pub fn nth(&self, number: u64) -> &[u8] {
        let different = (self.pool.len() / self.len) as u64;
        let at = (number % different) as usize * self.len;
        &self.pool[at..at + self.len]
    }
}

/// A generator that gives the same numbers in every run and for every engine.
pub fn generator(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// A number in `[0, bound)`.
pub fn below(random: &mut Pcg64Mcg, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// Zipf-distributed numbers: Gray et al., "Quickly generating billion-record synthetic databases" (1994), as YCSB does.
pub struct Zipf {
    rows: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Over `rows` numbers with an exponent below 1.
    pub fn new(rows: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(rows);
        let eta = (1.0 - (2.0 / rows as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Zipf {
            rows,
            theta,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    /// The next rank, 0 the most frequent.
    pub fn next(&self, random: &mut Pcg64Mcg) -> u64 {
        let u = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.rows as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.rows - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_differ_and_repeat() {
        let keys: BTreeSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert_eq!(key(7), key(7));
        assert!(keys.iter().all(|k| k.starts_with(b"user")));
    }

    #[test]
    fn writers_share_a_pool_and_begin_apart() {
        let mut writers: Vec<Values> = Values::for_writers(100, 64).collect();
        let pools: BTreeSet<_> = writers.iter().map(|values| values.pool.as_ptr()).collect();
        let begins: BTreeSet<_> = writers.iter_mut().map(|values| values.next().as_ptr()).collect();
        assert_eq!((pools.len(), begins.len()), (1, 64));
    }

    #[test]
    fn each_value_is_found_by_its_number() {
        let (mut values, all) = (Values::new(1 << 20), Values::new(1 << 20));
        for number in 0..20 {
            assert_eq!(values.next(), all.nth(number));
        }
    }

    #[test]
    fn zipf_favours_low_ranks_as_it_should() {
        let zipf = Zipf::new(10_000, 0.99);
        let mut random = generator(3);
        let draws = 200_000;
        let top = (0..draws).filter(|_| zipf.next(&mut random) == 0).count() as f64 / f64::from(draws);
        let exact = 1.0 / (1..=10_000).map(|i| f64::from(i).powf(-0.99)).sum::<f64>();
        assert!((top - exact).abs() < 0.1 * exact, "{top} against {exact}");
    }
}
