//! Namespaces.
//!
//! A namespace of the service is one of HBase, also if another front end made it, if HBase can have its name. Two exist always:
//! `default`, and `hbase` for the tables of the system.

use super::changes::change;
use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::names::{self, RESERVED_NAMESPACES};
use crate::namespace_data::NamespaceData;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::ChangeAttempts;
use stele_types::ErrorKind;
use stele_wire::exception;
use stele_wire::messages::{
    ListNamespaceDescriptorsResponse, ListNamespacesResponse, NamespaceDescriptor, NamespaceMessage, NamespaceRequest,
};

/// Bytes of a namespace's settings: far more than those that HBase knows.
const SETTINGS_BYTES_MAX: usize = 64 << 10;

/// Fails unless a namespace exists.
pub(super) async fn check_exists(shared: &Shared, name: &str) -> Outcome<()> {
    record(shared, name).await.map(drop)
}

/// The record of a namespace, empty if it was never stored.
async fn record(shared: &Shared, name: &str) -> Outcome<Bytes> {
    let known = names::is_legal_namespace(name);
    let record = if known {
        shared.admin.namespace(name).await?
    } else {
        None
    };
    match record {
        Some(record) => Ok(record),
        None if RESERVED_NAMESPACES.contains(&name) => Ok(Bytes::new()),
        None => Err(not_found(name)),
    }
}

fn not_found(name: &str) -> Failure {
    Failure::new(exception::NAMESPACE_NOT_FOUND, name.to_owned())
}

/// Serves `CreateNamespace`.
pub(super) async fn create(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: NamespaceMessage = call.message("CreateNamespaceRequest")?;
    let (name, data) = parse(&request)?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let exists = || {
            let message = format!("Namespace {name} already exists");
            Failure::new(exception::NAMESPACE_EXISTS, message)
        };
        if RESERVED_NAMESPACES.contains(&name.as_str()) || shared.admin.namespace(&name).await?.is_some() {
            return Err(exists());
        }
        let record = data.put_into(&name, &Bytes::new())?;
        let created = shared.admin.create_namespace(&name, record).await;
        created.map_err(|error| match error.kind {
            ErrorKind::AlreadyExists => exists(),
            _ => Failure::from(error),
        })
    };
    change(shared, call, nonce, work).await
}

/// Serves `ModifyNamespace`.
pub(super) async fn modify(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: NamespaceMessage = call.message("ModifyNamespaceRequest")?;
    let (name, data) = parse(&request)?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let mut attempts = ChangeAttempts::default();
        loop {
            let before = record(shared, &name).await?;
            let cluster_id = NamespaceData::decode(&name, &before)?.cluster_id;
            let data = NamespaceData {
                cluster_id,
                ..data.clone()
            };
            let after = data.put_into(&name, &before)?;
            let updated = match shared.admin.update_namespace(&name, before, after.clone()).await {
                Err(error) if error.kind == ErrorKind::NotFound => shared.admin.create_namespace(&name, after).await,
                updated => updated,
            };
            match updated {
                Ok(()) => return Ok(()),
                // If another change was first, its part of the record is kept.
                Err(error) => attempts.again(&shared.env, error).await?,
            }
        }
    };
    change(shared, call, nonce, work).await
}

/// The name and the settings of a request.
fn parse(request: &NamespaceMessage) -> Outcome<(String, NamespaceData)> {
    let descriptor = &request.namespace_descriptor;
    let name = std::str::from_utf8(&descriptor.name)
        .ok()
        .filter(|name| names::is_legal_namespace(name));
    let Some(name) = name else {
        let message = format!(
            "Illegal namespace name {:?}",
            descriptor.name.escape_ascii().to_string()
        );
        return Err(Failure::do_not_retry(message));
    };
    let pairs = descriptor.configuration.iter();
    let bytes: usize = pairs.clone().map(|pair| pair.name.len() + pair.value.len()).sum();
    if bytes > SETTINGS_BYTES_MAX {
        let message = format!("The settings of namespace {name} have {bytes} bytes, the limit is {SETTINGS_BYTES_MAX}");
        return Err(Failure::do_not_retry(message));
    }
    let configuration: BTreeMap<String, String> = pairs.map(|pair| (pair.name.clone(), pair.value.clone())).collect();
    let cluster_id = String::new();
    Ok((
        name.to_owned(),
        NamespaceData {
            configuration,
            cluster_id,
        },
    ))
}

