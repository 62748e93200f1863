//! Memory of writes in flight: rows that conditional writes and read-modify-writes read, and batches.
//!
//! A row read for a write is read under its latch and sent to no client, so no account of responses has it. Nearly all such rows
//! are small; those are read on the calling thread and need no reservation. For a larger row memory is reserved first, from a
//! part of the budget. No write holds a reservation while it waits for a larger one. A row that takes more than the whole
//! pool waits for the overdraft, which one large request at a time has, and may then be as large as one value.
//!
//! No write waits for memory under a latch: the request with the overdraft may be a write that waits for the latch. There memory
//! is reserved only if it is free; otherwise the latch is released, and taken again after the wait.

use std::sync::Arc;
use std::time::Duration;
use stele_client::{OVERDRAFT_BYTES, Overdraft, OverdraftPermit, ServiceError, ServiceResult};
use stele_env::Env;
use stele_types::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Batches up to this need no room. There are at most as many bytes of them as of requests in flight, and they are gone
/// before anything waits for long.
const SMALL_BATCH_BYTES: usize = 64 << 10;

/// What room is counted in.
const UNIT_BYTES: usize = 64 << 10;

/// The first reservation of a row that is not small: its scanner takes as much.
const FIRST_BYTES: usize = 2 << 20;

/// All the room.
pub(crate) struct RowMemory {
    units: Arc<Semaphore>,
    units_max: u32,
    overdraft: Overdraft,
    wait_max: Duration,
    env: Env,
}

/// Room of one row.
pub(crate) struct RowReservation {
    _permit: OwnedSemaphorePermit,
    _overdraft: Option<OverdraftPermit>,
    /// Its size.
    pub(crate) bytes: usize,
}

