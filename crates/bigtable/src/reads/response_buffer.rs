//! Buffers a response that its client reads slowly, until it is sent or cancelled.
//!
//! While the transport takes a response, its ready messages and the read that produces the next ones are in its
//! *response buffer*. A request that waits for memory may clear the buffer ([`Paced`]). The client then gets
//! UNAVAILABLE after the rest of the message that it has begun to read. It repeats the read after the last row that it
//! has, as clients do with every read that breaks off. A large rest of a message is not kept: the stream ends within
//! the message with a reset, which clients also treat as UNAVAILABLE.

use super::Responses;
use crate::messages::PREFIX_BYTES;
use crate::response_memory::{Overdue, PIECE_BYTES_MAX, Paced};
use crate::response_memory::{Pace, SharedReservation};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tonic::Status;

/// The next event for the transport.
pub(crate) enum Next {
    Piece(Bytes),
    /// The end of the stream, with this status.
    End(Status),
    /// The stream must be reset.
    Reset(Status),
    /// The buffer is empty; these responses read more.
    Read(Box<Responses>),
}

/// The buffer of one response.
pub(crate) struct ResponseBuffer(Mutex<Buffered>);

struct Buffered {
    state: State,
    pace: Pace,
    /// Bytes left of the message that the transport has begun to take.
    message_left: usize,
    /// The deadline of the client.
    deadline: Option<Duration>,
}

enum State {
    /// More of the response is being read.
    Filling,
    Ready(Box<Responses>),
    Cancelled {
        rest: VecDeque<Bytes>,
        end: Status,
    },
    /// Nothing follows the pieces with the transport: their reservations.
    Ended(Vec<Weak<SharedReservation>>),
}

impl ResponseBuffer {
    pub fn new(responses: Box<Responses>, deadline: Option<Duration>, now: Duration) -> Self {
        ResponseBuffer(Mutex::new(Buffered {
            state: State::Ready(responses),
            pace: Pace::new(now),
            message_left: 0,
            deadline,
        }))
    }

    /// Puts a response back after more of it was read.
    pub fn put(&self, responses: Box<Responses>, now: Duration) {
        let mut buffered = self.0.lock();
        buffered.pace = Pace::new(now);
        buffered.state = State::Ready(responses);
    }

    /// Drops everything except the reservations of pieces that the transport holds.
    pub fn end(&self) {
        let mut buffered = self.0.lock();
        buffered.state = State::Ended(buffered.state.shared().to_vec());
    }

    /// Takes the next event.
    pub fn take(&self, now: Duration) -> Next {
        let mut buffered = self.0.lock();
        if buffered.deadline.is_some_and(|deadline| now >= deadline) {
            buffered.clear(deadline_exceeded());
        }
        buffered.take(now)
    }
}

/// The status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("The deadline of the call passed before its response was read")
}

impl State {
    /// The reservations of pieces, as far as they can be taken back.
    fn shared(&self) -> &[Weak<SharedReservation>] {
        match self {
            State::Ready(responses) => &responses.shared,
            State::Ended(shared) => shared,
            State::Filling | State::Cancelled { .. } => &[],
        }
    }
}

fn cancelled() -> Status {
    let message = "The client read nothing of this response for some time while other requests waited for its memory; \
                   continue after the last row";
    Status::unavailable(message)
}

impl Buffered {
    fn take(&mut self, now: Duration) -> Next {
        match &mut self.state {
            State::Ready(responses) => match responses.take_piece() {
                Some(piece) => {
                    self.message_left = left_after(self.message_left, &piece);
                    self.pace.note(now, piece.len());
                    Next::Piece(piece)
                }
                None if responses.ended => Next::End(Status::ok("")),
                None => match std::mem::replace(&mut self.state, State::Filling) {
                    State::Ready(responses) => Next::Read(responses),
                    // It was ready a moment ago.
                    other => {
                        self.state = other;
                        Next::Reset(Status::internal("The response was lost"))
                    }
                },
            },
            State::Cancelled { rest, end } => match rest.pop_front() {
                Some(piece) => {
                    self.message_left = left_after(self.message_left, &piece);
                    Next::Piece(piece)
                }
                None if self.message_left == 0 => Next::End(end.clone()),
                None => Next::Reset(reset(end)),
            },
            State::Filling | State::Ended(_) => {
                Next::Reset(Status::internal("The response was requested twice at the same time"))
            }
        }
    }

