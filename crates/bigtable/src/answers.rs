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

mod paused;

pub(crate) use paused::{Late, Pace, Paced, Registered};

use crate::chunks::{MessageSizes, SHARED_BYTES_MIN};
use crate::messages::PREFIX_BYTES;
use crate::status::status;
use bytes::Bytes;
use parking_lot::Mutex;
use paused::Holders;
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

/// Room for a batch before it is read: rows until about a megabyte, and as much again for one more or for the messages made
/// of them.
const BATCH_BYTES: usize = 2 << 20;

/// Room of a read of one row that must wait for the medium: as much as one may take that is granted nothing. Of those that
/// find everything in memory few are under way at a time, of these as many as there are callers.
const ROW_BYTES: usize = 1 << 20;

/// Answers up to this need no room, and are followed by a look whether there is more before they are sent.
pub(crate) const SMALL_BYTES: usize = UNIT_BYTES;

/// Bytes of answers that were read without room and wait for it: rows of up to a megabyte that turned out not to be small.
const LATE_BYTES_MAX: usize = 8 << 20;

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
const IN_QUEUE: Duration = Duration::from_secs(1);
/// How often it looks afterwards whether there is enough.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often who waits looks for answers to be given up: little beside the seconds for which they are kept.
const POLL_FOR_PAUSED: Duration = Duration::from_millis(100);

/// All room there is. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Answers {
    units: Arc<Semaphore>,
    units_max: u32,
    late: Arc<Semaphore>,
    overdraft: Overdraft,
    wait: Duration,
    in_queue: Duration,
    /// Who holds room at the pace of a client.
    holders: Holders,
    /// Somebody looks whether large values are waited for.
    watched: Arc<AtomicBool>,
    /// Bytes of them that are.
    values_wanted: Arc<AtomicUsize>,
    env: Env,
}

/// Room of one batch.
pub(crate) struct Reservation {
    answers: Answers,
    held: Option<Held>,
    /// A large row may come in pieces.
    pub pieces: bool,
}

/// What is held of the room.
struct Held {
    units: OwnedSemaphorePermit,
    /// While more than all the room is, or may be, taken.
    beyond: Option<OverdraftPermit>,
    /// Knows what is in flight.
    overdraft: Overdraft,
}

