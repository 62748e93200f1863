//! What a check found, for people and for programs; and how far it has come.

use crate::sizes;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_sstable::SstableError;
use stele_sstable::damage::is_damage;
use stele_storage::StorageError;
use stele_types::{ErrorKind, TabletId};

/// Findings kept; a folder that is damaged all over need not be described file by file.
const FINDINGS_MAX: usize = 10_000;

/// Whether something is wrong or only odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A server fails on it.
    Damage,
    /// It does no harm.
    Note,
}

/// Which rows a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tablet.
    pub tablet: TabletId,
    /// Its table, when the catalog tells.
    pub table: Option<String>,
    /// First row, and last row or first row past it; escaped.
    pub rows: Option<(String, Option<String>)>,
}

/// Something a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Wrong or odd.
    pub severity: Severity,
    /// Path in the data folder, or a catalog key.
    pub file: String,
    /// Where in it.
    pub offset: Option<u64>,
    /// What.
    pub what: String,
    /// Whose rows.
    pub places: Vec<Place>,
}

/// Everything a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of discovery, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more: u64,
    /// Damages among all.
    pub damages: u64,
    /// Tables of the catalog.
    pub tables: u64,
    /// Tablets of the catalog.
    pub tablets: u64,
    /// Files of any kind.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The same for people.
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

/// What is wrong with bytes that the device cannot read.
pub fn unreadable(message: &str) -> String {
    format!("the device cannot read what is there: {message}")
}

/// Whether the medium failed in another way, as when a network is slow: that may pass, and says nothing of what is there.
pub fn may_pass(error: &SstableError) -> bool {
    !is_damage(error) && matches!(error, SstableError::Storage(error) if storage_may_answer(error))
}

/// The same of what the medium said.
pub fn storage_may_answer(error: &StorageError) -> bool {
    !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound)
}

impl Report {
    /// Whether anything is wrong.
    pub fn is_damaged(&self) -> bool {
        self.damages > 0
    }

    /// Adds something wrong.
    pub fn damage(&mut self, file: &str, offset: Option<u64>, what: impl Into<String>, places: Vec<Place>) {
        self.damages += 1;
        self.push(Finding {
            severity: Severity::Damage,
            file: file.to_owned(),
            offset,
            what: what.into(),
            places,
        });
    }

    /// Adds damage that an sstable's error describes.
    pub fn sstable_damage(&mut self, path: &str, error: &SstableError, places: Vec<Place>) {
        match error {
            SstableError::Corruption { offset, detail, .. } => self.damage(path, Some(*offset), detail.clone(), places),
            SstableError::Storage(StorageError::Unreadable { offset, message, .. }) => {
                self.damage(path, Some(*offset), unreadable(message), places);
            }
            other => self.damage(path, None, other.to_string(), places),
        }
    }

    /// Adds something odd.
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
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// A line for each finding, then the sum.
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
        if self.more > 0 {
            let _ = writeln!(out, "… and {} more", self.more);
        }
        let notes = self.findings.len() as u64 + self.more - self.damages;
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
                "{damages} damages, {notes} notes; `stele repair --dry-run` says what would be lost"
            ),
        };
        out
    }

    /// One JSON object.
    pub fn to_json(&self) -> String {
        let findings: Vec<_> = self.findings.iter().map(Finding::to_json).collect();
        let object = json!({
            "damaged": self.is_damaged(),
            "damages": self.damages,
            "findings": findings,
            "findings_left_out": self.more,
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

/// How far a check has come, shown once a second when somebody watches.
#[derive(Clone)]
pub struct Progress {
    inner: Arc<Inner>,
}

struct Inner {
    /// Absent when nobody watches.
    env: Option<Env>,
    expected: AtomicU64,
    done: AtomicU64,
    /// When it was shown last, in seconds of the environment's clock.
    shown_at: AtomicU64,
}

impl Progress {
    /// Shown on standard error, if that is a terminal.
    pub fn to_terminal(env: Env) -> Self {
        Self::new(Some(env).filter(|_| std::io::stderr().is_terminal()))
    }

    /// Not shown.
    pub fn hidden() -> Self {
        Self::new(None)
    }

    fn new(env: Option<Env>) -> Self {
        Progress {
            inner: Arc::new(Inner {
                env,
                expected: AtomicU64::new(0),
                done: AtomicU64::new(0),
                shown_at: AtomicU64::new(0),
            }),
        }
    }

    /// How many bytes there are to look at.
    pub fn expect(&self, bytes: u64) {
        self.inner.expected.store(bytes, Ordering::Relaxed);
    }

    /// So many bytes more have been looked at.
    pub fn add(&self, bytes: u64) {
        let inner = &*self.inner;
        let done = inner.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(env) = &inner.env else { return };
        let now = env.now().max(Duration::from_secs(1)).as_secs();
        if inner.shown_at.swap(now, Ordering::Relaxed) != now {
            let expected = inner.expected.load(Ordering::Relaxed);
            let (done, expected) = (sizes::show_bytes(done), sizes::show_bytes(expected));
            // Nobody minds a line that does not get through.
            let _ = writeln!(std::io::stderr(), "checked {done} of {expected}");
        }
    }
}
