//! `/api/snapshots`: snapshots, which the Bigtable API calls backups.

use super::{Answer, Json, Parameters, Served, show_table};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stele_client::SnapshotInfo;

const LIMIT_MAX: usize = 500;
const LIMIT: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Snapshots {
    total: usize,
    offset: usize,
    snapshots: Vec<Snapshot>,
}

#[derive(Serialize)]
struct Snapshot {
    snapshot: String,
    table: String,
    created: i64,
    completed: i64,
    /// Absent for never.
    expires: Option<i64>,
    tablets: u64,
    bytes: u64,
}

pub(super) async fn get(served: Served, Parameters(wanted): Parameters<Wanted>) -> Answer<Snapshots> {
    let all = served.parts.admin.list_snapshots(None).await?;
    Ok(page(all, &wanted))
}

/// Tables that are kept for a time after they were deleted, or something of them was dropped.
pub(super) async fn kept(served: Served, Parameters(wanted): Parameters<Wanted>) -> Answer<Snapshots> {
    let all = served.parts.admin.kept_tables(None).await?;
    Ok(page(all, &wanted))
}

/// A page of snapshots, newest first.
fn page(mut all: Vec<Arc<SnapshotInfo>>, wanted: &Wanted) -> Json<Snapshots> {
    all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.created_micros));
    let (offset, limit) = (wanted.offset.unwrap_or(0), wanted.limit.unwrap_or(LIMIT).min(LIMIT_MAX));
    Json(Snapshots {
        total: all.len(),
        offset,
        snapshots: all
            .iter()
            .skip(offset)
            .take(limit)
            .map(|snapshot| show(snapshot))
            .collect(),
    })
}

fn show(snapshot: &SnapshotInfo) -> Snapshot {
    let seconds = |micros: i64| micros.div_euclid(1_000_000);
    Snapshot {
        snapshot: snapshot.name.to_string(),
        table: show_table(&snapshot.schema.name),
        created: seconds(snapshot.created_micros),
        completed: seconds(snapshot.completed_micros),
        expires: snapshot.expires_micros.map(seconds),
        tablets: snapshot.tablets,
        bytes: snapshot.bytes,
    }
}
