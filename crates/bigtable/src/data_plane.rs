//! ReadRows, MutateRow and MutateRows: nearly every request is one of them, and what surrounds it is most of its cost.
//! They are served from the bytes of the request to the bytes of the answer, without the generated stubs, the general
//! codec and the general router.
//!
//! What a call is from outside does not differ: the same checks in the same order, the same words, the same accounts.
//! Large writes are carried out to their end though their caller goes away ([`crate::accounting::carry_out`] says why).

use crate::accounting::{Call, stopped};
use crate::context::Context;
use crate::features::Client;
use crate::limits::{CARRIED_OUT_BYTES_MIN, FLAT_MUTATION_COST, FLAT_MUTATIONS_FREE};
use crate::messages::{check_encoding, message, time_limit};
use crate::mutations::{Resolver, check_mutation_count, no_mutations};
use crate::names::addressed_table;
use crate::outcomes::{self, Outcome};
use crate::reads::response_buffer::{Next, ResponseBuffer, deadline_exceeded};
use crate::reads::{self, Responses, Rows};
use crate::response_memory::Registered;
use crate::size_estimate::{Estimated, SizeEstimate};
use crate::status::{not_found, status};
use crate::wire;
use crate::zero_copy;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;
use stele_client::MutateRows;
use stele_env::{Env, Priority};
use stele_types::{RowMutation, RowWrites, TableId, TableName, TableSchema};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, http};

/// The calls served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hot {
    ReadRows,
    MutateRow,
    MutateRows,
}

