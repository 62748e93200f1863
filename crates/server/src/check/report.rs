//! The findings of a check, for people and programs, and its progress.

use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_settings::sizes;
use stele_sstable::SstableError;
use stele_sstable::damage::is_damage;
use stele_storage::StorageError;
use stele_types::{ErrorKind, TabletId};

/// Most damages that are kept. A folder with damage everywhere need not be described file by file.
pub const DAMAGES_MAX: u64 = 10_000;

/// Most notes that are kept, apart from damages: those of an unclean stop must not take their places.
const NOTES_MAX: u64 = 10_000;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A server fails on it.
    Damage,
    /// It is harmless.
    Note,
}

/// The rows that a finding concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tablet.
    pub tablet: TabletId,
    /// Its table, when the catalog is readable.
    pub table: Option<String>,
    /// The first row, and the last row or the first row past the range; escaped.
    pub rows: Option<(String, Option<String>)>,
}

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Damage or note.
    pub severity: Severity,
    /// Path in the data folder, or a catalog key.
    pub file: String,
    /// The position in it.
    pub offset: Option<u64>,
    /// The description.
    pub what: String,
    /// The rows concerned.
    pub places: Vec<Place>,
}

/// All findings of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of discovery, at most [`DAMAGES_MAX`] damages and as many notes.
    pub findings: Vec<Finding>,
    /// The number of all damages.
    pub damages: u64,
    /// The number of all notes.
    notes: u64,
    /// Tables of the catalog.
    pub tables: u64,
    /// Tablets of the catalog.
    pub tablets: u64,
    /// Files of any kind.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The same size as text.
    pub shown_bytes: String,
    /// Sstables.
    pub sstables: u64,
    /// Value files.
    pub value_files: u64,
    /// Intact cells in sstables.
    pub cells: u64,
    /// Records of the commit log.
    pub log_records: u64,
}

/// Describes bytes that the device cannot read.
pub fn unreadable(message: &str) -> String {
    format!("the device cannot read these bytes: {message}")
}

/// Whether the storage failed in another way, such as a slow network. Such an error may be transient and says nothing
/// about the bytes.
pub fn may_pass(error: &SstableError) -> bool {
    !is_damage(error) && matches!(error, SstableError::Storage(error) if storage_may_answer(error))
}

/// The same for an error of the storage itself.
pub fn storage_may_answer(error: &StorageError) -> bool {
    !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound)
}

impl Report {
    /// Whether there is any damage.
    pub fn is_damaged(&self) -> bool {
        self.damages > 0
    }

    /// Adds a damage.
    pub fn damage(&mut self, file: &str, offset: Option<u64>, what: impl Into<String>, places: Vec<Place>) {
        self.push(Finding {
            severity: Severity::Damage,
            file: file.to_owned(),
            offset,
            what: what.into(),
            places,
        });
    }

    /// Adds the damage that an sstable's error describes.
    pub fn sstable_damage(&mut self, path: &str, error: &SstableError, places: Vec<Place>) {
        match error {
            SstableError::Corruption { offset, detail, .. } => self.damage(path, Some(*offset), detail.clone(), places),
            SstableError::Storage(StorageError::Unreadable { offset, message, .. }) => {
                self.damage(path, Some(*offset), unreadable(message), places);
            }
            other => self.damage(path, None, other.to_string(), places),
        }
    }

    /// Adds a note.
    pub fn note(&mut self, file: &str, what: impl Into<String>) {
        self.push(Finding {
            severity: Severity::Note,
            file: file.to_owned(),
            offset: None,
            what: what.into(),
            places: Vec::new(),
        });
    }

    fn push(&mut self, finding: Finding) {
        let (found, max) = match finding.severity {
            Severity::Damage => (&mut self.damages, DAMAGES_MAX),
            Severity::Note => (&mut self.notes, NOTES_MAX),
        };
        if *found < max {
            self.findings.push(finding);
        }
        *found += 1;
    }

    /// The number of damages that are not among the findings.
    pub fn damages_left_out(&self) -> u64 {
        self.damages.saturating_sub(DAMAGES_MAX)
    }

    fn notes_left_out(&self) -> u64 {
        self.notes.saturating_sub(NOTES_MAX)
    }

