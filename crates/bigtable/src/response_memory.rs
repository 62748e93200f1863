//! The memory of responses, reserved before they are read and released when the transport has sent them.
//!
//! A client pulls its read, so a read whose client reads nothing holds what it has buffered: a batch of rows for each
//! of thousands of streams. A batch is therefore read only under a *reservation*, and reservations are limited by the
//! memory budget. One reservation covers the batch, the messages made of it, and the parts of them that the transport
//! holds while its client reads nothing. The pieces of the messages share the reservation. It ends when the last piece
//! is dropped, which means sent. Small responses, as nearly all reads of single rows have, need no reservation: the
//! number of calls bounds their memory.
//!
//! A read waits for its reservation in order of arrival, and fails with UNAVAILABLE after [`WAIT`]. No read holds a
//! reservation while it waits for more. A read that meets a row too large for its reservation releases it, together with
//! the rows it has read. It starts the batch again under a larger reservation.
//!
//! A row larger than a batch is read as partial rows, if client and filter allow it. Then at most one of its cells is
//! large. Otherwise a single row, or a single cell, may need more than all response memory. Its read waits until it has
//! all of it and the overdraft that the whole process shares ([`Overdraft`]). The overdraft allows one value of the largest
//! size. A row that needs still more is refused.
//!
//! A client that stops reading keeps its reservation as long as no one needs the memory. Others may wait for response
//! memory, for the overdraft, or for the memory of large values or memtables, which responses hold as well. Then responses
//! are cancelled whose clients have read nothing for some seconds ([`slow_clients`]). Their buffers are freed, except for
//! the parts that the transport holds.

mod slow_clients;

pub(crate) use slow_clients::{Overdue, Pace, Paced, Registered};

use crate::chunks::{MessageSizes, SHARED_BYTES_MIN};
use crate::messages::PREFIX_BYTES;
use crate::status::status;
use bytes::Bytes;
use parking_lot::Mutex;
use slow_clients::Holders;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use stele_client::{
    BatchReservation, InFlightKind, OVERDRAFT_BYTES, Overdraft, OverdraftPermit, ServiceError, ServiceResult,
};
use stele_env::Env;
use stele_env::metrics::IntCounter;
use stele_types::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The unit of reservations.
const UNIT_BYTES: usize = 64 << 10;

/// Reservation for a batch before it is read: rows up to about a megabyte, and as much again for one more row or for
/// the messages made of them.
const BATCH_BYTES: usize = 2 << 20;

/// Reservation for a read of one row that must wait for storage: the largest row that needs no renewal. Reads that find
/// everything in memory need none, because only a few of them run at a time. Reads that wait are as many as there are
/// callers.
const ROW_BYTES: usize = 1 << 20;

/// Responses up to this size need no reservation. They are sent after a check that the read has no more rows.
pub(crate) const SMALL_BYTES: usize = UNIT_BYTES;

/// Bytes of responses that were read without a reservation and wait for one: rows of up to a megabyte that turned out
/// not to be small.
const UNRESERVED_BYTES_MAX: usize = 8 << 20;

/// Bytes of a cancelled response that may remain with the transport: one piece that it has begun to send and one that
/// waits. They are part of the memory that every call may take.
const WITH_TRANSPORT_BYTES: usize = 2 * PIECE_BYTES_MAX;

/// Largest piece that the transport gets as it is. Of a larger piece it gets copies of parts, because a slice would
/// keep the whole value in memory, perhaps 100 MB, until the client reads on. The size is that of a message of rows
/// with its prefix. Parts of this size are sent from the processor's cache.
pub(crate) const PIECE_BYTES_MAX: usize = MessageSizes::DEFAULT.target + PREFIX_BYTES;