impl Hot {
    pub const PATHS: [(&'static str, Hot); 3] = [
        ("/google.bigtable.v2.Bigtable/ReadRows", Hot::ReadRows),
        ("/google.bigtable.v2.Bigtable/MutateRow", Hot::MutateRow),
        ("/google.bigtable.v2.Bigtable/MutateRows", Hot::MutateRows),
    ];

    /// The call of this path, if it is one of them.
    pub fn of(path: &str) -> Option<Hot> {
        Self::PATHS
            .iter()
            .find(|(known, _)| *known == path)
            .map(|(_, hot)| *hot)
    }

    /// Serves a call.
    pub async fn serve(self, context: Arc<Context>, call: Call, request: http::Request<Body>) -> http::Response<Body> {
        let (head, body) = request.into_parts();
        let headers = head.headers;
        let (call, answer) = match arrived(&call, &headers, body).await {
            Ok(bytes) if self.is_carried_out(&bytes) => {
                // Boxed, or all other calls would carry its size.
                match Box::pin(self.carry_out(context, call, headers, bytes)).await {
                    Some(done) => done,
                    // The call with it.
                    None => return stopped().into_http(),
                }
            }
            Ok(bytes) => {
                let answer = self.answer(&context, &call, &headers, bytes).await;
                (call, answer)
            }
            Err(status) => (call, Err(status)),
        };
        match answer {
            Ok(answer) => {
                let mut response = http::Response::new(Body::new(AnswerBody { answer, call }));
                response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
                response
            }
            Err(status) => {
                call.conclude(status.code());
                status.into_http()
            }
        }
    }

    /// Whether the caller may go away and the call goes on.
    fn is_carried_out(self, bytes: &Bytes) -> bool {
        self != Hot::ReadRows && bytes.len() >= CARRIED_OUT_BYTES_MIN
    }

    /// ResponseMemory a call in a task that has it, accounts and all; `None` when the runtime ends.
    async fn carry_out(
        self,
        context: Arc<Context>,
        call: Call,
        headers: http::HeaderMap,
        bytes: Bytes,
    ) -> Option<(Call, Result<Answer, Status>)> {
        let env = context.env.clone();
        let task = async move {
            let answer = self.answer(&context, &call, &headers, bytes).await;
            (call, answer)
        };
        env.spawn_join(Priority::Foreground, "large write", task).await.ok()
    }

    async fn answer(
        self,
        context: &Arc<Context>,
        call: &Call,
        headers: &http::HeaderMap,
        bytes: Bytes,
    ) -> Result<Answer, Status> {
        match self {
            Hot::ReadRows => {
                let deadline = time_limit(headers).map(|limit| call.started().saturating_add(limit));
                read_rows(context, call, bytes, Client::of(headers), deadline).await
            }
            Hot::MutateRow => {
                let (table, rows) = one_row(context, call, bytes)?;
                let results = write(context, table, rows).await?;
                results.into_iter().next().unwrap_or_else(|| Err(outcomes::missing()))?;
                Ok(Answer::Whole([EMPTY_MESSAGE].into()))
            }
            Hot::MutateRows => mutate_rows(context, call, bytes).await,
        }
    }
}

/// The message of a call's request.
async fn arrived(call: &Call, headers: &http::HeaderMap, body: Body) -> Result<Bytes, Status> {
    check_encoding(headers)?;
    message(&mut call.counted(body)).await
}

const GRPC: http::HeaderValue = http::HeaderValue::from_static("application/grpc");

/// A message without fields behind its prefix.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

/// Bytes of a request up to which it may be the smaller part of the buffer it arrived in: a socket is read some ten
/// kilobytes at a time, and larger messages have their buffers mostly to themselves.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Decodes a request, once it is known what that takes.
fn decoded<M: Estimated>(call: &Call, bytes: Bytes) -> Result<M, Status> {
    call.charge(SizeEstimate::of::<M>(&bytes)?.cost())?;
    // As tonic says it.
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// Takes account of rows that were laid flat.
fn charge_flat(call: &Call, rows: &RowWrites) -> Result<(), Status> {
    match rows.mutations() {
        few if few <= FLAT_MUTATIONS_FREE => Ok(()),
        many => call.charge(many.saturating_mul(FLAT_MUTATION_COST)),
    }
}

async fn read_rows(
    context: &Arc<Context>,
    call: &Call,
    bytes: Bytes,
    client: Client,
    deadline: Option<Duration>,
) -> Result<Answer, Status> {
    // A scan may go on for long, and what it keeps of its request must not keep what arrived together with it.
    let bytes = if bytes.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(&bytes)
    } else {
        bytes
    };
    let request: wire::ReadRowsRequest = decoded(call, bytes)?;
    let table = addressed_table(
        &request.table_name,
        &request.authorized_view_name,
        &request.materialized_view_name,
    )?;
    let schema = context.schema(&table)?;
    let (mut read, options) = reads::read(table.name, &schema, request, client)?;
    call.charge(read.filter.as_ref().map_or(0, |filter| filter.automata_bytes()))?;
    // Before the read begins: beginning may read a batch already.
    let mut reservation = match options.one_row {
        true => context.response_memory.no_reservation(),
        false => {
            let reservation = context.response_memory.for_batch().await?;
            check_same(context, &schema)?;
            reservation
        }
    };
    let rows = match context.service.try_read_row(&read).map_err(status)? {
        Some(batch) => Rows::Batch(Some(batch)),
        None => {
            read.waits = true;
            if options.one_row {
                reservation = context.response_memory.for_row().await?;
                check_same(context, &schema)?;
            }
            Rows::Stream(context.service.read_rows(read).await.map_err(status)?)
        }
    };
    let mut responses = Responses::new(
        rows,
        schema,
        options,
        context.env.clone(),
        (context.response_memory.clone(), reservation),
    );
    responses.begin().await?;
    Ok(if responses.is_small() {
        Answer::Whole(responses.ready)
    } else {
        Answer::Read(Read::new(context, responses, deadline))
    })
}

/// Refuses to go on with a table that was made anew while the request waited for room, which may take seconds: its families have
/// the numbers of those that the answer would name.
fn check_same(context: &Context, schema: &TableSchema) -> Result<(), Status> {
    let now = context.service.schema(&schema.name).map_err(status)?;
    match now.id == schema.id {
        true => Ok(()),
        false => Err(not_found(format!(
            "table {} was dropped and made anew during the request",
            schema.name
        ))),
    }
}

/// A table, and the one that had the name when families were looked up.
type Addressed = (TableName, TableId);

/// The row of a MutateRowRequest.
fn one_row(context: &Context, call: &Call, bytes: Bytes) -> Result<(Addressed, RowWrites), Status> {
    if let Some(head) = zero_copy::mutate_row_head(&bytes)
        && let Ok(table) = addressed_table(head.table_name, "", "")
        && let Ok(schema) = context.schema(&table)
        && let Some(rows) = zero_copy::mutate_row(&bytes, &resolver(context, &schema))
    {
        charge_flat(call, &rows)?;
        return Ok(((table.name, schema.id), rows));
    }
    let request: wire::MutateRowRequest = decoded(call, bytes)?;
    let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
    check_mutation_count(request.mutations.len())?;
    let schema = context.schema(&table)?;
    let row = resolver(context, &schema).row(request.row_key, request.mutations)?;
    Ok(((table.name, schema.id), vec![row].into()))
}

async fn mutate_rows(context: &Context, call: &Call, bytes: Bytes) -> Result<Answer, Status> {
    if let Some(head) = zero_copy::mutate_rows_head(&bytes)
        && let Ok(table) = addressed_table(head.table_name, "", "")
        && let Ok(schema) = context.schema(&table)
        && let Some(rows) = zero_copy::mutate_rows(&bytes, &resolver(context, &schema))
    {
        charge_flat(call, &rows)?;
        let results = write(context, (table.name, schema.id), rows).await?;
        return Ok(Answer::Whole(outcomes::messages(&results)?));
    }
    let request: wire::MutateRowsRequest = decoded(call, bytes)?;
    let (table, rows, mut results) = checked_rows(context, request)?;
    let mut written = write(context, table, rows.into()).await?.into_iter();
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = written.next().unwrap_or_else(|| Err(outcomes::missing()));
    }
    Ok(Answer::Whole(outcomes::messages(&results)?))
}

