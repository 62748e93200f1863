//! The log of long-running operations of this process.
//!
//! Every change is durable when its call returns, so every operation is done when a client first sees it. Its response
//! and metadata have the documented types, because clients unpack both. The last operations stay in memory for clients
//! that ask again. One that was dropped from the log, or was made by another process, is NOT_FOUND, unless a record of it can
//! be made again (`backups::operations`).

use crate::pb::longrunning::{Operation, operation};
use crate::status;
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use tonic::Status;

/// Operations in the log: mostly a few hundred bytes each.
const OPERATIONS_MAX: usize = 1_024;

/// Bytes of all operations in the log. One holds a table with its families, or an instance, and the request: half a
/// megabyte and more. All of them fit into one message.
const OPERATIONS_BYTES_MAX: usize = 2 << 20;

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
    /// The message with the name of its type.
    fn to_any(&self) -> prost_types::Any {
        prost_types::Any {
            type_url: format!("type.googleapis.com/google.bigtable.admin.v2.{}", self.name),
            value: self.message.encode_to_vec(),
        }
    }
}

/// An operation that is done, not yet in the log.
pub(crate) fn done<R: Message, M: Message>(name: String, response: Typed<'_, R>, metadata: Typed<'_, M>) -> Operation {
    done_with(name, response.to_any(), metadata)
}

/// The same with a response of any package.
pub(crate) fn done_with<M: Message>(name: String, response: prost_types::Any, metadata: Typed<'_, M>) -> Operation {
    Operation {
        name,
        metadata: Some(metadata.to_any()),
        done: true,
        result: Some(operation::Result::Response(response)),
    }
}

impl OperationLog {
    /// Adds an operation, and drops the oldest ones past the limits.
    pub fn add(&self, operation: Operation) {
        let mut operations = self.operations.lock();
        operations.push_back(operation);
        let mut bytes: usize = operations.iter().map(Message::encoded_len).sum();
        while operations.len() > OPERATIONS_MAX || bytes > OPERATIONS_BYTES_MAX {
            let oldest = operations.pop_front();
            bytes -= oldest.map_or(bytes, |oldest| oldest.encoded_len());
        }
    }

    /// A copy of an operation, whose size is charged before it is made.
    pub fn get(&self, name: &str, charge: impl FnOnce(usize) -> Result<(), Status>) -> Result<Operation, Status> {
        let operations = self.operations.lock();
        let found = operations.iter().find(|o| o.name == name);
        let found = found.ok_or_else(|| not_found(name))?;
        charge(found.encoded_len())?;
        Ok(found.clone())
    }

    /// Copies of the operations whose names begin with a prefix, whose size is charged before they are made.
    pub fn list(
        &self,
        prefix: &str,
        charge: impl FnOnce(usize) -> Result<(), Status>,
    ) -> Result<Vec<Operation>, Status> {
        let operations = self.operations.lock();
        let found = || operations.iter().filter(|o| o.name.starts_with(prefix));
        charge(found().map(Message::encoded_len).sum())?;
        Ok(found().cloned().collect())
    }

    /// Drops an operation.
    pub fn delete(&self, name: &str) -> Result<(), Status> {
        let mut operations = self.operations.lock();
        let before = operations.len();
        operations.retain(|o| o.name != name);
        if operations.len() < before {
            Ok(())
        } else {
            Err(not_found(name))
        }
    }
}

pub(crate) fn not_found(name: &str) -> Status {
    status::not_found(format!("operation {name:?} not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_in_number_and_in_bytes() {
        let operation = |number: usize, bytes: usize| Operation {
            name: format!("operations/{number}"),
            metadata: Some(prost_types::Any {
                type_url: String::new(),
                value: vec![7; bytes],
            }),
            ..Operation::default()
        };
        let log = OperationLog::default();
        let get = |name| log.get(name, |_| Ok(()));
        let count = || log.operations.lock().len();
        (0..OPERATIONS_MAX + 10).for_each(|number| log.add(operation(number, 10)));
        assert_eq!(count(), OPERATIONS_MAX);
        assert!(get("operations/9").is_err() && get("operations/10").is_ok());
        (0..10).for_each(|number| log.add(operation(number, OPERATIONS_BYTES_MAX / 4)));
        assert_eq!(count(), 3);
        assert!(get("operations/6").is_err() && get("operations/7").is_ok());
        // An operation that is too large by itself is returned once and not logged.
        log.add(operation(10, OPERATIONS_BYTES_MAX));
        assert_eq!(count(), 0);
    }
}
