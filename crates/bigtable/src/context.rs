//! State and services that all handlers of the front end share.

use crate::accounting::Call;
use crate::names::TableResource;
use crate::operation_log::{self, OperationLog, Typed};
use crate::pb::longrunning::Operation;
use crate::response_memory::ResponseMemory;
use crate::status::{status, table_not_found};
use prost::Message;
use std::future::Future;
use std::sync::Arc;
use stele_access::{Access, Caller, Guard, Note, Rules};
use stele_client::{ServiceError, ServiceResult, TableAdmin, TableService};
use stele_env::{Env, Priority};
use stele_types::{ErrorKind, Resource, Rights, TableSchema};
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

/// The services below the front end, and its own small state.
pub(crate) struct Context {
    pub service: Arc<dyn TableService>,
    pub admin: Arc<dyn TableAdmin>,
    pub env: Env,
    /// Reservations for responses.
    pub response_memory: ResponseMemory,
    pub operations: Arc<OperationLog>,
    /// Access rules as the caller may use them; `None` where the service has none.
    pub rules: Option<Rules>,
    /// The caller's guard, which `service` and `admin` are then, too. `None` if callers are not known.
    pub guard: Option<Arc<Guard>>,
    /// Serialises changes of instances within this process. A change reads the record, modifies it and writes it back,
    /// so creation and deletion wait as well. If two front ends change the same instance at the same moment, one of the
    /// changes is lost. Always acquired before the lock by which the master serialises its changes.
    pub instance_changes: Arc<tokio::sync::Mutex<()>>,
}

/// The right to change instances.
pub(crate) type InstanceTurn = OwnedMutexGuard<()>;

impl Context {
    /// The same for a caller, and the token that it shows: all of its calls go through a guard.
    pub fn of_caller(&self, access: &Arc<Access>, caller: Arc<Caller>, token: Option<&str>) -> Context {
        let guard = Guard::new(
            Arc::clone(access),
            caller,
            Arc::clone(&self.service),
            Arc::clone(&self.admin),
        );
        let guard = token.map_or_else(|| Arc::clone(&guard), |token| guard.shown(token));
        Context {
            service: Arc::clone(&guard) as Arc<dyn TableService>,
            admin: Arc::clone(&guard) as Arc<dyn TableAdmin>,
            env: self.env.clone(),
            response_memory: self.response_memory.clone(),
            operations: Arc::clone(&self.operations),
            rules: self.rules.as_ref().map(|rules| rules.of(Arc::clone(&guard))),
            guard: Some(guard),
            instance_changes: Arc::clone(&self.instance_changes),
        }
    }

    /// Whether the caller may see an operation, by the name of it. Operations are not in the service interface. They tell about
    /// tables and instances, so they need the right to view the whole instance.
    pub fn sees_operation(&self, name: &str) -> bool {
        let guard = self.guard.as_ref();
        guard.is_none_or(|guard| guard.rights(&resource_of_operation(name)).has(Rights::VIEW))
    }

    /// Fails if the caller may not delete an operation. That needs the right to administer the whole instance. The note is for the
    /// outcome.
    pub fn begin_deletion_of_operation(&self, name: &str) -> Result<Option<Note<'_>>, Status> {
        let guard = self.guard.as_ref();
        let begun = guard.map(|guard| guard.begin_change("delete_operation", &resource_of_operation(name)));
        begun.transpose().map_err(status)
    }

    /// The schema of a table, or NOT_FOUND in the words clients know.
    pub fn schema(&self, table: &TableResource) -> Result<Arc<TableSchema>, Status> {
        self.service
            .schema(&table.name)
            .map_err(|error| table_status(table, error))
    }

    /// Waits for the turn to change instances.
    pub async fn instance_turn(&self) -> InstanceTurn {
        Arc::clone(&self.instance_changes).lock_owned().await
    }

    /// Writes a change of an instance in a task that holds the turn to its end. A change that has begun is carried out
    /// by the layers below even if the caller goes away. Without the task the next change would read the old record and
    /// write it back.
    pub async fn write_instance(
        &self,
        turn: InstanceTurn,
        write: impl Future<Output = ServiceResult<()>> + Send + 'static,
    ) -> ServiceResult<()> {
        let task = async move {
            let outcome = write.await;
            drop(turn);
            outcome
        };
        let outcome = self.env.spawn_join(Priority::Foreground, "instance", task).await;
        let stopped = || ServiceError::new(ErrorKind::Aborted, "the server stopped during the change");
        outcome.unwrap_or_else(|_| Err(stopped()))
    }

    /// An operation that is done, added to the log and charged to the call. `resource` is its subject.
    pub fn done<R: Message, M: Message>(
        &self,
        call: &Call,
        resource: &str,
        response: Typed<'_, R>,
        metadata: Typed<'_, M>,
    ) -> Operation {
        let name = format!("operations/{resource}/operations/{:016x}", self.env.random_u64());
        self.keep(call, operation_log::done(name, response, metadata))
    }

    /// Adds an operation to the log, and charges it to the call.
    pub fn keep(&self, call: &Call, operation: Operation) -> Operation {
        self.operations.add(operation.clone());
        call.charge_response(operation.encoded_len());
        operation
    }

    /// The wall clock as a protocol buffer timestamp.
    pub fn timestamp(&self) -> prost_types::Timestamp {
        timestamp_of(self.env.wall_micros())
    }
}

/// The instance that an operation is about, by the name of the operation.
fn resource_of_operation(name: &str) -> Resource {
    let mut segments = name.split('/').skip_while(|segment| *segment != "instances");
    match segments.nth(1) {
        Some(instance) => Resource::Namespace(instance.to_owned()),
        None => Resource::Cluster,
    }
}

/// Microseconds since 1970 as a protocol buffer timestamp.
pub(crate) fn timestamp_of(micros: i64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: (micros.rem_euclid(1_000_000) * 1_000) as i32,
    }
}

/// A protocol buffer timestamp as microseconds since 1970; `None` for one that is out of range.
pub(crate) fn micros_of(time: &prost_types::Timestamp) -> Option<i64> {
    let nanos = (0..1_000_000_000).contains(&time.nanos).then_some(time.nanos)?;
    time.seconds
        .checked_mul(1_000_000)?
        .checked_add(i64::from(nanos) / 1_000)
}

/// The status of an error about a table: a missing one is named as the client named it.
pub(crate) fn table_status(table: &TableResource, error: ServiceError) -> Status {
    match error.kind {
        ErrorKind::NotFound => table_not_found(&table.to_string()),
        _ => status(error),
    }
}
