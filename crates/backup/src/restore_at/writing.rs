//! Writes archived records into restored tables.

use super::suspects::Found;
use super::{Followed, Moment, Plan};
use crate::archive::format::part_path;
use crate::archive::memory::RestoreMemory;
use crate::archive::merged::{Merged, Records};
use crate::archive::store::damaged;
use crate::error::{BackupError, Result};
use crate::restore_at::backed_up::Cuts;
use crate::root::DataRoot;
use crate::work::Work;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_client::ServiceError;
use stele_commitlog::Record as LogRecord;
use stele_tablet::Batch;
use stele_types::{Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowWrites, TableId, TableName, TabletId};

/// Bytes of mutations that are written together.
const WRITTEN_BYTES: usize = 1 << 20;
/// Mutations that are written together.
const WRITTEN_MUTATIONS: usize = 10_000;
/// Tries of a write while a tablet is split or moves, or the server is busy, and the time between two.
const TRIES_MAX: usize = 1_200;
const TRIED_EVERY: Duration = Duration::from_millis(50);

impl Plan {
    /// Writes the records of some tables, each from its number in the record into a table that this restore has made.
    pub(crate) async fn replay(
        &self,
        root: &DataRoot,
        moment: &Moment<'_>,
        targets: &BTreeMap<u32, (TableName, TableId)>,
        work: &Arc<Work>,
    ) -> Result<()> {
        let mut tables = BTreeMap::new();
        let mut of_tablet = BTreeMap::new();
        for (index, (target, id)) in targets {
            let Some(Followed { history, cuts }) = self.tables.get(index) else {
                continue;
            };
            let families = history.schema().families.keys().copied().collect();
            let target = Target {
                target: target.clone(),
                id: *id,
                families,
                cuts,
            };
            tables.insert(*index, target);
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
        let mut found = Found::new();
        let memory = RestoreMemory::new(root.server().pool());
        let mut merged = Merged::new(&self.logs, moment.at, (work, &memory));
        while let Some(Records { micros, part, records }) = merged.next().await? {
            for record in records {
                match of_tablet.get(&record.tablet) {
                    Some(index) => writing.record(*index, &record, part).await?,
                    None => {
                        if let Some(suspects) = &self.suspects {
                            suspects.note(record.tablet.0, micros, &mut found)?;
                        }
                    }
                }
            }
        }
        writing.write().await?;
        match &self.suspects {
            Some(suspects) => suspects.judge(found, (moment.archive.tables(), &memory), work).await,
            None => Ok(()),
        }
    }
}

/// A table that records are written into.
struct Target<'a> {
    target: TableName,
    /// Its number. Another leader may have ended this restore, and have made a table of the same name for the same order.
    id: TableId,
    /// Families of the moment. Cells of others do not exist any more.
    families: BTreeSet<FamilyId>,
    cuts: &'a Cuts,
}

/// Mutations on their way into tables.
struct Writing<'a> {
    root: &'a DataRoot,
    work: &'a Arc<Work>,
    tables: BTreeMap<u32, Target<'a>>,
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
        let path = part_path(part);
        let batch = batch.ok_or_else(|| damaged(&path, "a record with the right checksum is no batch of mutations"))?;
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
            self.work.check()?;
            let (rest, error) = self.try_write(left).await?;
            match error {
                None => return Ok(()),
                Some(error) if attempt >= TRIES_MAX => return Err(error.into()),
                Some(_) => left = rest,
            }
            self.root.env().sleep(TRIED_EVERY).await;
        }
        Ok(())
    }

    /// Writes rows to their tablets; those that are to be written again, with the error of a tablet.
    async fn try_write(
        &self,
        rows: Vec<(u32, RowMutation)>,
    ) -> Result<(Vec<(u32, RowMutation)>, Option<ServiceError>)> {
        let mut of_tablets: BTreeMap<(u32, TabletId), Vec<RowMutation>> = BTreeMap::new();
        for (index, row) in rows {
            let Some(table) = self.tables.get(&index) else { continue };
            let entry = self.root.catalog().table(&table.target)?;
            if entry.schema.id != table.id {
                return Err(BackupError::OtherRestore(table.target.to_string()));
            }
            let tablet = entry.tablet_of(&row.row).id;
            of_tablets.entry((index, tablet)).or_default().push(row);
        }
        let (mut rest, mut failed) = (Vec::new(), None);
        for ((index, tablet), rows) in of_tablets {
            let writes = RowWrites::from(rows.clone());
            match self.root.write(tablet, writes, Some(Durability::Flush)).await {
                Ok(()) => {}
                Err(error) if is_transient(error.kind) || self.is_lost(&error, &rows) => {
                    rest.extend(rows.into_iter().map(|row| (index, row)));
                    failed = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((rest, failed))
    }

    /// Whether a write is repeated that was perhaps carried out: its owner has failed. Nobody else writes to a table that is being restored,
    /// and rows of the next batch come after the repetition. So the last mutation of each cell is the same, however often these are written.
    /// Additions would count twice.
    fn is_lost(&self, error: &ServiceError, rows: &[RowMutation]) -> bool {
        let mut mutations = rows.iter().flat_map(|row| &row.mutations);
        error.kind == ErrorKind::Aborted
            && self.root.has_other_servers()
            && !mutations.any(|mutation| matches!(mutation, Mutation::Merge { .. }))
    }
}

/// A refusal before anything was written.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::ResourceExhausted
    )
}
