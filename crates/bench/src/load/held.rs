//! The values that counters hold, computed by replaying the increments of earlier runs.
//!
//! A counter holds at least its acknowledged increments. It holds at most as many more as may have been carried out
//! besides: those that failed, and those of a lost worker, which another worker repeated.

use super::Written;
use super::ledger::KEYS_MAX;
use super::operations::Operations;
use crate::plan::{KeyOrder, Operation};
use anyhow::ensure;
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

/// The increments of a table, four bytes a key.
#[derive(Debug, Default)]
pub struct Held {
    /// Acknowledged ones, by key.
    acknowledged: Vec<u32>,
    /// Those that may have been carried out in addition, by key.
    uncertain: HashMap<u64, u32>,
    /// Whether more of them may have been carried out than the record tells.
    is_unbounded: bool,
}

impl Held {
    /// Replays the increments among the writes to a table.
    ///
    /// # Errors
    /// More than [`KEYS_MAX`] keys, or an invalid workload.
    pub fn replay(written: &[Written]) -> anyhow::Result<Self> {
        let mut held = Self::default();
        for written in written {
            held.add(written)?;
        }
        Ok(held)
    }

    fn add(&mut self, written: &Written) -> anyhow::Result<()> {
        let workload = &written.workload;
        let mix = workload.mix.iter();
        let is_increment: Vec<bool> = mix.map(|(operation, _)| *operation == Operation::Increment).collect();
        if !is_increment.contains(&true) {
            return Ok(());
        }
        let records = workload.keys.records;
        ensure!(records <= KEYS_MAX, "{records} counters; {KEYS_MAX} can be followed");
        let operations = Operations::new(workload, written.seed)?;
        let keys = |spans: &[Range<u64>], each: &mut dyn FnMut(u64)| {
            for chosen in spans.iter().cloned().flatten().map(|index| operations.at(index)) {
                if chosen.age.is_none() && is_increment.get(usize::from(chosen.kind)) == Some(&true) {
                    each(chosen.key);
                }
            }
        };
        // A timed run in key order begins again at the end of the keys, and its record does not tell how often. The newest
        // keys of a moment are not known afterwards.
        self.is_unbounded |= matches!(workload.keys.order, KeyOrder::Sequential | KeyOrder::Latest { .. });
        if self.acknowledged.len() < records as usize {
            self.acknowledged.resize(records as usize, 0);
        }
        keys(&written.spans, &mut |key| {
            if let Some(count) = self.acknowledged.get_mut(key as usize) {
                *count = count.saturating_add(1);
            }
        });
        for spans in [&written.uncertain, &written.repeated] {
            keys(spans, &mut |key| *self.uncertain.entry(key).or_default() += 1);
        }
        Ok(())
    }

    /// The values that the counter of a key may have.
    pub fn bounds(&self, key: u64) -> RangeInclusive<i64> {
        let least = self.acknowledged.get(key as usize).copied().unwrap_or_default();
        let more = self.uncertain.get(&key).copied().unwrap_or_default();
        let least = i64::from(least);
        let most = if self.is_unbounded {
            i64::MAX
        } else {
            least + i64::from(more)
        };
        least..=most
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of one")]
mod tests {
    use super::*;
    use crate::plan::{Keys, Workload};

    fn increments(order: KeyOrder, mix: Vec<(Operation, f64)>) -> Written {
        let keys = Keys {
            records: 10,
            order,
            ..Keys::default()
        };
        Written {
            workload: Workload {
                mix,
                keys,
                ..Workload::default()
            },
            seed: 5,
            spans: vec![0..60, 70..100],
            uncertain: vec![60..65],
            repeated: vec![70..80],
        }
    }

    #[test]
    fn a_counter_holds_its_acknowledged_increments_and_perhaps_the_others() {
        let mixed = increments(
            KeyOrder::Uniform,
            vec![(Operation::Increment, 0.5), (Operation::Put, 0.5)],
        );
        let operations = Operations::new(&mixed.workload, mixed.seed).unwrap();
        let held = Held::replay(&[mixed.clone(), mixed]).unwrap();
        for key in 0..10 {
            let count = |spans: &[Range<u64>]| {
                let chosen = spans.iter().cloned().flatten().map(|index| operations.at(index));
                2 * chosen.filter(|chosen| chosen.kind == 0 && chosen.key == key).count() as i64
            };
            let (least, more) = (count(&[0..60, 70..100]), count(&[60..65, 70..80]));
            assert_eq!(held.bounds(key), least..=least + more, "key {key}");
        }
        let all: i64 = (0..10).map(|key| *held.bounds(key).start()).sum();
        assert!((60..120).contains(&all), "about half of twice 90, found {all}");
        assert_eq!(held.bounds(10), 0..=0);
    }

    #[test]
    fn increments_that_the_record_does_not_tell_have_no_upper_bound() {
        let only = || vec![(Operation::Increment, 1.0)];
        let held = Held::replay(&[increments(KeyOrder::Sequential, only())]).unwrap();
        assert_eq!(held.bounds(3), 9..=i64::MAX);
        let latest = KeyOrder::Latest { exponent: 0.99 };
        let held = Held::replay(&[increments(latest, only())]).unwrap();
        assert_eq!(held.bounds(3), 0..=i64::MAX);
    }
}
