//! Clients that read and write one table.
//!
//! Kinds of operation are those of the workload's mix, in its order. A scan of a range proceeds in parts. If rows are
//! not in the order of their numbers (hashed keys), a range's share of all operations stands for the same share of the
//! space of hashes. In both cases the ranges of all operations cover the table, including rows inserted later.

mod atomic;
mod scans;

use super::Tables;
use super::ledger::{Ending, Write};
use super::prepared::Prepared;
use super::shape::{Arena, Cells, put_bytes, row_bytes};
use super::values::{Version, key_hash};
use crate::activity::{Actor, ActorContext, Step};
use crate::outcome::Verdict;
use crate::plan::{Operation, Workload};
use crate::target::{Columns, Connection, Put, Result, Row, TargetError};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Names of a workload's kinds of operation.
pub fn kinds(workload: &Workload) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(workload.mix.len());
    for (operation, _) in &workload.mix {
        let name = match operation {
            Operation::Put => "put",
            Operation::BufferedPut { .. } => "buffered-put",
            Operation::Insert => "insert",
            Operation::Get => "get",
            Operation::ShortScan { .. } => "short-scan",
            Operation::Scan { .. } => "scan",
            Operation::Increment => "increment",
            Operation::CheckAndPut => "check-and-put",
            Operation::ReadModifyWrite => "read-modify-write",
        };
        let same = names
            .iter()
            .filter(|known| known.split('#').next() == Some(name))
            .count();
        names.push(if same == 0 {
            name.to_owned()
        } else {
            format!("{name}#{}", same + 1)
        });
    }
    names
}

/// Makes a client.
///
/// # Errors
/// A workload that [`Tables::prepare`] has not prepared.
pub fn actor(workload: &Workload, tables: &Tables, context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
    Ok(Box::new(Client {
        prepared: tables.prepared(workload, context.seed)?,
        connection: context.connection,
        columns: Columns::default(),
        arena: Arena::default(),
        range: 0..0,
        buffer: Buffer::default(),
    }))
}

struct Client {
    prepared: Arc<Prepared>,
    connection: Arc<dyn Connection>,
    /// All of them, the newest version of each.
    columns: Columns,
    arena: Arena,
    range: Range<u64>,
    buffer: Buffer,
}

/// Rows in the client's buffer that are not sent yet.
#[derive(Default)]
struct Buffer {
    puts: Vec<Put>,
    writes: Vec<Write>,
    bytes: u64,
}

/// One row about to be written.
struct NewRow {
    key: Bytes,
    cells: Cells,
    write: Option<Write>,
}

#[async_trait]
impl Actor for Client {
    fn begin(&mut self, range: Range<u64>) {
        self.range = range;
    }

    async fn step(&mut self, index: u64) -> Result<Step> {
        let prepared = Arc::clone(&self.prepared);
        let chosen = prepared.operations.at(index);
        let number = match chosen.age {
            Some(age) => prepared.recent.key(age, prepared.workload.keys.records),
            None => chosen.key,
        };
        let Some((operation, _)) = prepared.workload.mix.get(usize::from(chosen.kind)) else {
            return Err(TargetError::Unsupported(format!("operation of kind {}", chosen.kind)));
        };
        let mut step = match operation {
            Operation::Put => self.put(number).await,
            Operation::BufferedPut { buffer_bytes } => self.buffered_put(number, *buffer_bytes).await,
            Operation::Insert => self.insert(number).await,
            Operation::Get => self.get(number).await,
            Operation::ShortScan {
                rows,
                vary,
                rows_per_fetch,
            } => {
                let mut random = chosen.random;
                let rows = if *vary {
                    1 + random.below(u64::from(*rows))
                } else {
                    u64::from(*rows)
                };
                self.short_scan(number, rows, *rows_per_fetch).await
            }
            Operation::Scan { rows_per_fetch } => self.scan_part(index, *rows_per_fetch).await,
            Operation::Increment => self.increment(number).await,
            Operation::CheckAndPut => self.check_and_put(number).await,
            Operation::ReadModifyWrite => self.read_modify_write(number).await,
        }?;
        step.kind = chosen.kind;
        Ok(step)
    }

    async fn finish(&mut self) -> Result<Step> {
        let mut step = self.flush().await?;
        let kinds = self.prepared.workload.mix.iter().zip(0u8..);
        let mut buffered = kinds.filter(|((operation, _), _)| matches!(operation, Operation::BufferedPut { .. }));
        step.kind = buffered.next().map_or(0, |(_, kind)| kind);
        Ok(step)
    }
}

impl Client {
    fn key(&mut self, number: u64) -> Bytes {
        let coder = &self.prepared.coder;
        self.arena.cut(coder.key_bytes(), |out| coder.write(number, out))
    }

