//! Memory of writes on their way: of the rows that conditional writes and read-modify-writes read, and of batches.
//!
//! A row that is read for a write is read under its latch, and nobody but its write sees it, so it is in no account of answers. A small
//! one, as nearly all are, is read on the calling thread and needs nothing; of a larger one what the write must know takes
//! *room* first, of which there is a part of the budget. As with answers nobody holds room while waiting for more, and a row that takes more than all of it
//! waits until it is alone and may then be as large as one value, in the one allowance that all share.

use std::sync::Arc;
use std::time::Duration;
use stele_client::{ALONE_BYTES, Alone, GoesBeyond, ServiceError, ServiceResult};
use stele_env::Env;
use stele_types::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Batches up to this need no room. There are at most as many bytes of them as of requests in flight, and they are gone
/// before anything waits for long.
const SMALL_BATCH_BYTES: usize = 64 << 10;

/// What room is counted in.
const UNIT_BYTES: usize = 64 << 10;

/// What a row gets that turns out not to be small: the scanner of one takes so much.
const FIRST_BYTES: usize = 2 << 20;

/// All the room.
pub(crate) struct RowRoom {
    units: Arc<Semaphore>,
    units_max: u32,
    alone: Alone,
    wait_max: Duration,
    env: Env,
}

/// Room of one row.
pub(crate) struct HeldRoom {
    _permit: OwnedSemaphorePermit,
    _beyond: Option<GoesBeyond>,
    /// What may be in it.
    pub(crate) bytes: usize,
}

