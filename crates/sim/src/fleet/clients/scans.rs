//! Scans over several tablets, in pages and in either direction.
//!
//! A client asks for the next page behind the last row that it got, also after an error, as clients of front ends do. Each row that a
//! page returns or leaves out must be as it was at some moment of the request. A request begins when it is sent, and ends for a row when the
//! batch with it, or with a later row, arrives. Rows come in order, and each once.

use super::super::table_name;
use super::Clients;
use super::rows::rows_of;
use crate::history::Moment;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use stele_client::ReadRows;
use stele_types::{Cell, RowBatch, RowRange, RowSet, TableName, range};

/// Failed pages after which a client gives up.
const FAILURES_MAX: u32 = 6;
/// Most rows of a page.
const PAGE_MAX: u64 = 9;
/// Longest pause within a page, and between two, in milliseconds.
const PAUSE_MS_MAX: u64 = 400;

/// A scan, and how far it has come.
pub(super) struct Scan {
    table: TableName,
    reversed: bool,
    /// Rows of a page; 0 for all.
    page: u64,
    /// The moments between which each row was as it is found. `None` if they are those of the requests.
    moments: Option<(Moment, Moment)>,
    /// The client takes its time, so that tablets move meanwhile.
    pauses: bool,
    /// The range that was not read yet.
    rest: RowRange,
    /// The rows of it that a client may have written, in the order of the scan.
    due: VecDeque<Bytes>,
}

/// Why a page ended.
enum Page {
    /// It was full.
    Full,
    /// No rows are left.
    Last,
    /// The request failed behind some rows, or before all of them.
    Failed,
}

impl Scan {
    pub(super) fn new(table: TableName, rest: RowRange, reversed: bool) -> Scan {
        let mut due: VecDeque<Bytes> = rows_of(&rest).into();
        if reversed {
            due.make_contiguous().reverse();
        }
        Scan {
            table,
            reversed,
            page: 0,
            moments: None,
            pauses: false,
            rest,
            due,
        }
    }

    /// The same of a table whose rows were as they are between two moments.
    pub(super) fn between(self, moments: (Moment, Moment)) -> Scan {
        Scan {
            moments: Some(moments),
            ..self
        }
    }

    fn request(&self) -> ReadRows {
        ReadRows {
            reversed: self.reversed,
            rows_limit: self.page,
            ..ReadRows::new(self.table.clone(), RowSet::new(vec![self.rest.clone()]))
        }
    }

    /// Goes behind a row that was returned. Returns the rows that were left out before it, or fails if it was not to come.
    fn pass(&mut self, row: &Bytes) -> Result<Vec<Bytes>, String> {
        let Some(at) = self.due.iter().position(|due| due == row) else {
            return Err(format!(
                "a scan of {} (reversed: {}) has returned {row:?} out of order, twice, or without a write",
                self.table, self.reversed
            ));
        };
        let mut passed: Vec<Bytes> = self.due.drain(..=at).collect();
        passed.pop();
        match self.reversed {
            true => self.rest.end = Some(row.clone()),
            false => self.rest.start = range::successor(row),
        }
        Ok(passed)
    }
}

impl Clients {
    /// A scan of some rows by one client.
    pub(super) async fn scan_some(&self) {
        let bound = |bound: Bytes| (self.fleet.below(4) > 0).then_some(bound);
        let (one, other) = (bound(self.some_row()), bound(self.some_row()));
        let range = match (one, other) {
            (Some(one), Some(other)) => RowRange {
                start: one.clone().min(other.clone()),
                end: Some(range::successor(&one.max(other))),
            },
            (start, end) => RowRange {
                start: start.unwrap_or_default(),
                end,
            },
        };
        let mut scan = Scan::new(table_name(), range, self.fleet.below(2) == 0);
        if self.fleet.below(3) > 0 {
            scan.page = 1 + self.fleet.below(PAGE_MAX);
        }
        scan.pauses = self.fleet.below(2) == 0;
        self.scan(scan).await;
    }

