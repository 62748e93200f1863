//! A stream of rows to a caller, batch by batch.

use super::Shared;
use super::room::Room;
use crate::credit::Credit;
use crate::limits::CREDIT_EXCESS_BYTES;
use crate::origin::Note;
use crate::rows;
use crate::segments::Segments;
use crate::traced;
use std::pin::pin;
use std::sync::Arc;
use stele_client::{RowStream, ServiceResult, TabletRead};
use stele_env::trace::{self, Trace};
use stele_env::work::{Work, counted_on};
use stele_memory::Reservation;
use stele_types::TabletId;

/// A read that runs.
pub(super) struct Rows {
    pub shared: Arc<Shared>,
    pub tablet: TabletId,
    pub credit: Arc<Credit>,
    pub takes_partial_rows: bool,
    /// Not opened yet, or open.
    pub state: State,
    /// Memory of the request.
    pub memory: Reservation,
    /// Written when it is known whether the read begins.
    pub note: Option<Note>,
    /// Of the whole read, if it is sampled.
    pub trace: Option<Trace>,
    /// Of the whole read, if the caller wants to know it.
    pub work: Option<Work>,
}

/// How far a read has come.
pub(super) enum State {
    Requested(TabletRead),
    Open(Box<dyn RowStream>),
}

/// A batch for the caller.
pub(super) struct Batch {
    pub body: Segments,
    /// Complete ones.
    pub rows: u64,
    /// Held until it is sent.
    pub memory: Option<Reservation>,
}

impl Rows {
    /// The next batch, or `None` at the end; and the stream, to go on with.
    pub async fn next(mut self) -> (Rows, ServiceResult<Option<Batch>>) {
        let trace = self.trace.take();
        let mut work = self.work.take();
        let next = {
            let mut batch = pin!(self.batch());
            let batch = trace::within(trace.as_ref(), batch.as_mut());
            match &mut work {
                None => batch.await,
                Some(work) => {
                    let (next, done) = counted_on(std::mem::take(work), batch).await;
                    *work = done;
                    next
                }
            }
        };
        self.work = work;
        if let Some(trace) = &trace {
            match &next {
                Ok(Some(batch)) => trace.note(|facts| {
                    facts.rows += batch.rows;
                    facts.response_bytes += batch.body.len() as u64;
                }),
                Ok(None) => traced::conclude(trace, None),
                Err(error) => traced::conclude(trace, Some(error.kind)),
            }
        }
        self.trace = trace;
        (self, next)
    }

    async fn batch(&mut self) -> ServiceResult<Option<Batch>> {
        let mut room = Room::wait(&self.shared, &self.credit, self.takes_partial_rows).await?;
        let batch = self.stream().await?.next_within(&mut room).await?;
        let Some(batch) = batch else {
            return Ok(None);
        };
        let body = rows::encode(&batch);
        // Rows that were read without regard to the reservation, or that are larger encoded than in memory.
        if body.len() > self.credit.left().saturating_add(CREDIT_EXCESS_BYTES) {
            room.credited(body.len(), true).await?;
        }
        self.credit.spend();
        Ok(Some(Batch {
            rows: batch.complete_rows() as u64,
            body,
            memory: room.into_reservation(),
        }))
    }

    async fn stream(&mut self) -> ServiceResult<&mut Box<dyn RowStream>> {
        if let State::Requested(read) = &self.state {
            let opened = self.shared.tablets.read(self.tablet, read.clone()).await;
            if let Some(note) = self.note.take() {
                note.write(opened.as_ref().err().map(|error| error.message.as_str()));
            }
            self.state = State::Open(opened?);
        }
        match &mut self.state {
            State::Open(stream) => Ok(stream),
            State::Requested(_) => unreachable!("it was opened above"),
        }
    }
}