/// Serves `DeleteNamespace`.
pub(super) async fn delete(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: NamespaceRequest = call.message("DeleteNamespaceRequest")?;
    let nonce = (request.nonce_group, request.nonce);
    let work = move |shared: Arc<Shared>| async move {
        let shared = &*shared;
        let name = &request.namespace_name;
        if RESERVED_NAMESPACES.contains(&name.as_str()) {
            let message = format!("Reserved namespace {name} cannot be removed.");
            return Err(Failure::new(exception::CONSTRAINT, message));
        }
        record(shared, name).await?;
        let tables = shared.admin.list_tables(name).await?.len();
        if tables > 0 {
            let message = format!("Only empty namespaces can be removed. Namespace {name} has {tables} tables");
            return Err(Failure::new(exception::CONSTRAINT, message));
        }
        // The caller may not see all tables, and another server may make one meanwhile.
        let deleted = shared.admin.delete_namespace(name, true).await;
        deleted.map_err(|error| match error.kind {
            ErrorKind::NotFound => not_found(name),
            ErrorKind::FailedPrecondition => Failure::new(exception::CONSTRAINT, error.message),
            _ => Failure::from(error),
        })
    };
    change(shared, call, nonce, work).await
}

/// Serves `GetNamespaceDescriptor`.
pub(super) async fn get(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: NamespaceRequest = call.message("GetNamespaceDescriptorRequest")?;
    let record = record(shared, &request.namespace_name).await?;
    call.reply(&NamespaceMessage {
        namespace_descriptor: descriptor(&request.namespace_name, &record)?,
        nonce_group: None,
        nonce: None,
    })
}

fn descriptor(name: &str, record: &Bytes) -> Outcome<NamespaceDescriptor> {
    Ok(NamespaceDescriptor {
        name: Bytes::copy_from_slice(name.as_bytes()),
        configuration: NamespaceData::decode(name, record)?.pairs(),
    })
}

/// All namespaces with their records, by name.
async fn all(shared: &Shared) -> Outcome<BTreeMap<String, Bytes>> {
    let mut all: BTreeMap<String, Bytes> = shared.admin.list_namespaces().await?.into_iter().collect();
    all.retain(|name, _| names::is_legal_namespace(name));
    for name in RESERVED_NAMESPACES {
        all.entry(name.to_owned()).or_default();
    }
    Ok(all)
}

/// Serves `ListNamespaces`.
pub(super) async fn list(shared: &Shared, call: &Call) -> Outcome<Reply> {
    call.reply(&ListNamespacesResponse {
        namespace_name: all(shared).await?.into_keys().collect(),
    })
}

/// Serves `ListNamespaceDescriptors`.
pub(super) async fn list_descriptors(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let namespaces = all(shared).await?;
    let descriptors: Outcome<_> = namespaces
        .iter()
        .map(|(name, record)| descriptor(name, record))
        .collect();
    call.reply(&ListNamespaceDescriptorsResponse {
        namespace_descriptor: descriptors?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::{Client, Model, failure};
    use stele_memory::Pool;
    use stele_wire::messages::{ConnectionHeader, MASTER_SERVICE};

    #[tokio::test]
    async fn a_namespace_that_gets_a_table_meanwhile_stays() {
        let model = Model::new(&[""]);
        let header = ConnectionHeader {
            service_name: Some(MASTER_SERVICE.to_owned()),
            ..ConnectionHeader::default()
        };
        let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &header).await;
        let deletion = NamespaceRequest {
            namespace_name: "n".to_owned(),
            ..NamespaceRequest::default()
        };
        let refused = (Some(ErrorKind::FailedPrecondition), None);
        model.outcomes.lock().push_back(refused);
        let response = client.call("DeleteNamespace", &deletion).await;
        assert_eq!(failure(&response), exception::CONSTRAINT);
        assert_eq!(*model.changes.lock(), ["delete empty namespace n"]);
    }
}
