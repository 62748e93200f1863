//! Memory of writes in flight: rows that conditional writes and read-modify-writes read, and batches.
//!
//! A row that is read for a write is read under its latch, and nobody but its write sees it, so it is in no account of answers. A small
//! row, as nearly all are, is read on the calling thread and needs no reservation. For a larger one the cells that the write
//! must know are reserved first. A caller that waits holds no reservation, and a row that takes more than the limit waits
//! for the overdraft, with which it may be as large as one value.
//!
//! Under a latch no caller waits for memory either: the holder of the overdraft may be a write that waits for the latch. There
//! memory is taken only if it is free; else the latch is returned, and taken again after the wait.

use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_memory::{Consumer, Exhausted, Part, Pool, Reservation};
use stele_types::ErrorKind;

/// Batches up to this need no reservation. There are at most as many bytes of them as of requests in flight, and they
/// are gone before anything waits for long.
const SMALL_BATCH_BYTES: usize = 64 << 10;

/// The first reservation of a row that turns out not to be small: the scanner of one row takes this much.
const FIRST_BYTES: usize = 2 << 20;

/// Memory of rows that writes read.
pub(crate) struct RowMemory {
    consumer: Consumer,
    wait_max: Duration,
    env: Env,
}

impl RowMemory {
    /// The part of a pool that is for such rows; nobody waits for it longer than `wait_max`.
    pub(crate) fn new(pool: &Pool, wait_max: Duration, env: Env) -> Self {
        RowMemory {
            consumer: pool.of(Part::WriteRows),
            wait_max,
            env,
        }
    }

    /// Memory for a row that is not small; where there is none, the bytes to wait for.
    pub(crate) fn try_first(&self) -> Result<Reservation, usize> {
        self.try_take(FIRST_BYTES).ok_or(FIRST_BYTES)
    }

    /// Returns a reservation, which nothing may be in any more, for a row that takes `bytes` and more; where there is no
    /// memory for that, the bytes to wait for.
    pub(crate) fn try_more(&self, held: Reservation, bytes: usize) -> ServiceResult<Result<Reservation, usize>> {
        let before = held.bytes();
        drop(held);
        if before >= self.consumer.bytes_max() {
            let message = format!("the row takes more than {before} bytes, which is all that one write may read");
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let bytes = bytes.saturating_add(FIRST_BYTES).max(before.saturating_mul(4));
        assert!(
            bytes > before,
            "a row that is read again gets more memory each time, so that it ends"
        );
        Ok(self.try_take(bytes).ok_or(bytes))
    }

    /// Memory that is free. The overdraft is not taken here: caches may have to shrink for it, which has to be waited for.
    fn try_take(&self, bytes: usize) -> Option<Reservation> {
        if self.consumer.needs_overdraft(bytes) {
            return None;
        }
        self.consumer.try_reserve(bytes)
    }

    /// Waits for memory, holding no latch.
    pub(crate) async fn take(&self, bytes: usize) -> ServiceResult<Reservation> {
        let taken = self.consumer.reserve_large(&self.env, bytes, self.wait_max).await;
        taken.map_err(|Exhausted| {
            let message = "rows that are read for writes take all the memory there is for them: retry later";
            ServiceError::new(ErrorKind::Busy, message)
        })
    }

    /// Bytes that rows have reserved.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.consumer.used()
    }

    /// Bytes that all rows together may reserve.
    pub(crate) fn all_bytes(&self) -> usize {
        self.consumer.limit()
    }
}

/// Memory of batches: copies of requests for the log, from before they are copied until they are applied. A batch that is
/// larger than the limit waits until it has all of it; requests are bounded for their part.
pub(crate) struct WriteMemory {
    consumer: Consumer,
    wait_max: Duration,
    env: Env,
}

impl WriteMemory {
    /// The part of a pool that is for batches; nobody waits for it longer than `wait_max`.
    pub(crate) fn new(pool: &Pool, wait_max: Duration, env: Env) -> Self {
        WriteMemory {
            consumer: pool.of(Part::Batches),
            wait_max,
            env,
        }
    }

