//! Restores tables of a backup to a later moment, from the archived log.
//!
//! 1. The newest backup is taken that was complete by then and whose log the archive has up to then.
//! 2. The documents of the parts in between tell the state of each table at the moment: its schema, its tablets, and whether something happened
//!    that the log does not describe.
//! 3. Each table is restored as the backup has it, with the schema of the moment, and disabled.
//! 4. The records of its tablets are written into it, in their order, as new writes. Whether a mutation is in the backup already its
//!    sequence number tells: those of a row ascend, through all splits, merges and moves.
//! 5. The table is enabled.
//!
//! Interrupted, it begins again with the tables that are not enabled.

use crate::archive::format::Part;
use crate::archive::history::{End, History};
use crate::archive::orphans::{Orphan, Orphans};
use crate::archive::replay::Replay;
use crate::archive::store::damaged as damaged_archive;
use crate::archive::{Archive, Range};
use crate::destination::{Destination, damaged};
use crate::error::{BackupError, Result};
use crate::format::{Entry, Record, TableOf};
use crate::paths;
use crate::root::DataRoot;
use crate::work::Work;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_commitlog::Record as LogRecord;
use stele_tablet::Batch;
use stele_types::{
    Durability, ErrorKind, FamilyId, LocalityGroup, Mutation, RowMutation, RowWrites, SeqNo, TableName, TableSchema,
    TabletId,
};

/// Bytes of mutations that are written together.
const WRITTEN_BYTES: usize = 1 << 20;
/// Mutations that are written together.
const WRITTEN_MUTATIONS: usize = 10_000;
/// Tries of a write while a tablet is split or the server is busy, and the time between two.
const TRIES_MAX: usize = 1_200;
const TRIED_EVERY: Duration = Duration::from_millis(50);

/// A moment, and the archive of the log.
pub struct Moment<'a> {
    /// Wall-clock microseconds.
    pub at: i64,
    /// The log.
    pub archive: &'a Archive,
}

/// The plan of a restore to a moment.
pub(crate) struct Plan {
    /// The backup that it begins with.
    pub(crate) record: Record,
    range: Range,
    /// The part that its log begins with.
    first: u64,
    /// By number in the record: tables that exist at the moment.
    histories: BTreeMap<u32, History>,
}

