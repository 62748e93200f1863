//! Which segments are still needed.
//!
//! A segment is kept for its records, and for what its header says of the segment before it: where that one ends, and what of it is
//! promised. The second reason lasts while the one before is needed itself, or is not *settled*: while bytes that were refused
//! may lie behind its end, or power loss may still take that end, and everything behind it is to go with it. A settled
//! segment that nobody needs tells nothing that matters, so what is behind it does not depend on it. Hence one tablet that cannot
//! be flushed keeps the segments its records are in, one behind each of them, and no others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use stele_types::{SeqNo, TabletId};

/// A closed or open segment and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub len: u64,
    /// What reading it back costs, in bytes, where that is more.
    pub reading_cost: u64,
    /// The number of the segment whose length its header states; 0 when it is the first of its process's stream.
    pub follows: u64,
    /// The newest sequence number of each tablet in it.
    pub tablets: HashMap<TabletId, SeqNo>,
    /// Nothing lies behind what counts of it.
    pub whole: bool,
    /// It is whole, and survives power loss.
    pub settled: bool,
    /// Some of what was acknowledged is not known to survive power loss, and nobody will sync it any more: that was tried, or
    /// something else failed. Or it would go with that of an earlier one.
    pub forsaken: bool,
}

impl SegmentInfo {
    fn bytes(&self) -> u64 {
        self.len.max(self.reading_cost)
    }

    /// Notes a record.
    pub fn note(&mut self, tablet: TabletId, last: SeqNo) {
        let newest = self.tablets.entry(tablet).or_default();
        *newest = (*newest).max(last);
    }
}

/// The closed segments of a stream, and perhaps those that earlier processes have left.
#[derive(Debug, Default)]
pub struct Retention {
    /// By segment number.
    closed: BTreeMap<u64, SegmentInfo>,
}

impl Retention {
    /// Adds a segment that will not be written again.
    pub fn add(&mut self, number: u64, info: SegmentInfo) {
        self.closed.insert(number, info);
    }

    /// Notes that a segment survives power loss.
    pub fn synced(&mut self, number: u64) {
        if let Some(info) = self.closed.get_mut(&number) {
            info.settled = info.whole;
        }
    }

    /// Notes that a segment is not synced and will not be.
    pub fn forsake(&mut self, number: u64) {
        if let Some(info) = self.closed.get_mut(&number) {
            info.forsaken = true;
        }
    }

    /// The tablets of which forsaken segments have a record that is not flushed: what was acknowledged of it is in memory, and
    /// only a flush makes it safe.
    pub fn forsaken_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<TabletId> {
        let forsaken = self.closed.values().filter(|info| info.forsaken);
        let records = forsaken.flat_map(|info| &info.tablets);
        let held = records.filter(|(tablet, seq)| !is_flushed(**tablet, **seq));
        held.map(|(tablet, _)| *tablet).collect()
    }

