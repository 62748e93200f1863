//! The verdict on answers: which rows and versions may come back from a read, and which did.
//!
//! Counted as *missing*: a row that must exist and did not come. *Unexpected*: one that cannot exist, or came out of order or
//! twice. *Wrong*: one that holds what was never written there. *Stale*: one that had been overwritten, by an acknowledged
//! write, before the read began. See [`super::ledger`] for the rule.

use super::contents::Presence;
use super::ledger::{Finding, Ledger, Snapshot};
use super::prepared::Prepared;
use super::values::Version;
use crate::activity::Verdict;
use crate::target::Row;
use bytes::Bytes;
use std::ops::Range;

/// Version zero of the ledger: what a key had before.
const BEFORE: u32 = 0;

impl Prepared {
    /// What is known of a key before it is read.
    pub(super) fn before(&self, key: u64) -> Option<Snapshot> {
        self.ledger.as_ref().and_then(|ledger| ledger.begin_read(key))
    }

    /// Judges the answer to a read of one row. The version that came, if it is one.
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

    /// Judges a row that came, apart from whether others should have come too.
    fn judge_row(&self, number: u64, before: Option<&Snapshot>, row: &Row, verdict: &mut Verdict) -> Option<Version> {
        let version = match self.shape.read(row) {
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

    fn judge_version(&self, before: Option<&Snapshot>, version: Version, key: &[u8], verdict: &mut Verdict) {
        let finding = match (&self.ledger, before) {
            (None, _) if version == Version::LOADED => Finding::Right,
            (None, _) => Finding::NeverWritten,
            (Some(ledger), Some(before)) => match self.counted(version) {
                Some(version) => ledger.end_read(before, version),
                // Another process wrote it, or this one before it lost its ledger.
                None => Finding::Right,
            },
            (Some(_), None) => Finding::Right,
        };
        match finding {
            Finding::Right => {}
            Finding::Stale => {
                verdict.stale += 1;
                verdict.example(|| {
                    let newest = before.and_then(|before| before.newest().0);
                    let newest = newest.map_or_else(String::new, |v| {
                        format!("; version {} was acknowledged", self.numbered(v))
                    });
                    format!("row {}: read version {version}{newest}", text(key))
                });
            }
            Finding::NeverWritten => {
                verdict.wrong += 1;
                verdict.example(|| format!("row {}: version {version} was never written", text(key)));
            }
        }
    }

    /// Where a version is in this worker's ledger; `None` if another one wrote it.
    fn counted(&self, version: Version) -> Option<u32> {
        if version == Version::LOADED {
            Some(BEFORE)
        } else {
            (version.writer() == self.writer).then(|| version.count())
        }
    }

    /// The version of that number in this worker's ledger.
    pub(super) fn numbered(&self, count: u32) -> Version {
        if count == BEFORE {
            Version::LOADED
        } else {
            Version::new(self.writer, count)
        }
    }
}

/// Judges the rows of one scan as they come.
pub(super) struct ScanJudge<'p> {
    prepared: &'p Prepared,
    /// Numbers of the rows asked for. Of interest only where rows are in the order of their numbers.
    numbers: Range<u64>,
    /// The first row asked for.
    start: Bytes,
    /// Most rows asked for.
    limit: Option<u64>,
    /// The last row that came.
    last: Option<Bytes>,
    /// As the scan began: writes begun, if none was under way.
    quiet: Option<u64>,
    pub(super) rows: u64,
    pub(super) verdict: Verdict,
}

impl<'p> ScanJudge<'p> {
    /// A scan is about to begin.
    pub(super) fn new(prepared: &'p Prepared, numbers: Range<u64>, start: Bytes, limit: Option<u64>) -> Self {
        Self {
            quiet: prepared.ledger.as_deref().and_then(Ledger::quiet),
            prepared,
            numbers,
            start,
            limit,
            last: None,
            rows: 0,
            verdict: Verdict::default(),
        }
    }

    /// A row came.
    pub(super) fn row(&mut self, row: &Row) {
        self.rows += 1;
        self.verdict.checked += 1;
        let is_behind = self.last.as_ref().is_some_and(|last| row.key <= *last) || row.key < self.start;
        let number = self.prepared.coder.number(&row.key);
        if is_behind {
            self.unexpected(row, "is out of order or came twice");
        } else if let Some(number) = number.filter(|&number| self.is_asked_for(number)) {
            self.skip_to(number);
            self.judge(number, row);
        } else {
            self.unexpected(row, "was not asked for");
        }
        if !is_behind {
            self.last = Some(row.key.clone());
        }
    }

    /// The scan is over.
    pub(super) fn end(mut self) -> Verdict {
        let is_cut = self.limit.is_some_and(|limit| self.rows >= limit);
        if let Some(limit) = self.limit
            && self.rows > limit
        {
            self.verdict.unexpected += self.rows - limit;
            let rows = self.rows;
            self.verdict.example(|| format!("{rows} rows, asked for {limit}"));
        }
        if self.prepared.coder.is_ordered() {
            if !is_cut {
                self.skip_to(self.numbers.end);
            }
        } else if self.last.is_none() && self.prepared.presence(self.numbers.start) == Presence::Present {
            self.missing(1);
        }
        self.verdict
    }

    fn is_asked_for(&self, number: u64) -> bool {
        !self.prepared.coder.is_ordered() || self.numbers.contains(&number)
    }

    /// Rows between the last one and this one have been passed over.
    fn skip_to(&mut self, number: u64) {
        if self.prepared.coder.is_ordered() {
            let skipped = self.prepared.contents.count(self.numbers.start..number);
            self.missing(skipped);
            self.numbers.start = number.saturating_add(1);
        } else if self.last.is_none()
            && number != self.numbers.start
            && self.prepared.presence(self.numbers.start) == Presence::Present
        {
            self.missing(1);
        }
    }

    fn judge(&mut self, number: u64, row: &Row) {
        let ledger = self.prepared.ledger.as_deref();
        let is_still = self.quiet.is_some() && ledger.and_then(Ledger::quiet) == self.quiet;
        let mut before = ledger.and_then(|ledger| ledger.begin_read(number));
        if !is_still && let Some(before) = &mut before {
            // It may have been overwritten since the scan began, so only what was never written is a fault.
            before.forgive();
        }
        self.prepared.judge_row(number, before.as_ref(), row, &mut self.verdict);
    }

    fn unexpected(&mut self, row: &Row, what: &str) {
        self.verdict.unexpected += 1;
        self.verdict.example(|| format!("row {} {what}", text(&row.key)));
    }

    fn missing(&mut self, rows: u64) {
        if rows > 0 {
            self.verdict.missing += rows;
            let after = self.last.as_ref().unwrap_or(&self.start);
            let after = text(after);
            self.verdict
                .example(|| format!("{rows} rows missing at or after row {after}"));
        }
    }
}

/// A key for a person to read.
fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
