//! The output side of an import: sends batches and tracks acknowledgements.
//!
//! The number of batches in flight is bounded.
//!
//! Invariants:
//! * Two batches in flight never hold the same row, so records of the same key are applied in the order of the input.
//! * Every write before the records that the checkpoint counts is acknowledged. Its list of bad records is synced
//!   before the checkpoint is written.

use super::bad::{BadList, BadRecord};
use super::batch::Batch;
use super::refused::{Refused, is_fault_of_the_row, mutations, write_apart};
use super::source::BytesRead;
use crate::checkpoint::{self, ImportCheckpoint, Prefix};
use crate::client::admin::NewFamily;
use crate::client::{Client, TableRef, describe};
use crate::escape::escape;
use crate::interrupt::interrupted;
use crate::progress::Progress;
use anyhow::{Context, Result, anyhow, bail};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tonic::Status;

/// Between checkpoints: how much work an interruption costs at most.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(2);
/// Between updates of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Totals of this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that became rows.
    pub rows: u64,
    /// Cells of those.
    pub cells: u64,
    /// Records that had no cells.
    pub without_cells: u64,
}

/// A checkpoint and its path.
pub struct Resumable {
    /// The file.
    pub path: PathBuf,
    /// Its contents; the counts are filled in.
    pub checkpoint: ImportCheckpoint,
}

type Outcome = (Batch, Result<Vec<Refused>, Status>);

/// The state of a running import.
pub struct Pipeline {
    /// The server.
    pub client: Client,
    /// The table.
    pub table: TableRef,
    /// Batches in flight at most.
    pub in_flight_max: usize,
    /// Bad records tolerated.
    pub bad_max: u64,
    /// Families the table is known to have; `None` if the server does not tell.
    pub families: Option<BTreeSet<String>>,
    /// Whether missing families are created.
    pub create: bool,
    /// Where bad records go.
    pub bad: BadList,
    /// Which records are finished.
    pub prefix: Prefix,
    /// How to resume; `None` for standard input.
    pub resumable: Option<Resumable>,
    /// Shown while running.
    pub progress: Progress,
    /// Bytes of the input read so far.
    pub bytes_read: BytesRead,
    /// Totals of this run.
    pub totals: Totals,
}

impl Pipeline {
    /// Writes all batches. When this returns, even with an error, the checkpoint has all acknowledged records of the
    /// prefix.
    pub async fn run(&mut self, batches: &mut Receiver<Batch>) -> Result<()> {
        self.run_until(batches, interrupted).await
    }

    /// The same with the function that waits for an interrupt.
    pub(super) async fn run_until<F: Future<Output = ()>>(
        &mut self,
        batches: &mut Receiver<Batch>,
        interrupt: impl Fn() -> F,
    ) -> Result<()> {
        if let Some(resumable) = &self.resumable {
            // First, so that an unwritable place shows before the work, and a repetition uses the same timestamp.
            checkpoint::store(&resumable.path, &resumable.checkpoint)
                .context("choose another place for the checkpoint with --state FILE")?;
        }
        let mut in_flight = FuturesUnordered::new();
        let result = self.pump(batches, &mut in_flight, interrupt()).await;
        if result.is_err() {
            // The parser stops at its next batch; batches under way still count.
            batches.close();
            self.drain(&mut in_flight, interrupt()).await;
        }
        let saved = self.save();
        if result.is_err() {
            // Show also those beyond the prefix; a resumed run cuts them off and finds them again.
            self.bad.write_before(u64::MAX)?;
        }
        result.and(saved)
    }

