//! Memory of responses is reserved before they are read. It is released when the transport has sent them.
//!
//! A client pulls its read. The buffered part of a response stays in memory while its client reads nothing: a batch of
//! rows for each of thousands of streams. A batch is therefore read only under a *reservation*, and reservations are
//! limited by the
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
//! all of it and the overdraft that the whole process shares ([`OverdraftPermit`](stele_memory::OverdraftPermit)). The overdraft allows one value of the largest
//! size. A row that needs still more is refused.
//!
//! A client that stops reading keeps its reservation as long as no one needs the memory. Others may wait for response
//! memory, for the overdraft, or for the memory of large values or memtables, which responses hold as well. Then responses
//! are cancelled whose clients have read nothing for some seconds ([`slow_clients`]). Their buffers are freed, except for
//! the parts that the transport holds.

mod slow_clients;

pub(crate) use slow_clients::{Overdue, PATIENCE, Pace, Paced, Registered};

use crate::chunks::{MessageSizes, SHARED_BYTES_MIN};
use crate::messages::PREFIX_BYTES;
use crate::status::status;
use bytes::Bytes;
use parking_lot::Mutex;
use slow_clients::Holders;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_client::{BatchReservation, ServiceError, ServiceResult};
use stele_env::metrics::IntCounter;
use stele_env::{Env, trace};
use stele_memory::bounds::UNRESERVED_RESPONSES;
use stele_memory::{Consumer, Exhausted, Part, Pool, Reclaim};
use stele_types::ErrorKind;
use tokio::sync::Semaphore;
use tonic::Status;

/// Reservation for a batch before it is read: rows up to about a megabyte, and as much again for one more row or for
/// the messages made of them.
const BATCH_BYTES: usize = 2 << 20;

/// Reservation for a read of one row that must wait for storage: the largest row that needs no renewal. Reads that find
/// everything in memory need none, because only a few of them run at a time. Reads that wait are as many as there are
/// callers.
const ROW_BYTES: usize = 1 << 20;

/// Responses up to this size need no reservation. They are sent after a check that the read has no more rows.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// Bytes of responses that were read without a reservation and wait for one.
const UNRESERVED_BYTES_MAX: usize = UNRESERVED_RESPONSES.of(0) as usize;

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

/// All response memory. Cloning shares it.
#[derive(Clone)]
pub(crate) struct ResponseMemory {
    consumer: Consumer,
    unreserved: Arc<Semaphore>,
    wait: Duration,
    slow: Arc<SlowResponses>,
    env: Env,
}

/// Cancels responses of slow clients while other callers wait for memory of any kind.
struct SlowResponses {
    /// Responses that hold a reservation at the pace of their client.
    holders: Holders,
    env: Env,
}

impl Reclaim for SlowResponses {
    fn reclaim(&self, bytes: usize) {
        self.holders.cancel(self.env.now(), bytes);
    }

    fn reclaim_overdraft(&self) {
        self.holders.cancel_overdraft(self.env.now());
    }
}

/// The reservation of one batch.
pub(crate) struct Reservation {
    memory: ResponseMemory,
    reserved: Option<stele_memory::Reservation>,
    /// A large row may be read as partial rows.
    pub partial_rows: bool,
}

