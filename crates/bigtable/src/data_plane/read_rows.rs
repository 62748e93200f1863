//! The handler of ReadRows, whose response reads on while it is sent.

use crate::accounting::Call;
use crate::context::Context;
use crate::features::Client;
use crate::messages::decode;
use crate::reads::{self, Responses, Rows};
use crate::response::{Read, Response};
use crate::scope::{Addressed, Scope};
use crate::size_estimate::SizeEstimate;
use crate::status::status;
use crate::wire::ReadRowsRequest;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Serves a ReadRows call.
pub(crate) async fn read_rows(
    context: &Arc<Context>,
    call: &Call,
    bytes: Bytes,
    client: Client,
    deadline: Option<Duration>,
) -> Result<Response, Status> {
    call.charge(SizeEstimate::of::<ReadRowsRequest>(&bytes)?.cost())?;
    let request: ReadRowsRequest = decode(bytes)?;
    let addressed = Addressed::parse(
        &request.table_name,
        &request.authorized_view_name,
        &request.materialized_view_name,
    )?;
    let scope = addressed.scope(context)?;
    let (mut read, mut options) = reads::read(scope.table.name.clone(), &scope.schema, request, client)?;
    scope.narrow(&mut read);
    options.narrowed = scope.is_view();
    let Scope { schema, service, .. } = scope;
    call.charge(read.filter.as_ref().map_or(0, |filter| filter.automata_bytes()))?;
    // Reserved before the read begins, because beginning may read a batch.
    let mut reservation = if options.one_row {
        context.response_memory.no_reservation()
    } else {
        context.response_memory.for_batch().await?
    };
    let rows = match service.try_read_row(&read).map_err(status)? {
        Some(batch) => Rows::Batch(Some(batch)),
        None => {
            read.waits = true;
            if options.one_row {
                reservation = context.response_memory.for_row().await?;
            }
            Rows::Stream(service.read_rows(read).await.map_err(status)?)
        }
    };
    let memory = (context.response_memory.clone(), reservation);
    let mut responses = Responses::new(rows, schema, options, context.env.clone(), memory);
    responses.begin().await?;
    Ok(if responses.is_small() {
        Response::Whole(responses.ready)
    } else {
        Response::Read(Read::new(context, responses, deadline))
    })
}
