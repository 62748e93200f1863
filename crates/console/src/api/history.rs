//! `/api/history`: the points of all series.

use super::{Json, Parameters, Watched, short};
use crate::series::SERIES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Points of an answer: half an hour.
const POINTS_MAX: usize = 360;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only points after this time.
    since: Option<i64>,
    points: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Points {
    times: Vec<i64>,
    /// A value for each time; null where there is none.
    series: BTreeMap<&'static str, Vec<f64>>,
}

pub(super) async fn get(Watched(console): Watched, Parameters(wanted): Parameters<Wanted>) -> Json<Points> {
    let count = wanted.points.unwrap_or(POINTS_MAX).min(POINTS_MAX);
    let points = console.0.history.lock().since(wanted.since.unwrap_or(0), count);
    let column = |at: usize| {
        let values = points.iter().map(|point| point.values.get(at).copied());
        values
            .map(|value| short(f64::from(value.unwrap_or(f32::NAN))))
            .collect()
    };
    let series = SERIES.iter().enumerate();
    Json(Points {
        times: points.iter().map(|point| point.time).collect(),
        series: series.map(|(at, series)| (series.name, column(at))).collect(),
    })
}
