//! `/api/tablet`: everything about one tablet.

use super::tablets::{Line, line_here};
use super::{Answer, Failure, Json, Observed, Parameters};
use crate::text::Keys;
use serde::{Deserialize, Serialize};
use stele_tablet::{FileDescription, GroupDescription, RunDescription};
use stele_types::TabletId;

/// Files of a run that are listed. A run has few files, unless its tablet is far larger than the default.
const FILES_MAX: usize = 40;
/// Runs of a group that are listed, the newest first. Writes are slowed long before a group has as many.
const RUNS_MAX: usize = 80;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    id: u64,
}

#[derive(Serialize)]
pub(super) struct Tablet {
    #[serde(flatten)]
    line: Line,
    active_bytes: u64,
    frozen_bytes: Vec<u64>,
    /// Of a thousand bytes of files, how many compactions are expected to free.
    garbage_thousandths: u64,
    compaction_pressure: u64,
    rows_read: u64,
    rows_written: u64,
    mutations: u64,
    flush_error: Option<String>,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: String,
    active_bytes: u64,
    run_count: usize,
    /// Newest first; the last of all is the bottom.
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    bytes: u64,
    cells: u64,
    deletes: u64,
    file_count: usize,
    filter_bytes_held: usize,
    filter_bytes: usize,
    is_bottom: bool,
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    id: String,
    bytes: u64,
    referenced: u64,
    value_bytes: u64,
    rows: u64,
    cells: u64,
    deletes: u64,
    filter_bytes: usize,
    filter_held: bool,
    /// Seconds since 1970; 0 if unknown.
    created: i64,
    first: Option<String>,
    last: Option<String>,
    damaged: bool,
}

pub(super) async fn get(served: Observed, Parameters(wanted): Parameters<Wanted>) -> Answer<Tablet> {
    let tablet = TabletId(wanted.id);
    let Some(page) = served.parts.server.page(tablet, FILES_MAX) else {
        let damaged = served.parts.server.damaged_tablets();
        let error = damaged.into_iter().find(|(id, _)| *id == tablet);
        let message = error.map_or_else(
            || format!("tablet {} is not served here", wanted.id),
            |(_, error)| format!("tablet {} is damaged: {error}", wanted.id),
        );
        return Err(Failure::not_found(message));
    };
    let groups = page.content.groups.into_iter().zip(page.groups);
    let keys = served.keys_of(&page.line.table);
    Ok(Json(Tablet {
        line: line_here(&served, &page.line),
        active_bytes: page.content.active_bytes,
        frozen_bytes: page.content.frozen_bytes,
        garbage_thousandths: page.garbage_share,
        compaction_pressure: page.compaction_pressure,
        rows_read: page.operations.0,
        rows_written: page.operations.1,
        mutations: page.mutations,
        flush_error: page.flush_error,
        groups: groups.map(|(group, name)| show_group(group, name, keys)).collect(),
    }))
}

fn show_group(group: GroupDescription, name: String, keys: Keys) -> Group {
    let run_count = group.runs.len();
    let runs = group.runs.into_iter().enumerate().take(RUNS_MAX);
    Group {
        name,
        active_bytes: group.active_bytes,
        run_count,
        runs: runs.map(|(at, run)| show_run(run, at + 1 == run_count, keys)).collect(),
    }
}

fn show_run(run: RunDescription, is_bottom: bool, keys: Keys) -> Run {
    Run {
        bytes: run.bytes,
        cells: run.cells,
        deletes: run.deletes,
        file_count: run.files,
        filter_bytes_held: run.filter_bytes.0,
        filter_bytes: run.filter_bytes.1,
        is_bottom,
        files: run.first_files.into_iter().map(|file| show_file(file, keys)).collect(),
    }
}

fn show_file(file: FileDescription, keys: Keys) -> File {
    let (first, last) = file.rows_within.unzip();
    File {
        id: format!("{:016x}", file.id.0),
        bytes: file.bytes,
        referenced: file.referenced,
        value_bytes: file.value_bytes,
        rows: file.rows,
        cells: file.cells,
        deletes: file.deletes,
        filter_bytes: file.filter_bytes,
        filter_held: file.holds_filter,
        created: file.created_micros.div_euclid(1_000_000),
        first: first.as_deref().map(|key| keys.cut(key)),
        last: last.as_deref().map(|key| keys.cut(key)),
        damaged: file.is_damaged,
    }
}
