//! Handlers of writes that depend on a read of the row: CheckAndMutateRow and ReadModifyWriteRow.

use super::resolver;
use crate::accounting::Call;
use crate::context::Context;
use crate::filters;
use crate::mutations::{check_mutation_count, check_row_key, no_mutations};
use crate::pb::v2;
use crate::rmw;
use crate::scope::Addressed;
use crate::status::status;
use crate::times::TableTime;
use crate::wire;
use prost::Message as _;
use std::sync::Arc;
use stele_client::{Condition, RowOperation};
use tonic::Status;

/// Serves a CheckAndMutateRow call.
pub(crate) async fn check_and_mutate_row(
    context: &Context,
    call: &Call,
    request: wire::CheckAndMutateRowRequest,
) -> Result<v2::CheckAndMutateRowResponse, Status> {
    let addressed = Addressed::parse(&request.table_name, &request.authorized_view_name, "")?;
    check_row_key(&request.row_key)?;
    check_mutation_count(request.true_mutations.len() + request.false_mutations.len())?;
    if request.true_mutations.is_empty() && request.false_mutations.is_empty() {
        return Err(no_mutations());
    }
    let scope = addressed.scope(context)?;
    scope.check_mutations(&request.row_key, &request.true_mutations)?;
    scope.check_mutations(&request.row_key, &request.false_mutations)?;
    let resolver = resolver(context, &scope.schema);
    let predicate = filters::filter(request.predicate_filter, TableTime::of(&scope.schema))?.map(Arc::new);
    let predicate = scope.filter(predicate);
    call.charge(predicate.as_ref().map_or(0, |filter| filter.automata_bytes()))?;
    for mutations in [&request.true_mutations, &request.false_mutations] {
        call.charge(resolver.expansion_bytes(mutations))?;
    }
    let operation = RowOperation {
        condition: Some(Condition::any_cell(predicate)),
        steps: resolver.steps(request.true_mutations)?,
        otherwise: resolver.steps(request.false_mutations)?,
        row: request.row_key,
        table: scope.table.name,
        id: Some(scope.schema.id),
        durability: None,
        token: None,
    };
    let outcome = scope.service.row_operation(operation).await.map_err(status)?;
    Ok(v2::CheckAndMutateRowResponse {
        predicate_matched: outcome.matched,
    })
}

/// Serves a ReadModifyWriteRow call.
pub(crate) async fn read_modify_write_row(
    context: &Context,
    call: &Call,
    request: v2::ReadModifyWriteRowRequest,
) -> Result<v2::ReadModifyWriteRowResponse, Status> {
    let scope = Addressed::parse(&request.table_name, &request.authorized_view_name, "")?.scope(context)?;
    scope.check_rules(&request.row_key, &request.rules)?;
    let schema = scope.schema;
    let resolver = resolver(context, &schema);
    let operation = RowOperation {
        condition: None,
        steps: rmw::steps(&resolver, &request.row_key, request.rules)?,
        otherwise: Vec::new(),
        row: request.row_key.clone(),
        table: scope.table.name,
        id: Some(schema.id),
        durability: None,
        token: None,
    };
    let outcome = scope.service.row_operation(operation).await.map_err(status)?;
    let row = rmw::row(&schema, request.row_key, outcome.written)?;
    // Appending one byte may return a hundred megabytes, and their reservation below ended with the write.
    call.charge_response(row.encoded_len());
    Ok(v2::ReadModifyWriteRowResponse { row: Some(row) })
}
