//! Pages for health, readiness and metrics over HTTP, and the console.
//!
//! `/healthz` tells that the process runs, `/readyz` that it serves requests. `/metrics` has the metrics as Prometheus
//! text. Everything else is the console's (`stele_console`).

mod listener;

pub use listener::PageConnections;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use stele_console::{Console, Host};
use stele_env::metrics::{IntGaugeVec, Metrics};
use stele_settings::sizes;
use stele_tabletserver::TabletServer;

/// The state behind the pages.
#[derive(Clone)]
pub struct Pages {
    metrics: Metrics,
    stage: Arc<AtomicU8>,
    server: Arc<OnceLock<Arc<TabletServer>>>,
    front_end: Arc<OnceLock<UpdateGauges>>,
    resident: IntGaugeVec,
}

/// Updates a group of gauges.
type UpdateGauges = Box<dyn Fn() + Send + Sync>;

/// The stage of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Recovery reads the data.
    Recovering = 0,
    /// The server serves requests.
    Ready = 1,
    /// The server finishes requests in flight.
    Stopping = 2,
}

impl Pages {
    /// Pages of a process that has just started.
    pub fn new(metrics: Metrics) -> Self {
        let resident = metrics.gauges(
            "stele_resident_bytes",
            "Bytes of the process that are in memory: its own, and those of files it has mapped, the program above all.",
            &["kind"],
        );
        Pages {
            metrics,
            resident,
            front_end: Arc::default(),
            stage: Arc::new(AtomicU8::new(Stage::Recovering as u8)),
            server: Arc::default(),
        }
    }

    /// Sets the stage.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Sets the server whose gauges are shown.
    pub fn set_server(&self, server: Arc<TabletServer>) {
        let _ = self.server.set(server);
    }

    /// Sets the function that updates the front end's gauges.
    pub fn set_front_end(&self, update: impl Fn() + Send + Sync + 'static) {
        let _ = self.front_end.set(Box::new(update));
    }

    /// The routes, with those of the console.
    pub fn router(self, console: &Console) -> Router {
        let pages = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        pages.merge(console.router())
    }
}

impl Host for Pages {
    fn stage(&self) -> &'static str {
        match self.stage.load(Ordering::Acquire) {
            0 => "recovering",
            1 => "ready",
            _ => "stopping",
        }
    }

    fn update_gauges(&self) {
        if let Some(server) = self.server.get() {
            server.update_gauges();
        }
        if let Some(update) = self.front_end.get() {
            update();
        }
        for (kind, line) in [("own", "RssAnon:"), ("files", "RssFile:")] {
            let bytes = sizes::status_bytes(line).and_then(|bytes| i64::try_from(bytes).ok());
            self.resident.with_label_values(&[kind]).set(bytes.unwrap_or(0));
        }
    }
}

async fn readyz(State(pages): State<Pages>) -> Response {
    match pages.stage.load(Ordering::Acquire) {
        0 => (StatusCode::SERVICE_UNAVAILABLE, "recovering\n").into_response(),
        1 => {
            let full = pages.server.get().is_some_and(|s| s.is_refusing_writes());
            let text = if full {
                "ready for reads; writes are refused: the disk is full\n"
            } else {
                "ready\n"
            };
            text.into_response()
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
    }
}

async fn metrics(State(pages): State<Pages>) -> Response {
    pages.update_gauges();
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        pages.metrics.render(),
    )
        .into_response()
}
