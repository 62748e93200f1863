//! `/api/slow`: slow calls.

use super::{Answer, Json, Observed, Parameters, show_table};
use crate::text::Keys;
use serde::{Deserialize, Serialize};
use stele_client::SlowCall;

const LIMIT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    order: Order,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Last,
    Slowest,
}

#[derive(Serialize)]
pub(super) struct Slow {
    /// Slow calls since the start.
    count: u64,
    /// Seconds; absent when slow calls are not noted.
    threshold: Option<f64>,
    calls: Vec<Call>,
}

#[derive(Serialize)]
struct Call {
    /// Seconds since 1970 at its end.
    time: f64,
    seconds: f64,
    kind: &'static str,
    table: String,
    start: String,
    end: Option<String>,
    /// Ranges of a read, rows of a write.
    ranges: u64,
    rows: u64,
    cells_seen: u64,
    cells_passed: u64,
    blocks_read: u64,
    error: Option<String>,
}

pub(super) async fn get(served: Observed, Parameters(wanted): Parameters<Wanted>) -> Answer<Slow> {
    let slow = &served.parts.slow;
    let calls = match wanted.order {
        Order::Last => slow.last(),
        Order::Slowest => slow.slowest(),
    };
    let limit = wanted.limit.unwrap_or(LIMIT);
    Ok(Json(Slow {
        count: slow.count(),
        threshold: slow.threshold().map(|threshold| threshold.as_secs_f64()),
        calls: calls
            .iter()
            .take(limit)
            .map(|call| show(call, served.keys_of(&call.table)))
            .collect(),
    }))
}

fn show(call: &SlowCall, keys: Keys) -> Call {
    Call {
        time: call.ended_micros as f64 / 1e6,
        seconds: call.took.as_secs_f64(),
        kind: call.kind.name(),
        table: show_table(&call.table),
        start: keys.cut(&call.rows.start),
        end: call.rows.end.as_deref().map(|end| keys.cut(end)),
        ranges: call.rows.count,
        rows: call.work.rows,
        cells_seen: call.work.cells_seen,
        cells_passed: call.work.cells_passed,
        blocks_read: call.work.blocks_read,
        error: call.error.map(|kind| format!("{kind:?}")),
    }
}
