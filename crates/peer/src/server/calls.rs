//! One call of a caller, from its frame to its answer.

use super::rows::{Batch, Rows, State};
use super::{Caller, Shared};
use crate::credit::{Credit, Needs};
use crate::cursor::Decoded;
use crate::frame::{Encoded, Frame, FrameKind, LAST, OUTCOME_UNKNOWN, WORK};
use crate::messages::{self, CallHeader, CallKind};
use crate::origin::{Note, decode_caller};
use crate::rows;
use crate::segments::Segments;
use crate::traced::{self, decode_trace};
use crate::worked::encode_work;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult, TabletRead};
use stele_env::trace::{self, Trace};
use stele_env::work::Work;
use stele_memory::Reservation;
use stele_types::{ErrorKind, RowRange};

/// A step of a call that has come to its end.
pub(super) enum Done {
    /// The call has its answer.
    Answered(Answer),
    /// A stream has a batch, and goes on.
    Batch(u64, Box<Rows>, Batch),
}

/// The last frame of a call.
pub(super) struct Answer {
    pub frame: Encoded,
    /// Held until the frame is sent.
    pub memory: Option<Reservation>,
    pub call: u64,
}

/// A call to be polled.
pub(super) type Step = BoxFuture<'static, Done>;

/// A call that has begun.
pub(super) enum Started {
    /// It is ready already.
    Answered(Answer),
    /// It runs; a stream has credit.
    Running(Step, Option<Arc<Credit>>),
}

/// Bytes of a decoded range of rows.
const RANGE_BYTES: usize = size_of::<RowRange>();

/// Begins a call. A request that cannot be decoded is the caller's fault, and ends the connection.
pub(super) fn start(
    shared: &Arc<Shared>,
    caller: &Caller,
    needs: &Needs,
    frame: Frame,
    memory: Reservation,
) -> Decoded<Started> {
    let header = CallHeader::decode(frame.header)?;
    let (call, body) = (frame.call, frame.body);
    let (carried, body) = match header.has_trace {
        false => (None, body),
        true => decode_trace(body).map(|(carried, body)| (Some(carried), body))?,
    };
    let (named, body) = match header.has_caller {
        false => (None, body),
        true => decode_caller(body).map(|(named, body)| (Some(named), body))?,
    };
    let origin = caller.origin(named);
    let kind = match header.kind {
        Ok(kind) => kind,
        Err(number) => {
            let message = format!("the server does not know calls of kind {number}");
            let error = ServiceError::new(ErrorKind::Unimplemented, message);
            return Ok(Started::Answered(failed(call, &error)));
        }
    };
    let tablets = Arc::clone(&shared.tablets);
    let tablet = header.tablet;
    let trace = traced::begin(&shared.env, kind, tablet, carried);
    let note = |operation| Note::new(caller.forwarded.as_ref(), &origin, operation, tablet);
    Ok(match kind {
        CallKind::Read => {
            let read = messages::decode_read(body)?;
            let credit = Credit::new(call, header.credit, Arc::clone(needs));
            start_read(shared, credit, &header, (call, read, note("read"), trace), memory)
        }
        CallKind::Mutate | CallKind::TimedMutate => {
            let (rows, durability) = match kind {
                CallKind::TimedMutate => messages::decode_timed_mutate(body)?,
                _ => messages::decode_mutate(body)?,
            };
            if let Some(trace) = &trace {
                trace.note(|facts| facts.rows = rows.len() as u64);
            }
            let answer = async move {
                let done = tablets.mutate(tablet, rows, durability).await;
                done.map(|()| Segments::default())
            };
            unary(shared, (call, trace), &header, noting(note("mutate"), answer), memory)
        }
        CallKind::RowOperation | CallKind::TestedRowOperation => {
            let request = match kind {
                CallKind::RowOperation => messages::decode_row_operation(body)?,
                _ => messages::decode_tested_row_operation(body)?,
            };
            let answer = async move {
                let outcome = tablets.row_operation(tablet, request).await?;
                Ok(messages::encode_outcome(&outcome))
            };
            unary(
                shared,
                (call, trace),
                &header,
                noting(note("row_operation"), answer),
                memory,
            )
        }
        CallKind::RowsOperation => {
            let request = messages::decode_rows_operation(body)?;
            let answer = async move {
                let held = tablets.rows_operation(tablet, request).await?;
                Ok(messages::encode_held(held))
            };
            unary(shared, (call, trace), &header, answer, memory)
        }
        CallKind::Control => {
            let control = Arc::clone(&caller.control);
            let answer = async move {
                let answer = control.control(origin, body).await?;
                Ok(messages::encode_control(&answer))
            };
            unary(shared, (call, trace), &header, answer, memory)
        }
        CallKind::Sample => {
            let every = messages::decode_sample_request(body)?;
            let answer = async move {
                let sample = tablets.sample(tablet, every).await?;
                Ok(messages::encode_sample(&sample))
            };
            unary(shared, (call, trace), &header, answer, memory)
        }
        CallKind::Figures => {
            messages::decode_figures_request(body)?;
            let answer = async move { Ok(messages::encode_figures(&tablets.figures(tablet).await?)) };
            unary(shared, (call, trace), &header, answer, memory)
        }
    })
}

