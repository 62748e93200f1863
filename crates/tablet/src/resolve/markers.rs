//! The markers in force at one level of a row.

use stele_types::key::KeyParts;
use stele_types::{DeleteRule, SeqNo, Timestamp};

/// Hides timestamps `from..=to`: those older in commit order, or all of them, by the table's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    from: Timestamp,
    to: Timestamp,
    seq: SeqNo,
}

impl Marker {
    pub(super) fn new(parts: &KeyParts, from: Timestamp) -> Self {
        Marker {
            from,
            to: parts.timestamp,
            seq: parts.seq,
        }
    }

    fn hides(&self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        self.from <= timestamp && timestamp <= self.to && (rule == DeleteRule::ByTimestamp || seq < self.seq)
    }

    fn covers(&self, other: &Marker, rule: DeleteRule) -> bool {
        self.from <= other.from && other.to <= self.to && (rule == DeleteRule::ByTimestamp || other.seq <= self.seq)
    }
}

/// A set of markers without those that another covers, so that deleting the same thing over and over costs one.
#[derive(Debug, Default)]
pub(super) struct Markers {
    markers: Vec<Marker>,
}

impl Markers {
    pub(super) fn clear(&mut self) {
        self.markers.clear();
    }

    pub(super) fn add(&mut self, marker: Marker, rule: DeleteRule) {
        // The newest of equals comes first and the widest come first, so looking at the latest few finds most covers.
        if self.markers.iter().rev().take(8).any(|m| m.covers(&marker, rule)) {
            return;
        }
        if let Some(last) = self.markers.last_mut()
            && marker.covers(last, rule)
        {
            *last = marker;
            return;
        }
        self.markers.push(marker);
    }

    pub(super) fn hide(&self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        self.markers.iter().any(|m| m.hides(timestamp, seq, rule))
    }
}
