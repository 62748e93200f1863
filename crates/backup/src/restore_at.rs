//! Restores tables of a backup to a later moment, from the archived log.
//!
//! 1. The newest backup is taken that was complete by then, whose log the archive has up to then, and that has the table. Where none is
//!    named, it is the newest of all tables.
//! 2. The documents of the parts in between tell the state of each table at the moment: its schema, its tablets, and whether something happened
//!    that the log does not describe.
//! 3. Each table is restored as the backup has it, with the schema of the moment, and disabled.
//! 4. The records of its tablets are written into it, in their order, as new writes. Whether a mutation is in the backup already its
//!    sequence number tells: those of a row ascend, through all splits, merges and moves.
//! 5. The table is enabled.
//!
//! Interrupted, it begins again with the tables that are not enabled.
//!
//! Modules: [`backed_up`]: a table as its backup has it. [`cluster`]: the logs of the servers of a cluster. [`suspects`]: changes of unknown tables in them.
//! [`writing`]: records on their way into tables. [`refusals`]: moments that cannot be restored.

mod backed_up;
pub(crate) mod cluster;
mod refusals;
pub(crate) mod suspects;
mod writing;

use crate::archive::changes_of::ChangesOf;
use crate::archive::format::{Part, part_path};
use crate::archive::history::History;
use crate::archive::memory::RestoreMemory;
use crate::archive::merged::LogOf;
use crate::archive::orphans::Orphans;
use crate::archive::store::damaged as damaged_archive;
use crate::archive::{AnyArchive, Archive, Range};
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::{Entry, Record};
use crate::work::Work;
use backed_up::Cuts;
use cluster::Lives;
use refusals::{out_of_reach, ownerless, unknown};
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_types::{FamilyId, LocalityGroup, TableName, TableSchema};
use suspects::{Found, Suspects};

/// A moment, and the archive of the log.
pub struct Moment<'a> {
    /// Wall-clock microseconds.
    pub at: i64,
    /// The log.
    pub archive: &'a AnyArchive,
}

/// The plan of a restore to a moment.
pub(crate) struct Plan {
    /// The backup that it begins with.
    pub(crate) record: Record,
    /// The log that is written into the tables.
    logs: Vec<LogOf>,
    /// In a cluster: for writes of tablets whose table is not known.
    suspects: Option<Suspects>,
    /// By number in the record: tables that exist at the moment.
    tables: BTreeMap<u32, Followed>,
}

/// A table that is followed from the backup to the moment.
struct Followed {
    history: History,
    /// Where the backup ends.
    cuts: Cuts,
}

/// The times in which moments can be restored with complete backups of a destination: from one to another, exclusive.
pub async fn restorable(destination: &Destination, archive: &AnyArchive) -> Result<Vec<(i64, i64)>> {
    let mut ranges = archive.tables().ranges().await?;
    if let (AnyArchive::Cluster(cluster, tables), Some(newest)) = (archive, ranges.last_mut()) {
        newest.to_micros = cluster::reached(cluster, tables, newest).await?;
    }
    let state = destination.state().await?;
    let mut times = Vec::new();
    for range in &ranges {
        let covered = state.backups.iter().filter(|entry| is_covered(entry, range));
        if let Some(first) = covered.map(|entry| entry.completed_micros).min() {
            times.push((first, range.to_micros));
        }
    }
    Ok(times)
}

/// Whether a range has the log from the beginning of a backup to its end and beyond.
fn is_covered(entry: &Entry, range: &Range) -> bool {
    entry.is_complete()
        && entry.root == range.root
        && range.from_micros <= entry.begun_micros
        && entry.completed_micros < range.to_micros
}