impl RowMemory {
    /// Room for this many bytes, for which nobody waits longer than `wait_max`.
    pub(crate) fn new(bytes: usize, overdraft: Overdraft, wait_max: Duration, env: Env) -> Self {
        let units_max = u32::try_from(bytes.max(FIRST_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        RowMemory {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            overdraft,
            wait_max,
            env,
        }
    }

    /// Room for a row that is not small; where there is none, the bytes to wait for.
    pub(crate) fn try_first(&self) -> Result<RowReservation, usize> {
        self.try_take(FIRST_BYTES).ok_or(FIRST_BYTES)
    }

    /// Releases a reservation, which must be empty, and reserves more for a row that takes `bytes` and more; if there
    /// is not enough free memory, returns the bytes to wait for.
    pub(crate) fn try_more(&self, held: RowReservation, bytes: usize) -> ServiceResult<Result<RowReservation, usize>> {
        let before = held.bytes;
        drop(held);
        if before >= self.overdraft_bytes() {
            let message = format!("the row takes more than {before} bytes, which is all that is spared for one write");
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let bytes = bytes.saturating_add(FIRST_BYTES).max(before.saturating_mul(4));
        assert!(
            bytes > before,
            "a row that is read again gets more memory each time, so that it ends"
        );
        Ok(self.try_take(bytes).ok_or(bytes))
    }

    /// Room that is there. The allowance is not taken so: after it caches may have to be waited for.
    fn try_take(&self, bytes: usize) -> Option<RowReservation> {
        let units = self.units_of(bytes);
        if self.needs_overdraft(units) {
            return None;
        }
        let permit = Arc::clone(&self.units).try_acquire_many_owned(units).ok()?;
        Some(self.held(units, permit, None))
    }

    /// Waits for room, holding no latch.
    pub(crate) async fn take(&self, bytes: usize) -> ServiceResult<RowReservation> {
        let units = self.units_of(bytes);
        let taken = self.env.timeout(self.wait_max, async {
            let overdraft = match self.needs_overdraft(units) {
                true => Some(self.overdraft.take().await),
                false => None,
            };
            let permit = self.units.clone().acquire_many_owned(units).await;
            let permit = permit.expect("the semaphore is never closed");
            let settles = overdraft.as_ref().map_or(Duration::ZERO, OverdraftPermit::settles);
            if !settles.is_zero() {
                self.env.sleep(settles).await;
            }
            (overdraft, permit)
        });
        let Ok((overdraft, permit)) = taken.await else {
            let message = "rows that are read for writes take all the memory there is for them: retry later";
            return Err(ServiceError::new(ErrorKind::Busy, message));
        };
        Ok(self.held(units, permit, overdraft))
    }

    fn units_of(&self, bytes: usize) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        units.min(self.units_max)
    }

    /// Whether a reservation of this size needs the overdraft as well.
    fn needs_overdraft(&self, units: u32) -> bool {
        units == self.units_max && self.overdraft_bytes() > self.all_bytes()
    }

    fn held(&self, units: u32, permit: OwnedSemaphorePermit, overdraft: Option<OverdraftPermit>) -> RowReservation {
        assert_eq!(
            permit.num_permits(),
            units as usize,
            "a reservation has the units that it counts"
        );
        assert!(units <= self.units_max, "a reservation is at most the whole pool");
        let bytes = match units == self.units_max {
            true => self.overdraft_bytes(),
            false => units as usize * UNIT_BYTES,
        };
        RowReservation {
            _permit: permit,
            _overdraft: overdraft,
            bytes,
        }
    }

    /// Bytes that rows have taken of the room.
    pub(crate) fn taken(&self) -> usize {
        taken(&self.units, self.units_max)
    }

    /// All of it.
    pub(crate) fn all_bytes(&self) -> usize {
        self.units_max as usize * UNIT_BYTES
    }

    fn overdraft_bytes(&self) -> usize {
        self.all_bytes().max(OVERDRAFT_BYTES)
    }
}

/// Memory for batches: the copied parts of requests, from before they are copied until they are applied. A batch that
/// is larger than the pool waits until it has all of it; the sizes of requests are bounded elsewhere.
pub(crate) struct WriteMemory {
    units: Arc<Semaphore>,
    units_max: u32,
    wait_max: Duration,
    env: Env,
}

impl WriteMemory {
    /// Room for this many bytes, for which nobody waits longer than `wait_max`.
    pub(crate) fn new(bytes: usize, wait_max: Duration, env: Env) -> Self {
        let units_max = u32::try_from(bytes.max(UNIT_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        WriteMemory {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            wait_max,
            env,
        }
    }

    /// Whether a batch of this size needs a reservation.
    pub(crate) fn is_needed(bytes: usize) -> bool {
        bytes > SMALL_BATCH_BYTES
    }

    /// Waits for room for a batch.
    pub(crate) async fn take(&self, bytes: usize) -> ServiceResult<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.min(self.units_max);
        if let Ok(permit) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let waits = Arc::clone(&self.units).acquire_many_owned(units);
        let taken = self.env.timeout(self.wait_max, waits);
        match taken.await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => {
                let message = "writes on their way to the log take all the memory there is for them: retry later";
                Err(ServiceError::new(ErrorKind::Busy, message))
            }
        }
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        taken(&self.units, self.units_max)
    }
}

/// Bytes that are taken of a pool.
fn taken(units: &Semaphore, units_max: u32) -> usize {
    let free = units.available_permits();
    assert!(
        free <= units_max as usize,
        "a reservation is returned once: {free} of {units_max} units are free"
    );
    (units_max as usize - free) * UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_wait_for_room_and_large_ones_for_all_of_it() {
        let reservation = WriteMemory::new(8 * UNIT_BYTES, Duration::from_millis(10), TokioRuntime::current());
        assert!(!WriteMemory::is_needed(SMALL_BATCH_BYTES) && WriteMemory::is_needed(SMALL_BATCH_BYTES + 1));
        let first = reservation.take(5 * UNIT_BYTES).await.unwrap();
        let second = reservation.take(3 * UNIT_BYTES - 1).await.unwrap();
        assert_eq!(reservation.taken(), 8 * UNIT_BYTES);
        assert_eq!(reservation.take(2 * UNIT_BYTES).await.err().unwrap().kind, ErrorKind::Busy);
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
        let allowance = Overdraft::default();
        let wait = Duration::from_millis(10);
        let reservation = RowMemory::new(8 << 20, allowance.clone(), wait, TokioRuntime::current());
        let first = reservation.try_first().unwrap();
        let other = reservation.try_first().unwrap();
        assert_eq!(first.bytes, FIRST_BYTES);
        let bytes = reservation.try_more(first, 8 << 20).unwrap().err().unwrap();
        assert_eq!((bytes, reservation.taken()), (10 << 20, FIRST_BYTES));
        assert_eq!(reservation.take(bytes).await.err().unwrap().kind, ErrorKind::Busy);
        // What was held is there for others, who do not take the allowance where they may not wait.
        let bytes = reservation.try_more(other, 8 << 20).unwrap().err().unwrap();
        assert!(!allowance.is_taken() && reservation.taken() == 0);
        let overdraft = reservation.take(bytes).await.unwrap();
        assert_eq!(overdraft.bytes, OVERDRAFT_BYTES);
        assert!(allowance.is_taken());
        assert_eq!(reservation.try_first().err(), Some(FIRST_BYTES));
        let refused = reservation.try_more(overdraft, 1 << 30).err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        // Somebody else goes beyond what there is.
        let answer = allowance.take().await;
        let busy = reservation.take(bytes).await.err().unwrap();
        assert_eq!((busy.kind, reservation.taken()), (ErrorKind::Busy, 0));
        drop(answer);
        assert_eq!(reservation.take(bytes).await.unwrap().bytes, OVERDRAFT_BYTES);
        // Less than all of it is had at once, in place of what there was.
        let reservation = RowMemory::new(16 << 20, allowance.clone(), wait, TokioRuntime::current());
        let first = reservation.try_first().unwrap();
        let more = reservation.try_more(first, 1 << 20).unwrap().unwrap();
        assert_eq!((more.bytes, reservation.taken()), (8 << 20, 8 << 20));
        assert!(!allowance.is_taken());
    }
}
