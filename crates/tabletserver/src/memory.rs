//! Memory of rows that are read for a write: those of conditional writes and of read-modify-writes.
//!
//! Such a row is read whole, under its latch, and nobody but its write sees it, so it is in no account of answers. A small
//! one, as nearly all are, is read on the calling thread and needs nothing; a larger one takes *room* first, of which there
//! is a part of the budget. As with answers nobody holds room while waiting for more, and a row that takes more than all of it
//! waits until it is alone and may then be as large as one value.

use std::sync::Arc;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_types::ErrorKind;
use stele_types::limits::VALUE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What room is counted in.
const UNIT_BYTES: usize = 64 << 10;

/// What a row gets that turns out not to be small: the scanner of one takes so much.
const FIRST_BYTES: usize = 2 << 20;

/// What a row may take that has all the room.
const ALONE_BYTES_MIN: usize = VALUE_BYTES_MAX + (4 << 20);

/// All the room.
pub(crate) struct RowRoom {
    units: Arc<Semaphore>,
    units_max: u32,
    wait_max: Duration,
    env: Env,
}

/// Room of one row.
pub(crate) struct HeldRoom {
    permit: OwnedSemaphorePermit,
    /// What may be in it.
    pub(crate) bytes: usize,
}

impl RowRoom {
    /// Room for this many bytes, for which nobody waits longer than `wait_max`.
    pub(crate) fn new(bytes: usize, wait_max: Duration, env: Env) -> Self {
        let units_max = u32::try_from(bytes.max(FIRST_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        RowRoom {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
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
        drop(held.permit);
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
        let taken = self
            .env
            .timeout(self.wait_max, self.units.clone().acquire_many_owned(units));
        // Never closed.
        let Ok(Ok(permit)) = taken.await else {
            let message = "rows that are read for writes take all the memory there is for them: retry later";
            return Err(ServiceError::new(ErrorKind::Busy, message));
        };
        let bytes = match units == self.units_max {
            true => self.alone_bytes(),
            false => units as usize * UNIT_BYTES,
        };
        Ok(HeldRoom { permit, bytes })
    }

    fn alone_bytes(&self) -> usize {
        (self.units_max as usize * UNIT_BYTES).max(ALONE_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn a_row_waits_for_more_without_what_it_had() {
        let room = RowRoom::new(8 << 20, Duration::from_millis(10), TokioRuntime::current());
        let first = room.first().await.unwrap();
        let other = room.first().await.unwrap();
        assert_eq!(first.bytes, FIRST_BYTES);
        let busy = room.more(first, 8 << 20).await.err().unwrap();
        assert_eq!(busy.kind, ErrorKind::Busy);
        // What was held is there for others.
        let alone = room.more(other, 8 << 20).await.unwrap();
        assert_eq!(alone.bytes, ALONE_BYTES_MIN);
        assert_eq!(room.first().await.err().unwrap().kind, ErrorKind::Busy);
        let refused = room.more(alone, 1 << 30).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        room.first().await.unwrap();
    }
}