    /// Drops everything except a small rest of a message. Returns the released bytes.
    fn clear(&mut self, end: Status) -> usize {
        let shared: Vec<Arc<SharedReservation>> = self.state.shared().iter().filter_map(Weak::upgrade).collect();
        let mut rest = VecDeque::new();
        if let State::Ready(responses) = &mut self.state
            && self.message_left <= PIECE_BYTES_MAX
        {
            let mut left = self.message_left;
            while left > 0
                && let Some(piece) = responses.ready.front_mut()
            {
                // A copy, because a slice would keep its whole buffer in memory.
                let part = piece.split_to(piece.len().min(left));
                left -= part.len();
                rest.push_back(Bytes::copy_from_slice(&part));
                if piece.is_empty() {
                    responses.ready.pop_front();
                }
            }
        }
        match self.state {
            State::Ready(_) => self.state = State::Cancelled { rest, end },
            State::Ended(_) => self.state = State::Ended(Vec::new()),
            State::Filling | State::Cancelled { .. } => {}
        }
        shared.iter().map(|shared| shared.cancel()).sum()
    }

    fn overdue(&self, now: Duration) -> Option<Overdue> {
        let shared: Vec<Arc<SharedReservation>> = self.state.shared().iter().filter_map(Weak::upgrade).collect();
        if shared.is_empty() {
            return None;
        }
        let unwanted = self.deadline.and_then(|deadline| now.checked_sub(deadline));
        Some(Overdue {
            by: self.pace.overdue_by(now).max(unwanted)?,
            has_overdraft: shared.iter().any(|shared| shared.has_overdraft()),
        })
    }
}

impl Paced for ResponseBuffer {
    fn overdue(&self, now: Duration) -> Option<Overdue> {
        self.0.lock().overdue(now)
    }

    fn cancel(&self, now: Duration) -> usize {
        let mut buffered = self.0.lock();
        match buffered.overdue(now) {
            Some(_) => buffered.clear(cancelled()),
            None => 0,
        }
    }
}

/// The bytes left of a message after this piece, if `left` were left before it. A piece after the end of one message
/// begins the next, with its prefix.
fn left_after(left: usize, piece: &Bytes) -> usize {
    let left = match piece.first_chunk::<PREFIX_BYTES>() {
        Some([_, len @ ..]) if left == 0 => PREFIX_BYTES + u32::from_be_bytes(*len) as usize,
        _ => left,
    };
    left.saturating_sub(piece.len())
}

