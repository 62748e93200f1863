//! The memory of answers, from before they are read until the transport has sent them.
//!
//! A read is pulled by its client, so one whose client takes nothing holds what it has read: a batch of rows for each stream,
//! with thousands of streams. So a batch is read only with *room* for it, of which there is as much as the budget allows.
//! What is read of a batch, the messages made of it, and what the transport holds of these while its client takes nothing
//! are all in that room: the pieces of the messages own it, and give it back when the last of them is dropped, thus sent.
//! Small answers, as those of nearly all reads of single rows, need none: what they take is bounded by the number of calls.
//!
//! Whoever finds no room waits, in order of arrival, and is told to come again when that takes too long. Nobody holds room
//! while waiting for more of it: a read that meets a row for which its room is too small gives all of it back, with what it
//! has read, and begins the batch again in more.
//!
//! A row that takes more than a batch comes in pieces, where client and filter allow it: then at most one of its cells is
//! large. Otherwise a single row may take more than all the room, and so may a cell. It waits until it has all of it, and
//! the one allowance that all share ([`Overdraft`]), and may then go so far beyond as one value of the largest size does; what
//! takes still more is refused.
//!
//! A client that stops reading keeps what it has as long as nobody needs it. As soon as others wait for room, for the
//! allowance, or for the memory of large values or of memtables, which answers hold as well, answers of which nothing was taken for some seconds are given up ([`paused`]): what is read of them and not yet
//! with the transport is dropped, and their room goes to those who wait.

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

/// What room is counted in.
const UNIT_BYTES: usize = 64 << 10;

/// Reservation for a batch before it is read: rows until about a megabyte, and as much again for one more or for the messages made
/// of them.
const BATCH_BYTES: usize = 2 << 20;

/// Reservation of a read of one row that must wait for the medium: as much as one may take that is granted nothing. Of those that
/// find everything in memory few are under way at a time, of these as many as there are callers.
const ROW_BYTES: usize = 1 << 20;

/// ResponseMemory up to this need no room, and are followed by a look whether there is more before they are sent.
pub(crate) const SMALL_BYTES: usize = UNIT_BYTES;

/// Bytes of answers that were read without room and wait for it: rows of up to a megabyte that turned out not to be small.
const UNRESERVED_BYTES_MAX: usize = 8 << 20;

/// Bytes of an answer that has been given up that may remain with the transport: two pieces, one begun and one that waits for
/// its turn. They are part of what any call may take.
const WITH_TRANSPORT_BYTES: usize = 2 * PIECE_BYTES_MAX;

/// Largest piece that is handed to the transport as it is. Of what is larger the transport gets copies of parts, because a
/// part keeps the whole in memory, a value of 100 MB perhaps, as long as a client that has stopped reading leaves it there.
/// It is a message of rows with its prefix, and the parts are small enough to be sent on from the processor's cache.
pub(crate) const PIECE_BYTES_MAX: usize = MessageSizes::DEFAULT.target + PREFIX_BYTES;

/// How long room is waited for: longer than sending all of it takes over any network that serves that many clients, and twice
/// as long as an answer is kept of which nothing is taken.
const WAIT: Duration = Duration::from_secs(10);
/// How much of that who wants more than half of all may keep those waiting who come later: as long as a client does not take
/// its answer, all of it is not to be had, and the others could go on.
const QUEUE_TIME: Duration = Duration::from_secs(1);
/// How often it looks afterwards whether there is enough.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How often who waits looks for answers to be given up: little beside the seconds for which they are kept.
const SLOW_CLIENT_INTERVAL: Duration = Duration::from_millis(100);

/// All room there is. Cloning shares it.
#[derive(Clone)]
pub(crate) struct ResponseMemory {
    units: Arc<Semaphore>,
    units_max: u32,
    unreserved: Arc<Semaphore>,
    overdraft: Overdraft,
    wait: Duration,
    queue_time: Duration,
    /// Who holds room at the pace of a client.
    holders: Holders,
    /// Somebody looks whether large values are waited for.
    watched: Arc<AtomicBool>,
    /// Bytes of them that are.
    values_wanted: Arc<AtomicUsize>,
    env: Env,
}

