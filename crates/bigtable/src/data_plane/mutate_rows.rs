//! Handlers of MutateRow and MutateRows: they decode the request and return each row's outcome.
//!
//! The zero-copy decoder reads nearly all requests ([`crate::zero_copy`]). Others are decoded by prost, which costs
//! more and names the mistake in the request.

use super::once::{self, Once};
use super::resolver;
use crate::accounting::Call;
use crate::context::Context;
use crate::limits::{ZERO_COPY_MUTATION_COST, ZERO_COPY_MUTATIONS_FREE};
use crate::mutations::{check_mutation_count, no_mutations};
use crate::outcomes::{self, Outcome};
use crate::response::Response;
use crate::scope::{Addressed, Scope};
use crate::size_estimate::{Estimated, SizeEstimate};
use crate::status::{not_decoded, status};
use crate::{wire, zero_copy};
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{MutateRows, TableService};
use stele_types::{RequestToken, RowMutation, RowWrites, ServerTime, TableId, TableName};
use tonic::Status;

/// A message without fields, behind its prefix.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

/// Serves a MutateRow call.
pub(crate) async fn mutate_row(context: &Context, call: &Call, bytes: Bytes) -> Result<Response, Status> {
    match one_row(context, call, bytes)? {
        (target, Row::Plain(rows)) => {
            let results = write(target, rows).await?;
            results.into_iter().next().unwrap_or_else(|| Err(outcomes::missing()))?;
        }
        (target, Row::Once(entry)) => once::apply_one(&target, entry).await?,
    }
    Ok(Response::Whole([EMPTY_MESSAGE].into()))
}

/// Serves a MutateRows call.
pub(crate) async fn mutate_rows(context: &Context, call: &Call, bytes: Bytes) -> Result<Response, Status> {
    if let Some(head) = zero_copy::mutate_rows_head(&bytes)
        && let Ok(scope) = scope_of(context, head.table_name)
        && let Some(rows) = zero_copy::mutate_rows(&bytes, &resolver(context, &scope.schema))
    {
        charge_zero_copy(call, &rows)?;
        let results = write(Target::of(scope), rows).await?;
        return Ok(Response::Whole(outcomes::messages(&results)?));
    }
    let request: wire::MutateRowsRequest = decoded(call, bytes)?;
    let (target, checked) = checked_rows(context, call, request)?;
    let applied = once::apply(&target, checked.once).await;
    let plain = RowWrites::from(checked.plain).with_server_time(checked.server_time);
    let written = write(target, plain).await?;
    let (mut applied, mut written) = (applied.into_iter(), written.into_iter());
    let results: Vec<Outcome> = checked
        .entries
        .into_iter()
        .map(|entry| {
            let results = match entry? {
                Kind::Plain => &mut written,
                Kind::Once => &mut applied,
            };
            results.next().unwrap_or_else(|| Err(outcomes::missing()))
        })
        .collect();
    Ok(Response::Whole(outcomes::messages(&results)?))
}

/// The whole table of a request that names no view.
fn scope_of(context: &Context, table: &str) -> Result<Scope, Status> {
    Addressed::parse(table, "", "")?.scope(context)
}

/// The row of a MutateRowRequest.
enum Row {
    Plain(RowWrites),
    Once(Once),
}

/// The valid entries of a MutateRowsRequest.
#[derive(Default)]
struct Checked {
    plain: Vec<RowMutation>,
    once: Vec<Once>,
    /// Of each entry, where it is or why it is refused.
    entries: Vec<Result<Kind, Status>>,
    server_time: Option<ServerTime>,
}

enum Kind {
    Plain,
    Once,
}

impl Checked {
    fn push(&mut self, row: RowMutation, token: Option<RequestToken>) -> Kind {
        match token {
            None => {
                self.plain.push(row);
                Kind::Plain
            }
            Some(token) => {
                self.once.push(Once {
                    row,
                    token,
                    server_time: None,
                });
                Kind::Once
            }
        }
    }
}

/// Charges the decoded form of a request, and decodes it. It shares the bytes of the request.
fn decoded<M: Estimated>(call: &Call, bytes: Bytes) -> Result<M, Status> {
    call.charge(SizeEstimate::of::<M>(&bytes)?.cost())?;
    M::decode(bytes).map_err(|error| not_decoded(&error))
}

