//! Sends traces of requests to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! [`stele_env::trace`] says where spans begin and end, and queues them. One task takes them from its queue, batch by batch,
//! and sends one batch at a time. It is the only part of the server that waits for the collector.
//!
//! A collector that is absent, slow or broken costs spans: a batch has [`EXPORT_LIMIT`], and is tried again a few times if the
//! collector says that it is unavailable. Meanwhile the queue fills, and drops. `stele_trace_spans_total` counts both, and the
//! log has a warning a minute.
//!
//! The messages are written by hand ([`messages`]): their crates would bring the whole of OpenTelemetry's SDK along.

mod convert;
mod messages;

use anyhow::Context;
use convert::Source;
use messages::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::trace::{Finished, Tracer};
use stele_settings::TraceConfig;
use tokio::sync::oneshot;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time in which the collector must take a batch, as in OpenTelemetry's own exporters.
const EXPORT_LIMIT: Duration = Duration::from_secs(10);

/// Attempts at one batch while the collector is unavailable.
const ATTEMPTS_MAX: u32 = 3;

/// Pause after the first attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Time that a stopping server gives to the spans that are queued.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The task that sends traces.
pub struct Exporter {
    tracer: Arc<Tracer>,
    ended: oneshot::Receiver<()>,
}

/// Starts to trace the requests of an environment, if the settings name a collector. The address names this server among others.
pub fn start(
    config: Option<&TraceConfig>,
    env: Env,
    address: &str,
    metrics: &Metrics,
) -> anyhow::Result<(Env, Option<Exporter>)> {
    let Some(config) = config else {
        return Ok((env, None));
    };
    let tracer = Arc::new(Tracer::new(config.part, metrics));
    let sending = Sending {
        channel: endpoint(&config.collector)?.connect_lazy(),
        source: Source::new(address, env!("CARGO_PKG_VERSION")),
        tracer: Arc::clone(&tracer),
        env: env.clone(),
        warned: None,
    };
    let (tell, ended) = oneshot::channel();
    env.spawn_background("trace export", async move {
        sending.run().await;
        let _ = tell.send(());
    });
    let exporter = Exporter {
        tracer: Arc::clone(&tracer),
        ended,
    };
    Ok((env.with_tracer(tracer), Some(exporter)))
}

impl Exporter {
    /// Traces no more requests, and gives the collector a moment to take the spans that are queued.
    pub async fn finish(self, env: &Env) {
        self.tracer.close();
        let _ = env.timeout(FINISH_LIMIT, self.ended).await;
    }
}

/// The collector, as tonic connects to it.
fn endpoint(collector: &str) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::from_shared(collector.to_owned()).with_context(|| format!("otlp: {collector:?}"))?;
    let endpoint = endpoint.connect_timeout(CONNECT_LIMIT);
    if !collector.starts_with("https://") {
        return Ok(endpoint);
    }
    let tls = ClientTlsConfig::new().with_native_roots();
    endpoint
        .tls_config(tls)
        .context("otlp: the authorities of the system cannot be used")
}

/// The state of the task.
struct Sending {
    env: Env,
    tracer: Arc<Tracer>,
    channel: Channel,
    source: Source,
    /// When the log had the last warning.
    warned: Option<Duration>,
}

impl Sending {
    /// Sends batches until the tracer is closed and empty.
    async fn run(mut self) {
        while let Some(batch) = self.tracer.next_batch(&self.env).await {
            let spans: usize = batch.iter().map(Finished::spans).sum();
            let request = self.source.request(batch);
            match self.send(&request).await {
                Ok(refused) => {
                    let refused = spans.min(refused);
                    self.tracer.count_exported(spans - refused);
                    self.tracer.count_failed(refused);
                }
                Err(status) => {
                    self.tracer.count_failed(spans);
                    self.warn(&status);
                }
            }
        }
    }

    /// Sends a batch; the number of spans that the collector has refused.
    async fn send(&self, request: &ExportTraceServiceRequest) -> Result<usize, Status> {
        let mut attempt = 1;
        loop {
            let sent = self.env.timeout(EXPORT_LIMIT, self.try_send(request.clone())).await;
            match sent {
                Ok(Err(status)) if status.code() == Code::Unavailable && attempt < ATTEMPTS_MAX => {
                    self.env.sleep(PAUSE * (1 << (attempt - 1))).await;
                    attempt += 1;
                }
                Ok(outcome) => return outcome,
                Err(_) => {
                    let message = format!("the collector did not answer within {EXPORT_LIMIT:?}");
                    return Err(Status::deadline_exceeded(message));
                }
            }
        }
    }

    async fn try_send(&self, request: ExportTraceServiceRequest) -> Result<usize, Status> {
        let mut calls = tonic::client::Grpc::new(self.channel.clone());
        let unreachable = |error: tonic::transport::Error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Status::unavailable(why)
        };
        calls.ready().await.map_err(unreachable)?;
        let codec: ProstCodec<ExportTraceServiceRequest, ExportTraceServiceResponse> = ProstCodec::default();
        let response = calls.unary(Request::new(request), PathAndQuery::from_static(EXPORT), codec);
        let response = response.await?.into_inner();
        let refused = response.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(usize::try_from(refused).unwrap_or(0))
    }

    /// Warns, if the last warning is old enough.
    fn warn(&mut self, status: &Status) {
        let now = self.env.now();
        let is_due = |last: Duration| now.saturating_sub(last) >= WARNING_INTERVAL;
        if self.warned.is_none_or(is_due) {
            self.warned = Some(now);
            let (code, message) = (status.code(), status.message());
            let dropped = self.tracer.dropped();
            tracing::warn!(?code, message, dropped, "the collector does not take traces");
        }
    }
}
