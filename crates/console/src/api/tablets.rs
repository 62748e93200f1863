//! `/api/tablets`: tablets of a table or of all, a page at a time.

use super::overview::show_tablet;
use super::{Answer, Json, Observed, Parameters, Served, short, show_table, table_name};
use crate::text::Keys;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use stele_client::TabletPlace;
use stele_tabletserver::status::TabletLine;
use stele_types::{RowRange, TableName, TabletId};

/// Tablets of a page.
const LIMIT_MAX: usize = 1_000;
const LIMIT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// All tables when absent.
    table: Option<String>,
    #[serde(default)]
    sort: Sort,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// The order of a list; of equal tablets by table and row.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Row,
    Size,
    Busy,
    Debt,
    Memory,
    Files,
    Waits,
}

#[derive(Serialize)]
pub(super) struct Tablets {
    total: usize,
    offset: usize,
    tablets: Vec<Line>,
}

#[derive(Serialize)]
pub(super) struct Line {
    id: String,
    table: String,
    start: String,
    /// Absent for the end of the table.
    end: Option<String>,
    /// `here`, `damaged` or `elsewhere`. The numbers are known of those that are here.
    place: &'static str,
    epoch: u32,
    bytes: u64,
    memtable_bytes: u64,
    runs: usize,
    files: usize,
    debt_bytes: u64,
    reads: f64,
    writes: f64,
    waits: Vec<Waiting>,
}

#[derive(Serialize)]
pub(super) struct Waiting {
    wait: &'static str,
    seconds: f64,
}

pub(super) async fn get(served: Observed, Parameters(wanted): Parameters<Wanted>) -> Answer<Tablets> {
    let table = wanted.table.as_deref().map(table_name).transpose()?;
    let mut lines = served
        .parts
        .server
        .lines(|_, name| table.as_ref().is_none_or(|table| table == name));
    let others = match &table {
        Some(table) => others(&served, table, &lines)?,
        None => Vec::new(),
    };
    sort(&mut lines, wanted.sort);
    let total = lines.len() + others.len();
    let (offset, limit) = (wanted.offset.unwrap_or(0), wanted.limit.unwrap_or(LIMIT).min(LIMIT_MAX));
    let here = lines
        .iter()
        .skip(offset)
        .take(limit)
        .map(|line| line_here(&served, line));
    let mut tablets: Vec<Line> = here.collect();
    let rest = others.into_iter().skip(offset.saturating_sub(lines.len()));
    tablets.extend(rest.take(limit - tablets.len()));
    Ok(Json(Tablets { total, offset, tablets }))
}

fn sort(lines: &mut [TabletLine], sort: Sort) {
    lines.sort_by(|a, b| (&a.table, &a.range.start).cmp(&(&b.table, &b.range.start)));
    match sort {
        Sort::Row => {}
        Sort::Size => lines.sort_by_key(|line| Reverse(line.bytes + line.memtable_bytes)),
        Sort::Busy => lines.sort_by(|a, b| busy(b).total_cmp(&busy(a))),
        Sort::Debt => lines.sort_by_key(|line| Reverse(line.debt_bytes)),
        Sort::Memory => lines.sort_by_key(|line| Reverse(line.memtable_bytes)),
        Sort::Files => lines.sort_by_key(|line| Reverse(line.files)),
        Sort::Waits => lines.sort_by_key(|line| Reverse(line.waits.len())),
    }
}

fn busy(line: &TabletLine) -> f32 {
    line.reads_per_second + line.writes_per_second
}

/// The tablets of a table that are not served here.
fn others(served: &Served, table: &TableName, lines: &[TabletLine]) -> Result<Vec<Line>, super::Failure> {
    let here: BTreeSet<TabletId> = lines.iter().map(|line| line.id).collect();
    let damaged: BTreeSet<TabletId> = served
        .parts
        .server
        .damaged_tablets()
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    let places = served.parts.service.places(table)?;
    let keys = served.keys_of(table);
    let others = places.into_iter().filter(|place| !here.contains(&place.id));
    let line = |TabletPlace { id, range, .. }| Line {
        place: if damaged.contains(&id) { "damaged" } else { "elsewhere" },
        ..line_of(id, table, &range, keys)
    };
    Ok(others.map(line).collect())
}

/// A line with nothing but names.
fn line_of(id: TabletId, table: &TableName, range: &RowRange, keys: Keys) -> Line {
    Line {
        id: show_tablet(id),
        table: show_table(table),
        start: keys.cut(&range.start),
        end: range.end.as_deref().map(|end| keys.cut(end)),
        place: "here",
        epoch: 0,
        bytes: 0,
        memtable_bytes: 0,
        runs: 0,
        files: 0,
        debt_bytes: 0,
        reads: 0.0,
        writes: 0.0,
        waits: Vec::new(),
    }
}

/// A tablet that is served here.
pub(super) fn line_here(served: &Served, line: &TabletLine) -> Line {
    let now = served.shared().env.now();
    let since = served.shared().waits.lock();
    let waiting = |wait: &stele_tabletserver::status::Wait| Waiting {
        wait: wait.name(),
        seconds: short(since.lasts(line.id, *wait, now).as_secs_f64()),
    };
    Line {
        epoch: line.epoch.0,
        bytes: line.bytes,
        memtable_bytes: line.memtable_bytes,
        runs: line.runs,
        files: line.files,
        debt_bytes: line.debt_bytes,
        reads: short(f64::from(line.reads_per_second)),
        writes: short(f64::from(line.writes_per_second)),
        waits: line.waits.iter().map(waiting).collect(),
        ..line_of(line.id, &line.table, &line.range, served.keys_of(&line.table))
    }
}