/// A status that makes the transport reset the stream with the code that clients treat as UNAVAILABLE.
fn reset(end: &Status) -> Status {
    let mut status = end.clone();
    status.set_source(Arc::new(h2::Error::from(h2::Reason::REFUSED_STREAM)));
    status
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "time is tokio's, which the tests let pass")]

    use super::*;
    use crate::chunks::MessageSizes;
    use crate::reads::{ReadOptions, Rows};
    use crate::response_memory::ResponseMemory;
    use crate::testing::{self, clock};
    use stele_client::{BatchReservation, RowStream, ServiceResult};
    use stele_env::Env;
    use stele_env::metrics::IntCounter;
    use stele_memory::{Part, Pool};
    use stele_types::{Cell, FamilyId, RowBatch, Timestamp};
    use tokio::time::{Instant, sleep};

    const LARGE: usize = 6 << 20;

    /// One row of this size, in one value.
    struct Row(Option<usize>);

    #[tonic::async_trait]
    impl RowStream for Row {
        async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
            Ok(None)
        }

        async fn next_within(&mut self, reservation: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
            let Some(bytes) = self.0.take() else { return Ok(None) };
            if reservation.bytes() < bytes {
                reservation.renew(bytes).await?;
            }
            let mut batch = RowBatch::default();
            let cell = Cell::put(FamilyId(1), Bytes::new(), Timestamp(0), vec![7; bytes].into());
            batch.push_row(Bytes::from_static(b"r"), [cell]);
            Ok(Some(batch))
        }
    }

    /// Memory for two batches.
    fn memory(env: Env) -> (ResponseMemory, Pool) {
        let pool = Pool::default().limited(Part::Responses, 4 << 20);
        let cancelled = IntCounter::new("given_up", "given up").unwrap();
        (ResponseMemory::new(&pool, env, cancelled), pool)
    }

    async fn begun(memory: &ResponseMemory, env: &Env, sizes: MessageSizes, bytes: usize) -> Responses {
        let options = ReadOptions {
            last_scanned: false,
            stats: false,
            sizes,
            one_row: true,
            partial_rows: true,
            multiplies: false,
            narrowed: false,
        };
        let reservation = memory.for_row().await.unwrap();
        let rows = Rows::Stream(Box::new(Row(Some(bytes))));
        let accounts = (memory.clone(), reservation);
        let mut responses = Responses::new(rows, Arc::new(testing::schema()), options, env.clone(), accounts);
        responses.begin().await.unwrap();
        responses
    }

    fn piece(next: Next) -> Bytes {
        match next {
            Next::Piece(piece) => piece,
            Next::End(status) | Next::Reset(status) => unreachable!("{status}"),
            Next::Read(_) => unreachable!("all is there"),
        }
    }

    /// Sends the beginning of a large row to a client that then pauses.
    async fn paused(memory: &ResponseMemory, env: &Env, sizes: MessageSizes) -> (Arc<ResponseBuffer>, Vec<Bytes>) {
        let responses = begun(memory, env, sizes, LARGE).await;
        let buffer = Arc::new(ResponseBuffer::new(Box::new(responses), None, env.now()));
        let taken = (0..3).map(|_| piece(buffer.take(env.now()))).collect();
        (buffer, taken)
    }

    #[tokio::test(start_paused = true)]
    async fn the_overdraft_goes_from_a_paused_client_to_a_waiting_one() {
        let env = clock::env();
        let (memory, pool) = memory(env.clone());
        let (buffer, taken) = paused(&memory, &env, MessageSizes::DEFAULT).await;
        let weak = Arc::downgrade(&buffer);
        let _registered = memory.register(weak);
        sleep(Duration::from_secs(1_000)).await;
        assert!(pool.is_overdrawn(), "no other request needs it");
        let begin = Instant::now();
        let other = begun(&memory, &env, MessageSizes::DEFAULT, LARGE).await;
        assert!(begin.elapsed() < Duration::from_secs(1));
        drop(other);
        assert!(!pool.is_overdrawn());
        // Parts with the transport take only their own size.
        assert!(taken.iter().map(Bytes::len).sum::<usize>() <= 2 * PIECE_BYTES_MAX);
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_request_gets_the_overdraft_after_a_while() {
        let env = clock::env();
        let (memory, pool) = memory(env.clone());
        let (buffer, _taken) = paused(&memory, &env, MessageSizes::DEFAULT).await;
        let weak = Arc::downgrade(&buffer);
        let _registered = memory.register(weak);
        assert!(pool.try_overdraft().is_none());
        sleep(Duration::from_secs(4)).await;
        assert!(pool.try_overdraft().is_none(), "a client may pause for a moment");
        sleep(Duration::from_secs(2)).await;
        assert!(pool.try_overdraft().is_some());
    }

    /// The bytes that a client has read when its response is cancelled, and the next event.
    async fn broken(sizes: MessageSizes) -> (usize, Next) {
        let env = clock::env();
        let (memory, _) = memory(env.clone());
        let (buffer, taken) = paused(&memory, &env, sizes).await;
        sleep(Duration::from_secs(6)).await;
        assert!(buffer.cancel(env.now()) > 0);
        assert_eq!(buffer.cancel(env.now()), 0);
        let mut got: usize = taken.iter().map(Bytes::len).sum();
        loop {
            match buffer.take(env.now()) {
                Next::Piece(piece) => got += piece.len(),
                next => return (got, next),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_begun_is_finished_if_little_is_left_of_it() {
        let (got, next) = broken(MessageSizes::DEFAULT).await;
        let Next::End(status) = next else {
            unreachable!("its end")
        };
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(got < 4 * PIECE_BYTES_MAX);
        // A large rest ends the stream.
        let (got, next) = broken(MessageSizes::WHOLE_ROWS).await;
        let Next::Reset(status) = next else {
            unreachable!("within a message")
        };
        assert_eq!(status.code(), tonic::Code::Unavailable);
        let reason = std::error::Error::source(&status).and_then(|source| source.downcast_ref::<h2::Error>());
        assert_eq!(reason.and_then(h2::Error::reason), Some(h2::Reason::REFUSED_STREAM));
        assert!(got < 4 * PIECE_BYTES_MAX);
    }

    /// Parts with the transport keep no large value in memory.
    #[tokio::test(start_paused = true)]
    async fn the_transport_has_copies_of_parts() {
        for sizes in [MessageSizes::DEFAULT, MessageSizes::WHOLE_ROWS] {
            let env = clock::env();
            let (memory, _) = memory(env.clone());
            let mut responses = begun(&memory, &env, sizes, LARGE).await;
            let mut left: usize = responses.ready.iter().map(Bytes::len).sum();
            let shared: Vec<_> = responses.ready.iter().map(|piece| piece.as_ptr_range()).collect();
            while let Some(piece) = responses.take_piece() {
                assert!(piece.len() <= PIECE_BYTES_MAX);
                left -= piece.len();
                let is_part = shared.iter().any(|range| range.contains(&piece.as_ptr()));
                assert!(!is_part || piece.len() < 1_000, "{}", piece.len());
            }
            assert_eq!((left, memory.reserved_bytes()), (0, 0));
        }
    }
}
