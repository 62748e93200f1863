//! The rows that this worker inserted last, newest first, from which [`crate::plan::KeyOrder::Latest`] counts ages.

use parking_lot::RwLock;

/// Inserted keys that are remembered. Under any Zipf exponent in use nearly all reads are of fewer.
const KEYS_MAX: usize = 1 << 20;

/// Keys of acknowledged inserts.
#[derive(Default)]
pub struct Recent(RwLock<Ring>);

#[derive(Default)]
struct Ring {
    keys: Vec<u64>,
    /// Inserts so far.
    count: u64,
}

impl Recent {
    /// An insert was acknowledged.
    pub fn push(&self, key: u64) {
        let mut ring = self.0.write();
        let place = (ring.count % KEYS_MAX as u64) as usize;
        match ring.keys.get_mut(place) {
            Some(oldest) => *oldest = key,
            None => ring.keys.push(key),
        }
        ring.count += 1;
    }

    /// The key that `age` keys are newer than, in a table whose first `records` keys are its oldest. Forgotten inserts
    /// are skipped.
    pub fn key(&self, age: u64, records: u64) -> u64 {
        let ring = self.0.read();
        let held = ring.keys.len() as u64;
        if age < held {
            let place = ((ring.count - 1 - age) % KEYS_MAX as u64) as usize;
            return ring.keys.get(place).copied().unwrap_or_default();
        }
        records.saturating_sub(1).saturating_sub(age - held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_count_back_through_inserts_to_the_loaded_keys() {
        let recent = Recent::default();
        assert_eq!((recent.key(0, 10), recent.key(9, 10)), (9, 0));
        recent.push(17);
        recent.push(12);
        let keys: Vec<u64> = (0..4).map(|age| recent.key(age, 10)).collect();
        assert_eq!(keys, [12, 17, 9, 8]);
    }

    #[test]
    fn the_ring_forgets_the_oldest() {
        let recent = Recent::default();
        for key in 0..KEYS_MAX as u64 + 5 {
            recent.push(1_000 + key);
        }
        assert_eq!(recent.key(0, 10), 1_000 + KEYS_MAX as u64 + 4);
        assert_eq!(recent.key(KEYS_MAX as u64 - 1, 10), 1_005);
        assert_eq!(recent.key(KEYS_MAX as u64, 10), 9);
    }
}
