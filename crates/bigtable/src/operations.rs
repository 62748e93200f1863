//! Long-running operations: `google.longrunning.Operations`.
//!
//! Every change here is durable when its call returns, so every operation is done when it is first seen, with response
//! and metadata of the documented types (clients unpack both). The last ones are kept in memory for clients that ask
//! again; one that has been forgotten, or was made by another process, is NOT_FOUND.

use crate::accounting::{account_current, charge_current};
use crate::context::Context;
use crate::pb::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest, ListOperationsResponse,
    Operation, WaitOperationRequest, operation,
};
use crate::pb::stubs::operations_server::Operations;
use crate::status;
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Operations remembered: mostly a few hundred bytes each.
const REMEMBERED_MAX: usize = 1_024;

/// Bytes of them together. One says all of a table, with its families, or of an instance, and what was asked for: half a megabyte and
/// more. All of them fit into one message.
const REMEMBERED_BYTES_MAX: usize = 2 << 20;

/// The operations of this process, oldest first.
#[derive(Default)]
pub(crate) struct OperationLog {
    operations: Mutex<VecDeque<Operation>>,
}

/// A message with the name of its type, as `google.protobuf.Any` wants it.
pub(crate) struct Typed<'m, M> {
    /// After `type.googleapis.com/google.bigtable.admin.v2.`.
    pub name: &'static str,
    pub message: &'m M,
}

impl<M: Message> Typed<'_, M> {
    fn to_any(&self) -> prost_types::Any {
        prost_types::Any {
            type_url: format!("type.googleapis.com/google.bigtable.admin.v2.{}", self.name),
            value: self.message.encode_to_vec(),
        }
    }
}

impl Context {
    /// An operation that is done. `resource` is what it was about.
    pub fn done<R: Message, M: Message>(
        &self,
        resource: &str,
        response: Typed<'_, R>,
        metadata: Typed<'_, M>,
    ) -> Operation {
        let operation = Operation {
            name: format!("operations/{resource}/operations/{:016x}", self.env.random_u64()),
            metadata: Some(metadata.to_any()),
            done: true,
            result: Some(operation::Result::Response(response.to_any())),
        };
        self.operations.remember(operation.clone());
        account_current(operation.encoded_len());
        operation
    }
}

impl OperationLog {
    fn with<T>(&self, f: impl FnOnce(&mut VecDeque<Operation>) -> T) -> T {
        f(&mut self.operations.lock())
    }

    fn remember(&self, operation: Operation) {
        self.with(|operations| {
            operations.push_back(operation);
            let mut bytes: usize = operations.iter().map(Message::encoded_len).sum();
            while operations.len() > REMEMBERED_MAX || bytes > REMEMBERED_BYTES_MAX {
                let oldest = operations.pop_front();
                bytes -= oldest.map_or(bytes, |oldest| oldest.encoded_len());
            }
        });
    }

    fn get(&self, name: &str) -> Result<Operation, Status> {
        self.with(|operations| {
            let found = operations.iter().find(|o| o.name == name);
            let found = found.ok_or_else(|| not_found(name))?;
            charge_current(found.encoded_len())?;
            Ok(found.clone())
        })
    }
}

fn not_found(name: &str) -> Status {
    status::not_found(format!("operation {name:?} not found"))
}

/// Serves long-running operations.
pub(crate) struct OperationsService(pub Arc<Context>);

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn get_operation(&self, request: Request<GetOperationRequest>) -> Result<Response<Operation>, Status> {
        self.0.operations.get(&request.get_ref().name).map(Response::new)
    }

    /// Those whose name begins with the name of the request.
    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let prefix = &request.get_ref().name;
        let operations = self.0.operations.with(|operations| {
            let found = || operations.iter().filter(|o| o.name.starts_with(prefix));
            charge_current(found().map(Message::encoded_len).sum())?;
            Ok::<_, Status>(found().cloned().collect())
        })?;
        Ok(Response::new(ListOperationsResponse {
            operations,
            ..ListOperationsResponse::default()
        }))
    }

    /// Too late: it is done.
    async fn cancel_operation(&self, request: Request<CancelOperationRequest>) -> Result<Response<()>, Status> {
        self.0
            .operations
            .get(&request.get_ref().name)
            .map(|_| Response::new(()))
    }

    async fn delete_operation(&self, request: Request<DeleteOperationRequest>) -> Result<Response<()>, Status> {
        let name = &request.get_ref().name;
        let deleted = self.0.operations.with(|operations| {
            let before = operations.len();
            operations.retain(|o| o.name != *name);
            operations.len() < before
        });
        if deleted {
            Ok(Response::new(()))
        } else {
            Err(not_found(name))
        }
    }

    async fn wait_operation(&self, request: Request<WaitOperationRequest>) -> Result<Response<Operation>, Status> {
        self.0.operations.get(&request.get_ref().name).map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_in_bytes() {
        let operation = |number: usize, bytes: usize| Operation {
            name: format!("operations/{number}"),
            metadata: Some(prost_types::Any {
                type_url: String::new(),
                value: vec![7; bytes],
            }),
            ..Operation::default()
        };
        let log = OperationLog::default();
        let count = || log.with(|operations| operations.len());
        (0..REMEMBERED_MAX + 10).for_each(|number| log.remember(operation(number, 10)));
        assert_eq!(count(), REMEMBERED_MAX);
        assert!(log.get("operations/9").is_err() && log.get("operations/10").is_ok());
        (0..10).for_each(|number| log.remember(operation(number, REMEMBERED_BYTES_MAX / 4)));
        assert_eq!(count(), 3);
        assert!(log.get("operations/6").is_err() && log.get("operations/7").is_ok());
        // One that is too large by itself is told once.
        log.remember(operation(10, REMEMBERED_BYTES_MAX));
        assert_eq!(count(), 0);
    }
}
