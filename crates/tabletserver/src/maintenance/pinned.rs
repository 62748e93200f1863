//! Memtables that readers pin, which no flush frees.
//!
//! Within a large row that is read in partial rows, a reader pins the state in which the row was begun, with memtables that have
//! long been flushed. It does so for ten seconds, or as long as the row takes at a megabyte a second (`stele_tablet`,
//! `scan::partial_rows`). Pinned memtables count as memory of memtables, so a few readers that pause, each in another state, would
//! have all writes slowed and refused. While memory is short, readers may pin a part of it. The pins beyond that are
//! released, those of the longest idle readers first; such a reader begins its row again, which it must expect.
//!
//! Responses with large values read from a memtable pin it until they are sent, and a client may take as long as it likes. They
//! are asked for the bytes beyond the same part, and for all of them while a large write waits.

use crate::admission::Admission;
use crate::options::MemtableLimits;
use crate::parts::Parts;
use crate::tablets::Served;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_env::metrics::IntCounter;
use stele_tablet::MemoryAccount;

/// The part of the memtables' share that readers may pin. It is more than a quarter, at which a tablet's memtable is
/// flushed for its size. It is less than the part at which writes are slowed, so that some memory remains for them.
const PINNED_PART: u64 = 3;

/// Has readers let go of memtables.
pub(super) struct PinnedMemtables {
    memory: MemoryAccount,
    memtables: MemtableLimits,
    admission: Arc<Admission>,
    /// Readers that had to let go.
    released: IntCounter,
}

impl PinnedMemtables {
    /// Of a server.
    pub(super) fn new(parts: &Parts) -> Self {
        PinnedMemtables {
            memory: parts.context.memory.clone(),
            memtables: parts.options.memtables.clone(),
            admission: parts.admission.clone(),
            released: parts.metrics.pins_released.clone(),
        }
    }

    /// While memory is short, has readers release memory beyond their part of the memtables' share. `served` are all
    /// tablets then.
    pub(super) fn ask_readers(&self, served: &[Arc<Served>], is_memory_short: bool) {
        let mut asked = 0;
        if is_memory_short {
            self.release_pinned(served);
            asked = self.excess_pinned(served);
        }
        self.admission.reclaim_pinned(asked);
    }

    /// Has readers within large rows let go.
    fn release_pinned(&self, served: &[Arc<Served>]) {
        let pinned: Vec<_> = served.iter().flat_map(|served| served.tablet.pinned()).collect();
        let seen: Vec<_> = pinned.iter().map(|pin| (pin.since, &pin.memtables[..])).collect();
        for at in to_release(&seen, self.memtables.bytes_max() / PINNED_PART) {
            pinned[at].release();
            self.released.inc();
        }
    }

    /// Bytes of memtables that no tablet has any more, as far as readers may not keep them.
    fn excess_pinned(&self, served: &[Arc<Served>]) -> u64 {
        // First: memory that grows during this belongs to no reader yet.
        let all = self.memory.bytes();
        let of_tablets: u64 = served.iter().map(|served| served.memtable_bytes()).sum();
        let may_keep = match self.admission.awaits_large() {
            true => 0,
            false => self.memtables.bytes_max() / PINNED_PART,
        };
        all.saturating_sub(of_tablets).saturating_sub(may_keep)
    }
}

/// The pins to be released, so that the others keep at most `bytes_max` together. The readers that came last keep
/// theirs, as far as these fit. Each pin has the time since when its reader is idle, and its memtables; a memtable
/// counts once.
fn to_release(pinned: &[(Duration, &[(usize, u64)])], bytes_max: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pinned.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(pinned[*at].0));
    let (mut kept, mut bytes) = (BTreeSet::new(), 0u64);
    order.retain(|at| {
        let memtables = pinned[*at].1;
        let new = || memtables.iter().filter(|(memtable, _)| !kept.contains(memtable));
        let more: u64 = new().map(|(_, bytes)| bytes).sum();
        if bytes + more > bytes_max {
            return true;
        }
        bytes += more;
        kept.extend(memtables.iter().map(|(memtable, _)| *memtable));
        false
    });
    assert!(
        bytes <= bytes_max,
        "readers that stay keep at most their part: {bytes} of {bytes_max}"
    );
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
            assert_eq!(to_release(&pinned, bytes_max), expected, "{bytes_max}");
        }
    }
}
