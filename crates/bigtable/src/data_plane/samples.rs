//! Handlers of SampleRowKeys and PingAndWarm.

use crate::accounting::Call;
use crate::context::Context;
use crate::names::{InstanceName, addressed_table};
use crate::pb::v2;
use crate::ranges;
use crate::response::Response;
use crate::status::{invalid, status};
use crate::wire;
use stele_client::RowSample;
use stele_types::RowRange;
use tonic::Status;

/// Serves a SampleRowKeys call.
pub(crate) async fn sample_row_keys(
    context: &Context,
    call: &Call,
    request: wire::SampleRowKeysRequest,
) -> Result<Response, Status> {
    let table = addressed_table(
        &request.table_name,
        &request.authorized_view_name,
        &request.materialized_view_name,
    )?;
    context.schema(&table)?;
    let range = match request.row_range {
        Some(range) => ranges::row_range(range).map_err(|reason| invalid(format!("row_range: {reason}")))?,
        None => RowRange::all(),
    };
    let end = range.end.clone().unwrap_or_default();
    let samples = context
        .service
        .sample_row_keys(&table.name, range)
        .await
        .map_err(status)?;
    let bytes = |sample: &RowSample| size_of::<RowSample>() + sample.row.len();
    call.charge(samples.iter().map(bytes).sum())?;
    Ok(Response::stream(samples.into_iter().map(move |sample| {
        v2::SampleRowKeysResponse {
            // The last sample is the end of the requested range.
            row_key: if sample.row.is_empty() { end.clone() } else { sample.row },
            offset_bytes: i64::try_from(sample.offset_bytes).unwrap_or(i64::MAX),
        }
    })))
}

/// Serves a PingAndWarm call. There is nothing to warm up.
pub(crate) async fn ping_and_warm(
    _: &Context,
    _: &Call,
    request: v2::PingAndWarmRequest,
) -> Result<v2::PingAndWarmResponse, Status> {
    InstanceName::parse(&request.name)?;
    Ok(v2::PingAndWarmResponse {})
}