impl ResponseMemory {
    /// The part of a pool that is for responses. `cancelled` counts cancelled responses.
    pub fn new(pool: &Pool, env: Env, cancelled: IntCounter) -> Self {
        let slow = Arc::new(SlowResponses {
            holders: Holders::new(cancelled),
            env: env.clone(),
        });
        let reclaimer: Weak<SlowResponses> = Arc::downgrade(&slow);
        pool.add_reclaimer(reclaimer);
        ResponseMemory {
            consumer: pool.of(Part::Responses),
            unreserved: Arc::new(Semaphore::new(UNRESERVED_BYTES_MAX)),
            wait: WAIT,
            slow,
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
        reservation.reserved = Some(self.reserve(BATCH_BYTES).await?);
        Ok(reservation)
    }

    /// Waits for the reservation of a row that must be read from storage.
    pub async fn for_row(&self) -> Result<Reservation, Status> {
        let mut reservation = self.no_reservation();
        reservation.reserved = Some(self.reserve(ROW_BYTES).await?);
        Ok(reservation)
    }

    async fn reserve(&self, bytes: usize) -> Result<stele_memory::Reservation, Status> {
        let waiting = trace::lengthy("wait: response memory");
        let reserved = self.consumer.reserve(&self.env, bytes, self.wait).await;
        drop(waiting);
        reserved.map_err(|Exhausted| too_many())
    }

    /// Adds a response to those that may be cancelled, until the result is dropped.
    pub fn register(&self, holder: Weak<dyn Paced>) -> Registered {
        self.slow.holders.register(holder)
    }

    /// Bytes reserved for responses.
    pub fn reserved_bytes(&self) -> usize {
        self.consumer.used()
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
        let reserved = match self.reserved {
            Some(mut reserved) => {
                reserved.shrink_to(bytes);
                if bytes <= self.memory.consumer.limit() {
                    reserved.return_overdraft();
                }
                reserved
            }
            None => self.memory.reserve_late(bytes).await?,
        };
        let shared = Arc::new(SharedReservation {
            reserved: Mutex::new(Some(reserved)),
            bytes: AtomicUsize::new(0),
            has_large: bytes > BATCH_BYTES,
        });
        for piece in pieces {
            *piece = shared.share(std::mem::take(piece));
        }
        Ok(HandOver {
            reservation: None,
            shared: Some(Arc::downgrade(&shared)),
        })
    }
}

impl ResponseMemory {
    /// Reserves memory for a response that has been read already.
    async fn reserve_late(&self, bytes: usize) -> Result<stele_memory::Reservation, Status> {
        if let Some(reserved) = self.consumer.try_reserve(bytes) {
            return Ok(reserved);
        }
        let unreserved = u32::try_from(bytes).unwrap_or(u32::MAX);
        let _waits = self.unreserved.try_acquire_many(unreserved).map_err(|_| too_many())?;
        self.reserve(bytes).await
    }
}

#[tonic::async_trait]
impl BatchReservation for Reservation {
    fn bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, stele_memory::Reservation::bytes)
    }

    fn takes_partial_rows(&self) -> bool {
        self.partial_rows
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        // Released first: two reads that hold some memory and want more would wait for each other.
        let before = self.bytes();
        self.reserved = None;
        if before >= self.memory.consumer.bytes_max() {
            let message = format!(
                "A row needs more than {before} bytes of memory, the limit for one response on this server: read fewer of its \
                 cells at a time or raise the server's memory budget"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let memory = &self.memory;
        let _waiting = trace::lengthy("wait: response memory");
        let reserved = memory.consumer.reserve_large(&memory.env, bytes, memory.wait).await;
        let busy = |Exhausted| ServiceError::new(ErrorKind::Busy, too_many().message());
        self.reserved = Some(reserved.map_err(busy)?);
        Ok(())
    }
}

/// The reservation of a batch whose messages are being sent. Their pieces own it together.
pub(crate) struct SharedReservation {
    /// `None` after cancellation.
    reserved: Mutex<Option<stele_memory::Reservation>>,
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
        let reserved = self.reserved.lock();
        reserved.as_ref().is_some_and(stele_memory::Reservation::is_overdrawn)
    }

    /// Releases the reservation, except for pieces that the transport holds. All other pieces have been dropped.
    /// Returns the released bytes.
    pub fn cancel(&self) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mut reserved = self.reserved.lock();
        let Some(kept) = reserved.as_mut() else { return 0 };
        kept.return_overdraft();
        let left = if bytes <= WITH_TRANSPORT_BYTES { 0 } else { bytes };
        let back = kept.shrink_to(left);
        reserved.take_if(|reserved| reserved.counted() == 0);
        back
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
    use stele_memory::OVERDRAFT_BYTES;

    fn memory(batches: usize) -> ResponseMemory {
        let cancelled = IntCounter::new("given_up", "given up").unwrap();
        let pool = Pool::default().limited(Part::Responses, batches * BATCH_BYTES);
        let mut memory = ResponseMemory::new(&pool, TokioRuntime::current(), cancelled);
        memory.wait = Duration::from_millis(20);
        memory
    }

    fn free(memory: &ResponseMemory) -> usize {
        memory.consumer.limit() - memory.consumer.used()
    }

    fn is_overdrawn(memory: &ResponseMemory) -> bool {
        memory.consumer.pool().is_overdrawn()
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
        assert_eq!(free(&memory), BATCH_BYTES * 3 / 2);
        let mut small = pieces(&[SMALL_BYTES]);
        let kept = memory.for_batch().await.unwrap().hand_over(&mut small).await.unwrap();
        assert!(kept.reservation.is_some());
        drop(kept);
        assert_eq!(free(&memory), BATCH_BYTES * 3 / 2);
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
        assert_eq!((reservation.bytes(), free(&memory)), (0, 3 * BATCH_BYTES));
        drop(other);
        // A batch that is larger than all response memory gets all of it, and no more.
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), OVERDRAFT_BYTES);
        assert!(is_overdrawn(&memory));
        let refused = reservation.renew(101 * BATCH_BYTES).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        assert_eq!(free(&memory), 4 * BATCH_BYTES);
    }

    #[tokio::test]
    async fn one_request_has_the_overdraft_and_only_as_long_as_it_must() {
        let memory = memory(4);
        let write = memory.consumer.pool().overdraft_permit(&memory.env).await;
        let mut reservation = memory.for_batch().await.unwrap();
        assert_eq!(
            reservation.renew(100 * BATCH_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        drop(write);
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert!(is_overdrawn(&memory));
        // Messages that fit release the overdraft before they are sent; others do not.
        let mut fits = pieces(&[4 * BATCH_BYTES]);
        reservation.hand_over(&mut fits).await.unwrap();
        assert!(!is_overdrawn(&memory));
        assert_eq!(memory.reserved_bytes(), 4 * BATCH_BYTES);
        drop(fits);
        let mut reservation = memory.for_batch().await.unwrap();
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        let mut overdraft = pieces(&[5 * BATCH_BYTES]);
        reservation.hand_over(&mut overdraft).await.unwrap();
        assert!(is_overdrawn(&memory));
        drop(overdraft);
        assert!(!is_overdrawn(&memory));
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_reservation_does_not_block_others_for_long() {
        let mut memory = memory(4);
        memory.wait = Duration::from_secs(10);
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
        assert!(is_overdrawn(&memory));
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
