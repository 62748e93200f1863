//! The logs of a cluster that lead from a backup to a moment.
//!
//! The archive of the tables names the servers. Each that may have written in between must have archived its log from then on, and either beyond the
//! moment or to the end of its life. Anything else is a refusal: nobody knows which writes are missing.

use super::suspects::{Found, Suspects};
use crate::archive::format::Life;
use crate::archive::history::History;
use crate::archive::merged::LogOf;
use crate::archive::{Archive, ClusterArchive, Range};
use crate::error::{BackupError, Result};
use crate::format::Entry;
use crate::work::Work;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Servers by their numbers, as the newest part knows each.
pub(crate) type Lives = BTreeMap<u32, Life>;

/// The logs of all servers that may have written between a backup and a moment.
pub(crate) async fn logs(
    cluster: &ClusterArchive,
    lives: &Lives,
    (entry, at): (&Entry, i64),
    work: &Arc<Work>,
) -> Result<Vec<LogOf>> {
    let mut logs = Vec::new();
    for life in lives.values() {
        work.check()?;
        let is_over = life.ended_micros > 0 && life.ended_micros <= entry.begun_micros;
        if !is_over && life.from_micros <= at {
            logs.push(log(cluster, life, (entry.begun_micros, at)).await?);
        }
    }
    Ok(logs)
}

async fn log(cluster: &ClusterArchive, life: &Life, (begun, at): (i64, i64)) -> Result<LogOf> {
    let archive = match cluster.server(life.server).open(false).await {
        Ok(archive) => archive,
        Err(error) if is_absent(&error) => return Err(absent(life)),
        Err(error) => return Err(error),
    };
    let ranges = archive.ranges().await?;
    let begins = |range: &&Range| range.from_micros <= begun || range.from_micros <= life.from_micros;
    let Some(range) = ranges.iter().rev().find(begins) else {
        return Err(absent(life));
    };
    let last = archive.part(range.last).await?;
    if at >= range.to_micros && !last.is_last {
        return Err(behind(life, range));
    }
    let starts_later = begun < range.from_micros;
    Ok(LogOf {
        first: match starts_later {
            true => range.first,
            false => archive.part_before(range, begun).await?,
        },
        from: match starts_later {
            true => life.from_micros,
            false => i64::MIN,
        },
        range: range.clone(),
        archive,
    })
}

/// Tells tables of the barriers in the logs up to a moment. Those of tablets whose table is not known.
pub(crate) async fn bar(
    logs: &[LogOf],
    (mut tables, suspects): (Vec<&mut History>, &Suspects),
    at: i64,
    work: &Arc<Work>,
) -> Result<Found> {
    let mut found = Found::new();
    for log in logs {
        for number in log.first..=log.range.last {
            work.check()?;
            let part = log.archive.part(number).await?;
            tables.iter_mut().for_each(|history| history.bar(&part));
            for barrier in part.barriers.iter().filter(|barrier| barrier.at_micros <= at) {
                suspects.note(barrier.tablet, barrier.at_micros, &mut found)?;
            }
            if part.to_micros > at {
                break;
            }
        }
    }
    Ok(found)
}

/// The moment up to which the newest range of a cluster can be restored: that of the server whose archive is furthest behind.
pub(super) async fn reached(cluster: &ClusterArchive, tables: &Archive, newest: &Range) -> Result<i64> {
    let mut reached = newest.to_micros;
    for life in tables.part(newest.last).await?.lives {
        let ranges = match cluster.server(life.server).open(false).await {
            Ok(archive) => archive.ranges().await?,
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_server = ranges.last().map_or(life.from_micros, |range| range.to_micros);
        if life.ended_micros == 0 {
            reached = reached.min(of_server);
        }
    }
    Ok(reached)
}

fn is_absent(error: &BackupError) -> bool {
    use stele_types::ErrorKind::{InvalidArgument, NotFound};
    matches!(error.kind(), NotFound | InvalidArgument)
}

fn absent(life: &Life) -> BackupError {
    let server = life.server;
    let why = match (life.ended_micros, life.gaps) {
        (0, 0) => "it has archived nothing yet: wait for its next round",
        _ => "take a backup, from which on moments can be restored",
    };
    BackupError::Moment(format!(
        "the moment cannot be restored: the archive does not have the log of server {server} from the backup on; {why}"
    ))
}

fn behind(life: &Life, range: &Range) -> BackupError {
    let (server, to) = (life.server, range.to_micros);
    let why = match life.ended_micros {
        0 => "wait for its next round, or until the leader has archived the rest of a server that has ended",
        _ => "it has ended, and the rest of its log was not archived: take a backup",
    };
    BackupError::Moment(format!(
        "the moment cannot be restored: the archive has the log of server {server} up to {to}, exclusive; {why}"
    ))
}