/// The times in which moments can be restored with complete backups of a destination: from one to another, exclusive.
pub async fn restorable(destination: &Destination, archive: &Archive) -> Result<Vec<(i64, i64)>> {
    let ranges = archive.ranges().await?;
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

/// Finds the backup and the part of the archive for a moment, and follows the tables until then.
pub(crate) async fn plan(
    destination: &Destination,
    moment: &Moment<'_>,
    name: Option<&str>,
    table: Option<&TableName>,
    work: &Arc<Work>,
) -> Result<Plan> {
    work.begin("reading the archive")?;
    let state = destination.state().await?;
    let ranges = moment.archive.ranges().await?;
    let chosen = state
        .backups
        .iter()
        .filter(|entry| name.is_none_or(|name| entry.name == name));
    let mut chosen: Vec<&Entry> = chosen.filter(|entry| entry.completed_micros <= moment.at).collect();
    chosen.sort_by_key(|entry| std::cmp::Reverse(entry.completed_micros));
    let found = chosen.into_iter().find_map(|entry| {
        let range = ranges
            .iter()
            .find(|range| is_covered(entry, range) && moment.at < range.to_micros)?;
        Some((entry, range.clone()))
    });
    let Some((entry, range)) = found else {
        return Err(out_of_reach(destination, moment, name).await?);
    };
    let record = destination.record(entry.attempt()).await?;
    let (mut histories, mut orphans) = (BTreeMap::new(), Orphans::default());
    for (index, of) in (0..).zip(&record.tables) {
        let history = history(destination, &record, (index, of), moment.at).await?;
        orphans.know(history.tablets().iter().copied());
        if table.is_none_or(|table| *table == history.schema().name) {
            histories.insert(index, history);
        }
    }
    if let (Some(table), true) = (table, histories.is_empty()) {
        return Err(BackupError::NoTable {
            backup: record.name.clone(),
            table: table.to_string(),
        });
    }
    let first = moment.archive.part_before(&range, entry.begun_micros).await?;
    for number in first..=range.last {
        work.check()?;
        let part = moment.archive.part(number).await?;
        if number > first {
            orphans.apply(&part);
        } else {
            orphans.know_of(&part);
        }
        for history in histories.values_mut() {
            let applied = history.apply(&part);
            let path = crate::archive::format::part_path(number);
            applied.map_err(|why| damaged_archive(&path, &format!("a table: {why}")))?;
        }
        // Barriers and changes of the moment are in parts up to the one that ends after it.
        if part.to_micros > moment.at {
            break;
        }
    }
    let (known, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
        histories.into_iter().partition(|(_, history)| history.end().is_none());
    for history in ended.values() {
        let Some(end) = history.end() else { continue };
        let completed = entry.completed_micros;
        if table.is_none() && end.is_deleted {
            tracing::info!(table = %history.schema().name, "deleted before the moment, and not restored");
            continue;
        }
        return Err(unknown(&history.schema().name, end, completed));
    }
    let within = (entry.begun_micros, moment.at);
    if let Some(orphan) = orphans.find(moment.archive, (&range, first), within, work).await? {
        return Err(ownerless(orphan, entry.completed_micros));
    }
    Ok(Plan {
        record,
        range,
        first,
        histories: known,
    })
}

/// The part before one of a range, unless that is its first one.
async fn part_ahead(archive: &Archive, range: &Range, number: u64) -> Result<Option<Part>> {
    match number > range.first {
        true => archive.part(number - 1).await.map(Some),
        false => Ok(None),
    }
}

async fn out_of_reach(destination: &Destination, moment: &Moment<'_>, name: Option<&str>) -> Result<BackupError> {
    let times = restorable(destination, moment.archive).await?;
    let times: Vec<String> = times.iter().map(|(from, to)| format!("{from} to {}", to - 1)).collect();
    let by = name.map(|name| format!(" with backup {name}")).unwrap_or_default();
    let what = match times.is_empty() {
        true => "no moment can: the archive must have the log from before a complete backup on".to_owned(),
        false => format!("these can, in microseconds since 1970: {}", times.join(", ")),
    };
    Ok(BackupError::Moment(format!(
        "the moment {} cannot be restored{by}; {what}",
        moment.at
    )))
}

fn unknown(table: &TableName, end: &End, completed: i64) -> BackupError {
    let (micros, why) = (end.micros, &end.why);
    let latest = latest(micros, completed);
    BackupError::Moment(format!(
        "table {table} cannot be restored to the moment: at {micros}, {why}, which the log does not describe; {latest}"
    ))
}

fn ownerless(orphan: Orphan, completed: i64) -> BackupError {
    let Orphan { micros, tablet } = orphan;
    let latest = latest(micros, completed);
    BackupError::Moment(format!(
        "the moment cannot be restored: from {micros} on, the archive has writes of tablet {tablet}, and the server ended before it had archived of which table that is; {latest}"
    ))
}

/// The moment before the first one that cannot be restored.
fn latest(micros: i64, completed: i64) -> String {
    match micros > completed {
        true => format!(
            "the latest moment to which this backup can be followed is {}; a later backup leads further",
            micros - 1
        ),
        false => "with this backup no later moment can be restored".to_owned(),
    }
}

async fn history(destination: &Destination, record: &Record, (index, of): (u32, &TableOf), at: i64) -> Result<History> {
    let decoded = stele_catalog::record::decode_table(&of.table);
    let decoded = decoded.map_err(|why| damaged(&paths::record(record.attempt()), format!("a table: {why}")))?;
    let mut tablets = Vec::new();
    for part in 0..of.parts {
        let part = destination.part(record.attempt(), index, part).await?;
        tablets.extend(part.tablets.iter().map(|manifest| manifest.tablet));
    }
    Ok(History::new(decoded, of.created_micros, tablets, at))
}

impl Plan {
    /// Whether a table of the backup exists at the moment.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.histories.contains_key(&index)
    }

    /// The schema of a table at the moment, over files of the backup: the families are those of the moment, and are where the backup
    /// has them.
    pub(crate) fn schema_over(&self, index: u32, backup: &TableSchema) -> TableSchema {
        let Some(history) = self.histories.get(&index) else {
            return backup.clone();
        };
        let mut schema = history.schema().clone();
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
        schema
    }

    /// Writes the records of some tables, each from its number in the record into the table of a name.
    pub(crate) async fn replay(
        &self,
        root: &DataRoot,
        destination: &Destination,
        moment: &Moment<'_>,
        targets: &BTreeMap<u32, TableName>,
        work: &Arc<Work>,
    ) -> Result<()> {
        let mut tables = BTreeMap::new();
        let mut of_tablet = BTreeMap::new();
        for (index, target) in targets {
            let Some(history) = self.histories.get(index) else {
                continue;
            };
            let families = history.schema().families.keys().copied().collect();
            let cuts = self.cuts(destination, *index).await?;
            let target = target.clone();
            tables.insert(*index, Target { target, families, cuts });
            of_tablet.extend(history.tablets().iter().map(|tablet| (TabletId(*tablet), *index)));
        }
        let mut writing = Writing {
            root,
            work,
            tables,
            rows: BTreeMap::new(),
            bytes: 0,
            mutations: 0,
        };
        let before = part_ahead(moment.archive, &self.range, self.first).await?;
        let mut replay = Replay::new(moment.archive, moment.at, before.as_ref());
        for number in self.first..=self.range.last {
            work.begin("replaying the log")?;
            let part = moment.archive.part(number).await?;
            let (to_micros, bytes) = (part.to_micros, part.pieces.iter().map(|piece| piece.len).sum());
            work.expect(1, bytes);
            replay.begin_part(part)?;
            if to_micros > moment.at {
                replay.end_parts();
            }
            while let Some(records) = replay.next().await? {
                work.check()?;
                for record in records {
                    if let Some(index) = of_tablet.get(&record.tablet) {
                        writing.record(*index, &record, number).await?;
                    }
                }
            }
            work.moved(bytes, false).await?;
            work.was_read();
            if to_micros > moment.at {
                break;
            }
        }
        writing.write().await
    }

    /// The first row of each tablet of the backup, with the number up to which the backup has its mutations.
    async fn cuts(&self, destination: &Destination, index: u32) -> Result<Cuts> {
        let mut cuts = Vec::new();
        let Some(of) = self.record.tables.get(index as usize) else {
            return Ok(Cuts(cuts));
        };
        for part in 0..of.parts {
            let part = destination.part(self.record.attempt(), index, part).await?;
            cuts.extend(
                part.tablets
                    .iter()
                    .map(|manifest| (manifest.start.clone(), manifest.flushed_through())),
            );
        }
        cuts.sort();
        Ok(Cuts(cuts))
    }
}

/// Where the backup of a table ends, by rows.
struct Cuts(Vec<(Bytes, SeqNo)>);

impl Cuts {
    fn has(&self, row: &[u8], seq: SeqNo) -> bool {
        let after = self.0.partition_point(|(start, _)| start[..] <= *row);
        let cut = after.checked_sub(1).and_then(|at| self.0.get(at));
        cut.is_some_and(|(_, through)| seq <= *through)
    }
}

/// A table that records are written into.
struct Target {
    target: TableName,
    /// Families of the moment. Cells of others do not exist any more.
    families: std::collections::BTreeSet<FamilyId>,
    cuts: Cuts,
}

/// Mutations on their way into tables.
struct Writing<'a> {
    root: &'a DataRoot,
    work: &'a Arc<Work>,
    tables: BTreeMap<u32, Target>,
    /// By table and row, in their order.
    rows: BTreeMap<(u32, Bytes), Vec<Mutation>>,
    bytes: usize,
    mutations: usize,
}

