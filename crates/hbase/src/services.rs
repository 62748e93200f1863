//! Services: each connection is for one, and each call names a method of it.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::{admin, coprocessor, get, master, multi, mutate, registry, scan};
use std::sync::Arc;
use stele_wire::messages::{
    ADMIN_SERVICE, CLIENT_META_SERVICE, CLIENT_SERVICE, CoprocessorServiceRequest, MASTER_SERVICE,
};

/// The services of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Client,
    Registry,
    Master,
    Admin,
}

impl Service {
    /// The service of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            CLIENT_SERVICE => Service::Client,
            CLIENT_META_SERVICE => Service::Registry,
            MASTER_SERVICE => Service::Master,
            ADMIN_SERVICE => Service::Admin,
            _ => return None,
        })
    }
}

/// Serves a call.
pub(crate) async fn serve(shared: &Arc<Shared>, service: Service, call: &Call) -> Outcome<Reply> {
    let method = call.request.header.method_name.clone().unwrap_or_default();
    match (service, &method[..]) {
        (Service::Client, b"Get") => get::get(shared, call).await,
        (Service::Client, b"Mutate") => mutate::mutate(shared, call).await,
        (Service::Client, b"Multi") => multi::multi(shared, call).await,
        (Service::Client, b"Scan") => scan::scan(shared, call).await,
        (Service::Client, b"ExecService") => coprocessor::exec(shared, call).await,
        (Service::Client, b"ExecRegionServerService") => Err(no_coprocessor(call)),
        (Service::Client, other) => Err(Failure::not_served(format!("ClientService.{}", other.escape_ascii()))),
        (Service::Registry, method) => registry::registry(shared, call, method),
        (Service::Master, method) => master::master(shared, call, method).await,
        (Service::Admin, method) => admin::admin(shared, call, method).await,
    }
}

/// The server has no services besides those of its regions.
fn no_coprocessor(call: &Call) -> Failure {
    match call.message::<CoprocessorServiceRequest>("CoprocessorServiceRequest") {
        Ok(request) => coprocessor::no_service(&request.call.service_name),
        Err(failure) => failure,
    }
}