/// How long a read waits for a reservation. It is longer than it takes to send all response memory over a network that
/// serves that many clients, and twice as long as a response is kept whose client reads nothing.
const WAIT: Duration = Duration::from_secs(10);
/// How long a read that needs more than half of all response memory may block the queue. It cannot get that much until
/// slow clients have read on, and smaller reads behind it could continue meanwhile.
const QUEUE_TIME: Duration = Duration::from_secs(1);
/// How often a read that has left the queue tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How often a waiting read tries to cancel slow responses: small against the seconds for which they are kept.
const SLOW_CLIENT_INTERVAL: Duration = Duration::from_millis(100);

/// All response memory. Cloning shares it.
#[derive(Clone)]
pub(crate) struct ResponseMemory {
    units: Arc<Semaphore>,
    units_max: u32,
    unreserved: Arc<Semaphore>,
    overdraft: Overdraft,
    wait: Duration,
    queue_time: Duration,
    /// Responses that hold a reservation at the pace of their client.
    holders: Holders,
    /// A task checks whether readers wait for the memory of large values.
    watched: Arc<AtomicBool>,
    /// Bytes of large values that readers wait for.
    values_wanted: Arc<AtomicUsize>,
    env: Env,
}

/// The reservation of one batch.
pub(crate) struct Reservation {
    memory: ResponseMemory,
    reserved: Option<Reserved>,
    /// A large row may be read as partial rows.
    pub partial_rows: bool,
}

/// Reserved memory.
struct Reserved {
    units: OwnedSemaphorePermit,
    /// Set while more than all response memory is, or may be, in use.
    overdraft: Option<OverdraftPermit>,
    /// Counts the memory in flight.
    overdraft: Overdraft,
}

impl Reserved {
    fn new(units: OwnedSemaphorePermit, overdraft: Option<OverdraftPermit>, overdraft: &Overdraft) -> Self {
        overdraft.add(InFlightKind::Answers, units.num_permits() * UNIT_BYTES);
        Reserved {
            units,
            overdraft,
            overdraft: overdraft.clone(),
        }
    }

    fn bytes(&self) -> usize {
        self.units.num_permits() * UNIT_BYTES
    }

    /// Releases all but `units`. Returns how many it released.
    fn keep(&mut self, units: usize) -> usize {
        let back = self.units.num_permits().saturating_sub(units);
        drop(self.units.split(back));
        self.overdraft.sub(InFlightKind::Answers, back * UNIT_BYTES);
        back
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.overdraft.sub(InFlightKind::Answers, self.bytes());
    }
}

