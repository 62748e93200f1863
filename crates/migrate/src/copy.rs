//! Copies the ranges of tables.
//!
//! Each range has one scanner. While the target writes a response's cells, the next response is fetched. Rows are not
//! assembled: a row may arrive and be written in parts.
//!
//! Cells are written as soon as they have come, for a copy cannot know of deletes that come in between. A limit on
//! the rate therefore delays the next response, never cells that were read.

use crate::changes::{Change, Converter, Counts};
use crate::ends::Ends;
use crate::journal::{Journal, Range, Totals};
use crate::late::{LATE, LateRows, is_tombstone};
use crate::pace::Pace;
use crate::workers;
use anyhow::{Context, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stele_cli::escape::escape;
use stele_cli::progress::{Progress, count};
use stele_hbaseclient::batch;
use stele_hbaseclient::scan::{Rows, Scanner, View};

#[cfg(test)]
mod tests;

/// Between writes of the progress file: how much work an interruption costs at most.
const SAVE_INTERVAL: Duration = Duration::from_secs(2);

/// Copies rows from one cluster to the other.
#[derive(Clone)]
pub struct Transfer {
    /// Both clusters.
    pub ends: Arc<Ends>,
    /// Limit on the bytes read.
    pub pace: Arc<Pace>,
    /// Whether tags that the target does not have are left out.
    pub ignore_tags: bool,
}

impl Transfer {
    /// Copies rows. After each acknowledged write, `note` gets the last whole row, the numbers and the bytes of it.
    ///
    /// # Errors
    /// A failure of either side that remains after all retries, or cells that cannot be copied.
    pub async fn run(
        &self,
        table: &str,
        view: View,
        rows: Rows,
        note: impl Fn(Option<Bytes>, Counts, u64),
    ) -> Result<()> {
        let mut scanner = Scanner::new(Arc::clone(&self.ends.source), table, rows, view);
        let (mut converter, mut late) = (Converter::new(self.ignore_tags), LateRows::default());
        let mut next = scanner.next().await?;
        while let Some(cells) = next {
            let late_row = late.note(&cells, Instant::now()).filter(|_| view == View::Raw);
            if cells.again {
                converter.again();
            }
            let (changes, counts) = converter.convert(cells.cells)?;
            let write = self.write(table, changes);
            let read = async {
                scanner.wait_until(self.pace.begin(cells.bytes)).await;
                scanner.next().await
            };
            let (written, following) = futures::join!(write, read);
            written?;
            if let Some(row) = late_row {
                self.write_tombstones(table, row).await?;
            }
            note(cells.whole, counts, cells.bytes);
            next = following?;
        }
        Ok(())
    }

    /// Writes changes. If that took long, tombstones may have been written long before the cells that they hide, and be gone
    /// already. So they are written again.
    async fn write(&self, table: &str, mut changes: Vec<Change>) -> Result<()> {
        let began = Instant::now();
        let target = &self.ends.target;
        let written = batch::write(target, table, &changes).await;
        written.context("writing to the target")?;
        if began.elapsed() <= LATE {
            return Ok(());
        }
        changes.retain(Change::is_delete);
        let written = batch::write(target, table, &changes).await;
        written.context("writing to the target")
    }

    /// Reads a row once more, and writes its tombstones.
    async fn write_tombstones(&self, table: &str, row: Bytes) -> Result<()> {
        let mut scanner = Scanner::new(Arc::clone(&self.ends.source), table, Rows::one(row), View::Raw);
        let mut converter = Converter::new(self.ignore_tags);
        while let Some(mut cells) = scanner.next().await? {
            cells.cells.retain(|(cell, _)| is_tombstone(cell));
            let (changes, _) = converter.convert(cells.cells)?;
            self.write(table, changes).await?;
            scanner.wait_until(self.pace.begin(cells.bytes)).await;
        }
        Ok(())
    }
}

/// A copy of tables.
pub struct Copy {
    /// How rows are copied.
    pub transfer: Transfer,
    /// How far it is.
    pub journal: Arc<Mutex<Journal>>,
}

/// A range of a table that is not done.
struct Part {
    table: Arc<str>,
    view: View,
    /// Its place among the ranges of the table.
    at: usize,
    /// Its rows that are not copied.
    rows: Rows,
}

impl Copy {
    /// Copies all ranges of the tables that are not done, `parallel` at a time.
    ///
    /// # Errors
    /// The first failure, after which the progress is saved.
    pub async fn run(self: &Arc<Self>, tables: &[(String, View)], parallel: usize) -> Result<Totals> {
        let names = || tables.iter().map(|(name, _)| name.as_str());
        let before = self.journal.lock().totals(names());
        if before.rows > 0 {
            eprintln!("continuing after {}", count(before.rows, "row"));
        }
        let parts = self.parts(tables);
        let tasks = parts.into_iter().map(|part| {
            let copy = Arc::clone(self);
            async move { copy.part(&part).await }
        });
        let mut progress = Progress::new("copied", None, before.rows);
        let mut saved = Instant::now();
        let tick = || {
            let journal = self.journal.lock();
            let totals = journal.totals(names());
            progress.note(format!("{} of {}", totals.done, count(totals.ranges, "range")));
            progress.update(totals.rows, totals.bytes);
            if saved.elapsed() >= SAVE_INTERVAL {
                journal.save()?;
                saved = Instant::now();
            }
            Ok(())
        };
        let result = workers::run(tasks, parallel, tick).await;
        let journal = self.journal.lock();
        let after = journal.totals(names());
        let saved = journal.save();
        let seconds = progress.finish().as_secs_f64();
        result.with_context(|| {
            format!(
                "stopped after {}; run the same command again to continue",
                count(after.rows, "row")
            )
        })?;
        saved?;
        let (rows, cells) = (after.rows - before.rows, after.cells - before.cells);
        let rate = rows as f64 / seconds.max(0.001);
        let all = match before.rows {
            0 => String::new(),
            _ => format!("; {} with those of earlier runs", count(after.rows, "row")),
        };
        println!(
            "copied {}, {} in {seconds:.1} s ({}/s){all}",
            count(rows, "row"),
            count(cells, "cell"),
            count(rate as u64, "row")
        );
        Ok(after)
    }

    /// All ranges that are not done, with the rows that are left of them.
    fn parts(&self, tables: &[(String, View)]) -> Vec<Part> {
        let journal = self.journal.lock();
        let mut parts = Vec::new();
        for (name, view) in tables {
            let table: Arc<str> = name.as_str().into();
            let ranges = journal.progress.tables.get(name).into_iter().flatten();
            for (at, range) in ranges.enumerate().filter(|(_, range)| !range.done) {
                parts.push(Part {
                    table: Arc::clone(&table),
                    view: *view,
                    at,
                    rows: left(range),
                });
            }
        }
        parts
    }

    async fn part(&self, part: &Part) -> Result<()> {
        let copied = self.rows(part).await;
        copied.with_context(|| {
            let (start, end) = (escape(&part.rows.start), escape(&part.rows.end));
            format!("table {}, rows from {start:?} to {end:?}", part.table)
        })
    }

    async fn rows(&self, part: &Part) -> Result<()> {
        let note = |whole, counts, bytes| self.note(part, whole, counts, bytes);
        let rows = part.rows.clone();
        self.transfer.run(&part.table, part.view, rows, note).await?;
        if let Some(range) = self.journal.lock().range(&part.table, part.at) {
            range.done = true;
        }
        Ok(())
    }

    fn note(&self, part: &Part, whole: Option<Bytes>, counts: Counts, bytes: u64) {
        let mut journal = self.journal.lock();
        let Some(range) = journal.range(&part.table, part.at) else {
            return;
        };
        if let Some(whole) = whole {
            debug_assert!(range.through.as_ref().is_none_or(|through| *through <= whole));
            // A copy: the row is a slice of a whole response.
            range.through = Some(Bytes::copy_from_slice(&whole));
        }
        range.rows += counts.rows;
        range.cells += counts.cells;
        range.bytes += bytes;
    }
}

/// The rows of a range that are not copied.
fn left(range: &Range) -> Rows {
    let mut rows = Rows::between(range.start.clone(), range.end.clone());
    if let Some(through) = &range.through {
        rows.start = through.clone();
        rows.include_start = false;
    }
    rows
}
