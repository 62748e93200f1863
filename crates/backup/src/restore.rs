//! Makes tables of a backup.
//!
//! 1. Of each table, the files get numbers of this data root and are copied, and its tablets are listed as a snapshot. The record
//!    of the snapshot in the catalog holds the files from then on.
//! 2. When all tables are there as snapshots, each is made a table: one change of the catalog.
//! 3. The snapshots are deleted, and then the marks of the tables.
//!
//! Interrupted, it goes on with the tables that are not there as snapshots yet. A table that it has made has a mark that names the
//! restore; a table without it is another one, and is never touched. Files of a table that is not complete are
//! deleted: after an error immediately, after a crash by the next start, in a cluster by the sweep.
//!
//! Sequence numbers of cells stay as they are. So that later writes are newer, the tablets get an epoch above all epochs of the
//! backup, and so will the next start of the server.

mod importing;

use crate::archive::memory::RestoreMemory;
use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{Record, TableOf};
use crate::restore_at::{self, Moment, Plan};
use crate::root::DataRoot;
use crate::work::Work;
use importing::Importing;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_catalog::CatalogError;
use stele_client::{SnapshotName, TableAdmin};
use stele_types::{TableName, TableSchema};

/// A table of a backup, and the name that it gets.
struct Wanted {
    /// Its place in the record.
    index: u32,
    table: TableOf,
    schema: TableSchema,
    target: TableName,
    /// The snapshot that it passes through.
    snapshot: SnapshotName,
}

/// Makes tables of a backup: all of them, or one, perhaps under another name. Their names.
pub async fn restore(
    root: &DataRoot,
    destination: &Destination,
    name: &str,
    (table, target): (Option<&TableName>, Option<&TableName>),
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    work.begin("reading the backup")?;
    let attempt = Destination::complete(&destination.state().await?, name)?.attempt();
    let record = destination.record(attempt).await?;
    let wanted = wanted(&record, table, target)?;
    restore_tables(root, destination, &record, wanted, None, work).await
}

/// The same as of a moment after the backup. Without a name it is the newest backup with the table, or of all tables, that leads there.
pub async fn restore_to(
    root: &DataRoot,
    destination: &Destination,
    name: Option<&str>,
    (table, target): (Option<&TableName>, Option<&TableName>),
    moment: &Moment<'_>,
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    let memory = RestoreMemory::new(root.server().pool());
    let plan = restore_at::plan(destination, (moment, &memory), (name, table), work).await?;
    let mut wanted = wanted(&plan.record, table, target)?;
    wanted.retain(|table| plan.has(table.index));
    for table in &mut wanted {
        table.schema = plan.schema_over(table.index, &table.schema);
        // Restores to several moments have snapshots of their own.
        table.snapshot.name = format!("{}-{:x}", table.snapshot.name, moment.at);
    }
    let record = plan.record.clone();
    restore_tables(root, destination, &record, wanted, Some((&plan, moment)), work).await
}