/// An answer that is written to the audit log. One that is not waited for to its end is not.
async fn noting<T>(note: Option<Note>, answer: impl Future<Output = ServiceResult<T>>) -> ServiceResult<T> {
    let answered = answer.await;
    if let Some(note) = note {
        note.write(answered.as_ref().err().map(|error| error.message.as_str()));
    }
    answered
}

/// A call with one answer, which is ended at its deadline.
fn unary(
    shared: &Arc<Shared>,
    (call, trace): (u64, Option<Trace>),
    header: &CallHeader,
    answer: impl Future<Output = ServiceResult<Segments>> + Send + 'static,
    memory: Reservation,
) -> Started {
    let env = shared.env.clone();
    let (left, writes) = (header.left, header.kind.is_ok_and(CallKind::writes));
    let step = async move {
        let mut answer = pin!(answer);
        let answer = traced::until_answered(trace.as_ref(), answer.as_mut());
        let answered = match left {
            None => Ok(answer.await),
            Some(left) => env.timeout(left, answer).await,
        };
        Done::Answered(match answered {
            Ok(Ok(body)) => respond(call, body, memory),
            Ok(Err(error)) => failed(call, &error),
            Err(_) => late(call, left, writes),
        })
    };
    Started::Running(Box::pin(step), None)
}

/// A read. One of a row that is in memory is answered without a stream.
fn start_read(
    shared: &Arc<Shared>,
    credit: Credit,
    header: &CallHeader,
    (call, mut read, mut note, trace): (u64, TabletRead, Option<Note>, Option<Trace>),
    memory: Reservation,
) -> Started {
    let tablet = header.tablet;
    if memory.grow(read.rows.ranges().len() * RANGE_BYTES).is_err() {
        let error = ServiceError::new(ErrorKind::Busy, "the server has no memory for the ranges of a read");
        return Started::Answered(failed(call, &error));
    }
    let entered = trace::enter(trace.as_ref());
    if !header.tells_work
        && let Some(answer) = try_read(shared, call, header, (&mut read, &mut note))
    {
        return Started::Answered(answer);
    }
    drop(entered);
    let credit = Arc::new(credit);
    let rows = Rows {
        shared: Arc::clone(shared),
        tablet,
        credit: Arc::clone(&credit),
        takes_partial_rows: header.takes_partial_rows,
        state: State::Requested(read),
        memory,
        note,
        trace,
        work: header.tells_work.then(Work::default),
    };
    Started::Running(go_on(call, Box::new(rows), header.left), Some(credit))
}