impl ResponseMemory {
    /// Response memory of this size. `cancelled` counts cancelled responses.
    pub fn new(bytes_max: usize, overdraft: Overdraft, env: Env, cancelled: IntCounter) -> Self {
        let units_max = u32::try_from(bytes_max.max(BATCH_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        ResponseMemory {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            watched: Arc::default(),
            values_wanted: overdraft.values_wanted(),
            unreserved: Arc::new(Semaphore::new(UNRESERVED_BYTES_MAX)),
            overdraft,
            wait: WAIT,
            queue_time: QUEUE_TIME,
            holders: Holders::new(cancelled),
            env,
        }
    }

    /// No reservation, which is enough for a small response.
    pub fn no_reservation(&self) -> Reservation {
        Reservation {
            memory: self.clone(),
            reserved: None,
            partial_rows: false,
        }
    }

    /// Waits for the reservation of a batch before it is read.
    pub async fn for_batch(&self) -> Result<Reservation, Status> {
        let mut reservation = self.no_reservation();
        reservation.reserved = Some(self.reserve(self.units_of(BATCH_BYTES), false).await?);
        Ok(reservation)
    }

    /// Waits for the reservation of a row that must be read from storage.
    pub async fn for_row(&self) -> Result<Reservation, Status> {
        let mut reservation = self.no_reservation();
        reservation.reserved = Some(self.reserve(self.units_of(ROW_BYTES), false).await?);
        Ok(reservation)
    }

    /// The units for this many bytes, but no more than there are.
    fn units_of(&self, bytes: usize) -> u32 {
        let wanted = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        wanted.min(self.units_max)
    }

    async fn reserve(&self, units: u32, has_overdraft: bool) -> Result<Reserved, Status> {
        let acquire = async {
            let overdraft = if has_overdraft {
                Some(self.overdraft.take().await)
            } else {
                None
            };
            let units = self.acquire(units).await?;
            let settles = overdraft.as_ref().map_or(Duration::ZERO, OverdraftPermit::settles);
            if !settles.is_zero() {
                self.env.sleep(settles).await;
            }
            Some(Reserved::new(units, overdraft, &self.overdraft))
        };
        let acquired = self.env.timeout(self.wait, acquire).await;
        acquired.ok().flatten().ok_or_else(too_many)
    }

    /// `None` when the semaphore is closed, which never happens.
    async fn acquire(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        {
            let mut in_turn = pin!(Arc::clone(&self.units).acquire_many_owned(units));
            let is_large = units > self.units_max / 2;
            if let Poll::Ready(acquired) = futures::poll!(in_turn.as_mut()) {
                return acquired.ok();
            }
            let start = self.env.now();
            loop {
                if let Ok(acquired) = self
                    .env
                    .timeout(SLOW_CLIENT_INTERVAL.min(self.queue_time), in_turn.as_mut())
                    .await
                {
                    return acquired.ok();
                }
                self.cancel_slow(units);
                if is_large && self.env.now().saturating_sub(start) >= self.queue_time {
                    break;
                }
            }
        }
        loop {
            if let Ok(acquired) = Arc::clone(&self.units).try_acquire_many_owned(units) {
                return Some(acquired);
            }
            self.cancel_slow(units);
            self.env.sleep(RETRY_INTERVAL).await;
        }
    }

    /// Cancels slow responses until this many units are free.
    fn cancel_slow(&self, units: u32) {
        self.holders.cancel(self.env.now(), units as usize * UNIT_BYTES);
    }

    /// Adds a response to those that may be cancelled, until the result is dropped.
    pub fn register(&self, holder: Weak<dyn Paced>) -> Registered {
        let registered = self.holders.register(holder);
        if !self.watched.swap(true, Ordering::Relaxed) {
            self.watch_values();
        }
        registered
    }

    /// Cancels slow responses while readers wait for the memory of large values, or of memtables that hold such values.
    /// Those waiters do not know about responses. The task runs as long as there are responses.
    fn watch_values(&self) {
        let memory = self.clone();
        self.env.spawn("large values of responses", async move {
            loop {
                memory.env.sleep(SLOW_CLIENT_INTERVAL).await;
                let wanted = memory.values_wanted.load(Ordering::Relaxed);
                if wanted > 0 {
                    memory.holders.cancel(memory.env.now(), wanted);
                }
                if memory.holders.is_empty() {
                    memory.watched.store(false, Ordering::Relaxed);
                    // A response registered between the two steps found the flag set.
                    if memory.holders.is_empty() || memory.watched.swap(true, Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
    }

    /// Cancels the response that has the overdraft, if its client is slow and another request waits for it. Those
    /// waiters do not know about responses. The task runs as long as the response has the overdraft.
    fn watch_overdraft(&self, shared: Weak<SharedReservation>) {
        let memory = self.clone();
        self.env.spawn("overdraft of a response", async move {
            while shared.upgrade().is_some_and(|shared| shared.has_overdraft()) {
                if memory.overdraft.is_wanted() {
                    memory.holders.cancel_overdraft(memory.env.now());
                }
                memory.env.sleep(SLOW_CLIENT_INTERVAL).await;
            }
        });
    }

    /// Bytes reserved for responses.
    pub fn reserved_bytes(&self) -> usize {
        (self.units_max as usize).saturating_sub(self.units.available_permits()) * UNIT_BYTES
    }

    fn all_bytes(&self) -> usize {
        self.units_max as usize * UNIT_BYTES
    }

    /// The limit of one response that has all response memory.
    fn overdraft_bytes(&self) -> usize {
        self.all_bytes().max(OVERDRAFT_BYTES)
    }
}

fn too_many() -> Status {
    Status::unavailable("Too many responses wait to be read by their clients; retry after backing off")
}

/// The result of handing a reservation over to messages.
pub(crate) struct HandOver {
    /// The unchanged reservation, when the messages are small and need none.
    pub reservation: Option<Reservation>,
    /// The part that the messages share.
    pub shared: Option<Weak<SharedReservation>>,
}

impl Reservation {
    /// Makes the reservation large enough for messages with this many bytes of copies. A filter has made many cells of
    /// one, so the messages are larger than their batch. The batch is already in memory and stays there during the
    /// wait, so only a few reads may wait like this.
    pub async fn fit(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes <= self.bytes().max(BATCH_BYTES) {
            return Ok(());
        }
        let unreserved = Arc::clone(&self.memory.unreserved);
        let _waits = unreserved
            .try_acquire_many(BATCH_BYTES as u32)
            .map_err(|_| too_many())?;
        self.renew(bytes).await.map_err(status)?;
        if bytes <= self.bytes() {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "The filter's result for one row needs {bytes} bytes of memory, the limit for one response on this server is {}: \
             use a filter with fewer copies of cells or raise the server's memory budget",
            self.bytes()
        )))
    }

    /// Hands the reservation over to the messages in `pieces`, whose batch has been dropped. The messages keep as much
    /// as they need, and the rest is released. Small messages need nothing, and the reservation is returned whole.
    pub async fn hand_over(self, pieces: &mut VecDeque<Bytes>) -> Result<HandOver, Status> {
        let bytes = pieces.iter().map(Bytes::len).sum();
        if bytes <= SMALL_BYTES {
            return Ok(HandOver {
                reservation: Some(self),
                shared: None,
            });
        }
        let wanted = self.memory.units_of(bytes);
        let reserved = match self.reserved {
            Some(mut reserved) => {
                reserved.keep(wanted as usize);
                reserved.overdraft.take_if(|_| bytes <= self.memory.all_bytes());
                reserved
            }
            None => self.memory.reserve_late(bytes, wanted).await?,
        };
        let shared = Arc::new(SharedReservation {
            reserved: Mutex::new(Some(reserved)),
            bytes: AtomicUsize::new(0),
            has_large: bytes > BATCH_BYTES,
        });
        for piece in pieces {
            *piece = shared.share(std::mem::take(piece));
        }
        let weak = Arc::downgrade(&shared);
        if shared.has_overdraft() {
            self.memory.watch_overdraft(weak.clone());
        }
        Ok(HandOver {
            reservation: None,
            shared: Some(weak),
        })
    }
}

impl ResponseMemory {
    /// Reserves memory for a response that has been read already.
    async fn reserve_late(&self, bytes: usize, units: u32) -> Result<Reserved, Status> {
        if let Ok(units) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Ok(Reserved::new(units, None, &self.overdraft));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let _waits = self.unreserved.try_acquire_many(bytes).map_err(|_| too_many())?;
        self.reserve(units, false).await
    }
}

#[tonic::async_trait]
impl BatchReservation for Reservation {
    fn bytes(&self) -> usize {
        let Some(reserved) = &self.reserved else { return 0 };
        if reserved.overdraft.is_some() {
            self.memory.overdraft_bytes()
        } else {
            reserved.bytes()
        }
    }

    fn takes_partial_rows(&self) -> bool {
        self.partial_rows
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        // Released first: two reads that hold some memory and want more would wait for each other.
        let before = self.bytes();
        self.reserved = None;
        if before >= self.memory.overdraft_bytes() {
            let message = format!(
                "A row needs more than {before} bytes of memory, the limit for one response on this server: read fewer of its \
                 cells at a time or raise the server's memory budget"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let units = self.memory.units_of(bytes);
        let has_overdraft = units == self.memory.units_max && self.memory.overdraft_bytes() > self.memory.all_bytes();
        let reserved = self.memory.reserve(units, has_overdraft).await;
        self.reserved = Some(reserved.map_err(|status| ServiceError::new(ErrorKind::Busy, status.message()))?);
        Ok(())
    }
}

/// The reservation of a batch whose messages are being sent. Their pieces own it together.
pub(crate) struct SharedReservation {
    /// `None` after cancellation.
    reserved: Mutex<Option<Reserved>>,
    /// Bytes of pieces that have not been dropped.
    bytes: AtomicUsize,
    /// A value of the batch may be large.
    has_large: bool,
}

impl SharedReservation {
    /// Makes a piece an owner.
    pub fn share(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(OwnedPiece {
            bytes,
            shared: Arc::clone(self),
        })
    }

    /// Takes the next part from the front of a piece, as a copy that keeps nothing else in memory.
    pub fn part(self: &Arc<Self>, piece: &mut Bytes) -> Bytes {
        let part = piece.split_to(piece.len().min(PIECE_BYTES_MAX));
        self.share(Bytes::copy_from_slice(&part))
    }

    /// Whether the transport gets a piece in [copied parts](SharedReservation::part), because the piece is large or may
    /// be a slice of a large value.
    pub fn is_sent_in_copies(&self, piece: &Bytes) -> bool {
        piece.len() > PIECE_BYTES_MAX || (self.has_large && piece.len() >= SHARED_BYTES_MIN)
    }

    pub fn has_overdraft(&self) -> bool {
        self.reserved
            .lock()
            .as_ref()
            .is_some_and(|reserved| reserved.overdraft.is_some())
    }

    /// Releases the reservation, except for pieces that the transport holds. All other pieces have been dropped.
    /// Returns the released bytes.
    pub fn cancel(&self) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mut reserved = self.reserved.lock();
        let Some(kept) = reserved.as_mut() else { return 0 };
        kept.overdraft = None;
        let units = if bytes <= WITH_TRANSPORT_BYTES {
            0
        } else {
            bytes.div_ceil(UNIT_BYTES)
        };
        let back = kept.keep(units);
        reserved.take_if(|reserved| reserved.units.num_permits() == 0);
        back * UNIT_BYTES
    }
}

/// A piece of a message, and its share of the reservation.
struct OwnedPiece {
    bytes: Bytes,
    shared: Arc<SharedReservation>,
}

impl AsRef<[u8]> for OwnedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for OwnedPiece {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::Either;
    use stele_env::tokio_env::TokioRuntime;

    fn memory(batches: usize) -> ResponseMemory {
        let cancelled = IntCounter::new("given_up", "given up").unwrap();
        let mut memory = ResponseMemory::new(
            batches * BATCH_BYTES,
            Overdraft::default(),
            TokioRuntime::current(),
            cancelled,
        );
        memory.wait = Duration::from_millis(20);
        memory
    }

    fn pieces(bytes: &[usize]) -> VecDeque<Bytes> {
        bytes.iter().map(|bytes| Bytes::from(vec![7; *bytes])).collect()
    }

    #[tokio::test]
    async fn pieces_hold_their_reservation_until_they_are_sent() {
        let memory = memory(2);
        let reservation = memory.for_batch().await.unwrap();
        let mut first = pieces(&[10, BATCH_BYTES - 10]);
        assert!(reservation.hand_over(&mut first).await.unwrap().reservation.is_none());
        let second = memory.for_batch().await.unwrap();
        assert_eq!(memory.for_batch().await.err().unwrap().code(), tonic::Code::Unavailable);
        let sent = first.pop_front().unwrap();
        drop(first);
        assert!(memory.for_batch().await.is_err(), "a piece is still there");
        drop(sent);
        drop(memory.for_batch().await.unwrap());
        // The unused part of a reservation is released immediately, and a small batch needs none.
        let mut half = pieces(&[BATCH_BYTES / 2]);
        second.hand_over(&mut half).await.unwrap();
        assert_eq!(memory.units.available_permits() * UNIT_BYTES, BATCH_BYTES * 3 / 2);
        let mut small = pieces(&[SMALL_BYTES]);
        let kept = memory.for_batch().await.unwrap().hand_over(&mut small).await.unwrap();
        assert!(kept.reservation.is_some());
        drop(kept);
        assert_eq!(memory.units.available_permits() * UNIT_BYTES, BATCH_BYTES * 3 / 2);
    }

    #[tokio::test]
    async fn a_large_row_waits_for_more_memory_and_holds_none() {
        let memory = memory(4);
        let mut reservation = memory.for_batch().await.unwrap();
        assert_eq!(reservation.bytes(), BATCH_BYTES);
        reservation.renew(3 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), 3 * BATCH_BYTES);
        let other = memory.for_batch().await.unwrap();
        assert_eq!(
            reservation.renew(100 * BATCH_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        assert_eq!(
            (reservation.bytes(), memory.units.available_permits() * UNIT_BYTES),
            (0, 3 * BATCH_BYTES)
        );
        drop(other);
        // A batch that is larger than all response memory gets all of it, and no more.
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), OVERDRAFT_BYTES);
        assert!(memory.overdraft.is_taken());
        let refused = reservation.renew(101 * BATCH_BYTES).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        assert_eq!(memory.units.available_permits() * UNIT_BYTES, 4 * BATCH_BYTES);
    }

    #[tokio::test]
    async fn one_request_has_the_overdraft_and_only_as_long_as_it_must() {
        let memory = memory(4);
        let write = memory.overdraft.take().await;
        let mut reservation = memory.for_batch().await.unwrap();
        assert_eq!(
            reservation.renew(100 * BATCH_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        drop(write);
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert!(memory.overdraft.is_taken());
        // Messages that fit release the overdraft before they are sent; others do not.
        let mut fits = pieces(&[4 * BATCH_BYTES]);
        reservation.hand_over(&mut fits).await.unwrap();
        assert!(!memory.overdraft.is_taken());
        assert_eq!(memory.reserved_bytes(), 4 * BATCH_BYTES);
        drop(fits);
        let mut reservation = memory.for_batch().await.unwrap();
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        let mut overdraft = pieces(&[5 * BATCH_BYTES]);
        reservation.hand_over(&mut overdraft).await.unwrap();
        assert!(memory.overdraft.is_taken());
        drop(overdraft);
        assert!(!memory.overdraft.is_taken());
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn a_large_reservation_does_not_block_others_for_long() {
        let mut memory = memory(4);
        (memory.wait, memory.queue_time) = (Duration::from_secs(10), Duration::from_millis(20));
        let mut paused = pieces(&[BATCH_BYTES]);
        memory.for_batch().await.unwrap().hand_over(&mut paused).await.unwrap();
        let mut row = memory.for_batch().await.unwrap();
        let mut all = Box::pin(row.renew(4 * BATCH_BYTES));
        assert!(futures::poll!(&mut all).is_pending());
        // It queues behind the large one, though there is enough memory.
        let both = futures::future::select(all, Box::pin(memory.for_batch())).await;
        let Either::Right((Ok(batch), all)) = both else {
            unreachable!("not for as long as the other waits");
        };
        drop((paused, batch));
        all.await.unwrap();
        assert!(memory.overdraft.is_taken());
    }

    #[tokio::test]
    async fn responses_read_without_a_reservation_wait_in_bounded_numbers() {
        let mut memory = memory(1);
        let reserved = memory.for_batch().await.unwrap();
        memory.wait = Duration::from_secs(60);
        let one_mib = || pieces(&[1 << 20]);
        let wait = || {
            let reservation = memory.no_reservation();
            Box::pin(async move { reservation.hand_over(&mut one_mib()).await.map(drop) })
        };
        let mut waiting: Vec<_> = (0..UNRESERVED_BYTES_MAX >> 20).map(|_| wait()).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        let refused = memory.no_reservation().hand_over(&mut one_mib()).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        memory
            .no_reservation()
            .hand_over(&mut pieces(&[SMALL_BYTES]))
            .await
            .unwrap();
        drop(reserved);
        for one in waiting {
            one.await.unwrap();
        }
    }
}
