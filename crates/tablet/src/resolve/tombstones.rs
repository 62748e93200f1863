//! The tombstones in force at one level of a row.
//!
//! Tombstones of a level come before everything they can hide. A few are searched one by one. For many, the results are
//! computed once, as a step function over timestamps. So a row of `m` tombstones and `n` cells costs `(m + n) log m` and
//! not `m n`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stele_types::key::KeyParts;
use stele_types::{DeleteRule, SeqNo, Timestamp};

/// Tombstones that are searched one by one: about the cost of a binary search with its cache misses.
const LINEAR_MAX: usize = 16;

/// Hides timestamps `from..=to`: those older in commit order, or all of them, by the rule of their family.
///
/// One without an end hides by sequence under every rule. Only a family that deletes by sequence and keeps nothing gets such
/// tombstones. By timestamp one of them, left from the time before the rule was changed, would hide all later writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    from: Timestamp,
    to: Timestamp,
    seq: SeqNo,
}

impl Tombstone {
    pub fn new(parts: &KeyParts, from: Timestamp) -> Self {
        Tombstone {
            from,
            to: parts.timestamp,
            seq: parts.seq,
        }
    }

    /// Whether it hides all timestamps from one on.
    pub fn is_endless(&self) -> bool {
        self.to == Timestamp::MAX && self.from < self.to
    }

    /// Whether it hides the timestamps in its range under all sequence numbers.
    fn hides_all(&self, rule: DeleteRule) -> bool {
        rule == DeleteRule::ByTimestamp && !self.is_endless()
    }

    fn hides(&self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        self.from <= timestamp && timestamp <= self.to && (self.hides_all(rule) || seq < self.seq)
    }

    fn covers(&self, other: &Tombstone, rule: DeleteRule) -> bool {
        let as_many = self.hides_all(rule) || !other.hides_all(rule) && other.seq <= self.seq;
        self.from <= other.from && other.to <= self.to && as_many
    }
}

/// A set of tombstones without those that another covers, so that deleting the same thing over and over costs one.
#[derive(Debug, Default)]
pub struct Tombstones {
    tombstones: Vec<Tombstone>,
    /// In ascending order. Empty until they are needed, and again when a tombstone comes.
    steps: Vec<Step>,
}

/// The tombstones that hide the timestamps from one up to the next step's.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: Timestamp,
    /// The newest of them, if there is one.
    newest: Option<SeqNo>,
    /// One of them has an end: it hides every entry by timestamp.
    has_end: bool,
}

impl Tombstones {
    #[inline]
    pub fn clear(&mut self) {
        if !self.tombstones.is_empty() {
            self.tombstones.clear();
            self.steps.clear();
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    pub fn add(&mut self, tombstone: Tombstone, rule: DeleteRule) {
        // The newest of equals comes first and the widest come first, so looking at the latest few finds most covers.
        if self.tombstones.iter().rev().take(8).any(|m| m.covers(&tombstone, rule)) {
            return;
        }
        self.steps.clear();
        if let Some(last) = self.tombstones.last_mut()
            && tombstone.covers(last, rule)
        {
            *last = tombstone;
            return;
        }
        self.tombstones.push(tombstone);
    }

    #[inline]
    pub fn hide(&mut self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        if self.tombstones.is_empty() {
            return false;
        }
        if self.tombstones.len() <= LINEAR_MAX {
            return self.tombstones.iter().any(|m| m.hides(timestamp, seq, rule));
        }
        self.hide_by_steps(timestamp, seq, rule)
    }

    fn hide_by_steps(&mut self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        if self.steps.is_empty() {
            self.work_out_steps();
        }
        let after = self.steps.partition_point(|step| step.from <= timestamp);
        let step = after.checked_sub(1).and_then(|at| self.steps.get(at));
        step.is_some_and(|step| {
            rule == DeleteRule::ByTimestamp && step.has_end || step.newest.is_some_and(|newest| seq < newest)
        })
    }

    fn work_out_steps(&mut self) {
        let ends = self
            .tombstones
            .iter()
            .filter_map(|m| m.to.0.checked_add(1).map(Timestamp));
        let mut points: Vec<Timestamp> = self.tombstones.iter().map(|m| m.from).chain(ends).collect();
        points.sort_unstable();
        points.dedup();
        self.tombstones.sort_unstable_by_key(|m| (m.from, Reverse(m.to)));
        let mut waiting = self.tombstones.iter().peekable();
        // Tombstones that have begun, the newest on top; those that have ended go when they come to the top.
        let mut begun: BinaryHeap<(SeqNo, Timestamp)> = BinaryHeap::new();
        // The last end of those that have begun and have one.
        let mut last_end = None;
        for point in points {
            while let Some(tombstone) = waiting.next_if(|m| m.from <= point) {
                begun.push((tombstone.seq, tombstone.to));
                if !tombstone.is_endless() {
                    last_end = last_end.max(Some(tombstone.to));
                }
            }
            while begun.peek().is_some_and(|(_, to)| *to < point) {
                begun.pop();
            }
            self.steps.push(Step {
                from: point,
                newest: begun.peek().map(|(seq, _)| *seq),
                has_end: last_end.is_some_and(|end| point <= end),
            });
        }
        debug_assert!(self.steps.is_sorted_by(|a, b| a.from < b.from), "steps ascend");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timestamp() -> impl Strategy<Value = Timestamp> {
        prop_oneof![8 => -20i64..20, 1 => Just(i64::MIN), 1 => Just(i64::MAX)].prop_map(Timestamp)
    }

    prop_compose! {
        fn tombstone()(from in timestamp(), to in timestamp(), seq in 0u64..50) -> Tombstone {
            Tombstone { from, to, seq: SeqNo(seq) }
        }
    }

    proptest! {
        #[test]
        fn many_markers_hide_what_each_of_them_hides(
            levels in prop::collection::vec(prop::collection::vec(tombstone(), 0..60), 1..3),
            asked in prop::collection::vec((timestamp(), 0u64..50), 1..40), by_timestamp: bool,
        ) {
            let rule = if by_timestamp { DeleteRule::ByTimestamp } else { DeleteRule::BySequence };
            let mut tombstones = Tombstones::default();
            for level in levels {
                tombstones.clear();
                for (n, tombstone) in level.iter().enumerate() {
                    tombstones.add(*tombstone, rule);
                    if n % 25 == 24 {
                        tombstones.hide(Timestamp(0), SeqNo(0), rule);
                    }
                }
                for (timestamp, seq) in &asked {
                    let expected = level.iter().any(|m| m.hides(*timestamp, SeqNo(*seq), rule));
                    prop_assert_eq!(tombstones.hide(*timestamp, SeqNo(*seq), rule), expected);
                }
            }
        }
    }
}
