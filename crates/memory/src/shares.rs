//! The table that divides the budget: every consumer of reserved memory with its share.
//!
//! A share is a fraction of the budget between two bounds. The lower bound keeps the consumer working with the smallest
//! budget; the upper bound is the size beyond which more memory gains nothing. Memtables, block cache and row cache are
//! not in the table: the governor divides the rest of the budget between them, and shrinks the caches while reservations
//! are large.

use std::time::Duration;
use stele_types::limits::VALUE_BYTES_MAX;

/// Bytes that the holder of the overdraft may take, its reservation included: a value of the largest size and its wrapping.
pub const OVERDRAFT_BYTES: usize = VALUE_BYTES_MAX + (4 << 20);

/// A consumer of reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Part {
    /// Requests from their first byte until their response is sent, decoded form included.
    Requests,
    /// Responses from before their rows are read until the transport has sent them.
    Responses,
    /// Copies of mutations for the log, from before they are copied until they are in memtables.
    Batches,
    /// Rows that conditional writes and read-modify-writes read.
    WriteRows,
    /// Large values that were read for a response.
    Values,
    /// Blocks that scans read ahead.
    Readahead,
    /// Copies of requests to other servers until they are answered.
    Peers,
    /// Rows for other servers until they are sent. Not of the same share: two servers would wait for each other.
    PeerRows,
    /// Bloom filters of open sstables.
    BloomFilters,
    /// Tokens of recent requests, with their answers.
    RequestTokens,
    /// Samples of the rows that are read and written, for the key visualizer.
    Heat,
    /// Changes of tables that wait for the archive of the log.
    Archive,
    /// Log and changes of tables that a restore to a moment reads from an archive.
    Restores,
}

/// Number of consumers.
pub const PARTS: usize = Part::Restores as usize + 1;

/// All consumers in the order of their numbers.
pub const ALL: [Part; PARTS] = [
    Part::Requests,
    Part::Responses,
    Part::Batches,
    Part::WriteRows,
    Part::Values,
    Part::Readahead,
    Part::Peers,
    Part::PeerRows,
    Part::BloomFilters,
    Part::RequestTokens,
    Part::Heat,
    Part::Archive,
    Part::Restores,
];

const MIB: u64 = 1 << 20;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The consumer.
    pub part: Part,
    /// Value of the `of` label of metrics.
    pub name: &'static str,
    /// The fraction of the budget is one `divisor`th.
    pub divisor: u64,
    /// Least bytes with any budget.
    pub min: u64,
    /// Most bytes with any budget.
    pub max: u64,
    /// How long a waiter for more than half of the limit keeps its turn. Afterwards others pass it and it polls: as long as
    /// clients do not take their responses, most of the limit may never be free at one moment. `None`: always in order.
    pub turn: Option<Duration>,
}

impl Share {
    /// Bytes of a budget.
    pub const fn of(&self, budget: u64) -> u64 {
        fraction(budget, self.divisor, self.min, self.max)
    }
}

/// One `divisor`th of the budget, `min` at least and `max` at most.
pub(crate) const fn fraction(budget: u64, divisor: u64, min: u64, max: u64) -> u64 {
    let bytes = budget / divisor;
    if bytes < min {
        min
    } else if bytes > max {
        max
    } else {
        bytes
    }
}

/// The table, by the number of the consumer.
pub const SHARES: [Share; PARTS] = [
    // A batch of a few megabytes of each of a few clients at least. Also the size of the largest request.
    share(Part::Requests, "requests", 4, 32 * MIB, u64::MAX, None),
    // Sixteen scans at least.
    share(
        Part::Responses,
        "responses",
        8,
        32 * MIB,
        u64::MAX,
        Some(Duration::from_secs(1)),
    ),
    // Twice a log stream's queue: a writer that waits for the queue has copied its batch already.
    share(Part::Batches, "batches", 16, 8 * MIB, 128 * MIB, None),
    // As much as values of responses, and for the same reason: a row may hold a value of the largest size.
    share(Part::WriteRows, "rows", 16, 16 * MIB, 1024 * MIB, None),
    // A larger value is read when nothing else is reserved.
    share(Part::Values, "values", 16, 16 * MIB, 1024 * MIB, None),
    // Eight times the readahead of a scan of eight runs.
    share(Part::Readahead, "ahead", 16, 16 * MIB, 256 * MIB, None),
    // A larger request waits until it has all of it.
    share(Part::Peers, "peers", 64, 4 * MIB, 128 * MIB, None),
    // Eight batches at least. A larger row takes the overdraft.
    share(Part::PeerRows, "peer_rows", 64, 8 * MIB, 128 * MIB, None),
    // Ten bits a row: enough for a hundred times as many 1 KiB rows on disk as there is memory.
    share(Part::BloomFilters, "filters", 4, 0, u64::MAX, None),
    // Three thousand requests at least; half a million with 8 GiB, at some 260 bytes each.
    share(Part::RequestTokens, "tokens", 64, MIB, 256 * MIB, None),
    // Two days of twenty ranges of rows at least, and of some hundred with 4 GiB.
    share(Part::Heat, "heat", 256, MIB, 32 * MIB, None),
    // Ten thousand changes of tables with a few families.
    share(Part::Archive, "archive", 256, 4 * MIB, 32 * MIB, None),
    // A piece of changes, or small reads of 64 streams of log in half of it.
    share(Part::Restores, "restores", 256, 4 * MIB, 64 * MIB, None),
];

const fn share(part: Part, name: &'static str, divisor: u64, min: u64, max: u64, turn: Option<Duration>) -> Share {
    Share {
        part,
        name,
        divisor,
        min,
        max,
        turn,
    }
}

/// The fixed minimum that all consumers may reserve together with any budget: the sum of the lower bounds.
pub const MIN_BYTES: u64 = worst_case(0);

/// Bytes that all consumers together may have reserved with this budget.
pub const fn worst_case(budget: u64) -> u64 {
    let mut sum = 0;
    let mut at = 0;
    while at < PARTS {
        sum += SHARES[at].of(budget);
        at += 1;
    }
    sum
}

// When all reserved parts are full at the same time, memtables and caches still have at least a tenth of any budget of
// a gigabyte or more. The lower bounds fit into the memory that a process may take above a small budget.
const _: () = {
    assert!(worst_case(1 << 30) <= (1 << 30) / 16 * 15);
    assert!(worst_case(64 << 30) <= (64 << 30) / 16 * 11);
    assert!(MIN_BYTES == 142 * MIB);
    let mut at = 0;
    while at < PARTS {
        assert!(
            SHARES[at].part as usize == at,
            "the table is in the order of the numbers"
        );
        assert!(SHARES[at].min <= SHARES[at].max);
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_budget_between_bounds() {
        let mib = |part: Part, budget: u64| SHARES[part as usize].of(budget * MIB) / MIB;
        assert_eq!(
            [64, 512, 4096].map(|budget| mib(Part::Requests, budget)),
            [32, 128, 1024]
        );
        assert_eq!([64, 512, 4096].map(|budget| mib(Part::Batches, budget)), [8, 32, 128]);
        assert_eq!(
            [64, 512, 1 << 20].map(|budget| mib(Part::Values, budget)),
            [16, 32, 1024]
        );
        assert_eq!(
            [64, 512, 1 << 20].map(|budget| mib(Part::BloomFilters, budget)),
            [16, 128, 1 << 18]
        );
    }

    #[test]
    fn every_consumer_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = SHARES.iter().map(|share| share.name).collect();
        assert_eq!(names.len(), PARTS);
        assert!(ALL.iter().enumerate().all(|(at, part)| *part as usize == at));
    }
}