async fn restore_tables(
    root: &DataRoot,
    destination: &Destination,
    record: &Record,
    wanted: Vec<Wanted>,
    to: Option<(&Plan, &Moment<'_>)>,
    work: &Arc<Work>,
) -> Result<Vec<TableName>> {
    let made: Vec<(TableName, SnapshotName)> = wanted
        .iter()
        .map(|table| (table.target.clone(), table.snapshot.clone()))
        .collect();
    let todo = unmade(root, wanted).await?;
    let mut importing = Importing::of(root, destination, record, work).await?;
    for table in &todo {
        if root
            .catalog()
            .snapshot(&table.snapshot.namespace, &table.snapshot.name)
            .is_err()
        {
            let imported = importing.table(table).await;
            if imported.is_err() {
                importing.discard();
            }
            imported?;
        }
    }
    work.begin("making tables")?;
    match to {
        None => {
            for table in &todo {
                root.master()
                    .clone_restored(&table.snapshot, &table.target, false)
                    .await?;
            }
        }
        Some((plan, moment)) => follow(root, (plan, moment), &todo, work).await?,
    }
    root.tell_all().await;
    // Those of tables that an earlier attempt has made, too.
    for (_, snapshot) in &made {
        delete_if_there(root, snapshot).await?;
    }
    // Last: while a snapshot is there, the same order finds the tables by their marks.
    for (target, snapshot) in &made {
        root.master().release_restored(target, &snapshot.name).await?;
    }
    Ok(todo.into_iter().map(|table| table.target).collect())
}

/// Makes disabled tables, writes the log into them, and enables them.
async fn follow(
    root: &DataRoot,
    (plan, moment): (&Plan, &Moment<'_>),
    todo: &[Wanted],
    work: &Arc<Work>,
) -> Result<()> {
    let mut targets = BTreeMap::new();
    for table in todo {
        let id = root
            .master()
            .clone_restored(&table.snapshot, &table.target, true)
            .await?;
        targets.insert(table.index, (table.target.clone(), id));
    }
    plan.replay(root, moment, &targets, work).await?;
    work.begin("enabling tables")?;
    for table in todo {
        root.master().flush(&table.target, None).await?;
        root.master()
            .complete_restored(&table.target, &table.snapshot.name)
            .await?;
    }
    Ok(())
}

fn wanted(record: &Record, only: Option<&TableName>, target: Option<&TableName>) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for (index, table) in (0..).zip(&record.tables) {
        let decoded = stele_catalog::record::decode_table(&table.table);
        let (schema, _) =
            decoded.map_err(|why| damaged(&crate::paths::record(record.attempt()), format!("a table: {why}")))?;
        if only.is_some_and(|only| *only != schema.name) {
            continue;
        }
        let target = target.unwrap_or(&schema.name).clone();
        wanted.push(Wanted {
            index,
            table: table.clone(),
            snapshot: SnapshotName::new(
                target.namespace.clone(),
                // As long for every name of a table.
                format!(
                    "restore-{:016x}-{index:x}-{:08x}",
                    record.id,
                    crc32fast::hash(target.table.as_bytes())
                ),
            ),
            schema,
            target,
        });
    }
    match (only, wanted.is_empty()) {
        (Some(table), true) => Err(BackupError::NoTable {
            backup: record.name.clone(),
            table: table.to_string(),
        }),
        _ => Ok(wanted),
    }
}

/// The tables that are still to be made. Nothing is changed if another table has the name of one.
async fn unmade(root: &DataRoot, wanted: Vec<Wanted>) -> Result<Vec<Wanted>> {
    let made: Vec<Made> = wanted
        .iter()
        .map(|table| is_restored(root, table))
        .collect::<Result<_>>()?;
    let mut todo = Vec::new();
    for (table, made) in wanted.into_iter().zip(made) {
        if let Made::Partly = made {
            root.master()
                .delete_unfinished(&table.target, &table.snapshot.name)
                .await?;
        }
        if !matches!(made, Made::Yes) {
            todo.push(table);
        }
    }
    Ok(todo)
}

/// How far an interrupted restore has come with a table.
enum Made {
    No,
    /// It is there, and lacks a part of the log.
    Partly,
    Yes,
}

/// Whether an interrupted restore has made the table. Fails if another table has the name.
fn is_restored(root: &DataRoot, wanted: &Wanted) -> Result<Made> {
    let Ok(there) = root.catalog().table(&wanted.target) else {
        return Ok(Made::No);
    };
    match &there.schema.restoring {
        Some(restore) if *restore != wanted.snapshot.name && there.schema.is_unfinished() => {
            Err(BackupError::OtherRestore(wanted.target.to_string()))
        }
        Some(restore) if *restore == wanted.snapshot.name => match there.schema.is_unfinished() {
            true => Ok(Made::Partly),
            false => Ok(Made::Yes),
        },
        _ => Err(CatalogError::TableExists(wanted.target.clone()).into()),
    }
}

/// Deletes a snapshot that an earlier attempt may have deleted.
async fn delete_if_there(root: &DataRoot, snapshot: &SnapshotName) -> Result<()> {
    match root.catalog().snapshot(&snapshot.namespace, &snapshot.name) {
        Ok(_) => Ok(root.master().delete_snapshot(snapshot).await?),
        Err(_) => Ok(()),
    }
}
