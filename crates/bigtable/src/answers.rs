//! The memory of answers that wait to be taken.
//!
//! A read is pulled by its client, so one whose client takes nothing holds what it has read: a batch of rows for each stream,
//! with thousands of streams. So a batch is read only with *room* for it, of which there is as much as the budget allows, and
//! the room is given back when the transport asks for more. Small answers, as those of nearly all reads of single rows, need none:
//! what they take is bounded by the number of calls.
//!
//! The transport takes two pieces off a stream before it looks whether its client wants any, and room is given back when it
//! asks for the next batch, so that much is in nobody's account. Where room is scarce messages are therefore small.
//!
//! Whoever finds no room waits, in order of arrival, and is told to come again when that takes too long.

use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// What room is counted in.
const UNIT_BYTES: usize = 64 << 10;

/// Room for a batch before it is read: rows until about a megabyte, and as much again for the blocks they are read of.
const BATCH_BYTES: usize = 2 << 20;

/// Answers up to this need no room, and are followed by a look whether there is more before they are sent.
pub(crate) const SMALL_BYTES: usize = UNIT_BYTES;

/// How long room is waited for: longer than sending all of it takes over any network that serves that many clients.
const WAIT: Duration = Duration::from_secs(10);

/// All room there is. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Answers {
    units: Arc<Semaphore>,
    units_max: u32,
    wait: Duration,
    env: Env,
}

/// Room for one stream.
#[derive(Default)]
pub(crate) struct Room {
    held: Option<OwnedSemaphorePermit>,
}

impl Answers {
    /// Room for this many bytes.
    pub fn new(bytes_max: usize, env: Env) -> Self {
        let units_max = u32::try_from(bytes_max.max(BATCH_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Answers {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            wait: WAIT,
            env,
        }
    }

    /// Whether half of the room is taken.
    pub fn is_scarce(&self) -> bool {
        self.units.available_permits() < self.units_max as usize / 2
    }

    /// Waits until there is room for a batch that is yet to be read.
    pub async fn for_batch(&self) -> Result<Room, Status> {
        let mut room = Room::default();
        self.grow(&mut room, BATCH_BYTES).await?;
        Ok(room)
    }

    /// Makes room for what a batch turned out to be.
    pub async fn fit(&self, room: &mut Room, bytes: usize) -> Result<(), Status> {
        if bytes <= SMALL_BYTES {
            return Ok(());
        }
        self.grow(room, bytes).await
    }

    /// A row may be larger than all the room: it then has all of it.
    async fn grow(&self, room: &mut Room, bytes: usize) -> Result<(), Status> {
        let wanted = u32::try_from(bytes.div_ceil(UNIT_BYTES))
            .unwrap_or(u32::MAX)
            .min(self.units_max);
        let has = room.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if has >= wanted as usize {
            return Ok(());
        }
        // Given back first: two that hold some and want more would wait for each other.
        room.held = None;
        let acquire = Arc::clone(&self.units).acquire_many_owned(wanted);
        // An error is that of waiting too long: the semaphore is never closed.
        let Ok(Ok(held)) = self.env.timeout(self.wait, acquire).await else {
            return Err(Status::unavailable(
                "Too many answers wait to be taken; retry after backing off",
            ));
        };
        room.held = Some(held);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    #[tokio::test]
    async fn room_is_waited_for_and_given_back() {
        let mut answers = Answers::new(2 * BATCH_BYTES, TokioRuntime::current());
        answers.wait = Duration::from_millis(20);
        let first = answers.for_batch().await.unwrap();
        let mut second = answers.for_batch().await.unwrap();
        let refused = answers.for_batch().await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        // A batch that turned out to be larger, while nobody takes what is there.
        assert!(answers.fit(&mut second, BATCH_BYTES + 1).await.is_err());
        answers.fit(&mut second, BATCH_BYTES).await.unwrap();
        drop(first);
        answers.wait = Duration::from_secs(60);
        // One that is larger than all the room gets all of it.
        answers.fit(&mut second, 100 * BATCH_BYTES).await.unwrap();
        let (waited, ()) = tokio::join!(answers.for_batch(), async { drop(second) });
        waited.unwrap();
        answers.fit(&mut Room::default(), SMALL_BYTES).await.unwrap();
    }
}