/// Charges rows that share the bytes of their request.
fn charge_zero_copy(call: &Call, rows: &RowWrites) -> Result<(), Status> {
    match rows.mutations() {
        few if few <= ZERO_COPY_MUTATIONS_FREE => Ok(()),
        many => call.charge(many.saturating_mul(ZERO_COPY_MUTATION_COST)),
    }
}

/// The table of a write.
pub(super) struct Target {
    pub table: TableName,
    /// At the time its families were looked up.
    pub id: TableId,
    pub service: Arc<dyn TableService>,
}

impl Target {
    fn of(scope: Scope) -> Target {
        Target {
            table: scope.table.name,
            id: scope.schema.id,
            service: scope.service,
        }
    }
}

/// The row of a MutateRowRequest.
fn one_row(context: &Context, call: &Call, bytes: Bytes) -> Result<(Target, Row), Status> {
    if let Some(head) = zero_copy::mutate_row_head(&bytes)
        && let Ok(scope) = scope_of(context, head.table_name)
        && let Some(rows) = zero_copy::mutate_row(&bytes, &resolver(context, &scope.schema))
    {
        charge_zero_copy(call, &rows)?;
        return Ok((Target::of(scope), Row::Plain(rows)));
    }
    let request: wire::MutateRowRequest = decoded(call, bytes)?;
    let addressed = Addressed::parse(&request.table_name, &request.authorized_view_name, "")?;
    check_mutation_count(request.mutations.len())?;
    if request.mutations.is_empty() {
        return Err(no_mutations());
    }
    let scope = addressed.scope(context)?;
    scope.check_mutations(&request.row_key, &request.mutations)?;
    let resolver = resolver(context, &scope.schema);
    call.charge(resolver.expansion_bytes(&request.mutations))?;
    let row = resolver.row(request.row_key, request.mutations)?;
    let row = match once::token(&row, request.idempotency)? {
        None => Row::Plain(RowWrites::from(vec![row]).with_server_time(resolver.server_time())),
        Some(token) => Row::Once(Once {
            row,
            token,
            server_time: resolver.server_time(),
        }),
    };
    Ok((Target::of(scope), row))
}

/// The valid entries of a request, and one result for each of its entries.
fn checked_rows(context: &Context, call: &Call, request: wire::MutateRowsRequest) -> Result<(Target, Checked), Status> {
    let addressed = Addressed::parse(&request.table_name, &request.authorized_view_name, "")?;
    let count = request.entries.iter().map(|entry| entry.mutations.len()).sum();
    check_mutation_count(count)?;
    if count == 0 {
        return Err(no_mutations());
    }
    let scope = addressed.scope(context)?;
    let resolver = resolver(context, &scope.schema);
    let expansions = request
        .entries
        .iter()
        .map(|entry| resolver.expansion_bytes(&entry.mutations));
    call.charge(expansions.fold(0, usize::saturating_add))?;
    let mut checked = Checked::default();
    checked.entries.reserve_exact(request.entries.len());
    for entry in request.entries {
        let inside = scope.check_mutations(&entry.row_key, &entry.mutations);
        let row = inside.and_then(|()| resolver.row(entry.row_key, entry.mutations));
        let found = row.and_then(|row| {
            let token = once::token(&row, entry.idempotency)?;
            Ok(checked.push(row, token))
        });
        checked.entries.push(found.map_err(|refusal| outcomes::kept(&refusal)));
    }
    checked.server_time = resolver.server_time();
    for entry in &mut checked.once {
        entry.server_time = checked.server_time;
    }
    Ok((Target::of(scope), checked))
}

/// Writes rows, if any; one result for each.
async fn write(target: Target, rows: RowWrites) -> Result<Vec<Outcome>, Status> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let request = MutateRows {
        table: target.table,
        id: Some(target.id),
        rows,
        durability: None,
    };
    let results = target.service.mutate_rows(request).await.map_err(status)?;
    Ok(results.into_iter().map(|result| result.map_err(status)).collect())
}