impl Held {
    fn new(units: OwnedSemaphorePermit, beyond: Option<OverdraftPermit>, overdraft: &Overdraft) -> Self {
        overdraft.add(InFlightKind::Answers, units.num_permits() * UNIT_BYTES);
        Held {
            units,
            beyond,
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

impl Drop for Held {
    fn drop(&mut self) {
        self.overdraft.sub(InFlightKind::Answers, self.bytes());
    }
}

impl Answers {
    /// Room for this many bytes. What is given up is counted in `given_up`.
    pub fn new(bytes_max: usize, overdraft: Overdraft, env: Env, given_up: IntCounter) -> Self {
        let units_max = u32::try_from(bytes_max.max(BATCH_BYTES) / UNIT_BYTES).unwrap_or(u32::MAX);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Answers {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            watched: Arc::default(),
            values_wanted: overdraft.values_wanted(),
            late: Arc::new(Semaphore::new(LATE_BYTES_MAX)),
            overdraft,
            wait: WAIT,
            in_queue: IN_QUEUE,
            holders: Holders::new(given_up),
            env,
        }
    }

    /// No room: enough for a small answer.
    pub fn empty_reservation(&self) -> Reservation {
        Reservation {
            answers: self.clone(),
            held: None,
            pieces: false,
        }
    }

    /// Waits until there is room for a batch that is yet to be read.
    pub async fn for_batch(&self) -> Result<Reservation, Status> {
        let mut reservation = self.empty_reservation();
        reservation.held = Some(self.take(self.units_of(BATCH_BYTES), false).await?);
        Ok(reservation)
    }

    /// Waits until there is room for a row that is yet to be read, and has to be waited for.
    pub async fn for_row(&self) -> Result<Reservation, Status> {
        let mut reservation = self.empty_reservation();
        reservation.held = Some(self.take(self.units_of(ROW_BYTES), false).await?);
        Ok(reservation)
    }

    /// All of it when that is less.
    fn units_of(&self, bytes: usize) -> u32 {
        let wanted = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        wanted.min(self.units_max)
    }

    async fn take(&self, units: u32, needs_overdraft: bool) -> Result<Held, Status> {
        let acquire = async {
            let beyond = match needs_overdraft {
                true => Some(self.overdraft.take().await),
                false => None,
            };
            let units = self.acquire(units).await?;
            let settles = beyond.as_ref().map_or(Duration::ZERO, OverdraftPermit::settles);
            if !settles.is_zero() {
                self.env.sleep(settles).await;
            }
            Some(Held::new(units, beyond, &self.overdraft))
        };
        let acquired = self.env.timeout(self.wait, acquire).await;
        acquired.ok().flatten().ok_or_else(too_many)
    }

    /// `None` when the semaphore is closed, which it never is.
    async fn acquire(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        {
            let mut in_turn = pin!(Arc::clone(&self.units).acquire_many_owned(units));
            let is_much = units > self.units_max / 2;
            if let Poll::Ready(acquired) = futures::poll!(in_turn.as_mut()) {
                return acquired.ok();
            }
            let start = self.env.now();
            loop {
                if let Ok(acquired) = self
                    .env
                    .timeout(POLL_FOR_PAUSED.min(self.in_queue), in_turn.as_mut())
                    .await
                {
                    return acquired.ok();
                }
                self.make_space(units);
                if is_much && self.env.now().saturating_sub(start) >= self.in_queue {
                    break;
                }
            }
        }
        loop {
            if let Ok(acquired) = Arc::clone(&self.units).try_acquire_many_owned(units) {
                return Some(acquired);
            }
            self.make_space(units);
            self.env.sleep(POLL_INTERVAL).await;
        }
    }

    /// Has answers given up of which nothing is taken, as far as so much is needed.
    fn make_space(&self, units: u32) {
        self.holders.give_up(self.env.now(), units as usize * UNIT_BYTES);
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
        let answers = self.clone();
        self.env.spawn("large values of answers", async move {
            loop {
                answers.env.sleep(POLL_FOR_PAUSED).await;
                let wanted = answers.values_wanted.load(Ordering::Relaxed);
                if wanted > 0 {
                    answers.holders.give_up(answers.env.now(), wanted);
                }
                if answers.holders.is_empty() {
                    answers.watched.store(false, Ordering::Relaxed);
                    // One that came between the two found it watched.
                    if answers.holders.is_empty() || answers.watched.swap(true, Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
    }

    /// Has the answer that goes beyond the room given up when it is not taken and somebody else wants the allowance. For as
    /// long as it has it: who waits for it elsewhere knows nothing of answers.
    fn watch(&self, lent: Weak<Lent>) {
        let answers = self.clone();
        self.env.spawn("allowance of an answer", async move {
            while lent.upgrade().is_some_and(|lent| lent.needs_overdraft()) {
                if answers.overdraft.is_wanted() {
                    answers.holders.cancel_overdrawn(answers.env.now());
                }
                answers.env.sleep(POLL_FOR_PAUSED).await;
            }
        });
    }

    /// Bytes that answers have taken of the room.
    pub fn taken(&self) -> usize {
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
pub(crate) struct Given {
    /// All of it when the messages are small.
    pub reservation: Option<Reservation>,
    /// What the messages hold.
    pub lent: Option<Weak<Lent>>,
}

impl Reservation {
    /// Sees to it that messages fit in of which so many bytes are copies of what is in a batch that is there: its filter has made many
    /// cells of one. The batch itself takes no more than it was read in, so few may wait with one.
    pub async fn fit(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes <= self.bytes().max(BATCH_BYTES) {
            return Ok(());
        }
        let late = Arc::clone(&self.answers.late);
        let _waits = late.try_acquire_many(BATCH_BYTES as u32).map_err(|_| too_many())?;
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
    pub async fn give_to(self, pieces: &mut VecDeque<Bytes>) -> Result<Given, Status> {
        let bytes = pieces.iter().map(Bytes::len).sum();
        if bytes <= SMALL_BYTES {
            return Ok(Given {
                reservation: Some(self),
                lent: None,
            });
        }
        let wanted = self.answers.units_of(bytes);
        let held = match self.held {
            Some(mut held) => {
                held.keep(wanted as usize);
                held.beyond.take_if(|_| bytes <= self.answers.all_bytes());
                held
            }
            None => self.answers.late(bytes, wanted).await?,
        };
        let lent = Arc::new(Lent {
            held: Mutex::new(Some(held)),
            bytes: AtomicUsize::new(0),
            has_large: bytes > BATCH_BYTES,
        });
        for piece in pieces {
            *piece = lent.cover(std::mem::take(piece));
        }
        let weak = Arc::downgrade(&lent);
        if lent.needs_overdraft() {
            self.answers.watch(weak.clone());
        }
        Ok(Given {
            reservation: None,
            lent: Some(weak),
        })
    }
}

impl Answers {
    /// Room for an answer that is there already.
    async fn late(&self, bytes: usize, units: u32) -> Result<Held, Status> {
        if let Ok(units) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Ok(Held::new(units, None, &self.overdraft));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let _waits = self.late.try_acquire_many(bytes).map_err(|_| too_many())?;
        self.take(units, false).await
    }
}

#[tonic::async_trait]
impl BatchReservation for Reservation {
    fn bytes(&self) -> usize {
        let Some(held) = &self.held else { return 0 };
        match held.beyond.is_some() {
            true => self.answers.overdraft_bytes(),
            false => held.bytes(),
        }
    }

    fn takes_partial_rows(&self) -> bool {
        self.pieces
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        // Given back first: two that hold some and want more would wait for each other.
        let before = self.bytes();
        self.held = None;
        if before >= self.answers.overdraft_bytes() {
            let message = format!(
                "A row takes more than {before} bytes of memory, which is all that this server spares for one answer: \
                 read less of it at once, or give the server more"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let units = self.answers.units_of(bytes);
        let needs_overdraft =
            units == self.answers.units_max && self.answers.overdraft_bytes() > self.answers.all_bytes();
        let taken = self.answers.take(units, needs_overdraft).await;
        self.held = Some(taken.map_err(|status| ServiceError::new(ErrorKind::Busy, status.message()))?);
        Ok(())
    }
}

/// The room of a batch whose messages are on their way; its pieces own it together.
pub(crate) struct Lent {
    /// `None` when it was given up.
    held: Mutex<Option<Held>>,
    /// Of pieces that are still there.
    bytes: AtomicUsize,
    /// A value of the batch may be large.
    has_large: bool,
}

impl Lent {
    /// Makes a piece an owner.
    pub fn cover(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Sent {
            bytes,
            lent: Arc::clone(self),
        })
    }

    /// Takes from the front of a piece what the transport is to have at once. It keeps nothing else in memory.
    pub fn part(self: &Arc<Self>, piece: &mut Bytes) -> Bytes {
        let part = piece.split_to(piece.len().min(PIECE_BYTES_MAX));
        self.cover(Bytes::copy_from_slice(&part))
    }

    /// Whether a piece is to be handed to the transport in [parts](Lent::part): it is large, or may be part of something
    /// that is.
    pub fn is_parted(&self, piece: &Bytes) -> bool {
        piece.len() > PIECE_BYTES_MAX || (self.has_large && piece.len() >= SHARED_BYTES_MIN)
    }

    pub fn needs_overdraft(&self) -> bool {
        self.held.lock().as_ref().is_some_and(|held| held.beyond.is_some())
    }

    /// Gives all of it back but what the transport has of the pieces, the others being gone. Returns how much.
    pub fn give_up(&self) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mut held = self.held.lock();
        let Some(kept) = held.as_mut() else { return 0 };
        kept.beyond = None;
        let units = match bytes <= WITH_TRANSPORT_BYTES {
            true => 0,
            false => bytes.div_ceil(UNIT_BYTES),
        };
        let back = kept.keep(units);
        held.take_if(|held| held.units.num_permits() == 0);
        back * UNIT_BYTES
    }
}

/// A piece of a message, with the room of its batch.
struct Sent {
    bytes: Bytes,
    lent: Arc<Lent>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.lent.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::Either;
    use stele_env::tokio_env::TokioRuntime;

    fn answers(batches: usize) -> Answers {
        let given_up = IntCounter::new("given_up", "given up").unwrap();
        let mut answers = Answers::new(
            batches * BATCH_BYTES,
            Overdraft::default(),
            TokioRuntime::current(),
            given_up,
        );
        answers.wait = Duration::from_millis(20);
        answers
    }

    fn pieces(bytes: &[usize]) -> VecDeque<Bytes> {
        bytes.iter().map(|bytes| Bytes::from(vec![7; *bytes])).collect()
    }

    #[tokio::test]
    async fn partial_rows_reserve_memory_until_they_are_sent() {
        let answers = answers(2);
        let reservation = answers.for_batch().await.unwrap();
        let mut first = pieces(&[10, BATCH_BYTES - 10]);
        assert!(reservation.give_to(&mut first).await.unwrap().reservation.is_none());
        let second = answers.for_batch().await.unwrap();
        assert_eq!(
            answers.for_batch().await.err().unwrap().code(),
            tonic::Code::Unavailable
        );
        let sent = first.pop_front().unwrap();
        drop(first);
        assert!(answers.for_batch().await.is_err(), "a piece is still there");
        drop(sent);
        drop(answers.for_batch().await.unwrap());
        // What a batch turns out not to need is given back at once, and a small one needs none.
        let mut half = pieces(&[BATCH_BYTES / 2]);
        second.give_to(&mut half).await.unwrap();
        assert_eq!(answers.units.available_permits() * UNIT_BYTES, BATCH_BYTES * 3 / 2);
        let mut small = pieces(&[SMALL_BYTES]);
        let kept = answers.for_batch().await.unwrap().give_to(&mut small).await.unwrap();
        assert!(kept.reservation.is_some());
        drop(kept);
        assert_eq!(answers.units.available_permits() * UNIT_BYTES, BATCH_BYTES * 3 / 2);
    }

    #[tokio::test]
    async fn a_large_row_waits_for_more_without_what_it_had() {
        let answers = answers(4);
        let mut reservation = answers.for_batch().await.unwrap();
        assert_eq!(reservation.bytes(), BATCH_BYTES);
        reservation.renew(3 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), 3 * BATCH_BYTES);
        let other = answers.for_batch().await.unwrap();
        assert_eq!(
            reservation.renew(100 * BATCH_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        assert_eq!(
            (reservation.bytes(), answers.units.available_permits() * UNIT_BYTES),
            (0, 3 * BATCH_BYTES)
        );
        drop(other);
        // One that is larger than all the room gets all of it, and no more.
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert_eq!(reservation.bytes(), OVERDRAFT_BYTES);
        assert!(answers.overdraft.is_taken());
        let refused = reservation.renew(101 * BATCH_BYTES).await.err().unwrap();
        assert_eq!(refused.kind, ErrorKind::ResourceExhausted);
        assert_eq!(answers.units.available_permits() * UNIT_BYTES, 4 * BATCH_BYTES);
    }

    #[tokio::test]
    async fn one_goes_beyond_the_room_whoever_it_is_and_only_as_long_as_it_must() {
        let answers = answers(4);
        let write = answers.overdraft.take().await;
        let mut reservation = answers.for_batch().await.unwrap();
        assert_eq!(
            reservation.renew(100 * BATCH_BYTES).await.err().unwrap().kind,
            ErrorKind::Busy
        );
        drop(write);
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        assert!(answers.overdraft.is_taken());
        // Messages that fit give it back before they are sent; others do not.
        let mut fits = pieces(&[4 * BATCH_BYTES]);
        reservation.give_to(&mut fits).await.unwrap();
        assert!(!answers.overdraft.is_taken());
        assert_eq!(answers.taken(), 4 * BATCH_BYTES);
        drop(fits);
        let mut reservation = answers.for_batch().await.unwrap();
        reservation.renew(100 * BATCH_BYTES).await.unwrap();
        let mut beyond = pieces(&[5 * BATCH_BYTES]);
        reservation.give_to(&mut beyond).await.unwrap();
        assert!(answers.overdraft.is_taken());
        drop(beyond);
        assert!(!answers.overdraft.is_taken());
        assert_eq!(answers.taken(), 0);
    }

    #[tokio::test]
    async fn who_wants_all_keeps_nobody_waiting_for_long() {
        let mut answers = answers(4);
        (answers.wait, answers.in_queue) = (Duration::from_secs(10), Duration::from_millis(20));
        let mut paused = pieces(&[BATCH_BYTES]);
        answers.for_batch().await.unwrap().give_to(&mut paused).await.unwrap();
        let mut row = answers.for_batch().await.unwrap();
        let mut all = Box::pin(row.renew(4 * BATCH_BYTES));
        assert!(futures::poll!(&mut all).is_pending());
        // Behind it, though there is enough.
        let both = futures::future::select(all, Box::pin(answers.for_batch())).await;
        let Either::Right((Ok(batch), all)) = both else {
            unreachable!("not for as long as the other waits");
        };
        drop((paused, batch));
        all.await.unwrap();
        assert!(answers.overdraft.is_taken());
    }

    #[tokio::test]
    async fn what_was_read_without_room_waits_in_bounded_numbers() {
        let mut answers = answers(1);
        let held = answers.for_batch().await.unwrap();
        answers.wait = Duration::from_secs(60);
        let one_mib = || pieces(&[1 << 20]);
        let wait = || {
            let reservation = answers.empty_reservation();
            Box::pin(async move { reservation.give_to(&mut one_mib()).await.map(drop) })
        };
        let mut waiting: Vec<_> = (0..LATE_BYTES_MAX >> 20).map(|_| wait()).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        let refused = answers.empty_reservation().give_to(&mut one_mib()).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        answers
            .empty_reservation()
            .give_to(&mut pieces(&[SMALL_BYTES]))
            .await
            .unwrap();
        drop(held);
        for one in waiting {
            one.await.unwrap();
        }
    }
}