/// The good rows of a request, and what is wrong with the others: one result for each entry.
fn checked_rows(
    context: &Context,
    request: wire::MutateRowsRequest,
) -> Result<(Addressed, Vec<RowMutation>, Vec<Outcome>), Status> {
    let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
    let count = request.entries.iter().map(|entry| entry.mutations.len()).sum();
    check_mutation_count(count)?;
    if count == 0 {
        return Err(no_mutations());
    }
    let schema = context.schema(&table)?;
    let resolver = resolver(context, &schema);
    let mut rows = Vec::with_capacity(request.entries.len());
    let mut outcomes = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        let row = resolver.row(entry.row_key, entry.mutations);
        let outcome = row.map(|row| rows.push(row));
        outcomes.push(outcome.map_err(|refusal| outcomes::kept(&refusal)));
    }
    Ok(((table.name, schema.id), rows, outcomes))
}

fn resolver<'s>(context: &Context, schema: &'s TableSchema) -> Resolver<'s> {
    Resolver::new(schema, context.env.wall_micros())
}

/// Writes rows, if any; one result for each.
async fn write(context: &Context, (table, id): Addressed, rows: RowWrites) -> Result<Vec<Outcome>, Status> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let request = MutateRows {
        table,
        id: Some(id),
        rows,
        durability: None,
    };
    let results = context.service.mutate_rows(request).await.map_err(status)?;
    Ok(results.into_iter().map(|result| result.map_err(status)).collect())
}

/// What is sent back.
enum Answer {
    /// These pieces of messages, then the status OK.
    Whole(VecDeque<Bytes>),
    Read(Read),
    Ended,
}

/// A read whose answer takes room, or goes on while it is sent.
struct Read {
    buffer: Arc<ResponseBuffer>,
    /// Until there is something to send.
    filling: Option<BoxFuture<Box<Responses>, Status>>,
    deadline: Option<Duration>,
    env: Env,
    _registered: Registered,
}

impl Read {
    fn new(context: &Context, responses: Responses, deadline: Option<Duration>) -> Self {
        let env = context.env.clone();
        let buffer = Arc::new(ResponseBuffer::new(Box::new(responses), deadline, env.now()));
        let weak = Arc::downgrade(&buffer);
        Read {
            buffer,
            filling: None,
            deadline,
            env,
            _registered: context.response_memory.register(weak),
        }
    }

    /// What comes next; never [`Next::Read`].
    fn poll_next(&mut self, context: &mut task::Context<'_>) -> Poll<Next> {
        loop {
            if let Some(filling) = &mut self.filling {
                let filled = ready!(filling.as_mut().poll(context));
                self.filling = None;
                match filled {
                    Ok(responses) => self.buffer.put(responses, self.env.now()),
                    Err(status) => return Poll::Ready(Next::End(status)),
                }
            }
            match self.buffer.take(self.env.now()) {
                Next::Read(responses) => self.filling = Some(fill(responses, self.deadline, self.env.clone())),
                next => return Poll::Ready(next),
            }
        }
    }
}

/// Makes more of an answer, for no longer than its client waits.
fn fill(mut responses: Box<Responses>, deadline: Option<Duration>, env: Env) -> BoxFuture<Box<Responses>, Status> {
    Box::pin(async move {
        match deadline {
            None => responses.fill().await?,
            Some(deadline) => {
                let left = deadline.saturating_sub(env.now());
                let filled = env.timeout(left, responses.fill()).await;
                filled.map_err(|_| deadline_exceeded())??;
            }
        }
        Ok(responses)
    })
}

/// The body of an answer. A call lasts until its body is dropped.
struct AnswerBody {
    answer: Answer,
    call: Call,
}

impl AnswerBody {
    /// The last frame.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.answer = Answer::Ended;
        self.call.conclude(status.code());
        let mut trailers = http::HeaderMap::with_capacity(1);
        if status.add_header(&mut trailers).is_err() {
            // Its details are not fit for a header; its code always is.
            trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from(status.code() as i32));
        }
        Frame::trailers(trailers)
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let next = match &mut this.answer {
            Answer::Ended => return Poll::Ready(None),
            Answer::Whole(pieces) => pieces.pop_front().map_or(Next::End(Status::ok("")), Next::Piece),
            Answer::Read(read) => ready!(read.poll_next(context)),
        };
        Poll::Ready(Some(match next {
            Next::Piece(piece) => Ok(Frame::data(piece)),
            Next::End(status) => Ok(this.end(&status)),
            Next::Reset(status) => {
                this.answer = Answer::Ended;
                this.call.conclude(status.code());
                Err(status)
            }
            // Taken up where it comes from.
            Next::Read(_) => Err(Status::internal("an answer is lost")),
        }))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.answer, Answer::Ended)
    }
}
