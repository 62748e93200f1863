//! The verdict on responses: compares returned rows and versions with the possible ones.
//!
//! Terms: a *missing* row must exist and was not returned. An *unexpected* row cannot exist, or was returned out of
//! order or twice. A *wrong* row holds a value that was never written there. A *stale* row had been overwritten, by an
//! acknowledged write, before the read began. See [`super::ledger`] for the rule, and [`super::held`] for counters.

use super::contents::Presence;
use super::ledger::{Finding, Ledger, Snapshot};
use super::prepared::Prepared;
use super::values::Version;
use crate::outcome::Verdict;
use crate::target::{Row, Scan};
use bytes::Bytes;
use std::ops::Range;

/// Version zero of the `Ledger`: the state of a key before this process wrote it.
const BEFORE: u32 = 0;

impl Prepared {
    /// Knowledge about a key before it is read.
    pub(super) fn before(&self, key: u64) -> Option<Snapshot> {
        self.ledger.as_ref().and_then(|ledger| ledger.begin_read(key))
    }

    /// Judges the response to a read of one row. Returns the version of the row, if it is one.
    pub(super) fn judge_one(
        &self,
        key: (u64, &Bytes),
        before: Option<&Snapshot>,
        row: Option<&Row>,
        verdict: &mut Verdict,
    ) -> Option<Version> {
        verdict.checked += 1;
        let (number, bytes) = key;
        match row {
            Some(row) if row.key != *bytes => {
                verdict.unexpected += 1;
                verdict.example(|| format!("asked for row {}, got {}", text(bytes), text(&row.key)));
                None
            }
            Some(row) => self.judge_row(number, before, row, verdict),
            None => {
                let was_there = match (self.presence(number), &self.ledger, before) {
                    (Presence::Present, ..) => true,
                    (_, Some(ledger), Some(before)) => ledger.end_read(before, BEFORE) != Finding::Right,
                    _ => false,
                };
                if was_there {
                    verdict.missing += 1;
                    verdict.example(|| format!("row {} is missing", text(bytes)));
                }
                None
            }
        }
    }

    /// Judges a returned row by itself, regardless of missing rows.
    fn judge_row(&self, number: u64, before: Option<&Snapshot>, row: &Row, verdict: &mut Verdict) -> Option<Version> {
        let read = self.shape.read(row);
        if read.is_ok() {
            self.judge_counter(number, row, verdict);
        }
        let version = match read {
            Ok(Some(version)) => version,
            Ok(None) => {
                if self.has_values {
                    verdict.wrong += 1;
                    verdict.example(|| format!("row {} has none of its columns", text(&row.key)));
                }
                return None;
            }
            Err(fault) => {
                verdict.wrong += 1;
                verdict.example(|| format!("row {}: {fault}", text(&row.key)));
                return None;
            }
        };
        let was_written = before.is_some_and(Snapshot::has_writes);
        if self.presence(number) == Presence::Absent && !was_written {
            verdict.unexpected += 1;
            verdict.example(|| format!("row {} was never written", text(&row.key)));
            return Some(version);
        }
        self.judge_version(before, version, &row.key, verdict);
        Some(version)
    }

    /// Judges a row's counter by the increments of earlier runs. A row without one has a counter of zero.
    fn judge_counter(&self, number: u64, row: &Row, verdict: &mut Verdict) {
        let Some(held) = &self.held else { return };
        let (least, most) = held.bounds(number).into_inner();
        let most = if self.is_counting { i64::MAX } else { most };
        let value = match self.shape.counter(row) {
            None => Some(0),
            Some(bytes) => bytes.try_into().ok().map(i64::from_be_bytes),
        };
        if !value.is_some_and(|value| (least..=most).contains(&value)) {
            verdict.wrong += 1;
            verdict.example(|| {
                let value = value.map_or("not 8 bytes".to_owned(), |value| value.to_string());
                format!("counter {}: {value}, must be {least} to {most}", text(&row.key))
            });
        }
    }

    fn judge_version(&self, before: Option<&Snapshot>, version: Version, key: &[u8], verdict: &mut Verdict) {
        let finding = match (&self.ledger, before) {
            (None, _) if version == Version::LOADED => Finding::Right,
            (None, _) => Finding::NeverWritten,
            (Some(ledger), Some(before)) => match self.counted(version) {
                Some(version) => ledger.end_read(before, version),
                // Another process wrote it, or this one before it lost its `Ledger`.
                None => Finding::Right,
            },
            (Some(_), None) => Finding::Right,
        };
        match finding {
            Finding::Right => {}
            Finding::Stale => {
                verdict.stale += 1;
                verdict.example(|| {
                    let newest = before.map_or(BEFORE, |before| before.newest().0);
                    let newest = format!("; version {} was acknowledged before", self.numbered(newest));
                    format!("row {}: read version {version}{newest}", text(key))
                });
            }
            Finding::NeverWritten => {
                verdict.wrong += 1;
                verdict.example(|| format!("row {}: version {version} was never written", text(key)));
            }
        }
    }

