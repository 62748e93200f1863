//! Memory of the pool for a restore that reads an archive.
//!
//! Changes of tables are read before the log or after it, so a restore never waits for memory that it has itself. Two restores may wait for each other: after a minute
//! one of them fails with a sentence that says so.

use crate::error::{BackupError, Result};
use std::time::Duration;
use stele_env::Env;
use stele_memory::{Consumer, Part, Pool, Reservation};

/// Longest wait for memory: another restore holds its own for one request.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The time between two tries.
const TRIED_EVERY: Duration = Duration::from_millis(50);
/// Bytes in memory for each byte of a file of changes: its bytes, and the decoded changes with their lists of tablets.
const CHANGES_FACTOR: usize = 3;
/// Bytes in memory for each byte of log: as it was read, and its records.
const LOG_FACTOR: usize = 2;
/// Bytes of log that are read at a time when memory is scarce.
const SCARCE_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

/// The memory of restores.
#[derive(Clone)]
pub(crate) struct RestoreMemory {
    env: Env,
    consumer: Consumer,
}

impl RestoreMemory {
    pub(crate) fn new(env: Env, pool: &Pool) -> RestoreMemory {
        RestoreMemory {
            env,
            consumer: pool.of(Part::Restores),
        }
    }

    /// Waits for the memory of a file of changes. A file that needs all of it gets all of it.
    pub(crate) async fn of_changes(&self, len: usize) -> Result<Reservation> {
        let bytes = len.saturating_mul(CHANGES_FACTOR);
        let reserved = self.consumer.reserve(&self.env, bytes, WAIT_MAX).await;
        reserved.map_err(|_| too_little(bytes))
    }

    /// Memory for the log of one stream, which has none yet.
    pub(crate) fn of_stream(&self) -> Reservation {
        self.consumer.empty()
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

    /// Gives back the memory of a stream beyond this many bytes of log.
    pub(crate) fn shrink(&self, stream: &Reservation, bytes: usize) {
        stream.shrink_to(bytes.saturating_mul(LOG_FACTOR));
    }

    /// Waits until a stream may have this many bytes of log.
    pub(crate) async fn resize(&self, stream: &Reservation, bytes: usize) -> Result<()> {
        let bytes = bytes.saturating_mul(LOG_FACTOR);
        stream.shrink_to(bytes);
        let more = bytes - stream.counted();
        let grown = async {
            while stream.try_grow(more).is_err() {
                self.env.sleep(TRIED_EVERY).await;
            }
        };
        self.env.timeout(WAIT_MAX, grown).await.map_err(|_| too_little(bytes))
    }
}

fn too_little(bytes: usize) -> BackupError {
    BackupError::TooMuch(format!(
        "there is no memory for {bytes} bytes of the archive of the log: restore again when no other restore runs, or start the server with more memory"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    const LIMIT: usize = 1 << 20;

    fn memory() -> (RestoreMemory, Pool) {
        let pool = Pool::with_limits(|_| LIMIT);
        (RestoreMemory::new(TokioRuntime::current(), &pool), pool)
    }

    #[tokio::test]
    async fn large_reads_take_half_of_the_memory_and_small_ones_the_rest() {
        let (memory, pool) = memory();
        assert_eq!(memory.bytes_to_read(LIMIT as u64 / 4), LIMIT / 4);
        let first = memory.of_stream();
        memory.resize(&first, LIMIT / 4).await.unwrap();
        assert_eq!(memory.bytes_to_read(LIMIT as u64 / 4), LIMIT / 256);
        assert_eq!(memory.bytes_to_read(10), 10);
        memory.resize(&first, 10).await.unwrap();
        assert_eq!(pool.of(Part::Restores).used(), 20);
    }

    #[tokio::test]
    async fn a_stream_waits_until_another_one_gives_memory_back() {
        let (memory, pool) = memory();
        let (first, second) = (memory.of_stream(), memory.of_stream());
        memory.resize(&first, LIMIT / 2).await.unwrap();
        let waiting = memory.resize(&second, 1);
        let freeing = async {
            tokio::task::yield_now().await;
            assert_eq!(pool.of(Part::Restores).used(), LIMIT);
            drop(first);
        };
        tokio::join!(waiting, freeing).0.unwrap();
        assert_eq!(pool.of(Part::Restores).used(), 2);
    }
}
