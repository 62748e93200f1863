//! What all services of the front end share.

use crate::answers::Answers;
use crate::names::TableResource;
use crate::operations::OperationLog;
use crate::status::{status, table_not_found};
use std::sync::Arc;
use stele_client::{ServiceError, TableAdmin, TableService};
use stele_env::Env;
use stele_types::{ErrorKind, TableSchema};
use tonic::codegen::BoxStream;
use tonic::{Response, Status};

/// The way down, and the little state the front end has of its own.
pub(crate) struct Context {
    pub service: Arc<dyn TableService>,
    pub admin: Arc<dyn TableAdmin>,
    pub env: Env,
    /// Room for answers.
    pub answers: Answers,
    pub operations: OperationLog,
    /// Serialises read-change-write cycles on instance data within this process. Two front ends changing the same
    /// instance at the same moment keep one of the changes.
    pub instance_changes: tokio::sync::Mutex<()>,
}

impl Context {
    /// The schema of a table, or NOT_FOUND in the words clients know.
    pub fn schema(&self, table: &TableResource) -> Result<Arc<TableSchema>, Status> {
        self.service
            .schema(&table.name)
            .map_err(|error| table_status(table, error))
    }

    /// The wall clock as a protocol buffer timestamp.
    pub fn timestamp(&self) -> prost_types::Timestamp {
        let micros = self.env.wall_micros();
        prost_types::Timestamp {
            seconds: micros.div_euclid(1_000_000),
            nanos: (micros.rem_euclid(1_000_000) * 1_000) as i32,
        }
    }
}

/// The status of an error about a table: a missing one is named as the client named it.
pub(crate) fn table_status(table: &TableResource, error: ServiceError) -> Status {
    match error.kind {
        ErrorKind::NotFound => table_not_found(&table.to_string()),
        _ => status(error),
    }
}

/// A response stream over messages that are at hand.
pub(crate) fn responses<T: Send + 'static>(
    messages: impl Iterator<Item = T> + Send + 'static,
) -> Response<BoxStream<T>> {
    Response::new(Box::pin(futures::stream::iter(messages.map(Ok))))
}
