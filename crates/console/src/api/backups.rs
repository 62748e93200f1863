//! `/api/backups`: works on backups at destinations, and the archive of the log.

use super::{Answer, Json, Parameters, Served, show_table};
use crate::totals::{Selector, Totals};
use serde::{Deserialize, Serialize};
use stele_client::OrderedWork;

/// Most damage of a work that is shown.
const DAMAGE_MAX: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Serialize)]
pub(super) struct Backups {
    /// Newest first.
    works: Vec<Work>,
    archive: Option<Archive>,
}

#[derive(Serialize)]
struct Work {
    number: u64,
    task: String,
    backup: String,
    destination: String,
    begun: i64,
    /// Absent while it runs.
    ended: Option<i64>,
    /// `running`, `done`, `damaged` or `failed`.
    state: &'static str,
    step: String,
    files: u64,
    files_done: u64,
    bytes: u64,
    bytes_done: u64,
    bytes_copied: u64,
    /// Tables that a restore has made.
    tables: Vec<String>,
    /// Why it failed, or damage that it found.
    problems: Vec<String>,
}

/// The archive of this server's log.
#[derive(Serialize)]
struct Archive {
    place: String,
    /// Age of the newest moment that can be restored, in seconds.
    lag_seconds: f64,
    lag_bytes: f64,
    /// Rounds that failed since the start.
    failures: f64,
    /// Ranges that were begun since the start: more than one tells of a gap.
    ranges: f64,
}

pub(super) async fn get(served: Served, Parameters(_): Parameters<Nothing>) -> Answer<Backups> {
    let works = served.parts.admin.backup_works().await?;
    let shared = served.shared();
    let archive = shared.about.archive.clone().map(|place| {
        let now = Totals {
            at: shared.env.now(),
            readings: shared.metrics.read(),
        };
        let of = |metric| now.sum(&[Selector { metric, label: None }]);
        Archive {
            place,
            lag_seconds: of("stele_log_archive_lag_seconds"),
            lag_bytes: of("stele_log_archive_lag_bytes"),
            failures: of("stele_log_archive_failures_total"),
            ranges: of("stele_log_archive_ranges_total"),
        }
    });
    Ok(Json(Backups {
        works: works.iter().map(show).collect(),
        archive,
    }))
}

fn show(ordered: &OrderedWork) -> Work {
    let seconds = |micros: i64| micros.div_euclid(1_000_000);
    let OrderedWork { work, order } = ordered;
    let (progress, outcome) = (&work.progress, &work.outcome);
    let (state, tables, problems) = match outcome {
        None => ("running", Vec::new(), Vec::new()),
        Some(Err(error)) => ("failed", Vec::new(), vec![error.to_string()]),
        Some(Ok(outcome)) => {
            let mut damage: Vec<String> = outcome.damage.iter().take(DAMAGE_MAX).cloned().collect();
            let more = outcome.more_damage + (outcome.damage.len() - damage.len()) as u64;
            if more > 0 {
                damage.push(format!("and {more} more"));
            }
            let state = if damage.is_empty() { "done" } else { "damaged" };
            (state, outcome.tables.iter().map(show_table).collect(), damage)
        }
    };
    Work {
        number: work.number,
        task: order.task.clone(),
        backup: order.backup.clone(),
        destination: order.destination.clone(),
        begun: seconds(order.begun_micros),
        ended: order.ended_micros.map(seconds),
        state,
        step: progress.step.clone(),
        files: progress.files,
        files_done: progress.files_done,
        bytes: progress.bytes,
        bytes_done: progress.bytes_done,
        bytes_copied: progress.bytes_copied,
        tables,
        problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_client::{BackupOutcome, BackupProgress, BackupWork, ServiceError, ServiceResult, WorkOrder};

    fn shown(outcome: Option<ServiceResult<BackupOutcome>>) -> Work {
        show(&OrderedWork {
            order: WorkOrder {
                task: "verify".to_owned(),
                backup: "daily".to_owned(),
                destination: "s3://bucket/b".to_owned(),
                begun_micros: 7_000_000,
                ended_micros: outcome.is_some().then_some(8_999_999),
            },
            work: BackupWork {
                number: 3,
                progress: BackupProgress::default(),
                outcome,
            },
        })
    }

    #[test]
    fn a_work_is_shown_with_its_end() {
        let running = shown(None);
        assert_eq!((running.state, running.begun, running.ended), ("running", 7, None));
        let failed = shown(Some(Err(ServiceError::not_found("no backup daily"))));
        assert_eq!((failed.state, failed.ended), ("failed", Some(8)));
        assert!(failed.problems[0].contains("no backup daily"));
        let whole = BackupOutcome::default();
        assert_eq!(shown(Some(Ok(whole.clone()))).state, "done");
        let damaged = shown(Some(Ok(BackupOutcome {
            damage: (0..30).map(|at| format!("sst/{at}")).collect(),
            more_damage: 5,
            ..whole
        })));
        assert_eq!((damaged.state, damaged.problems.len()), ("damaged", DAMAGE_MAX + 1));
        assert_eq!(damaged.problems[DAMAGE_MAX], "and 15 more");
    }
}