    /// The text: a line per finding, then the sum.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}: {}", finding.severity.word(), finding.file);
            if let Some(offset) = finding.offset {
                let _ = write!(out, " at offset {offset}");
            }
            let _ = writeln!(out, ": {}", finding.what);
            for place in &finding.places {
                let _ = writeln!(out, "    {}", place.to_text());
            }
        }
        for (left_out, word) in [(self.damages_left_out(), "damages"), (self.notes_left_out(), "notes")] {
            if left_out > 0 {
                let _ = writeln!(out, "… and {left_out} more {word}");
            }
        }
        let notes = self.notes;
        let _ = writeln!(
            out,
            "{} files, {}: {} tables, {} tablets, {} sstables with {} cells, {} value files, {} log records",
            self.files,
            self.shown_bytes,
            self.tables,
            self.tablets,
            self.sstables,
            self.cells,
            self.value_files,
            self.log_records
        );
        let _ = match self.damages {
            0 => writeln!(out, "nothing is damaged, {notes} notes"),
            damages => writeln!(
                out,
                "{damages} damages, {notes} notes; `stele repair --dry-run` lists the losses"
            ),
        };
        out
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        let findings: Vec<_> = self.findings.iter().map(Finding::to_json).collect();
        let object = json!({
            "damaged": self.is_damaged(),
            "damages": self.damages,
            "findings": findings,
            "findings_left_out": self.damages_left_out() + self.notes_left_out(),
            "damages_left_out": self.damages_left_out(),
            "tables": self.tables,
            "tablets": self.tablets,
            "files": self.files,
            "bytes": self.bytes,
            "sstables": self.sstables,
            "value_files": self.value_files,
            "cells": self.cells,
            "log_records": self.log_records,
        });
        format!("{object:#}\n")
    }
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Damage => "damage",
            Severity::Note => "note",
        }
    }
}

impl Finding {
    fn to_json(&self) -> serde_json::Value {
        let places: Vec<_> = self.places.iter().map(Place::to_json).collect();
        json!({
            "severity": self.severity.word(),
            "file": self.file,
            "offset": self.offset,
            "what": self.what,
            "places": places,
        })
    }
}

impl Place {
    fn to_text(&self) -> String {
        let table = self.table.as_deref().unwrap_or("an unknown table");
        let rows = match &self.rows {
            None => String::new(),
            Some((start, None)) => format!(", rows from \"{start}\""),
            Some((start, Some(end))) => format!(", rows \"{start}\" to \"{end}\""),
        };
        format!("tablet {} of {table}{rows}", self.tablet)
    }

    fn to_json(&self) -> serde_json::Value {
        let (start, end) = match &self.rows {
            Some((start, end)) => (Some(start), end.as_ref()),
            None => (None, None),
        };
        json!({ "tablet": self.tablet.0, "table": self.table, "first_row": start, "last_row": end })
    }
}

/// The progress of a check, shown once a second on a terminal.
#[derive(Clone)]
pub struct Progress {
    inner: Arc<Inner>,
}

struct Inner {
    /// The word for bytes that are done.
    verb: &'static str,
    /// Absent without a terminal.
    env: Option<Env>,
    expected: AtomicU64,
    done: AtomicU64,
    /// The time of the last line, in seconds of the environment's clock.
    shown_at: AtomicU64,
}

impl Progress {
    /// Progress on standard error, if that is a terminal.
    pub fn to_terminal(env: Env) -> Self {
        Self::saying("checked", env)
    }

    /// The same with another word than "checked".
    pub fn saying(verb: &'static str, env: Env) -> Self {
        Self::new(verb, Some(env).filter(|_| std::io::stderr().is_terminal()))
    }

    /// Progress that is not shown.
    pub fn hidden() -> Self {
        Self::new("checked", None)
    }

    fn new(verb: &'static str, env: Option<Env>) -> Self {
        Progress {
            inner: Arc::new(Inner {
                verb,
                env,
                expected: AtomicU64::new(0),
                done: AtomicU64::new(0),
                shown_at: AtomicU64::new(0),
            }),
        }
    }

    /// Sets the number of bytes to read.
    pub fn expect(&self, bytes: u64) {
        self.inner.expected.store(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that have been read.
    pub fn add(&self, bytes: u64) {
        let inner = &*self.inner;
        let done = inner.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(env) = &inner.env else { return };
        let now = env.now().max(Duration::from_secs(1)).as_secs();
        if inner.shown_at.swap(now, Ordering::Relaxed) != now {
            let expected = inner.expected.load(Ordering::Relaxed);
            let (done, expected) = (sizes::show_bytes(done), sizes::show_bytes(expected));
            // A line that cannot be written is dropped.
            let _ = writeln!(std::io::stderr(), "{} {done} of {expected}", inner.verb);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_take_no_places_of_damages() {
        let mut report = Report::default();
        for _ in 0..NOTES_MAX + 2 {
            report.note("sst/1.sst", "no manifest names it");
        }
        report.damage("sst/2.sst", None, "missing", Vec::new());
        let text = report.to_text();
        assert!(text.contains("damage: sst/2.sst: missing"), "{text}");
        assert!(text.contains("… and 2 more notes\n"), "{text}");
        assert!(text.contains("1 damages, 10002 notes;"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(
            (&json["findings_left_out"], &json["damages_left_out"]),
            (&2.into(), &0.into())
        );
        assert_eq!(json["findings"].as_array().unwrap().len(), 10_001);
    }
}
