//! Correct results of counters, given the increments that this process has begun.
//!
//! An increment returns the counter's new value. That must be above every result that was returned before the increment
//! began. If no other process adds to the counter, it is also at most the number of increments begun so far.

use super::ledger::KEYS_MAX;
use anyhow::ensure;
use parking_lot::Mutex;

const SHARDS: u64 = 64;

/// The increments of this process on one table: eight bytes a key, increments begun above the largest result.
pub struct Counters {
    shards: Vec<Mutex<Vec<u64>>>,
    keys: u64,
    /// Whether no other process ever added to these counters.
    is_alone: bool,
}

/// Knowledge at the beginning of an increment.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    key: u64,
    largest: u32,
}

impl Counters {
    /// For keys below `keys`.
    ///
    /// # Errors
    /// More than [`KEYS_MAX`] keys.
    pub fn new(keys: u64, is_alone: bool) -> anyhow::Result<Self> {
        ensure!(keys <= KEYS_MAX, "{keys} counters; {KEYS_MAX} can be followed");
        let per_shard = keys.div_ceil(SHARDS) as usize;
        Ok(Self {
            shards: (0..SHARDS).map(|_| Mutex::new(vec![0; per_shard])).collect(),
            keys,
            is_alone,
        })
    }

    /// An increment begins.
    pub fn begin(&self, key: u64) -> Before {
        let largest = self.with(key, |entry| {
            *entry = entry.saturating_add(1 << 32);
            *entry as u32
        });
        Before {
            key,
            largest: largest.unwrap_or_default(),
        }
    }

    /// Records the result `answer`. Returns the bounds that it violates, if it does.
    pub fn end(&self, before: Before, answer: i64) -> Result<(), (i64, i64)> {
        let least = i64::from(before.largest) + 1;
        let begun = self.with(before.key, |entry| {
            let largest = (*entry as u32).max(answer.clamp(0, i64::from(u32::MAX)) as u32);
            *entry = *entry >> 32 << 32 | u64::from(largest);
            *entry >> 32
        });
        let most = begun.filter(|_| self.is_alone).map_or(i64::MAX, |begun| begun as i64);
        if (least..=most).contains(&answer) {
            Ok(())
        } else {
            Err((least, most))
        }
    }

    fn with<T>(&self, key: u64, change: impl FnOnce(&mut u64) -> T) -> Option<T> {
        if key >= self.keys {
            return None;
        }
        let mut shard = self.shards.get((key % SHARDS) as usize)?.lock();
        shard.get_mut((key / SHARDS) as usize).map(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_any_order_are_right() {
        let counters = Counters::new(10, true).unwrap();
        let (a, b) = (counters.begin(3), counters.begin(3));
        assert_eq!(counters.end(b, 1), Ok(()));
        assert_eq!(counters.end(a, 2), Ok(()));
        assert_eq!(counters.end(counters.begin(3), 3), Ok(()));
    }

    #[test]
    fn lost_and_doubled_increments_are_noticed() {
        let counters = Counters::new(10, true).unwrap();
        assert_eq!(counters.end(counters.begin(3), 1), Ok(()));
        assert_eq!(counters.end(counters.begin(3), 1), Err((2, 2)), "lost");
        assert_eq!(counters.end(counters.begin(3), 4), Err((2, 3)), "doubled");
        assert_eq!(counters.end(counters.begin(4), 0), Err((1, 1)));
    }

    #[test]
    fn others_may_add_too() {
        let counters = Counters::new(10, false).unwrap();
        assert_eq!(counters.end(counters.begin(3), 100), Ok(()));
        assert_eq!(counters.end(counters.begin(3), 100), Err((101, i64::MAX)));
        assert_eq!(counters.end(counters.begin(30), 7), Ok(()), "outside");
    }
}
