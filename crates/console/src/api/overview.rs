//! `/api/overview`: the state of the server on one page.

use super::{Json, Parameters, Watched, short, show_table};
use crate::series::SERIES;
use crate::waits::Waits;
use crate::{Parts, Shared};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stele_env::metrics::{Reading, ReadingValue};
use stele_memory::shares::{ALL, SHARES};
use stele_types::{TableName, TabletId};

/// Tablets that are named because they wait longest, and that are named because they are damaged.
const NAMED_MAX: usize = 20;
/// Bytes of an error that are shown.
const ERROR_BYTES_MAX: usize = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Serialize)]
pub(super) struct Overview {
    version: &'static str,
    stage: &'static str,
    now: i64,
    started: i64,
    data: String,
    memory_budget: u64,
    ports: BTreeMap<&'static str, String>,
    /// The newest value of each series; absent during the first seconds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<&'static str, f64>,
    #[serde(flatten)]
    server: Option<Server>,
}

/// The part of a server that has recovered.
#[derive(Serialize)]
struct Server {
    epoch: u32,
    writes_refused: bool,
    memory: Vec<Consumer>,
    waiting: Vec<Kind>,
    longest_waits: Vec<WaitingTablet>,
    damaged: Vec<Damaged>,
    slow_calls: u64,
    /// Seconds; absent when slow calls are not noted.
    slow_threshold: Option<f64>,
}

/// A consumer of memory.
#[derive(Serialize)]
struct Consumer {
    name: &'static str,
    used: u64,
    limit: u64,
}

#[derive(Serialize)]
struct Kind {
    wait: &'static str,
    tablets: usize,
    longest: f64,
}

#[derive(Serialize)]
struct WaitingTablet {
    tablet: String,
    table: String,
    wait: &'static str,
    seconds: f64,
}

#[derive(Serialize)]
struct Damaged {
    tablet: String,
    error: String,
}

pub(super) async fn get(Watched(console): Watched, Parameters(Nothing {}): Parameters<Nothing>) -> Json<Overview> {
    let shared = &console.0;
    let about = &shared.about;
    Json(Overview {
        version: about.version,
        stage: shared.host.stage(),
        now: shared.env.wall_micros().div_euclid(1_000_000),
        started: shared.started,
        data: about.data.clone(),
        memory_budget: about.memory,
        ports: about.ports.iter().cloned().collect(),
        values: values(shared),
        server: shared.served.get().map(|parts| server(shared, parts)),
    })
}

fn values(shared: &Shared) -> BTreeMap<&'static str, f64> {
    let history = shared.history.lock();
    let values = history.last().map(|point| &point.values[..]).unwrap_or_default();
    let named = SERIES.iter().zip(values);
    named
        .map(|(series, value)| (series.name, short(f64::from(*value))))
        .collect()
}

fn server(shared: &Shared, parts: &Parts) -> Server {
    let now = shared.env.now();
    let waits = shared.waits.lock();
    let kinds = waits.by_kind(now).into_iter();
    let mut damaged = parts.server.damaged_tablets();
    damaged.truncate(NAMED_MAX);
    Server {
        epoch: parts.server.epoch().0,
        writes_refused: parts.server.is_refusing_writes(),
        memory: memory(shared, parts),
        waiting: kinds
            .map(|(wait, (tablets, longest))| Kind {
                wait: wait.name(),
                tablets,
                longest: short(longest.as_secs_f64()),
            })
            .collect(),
        longest_waits: longest_waits(&waits, parts, shared),
        damaged: damaged
            .into_iter()
            .map(|(tablet, error)| Damaged {
                tablet: show_tablet(tablet),
                error: error.to_string().chars().take(ERROR_BYTES_MAX).collect(),
            })
            .collect(),
        slow_calls: parts.slow.count(),
        slow_threshold: parts.slow.threshold().map(|threshold| threshold.as_secs_f64()),
    }
}

fn longest_waits(waits: &Waits, parts: &Parts, shared: &Shared) -> Vec<WaitingTablet> {
    let table = |tablet: TabletId| -> Option<TableName> {
        let served = parts.server.served(tablet).ok()?;
        Some(served.tablet.with_schema(|schema| schema.name.clone()))
    };
    let longest = waits.longest(shared.env.now(), NAMED_MAX);
    longest
        .into_iter()
        .map(|(tablet, wait, lasts)| WaitingTablet {
            tablet: show_tablet(tablet),
            table: table(tablet).map(|name| show_table(&name)).unwrap_or_default(),
            wait: wait.name(),
            seconds: short(lasts.as_secs_f64()),
        })
        .collect()
}

/// As tablets are named in the API: numbers of 64 bits are not exact in JavaScript.
pub(super) fn show_tablet(tablet: TabletId) -> String {
    tablet.0.to_string()
}

/// Memtables and caches with their grants, and the consumers of the pool with their limits.
fn memory(shared: &Shared, parts: &Parts) -> Vec<Consumer> {
    let readings = shared.metrics.read();
    let granted = |of: &str| {
        let is_it =
            |reading: &&Reading| reading.name == "stele_memory_granted_bytes" && reading.label("pool") == Some(of);
        number(readings.iter().find(is_it))
    };
    let used = |metric: &str| number(readings.iter().find(|reading| reading.name == metric));
    let mut consumers = vec![
        Consumer {
            name: "memtables",
            used: used("stele_memtable_bytes"),
            limit: granted("memtables"),
        },
        Consumer {
            name: "block cache",
            used: used("stele_block_cache_bytes"),
            limit: granted("blocks"),
        },
        Consumer {
            name: "row cache",
            used: used("stele_row_cache_bytes"),
            limit: granted("rows"),
        },
    ];
    let pool = parts.server.pool();
    consumers.extend(ALL.into_iter().map(|part| {
        let consumer = pool.of(part);
        Consumer {
            name: SHARES[part as usize].name,
            used: consumer.used() as u64,
            limit: consumer.limit() as u64,
        }
    }));
    consumers
}

fn number(reading: Option<&Reading>) -> u64 {
    match reading.map(|reading| &reading.value) {
        Some(ReadingValue::Number(number)) => number.max(0.0) as u64,
        _ => 0,
    }
}