/// The answer of a read of one row that need not wait.
fn try_read(
    shared: &Shared,
    call: u64,
    header: &CallHeader,
    (read, note): (&mut TabletRead, &mut Option<Note>),
) -> Option<Answer> {
    let row = match read.rows.ranges() {
        [range] if !read.raw && !read.waits && read.rows_limit != Some(0) => range.as_single()?,
        _ => return None,
    };
    let found = shared.tablets.try_read_row(header.tablet, row, read.filter.as_ref());
    let credit = usize::try_from(header.credit).unwrap_or(usize::MAX);
    match found.map(|batch| batch.map(|batch| rows::encode(&batch))) {
        Ok(Some(body)) if body.len() <= credit => {
            trace::note(|facts| (facts.outcome, facts.response_bytes) = ("ok", body.len() as u64));
            if let Some(note) = note.take() {
                note.write(None);
            }
            Some(rows_frame(call, LAST, body, None))
        }
        // It waits for storage, or for the caller's memory.
        Ok(_) => {
            read.waits = true;
            None
        }
        Err(error) => {
            trace::note(|facts| facts.outcome = error.kind.name());
            if let Some(note) = note.take() {
                note.write(Some(&error.message));
            }
            Some(failed(call, &error))
        }
    }
}

/// The next step of a stream. The deadline, if there is one, is that of the first batch: the caller decides how long it reads.
pub(super) fn go_on(call: u64, rows: Box<Rows>, left: Option<Duration>) -> Step {
    let env = rows.shared.env.clone();
    Box::pin(async move {
        let next = match left {
            None => Ok(rows.next().await),
            Some(left) => env.timeout(left, rows.next()).await,
        };
        let (rows, next) = match next {
            Ok((rows, next)) => (rows, next),
            Err(_) => return Done::Answered(late(call, left, false)),
        };
        match next {
            Ok(Some(batch)) => Done::Batch(call, Box::new(rows), batch),
            Ok(None) => {
                let (flags, body) = match &rows.work {
                    Some(work) => (LAST | WORK, encode_work(work)),
                    None => (LAST, Segments::default()),
                };
                Done::Answered(rows_frame(call, flags, body, Some(rows.memory)))
            }
            Err(error) => Done::Answered(failed(call, &error)),
        }
    })
}

/// A frame of rows. One that is longer than frames may be fails the call.
pub(super) fn rows_frame(call: u64, flags: u8, body: Segments, memory: Option<Reservation>) -> Answer {
    match Encoded::new(FrameKind::Rows, flags, call, &[], body) {
        Some(frame) => Answer { frame, memory, call },
        None => failed(call, &too_long()),
    }
}

/// A response, whose memory counts with its request's.
fn respond(call: u64, body: Segments, memory: Reservation) -> Answer {
    let _ = memory.grow(body.copied());
    match Encoded::new(FrameKind::Response, 0, call, &[], body) {
        Some(frame) => Answer {
            frame,
            memory: Some(memory),
            call,
        },
        None => failed(call, &too_long()),
    }
}

fn too_long() -> ServiceError {
    ServiceError::new(ErrorKind::ResourceExhausted, "the answer is longer than a frame may be")
}

/// The error of a call.
pub(super) fn failed(call: u64, error: &ServiceError) -> Answer {
    error_frame(call, error, 0)
}

fn error_frame(call: u64, error: &ServiceError, flags: u8) -> Answer {
    let (header, body) = messages::encode_error(error);
    let frame = Encoded::new(FrameKind::Error, flags, call, &header, body).expect("a message is short");
    Answer {
        frame,
        memory: None,
        call,
    }
}

/// The deadline of a call has passed while it ran.
fn late(call: u64, left: Option<Duration>, writes: bool) -> Answer {
    let (kind, flags) = match writes {
        true => (ErrorKind::Aborted, OUTCOME_UNKNOWN),
        false => (ErrorKind::Busy, 0),
    };
    let message = format!("the call was not done within {:?}", left.unwrap_or_default());
    error_frame(call, &ServiceError::new(kind, message), flags)
}