impl RowRoom {
    /// Room for this many bytes, for which nobody waits longer than `wait_max`.
    pub(crate) fn new(bytes: usize, alone: Alone, wait_max: Duration, env: Env) -> Self {
        let units_max = u32::try_from(bytes.max(FIRST_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        RowRoom {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            alone,
            wait_max,
            env,
        }
    }

    /// Waits for room for a row that is not small.
    pub(crate) async fn first(&self) -> ServiceResult<HeldRoom> {
        self.take(FIRST_BYTES).await
    }

    /// Gives back what there is, which nothing may be in any more, and waits for room for a row that takes `bytes` and more.
    pub(crate) async fn more(&self, held: HeldRoom, bytes: usize) -> ServiceResult<HeldRoom> {
        let before = held.bytes;
        drop(held);
        if before >= self.alone_bytes() {
            let message = format!("the row takes more than {before} bytes, which is all that is spared for one write");
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        self.take((bytes.saturating_add(FIRST_BYTES)).max(before.saturating_mul(4)))
            .await
    }

    async fn take(&self, bytes: usize) -> ServiceResult<HeldRoom> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.min(self.units_max);
        let is_all = units == self.units_max;
        let taken = self.env.timeout(self.wait_max, async {
            let goes_beyond = is_all && self.alone_bytes() > self.all_bytes();
            let beyond = match goes_beyond {
                true => Some(self.alone.take().await),
                false => None,
            };
            let units = self.units.clone().acquire_many_owned(units).await;
            let settles = beyond.as_ref().map_or(Duration::ZERO, GoesBeyond::settles);
            if !settles.is_zero() {
                self.env.sleep(settles).await;
            }
            (beyond, units)
        });
        // Never closed.
        let Ok((_beyond, Ok(_permit))) = taken.await else {
            let message = "rows that are read for writes take all the memory there is for them: retry later";
            return Err(ServiceError::new(ErrorKind::Busy, message));
        };
        let bytes = match is_all {
            true => self.alone_bytes(),
            false => units as usize * UNIT_BYTES,
        };
        Ok(HeldRoom {
            _permit,
            _beyond,
            bytes,
        })
    }

    /// Bytes that rows have taken of the room.
    pub(crate) fn taken(&self) -> usize {
        (self.units_max as usize).saturating_sub(self.units.available_permits()) * UNIT_BYTES
    }

    /// All of it.
    pub(crate) fn all_bytes(&self) -> usize {
        self.units_max as usize * UNIT_BYTES
    }

    fn alone_bytes(&self) -> usize {
        self.all_bytes().max(ALONE_BYTES)
    }
}

/// Room for batches: what is copied of requests for the log, from before it is copied until it is applied. One that is larger
/// than all of it waits until it has all; requests are bounded for their part.
pub(crate) struct WriteRoom {
    units: Arc<Semaphore>,
    units_max: u32,
    wait_max: Duration,
    env: Env,
}

impl WriteRoom {
    /// Room for this many bytes, for which nobody waits longer than `wait_max`.
    pub(crate) fn new(bytes: usize, wait_max: Duration, env: Env) -> Self {
        let units_max = u32::try_from(bytes.max(UNIT_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        WriteRoom {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            wait_max,
            env,
        }
    }

    /// Whether a batch of so many bytes takes any.
    pub(crate) fn is_needed(bytes: usize) -> bool {
        bytes > SMALL_BATCH_BYTES
    }

    /// Waits for room for a batch.
    pub(crate) async fn take(&self, bytes: usize) -> ServiceResult<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.min(self.units_max);
        if let Ok(permit) = self.units.try_acquire_many(units) {
            return Ok(permit);
        }
        let taken = self.env.timeout(self.wait_max, self.units.acquire_many(units));
        match taken.await {
            Ok(Ok(permit)) => Ok(permit),
            // Never closed.
            Ok(Err(_)) | Err(_) => {
                let message = "writes on their way to the log take all the memory there is for them: retry later";
                Err(ServiceError::new(ErrorKind::Busy, message))
            }
        }
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        (self.units_max as usize).saturating_sub(self.units.available_permits()) * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_wait_for_room_and_large_ones_for_all_of_it() {
        let room = WriteRoom::new(8 * UNIT_BYTES, Duration::from_millis(10), TokioRuntime::current());
        assert!(!WriteRoom::is_needed(SMALL_BATCH_BYTES) && WriteRoom::is_needed(SMALL_BATCH_BYTES + 1));
        let first = room.take(5 * UNIT_BYTES).await.unwrap();
        let second = room.take(3 * UNIT_BYTES - 1).await.unwrap();
        assert_eq!(room.taken(), 8 * UNIT_BYTES);
        assert_eq!(room.take(2 * UNIT_BYTES).await.err().unwrap().kind, ErrorKind::Busy);
        drop(first);
        let larger = room.take(100 * UNIT_BYTES).await.err().unwrap();
        assert_eq!(larger.kind, ErrorKind::Busy);
        drop(second);
        let larger = room.take(100 * UNIT_BYTES).await.unwrap();
        assert_eq!(room.taken(), 8 * UNIT_BYTES);
        drop(larger);
        assert_eq!(room.taken(), 0);
    }

    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn a_row_waits_for_more_without_what_it_had() {
        let allowance = Alone::default();
        let wait = Duration::from_millis(10);
        let room = RowRoom::new(8 << 20, allowance.clone(), wait, TokioRuntime::current());
        let first = room.first().await.unwrap();
        let other = room.first().await.unwrap();
        assert_eq!(first.bytes, FIRST_BYTES);
        let busy = room.more(first, 8 << 20).await.err().unwrap();
        assert_eq!(busy.kind, ErrorKind::Busy);
        // What was held is there for others.
        let alone = room.more(other, 8 << 20).await.unwrap();
        assert_eq!(alone.bytes, ALONE_BYTES);
        assert!(allowance.is_taken());
        assert_eq!(room.first().await.err().unwrap().kind, ErrorKind::Busy);
        let refused = room.more(alone, 1 << 30).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        let small = room.first().await.unwrap();
        // Somebody else goes beyond what there is: this one waits without what it had.
        let answer = allowance.take().await;
        let busy = room.more(small, 8 << 20).await.err().unwrap();
        assert_eq!((busy.kind, room.taken()), (ErrorKind::Busy, 0));
        drop(answer);
        let small = room.first().await.unwrap();
        assert_eq!(room.more(small, 8 << 20).await.unwrap().bytes, ALONE_BYTES);
    }
}
