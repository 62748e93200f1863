//! The facts about a read that the log of slow calls wants.

use crate::error::ServiceResult;
use crate::slow::{CallKind, CallRows, SlowCall, Work};
use std::time::Duration;
use stele_types::{ErrorKind, RowBatch, RowSet, TableName};

/// A read in progress.
pub(super) struct Reading {
    rows: CallRows,
    kind: CallKind,
    /// The time that the server has worked on it.
    pub(super) took: Duration,
    /// Blocks that were read in tablets that are finished.
    pub(super) blocks_of_tablets: u64,
    work: Work,
    error: Option<ErrorKind>,
}

impl Reading {
    /// A read of these rows begins.
    pub(super) fn new(rows: &RowSet) -> Self {
        Reading {
            kind: if rows.is_one_row() {
                CallKind::Get
            } else {
                CallKind::Scan
            },
            rows: CallRows::of_set(rows),
            took: Duration::ZERO,
            blocks_of_tablets: 0,
            work: Work::default(),
            error: None,
        }
    }

    /// Adds a batch, or the end.
    pub(super) fn add(&mut self, took: Duration, outcome: &ServiceResult<Option<RowBatch>>) {
        self.took += took;
        match outcome {
            Ok(Some(batch)) => {
                self.work.rows += batch.complete_rows() as u64;
                self.work.cells_seen += batch.seen.cells;
                self.work.cells_passed += batch.cell_count() as u64;
            }
            Ok(None) => {}
            Err(error) => self.error = Some(error.kind),
        }
    }

    /// As the log has it.
    pub(super) fn call(&self, table: &TableName, blocks_read: u64, ended_micros: i64) -> SlowCall {
        SlowCall {
            ended_micros,
            took: self.took,
            kind: self.kind,
            table: table.clone(),
            rows: self.rows.clone(),
            work: Work {
                blocks_read,
                ..self.work
            },
            error: self.error,
        }
    }
}
