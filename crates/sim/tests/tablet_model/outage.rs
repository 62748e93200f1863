//! Outages: parts of files that the device temporarily cannot read.
//!
//! Invariants during an outage:
//! * A result is right, or an error that names the damage; a scan that fails has left out nothing before that.
//! * A tablet that refers to no such file gives all results.
//! * A refused operation has changed nothing.
//!
//! Afterwards, files are reopened as a server does it, and each result is right immediately: no cell is lost, and no
//! deleted cell is back.

use super::{Outcome, Served, Table, text};
use bytes::Bytes;
use std::collections::BTreeMap;
use stele_storage::Storage;
use stele_tablet::{Manifest, ScanSpec, TabletError, TabletScanner};
use stele_types::{Cell, ErrorKind, RowRange, RowSet};

/// The rows that a scan has given, and whether it came to its end.
struct Scanned {
    rows: Vec<(Bytes, Vec<Cell>)>,
    is_complete: bool,
}

/// The result of an operation; `None` if it failed as it may during an outage.
pub(super) fn unless_unread<T>(is_outage: bool, outcome: Result<T, TabletError>) -> Outcome<Option<T>> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(error) if is_outage && error.kind() == ErrorKind::Corruption => Ok(None),
        Err(error) => Err(text(error)),
    }
}

impl Table {
    pub(super) fn is_outage(&self) -> bool {
        !self.unread.is_empty()
    }

    /// This number of files that were made one after the other cannot be read any more: all of each, or the byte at
    /// this distance from its end. Files that are open already have loaded the parts needed for that, until the process
    /// ends.
    pub(super) async fn begin_outage(&mut self, first: usize, count: usize, from_end: Option<u64>) -> Outcome<()> {
        let files = self.storage.list("sst/").await.map_err(text)?;
        let at = first.checked_rem(files.len()).unwrap_or(0);
        for file in files.iter().skip(at).take(count) {
            let bad = match from_end {
                None => 0..file.len,
                Some(from_end) => {
                    let at = file.len.saturating_sub(1 + from_end);
                    at..at + 1
                }
            };
            self.storage.make_unreadable(&file.path, bad);
            self.unread.insert(file.path.clone());
        }
        Ok(())
    }

    /// All files but the first few can be read again.
    pub(super) async fn end_outage(&mut self, but: usize) -> Outcome<()> {
        let over: Vec<String> = self.unread.iter().skip(but).cloned().collect();
        for path in over {
            self.storage.make_readable(&path);
            self.unread.remove(&path);
        }
        let files = &self.context.files;
        for sstable in files.damaged_sstables() {
            sstable.try_unreadable().await;
        }
        for file in files.unopened() {
            let is_open = files.open_again(file).await;
            if !is_open && !self.unread.contains(&file.path()) {
                return Err(format!("{} can be read and is not opened", file.path()));
            }
        }
        for served in &self.tablets {
            served.tablet.hold_opened().await.map_err(text)?;
        }
        if self.is_outage() {
            return self.check_during_outage(&RowRange::all(), false).await;
        }
        if let Some(served) = self.tablets.iter().find(|served| served.tablet.holds_unopened()) {
            return Err(format!("{} has not taken up what is open", served.tablet.id()));
        }
        self.check_scan(&RowRange::all(), false).await
    }

    /// Checks the rows of a range, each by itself and all of them.
    pub(super) async fn check_during_outage(&self, range: &RowRange, reversed: bool) -> Outcome<()> {
        for served in &self.tablets {
            let manifest = served.tablet.manifest().await;
            let is_concerned = self.is_concerned(&manifest);
            let range = served.tablet.range().intersect(range);
            if range.is_empty() {
                continue;
            }
            self.check_scanned(served, &range, reversed, is_concerned).await?;
            for row in self.model.rows().into_iter().filter(|row| range.contains(row)) {
                let only = RowRange::single(&row);
                self.check_scanned(served, &only, reversed, is_concerned).await?;
                let read = unless_unread(is_concerned, served.tablet.get_row(&row, None))?;
                if let Some(read) = read.flatten() {
                    let cells = read.rows().next().map_or(&[][..], |(_, cells)| cells);
                    self.model.check_row(&row, cells, self.env.wall_micros())?;
                }
            }
        }
        Ok(())
    }

    fn is_concerned(&self, manifest: &Manifest) -> bool {
        manifest.stored().any(|file| self.unread.contains(&file.path()))
    }

    async fn check_scanned(&self, served: &Served, range: &RowRange, reversed: bool, may_fail: bool) -> Outcome<()> {
        let now = self.env.wall_micros();
        let Scanned { rows, is_complete } = scan_as_far_as_possible(served, range, reversed, may_fail).await?;
        let last = rows.last().map(|(row, _)| row.clone());
        let has_come_to = |row: &Bytes| match &last {
            _ if is_complete => true,
            Some(last) if reversed => row >= last,
            Some(last) => row <= last,
            None => false,
        };
        let mut found: BTreeMap<Bytes, Vec<Cell>> = rows.into_iter().collect();
        for row in self.model.rows().into_iter().filter(|row| range.contains(row)) {
            let cells = found.remove(&row).unwrap_or_default();
            if has_come_to(&row) {
                self.model.check_row(&row, &cells, now)?;
            }
        }
        match found.pop_first() {
            Some((row, cells)) => Err(format!("row {} is not there: {cells:?}", row.escape_ascii())),
            None => Ok(()),
        }
    }
}

async fn scan_as_far_as_possible(
    served: &Served,
    range: &RowRange,
    reversed: bool,
    may_fail: bool,
) -> Outcome<Scanned> {
    let spec = ScanSpec {
        rows: RowSet::new(vec![range.clone()]),
        filter: None,
        reversed,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(served.tablet.clone(), spec);
    let mut rows = Vec::new();
    loop {
        match unless_unread(may_fail, scanner.next_batch().await)? {
            Some(Some(batch)) => rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec()))),
            end => {
                let is_complete = end.is_some();
                return Ok(Scanned { rows, is_complete });
            }
        }
    }
}