    /// Index of a version in this worker's `Ledger`; `None` if another worker wrote it.
    fn counted(&self, version: Version) -> Option<u32> {
        if version == Version::LOADED {
            Some(BEFORE)
        } else {
            (version.writer() == self.writer).then(|| version.count())
        }
    }

    /// The version of that number in this worker's `Ledger`.
    pub(super) fn numbered(&self, count: u32) -> Version {
        if count == BEFORE {
            Version::LOADED
        } else {
            Version::new(self.writer, count)
        }
    }
}

/// Judges the rows of one scan as they arrive.
pub(super) struct ScanJudge<'p> {
    prepared: &'p Prepared,
    scan: &'p Scan,
    expected: Expected<'p>,
    /// The last row that arrived.
    last: Option<Bytes>,
    /// Writes begun at the start of the scan, if none was in progress.
    quiet: Option<u64>,
    rows: u64,
    verdict: Verdict,
}

/// Present keys that have not arrived yet, in the order of rows.
enum Expected<'p> {
    /// Rows are in the order of numbers: the present rows of this range.
    Numbers(Range<u64>),
    /// These.
    Sorted(&'p [u64]),
    /// Too many to be sorted: the engine compares the number of rows of the whole table.
    Unknown,
}

impl<'p> ScanJudge<'p> {
    /// Begins a scan. `places` are those of the requested rows.
    pub(super) fn new(prepared: &'p Prepared, scan: &'p Scan, places: Range<u128>) -> Self {
        let place = |number: &u64| prepared.coder.place(*number);
        let expected = if prepared.coder.is_ordered() {
            Expected::Numbers(places.start as u64..places.end.min(u128::from(u64::MAX)) as u64)
        } else {
            prepared.sorted.as_ref().map_or(Expected::Unknown, |sorted| {
                let start = sorted.partition_point(|number| place(number) < places.start);
                let end = sorted.partition_point(|number| place(number) < places.end);
                Expected::Sorted(sorted.get(start..end).unwrap_or_default())
            })
        };
        Self {
            quiet: prepared.ledger.as_deref().and_then(Ledger::quiet),
            prepared,
            scan,
            expected,
            last: None,
            rows: 0,
            verdict: Verdict::default(),
        }
    }

    /// Judges a row that arrived.
    pub(super) fn row(&mut self, row: &Row) {
        self.rows += 1;
        self.verdict.checked += 1;
        let is_behind = self.last.as_ref().is_some_and(|last| row.key <= *last);
        let is_asked_for = row.key >= self.scan.start && (self.scan.end.is_empty() || row.key < self.scan.end);
        if is_behind {
            self.unexpected(row, "is out of order or came twice");
            return;
        }
        match self.prepared.coder.number(&row.key).filter(|_| is_asked_for) {
            Some(number) => {
                self.pass(Some(number));
                self.judge(number, row);
            }
            None => self.unexpected(row, "was not asked for"),
        }
        self.last = Some(row.key.clone());
    }

    /// Ends the scan.
    pub(super) fn end(mut self) -> Verdict {
        let limit = self.scan.limit.unwrap_or(u64::MAX);
        if self.rows > limit {
            self.verdict.unexpected += self.rows - limit;
            let rows = self.rows;
            self.verdict.example(|| format!("{rows} rows, asked for {limit}"));
        }
        if self.rows < limit {
            self.pass(None);
        }
        self.verdict
    }

    /// Advances to the row of that number, or to the end. Expected rows before it are missing.
    fn pass(&mut self, to: Option<u64>) {
        let missing = match &mut self.expected {
            Expected::Numbers(numbers) => {
                let end = to.unwrap_or(numbers.end);
                let missing = self.prepared.contents.count(numbers.start..end);
                numbers.start = end.saturating_add(1);
                missing
            }
            Expected::Sorted(sorted) => {
                let place = |number: u64| self.prepared.coder.place(number);
                let missing = match to {
                    Some(to) => sorted.iter().take_while(|number| place(**number) < place(to)).count(),
                    None => sorted.len(),
                };
                let is_next = to.is_some() && sorted.get(missing).copied() == to;
                *sorted = sorted.get(missing + usize::from(is_next)..).unwrap_or_default();
                missing as u64
            }
            Expected::Unknown => 0,
        };
        if missing > 0 {
            self.verdict.missing += missing;
            let after = text(self.last.as_ref().unwrap_or(&self.scan.start));
            self.verdict
                .example(|| format!("{missing} rows missing at or after row {after}"));
        }
    }

    fn judge(&mut self, number: u64, row: &Row) {
        let ledger = self.prepared.ledger.as_deref();
        let is_still = self.quiet.is_some() && ledger.and_then(Ledger::quiet) == self.quiet;
        let mut before = ledger.and_then(|ledger| ledger.begin_read(number));
        if !is_still && let Some(before) = &mut before {
            // The row may have been overwritten since the scan began, so only a value that was never written is a
            // fault.
            before.forgive();
        }
        self.prepared.judge_row(number, before.as_ref(), row, &mut self.verdict);
    }

    fn unexpected(&mut self, row: &Row, what: &str) {
        self.verdict.unexpected += 1;
        self.verdict.example(|| format!("row {} {what}", text(&row.key)));
    }
}

/// A key for a person to read.
fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