    /// Takes out the segments of which every record `is_flushed`, but not one whose header says something that still
    /// counts. The oldest of what one process wrote to one stream does not wait for what others wrote.
    pub fn take_unneeded(&mut self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<(u64, SegmentInfo)> {
        let kept = self.kept_by(|tablet, seq| !is_flushed(tablet, seq));
        let numbers: Vec<u64> = self.closed.keys().filter(|n| !kept.contains(n)).copied().collect();
        numbers
            .iter()
            .filter_map(|n| self.closed.remove(n).map(|info| (*n, info)))
            .collect()
    }

    /// The segments that must stay because somebody `needs` a record in them, or for their headers.
    fn kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<u64> {
        let (mut kept, mut told_of) = (BTreeSet::new(), BTreeSet::new());
        for (number, info) in &self.closed {
            let is_needed = info.tablets.iter().any(|(t, s)| needs(*t, *s));
            let tells = told_of.contains(&info.follows);
            if is_needed || tells {
                kept.insert(*number);
            }
            if is_needed || (tells && !info.settled) {
                told_of.insert(*number);
            }
        }
        kept
    }

    /// Bytes that cannot be deleted as long as somebody `needs` a record.
    pub fn bytes_kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> u64 {
        let kept = self.kept_by(needs);
        let kept = kept.iter().filter_map(|number| self.closed.get(number));
        kept.map(SegmentInfo::bytes).sum()
    }

    /// Bytes in closed segments, or what reading them back costs.
    pub fn bytes(&self) -> u64 {
        self.closed.values().map(SegmentInfo::bytes).sum()
    }

    /// Number of closed segments.
    pub fn len(&self) -> usize {
        self.closed.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// The tablets of which a record is not flushed, in the oldest segments that have such records; of the segments of
    /// each process.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        let mut holders = Vec::new();
        // Held, or behind one that is.
        let mut behind = BTreeSet::new();
        for (number, info) in &self.closed {
            let before = holders.len();
            if behind.contains(&info.follows) {
                behind.insert(*number);
                continue;
            }
            let held = info.tablets.iter().filter(|(t, s)| !is_flushed(**t, **s));
            holders.extend(held.map(|(t, _)| *t));
            if holders.len() > before {
                behind.insert(*number);
            }
        }
        holders.sort_unstable();
        holders.dedup();
        holders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(follows: u64, tablet: u64) -> SegmentInfo {
        let mut info = SegmentInfo {
            len: 10,
            follows,
            ..SegmentInfo::default()
        };
        info.note(TabletId(tablet), SeqNo(1));
        info
    }

    /// Tablet 1 is not flushed, in the oldest segment that an earlier process wrote.
    #[test]
    fn a_process_that_is_no_more_keeps_its_own_segments_only() {
        let mut retention = Retention::default();
        for (number, follows, tablet) in [(1, 0, 1), (2, 1, 2), (11, 0, 2), (12, 11, 2), (13, 12, 3)] {
            retention.add(number, segment(follows, tablet));
        }
        let needs_1 = |tablet: TabletId, _| tablet == TabletId(1);
        assert_eq!(retention.bytes_kept_by(needs_1), 20, "the second follows the first");
        assert_eq!(retention.oldest_holders(|_, _| false), [1, 2].map(TabletId));
        let unneeded = retention.take_unneeded(|tablet, _| tablet == TabletId(2));
        assert_eq!(unneeded.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [11, 12]);
        assert_eq!(
            retention.oldest_holders(|tablet, _| tablet == TabletId(2)),
            [1, 3].map(TabletId)
        );
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(3));
        assert_eq!(unneeded.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2]);
    }

    /// Tablet 1 is in the first segment of eight.
    fn one_holds_the_first(settled: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut retention = Retention::default();
        for number in 1..=8 {
            let mut info = segment(number - 1, if number == 1 { 1 } else { 2 });
            info.whole = true;
            retention.add(number, info);
            if settled(number) {
                retention.synced(number);
            }
        }
        let needs_1 = |tablet: TabletId, _| tablet == TabletId(1);
        let kept = retention.bytes_kept_by(needs_1) / 10;
        assert_eq!(
            retention.oldest_holders(|tablet, _| tablet == TabletId(1)),
            [TabletId(2)]
        );
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(1));
        assert_eq!(unneeded.len() as u64 + kept, 8);
        unneeded.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_segment_that_is_needed_keeps_the_one_that_tells_of_it() {
        assert_eq!(one_holds_the_first(|_| true), [3, 4, 5, 6, 7, 8]);
        // Power loss may take the end of the first four, and what is behind has to go with it.
        assert_eq!(one_holds_the_first(|number| number > 4), [6, 7, 8]);
        assert_eq!(one_holds_the_first(|number| number == 1), []);
        assert_eq!(one_holds_the_first(|number| number < 3), [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_segment_behind_whose_end_something_was_refused_is_not_settled_by_a_sync() {
        let mut retention = Retention::default();
        for number in 1..=4 {
            let mut info = segment(number - 1, number);
            info.whole = number != 2;
            retention.add(number, info);
            retention.synced(number);
        }
        let unneeded = retention.take_unneeded(|tablet, _| tablet != TabletId(1));
        assert_eq!(unneeded.into_iter().map(|(number, _)| number).collect::<Vec<_>>(), [4]);
    }
}
