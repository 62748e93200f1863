//! The Cloud Bigtable gRPC front end.
//!
//! It translates `google.bigtable.v2` and `google.bigtable.admin.v2` into the traits of `stele-client` and knows
//! nothing below them. Seven more services (`stele.admin.v1`) serve concepts that the API does not have, such as locality groups,
//! snapshots, access rules and clusters. `docs/protocols/bigtable.md` lists every call, its behaviour here, and its differences
//! from the managed service.
//!
//! Every call takes the same path. `service` finds its handler in `routes` and admits it to `accounting`, within
//! `limits`. `request_body` reads the message and charges it while it arrives. `size_estimate` bounds the decoded form
//! before anything is decoded. The handlers are in `data_plane`, `tables`, `instances`, `clusters`, `app_profiles`,
//! `operations`, `groups` and `settings`. They resolve names and check requests with pure modules (`names`, `ranges`,
//! `filters`, `mutations`, `rmw`, `families`, `table_protos`, `times`). `response` is the body that the transport
//! pulls.
//!
//! Where callers are known, `callers` finds the caller of each call, and gives the handlers a context whose services check its
//! rights. `iam` and `access_rules` administer the rules.
//!
//! ReadRows, MutateRow and MutateRows are nearly all of the load. They work from the bytes of the request (`messages`,
//! `protobuf`, `zero_copy`) to the bytes of the response (`chunks`, `outcomes`). `reads` produces rows within
//! reservations of `response_memory`. Errors get their gRPC code in `status` only.
#![forbid(unsafe_code)]

mod access_rules;
mod accounting;
mod app_profiles;
mod automated;
mod autoscaling;
mod backup_data;
mod backups;
mod callers;
mod chunks;
mod cluster;
mod clusters;
mod context;
mod data_plane;
mod destinations;
mod explain;
mod families;
mod features;
mod filters;
pub mod fuzzing;
mod groups;
mod iam;
mod instance_data;
mod instances;
mod limits;
mod masks;
mod messages;
mod mutations;
mod names;
mod operation_log;
mod operations;
mod outcomes;
mod pb;
mod protobuf;
mod ranges;
mod reads;
mod request_body;
mod response;
mod response_memory;
mod rmw;
mod routes;
mod scope;
mod service;
mod settings;
mod size_estimate;
mod snapshots;
mod stalled;
mod status;
mod table_protos;
mod tables;
mod tablets;
mod times;
mod trace_context;
mod views;
#[allow(
    missing_docs,
    reason = "the fields are documented in the proto files the messages name"
)]
mod wire;
mod zero_copy;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use limits::CallLimits;
pub use response::ResponseBody;
pub use service::BigtableService;

use accounting::CallAccounting;
use context::Context;
use response_memory::ResponseMemory;
use std::sync::Arc;
use std::time::Duration;
use stele_access::{Access, Rules};
use stele_client::{TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_memory::Pool;
use stele_serving::Http2Settings;

/// Flow-control window of a stream: a megabyte message in flight while the one before it is handled.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Flow-control window of a connection, which many streams share.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Largest HTTP/2 frame, so that a megabyte message is a few frames and not sixty-four.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Concurrent streams of one connection: half of the calls that the smallest budget allows, so that no connection takes
/// all of them. A client that wants more waits on its side, or opens another connection.
const STREAMS_PER_CONNECTION: u32 = 256;

/// Streams that the transport may reset because of a client's mistakes, over the life of a connection; then the
/// connection ends. The transport holds some hundreds of bytes of each until the client has read the reset, which it
/// need not do. The transport has no limit by default. This is the limit of other servers: hardly any working client
/// gets near it.
const BROKEN_STREAMS_MAX: usize = 1_024;

/// Bytes of the largest headers of a request. Clients send some hundreds, and an access token of a few thousand.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Time in which a connection must begin. The preface is one packet.
const BEGIN_WAIT: Duration = Duration::from_secs(10);

/// How often an idle connection is probed. Below the five minutes after which common NATs forget one.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a probe may remain unanswered.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves the Bigtable API from a [`TableService`] and a [`TableAdmin`].
pub struct BigtableFrontEnd {
    context: Context,
    accounting: Arc<CallAccounting>,
    access: Option<Arc<Access>>,
}

impl BigtableFrontEnd {
    /// A front end with the default limits. At most one per registry of metrics.
    pub fn new(service: Arc<dyn TableService>, admin: Arc<dyn TableAdmin>, env: Env, metrics: &Metrics) -> Self {
        Self::with_limits(service, admin, env, metrics, CallLimits::default(), Pool::default())
    }

    /// A front end with other limits. The rest of the process reserves memory in the same pool.
    pub fn with_limits(
        service: Arc<dyn TableService>,
        admin: Arc<dyn TableAdmin>,
        env: Env,
        metrics: &Metrics,
        limits: CallLimits,
        pool: Pool,
    ) -> Self {
        let accounting = Arc::new(CallAccounting::new(limits, &pool, env.clone(), metrics));
        let given_up = metrics.counter(
            "stele_bigtable_responses_cancelled_total",
            "Responses of reads that were cancelled because their clients read nothing while other requests waited for memory.",
        );
        let context = Context {
            service,
            admin,
            response_memory: ResponseMemory::new(&pool, env.clone(), given_up),
            env,
            operations: Arc::default(),
            rules: None,
            guard: None,
            instance_changes: Arc::default(),
        };
        BigtableFrontEnd {
            context,
            accounting,
            access: None,
        }
    }

    /// Serves the calls about access rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.context.rules = Some(rules);
        self
    }

    /// Serves known callers only, as far as their rights go.
    #[must_use]
    pub fn with_access(mut self, access: Arc<Access>) -> Self {
        self.access = Some(access);
        self
    }

    /// Returns a function that updates the gauges. It must be called before metrics are shown.
    pub fn gauges(&self) -> impl Fn() + Send + Sync + 'static {
        let (accounting, response_memory) = (Arc::clone(&self.accounting), self.context.response_memory.clone());
        move || accounting.update_held(response_memory.reserved_bytes())
    }

    /// All of it as one service, for connections with [`HTTP2_SETTINGS`].
    pub fn into_service(self) -> BigtableService {
        BigtableService::new(Arc::new(self.context), self.accounting, self.access)
    }
}

/// The transport's settings for this API. Windows and frames suit megabyte messages. Probes find dead clients, whose
/// streams would keep their reads alive. Clients that break the protocol are disconnected.
pub const HTTP2_SETTINGS: Http2Settings = Http2Settings {
    stream_window: STREAM_WINDOW_BYTES,
    connection_window: CONNECTION_WINDOW_BYTES,
    frame_bytes_max: FRAME_BYTES_MAX,
    header_bytes_max: HEADER_BYTES_MAX,
    streams_max: STREAMS_PER_CONNECTION,
    broken_streams_max: BROKEN_STREAMS_MAX,
    begin_wait: BEGIN_WAIT,
    probe_interval: KEEPALIVE_INTERVAL,
    probe_wait: KEEPALIVE_TIMEOUT,
};
