//! The position of a cursor in the index.

use crate::frame::Handle;
use crate::index::IndexBlock;

/// A first-level index block and an entry of it.
#[derive(Debug)]
pub(super) struct IndexPlace {
    /// Its number in the top index.
    pub(super) top_at: usize,
    /// The index block.
    pub(super) block: IndexBlock,
    /// Number of the data block.
    pub(super) at: usize,
}

impl IndexPlace {
    /// Whether a seek to the target leads to this data block: to the first cell not below it when `inclusive`, else to
    /// the last below it. Bounds are known within one index block only, so the result is false at its edges.
    pub(super) fn covers(&self, target: &[u8], inclusive: bool) -> bool {
        let low = self.block.separator(self.at);
        let high = self.block.separator(self.at + 1);
        let (Some(low), Some(high)) = (low, high) else {
            return false;
        };
        if inclusive {
            low <= target && target < high
        } else {
            low < target && target <= high
        }
    }

    /// The range to read for `missing`, the block at this place, and its neighbours in one direction. A neighbour is
    /// included if it adjoins in the file, fits into `window` bytes together with the others, and passes `in_file`.
    pub(super) fn run(
        &self,
        missing: Handle,
        forward: bool,
        window: usize,
        in_file: impl Fn(Handle) -> bool,
    ) -> (u64, usize) {
        let (mut start, mut len) = (missing.offset, missing.framed_len());
        let mut at = self.at;
        debug_assert!(at < self.block.len(), "a place is an entry of its index block");
        while let Some(next) = neighbour(at, self.block.len(), forward) {
            let Some(handle) = self.block.child(next).filter(|&handle| in_file(handle)) else {
                break;
            };
            let adjoins = if forward {
                handle.offset == start + len as u64
            } else {
                handle.end() == Some(start)
            };
            if !adjoins || len + handle.framed_len() > window {
                break;
            }
            start = start.min(handle.offset);
            len += handle.framed_len();
            at = next;
        }
        debug_assert!(
            start <= missing.offset && len >= missing.framed_len(),
            "a read covers the missing block"
        );
        (start, len)
    }
}

/// The index after or before `at`, of `count`.
pub(super) fn neighbour(at: usize, count: usize, forward: bool) -> Option<usize> {
    if forward {
        Some(at + 1).filter(|&next| next < count)
    } else {
        at.checked_sub(1)
    }
}