/// Reservation of one batch.
pub(crate) struct Reservation {
    memory: ResponseMemory,
    reserved: Option<Reserved>,
    /// A large row may come in pieces.
    pub partial_rows: bool,
}

/// What is held of the room.
struct Reserved {
    units: OwnedSemaphorePermit,
    /// While more than all the room is, or may be, taken.
    overdraft: Option<OverdraftPermit>,
    /// Knows what is in flight.
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

    /// Gives back all but so many units; how many.
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
    /// Reservation for this many bytes. What is given up is counted in `given_up`.
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

    /// No room: enough for a small answer.
    pub fn no_reservation(&self) -> Reservation {
        Reservation {
            memory: self.clone(),
            reserved: None,
            partial_rows: false,
        }
    }

    /// Waits until there is room for a batch that is yet to be read.
    pub async fn for_batch(&self) -> Result<Reservation, Status> {
        let mut reservation = self.no_reservation();
        reservation.reserved = Some(self.reserve(self.units_of(BATCH_BYTES), false).await?);
        Ok(reservation)
    }

    /// Waits until there is room for a row that is yet to be read, and has to be waited for.
    pub async fn for_row(&self) -> Result<Reservation, Status> {
        let mut reservation = self.no_reservation();
        reservation.reserved = Some(self.reserve(self.units_of(ROW_BYTES), false).await?);
        Ok(reservation)
    }

    /// All of it when that is less.
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

    /// `None` when the semaphore is closed, which it never is.
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

    /// Has answers given up of which nothing is taken, as far as so much is needed.
    fn cancel_slow(&self, units: u32) {
        self.holders.cancel(self.env.now(), units as usize * UNIT_BYTES);
    }

    /// Counts an answer among those that may be given up, until the result is dropped.
    pub fn register(&self, holder: Weak<dyn Paced>) -> Registered {
        let registered = self.holders.register(holder);
        if !self.watched.swap(true, Ordering::Relaxed) {
            self.watch_values();
        }
        registered
    }

