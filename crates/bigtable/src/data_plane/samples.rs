//! Handlers of SampleRowKeys and PingAndWarm.

use crate::accounting::Call;
use crate::context::Context;
use crate::names::InstanceName;
use crate::pb::v2;
use crate::ranges;
use crate::response::Response;
use crate::scope::Addressed;
use crate::status::{invalid, status};
use crate::wire;
use stele_client::RowSample;
use stele_types::{RowRange, RowSet};
use tonic::Status;

/// Serves a SampleRowKeys call.
pub(crate) async fn sample_row_keys(
    context: &Context,
    call: &Call,
    request: wire::SampleRowKeysRequest,
) -> Result<Response, Status> {
    let addressed = Addressed::parse(
        &request.table_name,
        &request.authorized_view_name,
        &request.materialized_view_name,
    )?;
    let scope = addressed.scope(context)?;
    let range = match request.row_range {
        Some(range) => ranges::row_range(range).map_err(|reason| invalid(format!("row_range: {reason}")))?,
        None => RowRange::all(),
    };
    let mut samples: Vec<RowSample> = Vec::new();
    for range in scope.rows(RowSet::new(vec![range])).into_ranges() {
        let before = samples.last().map_or(0, |sample| sample.offset_bytes);
        let end = range.end.clone().unwrap_or_default();
        let found = scope.service.sample_row_keys(&scope.table.name, range).await;
        samples.extend(found.map_err(status)?.into_iter().map(|sample| RowSample {
            // The last sample is the end of the range.
            row: if sample.row.is_empty() { end.clone() } else { sample.row },
            offset_bytes: before.saturating_add(sample.offset_bytes),
        }));
    }
    let bytes = |sample: &RowSample| size_of::<RowSample>() + sample.row.len();
    call.charge(samples.iter().map(bytes).sum())?;
    Ok(Response::stream(samples.into_iter().map(|sample| {
        v2::SampleRowKeysResponse {
            row_key: sample.row,
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