    /// Reads the whole table in one direction.
    pub(super) async fn scan_all(&self, reversed: bool) -> bool {
        self.scan(Scan::new(table_name(), RowRange::all(), reversed)).await
    }

    /// Whether it came to its end.
    pub(super) async fn scan(&self, mut scan: Scan) -> bool {
        for _ in 0..FAILURES_MAX {
            loop {
                match self.page(&mut scan).await {
                    Page::Last => {
                        self.fleet.verdict.lock().scans += 1;
                        return true;
                    }
                    Page::Full => self.pause_in(&scan).await,
                    Page::Failed => break,
                }
            }
            self.pause_in(&scan).await;
        }
        false
    }

    async fn pause_in(&self, scan: &Scan) {
        if scan.pauses {
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
        }
    }

    async fn page(&self, scan: &mut Scan) -> Page {
        if scan.rest.is_empty() {
            return Page::Last;
        }
        let began = self.tick();
        self.fleet.sim.note(&format!(
            "scan {:?} of {}, reversed {}, {} rows",
            scan.rest, scan.table, scan.reversed, scan.page
        ));
        let mut stream = match self.service.read_rows(scan.request()).await {
            Ok(stream) => stream,
            Err(error) => {
                self.note_failed_read("scan", &scan.table, &error);
                return Page::Failed;
            }
        };
        let mut rows = 0;
        loop {
            match stream.next().await {
                Ok(Some(batch)) => {
                    rows += batch.len() as u64;
                    if !self.check_batch(scan, &batch, began) {
                        return Page::Failed;
                    }
                    self.pause_in(scan).await;
                }
                Ok(None) if scan.page > 0 && rows >= scan.page => return Page::Full,
                Ok(None) => {
                    let left = std::mem::take(&mut scan.due);
                    let moments = scan.moments.unwrap_or((began, self.tick()));
                    left.iter()
                        .for_each(|row| self.check_row(&scan.table, row, &[], moments));
                    return Page::Last;
                }
                Err(error) => {
                    self.note_failed_read("scan", &scan.table, &error);
                    return Page::Failed;
                }
            }
        }
    }

    /// Checks the rows of a batch, and those that should be among them; whether they are in order.
    fn check_batch(&self, scan: &mut Scan, batch: &RowBatch, began: Moment) -> bool {
        let moments = scan.moments.unwrap_or((began, self.tick()));
        for (row, cells) in batch.shared_rows() {
            let cells: &[Cell] = cells;
            match scan.pass(&row) {
                Ok(left_out) => {
                    left_out
                        .iter()
                        .for_each(|row| self.check_row(&scan.table, row, &[], moments));
                    self.check_row(&scan.table, &row, cells, moments);
                }
                Err(why) => {
                    self.fleet.violate(why);
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{of_counter, of_register};
    use super::*;

    fn scan(reversed: bool) -> Scan {
        let range = RowRange {
            start: of_counter(0),
            end: Some(of_counter(1)),
        };
        Scan::new(table_name(), range, reversed)
    }

    #[test]
    fn rows_that_are_left_out_come_to_light() {
        let mut forward = scan(false);
        assert_eq!(forward.pass(&of_counter(0)), Ok(Vec::new()));
        assert_eq!(
            forward.pass(&of_register(0, 2)).unwrap(),
            [of_register(0, 0), of_register(0, 1)]
        );
        assert!(forward.due.is_empty() && forward.rest.contains(b"az"));
        let mut backward = scan(true);
        assert_eq!(backward.pass(&of_register(0, 1)).unwrap(), [of_register(0, 2)]);
        assert_eq!(backward.rest.end, Some(of_register(0, 1)));
    }

    #[test]
    fn rows_out_of_order_or_twice_are_errors() {
        let mut forward = scan(false);
        assert!(forward.pass(&of_register(0, 1)).is_ok());
        assert!(forward.pass(&of_register(0, 1)).is_err(), "twice");
        assert!(forward.pass(&of_register(0, 0)).is_err(), "out of order");
        assert!(forward.pass(&of_counter(1)).is_err(), "not of the range");
    }
}