    /// Has answers of which nothing is taken given up while others wait for the memory of large values, or of memtables that
    /// values are part of: who waits for that knows nothing of answers. For as long as there are answers.
    fn watch_values(&self) {
        let memory = self.clone();
        self.env.spawn("large values of answers", async move {
            loop {
                memory.env.sleep(SLOW_CLIENT_INTERVAL).await;
                let wanted = memory.values_wanted.load(Ordering::Relaxed);
                if wanted > 0 {
                    memory.holders.cancel(memory.env.now(), wanted);
                }
                if memory.holders.is_empty() {
                    memory.watched.store(false, Ordering::Relaxed);
                    // One that came between the two found it watched.
                    if memory.holders.is_empty() || memory.watched.swap(true, Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
    }

    /// Has the answer that goes beyond the room given up when it is not taken and somebody else wants the allowance. For as
    /// long as it has it: who waits for it elsewhere knows nothing of answers.
    fn watch_overdraft(&self, shared: Weak<SharedReservation>) {
        let memory = self.clone();
        self.env.spawn("allowance of an answer", async move {
            while shared.upgrade().is_some_and(|shared| shared.has_overdraft()) {
                if memory.overdraft.is_wanted() {
                    memory.holders.cancel_overdraft(memory.env.now());
                }
                memory.env.sleep(SLOW_CLIENT_INTERVAL).await;
            }
        });
    }

    /// Bytes that answers have taken of the room.
    pub fn reserved_bytes(&self) -> usize {
        (self.units_max as usize).saturating_sub(self.units.available_permits()) * UNIT_BYTES
    }

    fn all_bytes(&self) -> usize {
        self.units_max as usize * UNIT_BYTES
    }

    /// What one answer may take that has all the room.
    fn overdraft_bytes(&self) -> usize {
        self.all_bytes().max(OVERDRAFT_BYTES)
    }
}

fn too_many() -> Status {
    Status::unavailable("Too many answers wait to be taken; retry after backing off")
}

/// What became of the room when messages were given theirs.
pub(crate) struct HandOver {
    /// All of it when the messages are small.
    pub reservation: Option<Reservation>,
    /// What the messages hold.
    pub shared: Option<Weak<SharedReservation>>,
}

impl Reservation {
    /// Sees to it that messages fit in of which so many bytes are copies of what is in a batch that is there: its filter has made many
    /// cells of one. The batch itself takes no more than it was read in, so few may wait with one.
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
            "What the filter makes of a row takes {bytes} bytes of memory, this server spares {} for one answer: have it make less, \
             or give the server more",
            self.bytes()
        )))
    }

    /// Gives the messages in `pieces`, from which the batch that they were made of is gone, as much as they take. The rest
    /// goes back; all of it stays when they are small.
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
    /// Reservation for an answer that is there already.
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
        // Given back first: two that hold some and want more would wait for each other.
        let before = self.bytes();
        self.reserved = None;
        if before >= self.memory.overdraft_bytes() {
            let message = format!(
                "A row takes more than {before} bytes of memory, which is all that this server spares for one answer: \
                 read less of it at once, or give the server more"
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

/// The room of a batch whose messages are on their way; its pieces own it together.
pub(crate) struct SharedReservation {
    /// `None` when it was given up.
    reserved: Mutex<Option<Reserved>>,
    /// Of pieces that are still there.
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

    /// Takes from the front of a piece what the transport is to have at once. It keeps nothing else in memory.
    pub fn part(self: &Arc<Self>, piece: &mut Bytes) -> Bytes {
        let part = piece.split_to(piece.len().min(PIECE_BYTES_MAX));
        self.share(Bytes::copy_from_slice(&part))
    }

    /// Whether a piece is to be handed to the transport in [parts](SharedReservation::part): it is large, or may be part of something
    /// that is.
    pub fn is_sent_in_copies(&self, piece: &Bytes) -> bool {
        piece.len() > PIECE_BYTES_MAX || (self.has_large && piece.len() >= SHARED_BYTES_MIN)
    }

    pub fn has_overdraft(&self) -> bool {
        self.reserved
            .lock()
            .as_ref()
            .is_some_and(|reserved| reserved.overdraft.is_some())
    }

    /// Gives all of it back but what the transport has of the pieces, the others being gone. Returns how much.
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

/// A piece of a message, with the room of its batch.
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
        // What a batch turns out not to need is given back at once, and a small one needs none.
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
    async fn a_large_row_waits_for_more_without_what_it_had() {
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
        // One that is larger than all the room gets all of it, and no more.
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), OVERDRAFT_BYTES);
        assert!(memory.overdraft.is_taken());
        let refused = reservation.renew(101 * BATCH_BYTES).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        assert_eq!(memory.units.available_permits() * UNIT_BYTES, 4 * BATCH_BYTES);
    }

    #[tokio::test]
    async fn one_goes_beyond_the_room_whoever_it_is_and_only_as_long_as_it_must() {
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
        // Messages that fit give it back before they are sent; others do not.
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
    async fn who_wants_all_keeps_nobody_waiting_for_long() {
        let mut memory = memory(4);
        (memory.wait, memory.queue_time) = (Duration::from_secs(10), Duration::from_millis(20));
        let mut paused = pieces(&[BATCH_BYTES]);
        memory.for_batch().await.unwrap().hand_over(&mut paused).await.unwrap();
        let mut row = memory.for_batch().await.unwrap();
        let mut all = Box::pin(row.renew(4 * BATCH_BYTES));
        assert!(futures::poll!(&mut all).is_pending());
        // Behind it, though there is enough.
        let both = futures::future::select(all, Box::pin(memory.for_batch())).await;
        let Either::Right((Ok(batch), all)) = both else {
            unreachable!("not for as long as the other waits");
        };
        drop((paused, batch));
        all.await.unwrap();
        assert!(memory.overdraft.is_taken());
    }

    #[tokio::test]
    async fn what_was_read_without_room_waits_in_bounded_numbers() {
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
