//! Which segments are still needed.

use std::collections::{BTreeMap, HashMap};
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
    /// The newest sequence number of each tablet in it.
    pub tablets: HashMap<TabletId, SeqNo>,
}

impl SegmentInfo {
    /// Notes a record.
    pub fn note(&mut self, tablet: TabletId, last: SeqNo) {
        let newest = self.tablets.entry(tablet).or_default();
        *newest = (*newest).max(last);
    }
}

/// The closed segments of a stream, oldest first.
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

    /// Takes out the oldest segments, up to the first with a record that is not `is_flushed`. Not one behind that: a
    /// segment's header says what counts of the segment before, and without it what was refused there would come back.
    pub fn take_unneeded(&mut self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<(u64, SegmentInfo)> {
        let unneeded = |info: &SegmentInfo| info.tablets.iter().all(|(t, s)| is_flushed(*t, *s));
        let numbers: Vec<u64> = self
            .closed
            .iter()
            .take_while(|(_, info)| unneeded(info))
            .map(|(n, _)| *n)
            .collect();
        numbers
            .iter()
            .filter_map(|n| self.closed.remove(n).map(|info| (*n, info)))
            .collect()
    }

    /// Bytes in closed segments, or what reading them back costs.
    pub fn bytes(&self) -> u64 {
        self.closed.values().map(|s| s.len.max(s.reading_cost)).sum()
    }

    /// Number of closed segments.
    pub fn len(&self) -> usize {
        self.closed.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// The tablets that keep the oldest segment from being deleted.
    pub fn oldest_holders(&self, is_flushed: impl Fn(TabletId, SeqNo) -> bool) -> Vec<TabletId> {
        let oldest = self.closed.values().next();
        let mut holders: Vec<TabletId> = oldest
            .into_iter()
            .flat_map(|info| info.tablets.iter())
            .filter(|(t, s)| !is_flushed(**t, **s))
            .map(|(t, _)| *t)
            .collect();
        holders.sort_unstable();
        holders
    }
}
