//! A stream of rows from another server.
//!
//! The reader's memory is the credit: a batch is asked for within it. From the second batch on one more is read ahead, if there is
//! memory for readahead.

use super::lane::{Arrival, Lane, Reply, Started};
use super::{Shared, with_caller};
use crate::limits::BATCH_BYTES;
use crate::messages::{CallHeader, CallKind};
use crate::rows;
use crate::segments::Segments;
use crate::traced::with_trace;
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::{BatchReservation, RowStream, ServiceError, ServiceResult};
use stele_env::Elapsed;
use stele_env::trace::Stage;
use stele_env::work;
use stele_memory::Reservation;
use stele_types::{ErrorKind, RowBatch, TabletId};
use tokio::sync::mpsc;

/// A read of another server's tablet.
pub(super) struct RemoteRows {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    tablet: TabletId,
    state: State,
    /// Memory of the request until something arrives.
    memory: Option<Reservation>,
    /// Memory of the batch that is read ahead.
    ahead: Option<Reservation>,
    /// Batches returned.
    batches: u64,
    /// The stage of a traced request, until something arrives: later the read may go on in other requests.
    hop: Option<Stage>,
}

enum State {
    /// The request, which waits for the first batch to be asked for.
    Requested(Segments),
    Open(Started, mpsc::UnboundedReceiver<Arrival>),
    Ended,
}

impl RemoteRows {
    pub fn new(shared: Arc<Shared>, lane: Arc<Lane>, tablet: TabletId, body: Segments) -> Self {
        RemoteRows {
            shared,
            lane,
            tablet,
            state: State::Requested(body),
            memory: None,
            ahead: None,
            batches: 0,
            hop: None,
        }
    }

    /// Sends the request with the first credit, or lets an open stream send a batch of this size.
    async fn ask(&mut self, bytes: usize, takes_partial_rows: bool) -> ServiceResult<()> {
        // Without credit nothing would ever come.
        let bytes = bytes.clamp(1, BATCH_BYTES) as u64;
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Requested(body) => {
                let hop = self.shared.hop(self.tablet);
                let carried = hop.carried().filter(|_| self.lane.carries_traces());
                let tells_work = work::is_counted() && self.lane.tells_work();
                self.hop = Some(hop);
                let (has_caller, body) = with_caller(body);
                let body = with_trace(carried, body);
                self.memory = Some(self.shared.reserve(&body).await?);
                let header = CallHeader {
                    kind: Ok(CallKind::Read),
                    takes_partial_rows,
                    has_caller,
                    has_trace: carried.is_some(),
                    tells_work,
                    left: Some(self.shared.call_wait),
                    tablet: self.tablet,
                    credit: bytes,
                };
                let (tell, told) = mpsc::unbounded_channel();
                let started = self.lane.start(&self.shared, &header, body, Reply::Many(tell))?;
                self.state = State::Open(started, told);
            }
            State::Open(started, told) => {
                grant(&started, bytes);
                self.state = State::Open(started, told);
            }
            State::Ended => {}
        }
        Ok(())
    }

    async fn next_batch(&mut self, mut room: Option<&mut dyn BatchReservation>) -> ServiceResult<Option<RowBatch>> {
        let (bytes, partial) = match &room {
            Some(room) => (room.bytes(), room.takes_partial_rows()),
            None => (BATCH_BYTES, false),
        };
        loop {
            let arrival = match self.arrived() {
                Some(arrival) => Ok(Some(arrival)),
                None => {
                    self.ask(bytes, partial).await?;
                    self.wait().await
                }
            };
            (self.memory, self.hop) = (None, None);
            match arrival {
                Ok(Some(Arrival::Rows { body, last })) => {
                    let is_empty = body.is_empty();
                    if last {
                        self.state = State::Ended;
                    }
                    if is_empty {
                        continue;
                    }
                    self.batches += 1;
                    self.read_ahead();
                    return match rows::decode(body) {
                        Ok(batch) => Ok(Some(batch)),
                        Err(error) => self.fail(ErrorKind::Internal, error.to_string()),
                    };
                }
                Ok(Some(Arrival::Work(elsewhere))) => work::note(|work| work.add_elsewhere(&elsewhere)),
                Ok(Some(Arrival::Need(bytes))) => {
                    let needed = usize::try_from(bytes).unwrap_or(usize::MAX);
                    // A reservation may be larger than was asked for. A reader that has all of its memory cannot renew it.
                    if let Some(room) = &mut room
                        && room.bytes() < needed
                    {
                        room.renew(needed).await?;
                    }
                    if let State::Open(started, _) = &self.state {
                        grant(started, bytes);
                    }
                }
                Ok(Some(Arrival::Failed(error))) => {
                    self.state = State::Ended;
                    return Err(error);
                }
                Ok(None) => {
                    self.state = State::Ended;
                    return Ok(None);
                }
                Err(_) => {
                    let message = format!("no rows came within {:?}", self.shared.call_wait);
                    return self.fail(ErrorKind::Busy, message);
                }
            }
        }
    }

    /// A part that has arrived already: one that was read ahead.
    fn arrived(&mut self) -> Option<Arrival> {
        match &mut self.state {
            State::Open(_, told) => told.try_recv().ok(),
            _ => None,
        }
    }

    /// The next part; `None` after the last one. The lane answers every call, so no part is missing then.
    async fn wait(&mut self) -> Result<Option<Arrival>, Elapsed> {
        match &mut self.state {
            State::Open(_, told) => self.shared.env.timeout(self.shared.call_wait, told.recv()).await,
            _ => Ok(None),
        }
    }

    /// Ends the stream. Dropping its call cancels it at the server.
    fn fail(&mut self, kind: ErrorKind, message: String) -> ServiceResult<Option<RowBatch>> {
        self.state = State::Ended;
        Err(ServiceError::new(kind, message))
    }

    /// Lets the server read the next batch while the reader has this one.
    fn read_ahead(&mut self) {
        self.ahead = None;
        let State::Open(started, _) = &self.state else {
            return;
        };
        if self.batches < 2 {
            return;
        }
        let reserved = self.shared.readahead.try_reserve(BATCH_BYTES);
        if let Some(reserved) = reserved.filter(|reserved| reserved.counted() >= BATCH_BYTES) {
            grant(started, BATCH_BYTES as u64);
            self.ahead = Some(reserved);
        }
    }
}

/// Raises the credit of a stream to `bytes`.
fn grant(started: &Started, bytes: u64) {
    let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
    let missing = wanted.saturating_sub(started.lane().credit(started.call));
    if let Ok(missing @ 1..) = u64::try_from(missing) {
        started.lane().grant(started.call, missing);
    }
}

#[async_trait]
impl RowStream for RemoteRows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        self.next_batch(None).await
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        self.next_batch(Some(room)).await
    }
}
