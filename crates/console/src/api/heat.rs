//! `/api/heat`: a part of the heat map.

use super::{Answer, Failure, Json, Observed, Parameters, show_table, table_name};
use crate::text::unescape;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stele_tabletserver::heat::map::{HeatGrid, HeatQuery, Operations};
use stele_types::RowRange;

/// Columns and ranges of an answer at most: the numbers of a grid take less than half a megabyte.
const COLUMNS_MAX: usize = 240;
const RANGES_MAX: usize = 128;
/// The time that is shown unless another is asked for.
const SECONDS: i64 = 1_800;
/// Bounds of tablets that are marked.
const MARKS_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    table: String,
    /// Rows, spelled with escapes.
    start: Option<String>,
    end: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
    columns: Option<usize>,
    ranges: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Heat {
    table: String,
    from: i64,
    to: i64,
    /// Seconds of a column.
    seconds: i64,
    /// The start of each column; a time without a column had no operations.
    columns: Vec<i64>,
    /// The first row of each range, and the end of the last.
    starts: Vec<String>,
    end: Option<String>,
    /// The caller may not know the rows.
    hidden: bool,
    /// Whether a tablet begins within each range or at its start.
    tablets: Vec<bool>,
    /// Rows read: all ranges of the first column, then those of the second.
    reads: Vec<u64>,
    writes: Vec<u64>,
}

pub(super) async fn get(served: Observed, Parameters(wanted): Parameters<Wanted>) -> Answer<Heat> {
    let name = table_name(&wanted.table)?;
    let schema = served.parts.service.schema(&name)?;
    let keys = served.keys_of(&name);
    if !keys.are_shown && (wanted.start.is_some() || wanted.end.is_some()) {
        // The operations of ranges that a caller chooses would tell the rows.
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "parts of the rows need the right to read the table",
        ));
    }
    let key = |text: &Option<String>| text.as_deref().map(unescape).transpose().map_err(Failure::invalid);
    let rows = RowRange {
        start: key(&wanted.start)?.unwrap_or_default().into(),
        end: key(&wanted.end)?.filter(|end| !end.is_empty()).map(Into::into),
    };
    let now = served.shared().env.wall_micros().div_euclid(1_000_000);
    let to = wanted.to.unwrap_or(now).min(now + 1);
    let from = wanted.from.unwrap_or(to - SECONDS).max(0);
    if from >= to || rows.is_empty() {
        return Err(Failure::invalid("the time and the rows must not be empty"));
    }
    let query = HeatQuery {
        table: schema.id,
        rows: rows.clone(),
        from,
        to,
        columns_max: wanted.columns.unwrap_or(COLUMNS_MAX).clamp(1, COLUMNS_MAX),
        ranges_max: wanted.ranges.unwrap_or(RANGES_MAX).clamp(1, RANGES_MAX),
    };
    let grid = served.parts.server.heat().with_map(|map| map.grid(&query));
    let places = served.parts.service.places(&name)?;
    let starts = places.iter().map(|place| &place.range.start[..]);
    Ok(Json(Heat {
        table: show_table(&name),
        from,
        to,
        seconds: grid.seconds,
        tablets: marks(&grid, starts),
        starts: grid.starts.iter().map(|start| keys.whole(start)).collect(),
        end: rows.end.as_deref().map(|end| keys.whole(end)),
        hidden: !keys.are_shown,
        reads: numbers(&grid, |operations| operations.reads),
        writes: numbers(&grid, |operations| operations.writes),
        columns: grid.columns,
    }))
}

fn numbers(grid: &HeatGrid, of: impl Fn(&Operations) -> u64) -> Vec<u64> {
    grid.operations.iter().map(of).collect()
}

/// Whether a tablet begins in each range; none are marked where nearly all would be.
fn marks<'a>(grid: &HeatGrid, starts: impl Iterator<Item = &'a [u8]>) -> Vec<bool> {
    let mut marks = vec![false; grid.starts.len()];
    let (mut count, first) = (0, grid.starts.first().map(|first| &first[..]).unwrap_or_default());
    for start in starts.filter(|start| *start > first) {
        let range = grid.starts.partition_point(|of| &of[..] <= start).saturating_sub(1);
        if let Some(mark) = marks.get_mut(range) {
            *mark = true;
        }
        count += 1;
    }
    if count > MARKS_MAX {
        vec![false; marks.len()]
    } else {
        marks
    }
}
