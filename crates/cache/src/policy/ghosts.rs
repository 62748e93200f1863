//! Ghosts are the keys of evicted entries.

use super::{SLOTS_TIMES_MAX, STALE_SLACK};
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Keys of evicted entries, oldest first, as hashes: a collision costs a slightly wrong placement.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    order: VecDeque<(u64, usize)>,
    present: HashSet<u64, BuildHasherDefault<Hashed>>,
    /// Sum of the charges of their former entries.
    charge: usize,
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Ghosts {
    pub(super) fn push(&mut self, hash: u64, charge: usize, limit: usize) {
        if self.present.insert(hash) {
            self.order.push_back((hash, charge));
            self.charge += charge;
        }
        self.shrink_to(limit);
        debug_assert!(self.charge <= limit, "ghosts stay within their limit");
        debug_assert!(
            self.present.len() <= self.order.len(),
            "every ghost has a place in the order"
        );
    }

    /// Removes a key, and returns whether it was present. Its place in `order` stays until it reaches the front, which
    /// only shortens the memory a little.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        self.present.remove(&hash)
    }

    /// Whether the key is present.
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.present.contains(&hash)
    }

    /// Frees memory after the limit has shrunk a lot.
    pub(super) fn compact(&mut self) {
        if self.order.capacity() > SLOTS_TIMES_MAX * self.order.len() + STALE_SLACK {
            self.order.shrink_to_fit();
            self.present.shrink_to_fit();
        }
    }

    pub(super) fn shrink_to(&mut self, limit: usize) {
        while self.charge > limit {
            let Some((hash, charge)) = self.order.pop_front() else {
                return;
            };
            self.present.remove(&hash);
            assert!(charge <= self.charge, "a ghost's charge is part of the sum");
            self.charge -= charge;
        }
    }

    /// Bytes of memory, used or not.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.order.capacity() * size_of::<(u64, usize)>() + self.present.capacity() * (size_of::<u64>() + 1)
    }
}
