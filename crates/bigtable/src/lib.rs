//! The Cloud Bigtable gRPC front end.
//!
//! Translates `google.bigtable.v2` and `google.bigtable.admin.v2` into the traits of `stele-client` and knows nothing
//! below them. `docs/protocols/bigtable.md` lists every call, what it does here, and where it differs from the managed
//! service.
//!
//! The way of a call: `calls` admits and measures it, a generated stub (see `build.rs`) decodes it, one of the
//! services (`data`, `tables`, `instances`, `operations`) resolves names and checks it with the help of the
//! pure modules (`names`, `ranges`, `filters`, `mutations`, `rmw`, `families`, `table_protos`, `times`), and the answer is
//! built by `chunks` and `reads` for rows. Errors get their gRPC code in `status` only.

mod app_profiles;
mod calls;
mod chunks;
mod clusters;
mod context;
mod data;
mod families;
mod features;
mod filters;
pub mod fuzzing;
mod instance_data;
mod instances;
mod mutations;
mod names;
mod operations;
mod pb;
mod ranges;
mod reads;
mod rmw;
mod status;
mod table_protos;
mod tables;
mod times;
#[allow(
    missing_docs,
    reason = "the fields are documented in the proto files the messages name"
)]
mod wire;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use calls::CallLimits;

use calls::{Calls, Ledger};
use context::Context;
use operations::OperationLog;
use pb::stubs::SERVED;
use pb::stubs::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use pb::stubs::bigtable_server::BigtableServer;
use pb::stubs::bigtable_table_admin_server::BigtableTableAdminServer;
use pb::stubs::operations_server::OperationsServer;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use tonic::service::Routes;
use tonic::transport::Server;

/// Largest message taken: the API's 256 MiB of row with some room for its wrapping.
const REQUEST_BYTES_MAX: usize = (256 << 20) + (1 << 20);

/// Flow-control window of a stream: a megabyte message in flight while the one before it is handled.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Flow-control window of a connection, which many streams share.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Largest HTTP/2 frame, so that a megabyte message is a few frames and not sixty-four.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// How often an idle connection is probed. Below the five minutes after which common NATs forget one.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a probe may stay unanswered.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves the Bigtable API from a [`TableService`] and a [`TableAdmin`].
pub struct BigtableFrontEnd {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
}

impl BigtableFrontEnd {
    /// A front end with the default limits. At most one per registry of metrics.
    pub fn new(service: Arc<dyn TableService>, admin: Arc<dyn TableAdmin>, env: Env, metrics: &Metrics) -> Self {
        Self::with_limits(service, admin, env, metrics, CallLimits::default())
    }

    /// A front end with other limits.
    pub fn with_limits(
        service: Arc<dyn TableService>,
        admin: Arc<dyn TableAdmin>,
        env: Env,
        metrics: &Metrics,
        limits: CallLimits,
    ) -> Self {
        let ledger = Arc::new(Ledger::new(SERVED, limits, env.clone(), metrics));
        let context = Arc::new(Context {
            service,
            admin,
            env,
            operations: OperationLog::default(),
            instance_changes: tokio::sync::Mutex::new(()),
        });
        BigtableFrontEnd { context, ledger }
    }

    /// Its services, to be served over any transport.
    pub fn into_router(self) -> Routes {
        let BigtableFrontEnd { context, ledger } = self;
        let data =
            BigtableServer::new(data::DataService(Arc::clone(&context))).max_decoding_message_size(REQUEST_BYTES_MAX);
        let tables = BigtableTableAdminServer::new(tables::TableAdminService(Arc::clone(&context)))
            .max_decoding_message_size(REQUEST_BYTES_MAX);
        let instances = BigtableInstanceAdminServer::new(instances::InstanceAdminService(Arc::clone(&context)));
        let operations = OperationsServer::new(operations::OperationsService(context));
        Routes::new(Calls::new(data, Arc::clone(&ledger)))
            .add_service(Calls::new(tables, Arc::clone(&ledger)))
            .add_service(Calls::new(instances, Arc::clone(&ledger)))
            .add_service(Calls::new(operations, ledger))
            .prepare()
    }
}

/// Sets a server's transport up for this API: windows and frames for megabyte messages, no Nagle delay, and probes that
/// find dead clients, whose streams would keep their reads alive.
pub fn configure(server: Server) -> Server {
    server
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}
