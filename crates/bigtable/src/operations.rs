//! Handlers of `google.longrunning.Operations`.

use crate::accounting::Call;
use crate::backups;
use crate::context::Context;
use crate::pb::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest, ListOperationsResponse,
    Operation, WaitOperationRequest,
};
use std::collections::BTreeSet;
use tonic::{Code, Status};

pub(crate) async fn get_operation(
    context: &Context,
    call: &Call,
    request: GetOperationRequest,
) -> Result<Operation, Status> {
    found(context, call, &request.name).await
}

/// The operation in the log, or else the recorded one.
async fn found(context: &Context, call: &Call, name: &str) -> Result<Operation, Status> {
    if !context.sees_operation(name) {
        return Err(crate::operation_log::not_found(name));
    }
    match context.operations.get(name, |bytes| call.charge(bytes)) {
        Err(status) if status.code() == Code::NotFound => {
            let recorded = backups::operations::find(context, call, name).await?;
            recorded.ok_or(status)
        }
        found => found,
    }
}

/// The operations whose names begin with the name in the request.
pub(crate) async fn list_operations(
    context: &Context,
    call: &Call,
    request: ListOperationsRequest,
) -> Result<ListOperationsResponse, Status> {
    let mut operations = context.operations.list(&request.name, |bytes| call.charge(bytes))?;
    let known: BTreeSet<String> = operations.iter().map(|operation| operation.name.clone()).collect();
    let mut recorded = backups::operations::list(context, call, &request.name).await?;
    recorded.retain(|operation| !known.contains(&operation.name));
    operations.append(&mut recorded);
    operations.retain(|operation| context.sees_operation(&operation.name));
    Ok(ListOperationsResponse {
        operations,
        ..ListOperationsResponse::default()
    })
}

/// Cancels nothing: every operation is done.
pub(crate) async fn cancel_operation(
    context: &Context,
    call: &Call,
    request: CancelOperationRequest,
) -> Result<(), Status> {
    found(context, call, &request.name).await.map(drop)
}

pub(crate) async fn delete_operation(
    context: &Context,
    call: &Call,
    request: DeleteOperationRequest,
) -> Result<(), Status> {
    found(context, call, &request.name).await?;
    let note = context.begin_deletion_of_operation(&request.name)?;
    let in_log = context.operations.delete(&request.name);
    let outcome = match backups::operations::delete(context, call, &request.name).await {
        Ok(true) => Ok(()),
        Ok(false) => in_log,
        Err(status) => Err(status),
    };
    if let Some(note) = note {
        note.write_outcome(outcome.as_ref().err().map(Status::message));
    }
    outcome
}

pub(crate) async fn wait_operation(
    context: &Context,
    call: &Call,
    request: WaitOperationRequest,
) -> Result<Operation, Status> {
    found(context, call, &request.name).await
}
