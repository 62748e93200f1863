//! Long-running operations: `google.longrunning.Operations`.
//!
//! Every change here is durable when its call returns, so every operation is done when it is first seen, with response
//! and metadata of the documented types (clients unpack both). The last ones are kept in memory for clients that ask
//! again; one that has been forgotten, or was made by another process, is NOT_FOUND.

use crate::context::Context;
use crate::pb::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest, ListOperationsResponse,
    Operation, WaitOperationRequest, operation,
};
use crate::pb::stubs::operations_server::Operations;
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Operations remembered: a few hundred bytes each.
const REMEMBERED_MAX: usize = 1_024;

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
        operation
    }
}

impl OperationLog {
    fn with<T>(&self, f: impl FnOnce(&mut VecDeque<Operation>) -> T) -> T {
        f(&mut self.operations.lock())
    }

    fn remember(&self, operation: Operation) {
        self.with(|operations| {
            if operations.len() == REMEMBERED_MAX {
                operations.pop_front();
            }
            operations.push_back(operation);
        });
    }

    fn get(&self, name: &str) -> Result<Operation, Status> {
        self.with(|operations| operations.iter().find(|o| o.name == name).cloned())
            .ok_or_else(|| not_found(name))
    }
}

fn not_found(name: &str) -> Status {
    Status::not_found(format!("operation {name:?} not found"))
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
            operations
                .iter()
                .filter(|o| o.name.starts_with(prefix))
                .cloned()
                .collect()
        });
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
