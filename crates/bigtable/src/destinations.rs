//! Handlers of `stele.admin.v1.Backups`, which the Bigtable API does not have.
//!
//! It is about backups at destinations outside of the data root. The backups of the Bigtable API are snapshots and have handlers of their own.

use crate::accounting::Call;
use crate::context::Context;
use crate::names::TableResource;
use crate::pb::own as pb;
use crate::status::{code, invalid, status};
use stele_client::{BackupDestination, BackupInfo, BackupOrder, BackupTask, BackupWork};
use stele_types::TableName;
use tonic::Status;

/// Memory of a backup or of the name of a table in a response.
const ENTRY_BYTES: usize = 512;
/// Tables of one order.
const TABLES_MAX: usize = 10_000;

pub(crate) async fn begin_work(
    context: &Context,
    _: &Call,
    request: pb::BeginBackupWorkRequest,
) -> Result<pb::BackupWork, Status> {
    let number = context.admin.begin_backup_work(order(request)?).await.map_err(status)?;
    let work = context.admin.backup_work(number).await.map_err(status)?;
    Ok(shown(work))
}

pub(crate) async fn get_work(
    context: &Context,
    _: &Call,
    request: pb::GetBackupWorkRequest,
) -> Result<pb::BackupWork, Status> {
    context
        .admin
        .backup_work(request.number)
        .await
        .map(shown)
        .map_err(status)
}

pub(crate) async fn cancel_work(
    context: &Context,
    _: &Call,
    request: pb::CancelBackupWorkRequest,
) -> Result<(), Status> {
    context.admin.cancel_backup_work(request.number).await.map_err(status)
}

pub(crate) async fn list_backups(
    context: &Context,
    call: &Call,
    request: pb::ListDestinationRequest,
) -> Result<pb::ListDestinationResponse, Status> {
    let at = destination(request.destination)?;
    let found = context.admin.list_backups(at.clone()).await.map_err(status)?;
    let archive = request.archive.map(|archive| destination(Some(archive))).transpose()?;
    let is_named = archive.is_some();
    let restorable = match context.admin.restorable_times(at, archive).await {
        Ok(times) => times,
        // The list is wanted all the same while an archive cannot be reached.
        Err(_) if !is_named => Vec::new(),
        Err(error) => return Err(status(error)),
    };
    let entries = found.iter().map(|backup| 1 + backup.tables.len()).sum::<usize>();
    call.charge(entries.saturating_mul(ENTRY_BYTES))?;
    Ok(pb::ListDestinationResponse {
        backups: found.into_iter().map(backup).collect(),
        restorable: restorable
            .into_iter()
            .map(|(from_micros, to_micros)| pb::RestorableTime {
                from_micros,
                to_micros: to_micros - 1,
            })
            .collect(),
    })
}

fn destination(destination: Option<pb::BackupDestination>) -> Result<BackupDestination, Status> {
    let destination = destination.unwrap_or_default();
    match destination.address.is_empty() {
        true => Err(invalid("destination has no address")),
        false => Ok(BackupDestination {
            address: destination.address,
            options: destination.options.into_iter().map(|o| (o.key, o.value)).collect(),
        }),
    }
}

fn order(request: pb::BeginBackupWorkRequest) -> Result<BackupOrder, Status> {
    if request.tables.len() > TABLES_MAX {
        return Err(invalid(format!("at most {TABLES_MAX} tables")));
    }
    let tables = request
        .tables
        .iter()
        .map(|name| TableResource::parse(name).map(|table| table.name));
    let tables: Vec<TableName> = tables.collect::<Result<_, _>>()?;
    let target = match request.target.as_str() {
        "" => None,
        name => Some(TableResource::parse(name)?.name),
    };
    let is_restore = request.task == 2;
    if (target.is_some() && !is_restore) || (tables.len() > 1 && is_restore) {
        return Err(invalid(
            "a restore names one table at most, and no other task has a target",
        ));
    }
    let task = match request.task {
        1 => BackupTask::Create { tables },
        2 => BackupTask::Restore {
            table: tables.into_iter().next(),
            target,
        },
        3 => BackupTask::Verify,
        4 => BackupTask::Delete,
        5 => BackupTask::Prune,
        other => return Err(invalid(format!("task {other}"))),
    };
    Ok(BackupOrder {
        destination: destination(request.destination)?,
        backup: request.backup,
        task,
        bytes_per_second: Some(request.bytes_per_second).filter(|rate| *rate > 0),
        parallel: request.parallel,
        digests: request.digests,
        at: Some(request.at_micros).filter(|at| *at > 0 && is_restore),
        archive: request.archive.map(|archive| destination(Some(archive))).transpose()?,
    })
}

fn names(tables: Vec<TableName>) -> Vec<String> {
    tables.iter().map(ToString::to_string).collect()
}

fn shown(work: BackupWork) -> pb::BackupWork {
    let progress = work.progress;
    let mut shown = pb::BackupWork {
        number: work.number,
        step: progress.step,
        files: progress.files,
        files_done: progress.files_done,
        bytes: progress.bytes,
        bytes_done: progress.bytes_done,
        files_copied: progress.files_copied,
        bytes_copied: progress.bytes_copied,
        is_done: work.outcome.is_some(),
        ..pb::BackupWork::default()
    };
    match work.outcome {
        None => {}
        Some(Ok(outcome)) => {
            shown.tables = names(outcome.tables);
            shown.damage = outcome.damage;
            shown.more_damage = outcome.more_damage;
        }
        Some(Err(error)) => {
            shown.code = code(error.kind) as u32;
            shown.error = error.message;
        }
    }
    shown
}

fn backup(backup: BackupInfo) -> pb::DestinationBackup {
    pb::DestinationBackup {
        name: backup.name,
        begun_micros: backup.begun_micros,
        completed_micros: backup.completed_micros,
        tables: names(backup.tables),
        files: backup.files,
        bytes: backup.bytes,
        copied_bytes: backup.copied_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(task: u32, tables: &[&str], target: &str) -> pb::BeginBackupWorkRequest {
        pb::BeginBackupWorkRequest {
            destination: Some(pb::BackupDestination {
                address: "/backups".to_owned(),
                options: Vec::new(),
            }),
            backup: "b".to_owned(),
            task,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
            target: target.to_owned(),
            ..pb::BeginBackupWorkRequest::default()
        }
    }

    #[test]
    fn orders_are_checked() {
        let (t, u) = ("projects/p/instances/i/tables/t", "projects/p/instances/i/tables/u");
        for good in [
            request(1, &[], ""),
            request(1, &[t, u], ""),
            request(2, &[t], u),
            request(3, &[], ""),
            request(4, &[], ""),
        ] {
            assert!(order(good).is_ok());
        }
        let nowhere = pb::BeginBackupWorkRequest {
            destination: None,
            ..request(1, &[], "")
        };
        for bad in [
            request(0, &[], ""),
            request(9, &[], ""),
            request(1, &["t"], ""),
            request(1, &[t], u),
            request(2, &[t, u], ""),
            nowhere,
        ] {
            assert_eq!(order(bad).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