    /// Makes a row, whose write begins here.
    fn new_row(&mut self, number: u64) -> Result<NewRow> {
        let write = match &self.prepared.ledger {
            Some(ledger) => ledger
                .begin_write(number)
                .map_err(TargetError::Unsupported)?
                .map(|(write, _)| write),
            None => None,
        };
        Ok(self.row_of(number, write))
    }

    fn row_of(&mut self, number: u64, write: Option<Write>) -> NewRow {
        let key = self.key(number);
        let version = write.map_or(Version::LOADED, |write| self.prepared.numbered(write.version));
        let cells = self.prepared.shape.cells(key_hash(&key), version, &mut self.arena);
        NewRow { key, cells, write }
    }

    /// Ends a write in the `Ledger`. Returns whether no other write of its key overlapped it.
    fn end_write(&self, write: Option<Write>, ending: Ending) -> bool {
        match (&self.prepared.ledger, write) {
            (Some(ledger), Some(write)) => ledger.end_write(write, ending),
            _ => false,
        }
    }

    async fn send(&mut self, row: NewRow) -> Result<Step> {
        let bytes = put_bytes(&row.key, &row.cells);
        let put = Put {
            key: row.key,
            cells: row.cells,
        };
        let sent = self.connection.put(&self.prepared.workload.table, put).await;
        let ending = if sent.is_ok() {
            Ending::Acknowledged
        } else {
            Ending::Unknown
        };
        self.end_write(row.write, ending);
        sent.map(|()| one_row(bytes, Verdict::default()))
    }

    async fn put(&mut self, number: u64) -> Result<Step> {
        let row = self.new_row(number)?;
        self.send(row).await
    }

    async fn insert(&mut self, number: u64) -> Result<Step> {
        let capacity = self.prepared.coder.capacity();
        if number >= capacity {
            return Err(TargetError::Unsupported(format!(
                "row {number} in a key format for {capacity}"
            )));
        }
        let step = self.put(number).await?;
        self.prepared.recent.push(number);
        Ok(step)
    }

    async fn buffered_put(&mut self, number: u64, buffer_bytes: u64) -> Result<Step> {
        let row = self.new_row(number)?;
        let bytes = put_bytes(&row.key, &row.cells);
        self.buffer.bytes += bytes;
        self.buffer.writes.extend(row.write);
        self.buffer.puts.push(Put {
            key: row.key,
            cells: row.cells,
        });
        let sent = if self.buffer.bytes >= buffer_bytes {
            self.flush().await?
        } else {
            unsent()
        };
        Ok(Step { operations: 1, ..sent })
    }

    /// Sends the buffered rows. The step stands for no operation, and acknowledges all rows sent.
    async fn flush(&mut self) -> Result<Step> {
        if self.buffer.puts.is_empty() {
            return Ok(unsent());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let rows = u32::try_from(buffer.puts.len()).unwrap_or(u32::MAX);
        // The next buffer will be about as full.
        self.buffer.puts.reserve(buffer.puts.len());
        let sent = self
            .connection
            .put_many(&self.prepared.workload.table, buffer.puts)
            .await;
        let ending = if sent.is_ok() {
            Ending::Acknowledged
        } else {
            Ending::Unknown
        };
        for write in buffer.writes {
            self.end_write(Some(write), ending);
        }
        sent.map(|()| Step {
            acknowledged: Some(rows),
            rows,
            bytes: buffer.bytes,
            ..Step::default()
        })
    }

    /// Reads a row and judges it.
    async fn read(&mut self, number: u64) -> Result<(Bytes, Option<Row>, Option<Version>, Verdict)> {
        let key = self.key(number);
        let prepared = Arc::clone(&self.prepared);
        let before = prepared.before(number);
        let row = self
            .connection
            .get(&prepared.workload.table, key.clone(), &self.columns)
            .await?;
        let mut verdict = Verdict::default();
        let version = if prepared.workload.verify {
            prepared.judge_one((number, &key), before.as_ref(), row.as_ref(), &mut verdict)
        } else {
            None
        };
        Ok((key, row, version, verdict))
    }

    async fn get(&mut self, number: u64) -> Result<Step> {
        let (key, row, _, verdict) = self.read(number).await?;
        let mut step = one_row(key.len() as u64, verdict);
        match row {
            Some(row) => step.bytes = row_bytes(&row),
            None => step.rows = 0,
        }
        Ok(step)
    }

    async fn read_modify_write(&mut self, number: u64) -> Result<Step> {
        let mut step = self.get(number).await?;
        let written = self.put(number).await?;
        step.rows += written.rows;
        step.bytes += written.bytes;
        Ok(step)
    }
}

fn one_row(bytes: u64, verdict: Verdict) -> Step {
    Step {
        kind: 0,
        operations: 1,
        acknowledged: None,
        rows: 1,
        bytes,
        verdict,
    }
}

/// Nothing was sent.
fn unsent() -> Step {
    Step {
        acknowledged: Some(0),
        ..Step::default()
    }
}

#[cfg(test)]
mod tests;
