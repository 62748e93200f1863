//! The Cloud Bigtable gRPC front end.
//!
//! Translates `google.bigtable.v2` and `google.bigtable.admin.v2` into the traits of `stele-client` and knows nothing
//! below them. Two services beside Google's have what they have no word for: locality groups and settings of tables.
//! `docs/protocols/bigtable.md` lists every call, what it does here, and where it differs from the managed service.
//!
//! The way of a call: `calls` admits and measures it, within `limits`. The few that are nearly all of the load are
//! served by `hot`, from the bytes of the request (`messages`, `protobuf`, `flat`) to the bytes of the answer
//! (`chunks`, `outcomes`). For the others a generated stub (see `build.rs`) decodes the request. Nothing is decoded
//! before `census` has counted what it will be. Then one of the services (`data`, `tables`, `instances`, `operations`)
//! resolves names and checks the request with the help of the pure modules (`names`, `ranges`, `filters`, `mutations`,
//! `rmw`, `families`, `table_protos`, `times`), and the answer is built by `chunks` and `reads` for rows, in room that `answers` gives. Errors get
//! their gRPC code in `status` only.
#![forbid(unsafe_code)]

mod answers;
mod app_profiles;
mod calls;
mod census;
mod chunks;
mod clusters;
mod codec;
mod context;
mod data;
mod families;
mod features;
mod filters;
mod flat;
pub mod fuzzing;
mod groups;
mod hot;
mod instance_data;
mod instances;
mod limits;
mod messages;
mod mutations;
mod names;
mod operations;
mod outcomes;
mod pb;
mod protobuf;
mod ranges;
mod reads;
mod rmw;
mod service;
mod settings;
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

pub use limits::CallLimits;
pub use service::BigtableService;

use answers::Answers;
use calls::{Calls, Ledger};
use context::Context;
use hot::Hot;
use operations::OperationLog;
use pb::stubs::SERVED;
use pb::stubs::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use pb::stubs::bigtable_server::BigtableServer;
use pb::stubs::bigtable_table_admin_server::BigtableTableAdminServer;
use pb::stubs::locality_groups_server::LocalityGroupsServer;
use pb::stubs::operations_server::OperationsServer;
use pb::stubs::table_settings_server::TableSettingsServer;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{Overdraft, TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use tonic::service::Routes;
use tonic::transport::Server;

/// For the generated stubs: `calls` has refused what is too large before they see it.
const UNLIMITED: usize = usize::MAX;

/// Flow-control window of a stream: a megabyte message in flight while the one before it is handled.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Flow-control window of a connection, which many streams share.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Largest HTTP/2 frame, so that a megabyte message is a few frames and not sixty-four.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Streams on one connection at once: half of the calls that the smallest budget allows, so that no connection takes all of
/// them. A client that wants more waits on its side, or opens another connection.
const STREAMS_PER_CONNECTION: u32 = 256;

/// Streams that the transport may reset for what a client sent, over the life of a connection; then the connection ends. Of each the
/// transport keeps some hundreds of bytes until the client has taken the reset, and a client need not take any, so there must be a
/// limit, and the transport has none unless it is told. It is that of other servers: hardly any client that works gets near it.
const BROKEN_STREAMS_MAX: usize = 1_024;

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
        Self::with_limits(
            service,
            admin,
            env,
            metrics,
            CallLimits::default(),
            Overdraft::default(),
        )
    }

    /// A front end with other limits. What goes beyond them shares the allowance `overdraft` with everything else of the process.
    pub fn with_limits(
        service: Arc<dyn TableService>,
        admin: Arc<dyn TableAdmin>,
        env: Env,
        metrics: &Metrics,
        limits: CallLimits,
        overdraft: Overdraft,
    ) -> Self {
        let served = SERVED.iter().copied().chain(Hot::PATHS.map(|(path, _)| path));
        let ledger = Arc::new(Ledger::new(served, limits, overdraft.clone(), env.clone(), metrics));
        let given_up = metrics.counter(
            "stele_bigtable_responses_cancelled_total",
            "Answers of reads that were broken off because their clients took nothing while others waited for room.",
        );
        let context = Arc::new(Context {
            service,
            admin,
            answers: Answers::new(limits.answer_bytes_max, overdraft, env.clone(), given_up),
            env,
            operations: OperationLog::default(),
            instance_changes: Arc::default(),
        });
        BigtableFrontEnd { context, ledger }
    }

    /// Brings gauges up to date that nothing else moves: to be called before metrics are shown.
    pub fn gauges(&self) -> impl Fn() + Send + Sync + 'static {
        let (ledger, answers) = (Arc::clone(&self.ledger), self.context.answers.clone());
        move || ledger.update_held(answers.taken())
    }

    /// All of it as one service, for any transport.
    pub fn into_service(self) -> BigtableService {
        let BigtableFrontEnd { context, ledger } = self;
        let data = BigtableServer::new(data::DataService(Arc::clone(&context))).max_decoding_message_size(UNLIMITED);
        let tables = BigtableTableAdminServer::new(tables::TableAdminService(Arc::clone(&context)))
            .max_decoding_message_size(UNLIMITED);
        let instances = BigtableInstanceAdminServer::new(instances::InstanceAdminService(Arc::clone(&context)));
        let operations = OperationsServer::new(operations::OperationsService(Arc::clone(&context)));
        let groups = LocalityGroupsServer::new(groups::LocalityGroupsService(Arc::clone(&context)));
        let settings = TableSettingsServer::new(settings::TableSettingsService(Arc::clone(&context)));
        let others = Routes::new(Calls::new(data, Arc::clone(&ledger)))
            .add_service(Calls::new(tables, Arc::clone(&ledger)))
            .add_service(Calls::new(instances, Arc::clone(&ledger)))
            .add_service(Calls::new(operations, Arc::clone(&ledger)))
            .add_service(Calls::new(groups, Arc::clone(&ledger)))
            .add_service(Calls::new(settings, Arc::clone(&ledger)))
            .prepare();
        BigtableService::new(context, ledger, others)
    }
}

/// Sets a server's transport up for this API: windows and frames for megabyte messages, no Nagle delay, probes that
/// find dead clients, whose streams would keep their reads alive, and an end for those that break the protocol.
pub fn configure(server: Server) -> Server {
    server
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_max_local_error_reset_streams(Some(BROKEN_STREAMS_MAX))
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}
