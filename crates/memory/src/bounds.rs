//! The table of memory that has a bound and no reservations.
//!
//! A *bound* limits memory of one kind in the crate that uses it, with a limiter of its own. Such memory is not reserved
//! because its callers wait for something else: for the log, or for storage, which exists before the pool does. All its
//! bounds are in this table, so that their sum is known. `cargo xtask tidy` finds limiters that have no entry.

use crate::shares::{MIN_BYTES, fraction};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The fraction of the budget is one `divisor`th.
    divisor: u64,
    min: u64,
    max: u64,
}

impl Bound {
    const fn fixed(bytes: u64) -> Bound {
        Bound {
            divisor: 1,
            min: bytes,
            max: bytes,
        }
    }

    const fn share(divisor: u64, min: u64, max: u64) -> Bound {
        Bound { divisor, min, max }
    }

    /// Bytes with this budget.
    pub const fn of(&self, budget: u64) -> u64 {
        fraction(budget, self.divisor, self.min, self.max)
    }
}

/// Records that wait for the log, over all its streams. The governor deducts it from the memory that it divides.
pub const LOG_QUEUES: Bound = Bound::share(16, 8 * MIB, 128 * MIB);
/// Responses that were read without a reservation and wait for one: rows of up to a megabyte that turned out not to be
/// small.
pub const UNRESERVED_RESPONSES: Bound = Bound::fixed(8 * MIB);
/// Readahead of each flush or compaction.
pub const JOB_READAHEAD: Bound = Bound::share(32, MIB, 32 * MIB);
/// Bytes of one piece of an upload.
pub const UPLOAD_PIECE_BYTES: u64 = 8 * MIB;
/// Pieces of uploads under way, over all files. A dozen files are written concurrently where flushes and compactions
/// have large values, and four pieces of each would be 400 MiB.
pub const UPLOADS: Bound = Bound::fixed(8 * UPLOAD_PIECE_BYTES);
/// Bytes of one chunk of a remote file. An object store takes 20–50 ms to answer and gives 50–100 MB/s to one reader.
/// Half a MiB adds 5–10 ms to the first block and makes the next thirty free.
pub const CHUNK_BYTES: u64 = 512 * KIB;
/// Recent chunks, so that concurrent scans of a few dozen files do not fetch every chunk for every block.
pub const CHUNKS: Bound = Bound::fixed(32 * CHUNK_BYTES);
/// Chunks being fetched ahead of any reader.
pub const CHUNKS_AHEAD: Bound = Bound::fixed(8 * CHUNK_BYTES);
/// Chunks being written to the cache directory after their readers were served. While their files are assembled they take
/// as much again.
pub const CHUNKS_KEPT: Bound = Bound::fixed(8 * CHUNK_BYTES);

/// The bounds with the number of times that each may be taken: `jobs` is the number of concurrent flushes and compactions.
const fn all(jobs: u64) -> [(Bound, u64); 7] {
    [
        (LOG_QUEUES, 1),
        (UNRESERVED_RESPONSES, 1),
        (JOB_READAHEAD, jobs),
        (UPLOADS, 1),
        (CHUNKS, 1),
        (CHUNKS_AHEAD, 1),
        (CHUNKS_KEPT, 2),
    ]
}

/// Bytes that all bounds together allow with this budget.
const fn worst_case(budget: u64, jobs: u64) -> u64 {
    let all = all(jobs);
    let (mut sum, mut at) = (0, 0);
    while at < all.len() {
        sum += all[at].0.of(budget) * all[at].1;
        at += 1;
    }
    sum
}

// With the smallest budget, reservations and bounds together are no more than a process may take above it. The pieces
// of uploads are not counted there: a server on a local disk has none. With 1 GiB the bounds are a third at most.
const _: () = {
    assert!(MIN_BYTES + worst_case(64 * MIB, 3) - UPLOADS.of(0) <= 200 * MIB);
    assert!(worst_case(1024 * MIB, 3) <= 1024 * MIB / 3);
    assert!(worst_case(64 * 1024 * MIB, 10) <= 1024 * MIB);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_budget_between_their_limits() {
        let mib = |bound: Bound, budget: u64| bound.of(budget * MIB) / MIB;
        assert_eq!([64, 512, 4096].map(|budget| mib(LOG_QUEUES, budget)), [8, 32, 128]);
        assert_eq!([16, 64, 4096].map(|budget| mib(JOB_READAHEAD, budget)), [1, 2, 32]);
        assert_eq!([64, 1 << 20].map(|budget| mib(UPLOADS, budget)), [64, 64]);
    }

    #[test]
    fn the_sum_grows_with_budget_and_jobs() {
        assert!(worst_case(64 * MIB, 3) < worst_case(512 * MIB, 3));
        assert_eq!(
            worst_case(512 * MIB, 4) - worst_case(512 * MIB, 3),
            JOB_READAHEAD.of(512 * MIB)
        );
    }
}
