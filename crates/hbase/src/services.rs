//! Services: each connection is for one, and each call names a method of it.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::Tried;
use crate::metrics::Method;
use crate::{admin, bulk_load, coprocessor, get, master, multi, mutate, registry, scan};
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

/// Serves a call; `tried` is a Get that has begun.
///
/// The future of a call is as large as that of the largest handler in it. So rare and long calls are boxed.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    service: Service,
    method: Method,
    call: &Call,
    tried: Option<Tried>,
) -> Outcome<Reply> {
    let name = call.request.header.method_name.as_deref().unwrap_or_default();
    match (service, method) {
        (Service::Client, Method::Get) => {
            let tried = tried.map_or_else(|| get::try_now(shared, call), Ok)?;
            Box::pin(get::finish(shared, call, tried)).await
        }
        (Service::Client, Method::Mutate) => mutate::mutate(shared, call).await,
        (Service::Client, Method::Multi) => Box::pin(multi::multi(shared, call)).await,
        (Service::Client, Method::Scan) => Box::pin(scan::scan(shared, call)).await,
        (Service::Client, Method::BulkLoadHFile) => Box::pin(bulk_load::load(shared, call)).await,
        (Service::Client, _) if name == b"PrepareBulkLoad" => bulk_load::prepare(shared, call),
        (Service::Client, _) if name == b"CleanupBulkLoad" => bulk_load::clean_up(call),
        (Service::Client, _) if name == b"ExecService" => Box::pin(coprocessor::exec(shared, call)).await,
        (Service::Client, _) if name == b"ExecRegionServerService" => Err(no_coprocessor(call)),
        (Service::Client, _) => Err(Failure::not_served(format!("ClientService.{}", name.escape_ascii()))),
        (Service::Registry, _) => registry::registry(shared, call, name),
        (Service::Master, _) => Box::pin(master::master(shared, call, name)).await,
        (Service::Admin, _) => Box::pin(admin::admin(shared, call, name)).await,
    }
}

/// The server has no services besides those of its regions.
fn no_coprocessor(call: &Call) -> Failure {
    match call.message::<CoprocessorServiceRequest>("CoprocessorServiceRequest") {
        Ok(request) => coprocessor::no_service(&request.call.service_name),
        Err(failure) => failure,
    }
}
