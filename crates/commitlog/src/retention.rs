//! Which segments are still needed.

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

    /// Takes out the segments of which every record `is_flushed`, but not one that follows a segment that stays: a segment's
    /// header says what counts of the segment before, and without it what was refused there would come back. So what
    /// one process wrote to one stream goes from its oldest end, and does not wait for what others wrote.
    pub fn take_unneeded(&mut self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<(u64, SegmentInfo)> {
        let kept = self.kept_by(|tablet, seq| !is_flushed(tablet, seq));
        let numbers: Vec<u64> = self.closed.keys().filter(|n| !kept.contains(n)).copied().collect();
        numbers
            .iter()
            .filter_map(|n| self.closed.remove(n).map(|info| (*n, info)))
            .collect()
    }

    /// The segments that must stay because somebody `needs` a record in them, or in one that they follow.
    fn kept_by(&self, needs: impl Fn(TabletId, SeqNo) -> bool) -> BTreeSet<u64> {
        let mut kept = BTreeSet::new();
        for (number, info) in &self.closed {
            if kept.contains(&info.follows) || info.tablets.iter().any(|(t, s)| needs(*t, *s)) {
                kept.insert(*number);
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

    /// The tablets that keep the oldest segment of any process's from being deleted.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        let oldest = self
            .closed
            .values()
            .filter(|info| !self.closed.contains_key(&info.follows));
        let mut holders: Vec<TabletId> = oldest
            .flat_map(|info| info.tablets.iter())
            .filter(|(t, s)| !is_flushed(**t, **s))
            .map(|(t, _)| *t)
            .collect();
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
}