impl Writing<'_> {
    async fn record(&mut self, index: u32, record: &LogRecord, part: u64) -> Result<()> {
        let Some(table) = self.tables.get(&index) else {
            return Ok(());
        };
        let payload = record.payload.bytes();
        let batch = Batch::decode_record(payload.clone(), record.first, record.last);
        let path = crate::archive::format::part_path(part);
        let batch =
            batch.ok_or_else(|| damaged_archive(&path, "a record with the right checksum is no batch of mutations"))?;
        batch.mutations(record.first, |seq, row, mutation| {
            let exists = mutation.family().is_none_or(|family| table.families.contains(&family));
            if !exists || table.cuts.has(row, seq) {
                return;
            }
            self.bytes += row.len() + mutation.data_len();
            self.mutations += 1;
            // Copied, since a slice would keep the whole group in memory.
            let owned = mutation.map(|bytes: &&[u8]| Bytes::copy_from_slice(bytes));
            self.rows
                .entry((index, Bytes::copy_from_slice(row)))
                .or_default()
                .push(owned);
        });
        match self.bytes >= WRITTEN_BYTES || self.mutations >= WRITTEN_MUTATIONS {
            true => self.write().await,
            false => Ok(()),
        }
    }

    /// Writes all that was collected.
    async fn write(&mut self) -> Result<()> {
        let mut left: Vec<(u32, RowMutation)> = Vec::with_capacity(self.rows.len());
        for ((index, row), mutations) in std::mem::take(&mut self.rows) {
            left.push((index, RowMutation { row, mutations }));
        }
        (self.bytes, self.mutations) = (0, 0);
        for attempt in 0.. {
            let (rest, error) = self.try_write(left).await?;
            match error {
                None => return Ok(()),
                Some(error) if attempt >= TRIES_MAX => return Err(error.into()),
                Some(_) => left = rest,
            }
            self.work.check()?;
            self.root.env().sleep(TRIED_EVERY).await;
        }
        Ok(())
    }

    /// Writes rows to their tablets; those that a tablet did not take for now, with its error.
    async fn try_write(
        &self,
        rows: Vec<(u32, RowMutation)>,
    ) -> Result<(Vec<(u32, RowMutation)>, Option<stele_client::ServiceError>)> {
        let mut of_tablets: BTreeMap<(u32, TabletId), Vec<RowMutation>> = BTreeMap::new();
        for (index, row) in rows {
            let Some(table) = self.tables.get(&index) else { continue };
            let entry = self.root.catalog().table(&table.target)?;
            let tablet = entry.tablet_of(&row.row).id;
            of_tablets.entry((index, tablet)).or_default().push(row);
        }
        let (mut rest, mut failed) = (Vec::new(), None);
        for ((index, tablet), rows) in of_tablets {
            let writes = RowWrites::from(rows.clone());
            match self.root.server().write(tablet, &writes, Some(Durability::Flush)).await {
                Ok(()) => {}
                Err(error) if is_transient(error.kind) => {
                    rest.extend(rows.into_iter().map(|row| (index, row)));
                    failed = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((rest, failed))
    }
}

/// A refusal before anything was written.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::ResourceExhausted
    )
}