    /// Whether a batch of this size needs a reservation.
    pub(crate) fn is_needed(bytes: usize) -> bool {
        bytes > SMALL_BATCH_BYTES
    }

    /// Waits for memory for a batch.
    pub(crate) async fn take(&self, bytes: usize) -> ServiceResult<Reservation> {
        let taken = self.consumer.reserve(&self.env, bytes, self.wait_max).await;
        taken.map_err(|Exhausted| {
            let message = "writes on their way to the log take all the memory there is for them: retry later";
            ServiceError::new(ErrorKind::Busy, message)
        })
    }

    /// Bytes that are reserved.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.consumer.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_memory::OVERDRAFT_BYTES;

    const UNIT_BYTES: usize = 64 << 10;

    #[tokio::test]
    async fn batches_wait_for_room_and_large_ones_for_all_of_it() {
        let reservation = WriteMemory::new(
            &Pool::with_limits(|_| 8 * UNIT_BYTES),
            Duration::from_millis(10),
            TokioRuntime::current(),
        );
        assert!(!WriteMemory::is_needed(SMALL_BATCH_BYTES) && WriteMemory::is_needed(SMALL_BATCH_BYTES + 1));
        let first = reservation.take(5 * UNIT_BYTES).await.unwrap();
        let second = reservation.take(3 * UNIT_BYTES).await.unwrap();
        assert_eq!(reservation.taken(), 8 * UNIT_BYTES);
        assert_eq!(
            reservation.take(2 * UNIT_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        drop(first);
        let larger = reservation.take(100 * UNIT_BYTES).await.err().unwrap();
        assert_eq!(larger.kind, ErrorKind::Busy);
        drop(second);
        let larger = reservation.take(100 * UNIT_BYTES).await.unwrap();
        assert_eq!(reservation.taken(), 8 * UNIT_BYTES);
        drop(larger);
        assert_eq!(reservation.taken(), 0);
    }

    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn a_row_waits_for_more_without_what_it_had() {
        let pool = Pool::with_limits(|_| 8 << 20);
        let wait = Duration::from_millis(10);
        let reservation = RowMemory::new(&pool, wait, TokioRuntime::current());
        let first = reservation.try_first().unwrap();
        let other = reservation.try_first().unwrap();
        assert_eq!(first.bytes(), FIRST_BYTES);
        let bytes = reservation.try_more(first, 8 << 20).unwrap().err().unwrap();
        assert_eq!((bytes, reservation.taken()), (10 << 20, FIRST_BYTES));
        assert_eq!(reservation.take(bytes).await.err().unwrap().kind, ErrorKind::Busy);
        // The released memory is there for others, who do not take the overdraft where they may not wait.
        let bytes = reservation.try_more(other, 8 << 20).unwrap().err().unwrap();
        assert!(!pool.is_overdrawn() && reservation.taken() == 0);
        let overdraft = reservation.take(bytes).await.unwrap();
        assert_eq!(overdraft.bytes(), OVERDRAFT_BYTES);
        assert!(pool.is_overdrawn());
        assert_eq!(reservation.try_first().err(), Some(FIRST_BYTES));
        let refused = reservation.try_more(overdraft, 1 << 30).err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        // Another caller takes the overdraft.
        let answer = pool.overdraft_permit(&TokioRuntime::current()).await;
        let busy = reservation.take(bytes).await.err().unwrap();
        assert_eq!((busy.kind, reservation.taken()), (ErrorKind::Busy, 0));
        drop(answer);
        assert_eq!(reservation.take(bytes).await.unwrap().bytes(), OVERDRAFT_BYTES);
        // A smaller reservation is granted without waiting, in place of the former one.
        let reservation = RowMemory::new(&Pool::with_limits(|_| 16 << 20), wait, TokioRuntime::current());
        let first = reservation.try_first().unwrap();
        let more = reservation.try_more(first, 1 << 20).unwrap().unwrap();
        assert_eq!((more.bytes(), reservation.taken()), (8 << 20, 8 << 20));
        assert!(!pool.is_overdrawn());
    }
}