/// The backups that can be followed to a moment, newest first, of this name if there is one, each with the range to follow it in.
async fn candidates(
    destination: &Destination,
    moment: &Moment<'_>,
    name: Option<&str>,
) -> Result<impl Iterator<Item = (Entry, Range)>> {
    let at = moment.at;
    let state = destination.state().await?;
    let ranges = moment.archive.tables().ranges().await?;
    let found = state.backups.into_iter();
    let found = found.filter(|entry| name.is_none_or(|name| entry.name == name));
    let mut found: Vec<Entry> = found.filter(|entry| entry.completed_micros <= at).collect();
    found.sort_by_key(|entry| std::cmp::Reverse(entry.completed_micros));
    Ok(found.into_iter().filter_map(move |entry| {
        let mut ranges = ranges.iter();
        let range = ranges.find(|range| is_covered(&entry, range) && at < range.to_micros)?;
        Some((entry, range.clone()))
    }))
}

/// The backup to follow to a moment: the newest with the table. Without a table it is the newest of all tables, since a newer one of
/// some tables would silently lack the others. If there is none, it is the newest that can be followed.
async fn choose(
    destination: &Destination,
    moment: &Moment<'_>,
    (name, table): (Option<&str>, Option<&TableName>),
    work: &Arc<Work>,
) -> Result<Option<(Entry, Range, Record)>> {
    let mut newest = None;
    for (entry, range) in candidates(destination, moment, name).await? {
        work.check()?;
        let record = destination.record(entry.attempt()).await?;
        let is_wanted = match table {
            Some(table) => has_table(&record, table)?,
            None => !record.of_some,
        };
        if is_wanted {
            return Ok(Some((entry, range, record)));
        }
        newest.get_or_insert((entry, range, record));
    }
    Ok(newest)
}

