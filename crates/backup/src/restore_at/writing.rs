//! Writes archived records into restored tables.

use super::{Followed, Moment, Plan};
use crate::archive::format::{Part, part_path};
use crate::archive::replay::Replay;
use crate::archive::store::damaged;
use crate::archive::{Archive, Range};
use crate::error::Result;
use crate::restore_at::backed_up::Cuts;
use crate::root::DataRoot;
use crate::work::Work;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_commitlog::Record as LogRecord;
use stele_tablet::Batch;
use stele_types::{Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowWrites, TableName, TabletId};

/// Bytes of mutations that are written together.
const WRITTEN_BYTES: usize = 1 << 20;
/// Mutations that are written together.
const WRITTEN_MUTATIONS: usize = 10_000;
/// Tries of a write while a tablet is split or the server is busy, and the time between two.
const TRIES_MAX: usize = 1_200;
const TRIED_EVERY: Duration = Duration::from_millis(50);

impl Plan {
    /// Writes the records of some tables, each from its number in the record into the table of a name.
    pub(crate) async fn replay(
        &self,
        root: &DataRoot,
        moment: &Moment<'_>,
        targets: &BTreeMap<u32, TableName>,
        work: &Arc<Work>,
    ) -> Result<()> {
        let mut tables = BTreeMap::new();
        let mut of_tablet = BTreeMap::new();
        for (index, target) in targets {
            let Some(Followed { history, cuts }) = self.tables.get(index) else {
                continue;
            };
            let families = history.schema().families.keys().copied().collect();
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
}

/// The part before one of a range, unless that is its first one.
async fn part_ahead(archive: &Archive, range: &Range, number: u64) -> Result<Option<Part>> {
    match number > range.first {
        true => archive.part(number - 1).await.map(Some),
        false => Ok(None),
    }
}

/// A table that records are written into.
struct Target<'a> {
    target: TableName,
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