    /// Counts the batches that are under way, until they have come back or an interrupt comes. An overloaded server may keep them
    /// for many minutes, with their repetitions. Those that are given up are written again by the next run.
    async fn drain(
        &mut self,
        in_flight: &mut FuturesUnordered<BoxFuture<'static, Outcome>>,
        interrupt: impl Future<Output = ()>,
    ) {
        let mut stop = std::pin::pin!(interrupt);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                came = in_flight.next() => match came {
                    // The first error is the one reported; a batch that fails as well is simply not counted.
                    Some((batch, outcome)) => drop(self.settle(batch, outcome)),
                    None => return,
                },
            }
        }
    }

    async fn pump(
        &mut self,
        batches: &mut Receiver<Batch>,
        in_flight: &mut FuturesUnordered<BoxFuture<'static, Outcome>>,
        interrupt: impl Future<Output = ()>,
    ) -> Result<()> {
        let mut stop = std::pin::pin!(interrupt);
        let mut checkpoints = tokio::time::interval(CHECKPOINT_INTERVAL);
        let mut updates = tokio::time::interval(PROGRESS_INTERVAL);
        let mut busy: HashSet<u64> = HashSet::new();
        let mut waiting: Option<Batch> = None;
        let mut at_end = false;
        loop {
            let has_capacity = in_flight.len() < self.in_flight_max;
            if let Some(batch) = waiting.take_if(|batch| has_capacity && is_free(batch, &busy)) {
                tokio::select! {
                    biased;
                    () = &mut stop => bail!("interrupted"),
                    checked = self.check_families(&batch) => checked?,
                }
                busy.extend(batch.key_hashes());
                in_flight.push(self.send(batch));
                continue;
            }
            if at_end && waiting.is_none() && in_flight.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = &mut stop => {
                    if !in_flight.is_empty() {
                        self.progress.say("waiting for the requests on the way; interrupt again to stop at once");
                    }
                    bail!("interrupted")
                }
                _ = checkpoints.tick() => self.save()?,
                _ = updates.tick() => {
                    self.progress.update(self.totals.rows, self.bytes_read.load(Ordering::Relaxed));
                }
                Some((batch, outcome)) = in_flight.next(), if !in_flight.is_empty() => {
                    for hash in batch.key_hashes() {
                        busy.remove(&hash);
                    }
                    self.settle(batch, outcome)?;
                }
                batch = batches.recv(), if waiting.is_none() && !at_end => {
                    at_end = batch.is_none();
                    waiting = batch;
                }
            }
        }
    }

    fn send(&self, batch: Batch) -> BoxFuture<'static, Outcome> {
        let (client, table) = (self.client.clone(), self.table.clone());
        Box::pin(async move {
            if batch.entries.is_empty() {
                return (batch, Ok(Vec::new()));
            }
            let outcome = write(&client, &table, &batch).await;
            (batch, outcome)
        })
    }

    /// Counts a batch that came back.
    fn settle(&mut self, batch: Batch, outcome: Result<Vec<Refused>, Status>) -> Result<()> {
        let writing = || format!("cannot write to {}", self.table);
        let refused = outcome.map_err(|status| describe(&status)).with_context(writing)?;
        let mut refused_cells = 0;
        for Refused { entry, origin, status } in &refused {
            let (Some(entry), Some(origins)) = (batch.entries.get(*entry), batch.origins.get(*entry)) else {
                continue;
            };
            refused_cells += mutations(entry, origins, *origin..*origin + 1).len() as u64;
            let (record, line) = origins
                .get(*origin)
                .map_or((0, 0), |origin| (origin.record, origin.line));
            let key = escape(&entry.row_key);
            if !is_fault_of_the_row(status) {
                let error = describe(status);
                return Err(error.context(format!("cannot write row {key} (line {line})")));
            }
            // The record itself is gone by now; its key tells which it was.
            let reason = format!("refused by the server: {:#}", describe(status));
            self.bad.note(
                record,
                BadRecord {
                    line,
                    reason,
                    raw: key.into_bytes(),
                },
            );
        }
        for (record, bad) in batch.bad {
            self.bad.note(record, bad);
        }
        self.totals.rows += batch.rows.saturating_sub(refused.len() as u64);
        self.totals.cells += batch.cells.saturating_sub(refused_cells);
        self.totals.without_cells += batch.without_cells;
        self.prefix.complete(batch.records);
        if self.bad.count() > self.bad_max {
            let (found, max) = (self.bad.count(), self.bad_max);
            let path = self.bad.path().display();
            return Err(anyhow!("{found} bad records, --max-bad allows {max}; see {path}"));
        }
        Ok(())
    }

    /// Makes sure that the table has the families of a batch, where that can be known.
    async fn check_families(&mut self, batch: &Batch) -> Result<()> {
        let Some(known) = &mut self.families else {
            return Ok(());
        };
        let missing: Vec<String> = batch.families.difference(known).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        if !self.create {
            return Err(missing_families(&self.table, &missing, known));
        }
        let new = |name: &String| NewFamily {
            name: name.clone(),
            versions_max: None,
        };
        let families: Vec<NewFamily> = missing.iter().map(new).collect();
        self.client.create_families(&self.table, &families).await?;
        known.extend(missing);
        Ok(())
    }

    /// Writes the bad records of the prefix, then the checkpoint.
    fn save(&mut self) -> Result<()> {
        let records = self.prefix.records();
        self.bad.write_before(records)?;
        let Some(resumable) = &mut self.resumable else {
            return Ok(());
        };
        (resumable.checkpoint.bad_records, resumable.checkpoint.bad_bytes) = self.bad.written();
        if resumable.checkpoint.records == records {
            return Ok(());
        }
        resumable.checkpoint.records = records;
        checkpoint::store(&resumable.path, &resumable.checkpoint)
    }
}

fn is_free(batch: &Batch, busy: &HashSet<u64>) -> bool {
    busy.is_empty() || !batch.key_hashes().any(|hash| busy.contains(&hash))
}

/// Writes a batch; the records that the server refuses.
async fn write(client: &Client, table: &TableRef, batch: &Batch) -> Result<Vec<Refused>, Status> {
    let mut refused = Vec::new();
    for (at, status) in client.mutate_rows(table, &batch.entries).await? {
        let (Some(entry), Some(origins)) = (batch.entries.get(at), batch.origins.get(at)) else {
            continue;
        };
        let found = match is_fault_of_the_row(&status) && origins.len() > 1 {
            false => vec![(0, status)],
            true => {
                let alone =
                    |entry| async move { Ok(client.mutate_rows(table, &[entry]).await?.pop().map(|(_, why)| why)) };
                write_apart(entry, origins, status, alone).await?
            }
        };
        refused.extend(found.into_iter().map(|(origin, status)| Refused {
            entry: at,
            origin,
            status,
        }));
    }
    Ok(refused)
}

/// The error about families the table lacks.
pub fn missing_families(table: &TableRef, missing: &[String], known: &BTreeSet<String>) -> anyhow::Error {
    let escaped = |name: &String| escape(name.as_bytes());
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.iter().map(escaped).collect::<Vec<_>>().join(", ")
    };
    let missing = missing.iter().map(escaped).collect::<Vec<_>>().join(", ");
    anyhow!("{table} has no family {missing} (it has: {known}); --create adds missing families")
}
