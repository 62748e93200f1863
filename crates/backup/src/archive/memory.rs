//! Memory of the pool for a restore that reads an archive.
//!
//! A server does one work on backups at a time, so a restore that waited for this memory would wait for itself. It reads less at a time where memory is scarce.
//! A file of changes, and the next group of each stream, it must have whole: they are counted also beyond the limit.

use stele_memory::{Consumer, Part, Pool, Reservation};

/// Bytes in memory for each byte of a file of changes: its bytes, and the decoded changes with their lists of tablets.
const CHANGES_FACTOR: usize = 3;
/// Bytes in memory for each byte of log: as it was read, and its records.
const LOG_FACTOR: usize = 2;
/// Bytes of log that are read at a time when memory is scarce.
const SCARCE_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

/// The memory of restores.
pub(crate) struct RestoreMemory {
    consumer: Consumer,
}

impl RestoreMemory {
    pub(crate) fn new(pool: &Pool) -> RestoreMemory {
        RestoreMemory {
            consumer: pool.of(Part::Restores),
        }
    }

    /// The memory of a file of changes.
    pub(crate) fn of_changes(&self, len: usize) -> Reservation {
        let memory = self.consumer.empty();
        set(&memory, len.saturating_mul(CHANGES_FACTOR));
        memory
    }

    /// Memory for the log of one stream, which has none yet.
    pub(crate) fn of_stream(&self) -> StreamMemory {
        StreamMemory(self.consumer.empty())
    }

    /// Bytes of log to read next, of `left` ones: half of the memory is for large reads, the rest for at least 64 streams.
    pub(crate) fn bytes_to_read(&self, left: u64) -> usize {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let limit = self.consumer.limit();
        let all = left.saturating_mul(LOG_FACTOR).saturating_add(self.consumer.used());
        match all <= limit / 2 {
            true => left,
            false => left.min((limit / 256).clamp(*SCARCE_BYTES.start(), *SCARCE_BYTES.end())),
        }
    }
}

/// The memory of one stream of log.
pub(crate) struct StreamMemory(Reservation);

impl StreamMemory {
    /// Counts this many bytes of log, and no others any more.
    pub(crate) fn set(&self, bytes: usize) {
        set(&self.0, bytes.saturating_mul(LOG_FACTOR));
    }
}

fn set(memory: &Reservation, bytes: usize) {
    memory.shrink_to(bytes);
    // An error says that the limit is exceeded.
    let _ = memory.grow(bytes - memory.counted());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn large_reads_take_half_of_the_memory_and_small_ones_the_rest() {
        let pool = Pool::with_limits(|_| LIMIT);
        let memory = RestoreMemory::new(&pool);
        assert_eq!(memory.bytes_to_read(LIMIT as u64 / 4), LIMIT / 4);
        let first = memory.of_stream();
        first.set(LIMIT / 4);
        assert_eq!(memory.bytes_to_read(LIMIT as u64 / 4), LIMIT / 256);
        assert_eq!(memory.bytes_to_read(10), 10);
        first.set(10);
        assert_eq!(pool.of(Part::Restores).used(), 20);
    }

    #[test]
    fn a_group_that_is_larger_than_the_memory_is_counted() {
        let pool = Pool::with_limits(|_| LIMIT);
        let memory = RestoreMemory::new(&pool);
        let (first, second) = (memory.of_stream(), memory.of_stream());
        first.set(LIMIT);
        second.set(1);
        assert_eq!(pool.of(Part::Restores).used(), 2 * LIMIT + 2);
        drop(first);
        assert_eq!(pool.of(Part::Restores).used(), 2);
    }
}
