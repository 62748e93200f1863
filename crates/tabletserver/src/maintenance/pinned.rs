//! Memtables that readers keep, which no flush frees.
//!
//! Within a large row that it takes in pieces, a reader pins the state in which the row was begun: memtables among it that have long
//! been flushed, for ten seconds or as long as the row takes at a megabyte a second (`stele_tablet`, `scan::pieces`). They count as
//! memory of memtables, so some readers that pause, each in another state, would have all writes slowed and refused. While
//! memory is short they may keep a part of it. What is beyond is released, that of those first who have not come for longest; they
//! begin their rows again, which they must expect.

use crate::server::{Served, TabletServer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The part of the memtables' share that readers may pin: more than a tablet's memtable that is flushed for its size, which is a
/// quarter, and so much less than what slows writes that there is room for some.
const PINNED_PART: u64 = 3;

impl TabletServer {
    /// Has readers let go of what is more than their part of the memtables' share. To be called when memory is short.
    pub(super) fn release_pinned(&self, served: &[Arc<Served>]) {
        let pinned: Vec<_> = served.iter().flat_map(|served| served.tablet.pinned()).collect();
        let seen: Vec<_> = pinned.iter().map(|pin| (pin.since, &pin.memtables[..])).collect();
        for at in beyond(&seen, self.options.memtables.bytes_max() / PINNED_PART) {
            if let Some(pin) = pinned.get(at) {
                pin.release();
                self.metrics.pins_released.inc();
            }
        }
    }
}

/// Which of the pins are to be released, so that the others keep at most so many bytes together: those who have come last, as far
/// as what they keep fits. Of each the time since when it waits, and what it keeps; the same memtable counts once.
fn beyond(pinned: &[(Duration, &[(usize, u64)])], bytes_max: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pinned.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(pinned.get(*at).map(|(since, _)| *since)));
    let (mut kept, mut bytes) = (BTreeSet::new(), 0u64);
    order.retain(|at| {
        let memtables = pinned.get(*at).map_or(&[][..], |(_, memtables)| memtables);
        let new = || memtables.iter().filter(|(memtable, _)| !kept.contains(memtable));
        let more: u64 = new().map(|(_, bytes)| bytes).sum();
        if bytes + more > bytes_max {
            return true;
        }
        bytes += more;
        kept.extend(memtables.iter().map(|(memtable, _)| *memtable));
        false
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_longest_lets_go_first_and_what_is_shared_counts_once() {
        let at = Duration::from_secs;
        let pinned: [(Duration, &[(usize, u64)]); 4] = [
            (at(3), &[(1, 40), (2, 10)]),
            (at(1), &[(3, 30)]),
            (at(2), &[(1, 40)]),
            (at(4), &[(4, 20)]),
        ];
        for (bytes_max, expected) in [
            (100, vec![]),
            (99, vec![1]),
            (70, vec![1]),
            (69, vec![0, 1]),
            (0, vec![3, 0, 2, 1]),
        ] {
            assert_eq!(beyond(&pinned, bytes_max), expected, "{bytes_max}");
        }
    }
}