fn has_table(record: &Record, table: &TableName) -> Result<bool> {
    for of in &record.tables {
        if backed_up::decoded(record, of)?.0.name == *table {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds the backup and the part of the archive for a moment, and follows the tables until then.
pub(crate) async fn plan(
    destination: &Destination,
    (moment, memory): (&Moment<'_>, &RestoreMemory),
    (name, table): (Option<&str>, Option<&TableName>),
    work: &Arc<Work>,
) -> Result<Plan> {
    work.begin("reading the archive")?;
    let tables_of = moment.archive.tables();
    let Some((entry, range, record)) = choose(destination, moment, (name, table), work).await? else {
        return Err(out_of_reach(destination, moment, name).await?);
    };
    let tables_in = record.tables.len();
    tracing::info!(
        backup = record.name,
        tables_in,
        of_some = record.of_some,
        "a restore begins with a backup"
    );
    let (mut tables, mut orphans) = (BTreeMap::new(), Orphans::default());
    for (index, of) in (0..).zip(&record.tables) {
        // Snapshots and changes of tables have the clock of the leader. Barriers have that of a server: of a cluster the begin of the
        // whole backup is a moment that all servers have known.
        let barred_from = match moment.archive {
            AnyArchive::Single(_) => of.created_micros,
            AnyArchive::Cluster(..) => entry.begun_micros,
        };
        let (history, cuts) = backed_up::read(destination, &record, (index, of), (barred_from, moment.at)).await?;
        orphans.know(history.tablets().iter().copied());
        if table.is_none_or(|table| *table == history.schema().name) {
            tables.insert(index, Followed { history, cuts });
        }
    }
    if let (Some(table), true) = (table, tables.is_empty()) {
        return Err(BackupError::NoTable {
            backup: record.name.clone(),
            table: table.to_string(),
        });
    }
    let first = tables_of.part_before(&range, entry.begun_micros).await?;
    let mut lives = Lives::new();
    for number in first..=range.last {
        work.check()?;
        let part = tables_of.part(number).await?;
        if number > first {
            orphans.apply(&part);
        }
        lives.extend(part.lives.iter().map(|life| (life.server, *life)));
        follow(&mut tables, &mut orphans, (tables_of, memory), &part).await?;
        // Barriers and changes of the moment are in parts up to the one that ends after it.
        if part.to_micros > moment.at {
            break;
        }
    }
    let suspects = Suspects {
        orphans,
        range,
        first,
        begun: entry.begun_micros,
        completed: entry.completed_micros,
    };
    let mut barred = Found::new();
    let logs = match moment.archive {
        AnyArchive::Single(archive) => vec![LogOf {
            archive: archive.clone(),
            range: suspects.range.clone(),
            first,
            from: i64::MIN,
        }],
        AnyArchive::Cluster(cluster, _) => {
            let logs = cluster::logs(cluster, &lives, (&entry, moment.at), work).await?;
            let histories = tables.values_mut().map(|followed| &mut followed.history).collect();
            barred = cluster::bar(&logs, (histories, &suspects), moment.at, work).await?;
            logs
        }
    };
    let (known, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = tables
        .into_iter()
        .partition(|(_, followed)| followed.history.end().is_none());
    check_ended(ended.values(), table.is_none(), entry.completed_micros)?;
    let suspects = match moment.archive {
        AnyArchive::Single(archive) => {
            let (within, range) = ((suspects.begun, moment.at), (&suspects.range, first));
            if let Some(orphan) = suspects.orphans.find((archive, memory), range, within, work).await? {
                return Err(ownerless(orphan, suspects.completed));
            }
            None
        }
        AnyArchive::Cluster(..) => {
            suspects.judge(barred, (tables_of, memory), work).await?;
            Some(suspects)
        }
    };
    Ok(Plan {
        record,
        logs,
        suspects,
        tables: known,
    })
}

/// Fails if one of these tables is not known up to the moment. A deleted one is left out of all tables.
fn check_ended<'f>(ended: impl Iterator<Item = &'f Followed>, of_all: bool, completed_micros: i64) -> Result<()> {
    for Followed { history, .. } in ended {
        let Some(end) = history.end() else { continue };
        if of_all && end.is_deleted {
            tracing::info!(table = %history.schema().name, "deleted before the moment, and not restored");
            continue;
        }
        return Err(unknown(&history.schema().name, end, completed_micros));
    }
    Ok(())
}

/// Follows tables through a part.
async fn follow(
    tables: &mut BTreeMap<u32, Followed>,
    orphans: &mut Orphans,
    (archive, memory): (&Archive, &RestoreMemory),
    part: &Part,
) -> Result<()> {
    let bad = |why: String| damaged_archive(&part_path(part.number), &format!("a table: {why}"));
    for followed in tables.values_mut() {
        followed.history.begin_part(part);
    }
    let mut left = ChangesOf::new(archive, memory, part);
    while let Some(some) = left.next().await? {
        orphans.know_of(&some.changes);
        for followed in tables.values_mut() {
            followed.history.apply(part, &some.changes).map_err(bad)?;
        }
    }
    for followed in tables.values_mut() {
        followed.history.end_part(part).map_err(bad)?;
    }
    Ok(())
}

impl Plan {
    /// Whether a table of the backup exists at the moment.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.tables.contains_key(&index)
    }

    /// The schema of a table at the moment, over files of the backup: the families are those of the moment, and are where the backup
    /// has them.
    pub(crate) fn schema_over(&self, index: u32, backup: &TableSchema) -> TableSchema {
        let Some(followed) = self.tables.get(&index) else {
            return backup.clone();
        };
        let mut schema = followed.history.schema().clone();
        schema.name = backup.name.clone();
        let later = std::mem::replace(&mut schema.groups, backup.groups.clone());
        for (id, family) in &mut schema.families {
            match backup.families.get(id) {
                Some(former) => family.group = former.group,
                None if schema.groups.iter().any(|group| group.id == family.group) => {}
                None => schema
                    .groups
                    .extend(
                        later
                            .iter()
                            .filter(|group| group.id == family.group)
                            .map(|group| LocalityGroup {
                                left: Default::default(),
                                ..group.clone()
                            }),
                    ),
            }
        }
        // A family may have gone since it left a group, or have come back to it.
        let families = &schema.families;
        for group in &mut schema.groups {
            let is_elsewhere = |id: &FamilyId| families.get(id).is_some_and(|family| family.group != group.id);
            group.left.retain(is_elsewhere);
        }
        schema
    }
}
