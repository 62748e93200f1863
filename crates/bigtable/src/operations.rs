//! Handlers of `google.longrunning.Operations`.

use crate::accounting::Call;
use crate::context::Context;
use crate::pb::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest, ListOperationsResponse,
    Operation, WaitOperationRequest,
};
use tonic::Status;

pub(crate) async fn get_operation(
    context: &Context,
    call: &Call,
    request: GetOperationRequest,
) -> Result<Operation, Status> {
    context.operations.get(&request.name, |bytes| call.charge(bytes))
}

/// The operations whose names begin with the name in the request.
pub(crate) async fn list_operations(
    context: &Context,
    call: &Call,
    request: ListOperationsRequest,
) -> Result<ListOperationsResponse, Status> {
    let operations = context.operations.list(&request.name, |bytes| call.charge(bytes))?;
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
    let operation = context.operations.get(&request.name, |bytes| call.charge(bytes));
    operation.map(drop)
}

pub(crate) async fn delete_operation(
    context: &Context,
    _: &Call,
    request: DeleteOperationRequest,
) -> Result<(), Status> {
    context.operations.delete(&request.name)
}

pub(crate) async fn wait_operation(
    context: &Context,
    call: &Call,
    request: WaitOperationRequest,
) -> Result<Operation, Status> {
    context.operations.get(&request.name, |bytes| call.charge(bytes))
}
