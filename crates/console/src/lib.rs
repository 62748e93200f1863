//! The console of a server: pages for people, and the JSON behind them.
//!
//! Terms: a *line* is a tablet in a list, a *page* everything about one tablet, a *point* the values of all series at one time.
//!
//! * [`assets`] are the files of the pages, which are in the binary. They ask no other host for anything.
//! * [`api`] answers `/api/…`. Every answer is bounded. Cells and access rules can be changed through it, nothing else.
//! * [`callers`] finds the caller of a request, and keeps other pages of a browser from changes.
//! * [`history`] keeps the last hour of some thirty series; [`series`] says which, from which metrics, and [`totals`] adds these up.
//! * [`waits`] notes since when tablets wait for something.
//! * [`text`] spells row keys.
//!
//! A task ticks once a second ([`Console::watch`]): without it nothing is sampled. While the server recovers the pages are
//! there, and the API says so.
#![forbid(unsafe_code)]

pub mod api;
pub mod assets;
mod callers;
mod failure;
pub mod history;
pub mod series;
pub mod text;
pub mod totals;
pub mod waits;

use axum::Router;
use history::History;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stele_access::{Access, Rules};
use stele_client::{SlowCalls, TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_tabletserver::TabletServer;
use tokio::sync::Semaphore;
use waits::Waits;

/// Time between two ticks.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two points of the history.
const TICKS_PER_POINT: u64 = 5;

/// Reads and changes of rows at a time: they are for people.
const BROWSERS_MAX: usize = 8;

/// The console of one process. Cloning shares it.
#[derive(Clone)]
pub struct Console(Arc<Shared>);

pub(crate) struct Shared {
    env: Env,
    metrics: Metrics,
    about: About,
    host: Box<dyn Host>,
    history: Mutex<History>,
    waits: Mutex<Waits>,
    /// Permits of reads and changes of rows.
    browsing: Semaphore,
    served: OnceLock<Parts>,
    /// Seconds since 1970.
    started: i64,
}

/// Facts about the process that do not change.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Version of the program.
    pub version: &'static str,
    /// Place of the data.
    pub data: String,
    /// Place of the archive of the log; `None` without one.
    pub archive: Option<String>,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Callers must show a token.
    pub is_guarded: bool,
    /// The server is one of a cluster.
    pub is_cluster: bool,
    /// Only programs of this machine reach the port of the console.
    pub is_local: bool,
    /// Names and addresses of the ports.
    pub ports: Vec<(&'static str, String)>,
}

/// The process that the server runs in.
pub trait Host: Send + Sync + 'static {
    /// The stage of its life: `recovering`, `ready` or `stopping`.
    fn stage(&self) -> &'static str;

    /// Brings all gauges up to date.
    fn update_gauges(&self);
}

/// The parts of a server that has recovered.
#[derive(Clone)]
pub struct Parts {
    /// The tablet server.
    pub server: Arc<TabletServer>,
    /// Locations of tablets.
    pub service: Arc<dyn TableService>,
    /// Tables and snapshots.
    pub admin: Arc<dyn TableAdmin>,
    /// Slow calls.
    pub slow: Arc<SlowCalls>,
    /// The access rules.
    pub rules: Rules,
    /// Finds the callers; `None` where everybody may do everything.
    pub access: Option<Arc<Access>>,
}

impl Console {
    /// The console of a process that has just started.
    pub fn new(env: Env, metrics: Metrics, about: About, host: impl Host) -> Self {
        let started = env.wall_micros().div_euclid(1_000_000);
        Console(Arc::new(Shared {
            env,
            metrics,
            about,
            host: Box::new(host),
            history: Mutex::default(),
            waits: Mutex::default(),
            browsing: Semaphore::new(BROWSERS_MAX),
            served: OnceLock::new(),
            started,
        }))
    }

    /// The pages and the API.
    pub fn router(&self) -> Router {
        assets::router().merge(api::router(self.clone()))
    }

    /// The server has recovered: shows it, and watches it until it stops.
    pub fn watch(&self, parts: Parts) {
        let server = parts.server.clone();
        if self.0.served.set(parts).is_err() {
            return;
        }
        let console = self.clone();
        let env = self.0.env.clone();
        self.0.env.spawn_background("console", async move {
            let mut last = env.now();
            let mut ticks = 0u64;
            while !server.is_stopping() {
                env.sleep(TICK).await;
                let now = env.now();
                console.tick(&server, now.saturating_sub(last), ticks);
                (last, ticks) = (now, ticks + 1);
            }
        });
    }

    fn tick(&self, server: &TabletServer, since: Duration, ticks: u64) {
        let shared = &self.0;
        server.tick_heat(since);
        shared.waits.lock().note(server.waiting(), shared.env.now());
        if ticks.is_multiple_of(TICKS_PER_POINT) {
            shared.host.update_gauges();
            let wall_seconds = shared.env.wall_micros().div_euclid(1_000_000);
            let readings = shared.metrics.read();
            shared.history.lock().add(wall_seconds, shared.env.now(), &readings);
        }
    }
}
